// SPDX-License-Identifier: MIT
#include <rmem.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "scenario.h"

#define SEGMENT (24u << 10)

struct run {
	const struct scenario *scenario;
	struct shared *shared;
	struct store *store;
	uint64_t state; /* of the dice */
	uint64_t syncs, checkpoints; /* when the group began: what the next sync makes durable */
	unsigned int committers;     /* its clients with a transaction, a bit for each */
	int result;
};

static uint64_t die(struct run *run, uint64_t sides)
{
	run->state = run->state * 6364136223846793005u + 1442695040888963407u;
	return (run->state >> 33) % sides;
}

__attribute__((format(printf, 2, 3))) static void wrong(struct run *run, const char *format, ...)
{
	va_list args;

	if (run->result)
		return;
	va_start(args, format);
	vsnprintf(run->shared->violation, sizeof(run->shared->violation), format, args);
	va_end(args);
	run->result = 1;
}

/* A store that makes room first may find that the disk fails. Then it refuses, and says so at the sync. */
static void not_ok(struct run *run, const char *what, enum rmem_status status)
{
	char *why = NULL;

	if (status != RMEM_FULL || store_sync(run->store, &why) == RMEM_OK)
		return wrong(run, "%s: status %d", what, status);
	wrong(run, "refused: %s", why);
	free(why);
	run->result = 2;
}

static void phase(struct run *run, int phase)
{
	run->shared->phase_calls = run->scenario->calls ? run->scenario->calls() : 0;
	run->shared->calls = run->shared->phase_calls;
	run->shared->phase = phase;
}

/* ---------------------------------------------------------------- group -- */

static void group_begins(struct run *run)
{
	struct store_stats stats;

	store_stats(run->store, &stats);
	run->syncs = run->scenario->syncs ? run->scenario->syncs() : 0;
	run->checkpoints = stats.checkpoints;
	run->committers = 0;
}

/* The disk was synced once for all that the group's clients did. (A checkpoint also syncs files.) */
static void group_ends(struct run *run)
{
	struct store_stats stats;
	uint64_t syncs = run->scenario->syncs ? run->scenario->syncs() - run->syncs : 0;

	store_stats(run->store, &stats);
	if (stats.checkpoints == run->checkpoints) {
		if (syncs > 1)
			wrong(run, "a group took %llu syncs", (unsigned long long)syncs);
		run->shared->groups += syncs && run->committers & (run->committers - 1);
	}
	group_begins(run);
}

static void gone(struct region *region, void *arg)
{
	(void)arg;
	free(region->user);
}

/* -------------------------------------------------------------- clients -- */

/* region->user holds what the memory must be, as the clients know it. */
static void mirror(struct region *region)
{
	region->user = malloc(region->size);
	memcpy(region->user, region->mem, region->size);
}

static struct region *any_region(struct run *run, unsigned int who, bool slab_too)
{
	struct owner *owner = store_owner(run->store, owner_of(who));

	for (unsigned int i = 0; i < 8; i++) {
		struct region *region = region_of_tag(owner, die(run, 2 * TAGS));

		if (region && (slab_too || !(region->flags & RMEM_SLAB)))
			return region;
	}
	return NULL;
}

/* Tags from TAGS on are slabs. Nothing of a slab is durable. */
static void do_alloc(struct run *run, unsigned int who)
{
	struct owner *owner = store_owner(run->store, owner_of(who));
	uint64_t tag = die(run, 2 * TAGS), size = (die(run, 30) ? 1 + die(run, 5) : 300) * RMEM_PAGE;
	uint64_t top = run->shared->next_top[who];
	bool slab = tag >= TAGS, was = region_of_tag(owner, tag);
	struct region *region;
	enum rmem_status status;

	if (was)
		size = region_of_tag(owner, tag)->size;
	status = store_alloc(owner, tag, size - die(run, RMEM_PAGE), slab ? RMEM_SLAB : 0, &region);
	if (status)
		return not_ok(run, "alloc", status);
	if (region->size != size)
		return wrong(run, "alloc: another size");
	if (was)
		return;
	if (region->addr < top)
		return wrong(run, "alloc: %#llx was given before", (unsigned long long)region->addr);
	for (uint64_t i = 0; i < size; i++)
		if (region->mem[i])
			return wrong(run, "alloc: not zeroed");
	mirror(region);
	if (slab)
		run->shared->next_top[who] = region->addr + size;
	else
		model_did(run->shared, DID_ALLOC, true, who, tag, region->addr, size, NULL);
}

static void do_put(struct run *run, unsigned int who)
{
	struct region *region = any_region(run, who, true);
	uint64_t at, len;

	if (!region)
		return;
	at = die(run, region->size);
	len = 1 + die(run, region->size - at < 9000 ? region->size - at : 9000);
	for (uint64_t i = at; i < at + len; i++)
		region->mem[i] = die(run, 256);
	memcpy((uint8_t *)region->user + at, region->mem + at, len);
}

