/* SPDX-License-Identifier: MIT */
/*
 * The inside of a store, for store*.c and files*.c.
 */
#ifndef RMEMD_STORE_INTERNAL_H
#define RMEMD_STORE_INTERNAL_H

#include <sys/stat.h>

#include "log.h"
#include "store.h"

#define ADDR_FIRST (UINT64_C(1) << 32)
#define ADDR_END (UINT64_C(1) << 62)
#define STRIDE (UINT64_C(2) << 20) /* of addresses, and of huge pages */
#define SIZE_MAX_REGION (UINT64_C(1) << 60)

struct stored {
	struct region region;
	size_t mapped;	/* bytes of memory */
	bool freed;	/* an earlier entry of the owner's queue frees it */
	bool has_file;
	uint64_t checkpoint; /* the one that wrote the file last; its number is that of the log which came after it */
	uint8_t *dirty;	     /* a bit for each page that the checkpoint under way has written to; NULL: it has written to none */
	uint8_t *suspect;    /* a bit for each page that does not fit its checksum, until the log writes over it; or NULL */
};

#define STORED(r) ((struct stored *)((char *)(r) - offsetof(struct stored, region)))

struct queued {
	uint32_t kind;
	uint64_t dst; /* of an entry that frees: the address of the region */
	uint64_t src; /* of an entry that frees: the tag */
	uint64_t len;
};

struct owner {
	char name[RMEM_NAME_SIZE];
	struct store *store;
	struct owner *next;
	uint64_t last_txn, last_word;
	uint64_t next_addr;
	uint64_t quota;
	uint64_t mapped;
	struct region **by_tag;
	struct region **by_addr;
	size_t count;
	size_t room;
	struct queued *queue;
	size_t queued;
	size_t queue_room;
};

/* Bytes of a queue with room for so many entries that count as memory of its owner. */
static inline uint64_t queue_charge(size_t entries)
{
	uint64_t bytes = entries * sizeof(struct queued);

	return bytes > STORE_QUEUE_FREE ? bytes - STORE_QUEUE_FREE : 0;
}

struct store {
	struct store_options options;
	char *path; /* NULL: nothing persists */
	char host[65]; /* where this process runs, by the link in the folder */
	int dir;
	int regions;
	int index; /* the file as it was written last */
	struct stat index_stat;
	uint32_t index_crc;
	char *why; /* the first failure: nothing goes to disk after it */
	uint64_t mapped;
	uint64_t queues; /* queue_charge() of all owners */
	uint64_t checkpoint; /* the number of the checkpoint under way, which is that of the log after it */
	bool again;	     /* the checkpoint under way was begun by an earlier rmemd, and may have torn pages */
	uint64_t uncopied; /* bytes that a checkpoint may write to files of regions */
	uint64_t settled;  /* bytes that were logged until the last store_sync() */
	struct owner *owners, **last_owner;
	struct log log;
	struct store_stats stats;
};

static inline uint64_t round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* What a limit leaves. A limit of 0 is none. */
static inline uint64_t left_of(uint64_t limit, uint64_t taken)
{
	if (!limit)
		return UINT64_MAX;
	return limit > taken ? limit - taken : 0;
}

/* --------------------------------------------------------- store_region.c */

/* Bytes that regions may still take: what the host or the store's limit has left, whichever is less. */
uint64_t memory_room(const struct store *store);
/* NULL: there is no memory. The caller has checked that the region fits in. */
struct region *region_make(struct owner *owner, uint64_t tag, uint64_t addr, uint64_t size, uint32_t flags);
void region_end(struct region *region);
/* Makes a region that the index or the log names. -1: there can't be such a region; or, with store->why, there is no memory. */
int region_restore(struct owner *owner, uint64_t tag, uint64_t addr, uint64_t size, uint32_t flags, struct region **region);

/* ----------------------------------------------------------- store_disk.c */

#define RESERVE (UINT64_C(16) << 20) /* bytes of the disk for the index, names and other small things */

/* What a request takes of the disk: its records, and pages of files at the next checkpoint. */
struct cost {
	uint64_t bytes, log, files;
};

void add_cost(struct cost *cost, uint64_t addr, uint64_t len);
bool cost_too_high(const struct cost *cost); /* for one request, since all others wait for it */
bool is_logged(const struct region *region);
/* RMEM_OK: the disk has room for @cost, and for @reserve beside it. RMEM_FULL: it has not */
enum rmem_status may_log(struct store *store, const struct cost *cost, uint64_t reserve);
/* Appends a record of the owner, like log_append(). */
void *owner_log(struct owner *owner, struct log_entry entry, const void *payload);
int sync_log(struct store *store);

#endif
