/* Starts a program in one of the ways there are, with the environment or without. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define MANY 500

/* An environment of new strings, as some shells make it: ours among many others, which lie side by side, on pages of their own,
 * or the last one right before memory that is not there. */
static char **made(const char *how, const char *name)
{
    static char *list[MANY + 2];
    const char *value = name ? getenv(name) : NULL;
    int n = 0;
    for (int i = 0; i < MANY; i++) {
        int is_far = !strcmp(how, "far") || (!strcmp(how, "mixed") && i % 7 == 0);
        char *text = is_far && posix_memalign((void **)&text, 4096, 64) ? NULL : is_far ? text : malloc(64);
        snprintf(text, 64, "PRESAGIO_AREN%d=%d", i, i);
        list[n++] = text;
        if (value && i == MANY - 2) {
            char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            munmap(pages + 4096, 4096);
            list[n] = pages + 4096 - strlen(name) - strlen(value) - 2;
            sprintf(list[n++], "%s=%s", name, value);
        }
    }
    return list;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 1;
    const char *way = arguments[1], *path = arguments[2];
    char *const words[] = { arguments[2], NULL }, *const none[] = { NULL }, *const other[] = { "A=1", "B=2", NULL };
    void *volatile nowhere = (void *)16;
    pid_t pid = 0;
    int status, error = 0;
    if (!strcmp(way, "spawn"))
        error = posix_spawn(&pid, path, NULL, NULL, words, environ);
    else if (!strcmp(way, "bare-spawn"))
        error = posix_spawn(&pid, path, NULL, NULL, words, none);
    else if ((pid = strstr(way, "vfork") ? vfork() : fork()) == 0) {
        if (!strcmp(way, "bare") || !strcmp(way, "bare-vfork"))
            execve(path, words, other);
        if (!strcmp(way, "bare-places")) {
            /* As a shell looks for a program: not there, no file, no program, and there. */
            const char *places[] = { "/nonexistent/a", "a/b/c", "/tmp", "/etc/passwd", arguments[0], path };
            int text = open("text", O_WRONLY | O_CREAT, 0755);
            places[4] = text >= 0 && write(text, "none", 4) == 4 && !close(text) ? "./text" : "";
            for (int i = 0; i < 6; i++)
                execve(places[i], words, none);
        }
        const char *name = "PRESAGIO_ARENA";
        if (!strncmp(way, "made-", 5))
            execve(path, words, made(way + 5, name));
        if (!strncmp(way, "bare-made-", 10))
            execve(path, words, made(way + 10, NULL));
        if (!strcmp(way, "overwritten")) {
            /* As programs do that show what they are at. */
            memset(getenv(name) - strlen(name) - 1, 'x', strlen(name));
            execve(path, words, environ);
        }
        if (!strcmp(way, "same"))
            execve(path, words, environ);
        if (!strcmp(way, "null"))
            execve(path, words, NULL);
        if (!strcmp(way, "clear"))
            environ = NULL, execv(path, words);
        if (!strcmp(way, "bad"))
            _exit(execve(nowhere, words, environ) == -1 && execve(path, words, nowhere) == -1 && errno == EFAULT ? 0 : 9);
        execv(path, words);
        _exit(8);
    }
    if (error || pid < 0 || waitpid(pid, &status, 0) != pid)
        return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}
