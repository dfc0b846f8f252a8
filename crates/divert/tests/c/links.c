/* Paths: symbolic links within, out, in circles and to nothing; dots. The second argument is a directory elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *dir;
static char path[PATH_MAX];

static const char *in(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *what)
{
    int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    printf("put %s %ld\n", name, fd < 0 ? -errno : (long)write(fd, what, strlen(what)));
    close(fd);
}

static void get(const char *name)
{
    char b[100] = "";
    int fd = open(in(name), O_RDONLY);
    if (fd < 0)
        printf("get %s: %s\n", name, strerrorname_np(errno));
    else
        printf("get %s %ld %s\n", name, (long)read(fd, b, 99), b);
    close(fd);
}

static void kind(const char *name)
{
    struct stat st;
    int r = lstat(in(name), &st);
    printf("lstat %s %s\n", name, r ? strerrorname_np(errno) : S_ISLNK(st.st_mode) ? "link" : S_ISDIR(st.st_mode) ? "dir" : "file");
    r = stat(in(name), &st);
    printf("stat %s %s\n", name, r ? strerrorname_np(errno) : S_ISLNK(st.st_mode) ? "link" : S_ISDIR(st.st_mode) ? "dir" : "file");
}

int main(int argc, char **argv)
{
    char target[PATH_MAX];
    (void)argc;
    dir = argv[1];
    umask(022);
    mkdir(in("a"), 0755);
    mkdir(in("a/b"), 0755);
    put("a/b/file", "deep");
    put("top", "top");
    symlink("a/b", in("to_b"));
    symlink("file", in("a/b/beside"));
    symlink("../../top", in("a/b/up"));
    symlink("to_b/up", in("chain"));
    symlink("loop2", in("loop1"));
    symlink("loop1", in("loop2"));
    symlink("new", in("dangling"));
    symlink("/", in("root"));
    snprintf(target, sizeof target, "%s/a", dir);
    symlink(target, in("absolute"));
    snprintf(target, sizeof target, "%s/outside", argv[2]);
    symlink(target, in("out"));
    snprintf(target, sizeof target, "%s/..", argv[2]);
    symlink(target, in("outdir"));
    get("to_b/file");
    get("to_b/beside");
    get("to_b/up");
    get("chain");
    get("to_b/../top");
    get("a/b/../../top");
    get("to_b/../b/file");
    get("a/../a/./b//file");
    get("absolute/b/file");
    get("absolute/../top");
    get("loop1");
    get("loop1/x");
    get("out");
    get("root/proc/self/mounts/x");
    get("top/../top");
    get("nothing/../top");
    put("dangling", "made");
    get("new");
    put("out", "written outside");
    get("out");
    kind("to_b");
    kind("to_b/");
    kind("dangling");
    kind("loop1");
    kind("out");
    kind("root");
    kind("top/");
    kind("absolute/b/beside");
    int fd = open(in("chain"), O_RDONLY | O_NOFOLLOW);
    printf("nofollow %s\n", fd < 0 ? strerrorname_np(errno) : "opened");
    fd = open(in("dangling2"), O_RDONLY | O_CREAT | O_EXCL, 0644);
    printf("excl %d\n", fd >= 0);
    fd = open(in("to_b"), O_RDONLY | O_CREAT | O_EXCL, 0644);
    printf("excl on a link %s\n", strerrorname_np(errno));
    int d = open(in("a"), O_RDONLY | O_DIRECTORY);
    struct stat st;
    printf("at %d\n", fstatat(d, "b/file", &st, 0));
    printf("at .. %d\n", fstatat(d, "../top", &st, 0));
    printf("at ../.. %d %d\n", fstatat(d, "../../..", &st, 0), S_ISDIR(st.st_mode));
    printf("at . %d %d\n", fstatat(d, ".", &st, 0), S_ISDIR(st.st_mode));
    /* Out of the directory and back, as text. */
    char back[PATH_MAX + 64];
    const char *last = strrchr(dir, '/');
    snprintf(back, sizeof back, "%s/../%s/top", dir, last + 1);
    printf("out and back %d\n", stat(back, &st));
    snprintf(back, sizeof back, "%s/a/../../%s/./a/b/file", dir, last + 1);
    printf("further %d\n", stat(back, &st));
    snprintf(back, sizeof back, "/proc/..%s//top", dir);
    printf("by way of /proc %d\n", stat(back, &st));
    unlink(in("outdir"));
    return 0;
}
