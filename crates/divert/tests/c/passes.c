/* A descriptor goes through a socket to a process that has never seen it, and to one that opened another there before. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void pass(int socket, int fd)
{
    char c = 'x', room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    sendmsg(socket, &m, 0);
}

static int take(int socket)
{
    char c, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&c, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    int fd = -1;
    if (recvmsg(socket, &m, 0) > 0 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

int main(int argc, char **argv)
{
    char path[4096], b[32] = "";
    int pair[2];
    (void)argc;
    setbuf(stdout, NULL);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 1;
    snprintf(path, sizeof path, "%s/passed", argv[1]);
    if (fork() == 0) {
        /* The number that it will get is that of a local file first, which was used. */
        int local = open("/dev/null", O_RDWR);
        printf("local %ld\n", (long)write(local, "x", 1));
        FILE *closed_inside = fdopen(local, "r");
        fclose(closed_inside);
        int fd = take(pair[1]);
        printf("same number %d\n", fd == local);
        printf("write %ld\n", (long)write(fd, "from the child", 14));
        _exit(0);
    }
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    write(fd, "parent, ", 8);
    pass(pair[0], fd);
    wait(NULL);
    printf("position %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    printf("read %ld %s\n", (long)pread(fd, b, 31, 0), b);
    return 0;
}
