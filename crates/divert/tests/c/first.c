/* Threads of a child that use an inherited descriptor for the first time, all at once, share its position. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, READS = 20, CHILDREN = 40 };

static int fd;
static atomic_int ready, seen[THREADS * READS];

static void *reader(void *unused)
{
    unsigned char byte;
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < THREADS)
        ;
    for (int i = 0; i < READS; i++)
        if (read(fd, &byte, 1) == 1 && byte < THREADS * READS)
            atomic_fetch_add(&seen[byte], 1);
    return unused;
}

static int child(void)
{
    pthread_t threads[THREADS];
    int wrong = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, reader, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS * READS; i++)
        wrong += seen[i] != 1;
    return wrong > 100 ? 100 : wrong;
}

int main(int argc, char **argv)
{
    char path[4096];
    unsigned char all[THREADS * READS];
    int status, wrong = 0;
    (void)argc;
    for (int i = 0; i < THREADS * READS; i++)
        all[i] = i;
    snprintf(path, sizeof path, "%s/bytes", argv[1]);
    fd = open(path, O_RDWR | O_CREAT, 0644);
    if (write(fd, all, sizeof all) != sizeof all)
        return 1;
    for (int i = 0; i < CHILDREN; i++) {
        lseek(fd, 0, SEEK_SET);
        if (fork() == 0)
            _exit(child());
        wait(&status);
        wrong += status != 0;
    }
    printf("wrong %d position %ld\n", wrong, (long)lseek(fd, 0, SEEK_CUR));
    return 0;
}
