// SPDX-License-Identifier: MIT
/* The regions that this client has at the donor. All are read from the donor when connecting, and rmem_alloc() adds others. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

static bool sane(const struct rmem_region *known)
{
	return known->size && known->addr + known->size > known->addr && !(known->size % RMEM_PAGE);
}

static void parse(const struct rmem_wire_region *wire, struct region *region)
{
	*region = (struct region){
		.known = {
			.tag = le64toh(wire->tag), .addr = le64toh(wire->addr), .size = le64toh(wire->size),
			.flags = le32toh(wire->flags),
		},
		.rkey = le32toh(wire->rkey),
	};
}

/* ------------------------------------------------------------------ the donor's list */

static int nonsense(struct rmem *r, const char *what)
{
	connection_break(r, "%s", what);
	return fail(-EPROTO, "donor %s: %s: use the same version on both sides", r->host, what);
}

/* One answer. */
struct list {
	size_t size;
	union {
		struct rmem_list_answer answer;
		uint8_t bytes[RMEM_MSG_SIZE];
	};
};

static int list_answered(struct rmem *r, const struct answer *answer)
{
	struct list *list = answer->wanted->list;

	if (answer->size < sizeof(list->answer) || answer->size > sizeof(list->bytes))
		return nonsense(r, "a list of regions of another size");
	list->size = answer->size;
	memcpy(list->bytes, answer->body, answer->size);
	return 0;
}

/* Adds the regions of one answer, and stores where the next answer begins. */
static int learn_some(struct rmem *r, const struct list *list, struct table *t, uint64_t *from)
{
	const struct rmem_list_answer *answer = &list->answer;
	uint32_t count = le32toh(answer->count);
	struct region region, *old;

	if (count > RMEM_LIST_MAX || list->size != sizeof(*answer) + count * sizeof(answer->regions[0]) || (answer->more && !count))
		return nonsense(r, "a list of regions of another size");
	for (uint32_t i = 0; i < count; i++) {
		parse(&answer->regions[i], &region);
		if (region.known.tag < *from || !sane(&region.known) || table_find(t, region.known.tag))
			return nonsense(r, "a list of regions that are not in order");
		old = region_of(r, region.known.tag);
		if (old && old->known.addr == region.known.addr)
			region.heat = old->heat;
		if (table_put(t, &region))
			return -ENOMEM;
	}
	if (answer->more && region.known.tag == UINT64_MAX)
		return nonsense(r, "a list of regions without an end");
	*from = count ? region.known.tag + 1 : *from;
	return answer->more ? 1 : 0;
}

static int learn(struct rmem *r, struct table *t)
{
	struct list list;
	uint64_t from = 0;
	int ret;

	do {
		struct rmem_list_request body = { .from = htole64(from) };
		struct rmem_op op = { 0 };
		const struct wanted wanted = {
			.op = &op, .what = "its list of regions", .answered = list_answered, .body = true, .list = &list,
		};

		ret = request_begin(r, RMEM_LIST, &body, sizeof(body), &wanted);
		if (!ret)
			ret = op_finish(r, &op);
		if (!ret)
			ret = learn_some(r, &list, t, &from);
	} while (ret > 0);
	return ret;
}

/*
 * Keeps slabs that the donor took while there was no connection, and tells the program. The tag of such a slab may already have
 * another slab, if the answer to an ALLOC was lost. A slab that our own transaction has freed does not count here; @took_place says
 * whether that transaction, which was in doubt, took place.
 */
static void keep_evicted(struct rmem *r, struct table *fresh, bool took_place)
{
	for (size_t i = 0; i < r->table.count; i++) {
		struct region *old = r->table.by_tag[i], *now = table_find(fresh, old->known.tag), copy = *old;

		if (!(old->known.flags & RMEM_SLAB) || (now && now->known.addr == old->known.addr) ||
		    (took_place && txn_frees(r, old->known.tag)))
			continue;
		copy.busy = 0;
		copy.noticed = false;
		evict_taken(r, now || table_put(fresh, &copy) ? old : table_find(fresh, old->known.tag));
	}
}

int regions_learn(struct rmem *r, bool restarted, bool took_place)
{
	struct table fresh = { 0 };
	int ret = learn(r, &fresh);

	if (ret) {
		table_free(&fresh);
		return ret;
	}
	if (!restarted)
		keep_evicted(r, &fresh, took_place);
	table_free(&r->table);
	r->table = fresh;
	evict_early(r);
	return 0;
}

/* ------------------------------------------------------------------ calls */

/* The donor took the old slab without a notice that we have seen. */
static bool replaced(const struct region *old, const struct region *region)
{
	return old->known.flags & RMEM_SLAB && old->known.addr != region->known.addr;
}

