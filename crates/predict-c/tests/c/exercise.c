/* What a C program may expect of libpresagio_predict_c, and all that it can do wrong. Built against
 * presagio_predict.h alone; programs.rs compiles and runs it. It ends at the first broken promise, with a
 * message and status 1.
 *
 *   exercise promises DIR   everything; DIR is for files
 *   exercise layout         the size of each structure, where its fields are, and the numbers of names
 */
#include "presagio_predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMISE(holds)                                                                                  \
	do {                                                                                            \
		if (!(holds)) {                                                                         \
			fprintf(stderr, "broken promise, line %d: %s (last error: %s)\n", __LINE__,     \
			        #holds, presagio_last_error());                                         \
			exit(1);                                                                        \
		}                                                                                       \
	} while (0)

/* Fails with a status and a text that contains `why`. */
#define REFUSED(call, status, why)                                                                      \
	do {                                                                                            \
		PROMISE((call) == (status));                                                            \
		PROMISE(strstr(presagio_last_error(), why));                                            \
	} while (0)

/* A program like CM1 with HDF5: each step a new file; in it the variables, each with a header, not in the
 * order of their places; at last the superblock at the start of the file. */
enum { VARIABLES = 5, STEP = 3 + 3 * VARIABLES + 1, FIRST_FILE = 100 };

static const uint64_t sizes[VARIABLES] = {4096, 1000, 65536, 4096, 777};
static const uint64_t places[VARIABLES] = {2048, 200000, 8192, 100000, 300000};

static presagio_event between(uint64_t number)
{
	presagio_event event = {0};
	event.time = number * 2000 + number / STEP * 1000000;
	event.duration = 500;
	event.file = FIRST_FILE + number / STEP;
	return event;
}

/* Operation `number` of the program. */
static presagio_event operation(uint64_t number)
{
	uint64_t n = number % STEP, variable = (n - 1) / 3;
	presagio_event event = between(number);
	if (n == 0) {
		event.action = PRESAGIO_OPEN;
		event.context = 1;
	} else if (n <= 3 * VARIABLES) {
		uint64_t part = (n - 1) % 3;
		event.action = part == 0 ? PRESAGIO_SEEK : PRESAGIO_WRITE;
		event.offset = places[variable] + (part == 2 ? 96 : 0);
		event.len = part == 0 ? 0 : part == 1 ? 96 : sizes[variable];
		event.context = (uint32_t)(2 + part);
	} else if (n < STEP - 1) {
		event.action = n == STEP - 3 ? PRESAGIO_SEEK : PRESAGIO_WRITE;
		event.len = n == STEP - 3 ? 0 : 64;
		event.context = (uint32_t)(10 + n);
	} else {
		event.action = PRESAGIO_CLOSE;
		event.context = 5;
	}
	event.result = (int64_t)event.len;
	return event;
}

static presagio_model *model_of(uint64_t operations)
{
	presagio_model *model = presagio_model_new();
	PROMISE(model);
	for (uint64_t number = 0; number < operations; number++) {
		presagio_event event = operation(number);
		PROMISE(presagio_observe(model, &event) == PRESAGIO_OK);
	}
	return model;
}

static presagio_cursor *best_of(const presagio_model *model)
{
	presagio_cursor *cursor;
	PROMISE(presagio_best(model, &cursor) == PRESAGIO_OK);
	return cursor;
}

/* The prediction is operation `number`, where `observed` were observed. */
static void is_operation(const presagio_predicted *predicted, uint64_t number, uint64_t observed)
{
	presagio_event event = operation(number), last = operation(observed - 1);
	uint64_t steps = number / STEP - (observed - 1) / STEP;
	PROMISE(predicted->action == event.action);
	PROMISE(predicted->offset == event.offset);
	PROMISE(predicted->len == event.len);
	PROMISE(predicted->file_is_new == (steps > 0));
	PROMISE(predicted->file == (steps > 0 ? steps - 1 : event.file));
	PROMISE(predicted->after == event.time - last.time - last.duration);
	PROMISE(predicted->confidence > 0.0 && predicted->confidence <= 1.0);
}

/* The next operations, as far as two steps ahead, are those that come. */
static void right_ahead(const presagio_model *model, uint64_t observed)
{
	presagio_cursor *cursor = best_of(model);
	presagio_predicted predicted;
	uint64_t before = 0;
	for (uint64_t number = observed; number < observed + 2 * STEP; number++) {
		PROMISE(presagio_cursor_next(cursor, &predicted) == PRESAGIO_OK);
		is_operation(&predicted, number, observed);
		PROMISE(predicted.elapsed == predicted.after - before);
		before = predicted.after;
	}
	presagio_cursor_free(cursor);
}

static void predictions_are_right_two_steps_ahead(void)
{
	uint64_t from = 6 * STEP;
	presagio_model *model = model_of(from);
	for (uint64_t number = from; number < from + 2 * STEP; number++) {
		right_ahead(model, number);
		presagio_event event = operation(number);
		PROMISE(presagio_observe(model, &event) == PRESAGIO_OK);
	}
	presagio_model_free(model);
}

/* Of a program that reads, then writes to one of two places, without an order that could be learned. */
static presagio_model *model_with_a_branch(void)
{
	presagio_model *model = presagio_model_new();
	for (uint64_t number = 0, dice = 1; number < 1000; number++) {
		presagio_event event = {0};
		dice = dice * 6364136223846793005u + 1442695040888963407u;
		event.time = number * 1000;
		event.context = number % 2 == 0 ? 1 : (dice >> 60) < 5 ? 2 : 3;
		event.action = number % 2 == 0 ? PRESAGIO_READ : PRESAGIO_WRITE;
		event.len = event.context * 100;
		event.result = (int64_t)event.len;
		PROMISE(presagio_observe(model, &event) == PRESAGIO_OK);
		/* Now and then the past leaves only one way. */
		if (number >= 100 && number % 2 == 0) {
			presagio_way ways[2];
			size_t count;
			PROMISE(presagio_predict(model, ways, 2, &count) == PRESAGIO_OK);
			for (size_t i = 0; i < count; i++)
				presagio_cursor_free(ways[i].cursor);
			if (count > 1)
				break;
		}
	}
	return model;
}

static void ways_have_weights_that_fall_and_add_up_to_one(void)
{
	presagio_model *model = model_with_a_branch();
	presagio_way ways[64];
	size_t count, few;
	double sum = 0.0;
	PROMISE(presagio_predict(model, ways, 64, &count) == PRESAGIO_OK);
	PROMISE(count > 1 && count < 64);
	for (size_t i = 0; i < count; i++) {
		presagio_predicted predicted;
		PROMISE(i == 0 || ways[i].weight <= ways[i - 1].weight);
		PROMISE(presagio_cursor_next(ways[i].cursor, &predicted) == PRESAGIO_OK);
		sum += ways[i].weight;
		presagio_cursor_free(ways[i].cursor);
	}
	PROMISE(fabs(sum - 1.0) < 1e-9);

	PROMISE(presagio_predict(model, ways, 1, &few) == PRESAGIO_OK && few == 1);
	presagio_cursor_free(ways[0].cursor);
	PROMISE(presagio_predict(model, ways, 0, &few) == PRESAGIO_OK && few == 0);
	presagio_model_free(model);
}

static void a_model_that_has_seen_nothing_predicts_nothing(void)
{
	presagio_model *model = presagio_model_new();
	presagio_cursor *cursor = (presagio_cursor *)&model;
	presagio_way way;
	size_t count = 77;
	PROMISE(presagio_best(model, &cursor) == PRESAGIO_NONE && cursor == NULL);
	PROMISE(presagio_predict(model, &way, 1, &count) == PRESAGIO_OK && count == 0);
	PROMISE(presagio_last_error()[0] == '\0');
	presagio_model_free(model);

	model = model_of(STEP);
	PROMISE(presagio_lose_track(model) == PRESAGIO_OK);
	PROMISE(presagio_best(model, &cursor) == PRESAGIO_NONE);
	presagio_model_free(model);
}

static void every_change_makes_cursors_stale(void)
{
	presagio_model *model = model_of(3 * STEP);
	presagio_predicted predicted;
	for (int change = 0; change < 4; change++) {
		presagio_event event = operation(3 * STEP);
		presagio_cursor *unread = best_of(model), *read = best_of(model), *copy;
		PROMISE(presagio_cursor_next(read, &predicted) == PRESAGIO_OK);
		if (change == 0)
			PROMISE(presagio_observe(model, &event) == PRESAGIO_OK);
		else if (change == 1)
			PROMISE(presagio_name_context(model, 99, 1234) == PRESAGIO_OK);
		else if (change == 2)
			PROMISE(presagio_lose_track(model) == PRESAGIO_OK);
		else
			presagio_model_free(model);
		REFUSED(presagio_cursor_next(unread, &predicted), PRESAGIO_STALE, "ask for a new one");
		REFUSED(presagio_cursor_next(read, &predicted), PRESAGIO_STALE, "ask for a new one");
		copy = presagio_cursor_copy(read);
		REFUSED(presagio_cursor_next(copy, &predicted), PRESAGIO_STALE, "ask for a new one");
		presagio_cursor_free(unread);
		presagio_cursor_free(read);
		presagio_cursor_free(copy);
		if (change == 2)
			PROMISE(presagio_observe(model, &event) == PRESAGIO_OK);
	}
}

static void a_call_that_fails_leaves_cursors_as_they_are(void)
{
	presagio_model *model = model_of(3 * STEP);
	presagio_cursor *cursor = best_of(model);
	presagio_event event = operation(3 * STEP);
	presagio_predicted predicted;
	event.action = 10;
	REFUSED(presagio_observe(model, &event), PRESAGIO_INVALID, "event->action is 10");
	PROMISE(presagio_cursor_next(cursor, &predicted) == PRESAGIO_OK);
	is_operation(&predicted, 3 * STEP, 3 * STEP);
	presagio_cursor_free(cursor);
	presagio_model_free(model);
}

static void copies_are_read_on_their_own(void)
{
	presagio_model *model = model_of(4 * STEP);
	presagio_cursor *cursor = best_of(model), *copy;
	presagio_predicted here, there;
	PROMISE(presagio_cursor_next(cursor, &here) == PRESAGIO_OK);
	copy = presagio_cursor_copy(cursor);
	PROMISE(copy);
	for (int i = 0; i < 100; i++) {
		PROMISE(presagio_cursor_next(cursor, &here) == PRESAGIO_OK);
		PROMISE(presagio_cursor_next(copy, &there) == PRESAGIO_OK);
		PROMISE(memcmp(&here, &there, sizeof here) == 0);
	}
	presagio_cursor_free(cursor);
	PROMISE(presagio_cursor_next(copy, &there) == PRESAGIO_OK);
	presagio_cursor_free(copy);
	presagio_model_free(model);
}

static void cursors_end_at_the_horizon(void)
{
	presagio_event event = {0};
	presagio_model *model = presagio_model_new();
	presagio_predicted predicted;
	PROMISE(presagio_observe(model, &event) == PRESAGIO_OK);
	presagio_cursor *cursor = best_of(model);
	for (long i = 0; i < PRESAGIO_HORIZON; i++)
		PROMISE(presagio_cursor_next(cursor, &predicted) == PRESAGIO_OK);
	PROMISE(presagio_cursor_next(cursor, &predicted) == PRESAGIO_NONE);
	PROMISE(presagio_cursor_next(cursor, &predicted) == PRESAGIO_NONE);
	presagio_cursor_free(cursor);
	presagio_model_free(model);
}

static void null_is_refused_everywhere_and_may_be_freed(void)
{
	presagio_model *model = model_of(3);
	presagio_cursor *cursor = best_of(model), *none = cursor;
	presagio_event event = operation(3);
	presagio_predicted predicted;
	presagio_way way;
	size_t count = 77;
	REFUSED(presagio_observe(NULL, &event), PRESAGIO_NULL, "presagio_observe: model is NULL");
	REFUSED(presagio_observe(model, NULL), PRESAGIO_NULL, "presagio_observe: event is NULL");
	REFUSED(presagio_name_context(NULL, 1, 1), PRESAGIO_NULL, "model is NULL");
	REFUSED(presagio_lose_track(NULL), PRESAGIO_NULL, "presagio_lose_track: model is NULL");
	REFUSED(presagio_predict(NULL, &way, 1, &count), PRESAGIO_NULL, "model is NULL");
	PROMISE(count == 0);
	REFUSED(presagio_predict(model, NULL, 1, &count), PRESAGIO_NULL, "ways is NULL");
	REFUSED(presagio_predict(model, &way, 1, NULL), PRESAGIO_NULL, "count is NULL");
	REFUSED(presagio_best(NULL, &none), PRESAGIO_NULL, "presagio_best: model is NULL");
	PROMISE(none == NULL);
	REFUSED(presagio_best(model, NULL), PRESAGIO_NULL, "cursor is NULL");
	REFUSED(presagio_cursor_next(NULL, &predicted), PRESAGIO_NULL, "cursor is NULL");
	REFUSED(presagio_cursor_next(cursor, NULL), PRESAGIO_NULL, "predicted is NULL");
	REFUSED(presagio_cursor_copy(NULL), NULL, "presagio_cursor_copy: cursor is NULL");
	presagio_cursor_free(NULL);
	presagio_model_free(NULL);
	presagio_cursor_free(cursor);
	presagio_model_free(model);
}

static void values_that_make_no_sense_are_refused(void)
{
	static const uint32_t wrong[] = {10, 255, 256, 258, UINT32_MAX};
	presagio_model *model = model_of(3);
	presagio_event event = operation(3);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		event.action = wrong[i];
		REFUSED(presagio_observe(model, &event), PRESAGIO_INVALID, "it must be one of presagio_action");
	}
	REFUSED(presagio_name_context(model, 0, 1), PRESAGIO_INVALID, "context is 0");
	presagio_model_free(model);
}

