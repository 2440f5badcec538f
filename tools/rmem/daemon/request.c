// SPDX-License-Identifier: MIT
/* Requests of clients. A message has exactly the length that belongs to its type. */
#include <stdlib.h>
#include <string.h>

#include "rmemd.h"

/* A handler returns the answer's status, and stores its body and the body's size. BAD ends the connection; r->why says why. */
#define BAD RMEM_BAD_MESSAGE

#define LIST_BYTES (UINT64_C(16) << 30) /* of regions to register in a turn, which then takes one or two seconds */

struct request {
	struct client *c;
	const void *body;
	uint32_t size; /* of the body */
	void *answer;	/* its body */
	uint32_t answer_size;
	const char *why;
};

static enum rmem_status bad(struct request *r, const char *why)
{
	r->why = why;
	return BAD;
}

static struct rmem_wire_region describe(const struct region *region)
{
	const struct ibv_mr *mr = region->user;

	return (struct rmem_wire_region){
		.tag = htole64(region->tag), .addr = htole64(region->addr), .size = htole64(region->size),
		.rkey = htole32(mr->rkey), .flags = htole32(region->flags),
	};
}

static enum rmem_status do_alloc(struct request *r)
{
	const struct rmem_alloc_request *ask = r->body;
	uint64_t tag = le64toh(ask->tag);
	uint32_t flags = le32toh(ask->flags);
	struct owner *owner = r->c->owner;
	struct region *region;
	struct rmem_wire_region wire;
	enum rmem_status status;
	bool is_new = !region_of_tag(owner, tag);

	if (flags & ~RMEM_SLAB || ask->reserved)
		return bad(r, "ALLOC with unknown flags");
	if (donor.draining && is_new)
		return RMEM_DRAINING;
	if (flags & RMEM_SLAB && is_new && le64toh(ask->size) > pressure_room(owner))
		return RMEM_FULL;
	status = store_alloc(owner, tag, le64toh(ask->size), flags, &region);
	if (status != RMEM_OK)
		return status;
	donor.changed = true;
	if (is_new)
		pressure_took(region->size);
	if (client_register(r->c, region)) {
		if (is_new)
			store_undo_alloc(region);
		return RMEM_FULL;
	}
	wire = describe(region);
	memcpy(r->answer, &wire, sizeof(wire));
	r->answer_size = sizeof(wire);
	return RMEM_OK;
}

/*
 * The device does not take @slab, so it is not listed. The client will think that the donor took it, so it is freed: the client
 * must not get it back later with its old bytes.
 */
static void take_slab(struct region *slab)
{
	store_evict(slab->owner, slab->tag);
	donor.changed = true;
	donor.counters.evictions++;
}

bool request_crowded(void)
{
	return donor.registered >= LIST_BYTES;
}

/*
 * A client that connects can use a region when it is listed, so it is registered now. That takes long for much memory, and other
 * clients get their answers between two turns. If the device does not take a region, the list is refused: a list without the region
 * would tell the client that it is gone.
 */
static enum rmem_status do_list(struct request *r)
{
	const struct rmem_list_request *ask = r->body;
	struct rmem_list_answer *answer = r->answer;
	struct region *region = owner_regions(r->c->owner), *next;
	uint32_t count = 0;

	while (region && region->tag < le64toh(ask->from))
		region = region->next;
	for (; region && count < RMEM_LIST_MAX && !request_crowded(); region = next) {
		uint64_t fresh = region->user ? 0 : region->size;

		next = region->next;
		if (!client_register(r->c, region)) {
			answer->regions[count++] = describe(region);
			donor.registered += fresh;
		} else if (region->flags & RMEM_SLAB) {
			take_slab(region);
		} else {
			return RMEM_FULL;
		}
	}
	answer->count = htole32(count);
	answer->more = htole32(region != NULL);
	r->answer_size = sizeof(*answer) + count * sizeof(answer->regions[0]);
	return RMEM_OK;
}

static enum rmem_status do_queue(struct request *r)
{
	const struct rmem_queue_request *ask = r->body;
	uint32_t count = le32toh(ask->count);

	if (count > RMEM_QUEUE_MAX || r->size != sizeof(*ask) + count * sizeof(ask->ops[0]) || ask->reserved)
		return bad(r, "QUEUE of a wrong length");
	if (le64toh(ask->first) != store_queued(r->c->owner))
		return RMEM_BAD_TXN;
	return count ? store_queue(r->c->owner, ask->ops, count) : RMEM_EMPTY;
}

