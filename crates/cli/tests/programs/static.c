/* Linked without shared libraries: what cannot be preloaded uses the mount. Writes, renames, appends, cuts and reads files
 * in the directory that is its argument, and says "done" if every byte was as it should be. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE 300000

static void must(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

int main(int argc, char **argv) {
    static unsigned char bytes[SIZE], back[SIZE];
    must(argc == 2 && chdir(argv[1]) == 0, "chdir");
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251);
    int fd = open("new", O_RDWR | O_CREAT | O_EXCL, 0640);
    must(fd >= 0, "open");
    must(pwrite(fd, bytes + 100000, SIZE - 100000, 100000) == SIZE - 100000, "pwrite");
    must(write(fd, bytes, 100000) == 100000, "write");
    must(fsync(fd) == 0 && rename("new", "old") == 0, "rename");
    must(pread(fd, back, SIZE, 0) == SIZE && memcmp(bytes, back, SIZE) == 0, "pread");
    unsigned char *mapped = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    must(mapped != MAP_FAILED && memcmp(mapped, bytes, SIZE) == 0, "mmap");
    must(ftruncate(fd, 1000) == 0 && close(fd) == 0, "ftruncate");
    FILE *log = fopen("old", "a+");
    must(log && fprintf(log, "%s", "appended") == 8 && fclose(log) == 0, "append");
    struct stat st;
    must(stat("old", &st) == 0 && st.st_size == 1008, "stat");
    DIR *dir = opendir(".");
    int names = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        names += strcmp(entry->d_name, "old") == 0 || strcmp(entry->d_name, "new") == 0;
    must(names == 1, "readdir");
    puts("done");
    return 0;
}
