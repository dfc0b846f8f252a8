/* A signal handler that writes, while the program reads and writes: on its stack ("own"), on another ("alt"), or jumping
 * out of whatever it interrupted ("jump"). */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static int handled_fd, main_fd, jumps;
static volatile long handled, written;
static sigjmp_buf back;

static void handler(int number)
{
    (void)number;
    if (write(handled_fd, "handler\n", 8) == 8)
        handled++;
    if (jumps)
        siglongjmp(back, 1);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "own";
    /* Half of what Go gives its handlers. */
    static char stack[16384];
    jumps = !strcmp(mode, "jump");
    handled_fd = open("handled", O_RDWR | O_CREAT | O_TRUNC, 0644);
    main_fd = open("main", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    if (!strcmp(mode, "alt")) {
        stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
        sigaltstack(&alternate, NULL);
        action.sa_flags |= SA_ONSTACK;
    }
    sigaction(SIGALRM, &action, NULL);
    /* The place to jump back to has to be known before the first signal; from then on, each jump leads here. */
    if (sigsetjmp(back, 1) == 0) {
        struct itimerval every = { { 0, 100 }, { 0, 100 } };
        setitimer(ITIMER_REAL, &every, NULL);
    }
    char block[64];
    memset(block, 'm', sizeof block);
    while (handled < 1000 || written < 20000) {
        if (pwrite(main_fd, block, sizeof block, written * 64) == 64)
            written++;
        if (pread(main_fd, block, 64, 0) != 64)
            return 1;
    }
    struct itimerval never = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_REAL, &never, NULL);
    printf("%ld %ld\n", (long)handled, (long)lseek(handled_fd, 0, SEEK_END));
    return 0;
}
