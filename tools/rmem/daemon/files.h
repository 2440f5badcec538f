/* SPDX-License-Identifier: MIT */
/*
 * The folder of a donor that persists:
 *
 *	index.json	owners and their regions at the end of the last checkpoint, and the number of the log that follows
 *	regions/	a file for each region: its bytes at that time or later, the number of the checkpoint that wrote the file
 *			last, and a checksum of each page
 *	log.N		what came after the last checkpoint
 *	host		a link to the name of the host whose rmemd uses the folder
 *
 * When a checkpoint begins, all of the log is synced. The checkpoint copies the log to the files of regions, and syncs these.
 * Then it makes a new log, and a new index by a rename. Only then it removes the old log. If it ends before the rename, for
 * whatever reason, the old index and the old log are still there. The next start reads the files and then this log, so it does
 * not matter which part of the log has reached the files.
 *
 * Each page of a file fits its checksum, with one exception: if the log says that a checkpoint has begun, a page that the log
 * has bytes for may be torn.
 */
#ifndef RMEMD_FILES_H
#define RMEMD_FILES_H

#include "store.h"

/* All return 0, or -1 with store->why. */
int files_open(struct store *store);
/* Also 1: there is an index. 0: the folder has nothing. *log: the number of the log's first record. */
int files_read_index(struct store *store, uint64_t *log);
int files_read_regions(struct store *store);
/* Called when the log has written over these bytes of a region whose file was read. */
void files_replayed(struct region *region, uint64_t addr, uint64_t len);
/* Call it when all of the log was read. Are all pages good? */
int files_end_replay(struct store *store);
/* Is the folder still the one that this process wrote? It is another one after a move to a host that does not share it. */
int files_check(struct store *store);
int files_checkpoint(struct store *store);
/* Refuses a folder that another host uses, and says that this one does. */
int host_take(struct store *store);
/* Makes the link in the folder name this host, if the process has moved. */
int host_follow(struct store *store);
/* No rmemd uses the folder any more. */
void host_leave(struct store *store);
void files_close(struct store *store);

#endif
