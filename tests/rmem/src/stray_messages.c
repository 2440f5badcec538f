// SPDX-License-Identifier: MIT
/*
 * Random messages over a good connection. Most are well-formed with arguments that may be wrong; some are not, and end the
 * connection. What may be answered by RMEM_OK is known: regions are those that were answered, transactions are counted.
 */
#include <string.h>

#include "../../programs/random.h"
#include "../../programs/stray.h"

enum { MAX_KNOWN = 8192, MAX_FREED = 64, DAMAGED_IN = 20, BAD_WAIT_MS = 20, ENDED_IN = 50 };

static struct link l;
static struct rmem_wire_region known[MAX_KNOWN];
static unsigned int num_known;
static uint64_t freed[MAX_FREED]; /* tags that the queue frees */
static unsigned int num_freed, freed_before; /* the latter before this request */
static uint64_t queued, last_txn;

static struct rmem_msg *msg; /* that is sent next */
static void *body;
static uint32_t size; /* of the body */
static bool wrong;    /* it must not be answered by RMEM_OK */
static bool bad;      /* it must not be answered at all */
static bool either;   /* @bad, but it may be refused, too */

/* ------------------------------------------------------------------ what is known */

static struct rmem_wire_region *known_tag(uint64_t tag)
{
	unsigned int i;

	for (i = 0; i < num_known; i++)
		if (known[i].tag == htole64(tag))
			return &known[i];
	return NULL;
}

static bool known_range(uint64_t addr, uint64_t len)
{
	uint64_t start, bytes;
	unsigned int i;

	for (i = 0; i < num_known; i++) {
		start = le64toh(known[i].addr);
		bytes = le64toh(known[i].size);
		if (addr >= start && len && len <= bytes && addr - start <= bytes - len)
			return true;
	}
	return false;
}

static void forget(uint64_t tag)
{
	struct rmem_wire_region *region = known_tag(tag);

	if (region)
		*region = known[--num_known];
}

static void discarded(void)
{
	queued = 0;
	num_freed = 0;
}

static void connect_again(void)
{
	link_close(&l);
	link_open(&l, &options.client);
	discarded();
	if (le64toh(l.welcome.last_txn) != last_txn)
		fail("the last transaction is %llu; it was %llu", (unsigned long long)le64toh(l.welcome.last_txn),
		     (unsigned long long)last_txn);
}

/* ------------------------------------------------------------------ requests */

/* Within a region that is known, mostly. */
static struct rmem_range any_range(void)
{
	struct rmem_range range = { edge_of(64), edge_of(64) };
	const struct rmem_wire_region *region;

	if (!num_known || !below(8))
		return range;
	region = &known[below(num_known)];
	range.addr = le64toh(region->addr) + (below(8) ? below(le64toh(region->size)) : edge_of(16));
	range.len = below(8) ? below(2048) : edge_of(16);
	return range;
}

static uint64_t any_tag(void)
{
	return below(8) ? 1 + below(64) : edge_of(64);
}

static void make_alloc(void)
{
	struct rmem_alloc_request *request = body;
	uint64_t bytes = below(4) ? below(64 << 10) : edge_of(64), flags = below(8) ? below(2) : edge_of(32);

	*request = (struct rmem_alloc_request){ htole64(any_tag()), htole64(bytes), htole32(flags), 0 };
	size = sizeof(*request);
	bad = (flags & 0xffffffff) > 1;
	wrong = !bytes || bytes > 1ull << 40;
}

static void make_list(void)
{
	*(struct rmem_list_request *)body = (struct rmem_list_request){ htole64(below(2) ? 0 : edge_of(64)) };
	size = sizeof(struct rmem_list_request);
}

static struct rmem_wire_op any_op(void)
{
	struct rmem_range to = any_range(), from = any_range();
	uint64_t tag = any_tag();

