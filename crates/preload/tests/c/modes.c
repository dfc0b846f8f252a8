/* Reads a file here and there until there is a file "go", does one more thing, and reads on. */
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static int file;

static void reads(int count)
{
    char byte;
    for (int i = 0; i < count; i++)
        if (pread(file, &byte, 1, i % 64 * 4096) != 1)
            _exit(9);
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 1;
    const char *way = arguments[1];
    char *words[] = { "true", NULL };
    int status = 0;
    pid_t pid = -1;
    file = !strcmp(way, "inherited") ? 0 : open("data", O_RDONLY);
    if (!strcmp(way, "own") && posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL))
        return 2;
    for (int i = 0; access("go", F_OK); i++) {
        reads(1);
        usleep(1000);
        if (i > 60000)
            return 3;
    }
    if (!strcmp(way, "fork") && (pid = fork()) == 0)
        _exit(0);
    if (!strcmp(way, "vfork") && (pid = vfork()) == 0)
        _exit(0);
    if (!strcmp(way, "spawn") && posix_spawn(&pid, "/bin/true", NULL, NULL, words, environ))
        return 4;
    if (pid > 0 && waitpid(pid, &status, 0) != pid)
        return 5;
    if (!strcmp(way, "dup") && dup(file) < 0)
        return 6;
    if (!strcmp(way, "exec"))
        execv("/bin/true", words);
    reads(100);
    return status != 0;
}
