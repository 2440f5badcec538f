// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <rmem.h>
#include "files.h"
#include "host.h"

#define ADDR_FIRST (UINT64_C(1) << 32)
#define ADDR_END (UINT64_C(1) << 62)
#define STRIDE (UINT64_C(2) << 20) /* of addresses, and of huge pages */
#define SEGMENT (UINT64_C(64) << 20)
#define SIZE_MAX_REGION (UINT64_C(1) << 60)
#define RESERVE (UINT64_C(16) << 20) /* bytes of the disk for the index, names and other small things */
#define REGIONS_MAX (3 * STORE_OWNER_REGIONS) /* a process has 65530 mappings, unless vm.max_map_count is higher */

static uint64_t round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

/* --------------------------------------------------------------- memory -- */

/* Bytes that the host has for us. Huge pages are set apart, and taking them leaves the rest of the host what it has. */
static uint64_t host_free(const struct store *store)
{
	uint64_t available;

	if (store->options.huge)
		return host_meminfo("HugePages_Free") * STRIDE;
	/* (what is not known is not lent) */
	host_available(&available);
	return available > store->options.headroom ? available - store->options.headroom : 0;
}

static uint64_t room(const struct store *store)
{
	uint64_t host = host_free(store), limit = store->options.memory;

	if (!limit)
		return host;
	limit = limit > store->mapped ? limit - store->mapped : 0;
	return limit < host ? limit : host;
}

