/* What the library does in a fork calls these functions of the C library, so that it can be seen which signals are blocked then. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* In memory that parent and child share. */
static int *blocked;

static void look(int which)
{
    unsigned long mask = 0;
    syscall(SYS_rt_sigprocmask, 0, NULL, &mask, sizeof mask);
    if (blocked)
        blocked[which] = __builtin_popcountl(mask);
}

static void call(const char *name)
{
    void (*real)(void) = (void (*)(void))dlsym(RTLD_NEXT, name);
    real();
}

void _IO_list_lock(void)
{
    look(0);
    call("_IO_list_lock");
}

void _IO_list_unlock(void)
{
    look(1);
    call("_IO_list_unlock");
}

void _IO_list_resetlock(void)
{
    look(2);
    call("_IO_list_resetlock");
}

int main(void)
{
    blocked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fork() == 0)
        _exit(0);
    wait(NULL);
    /* The kernel never blocks SIGKILL and SIGSTOP. */
    printf("before %d\nhere %d\nthere %d\n", blocked[0] + 2, blocked[1] + 2, blocked[2] + 2);
    return 0;
}
