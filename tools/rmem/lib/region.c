// SPDX-License-Identifier: MIT
/* The regions that this client has at the donor. All are read from the donor when connecting, and rmem_alloc() adds others. */
#include <errno.h>
#include <stdlib.h>
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

/* Adds the regions of one answer, and stores where the next answer begins. */
static int learn_some(struct rmem *r, const struct rmem_list_answer *answer, size_t size, struct table *t, uint64_t *from)
{
	uint32_t count = le32toh(answer->count);
	struct region region, *old;

	if (size < sizeof(*answer) || count > RMEM_LIST_MAX || size != sizeof(*answer) + count * sizeof(answer->regions[0]) ||
	    (answer->more && !count))
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
	unsigned int generation = r->generation;
	union {
		struct rmem_list_answer list;
		uint8_t bytes[RMEM_MSG_SIZE];
	} answer;
	uint64_t from = 0;
	int ret;

	do {
		struct rmem_list_request body = { .from = htole64(from) };
		struct request request = { .answer = &answer, .room = sizeof(answer) };

		ret = request_begin(r, generation, RMEM_LIST, &body, sizeof(body), &request);
		if (!ret)
			ret = request_end(r, &request);
		if (ret > 0)
			return answer_failed(r, "its list of regions", ret);
		if (!ret)
			ret = learn_some(r, &answer.list, request.size, t, &from);
	} while (ret > 0);
	return ret;
}

/*
 * Keeps slabs that the donor took while there was no connection, and tells the program. The tag of such a slab may already have
 * another slab, if the answer to an ALLOC was lost. A slab that our own transaction has freed does not count here; @last_txn says
 * whether that transaction took place.
 */
static void keep_evicted(struct rmem *r, struct table *fresh, uint64_t last_txn)
{
	bool committed = txn_took_place(r, last_txn);

	for (size_t i = 0; i < r->table.count; i++) {
		struct region *old = r->table.by_tag[i], *now = table_find(fresh, old->known.tag), copy = *old;

		if (!(old->known.flags & RMEM_SLAB) || (now && now->known.addr == old->known.addr) ||
		    (committed && txn_frees(r, old->known.tag)))
			continue;
		copy.busy = 0;
		copy.noticed = false;
		evict_taken(r, now || table_put(fresh, &copy) ? old : table_find(fresh, old->known.tag));
	}
}

int regions_learn(struct rmem *r, bool restarted, uint64_t last_txn)
{
	struct table fresh = { 0 };
	int ret = learn(r, &fresh);

	if (ret) {
		table_free(&fresh);
		return ret;
	}
	if (!restarted)
		keep_evicted(r, &fresh, last_txn);
	table_free(&r->table);
	r->table = fresh;
	evict_early(r);
	return 0;
}

/* ------------------------------------------------------------------ calls */

static int ask_once(struct rmem *r, const struct rmem_alloc_request *body, struct rmem_wire_region *wire, unsigned int generation)
{
	struct request request = { .answer = wire, .room = sizeof(*wire) };
	int ret = request_begin(r, generation, RMEM_ALLOC, body, sizeof(*body), &request);

	if (!ret)
		ret = request_end(r, &request);
	if (ret > 0)
		return answer_failed(r, "a region", ret);
	if (!ret && request.size != sizeof(*wire))
		return nonsense(r, "a region of another form");
	return ret;
}

/*
 * The answer may cross with our message that gives the slab back. Then it names a slab that does not exist any more, and this
 * function asks again. (The addresses that a donor gives to a client only grow.)
 */
static int ask_for(struct rmem *r, const struct rmem_alloc_request *body, struct rmem_wire_region *wire)
{
	struct alloc alloc = { .tag = le64toh(body->tag), .next = r->allocs }, **at = &r->allocs;
	unsigned int generation = r->generation;
	int ret;

	r->allocs = &alloc;
	do {
		alloc.let_go = 0;
		ret = ask_once(r, body, wire, generation);
	} while (!ret && le64toh(wire->addr) <= alloc.let_go);
	while (*at != &alloc)
		at = &(*at)->next;
	*at = alloc.next;
	return ret;
}

/* The donor took the old slab without a notice that we have seen. */
static bool replaced(const struct region *old, const struct region *region)
{
	return old->known.flags & RMEM_SLAB && old->known.addr != region->known.addr;
}

static int alloc(struct rmem *r, uint64_t tag, size_t size, unsigned int flags, uint64_t *addr)
{
	struct rmem_alloc_request body = { .tag = htole64(tag), .size = htole64(size), .flags = htole32(flags) };
	struct rmem_wire_region wire;
	struct region region, *old;
	int ret;

	if (flags & ~(unsigned int)RMEM_SLAB)
		return fail(-EINVAL, "region %llu: unknown flags 0x%x", (unsigned long long)tag, flags);
	ret = txn_frees(r, tag) ? txn_settle(r) : 0;
	if (!ret)
		ret = ask_for(r, &body, &wire);
	if (ret)
		return ret;
	parse(&wire, &region);
	if (region.known.tag != tag || region.known.flags != flags || !sane(&region.known) || region.known.size < size ||
	    region.known.size - size >= RMEM_PAGE)
		return nonsense(r, "another region than was asked for");
	old = region_of(r, tag);
	if (old && replaced(old, &region))
		evict_taken(r, old);
	if (!old || old->evicted || old->known.addr != region.known.addr || old->rkey != region.rkey)
		ret = table_put(&r->table, &region);
	if (!ret)
		*addr = region.known.addr;
	return ret;
}

int rmem_alloc(struct rmem *r, uint64_t tag, size_t size, unsigned int flags, uint64_t *addr)
{
	int ret = enter(r);

	return ret ? ret : leave(r, alloc(r, tag, size, flags, addr));
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
