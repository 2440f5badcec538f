// SPDX-License-Identifier: MIT
/*
 * A round chooses work, and does it in one step or several. A step changes the model when all of it has succeeded, so it can be
 * done again after a connection broke.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "../../programs/random.h"
#include "load.h"

#define TAG(region) ((unsigned long long)(region)->tag)
#define LL(n) ((unsigned long long)(n))

pthread_mutex_t txn_lock = PTHREAD_MUTEX_INITIALIZER;
uint64_t first_txn, commits;

static int step(struct thread *t, int (*what)(struct thread *))
{
	int result;

	t->again = what;
	if (options.usurp && !below(options.usurp))
		usurp(t);
	result = what(t);
	if (!result)
		t->again = NULL;
	return result;
}

static struct region *any_region(struct thread *t)
{
	return t->regions[below(t->num_regions)];
}

/* Most are short, some are as long as may be. */
static uint64_t any_length(uint64_t most)
{
	uint64_t len = 1 + below(1ull << below(19));

	return len < most ? len : most;
}

static struct part any_part(struct thread *t, uint64_t most)
{
	struct part part = { .region = any_region(t), .data = t->buf };

	part.len = any_length(most < part.region->size ? most : part.region->size);
	part.off = below(part.region->size - part.len + 1);
	return part;
}

/* ------------------------------------------------------------------ put and get */

/* One part, or many that are under way together: those have no order, so they must not overlap. */
static void plan_parts(struct thread *t)
{
	struct region *region;
	uint64_t piece, i;

	t->parts[0] = any_part(t, MAX_PUT);
	t->num_parts = 1;
	if (below(3))
		return;
	region = any_region(t);
	t->num_parts = 2 + below(MAX_PARTS - 1);
	piece = region->size / t->num_parts;
	for (i = 0; i < t->num_parts; i++) {
		t->parts[i] = (struct part){ .region = region, .len = any_length(piece), .data = t->buf + i * piece };
		t->parts[i].off = i * piece + below(piece - t->parts[i].len + 1);
	}
}

static uint64_t parts_length(const struct thread *t)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < t->num_parts; i++)
		sum += t->parts[i].len;
	return sum;
}

static int end_of(struct rmem_op *op, bool wait)
{
	int end;

	if (wait)
		return rmem_wait(rmem, op);
	while ((end = rmem_test(rmem, op)) == -EAGAIN)
		sched_yield();
	return end;
}

int reconnect(void)
{
	struct rmem_op op = { .on_error = below(2) };
	int result;

	if (below(2))
		return rmem_reconnect(rmem);
	result = rmem_reconnect_async(rmem, &op);
	return result ? result : end_of(&op, below(2));
}

static int move_async(struct thread *t, bool put)
{
	struct rmem_op ops[MAX_PARTS] = { { .on_error = below(2) } };
	unsigned int begun, i;
	int result = 0, end;

	for (begun = 0; begun < t->num_parts && !result; begun++) {
		const struct part *p = &t->parts[begun];
		struct rmem_op *op = &ops[ops[0].on_error ? 0 : begun];

		result = put ? rmem_put_async(rmem, p->region->addr + p->off, p->data, p->len, op) :
			       rmem_get_async(rmem, p->data, p->region->addr + p->off, p->len, op);
	}
	if (result)
		begun--;
	if (ops[0].on_error && begun)
		begun = 1;
	/* The library owns their memory until all of them are done. */
	for (i = 0; i < begun; i++) {
		end = end_of(&ops[i], ops[0].on_error ? below(2) : i % 2);
		if (!result)
			result = end;
	}
	return ask(t, result);
}

static int move(struct thread *t, bool put)
{
	const struct part *p = &t->parts[0];

	say(t, "%s of %u parts, %llu bytes, the first at tag %llu + %llu", put ? "put" : "get", t->num_parts,
	    LL(parts_length(t)), TAG(p->region), LL(p->off));
	if (t->num_parts > 1)
		return move_async(t, put);
	if (put)
		return ask(t, rmem_put(rmem, p->region->addr + p->off, p->data, p->len));
	return ask(t, rmem_get(rmem, p->data, p->region->addr + p->off, p->len));
}

int do_puts(struct thread *t)
{
	const struct part *p;
	int result;

	for (p = t->parts; p < t->parts + t->num_parts; p++)
		fill(p->data, p->region, p->off, p->len, t->rounds + 1);
	result = move(t, true);
	if (result)
		return result;
	for (p = t->parts; p < t->parts + t->num_parts; p++)
		memcpy(p->region->now + p->off, p->data, p->len);
	atomic_fetch_add(&bytes_put, parts_length(t));
	count(DID_PUT, t->num_parts);
	return 0;
}