static void do_flush(struct run *run, unsigned int who)
{
	struct region *region = any_region(run, who, false);
	enum rmem_status status;
	uint64_t at, len;

	if (!region)
		return;
	at = die(run, region->size);
	len = 1 + die(run, region->size - at);
	/* Each page is a change of its own. */
	for (uint64_t done = 0, part; done < len; done += part) {
		part = RMEM_PAGE - (at + done) % RMEM_PAGE;
		if (part > len - done)
			part = len - done;
		model_did(run->shared, DID_WRITE, true, who, 0, region->addr + at + done, part,
			  (uint8_t *)region->user + at + done);
	}
	status = store_flush(store_owner(run->store, owner_of(who)), region->addr + at, len);
	if (status)
		not_ok(run, "flush", status);
}

static void do_evict(struct run *run, unsigned int who)
{
	struct owner *owner = store_owner(run->store, owner_of(who));
	uint64_t tag = die(run, 2 * TAGS);
	struct region *region = region_of_tag(owner, tag);
	bool slab = region && region->flags & RMEM_SLAB;

	if (store_evict(owner, tag) != (slab ? RMEM_OK : RMEM_NO_TAG))
		wrong(run, "evict: another status");
}

/* ---------------------------------------------------------- transactions -- */

struct txn {
	struct rmem_wire_op ops[16];
	unsigned int count;
};

static void add_copy(struct run *run, unsigned int who, struct txn *txn)
{
	struct region *dst = any_region(run, who, true), *src = any_region(run, who, true);
	uint64_t len, max, to, from;

	if (!dst || !src)
		return;
	max = dst->size < src->size ? dst->size : src->size;
	len = 1 + die(run, die(run, 3) ? max / 2 : 200);
	if (len > max)
		len = max;
	to = die(run, dst->size - len + 1);
	from = die(run, src->size - len + 1);
	if (dst == src && to < from + len && from < to + len)
		return;
	txn->ops[txn->count++] = (struct rmem_wire_op){ RMEM_OP_CP, 0, dst->addr + to, src->addr + from, len };
}

static uint8_t *mirror_at(struct owner *owner, uint64_t addr, uint64_t len)
{
	struct region *region = region_at(owner, addr, len);

	return (uint8_t *)region->user + (addr - region->addr);
}

/* Does to the mirrors and to the plan what the transaction will do. */
static void foretell(struct run *run, unsigned int who, const struct txn *txn, uint64_t number)
{
	struct owner *owner = store_owner(run->store, owner_of(who));

	for (unsigned int i = 0; i < txn->count; i++) {
		const struct rmem_wire_op *op = &txn->ops[i];

		if (op->kind == RMEM_OP_CP) {
			uint8_t *to = mirror_at(owner, op->dst, op->len);

			memcpy(to, mirror_at(owner, op->src, op->len), op->len);
			if (!(region_at(owner, op->dst, op->len)->flags & RMEM_SLAB))
				model_did(run->shared, DID_WRITE, false, who, 0, op->dst, op->len, to);
		} else if (op->dst < TAGS) {
			model_did(run->shared, DID_FREE, false, who, op->dst, 0, 0, NULL);
		}
	}
	model_did(run->shared, DID_TXN, true, who, number, 0, 0, NULL);
}

static void check_memory(struct run *run, struct owner *owner)
{
	for (struct region *r = owner_regions(owner); r; r = r->next)
		if (memcmp(r->mem, r->user, r->size))
			wrong(run, "%s: tag %llu has other bytes in memory", owner_name(owner), (unsigned long long)r->tag);
}

static void do_refused(struct run *run, struct owner *owner, const struct txn *txn)
{
	struct rmem_wire_op op = txn->ops[0];
	uint64_t last = owner_last_txn(owner);

	if (store_go(owner, last + 1, 0, 1) != RMEM_BAD_TXN || store_go(owner, last + 2, 0, 0) != RMEM_BAD_TXN)
		wrong(run, "a go that must be refused is not");
	op.len = UINT64_MAX - op.src;
	if (op.kind == RMEM_OP_CP && store_queue(owner, &op, 1) != RMEM_OUT_OF_RANGE)
		wrong(run, "a range that must be refused is not");
}

/* A copy that touches what was freed before it: nothing of it happens. */
static void do_use_after_free(struct run *run, struct owner *owner, struct txn *txn)
{
	struct region *region = region_at(owner, txn->ops[0].dst, 1);

	if (txn->ops[0].kind != RMEM_OP_CP || !region)
		return;
	txn->ops[1] = txn->ops[0];
	txn->ops[0] = (struct rmem_wire_op){ .kind = RMEM_OP_FREE, .dst = region->tag };
	if (store_queue(owner, txn->ops, 2) || store_go(owner, owner_last_txn(owner) + 1, 0, 2) != RMEM_OUT_OF_RANGE)
		wrong(run, "a copy to what is freed is not refused");
}

