/* A second opinion about call stacks. Preloaded behind libpresagio.so, it gets every call that the library passes on to
 * the C library, and writes down the stack that the C runtime's own unwinder finds, from the program's frame outwards:
 *
 *   thread, time (ns on CLOCK_MONOTONIC), frames as module+0xoffset, innermost first
 *
 * one line a call, into the file that WITNESS names. It uses no function that it could be called by. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

enum { DEPTH_MAX = 64, LINE_MAX_BYTES = 32 << 10 };

struct call {
	const char *name;
	void *real;
};

static long raw(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return result;
}

struct line {
	size_t used;
	int frames;
	char text[LINE_MAX_BYTES];
};

static const char *module_name(const struct link_map *map)
{
	static char main_program[4096];
	if (map->l_name[0])
		return map->l_name;
	if (!main_program[0])
		raw(SYS_readlink, (long)"/proc/self/exe", (long)main_program, sizeof main_program - 1, 0);
	return main_program;
}

static void add(struct line *line, const char *text)
{
	size_t length = strlen(text);
	if (line->used + length < sizeof line->text) {
		memcpy(line->text + line->used, text, length);
		line->used += length;
	}
}

static void add_number(struct line *line, uint64_t number, unsigned base)
{
	char digits[32], *at = digits + sizeof digits;
	*--at = 0;
	do
		*--at = "0123456789abcdef"[number % base];
	while ((number /= base) != 0);
	add(line, at);
}

static void add_frame(struct line *line, uintptr_t address, const struct link_map *map)
{
	add(line, line->frames++ ? ";" : "\t");
	add(line, module_name(map));
	add(line, "+0x");
	add_number(line, address - map->l_addr, 16);
}

/* Frames of ours and of the library, which come first, are not the program's. */
static int is_watching(const struct link_map *map)
{
	return strstr(map->l_name, "libpresagio.so") || strstr(map->l_name, "witness");
}

static _Unwind_Reason_Code visit(struct _Unwind_Context *frame, void *argument)
{
	struct line *line = argument;
	int interrupted = 0;
	uintptr_t address = _Unwind_GetIPInfo(frame, &interrupted);
	struct dl_find_object module;
	if (interrupted || line->frames == DEPTH_MAX || !address || _dl_find_object((void *)(address - 1), &module))
		return _URC_END_OF_STACK;
	if (line->frames || !is_watching(module.dlfo_link_map))
		add_frame(line, address, module.dlfo_link_map);
	return _URC_NO_REASON;
}

static void write_down(const struct line *line)
{
	const char *path = getenv("WITNESS");
	if (!path)
		return;
	long log = raw(SYS_openat, AT_FDCWD, (long)path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log < 0)
		return;
	raw(SYS_write, log, (long)line->text, line->used, 0);
	raw(SYS_close, log, 0, 0, 0);
}

static void note(void)
{
	struct timespec now;
	struct line line = {0};
	clock_gettime(CLOCK_MONOTONIC, &now);
	add_number(&line, raw(SYS_gettid, 0, 0, 0, 0), 10);
	add(&line, "\t");
	add_number(&line, now.tv_sec * 1000000000ull + now.tv_nsec, 10);
	_Unwind_Backtrace(visit, &line);
	add(&line, "\n");
	write_down(&line);
}

/* Called by each symbol below; gives the function that it stands in front of. */
__attribute__((visibility("hidden"), used)) void *witness(struct call *call)
{
	int kept = errno;
	if (!call->real)
		call->real = dlsym(RTLD_NEXT, call->name);
	note();
	errno = kept;
	return call->real;
}

/* A symbol that notes the call and jumps on, whatever its arguments are: none of these take any in vector registers. */
#define CALL(name)                                                                                  \
	__attribute__((visibility("hidden"), used)) struct call witness_##name = {#name, 0};            \
	__asm__(".globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n"            \
	        "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %rax\n"            \
	        ".cfi_adjust_cfa_offset 56\nlea witness_" #name "(%rip), %rdi\ncall witness\n"          \
	        "mov %rax, %r11\n"                                                                      \
	        "pop %rax\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"                   \
	        ".cfi_adjust_cfa_offset -56\njmp *%r11\n.cfi_endproc\n");

CALL(open) CALL(open64) CALL(openat) CALL(openat64) CALL(creat) CALL(creat64)
CALL(__open_2) CALL(__open64_2) CALL(__openat_2) CALL(__openat64_2)
CALL(mkstemp) CALL(mkstemp64) CALL(mkostemp) CALL(mkostemp64) CALL(mkstemps) CALL(mkstemps64)
CALL(close) CALL(dup) CALL(dup2) CALL(dup3) CALL(fcntl) CALL(fcntl64) CALL(lseek) CALL(lseek64)
CALL(read) CALL(write) CALL(pread) CALL(pwrite) CALL(pread64) CALL(pwrite64)
CALL(__read_chk) CALL(__pread_chk) CALL(__pread64_chk)
CALL(readv) CALL(writev) CALL(preadv) CALL(pwritev) CALL(preadv64) CALL(pwritev64)
CALL(sendfile) CALL(sendfile64) CALL(copy_file_range)
CALL(ftruncate) CALL(ftruncate64) CALL(fsync) CALL(fdatasync) CALL(fallocate) CALL(fallocate64)
CALL(posix_fallocate) CALL(posix_fallocate64) CALL(sync_file_range) CALL(mmap) CALL(mmap64)
CALL(fopen) CALL(fopen64) CALL(freopen) CALL(freopen64) CALL(fclose) CALL(fflush)
CALL(fread) CALL(fwrite) CALL(fread_unlocked) CALL(fwrite_unlocked) CALL(__fread_chk)
CALL(fputs) CALL(fputs_unlocked) CALL(fputc) CALL(putc) CALL(puts) CALL(putchar) CALL(__overflow)
CALL(fgets) CALL(fgets_unlocked) CALL(__fgets_chk) CALL(fgetc) CALL(getc) CALL(getline) CALL(getdelim) CALL(__getdelim)
CALL(__uflow) CALL(__underflow) CALL(ungetc)
CALL(fseek) CALL(fseeko) CALL(fseeko64) CALL(rewind)
CALL(vfprintf) CALL(vprintf) CALL(__vfprintf_chk) CALL(__vprintf_chk)
