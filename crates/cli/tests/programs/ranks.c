/* What IOR does, with POSIX calls: the ranks of a job write a shared file in turns of small blocks, a shared file in one
   part each, and a file each; each reads back its own bytes and those of the next one. Several rounds, in each of which
   every byte is another. The second argument is the number of rounds. Ends with 1 if a byte is wrong, 2 if a call fails. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 20000, BLOCKS = 12, LAYOUTS = 3 };
enum layout { STRIDED, SEGMENTED, OWN };

static int rank, ranks;

static void must(int is_so, const char *what) {
  if (is_so) return;
  perror(what);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static unsigned char byte_of(int round, int layout, int who, int block, int at) {
  return (unsigned char)(round * 57 + layout * 101 + who * 31 + block * 7 + at * 3 + at / 256);
}

static off_t place(int layout, int who, int block) {
  if (layout == STRIDED) return ((off_t)block * ranks + who) * BLOCK;
  if (layout == SEGMENTED) return ((off_t)who * BLOCKS + block) * BLOCK;
  return (off_t)block * BLOCK;
}

static int open_of(const char *dir, int layout, int who) {
  char path[4096];
  if (layout == OWN)
    snprintf(path, sizeof path, "%s/own%d", dir, who);
  else
    snprintf(path, sizeof path, "%s/%s", dir, layout == STRIDED ? "strided" : "segmented");
  int file = open(path, O_RDWR | O_CREAT, 0644);
  must(file >= 0, path);
  return file;
}

static void write_all(int file, int round, int layout) {
  static unsigned char block[BLOCK];
  for (int number = 0; number < BLOCKS; number++) {
    for (int at = 0; at < BLOCK; at++) block[at] = byte_of(round, layout, rank, number, at);
    must(pwrite(file, block, BLOCK, place(layout, rank, number)) == BLOCK, "pwrite");
  }
  must(fsync(file) == 0, "fsync");
}

static int wrong(int file, int round, int layout, int who) {
  static unsigned char block[BLOCK];
  int count = 0;
  for (int number = 0; number < BLOCKS; number++) {
    memset(block, 0, BLOCK);
    must(pread(file, block, BLOCK, place(layout, who, number)) == BLOCK, "pread");
    for (int at = 0; at < BLOCK; at++) count += block[at] != byte_of(round, layout, who, number, at);
  }
  return count;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int rounds = atoi(argv[2]), bad = 0;
  int mine[LAYOUTS], next[LAYOUTS];
  for (int layout = 0; layout < LAYOUTS; layout++) mine[layout] = open_of(argv[1], layout, rank);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int layout = 0; layout < LAYOUTS; layout++) next[layout] = open_of(argv[1], layout, (rank + 1) % ranks);
  for (int round = 0; round < rounds; round++) {
    for (int layout = 0; layout < LAYOUTS; layout++) {
      write_all(mine[layout], round, layout);
      bad += wrong(mine[layout], round, layout, rank);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int layout = 0; layout < LAYOUTS; layout++) bad += wrong(next[layout], round, layout, (rank + 1) % ranks);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (bad) fprintf(stderr, "rank %d: %d bytes are wrong\n", rank, bad);
  MPI_Finalize();
  return bad != 0;
}