static enum rmem_status do_go(struct request *r)
{
	const struct rmem_go_request *ask = r->body;

	donor.changed = true;
	return store_go(r->c->owner, le64toh(ask->txn), le64toh(ask->word), le64toh(ask->count));
}

static enum rmem_status do_abort(struct request *r)
{
	store_discard(r->c->owner);
	return RMEM_OK;
}

static enum rmem_status do_flush(struct request *r)
{
	const struct rmem_range *range = r->body;

	donor.changed = true;
	return store_flush(r->c->owner, le64toh(range->addr), le64toh(range->len));
}

static enum rmem_status do_ping(struct request *r)
{
	(void)r;
	return RMEM_OK;
}

static enum rmem_status do_evicted(struct request *r)
{
	const struct rmem_evict *evict = r->body;

	if (evict->reserved)
		return bad(r, "EVICTED with unknown fields");
	return evict_released(r->c->owner, le64toh(evict->tag), le64toh(evict->addr));
}

static enum rmem_status do_room(struct request *r)
{
	struct rmem_room room = { .used = htole64(owner_used(r->c->owner)) };

	if (!donor.draining)
		room.left = htole64(pressure_room(r->c->owner));
	memcpy(r->answer, &room, sizeof(room));
	r->answer_size = sizeof(room);
	return RMEM_OK;
}

static enum rmem_status do_heat(struct request *r)
{
	const struct rmem_heat *heat = r->body;
	uint32_t count = le32toh(heat->count);

	if (count > RMEM_HEAT_MAX || r->size != sizeof(*heat) + count * sizeof(heat->slabs[0]))
		return bad(r, "HEAT of a wrong length");
	return pressure_heat(r->c, heat);
}

static const struct {
	enum rmem_status (*handle)(struct request *r);
	uint32_t size;
	bool longer; /* @size is the least one */
} types[] = {
	[RMEM_ALLOC] = { do_alloc, sizeof(struct rmem_alloc_request) },
	[RMEM_LIST] = { do_list, sizeof(struct rmem_list_request) },
	[RMEM_QUEUE] = { do_queue, sizeof(struct rmem_queue_request), true },
	[RMEM_GO] = { do_go, sizeof(struct rmem_go_request) },
	[RMEM_ABORT] = { do_abort, 0 },
	[RMEM_FLUSH] = { do_flush, sizeof(struct rmem_range) },
	[RMEM_PING] = { do_ping, 0 },
	[RMEM_EVICTED] = { do_evicted, sizeof(struct rmem_evict) },
	[RMEM_ROOM] = { do_room, 0 },
	[RMEM_HEAT] = { do_heat, sizeof(struct rmem_heat), true },
};

static enum rmem_status dispatch(struct request *r, const struct rmem_msg *msg, uint32_t size)
{
	unsigned int type;

	if (size < sizeof(*msg) || size > RMEM_MSG_SIZE || le32toh(msg->size) != size)
		return bad(r, "it is not as long as it says");
	type = le16toh(msg->type);
	if (type >= sizeof(types) / sizeof(types[0]) || !types[type].handle)
		return bad(r, "its type is unknown");
	if (msg->status || !msg->id)
		return bad(r, "a request with a status, or without an id");
	r->size = size - sizeof(*msg);
	if (r->size < types[type].size || (r->size > types[type].size && !types[type].longer))
		return bad(r, "its type has another length");
	return types[type].handle(r);
}

uint32_t request_handle(struct client *c, const struct rmem_msg *msg, uint32_t size, struct rmem_msg *answer)
{
	struct request r = { .c = c, .body = msg + 1, .answer = answer + 1 };
	enum rmem_status status = dispatch(&r, msg, size);

	donor.counters.requests++;
	if (status == BAD) {
		donor.counters.bad_messages++;
		client_close(c, LOG_WARNING, "bad message: %s", r.why ? r.why : "the store refused it");
		return 0;
	}
	size = sizeof(*answer) + (status == RMEM_OK ? r.answer_size : 0);
	*answer = (struct rmem_msg){
		.type = htole16(le16toh(msg->type) | RMEM_ANSWER), .status = htole16(status), .size = htole32(size),
		.id = msg->id,
	};
	return size;
}
