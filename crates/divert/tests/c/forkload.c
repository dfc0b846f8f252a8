/* A program with threads under load forks again and again; every child uses files, old and new. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, FORKS = 60 };

static const char *dir;
static volatile int stop, bad;
static int inherited;

static void *load(void *argument)
{
    char path[4096], b[5000], c[5000];
    snprintf(path, sizeof path, "%s/load%ld", dir, (long)argument);
    memset(b, 'a' + (int)(long)argument, sizeof b);
    while (!stop) {
        int fd = open(path, O_RDWR | O_CREAT, 0644);
        if (fd < 0 || pwrite(fd, b, sizeof b, 0) != sizeof b || pread(fd, c, sizeof c, 0) != sizeof c || memcmp(b, c, sizeof b))
            bad = 1;
        close(fd);
        free(malloc(1000));
    }
    return NULL;
}

static int child(int number)
{
    char path[4096], b[100], c[100];
    snprintf(path, sizeof path, "%s/child%d", dir, number);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    memset(b, 'A' + number % 26, sizeof b);
    int fine = fd >= 0 && write(fd, b, sizeof b) == sizeof b && pread(fd, c, sizeof c, 0) == sizeof c && memcmp(b, c, sizeof b) == 0;
    fine = fine && write(inherited, b, 10) == 10 && close(fd) == 0 && unlink(path) == 0;
    return !fine;
}

int main(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    dir = argv[1];
    snprintf(path, sizeof path, "%s/inherited", dir);
    inherited = open(path, O_WRONLY | O_CREAT, 0644);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, load, (void *)i);
    int failed = 0;
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(i));
        int status = -1;
        waitpid(pid, &status, 0);
        failed += status != 0;
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("failed %d bad %d position %ld\n", failed, bad, (long)lseek(inherited, 0, SEEK_CUR));
    return 0;
}
