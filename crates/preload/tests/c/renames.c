/* A directory is renamed while one below it is open, in each of the ways that there are. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int put(int at, const char *name, int flags)
{
    int fd = openat(at, name, O_WRONLY | flags, 0644);
    return fd < 0 || write(fd, "1234", 4) != 4 || close(fd) != 0;
}

int main(void)
{
    const char *names[] = { "one1", "two2", "tri3", "for4", "fiv5" };
    if (mkdir("a", 0755) || mkdir("a/sub", 0755))
        return 1;
    int at = open("a/sub", O_RDONLY | O_DIRECTORY);
    /* Later the directory itself does not change any more. */
    for (int i = 0; i < 5; i++)
        if (put(at, names[i], O_CREAT))
            return 2;
    if (put(at, "one1", 0) || put(at, "two2", 0))
        return 3;
    if (rename("a", "b") || put(at, "tri3", 0))
        return 4;
    if (renameat(AT_FDCWD, "b", AT_FDCWD, "c") || put(at, "for4", 0))
        return 5;
    return renameat2(AT_FDCWD, "c", AT_FDCWD, "d", 0) || put(at, "fiv5", 0);
}
