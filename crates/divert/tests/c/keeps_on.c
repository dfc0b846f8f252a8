/* Writes, appends, creates and renames for as many seconds as are given, while the node comes and goes; then checks every
   byte. What must not be done twice may fail with EIO, when nobody can tell whether it was done: then one looks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *dir;
static char path[4096], other[4096];

static const char *in(char *room, const char *name, int who)
{
    snprintf(room, 4096, "%s/%s%d", dir, name, who);
    return room;
}

static void must(int who, const char *what, long got, long wanted)
{
    if (got != wanted) {
        printf("%d: %s %ld instead of %ld: %s\n", who, what, got, wanted, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
}

static long untold;

/* Whether a failure is one of those that may be. */
static void may_be_untold(int who, const char *what)
{
    if (errno != EIO)
        must(who, what, -1, 0);
    untold++;
}

static void append(int who, int log, const char *line, long before)
{
    long done = write(log, line, 9);
    if (done < 0) {
        may_be_untold(who, "append");
        long size = lseek(log, 0, SEEK_END);
        if (size == before)
            append(who, log, line, before);
        else
            must(who, "size after an append", size, before + 9);
        return;
    }
    must(who, "append", done, 9);
}

static int create(int who)
{
    int made = open(in(path, "made", who), O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (made < 0) {
        may_be_untold(who, "exclusive create");
        made = open(path, O_WRONLY | O_CREAT, 0644);
        if (made < 0)
            must(who, "create", -1, 0);
    }
    return made;
}

static void move(int who)
{
    while (rename(in(path, "made", who), in(other, "renamed", who)) < 0) {
        may_be_untold(who, "rename");
        if (access(path, F_OK) < 0) {
            if (errno != ENOENT)
                must(who, "access", -1, 0);
            break;
        }
    }
}

static int work(int who, int seconds)
{
    char block[9000], back[9000];
    long rounds = 0;
    time_t end = time(NULL) + seconds;
    int fd = open(in(path, "blocks", who), O_RDWR | O_CREAT, 0644);
    int log = open(in(path, "log", who), O_RDWR | O_CREAT | O_APPEND, 0644);
    int seq = open(in(path, "seq", who), O_RDWR | O_CREAT, 0644);
    if (fd < 0 || log < 0 || seq < 0)
        must(who, "open", -1, 0);
    for (; time(NULL) < end; rounds++) {
        memset(block, (int)(rounds * 3 + who), sizeof block);
        memcpy(block, &rounds, sizeof rounds);
        must(who, "pwrite", pwrite(fd, block, sizeof block, rounds % 40 * sizeof block), sizeof block);
        must(who, "pread", pread(fd, back, sizeof back, rounds % 40 * sizeof back), sizeof back);
        must(who, "compare", memcmp(block, back, sizeof back), 0);
        snprintf(block, sizeof block, "%08ld\n", rounds);
        append(who, log, block, rounds * 9);
        must(who, "write", write(seq, block, 9), 9);
        int made = create(who);
        must(who, "write new", write(made, block, 9), 9);
        move(who);
        must(who, "write renamed", write(made, block, 9), 9);
        must(who, "close", close(made), 0);
        int there = open(in(other, "renamed", who), O_RDONLY);
        if (there < 0)
            must(who, "open renamed", -1, 0);
        must(who, "read renamed", read(there, back, sizeof back), 18);
        must(who, "renamed", memcmp(back, block, 9) || memcmp(back + 9, block, 9), 0);
        close(there);
    }
    fprintf(stderr, "%ld rounds, %ld untold\n", rounds, untold);
    for (int i = 0; i < 2; i++) {
        int check = i ? seq : log;
        must(who, "size", lseek(check, 0, SEEK_END), rounds * 9);
        lseek(check, 0, SEEK_SET);
        for (long n = 0; n < rounds; n++) {
            char line[10] = "", wanted[32];
            snprintf(wanted, sizeof wanted, "%08ld\n", n);
            must(who, "read", read(check, line, 9), 9);
            must(who, "line", strcmp(line, wanted), 0);
        }
    }
    return rounds < 20;
}

int main(int argc, char **argv)
{
    int failed = 0, status;
    (void)argc;
    dir = argv[1];
    for (int who = 0; who < 3; who++)
        if (fork() == 0)
            _exit(work(who, atoi(argv[2])));
    while (wait(&status) > 0)
        failed += status != 0;
    printf("failed %d\n", failed);
    return failed;
}
