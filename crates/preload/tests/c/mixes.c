/* Calls on streams in an order that a seed decides, in every mode and with every buffer, read and written by turns. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned state;
/* Characters one by one, fewer where each takes a system call. */
static unsigned limit;

static unsigned choose(unsigned n)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
}

static void write_something(FILE *f)
{
    static char block[20000];
    memset(block, 'a' + choose(26), sizeof block);
    switch (choose(7)) {
    case 0: fwrite(block, 1, choose(200), f); break;
    case 1: fwrite(block, 8, choose(2500), f); break;
    case 2: fprintf(f, "%d %s\n", choose(1000), "text"); break;
    case 3: fputs("some text\n", f); break;
    case 4: putc('c', f); break;
    case 5: fflush(f); break;
    case 6: for (int i = choose(limit); i > 0; i--) putc_unlocked('u', f); break;
    }
}

static void read_something(FILE *f)
{
    static char block[20000];
    char *line = NULL;
    size_t room = 0;
    int number, c;
    switch (choose(limit < 100 ? 3 : 8)) {
    case 0: if (fread(block, 1, choose(200), f)) {} break;
    case 1: if (fread(block, 8, choose(2500), f)) {} break;
    case 2: if (fgets(block, 1 + choose(limit < 300 ? limit : 300), f)) {} break;
    case 3: if (getline(&line, &room, f)) {} free(line); break;
    case 4: c = getc(f); if (choose(2) && c != EOF) ungetc(choose(2) ? c : 'q', f); break;
    case 5: if (fscanf(f, "%d", &number)) {} break;
    case 6: for (int i = choose(limit); i > 0; i--) if (getc_unlocked(f) == EOF) break; break;
    case 7: if (fscanf(f, "%100s", block)) {} break;
    }
}

static void go_somewhere(FILE *f)
{
    fpos_t place;
    switch (choose(6)) {
    case 0: fseek(f, choose(60000), SEEK_SET); break;
    case 1: fseek(f, -(long)choose(3000), SEEK_END); break;
    case 2: fseek(f, (long)choose(4000) - 2000, SEEK_CUR); break;
    case 3: rewind(f); break;
    case 4: fgetpos(f, &place); fseek(f, choose(60000), SEEK_SET); fsetpos(f, &place); break;
    case 5: fseek(f, ftell(f), SEEK_SET); break;
    }
}

static void play(const char *name, const char *mode, int buffer)
{
    FILE *f = fopen(name, mode);
    int writes = mode[0] != 'r' || mode[1] == '+', reads = mode[0] == 'r' || mode[1] == '+';
    limit = buffer == 0 ? 20 : 5000;
    if (buffer >= 0)
        setvbuf(f, NULL, buffer == 0 ? _IONBF : buffer == 1 ? _IOLBF : _IOFBF, buffer < 2 ? 0 : buffer);
    for (int i = 0; i < 60; i++) {
        int writing = writes && (!reads || choose(2));
        for (int n = choose(6); n > 0; n--)
            writing ? write_something(f) : read_something(f);
        /* Between reading and writing there must be a seek. */
        if (writes && reads)
            choose(4) ? go_somewhere(f) : (void)fseek(f, 0, SEEK_CUR);
        else if (choose(4) == 0)
            go_somewhere(f);
    }
    fclose(f);
}

int main(int argc, char **argv)
{
    state = argc > 1 ? atoi(argv[1]) : 1;
    static const int buffers[] = { -1, -1, 0, 1, 100, 4096, 16384, 70000 };
    for (unsigned i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        char name[16];
        sprintf(name, "mix%u", i);
        play(name, "w", buffers[i]);
        play(name, "r", buffers[i]);
        play(name, "r+", buffers[i]);
        play(name, "w+", buffers[i]);
    }
    return 0;
}