/* The host must have it at once: what it has not when a page is touched would end us. */
static int map_region(struct held *held, bool huge)
{
	void *mem = MAP_FAILED;
	/* (sizes are encoded for memfds as they are for mmap) */
	int fd = memfd_create("rmem", MFD_CLOEXEC | (huge ? MFD_HUGETLB | MAP_HUGE_2MB : 0));

	if (fd < 0)
		return -1;
	if (!ftruncate(fd, held->mapped) && !fallocate(fd, 0, 0, held->mapped))
		mem = mmap(NULL, held->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* The mapping holds the memory. Descriptors would run out before memory does, if regions are small. */
	close(fd);
	held->region.mem = mem;
	return mem == MAP_FAILED ? -1 : 0;
}

/* -------------------------------------------------------------- regions -- */

/* Where a tag is, or would be. */
static size_t tag_index(const struct owner *owner, uint64_t tag)
{
	size_t low = 0, high = owner->count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (owner->by_tag[mid]->tag < tag)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The first region that begins behind an address. */
static size_t addr_index(const struct owner *owner, uint64_t addr)
{
	size_t low = 0, high = owner->count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (owner->by_addr[mid]->addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct region *region_of_tag(const struct owner *owner, uint64_t tag)
{
	size_t i = tag_index(owner, tag);

	return i < owner->count && owner->by_tag[i]->tag == tag ? owner->by_tag[i] : NULL;
}

struct region *region_at(const struct owner *owner, uint64_t addr, uint64_t len)
{
	size_t i = addr_index(owner, addr);
	struct region *region = i ? owner->by_addr[i - 1] : NULL;

	if (!region || !len || addr - region->addr >= region->size || len > region->size - (addr - region->addr))
		return NULL;
	return region;
}

static int more_room(struct owner *owner)
{
	size_t new_room = owner->room ? owner->room * 2 : 16;
	struct region **by_tag, **by_addr;

	if (owner->count < owner->room)
		return 0;
	by_tag = reallocarray(owner->by_tag, new_room, sizeof(*by_tag));
	if (!by_tag)
		return -1;
	owner->by_tag = by_tag;
	by_addr = reallocarray(owner->by_addr, new_room, sizeof(*by_addr));
	if (!by_addr)
		return -1;
	owner->by_addr = by_addr;
	owner->room = new_room;
	return 0;
}

static void insert(struct region **array, size_t count, size_t i, struct region *region)
{
	memmove(array + i + 1, array + i, (count - i) * sizeof(*array));
	array[i] = region;
}

static void take_out(struct region **array, size_t count, size_t i)
{
	memmove(array + i, array + i + 1, (count - i - 1) * sizeof(*array));
}

/* The header's list follows the array of tags. */
static void relink(struct owner *owner, size_t i)
{
	if (i > 0)
		owner->by_tag[i - 1]->next = i < owner->count ? owner->by_tag[i] : NULL;
	if (i < owner->count)
		owner->by_tag[i]->next = i + 1 < owner->count ? owner->by_tag[i + 1] : NULL;
}

/* NULL: no memory. The caller has looked that it fits in. */
static struct region *region_make(struct owner *owner, uint64_t tag, uint64_t addr, uint64_t size, uint32_t flags)
{
	struct held *held = calloc(1, sizeof(*held));
	struct region *region = &held->region;
	bool huge = owner->store->options.huge;
	size_t i = tag_index(owner, tag);

	if (!held || more_room(owner))
		goto failed;
	*region = (struct region){ .tag = tag, .addr = addr, .size = size, .flags = flags, .owner = owner };
	held->mapped = huge ? round_up(size, STRIDE) : size;
	if (map_region(held, huge))
		goto failed;
	insert(owner->by_tag, owner->count, i, region);
	insert(owner->by_addr, owner->count, addr_index(owner, addr), region);
	owner->count++;
	relink(owner, i);
	owner->mapped += held->mapped;
	owner->store->mapped += held->mapped;
	if (round_up(addr + size, STRIDE) + STRIDE > owner->next_addr)
		owner->next_addr = round_up(addr + size, STRIDE) + STRIDE;
	return region;
failed:
	free(held);
	return NULL;
}

static void region_end(struct region *region)
{
	struct owner *owner = region->owner;
	struct store *store = owner->store;
	struct held *held = HELD(region);
	size_t i = tag_index(owner, region->tag);

	if (store->options.region_gone)
		store->options.region_gone(region, store->options.arg);
	take_out(owner->by_tag, owner->count, i);
	take_out(owner->by_addr, owner->count, addr_index(owner, region->addr) - 1);
	owner->count--;
	relink(owner, i);
	owner->mapped -= held->mapped;
	store->mapped -= held->mapped;
	munmap(region->mem, held->mapped);
	free(held->dirty);
	free(held->suspect);
	free(held);
}

int region_restore(struct owner *owner, uint64_t tag, uint64_t addr, uint64_t size, uint32_t flags, struct region **region)
{
	/* (addresses only go up, but the index has regions by their tags) */
	size_t i = addr_index(owner, addr);

	if (addr < ADDR_FIRST || addr % STRIDE || addr > ADDR_END || !size || size % RMEM_PAGE || size > SIZE_MAX_REGION ||
	    flags & RMEM_SLAB || region_of_tag(owner, tag) ||
	    (i && addr - owner->by_addr[i - 1]->addr < owner->by_addr[i - 1]->size) ||
	    (i < owner->count && owner->by_addr[i]->addr - addr < size))
		return -1;
	*region = region_make(owner, tag, addr, size, flags);
	return *region ? 0 : store_fault(&owner->store->why, "region %016" PRIx64 " of %s: no memory for %" PRIu64
					 " bytes: free some, or raise vm.max_map_count", tag, owner->name, size);
}

/* ----------------------------------------------------------------- disk -- */

/* What something takes of the disk: its records, and pages of files at the next checkpoint. */
struct cost {
	uint64_t bytes, log, files;
};

static void add_cost(struct cost *cost, uint64_t addr, uint64_t len)
{
	cost->bytes += len;
	cost->log += log_size(len);
	/* (and a page of checksums) */
	cost->files += len ? round_up(addr + len, RMEM_PAGE) - addr / RMEM_PAGE * RMEM_PAGE + RMEM_PAGE : 0;
}

static bool is_logged(const struct region *region)
{
	return region->owner->store->path && !(region->flags & RMEM_SLAB);
}

static bool fits(const struct store *store, const struct cost *cost, uint64_t reserve)
{
	uint64_t files = store->uncopied + cost->files;
	struct statvfs fs;

	/* (some file systems in memory do not tell) */
	if (fstatvfs(store->dir, &fs) || !fs.f_blocks)
		return true;
	/* (a file has no more pages of checksums than others) */
	if (files > 2 * store->mapped)
		files = 2 * store->mapped;
	return store->log.used + cost->log + files + reserve <= (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* What is logged is synced; to another folder than the store's nothing is. */
static int sync_log(struct store *store)
{
	store->log.failed |= files_check(store) != 0;
	return log_sync(&store->log);
}

/*
 * A disk that is full when the log is written, or at a checkpoint, ends us for all clients. So what does not fit is refused
 * before anything of it happens. A checkpoint may make room, and says how much of the log the files really need.
 */
static enum rmem_status may_log(struct store *store, const struct cost *cost, uint64_t reserve)
{
	struct log *log = &store->log;

	if (!store->path)
		return RMEM_OK;
	if (cost->bytes > STORE_TXN_SIZE)
		return RMEM_FULL;
	if (!fits(store, cost, reserve)) {
		/* (if the disk fails in it, the next store_sync() says so) */
		if (log->lsn >= log->file.first && (sync_log(store) || files_checkpoint(store)))
			return RMEM_FULL;
		if (!fits(store, cost, reserve))
			return RMEM_FULL;
	}
	store->uncopied += cost->files;
	return RMEM_OK;
}

/* --------------------------------------------------------------- owners -- */

static bool name_good(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = strnlen(name, RMEM_NAME_SIZE);

	return len && len < RMEM_NAME_SIZE && strspn(name, allowed) == len;
}

struct owner *store_owner(struct store *store, const char *name)
{
	struct owner *owner;

	for (owner = store->owners; owner; owner = owner->next)
		if (!strcmp(owner->name, name))
			return owner;
	owner = name_good(name) ? calloc(1, sizeof(*owner)) : NULL;
	if (!owner)
		return NULL;
	strcpy(owner->name, name);
	owner->store = store;
	owner->next_addr = ADDR_FIRST;
	*store->last_owner = owner;
	store->last_owner = &owner->next;
	return owner;
}

const char *owner_name(const struct owner *owner)
{
	return owner->name;
}

uint64_t owner_last_txn(const struct owner *owner)
{
	return owner->last_txn;
}

struct region *owner_regions(const struct owner *owner)
{
	return owner->count ? owner->by_tag[0] : NULL;
}

void owner_quota(struct owner *owner, uint64_t bytes)
{
	owner->quota = bytes;
}

int store_each_owner(struct store *store, int (*each)(struct owner *, void *), void *arg)
{
	int ret = 0;

	for (struct owner *o = store->owners; o && !ret; o = o->next)
		ret = each(o, arg);
	return ret;
}

/* ---------------------------------------------------------------- alloc -- */

static void *append(struct owner *owner, struct log_entry entry, const void *payload)
{
	entry.owner = owner->name;
	return log_append(&owner->store->log, &entry, payload);
}

uint64_t owner_used(const struct owner *owner)
{
	return owner->mapped;
}

uint64_t owner_room(const struct owner *owner)
{
	uint64_t left = room(owner->store), quota = owner->quota;
	size_t regions = 0;

	for (const struct owner *o = owner->store->owners; o; o = o->next)
		regions += o->count;
	if (owner->count >= STORE_OWNER_REGIONS || regions >= REGIONS_MAX)
		return 0;
	if (!quota)
		return left;
	quota = quota > owner->mapped ? quota - owner->mapped : 0;
	return quota < left ? quota : left;
}

static enum rmem_status may_alloc(struct owner *owner, uint64_t size, uint32_t flags)
{
	struct cost cost = { 0 };

	if (owner->next_addr > ADDR_END || size > ADDR_END - owner->next_addr)
		return RMEM_FULL;
	if ((owner->store->options.huge ? round_up(size, STRIDE) : size) > owner_room(owner))
		return RMEM_FULL;
	add_cost(&cost, 0, 0);
	/* (its file has the number of a checkpoint, in a block of its own, before there is anything in it) */
	if (!(flags & RMEM_SLAB))
		cost.files += RMEM_PAGE;
	return may_log(owner->store, &cost, RESERVE);
}

enum rmem_status store_alloc(struct owner *owner, uint64_t tag, uint64_t size, uint32_t flags, struct region **region)
{
	enum rmem_status status;
	uint64_t addr = owner->next_addr;

	if (!size)
		return RMEM_EMPTY;
	*region = region_of_tag(owner, tag);
	if (*region) /* (no region has a size that is not whole pages) */
		return size <= (*region)->size && round_up(size, RMEM_PAGE) == (*region)->size && flags == (*region)->flags ?
		       RMEM_OK : RMEM_OTHER_SIZE;
	if (size > SIZE_MAX_REGION)
		return RMEM_FULL;
	size = round_up(size, RMEM_PAGE);
	status = may_alloc(owner, size, flags);
	if (status)
		return status;
	*region = region_make(owner, tag, addr, size, flags);
	if (!*region)
		return RMEM_FULL;
	if (!owner->store->path)
		return RMEM_OK;
	if (flags & RMEM_SLAB)
		append(owner, (struct log_entry){ .type = LOG_NEXT, .addr = owner->next_addr }, NULL);
	else
		append(owner, (struct log_entry){ .type = LOG_ALLOC, .addr = addr, .number = tag, .length = size,
		       .flags = flags }, NULL);
	return RMEM_OK;
}

void store_undo_alloc(struct region *region)
{
	if (is_logged(region))
		append(region->owner, (struct log_entry){ .type = LOG_FREE, .number = region->tag }, NULL);
	region_end(region);
}

enum rmem_status store_evict(struct owner *owner, uint64_t tag)
{
	struct region *region = region_of_tag(owner, tag);

	if (!region || !(region->flags & RMEM_SLAB))
		return RMEM_NO_TAG;
	region_end(region);
	return RMEM_OK;
}

/* ---------------------------------------------------------------- queue -- */

static enum rmem_status queue_room(struct owner *owner, unsigned int count)
{
	size_t want = owner->queue_room ? owner->queue_room : 64;
	struct queued *queue;
	uint64_t available;

	if (owner->queued + count > STORE_QUEUE)
		return RMEM_FULL;
	if (owner->queued + count <= owner->queue_room)
		return RMEM_OK;
	while (want < owner->queued + count)
		want *= 2;
	/* (the host's memory is not a client's to fill) */
	if (want * sizeof(*queue) > (1u << 20)) {
		host_available(&available);
		if (available < owner->store->options.headroom + want * sizeof(*queue))
			return RMEM_FULL;
	}
	queue = reallocarray(owner->queue, want, sizeof(*queue));
	if (!queue)
		return RMEM_FULL;
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

	if (!region || HELD(region)->freed)
		return RMEM_NO_TAG;
	entry->src = region->tag;
	entry->dst = region->addr;
	HELD(region)->freed = true;
	return RMEM_OK;
}

static struct region *freed_by(const struct owner *owner, const struct queued *entry)
{
	struct region *region = entry->kind == RMEM_OP_FREE ? region_of_tag(owner, entry->src) : NULL;

	/* (a slab may have been evicted since, and its tag given to another region) */
	return region && region->addr == entry->dst ? region : NULL;
}

static void clear_freed(struct owner *owner, size_t from)
{
	for (size_t i = from; i < owner->queued; i++) {
		struct region *region = freed_by(owner, &owner->queue[i]);

		if (region)
			HELD(region)->freed = false;
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
	free(owner->queue);
	owner->queue = NULL;
	owner->queued = owner->queue_room = 0;
}

/* ------------------------------------------------------------------- go -- */

/* The queue was good when it came; since then slabs may have gone. Marks what it frees on the way. */
static enum rmem_status look_through(struct owner *owner)
{
	struct cost cost = { 0 };

	clear_freed(owner, 0);
	for (size_t i = 0; i < owner->queued; i++) {
		const struct queued *entry = &owner->queue[i];
		struct region *dst, *src;

		if (entry->kind == RMEM_OP_FREE) {
			dst = freed_by(owner, entry);
			if (dst)
				HELD(dst)->freed = true;
			add_cost(&cost, 0, 0);
			continue;
		}
		dst = region_at(owner, entry->dst, entry->len);
		src = region_at(owner, entry->src, entry->len);
		if (!dst || !src || HELD(dst)->freed || HELD(src)->freed)
			return RMEM_OUT_OF_RANGE;
		if (is_logged(dst))
			add_cost(&cost, entry->dst, entry->len);
		if (cost.bytes > STORE_TXN_SIZE)
			return RMEM_FULL;
	}
	add_cost(&cost, 0, 0);
	/* (what only frees makes room, and so may have the last of it) */
	return may_log(owner->store, &cost, cost.files ? RESERVE : 0);
}

/* Bytes of a region into the log. To memory they go from there: a client may write to their source at any time. */
static void log_bytes(struct region *region, uint64_t addr, const uint8_t *from, uint64_t len, bool more, bool copy)
{
	while (len) {
		uint32_t part = len < LOG_DATA_MAX ? len : LOG_DATA_MAX;
		const void *staged = append(region->owner, (struct log_entry){ .type = LOG_DATA, .more = more, .addr = addr,
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
		append(owner, (struct log_entry){ .type = LOG_FREE, .more = true, .number = region->tag }, NULL);
	region_end(region);
}

static enum rmem_status may_go(struct owner *owner, uint64_t txn, uint64_t count)
{
	if (txn != owner->last_txn + 1 || count != owner->queued)
		return RMEM_BAD_TXN;
	return count ? look_through(owner) : RMEM_EMPTY;
}

enum rmem_status store_go(struct owner *owner, uint64_t txn, uint64_t count)
{
	enum rmem_status status;

	if (txn && txn == owner->last_txn) {
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
	if (owner->store->path)
		append(owner, (struct log_entry){ .type = LOG_COMMIT, .number = txn }, NULL);
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
		/* (a page is in one record, so a record ends where a page does) */
		uint64_t part = LOG_DATA_MAX - addr % RMEM_PAGE;

		if (part > len)
			part = len;
		log_bytes(region, addr, region->mem + (addr - region->addr), part, false, false);
		addr += part;
		len -= part;
	}
	return RMEM_OK;
}

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
	stats->free = room(store);
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

	if (files_open(store) || log_init(&store->log, store->dir, store->path, &store->why))
		return -1;
	found = files_read_index(store, &first);
	if (found < 0 || (found && (log_open(&store->log, first) || files_read_regions(store) ||
				    log_each(&store->log, replay, store) || files_end_replay(store))))
		return -1;
	/* So each run begins with a log of its own, and no run has to know what is behind the end of another's. */
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
	store->options.region_gone = NULL; /* (what ends while the log is read nobody has seen) */
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
		/* The record says that what is before it is synced: if one of those can't be read then, it is damage. */
		if (!sync_log(store))
			log_append(&store->log, &(struct log_entry){ .type = LOG_CLOSED }, NULL);
		log_sync(&store->log);
	}
	store_free(store);
}