/* Numbers that are wrong in ways that nobody can check: at all ends of their range, mixed. */
static void extreme_values_do_no_harm(void)
{
	static const uint64_t ends[] = {0, 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 1, UINT64_MAX};
	presagio_model *model = presagio_model_new();
	uint64_t dice = 12345;
	for (int i = 0; i < 3000; i++) {
		presagio_event event;
		presagio_predicted predicted;
		uint64_t *fields[] = {&event.time, &event.duration, &event.file, &event.offset, &event.len};
		for (size_t f = 0; f < 5; f++) {
			dice = dice * 6364136223846793005u + 1442695040888963407u;
			*fields[f] = ends[(dice >> 33) % 6];
		}
		event.result = (dice >> 20) % 2 ? INT64_MIN : INT64_MAX;
		event.action = (uint32_t)((dice >> 40) % 10);
		event.context = (dice >> 50) % 2 ? UINT32_MAX : 0;
		PROMISE(presagio_observe(model, &event) == PRESAGIO_OK);
		presagio_cursor *cursor = best_of(model);
		for (int ahead = 0; ahead < 5; ahead++)
			PROMISE(presagio_cursor_next(cursor, &predicted) == PRESAGIO_OK);
		presagio_cursor_free(cursor);
	}
	presagio_model_free(model);
}

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define NUMBER(name) printf(#name " %d\n", name)

static void print_layout(void)
{
	SIZE(presagio_event);
	FIELD(presagio_event, time);
	FIELD(presagio_event, duration);
	FIELD(presagio_event, file);
	FIELD(presagio_event, offset);
	FIELD(presagio_event, len);
	FIELD(presagio_event, result);
	FIELD(presagio_event, action);
	FIELD(presagio_event, context);
	SIZE(presagio_predicted);
	FIELD(presagio_predicted, action);
	FIELD(presagio_predicted, file_is_new);
	FIELD(presagio_predicted, file);
	FIELD(presagio_predicted, offset);
	FIELD(presagio_predicted, len);
	FIELD(presagio_predicted, after);
	FIELD(presagio_predicted, elapsed);
	FIELD(presagio_predicted, confidence);
	SIZE(presagio_way);
	FIELD(presagio_way, cursor);
	FIELD(presagio_way, weight);
	SIZE(presagio_status);
	NUMBER(PRESAGIO_OPEN);
	NUMBER(PRESAGIO_CLOSE);
	NUMBER(PRESAGIO_READ);
	NUMBER(PRESAGIO_WRITE);
	NUMBER(PRESAGIO_SEEK);
	NUMBER(PRESAGIO_SYNC);
	NUMBER(PRESAGIO_TRUNCATE);
	NUMBER(PRESAGIO_ALLOCATE);
	NUMBER(PRESAGIO_MAP);
	NUMBER(PRESAGIO_REMOVE);
	NUMBER(PRESAGIO_OK);
	NUMBER(PRESAGIO_NONE);
	NUMBER(PRESAGIO_STALE);
	NUMBER(PRESAGIO_NULL);
	NUMBER(PRESAGIO_INVALID);
	NUMBER(PRESAGIO_BROKEN);
	NUMBER(PRESAGIO_FILE);
}

static void a_model_is_kept_from_run_to_run(const char *dir)
{
	char path[1024], gone[1024];
	presagio_model *model = model_of(6 * STEP), *other;
	presagio_predicted predicted;
	snprintf(path, sizeof path, "%s/cm1.model", dir);
	snprintf(gone, sizeof gone, "%s/no/such/dir", dir);
	PROMISE(presagio_model_save(model, path, 42) == PRESAGIO_OK);
	PROMISE(presagio_model_save(model, path, 42) == PRESAGIO_OK);
	REFUSED(presagio_model_save(model, gone, 42), PRESAGIO_FILE, "cannot write");
	REFUSED(presagio_model_save(NULL, path, 42), PRESAGIO_NULL, "model is NULL");
	REFUSED(presagio_model_save(model, NULL, 42), PRESAGIO_NULL, "path is NULL");
	presagio_model_free(model);

	REFUSED(presagio_model_load(NULL, 42), NULL, "path is NULL");
	REFUSED(presagio_model_load(gone, 42), NULL, "cannot read");
	REFUSED(presagio_model_load(dir, 42), NULL, "it is not a file");
	REFUSED(presagio_model_load(path, 43), NULL, "cannot use");

	/* The second run is predicted from its first operation on. */
	other = presagio_model_load(path, 42);
	PROMISE(other);
	presagio_cursor *cursor = best_of(other);
	PROMISE(presagio_cursor_next(cursor, &predicted) == PRESAGIO_OK);
	PROMISE(predicted.action == PRESAGIO_OPEN && predicted.file_is_new);
	presagio_cursor_free(cursor);
	for (uint64_t number = 0; number < 2 * STEP; number++) {
		presagio_event event = operation(number);
		PROMISE(presagio_observe(other, &event) == PRESAGIO_OK);
		right_ahead(other, number + 1);
	}
	presagio_model_free(other);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "layout") == 0) {
		print_layout();
		return 0;
	}
	if (argc != 3 || strcmp(argv[1], "promises") != 0) {
		fprintf(stderr, "usage: %s promises DIR | layout\n", argv[0]);
		return 2;
	}
	a_model_that_has_seen_nothing_predicts_nothing();
	predictions_are_right_two_steps_ahead();
	ways_have_weights_that_fall_and_add_up_to_one();
	every_change_makes_cursors_stale();
	a_call_that_fails_leaves_cursors_as_they_are();
	copies_are_read_on_their_own();
	cursors_end_at_the_horizon();
	null_is_refused_everywhere_and_may_be_freed();
	values_that_make_no_sense_are_refused();
	extreme_values_do_no_harm();
	a_model_is_kept_from_run_to_run(argv[2]);
	printf("libpresagio_predict_c %s keeps its promises\n", presagio_version());
	return 0;
}
