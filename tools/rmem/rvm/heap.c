// SPDX-License-Identifier: MIT
/*
 * rvm_alloc() and rvm_free(): blocks with boundary tags after Knuth (The Art of Computer Programming, 2.5). Free blocks are in a
 * list for each power of two. A block knows its own size and that of the block before it. So a block that is freed is joined with
 * free neighbours at once, and no two free blocks lie side by side.
 *
 * All state lies in the recoverable memory, and txn_touch() announces each change of it. So rvm_abort() undoes it, and the next
 * process goes on with it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

struct block {
	uint64_t size;	 /* of the block with these two words, a multiple of 16; the low bits are flags */
	uint64_t before; /* size of the block before; 0: this is the first */
	/* From here on the bytes are the program's. A free block has here: */
	struct block *next;
	struct block *prev; /* NULL: first of its bin */
};

enum {
	BLOCK_USED = 1,
	BLOCK_JOINED = 2, /* was freed, and is a part of another block now */
	BLOCK_FLAGS = 15,

	BLOCK_HEAD = 16,
	BLOCK_MIN = sizeof(struct block),
	SCAN = 16, /* blocks of the own bin that are looked at before a larger bin is taken */
};
_Static_assert(BLOCK_MIN == 32, "links of a free block");

static uint64_t size_of(const struct block *b)
{
	return b->size & ~(uint64_t)BLOCK_FLAGS;
}

static bool is_used(const struct block *b)
{
	return b->size & BLOCK_USED;
}

static struct block *at(const struct block *b, int64_t offset)
{
	return (struct block *)((uintptr_t)b + offset);
}

static struct block *after(const struct block *b)
{
	return at(b, size_of(b));
}

static struct heap *heap_of(struct rvm *v)
{
	return &rvm_header(v)->heap;
}

/* A used block of 16 bytes ends the heap. */
static struct block *heap_end(struct rvm *v)
{
	return (struct block *)(v->mem + v->size - BLOCK_HEAD);
}

static unsigned int bin_of(uint64_t size)
{
	unsigned int bin = 63 - __builtin_clzll(size);

	return bin < HEAP_BINS ? bin : HEAP_BINS - 1;
}

/* ------------------------------------------------------------------ lists */

static void set_bin(struct rvm *v, unsigned int bin, struct block *b)
{
	struct heap *h = heap_of(v);

	txn_touch(v, h, sizeof(*h));
	h->bins[bin] = b;
	h->map = b ? h->map | 1ull << bin : h->map & ~(1ull << bin);
}

/* @b becomes a free block of @size. */
static void put_free(struct rvm *v, struct block *b, uint64_t size)
{
	unsigned int bin = bin_of(size);
	struct block *next = heap_of(v)->bins[bin];

	txn_touch(v, b, sizeof(*b));
	b->size = size;
	b->next = next;
	b->prev = NULL;
	if (next) {
		txn_touch(v, &next->prev, sizeof(next->prev));
		next->prev = b;
	}
	set_bin(v, bin, b);
	txn_touch(v, after(b), BLOCK_HEAD);
	after(b)->before = size;
}

static void take_free(struct rvm *v, struct block *b)
{
	if (b->next) {
		txn_touch(v, &b->next->prev, sizeof(b->next->prev));
		b->next->prev = b->prev;
	}
	if (b->prev) {
		txn_touch(v, &b->prev->next, sizeof(b->prev->next));
		b->prev->next = b->next;
	} else {
		set_bin(v, bin_of(size_of(b)), b->next);
	}
}

static struct block *first_fit(struct block *b, uint64_t size, size_t limit)
{
	for (; b && limit; b = b->next, limit--)
		if (size_of(b) >= size)
			return b;
	return NULL;
}

/* Any block of a larger bin fits. The rest of the own bin is searched last, since it may be long. */
static struct block *find_free(struct rvm *v, uint64_t size)
{
	struct heap *h = heap_of(v);
	unsigned int bin = bin_of(size);
	struct block *b = first_fit(h->bins[bin], size, SCAN);
	uint64_t larger = h->map & ~((2ull << bin) - 1);

	if (!b && larger)
		b = h->bins[__builtin_ctzll(larger)];
	return b ? b : first_fit(h->bins[bin], size, SIZE_MAX);
}

/* ------------------------------------------------------------------ alloc */

static void make_heap(struct rvm *v)
{
	struct block *first = (struct block *)(v->mem + RVM_PAGE), *end = heap_end(v);

	txn_touch(v, heap_of(v), sizeof(struct heap));
	txn_touch(v, first, BLOCK_HEAD);
	txn_touch(v, end, BLOCK_HEAD);
	heap_of(v)->first = first;
	first->before = 0;
	end->size = BLOCK_HEAD | BLOCK_USED;
	put_free(v, first, (uintptr_t)end - (uintptr_t)first);
}

