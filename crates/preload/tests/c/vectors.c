/* Vectored, positioned, flagged and asynchronous calls, and copies inside the kernel. */
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

int main(void)
{
    char a[3000], b[500];
    struct iovec parts[2] = { { a, sizeof a }, { b, sizeof b } };
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    int fd = open64("vectors", O_RDWR | O_CREAT | O_TRUNC, 0644), to = creat("copied", 0644), pipes[2];
    off_t from_at = 100, to_at = 7000;
    if (writev(fd, parts, 2) != 3500 || pwritev(fd, parts, 2, 10000) != 3500 || pwritev2(fd, parts, 2, -1, 0) != 3500)
        return 1;
    if (pwritev2(fd, parts, 1, 0, RWF_APPEND) != 3000 || lseek64(fd, 50, SEEK_SET) != 50)
        return 2;
    if (readv(fd, parts, 2) != 3500 || preadv(fd, parts, 2, 5) != 3500 || preadv2(fd, parts, 1, -1, 0) != 3000)
        return 3;
    if (sendfile(to, fd, &from_at, 1234) != 1234 || sendfile64(to, fd, NULL, 111) != 111 || from_at != 1334)
        return 4;
    if (copy_file_range(fd, &from_at, to, &to_at, 2000, 0) != 2000 || copy_file_range(fd, NULL, to, NULL, 99, 0) != 99)
        return 5;
    if (pipe(pipes) || splice(fd, NULL, pipes[1], NULL, 500, 0) != 500 || splice(pipes[0], NULL, to, NULL, 500, 0) != 500)
        return 6;
    struct aiocb control = { .aio_fildes = fd, .aio_buf = a, .aio_nbytes = 700, .aio_offset = 20000 };
    const struct aiocb *all[] = { &control };
    if (aio_write(&control) || aio_suspend(all, 1, NULL) || aio_return(&control) != 700)
        return 7;
    if (posix_fallocate(fd, 0, 40000) || fsync(fd) || fdatasync(fd) || sync_file_range(fd, 0, 4096, 0) || ftruncate(fd, 39000))
        return 8;
    if (mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 4096) == MAP_FAILED)
        return 9;
    return 0;
}
