/* Children in their parent's memory, with descriptors of their own, by the newest of the calls that make them. */
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int a, b;

static void child(void)
{
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
    static char stack[65536] __attribute__((aligned(16)));
    /* The child returns from syscall() too, on its own stack: what it returns to lies there. */
    *(void **)(stack + sizeof stack - 16) = child;
    struct clone_args how = { .flags = CLONE_VM, .exit_signal = SIGCHLD };
    how.stack = (uintptr_t)stack;
    how.stack_size = sizeof stack - 16;
    a = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644);
    b = open("b", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 20; i++) {
        int status;
        if (write(a, "aaaa", 4) != 4 || write(b, "bb", 2) != 2)
            return 1;
        *(void **)(stack + sizeof stack - 16) = child;
        pid_t pid = syscall(SYS_clone3, &how, sizeof how);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
            return 2;
    }
    /* One that must fail, as it does without us. */
    return syscall(SYS_clone3, (void *)16, sizeof how) != -1;
}
