/* SPDX-License-Identifier: MIT */
/*
 * What librvm's files share.
 *
 *	rvm.c		a memory's life: made, recovered, closed, ended
 *	txn.c		begin, set_range, abort: local, without the network
 *	commit.c	commit, and what it does when the connection breaks
 *	transfer.c	many puts or gets under way
 *	pages.c		which pages changed, and what they were before
 *	fault.c		finds changes by write faults
 *	heap.c		rvm_alloc(), rvm_free()
 *
 * The header page is the memory's first page. It changes in transactions like any other.
 */
#ifndef RVM_INTERNAL_H
#define RVM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

/* All else is hidden. */
#pragma GCC visibility push(default)
#include "rvm.h"
#pragma GCC visibility pop

#define RVM_PAGE ((size_t)4096)
#define RVM_MAGIC 0x314d454d4d5652ull /* "RVMMEM1" */
#define RVM_VERSION 1u
#define HEAP_BINS 48

/* Bin @i has the free blocks of 2^i bytes or more, and less than 2^(i + 1). */
struct heap {
	struct block *first; /* NULL: nothing was ever allocated */
	uint64_t map;	     /* bit i: bin i is not empty */
	struct block *bins[HEAP_BINS];
};

struct header {
	uint64_t magic;
	uint32_t version;
	uint32_t reserved;
	uint64_t size;
	uint64_t addr;
	uint64_t tag;
	uint64_t committer; /* random, set by the process that made or recovered the memory last: this process alone may commit */
	void *root;
	uint64_t checksum; /* of all before */
	struct heap heap;
};
_Static_assert(sizeof(struct header) <= RVM_PAGE, "one page");

enum txn_state {
	TXN_NONE,
	TXN_OPEN,   /* the donor's reals are as at rvm_begin(), or, if half, as an earlier rvm_commit() of it left them */
	TXN_UNSURE, /* rmem_txn_go() was called and said neither yes nor no */
};

enum fault_way {
	FAULT_NONE,
	FAULT_UFFD,   /* userfaultfd, with a thread that serves it */
	FAULT_SIGNAL, /* mprotect() and SIGSEGV */
};

struct rvm {
	struct rmem *r;
	uint64_t tag;
	uint64_t real;	 /* remote addresses */
	uint64_t shadow;
	uint8_t *mem;
	size_t size;
	bool registered;
	uint64_t committer;
	unsigned int connection; /* the connection on which the header was seen to be ours; nothing is committed on another one */
	unsigned int timeout_ms;

	pthread_mutex_t lock;	/* of owner; held for moments only */
	pthread_cond_t ended;
	_Atomic pid_t owner;	/* thread of the open transaction; 0: none. The rest of the transaction belongs to it */
	enum txn_state state;
	bool half;		/* an earlier rvm_commit() of the open transaction took place, but not what was changed since */
	bool stale;		/* the donor does not have this memory any more, or another process took it over; this is final */

	uint8_t *undo;		/* at the offset of each dirty page: its contents at rvm_begin() */
	_Atomic uint64_t *dirty; /* a bit for each page */
	_Atomic size_t taken;	/* dirty pages */

	enum fault_way way;
	int uffd;
	int stop;		/* eventfd: ends the thread */
	pthread_t server;
};

static inline struct header *rvm_header(struct rvm *v)
{
	return (struct header *)v->mem;
}

static inline size_t rvm_pages(const struct rvm *v)
{
	return v->size / RVM_PAGE;
}

/* Only this thread makes itself the owner, so the answer stays true. */
static inline bool txn_mine(struct rvm *v)
{
	return atomic_load(&v->owner) == gettid();
}

uint64_t header_checksum(const struct header *h);

/* ------------------------------------------------------------------ pages.c */

struct run {
	size_t first; /* pages */
	size_t count;
};

int pages_open(struct rvm *v);
void pages_close(struct rvm *v);
/* Keeps a page's contents, and marks the page dirty. False: it is dirty already. Safe in a signal handler. */
bool page_take(struct rvm *v, size_t page);
/* The first run of dirty pages from page @from on. */
bool pages_run(struct rvm *v, size_t from, struct run *run);
void pages_undo(struct rvm *v);
void pages_clean(struct rvm *v);

/* ------------------------------------------------------------------ txn.c */

int txn_open(struct rvm *v); /* what transactions need */
void txn_close(struct rvm *v);
/* Like rvm_set_range(), but also for the header. The caller has checked the range and has the transaction. */
void txn_touch(struct rvm *v, const void *p, size_t size);
/* Ends the transaction: its changes remain, and the next thread may begin. */
void txn_end(struct rvm *v);

/* ------------------------------------------------------------------ commit.c */

/* One attempt over the present connection, for an open transaction. Does not end the transaction. */
int commit_once(struct rvm *v);
/*
 * Connects again, until it works or timeout_ms have passed; the time begins when *@until is 0. Returns 0; -ESTALE: the donor does
 * not have this memory any more, or another process has it now; or -ENOTCONN, -EACCES, -EPROTO.
 */
int connect_anew(struct rvm *v, int64_t *until);
bool connection_broke(int ret);
/*
 * Returns 0, -ESTALE as connect_anew() does, or an error of the connection. Asks the donor only after a new connection, whichever
 * thread made it.
 */
int still_ours(struct rvm *v);

/* ------------------------------------------------------------------ transfer.c */

struct transfer {
	struct rmem *r;
	bool put;
	int result; /* of the first operation that could not begin */
	struct rmem_op op;
};

void transfer_put(struct transfer *t, struct rmem *r);
void transfer_get(struct transfer *t, struct rmem *r);
void transfer_add(struct transfer *t, uint64_t remote, void *local, size_t len);
/* Waits for all operations. Returns 0 or the first failure. The memory belongs to the caller again. */
int transfer_end(struct transfer *t);

/* ------------------------------------------------------------------ fault.c */

/* Write-protects all of the memory, if @flags want it. -ENOMEM or the error of a system call: neither way works. */
int fault_open(struct rvm *v, unsigned int flags);
void fault_close(struct rvm *v);
/* Lets dirty pages be written to. Safe in a signal handler. */
void fault_allow(struct rvm *v, size_t first, size_t count);
/* Protects all dirty pages again. */
void fault_protect(struct rvm *v);
/*
 * Nothing is protected between these two calls, and the thread whose transaction is open does not write. librmem registers the
 * memory with the new connection meanwhile, and the kernel wants write access for that.
 */
void fault_suspend(struct rvm *v);
void fault_resume(struct rvm *v);

/* ------------------------------------------------------------------ heap.c */

/* For tests. Describes a fault in the heap in a few words; NULL: none. *@used: the number of allocated blocks. */
const char *heap_check(struct rvm *v, size_t *used);

#endif
