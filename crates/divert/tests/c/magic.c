/* Descriptors by their names: whatever takes a path takes /dev/fd/7 for what is open there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[4096];

static const char *why(int failed)
{
    return failed ? strerrorname_np(errno) : "fine";
}

static void show(const char *name, FILE *file)
{
    char line[100] = "";
    if (file == NULL) {
        printf("%s: %s\n", name, why(1));
        return;
    }
    size_t n = fread(line, 1, sizeof line - 1, file);
    printf("%s: %zu %s\n", name, n, line);
}

static void shown(const char *name)
{
    FILE *file = fopen(name, "r");
    show(name, file);
    if (file)
        fclose(file);
}

static void put(const char *name, int as)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDWR | O_CREAT, 0640);
    if (dup2(fd, as) != as || write(as, name, strlen(name)) < 0)
        exit(1);
    if (fd != as)
        close(fd);
}

static void look(const char *name)
{
    struct stat status, link;
    char path[PATH_MAX] = "";
    printf("stat %s", why(stat(name, &status)));
    printf(" %o %ld, ", status.st_mode, (long)status.st_size);
    printf("lstat %s %d, ", why(lstat(name, &link)), S_ISLNK(link.st_mode));
    printf("access %s, execute %s, ", why(access(name, R_OK | W_OK)), why(access(name, X_OK)));
    printf("chmod %s, ", why(chmod(name, 0600)));
    printf("truncate %s, ", why(truncate(name, 3)));
    printf("kept %s, ", why(open(name, O_RDONLY | O_NOFOLLOW) < 0));
    printf("new %s, ", why(open(name, O_WRONLY | O_CREAT | O_EXCL, 0644) < 0));
    printf("real %s", why(realpath(name, path) == NULL));
    printf(" %s\n", path);
    shown(name);
}

/* The working directory by its name. */
static void here(void)
{
    struct stat one, other;
    char path[PATH_MAX] = "", own[100];
    shown("/proc/self/cwd/seven");
    shown("/proc/thread-self/cwd/./seven");
    shown("/proc/self/cwd/none");
    snprintf(own, sizeof own, "/proc/%d/cwd/seven", getpid());
    FILE *file = fopen(own, "r");
    show("by number", file);
    printf("stat %s", why(stat("/proc/self/cwd", &one)));
    printf(" %d", stat(".", &other) == 0 && one.st_ino == other.st_ino && one.st_dev == other.st_dev);
    printf(" lstat %s %d\n", why(lstat("/proc/self/cwd", &one)), S_ISLNK(one.st_mode));
    printf("real %s", why(realpath("/proc/self/cwd", path) == NULL));
    printf(" %s\n", path);
    printf("mkdir %s, ", why(mkdir("/proc/self/cwd/made", 0755)));
    printf("rmdir %s\n", why(rmdir("made")));
    printf("unlink %s\n", why(unlink("/proc/self/cwd/none")));
}

static void walk(void)
{
    struct dirent *entry;
    char path[4096];
    int found = 0;
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    dup2(fd, 8);
    close(fd);
    DIR *all = opendir("/proc/self/fd/8");
    while (all && (entry = readdir(all)))
        found += strcmp(entry->d_name, "seven") == 0;
    printf("opendir %d\n", found);
    shown("/dev/fd/8/seven");
    shown("/dev/fd/8/none");
    shown("/dev/fd/7/seven");
    printf("mkdir %s\n", why(mkdir("/dev/fd/8/made", 0755)));
    printf("rmdir %s\n", why(rmdir("/proc/self/fd/8/made")));
    printf("chdir %s", why(chdir("/dev/fd/8")));
    printf(" %s\n", getcwd(path, sizeof path));
    shown("seven");
    printf("chdir %s\n", why(chdir("/dev/fd/7")));
    here();
}

int main(int argc, char **argv)
{
    (void)argc;
    strcpy(dir, argv[1]);
    put("seven", 7);
    look("/dev/fd/7");
    put("zero", 0);
    look("/proc/self/fd/0");
    lseek(0, 0, SEEK_SET);
    shown("/dev/stdin");
    show("again", freopen("/dev/stdin", "r", stdin));
    walk();
    put("gone", 9);
    printf("unlink %s\n", why(unlink("gone")));
    shown("/dev/fd/9");
    printf("link %s\n", why(linkat(AT_FDCWD, "/proc/self/fd/7", AT_FDCWD, "linked", AT_SYMLINK_FOLLOW)));
    printf("unlink %s\n", why(unlink("/proc/self/fd/7")));
    printf("none %s\n", why(fopen("/dev/fd/99", "r") == NULL));
    return 0;
}
