/* A thousand files stay open while others come and go. */
#include <fcntl.h>
#include <unistd.h>

int main(void)
{
    for (int i = 0; i < 1000; i++)
        if (open("a", O_RDWR | O_CREAT, 0644) < 0)
            return 1;
    for (int i = 0; i < 20000; i++) {
        int fd = open("b", O_RDWR | O_CREAT, 0644);
        if (fd < 0 || close(fd) != 0)
            return 2;
    }
    return 0;
}
