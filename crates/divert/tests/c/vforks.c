/* vfork, redirections, exec: as shells and Python do it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[4096];
static const char *dir;

static const char *in(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void run(int from, int to, const char *opened, const char *command)
{
    int status;
    pid_t pid = vfork();
    if (pid == 0) {
        if (from >= 0 && dup2(from, 0) < 0)
            _exit(90);
        if (to >= 0 && dup2(to, 1) < 0)
            _exit(91);
        if (opened) {
            close(1);
            if (open(opened, O_WRONLY | O_CREAT | O_APPEND, 0644) != 1)
                _exit(92);
        }
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(93);
    }
    waitpid(pid, &status, 0);
    printf("%s: %d\n", command, status);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    (void)argc;
    dir = argv[1];
    int to = open(in("output"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    write(to, "begin\n", 6);
    run(-1, to, NULL, "echo one; echo two");
    write(to, "between\n", 8);
    run(-1, to, NULL, "cat /etc/hostname > /dev/null; echo three");
    int from = open(in("output"), O_RDONLY | O_CLOEXEC);
    run(from, -1, in("second"), "cat; echo end");
    run(-1, -1, in("second"), "echo appended");
    printf("position %ld\n", (long)lseek(to, 0, SEEK_CUR));
    char b[200] = "";
    int fd = open(in("second"), O_RDONLY), n = read(fd, b, 199);
    printf("%d\n%s", n, b);
    /* What the guest did has changed nothing here. */
    printf("still %ld\n", (long)pread(to, b, 5, 0));
    return 0;
}
