/* Streams of all kinds: files, memory, cookies, pipes; reopened, and left open at the end. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ssize_t cookie_write(void *cookie, const char *text, size_t n)
{
    (void)text;
    *(long *)cookie += n;
    return n;
}

int main(void)
{
    char memory[100], *grown = NULL, line[100];
    size_t size = 0;
    long cookies = 0;
    FILE *f = fmemopen(memory, sizeof memory, "w+");
    fprintf(f, "in memory %d", 5);
    rewind(f);
    if (fscanf(f, "in memory %s", line) != 1)
        return 1;
    fclose(f);
    f = open_memstream(&grown, &size);
    for (int i = 0; i < 1000; i++)
        fputs("growing ", f);
    fclose(f);
    if (size != 8000)
        return 2;
    f = fopencookie(&cookies, "w", (cookie_io_functions_t){ .write = cookie_write });
    fwrite(grown, 1, size, f);
    fclose(f);
    if (cookies != 8000)
        return 3;
    f = popen("cat > piped; echo done >> piped", "w");
    fwrite(grown, 1, size, f);
    if (pclose(f))
        return 4;
    f = popen("echo from a pipe; cat piped | wc -c", "r");
    while (fgets(line, sizeof line, f))
        fputs(line, stdout);
    if (pclose(f) || system("echo system >> piped"))
        return 5;
    f = fopen("first", "w");
    fputs("to the first", f);
    f = freopen("second", "w", f);
    fputs("to the second", f);
    fflush(stdout);
    if (!freopen("output", "w", stdout))
        return 6;
    printf("to a file now\n");
    puts("and this");
    putchar('!');
    FILE *temporary = tmpfile();
    fputs("temporary", temporary);
    FILE *unbuffered = fopen("unbuffered", "w");
    setvbuf(unbuffered, NULL, _IONBF, 0);
    fprintf(unbuffered, "%s %d", "text", 77);
    putc('c', unbuffered);
    FILE *lines = fopen("lines", "w");
    setvbuf(lines, NULL, _IOLBF, 0);
    fputs("one\ntwo", lines);
    fputs(" three\nfour", lines);
    dprintf(fileno(unbuffered), "%s", "directly");
    return 0;
}
