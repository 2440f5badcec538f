// SPDX-License-Identifier: MIT
/*
 * How much slabs are used. The donor asks this before it takes some back.
 *
 * This file is part of the circle that wait.c tells of.
 */
#include <string.h>
#include "internal.h"

/* For each second that has passed: 0.2 of the count in it, and 0.8 of the average before. */
static void fold(struct heat *heat, int64_t now)
{
	int64_t seconds = (now - heat->since) / 1000;

	/* A process that was moved may find that the clock went back. */
	if (seconds < 0)
		heat->since = now;
	if (seconds < 1)
		return;
	heat->average = (4 * heat->average + 1000 * heat->count) / 5;
	heat->count = 0;
	for (int64_t i = 1; i < seconds && heat->average; i++)
		heat->average = 4 * heat->average / 5;
	heat->since += 1000 * seconds;
}

void heat_count(struct region *region, int64_t now)
{
	fold(&region->heat, now);
	region->heat.count++;
}

static void answer(struct rmem *r)
{
	union {
		struct rmem_heat heat;
		uint8_t bytes[sizeof(struct rmem_heat) + RMEM_HEAT_MAX * sizeof(struct rmem_slab_heat)];
	} body;
	int64_t now = now_ms();
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->ask.count; i++) {
		struct region *region = region_of(r, r->ask.tags[i]);

		if (!region || region->leaving)
			continue;
		fold(&region->heat, now);
		body.heat.slabs[count].tag = htole64(region->known.tag);
		body.heat.slabs[count++].heat = htole64(region->heat.average);
	}
	body.heat.round = htole32(r->ask.round);
	body.heat.count = htole32(count);
	request_post(r, RMEM_HEAT, &body, sizeof(body.heat) + count * sizeof(body.heat.slabs[0]));
}

int heat_notice(struct rmem *r, const struct rmem_ask_heat *ask, size_t size)
{
	uint32_t count;

	if (size < sizeof(*ask))
		return -1;
	count = le32toh(ask->count);
	if (!count || count > RMEM_HEAT_MAX || size != sizeof(*ask) + count * sizeof(ask->tags[0]))
		return -1;
	r->ask.round = le32toh(ask->round);
	r->ask.count = count;
	for (uint32_t i = 0; i < count; i++)
		r->ask.tags[i] = le64toh(ask->tags[i]);
	heat_run(r);
	return 0;
}

void heat_run(struct rmem *r)
{
	if (!r->ask.count || !request_possible(r))
		return;
	answer(r);
	r->ask.count = 0;
}
