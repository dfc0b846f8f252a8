/* A file that is written in both ways is made durable in every way; another one is open meanwhile. */
#include <aio.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char path[4200];
    (void)argc;
    snprintf(path, sizeof path, "%s/file", argv[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0644), bad = write(fd, "one", 3) != 3;
    snprintf(path, sizeof path, "%s/other", argv[1]);
    int other = open(path, O_RDWR | O_CREAT, 0644), copy = dup(other);
    bad |= write(other, "other", 5) != 5 || copy < 0;
    bad |= fcntl(fd, F_SETFL, O_APPEND) != 0 || write(fd, "two", 3) != 3;
    bad |= fsync(fd) != 0 || fdatasync(fd) != 0;
    struct aiocb control = {.aio_fildes = fd};
    bad |= aio_fsync(O_SYNC, &control) != 0 || aio_error(&control) != 0;
    struct iovec part = {"three", 5};
    bad |= pwritev2(fd, &part, 1, -1, RWF_DSYNC | RWF_APPEND) != 5;
    bad |= syncfs(fd) != 0;
    sync();
    puts(bad ? "failed" : "done");
    return 0;
}
