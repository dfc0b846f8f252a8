/* A library that is loaded and unloaded by the next: does I/O in its constructor. */
#include <stdio.h>

__attribute__((constructor)) static void loaded(void)
{
    FILE *f = fopen("loaded", "a");
    fputs("loaded\n", f);
    fclose(f);
}

int work(void)
{
    FILE *f = fopen("worked", "a");
    int n = fprintf(f, "worked\n");
    fclose(f);
    return n;
}
