/* Two callers that move the stack pointer by different amounts before they call the same function, so that a return
 * address and a stack pointer say nothing about who called; frames are found by what a register held. */
#include <alloca.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static int file;
static volatile long sink;

static NOINLINE void store(long n)
{
	char text[64];
	memset(text, 'a' + n % 26, sizeof text);
	sink += write(file, text, 1 + n % 63);
}

static NOINLINE void first(long n)
{
	volatile char *room = alloca(16 + n % 5 * 16);
	room[0] = 1;
	store(n);
	sink += room[0];
}

static NOINLINE void second(long n)
{
	volatile char *room = alloca(16 + (n / 3) % 7 * 16);
	room[0] = 2;
	store(n);
	sink += room[0];
}

static NOINLINE void deeper(long depth, long n)
{
	if (depth > 0)
		deeper(depth - 1, n);
	else if (n % 2)
		first(n);
	else
		second(n);
	sink += depth;
}

int main(void)
{
	file = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	for (long n = 0; n < 20000; n++)
		if (n % 3)
			deeper(n % 4, n);
		else if (n % 5 < 3)
			first(n);
		else
			second(n);
	return close(file) != 0;
}
