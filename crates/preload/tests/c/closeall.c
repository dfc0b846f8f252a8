/* Closes everything that it does not know, in all the ways there are, and goes on. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int use(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    return fd != 3 || write(fd, name, 4) != 4 || pread(fd, (char[4]){ 0 }, 4, 0) != 4;
}

int main(void)
{
    if (use("one1"))
        return 1;
    for (int fd = 3; fd < 70000; fd++)
        close(fd);
    if (use("two2"))
        return 2;
    if (close_range(3, ~0u, 0) || use("tri3"))
        return 3;
    closefrom(3);
    if (use("for4"))
        return 4;
    if (syscall(SYS_close, 3) || use("fiv5"))
        return 5;
    if (close_range(3, 3, CLOSE_RANGE_CLOEXEC) || write(3, "more", 4) != 4)
        return 6;
    close(-1);
    close(1 << 30);
    return 0;
}
