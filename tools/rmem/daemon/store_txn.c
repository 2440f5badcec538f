// SPDX-License-Identifier: MIT
/*
 * What clients have done to bytes of regions: transactions, whose entries are queued first, and flushes.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <rmem.h>
#include "host.h"
#include "store_internal.h"

#define QUEUE_SMALL (1u << 20) /* bytes that a queue may have without a check */
#define QUEUE_STEP (1u << 19) /* entries. A queue grows by no more, since its new part is memory that the host counts as free */

/* ---------------------------------------------------------------- queue -- */

/* A client must not fill the host's memory with its queue, which is to have so many entries. */
static bool may_grow(const struct owner *owner, size_t entries)
{
	uint64_t bytes = entries * sizeof(struct queued), more = bytes - owner->queue_room * sizeof(struct queued);
	uint64_t charge = queue_charge(owner->queue_room), available;

	if (bytes <= QUEUE_SMALL)
		return true;
	host_available(&available);
	if (available < more || available - more < owner->store->options.headroom)
		return false;
	more = queue_charge(entries) - charge;
	return more <= left_of(owner->quota, owner->mapped + charge) &&
	       more <= left_of(owner->store->options.memory, owner->store->mapped + owner->store->queues);
}

static enum rmem_status queue_room(struct owner *owner, unsigned int count)
{
	size_t want = owner->queue_room ? owner->queue_room : 64;
	struct queued *queue;

	if (owner->queued + count <= owner->queue_room)
		return RMEM_OK;
	while (want < owner->queued + count)
		want += want < QUEUE_STEP ? want : QUEUE_STEP;
	if (!may_grow(owner, want))
		return RMEM_FULL;
	queue = reallocarray(owner->queue, want, sizeof(*queue));
	if (!queue)
		return RMEM_FULL;
	owner->store->queues += queue_charge(want) - queue_charge(owner->queue_room);
	owner->queue = queue;
	owner->queue_room = want;
	return RMEM_OK;
}

static enum rmem_status queue_copy(struct owner *owner, struct queued *entry)
{
	if (!entry->len)
		return RMEM_EMPTY;
	if (!region_at(owner, entry->dst, entry->len) || !region_at(owner, entry->src, entry->len))
		return RMEM_OUT_OF_RANGE;
	if (entry->dst < entry->src + entry->len && entry->src < entry->dst + entry->len)
		return RMEM_OVERLAP;
	return RMEM_OK;
}

static enum rmem_status queue_free(struct owner *owner, struct queued *entry)
{
	struct region *region = region_of_tag(owner, entry->dst);

	if (!region || STORED(region)->freed)
		return RMEM_NO_TAG;
	entry->src = region->tag;
	entry->dst = region->addr;
	STORED(region)->freed = true;
	return RMEM_OK;
}

static struct region *freed_by(const struct owner *owner, const struct queued *entry)
{
	struct region *region = entry->kind == RMEM_OP_FREE ? region_of_tag(owner, entry->src) : NULL;

	/* A slab may have been evicted since, and its tag given to another region. */
	return region && region->addr == entry->dst ? region : NULL;
}

static void clear_freed(struct owner *owner, size_t from)
{
	for (size_t i = from; i < owner->queued; i++) {
		struct region *region = freed_by(owner, &owner->queue[i]);

		if (region)
			STORED(region)->freed = false;
	}
}

enum rmem_status store_queue(struct owner *owner, const struct rmem_wire_op *ops, unsigned int count)
{
	size_t before = owner->queued;
	enum rmem_status status = count ? queue_room(owner, count) : RMEM_EMPTY;

	for (unsigned int i = 0; i < count && !status; i++) {
		struct queued *entry = &owner->queue[owner->queued];

		*entry = (struct queued){ .kind = le32toh(ops[i].kind), .dst = le64toh(ops[i].dst),
					  .src = le64toh(ops[i].src), .len = le64toh(ops[i].len) };
		status = entry->kind == RMEM_OP_CP ? queue_copy(owner, entry) :
			 entry->kind == RMEM_OP_FREE ? queue_free(owner, entry) : RMEM_BAD_MESSAGE;
		owner->queued += !status;
	}
	if (status) {
		clear_freed(owner, before);
		owner->queued = before;
	}
	return status;
}

uint64_t store_queued(const struct owner *owner)
{
	return owner->queued;
}

void store_discard(struct owner *owner)
{
	clear_freed(owner, 0);
	owner->store->queues -= queue_charge(owner->queue_room);
	free(owner->queue);
	owner->queue = NULL;
	owner->queued = owner->queue_room = 0;
}

/* ------------------------------------------------------------------- go -- */

