/* Becomes itself again, ten times, with a file that stays open. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int left = argc > 1 ? atoi(argv[1]) : 10;
    if (argc == 1 && open("kept", O_RDWR | O_CREAT | O_TRUNC, 0644) != 3)
        return 1;
    char text[32];
    sprintf(text, "image %d\n", left);
    if (write(3, text, strlen(text)) < 0)
        return 2;
    FILE *f = fopen("streamed", "a");
    fprintf(f, "%s", text);
    fclose(f);
    fprintf(stdout, "not flushed before an exec %d\n", left);
    if (left == 0)
        return 0;
    sprintf(text, "%d", left - 1);
    execl(argv[0], argv[0], text, NULL);
    return 3;
}
