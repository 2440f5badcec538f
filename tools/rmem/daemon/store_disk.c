// SPDX-License-Identifier: MIT
/*
 * Does the disk have room for what is to be logged?
 */
#include <sys/statvfs.h>
#include <rmem.h>
#include "files.h"
#include "store_internal.h"

void add_cost(struct cost *cost, uint64_t addr, uint64_t len)
{
	cost->bytes += len;
	cost->log += log_size(len);
	/* The files also need a page of checksums. */
	cost->files += len ? round_up(addr + len, RMEM_PAGE) - addr / RMEM_PAGE * RMEM_PAGE + RMEM_PAGE : 0;
}

bool cost_too_high(const struct cost *cost)
{
	return cost->bytes > STORE_TXN_SIZE || cost->log - cost->bytes > STORE_TXN_SIZE;
}

bool is_logged(const struct region *region)
{
	return region->owner->store->path && !(region->flags & RMEM_SLAB);
}

static bool disk_has_room(const struct store *store, const struct cost *cost, uint64_t reserve)
{
	uint64_t files = store->uncopied + cost->files;
	struct statvfs fs;

	/* Some file systems in memory do not tell how much room they have. */
	if (fstatvfs(store->dir, &fs) || !fs.f_blocks)
		return true;
	/* A file has at most as many pages of checksums as pages of bytes. */
	if (files > 2 * store->mapped)
		files = 2 * store->mapped;
	return store->log.used + cost->log + files + reserve <= (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* Syncs what is logged. If the folder is not the one that this store wrote, nothing is written. */
int sync_log(struct store *store)
{
	store->log.failed |= files_check(store) != 0;
	return log_sync(&store->log);
}

/*
 * If the disk is full when the log is written, or at a checkpoint, rmemd ends, for all clients. So a request that does not fit is
 * refused before anything of it happens. A checkpoint may make room. After it, the files have what they need for the log so far,
 * which before was only estimated.
 */
enum rmem_status may_log(struct store *store, const struct cost *cost, uint64_t reserve)
{
	struct log *log = &store->log;

	if (!store->path)
		return RMEM_OK;
	if (cost_too_high(cost))
		return RMEM_FULL;
	if (!disk_has_room(store, cost, reserve)) {
		/* If the disk fails in the checkpoint, the next store_sync() says so. */
		if (log->lsn >= log->file.first && (sync_log(store) || files_checkpoint(store)))
			return RMEM_FULL;
		if (!disk_has_room(store, cost, reserve))
			return RMEM_FULL;
	}
	store->uncopied += cost->files;
	return RMEM_OK;
}

void *owner_log(struct owner *owner, struct log_entry entry, const void *payload)
{
	entry.owner = owner->name;
	return log_append(&owner->store->log, &entry, payload);
}
