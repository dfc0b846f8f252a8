/* Streams in a directory, argv[1]: prints what each call gives, to be compared with a plain directory. */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static FILE *report;

static void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vfprintf(report, format, list);
    va_end(list);
    fflush(report);
}

static void show(const char *path) {
    char bytes[256];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
    struct stat status;
    memset(&status, 0, sizeof status);
    stat(path, &status);
    say("%s: %ld bytes of %ld: %.*s\n", path, (long)n, (long)status.st_size, n < 0 ? 0 : (int)n, bytes);
    if (fd >= 0)
        close(fd);
}

static const char *failed(void *file) { return file ? "fine" : strerrorname_np(errno); }

static void modes(void) {
    say("r of nothing: %s\n", failed(fopen("none", "r")));
    say("r+ of nothing: %s\n", failed(fopen("none", "r+")));
    say("bad mode: %s\n", failed(fopen("none", "q")));
    FILE *f = fopen("modes", "w");
    say("w: puts %d", fputs("0123456789", f));
    say(", getc %d", fgetc(f));
    say(", ferror %d\n", !!ferror(f));
    clearerr(f);
    say("tell %ld", ftell(f));
    say(" close %d\n", fclose(f));
    show("modes");
    say("wx: %s\n", failed(fopen("modes", "wx")));
    f = fopen("modes", "rb");
    say("r: puts %d", fputs("x", f));
    say(" error %d", !!ferror(f));
    say("; first %c\n", fgetc(f));
    fclose(f);
    f = fopen("modes", "a");
    say("a: tells %ld\n", ftell(f));
    fputs("ab", f);
    fseek(f, 0, SEEK_SET);
    fputs("cd", f);
    say("then %ld\n", ftell(f));
    fclose(f);
    show("modes");
    f = fopen("modes", "a+");
    say("a+: tells %ld", ftell(f));
    say(", reads %c", fgetc(f));
    say(" %c\n", fgetc(f));
    fseek(f, 0, SEEK_CUR);
    fputs("ef", f);
    say("tells %ld\n", ftell(f));
    rewind(f);
    char line[100];
    say("all: %s\n", fgets(line, sizeof line, f));
    fclose(f);
    f = fopen("modes", "r+e");
    say("cloexec %d\n", fcntl(fileno(f), F_GETFD));
    fseek(f, 2, SEEK_SET);
    fputs("++", f);
    fseek(f, -2, SEEK_CUR);
    for (int i = 0; i < 3; i++)
        say("%c", fgetc(f));
    fseek(f, -1, SEEK_END);
    say(" last %c", fgetc(f));
    say(", then %d", fgetc(f));
    say(", eof %d\n", !!feof(f));
    say("seek before: %d", fseek(f, -1000, SEEK_CUR));
    say(" %s\n", strerrorname_np(errno));
    fclose(f);
    f = fopen("modes", "w+");
    fprintf(f, "%s %d\n%s", "printed", 42, "second");
    rewind(f);
    int number;
    say("scanned %d", fscanf(f, "%s %d", line, &number));
    say(" %s %d\n", line, number);
    fclose(f);
    show("modes");
}

static void pushed_back(void) {
    FILE *f = fopen("pushed", "w+");
    fputs("abcdef", f);
    rewind(f);
    int c = fgetc(f);
    ungetc('Z', f);
    ungetc('Y', f);
    say("%c ", c);
    for (int i = 0; i < 3; i++)
        say("%c", fgetc(f));
    say(" tell %ld\n", ftell(f));
    fpos_t place;
    fgetpos(f, &place);
    say("%c ", fgetc(f));
    fsetpos(f, &place);
    say("%c\n", fgetc(f));
    fclose(f);
}

static void large(void) {
    size_t size = 3000000;
    char *bytes = malloc(size), *other = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 7 + i / 1000);
    FILE *f = fopen("large", "w+");
    say("wrote %zu", fwrite(bytes, 1, 1000, f));
    say(" %zu", fwrite(bytes + 1000, 1, size - 2000, f));
    for (size_t i = size - 1000; i < size; i++)
        putc(bytes[i], f);
    say(" at %ld\n", ftell(f));
    fseek(f, 0, SEEK_SET);
    say("read %zu", fread(other, 1, size, f));
    say(" same %d\n", !memcmp(bytes, other, size));
    unsigned place = 12345;
    int good = 1;
    for (int i = 0; i < 500; i++) {
        place = (place * 1103515245u + 12345u) % (size - 5000);
        fseeko(f, place, SEEK_SET);
        size_t n = 1 + place % 5000;
        good &= fread(other, 1, n, f) == n && !memcmp(bytes + place, other, n) && ftello(f) == (off_t)(place + n);
        if (i % 3 == 0) {
            memset(bytes + place, i, n);
            fseeko(f, place, SEEK_SET);
            good &= fwrite(bytes + place, 1, n, f) == n;
        }
    }
    fflush(f);
    fseek(f, 0, SEEK_SET);
    say("random %d, then %zu", good, fread(other, 1, size, f));
    say(" same %d\n", !memcmp(bytes, other, size));
    fclose(f);
    struct stat status;
    stat("large", &status);
    say("%ld\n", (long)status.st_size);
    char *line = NULL;
    size_t room = 0;
    f = fopen("lines", "w");
    for (int i = 0; i < 20000; i++)
        fprintf(f, "line %d of many\n", i);
    fclose(f);
    f = fopen("lines", "r");
    long total = 0, lines = 0;
    for (ssize_t n; (n = getline(&line, &room, f)) > 0; lines++)
        total += n;
    say("%ld lines %ld bytes\n", lines, total);
    fclose(f);
    free(line);
    free(bytes);
    free(other);
}

