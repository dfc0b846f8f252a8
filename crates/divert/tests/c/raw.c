/* System calls that go around the C library's functions get an error, and change nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REFUSED(call) printf("%s: %s\n", #call, (long)(call) == -1 ? "refused" : "DONE")

int main(int argc, char **argv)
{
    char path[4096], b[64];
    (void)argc;
    snprintf(path, sizeof path, "%s/raw", argv[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0644), to = open("/dev/null", O_RDWR);
    write(fd, "untouched", 9);
    struct iovec v = {b, 4};
    for (int i = 0; i < 2; i++) {
        REFUSED(syscall(SYS_read, fd, b, 4));
        REFUSED(syscall(SYS_pread64, fd, b, 4, 0));
        REFUSED(syscall(SYS_readv, fd, &v, 1));
        REFUSED(syscall(SYS_write, fd, "XXXX", 4));
        REFUSED(syscall(SYS_pwrite64, fd, "XXXX", 4, 0));
        REFUSED(syscall(SYS_writev, fd, &v, 1));
        REFUSED(syscall(SYS_ftruncate, fd, 0));
        REFUSED(syscall(SYS_ftruncate, fd, 100));
        REFUSED(syscall(SYS_fallocate, fd, 0, 0, 10000));
        REFUSED(syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, fd, 0));
        REFUSED(syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        REFUSED(syscall(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
        REFUSED(syscall(SYS_sendfile, to, fd, 0, 4));
        fd = open(path, O_RDONLY);
    }
    /* Numbers that change their meaning behind the library's back. */
    int low = open(path, O_RDWR), null = open("/dev/null", O_RDWR);
    printf("write %ld\n", (long)write(low, "ours", 4));
    syscall(SYS_dup2, null, low);
    printf("write to null %ld\n", (long)write(low, "XXXXXXXXXXXXXXXXXXXX", 20));
    printf("read from null %ld\n", (long)read(low, b, 20));
    syscall(SYS_dup2, fd, low);
    memset(b, 0, sizeof b);
    printf("read %ld %.9s\n", (long)pread(low, b, 9, 0), b);
    return 0;
}
