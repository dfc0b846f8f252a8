/* Asks what the kernel knows of seccomp, as libraries for it do before they are used, and uses none of it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    uint32_t action = SECCOMP_RET_ERRNO;
    int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (write(fd, "before", 6) != 6)
        return 1;
    syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1 || errno != EFAULT)
        return 2;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) != -1 || errno != EFAULT)
        return 3;
    if (syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1)
        return 4;
    return write(fd, "after", 5) != 5;
}
