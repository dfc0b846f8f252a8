/* Locks between processes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[4096];

static int lock(int fd, int command, int type, long start, long length)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(fd, command, &l);
}

static void show(const char *what, int result)
{
    printf("%s: %s\n", what, result < 0 ? strerrorname_np(errno) : "done");
    fflush(stdout);
}

/* In a child, with a description of its own. */
static void other(const char *what, int command, int type, long start, long length)
{
    fflush(stdout);
    if (fork() == 0) {
        int fd = open(path, O_RDWR);
        show(what, lock(fd, command, type, start, length));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

static void who(int fd, long parent)
{
    fflush(stdout);
    if (fork() == 0) {
        int mine = open(path, O_RDWR);
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
        int result = fcntl(mine, F_GETLK, &l);
        printf("who: %d type %d from %ld long %ld by %s\n", result, l.l_type, (long)l.l_start, (long)l.l_len, l.l_pid == parent ? "the parent" : "another");
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    (void)fd;
}

static void on_alarm(int number)
{
    (void)number;
}

int main(int argc, char **argv)
{
    (void)argc;
    snprintf(path, sizeof path, "%s/locked", argv[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    show("write lock", lock(fd, F_SETLK, F_WRLCK, 10, 20));
    other("another overlaps", F_SETLK, F_WRLCK, 25, 10);
    other("another reads", F_SETLK, F_RDLCK, 0, 0);
    other("another beside it", F_SETLK, F_WRLCK, 30, 10);
    who(fd, getpid());
    show("again", lock(fd, F_SETLK, F_RDLCK, 10, 20));
    other("another reads", F_SETLK, F_RDLCK, 0, 0);
    other("another writes", F_SETLK, F_WRLCK, 29, 1);
    show("a part back", lock(fd, F_SETLK, F_UNLCK, 20, 100));
    other("another writes there", F_SETLK, F_WRLCK, 20, 10);
    other("another writes before", F_SETLK, F_WRLCK, 19, 1);
    /* Any descriptor that is closed ends them. */
    close(open(path, O_RDONLY));
    other("after a close", F_SETLK, F_WRLCK, 0, 0);
    /* One that ends gives back what it had. */
    if (fork() == 0) {
        int mine = open(path, O_RDWR);
        lock(mine, F_SETLK, F_WRLCK, 0, 0);
        exit(0);
    }
    wait(NULL);
    show("after its end", lock(fd, F_SETLK, F_WRLCK, 0, 0));
    lock(fd, F_SETLK, F_UNLCK, 0, 0);
    /* Waiting. */
    int ready[2];
    char c;
    if (pipe(ready))
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        int mine = open(path, O_RDWR);
        lock(mine, F_SETLK, F_WRLCK, 0, 0);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        usleep(300000);
        pwrite(mine, "before", 6, 0);
        lock(mine, F_SETLK, F_UNLCK, 0, 0);
        pause();
    }
    if (read(ready[0], &c, 1) != 1)
        return 1;
    show("wait", lock(fd, F_SETLKW, F_WRLCK, 0, 0));
    char b[7] = "";
    pread(fd, b, 6, 0);
    printf("then %s\n", b);
    /* A signal ends the wait, unless its handler says otherwise. */
    sigset_t wanted;
    int number;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    fflush(stdout);
    if (fork() == 0) {
        int mine = open(path, O_RDWR);
        struct sigaction action = {.sa_handler = on_alarm};
        sigaction(SIGALRM, &action, NULL);
        alarm(1);
        show("interrupted", lock(mine, F_SETLKW, F_WRLCK, 0, 0));
        /* Many times at every moment. */
        struct itimerval soon = {{0, 0}, {0, 0}};
        int other = 0;
        for (int i = 0; i < 30; i++) {
            soon.it_value.tv_usec = 300 + i * 400;
            setitimer(ITIMER_REAL, &soon, NULL);
            other += lock(mine, F_SETLKW, F_WRLCK, 0, 0) == 0 || errno != EINTR;
        }
        show("interrupted each time", other ? -1 : 0);
        action.sa_flags = SA_RESTART;
        sigaction(SIGALRM, &action, NULL);
        kill(getppid(), SIGUSR1);
        alarm(1);
        show("not interrupted", lock(mine, F_SETLKW, F_WRLCK, 0, 0));
        _exit(0);
    }
    sigwait(&wanted, &number);
    sleep(2);
    lock(fd, F_SETLK, F_UNLCK, 0, 0);
    wait(NULL);
    kill(pid, SIGKILL);
    wait(NULL);
    close(fd);
    /* flock belongs to the description. */
    int one = open(path, O_RDWR), two = open(path, O_RDWR), copy = dup(one);
    show("flock", flock(one, LOCK_EX));
    show("flock two", flock(two, LOCK_SH | LOCK_NB));
    show("flock copy", flock(copy, LOCK_EX | LOCK_NB));
    close(one);
    show("flock two, one closed", flock(two, LOCK_SH | LOCK_NB));
    close(copy);
    show("flock two, both closed", flock(two, LOCK_EX | LOCK_NB));
    show("lockf beside flock", lockf(two, F_TLOCK, 0));
    show("unlock", flock(two, LOCK_UN));
    show("lockf", lockf(two, F_TLOCK, 0));
    show("bad lock", lock(two, F_SETLK, 77, 0, 0));
    int ro = open(path, O_RDONLY);
    show("write lock, open for reading", lock(ro, F_SETLK, F_WRLCK, 0, 0));
    return 0;
}
