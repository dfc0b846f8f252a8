/* agios.h: the C interface of Presagio's request scheduler, compatible with the second version of AGIOS.
 *
 * An I/O service hands its read and write requests to the scheduler, which decides in which order they
 * leave and which of them leave together, and calls the service back to have them served:
 *
 *     agios_init(one, many, "agios.conf", 0);
 *     agios_add_request("file", RT_READ, offset, length, my_identifier, 0);
 *         ... many(ids, n) is called: serve them; then, for each of them, ...
 *     agios_release_request("file", RT_READ, length, offset);
 *     agios_exit();
 *
 * Link with -lagios. A program built for AGIOS runs unchanged; where AGIOS crashed or hung, a call
 * returns false here.
 *
 * Errors. Every call that fails returns false and says why in one line on standard error, which starts
 * with "agios:" (set the environment variable AGIOS_QUIET to silence them), and in agios_last_error().
 * After 20 lines about one kind of fault a line says that further ones are only counted, and agios_exit
 * says how many there were; agios_last_error() always has the reason. No argument makes a call crash or
 * hang, except a pointer that is neither NULL nor valid.
 *
 * Threads. All functions may be called from any thread, and from inside the callbacks. There is one
 * scheduler per process. After a fork() the child cannot use it: its calls return false.
 *
 * Configuration. A file in libconfig's syntax. All keys are optional; this is what they are if not set (the
 * file crates/capi/agios.conf of the sources says the same and can be copied):
 *
 *     library_options: {
 *         default_algorithm = "SJF";             # NOOP TO TO-agg SJF MLF aIOLi SW TWINS WFQ HBRR
 *         trace = false;                         # write a trace of all requests as they arrive
 *         trace_file_prefix = "agios_tracefile"; # to prefix.N.sufix, N being the next number not taken
 *         trace_file_sufix = "out";
 *         max_trace_buffer_size = 1024;          # KB
 *         waiting_time = 900000;                 # ns, how long aIOLi and MLF wait for a better aggregation
 *         aioli_quantum = 65536;                 # bytes
 *         mlf_quantum = 8192;                    # bytes
 *         SW_window = 1000;                      # ms
 *         twins_window = 1000;                   # microseconds
 *         #wfq_conf = "weights.txt";             # a weight (bytes per turn) for each queue; needed by WFQ
 *                                                # only; from the current directory, else beside this file
 *
 *         # Not in AGIOS:
 *         ordering_guard = false;                # true: never reorder overlapping reads and writes;
 *                                                # false: they may be reordered, as in AGIOS
 *         starvation_bound = 0;                  # ms that a request waits at most, 0: no bound
 *         hbrr_quantum = 8;                      # batches per file and turn of HBRR
 *         aioli_synchronous = false;             # aIOLi waits for each batch to be released
 *         #foresight_trace = "FILE";             # a trace of requests that are expected again, see below
 *         foresight_request_us = 100;            # microseconds that the storage takes for any request,
 *         foresight_mb_per_s = 1000;             # and 10^6 bytes a second that it transfers
 *         #foresight_profile = "FILE";           # or a profile of it, by "presagio profile -o FILE DIR"
 *     };
 *
 * A file without the group library_options, even an empty one, means the defaults; a line says so.
 *
 * AGIOS's keys performance_values, select_algorithm_period, select_algorithm_min_reqnumber, enable_SW and
 * starting_algorithm are checked and have no effect: they belong to algorithms that choose algorithms,
 * which the second version of AGIOS does not have either.
 *
 * Batches. NOOP, TO and TWINS dispatch every request alone, and so do SW and WFQ, as in AGIOS. All others
 * dispatch up to 1024 requests that touch, of one file and type, together.
 *
 * A line of the trace is: nanoseconds since agios_init, file, R or W, offset, length, separated by tabs.
 * A tab, line end or backslash in a file's name is written \t, \n or \\.
 *
 * Foresight (the prediction module that the second version of AGIOS lost). A program that runs again, or
 * that repeats a step, mostly sends the same requests at the same times. Run it once with trace = true,
 * then with foresight_trace naming that file: when aIOLi, MLF, SJF or TO-agg are about to dispatch a
 * request to which, by the trace, others will soon be added, they wait for these, once, if the time lost
 * is less than what one larger access saves by foresight_request_us and foresight_mb_per_s, or by the
 * times of foresight_profile (measure your storage with it). The wait lasts until the last of them should have come, plus the tolerance below, and ends
 * early when the last one comes. Others are served meanwhile. A request is recognised by file, type,
 * offset, length and, within a tolerance of 10 % or 1 ms, whichever is more, the time since the first
 * request to its file, so the trace may be of any run that began at another moment. Requests that are not
 * recognised are scheduled as ever. The file is looked for like that of wfq_conf: from the current
 * directory, else beside the configuration. A line that is not one of a trace makes agios_init fail and
 * say which and why; of a trace that is too large (4 million requests) the start is used, and a line says
 * so. agios_foresee() announces single requests.
 */
