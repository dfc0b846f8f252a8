/* Children that run in their parent's memory, but have descriptors of their own. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int a, b;

static int child(void *nothing)
{
    (void)nothing;
    close(b);
    dup2(a, b);
    int out = open("out", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (write(out, "child", 5) != 5)
        _exit(1);
    close(out);
    close(a);
    _exit(0);
}

int main(void)
{
    static char stack[65536];
    a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644);
    b = open("b", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 20; i++) {
        int status;
        if (write(a, "aaaa", 4) != 4 || write(b, "bb", 2) != 2)
            return 1;
        pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
            return 2;
    }
    return 0;
}
