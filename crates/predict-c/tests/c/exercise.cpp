/* What a C++ program may expect of presagio_predict.hpp. programs.rs compiles and runs it. It ends at the first
 * broken promise, with a message and status 1. */
#include "presagio_predict.hpp"

#include <cstdio>
#include <cstdlib>
#include <type_traits>

#define PROMISE(holds)                                                                                  \
	do {                                                                                            \
		if (!(holds)) {                                                                         \
			std::fprintf(stderr, "broken promise, line %d: %s (last error: %s)\n",          \
			             __LINE__, #holds, presagio_last_error());                          \
			std::exit(1);                                                                   \
		}                                                                                       \
	} while (0)

static_assert(!std::is_copy_constructible_v<presagio::oracle>, "a model is not copied by accident");
static_assert(std::is_nothrow_move_constructible_v<presagio::oracle>, "");
static_assert(std::is_nothrow_copy_constructible_v<presagio::iterator>, "");

/* A program that opens a file in each step, writes a header and three blocks, and closes it. */
constexpr std::uint64_t STEP = 6;

static presagio::event operation(std::uint64_t number)
{
	presagio::event event{};
	std::uint64_t n = number % STEP;
	event.time = number * 1000;
	event.duration = 100;
	event.file = number / STEP;
	event.context = static_cast<std::uint32_t>(n < 2 || n == 5 ? n + 1 : 3);
	event.action = n == 0 ? PRESAGIO_OPEN : n == 5 ? PRESAGIO_CLOSE : PRESAGIO_WRITE;
	event.len = n == 0 || n == 5 ? 0 : n == 1 ? 512 : 8192;
	event.offset = n < 2 || n == 5 ? 0 : 512 + (n - 2) * 8192;
	event.result = static_cast<std::int64_t>(event.len);
	return event;
}

static presagio::oracle oracle_of(std::uint64_t operations)
{
	presagio::oracle oracle;
	for (std::uint64_t number = 0; number < operations; number++)
		PROMISE(oracle.observe(operation(number)));
	return oracle;
}

static void predictions_are_right_three_steps_ahead()
{
	constexpr std::uint64_t from = 5 * STEP + 2;
	presagio::oracle io_model = oracle_of(from);
	presagio::iterator ahead = io_model.best();
	for (std::uint64_t number = from; number < from + 3 * STEP; number++, ahead++) {
		presagio::event event = operation(number);
		std::uint64_t steps = number / STEP - from / STEP;
		presagio::file file{steps ? steps - 1 : event.file, steps > 0};
		PROMISE(ahead != io_model.end());
		PROMISE(ahead->type() == static_cast<presagio_action>(event.action));
		PROMISE(ahead->offset() == event.offset && ahead->size() == event.len);
		PROMISE(ahead->file() == file);
		PROMISE(ahead->elapsed() == std::chrono::nanoseconds(number == from ? 900 : 1000));
		PROMISE(ahead->after() == std::chrono::nanoseconds((number - from) * 1000 + 900));
		PROMISE(ahead->confidence() > (number == from ? 0.8 : 0.0) && ahead->confidence() <= 1.0);
	}
}

static void one_can_go_through_all_ways_to_their_ends()
{
	presagio::oracle io_model = oracle_of(5 * STEP + 3);
	double sum = 0.0;
	PROMISE(!io_model.predict().empty() && io_model.predict(0).empty() && io_model.predict(1).size() == 1);
	for (auto &[operation, weight] : io_model.predict()) {
		long steps = 0;
		for (sum += weight; operation != io_model.end(); ++operation)
			steps++;
		PROMISE(steps == PRESAGIO_HORIZON);
	}
	PROMISE(sum > 0.999 && sum < 1.001);
}

static void copies_go_their_own_way()
{
	presagio::oracle io_model = oracle_of(5 * STEP);
	presagio::iterator here = io_model.best(), there = here, moved = std::move(there);
	there = here;
	PROMISE(here != there && here->type() == there->type());
	presagio::iterator before = here++;
	PROMISE(before->type() == PRESAGIO_OPEN && here->type() == PRESAGIO_WRITE);
	PROMISE(there->type() == PRESAGIO_OPEN && (*++there).type() == PRESAGIO_WRITE);
	PROMISE((++moved)->type() == PRESAGIO_WRITE);
}

static void iterators_end_when_the_oracle_changes_or_goes()
{
	presagio::iterator left;
	{
		presagio::oracle io_model = oracle_of(5 * STEP);
		presagio::iterator stale = io_model.best();
		PROMISE(io_model.observe(operation(5 * STEP)));
		PROMISE(stale->type() == PRESAGIO_OPEN);
		PROMISE(++stale == io_model.end());
		PROMISE(++stale == io_model.end());
		left = io_model.best();
	}
	PROMISE(left->type() == PRESAGIO_WRITE);
	PROMISE(++left == presagio::iterator());
}

static void nothing_known_is_the_end()
{
	presagio::oracle io_model;
	PROMISE(io_model.predict().empty() && io_model.best() == io_model.end());
	presagio::event wrong{};
	wrong.action = 99;
	PROMISE(!io_model.observe(wrong) && io_model.observe(operation(0)));
	PROMISE(io_model.name_context(1, 77) && !io_model.name_context(0, 77));
	io_model.lose_track();
	PROMISE(io_model.best() == io_model.end());
}

static void what_cannot_be_loaded_throws()
{
	try {
		presagio::oracle::load("no/such/file", 1);
	} catch (const std::runtime_error &error) {
		PROMISE(std::string(error.what()).find("no/such/file") != std::string::npos);
		return;
	}
	PROMISE(!"loaded what is not there");
}

int main()
{
	predictions_are_right_three_steps_ahead();
	one_can_go_through_all_ways_to_their_ends();
	copies_go_their_own_way();
	iterators_end_when_the_oracle_changes_or_goes();
	nothing_known_is_the_end();
	what_cannot_be_loaded_throws();
	return 0;
}
