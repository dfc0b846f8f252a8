/* Names in a directory, argv[1]: prints what each call gives, to be compared with a plain directory. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

/* readdir_r is no longer recommended, but it is there. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static char root[PATH_MAX];

/* One call: its text, its result, and why it failed. */
#define TRY(call)                                                                                       \
    do {                                                                                                \
        errno = 0;                                                                                      \
        long result = (long)(call);                                                                     \
        printf("%s = %ld %s\n", #call, result, result < 0 ? strerrorname_np(errno) : "");               \
    } while (0)

/* A path without where the directory is. */
static const char *below(const char *path) {
    size_t length = strlen(root);
    if (path && !strncmp(path, root, length))
        return path[length] ? path + length : "/";
    return path ? path : strerrorname_np(errno);
}

static void mode(const char *path) {
    struct stat status;
    if (lstat(path, &status))
        printf("%s: %s\n", path, strerrorname_np(errno));
    else
        printf("%s: %o links %ld size %ld\n", path, status.st_mode, (long)status.st_nlink,
               S_ISDIR(status.st_mode) ? 0 : (long)status.st_size);
}

static void put(const char *path) { close(open(path, O_CREAT | O_WRONLY, 0666)); }

static void making(void) {
    umask(022);
    TRY(mkdir("d", 07777));
    mode("d");
    TRY(mkdir("d", 0777));
    TRY(mkdir("d/", 0777));
    TRY(mkdir("n/x", 0777));
    TRY(mkdir("e/", 0777));
    TRY(mkdir(".", 0777));
    TRY(mkdir("..", 0777));
    TRY(mkdir("", 0777));
    TRY(mkdir("d/.", 0777));
    umask(077);
    TRY(mkdirat(AT_FDCWD, "f", 0777));
    mode("f");
    umask(022);
    put("file");
    TRY(mkdir("file/x", 0777));
    TRY(mkdir("file", 0777));
    TRY(mkfifo("fifo", 0666));
    mode("fifo");
    TRY(mknod("plain", 0666, 0));
    mode("plain");
    TRY(mknod("plain2", S_IFREG | 0600, 0));
    TRY(mknod("dir", S_IFDIR | 0600, 0));
    TRY(mknod("x/", S_IFREG | 0600, 0));
    TRY(symlink("file", "link"));
    TRY(symlink("", "l2"));
    TRY(symlink("file", "link"));
    TRY(symlink("x", "new/"));
    TRY(symlink("nowhere", "dangling"));
    TRY(symlink("d", "tod"));
    TRY(symlink("loop1", "loop2"));
    TRY(symlink("loop2", "loop1"));
    mode("link");
    TRY(link("file", "second"));
    TRY(link("file", "second"));
    TRY(link("d", "dd"));
    TRY(link("none", "dd"));
    TRY(link("link", "tolink"));
    mode("tolink");
    TRY(linkat(AT_FDCWD, "link", AT_FDCWD, "tofile", AT_SYMLINK_FOLLOW));
    TRY(link("file", "new/"));
    TRY(link("file/", "new2"));
    mode("file");
    TRY(link("file", "/dev/shm/third"));
    TRY(link("/proc/version", "hostname"));
}

static void removing(void) {
    TRY(unlink("second"));
    TRY(unlink("second"));
    TRY(unlink("d"));
    TRY(unlink("d/"));
    TRY(unlink("file/"));
    TRY(unlink("tod/"));
    TRY(unlink("."));
    TRY(unlink(""));
    TRY(rmdir("file"));
    TRY(rmdir("tod"));
    TRY(rmdir("tod/"));
    TRY(rmdir("d/."));
    TRY(rmdir("d/.."));
    TRY(rmdir("e/"));
    TRY(rmdir("none"));
    put("d/x");
    TRY(rmdir("d"));
    TRY(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
    TRY(unlinkat(AT_FDCWD, "d/x", 12345));
    TRY(unlinkat(AT_FDCWD, "d/x", 0));
    TRY(remove("d"));
    TRY(remove("tofile"));
    TRY(remove("none"));
    TRY(unlink("loop1/x"));
    TRY(unlink("loop1"));
    int fd = open("gone", O_RDWR | O_CREAT, 0600);
    TRY(write(fd, "still", 5));
    TRY(unlink("gone"));
    char bytes[10];
    TRY(pread(fd, bytes, 5, 0));
    struct stat status;
    TRY(fstat(fd, &status));
    printf("links %ld\n", (long)status.st_nlink);
    close(fd);
}

static void moving(void) {
    mkdir("m1", 0777);
    mkdir("m2", 0777);
    put("m1/a");
    put("b");
    TRY(rename("m1/a", "m2/b"));
    TRY(rename("m1/a", "m2/b"));
    TRY(rename("b", "m2/b"));
    TRY(rename("m2/b", "m1"));
    TRY(rename("m1", "m2/b"));
    TRY(rename("m1", "m2"));
    TRY(rename("m2", "m2/x"));
    TRY(rename("m2/b/", "c"));
    TRY(rename("m2/b", "c/"));
    TRY(rename("m1/", "m3/"));
    TRY(rename("m1", "."));
    TRY(rename(".", "x"));
    TRY(rename("m2", "m3"));
    TRY(rename("", "x"));
    TRY(rename("none/x", "x"));
    TRY(rename("dangling", "moved"));
    mode("moved");
    TRY(renameat(AT_FDCWD, "moved", AT_FDCWD, "dangling"));
    TRY(renameat2(AT_FDCWD, "file", AT_FDCWD, "file2", 0));
    TRY(rename("file2", "file"));
    int fd = open("over", O_RDWR | O_CREAT, 0600);
    write(fd, "old", 3);
    put("new");
    TRY(rename("new", "over"));
    char bytes[10];
    TRY(pread(fd, bytes, 3, 0));
    close(fd);
    TRY(rename("file", "/dev/shm/elsewhere"));
}

static void attributes(void) {
    struct stat status;
    TRY(chmod("file", 04751));
    mode("file");
    TRY(chmod("link", 0644));
    TRY(chmod("dangling", 0644));
    TRY(lchmod("link", 0600));
    TRY(fchmodat(AT_FDCWD, "file", 0600, AT_SYMLINK_NOFOLLOW));
    TRY(fchmodat(AT_FDCWD, "file", 0600, 99));
    int fd = open("file", O_RDWR);
    TRY(fchmod(fd, 0640));
    mode("file");
    TRY(chown("file", -1, -1));
    TRY(lchown("link", 5, 6));
    lstat("link", &status);
    printf("%d %d\n", status.st_uid, status.st_gid);
    TRY(fchown(fd, 7, -1));
    TRY(fchownat(fd, "", -1, 8, AT_EMPTY_PATH));
    fstat(fd, &status);
    printf("%d %d\n", status.st_uid, status.st_gid);
    TRY(truncate("file", 1000));
    TRY(truncate("file", -1));
    TRY(truncate("m3", 0));
    TRY(truncate("none", 0));
    mode("file");
    struct timespec times[2] = {{100, 5}, {-200, 999999999}};
    TRY(utimensat(AT_FDCWD, "file", times, 0));
    stat("file", &status);
    printf("%ld.%ld %ld.%ld\n", status.st_atim.tv_sec, status.st_atim.tv_nsec, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = 7;
    TRY(futimens(fd, times));
    times[1].tv_nsec = 1000000000;
    TRY(futimens(fd, times));
    struct timeval values[2] = {{11, 12}, {13, 14}};
    TRY(lutimes("link", values));
    TRY(futimes(fd, values));
    TRY(utimes("none", values));
    fstat(fd, &status);
    printf("%ld.%ld %ld.%ld\n", status.st_atim.tv_sec, status.st_atim.tv_nsec, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    struct utimbuf seconds = {21, 22};
    TRY(utime("file", &seconds));
    lstat("link", &status);
    printf("%ld.%ld\n", status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    TRY(utimensat(AT_FDCWD, "file", NULL, 0));
    TRY(access("file", R_OK | W_OK));
    TRY(access("file", X_OK));
    TRY(access("m3", X_OK));
    TRY(access("none", F_OK));
    TRY(access("dangling", F_OK));
    TRY(access("loop2", F_OK));
    TRY(faccessat(AT_FDCWD, "dangling", F_OK, AT_SYMLINK_NOFOLLOW));
    TRY(access("file", 99));
    TRY(euidaccess("file", R_OK));
    char value[100];
    TRY(setxattr("file", "user.one", "1234", 4, 0));
    TRY(setxattr("file", "user.one", "1234", 4, XATTR_CREATE));
    TRY(fsetxattr(fd, "user.two", "56", 2, XATTR_CREATE));
    TRY(getxattr("link", "user.one", value, 100));
    TRY(getxattr("file", "user.one", value, 2));
    TRY(getxattr("file", "user.one", NULL, 0));
    TRY(fgetxattr(fd, "user.none", value, 100));
    TRY(listxattr("file", value, 100));
    TRY(lgetxattr("none", "user.one", value, 100));
    TRY(removexattr("file", "user.one"));
    TRY(fremovexattr(fd, "user.one"));
    TRY(flistxattr(fd, NULL, 0));
    struct statfs system;
    struct statvfs posix;
    TRY(statfs("file", &system));
    TRY(fstatfs(fd, &system));
    TRY(statvfs("none", &posix));
    TRY(fstatvfs(fd, &posix));
    printf("%d\n", posix.f_bavail <= posix.f_blocks && posix.f_namemax == 255);
    TRY(pathconf("file", _PC_NAME_MAX));
    TRY(pathconf("file", 12345));
    TRY(fpathconf(fd, _PC_PATH_MAX));
    TRY(pathconf("none", _PC_PATH_MAX));
    close(fd);
}

static void links(void) {
    char text[PATH_MAX];
    memset(text, 0, sizeof text);
    TRY(readlink("link", text, sizeof text));
    TRY(readlink("link", text, 2));
    TRY(readlink("file", text, 2));
    TRY(readlink("none", text, 2));
    TRY(readlink("tod/", text, 2));
    TRY(readlink("link", text, 0));
    mkdir("d", 0777);
    put("d/x");
    symlink(root, "abs");
    symlink("abs/tod/../tod/x", "far");
    const char *paths[] = {".", "link", "tod/x", "tod/../file", "abs/d/./x", "far", "none", "d/none", "none/x", "file/", "file/x",
                           "loop2", "d//x", "tod/", "", "dangling", "abs/../" };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char *real = realpath(paths[i], NULL);
        if (strcmp(paths[i], "abs/../"))
            printf("%s -> %s\n", paths[i], below(real));
        free(real);
    }
    printf("%s\n", below(realpath("tod", text)));
    printf("%s\n", below(canonicalize_file_name("tod/x")));
    struct stat one, two;
    TRY(stat("far", &one));
    TRY(stat("d/x", &two));
    printf("same %d\n", one.st_ino == two.st_ino && one.st_dev == two.st_dev);
    char link[64];
    int fd = open("d/x", O_RDONLY);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    printf("/proc/self/fd: %s\n", below(text));
    close(fd);
}

static void working(void) {
    char text[PATH_MAX];
    printf("%s\n", below(getcwd(text, sizeof text)));
    TRY(chdir("tod"));
    printf("%s\n", below(getcwd(NULL, 0)));
    TRY(access("x", F_OK));
    TRY(chdir("x"));
    TRY(chdir("none"));
    TRY(chdir(".."));
    printf("%s\n", below(getcwd(text, PATH_MAX)));
    int fd = open("d", O_RDONLY | O_DIRECTORY);
    TRY(fchdir(fd));
    printf("%s\n", below(getcwd(text, PATH_MAX)));
    printf("%s\n", getcwd(text, 2) ? "?" : strerrorname_np(errno));
    printf("%s\n", getcwd(text, 0) ? "?" : strerrorname_np(errno));
    setenv("PWD", text, 1);
    printf("%s\n", below(get_current_dir_name()));
    TRY(chdir("/"));
    printf("%s\n", getcwd(text, PATH_MAX));
    TRY(mkdirat(fd, "sub", 0777));
    TRY(faccessat(fd, "sub", F_OK, 0));
    TRY(openat(fd, "none", O_RDONLY));
    TRY(fchdir(fd));
    TRY(chdir("sub"));
    printf("%s\n", below(getcwd(text, PATH_MAX)));
    ssize_t length = readlink("/proc/self/cwd", text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    printf("/proc/self/cwd: %s\n", below(text));
    close(fd);
    fd = open("../x", O_RDONLY);
    TRY(fchdir(fd));
    close(fd);
    TRY(chdir(root));
}

static int by_name(const struct dirent **one, const struct dirent **two) { return strcmp((*one)->d_name, (*two)->d_name); }
static int no_dots(const struct dirent *entry) { return entry->d_name[0] != '.'; }
static int compare(const void *one, const void *two) { return strcmp(*(char **)one, *(char **)two); }

static void listing(void) {
    mkdir("many", 0777);
    for (int i = 0; i < 2000; i++) {
        char name[64];
        snprintf(name, sizeof name, "many/a-file-with-a-long-name-%d", i);
        put(name);
    }
    DIR *dir = opendir("many");
    long half = -1;
    char at_half[256] = "";
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir)); count++) {
        struct stat status;
        if (fstatat(dirfd(dir), entry->d_name, &status, 0) || (strcmp(entry->d_name, "..") && status.st_ino != entry->d_ino))
            printf("%s is odd\n", entry->d_name);
        if (count == 1000)
            half = telldir(dir);
        if (count == 1001)
            strcpy(at_half, entry->d_name);
    }
    printf("%d entries\n", count);
    seekdir(dir, half);
    printf("again %d\n", !strcmp(readdir(dir)->d_name, at_half));
    rewinddir(dir);
    for (count = 0; readdir(dir);)
        count++;
    printf("%d entries, then %s\n", count, strerrorname_np(errno));
    TRY(fcntl(dirfd(dir), F_GETFD));
    TRY(closedir(dir));
    TRY(opendir("file") ? 0 : -1);
    TRY(opendir("none") ? 0 : -1);
    int fd = open("many", O_RDONLY);
    dir = fdopendir(fd);
    struct dirent entry, *result;
    for (count = 0; !readdir_r(dir, &entry, &result) && result;)
        count++;
    printf("%d entries\n", count);
    closedir(dir);
    TRY(fcntl(fd, F_GETFD));
    fd = open("many", O_RDONLY);
    char buffer[1000];
    count = 0;
    for (ssize_t n; (n = getdents64(fd, buffer, sizeof buffer)) > 0;)
        for (ssize_t at = 0; at < n; at += ((struct dirent64 *)(buffer + at))->d_reclen)
            count++;
    printf("%d entries\n", count);
    TRY(lseek(fd, 0, SEEK_SET));
    TRY(getdents64(fd, buffer, sizeof buffer) > 500);
    close(fd);
    struct dirent **list;
    int n = scandir(".", &list, no_dots, by_name);
    for (int i = 0; i < n; i++)
        printf("%s %d\n", list[i]->d_name, list[i]->d_type);
    TRY(scandir("none", &list, NULL, NULL));
    const char *patterns[] = {"*", "d/*", "many/*-199?", "[f-m]*/x", "none*", "tod/*", "{file,link}*", "*/x"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t found;
        printf("%s: %d", patterns[i], glob(patterns[i], GLOB_BRACE | GLOB_MARK, NULL, &found));
        for (size_t k = 0; k < found.gl_pathc; k++)
            printf(" %s", found.gl_pathv[k]);
        printf("\n");
        globfree(&found);
    }
    char whole[PATH_MAX + 20];
    snprintf(whole, sizeof whole, "%s/d/*", root);
    glob_t found;
    printf("%d", glob(whole, 0, NULL, &found));
    printf(" %zu %s\n", found.gl_pathc, found.gl_pathc ? below(found.gl_pathv[0]) : "nothing");
    globfree(&found);
}

static char *lines[5000];
static int line_count;

static int visit(const char *path, const struct stat *status, int kind, struct FTW *place) {
    char *line;
    asprintf(&line, "%s %d %d %s %d", below(path), kind, place->level, place->level ? path + place->base : "", kind == FTW_NS ? 0 : (int)(status->st_mode >> 12));
    lines[line_count++] = line;
    return 0;
}

static int visit_with_directory(const char *path, const struct stat *status, int kind, struct FTW *place) {
    if (access(path + place->base, F_OK) && kind != FTW_SL && kind != FTW_SLN)
        printf("%s is not here\n", path);
    return visit(path, status, kind, place);
}

static int visit_old(const char *path, const struct stat *status, int kind) {
    struct FTW place = {0, 0};
    return visit(path, status, kind, &place);
}

static int stop(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)path, (void)status, (void)place;
    return kind == FTW_D ? 0 : 77;
}

static void flush_lines(const char *what) {
    qsort(lines, line_count, sizeof *lines, compare);
    printf("%s\n", what);
    for (int i = 0; i < line_count; i++)
        if (!strstr(lines[i], "a-file-with"))
            printf("  %s\n", lines[i]);
    printf("  %d in all\n", line_count);
    line_count = 0;
}

static void walking(void) {
    TRY(nftw("d", visit, 10, 0));
    flush_lines("d");
    TRY(nftw(root, visit, 10, FTW_PHYS));
    flush_lines("physical");
    TRY(nftw(".", visit, 10, FTW_PHYS | FTW_DEPTH));
    flush_lines("depth first");
    TRY(nftw("./d", visit_with_directory, 10, FTW_PHYS | FTW_CHDIR));
    flush_lines("with the directory");
    TRY(ftw("d", visit_old, 10));
    flush_lines("old");
    TRY(nftw(".", stop, 10, FTW_PHYS));
    TRY(nftw("none", visit, 10, 0));
    TRY(nftw("file", visit, 10, 0));
    flush_lines("a file");
}

static void temporary(void) {
    char one[] = "tmp-XXXXXX", two[] = "tmp-XXXXXX.c", three[] = "dir-XXXXXX", four[] = "no-XXXXX", five[] = "none/XXXXXX", six[] = "name-XXXXXX";
    umask(0);
    int fd = mkstemp(one);
    printf("%d %d\n", fd >= 0, strncmp(one, "tmp-XXXXXX", 10) != 0);
    TRY(write(fd, "x", 1));
    struct stat status;
    fstat(fd, &status);
    printf("%o %d\n", status.st_mode, (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    fd = mkostemps(two, 2, O_CLOEXEC);
    printf("%d %s\n", fcntl(fd, F_GETFD), two + 10);
    printf("%d\n", mkdtemp(three) == three);
    stat(three, &status);
    printf("%o\n", status.st_mode);
    TRY(mkstemp(four));
    TRY(mkstemp(five));
    TRY(access(mktemp(six), F_OK));
    unlink(one);
    unlink(two);
    rmdir(three);
    umask(022);
}

int main(int argc, char **argv) {
    (void)argc;
    setvbuf(stdout, NULL, _IOLBF, 0);
    strcpy(root, argv[1]);
    if (chdir(root))
        return 1;
    making();
    removing();
    moving();
    attributes();
    links();
    working();
    listing();
    walking();
    temporary();
    return 0;
}
