/* What IOR does, with plain POSIX calls: all ranks write and read back with every check, first one shared file in which
   each has a part of its own, then one in which they take turns, then a file for each. Rank r reads what rank r + 1 wrote,
   so that nothing comes out of a memory of its own. Ends with 1 if a byte is another than it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 47 * 1024 + 13, BLOCKS = 24 };
enum { SEGMENTED, STRIDED, OWN, PATTERNS };

static unsigned char byte_of(int pattern, int rank, int block, int at) {
  return (unsigned char)(pattern * 101 + rank * 31 + block * 7 + at * 3 + (at >> 8));
}

static off_t place(int pattern, int rank, int ranks, int block) {
  if (pattern == SEGMENTED) return ((off_t)rank * BLOCKS + block) * BLOCK;
  if (pattern == STRIDED) return ((off_t)block * ranks + rank) * BLOCK;
  return (off_t)block * BLOCK;
}

static int file_of(const char *dir, int pattern, int rank, int flags) {
  char path[4096];
  snprintf(path, sizeof path, "%s/pattern%d.%d", dir, pattern, pattern == OWN ? rank : 0);
  int file = open(path, flags, 0644);
  if (file < 0) fprintf(stderr, "%s: %s\n", path, strerror(errno));
  return file;
}

/* Every second block at the position of the file, the others wherever they are. */
static int write_all(int file, int pattern, int rank, int ranks, unsigned char *block) {
  for (int number = 0; number < BLOCKS; number++) {
    off_t at = place(pattern, rank, ranks, number);
    for (int i = 0; i < BLOCK; i++) block[i] = byte_of(pattern, rank, number, i);
    ssize_t done;
    if (number % 2) {
      done = pwrite(file, block, BLOCK, at);
    } else {
      if (lseek(file, at, SEEK_SET) != at) return 1;
      done = write(file, block, BLOCK);
    }
    if (done != BLOCK) return fprintf(stderr, "rank %d: wrote %zd: %s\n", rank, done, strerror(errno)), 1;
  }
  return fsync(file) != 0;
}

static int read_all(int file, int pattern, int rank, int ranks, unsigned char *block) {
  for (int number = 0; number < BLOCKS; number++) {
    off_t at = place(pattern, rank, ranks, number);
    ssize_t done;
    if (number % 2) {
      if (lseek(file, at, SEEK_SET) != at) return 1;
      done = read(file, block, BLOCK);
    } else {
      done = pread(file, block, BLOCK, at);
    }
    if (done != BLOCK) return fprintf(stderr, "read %zd: %s\n", done, strerror(errno)), 1;
    for (int i = 0; i < BLOCK; i++)
      if (block[i] != byte_of(pattern, rank, number, i))
        return fprintf(stderr, "pattern %d, rank %d, block %d: byte %d is wrong\n", pattern, rank, number, i), 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  int rank, ranks, wrong = argc != 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  unsigned char *block = malloc(BLOCK);
  for (int pattern = 0; pattern < PATTERNS && !wrong; pattern++) {
    int file = file_of(argv[1], pattern, rank, O_RDWR | O_CREAT);
    wrong |= file < 0 || write_all(file, pattern, rank, ranks, block);
    wrong |= close(file) != 0;
    MPI_Barrier(MPI_COMM_WORLD);
    int other = (rank + 1) % ranks;
    file = file_of(argv[1], pattern, other, O_RDONLY);
    wrong |= file < 0 || read_all(file, pattern, other, ranks, block);
    close(file);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return wrong;
}
