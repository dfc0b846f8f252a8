/* Memory that is not there is EFAULT, at once, and nobody else's trouble. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SIZE = 3 << 20 };

static char path[4096], fine[SIZE];
static volatile int stop, bad;

/* Others use the same connection meanwhile. */
static void *load(void *argument)
{
    char name[4200], out[20000], in[20000];
    snprintf(name, sizeof name, "%s%ld", path, (long)argument);
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    memset(out, 'x', sizeof out);
    while (!stop)
        if (pwrite(fd, out, sizeof out, 0) != sizeof out || pread(fd, in, sizeof in, 0) != sizeof in || memcmp(in, out, sizeof in))
            bad = 1;
    close(fd);
    unlink(name);
    return NULL;
}

static const char *told(ssize_t result)
{
    static char text[8][32];
    static int next;
    char *to = text[next++ % 8];
    if (result < 0)
        return strerrorname_np(errno);
    snprintf(to, sizeof text[0], "%zd", result);
    return to;
}

static void use(int fd, const char *what, char *memory)
{
    static const size_t sizes[] = { 1, 100, 4096, 70000, SIZE };
    for (int i = 0; i < 5; i++) {
        size_t n = sizes[i];
        struct iovec two[] = { { memory, n / 2 + 1 }, { memory, n / 2 + 1 } };
        lseek(fd, 0, SEEK_SET);
        printf("%s %zu:", what, n);
        printf(" read %s", told(read(fd, memory, n)));
        printf(" %s", told(pread(fd, memory, n, 5)));
        printf(" %s", told(readv(fd, two, 2)));
        printf(" write %s", told(write(fd, memory, n)));
        printf(" %s", told(pwrite(fd, memory, n, 5)));
        printf(" %s at %ld\n", told(writev(fd, two, 2)), (long)lseek(fd, 0, SEEK_CUR));
    }
}

/* What is there before it ends is moved, or nothing is. */
static void cross(int fd, char *edge)
{
    for (size_t n = 8192; n < SIZE; n *= 6) {
        lseek(fd, 0, SEEK_SET);
        ssize_t got = read(fd, edge - 4096, n);
        int right = got < 0 ? errno == EFAULT : got <= 4096 && memcmp(edge - 4096, fine, got) == 0;
        memset(edge - 4096, 'f', 4096);
        lseek(fd, 0, SEEK_SET);
        ssize_t put = write(fd, edge - 4096, n);
        right &= put < 0 ? errno == EFAULT : put <= 4096;
        printf("cross %s\n", right ? "right" : "wrong");
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    struct iovec one = { fine, 10 };
    (void)argc;
    snprintf(path, sizeof path, "%s/file", argv[1]);
    memset(fine, 'f', sizeof fine);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    printf("write %zd\n", write(fd, fine, SIZE));
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, load, (void *)i);
    char *none = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    use(fd, "none", none);
    use(fd, "null", NULL);
    char *edge = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(edge + 4096, 2 * SIZE - 4096, PROT_NONE);
    cross(fd, edge + 4096);
    char *constant = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("constant %s %s\n", told(pread(fd, constant, 100, 0)), told(pread(fd, constant, SIZE, 0)));
    printf("list %s %s\n", told(readv(fd, (void *)none, 2)), told(writev(fd, (void *)none, 2)));
    printf("end %s\n", told(pread(fd, none, 100, SIZE)));
    int last = open(path, O_WRONLY | O_APPEND);
    printf("append %s %s\n", told(write(last, none, 100)), told(write(last, none, SIZE)));
    printf("after %s\n", told(preadv(fd, &one, 1, 0)));
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("others %s\n", bad ? "bad" : "fine");
    return 0;
}
