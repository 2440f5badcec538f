/* SPDX-License-Identifier: MIT */
/*
 * The donor's regions, and the log that makes them durable. The store knows nothing of connections and of RDMA, and calls nobody
 * but region_gone().
 *
 * Memory is volatile and made anew at each start: a memfd for each region, whether the donor persists or not (the kernel does not
 * let RDMA pin a writable file of a disk). Two things persist: a log of what was committed or flushed, and a file for each
 * region, which holds the older part of the log. So after a restart, whatever ended the last run, a region holds what was
 * committed or flushed to it, in the order in which that was done, and nothing else.
 *
 *	store_open()		reads the index, the files and the log; a record that was not written whole ends the log
 *	store_owner()		the client of that name
 *	store_alloc(), store_queue(), store_go(), store_flush()
 *				do things in memory, and put records in the log's buffer
 *	store_sync()		writes and syncs all of them at once (group commit); only then may anybody be answered
 *	store_close()
 *
 * Without a directory store_sync() has nothing to do, and everything else is the same. Slabs (RMEM_SLAB) are never logged.
 * Not thread-safe. Functions return an enum rmem_status, see wire.h.
 */
#ifndef RMEMD_STORE_H
#define RMEMD_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rmem/wire.h>

struct store;
struct owner;

struct region {
	uint64_t tag;
	uint64_t addr; /* as clients know it; unique to the owner, never used again for another region */
	uint64_t size; /* a multiple of RMEM_PAGE */
	uint32_t flags;
	uint8_t *mem;
	void *user;	/* for the user of the store: its ibv_mr, say */
	struct owner *owner;
	struct region *next; /* of the owner's regions, in the order of tags */
};

struct store_options {
	const char *dir;	/* NULL: nothing persists. One rmemd at a time uses it (see files_host.c) */
	bool create;		/* make the folder (0700), or what must be in it, if it is not there. Otherwise that is an error */
	bool huge;		/* hugetlb pages of 2 MiB: the memory of a region is rounded up to them, region.size is not */
	uint64_t memory;	/* the most bytes in all regions; 0: no such limit */
	uint64_t headroom;	/* bytes of host_available() that stay free for the host */
	uint64_t segment;	/* when a log has more bytes than this, they go to the files; 0: 64 MiB */
	/* Called when a region ends. The region's memory goes away after this returns. */
	void (*region_gone)(struct region *, void *arg);
	void *arg;
};

/* NULL: *@why is one line, "object: reason: what to do", which the caller frees. */
struct store *store_open(const struct store_options *, char **why);
/* Syncs first what is not synced yet. */
void store_close(struct store *);

/* Finds an owner, or makes it. NULL: there is no memory, or this can't be a name. Owners stay for as long as the store does. */
struct owner *store_owner(struct store *, const char *name);
const char *owner_name(const struct owner *);
uint64_t owner_last_txn(const struct owner *);
uint64_t owner_last_word(const struct owner *); /* of that transaction; 0: not known */
struct region *owner_regions(const struct owner *); /* the first one */
void owner_quota(struct owner *, uint64_t bytes); /* 0: none */
uint64_t owner_used(const struct owner *); /* bytes in its regions */
uint64_t owner_memory(const struct owner *); /* bytes that it may still take of the host's memory */
uint64_t owner_room(const struct owner *); /* bytes that store_alloc() could still give it, if the disk has room */
int store_each_owner(struct store *, int (*each)(struct owner *, void *), void *arg);

struct region *region_of_tag(const struct owner *, uint64_t tag);
/* The region in which all of this range lies; NULL: none, or len is 0. */
struct region *region_at(const struct owner *, uint64_t addr, uint64_t len);

#define STORE_OWNER_REGIONS 16384u /* at most */
#define STORE_QUEUE_FREE (32u << 20) /* bytes of a queue that do not count as memory of the owner */
/*
 * Bytes of regions that one transaction may copy, or one flush may log, since all clients wait for that. The records of it in a
 * log may take as many bytes, also where there is no log. That is enough for some 3.7 million entries.
 */
#define STORE_TXN_SIZE (UINT64_C(1) << 30)

/* RMEM_FULL, here and below, can also mean that the disk has no room: bytes need it in the log, and again in the files. */

/* RMEM_OK (also if this region exists already, with this size and these flags), RMEM_OTHER_SIZE, RMEM_FULL, RMEM_EMPTY */
enum rmem_status store_alloc(struct owner *, uint64_t tag, uint64_t size, uint32_t flags, struct region **region);
/* Undoes store_alloc() of a region that was just made, and is of no use. */
void store_undo_alloc(struct region *);

/*
 * Adds to the owner's queue, which has no limit but the host's memory, and beyond STORE_QUEUE_FREE the owner's.
 * RMEM_OUT_OF_RANGE, RMEM_OVERLAP, RMEM_NO_TAG, RMEM_EMPTY, RMEM_FULL, RMEM_BAD_MESSAGE (an unknown kind): none of @ops is queued
 */
enum rmem_status store_queue(struct owner *, const struct rmem_wire_op *ops, unsigned int count);
uint64_t store_queued(const struct owner *);
void store_discard(struct owner *);

/*
 * Does what is queued. If @txn and @word are those of the last transaction that was done, does nothing and returns RMEM_OK.
 * RMEM_OUT_OF_RANGE: a copy touches a region that an earlier entry frees, or a slab that was evicted. Also RMEM_BAD_TXN,
 * RMEM_EMPTY, RMEM_FULL. After a failure nothing has happened. The queue is empty in any case.
 */
enum rmem_status store_go(struct owner *, uint64_t txn, uint64_t word, uint64_t count);

/* Logs a range as it is now, each page in one record. RMEM_OUT_OF_RANGE, RMEM_FULL */
enum rmem_status store_flush(struct owner *, uint64_t addr, uint64_t len);

/* True: so much was logged since the last store_sync() that it is time for another. */
bool store_crowded(const struct store *);

/* Takes a slab away, at once and without a transaction. RMEM_NO_TAG: no such slab */
enum rmem_status store_evict(struct owner *, uint64_t tag);

/*
 * RMEM_OK: everything that was done is durable. RMEM_NOT_DURABLE: the disk failed, and nobody knows what it holds. *@why says how
 * it failed; the caller frees *@why, which is NULL if there is no memory. Then the process must end and answer nothing. Only
 * store_close() may still be called, and does not sync.
 */
enum rmem_status store_sync(struct store *, char **why);

struct store_stats {
	uint64_t bytes, free, owners, regions, slabs;
	uint64_t txns, copies, copied, syncs, logged, checkpoints, replayed; /* since the start */
};
void store_stats(const struct store *, struct store_stats *);

#endif
