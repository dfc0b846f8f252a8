/* The unwinder, found when it is needed.
 *
 * Rust's standard library refers to libgcc_s, which takes a tenth of a millisecond to load: every short process of a
 * build would pay for it, and we never panic. Where a thread is cancelled, the C library loads it, and unwinds through
 * our frames: then these functions have to be the real ones. So they are looked up at their first call. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void *find(const char *name)
{
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function)
        abort();
    return function;
}

#define FORWARD(result, name, parameters, arguments) \
    result name parameters;                          \
    result name parameters                           \
    {                                                \
        static result(*real) parameters;             \
        if (!real)                                   \
            real = find(#name);                      \
        return real arguments;                       \
    }

typedef void *context;
typedef void *exception;

FORWARD(int, _Unwind_Backtrace, (void *trace, void *argument), (trace, argument))
FORWARD(int, _Unwind_RaiseException, (exception e), (e))
FORWARD(void, _Unwind_Resume, (exception e), (e))
FORWARD(void, _Unwind_DeleteException, (exception e), (e))
FORWARD(uintptr_t, _Unwind_GetIP, (context c), (c))
FORWARD(uintptr_t, _Unwind_GetIPInfo, (context c, int *before), (c, before))
FORWARD(uintptr_t, _Unwind_GetCFA, (context c), (c))
FORWARD(uintptr_t, _Unwind_GetRegionStart, (context c), (c))
FORWARD(uintptr_t, _Unwind_GetTextRelBase, (context c), (c))
FORWARD(uintptr_t, _Unwind_GetDataRelBase, (context c), (c))
FORWARD(void *, _Unwind_GetLanguageSpecificData, (context c), (c))
FORWARD(void *, _Unwind_FindEnclosingFunction, (void *pc), (pc))
FORWARD(void, _Unwind_SetGR, (context c, int number, uintptr_t value), (c, number, value))
FORWARD(void, _Unwind_SetIP, (context c, uintptr_t value), (c, value))
