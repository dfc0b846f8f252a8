/* Wide characters by functions that do not lock, and by those that fortified programs call; and a list of transfers. */
#include <aio.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

wchar_t *__fgetws_chk(wchar_t *, size_t, int, FILE *);
wchar_t *__fgetws_unlocked_chk(wchar_t *, size_t, int, FILE *);

static int listed(void)
{
    static char bytes[3][5000];
    int fd = open("listed", O_RDWR | O_CREAT, 0644);
    struct aiocb parts[3], *list[4] = { &parts[0], NULL, &parts[1], &parts[2] };
    memset(parts, 0, sizeof parts);
    for (int i = 0; i < 3; i++) {
        parts[i].aio_fildes = fd;
        parts[i].aio_buf = bytes[i];
        parts[i].aio_nbytes = 1000 * (i + 1);
        parts[i].aio_offset = 10000 * i;
        parts[i].aio_lio_opcode = i == 1 ? LIO_NOP : LIO_WRITE;
    }
    if (fd < 0 || lio_listio(LIO_WAIT, list, 4, NULL))
        return 1;
    parts[0].aio_lio_opcode = parts[2].aio_lio_opcode = LIO_READ;
    return lio_listio(LIO_WAIT, list, 4, NULL) || close(fd);
}

int main(void)
{
    static wchar_t line[256];
    wint_t (*one[])(FILE *) = { fgetwc_unlocked, getwc_unlocked };
    FILE *file = fopen("wide", "w+");
    if (!file)
        return 1;
    for (int i = 0; i < 2000; i++) {
        if (fputws_unlocked(L"a line of wide characters\n", file) < 0 || fputwc_unlocked(L'x', file) == WEOF
            || putwc_unlocked(L'\n', file) == WEOF)
            return 2;
    }
    if (fflush_unlocked(file))
        return 5;
    rewind(file);
    for (int i = 0; i < 4000; i++) {
        wchar_t *got = i % 3 == 0 ? fgetws_unlocked(line, 256, file)
            : i % 3 == 1          ? __fgetws_chk(line, 256, 256, file)
                                  : __fgetws_unlocked_chk(line, 256, 256, file);
        if (!got)
            return 3;
        if (i % 100 == 0)
            ungetwc(one[i / 100 % 2](file), file);
    }
    return fclose(file) ? 4 : listed();
}
