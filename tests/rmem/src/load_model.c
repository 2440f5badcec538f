// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define ODD 0x9e3779b97f4a7c15ull

struct region *region_new(uint64_t tag, uint64_t size)
{
	struct region *region = calloc(1, sizeof(*region));

	if (!region)
		abort();
	region->tag = tag;
	region->size = size;
	region->now = calloc(1, size);
	region->durable = calloc(1, size);
	if (!region->now || !region->durable)
		abort();
	return region;
}

void region_end(struct region *region)
{
	free(region->now);
	free(region->durable);
	free(region);
}

static void cell_of(uint64_t cell[2], uint64_t tag, uint64_t off, uint64_t version)
{
	cell[1] = version * ODD;
	cell[0] = (tag << 32 | off / 16) ^ cell[1];
}

void fill(uint8_t *data, const struct region *region, uint64_t off, uint64_t len, uint64_t version)
{
	uint64_t cell[2], at = off, in, n;

	while (at < off + len) {
		in = at % 16;
		n = 16 - in < off + len - at ? 16 - in : off + len - at;
		cell_of(cell, region->tag, at - in, version);
		memcpy(data + (at - off), (uint8_t *)cell + in, n);
		at += n;
	}
}

/* What a cell says of itself. */
static void describe(char *text, size_t size, const uint8_t *bytes)
{
	uint64_t cell[2], inverse = ODD, place;
	int i;

	/* Newton's method: each step doubles the number of right bits. */
	for (i = 0; i < 5; i++)
		inverse *= 2 - ODD * inverse;
	memcpy(cell, bytes, 16);
	place = cell[0] ^ cell[1];
	if (!cell[0] && !cell[1])
		snprintf(text, size, "nothing");
	else if ((place & 0xffffffff) * 16 >= MAX_REGION)
		snprintf(text, size, "a part of a copy");
	else
		snprintf(text, size, "tag %llu, page %llu, version %llu", (unsigned long long)(place >> 32),
			 (unsigned long long)((place & 0xffffffff) * 16 / PAGE), (unsigned long long)(cell[1] * inverse));
}

void compare(struct thread *t, const struct region *region, uint64_t off, const uint8_t *got, const uint8_t *must,
	     uint64_t len)
{
	char is[80] = "a part of a cell", ought[80] = "another";
	uint64_t i = 0, cell, wrong = 0, k;

	if (!memcmp(got, must, len))
		return;
	while (got[i] == must[i])
		i++;
	for (k = i; k < len; k++)
		wrong += got[k] != must[k];
	cell = (off + i) & ~15ull;
	if (cell >= off && cell + 16 <= off + len) {
		describe(is, sizeof(is), got + (cell - off));
		describe(ought, sizeof(ought), must + (cell - off));
	}
	fail(t, "tag %llu + %llu, page %llu: %llu of %llu bytes are wrong: it is %s; it must be %s",
	     (unsigned long long)region->tag, (unsigned long long)(off + i), (unsigned long long)((off + i) / PAGE),
	     (unsigned long long)wrong, (unsigned long long)len, is, ought);
}

static void forget(struct thread *t, const struct region *region)
{
	unsigned int i = 0;

	while (t->regions[i] != region)
		i++;
	t->regions[i] = t->regions[--t->num_regions];
}

void model_commit(struct thread *t)
{
	const struct copy *c;
	unsigned int i;

	for (i = 0; i < t->num_copies; i++) {
		c = &t->copies[i];
		memcpy(c->dst->now + c->dst_off, c->src->now + c->src_off, c->len);
		memcpy(c->dst->durable + c->dst_off, c->dst->now + c->dst_off, c->len);
	}
	for (i = 0; i < t->num_freed; i++) {
		forget(t, t->freed[i]);
		region_end(t->freed[i]);
	}
	t->num_copies = t->num_freed = 0;
}

void model_restart(struct thread *t, struct region *region, const uint8_t *got, const struct part *flush)
{
	uint64_t at, from, to;
	uint8_t page[PAGE];

	for (at = 0; at < region->size; at += PAGE) {
		memcpy(page, region->durable + at, PAGE);
		/* A page of an unanswered flush is there wholly or not at all. */
		if (flush && memcmp(got + at, page, PAGE)) {
			from = flush->off > at ? flush->off : at;
			to = flush->off + flush->len < at + PAGE ? flush->off + flush->len : at + PAGE;
			if (from < to)
				memcpy(page + (from - at), region->now + from, to - from);
		}
		compare(t, region, at, got + at, page, PAGE);
	}
	memcpy(region->now, got, region->size);
	memcpy(region->durable, got, region->size);
}
