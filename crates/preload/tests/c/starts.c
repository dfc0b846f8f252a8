/* Starts a program in one of the ways there are, with the environment or without. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **arguments)
{
    if (count != 3)
        return 1;
    const char *way = arguments[1], *path = arguments[2];
    char *const words[] = { arguments[2], NULL }, *const none[] = { NULL }, *const other[] = { "A=1", "B=2", NULL };
    void *volatile nowhere = (void *)16;
    pid_t pid = 0;
    int status, error = 0;
    if (!strcmp(way, "spawn"))
        error = posix_spawn(&pid, path, NULL, NULL, words, environ);
    else if (!strcmp(way, "bare-spawn"))
        error = posix_spawn(&pid, path, NULL, NULL, words, none);
    else if ((pid = strstr(way, "vfork") ? vfork() : fork()) == 0) {
        if (!strcmp(way, "bare") || !strcmp(way, "bare-vfork"))
            execve(path, words, other);
        if (!strcmp(way, "bare-places")) {
            /* As a shell looks for a program: not there, no file, no program, and there. */
            const char *places[] = { "/nonexistent/a", "a/b/c", "/tmp", "/etc/passwd", arguments[0], path };
            int text = open("text", O_WRONLY | O_CREAT, 0755);
            places[4] = text >= 0 && write(text, "none", 4) == 4 && !close(text) ? "./text" : "";
            for (int i = 0; i < 6; i++)
                execve(places[i], words, none);
        }
        if (!strcmp(way, "null"))
            execve(path, words, NULL);
        if (!strcmp(way, "clear"))
            environ = NULL, execv(path, words);
        if (!strcmp(way, "bad"))
            _exit(execve(nowhere, words, environ) == -1 && execve(path, words, nowhere) == -1 && errno == EFAULT ? 0 : 9);
        execv(path, words);
        _exit(8);
    }
    if (error || pid < 0 || waitpid(pid, &status, 0) != pid)
        return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}