	if (below(16) || num_freed == MAX_FREED) {
		if (below(4))
			to.len = from.len;
		wrong |= !known_range(to.addr, from.len) || !known_range(from.addr, from.len) ||
			 (to.addr < from.addr + from.len && from.addr < to.addr + from.len);
		return (struct rmem_wire_op){ .kind = htole32(RMEM_OP_CP), .dst = htole64(to.addr),
					      .src = htole64(from.addr), .len = htole64(from.len) };
	}
	wrong |= !known_tag(tag);
	freed[num_freed++] = tag;
	return (struct rmem_wire_op){ htole32(RMEM_OP_FREE), 0, htole64(tag), 0, 0 };
}

static void make_queue(void)
{
	struct rmem_queue_request *request = body;
	unsigned int i, count = below(8) ? below(4) : below(RMEM_QUEUE_MAX + 1);

	*request = (struct rmem_queue_request){ htole64(below(8) ? queued : edge_of(64)), htole32(count), 0 };
	wrong = !count || le64toh(request->first) != queued;
	for (i = 0; i < count; i++)
		request->ops[i] = any_op();
	if (count && !below(64)) {
		request->ops[below(count)].kind = htole32(3 + below(1000));
		bad = either = true;
	}
	size = sizeof(*request) + count * sizeof(request->ops[0]);
}

static void make_go(void)
{
	struct rmem_go_request *request = body;
	uint64_t txn = below(8) ? last_txn + 1 : below(2) ? last_txn : edge_of(64), count = below(8) ? queued : edge_of(64);

	*request = (struct rmem_go_request){ .txn = htole64(txn), .count = htole64(count) };
	size = sizeof(*request);
	wrong = txn != last_txn && !(txn == last_txn + 1 && queued && count == queued);
}

static void make_empty(void)
{
	size = 0;
}

static void make_flush(void)
{
	struct rmem_range range = any_range();

	wrong = !known_range(range.addr, range.len);
	*(struct rmem_range *)body = (struct rmem_range){ htole64(range.addr), htole64(range.len) };
	size = sizeof(range);
}

static void make_evicted(void)
{
	struct rmem_range range = any_range();

	/* Nothing is evicted from this client. */
	*(struct rmem_evict *)body = (struct rmem_evict){ htole64(any_tag()), htole64(range.addr), htole32(edge_of(32)),
							  htole32(below(16) ? 0 : edge_of(32)) };
	size = sizeof(struct rmem_evict);
	bad = ((struct rmem_evict *)body)->reserved;
	wrong = true;
}

/* This client is not asked for its heat, either. */
static void make_heat(void)
{
	struct rmem_heat *heat = body;
	uint32_t i, named = below(RMEM_HEAT_MAX + 8), count = below(8) ? named : edge_of(32);

	*heat = (struct rmem_heat){ htole32(edge_of(32)), htole32(count) };
	for (i = 0; i < named; i++)
		heat->slabs[i] = (struct rmem_slab_heat){ htole64(any_tag()), htole64(edge_of(64)) };
	size = sizeof(*heat) + named * sizeof(heat->slabs[0]);
	bad = count > RMEM_HEAT_MAX || count != named;
	wrong = true;
}

static const struct {
	uint16_t type;
	void (*make)(void);
} kinds[] = {
	{ RMEM_ALLOC, make_alloc }, { RMEM_LIST, make_list },	{ RMEM_QUEUE, make_queue }, { RMEM_QUEUE, make_queue },
	{ RMEM_GO, make_go },	    { RMEM_ABORT, make_empty }, { RMEM_FLUSH, make_flush }, { RMEM_PING, make_empty },
	{ RMEM_EVICTED, make_evicted }, { RMEM_ROOM, make_empty }, { RMEM_HEAT, make_heat },
};

/* ------------------------------------------------------------------ damage */

static uint16_t unknown_type(void)
{
	uint16_t type = edge_of(16);

	return type >= RMEM_ALLOC && type <= RMEM_HEAT ? RMEM_EVICT : type;
}

