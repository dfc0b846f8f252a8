/* What a C program may expect of libagios.so, and all that it can do wrong. Built against agios.h alone;
 * drop_in.rs compiles and runs it. It ends at the first broken promise, with a message and status 1.
 *
 *   exercise work CONF ALGORITHM    threads add, callbacks check, everything is dispatched exactly once
 *   exercise cancel CONF ALGORITHM  what was not dispatched can be taken back, exactly once
 *   exercise switch CONF            all of that while the algorithm changes all the time
 *   exercise faults CONF            every call with everything that is wrong
 *   exercise flood CONF             the same fault a hundred thousand times, another one once
 *   exercise restart CONF           init and exit, again and again, with requests left over
 *   exercise trace CONF             a few known requests, for a trace
 *   exercise full CONF              predictions until there is no room, and work goes on
 *   exercise refuse CONF [QUEUES]   agios_init must fail: prints agios_last_error()
 */
#define _GNU_SOURCE
#include "agios.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROMISE(holds, ...)                                                                            \
	do {                                                                                           \
		if (!(holds)) {                                                                        \
			fprintf(stderr, "broken promise, line %d: %s: ", __LINE__, #holds);            \
			fprintf(stderr, __VA_ARGS__);                                                  \
			fprintf(stderr, " (last error: %s)\n", agios_last_error());                    \
			_exit(1);                                                                      \
		}                                                                                      \
	} while (0)

/* Fails for a reason that contains `why`. */
#define REFUSED(call, why)                                                                             \
	do {                                                                                           \
		PROMISE(!(call), "it must fail");                                                      \
		PROMISE(strstr(agios_last_error(), why), "it must say \"%s\"", why);                   \
	} while (0)

enum { REQUESTS = 24000, THREADS = 4, FILES = 12, LENGTH = 4096, MAX_QUEUE_ID = 7 };
enum state { FREE, ADDED, DISPATCHED, RELEASED, CANCELLED };

static struct request {
	int64_t offset;
	int32_t type;
	int32_t file;
	atomic_int state;
} requests[REQUESTS];

static char names[FILES][64];
static bool aggregates;
static atomic_bool stopped;
static atomic_int dispatched, released, largest;

/* The first callback waits here while `holding`. */
static atomic_bool holding;
static sem_t held, gate;

/* Identifiers that the callbacks pass on to be released by another thread. */
static atomic_long later[REQUESTS]; /* plus 1; 0: not written yet */
static atomic_int later_count;

/* Requests 0, 4, 8... of a file read forwards, the others read backwards, write forwards and jump, so that
 * neighbours meet in every direction and no two requests are the same. */
static void prepare(void)
{
	for (int f = 0; f < FILES; f++)
		snprintf(names[f], sizeof names[f], f % 2 ? "/data/%d" : "/data/a/rather/long/name/that/does/not/end/%d", f);
	for (int i = 0; i < REQUESTS; i++) {
		int64_t step = i / FILES / 4, region = (int64_t)1 << 32;
		int64_t places[4] = {step, region - step, step, 2 * region + step * 7919 % 6007 * 2};
		requests[i].file = i % FILES;
		requests[i].type = i / FILES % 4 == 2 ? RT_WRITE : RT_READ;
		requests[i].offset = places[i / FILES % 4] * LENGTH;
		atomic_store(&requests[i].state, FREE);
	}
	for (int i = 0; i < REQUESTS; i++)
		atomic_store(&later[i], 0);
	atomic_store(&dispatched, 0), atomic_store(&released, 0), atomic_store(&later_count, 0);
	atomic_store(&largest, 0), atomic_store(&stopped, false);
}

static bool add(int64_t id)
{
	struct request *r = &requests[id];
	atomic_store(&r->state, ADDED);
	return agios_add_request(names[r->file], r->type, r->offset, LENGTH, id, id % (MAX_QUEUE_ID + 1));
}

static bool cancel(int64_t id)
{
	struct request *r = &requests[id];
	return agios_cancel_request(names[r->file], r->type, LENGTH, r->offset);
}

static void release(int64_t id)
{
	struct request *r = &requests[id];
	int was = atomic_exchange(&r->state, RELEASED);
	PROMISE(was == DISPATCHED, "request %ld is released in state %d", (long)id, was);
	PROMISE(agios_release_request(names[r->file], r->type, LENGTH, r->offset), "request %ld", (long)id);
	atomic_fetch_add(&released, 1);
}

static void receive(int64_t id)
{
	PROMISE(id >= 0 && id < REQUESTS, "nobody added %ld", (long)id);
	int was = atomic_exchange(&requests[id].state, DISPATCHED);
	PROMISE(was == ADDED, "request %ld is dispatched in state %d", (long)id, was);
	PROMISE(!atomic_load(&stopped), "a callback after agios_exit");
	atomic_fetch_add(&dispatched, 1);
}

/* Every third request is released from another thread. */
static void serve(int64_t id)
{
	if (id % 3)
		release(id);
	else
		atomic_store(&later[atomic_fetch_add(&later_count, 1)], id + 1);
}

static void hold(void)
{
	if (atomic_exchange(&holding, false)) {
		sem_post(&held);
		sem_wait(&gate);
	}
}

static void *one(int64_t id)
{
	receive(id);
	hold();
	serve(id);
	return NULL;
}

static void *many(int64_t *ids, int32_t n)
{
	PROMISE(n > 0, "an empty batch");
	PROMISE(n == 1 || aggregates, "%d requests at once", n);
	if (n > atomic_load(&largest))
		atomic_store(&largest, n);
	for (int i = 0; i < n; i++)
		receive(ids[i]);
	for (int i = 1; i < n; i++) {
		struct request *a = &requests[ids[i - 1]], *b = &requests[ids[i]];
		PROMISE(a->file == b->file && a->type == b->type, "a mixed batch");
		PROMISE(a->offset < b->offset, "not in offset order");
		PROMISE(a->offset + LENGTH == b->offset, "not contiguous");
	}
	hold();
	for (int i = 0; i < n; i++)
		serve(ids[i]);
	return NULL;
}

static void *adder(void *which)
{
	for (int64_t id = (intptr_t)which; id < REQUESTS; id += THREADS)
		PROMISE(add(id), "request %ld", (long)id);
	return NULL;
}

static void *releaser(void *unused)
{
	(void)unused;
	for (int next = 0; next < (REQUESTS + 2) / 3;) {
		long id = atomic_load(&later[next]);
		if (id == 0) {
			usleep(100);
			continue;
		}
		release(id - 1);
		next++;
	}
	return NULL;
}

static void start(char *conf, void *(*f1)(int64_t), void *(*f2)(int64_t *, int32_t))
{
	PROMISE(agios_init(f1, f2, conf, MAX_QUEUE_ID), "%s", conf);
}

static void stop(void)
{
	agios_exit();
	atomic_store(&stopped, true);
}

static void finish_all(pthread_t *threads, int count)
{
	for (int t = 0; t < count; t++)
		pthread_join(threads[t], NULL);
	while (atomic_load(&released) < REQUESTS)
		usleep(100); /* one that is lost shows as a hang */
	PROMISE(atomic_load(&dispatched) == REQUESTS, "%d dispatched", atomic_load(&dispatched));
	for (int i = 0; i < REQUESTS; i++)
		PROMISE(atomic_load(&requests[i].state) == RELEASED, "request %d", i);
}

static void run(char *conf, void *(*f1)(int64_t), void *(*f2)(int64_t *, int32_t), const char *const *switches)
{
	pthread_t threads[THREADS + 1];
	prepare();
	start(conf, f1, f2);
	pthread_create(&threads[THREADS], NULL, releaser, NULL);
	for (intptr_t t = 0; t < THREADS; t++)
		pthread_create(&threads[t], NULL, adder, (void *)t);
	for (int i = 0; switches && atomic_load(&released) < REQUESTS; i++) {
		PROMISE(agios_set_algorithm(switches[i % 10]), "%s", switches[i % 10]);
		usleep(200);
	}
	finish_all(threads, THREADS + 1);
	struct request *r = &requests[0];
	REFUSED(agios_release_request(names[r->file], r->type, LENGTH, r->offset), "no dispatched read");
	stop();
}

/* The list starts and ends with a space. */
static bool is_one_of(const char *name, const char *list)
{
	char word[32];
	snprintf(word, sizeof word, " %s ", name);
	return strstr(list, word) != NULL;
}

static void work(char *conf, const char *algorithm)
{
	aggregates = !is_one_of(algorithm, " NOOP TO TWINS SW WFQ ");
	run(conf, one, many, NULL);
	run(conf, one, NULL, NULL);
	run(conf, NULL, many, NULL);
}

static void switching(char *conf)
{
	static const char *const all[] = {"NOOP", "SJF", "TWINS", "TO-agg", "MLF", "WFQ", "aIOLi", "TO", "SW", "HBRR"};
	aggregates = true;
	run(conf, one, many, all);
}

static void *ignore(int64_t id)
{
	(void)id;
	return NULL;
}

/* While the dispatching thread is held in a callback, everything else stays queued. The eight requests
 * 0, 4 * FILES, 8 * FILES... are neighbours; they are added backwards. */
static void cancelling(char *conf, const char *algorithm)
{
	const int neighbours = 8, stride = 4 * FILES;
	aggregates = !is_one_of(algorithm, " NOOP TO TWINS SW WFQ ");
	prepare();
	if (is_one_of(algorithm, " NOOP ")) {
		start(conf, ignore, NULL);
		PROMISE(add(1), "one that is dispatched at once");
		REFUSED(cancel(1), "dispatched already");
		stop();
		return;
	}
	atomic_store(&holding, true);
	start(conf, one, many);
	PROMISE(add(1), "the one that is held");
	sem_wait(&held);
	for (int i = neighbours - 1; i >= 0; i--)
		PROMISE(add(i * stride), "neighbour %d", i);
	for (int i = 2; i < 10; i++)
		PROMISE(add(i), "request %d", i);
	for (int i = 2; i < 10; i++) {
		PROMISE(cancel(i), "request %d is queued", i);
		atomic_store(&requests[i].state, CANCELLED);
		REFUSED(cancel(i), "no queued");
	}
	REFUSED(cancel(1), "dispatched already");
	REFUSED(agios_release_request(names[0], RT_READ, LENGTH, 0), "no dispatched");
	sem_post(&gate);
	while (atomic_load(&dispatched) < neighbours + 1)
		usleep(100);
	if (is_one_of(algorithm, " TO-agg SJF HBRR "))
		PROMISE(atomic_load(&largest) == neighbours, "the largest batch has %d", atomic_load(&largest));
	stop();
}

static void *leave(int64_t id)
{
	PROMISE(!atomic_load(&stopped), "dispatched after agios_exit");
	if (id > 0)
		return NULL;
	PROMISE(agios_add_request("inside", RT_READ, 1, 1, 1, 0), "add in a callback");
	stop();
	sem_post(&held);
	return NULL;
}

static void all_calls_refused(const char *why)
{
	REFUSED(agios_add_request("f", RT_READ, 0, 1, 1, 0), why);
	REFUSED(agios_release_request("f", RT_READ, 1, 0), why);
	REFUSED(agios_cancel_request("f", RT_READ, 1, 0), why);
	REFUSED(agios_set_algorithm("SJF"), why);
	REFUSED(agios_foresee("f", RT_READ, 0, 1, 0), why);
}

static void bad_arguments(void)
{
	REFUSED(agios_add_request(NULL, RT_READ, 0, 1, 1, 0), "file_id is NULL");
	REFUSED(agios_release_request(NULL, RT_READ, 1, 0), "file_id is NULL");
	REFUSED(agios_cancel_request(NULL, RT_READ, 1, 0), "file_id is NULL");
	REFUSED(agios_set_algorithm(NULL), "name is NULL");
	REFUSED(agios_add_request("f", 2, 0, 1, 1, 0), "type is 2");
	REFUSED(agios_add_request("f", -1, 0, 1, 1, 0), "type is -1");
	REFUSED(agios_release_request("f", 7, 1, 0), "type is 7");
	REFUSED(agios_cancel_request("f", 7, 1, 0), "type is 7");
	REFUSED(agios_add_request("f", RT_READ, -1, 1, 1, 0), "offset is -1");
	REFUSED(agios_add_request("f", RT_READ, 1, -1, 1, 0), "length is -1");
	REFUSED(agios_add_request("f", RT_READ, INT64_MAX, 1, 1, 0), "beyond 2^63");
	REFUSED(agios_add_request("f", RT_READ, INT64_MIN, INT64_MIN, 1, 0), "must not be negative");
	REFUSED(agios_release_request("f", RT_READ, -1, 1), "length is -1");
	REFUSED(agios_cancel_request("f", RT_READ, 1, -1), "offset is -1");
	REFUSED(agios_add_request("f", RT_READ, 0, 1, 1, MAX_QUEUE_ID + 1), "queue_id is 8");
	REFUSED(agios_add_request("f", RT_READ, 0, 1, 1, -1), "queue_id is -1");
	REFUSED(agios_add_request("f", RT_READ, 0, 1, 1, INT32_MAX), "queue_id is 2147483647");
	REFUSED(agios_release_request("never seen", RT_READ, 1, 0), "no dispatched read of 1 bytes");
	REFUSED(agios_cancel_request("never seen", RT_WRITE, 1, 0), "no queued write of 1 bytes");
	REFUSED(agios_set_algorithm("CFQ"), "CFQ");
	REFUSED(agios_foresee(NULL, RT_READ, 0, 1, 0), "file_id is NULL");
	REFUSED(agios_foresee("f", 2, 0, 1, 0), "type is 2");
	REFUSED(agios_foresee("f", RT_READ, -1, 1, 0), "offset is -1");
	REFUSED(agios_foresee("f", RT_READ, 1, -1, 0), "length is -1");
	REFUSED(agios_foresee("f", RT_READ, INT64_MAX, 1, 0), "beyond 2^63");
	REFUSED(agios_foresee("f", RT_READ, 0, 1, -1), "after_ns is -1");
}

static void forked(void)
{
	pid_t child = fork();
	int status = 0;
	if (child == 0) {
		all_calls_refused("forked");
		REFUSED(agios_init(ignore, NULL, NULL, 0), "forked");
		agios_exit();
		_exit(0);
	}
	PROMISE(waitpid(child, &status, 0) == child && status == 0, "the child's status is %d", status);
}

static void faults(char *conf)
{
	PROMISE(!strcmp(agios_last_error(), ""), "nothing has failed yet");
	all_calls_refused("not running");
	agios_exit();
	REFUSED(agios_init(NULL, NULL, conf, 0), "both callbacks");
	REFUSED(agios_init(ignore, NULL, "/no/such/agios.conf", 0), "/no/such/agios.conf");
	REFUSED(agios_init(ignore, NULL, "/", 0), "cannot read");
	REFUSED(agios_init(ignore, NULL, conf, -1), "max_queue_id is -1");
	REFUSED(agios_init(ignore, NULL, conf, INT32_MAX), "max_queue_id is 2147483647");
	all_calls_refused("not running");
	start(conf, ignore, NULL);
	REFUSED(agios_init(ignore, NULL, conf, 0), "running already");
	bad_arguments();
	PROMISE(agios_add_request("not \xff UTF-8", RT_READ, INT64_MAX, 0, 1, 0), "names are bytes");
	PROMISE(agios_add_request("", RT_WRITE, 0, INT64_MAX, 2, MAX_QUEUE_ID), "an empty name is a name");
	PROMISE(agios_foresee("never comes", RT_WRITE, 0, 4096, INT64_MAX), "what does not come does no harm");
	forked();
	agios_exit();
	all_calls_refused("not running");
	atomic_store(&stopped, false);
	PROMISE(agios_init(leave, NULL, conf, 0), "init after exit");
	sem_init(&held, 0, 0);
	PROMISE(agios_add_request("inside", RT_READ, 0, 1, 0, 0), "one that calls agios_exit");
	sem_wait(&held);
	all_calls_refused("not running");
}

/* Who asks is told every time; drop_in.rs looks at what is printed. */
static void flood(char *conf)
{
	char why[64];
	start(conf, ignore, NULL);
	for (int i = 0; i < 100000; i++) {
		snprintf(why, sizeof why, "at offset %d of", i);
		REFUSED(agios_release_request("never added", RT_READ, 1, i), why);
	}
	REFUSED(agios_cancel_request("never added", RT_READ, 1, 0), "no queued read");
	agios_exit();
	start(conf, ignore, NULL);
	REFUSED(agios_release_request("never added", RT_READ, 1, 0), "no dispatched read");
	agios_exit();
	start(conf, ignore, NULL);
	agios_exit();
}

static void restart(char *conf)
{
	aggregates = true;
	for (int i = 0; i < 50; i++) {
		prepare();
		start(conf, one, many);
		for (int id = 0; id < 100; id++)
			PROMISE(add(id), "request %d", id);
		stop();
		usleep(i % 5 * 100);
	}
}

static void trace(char *conf)
{
	PROMISE(agios_init(ignore, NULL, conf, 0), "%s", conf);
	PROMISE(agios_add_request("/a", RT_READ, 0, 4096, 1, 0), "first");
	PROMISE(agios_add_request("/with\ttab", RT_WRITE, 123456789012, 1, 2, 0), "second");
	PROMISE(agios_add_request("/a", RT_WRITE, 4096, 512, 3, 0), "third");
	agios_exit();
}

/* Memory for predictions is bounded, so that this loop ends; nothing that comes is any of them. */
static void full(char *conf)
{
	int64_t room = 0;
	prepare();
	start(conf, one, NULL);
	while (agios_foresee("never comes", RT_WRITE, room * LENGTH, LENGTH, room))
		room++;
	PROMISE(room >= 1000000, "there was room for %ld", (long)room);
	PROMISE(strstr(agios_last_error(), "no room for more predictions"), "it must say so");
	PROMISE(add(1), "a request");
	while (atomic_load(&dispatched) < 1)
		usleep(100);
	stop();
}

static void refuse(char *conf, int32_t max_queue_id)
{
	PROMISE(!agios_init(ignore, NULL, conf, max_queue_id), "%s must be refused", conf);
	printf("%s\n", agios_last_error());
}

int main(int count, char **arguments)
{
	char *mode = count > 1 ? arguments[1] : "", *conf = count > 2 ? arguments[2] : NULL;
	const char *more = count > 3 ? arguments[3] : "";
	sem_init(&held, 0, 0);
	sem_init(&gate, 0, 0);
	if (!strcmp(mode, "work"))
		work(conf, more);
	else if (!strcmp(mode, "cancel"))
		cancelling(conf, more);
	else if (!strcmp(mode, "switch"))
		switching(conf);
	else if (!strcmp(mode, "faults"))
		faults(conf);
	else if (!strcmp(mode, "flood"))
		flood(conf);
	else if (!strcmp(mode, "restart"))
		restart(conf);
	else if (!strcmp(mode, "trace"))
		trace(conf);
	else if (!strcmp(mode, "full"))
		full(conf);
	else if (!strcmp(mode, "refuse"))
		refuse(conf, atoi(more));
	else
		return fprintf(stderr, "usage: see the head of exercise.c\n"), 2;
	printf("ok\n");
	return 0;
}
