/* Forks, again and again, in a program whose threads never stop writing. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;

static void *writer(void *number)
{
    char name[32];
    sprintf(name, "thread%ld", (long)number);
    FILE *f = fopen(name, "w");
    int fd = open(name, O_RDONLY);
    char byte;
    while (!stop) {
        fprintf(f, "%s\n", name);
        if (pread(fd, &byte, 1, 0) < 0)
            abort();
    }
    fclose(f);
    close(fd);
    return NULL;
}

static int child(int number)
{
    char name[32];
    sprintf(name, "child%d", number);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int i = 0; i < 100; i++)
        if (write(fd, "0123456789", 10) != 10)
            return 1;
    close(fd);
    FILE *f = fopen(name, "a");
    fputs("end", f);
    if (number % 2)
        exit(0);
    fclose(f);
    _exit(0);
}

int main(void)
{
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, writer, (void *)i);
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        if (pid == 0)
            return child(i);
        int status;
        if (waitpid(pid, &status, 0) != pid || status)
            return 1;
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
