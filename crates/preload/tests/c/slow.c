/* Reads a little, now and then. */
#include <fcntl.h>
#include <unistd.h>

int main(void)
{
    char byte;
    int fd = open("slow", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (write(fd, "0123456789", 10) != 10)
        return 1;
    for (int i = 0; i < 300; i++) {
        if (pread(fd, &byte, 1, i % 10) != 1)
            return 2;
        usleep(1000);
    }
    return 0;
}
