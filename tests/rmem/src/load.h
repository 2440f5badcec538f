/* SPDX-License-Identifier: MIT */
/*
 * rmem-load: changes remote memory at random, and knows what each byte must be.
 *
 *   rmem-load.c    the command line, signals, the end
 *   load_model.c   what the regions hold, byte for byte
 *   load_rounds.c  what a thread does
 *   load_repair.c  with --reconnect: a connection that broke, a donor that has restarted
 *
 * Threads share one connection. Each has regions of its own, so it alone knows what they hold. Only one thread at a time may
 * queue a transaction, the one that has txn_lock.
 */
#ifndef LOAD_H
#define LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "rmem.h"

enum { MAX_THREADS = 16, MAX_REGIONS = 6, MAX_COPIES = 1000, MAX_PARTS = 32 };
enum { PAGE = 4096, MAX_PUT = 256 << 10, MAX_REGION = 1 << 20 };

struct region {
	uint64_t tag;
	uint64_t addr;
	uint64_t size;
	uint8_t *now;	  /* what a get must find */
	uint8_t *durable; /* what must be there after a restart of the donor */
};

struct part { /* of a put, a get, a flush */
	struct region *region;
	uint64_t off, len;
	uint8_t *data; /* in the thread's buffer */
};

struct copy {
	struct region *dst, *src;
	uint64_t dst_off, src_off, len;
};

struct thread {
	pthread_t id;
	unsigned int index;
	struct region *regions[MAX_REGIONS];
	unsigned int num_regions;
	uint64_t tags;	 /* how many it has used */
	uint64_t rounds; /* done; also the version of what is put */
	uint8_t *buf;	 /* MAX_REGION bytes */
	char doing[160]; /* for whoever reads why it failed */

	/* What is under way. A step that a broken connection interrupts is the one that is done again. */
	int (*again)(struct thread *t);
	struct part parts[MAX_PARTS];
	unsigned int num_parts;
	struct copy copies[MAX_COPIES];
	unsigned int num_copies;
	struct region *freed[MAX_REGIONS];
	unsigned int num_freed;
	struct region *fresh;
	unsigned int restarts; /* of the donor, that it knows of */
	enum { STAYS, LEAVES, LEFT } leaving; /* the connection, with its transaction in the queue */
};

struct options {
	const char *host, *end_host, *port, *client, *key, *log;
	uint64_t seed, ops;
	unsigned int threads, timeout_ms, patience;
	bool reconnect, keep;
	unsigned int leave, usurp; /* one round, one step in so many; 0: none */
};
extern struct options options;

extern struct rmem *rmem;
extern FILE *log_file;
extern atomic_bool stop;
extern atomic_ullong rounds_done, bytes_put, bytes_got;
extern pthread_mutex_t txn_lock;
extern uint64_t first_txn, commits;	/* under txn_lock: the last transaction at the start, and those since */

/* Counts of successful calls, for the last lines. */
enum did {
	DID_PUT, DID_GET, DID_PUT8, DID_FLUSH, DID_ALLOC, DID_CP, DID_FREE, DID_GO, DID_ABORT, DID_LEAVE, DID_USURP, DID_LONG,
	DID_KINDS
};
void count(enum did did, unsigned int n);

/* Ends the connection, and makes another. No thread is in a call. */
void leave(struct thread *t);
/* Another connection of the same name comes and goes, which ends ours. */
void usurp(struct thread *t);

/* Says what is done next, also in the log. */
void say(struct thread *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One line on stderr, and the end. */
void fail(struct thread *t, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* Returns 0, or the error of a connection that broke and is repaired later. Ends the program at any other result. */
int ask(struct thread *t, int result);
/* The same for a call that must be refused with @expected. */
int refused(struct thread *t, int result, int expected);

/* load_model.c */
struct region *region_new(uint64_t tag, uint64_t size);
void region_end(struct region *region);
/* What a put of this version writes there: cells of 16 bytes, each of which says its place and version. */
void fill(uint8_t *data, const struct region *region, uint64_t off, uint64_t len, uint64_t version);
void compare(struct thread *t, const struct region *region, uint64_t off, const uint8_t *got, const uint8_t *must,
	     uint64_t len);
/* A transaction took place. */
void model_commit(struct thread *t);
/* After a restart: @got is the whole region, and @flush (may be NULL) a part that was being flushed. Both images become @got. */
void model_restart(struct thread *t, struct region *region, const uint8_t *got, const struct part *flush);

/* load_rounds.c */
void *load_thread(void *thread);
int reconnect(void); /* rmem_reconnect(), or its asynchronous form */
int do_puts(struct thread *t);
int do_gets(struct thread *t);
int do_flush(struct thread *t);
int do_alloc(struct thread *t);
int do_abort(struct thread *t);
int do_go(struct thread *t);
int do_check(struct thread *t);
int do_leave(struct thread *t);
void committed(struct thread *t);

/* load_repair.c: calls of librmem are made between the first two. */
unsigned int repair_enter(void); /* the number of this connection */
void repair_leave(void);
void repair(struct thread *t, unsigned int connection);
bool repair_wanted(const struct thread *t); /* before the next round */
int repair_go_on(struct thread *t);
void repair_report(void);

#endif
