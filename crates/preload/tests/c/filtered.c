/* Runs itself again under a filter that forbids to read and write the memory of processes; starts a program there without an
 * environment, and ends with a stream that holds something. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int forbid(unsigned how)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, how),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 5, steps };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 1;
    const char *how = arguments[1];
    if (strcmp(how, "under")) {
        char *again[] = { arguments[0], "under", NULL };
        if (forbid(!strcmp(how, "kill")   ? SECCOMP_RET_KILL_PROCESS
                   : !strcmp(how, "trap") ? SECCOMP_RET_TRAP
                                          : SECCOMP_RET_ERRNO | EPERM))
            return 2;
        execve(arguments[0], again, environ);
        return 3;
    }
    FILE *file = fopen("pending", "w");
    if (!file || fputs("pending", file) < 0)
        return 4;
    int status;
    pid_t pid = vfork();
    if (pid == 0) {
        char *words[] = { "true", NULL }, *none[] = { NULL };
        execve("/bin/true", words, none);
        _exit(5);
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid ? 6 : status ? 7 : 0;
}