int do_gets(struct thread *t)
{
	const struct part *p;
	int result;

	/* so that bytes that were not got are noticed */
	for (p = t->parts; p < t->parts + t->num_parts; p++)
		memset(p->data, 0xa5, p->len);
	result = move(t, false);
	if (result)
		return result;
	for (p = t->parts; p < t->parts + t->num_parts; p++)
		compare(t, p->region, p->off, p->data, p->region->now + p->off, p->len);
	atomic_fetch_add(&bytes_got, parts_length(t));
	count(DID_GET, t->num_parts);
	return 0;
}

static int put_and_get(struct thread *t)
{
	int result;

	plan_parts(t);
	result = step(t, do_puts);
	return result ? result : step(t, do_gets);
}

static int put8(uint64_t addr, uint64_t value)
{
	struct rmem_op op = { .on_error = below(2) };
	int result;

	if (below(2))
		return rmem_put8(rmem, addr, value);
	result = rmem_put8_async(rmem, addr, value, &op);
	return result ? result : end_of(&op, below(2));
}

/* A put of 8 bytes that is torn would show in the model as a put of another length does. */
static int do_put8(struct thread *t)
{
	struct part *p = &t->parts[0];
	uint64_t value;
	int result;

	fill(t->buf, p->region, p->off, 8, t->rounds + 1);
	memcpy(&value, t->buf, 8);
	say(t, "put8 at tag %llu + %llu", TAG(p->region), LL(p->off));
	result = ask(t, put8(p->region->addr + p->off, value));
	if (result)
		return result;
	memcpy(p->region->now + p->off, &value, 8);
	count(DID_PUT8, 1);
	return 0;
}

static int put8_and_get(struct thread *t)
{
	int result;

	t->num_parts = 1;
	t->parts[0] = any_part(t, 8);
	t->parts[0].len = 8;
	t->parts[0].off = below(t->parts[0].region->size / 8) * 8;
	result = step(t, do_put8);
	return result ? result : step(t, do_gets);
}

/* Some flushes at once, of one range, end like one. */
static int flush_range(uint64_t addr, uint64_t len)
{
	struct rmem_op op = { .on_error = true };
	unsigned int begun, n = 1 + below(4);
	int result = 0, end;

	if (below(2))
		return rmem_flush(rmem, addr, len);
	for (begun = 0; begun < n && !result; begun++)
		result = rmem_flush_async(rmem, addr, len, &op);
	if (result && begun == 1)
		return result;
	end = end_of(&op, below(2));
	return result ? result : end;
}

int do_flush(struct thread *t)
{
	const struct part *p = &t->parts[0];
	int result;

	say(t, "flush of %llu bytes at tag %llu + %llu", LL(p->len), TAG(p->region), LL(p->off));
	result = ask(t, flush_range(p->region->addr + p->off, p->len));
	if (result)
		return result;
	memcpy(p->region->durable + p->off, p->region->now + p->off, p->len);
	count(DID_FLUSH, 1);
	return 0;
}

static int flush(struct thread *t)
{
	t->parts[0] = any_part(t, MAX_PUT);
	t->num_parts = 1;
	return step(t, do_flush);
}

/* ------------------------------------------------------------------ regions */

static int ask_for(const struct region *fresh, uint64_t *addr)
{
	struct rmem_op op = { .on_error = below(2) };
	int result;

	if (below(2))
		return rmem_alloc(rmem, fresh->tag, fresh->size, 0, addr);
	result = rmem_alloc_async(rmem, fresh->tag, fresh->size, 0, addr, &op);
	return result ? result : end_of(&op, below(2));
}

/* The region is there at once, at one address however often it is asked for, and zeroed. */
int do_alloc(struct thread *t)
{
	struct region *fresh = t->fresh;
	uint64_t addr, same;
	int result;

	say(t, "alloc of tag %llu, %llu bytes", TAG(fresh), LL(fresh->size));
	result = ask(t, ask_for(fresh, &addr));
	if (!result)
		result = ask(t, ask_for(fresh, &same));
	if (!result && same != addr)
		fail(t, "the tag has two addresses");
	if (!result)
		result = ask(t, rmem_get(rmem, t->buf, addr, fresh->size));
	if (result)
		return result;
	compare(t, fresh, 0, t->buf, fresh->now, fresh->size);
	fresh->addr = addr;
	t->regions[t->num_regions++] = fresh;
	t->fresh = NULL;
	count(DID_ALLOC, 1);
	return 0;
}

