/* What a fortified program calls: names with _2 and _chk, wherever sizes are known but lengths are not. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* So that the compiler cannot tell. */
static volatile int flags = O_RDWR | O_CREAT | O_TRUNC;
static volatile size_t few = 100;

int main(void)
{
    char block[4096], line[200];
    for (int i = 0; i < (int)sizeof block; i++)
        block[i] = i % 50 == 49 ? '\n' : 'a' + i % 26;
    int keep = flags;
    /* Opened without a mode, where the flags may ask for one, is an error: so these do not. */
    int fd = open("data", keep, 0644);
    if (write(fd, block, sizeof block) != sizeof block)
        return 1;
    flags = O_RDWR;
    int again = open("data", flags), there = openat(AT_FDCWD, "data", flags);
    if (again < 0 || there < 0)
        return 2;
    if (read(again, block, few) != 100 || pread(there, block, few, 1000) != 100)
        return 3;
    FILE *f = fopen("data", "r+");
    setvbuf(f, malloc(512), _IOFBF, 512);
    if (fread(block, 1, few, f) != 100 || !fgets(line, few, f) || !fgets(line, few, f))
        return 4;
    if (fread_unlocked(block, 1, few, f) != 100 || !fgets_unlocked(line, few, f))
        return 5;
    fseek(f, 0, SEEK_END);
    fprintf(f, "%s of %d\n", line, (int)few);
    fclose(f);
    dprintf(fd, "%d\n", (int)few);
    printf("%s", line);
    close(again);
    close(there);
    close(fd);
    return 0;
}