static void use(struct rvm *v, struct block *b, uint64_t size)
{
	uint64_t rest = size_of(b) - size;

	take_free(v, b);
	txn_touch(v, b, BLOCK_HEAD);
	if (rest < BLOCK_MIN) {
		b->size |= BLOCK_USED;
		return;
	}
	b->size = size | BLOCK_USED;
	txn_touch(v, after(b), BLOCK_HEAD);
	after(b)->before = size;
	put_free(v, after(b), rest);
}

void *rvm_alloc(struct rvm *v, size_t size)
{
	struct block *b = NULL;

	if (!txn_mine(v)) {
		errno = EPERM;
		return NULL;
	}
	if (!heap_of(v)->first)
		make_heap(v);
	if (size < v->size) {
		size = (size + BLOCK_HEAD + BLOCK_FLAGS) & ~(size_t)BLOCK_FLAGS;
		size = size < BLOCK_MIN ? BLOCK_MIN : size;
		b = find_free(v, size);
	}
	if (!b) {
		errno = ENOMEM;
		return NULL;
	}
	use(v, b, size);
	return at(b, BLOCK_HEAD);
}

/* ------------------------------------------------------------------ free */

static _Noreturn void bad_free(const void *p, const char *what)
{
	fprintf(stderr, "rvm_free(%p): %s\n", p, what);
	abort();
}

/* Both neighbours must agree with @b about the sizes. */
static bool tags_agree(struct rvm *v, const struct block *b)
{
	uintptr_t start = (uintptr_t)heap_of(v)->first, end = (uintptr_t)heap_end(v), here = (uintptr_t)b;
	uint64_t size = size_of(b);

	if (size < BLOCK_MIN || size > end - here || after(b)->before != size)
		return false;
	if (here == start)
		return b->before == 0;
	if (b->before < BLOCK_MIN || b->before % 16 || b->before > here - start)
		return false;
	return size_of(at(b, -b->before)) == b->before;
}

/* What is wrong with a pointer that is to be freed; NULL: nothing. */
static const char *bad_pointer(struct rvm *v, const void *p)
{
	uintptr_t start = (uintptr_t)heap_of(v)->first, end = (uintptr_t)heap_end(v), here = (uintptr_t)p - BLOCK_HEAD;
	const struct block *b = (const struct block *)here;

	if (!start || (uintptr_t)p < start + BLOCK_HEAD || here >= end || here % 16)
		return "not a pointer of rvm_alloc()";
	if (b->size == BLOCK_JOINED || (tags_agree(v, b) && !is_used(b)))
		return "freed already";
	if ((b->size & BLOCK_FLAGS) != BLOCK_USED || !tags_agree(v, b))
		return "not a pointer of rvm_alloc(), or something wrote over what lies before it";
	return NULL;
}

void rvm_free(struct rvm *v, void *p)
{
	struct block *b = (struct block *)((uintptr_t)p - BLOCK_HEAD);
	const char *bad;
	uint64_t size;

	if (!p)
		return;
	bad = txn_mine(v) ? bad_pointer(v, p) : "no transaction of this thread";
	if (bad)
		bad_free(p, bad);
	size = size_of(b);
	txn_touch(v, b, BLOCK_HEAD);
	if (!is_used(after(b))) {
		struct block *next = after(b);

		take_free(v, next);
		size += size_of(next);
		txn_touch(v, next, BLOCK_HEAD);
		next->size = BLOCK_JOINED;
	}
	if (b->before && !is_used(at(b, -b->before))) {
		struct block *prev = at(b, -b->before);

		take_free(v, prev);
		size += size_of(prev);
		b->size = BLOCK_JOINED;
		b = prev;
	}
	put_free(v, b, size);
}

/* ------------------------------------------------------------------ check */

static const char *check_bins(struct heap *h, size_t *listed)
{
	*listed = 0;
	for (unsigned int bin = 0; bin < HEAP_BINS; bin++) {
		struct block *prev = NULL;

		if (!h->bins[bin] != !(h->map & 1ull << bin))
			return "the map of bins is wrong";
		for (struct block *b = h->bins[bin]; b; prev = b, b = b->next, ++*listed)
			if (is_used(b) || b->prev != prev || bin_of(size_of(b)) != bin)
				return "a list of free blocks is wrong";
	}
	return NULL;
}

const char *heap_check(struct rvm *v, size_t *used)
{
	struct heap *h = heap_of(v);
	size_t listed, n_free = 0;
	const char *bad = check_bins(h, &listed);
	bool last_free = false;

	*used = 0;
	if (bad || !h->first)
		return bad;
	for (struct block *b = h->first; b != heap_end(v); b = after(b)) {
		if (!tags_agree(v, b))
			return "boundary tags do not agree";
		if (!is_used(b) && last_free)
			return "two free blocks side by side";
		last_free = !is_used(b);
		n_free += last_free;
		*used += !last_free;
	}
	return n_free == listed ? NULL : "a free block is in no list";
}