static int alloc(struct thread *t)
{
	uint64_t pages = 1 + below(1ull << below(9));

	/* The first region has room for the longest put. */
	if (!t->num_regions)
		pages = MAX_REGION / PAGE;
	t->fresh = region_new(1 + t->tags++ * MAX_THREADS + t->index, pages * PAGE);
	return step(t, do_alloc);
}

/* ------------------------------------------------------------------ transactions */

static int go(void)
{
	static struct rmem_op shared = { .on_error = true };
	struct rmem_op op = { 0 };
	int result;

	if (below(2))
		return rmem_txn_go(rmem);
	result = rmem_txn_go_async(rmem, &shared);
	if (result != -EINVAL)
		return result ? result : -EPROTO;
	result = rmem_txn_go_async(rmem, &op);
	return result ? result : end_of(&op, below(2));
}

void committed(struct thread *t)
{
	uint64_t last = rmem_last_txn(rmem);

	commits++;
	if (last != first_txn + commits)
		fail(t, "the last transaction is %llu; it must be %llu", LL(last), LL(first_txn + commits));
	count(DID_GO, 1);
	count(DID_CP, t->num_copies);
	count(DID_LONG, t->num_copies == MAX_COPIES);
	count(DID_FREE, t->num_freed);
	model_commit(t);
	pthread_mutex_unlock(&txn_lock);
}

int do_go(struct thread *t)
{
	int result;

	say(t, "go, %u copies, %u frees", t->num_copies, t->num_freed);
	result = ask(t, go());
	if (!result)
		committed(t);
	return result;
}

int do_abort(struct thread *t)
{
	int result;

	say(t, "abort");
	result = ask(t, rmem_txn_abort(rmem));
	if (!result)
		result = refused(t, go(), -ENODATA);
	if (result)
		return result;
	count(DID_ABORT, 1);
	pthread_mutex_unlock(&txn_lock);
	return 0;
}

/* A message to the donor has at most 127 entries, so now and then a queue needs several. */
static void plan_copies(struct thread *t)
{
	struct copy *c = t->copies;
	struct part dst, src;
	bool many = !below(8);

	t->num_copies = many ? MAX_COPIES : 1 + below(40);
	t->num_freed = 0;
	while (c < t->copies + t->num_copies) {
		dst = any_part(t, many ? 16 : 64 << 10);
		src = any_part(t, dst.len);
		if (dst.len > src.len)
			dst.len = src.len;
		src.len = dst.len;
		if (dst.region == src.region && dst.off < src.off + src.len && src.off < dst.off + dst.len)
			continue;
		*c++ = (struct copy){ dst.region, src.region, dst.off, src.off, dst.len };
	}
	if (t->num_regions > 2 && !below(4))
		t->freed[t->num_freed++] = any_region(t);
}

static int queue(struct thread *t)
{
	const struct copy *c;
	unsigned int i;
	int result = 0;

	for (i = 0; i < t->num_copies && !result; i++) {
		c = &t->copies[i];
		say(t, "copy %u: to tag %llu + %llu from tag %llu + %llu, %llu bytes", i, TAG(c->dst), LL(c->dst_off),
		    TAG(c->src), LL(c->src_off), LL(c->len));
		result = ask(t, rmem_cp(rmem, c->dst->addr + c->dst_off, c->src->addr + c->src_off, c->len));
		if (!result && !below(16))
			result = refused(t, rmem_cp(rmem, c->dst->addr + c->dst->size - 1, c->src->addr, 2), -ERANGE);
	}
	for (i = 0; i < t->num_freed && !result; i++) {
		say(t, "free of tag %llu", TAG(t->freed[i]));
		result = ask(t, rmem_free(rmem, t->freed[i]->tag));
	}
	return result;
}

/* Does the transaction that is planned. A transaction that can't be queued wholly is given up. */
static int transact(struct thread *t, int (*end)(struct thread *))
{
	int result;

	if (pthread_mutex_trylock(&txn_lock)) {
		sched_yield();
		return 0;
	}
	t->again = do_abort;
	result = queue(t);
	return result ? result : step(t, end);
}

/* A copy from a region that an earlier entry frees: nothing of the transaction happens. */
static int do_bad_go(struct thread *t)
{
	const struct region *other = t->regions[t->regions[0] == t->freed[0]];
	int result;

	t->again = do_abort;
	say(t, "go with a copy of tag %llu, which was freed before", TAG(t->freed[0]));
	result = ask(t, rmem_cp(rmem, other->addr, t->freed[0]->addr, 1));
	if (!result)
		result = refused(t, go(), -ERANGE);
	if (!result)
		pthread_mutex_unlock(&txn_lock);
	return result;
}

