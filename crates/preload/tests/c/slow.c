/* Reads a little, now and then, until there is a file "go"; then a little more. */
#include <fcntl.h>
#include <unistd.h>

int main(void)
{
    char byte;
    int fd = open("slow", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (write(fd, "0123456789", 10) != 10)
        return 1;
    for (int i = 0, left = 100; left > 0; i++) {
        if (pread(fd, &byte, 1, i % 10) != 1)
            return 2;
        usleep(1000);
        left -= access("go", F_OK) == 0;
        if (i > 60000)
            return 3;
    }
    return 0;
}
