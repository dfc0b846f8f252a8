/* Children of vfork that turn descriptors upside down before they exec or exit; their parent's must stay as they are. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const arguments[] = { "sh", "-c", "echo from the child >&1; echo more >> child", NULL };

int main(void)
{
    int a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int b = open("b", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 20; i++) {
        int status;
        if (write(a, "aaaa", 4) != 4 || write(b, "bb", 2) != 2)
            return 1;
        pid_t pid = vfork();
        if (pid == 0) {
            close(b);
            dup2(a, b);
            int out = open("out", O_WRONLY | O_CREAT | O_APPEND, 0644);
            dup2(out, 1);
            close(a);
            if (i % 4 == 0)
                _exit(7);
            if (i % 4 == 1) {
                execl("/nonexistent", "x", NULL);
                _exit(errno == ENOENT ? 8 : 9);
            }
            execv("/bin/sh", arguments);
            _exit(1);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return 2;
        int expected = i % 4 == 0 ? 7 : i % 4 == 1 ? 8 : 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != expected)
            return 3;
    }
    return 0;
}