#ifndef AGIOS_H
#define AGIOS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The types of request. */
#define RT_READ 0
#define RT_WRITE 1

/* Starts the scheduler.
 *
 * one           called with the identifier of a request that is to be served now.
 * many          called with the identifiers of several requests to be served together: they are of one
 *               file and type, in offset order, each starting exactly where the one before it ends.
 *               NULL: one is called for each of them, in that order. The array is valid during the call.
 *               One of the two functions may be NULL. What they return is ignored.
 * config_file   NULL or "": /etc/agios.conf, and the defaults if that does not exist. A file that is
 *               named must exist, be readable, and be correct.
 * max_queue_id  the largest queue_id that will be passed to agios_add_request; 0 for programs that have
 *               no queues.
 *
 * Callbacks run on a thread of the library, one at a time. With NOOP they run inside agios_add_request,
 * so several may run at a time; where ordering_guard is on, or callbacks that add requests are nested 32
 * deep, the library's thread calls back there too. */
bool agios_init(void *(*one)(int64_t id), void *(*many)(int64_t *ids, int32_t n), char *config_file,
                int32_t max_queue_id);

/* Hands over a request: len bytes at offset of the file.
 *
 * file_id      any string of bytes; it is copied, once per file, and kept until agios_exit: about 100 bytes
 *              of memory for each distinct file, and more if the name is longer than 48 bytes.
 * type         RT_READ or RT_WRITE.
 * identifier   any number; the callbacks get it.
 * queue_id     from 0 to max_queue_id: the data server (TWINS), the weight class (WFQ) or the application
 *              (SW). If max_queue_id is 0 it must be 0 for TWINS and WFQ, and is ignored by the others. */
bool agios_add_request(char *file_id, int32_t type, int64_t offset, int64_t len, int64_t identifier,
                       int32_t queue_id);

/* Tells that a request that was given to a callback has been served. Mind the order: length, offset.
 * False if there is no such request, or it was released before. Of several that are alike, one is. */
bool agios_release_request(char *file_id, int32_t type, int64_t len, int64_t offset);

/* Takes back a request that was not given to a callback yet. Mind the order: length, offset.
 * False if there is no such request: it is unknown, was dispatched, or was cancelled before. */
bool agios_cancel_request(char *file_id, int32_t type, int64_t len, int64_t offset);

/* Stops the scheduler. Requests that were not given to a callback are dropped, and a line says how many.
 * When it returns no callback is running, except one that called it, and those inside of what other
 * threads call meanwhile with NOOP. agios_init may be called again. */
void agios_exit(void);

/* Not in AGIOS: why the last call of this thread that failed did; "" if none did. The text is valid until
 * the next call of this thread that fails. */
const char *agios_last_error(void);

/* Not in AGIOS: announces a request that is likely to come after_ns nanoseconds after the first request to
 * its file (see Foresight above). It stays known until agios_exit, for every repetition. A request that
 * never comes does no harm, beyond perhaps a wait. Announce what is known before it starts to come: the
 * announced requests are sorted anew when the next request arrives.
 * False, besides wrong arguments as for agios_add_request: there is no room (4 million are kept). */
bool agios_foresee(char *file_id, int32_t type, int64_t offset, int64_t len, int64_t after_ns);

/* Not in AGIOS: continues with another algorithm. Requests that are queued stay so, none is lost. */
bool agios_set_algorithm(const char *name);

#ifdef __cplusplus
}
#endif

#endif
