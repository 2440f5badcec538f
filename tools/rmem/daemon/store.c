// SPDX-License-Identifier: MIT
/*
 * Opens a store from its files and its log, syncs it, and closes it.
 */
#include <stdlib.h>
#include <string.h>
#include <rmem.h>
#include "files.h"
#include "store_internal.h"

#define SEGMENT (UINT64_C(64) << 20)

/* ----------------------------------------------------------------- sync -- */

static enum rmem_status not_durable(struct store *store, char **why)
{
	store->log.failed = true;
	*why = store->why ? strdup(store->why) : NULL;
	return RMEM_NOT_DURABLE;
}

enum rmem_status store_sync(struct store *store, char **why)
{
	struct log *log = &store->log;

	if (!store->path)
		return RMEM_OK;
	if (log->failed)
		return not_durable(store, why);
	/*
	 * This comes before any answer. After a move, a commit in a folder that only looks the same would be lost, and the host
	 * that this process has left could still start another rmemd.
	 */
	if (host_follow(store))
		return not_durable(store, why);
	store->settled = log->logged + log->used;
	if (log->lsn == log->synced)
		return RMEM_OK;
	store->stats.syncs++;
	if (sync_log(store))
		return not_durable(store, why);
	if (log->file.size > store->options.segment && files_checkpoint(store))
		return not_durable(store, why);
	return RMEM_OK;
}

bool store_crowded(const struct store *store)
{
	return store->path && store->log.logged + store->log.used - store->settled > store->options.segment;
}

void store_stats(const struct store *store, struct store_stats *stats)
{
	*stats = store->stats;
	stats->bytes = store->mapped;
	stats->free = memory_room(store);
	stats->logged = store->path ? store->log.logged : 0;
	for (const struct owner *o = store->owners; o; o = o->next) {
		stats->owners++;
		stats->regions += o->count;
		for (size_t i = 0; i < o->count; i++)
			stats->slabs += o->by_tag[i]->flags & RMEM_SLAB;
	}
}

/* ----------------------------------------------------------------- open -- */

static int replay_alloc(struct owner *owner, const struct log_entry *entry)
{
	struct region *region;

	return entry->addr < owner->next_addr ? -1 :
	       region_restore(owner, entry->number, entry->addr, entry->length, entry->flags, &region);
}

static int replay_data(struct owner *owner, const struct log_entry *entry, const void *payload)
{
	struct region *region = region_at(owner, entry->addr, entry->size);

	if (!region)
		return -1;
	memcpy(region->mem + (entry->addr - region->addr), payload, entry->size);
	files_replayed(region, entry->addr, entry->size);
	return 0;
}

static int replay_free(struct owner *owner, const struct log_entry *entry)
{
	struct region *region = region_of_tag(owner, entry->number);

	if (region)
		region_end(region);
	return region ? 0 : -1;
}

static int replay_entry(struct owner *owner, const struct log_entry *entry, const void *payload)
{
	switch (entry->type) {
	case LOG_DATA:
		return replay_data(owner, entry, payload);
	case LOG_ALLOC:
		return replay_alloc(owner, entry);
	case LOG_FREE:
		return replay_free(owner, entry);
	case LOG_COMMIT:
		owner->last_txn = entry->number;
		owner->last_word = entry->addr;
		return 0;
	case LOG_NEXT:
		if (entry->addr < owner->next_addr)
			return -1;
		owner->next_addr = entry->addr;
		return 0;
	default:
		return -1;
	}
}

static int replay(const struct log_entry *entry, const void *payload, uint64_t at, void *arg)
{
	struct store *store = arg;
	struct owner *owner;

	store->stats.replayed++;
	if (entry->type == LOG_CLOSED || entry->type == LOG_COPYING)
		return 0;
	owner = store_owner(store, entry->owner);
	if (owner && !replay_entry(owner, entry, payload))
		return 0;
	return log_damaged(&store->log, at);
}

static int recover(struct store *store)
{
	uint64_t first;
	int found;

	if (files_open(store) || host_take(store) || log_init(&store->log, store->dir, store->path, &store->why))
		return -1;
	found = files_read_index(store, &first);
	if (found < 0 || (found && (log_open(&store->log, first) || files_read_regions(store) ||
				    log_each(&store->log, replay, store) || files_end_replay(store))))
		return -1;
	/* This gives each run a log of its own, so no run has to know what lies behind the end of an earlier run's log. */
	return files_checkpoint(store);
}

static void store_free(struct store *store)
{
	struct owner *owner;

	while ((owner = store->owners)) {
		store_discard(owner);
		while (owner->count)
			region_end(owner->by_tag[owner->count - 1]);
		store->owners = owner->next;
		free(owner->by_tag);
		free(owner->by_addr);
		free(owner);
	}
	log_end(&store->log);
	files_close(store);
	free(store->path);
	free(store->why);
	free(store);
}

struct store *store_open(const struct store_options *options, char **why)
{
	struct store *store = calloc(1, sizeof(*store));
	void (*gone)(struct region *, void *) = options->region_gone;

	*why = NULL;
	if (!store)
		goto no_memory;
	store->options = *options;
	store->options.region_gone = NULL; /* no client knows yet of a region that ends while the log is read */
	if (!options->segment)
		store->options.segment = SEGMENT;
	store->dir = store->regions = store->index = store->log.file.fd = -1;
	store->last_owner = &store->owners;
	store->path = options->dir ? strdup(options->dir) : NULL;
	if (options->dir && (!store->path || recover(store))) {
		*why = store->why;
		store->why = NULL;
		store_free(store);
		goto no_memory;
	}
	store->options.dir = store->path;
	store->options.region_gone = gone;
	return store;
no_memory:
	if (!*why)
		*why = strdup("memory: there is none for a store: free some");
	return NULL;
}

void store_close(struct store *store)
{
	if (!store)
		return;
	if (store->path && !store->log.failed) {
		/* LOG_CLOSED says that all records before it are synced. If one of these can't be read later, it is damaged. */
		if (!sync_log(store))
			log_append(&store->log, &(struct log_entry){ .type = LOG_CLOSED }, NULL);
		log_sync(&store->log);
		host_leave(store);
	}
	store_free(store);
}
