/* Copying and comparing, for this library alone. The C library has several kinds of each of these, and its loader would look
 * each of them up and choose one whenever a process starts. Little is copied here, and mostly what lies close by. */

#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>

/* Beside what runs at the start of a process, which is what needs them there (life.rs). */
#define OURS __attribute__((visibility("hidden"), section(".presagio.start")))

OURS void *memcpy(void *restrict to, const void *restrict from, size_t n);
OURS void *memmove(void *to, const void *from, size_t n);
OURS void *memset(void *to, int value, size_t n);
OURS int memcmp(const void *a, const void *b, size_t n);
OURS int bcmp(const void *a, const void *b, size_t n);
OURS size_t strlen(const char *text);

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    void *start = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
    return start;
}

void *memmove(void *to, const void *from, size_t n)
{
    if ((uintptr_t)to - (uintptr_t)from >= n)
        return memcpy(to, from, n);
    while (n-- > 0)
        ((char *)to)[n] = ((const char *)from)[n];
    return to;
}

void *memset(void *to, int value, size_t n)
{
    void *start = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
    return start;
}

int memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n; i++)
        if (x[i] != y[i])
            return x[i] - y[i];
    return 0;
}

int bcmp(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n);
}

/* Sixteen bytes at a time, as they are aligned: these never reach into a page that the text has no part of. */
size_t strlen(const char *text)
{
    unsigned before = (uintptr_t)text & 15;
    const __m128i *at = (const __m128i *)(text - before), zero = _mm_setzero_si128();
    unsigned zeros = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_load_si128(at), zero)) >> before;
    if (zeros)
        return (size_t)__builtin_ctz(zeros);
    do
        zeros = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_load_si128(++at), zero));
    while (!zeros);
    return (size_t)((const char *)at - text) + (size_t)__builtin_ctz(zeros);
}
