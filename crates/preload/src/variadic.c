/* What Rust cannot say: functions with variable arguments, and thread-local storage that takes no call to reach.
 *
 * Each function here stands behind a symbol of the C library (see trampoline.rs) and hands its arguments, as a
 * list, to the hook of the function that takes one (stdio/hooks.rs). */

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

/* Thread in thread.rs. Initial-exec, because the library is there from the start: the offset is a constant, no
 * function has to be called to find it, and nothing is allocated for a new thread. */
__thread __attribute__((tls_model("initial-exec"), aligned(64))) uint64_t presagio_thread[32];

#define BODY(call)              \
    {                           \
        va_list list;           \
        va_start(list, format); \
        int result = call;      \
        va_end(list);           \
        return result;          \
    }

/* On a stream, on the standard one, and both with the flag that fortified programs pass. */
#define ON_STREAM(name, character)                                          \
    int presagio_v##name(FILE *, const character *, va_list);               \
    int presagio_##name(FILE *, const character *, ...);                    \
    int presagio_##name(FILE *stream, const character *format, ...)         \
        BODY(presagio_v##name(stream, format, list))

#define ON_STANDARD(name, character)                                        \
    int presagio_v##name(const character *, va_list);                       \
    int presagio_##name(const character *, ...);                            \
    int presagio_##name(const character *format, ...)                       \
        BODY(presagio_v##name(format, list))

#define CHECKED_ON_STREAM(name, character)                                  \
    int presagio_v##name(FILE *, int, const character *, va_list);          \
    int presagio_##name(FILE *, int, const character *, ...);               \
    int presagio_##name(FILE *stream, int flag, const character *format, ...) \
        BODY(presagio_v##name(stream, flag, format, list))

#define CHECKED_ON_STANDARD(name, character)                                \
    int presagio_v##name(int, const character *, va_list);                  \
    int presagio_##name(int, const character *, ...);                       \
    int presagio_##name(int flag, const character *format, ...)             \
        BODY(presagio_v##name(flag, format, list))

ON_STREAM(fprintf, char)
ON_STREAM(fwprintf, wchar_t)
ON_STREAM(fscanf, char)
ON_STREAM(fwscanf, wchar_t)
ON_STREAM(isoc99_fscanf, char)
ON_STREAM(isoc99_fwscanf, wchar_t)
ON_STREAM(isoc23_fscanf, char)
ON_STREAM(isoc23_fwscanf, wchar_t)

ON_STANDARD(printf, char)
ON_STANDARD(wprintf, wchar_t)
ON_STANDARD(scanf, char)
ON_STANDARD(wscanf, wchar_t)
ON_STANDARD(isoc99_scanf, char)
ON_STANDARD(isoc99_wscanf, wchar_t)
ON_STANDARD(isoc23_scanf, char)
ON_STANDARD(isoc23_wscanf, wchar_t)

CHECKED_ON_STREAM(fprintf_chk, char)
CHECKED_ON_STREAM(fwprintf_chk, wchar_t)

CHECKED_ON_STANDARD(printf_chk, char)
CHECKED_ON_STANDARD(wprintf_chk, wchar_t)

/* On a descriptor. */
int presagio_vdprintf(int, const char *, va_list);
int presagio_dprintf(int, const char *, ...);
int presagio_dprintf(int descriptor, const char *format, ...)
    BODY(presagio_vdprintf(descriptor, format, list))

int presagio_vdprintf_chk(int, int, const char *, va_list);
int presagio_dprintf_chk(int, int, const char *, ...);
int presagio_dprintf_chk(int descriptor, int flag, const char *format, ...)
    BODY(presagio_vdprintf_chk(descriptor, flag, format, list))

/* Who a destructor of a thread's belongs to; otherwise the compiler's startup files have it. */
void *__dso_handle __attribute__((visibility("hidden"))) = &__dso_handle;

/* What Rust's standard library asks the C library for only to describe a panic, and nobody here panics: the loader would look
 * each of them up whenever a process starts. No variable asks for a description, so the others are not reached. The types are
 * left out: <stdlib.h> and others would declare them differently. */
#define UNUSED(name, result)                                               \
    __attribute__((visibility("hidden"))) long name(void) { return result; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"
UNUSED(malloc, 0)
UNUSED(realloc, 0)
UNUSED(free, 0)
UNUSED(gettid, 0)
UNUSED(pthread_key_delete, 0)
UNUSED(__cxa_thread_atexit_impl, 0)
UNUSED(munmap, 0)
UNUSED(readlink, -1)
UNUSED(getenv, 0)
UNUSED(getcwd, 0)
UNUSED(realpath, 0)
UNUSED(stat64, -1)
UNUSED(fstat64, -1)
UNUSED(statx, -1)
#pragma GCC diagnostic pop
