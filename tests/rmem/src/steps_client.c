// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "steps.h"

enum { PAGE = 4096, REAL_SIZE = 3 * PAGE, ROUNDS = 3, PATIENCE_S = 120 };
enum { REAL = 1, SHADOW, LINE, TEMPORARY }; /* tags; each round has a temporary region of its own */

/* What happens wholly or not at all. */
struct unit {
	enum { ALLOC, CHANGE, ABORTED, FREE, FLUSH } does;
	uint64_t tag; /* the region that is made, or changed together with REAL, or freed together with a change of REAL */
};

static const struct unit units[] = {
	{ ALLOC, REAL }, { ALLOC, SHADOW }, { ALLOC, LINE },
#define ROUND(n) { ALLOC, TEMPORARY + n }, { CHANGE, TEMPORARY + n }, { FLUSH, LINE }, { ABORTED, REAL }, { FREE, TEMPORARY + n }
	ROUND(0), ROUND(1), { ALLOC, TEMPORARY + 2 }, { CHANGE, TEMPORARY + 2 }, { CHANGE, REAL },
};
#define UNITS (sizeof(units) / sizeof(*units))

static uint8_t bytes[REAL_SIZE], other[REAL_SIZE];

uint64_t client_units(void)
{
	return UNITS;
}

/* Version 0 is what a new region has. */
static void fill(uint8_t *to, unsigned int size, unsigned int version)
{
	for (unsigned int i = 0; i < size; i++)
		to[i] = version ? version * 37 + i / PAGE * 11 + i % 251 : 0;
}

static uint64_t size_of(uint64_t tag)
{
	return tag < LINE ? REAL_SIZE : PAGE;
}

static struct rmem *connect_to(const struct who *who)
{
	const struct rmem_options o = { .host = who->host, .port = who->port, .client = who->client, .key_file = who->key };
	time_t end = time(NULL) + PATIENCE_S;
	struct rmem *r;

	while (!(r = rmem_connect(&o, NULL)) && time(NULL) < end)
		usleep(20000);
	return r;
}

/* ------------------------------------------------------------------ the client */

static bool lost(int result)
{
	return result == -ENOTCONN || result == -ETIMEDOUT;
}

static int again(struct rmem *r)
{
	time_t end = time(NULL) + PATIENCE_S;
	int result;

	while ((result = rmem_reconnect(r)) != 0 && result != -ESTALE && time(NULL) < end)
		usleep(20000);
	return result == -ESTALE ? 0 : result;
}

/* Repeats the commit until it is known whether it took place: returns 0, or -ENODATA. */
static int go(struct rmem *r)
{
	int result = rmem_txn_go(r);

	while (lost(result)) {
		if (again(r))
			return -ETIMEDOUT;
		result = rmem_txn_go(r);
	}
	return result;
}

static int change(struct rmem *r, const struct unit *unit, unsigned int version)
{
	struct rmem_region real, shadow, t;
	int result;

	if (rmem_find(r, REAL, &real) || rmem_find(r, SHADOW, &shadow) || rmem_find(r, unit->tag, &t))
		return -ENOENT;
	fill(bytes, REAL_SIZE, version);
	result = rmem_put(r, shadow.addr, bytes, REAL_SIZE);
	if (!result)
		result = rmem_cp(r, real.addr, shadow.addr, PAGE);
	if (!result)
		result = rmem_cp(r, real.addr + PAGE, shadow.addr + PAGE, REAL_SIZE - PAGE);
	if (!result && unit->does == CHANGE && unit->tag != REAL)
		result = rmem_cp(r, t.addr, shadow.addr, PAGE);
	if (!result && unit->does == FREE)
		result = rmem_free(r, unit->tag);
	if (result)
		return result;
	return unit->does == ABORTED ? rmem_txn_abort(r) : go(r);
}

static int flush(struct rmem *r, unsigned int version)
{
	struct rmem_region line;
	int result = rmem_find(r, LINE, &line);

	fill(bytes, PAGE, version);
	if (!result)
		result = rmem_put(r, line.addr, bytes, PAGE);
	return result ? result : rmem_flush(r, line.addr, PAGE);
}

static int do_unit(struct rmem *r, uint64_t n)
{
	uint64_t addr;

	switch (units[n].does) {
	case ALLOC: return rmem_alloc(r, units[n].tag, size_of(units[n].tag), 0, &addr);
	case FLUSH: return flush(r, n + 1);
	default: return change(r, &units[n], n + 1);
	}
}