/* Makes it no good message any more; returns how many bytes of it are sent. */
static uint32_t damage(uint32_t whole)
{
	uint32_t length = whole;

	bad = true;
	switch (below(7)) {
	case 0:
		length = below(whole);
		break;
	case 1:
		length = below(whole);
		msg->size = htole32(length);
		break;
	case 2:
		length = whole + 1 + below(RMEM_MSG_SIZE - whole + 1);
		length = length > RMEM_MSG_SIZE ? RMEM_MSG_SIZE : length;
		if (length == whole)
			length--;
		msg->size = htole32(length);
		break;
	case 3:
		msg->size = htole32(edge_of(32));
		if (le32toh(msg->size) == whole)
			msg->size = 0;
		break;
	case 4:
		msg->type = htole16(unknown_type());
		break;
	case 5:
		msg->status = htole16(1 + below(20));
		break;
	case 6:
		msg->id = 0;
		break;
	}
	return length;
}

/* ------------------------------------------------------------------ answers */

static void took_alloc(const struct rmem_msg *answer, const struct rmem_alloc_request *asked)
{
	struct rmem_wire_region region, *before = known_tag(le64toh(asked->tag));

	if (le32toh(answer->size) != sizeof(*answer) + sizeof(region))
		fail("the answer to ALLOC has a wrong size");
	memcpy(&region, answer + 1, sizeof(region));
	if (le64toh(region.size) % RMEM_PAGE || le64toh(region.size) < le64toh(asked->size))
		fail("a region of %llu bytes has %llu", (unsigned long long)le64toh(asked->size),
		     (unsigned long long)le64toh(region.size));
	if (before && before->addr != region.addr)
		fail("tag %llu has another address now", (unsigned long long)le64toh(asked->tag));
	if (before)
		*before = region;
	else if (num_known < MAX_KNOWN)
		known[num_known++] = region;
	else
		fail("%u regions were allowed: give the client a quota", num_known);
}

static void took_list(const struct rmem_msg *answer)
{
	const struct rmem_list_answer *list = (const void *)(answer + 1);
	uint32_t i, count = le32toh(list->count);

	if (count > RMEM_LIST_MAX ||
	    le32toh(answer->size) != sizeof(*answer) + sizeof(*list) + count * sizeof(list->regions[0]))
		fail("the answer to LIST has a wrong size");
	for (i = 0; i < count; i++)
		if (!known_tag(le64toh(list->regions[i].tag)))
			fail("LIST has tag %llu, which is none of this client's",
			     (unsigned long long)le64toh(list->regions[i].tag));
}

static void took_room(const struct rmem_msg *answer)
{
	const struct rmem_room *room = (const void *)(answer + 1);
	uint64_t used = 0;
	unsigned int i;

	if (le32toh(answer->size) != sizeof(*answer) + sizeof(*room))
		fail("the answer to ROOM has a wrong size");
	for (i = 0; i < num_known; i++)
		used += le64toh(known[i].size);
	if (le64toh(room->used) != used || le64toh(room->left) > 1ull << 60)
		fail("ROOM: %llu used, %llu left, with regions of %llu", (unsigned long long)le64toh(room->used),
		     (unsigned long long)le64toh(room->left), (unsigned long long)used);
}

static void took_go(const struct rmem_go_request *asked)
{
	if (le64toh(asked->txn) == last_txn)
		return;
	last_txn++;
	while (num_freed)
		forget(freed[--num_freed]);
	discarded();
}

/* @sent is the request. */
static void took(const struct rmem_msg *answer, const struct rmem_msg *sent)
{
	const void *asked = sent + 1;

	switch (le16toh(sent->type)) {
	case RMEM_ALLOC:
		took_alloc(answer, asked);
		break;
	case RMEM_LIST:
		took_list(answer);
		break;
	case RMEM_QUEUE:
		queued += le32toh(((const struct rmem_queue_request *)asked)->count);
		break;
	case RMEM_GO:
		took_go(asked);
		break;
	case RMEM_ABORT:
		discarded();
		break;
	case RMEM_ROOM:
		took_room(answer);
		break;
	}
}

/* ------------------------------------------------------------------ one after the other */

