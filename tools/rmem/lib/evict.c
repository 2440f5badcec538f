// SPDX-License-Identifier: MIT
/*
 * The donor wants slabs back. It sends a notice of a slab. Operations that are under way on this slab end first. Then the library
 * tells the program, and then the donor.
 *
 * This file is part of the circle that wait.c tells of.
 */
#include "internal.h"

void evict_taken(struct rmem *r, struct region *region)
{
	region->leaving = true;
	if (region->evicted)
		return;
	region->evicted = true;
	if (r->evicted)
		r->evicted(&region->known, r->evicted_arg);
}

/* The answer to an ALLOC of this tag may name the region that is given back just now. */
static void answer(struct rmem *r, uint64_t tag, uint64_t addr)
{
	struct rmem_evict body = { .tag = htole64(tag), .addr = htole64(addr) };

	request_post(r, RMEM_EVICTED, &body, sizeof(body));
	for (struct slot *slot = r->slot; slot < r->slot + RMEM_SLOTS; slot++) {
		struct alloc *alloc = &slot->wanted.alloc;

		if (slot->wanted.op && slot->type == RMEM_ALLOC && alloc->tag == tag && alloc->let_go < addr)
			alloc->let_go = addr;
	}
}

static void wait_with(struct rmem *r, uint64_t tag, uint64_t addr)
{
	r->early = true;
	r->early_tag = tag;
	r->early_addr = addr;
}

/* A slab that is not in the table was freed meanwhile, or there was no memory for it in the table. */
static void take_notice(struct rmem *r, uint64_t tag, uint64_t addr)
{
	struct region *region = region_of(r, tag);

	if (region && region->known.addr == addr) {
		region->leaving = region->noticed = true;
		r->noticed = true;
	} else if (request_possible(r)) {
		answer(r, tag, addr);
	} else {
		wait_with(r, tag, addr);
	}
}

/* The table of a broken connection says nothing about the regions of this one. */
void evict_notice(struct rmem *r, uint64_t tag, uint64_t addr)
{
	if (r->state == CONNECTING)
		wait_with(r, tag, addr);
	else
		take_notice(r, tag, addr);
}

void evict_early(struct rmem *r)
{
	if (!r->early)
		return;
	r->early = false;
	take_notice(r, r->early_tag, r->early_addr);
}

void evict_run(struct rmem *r)
{
	bool left = false;

	heat_run(r);
	if (r->state == UP)
		evict_early(r);
	if (!r->noticed)
		return;
	for (size_t i = 0; i < r->table.count; i++) {
		struct region *region = r->table.by_tag[i];

		if (!region->noticed)
			continue;
		if (region->busy || !request_possible(r)) {
			left = true;
			continue;
		}
		region->noticed = false;
		evict_taken(r, region);
		answer(r, region->known.tag, region->known.addr);
	}
	r->noticed = left;
}

void rmem_on_evict(struct rmem *r, void (*evicted)(const struct rmem_region *, void *), void *arg)
{
	pthread_mutex_lock(&r->lock);
	r->evicted = evicted;
	r->evicted_arg = arg;
	pthread_mutex_unlock(&r->lock);
}
