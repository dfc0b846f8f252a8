/* Parent and child share positions: each writes in turn through the same descriptor. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    if (argc > 1) {
        if (write(atoi(argv[1]), "spawned!", 8) != 8)
            return 1;
        return 0;
    }
    int fd = open("turns", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 20; i++) {
        if (write(fd, "parent", 6) != 6)
            return 1;
        pid_t pid = fork();
        if (pid == 0) {
            if (write(fd, "child", 5) != 5)
                _exit(1);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
        char number[8];
        sprintf(number, "%d", fd);
        char *arguments[] = { argv[0], number, NULL };
        if (posix_spawn(&pid, argv[0], NULL, NULL, arguments, environ))
            return 1;
        waitpid(pid, NULL, 0);
    }
    if (lseek(fd, 0, SEEK_CUR) != 20 * 19)
        return 1;
    return 0;
}
