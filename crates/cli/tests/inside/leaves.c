/* Ends in ways that threads of others could be in the way of, after it has read a file: by the end of its last thread, not
 * of its first; by `_exit`; by a change of user before; in a sandbox for all threads that only reads and writes. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static char data[4096];

static void *last(void *none)
{
    usleep(100000);
    printf("last\n"); /* flushed only when the process ends as it should */
    return none;
}

/* Whoever opens a file, sleeps or waits for another thread from now on is killed. */
static int forbid(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

int main(int argc, char **argv)
{
    int fd = open("in", O_RDONLY);
    for (int i = 0; i < 100; i++)
        if (pread(fd, data, sizeof data, i * 4096) != sizeof data)
            return 2;
    printf("first\n");
    if (argc > 1 && !strcmp(argv[1], "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, last, 0);
        pthread_exit(0);
    }
    if (argc > 1 && !strcmp(argv[1], "_exit")) {
        fflush(stdout);
        _exit(5);
    }
    if (argc > 1 && !strcmp(argv[1], "user"))
        return setgid(getgid()) | setuid(getuid());
    if (argc > 1 && !strcmp(argv[1], "sandbox")) {
        int failed = forbid();
        fflush(stdout);
        for (int i = 0; i < 2000; i++)
            syscall(SYS_pread64, fd, data, sizeof data, i * 100);
        _exit(failed ? 3 : 0);
    }
    return 4;
}
