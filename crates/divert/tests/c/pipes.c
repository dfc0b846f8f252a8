/* Two threads fork, with a lock that both children get: what one of them needs for that, the other's child must not keep. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 200

/* Those that the program was started with. */
static int known;

static int pipes(void)
{
    int count = 0;
    for (int fd = 0; fd < 2048; fd++) {
        char path[64], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof name - 1) > 0)
            count += !strncmp(name, "pipe:", 5);
    }
    return count;
}

static void *forks(void *nothing)
{
    (void)nothing;
    long strange = 0;
    for (int i = 0; i < FORKS; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(pipes() - known);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
            strange += 1000;
        else
            strange += WEXITSTATUS(status);
    }
    return (void *)strange;
}

int main(int argc, char **argv)
{
    char path[4200];
    (void)argc;
    known = pipes();
    snprintf(path, sizeof path, "%s/locked", argv[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (flock(fd, LOCK_EX))
        return 1;
    pthread_t threads[2];
    long strange = 0;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, forks, NULL);
    for (int i = 0; i < 2; i++) {
        void *some;
        pthread_join(threads[i], &some);
        strange += (long)some;
    }
    printf("%d forks, %ld strange descriptors\n", 2 * FORKS, strange);
    return 0;
}
