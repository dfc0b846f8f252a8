/* Writes checkpoints the way climate codes do: for each time step a new HDF5 file of several fields, each in slabs.
 *
 *   checkpoint DIR STEPS [gzip]
 *
 * Built with -DPARALLEL, the ranks of an MPI job write one file together, each its part of every slab, through MPI-IO. No
 * time stamps are kept: the same steps make the same bytes. */

#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef PARALLEL
#include <mpi.h>
#endif

enum { FIELDS = 6, ROWS = 128, COLUMNS = 256, SLABS = 4 };

static int rank = 0, ranks = 1;

static hid_t checked(hid_t status, const char *what)
{
	if (status < 0) {
		fprintf(stderr, "checkpoint: %s failed\n", what);
		exit(1);
	}
	return status;
}

/* Waves that move from step to step: they compress, and never twice to the same size. */
static void fill(double *slab, int step, int field, int first, int rows)
{
	for (int row = 0; row < rows; row++)
		for (int column = 0; column < COLUMNS; column++)
			slab[row * COLUMNS + column] = floor(100 * sin(0.1 * (first + row) + 0.01 * step * (field + 1)) * cos(0.07 * column + step));
}

static void write_slabs(hid_t set, hid_t space, int step, int field)
{
	int rows = ROWS / SLABS / ranks;
	double *slab = malloc(sizeof *slab * rows * COLUMNS);
	hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
#ifdef PARALLEL
	H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
#endif
	for (int part = 0; part < SLABS; part++) {
		hsize_t start[2] = {part * (ROWS / SLABS) + rank * rows, 0}, count[2] = {rows, COLUMNS};
		hid_t memory = H5Screate_simple(2, count, NULL);
		fill(slab, step, field, (int)start[0], rows);
		H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
		checked(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, transfer, slab), "H5Dwrite");
		H5Sclose(memory);
	}
	H5Pclose(transfer);
	free(slab);
}

static void write_field(hid_t file, int step, int field, int gzip)
{
	hsize_t size[2] = {ROWS, COLUMNS}, chunk[2] = {ROWS / SLABS, COLUMNS};
	char name[32];
	snprintf(name, sizeof name, "field%d", field);
	hid_t space = H5Screate_simple(2, size, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_obj_track_times(creation, 0);
	if (gzip) {
		H5Pset_chunk(creation, 2, chunk);
		H5Pset_deflate(creation, 4);
	}
	hid_t set = checked(H5Dcreate2(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, creation, H5P_DEFAULT), "H5Dcreate2");
	write_slabs(set, space, step, field);
	H5Dclose(set);
	H5Pclose(creation);
	H5Sclose(space);
}

static void write_step(const char *directory, int step, int gzip)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/step_%04d.h5", directory, step);
	hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#ifdef PARALLEL
	H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
#endif
	hid_t file = checked(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access), "H5Fcreate");
	for (int field = 0; field < FIELDS; field++)
		write_field(file, step, field, gzip);
	checked(H5Fclose(file), "H5Fclose");
	H5Pclose(access);
}

int main(int argc, char **argv)
{
#ifdef PARALLEL
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
	int gzip = argc > 3 && strcmp(argv[3], "gzip") == 0;
	for (int step = 0; step < atoi(argv[2]); step++)
		write_step(argv[1], step, gzip);
#ifdef PARALLEL
	MPI_Finalize();
#endif
	return 0;
}
