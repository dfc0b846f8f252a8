/* What cannot be followed from inside: system calls by number. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    char block[100] = { 0 };
    int fd = open("raw", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (write(fd, block, 10) != 10 || syscall(SYS_write, fd, block, 100) != 100 || write(fd, block, 10) != 10)
        return 1;
    syscall(SYS_io_uring_setup, 0, NULL);
    return 0;
}