static void make(void)
{
	unsigned int kind = below(sizeof(kinds) / sizeof(kinds[0]));

	msg = link_message(&l);
	body = msg + 1;
	wrong = bad = either = false;
	freed_before = num_freed;
	kinds[kind].make();
	*msg = (struct rmem_msg){ htole16(kinds[kind].type), 0, htole32(sizeof(*msg) + size), htole64(++l.id) };
}

/* The message gets no good answer, and the connection ends: a message after it gets none either. */
static void expect_end(void)
{
	const struct rmem_msg *answer;
	int64_t wait = BAD_WAIT_MS;
	uint32_t got;

	if (!below(ENDED_IN)) {
		wait *= 20;
		msg = link_message(&l);
		*msg = (struct rmem_msg){ htole16(RMEM_PING), 0, htole32(sizeof(*msg)), htole64(++l.id) };
		link_send(&l, sizeof(*msg));
	}
	answer = link_receive(&l, wait, &got);
	if (answer && answer->status != htole16(RMEM_BAD_MESSAGE) && !(either && answer->status))
		fail("a message that is no good one is answered: type %#x, status %u", le16toh(answer->type),
		     le16toh(answer->status));
	connect_again();
}

static void expect_answer(const struct rmem_msg *sent)
{
	const struct rmem_msg *answer;
	uint32_t got;

	answer = link_receive(&l, options.patience * 1000LL, &got);
	if (!answer)
		fail("there is no answer to a request of type %u", le16toh(sent->type));
	if (got < sizeof(*answer) || le32toh(answer->size) != got || answer->id != sent->id ||
	    le16toh(answer->type) != (le16toh(sent->type) | RMEM_ANSWER))
		fail("the answer to type %u is not one: type %#x, %u bytes that say %u", le16toh(sent->type),
		     le16toh(answer->type), got, le32toh(answer->size));
	if (!answer->status && wrong)
		fail("a wrong request of type %u is done", le16toh(sent->type));
	if (answer->status && got != sizeof(*answer))
		fail("a refusal has a body");
	if (!answer->status)
		took(answer, sent);
	else if (le16toh(sent->type) == RMEM_QUEUE)
		num_freed = freed_before;
}

static void one(void)
{
	static uint64_t buffer[RMEM_MSG_SIZE / 8];
	struct rmem_msg *sent = (struct rmem_msg *)buffer;
	uint32_t length;

	make();
	length = sizeof(*msg) + size;
	if (!bad && !below(DAMAGED_IN))
		length = damage(length);
	memcpy(sent, msg, length);
	link_send(&l, length);
	if (bad) {
		expect_end();
		return;
	}
	expect_answer(sent);
	/* This sends ABORT, so that nothing is queued even if the transaction has failed. */
	if (le16toh(sent->type) == RMEM_GO) {
		link_ask(&l, RMEM_ABORT, NULL, 0);
		discarded();
	}
}

/* Sends as many requests as may be under way: their answers come in their order. */
static void burst(void)
{
	uint64_t first = l.id + 1, i;
	const struct rmem_msg *answer;
	uint32_t got;

	for (i = 0; i < RMEM_SLOTS; i++) {
		msg = link_message(&l);
		*msg = (struct rmem_msg){ htole16(RMEM_PING), 0, htole32(sizeof(*msg)), htole64(++l.id) };
		link_send(&l, sizeof(*msg));
	}
	for (i = 0; i < RMEM_SLOTS; i++) {
		answer = link_receive(&l, options.patience * 1000LL, &got);
		if (!answer || answer->id != htole64(first + i))
			fail("answer %u of %u does not come in its order", (unsigned int)i, RMEM_SLOTS);
	}
}

void messages(void)
{
	struct rmem_list_request all = { 0 };
	uint64_t n;

	link_open(&l, &options.client);
	last_txn = le64toh(l.welcome.last_txn);
	known[num_known++] = link_alloc(&l, 1, 16 << 10);
	for (n = 0; n < options.messages; n++) {
		if (!below(100))
			burst();
		one();
	}
	/* At the end, a list must name no region of another client. */
	took_list(link_ask(&l, RMEM_LIST, &all, sizeof(all)));
	link_close(&l);
}