static int add(struct rmem *r, const struct region *region)
{
	struct region *old = region_of(r, region->known.tag);

	if (old && replaced(old, region))
		evict_taken(r, old);
	if (old && !old->evicted && old->known.addr == region->known.addr && old->rkey == region->rkey)
		return 0;
	return table_put(&r->table, region);
}

/* Ends the connection. All other operations end with it, and may share this one's rmem_op. The first failure counts. */
static int wrong(struct rmem *r, const struct answer *answer, const char *what)
{
	if (!answer->wanted->op->result)
		answer->wanted->op->result = -EPROTO;
	return nonsense(r, what);
}

/*
 * The answer may cross with our message that gives the slab back. Then it names a slab that does not exist any more, and the
 * donor is asked again. (The addresses that a donor gives to a client only grow.)
 */
static int alloc_answered(struct rmem *r, const struct answer *answer)
{
	struct alloc *alloc = &answer->wanted->alloc;
	struct region region;
	int ret;

	if (answer->size != sizeof(struct rmem_wire_region))
		return wrong(r, answer, "a region of another form");
	parse(answer->body, &region);
	if (alloc->let_go && region.known.addr <= alloc->let_go) {
		alloc->let_go = 0;
		return ASK_AGAIN;
	}
	if (region.known.tag != alloc->tag || region.known.flags != alloc->flags || !sane(&region.known) ||
	    region.known.size < alloc->size || region.known.size - alloc->size >= RMEM_PAGE)
		return wrong(r, answer, "another region than was asked for");
	ret = add(r, &region);
	if (!ret)
		*alloc->addr = region.known.addr;
	return ret;
}

static int alloc(struct rmem *r, const struct alloc *what, struct rmem_op *op)
{
	const struct rmem_alloc_request body = {
		.tag = htole64(what->tag), .size = htole64(what->size), .flags = htole32(what->flags),
	};
	const struct wanted wanted = {
		.op = op, .what = "a region", .answered = alloc_answered, .body = true, .alloc = *what,
	};
	int ret;

	if (what->flags & ~(uint32_t)RMEM_SLAB)
		return fail(-EINVAL, "region %llu: unknown flags 0x%x", (unsigned long long)what->tag, what->flags);
	ret = txn_frees(r, what->tag) ? txn_settle(r) : 0;
	return ret ? ret : request_begin(r, RMEM_ALLOC, &body, sizeof(body), &wanted);
}

int rmem_alloc_async(struct rmem *r, uint64_t tag, size_t size, unsigned int flags, uint64_t *addr, struct rmem_op *op)
{
	const struct alloc what = { .tag = tag, .size = size, .flags = flags, .addr = addr };
	int ret = enter(r);

	return ret ? ret : leave(r, alloc(r, &what, op));
}

/* The donor's notice may come together with its answer. */
static bool is_evicted(struct rmem *r, uint64_t tag, uint64_t addr)
{
	const struct region *region = region_of(r, tag);

	return region && region->evicted && region->known.addr == addr;
}

int rmem_alloc(struct rmem *r, uint64_t tag, size_t size, unsigned int flags, uint64_t *addr)
{
	const struct alloc what = { .tag = tag, .size = size, .flags = flags, .addr = addr };
	struct rmem_op op = { 0 };
	int ret = enter(r);

	if (ret)
		return ret;
	do {
		ret = alloc(r, &what, &op);
		if (!ret)
			ret = op_finish(r, &op);
	} while (!ret && is_evicted(r, tag, *addr));
	return leave(r, ret);
}

int rmem_find(struct rmem *r, uint64_t tag, struct rmem_region *known)
{
	struct region *region;
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	region = region_of(r, tag);
	if (region && !region->evicted)
		*known = region->known;
	else
		ret = fail(-ENOENT, "region %llu: there is no such tag", (unsigned long long)tag);
	return leave(r, ret);
}

/* Walks a copy, without the lock, since @each may call the library. */
int rmem_each(struct rmem *r, int (*each)(const struct rmem_region *, void *), void *arg)
{
	struct rmem_region *copy;
	size_t count = 0;
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	copy = calloc(r->table.count + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < r->table.count; i++)
		if (!r->table.by_tag[i]->evicted)
			copy[count++] = r->table.by_tag[i]->known;
	pthread_mutex_unlock(&r->lock);
	if (!copy)
		return fail(-ENOMEM, "regions: no memory for a list");
	for (size_t i = 0; i < count && !ret; i++)
		ret = each(&copy[i], arg);
	free(copy);
	return ret;
}
