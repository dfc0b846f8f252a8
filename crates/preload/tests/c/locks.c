/* Starts a program, in one way or another, on whose file it has a lock, and says whether it still has it. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Another process would not get the lock. */
static int is_locked(const char *path)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
        int fd = open(path, O_RDONLY);
        _exit(fcntl(fd, F_GETLK, &lock) ? 2 : lock.l_type != F_UNLCK);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 1;
    const char *way = arguments[1], *path = arguments[2];
    char *words[] = { arguments[2], NULL };
    struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
    int status, fd = open(path, O_RDONLY);
    pid_t pid;
    if (fd < 0 || fcntl(fd, F_SETLK, &lock))
        return 2;
    if (!strcmp(way, "spawn")) {
        if (posix_spawn(&pid, path, NULL, NULL, words, environ) || waitpid(pid, &status, 0) != pid || status)
            return 3;
    } else {
        /* It fails: there are more words than the kernel takes. */
        static char *many[1 << 18];
        static char word[32];
        memset(word, 'x', sizeof word - 1);
        for (int i = 0; i < (1 << 18) - 1; i++)
            many[i] = word;
        execve(path, many, environ);
    }
    printf("locked: %d\n", is_locked(path));
    return 0;
}
