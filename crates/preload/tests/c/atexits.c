/* What is put into streams before, during and after the end of main. */
#include <stdio.h>
#include <stdlib.h>

static FILE *f, *g;

static void handler(void)
{
    fputs("in a handler\n", f);
}

__attribute__((destructor)) static void destructor(void)
{
    fputs("in a destructor\n", f);
    fprintf(g, "%05d\n", 42);
}

int main(void)
{
    f = fopen("f", "w");
    g = fopen("g", "w");
    atexit(handler);
    fputs("in main\n", f);
    for (int i = 0; i < 1000; i++)
        fprintf(g, "line %d\n", i);
    printf("to standard output\n");
    return 0;
}
