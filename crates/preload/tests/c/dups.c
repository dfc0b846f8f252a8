/* Duplicates of descriptors share their position. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define W(fd, text) if (write(fd, text, sizeof text - 1) != sizeof text - 1) return 1
#define R(fd, n) if (read(fd, buffer, n) != n) return 2

int main(void)
{
    char buffer[100];
    int a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int b = open("b", O_RDWR | O_CREAT | O_TRUNC, 0644);
    W(a, "hello");
    int c = dup(a);
    W(c, ", world");
    W(a, "!");
    int d = fcntl(b, F_DUPFD, 100);
    W(d, "to b");
    if (dup2(a, d) != 100)
        return 3;
    W(d, "to a");
    W(b, "to b again");
    if (dup3(b, 200, O_CLOEXEC) != 200 || dup2(200, 200) != 200 || dup2(555, 200) != -1)
        return 4;
    W(200, "to b too");
    close(b);
    W(200, "and b");
    b = open("c", O_RDWR | O_CREAT | O_TRUNC, 0644);
    W(b, "to c");
    lseek(d, 2, SEEK_SET);
    R(a, 5);
    R(c, 3);
    int e = fcntl(c, F_DUPFD_CLOEXEC, 3);
    close(a);
    close(c);
    R(e, 2);
    R(d, 2);
    fcntl(b, F_SETFL, O_APPEND);
    lseek(b, 1, SEEK_SET);
    W(b, "at the end");
    R(e, 1);
    fcntl(b, F_SETFL, 0);
    lseek(b, 1, SEEK_SET);
    W(b, "not");
    return 0;
}