static void buffers(void) {
    struct stat status;
    char mine[100];
    FILE *f = fopen("buffers", "w");
    setvbuf(f, NULL, _IONBF, 0);
    fputs("unbuffered", f);
    stat("buffers", &status);
    say("unbuffered %ld\n", (long)status.st_size);
    fclose(f);
    f = fopen("buffers", "w");
    setvbuf(f, NULL, _IOLBF, 0);
    fputs("line\nrest", f);
    stat("buffers", &status);
    say("by lines %d\n", status.st_size >= 5);
    fclose(f);
    f = fopen("buffers", "w");
    setvbuf(f, mine, _IOFBF, sizeof mine);
    for (int i = 0; i < 30; i++)
        fputs("0123456789", f);
    stat("buffers", &status);
    say("own buffer %ld\n", (long)status.st_size);
    fclose(f);
    show("buffers");
}

static void descriptors(void) {
    int fd = open("desc", O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "0123456789", 10);
    lseek(fd, 4, SEEK_SET);
    FILE *f = fdopen(fd, "r+");
    say("fileno %d, reads %c\n", fileno(f) == fd, fgetc(f));
    say("fails %s\n", failed(fdopen(-1, "r")));
    fflush(f);
    say("position %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    fseek(f, 0, SEEK_END);
    fputs("end", f);
    fflush(f);
    say("position %ld\n", (long)lseek(fd, 0, SEEK_CUR));
    fclose(f);
    say("closed with it: %d", fcntl(fd, F_GETFD));
    say(" %s\n", strerrorname_np(errno));
    fd = open("desc", O_RDONLY);
    say("w on r: %s\n", failed(fdopen(fd, "w")));
    close(fd);
    fd = open("desc", O_WRONLY);
    f = fdopen(fd, "a");
    say("append set: %d\n", !!(fcntl(fd, F_GETFL) & O_APPEND));
    fputs("more", f);
    fclose(f);
    show("desc");
    fd = open("desc", O_WRONLY | O_TRUNC);
    say("dprintf %d", dprintf(fd, "%s %d %.2f %c %ld %s %d %d\n", "text", 1, 2.5, 'c', 3L, "four", 5, 6));
    close(fd);
    show("desc");
}

static void reopened(void) {
    FILE *f = fopen("re1", "w");
    fputs("first", f);
    int fd = fileno(f);
    FILE *g = freopen("re2", "w+", f);
    say("in place %d, same number %d\n", f == g, fileno(g) == fd);
    fputs("second", g);
    rewind(g);
    say("%c\n", fgetc(g));
    g = freopen("re1", "r", g);
    char line[20] = "";
    say("%s", fgets(line, sizeof line, g));
    say(", put %d\n", fputc('x', g));
    g = freopen("none/none", "r", g);
    say("%s\n", failed(g));
    show("re1");
    show("re2");
    f = fopen("re1", "r");
    fgetc(f);
    f = freopen("/dev/null", "w", f);
    say("to a local file: %d\n", fputs("lost", f) >= 0 && fclose(f) == 0);
    f = fopen("/dev/null", "r");
    f = freopen("re2", "r", f);
    say("from a local file: %s\n", fgets(line, sizeof line, f));
    f = freopen(NULL, "a", f);
    say("again: %d\n", fputs("+", f) >= 0);
    fclose(f);
    show("re2");
}

static void children(void) {
    FILE *f = fopen("children", "w");
    fputs("parent 1\n", f);
    fflush(f);
    pid_t child = fork();
    if (child == 0) {
        fputs("child\n", f);
        exit(fclose(f));
    }
    int status;
    waitpid(child, &status, 0);
    fputs("parent 2\n", f);
    fclose(f);
    say("child %d\n", status);
    show("children");
    f = fopen("children", "r");
    fgetc(f);
    fflush(f);
    child = fork();
    if (child == 0)
        _exit(fgetc(f));
    waitpid(child, &status, 0);
    fseek(f, 0, SEEK_CUR);
    say("read by the child: %c\n", WEXITSTATUS(status));
    fclose(f);
}

static void standard(void) {
    fflush(stdout);
    int kept = dup(1);
    printf("pending before ");
    int fd = open("standard", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    close(fd);
    printf("to the file %d\n", 1);
    puts("puts");
    putchar('c');
    fprintf(stdout, " %s\n", "fprintf");
    say("fileno %d\n", fileno(stdout));
    fflush(stdout);
    printf("pending after ");
    dup2(kept, 1);
    printf("and back\n");
    fflush(stdout);
    show("standard");
    FILE *f = freopen("standard", "a", stdout);
    say("freopen %d %d\n", f == stdout, fileno(stdout));
    printf("appended");
    fflush(stdout);
    show("standard");
    system("echo from a child >> standard; echo to our output");
    dup2(kept, 1);
    stdout = fdopen(1, "w");
    close(kept);
    kept = dup(0);
    fd = open("standard", O_RDONLY);
    dup2(fd, 0);
    char line[100];
    say("from stdin: %s", fgets(line, sizeof line, stdin));
    say("and: %c\n", getchar());
    dup2(kept, 0);
    int old = dup(2);
    close(2);
    say("lowest: %d\n", open("errors", O_WRONLY | O_CREAT | O_TRUNC, 0644));
    errno = ENOENT;
    perror("perror");
    fprintf(stderr, "unbuffered %d", 2);
    show("errors");
    dup2(old, 2);
}

int main(int argc, char **argv) {
    (void)argc;
    report = fdopen(dup(1), "w");
    if (chdir(argv[1]))
        return 1;
    modes();
    pushed_back();
    large();
    buffers();
    descriptors();
    reopened();
    children();
    standard();
    FILE *left = fopen("left", "w");
    fputs("flushed at the end", left);
    return 0;
}