/* The queue was good when it came, but slabs may have been evicted since then. Also marks the regions that the queue frees. */
static enum rmem_status look_through(struct owner *owner)
{
	struct cost cost = { 0 }, all = { 0 }; /* of what is logged; and as if all copies were logged */

	clear_freed(owner, 0);
	for (size_t i = 0; i < owner->queued; i++) {
		const struct queued *entry = &owner->queue[i];
		struct region *dst, *src;

		if (entry->kind == RMEM_OP_FREE) {
			dst = freed_by(owner, entry);
			if (dst)
				STORED(dst)->freed = true;
			add_cost(&cost, 0, 0);
			continue;
		}
		dst = region_at(owner, entry->dst, entry->len);
		src = region_at(owner, entry->src, entry->len);
		if (!dst || !src || STORED(dst)->freed || STORED(src)->freed)
			return RMEM_OUT_OF_RANGE;
		if (is_logged(dst))
			add_cost(&cost, entry->dst, entry->len);
		add_cost(&all, entry->dst, entry->len);
		if (cost_too_high(&all))
			return RMEM_FULL;
	}
	add_cost(&cost, 0, 0);
	/* A transaction that only frees makes room, so it may use the reserve. */
	return may_log(owner->store, &cost, cost.files ? RESERVE : 0);
}

/* Logs bytes of a region. With @copy they also go from the log to memory, since a client may write to @from at any time. */
static void log_bytes(struct region *region, uint64_t addr, const uint8_t *from, uint64_t len, bool more, bool copy)
{
	while (len) {
		uint32_t part = len < LOG_DATA_MAX ? len : LOG_DATA_MAX;
		const void *staged = owner_log(region->owner, (struct log_entry){ .type = LOG_DATA, .more = more, .addr = addr,
					    .size = part }, from);

		if (copy)
			memcpy(region->mem + (addr - region->addr), staged, part);
		addr += part;
		from += part;
		len -= part;
	}
}

static void do_copy(struct owner *owner, const struct queued *entry)
{
	struct region *dst = region_at(owner, entry->dst, entry->len), *src = region_at(owner, entry->src, entry->len);
	const uint8_t *from = src->mem + (entry->src - src->addr);

	if (is_logged(dst))
		log_bytes(dst, entry->dst, from, entry->len, true, true);
	else
		memcpy(dst->mem + (entry->dst - dst->addr), from, entry->len);
	owner->store->stats.copies++;
	owner->store->stats.copied += entry->len;
}

static void do_free(struct owner *owner, const struct queued *entry)
{
	struct region *region = freed_by(owner, entry);

	if (!region)
		return;
	if (is_logged(region))
		owner_log(owner, (struct log_entry){ .type = LOG_FREE, .more = true, .number = region->tag }, NULL);
	region_end(region);
}

static enum rmem_status may_go(struct owner *owner, uint64_t txn, uint64_t count)
{
	if (txn != owner->last_txn + 1 || count != owner->queued)
		return RMEM_BAD_TXN;
	return count ? look_through(owner) : RMEM_EMPTY;
}

enum rmem_status store_go(struct owner *owner, uint64_t txn, uint64_t word, uint64_t count)
{
	enum rmem_status status;

	if (txn && txn == owner->last_txn && word == owner->last_word) {
		store_discard(owner);
		return RMEM_OK;
	}
	status = may_go(owner, txn, count);
	for (size_t i = 0; i < owner->queued && !status; i++) {
		if (owner->queue[i].kind == RMEM_OP_CP)
			do_copy(owner, &owner->queue[i]);
		else
			do_free(owner, &owner->queue[i]);
	}
	store_discard(owner);
	if (status)
		return status;
	owner->last_txn = txn;
	owner->last_word = word;
	if (owner->store->path)
		owner_log(owner, (struct log_entry){ .type = LOG_COMMIT, .number = txn, .addr = word }, NULL);
	owner->store->stats.txns++;
	return RMEM_OK;
}

enum rmem_status store_flush(struct owner *owner, uint64_t addr, uint64_t len)
{
	struct region *region = region_at(owner, addr, len);
	struct cost cost = { 0 };
	enum rmem_status status;

	if (!region)
		return RMEM_OUT_OF_RANGE;
	if (!is_logged(region))
		return RMEM_OK;
	add_cost(&cost, addr, len);
	status = may_log(owner->store, &cost, RESERVE);
	if (status)
		return status;
	while (len) {
		/* A page is in one record, so a record ends where a page does. */
		uint64_t part = LOG_DATA_MAX - addr % RMEM_PAGE;

		if (part > len)
			part = len;
		log_bytes(region, addr, region->mem + (addr - region->addr), part, false, false);
		addr += part;
		len -= part;
	}
	return RMEM_OK;
}
