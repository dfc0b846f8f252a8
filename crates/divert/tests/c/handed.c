/* Locks that are handed on to a child, or to the program that a process becomes, where there are two nodes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS 12
#define EXECS 8

static const char *directory;

static char *file(int number)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/locked%d", directory, number);
    return path;
}

static int open_file(int number, int flags)
{
    int fd = open(file(number), O_RDWR | O_CREAT | flags, 0644);
    if (fd < 0) {
        perror("open");
        exit(9);
    }
    return fd;
}

static int status_of(pid_t pid)
{
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

/* Whether a process of its own, at whichever node, gets the lock. */
static int is_free(int number, int operation)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(flock(open_file(number, 0), operation) == 0);
    return status_of(pid);
}

/* A child has the lock when its parent has closed the file, until it ends. */
static int forked(int number)
{
    int fd = open_file(number, 0), ends[2];
    char c;
    if (flock(fd, LOCK_EX) || pipe(ends))
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        _exit(read(ends[0], &c, 1) == 0 && pwrite(fd, "child", 5, 0) == 5);
    }
    close(ends[0]);
    close(fd);
    int kept = is_free(number, LOCK_EX | LOCK_NB) == 0;
    close(ends[1]);
    return kept && status_of(pid) == 1 && is_free(number, LOCK_EX) == 1;
}

/* A process with locks becomes this program again. */
static pid_t start(const char *as, int number, int flags)
{
    pid_t pid = fork();
    if (pid == 0) {
        char numbers[2][16];
        int fd = open_file(number, flags);
        struct flock record = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
        if (flock(fd, LOCK_EX) || fcntl(fd, F_SETLK, &record))
            _exit(9);
        snprintf(numbers[0], 16, "%d", fd);
        snprintf(numbers[1], 16, "%d", number);
        execl("/proc/self/exe", "handed", directory, as, numbers[0], numbers[1], NULL);
        _exit(9);
    }
    return pid;
}

static int record_is_free(int number)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct flock record = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 1};
        _exit(fcntl(open_file(number, 0), F_SETLK, &record) == 0);
    }
    return status_of(pid);
}

/* Longer after that than a node waits for anybody. */
static int executed(int fd, int number)
{
    sleep(4);
    return is_free(number, LOCK_EX | LOCK_NB) == 0 && record_is_free(number) == 0 && pwrite(fd, "executed", 8, 0) == 8;
}

/* What was closed is free at once. */
static int closed(int number)
{
    return is_free(number, LOCK_EX | LOCK_NB) == 1 && record_is_free(number) == 1;
}

static int count(const char *as, int flags)
{
    pid_t pids[EXECS];
    int good = 0;
    for (int i = 0; i < EXECS; i++)
        pids[i] = start(as, 100 + i, flags);
    for (int i = 0; i < EXECS; i++)
        good += status_of(pids[i]) == 1;
    return good;
}

/* 1 if a lock of the descriptor is lost, as every use of it says. */
static int is_lost(int fd)
{
    char c;
    int first = pwrite(fd, "x", 1, 0) == 1 ? 0 : errno;
    int others[] = {pread(fd, &c, 1, 0) == 1 ? 0 : errno, flock(fd, LOCK_UN) == 0 ? 0 : errno, fsync(fd) == 0 ? 0 : errno};
    for (int i = 0; i < 3; i++)
        if (others[i] != first)
            return 8;
    return first == 0 ? 0 : first == EIO ? 1 : 9;
}

static void hide(const char *room, int node, int back)
{
    char there[4200], away[4300];
    snprintf(there, sizeof there, "%s/%s", room, node ? "socket2" : "socket");
    snprintf(away, sizeof away, "%s.away", there);
    if (back ? rename(away, there) : rename(there, away)) {
        perror("rename");
        exit(9);
    }
}

static void show(const char *what, int first, int second)
{
    int lost = (first == 1) + (second == 1), kept = (first == 0) + (second == 0);
    printf("%s: %d lost, %d kept\n", what, lost, kept);
}

/* One of the nodes gave the lock: without that one it cannot be handed on. */
static int hidden(const char *room)
{
    int fd = open_file(0, 0), one[2], two[2];
    if (flock(fd, LOCK_EX))
        return 9;
    for (int node = 0; node < 2; node++) {
        hide(room, node, 0);
        pid_t pid = fork();
        if (pid == 0) {
            pid = fork();
            if (pid == 0)
                _exit(is_lost(fd));
            /* To its own child it hands on what it has; and the file can be opened again. */
            int there = status_of(pid), here = is_lost(fd);
            _exit(here == there && is_lost(open_file(0, 0)) == 0 ? here : 7);
        }
        one[node] = status_of(pid);
        hide(room, node, 1);
        /* The child has what this has, at the same node; what it becomes has not. */
        if (flock(fd, LOCK_EX))
            return 9;
        pid = fork();
        if (pid == 0) {
            char number[16];
            snprintf(number, sizeof number, "%d", fd);
            hide(room, node, 0);
            execl("/proc/self/exe", "handed", directory, "is lost", number, NULL);
            _exit(9);
        }
        two[node] = status_of(pid);
        hide(room, node, 1);
        if (flock(fd, LOCK_EX))
            return 9;
    }
    show("forked", one[0], one[1]);
    show("executed", two[0], two[1]);
    printf("at home: %s\n", is_lost(fd) ? "lost" : "kept");
    return 0;
}

/* The node has lost the lock and others have had it before this process does anything with the file again. */
static int forgotten(int by_exec)
{
    int fd = open_file(0, 0);
    char number[16];
    if (flock(fd, LOCK_EX))
        return 9;
    puts("locked");
    fflush(stdout);
    if (getchar() != '\n')
        return 9;
    snprintf(number, sizeof number, "%d", fd);
    if (by_exec)
        execl("/proc/self/exe", "handed", directory, "is lost", number, NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(is_lost(fd));
    int there = status_of(pid), here = is_lost(fd);
    return here == there ? here : 7;
}

int main(int argc, char **argv)
{
    directory = argv[1];
    if (argc > 2 && !strcmp(argv[2], "forgotten"))
        return forgotten(!strcmp(argv[3], "exec"));
    if (argc > 2 && !strcmp(argv[2], "hidden"))
        return hidden(argv[3]);
    if (argc > 2 && !strcmp(argv[2], "is lost"))
        return is_lost(atoi(argv[3]));
    if (argc > 2 && !strcmp(argv[2], "executed"))
        return executed(atoi(argv[3]), atoi(argv[4]));
    if (argc > 2 && !strcmp(argv[2], "closed"))
        return closed(atoi(argv[4]));
    int good = 0;
    for (int i = 0; i < FORKS; i++)
        good += forked(i);
    printf("forked %d\n", good);
    fflush(stdout);
    printf("executed %d\n", count("executed", 0));
    fflush(stdout);
    printf("closed %d\n", count("closed", O_CLOEXEC));
    return 0;
}
