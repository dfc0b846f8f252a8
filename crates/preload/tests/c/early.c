/* A library: does I/O before other constructors, and stands in front of write() itself. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long writes;

ssize_t write(int fd, const void *buffer, size_t n)
{
    static ssize_t (*next)(int, const void *, size_t);
    if (!next)
        next = dlsym(RTLD_NEXT, "write");
    __sync_fetch_and_add(&writes, 1);
    return next(fd, buffer, n);
}

__attribute__((constructor(101))) static void early(void)
{
    int fd = open("early", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "early\n", 6) != 6 || lseek(fd, 0, SEEK_CUR) != 6 || close(fd))
        abort();
    FILE *f = fopen("early", "a+");
    if (!f || fprintf(f, "%d\n", 12345) != 6 || fclose(f))
        abort();
}

__attribute__((destructor)) static void late(void)
{
    FILE *f = fopen("late", "w");
    fprintf(f, "%ld\n", writes);
    fclose(f);
}
