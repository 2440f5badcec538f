// SPDX-License-Identifier: MIT
/*
 * The pages that the open transaction changed, and their old contents. The old contents lie in an area as large as the memory, of
 * which only used pages take memory. So keeping a page allocates nothing, and can be done in a signal handler.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

enum {
	WORD_BITS = 64,
	KEEP_PAGES = 1024, /* of old contents that stay for the next transaction */
};

static size_t words(const struct rvm *v)
{
	return (rvm_pages(v) + WORD_BITS - 1) / WORD_BITS;
}

int pages_open(struct rvm *v)
{
	v->undo = mmap(NULL, v->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (v->undo == MAP_FAILED)
		return -ENOMEM;
	v->dirty = calloc(words(v), sizeof(*v->dirty));
	if (!v->dirty) {
		munmap(v->undo, v->size);
		return -ENOMEM;
	}
	return 0;
}

void pages_close(struct rvm *v)
{
	free((void *)v->dirty);
	munmap(v->undo, v->size);
}

bool page_take(struct rvm *v, size_t page)
{
	_Atomic uint64_t *word = &v->dirty[page / WORD_BITS];
	uint64_t bit = 1ull << page % WORD_BITS;

	if (atomic_load_explicit(word, memory_order_acquire) & bit)
		return false;
	memcpy(v->undo + page * RVM_PAGE, v->mem + page * RVM_PAGE, RVM_PAGE);
	/* A thread that sees the bit also sees the old contents: rvm_abort() does, when the thread of fault.c kept the page. */
	atomic_fetch_or_explicit(word, bit, memory_order_release);
	atomic_fetch_add(&v->taken, 1);
	return true;
}

/* The first page from @page on whose bit is @set; the number of pages if there is none. */
static size_t next_page(struct rvm *v, size_t page, bool set)
{
	size_t n = rvm_pages(v);

	while (page < n) {
		uint64_t word = atomic_load_explicit(&v->dirty[page / WORD_BITS], memory_order_acquire);

		word = (set ? word : ~word) >> page % WORD_BITS;
		if (word) {
			page += __builtin_ctzll(word);
			break;
		}
		page += WORD_BITS - page % WORD_BITS;
	}
	return page < n ? page : n;
}

bool pages_run(struct rvm *v, size_t from, struct run *run)
{
	run->first = next_page(v, from, true);
	run->count = next_page(v, run->first, false) - run->first;
	return run->count > 0;
}

void pages_undo(struct rvm *v)
{
	struct run run;

	for (size_t at = 0; pages_run(v, at, &run); at = run.first + run.count)
		memcpy(v->mem + run.first * RVM_PAGE, v->undo + run.first * RVM_PAGE, run.count * RVM_PAGE);
}

void pages_clean(struct rvm *v)
{
	if (atomic_load(&v->taken) > KEEP_PAGES)
		madvise(v->undo, v->size, MADV_DONTNEED);
	for (size_t i = 0; i < words(v); i++)
		if (atomic_load_explicit(&v->dirty[i], memory_order_relaxed))
			atomic_store(&v->dirty[i], 0);
	atomic_store(&v->taken, 0);
}
