/* SPDX-License-Identifier: MIT */
/*
 * The folder of a donor that persists:
 *
 *	index.json	owners and their regions, as of the end of the last checkpoint, and which log goes on from there
 *	regions/	a file for each region, as of then or later: its bytes, the checkpoint that wrote it last, and a checksum of
 *			each page
 *	log.N		what came after it
 *
 * A checkpoint copies the log, all of which is synced, to the files of regions, syncs them, makes a new log and then a new
 * index, by a rename, and only then removes the old log. Whatever ends it before the rename, the old index and the old log
 * are there, and the log writes over whatever part of it has reached the files.
 *
 * Each page of a file fits its checksum, with one exception: if the log says that a checkpoint has begun, a page that the log
 * has bytes for may be torn.
 */
#ifndef RMEMD_FILES_H
#define RMEMD_FILES_H

#include <sys/stat.h>

#include "log.h"
#include "store.h"

struct held {
	struct region region;
	size_t mapped;	/* bytes of memory */
	bool freed;	/* by an entry of the queue that is being looked at */
	bool has_file;
	uint64_t checkpoint; /* that wrote the file last: the number of the log that came after it */
	uint8_t *dirty;	     /* a bit for each page of the file that this checkpoint has written to; NULL: it has not */
	uint8_t *suspect;    /* a bit for each page that does not fit its checksum, until the log writes over it; or NULL */
};

#define HELD(r) ((struct held *)((char *)(r) - offsetof(struct held, region)))

struct queued {
	uint32_t kind;
	uint64_t dst; /* the address of the region, if it is freed */
	uint64_t src; /* the tag */
	uint64_t len;
};

struct owner {
	char name[RMEM_NAME_SIZE];
	struct store *store;
	struct owner *next;
	uint64_t last_txn;
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

struct store {
	struct store_options options;
	char *path; /* NULL: nothing persists */
	int dir;
	int regions;
	int index; /* the file as it was written last */
	struct stat index_stat;
	uint32_t index_crc;
	char *why; /* the first failure: nothing goes to disk after it */
	uint64_t mapped;
	uint64_t checkpoint; /* the number of the log that comes after the one under way */
	bool again;	     /* the checkpoint under way was begun by an earlier rmemd, and may have torn pages */
	uint64_t uncopied; /* bytes that a checkpoint may write to files of regions */
	uint64_t settled;  /* bytes that were logged until the last store_sync() */
	struct owner *owners, **last_owner;
	struct log log;
	struct store_stats stats;
};

/* All return 0, or -1 with store->why. */
int files_open(struct store *store);
/* 1: there is an index; 0: nothing is there. *log: the log's first record. */
int files_read_index(struct store *store, uint64_t *log);
int files_read_regions(struct store *store);
/* The log writes over these bytes of a region that was read. */
void files_replayed(struct region *region, uint64_t addr, uint64_t len);
/* All of the log was read: are all pages good? */
int files_end_replay(struct store *store);
/* Is the folder still the one that this process wrote? It is another one after a move to a host that does not share it. */
int files_check(struct store *store);
int files_checkpoint(struct store *store);
void files_close(struct store *store);

/* For files.c: a region as it was. -1: there can't be such a one, or no memory for it, with store->why. */
int region_restore(struct owner *owner, uint64_t tag, uint64_t addr, uint64_t size, uint32_t flags, struct region **region);

#endif
