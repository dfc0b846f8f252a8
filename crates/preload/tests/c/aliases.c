/* Uses its standard input and output by names that stand for descriptors. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    char bytes[1000], name[64];
    int in = open("/dev/stdin", O_RDONLY);
    if (in < 0 || read(in, bytes, 1000) != 1000)
        return 1;
    snprintf(name, sizeof name, "/dev/fd/%d", in);
    int again = openat(AT_FDCWD, name, O_RDONLY);
    if (again < 0 || pread(again, bytes, 100, 3000) != 100)
        return 2;
    snprintf(name, sizeof name, "/proc/self/fd/%d", in);
    FILE *stream = fopen(name, "r");
    if (!stream || setvbuf(stream, NULL, _IONBF, 0) || fread(bytes, 1, 10, stream) != 10)
        return 3;
    int out = open("/dev/stdout", O_WRONLY);
    if (out < 0 || write(out, bytes, 500) != 500)
        return 4;
    int nowhere = open("/dev/null", O_WRONLY);
    return nowhere < 0 || write(nowhere, bytes, 7) != 7;
}
