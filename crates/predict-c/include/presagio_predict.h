/* presagio_predict.h: predicts the next I/O operations of a program, for middleware in C.
 *
 * A middleware tells the model each operation of a program when it has ended, and reads what will come: which
 * file, where, how many bytes, when, and how sure that is.
 *
 *     presagio_model *model = presagio_model_new();
 *     presagio_event event = {0};
 *         ... fill in event after each operation, then
 *     presagio_observe(model, &event);
 *
 *     presagio_cursor *cursor;
 *     presagio_predicted next;
 *     if (presagio_best(model, &cursor) == PRESAGIO_OK) {
 *         while (presagio_cursor_next(cursor, &next) == PRESAGIO_OK && next.confidence > 0.8)
 *             ... prefetch next.len bytes at next.offset of next.file ...
 *         presagio_cursor_free(cursor);
 *     }
 *     presagio_model_free(model);
 *
 * Link with -lpresagio_predict_c. docs/predict-api.md of the sources is the guide; presagio_predict.hpp has
 * the same for C++.
 *
 * Errors. A call that fails says why in presagio_last_error() and returns a status other than PRESAGIO_OK, or
 * NULL; it changes nothing, except that results are set to 0 or NULL where it says so. Nothing is printed, but
 * for the message of a bug of the library's own (PRESAGIO_BROKEN). No argument makes a call crash, except a
 * pointer that is neither NULL nor valid.
 *
 * Cursors. A cursor reads on from the last operation that was observed when it was made. Once the model has
 * changed (presagio_observe, presagio_name_context, presagio_lose_track) or is freed, the cursor is stale: it
 * says PRESAGIO_STALE and nothing else, and can only be freed. It must be freed in any case, before or after
 * its model.
 *
 * Threads. A model is used by one thread at a time, and a cursor too. Different models can be used by different
 * threads at the same time. One model is of one stream of operations: one thread of a program, or one process
 * that does its I/O in one thread.
 */
#ifndef PRESAGIO_PREDICT_H
#define PRESAGIO_PREDICT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many operations a cursor can be read ahead. */
#define PRESAGIO_HORIZON 65536

/* What has been learned of a stream of operations. */
typedef struct presagio_model presagio_model;

/* A place on one of the ways that the stream may go on. */
typedef struct presagio_cursor presagio_cursor;

/* What became of a call. */
typedef enum presagio_status {
	PRESAGIO_OK = 0,
	PRESAGIO_NONE = 1,    /* not an error: there is no prediction, or no more */
	PRESAGIO_STALE = 2,   /* the cursor's model has changed since, or was freed */
	PRESAGIO_NULL = 3,    /* a pointer is NULL that must not be */
	PRESAGIO_INVALID = 4, /* a value makes no sense */
	PRESAGIO_BROKEN = 5,  /* a bug of the library: the model can only be freed */
	PRESAGIO_FILE = 6     /* a file cannot be written */
} presagio_status;

/* What is done to a file. */
typedef enum presagio_action {
	PRESAGIO_OPEN = 0,
	PRESAGIO_CLOSE = 1,
	PRESAGIO_READ = 2,
	PRESAGIO_WRITE = 3,
	PRESAGIO_SEEK = 4,     /* offset is the new position */
	PRESAGIO_SYNC = 5,
	PRESAGIO_TRUNCATE = 6, /* offset is the new size */
	PRESAGIO_ALLOCATE = 7, /* space is reserved at offset */
	PRESAGIO_MAP = 8,      /* a part is mapped into memory */
	PRESAGIO_REMOVE = 9    /* the file loses its name */
} presagio_action;

/* An operation that has just ended. Begin with {0}: fields that do not matter are 0. */
typedef struct presagio_event {
	uint64_t time;     /* when it began, in nanoseconds of a clock that the middleware picks and keeps */
	uint64_t duration; /* how long it took, in nanoseconds */
	uint64_t file;     /* the file: any number that the middleware gives it, the same each time it is used */
	uint64_t offset;   /* where in the file, in bytes */
	uint64_t len;      /* the bytes asked for by a read or write */
	int64_t result;    /* the bytes that a read or write has moved; or the negated errno of what failed */
	uint32_t action;   /* a presagio_action */
	uint32_t context;  /* the call stack that it came from: any number that the middleware gives it, the
	                    * same each time; 0 if not known, operations are then told apart by what they do.
	                    * Predictions are better with it. */
} presagio_event;

