#!/bin/sh
# Builds checkpoint.c: build-checkpoint.sh serial|openmpi|mpich PROGRAM
set -eu
library=$1 program=$2
here=$(dirname "$0")

need() {
	echo "$1 is missing: please install the Debian package $2 (make test does so)" >&2
	exit 1
}

command -v pkg-config >/dev/null || need pkg-config pkg-config
case $library in
serial)
	compiler=gcc flags=
	pkg-config --exists hdf5-serial || need "HDF5" libhdf5-dev
	;;
openmpi)
	compiler=mpicc.openmpi flags=-DPARALLEL
	command -v $compiler >/dev/null || need $compiler openmpi-bin
	pkg-config --exists hdf5-openmpi || need "HDF5 for Open MPI" libhdf5-openmpi-dev
	;;
mpich)
	compiler=mpicc.mpich flags=-DPARALLEL
	command -v $compiler >/dev/null || need $compiler mpich
	pkg-config --exists hdf5-mpich || need "HDF5 for MPICH" libhdf5-mpich-dev
	;;
esac
exec $compiler -O1 -Wall -Werror $flags -o "$program" "$here/checkpoint.c" $(pkg-config --cflags --libs "hdf5-$library") -lm
