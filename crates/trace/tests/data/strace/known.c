/* Does I/O of every kind that the strace reader knows, in the directory argv[1], and says on descriptor 9 what it
 * did: action, name, offset, length, result. Each offset is worked out here, not asked from the system. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char line[4096];

static void say(const char *action, const char *name, long offset, long len, long result) {
    /* One write per line, so that lines of several processes do not mix. */
    int n = snprintf(line, sizeof line, "%s\t%s\t%ld\t%ld\t%ld\n", action, name, offset, len, result);
    if (write(9, line, n) != n) abort();
}

#define CHECK(x, n) do { if ((x) != (n)) { perror(#x); exit(1); } } while (0)

static int shared;

static void *in_thread(void *unused) {
    char data[30] = "thread";
    CHECK(write(shared, data, 30), 30);
    say("write", "shared", 27, 30, 30);
    return unused;
}

int main(int argc, char **argv) {
    char data[5000];
    memset(data, 'x', sizeof data);
    if (argc != 2 || chdir(argv[1])) return 1;

    const char *weird = "we<ird> \"n\303\244me\", (a)\n\\.dat";
    int fd = open(weird, O_RDWR | O_CREAT | O_TRUNC, 0644);
    say("open", "weird", 0, O_RDWR | O_CREAT | O_TRUNC, 0);
    CHECK(write(fd, data, 5000), 5000);
    say("write", "weird", 0, 5000, 5000);
    CHECK(lseek(fd, -1000, SEEK_END), 4000);
    say("seek", "weird", 4000, 0, 0);
    CHECK(read(fd, data, 3000), 1000);
    say("read", "weird", 4000, 3000, 1000);
    CHECK(pread(fd, data, 10, 3), 10);
    say("read", "weird", 3, 10, 10);
    CHECK(pwrite(fd, data, 20, 70000), 20);
    say("write", "weird", 70000, 20, 20);
    struct iovec two[2] = {{data, 3}, {data, 400}};
    CHECK(writev(fd, two, 2), 403);
    say("write", "weird", 5000, 403, 403);
    int copy = dup(fd);
    CHECK(lseek(copy, 100, SEEK_SET), 100);
    say("seek", "weird", 100, 0, 0);
    CHECK(readv(fd, two, 2), 403);
    say("read", "weird", 100, 403, 403);
    CHECK(preadv(fd, two, 1, 7), 3);
    say("read", "weird", 7, 3, 3);
    CHECK(pwritev2(copy, two, 2, -1, 0), 403);
    say("write", "weird", 503, 403, 403);
    CHECK(close(copy), 0);
    say("close", "weird", 0, 0, 0);
    CHECK(ftruncate(fd, 80000), 0);
    say("truncate", "weird", 80000, 0, 0);
    CHECK(fallocate(fd, 0, 80000, 4096), 0);
    say("allocate", "weird", 80000, 4096, 0);
    CHECK(fsync(fd), 0);
    say("sync", "weird", 0, 0, 0);
    CHECK(sync_file_range(fd, 4096, 8192, SYNC_FILE_RANGE_WRITE), 0);
    say("sync", "weird", 4096, 8192, 0);
    void *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 4096);
    if (map == MAP_FAILED) return 1;
    say("map", "weird", 4096, 8192, 0);
    CHECK(unlink(weird), 0);
    say("remove", "weird", 0, 0, 0);
    CHECK(read(fd, data, 10), 10);
    say("read", "weird", 906, 10, 10);
    CHECK(close(fd), 0);
    say("close", "weird", 0, 0, 0);

    int log = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    say("open", "log", 0, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0);
    CHECK(write(log, data, 11), 11);
    say("write", "log", 0, 11, 11);
    CHECK(lseek(log, 5, SEEK_SET), 5);
    say("seek", "log", 5, 0, 0);
    CHECK(write(log, data, 12), 12);
    say("write", "log", 11, 12, 12);
    CHECK(close(log), 0);
    say("close", "log", 0, 0, 0);

    int from = open("log", O_RDONLY);
    say("open", "log", 0, O_RDONLY, 0);
    int to = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    say("open", "copy", 0, O_RDWR | O_CREAT | O_TRUNC, 0);
    off_t at = 2;
    CHECK(sendfile(to, from, &at, 9), 9);
    say("read", "log", 2, 9, 9);
    say("write", "copy", 0, 9, 9);
    CHECK(copy_file_range(from, NULL, to, NULL, 6, 0), 6);
    say("read", "log", 0, 6, 6);
    say("write", "copy", 9, 6, 6);
    CHECK(renameat(AT_FDCWD, "copy", AT_FDCWD, "moved"), 0);
    say("remove", "copy", 0, 0, 0);
    CHECK(write(to, data, 5), 5);
    say("write", "copy", 15, 5, 5);
    CHECK(close(to), 0);
    say("close", "copy", 0, 0, 0);
    CHECK(close(from), 0);
    say("close", "log", 0, 0, 0);

    shared = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0644);
    say("open", "shared", 0, O_RDWR | O_CREAT | O_TRUNC, 0);
    CHECK(write(shared, data, 7), 7);
    say("write", "shared", 0, 7, 7);
    pid_t child = fork();
    if (child == 0) {
        CHECK(write(shared, data, 20), 20);
        say("write", "shared", 7, 20, 20);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0), child);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL), 0);
    CHECK(pthread_join(thread, NULL), 0);
    int high = fcntl(shared, F_DUPFD, 100);
    CHECK(dup2(high, 101), 101);
    CHECK(write(101, data, 4), 4);
    say("write", "shared", 57, 4, 4);
    CHECK(close(shared), 0);
    say("close", "shared", 0, 0, 0);

    CHECK(open("no/such", O_RDONLY), -1);
    say("open", "no/such", 0, O_RDONLY, -ENOENT);
    CHECK(truncate("log", 3), 0);
    say("truncate", "log", 3, 0, 0);
    int ends[2];
    CHECK(pipe(ends), 0);
    CHECK(write(ends[1], data, 10), 10);
    CHECK(read(ends[0], data, 10), 10);
    int null = open("/dev/null", O_WRONLY);
    CHECK(write(null, data, 10), 10);
    return 0;
}
