/* Threads on one descriptor and on their own, with a position each or offsets; signals run handlers meanwhile, which write
   too. Every byte is checked. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 6, ROUNDS = 120, BLOCK = 3000 };

static const char *dir;
static int shared, position, log_fd;
static volatile sig_atomic_t signals, bad;

static void on_signal(int number)
{
    (void)number;
    if (write(log_fd, "signal\n", 7) != 7)
        bad = 1;
    signals++;
}

static void fill(char *b, int who, int round)
{
    for (int i = 0; i < BLOCK; i++)
        b[i] = (char)(who * 31 + round * 7 + i % 251);
}

static void *work(void *argument)
{
    int who = (int)(long)argument;
    char path[4096], b[BLOCK], c[BLOCK], line[16];
    snprintf(path, sizeof path, "%s/own%d", dir, who);
    for (int round = 0; round < ROUNDS; round++) {
        fill(b, who, round);
        off_t at = ((off_t)round * THREADS + who) * BLOCK;
        if (pwrite(shared, b, BLOCK, at) != BLOCK || pread(shared, c, BLOCK, at) != BLOCK || memcmp(b, c, BLOCK))
            bad = 2;
        int own = open(path, O_RDWR | O_CREAT, 0644);
        if (own < 0 || pwrite(own, b, BLOCK, 0) != BLOCK || read(own, c, BLOCK) != BLOCK || memcmp(b, c, BLOCK))
            bad = 3;
        close(own);
        snprintf(line, sizeof line, "%02d %04d\n", who, round);
        if (write(position, line, 8) != 8)
            bad = 4;
    }
    return NULL;
}

static int count_lines(const char *name, int size)
{
    char path[4096], line[16];
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY);
    while (read(fd, line, size) == size && line[size - 1] == '\n')
        n++;
    close(fd);
    return n;
}

int main(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    dir = argv[1];
    snprintf(path, sizeof path, "%s/blocks", dir);
    shared = open(path, O_RDWR | O_CREAT, 0644);
    snprintf(path, sizeof path, "%s/lines", dir);
    position = open(path, O_RDWR | O_CREAT, 0644);
    snprintf(path, sizeof path, "%s/log", dir);
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    printf("bad %d lines %d of %d\n", (int)bad, count_lines("lines", 8), THREADS * ROUNDS);
    printf("signals %s logged %s\n", signals > 3 ? "some" : "too few", count_lines("log", 7) == signals ? "all" : "not all");
    return 0;
}
