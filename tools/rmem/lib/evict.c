// SPDX-License-Identifier: MIT
/*
 * The donor wants slabs back. A slab that it has sent a notice of is used to the end by what is under way; then the program is
 * told, then the donor.
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

static void answer(struct rmem *r, uint64_t tag)
{
	struct rmem_evict body = { .tag = htole64(tag) };

	request_post(r, RMEM_EVICTED, &body, sizeof(body), NULL);
}

static void take_notice(struct rmem *r, uint64_t tag)
{
	struct region *region = region_of(r, tag);

	if (region) {
		region->leaving = region->noticed = true;
		r->noticed = true;
	} else if (request_possible(r)) { /* freed meanwhile; without an answer the donor finds out as well */
		answer(r, tag);
	}
}

/* The table of a connection that broke says nothing about this one's regions. */
void evict_notice(struct rmem *r, uint64_t tag)
{
	if (r->state == CONNECTING) {
		r->early = true;
		r->early_tag = tag;
	} else {
		take_notice(r, tag);
	}
}

void evict_early(struct rmem *r)
{
	if (r->early)
		take_notice(r, r->early_tag);
	r->early = false;
}

void evict_run(struct rmem *r)
{
	bool left = false;

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
		answer(r, region->known.tag);
		region->let_go = r->next_id;
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
