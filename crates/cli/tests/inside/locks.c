/* Holds a record lock on a file that it reads. In one table of descriptors, the lock would end when anybody closes the
 * file. Prints 1 if another process still finds the lock. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int fd = open("in", O_RDWR);
    if (fcntl(fd, F_SETLK, &lock))
        return 2;
    char data[8192];
    for (int i = 0; i < 300; i++) {
        if (pread(fd, data, sizeof data, i * 8192) != sizeof data)
            return 3;
        usleep(1000);
    }
    if (fork() == 0) {
        fcntl(fd, F_GETLK, &lock);
        printf("%d\n", lock.l_type == F_WRLCK);
        return 0;
    }
    int status;
    wait(&status);
    return status;
}
