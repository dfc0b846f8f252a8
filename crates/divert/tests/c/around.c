/* Makes a file and directories in the working directory as a program does that does not use the C library for it: says what
 * the kernel said. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *said(long result) {
    return result < 0 ? strerrorname_np(errno) : "done";
}

int main(void) {
    printf("openat: %s, ", said(syscall(SYS_openat, AT_FDCWD, "lost", O_CREAT | O_WRONLY, 0644)));
    printf("mkdirat: %s, ", said(syscall(SYS_mkdirat, AT_FDCWD, "lost", 0755)));
    printf("above: %s\n", said(syscall(SYS_mkdirat, AT_FDCWD, "../lost", 0755)));
    return 0;
}
