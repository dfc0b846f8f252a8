/* Threads that are cancelled inside calls, on files and on a pipe; their cleanup runs, and everybody else goes on. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int pipes[2], cleaned, started;

static void cleanup(void *nothing)
{
    (void)nothing;
    __sync_fetch_and_add(&cleaned, 1);
}

static void *on_pipe(void *nothing)
{
    char byte;
    pthread_cleanup_push(cleanup, NULL);
    __sync_fetch_and_add(&started, 1);
    while (read(pipes[0], &byte, 1) >= 0)
        ;
    pthread_cleanup_pop(0);
    return nothing;
}

static void *on_file(void *nothing)
{
    char block[512];
    int fd = open("file", O_RDWR);
    pthread_cleanup_push(cleanup, NULL);
    __sync_fetch_and_add(&started, 1);
    for (;;)
        if (pread(fd, block, sizeof block, 0) < 0 || write(fd, block, 16) < 0)
            return "failed";
    pthread_cleanup_pop(0);
    return nothing;
}

static void *on_stream(void *nothing)
{
    FILE *f = fopen("stream", "a");
    pthread_cleanup_push(cleanup, NULL);
    __sync_fetch_and_add(&started, 1);
    for (;;)
        fprintf(f, "a line that is written\n");
    pthread_cleanup_pop(0);
    return nothing;
}

int main(void)
{
    void *(*const ways[])(void *) = { on_pipe, on_file, on_stream };
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644);
    char block[512] = { 0 };
    if (pipe(pipes) || write(fd, block, 512) != 512)
        return 1;
    for (int i = 0; i < 60; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, ways[i % 3], NULL);
        while (started <= i)
            usleep(100);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED || cleaned != i + 1)
            return 2;
        if (pwrite(fd, block, 10, i) != 10)
            return 3;
    }
    return 0;
}
