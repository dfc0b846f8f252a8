/* Processes that share one descriptor write records at the same time: none is lost, none overwrites another. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITERS = 6, RECORDS = 150, SIZE = 96 };

static void write_all(int fd, int who)
{
    char record[SIZE + 1];
    for (int i = 0; i < RECORDS; i++) {
        snprintf(record, sizeof record, "%02d %05d %0*d\n", who, i, SIZE - 10, i * 7 + who);
        if (write(fd, record, SIZE) != SIZE) {
            perror("write");
            _exit(1);
        }
    }
}

static void start_all(int fd)
{
    for (int who = 0; who < WRITERS; who++)
        if (fork() == 0) {
            write_all(fd, who);
            _exit(0);
        }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    printf("failed %d\n", failed);
}

static void check(const char *path)
{
    static int next[WRITERS];
    static char seen[WRITERS][RECORDS];
    char record[SIZE];
    int fd = open(path, O_RDONLY), n = 0, ordered = 1, strange = 0, got;
    memset(next, 0, sizeof next);
    memset(seen, 0, sizeof seen);
    while ((got = read(fd, record, SIZE)) > 0) {
        int who = -1, i = -1;
        if (got != SIZE || record[SIZE - 1] != '\n' || sscanf(record, "%d %d", &who, &i) != 2 || who < 0 || who >= WRITERS || i < 0 || i >= RECORDS || seen[who][i]++)
            strange++;
        else
            ordered &= next[who]++ == i;
        n++;
    }
    close(fd);
    printf("records %d strange %d ordered %d\n", n, strange, ordered);
}

int main(int argc, char **argv)
{
    char path[4096];
    (void)argc;
    snprintf(path, sizeof path, "%s/shared", argv[1]);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    start_all(fd);
    printf("position %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    close(fd);
    check(path);
    snprintf(path, sizeof path, "%s/appended", argv[1]);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    start_all(fd);
    close(fd);
    check(path);
    snprintf(path, sizeof path, "%s/apart", argv[1]);
    for (int who = 0; who < WRITERS; who++)
        if (fork() == 0) {
            fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
            write_all(fd, who);
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    check(path);
    unlink(path);
    snprintf(path, sizeof path, "%s/appended", argv[1]);
    unlink(path);
    snprintf(path, sizeof path, "%s/shared", argv[1]);
    unlink(path);
    return 0;
}
