/* Destructors of threads that do I/O, whichever comes last: ours may have run by then. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_key_t keys[3];
static int common;

/* Again and again, as often as the C library allows: there is always one that runs after all others. */
static void end(void *number)
{
    static __thread int rounds;
    char name[32];
    long key = (long)number - 1;
    snprintf(name, sizeof name, "end%ld", key);
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (write(fd, "gone", 4) != 4 || pwrite(common, "x", 1, key) != 1)
        abort();
    close(fd);
    FILE *f = fopen(name, "a");
    fputs(", and written\n", f);
    fclose(f);
    if (rounds++ < 6)
        pthread_setspecific(keys[key], number);
}

static void *work(void *nothing)
{
    char name[] = "work";
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (write(fd, name, 4) != 4)
        abort();
    close(fd);
    for (long i = 0; i < 3; i++)
        pthread_setspecific(keys[i], (void *)(i + 1));
    return nothing;
}

int main(void)
{
    pthread_t thread;
    common = open("common", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 3; i++)
        if (pthread_key_create(&keys[i], end))
            return 1;
    for (int i = 0; i < 5; i++)
        if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL))
            return 2;
    return 0;
}
