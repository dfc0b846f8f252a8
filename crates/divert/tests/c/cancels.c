/* Threads are cancelled while they read and write: no lock stays behind, and no write is half done. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fd, own;
static volatile int began;

static void *work(void *argument)
{
    char b[100];
    (void)argument;
    memset(b, 'x', sizeof b);
    b[99] = '\n';
    for (;;) {
        began = 1;
        if (write(fd, b, sizeof b) != sizeof b)
            abort();
        pread(own, b, 0, 0);
        pthread_testcancel();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char path[4096], b[100];
    (void)argc;
    snprintf(path, sizeof path, "%s/cancels", argv[1]);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    own = open(path, O_RDONLY);
    int cancelled = 0;
    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        void *result = NULL;
        began = 0;
        pthread_create(&thread, NULL, work, NULL);
        while (!began)
            usleep(100);
        usleep(500 + i * 37);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    long size = lseek(fd, 0, SEEK_END), strange = 0;
    for (long at = 0; at < size; at += 100)
        strange += pread(fd, b, 100, at) != 100 || b[98] != 'x' || b[99] != '\n';
    printf("cancelled %d whole %d strange %ld some %d\n", cancelled, size % 100 == 0, strange, size > 0);
    return 0;
}
