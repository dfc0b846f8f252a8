/* Two threads use each of many descriptors at the same moment, none of which anybody saw being opened. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILES = 900, THREADS = 2 };
static int files[FILES];
static atomic_int arrived;

static void meet(int round)
{
    atomic_fetch_add(&arrived, 1);
    for (int turns = 0; atomic_load(&arrived) < THREADS * (round + 1); turns++)
        if (turns > 10000)
            sched_yield();
}

static void *work(void *nothing)
{
    char byte;
    for (int i = 0; i < FILES; i++) {
        meet(i);
        if (pread(files[i], &byte, 1, 0) != 1)
            abort();
    }
    return nothing;
}

int main(void)
{
    pthread_t threads[THREADS];
    int fd = open("a", O_RDWR | O_CREAT, 0644);
    if (fd < 0 || write(fd, "a", 1) != 1 || close(fd) != 0)
        return 1;
    for (int i = 0; i < FILES; i++)
        files[i] = syscall(SYS_openat, AT_FDCWD, "a", O_RDONLY);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
