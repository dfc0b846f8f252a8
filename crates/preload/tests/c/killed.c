/* Writes, and is killed by itself. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    int fd = open("written", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 1000; i++)
        if (write(fd, "0123456789", 10) != 10)
            return 1;
    FILE *f = fopen("stream", "w");
    fputs("never written", f);
    raise(SIGKILL);
    return 2;
}
