/* The same write from several places. */
#include <fcntl.h>
#include <unistd.h>

static int fd;

__attribute__((noinline)) static void put(void)
{
    if (write(fd, "x", 1) != 1)
        _exit(1);
    __asm__ volatile("");
}

__attribute__((noinline)) static void left(void) { put(); __asm__ volatile(""); }
__attribute__((noinline)) static void right(void) { put(); __asm__ volatile(""); }

int main(void)
{
    fd = open("calls", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 10; i++) {
        left();
        right();
        left();
    }
    return 0;
}
