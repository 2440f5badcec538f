// SPDX-License-Identifier: MIT
/*
 * A table of regions, sorted by tag and by address. An evicted slab stays in the table until its tag is allocated again, so that
 * its range is -ESTALE.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../common/places.h"
#include "internal.h"

/* The first place whose region has at least this tag. */
static size_t place_of_tag(const struct table *t, uint64_t tag)
{
	return RMEM_FIRST_PLACE(i, t->count, t->by_tag[i]->known.tag >= tag);
}

/* The first place whose region begins behind @addr. */
static size_t place_behind(const struct table *t, uint64_t addr)
{
	return RMEM_FIRST_PLACE(i, t->count, t->by_addr[i]->known.addr > addr);
}

struct region *table_find(const struct table *t, uint64_t tag)
{
	size_t at = place_of_tag(t, tag);

	return at < t->count && t->by_tag[at]->known.tag == tag ? t->by_tag[at] : NULL;
}

static void insert(struct region **array, size_t count, size_t at, struct region *region)
{
	memmove(array + at + 1, array + at, (count - at) * sizeof(*array));
	array[at] = region;
}

static int grow(struct table *t)
{
	size_t room = t->room ? 2 * t->room : 16;
	struct region **by_tag, **by_addr;

	if (t->count < t->room)
		return 0;
	by_tag = realloc(t->by_tag, room * sizeof(*by_tag));
	if (by_tag)
		t->by_tag = by_tag;
	by_addr = realloc(t->by_addr, room * sizeof(*by_addr));
	if (by_addr)
		t->by_addr = by_addr;
	if (!by_tag || !by_addr)
		return fail(-ENOMEM, "regions: no memory for %zu of them", room);
	t->room = room;
	return 0;
}

static void release(struct region *region)
{
	region->gone = true;
	if (!region->busy)
		free(region);
}

static void take_out(struct table *t, struct region *region)
{
	size_t tag = place_of_tag(t, region->known.tag), addr = 0;

	while (t->by_addr[addr] != region)
		addr++;
	t->count--;
	memmove(t->by_tag + tag, t->by_tag + tag + 1, (t->count - tag) * sizeof(*t->by_tag));
	memmove(t->by_addr + addr, t->by_addr + addr + 1, (t->count - addr) * sizeof(*t->by_addr));
	release(region);
}

int table_put(struct table *t, const struct region *what)
{
	struct region *old = table_find(t, what->known.tag), *region;

	if (grow(t))
		return -ENOMEM;
	region = malloc(sizeof(*region));
	if (!region)
		return fail(-ENOMEM, "regions: no memory");
	*region = *what;
	if (old && old->known.addr == what->known.addr)
		region->heat = old->heat;
	if (old)
		take_out(t, old);
	insert(t->by_tag, t->count, place_of_tag(t, region->known.tag), region);
	insert(t->by_addr, t->count, place_behind(t, region->known.addr), region);
	t->count++;
	return 0;
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->count; i++)
		release(t->by_tag[i]);
	free(t->by_tag);
	free(t->by_addr);
	*t = (struct table){ 0 };
}

struct region *region_of(struct rmem *r, uint64_t tag)
{
	return table_find(&r->table, tag);
}

int region_at(struct rmem *r, uint64_t addr, uint64_t len, struct region **region)
{
	size_t at = place_behind(&r->table, addr);
	struct region *found = at ? r->table.by_addr[at - 1] : NULL;

	if (!found || addr - found->known.addr > found->known.size ||
	    len > found->known.size - (addr - found->known.addr))
		return fail(-ERANGE, "range 0x%llx, %llu bytes: it is not in a region of this client", (unsigned long long)addr,
			    (unsigned long long)len);
	if (found->leaving)
		return fail(-ESTALE, "slab %llu: the donor has taken it back: allocate it anew",
			    (unsigned long long)found->known.tag);
	*region = found;
	return 0;
}

void region_drop(struct region *region)
{
	region->busy--;
	if (region->gone && !region->busy)
		free(region);
}

void region_remove(struct rmem *r, uint64_t tag)
{
	struct region *region = region_of(r, tag);

	if (region)
		take_out(&r->table, region);
}
