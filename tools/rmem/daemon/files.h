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

#include "store.h"

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

#endif
