/* Sixty-four threads, each with its part of one file and a file of its own; then hundreds, one after the other. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int common;

static void *work(void *number)
{
    char name[16], block[100];
    long n = (long)number;
    snprintf(name, sizeof name, "own%ld", n);
    FILE *f = fopen(name, "w");
    for (int i = 0; i < 200; i++) {
        if (pwrite(common, block, 100, (n * 200 + i) * 100) != 100 || pread(common, block, 50, i) != 50)
            abort();
        fwrite(block, 1, 100, f);
    }
    fclose(f);
    return NULL;
}

static void *brief(void *number)
{
    char byte;
    if (pread(common, &byte, 1, (long)number) != 1)
        abort();
    return NULL;
}

int main(void)
{
    pthread_t threads[64];
    common = open("common", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (ftruncate(common, 100))
        return 1;
    for (long i = 0; i < 64; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 64; i++)
        pthread_join(threads[i], NULL);
    for (long i = 0; i < 300; i++) {
        pthread_create(&threads[0], NULL, brief, (void *)i);
        pthread_join(threads[0], NULL);
    }
    return 0;
}
