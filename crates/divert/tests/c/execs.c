/* Descriptors go through fork and exec: with their position, unless they are closed then. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int second(char **argv)
{
    char b[32] = "";
    int fd = atoi(argv[3]), closed = atoi(argv[4]), in = atoi(argv[5]);
    printf("write %ld\n", (long)write(fd, "child.", 6));
    long refused = write(closed, "x", 1);
    printf("closed %ld %s\n", refused, strerrorname_np(errno));
    printf("read %ld %s\n", (long)read(in, b, 3), b);
    printf("flags %d %d\n", fcntl(fd, F_GETFL) & O_ACCMODE, fcntl(in, F_GETFL) & O_ACCMODE);
    refused = read(fd, b, 1);
    printf("write only %ld %s\n", refused, strerrorname_np(errno));
    int copy = dup(fd);
    close(fd);
    printf("copy %ld\n", (long)write(copy, "copy.", 5));
    return 0;
}

int main(int argc, char **argv)
{
    char path[4096], numbers[3][16], b[8] = "";
    setbuf(stdout, NULL);
    if (argc > 2 && strcmp(argv[2], "second") == 0)
        return second(argv);
    snprintf(path, sizeof path, "%s/execs", argv[1]);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    int closed = open(path, O_WRONLY | O_CLOEXEC);
    write(fd, "parent.", 7);
    int in = open(path, O_RDONLY);
    read(in, b, 2);
    snprintf(numbers[0], 16, "%d", fd);
    snprintf(numbers[1], 16, "%d", closed);
    snprintf(numbers[2], 16, "%d", in);
    if (fork() == 0) {
        execl(argv[0], argv[0], argv[1], "second", numbers[0], numbers[1], numbers[2], NULL);
        _exit(9);
    }
    int status;
    wait(&status);
    printf("status %d\n", status);
    printf("position %ld %ld\n", (long)lseek(fd, 0, SEEK_CUR), (long)lseek(in, 0, SEEK_CUR));
    write(fd, "parent again.", 13);
    /* The file has no name any more, and a child opens nothing by it. */
    unlink(path);
    if (fork() == 0) {
        write(fd, "unlinked", 8);
        char all[64] = "";
        int n = pread(in, all, 63, 0);
        printf("%d %s\n", n, all);
        _exit(0);
    }
    wait(&status);
    return 0;
}