/* An operation that is expected. */
typedef struct presagio_predicted {
	uint32_t action;      /* a presagio_action */
	uint32_t file_is_new; /* 1: a file that will be used for the first time; 0: one that was observed */
	uint64_t file;        /* that file; of new ones, the first that the cursor comes upon is 0, the next 1 */
	uint64_t offset;      /* where in the file, in bytes */
	uint64_t len;         /* bytes of a read or write, 0 for others */
	uint64_t after;       /* nanoseconds from the end of the last observed operation to when it begins */
	uint64_t elapsed;     /* nanoseconds from when the operation before it on this way began; of the first
	                       * one the same as after */
	double confidence;    /* from 0 to 1: of those said with 0.9, about nine in ten come exactly so. Measured
	                       * where presagio_best leads, one operation ahead and nine to sixteen ahead. */
} presagio_predicted;

/* One way that the stream may go on. */
typedef struct presagio_way {
	presagio_cursor *cursor; /* at its beginning; the caller frees it */
	double weight;           /* how likely this way is; of all ways together 1 */
} presagio_way;

/* A model that knows nothing; free it with presagio_model_free. NULL only for a bug of the library. */
presagio_model *presagio_model_new(void);

/* Frees a model and its memory. Its cursors become stale, and are still to be freed. NULL is allowed. */
void presagio_model_free(presagio_model *model);

/* Learns from an operation that has just ended. */
presagio_status presagio_observe(presagio_model *model, const presagio_event *event);

/* Says which call stack is meant by a context: stack_hash is a number that is the same in every run of the
 * program, for example a hash over module names and offsets. Call it before the context is first observed.
 * Needed only for models that are kept from run to run. */
presagio_status presagio_name_context(presagio_model *model, uint32_t context, uint64_t stack_hash);

/* Says that operations were missed: what comes next does not follow on what came last. Nothing can be predicted
 * until the next operation was observed. */
presagio_status presagio_lose_track(presagio_model *model);

/* The ways that the stream may go on, the likeliest first. Stores up to max of them in ways, and in count how
 * many (0 if it fails, or nothing is known). The caller frees the cursor of each. */
presagio_status presagio_predict(const presagio_model *model, presagio_way *ways, size_t max, size_t *count);

/* The way to act upon, if only one is wanted: several ways can begin with the same operation, and it is the
 * likeliest operation that counts. Cheaper than presagio_predict. Stores a cursor that the caller frees.
 * PRESAGIO_NONE, and a NULL cursor: nothing is known, since nothing was observed yet. */
presagio_status presagio_best(const presagio_model *model, presagio_cursor **cursor);

/* Reads the next operation on the cursor's way. PRESAGIO_NONE: it has been read PRESAGIO_HORIZON operations
 * ahead; up to there it always goes on, so mind the confidence. PRESAGIO_STALE: see above. */
presagio_status presagio_cursor_next(presagio_cursor *cursor, presagio_predicted *predicted);

/* A cursor at the same place, that is read and freed on its own. NULL if it fails. */
presagio_cursor *presagio_cursor_copy(const presagio_cursor *cursor);

/* Frees a cursor, stale or not. NULL is allowed. */
void presagio_cursor_free(presagio_cursor *cursor);

/* Writes what was learned to a file, which is replaced only when all is written; which files there were is not
 * kept, since another run has others. program_id is a number that
 * tells programs, and versions of a program, apart: a hash of the executable, say. */
presagio_status presagio_model_save(const presagio_model *model, const char *path, uint64_t program_id);

/* A model from a file of presagio_model_save; free it with presagio_model_free. It expects the program to begin
 * again, and predicts before anything was observed. NULL: there is no such file, it
 * is damaged or of another version of the library, or of another program. A new model takes its place then:
 *
 *     presagio_model *model = presagio_model_load(path, id);
 *     if (!model)
 *         model = presagio_model_new(); */
presagio_model *presagio_model_load(const char *path, uint64_t program_id);

/* Why the last call of this thread that failed did; "" if none did. Valid until the next call of this thread
 * that fails. */
const char *presagio_last_error(void);

/* The version of the library, such as "0.1.0". */
const char *presagio_version(void);

#ifdef __cplusplus
}
#endif

#endif
