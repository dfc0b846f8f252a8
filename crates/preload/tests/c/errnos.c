/* errno: kept by what succeeds, and what the real call says by what fails. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

static int line;
#define KEEPS(call) do { errno = 4321; line = __LINE__; if (!(call) || errno != 4321) fail(#call); } while (0)
#define FAILS(call, with) do { errno = 0; line = __LINE__; if ((call) || errno != (with)) fail(#call); } while (0)

static void fail(const char *call)
{
    fprintf(stderr, "line %d: %s, errno %d\n", line, call, errno);
    exit(1);
}

int main(void)
{
    char buffer[10000];
    memset(buffer, 'x', sizeof buffer);
    struct iovec part = { buffer, 10 };
    int fd, other, copy;
    FILE *f;
    KEEPS((fd = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
    KEEPS((other = openat(AT_FDCWD, "b", O_RDWR | O_CREAT | O_TRUNC, 0644)) >= 0);
    KEEPS(write(fd, buffer, 10000) == 10000);
    KEEPS(pwrite(fd, buffer, 10, 5) == 10);
    KEEPS(lseek(fd, 0, SEEK_SET) == 0);
    KEEPS(read(fd, buffer, 100) == 100);
    KEEPS(pread(fd, buffer, 100, 50) == 100);
    KEEPS(readv(fd, &part, 1) == 10);
    KEEPS(writev(fd, &part, 1) == 10);
    KEEPS(preadv(fd, &part, 1, 0) == 10);
    KEEPS(sendfile(other, fd, NULL, 100) == 100);
    KEEPS(ftruncate(other, 50) == 0);
    KEEPS(fsync(other) == 0);
    KEEPS((copy = dup(fd)) >= 0);
    KEEPS(read(copy, buffer, 10) == 10);
    KEEPS(close(copy) == 0);
    KEEPS(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    KEEPS((f = fdopen(other, "r+")) != NULL);
    KEEPS(fseek(f, 0, SEEK_SET) == 0);
    setvbuf(f, malloc(64), _IOFBF, 64);
    KEEPS(fwrite(buffer, 1, 1000, f) == 1000);
    KEEPS(fprintf(f, "%d", 1) == 1);
    KEEPS(fflush(f) == 0);
    KEEPS(fseek(f, 10, SEEK_SET) == 0);
    KEEPS(fread(buffer, 1, 500, f) == 500);
    KEEPS(getc(f) != EOF);
    KEEPS(fclose(f) == 0);
    FAILS(open("/nonexistent/x", O_RDONLY) != -1, ENOENT);
    FAILS(fopen("/nonexistent/x", "r") != NULL, ENOENT);
    FAILS(read(-1, buffer, 1) != -1, EBADF);
    FAILS(write(9999, buffer, 1) != -1, EBADF);
    FAILS(close(9999) != -1, EBADF);
    FAILS(dup2(9999, 5) != -1, EBADF);
    FAILS(pread(fd, buffer, 1, -1) != -1, EINVAL);
    FAILS(lseek(fd, -5, SEEK_SET) != -1, EINVAL);
    void *volatile nowhere = (void *)16;
    FAILS(read(fd, nowhere, 1) != -1, EFAULT);
    FAILS(readv(fd, nowhere, 2) != -1, EFAULT);
    FAILS(sendfile(fd, fd, nowhere, 1) != -1, EFAULT);
    FAILS(copy_file_range(fd, nowhere, fd, nowhere, 1, 0) != -1, EFAULT);
    FAILS(open(nowhere, O_RDONLY) != -1, EFAULT);
    FAILS(ftruncate(fd, -1) != -1, EINVAL);
    close(fd);
    fd = open("a", O_RDONLY);
    FAILS(write(fd, buffer, 1) != -1, EBADF);
    f = fopen("/dev/full", "w");
    fputs("x", f);
    FAILS(fflush(f) != EOF, ENOSPC);
    return 0;
}
