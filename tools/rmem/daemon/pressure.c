// SPDX-License-Identifier: MIT
/*
 * Memory that the host needs for itself. Each period rmemd looks at the host's available memory. When this is less than the
 * headroom, both now and on average, a round begins. Slabs whose owners are not connected go at once. If these are not enough,
 * some more slabs than have to go are chosen at random, large slabs with a higher probability. Then rmemd asks their owners how
 * much they use them, and evicts the coldest. The next round begins when all evictions have ended.
 *
 * This file, client.c and evict.c call each other in a circle: a client has one buffer for notices, and the function that frees it
 * sends the next notice.
 */
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "rmemd.h"

#define MOST (RMEM_HEAT_MAX - donor.conf.spare) /* slabs that go in a round */
#define UNKNOWN UINT64_MAX
#define ASK_MS 2000 /* at most; librmem answers at once if the program is in a call */

struct candidate {
	struct owner *owner;
	uint64_t tag, addr, size;
	uint64_t heat;
	double key; /* random; the slabs with the smallest keys are chosen */
};

static struct event *each_period;
static uint64_t smoothed; /* bytes that the host has left */
static bool helpless;	  /* there was no slab to evict, and a line has said so */

/* The round, while it asks. */
static struct {
	bool asking;
	uint32_t number;
	int64_t deadline;
	uint64_t bytes; /* have to go */
	unsigned int count;
	struct candidate candidates[RMEM_HEAT_MAX];
} current;

/* ------------------------------------------------------------------ what the host has */

static uint64_t above_headroom(uint64_t bytes)
{
	return bytes > donor.conf.headroom ? bytes - donor.conf.headroom : 0;
}

/*
 * The bytes that have to go. A short peak of the host's need does not count, and neither does what the last round has already
 * given back.
 */
static uint64_t look(void)
{
	uint64_t now, better, weight = donor.conf.weight;

	/* if it can't be read, no slab is taken */
	if (host_available(&now))
		return 0;
	smoothed = (weight * now + (100 - weight) * smoothed) / 100;
	better = now > smoothed ? now : smoothed;
	return better < donor.conf.headroom ? donor.conf.headroom - better : 0;
}

/*
 * The kernel does not count pages that are free but wait on some CPU's list for their next use, and slabs leave many there. So
 * the average gets the bytes of a freed region at once, and follows the kernel's count from there. It loses the bytes of a new
 * region as fast. Otherwise memory that was evicted and allocated again meanwhile would count as free.
 */
void pressure_gave(uint64_t bytes)
{
	if (!donor.conf.huge)
		smoothed += bytes;
}

void pressure_took(uint64_t bytes)
{
	if (!donor.conf.huge)
		smoothed -= bytes < smoothed ? bytes : smoothed;
}

uint64_t pressure_left(void)
{
	return smoothed;
}

/*
 * A slab that takes the last byte above the headroom might have to go at once, and be allocated again. (Slabs in huge pages are
 * set apart, and do not come from the host's other memory.)
 */
uint64_t pressure_room(const struct owner *owner)
{
	uint64_t room = owner_room(owner), margin = donor.conf.headroom / 16, host;

	if (donor.conf.huge)
		return room;
	host_available(&host);
	host = above_headroom(host < smoothed ? host : smoothed);
	host = host > margin ? host - margin : 0;
	return room < host ? room : host;
}

/* ------------------------------------------------------------------ slabs of nobody */

/* The owner has no connection, so evict_pressed() takes only this region, and @next stays valid. */
static int release_of(struct owner *owner, void *bytes)
{
	struct region *region, *next;
	uint64_t *left = bytes;

	if (client_of(owner))
		return 0;
	for (region = owner_regions(owner); region && *left; region = next) {
		uint64_t size = region->size;

		next = region->next;
		if (region->flags & RMEM_SLAB && evict_pressed(owner, region->tag) == RMEM_OK)
			*left -= size < *left ? size : *left;
	}
	return !*left;
}

static void release(uint64_t *bytes)
{
	uint64_t before = donor.counters.evictions, slabs;

	store_each_owner(donor.store, release_of, bytes);
	slabs = donor.counters.evictions - before;
	if (slabs)
		say(LOG_NOTICE, "memory: the host has less than its headroom: slabs of clients that are not connected taken: %ju",
		    (uintmax_t)slabs);
}

