/* An MPI-IO program: all ranks write one shared file, first each its own part, then in turns of small blocks, and read
   back what the others wrote. Ends with 1 if a byte is another than it should be. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 8192, BLOCKS = 64 };

static unsigned char byte_of(int rank, int block, int at) {
  return (unsigned char)(rank * 31 + block * 7 + at);
}

static void fill(unsigned char *block, int rank, int number) {
  for (int at = 0; at < BLOCK; at++) block[at] = byte_of(rank, number, at);
}

static MPI_Offset place(int strided, int rank, int ranks, int block) {
  MPI_Offset number = strided ? (MPI_Offset)block * ranks + rank : (MPI_Offset)rank * BLOCKS + block;
  return number * BLOCK;
}

int main(int argc, char **argv) {
  int rank, ranks, wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  unsigned char *block = malloc(BLOCK);
  for (int strided = 0; strided < 2; strided++) {
    MPI_File file;
    int mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) return 2;
    for (int number = 0; number < BLOCKS; number++) {
      fill(block, rank, number);
      MPI_Offset at = place(strided, rank, ranks, number);
      if (strided)
        MPI_File_write_at_all(file, at, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
      else
        MPI_File_write_at(file, at, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    int other = (rank + 1) % ranks;
    for (int number = 0; number < BLOCKS; number++) {
      MPI_File_read_at(file, place(strided, other, ranks, number), block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
      for (int at = 0; at < BLOCK; at++) wrong |= block[at] != byte_of(other, number, at);
    }
    MPI_File_close(&file);
  }
  free(block);
  MPI_Finalize();
  return wrong;
}
