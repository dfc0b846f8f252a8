/* Many calls on files and descriptors in the directory that is given, and what each of them returned: the same wherever
   the directory is. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char path[PATH_MAX];
static const char *dir;

static const char *in(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

#define SHOW(call) show(#call, (long)(call))

static long show(const char *what, long result)
{
    int error = errno;
    printf("%s = %ld%s%s\n", what, result, result < 0 ? " " : "", result < 0 ? strerrorname_np(error) : "");
    errno = 0;
    return result;
}

static void text(const char *buffer, long n)
{
    printf("  \"%.*s\"\n", n < 0 ? 0 : (int)n, buffer);
}

static void where(int fd)
{
    struct stat st;
    fstat(fd, &st);
    printf("  position %ld size %ld mode %o links %ld\n", (long)lseek(fd, 0, SEEK_CUR), (long)st.st_size, st.st_mode, (long)st.st_nlink);
}

static void opening(void)
{
    SHOW(open(in("missing"), O_RDONLY));
    SHOW(open(in("missing/below"), O_RDONLY));
    SHOW(open(in("missing/"), O_RDONLY | O_CREAT, 0644));
    int fd = SHOW(open(in("file"), O_RDWR | O_CREAT | O_EXCL, 0644));
    SHOW(open(in("file"), O_RDWR | O_CREAT | O_EXCL, 0644));
    SHOW(open(in("file/below"), O_RDONLY));
    SHOW(open(in("file/"), O_RDONLY));
    SHOW(open(in("file/."), O_RDONLY));
    SHOW(open(in("file"), O_RDONLY | O_DIRECTORY));
    SHOW(open("", O_RDONLY));
    char name[300];
    memset(name, 'x', 299);
    name[299] = 0;
    SHOW(open(in(name), O_RDONLY | O_CREAT, 0644));
    SHOW(open(dir, O_RDWR));
    SHOW(open(dir, O_RDONLY | O_CREAT, 0644));
    umask(027);
    int masked = SHOW(open(in("masked"), O_WRONLY | O_CREAT, 0777));
    where(masked);
    umask(022);
    SHOW(read(masked, name, 1));
    SHOW(close(masked));
    SHOW(close(masked));
    SHOW(read(masked, name, 1));
    int d = SHOW(open(dir, O_RDONLY | O_DIRECTORY));
    SHOW(read(d, name, 1));
    SHOW(write(d, name, 1));
    int at = SHOW(openat(d, "file", O_RDONLY));
    SHOW(write(at, "x", 1));
    SHOW(close(at));
    SHOW(openat(d, "../nowhere-at-all/x", O_RDONLY));
    SHOW(openat(fd, "file", O_RDONLY));
    SHOW(openat(d, "./sub/../file", O_RDONLY));
    SHOW(mkdirat(d, "sub", 0755));
    at = SHOW(openat(d, "./sub/../file", O_RDONLY));
    SHOW(close(at));
    int p = SHOW(open(in("file"), O_PATH));
    SHOW(read(p, name, 1));
    SHOW(fcntl(p, F_GETFL) & O_PATH);
    SHOW(close(p));
    SHOW(close(d));
    SHOW(close(fd));
    int c = SHOW(creat(in("created"), 0600));
    SHOW(write(c, "created", 7));
    SHOW(close(c));
    c = SHOW(open(in("created"), O_RDWR | O_TRUNC));
    where(c);
    SHOW(close(c));
}

static void moving(void)
{
    char b[64];
    int fd = SHOW(open(in("moves"), O_RDWR | O_CREAT, 0644));
    SHOW(write(fd, "0123456789", 10));
    where(fd);
    SHOW(lseek(fd, 3, SEEK_SET));
    text(b, SHOW(read(fd, b, 4)));
    where(fd);
    SHOW(lseek(fd, -2, SEEK_END));
    text(b, SHOW(read(fd, b, 10)));
    text(b, SHOW(read(fd, b, 10)));
    SHOW(lseek(fd, -1, SEEK_SET));
    SHOW(lseek(fd, -100, SEEK_CUR));
    SHOW(lseek(fd, 0, 99));
    SHOW(lseek(fd, 0, SEEK_DATA));
    SHOW(lseek(fd, 0, SEEK_HOLE));
    SHOW(lseek(fd, 100, SEEK_DATA));
    SHOW(lseek(fd, 0, SEEK_END));
    text(b, SHOW(pread(fd, b, 3, 5)));
    SHOW(pwrite(fd, "abc", 3, 20));
    where(fd);
    SHOW(pread(fd, b, 1, -1));
    SHOW(pwrite(fd, b, 1, -1));
    struct iovec v[3] = {{"AA", 2}, {"", 0}, {"BBB", 3}};
    SHOW(writev(fd, v, 3));
    where(fd);
    SHOW(pwritev(fd, v, 3, 1));
    char x[3], y[9];
    struct iovec r[2] = {{x, 3}, {y, 9}};
    SHOW(lseek(fd, 0, SEEK_SET));
    long n = SHOW(readv(fd, r, 2));
    text(x, 3);
    text(y, n - 3);
    SHOW(preadv(fd, r, 2, 14));
    SHOW(preadv2(fd, r, 2, -1, 0));
    where(fd);
    SHOW(pwritev2(fd, v, 3, 0, RWF_APPEND));
    where(fd);
    SHOW(write(fd, "", 0));
    SHOW(ftruncate(fd, 5));
    where(fd);
    SHOW(ftruncate(fd, 50));
    SHOW(ftruncate(fd, -1));
    where(fd);
    SHOW(posix_fallocate(fd, 0, 70));
    SHOW(posix_fallocate(fd, 0, 7));
    SHOW(posix_fallocate(fd, 0, 0));
    where(fd);
    SHOW(fsync(fd));
    SHOW(fdatasync(fd));
    SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    int left = -1;
    lseek(fd, 10, SEEK_SET);
    SHOW(ioctl(fd, FIONREAD, &left));
    SHOW(left);
    SHOW(ioctl(fd, TIOCGWINSZ, &b));
    SHOW(isatty(fd));
    SHOW(close(fd));
    fd = SHOW(open(in("moves"), O_RDONLY));
    SHOW(ftruncate(fd, 1));
    SHOW(posix_fallocate(fd, 0, 7));
    SHOW(close(fd));
}

static void appending(void)
{
    char b[64];
    int fd = SHOW(open(in("appends"), O_RDWR | O_CREAT | O_APPEND, 0644));
    SHOW(write(fd, "one.", 4));
    where(fd);
    SHOW(lseek(fd, 0, SEEK_SET));
    SHOW(write(fd, "two.", 4));
    where(fd);
    SHOW(pwrite(fd, "three.", 6, 0));
    where(fd);
    SHOW(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SHOW(fcntl(fd, F_SETFL, 0));
    SHOW(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SHOW(pwrite(fd, "ONE", 3, 0));
    int plain = SHOW(open(in("appends"), O_WRONLY));
    SHOW(fcntl(plain, F_SETFL, O_APPEND));
    SHOW(write(plain, "four.", 5));
    where(plain);
    SHOW(fcntl(plain, F_GETFL) & (O_ACCMODE | O_APPEND));
    lseek(fd, 0, SEEK_SET);
    text(b, SHOW(read(fd, b, 64)));
    SHOW(close(fd));
    SHOW(close(plain));
}

static void duplicating(void)
{
    char b[64];
    int fd = SHOW(open(in("dups"), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    int other = SHOW(dup(fd));
    SHOW(fcntl(fd, F_GETFD));
    SHOW(fcntl(other, F_GETFD));
    SHOW(write(fd, "shared", 6));
    where(other);
    SHOW(lseek(other, 1, SEEK_SET));
    text(b, SHOW(read(fd, b, 3)));
    SHOW(close(fd));
    int lowest = SHOW(open("/dev/null", O_RDONLY));
    text(b, SHOW(read(other, b, 3)));
    SHOW(dup2(other, lowest));
    SHOW(pread(lowest, b, 2, 0));
    text(b, 2);
    SHOW(dup2(other, other));
    SHOW(dup2(99, other));
    SHOW(dup3(other, other, 0));
    SHOW(dup3(other, 77, O_CLOEXEC));
    SHOW(fcntl(77, F_GETFD));
    text(b, SHOW(pread(77, b, 6, 0)));
    int high = SHOW(fcntl(other, F_DUPFD_CLOEXEC, 50));
    SHOW(fcntl(high, F_GETFD));
    SHOW(fcntl(high, F_SETFD, 0));
    SHOW(fcntl(high, F_GETFD));
    SHOW(dup2(lowest, 77));
    int null = SHOW(open("/dev/null", O_RDWR));
    SHOW(dup2(null, high));
    SHOW(write(high, "to nowhere", 10));
    where(other);
    SHOW(close(high));
    SHOW(close(77));
    SHOW(close(null));
    SHOW(close(lowest));
    SHOW(write(other, "!", 1));
    SHOW(close_range(other, other, 0));
    SHOW(write(other, "!", 1));
    SHOW(lseek(other, 0, SEEK_SET));
}

static void copying(void)
{
    char b[200000];
    memset(b, 'c', sizeof b);
    int from = SHOW(open(in("from"), O_RDWR | O_CREAT, 0644));
    int to = SHOW(open(in("to"), O_RDWR | O_CREAT, 0644));
    int pipes[2];
    SHOW(write(from, b, 10000));
    lseek(from, 100, SEEK_SET);
    SHOW(sendfile(to, from, NULL, 1000));
    where(from);
    where(to);
    off_t at = 9500, to_at = 5;
    SHOW(sendfile(to, from, &at, 1000));
    SHOW(at);
    where(from);
    at = 0;
    SHOW(copy_file_range(from, &at, to, &to_at, 3000, 0));
    SHOW(at);
    SHOW(to_at);
    where(to);
    if (pipe(pipes) == 0) {
        SHOW(splice(from, NULL, pipes[1], NULL, 4000, 0));
        where(from);
        SHOW(splice(pipes[0], NULL, to, NULL, 4000, 0));
        where(to);
        close(pipes[0]);
        close(pipes[1]);
    }
    SHOW(close(from));
    SHOW(close(to));
}

static void stats(void)
{
    struct stat st, by_fd;
    struct statx x;
    SHOW(stat(in("file"), &st));
    int fd = open(in("file"), O_RDONLY);
    SHOW(fstat(fd, &by_fd));
    SHOW(st.st_dev == by_fd.st_dev && st.st_ino == by_fd.st_ino);
    SHOW(fstatat(fd, "", &st, AT_EMPTY_PATH));
    SHOW(st.st_size);
    SHOW(statx(AT_FDCWD, in("file"), 0, STATX_BASIC_STATS, &x));
    SHOW(x.stx_ino == st.st_ino && x.stx_size == st.st_size && x.stx_mode == st.st_mode);
    SHOW(stat(in("nothing"), &st));
    SHOW(stat(in("file/x"), &st));
    SHOW(stat(dir, &st));
    SHOW(S_ISDIR(st.st_mode));
    SHOW(lstat(in("file"), &st));
    SHOW(S_ISREG(st.st_mode));
    SHOW(fstatat(AT_FDCWD, in("sub/../file"), &st, 0));
    SHOW(close(fd));
    SHOW(fstat(fd, &st));
}

int main(int argc, char **argv)
{
    (void)argc;
    dir = argv[1];
    umask(022);
    opening();
    moving();
    appending();
    duplicating();
    copying();
    stats();
    return 0;
}
