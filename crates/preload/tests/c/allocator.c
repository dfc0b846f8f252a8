/* A library: an allocator that reads and writes files whenever it is called. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *next, *end;
static volatile int depth;

static void log_it(char c)
{
    if (__sync_fetch_and_add(&depth, 1) < 2) {
        int fd = open("allocations", O_RDWR | O_CREAT | O_APPEND, 0644);
        char first;
        if (fd >= 0) {
            if (write(fd, &c, 1) == 1 && pread(fd, &first, 1, 0) != 1)
                _exit(99);
            close(fd);
        }
    }
    __sync_fetch_and_sub(&depth, 1);
}

void *malloc(size_t n)
{
    log_it('m');
    n = (n + 16 + 15) & ~(size_t)15;
    if (next + n > end) {
        size_t chunk = n > (1 << 24) ? n : 1 << 24;
        next = mmap(NULL, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (next == MAP_FAILED)
            _exit(98);
        end = next + chunk;
    }
    char *block = next;
    next += n;
    *(size_t *)block = n - 16;
    return block + 16;
}

void free(void *block)
{
    if (block)
        log_it('f');
}

void *calloc(size_t a, size_t b)
{
    return malloc(a * b);
}

void *realloc(void *old, size_t n)
{
    void *block = malloc(n);
    if (old) {
        size_t kept = *(size_t *)((char *)old - 16);
        memcpy(block, old, kept < n ? kept : n);
    }
    return block;
}
