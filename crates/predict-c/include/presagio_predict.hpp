/* presagio_predict.hpp: predicts the next I/O operations of a program, for middleware in C++17.
 *
 * Only names and lifetimes on top of presagio_predict.h, which says what everything means; the way to use it is
 * that of Omnisc'IO (Dorier et al., RR-8725, Appendix A):
 *
 *     presagio::oracle io_model;
 *     io_model.observe(event);
 *     for (auto &[operation, weight] : io_model.predict())
 *         for (; operation != io_model.end() && operation->confidence() > 0.8; ++operation)
 *             ... operation->type(), operation->offset(), operation->size() ...
 *
 * Exceptions come from making an oracle, and where memory runs out. An iterator that is moved on after the oracle
 * has changed, or is gone, is at the end.
 */
#ifndef PRESAGIO_PREDICT_HPP
#define PRESAGIO_PREDICT_HPP

#include "presagio_predict.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace presagio {

/* An operation that has just ended; begin with event{}. */
using event = presagio_event;

/* A file that will be used: one that was observed, or the n-th new one. */
struct file {
	std::uint64_t number;
	bool is_new;

	friend bool operator==(file a, file b) noexcept { return a.number == b.number && a.is_new == b.is_new; }
	friend bool operator!=(file a, file b) noexcept { return !(a == b); }
};

/* An operation that is expected. */
class operation {
public:
	presagio_action type() const noexcept { return static_cast<presagio_action>(said.action); }
	presagio::file file() const noexcept { return {said.file, said.file_is_new != 0}; }
	std::uint64_t offset() const noexcept { return said.offset; }
	std::uint64_t size() const noexcept { return said.len; }
	/* Since the operation before it began. */
	std::chrono::nanoseconds elapsed() const noexcept { return span(said.elapsed); }
	/* Since the last observed operation ended. */
	std::chrono::nanoseconds after() const noexcept { return span(said.after); }
	double confidence() const noexcept { return said.confidence; }

private:
	friend class iterator;
	static std::chrono::nanoseconds span(std::uint64_t ns) noexcept
	{
		return std::chrono::nanoseconds(ns > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(ns));
	}
	presagio_predicted said{};
};

/* Goes through the operations of one way. What it points to is read when it gets there, so a program can look
 * at the operation that it is at even after the oracle has observed more. */
class iterator {
public:
	using iterator_category = std::input_iterator_tag;
	using value_type = operation;
	using difference_type = std::ptrdiff_t;
	using pointer = const operation *;
	using reference = const operation &;

	/* The end. */
	iterator() noexcept = default;
	/* Reads on from a cursor, which it frees. */
	explicit iterator(presagio_cursor *owned) noexcept : cursor(owned) { read(); }

	iterator(const iterator &other) noexcept : cursor(copy(other.cursor.get())), at(other.at) {}
	iterator(iterator &&) noexcept = default;
	iterator &operator=(iterator other) noexcept
	{
		std::swap(cursor, other.cursor);
		std::swap(at, other.at);
		return *this;
	}

	reference operator*() const noexcept { return at; }
	pointer operator->() const noexcept { return &at; }

	iterator &operator++() noexcept
	{
		read();
		return *this;
	}
	iterator operator++(int) noexcept
	{
		iterator before(*this);
		read();
		return before;
	}

	/* As with other input iterators: whether both are at the end, or are the same object. */
	friend bool operator==(const iterator &a, const iterator &b) noexcept { return a.cursor == b.cursor; }
	friend bool operator!=(const iterator &a, const iterator &b) noexcept { return !(a == b); }

private:
	struct release {
		void operator()(presagio_cursor *cursor) const noexcept { presagio_cursor_free(cursor); }
	};

	static presagio_cursor *copy(const presagio_cursor *cursor) noexcept
	{
		return cursor ? presagio_cursor_copy(cursor) : nullptr;
	}

	void read() noexcept
	{
		if (cursor && presagio_cursor_next(cursor.get(), &at.said) != PRESAGIO_OK)
			cursor.reset();
	}

	std::unique_ptr<presagio_cursor, release> cursor;
	operation at;
};

/* The model of one stream of operations. */
class oracle {
public:
	/* One that knows nothing. */
	oracle() : oracle(presagio_model_new()) {}

	/* One that was saved; throws where there is none, or it is of another program. */
	static oracle load(const std::string &path, std::uint64_t program_id)
	{
		return oracle(presagio_model_load(path.c_str(), program_id));
	}

	bool save(const std::string &path, std::uint64_t program_id) const noexcept
	{
		return presagio_model_save(model.get(), path.c_str(), program_id) == PRESAGIO_OK;
	}

	/* Learns from an operation; false if it makes no sense, presagio_last_error() says why. */
	bool observe(const event &event) noexcept { return presagio_observe(model.get(), &event) == PRESAGIO_OK; }

	bool name_context(std::uint32_t context, std::uint64_t stack_hash) noexcept
	{
		return presagio_name_context(model.get(), context, stack_hash) == PRESAGIO_OK;
	}

	void lose_track() noexcept { presagio_lose_track(model.get()); }

	/* Up to max ways that the stream may go on, with their weights, the likeliest first. */
	std::vector<std::pair<iterator, double>> predict(std::size_t max = 8) const
	{
		std::vector<presagio_way> ways(max);
		std::vector<std::pair<iterator, double>> predictions;
		predictions.reserve(max);
		std::size_t count = 0;
		if (max > 0)
			presagio_predict(model.get(), ways.data(), max, &count);
		for (std::size_t i = 0; i < count; i++)
			predictions.emplace_back(iterator(ways[i].cursor), ways[i].weight);
		return predictions;
	}

	/* The way to act upon, if only one is wanted; the end if nothing was observed. */
	iterator best() const noexcept
	{
		presagio_cursor *cursor = nullptr;
		presagio_best(model.get(), &cursor);
		return iterator(cursor);
	}

	/* Behind the last operation of every way. */
	iterator end() const noexcept { return {}; }

private:
	explicit oracle(presagio_model *owned) : model(owned)
	{
		if (!model)
			throw std::runtime_error(presagio_last_error());
	}

	struct release {
		void operator()(presagio_model *model) const noexcept { presagio_model_free(model); }
	};

	std::unique_ptr<presagio_model, release> model;
};

} // namespace presagio

#endif
