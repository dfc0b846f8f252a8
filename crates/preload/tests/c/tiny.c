/* Threads with the smallest stack there is. */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *work(void *number)
{
    char name[16], byte;
    snprintf(name, sizeof name, "tiny%ld", (long)number);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 100; i++)
        if (write(fd, name, 5) != 5 || pread(fd, &byte, 1, i) != 1)
            abort();
    close(fd);
    return NULL;
}

int main(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, sysconf(_SC_THREAD_STACK_MIN)))
        return 1;
    pthread_t threads[10];
    for (long i = 0; i < 10; i++)
        if (pthread_create(&threads[i], &attributes, work, (void *)i))
            return 2;
    for (int i = 0; i < 10; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