int client_run(const struct who *who, struct steps *steps)
{
	struct rmem *r = connect_to(who);
	int result = r ? 0 : -ENOTCONN;

	while (!result && steps->acked < UNITS) {
		result = do_unit(r, steps->acked);
		if (!result) {
			steps->acked++;
		} else if (lost(result) || result == -ENODATA || result == -EBUSY) {
			/* The whole unit is done again, so what is still queued is dropped. */
			result = again(r);
			if (!result && rmem_txn_abort(r))
				result = -EPROTO;
		}
	}
	if (result)
		snprintf(steps->failed, sizeof(steps->failed), "after %llu units: %s: %s", (unsigned long long)steps->acked,
			 strerror(-result), rmem_error());
	rmem_close(r);
	return result ? 1 : 0;
}

/* ------------------------------------------------------------------ the model */

struct model {
	bool there[TEMPORARY + ROUNDS];
	unsigned int version[TEMPORARY + ROUNDS];
	uint64_t txns, tags;
};

static struct model after(uint64_t n)
{
	struct model m = { 0 };

	for (uint64_t i = 0; i < n; i++) {
		const struct unit *unit = &units[i];

		if (unit->does == ABORTED)
			continue;
		if (unit->does == ALLOC)
			m.there[unit->tag] = true;
		if (unit->does == CHANGE || unit->does == FLUSH)
			m.version[unit->tag] = i + 1;
		if (unit->does == CHANGE || unit->does == FREE) {
			m.version[REAL] = i + 1;
			m.txns++;
		}
		if (unit->does == FREE)
			m.there[unit->tag] = false;
	}
	for (unsigned int tag = REAL; tag < TEMPORARY + ROUNDS; tag++)
		m.tags += m.there[tag];
	return m;
}

static char why[300];

static bool wrong(const char *what, uint64_t tag, uint64_t is, uint64_t must)
{
	snprintf(why, sizeof(why), "tag %llu: %s is %llu, not %llu", (unsigned long long)tag, what, (unsigned long long)is,
		 (unsigned long long)must);
	return true;
}

static bool region_differs(struct rmem *r, const struct model *m, uint64_t tag)
{
	struct rmem_region region;
	bool there = !rmem_find(r, tag, &region);

	if (there != m->there[tag])
		return wrong("whether it is there", tag, there, m->there[tag]);
	if (!there || tag == SHADOW)
		return false;
	if (region.size != size_of(tag))
		return wrong("the size", tag, region.size, size_of(tag));
	if (rmem_get(r, other, region.addr, region.size))
		return wrong("a get's failure", tag, 1, 0);
	fill(bytes, region.size, m->version[tag]);
	for (uint64_t i = 0; i < region.size; i++)
		if (bytes[i] != other[i])
			return wrong("the first byte that differs", tag, i, region.size);
	return false;
}

static int count_one(const struct rmem_region *region, void *count)
{
	(void)region;
	++*(uint64_t *)count;
	return 0;
}

static bool differs(struct rmem *r, uint64_t n)
{
	struct model m = after(n);
	uint64_t count = 0;

	for (uint64_t tag = REAL; tag < TEMPORARY + ROUNDS; tag++)
		if (region_differs(r, &m, tag))
			return true;
	rmem_each(r, count_one, &count);
	if (count != m.tags)
		return wrong("the number of tags", 0, count, m.tags);
	if (rmem_last_txn(r) != m.txns)
		return wrong("the last transaction", 0, rmem_last_txn(r), m.txns);
	return false;
}

const char *client_check(const struct who *who, uint64_t acked, uint64_t *found)
{
	struct rmem *r = connect_to(who);
	static char both[700];
	int length;

	if (!r)
		return "the donor can't be reached";
	*found = acked;
	both[0] = '\0';
	if (differs(r, acked)) {
		length = snprintf(both, sizeof(both), "neither %llu units (%s)", (unsigned long long)acked, why);
		*found = acked + 1;
		if (acked < UNITS && !differs(r, acked + 1))
			both[0] = '\0';
		else
			snprintf(both + length, sizeof(both) - length, " nor one more (%s)", why);
	}
	rmem_close(r);
	return both[0] ? both : NULL;
}
