/* A program forks while its other threads are in the middle of all sorts of things; each child does the same. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 200 };

static char path[4096];
static FILE *stream;
static volatile int stop;

static int find(void)
{
    struct stat status;
    return stat("x", &status) == 0;
}

static int plan(void)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int planned = posix_spawn_file_actions_addopen(&actions, 5, path, O_RDONLY, 0) == 0;
    return posix_spawn_file_actions_destroy(&actions) == 0 && planned;
}

static int flush(void)
{
    return fputs("..", stream) >= 0 && fflush(NULL) == 0;
}

static void *again(void *what)
{
    int (*act)(void) = what;
    while (!stop)
        act();
    return NULL;
}

/* A child that hangs is killed: signals that it could have held back do not end it. */
static int ends_well(pid_t pid)
{
    int status;
    for (int ms = 0; ms < 20000; ms++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status == 0;
        usleep(1000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return 0;
}

static void try(const char *name, int (*act)(void), int (*child)(void))
{
    pthread_t thread;
    int failed = 0;
    stop = 0;
    pthread_create(&thread, NULL, again, act);
    for (int i = 0; i < FORKS && failed == 0; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child ? !child() : 0);
        failed += !ends_well(pid);
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("%s failed %d\n", name, failed);
}

int main(int argc, char **argv)
{
    (void)argc;
    snprintf(path, sizeof path, "%s/x", argv[1]);
    stream = fopen(path, "w");
    if (chdir(argv[1]) != 0 || stream == NULL)
        return 1;
    try("stat", find, find);
    try("spawn", plan, plan);
    try("flush", flush, NULL);
    return 0;
}
