/* Two threads use a descriptor at the same moment that nobody saw being opened, when there may be room for one more only. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 200, THREADS = 2, MEETINGS = 3 };
static int file;
static atomic_int arrived;

static void meet(int meeting)
{
    atomic_fetch_add(&arrived, 1);
    for (int turns = 0; atomic_load(&arrived) < THREADS * (meeting + 1); turns++)
        if (turns > 10000)
            sched_yield();
}

static void read_at(int offset)
{
    char byte;
    if (pread(file, &byte, 1, offset) != 1)
        abort();
}

static void *work(void *first)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (first)
            file = syscall(SYS_openat, AT_FDCWD, "a", O_RDONLY);
        meet(MEETINGS * i);
        read_at(2 * i);
        meet(MEETINGS * i + 1);
        if (first) {
            read_at(2 * i + 1);
            close(file);
            /* Whoever gives entries back needs a moment. */
            usleep(2000);
        }
        meet(MEETINGS * i + 2);
    }
    return NULL;
}

int main(void)
{
    static char bytes[2 * ROUNDS];
    pthread_t other;
    int fd = open("a", O_RDWR | O_CREAT, 0644);
    if (fd < 0 || write(fd, bytes, sizeof bytes) != sizeof bytes || close(fd) != 0)
        return 1;
    usleep(10000);
    pthread_create(&other, NULL, work, NULL);
    work(&fd);
    pthread_join(other, NULL);
    return 0;
}
