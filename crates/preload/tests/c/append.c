/* Appending: wherever the position is, and whatever offset is given. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wchar.h>

/* A stream makes a descriptor append that did not, and leaves the large file that is there as it is. */
static int by_descriptor(const char *mode, int flush)
{
    int fd = open("c", O_RDWR);
    FILE *f = fd < 0 ? NULL : fdopen(fd, mode);
    if (!f || fputs("small\n", f) < 0 || (flush && fflush(f) != 0))
        return 1;
    return fputs("and small\n", f) < 0 || fclose(f) != 0;
}

/* A descriptor that appends becomes a stream that does not say so, and all streams are flushed at once. */
static int flush_all(void)
{
    int fd = open("c", O_RDWR | O_APPEND);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f || fflush(NULL) != 0 || fputs("one\n", f) < 0 || fflush(NULL) != 0 || fflush(NULL) != 0)
        return 1;
    /* Another appends, too. */
    int other = open("c", O_WRONLY | O_APPEND);
    if (write(other, "theirs\n", 7) != 7 || fputs("two\n", f) < 0 || fflush(NULL) != 0 || close(other) != 0)
        return 2;
    return fclose(f) != 0;
}

/* The same with wide characters, whose bytes no buffer tells. */
static int wide(int flush_all)
{
    int fd = open("c", O_RDWR | O_APPEND);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f || fputws(L"wide\n", f) < 0 || fflush(flush_all ? NULL : f) != 0)
        return 1;
    int other = open("c", O_WRONLY | O_APPEND);
    if (write(other, "theirs\n", 7) != 7 || close(other) != 0)
        return 2;
    for (int i = 0; i < 2000; i++)
        if (fputws(L"and wide\n", f) < 0)
            return 3;
    return fflush(flush_all ? NULL : f) != 0 || fclose(f) != 0;
}

/* Nothing is kept, from the first character on. */
static int wide_at_once(void)
{
    int fd = open("c", O_RDWR | O_APPEND);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f || setvbuf(f, NULL, _IONBF, 0) != 0)
        return 1;
    return fputws(L"at once", f) < 0 || fputwc(L'\n', f) == WEOF || fclose(f) != 0;
}

int main(void)
{
    int a = open("a", O_RDWR | O_CREAT | O_APPEND, 0644), b = open("a", O_WRONLY | O_APPEND);
    char buffer[8];
    for (int i = 0; i < 50; i++) {
        if (write(a, "first ", 6) != 6 || write(b, "second\n", 7) != 7)
            return 1;
        if (lseek(a, i, SEEK_SET) != i || read(a, buffer, 4) != 4)
            return 2;
    }
    struct iovec parts[2] = { { "par", 3 }, { "ts", 2 } };
    if (writev(a, parts, 2) != 5 || writev(b, parts, 2) != 5)
        return 3;
    FILE *f = fopen("b", "a+");
    for (int i = 0; i < 3000; i++) {
        fprintf(f, "line %d\n", i);
        if (i % 1000 == 999) {
            fflush(f);
            rewind(f);
            if (fread(buffer, 1, 8, f) != 8)
                return 4;
            fseek(f, 0, SEEK_CUR);
        }
    }
    fclose(f);
    int c = open("c", O_WRONLY | O_CREAT, 0644);
    char *large = calloc(1, 1 << 20);
    if (write(c, large, 1 << 20) != 1 << 20 || close(c) != 0)
        return 5;
    /* What is read before anything was appended is at the beginning. */
    int d = open("c", O_RDWR | O_APPEND);
    if (read(d, buffer, 8) != 8 || write(d, "end", 3) != 3 || read(d, buffer, 8) != 0 || close(d) != 0)
        return 6;
    for (int i = 0; i < 4; i++)
        if (by_descriptor(i < 2 ? "a" : "a+", i % 2) != 0)
            return 7;
    if (flush_all() != 0)
        return 8;
    if (wide(0) != 0 || wide(1) != 0 || wide_at_once() != 0)
        return 9;
    return 0;
}
