/* Closes all descriptors as a daemon does, then expects the lowest numbers for files of its own, and expects in them
 * what it wrote and nothing else, while another file is read in a way that is worth hints. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILES = 64, SIZE = 1 << 16 };
static char data[SIZE], back[SIZE];

static int write_own(int i)
{
    char name[32];
    snprintf(name, sizeof name, "own%d", i);
    memset(data, 'a' + i % 26, SIZE);
    return open(name, O_RDWR | O_CREAT | O_TRUNC, 0600) == i && write(i, data, SIZE) == SIZE;
}

static int check_own(int i)
{
    memset(data, 'a' + i % 26, SIZE);
    return pread(i, back, SIZE, 0) == SIZE && !memcmp(data, back, SIZE) && lseek(i, 0, SEEK_END) == SIZE;
}

int main(void)
{
    for (int round = 0; round < 4; round++) {
        if (round % 2)
            close_range(0, ~0u, 0);
        else
            for (int fd = 0; fd < 4096; fd++)
                close(fd);
        for (int i = 0; i < FILES; i++)
            if (!write_own(i))
                _exit(50);
        if (open("in", O_RDONLY) != FILES)
            _exit(51);
        for (int i = 0; i < 200; i++) {
            if (pread(FILES, data, 4096, i * 8192) != 4096)
                _exit(52);
            usleep(1000);
        }
        for (int i = 0; i < FILES; i++)
            if (!check_own(i))
                _exit(53);
    }
    return 7;
}
