/* Programs in a directory, argv[1], are run in every way there is: prints what comes of it, to be compared with a plain
 * directory. */

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void put(const char *path, const char *text, mode_t mode) {
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0666);
    if (write(fd, text, strlen(text)) < 0 || fchmod(fd, mode))
        perror(path);
    close(fd);
}

static void copy(const char *from, const char *to) {
    char bytes[65536];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_WRONLY, 0755);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0;)
        if (write(out, bytes, n) != n)
            perror(to);
    close(in);
    close(out);
}

static void ended(const char *what, pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    printf("%s: %d\n", what, WIFEXITED(status) ? WEXITSTATUS(status) : -status);
    fflush(stdout);
}

/* In a child: 100 and errno if nothing was run. */
#define RUN(call)                         \
    do {                                  \
        fflush(stdout);                   \
        pid_t child = fork();             \
        if (child == 0) {                 \
            call;                         \
            printf("%s\n", strerrorname_np(errno)); \
            fflush(stdout);               \
            _exit(100);                   \
        }                                 \
        ended(#call, child);              \
    } while (0)

#define RUN_LIGHT(call)          \
    do {                         \
        fflush(stdout);          \
        pid_t child = vfork();   \
        if (child == 0) {        \
            call;                \
            _exit(errno);        \
        }                        \
        ended("vfork " #call, child); \
    } while (0)

static void spawned(const char *what, int error, pid_t child) {
    if (error)
        printf("%s: %s\n", what, strerrorname_np(error));
    else
        ended(what, child);
}

static void spawns(char **arguments) {
    pid_t child = 0;
    int error = posix_spawn(&child, "./echo", NULL, NULL, arguments, environ);
    spawned("spawn", error, child);
    error = posix_spawn(&child, "./script", NULL, NULL, arguments, environ);
    spawned("spawn a script", error, child);
    error = posix_spawn(&child, "./none", NULL, NULL, arguments, environ);
    spawned("spawn nothing", error, child);
    error = posix_spawn(&child, "./data", NULL, NULL, arguments, environ);
    spawned("spawn data", error, child);
    error = posix_spawnp(&child, "echo-here", NULL, NULL, arguments, environ);
    spawned("spawn from the path", error, child);
    error = posix_spawnp(&child, "true", NULL, NULL, arguments, environ);
    spawned("spawn a local one from the path", error, child);
    error = posix_spawnp(&child, "none-such", NULL, NULL, arguments, environ);
    spawned("spawn none from the path", error, child);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_CREAT | O_WRONLY | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    error = posix_spawn(&child, "./echo", &actions, NULL, arguments, environ);
    spawned("spawn with actions", error, child);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "spawned", O_RDONLY, 0);
    posix_spawn_file_actions_addchdir_np(&actions, "sub");
    char *shell[] = {"sh", "-c", "cat; basename $(pwd); cat inner", NULL};
    error = posix_spawn(&child, "/bin/sh", &actions, NULL, shell, environ);
    spawned("spawn elsewhere", error, child);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    int fd = open("sub", O_RDONLY | O_DIRECTORY);
    posix_spawn_file_actions_addfchdir_np(&actions, fd);
    error = posix_spawn(&child, "/bin/sh", &actions, NULL, shell, environ);
    spawned("spawn elsewhere by descriptor", error, child);
    posix_spawn_file_actions_destroy(&actions);
    close(fd);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "none", O_RDONLY, 0);
    error = posix_spawn(&child, "/bin/sh", &actions, NULL, shell, environ);
    spawned("spawn with a file that is not there", error, child);
    posix_spawn_file_actions_destroy(&actions);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        /* What is run: ourselves. */
        char name[4096];
        ssize_t length = readlink("/proc/self/exe", name, sizeof name - 1);
        name[length < 0 ? 0 : length] = 0;
        /* Without the library, it says that it is in memory. */
        char *deleted = strstr(name, " (deleted)");
        if (deleted)
            *deleted = 0;
        printf("%s called as %s with %s, in %s\n", strrchr(name, '/') + 1, argv[0], argv[2], getenv("MARK") ? getenv("MARK") : "nothing");
        return 7;
    }
    if (chdir(argv[1]))
        return 1;
    char path[8192];
    snprintf(path, sizeof path, "%s:%s", argv[1], getenv("PATH"));
    setenv("PATH", path, 1);
    setenv("MARK", "an environment", 1);
    mkdir("sub", 0755);
    put("sub/inner", "inner\n", 0644);
    copy("/bin/echo", "echo");
    copy("/bin/echo", "echo-here");
    copy("/proc/self/exe", "self");
    put("data", "#!/bin/sh\n", 0644);
    put("script", "#!/bin/sh\necho script $0 $1 $#\n", 0755);
    put("script2", "#! ./script  an argument \nignored\n", 0755);
    put("by-self", "#!./self one two\n", 0755);
    put("bad", "#!/none/such\n", 0755);
    put("empty", "#!\n", 0755);
    put("bare", "echo bare $1\n", 0755);
    put("loop", "#!./loop\n", 0755);
    char *arguments[] = {"zero", "one", NULL};
    RUN(execve("./echo", arguments, environ));
    RUN(execv("./script", arguments));
    RUN(execv("./script2", arguments));
    RUN(execv("./by-self", arguments));
    RUN(execl("./echo", "zero", "1", "2", "3", "4", "5", "6", "7", "8", (char *)NULL));
    RUN(execlp("echo-here", "zero", "found", (char *)NULL));
    RUN(execlp("true", "true", (char *)NULL));
    RUN(execle("./self", "zero", "1", "2", (char *)NULL, environ));
    char *bare_environment[] = {"MARK=another", NULL};
    RUN(execle("./self", "zero", "1", "2", (char *)NULL, bare_environment));
    RUN(execve("./script", arguments, environ));
    RUN(execvp("bare", arguments));
    RUN(execvp("./bare", arguments));
    RUN(execv("./bare", arguments));
    RUN(execv("./none", arguments));
    RUN(execv("./data", arguments));
    RUN(execv("./sub", arguments));
    RUN(execv("./script/x", arguments));
    RUN(execv("./bad", arguments));
    RUN(execv("./empty", arguments));
    RUN(execv("./loop", arguments));
    RUN(execvp("none-such", arguments));
    RUN(execvp("", arguments));
    int fd = open("echo", O_RDONLY | O_CLOEXEC);
    RUN(fexecve(fd, arguments, environ));
    RUN(execveat(fd, "", arguments, environ, AT_EMPTY_PATH));
    close(fd);
    fd = open(".", O_RDONLY | O_CLOEXEC);
    RUN(execveat(fd, "echo", arguments, environ, 0));
    close(fd);
    RUN_LIGHT(execv("./echo", arguments));
    RUN_LIGHT(execv("./script", arguments));
    RUN_LIGHT(execv("./none", arguments));
    RUN_LIGHT((chdir("sub"), execl("/bin/cat", "cat", "inner", (char *)NULL)));
    printf("here: %d\n", access("sub", F_OK));
    spawns(arguments);
    fflush(stdout);
    printf("system %d\n", system("./script by system; cat spawned"));
    FILE *pipe = popen("./script by popen", "r");
    char line[100];
    printf("popen %s", fgets(line, sizeof line, pipe));
    printf("%d\n", WEXITSTATUS(pclose(pipe)));
    const char *programs[] = {"echo", "echo-here", "self"};
    for (int i = 0; i < 3; i++)
        unlink(programs[i]);
    return 0;
}
