/* mmap: private mappings and shared ones for reading are copies; shared ones for writing are refused. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sigjmp_buf back;

static void on_bus(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static void show(const char *what, void *m)
{
    printf("%s %s\n", what, m == MAP_FAILED ? strerrorname_np(errno) : "mapped");
}

int main(int argc, char **argv)
{
    char path[4096], big[10000];
    int forwarded = argc > 2;
    snprintf(path, sizeof path, "%s/mapped", argv[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    for (int i = 0; i < 10000; i++)
        big[i] = (char)(i * 7 + i / 256);
    write(fd, big, sizeof big);
    char *m = mmap(NULL, 10000, PROT_READ, MAP_PRIVATE, fd, 0);
    show("private", m);
    printf("same %d zeros %d\n", memcmp(m, big, 10000) == 0, m[10000] == 0 && m[12287] == 0);
    char *w = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    show("private for writing, from an offset", w);
    printf("same %d\n", memcmp(w, big + 4096, 5904) == 0);
    w[0] = 'W';
    char c;
    pread(fd, &c, 1, 4096);
    printf("not in the file %d\n", c == big[4096]);
    char *s = mmap(NULL, 10000, PROT_READ, MAP_SHARED, fd, 0);
    show("shared", s);
    printf("same %d\n", memcmp(s, big, 10000) == 0);
    signal(SIGBUS, on_bus);
    char *far = mmap(NULL, 20000, PROT_READ, MAP_PRIVATE, fd, 0);
    if (sigsetjmp(back, 1) == 0)
        printf("read %d\n", far[16384]);
    else
        printf("SIGBUS behind the end\n");
    show("empty", mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0));
    show("odd offset", mmap(NULL, 10, PROT_READ, MAP_PRIVATE, fd, 10));
    int only = open(path, O_WRONLY);
    show("write only", mmap(NULL, 10, PROT_READ, MAP_PRIVATE, only, 0));
    int ro = open(path, O_RDONLY);
    show("shared for writing, open for reading", mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0));
    if (forwarded) {
        show("shared for writing", mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        printf("made writable later %s\n", mprotect(s, 4096, PROT_READ | PROT_WRITE) ? "refused" : "DONE");
    }
    char *fixed = mmap(m, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 4096);
    printf("fixed %d %d\n", fixed == m, memcmp(m, big + 4096, 4096) == 0);
    return 0;
}
