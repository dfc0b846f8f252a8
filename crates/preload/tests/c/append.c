/* Appending: wherever the position is, and whatever offset is given. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

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
    return 0;
}
