/* A program that closes every descriptor that it did not open goes on to use files. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char path[4096], b[16];

static int use(void)
{
    memset(b, 0, sizeof b);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    int fine = fd == 3 && pwrite(fd, "content", 7, 0) == 7 && pread(fd, b, 7, 0) == 7 && strcmp(b, "content") == 0;
    close(fd);
    return fine;
}

int main(int argc, char **argv)
{
    (void)argc;
    snprintf(path, sizeof path, "%s/closes", argv[1]);
    printf("%d\n", use());
    for (int fd = 3; fd < 5000; fd++)
        if (close(fd) == 0)
            printf("closed %d\n", fd);
    printf("%d\n", use());
    printf("%d\n", close_range(3, ~0U, 0));
    printf("%d\n", use());
    closefrom(3);
    printf("%d\n", use());
    int fd = open(path, O_RDWR);
    closefrom(3);
    printf("%d\n", (int)write(fd, "x", 1));
    fd = open(path, O_RDONLY);
    for (int to = 900; to < 1020; to++)
        if (dup2(fd, to) == to)
            close(to);
    printf("%d\n", (int)pread(fd, b, 7, 0));
    return 0;
}
