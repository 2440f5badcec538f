// SPDX-License-Identifier: MIT
/*
 * The memory of regions, and where to find them: by their tags, and by their addresses.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <rmem.h>
#include "../common/places.h"
#include "host.h"
#include "store_internal.h"

/* Bytes that the host has for us. Huge pages are set apart: if we take them, the host loses none of its other memory. */
static uint64_t host_free(const struct store *store)
{
	uint64_t available;

	if (store->options.huge)
		return host_meminfo("HugePages_Free") * STRIDE;
	/* If this fails, it stores 0, and nothing is lent. */
	host_available(&available);
	return available > store->options.headroom ? available - store->options.headroom : 0;
}

uint64_t memory_room(const struct store *store)
{
	uint64_t host = host_free(store), left = left_of(store->options.memory, store->mapped + store->queues);

	return left < host ? left : host;
}

/* fallocate() takes all the memory at once. If the host had none when a page is touched later, that would end rmemd. */
static int map_region(struct stored *stored, bool huge)
{
	void *mem = MAP_FAILED;
	/* memfd_create() encodes the size of huge pages as mmap() does. */
	int fd = memfd_create("rmem", MFD_CLOEXEC | (huge ? MFD_HUGETLB | MAP_HUGE_2MB : 0));

	if (fd < 0)
		return -1;
	if (!ftruncate(fd, stored->mapped) && !fallocate(fd, 0, 0, stored->mapped))
		mem = mmap(NULL, stored->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* The mapping keeps the memory. With a descriptor for each small region, descriptors would run out before memory does. */
	close(fd);
	stored->region.mem = mem;
	return mem == MAP_FAILED ? -1 : 0;
}

/* -------------------------------------------------------------- regions -- */

/* Where a tag is, or would be. */
static size_t tag_index(const struct owner *owner, uint64_t tag)
{
	return RMEM_FIRST_PLACE(i, owner->count, owner->by_tag[i]->tag >= tag);
}

/* The first region that begins behind an address. */
static size_t addr_index(const struct owner *owner, uint64_t addr)
{
	return RMEM_FIRST_PLACE(i, owner->count, owner->by_addr[i]->addr > addr);
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

/* Keeps region.next in the order of by_tag. */
static void relink(struct owner *owner, size_t i)
{
	if (i > 0)
		owner->by_tag[i - 1]->next = i < owner->count ? owner->by_tag[i] : NULL;
	if (i < owner->count)
		owner->by_tag[i]->next = i + 1 < owner->count ? owner->by_tag[i + 1] : NULL;
}

struct region *region_make(struct owner *owner, uint64_t tag, uint64_t addr, uint64_t size, uint32_t flags)
{
	struct stored *stored = calloc(1, sizeof(*stored));
	struct region *region = &stored->region;
	bool huge = owner->store->options.huge;
	size_t i = tag_index(owner, tag);

	if (!stored || more_room(owner))
		goto failed;
	*region = (struct region){ .tag = tag, .addr = addr, .size = size, .flags = flags, .owner = owner };
	stored->mapped = huge ? round_up(size, STRIDE) : size;
	if (map_region(stored, huge))
		goto failed;
	insert(owner->by_tag, owner->count, i, region);
	insert(owner->by_addr, owner->count, addr_index(owner, addr), region);
	owner->count++;
	relink(owner, i);
	owner->mapped += stored->mapped;
	owner->store->mapped += stored->mapped;
	if (round_up(addr + size, STRIDE) + STRIDE > owner->next_addr)
		owner->next_addr = round_up(addr + size, STRIDE) + STRIDE;
	return region;
failed:
	free(stored);
	return NULL;
}

void region_end(struct region *region)
{
	struct owner *owner = region->owner;
	struct store *store = owner->store;
	struct stored *stored = STORED(region);
	size_t i = tag_index(owner, region->tag);

	if (store->options.region_gone)
		store->options.region_gone(region, store->options.arg);
	take_out(owner->by_tag, owner->count, i);
	take_out(owner->by_addr, owner->count, addr_index(owner, region->addr) - 1);
	owner->count--;
	relink(owner, i);
	owner->mapped -= stored->mapped;
	store->mapped -= stored->mapped;
	munmap(region->mem, stored->mapped);
	free(stored->dirty);
	free(stored->suspect);
	free(stored);
}

int region_restore(struct owner *owner, uint64_t tag, uint64_t addr, uint64_t size, uint32_t flags, struct region **region)
{
	/* Each new region has a higher address, but the index has regions in the order of tags. So look at both neighbours. */
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