/* ------------------------------------------------------------------ choosing */

/*
 * The slabs with the smallest keys are chosen. A key is an exponential variable, and its rate is the slab's size. So the
 * probability that a slab has the smallest key is its share of all bytes, and likewise for the slabs that are left after it.
 * (Efraimidis and Spirakis, 2006)
 */
static double key_of(uint64_t size)
{
	return -log((randombytes_random() + 1.0) / 0x1p32) / size;
}

static struct candidate *place_for(double key)
{
	struct candidate *last = current.candidates;

	if (current.count < RMEM_HEAT_MAX)
		return &current.candidates[current.count++];
	for (unsigned int i = 1; i < current.count; i++)
		if (current.candidates[i].key > last->key)
			last = &current.candidates[i];
	return key < last->key ? last : NULL;
}

static int choose_of(struct owner *owner, void *arg)
{
	(void)arg;
	for (const struct region *region = owner_regions(owner); region; region = region->next) {
		struct candidate *place;
		double key;

		if (!(region->flags & RMEM_SLAB))
			continue;
		key = key_of(region->size);
		place = place_for(key);
		if (place)
			*place = (struct candidate){ .owner = owner, .tag = region->tag, .addr = region->addr,
						     .size = region->size, .heat = UNKNOWN, .key = key };
	}
	return 0;
}

static int earlier(const void *left, const void *right)
{
	double a = ((const struct candidate *)left)->key, b = ((const struct candidate *)right)->key;

	return (a > b) - (a < b);
}

/* Chooses slabs that together have the bytes that have to go, and some slabs more. */
static void choose(void)
{
	unsigned int need = 0;
	uint64_t sum = 0;

	current.count = 0;
	store_each_owner(donor.store, choose_of, NULL);
	qsort(current.candidates, current.count, sizeof(current.candidates[0]), earlier);
	while (need < current.count && sum < current.bytes)
		sum += current.candidates[need++].size;
	if (current.count > need + donor.conf.spare)
		current.count = need + donor.conf.spare;
}

/* ------------------------------------------------------------------ asking */

static bool concerns(const struct client *c)
{
	for (unsigned int i = 0; i < current.count; i++)
		if (current.candidates[i].owner == c->owner)
			return true;
	return false;
}

static void ask_all(void)
{
	current.number++;
	current.asking = true;
	current.deadline = now_ms() + (donor.conf.grace_ms < ASK_MS ? donor.conf.grace_ms : ASK_MS);
	for (struct client *c = donor.clients; c; c = c->next) {
		if (c->dead || c->heat == HEAT_LATE || !concerns(c))
			continue;
		c->heat = HEAT_TO_ASK;
		evict_next(c);
	}
}

/* The buffer for notices is free. */
void pressure_ask(struct client *c)
{
	union {
		struct rmem_ask_heat ask;
		uint8_t bytes[sizeof(struct rmem_ask_heat) + RMEM_HEAT_MAX * sizeof(rmem_le64)];
	} body;
	uint32_t count = 0;

	for (unsigned int i = 0; i < current.count; i++)
		if (current.candidates[i].owner == c->owner)
			body.ask.tags[count++] = htole64(current.candidates[i].tag);
	body.ask.round = htole32(current.number);
	body.ask.count = htole32(count);
	c->heat = HEAT_ASKED;
	donor.counters.heat_asked++;
	client_notice(c, RMEM_ASK_HEAT, &body, sizeof(body.ask) + count * sizeof(body.ask.tags[0]));
}

enum rmem_status pressure_heat(struct client *c, const struct rmem_heat *heat)
{
	if (c->heat == HEAT_LATE)
		c->heat = HEAT_QUIET;
	if (c->heat != HEAT_ASKED || le32toh(heat->round) != current.number)
		return RMEM_NO_TAG;
	for (uint32_t n = 0; n < le32toh(heat->count); n++) {
		uint64_t value = le64toh(heat->slabs[n].heat);

		for (unsigned int i = 0; i < current.count; i++)
			if (current.candidates[i].owner == c->owner &&
			    current.candidates[i].tag == le64toh(heat->slabs[n].tag))
				current.candidates[i].heat = value < UNKNOWN ? value : UNKNOWN - 1;
	}
	c->heat = HEAT_QUIET;
	donor.counters.heat_answered++;
	evict_next(c);
	return RMEM_OK;
}

