/* Children of vfork use files before their parent ever does, and after. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[4096];

static int guest(const char *text)
{
    int status = -1;
    pid_t pid = vfork();
    if (pid == 0) {
        struct stat st;
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, text, strlen(text)) != (long)strlen(text) || fstat(fd, &st) || st.st_size != (long)strlen(text))
            _exit(1);
        close(fd);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status;
}

int main(int argc, char **argv)
{
    char b[32] = "";
    int failed = 0;
    (void)argc;
    snprintf(path, sizeof path, "%s/guests", argv[1]);
    printf("%d\n", guest("child"));
    int fd = open(path, O_RDWR);
    long n = read(fd, b, 31);
    printf("%ld %s\n", n, b);
    for (int i = 0; i < 50; i++) {
        failed += guest("again") != 0;
        failed += pread(fd, b, 5, 0) != 5 || memcmp(b, "again", 5) != 0;
        failed += pwrite(fd, "parent", 6, 0) != 6;
    }
    printf("%d guests failed\n", failed);
    return 0;
}
