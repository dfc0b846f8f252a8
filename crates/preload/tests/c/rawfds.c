/* Descriptors that change hands by system calls of the program's own: what is written then must not be told of the file
 * that had the number before. */
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int make(const char *name)
{
    return open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
}

/* Not seen by anybody. */
static int make_raw(const char *name)
{
    return syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_TRUNC, 0644);
}

int main(void)
{
    int a = make("a"), b = make("b"), c = make("c"), d = make("d");
    if (write(a, "1234", 4) != 4 || write(b, "12", 2) != 2 || write(c, "1", 1) != 1 || write(d, "123", 3) != 3)
        return 1;
    if (syscall(SYS_close_range, a, a, 0) || make_raw("e") != a || write(a, "12345", 5) != 5)
        return 2;
    if (syscall(SYS_dup2, b, c) != c || write(c, "34", 2) != 2 || write(b, "56", 2) != 2)
        return 3;
    if (syscall(SYS_dup3, b, d, O_CLOEXEC) != d || write(d, "78", 2) != 2)
        return 4;
    int f = syscall(SYS_dup, b), g = syscall(SYS_fcntl, b, F_DUPFD, 100);
    if (write(f, "90", 2) != 2 || write(g, "ab", 2) != 2 || write(b, "cd", 2) != 2)
        return 5;
    if (syscall(SYS_close_range, a, a, 4 /* only a flag */) || write(a, "67", 2) != 2)
        return 6;
    return 0;
}