/*
 * What a client has queued is gone with its connection. The first call of this function asks for a repair of the connection,
 * since during a repair no other thread is in a call. The second call comes after the repair.
 */
int do_leave(struct thread *t)
{
	int result;

	if (t->leaving == STAYS) {
		t->leaving = LEAVES;
		return -ENOTCONN;
	}
	say(t, "go after the connection was left");
	result = refused(t, go(), -ENODATA);
	if (result)
		return result;
	t->leaving = STAYS;
	pthread_mutex_unlock(&txn_lock);
	return 0;
}

static int transaction(struct thread *t)
{
	plan_copies(t);
	if (options.leave && !below(options.leave))
		return transact(t, do_leave);
	if (t->num_freed && !below(4))
		return transact(t, do_bad_go);
	return transact(t, below(5) ? do_go : do_abort);
}

/* ------------------------------------------------------------------ what must be refused */

static int refusals(struct thread *t)
{
	const struct region *region = any_region(t);
	uint64_t last = region->addr + region->size - 1, addr;
	struct rmem_region there;
	int result;

	say(t, "what must be refused at tag %llu", TAG(region));
	if (rmem_find(rmem, 1 + t->tags * MAX_THREADS + t->index, &there) != -ENOENT)
		fail(t, "a tag is found that there is not");
	result = refused(t, rmem_put(rmem, last, t->buf, 2), -ERANGE);
	if (!result)
		result = refused(t, rmem_get(rmem, t->buf, region->addr - 1, region->size + 1), -ERANGE);
	if (!result)
		result = refused(t, rmem_get(rmem, t->buf, last, SIZE_MAX), -ERANGE);
	if (!result)
		result = refused(t, rmem_put8(rmem, region->addr + 4, 1), -EINVAL);
	if (!result)
		result = refused(t, rmem_flush(rmem, last, 2), -ERANGE);
	if (!result)
		result = refused(t, rmem_alloc(rmem, region->tag, region->size + PAGE, 0, &addr), -EEXIST);
	return result;
}

/* ------------------------------------------------------------------ a thread */

static int round_of(struct thread *t)
{
	if (t->num_regions < 2 || (t->num_regions < MAX_REGIONS && !below(16)))
		return alloc(t);
	switch (below(16)) {
	case 0 ... 5:
		return put_and_get(t);
	case 6 ... 7:
		plan_parts(t);
		return step(t, do_gets);
	case 8:
		return put8_and_get(t);
	case 9 ... 10:
		return flush(t);
	case 11:
		return below(4) ? put_and_get(t) : refusals(t);
	default:
		return transaction(t);
	}
}

int do_check(struct thread *t)
{
	unsigned int i;
	int result = 0;

	for (i = 0; i < t->num_regions && !result; i++) {
		t->parts[0] = (struct part){ .region = t->regions[i], .len = t->regions[i]->size, .data = t->buf };
		t->num_parts = 1;
		result = do_gets(t);
	}
	return result;
}

static int free_all(struct thread *t)
{
	t->num_copies = 0;
	for (t->num_freed = 0; t->num_freed < t->num_regions; t->num_freed++)
		t->freed[t->num_freed] = t->regions[t->num_freed];
	return t->num_freed ? transact(t, do_go) : 0;
}

static bool enough(void)
{
	return atomic_load(&stop) || (options.ops && atomic_load(&rounds_done) >= options.ops);
}

static int check_all(struct thread *t)
{
	return step(t, do_check);
}

/* If a broken connection interrupts it, the connection is repaired, and it is done again. */
static void go_on(struct thread *t, int (*what)(struct thread *))
{
	unsigned int connection;
	bool done = false;
	int result;

	do {
		connection = repair_enter();
		if (repair_wanted(t)) {
			result = repair_go_on(t);
		} else {
			result = what(t);
			done = true;
		}
		repair_leave();
		if (result)
			repair(t, connection);
	} while (!done || t->again);
}

void *load_thread(void *thread)
{
	struct thread *t = thread;

	rng = options.seed + t->index;
	while (!enough()) {
		go_on(t, round_of);
		t->rounds++;
		atomic_fetch_add(&rounds_done, 1);
	}
	go_on(t, check_all);
	while (!options.keep && t->num_regions)
		go_on(t, free_all);
	if (t->index % 2 && rmem_unregister(rmem, t->buf) && !options.reconnect)
		fail(t, "unregister: %s", rmem_error());
	return NULL;
}
