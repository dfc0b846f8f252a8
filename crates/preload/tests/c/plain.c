/* Ordinary work: what the libraries above are loaded into. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    FILE *f = fopen("work", "w+");
    for (int i = 0; i < 2000; i++) {
        char *text = malloc(20);
        sprintf(text, "line %d\n", i);
        fputs(text, f);
        free(text);
    }
    rewind(f);
    char *line = NULL;
    size_t room = 0;
    long sum = 0;
    while (getline(&line, &room, f) > 0)
        sum += strlen(line);
    free(line);
    fclose(f);
    printf("%ld\n", sum);
    return 0;
}
