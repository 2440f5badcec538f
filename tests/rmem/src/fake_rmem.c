// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rmem.h"
#include "fake_rmem.h"

enum { REGIONS = 16, COPIES = 4096 };

struct fake fake;

static struct fake_region regions[REGIONS];
static uint64_t next_addr = 1 << 20;

/* The donor's and the client's ends of the one connection. */
static bool up = true;
static unsigned int number = 1;
static uint64_t donor_last, last;

static struct copy {
	uint64_t dst, src;
	size_t len;
} queue[COPIES];
static size_t queued;
static enum { OPEN, DOUBT, COMMITTED, AGAIN, FORGOTTEN } txn;

static _Noreturn void cannot(void)
{
	abort();
}

static int breaks(enum fake_break when)
{
	if (!up)
		return -ENOTCONN;
	if (fake.breaks != when)
		return 0;
	fake.breaks = BREAKS_NOT;
	up = false;
	number++;
	return -ENOTCONN;
}

/* ------------------------------------------------------------------ regions */

struct fake_region *fake_region(uint64_t tag)
{
	for (struct fake_region *r = regions; r < regions + REGIONS; r++)
		if (r->size && r->tag == tag)
			return r;
	return NULL;
}

static struct fake_region *region_at(uint64_t addr, size_t len)
{
	for (struct fake_region *r = regions; r < regions + REGIONS; r++)
		if (r->size && addr >= r->addr && addr - r->addr <= r->size && len <= r->size - (addr - r->addr))
			return r;
	cannot();
}

static uint8_t *at(uint64_t addr, size_t len)
{
	struct fake_region *r = region_at(addr, len);

	return r->now + (addr - r->addr);
}

int rmem_find(struct rmem *r, uint64_t tag, struct rmem_region *known)
{
	struct fake_region *region = fake_region(tag);

	(void)r;
	if (!region || region->hidden)
		return -ENOENT;
	*known = (struct rmem_region){ .tag = tag, .addr = region->addr, .size = region->size };
	return 0;
}

int rmem_alloc(struct rmem *r, uint64_t tag, size_t size, unsigned int flags, uint64_t *addr)
{
	struct fake_region *region = fake_region(tag);

	(void)r;
	(void)flags;
	if (!up)
		return -ENOTCONN;
	if (region && region->size != size)
		return -EEXIST;
	if (!region) {
		for (region = regions; region->size; region++)
			;
		*region = (struct fake_region){ .tag = tag, .addr = next_addr, .size = size, .now = calloc(1, size),
						.durable = calloc(1, size) };
		next_addr += size + 4096;
	}
	region->hidden = false;
	*addr = region->addr;
	return 0;
}

int rmem_free(struct rmem *r, uint64_t tag)
{
	(void)r;
	(void)tag;
	cannot(); /* nothing here ends a memory */
}

int rmem_register(struct rmem *r, void *buf, size_t size)
{
	(void)r;
	(void)buf;
	(void)size;
	return 0;
}

int rmem_unregister(struct rmem *r, void *buf)
{
	(void)r;
	(void)buf;
	return 0;
}

/* ------------------------------------------------------------------ one-sided */

int rmem_get(struct rmem *r, void *dst, uint64_t src, size_t len)
{
	(void)r;
	if (!up)
		return -ENOTCONN;
	memcpy(dst, at(src, len), len);
	return 0;
}

int rmem_get_async(struct rmem *r, void *dst, uint64_t src, size_t len, struct rmem_op *op)
{
	(void)op;
	return rmem_get(r, dst, src, len);
}

/* A put that breaks leaves a part of its bytes. */
int rmem_put_async(struct rmem *r, uint64_t dst, const void *src, size_t len, struct rmem_op *op)
{
	int ret = breaks(BREAKS_IN_PUT);

	(void)r;
	(void)op;
	if (up || ret)
		memcpy(at(dst, len), src, ret ? len / 2 : len);
	return ret;
}

int rmem_wait(struct rmem *r, struct rmem_op *op)
{
	(void)r;
	return op->result;
}

/* ------------------------------------------------------------------ transactions */

int rmem_cp(struct rmem *r, uint64_t dst, uint64_t src, size_t len)
{
	(void)r;
	if (!up)
		return -ENOTCONN;
	if (txn != OPEN)
		return -EBUSY;
	if (queued == COPIES)
		cannot();
	queue[queued++] = (struct copy){ dst, src, len };
	return 0;
}

static void drop(void)
{
	queued = 0;
	txn = OPEN;
}

static void donor_does(void)
{
	for (const struct copy *c = queue; c < queue + queued; c++) {
		struct fake_region *region = region_at(c->dst, c->len);

		memcpy(at(c->dst, c->len), at(c->src, c->len), c->len);
		memcpy(region->durable + (c->dst - region->addr), at(c->dst, c->len), c->len);
	}
	donor_last++;
}

static int go(void)
{
	int refused = fake.refuses;

	if (txn == COMMITTED || txn == FORGOTTEN) {
		bool forgotten = txn == FORGOTTEN;

		txn = OPEN;
		return forgotten ? -ENODATA : 0;
	}
	if (!queued)
		return -ENODATA;
	fake.refuses = 0;
	if (refused) {
		drop();
		return refused;
	}
	if (breaks(BREAKS_BEFORE_GO)) {
		txn = DOUBT;
		return -ENOTCONN;
	}
	donor_does();
	if (breaks(BREAKS_AFTER_GO)) {
		txn = DOUBT;
		return -ENOTCONN;
	}
	last++;
	drop();
	return 0;
}

int rmem_txn_go_on(struct rmem *r, unsigned int connection)
{
	(void)r;
	return up && number == connection ? go() : -EREMCHG;
}

int rmem_txn_abort(struct rmem *r)
{
	bool committed = txn == COMMITTED;

	(void)r;
	if (txn == DOUBT)
		return -ENOTCONN;
	drop();
	return committed ? -EALREADY : 0;
}

uint64_t rmem_last_txn(struct rmem *r)
{
	(void)r;
	return last;
}

/* ------------------------------------------------------------------ the connection */

unsigned int rmem_connection(struct rmem *r)
{
	(void)r;
	return number;
}

int rmem_poll(struct rmem *r)
{
	(void)r;
	return up ? 0 : -ENOTCONN;
}

static void restart(void)
{
	for (struct fake_region *r = regions; r < regions + REGIONS; r++)
		if (r->size)
			memcpy(r->now, r->durable, r->size);
}

int rmem_reconnect(struct rmem *r)
{
	bool restarted = fake.restarts;
	void (*meanwhile)(void);

	(void)r;
	if (up)
		return 0;
	if (fake.away)
		return -ECONNREFUSED;
	fake.restarts = false;
	if (restarted)
		restart();
	up = true;
	number++;
	if (txn == DOUBT && donor_last == last + 1) {
		drop();
		txn = COMMITTED;
	} else if (restarted && queued) {
		drop();
		txn = FORGOTTEN;
	} else if (txn == DOUBT) {
		txn = AGAIN;
	}
	last = donor_last;
	meanwhile = fake.meanwhile;
	fake.meanwhile = NULL;
	if (meanwhile)
		meanwhile();
	return restarted ? -ESTALE : 0;
}