static bool waits(void)
{
	for (const struct client *c = donor.clients; c; c = c->next)
		if (!c->dead && (c->heat == HEAT_TO_ASK || c->heat == HEAT_ASKED))
			return true;
	return false;
}

/* ------------------------------------------------------------------ evicting */

/* A slab whose use nobody knows counts as the hottest: it goes when the others are not enough. */
static int colder(const void *left, const void *right)
{
	uint64_t a = ((const struct candidate *)left)->heat, b = ((const struct candidate *)right)->heat;

	return (a > b) - (a < b);
}

/* The owner may have freed the slab, and may have another slab of that tag. */
static bool is_there(const struct candidate *candidate)
{
	const struct region *region = region_of_tag(candidate->owner, candidate->tag);

	return region && region->addr == candidate->addr;
}

static void decide(void)
{
	uint64_t bytes = 0;
	unsigned int slabs = 0;

	qsort(current.candidates, current.count, sizeof(current.candidates[0]), colder);
	for (unsigned int i = 0; i < current.count && slabs < MOST && bytes < current.bytes; i++) {
		const struct candidate *candidate = &current.candidates[i];

		if (!is_there(candidate) || evict_pressed(candidate->owner, candidate->tag))
			continue;
		bytes += candidate->size;
		slabs++;
	}
	say(LOG_NOTICE, "memory: the host has %ju bytes less than its headroom: slabs evicted: %u, the coldest of %u",
	    (uintmax_t)current.bytes, slabs, current.count);
}

/* Evictions by the operator may have waited for the owners' answers, and go on now. */
static void end_asking(void)
{
	current.asking = false;
	for (struct client *c = donor.clients; c; c = c->next) {
		c->heat = c->heat == HEAT_ASKED || c->heat == HEAT_LATE ? HEAT_LATE : HEAT_QUIET;
		evict_next(c);
	}
}

/* The host may have got memory back since the question. */
static void answered(uint64_t bytes)
{
	end_asking();
	if (bytes < current.bytes)
		current.bytes = bytes;
	if (bytes)
		decide();
}

static void no_slabs(void)
{
	if (!helpless)
		say(LOG_WARNING, "memory: the host has less than its headroom, and there is no slab to evict");
	helpless = true;
}

/* False: all candidates have to go, so there is nothing to ask. */
static bool some_may_stay(void)
{
	uint64_t sum = 0, smallest = UINT64_MAX;

	for (unsigned int i = 0; i < current.count; i++) {
		sum += current.candidates[i].size;
		if (current.candidates[i].size < smallest)
			smallest = current.candidates[i].size;
	}
	return current.count > MOST || sum - smallest >= current.bytes;
}

static void begin(uint64_t bytes)
{
	donor.counters.pressure_rounds++;
	release(&bytes);
	if (!bytes)
		return;
	current.bytes = bytes;
	choose();
	if (!current.count)
		no_slabs();
	else if (some_may_stay())
		ask_all();
	else
		decide();
}

static void on_period(evutil_socket_t fd, short what, void *arg)
{
	uint64_t bytes = look();

	(void)fd, (void)what, (void)arg;
	if (current.asking) {
		if (!waits() || now_ms() >= current.deadline)
			answered(bytes);
	} else if (!bytes) {
		helpless = false;
		evict_relieved();
	} else if (!donor.conf.huge && !evictions()) {
		begin(bytes);
	}
}

void pressure_open(void)
{
	const struct timeval period = { donor.conf.period_ms / 1000, donor.conf.period_ms % 1000 * 1000 };

	host_available(&smoothed);
	each_period = event_or_die(-1, EV_PERSIST, on_period, NULL);
	event_add(each_period, &period);
}

void pressure_close(void)
{
	if (each_period)
		event_free(each_period);
	each_period = NULL;
}