static void do_txn(struct run *run, unsigned int who)
{
	struct owner *owner = store_owner(run->store, owner_of(who));
	uint64_t number = owner_last_txn(owner) + 1;
	struct txn txn = { .count = 0 };
	enum rmem_status status;
	struct region *region;

	for (uint64_t n = die(run, 6); n; n--)
		add_copy(run, who, &txn);
	region = die(run, 3) ? NULL : any_region(run, who, true);
	if (region)
		txn.ops[txn.count++] = (struct rmem_wire_op){ .kind = RMEM_OP_FREE, .dst = region->tag };
	if (!txn.count)
		return;
	if (!die(run, 8))
		return do_refused(run, owner, &txn);
	if (!die(run, 8))
		return do_use_after_free(run, owner, &txn);
	if (store_queue(owner, txn.ops, txn.count) || store_queued(owner) != txn.count)
		return wrong(run, "queue: refused");
	if (!die(run, 8))
		return store_discard(owner);
	foretell(run, who, &txn, number);
	status = store_go(owner, number, word_of(number), txn.count);
	if (status)
		return not_ok(run, "go", status);
	run->committers |= 1u << who;
	if (!die(run, 4) && store_go(owner, number, word_of(number), 0))
		wrong(run, "go again: refused");
	if (!die(run, 4) && store_go(owner, number, word_of(number) + 1, 0) != RMEM_BAD_TXN)
		wrong(run, "go again with another word: not refused");
	check_memory(run, owner);
}

/* ---------------------------------------------------------------- donor -- */

static void come(struct run *run)
{
	struct store_options options = {
		.dir = run->scenario->dir, .create = true, .segment = run->shared->segment ?: SEGMENT, .region_gone = gone
	};
	char *why;

	phase(run, PHASE_OPEN);
	run->store = store_open(&options, &why);
	if (!run->store) {
		wrong(run, "refused: %s", why);
		free(why);
		run->result = 2;
		return;
	}
	phase(run, PHASE_RUN);
	if (!model_resolve(run->shared, run->store)) {
		run->result = 1;
		return;
	}
	for (unsigned int i = 0; i < OWNERS; i++)
		for (struct region *r = owner_regions(store_owner(run->store, owner_of(i))); r; r = r->next)
			mirror(r);
	group_begins(run);
}

static void leave(struct run *run)
{
	struct store_stats stats;

	store_stats(run->store, &stats);
	run->shared->checkpoints += stats.checkpoints;
}

/* The process is killed: nothing is synced, what was written stays in the page cache. */
static void be_killed(struct run *run)
{
	leave(run);
	for (int fd = 3; fd < 256; fd++)
		close(fd);
	run->store = NULL;
	come(run);
}

static bool synced(struct run *run)
{
	char *why;

	if (store_sync(run->store, &why) == RMEM_OK)
		return true;
	wrong(run, "refused: %s", why);
	free(why);
	run->result = 2;
	return false;
}

static void end_well(struct run *run)
{
	if (synced(run))
		model_acked(run->shared);
	leave(run);
	store_close(run->store);
	run->store = NULL;
}

static void turn(struct run *run)
{
	for (uint64_t n = 1 + die(run, 5); n && !run->result; n--) {
		unsigned int who = die(run, OWNERS);

		switch (die(run, 8)) {
		case 0: case 1: do_alloc(run, who); break;
		case 2: do_put(run, who); break;
		case 3: do_flush(run, who); break;
		case 4: do_evict(run, who); break;
		default: do_put(run, who); do_txn(run, who);
		}
	}
	if (run->result || !die(run, 6))
		return; /* the group goes on */
	phase(run, PHASE_SYNC);
	if (!synced(run))
		return;
	model_acked(run->shared);
	phase(run, PHASE_RUN);
	group_ends(run);
}

int scenario_run(const struct scenario *scenario)
{
	struct run run = { .scenario = scenario, .shared = scenario->shared, .state = scenario->seed * 2654435761u + 7 };

	/* An earlier run may have made the folder, and no more. */
	if (scenario->seed % 2)
		mkdir(scenario->dir, 0700);
	come(&run);
	for (unsigned int i = 0; i < scenario->turns && !run.result; i++) {
		turn(&run);
		if (run.result || !scenario->restarts)
			continue;
		if (!die(&run, 16)) {
			be_killed(&run);
		} else if (!die(&run, 20)) {
			end_well(&run);
			if (!run.result)
				come(&run);
		}
	}
	if (!run.store)
		return run.result;
	if (run.result == 1)
		return 1;
	end_well(&run);
	phase(&run, PHASE_RUN);
	return run.result;
}
