/* A child that forbids itself system calls while it is in its parent's memory; its parent goes on, and starts a program. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static int file;

/* To ask who it is kills it from here on. */
static int forbid(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 4, steps };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int child(void *nothing)
{
    (void)nothing;
    if (forbid())
        _exit(1);
    for (int i = 0; i < 10; i++)
        if (write(file, "child", 5) != 5)
            _exit(2);
    char *arguments[] = { "true", NULL };
    execve("/bin/true", arguments, environ);
    _exit(3);
}

static int later_file;

static void *later(void *nothing)
{
    later_file = open("later", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 10; i++)
        if (write(later_file, "later", 5) != 5)
            return NULL;
    return nothing;
}

/* What the first thread wrote meanwhile is in between; and the first file's descriptor has become another's. */
static void *last(void *nothing)
{
    if (write(later_file, "last", 4) != 4 || write(file, "other", 5) != 5)
        return NULL;
    return nothing;
}

static int runs(void *(*what)(void *))
{
    pthread_t thread;
    void *done;
    return pthread_create(&thread, NULL, what, &file) || pthread_join(thread, &done) || !done;
}

int main(int count, char **arguments)
{
    static char stack[65536];
    int status, fd;
    file = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (count != 3 || write(file, "parent", 6) != 6)
        return 1;
    pid_t pid;
    if (!strcmp(arguments[1], "vfork")) {
        pid = vfork();
        if (pid == 0)
            child(NULL);
    } else {
        pid = clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        return 2;
    fd = open("after", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (write(fd, "after", 5) != 5)
        return 3;
    /* While there is one thread. */
    char *words[] = { arguments[2], NULL };
    if (posix_spawn(&pid, arguments[2], NULL, NULL, words, environ) || waitpid(pid, &status, 0) != pid || status)
        return 4;
    if (runs(later) || write(later_file, "unseen", 6) != 6)
        return 5;
    fd = open("other", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (dup2(fd, file) != file || close(fd))
        return 6;
    return runs(last) ? 7 : 0;
}
