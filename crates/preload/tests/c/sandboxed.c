/* Forbids itself everything but read, write and exit; whatever else is called then, kills. */
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    char text[5];
    int fd = open("sandboxed", O_RDWR | O_CREAT | O_TRUNC, 0644), copy = dup(fd);
    if (write(copy, "before", 6) != 6 || lseek(fd, 0, SEEK_SET))
        return 1;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        return 2;
    if (read(fd, text, 5) != 5 || write(copy, "after", 5) != 5)
        syscall(SYS_exit, 3);
    syscall(SYS_exit, 0);
}
