/* A program that writes pairs of neighbouring blocks, the second a while after the first, and counts how
 * many pairs came out together. Built against agios.h alone; drop_in.rs compiles and runs it.
 *
 *   foresight CONF APART_MS             write the pairs, their halves so many milliseconds apart
 *   foresight CONF APART_MS ANNOUNCED   the same, but first announce them all, so many milliseconds apart
 *
 * Prints "together N of M". Requests are sent by the clock, not by how long something took, so that two
 * runs send theirs at the same times since the start.
 */
#define _GNU_SOURCE
#include "agios.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)

/* Two files take turns; between the pairs of a file are holes, so that only pairs can be aggregated. */
enum { FILES = 2, PAIRS = 12, LENGTH = 4096, PERIOD_MS = 100, SHIFT_MS = 10, PAIR_LENGTH = 3 * LENGTH };

static atomic_int served, together;
static char *names[FILES] = {"/data/a", "/data/b"};

static void release(int64_t id)
{
	int64_t file = id % FILES, offset = id / FILES * LENGTH;
	if (!agios_release_request(names[file], RT_WRITE, LENGTH, offset))
		_exit(1);
	atomic_fetch_add(&served, 1);
}

static void *one(int64_t id)
{
	release(id);
	return NULL;
}

static void *many(int64_t *ids, int32_t n)
{
	atomic_fetch_add(&together, n == 2);
	for (int i = 0; i < n; i++)
		release(ids[i]);
	return NULL;
}

static void sleep_until(struct timespec start, int64_t after)
{
	int64_t ns = start.tv_nsec + after;
	struct timespec moment = {start.tv_sec + ns / 1000000000, ns % 1000000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL))
		;
}

static void add(int file, int64_t offset)
{
	if (!agios_add_request(names[file], RT_WRITE, offset, LENGTH, offset / LENGTH * FILES + file, 0))
		_exit(1);
}

static void write_pairs(int64_t apart)
{
	struct timespec start;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int pair = 0; pair < PAIRS; pair++) {
		for (int half = 0; half < 2; half++) {
			for (int file = 0; file < FILES; file++) {
				sleep_until(start, (pair * PERIOD_MS + file * SHIFT_MS) * MS + half * apart);
				add(file, (int64_t)pair * PAIR_LENGTH + half * LENGTH);
			}
		}
	}
	while (atomic_load(&served) < FILES * PAIRS * 2)
		usleep(1000); /* one that is lost shows as a hang */
}

static void announce_pairs(int64_t apart)
{
	for (int i = 0; i < FILES * PAIRS * 2; i++) {
		int file = i % FILES, half = i / FILES % 2, pair = i / FILES / 2;
		int64_t after = pair * PERIOD_MS * MS + half * apart;
		if (!agios_foresee(names[file], RT_WRITE, (int64_t)pair * PAIR_LENGTH + half * LENGTH, LENGTH, after))
			_exit(1);
	}
}

int main(int count, char **arguments)
{
	if (count < 3)
		return fprintf(stderr, "usage: see the head of foresight.c\n"), 2;
	if (!agios_init(one, many, arguments[1], 0))
		return 1;
	if (count > 3)
		announce_pairs(atoi(arguments[3]) * MS);
	write_pairs(atoi(arguments[2]) * MS);
	agios_exit();
	printf("together %d of %d\n", atomic_load(&together), FILES * PAIRS);
	return 0;
}
