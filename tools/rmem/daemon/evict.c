// SPDX-License-Identifier: MIT
/*
 * Slabs that are taken back. Each owner is asked for one slab at a time. If an owner lets the time of grace pass, all slabs that
 * are wanted from it are taken, since it would not answer for the others either.
 *
 * pressure.c also asks owners, about the use of their slabs. A client gets no notice of either kind before it has answered the
 * last notice, or its time for that has passed. evict_next() makes sure of that.
 *
 * This file, client.c and pressure.c call each other in a circle: a client has one buffer for notices, and the function that frees
 * it sends the next notice.
 */
#include <stdlib.h>
#include <string.h>

#include "rmemd.h"

struct eviction {
	struct owner *owner;
	uint64_t tag;
	uint64_t addr; /* the owner's next region of this tag has another one */
	const struct asker *asker; /* NULL: nobody waits */
	struct event *grace; /* NULL: another slab of this owner comes first */
	bool asked;	     /* the owner was sent the notice */
	bool pressed;	     /* pressure alone wants it */
	struct eviction *next;
};

static struct eviction *list; /* in the order in which they were asked for */
static bool was_freed;	      /* an owner can perhaps be asked for its next slab */

static struct eviction *find(const struct region *region)
{
	for (struct eviction *e = list; e; e = e->next)
		if (e->owner == region->owner && e->addr == region->addr)
			return e;
	return NULL;
}

static void unlink_eviction(struct eviction *e)
{
	struct eviction **at = &list;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	if (e->grace)
		event_free(e->grace);
}

/* A transaction of the owner may have freed the region, and another region may have its tag. */
static enum rmem_status take(const struct eviction *e)
{
	const struct region *region = region_of_tag(e->owner, e->tag);
	enum rmem_status status = region && region->addr == e->addr ? store_evict(e->owner, e->tag) : RMEM_NO_TAG;

	if (status != RMEM_OK)
		return status;
	donor.changed = true;
	donor.counters.evictions++;
	return RMEM_OK;
}

static void end(struct eviction *e, const char *how)
{
	if (e->asker)
		e->asker->told(e->asker->arg, how);
	free(e);
}

/* The eviction leaves the list before the slab is taken, since evict_gone() is called for the slab, and must not find it. */
static enum rmem_status finish(struct eviction *e, const char *how)
{
	enum rmem_status status;

	unlink_eviction(e);
	status = take(e);
	end(e, how);
	return status;
}

static void finish_all(const struct owner *owner, const char *how)
{
	struct eviction *e = list;
	uint64_t slabs = 0;

	while (e) {
		struct eviction *next = e->next;

		if (e->owner == owner)
			slabs += finish(e, how) == RMEM_OK;
		e = next;
	}
	if (slabs)
		say(LOG_NOTICE, "client %s: slabs taken: %ju: %s", owner_name(owner), (uintmax_t)slabs, how);
}

static void on_grace(evutil_socket_t fd, short what, void *arg)
{
	struct eviction *e = arg;

	(void)fd, (void)what;
	finish_all(e->owner, "the time of grace ended");
}

/*
 * The time begins when the notice is sent. If the notice must wait for the client's last notice, the time begins at once, since the
 * client may never take that one. It begins anew when the notice is sent.
 */
static void begin_grace(struct eviction *e)
{
	uint64_t ms = donor.conf.grace_ms;
	struct timeval grace = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	if (!e->grace)
		e->grace = event_or_die(-1, 0, on_grace, e);
	event_add(e->grace, &grace);
}

static void ask(struct client *c, struct eviction *e)
{
	struct rmem_evict notice = { .tag = htole64(e->tag), .addr = htole64(e->addr), .grace_ms = htole32(donor.conf.grace_ms) };

	/* if this fails, the client was closed, all slabs that were wanted from it are taken, and @e is freed */
	if (client_notice(c, RMEM_EVICT, &notice, sizeof(notice)))
		return;
	e->asked = true;
	begin_grace(e);
}

static struct eviction *first_of(const struct owner *owner)
{
	struct eviction *e = list;

	while (e && e->owner != owner)
		e = e->next;
	return e;
}

void evict_next(struct client *c)
{
	struct eviction *first;

	c->notice_waits = false;
	if (c->dead || c->heat == HEAT_ASKED)
		return;
	first = first_of(c->owner);
	if (first && first->asked)
		return;
	if (first && !first->grace)
		begin_grace(first);
	if (c->notice_busy || (!first && c->heat != HEAT_TO_ASK))
		return;
	/* the answer to the slab's ALLOC may still be held back, and must go first */
	if (c->n_replies)
		c->notice_waits = true;
	else if (c->heat == HEAT_TO_ASK)
		pressure_ask(c);
	else
		ask(c, first);
}

static enum rmem_status begin(struct owner *owner, uint64_t tag, const struct asker *asker, bool pressed)
{
	const struct region *region = region_of_tag(owner, tag);
	struct client *c = client_of(owner);
	struct eviction *e, **last = &list;

	if (!region || !(region->flags & RMEM_SLAB))
		return RMEM_NO_TAG;
	e = find(region);
	if (e && asker && e->asker)
		return RMEM_FULL;
	if (e) {
		e->asker = asker ? asker : e->asker;
		e->pressed &= pressed;
		return RMEM_OK;
	}
	e = xcalloc(1, sizeof(*e));
	*e = (struct eviction){ .owner = owner, .tag = tag, .addr = region->addr, .asker = asker, .pressed = pressed };
	while (*last)
		last = &(*last)->next;
	*last = e;
	if (c)
		evict_next(c);
	else
		finish(e, "its owner is not connected");
	return RMEM_OK;
}

enum rmem_status evict(struct owner *owner, uint64_t tag, const struct asker *asker)
{
	return begin(owner, tag, asker, false);
}

enum rmem_status evict_pressed(struct owner *owner, uint64_t tag)
{
	return begin(owner, tag, NULL, true);
}

/* Another eviction of the same owner may have waited for one that ends here. evict_settle() goes on with it. */
void evict_relieved(void)
{
	struct eviction *e = list;

	while (e) {
		struct eviction *next = e->next;

		if (e->pressed && !e->asked) {
			unlink_eviction(e);
			end(e, "");
			was_freed = true;
		}
		e = next;
	}
}

enum rmem_status evict_released(struct owner *owner, uint64_t tag, uint64_t addr)
{
	const struct region *region = region_of_tag(owner, tag);
	struct eviction *e = region ? find(region) : NULL;
	struct client *c = client_of(owner);
	enum rmem_status status;

	if (!e || !e->asked || e->addr != addr)
		return RMEM_NO_TAG;
	status = finish(e, "its owner let go of it");
	if (c)
		evict_next(c);
	return status;
}

/* The store is in the middle of a transaction. So nobody is asked and no connection is closed until evict_settle(). */
void evict_gone(const struct region *region)
{
	struct eviction *e = find(region);

	if (!e)
		return;
	unlink_eviction(e);
	end(e, "its owner freed it");
	was_freed = true;
}

void evict_settle(void)
{
	if (!was_freed)
		return;
	was_freed = false;
	for (struct client *c = donor.clients; c; c = c->next)
		if (!c->dead)
			evict_next(c);
}

void evict_disconnected(struct owner *owner)
{
	finish_all(owner, "its owner is not connected");
}

void evict_forget(const struct asker *asker)
{
	for (struct eviction *e = list; e; e = e->next)
		if (e->asker == asker)
			e->asker = NULL;
}

/* An eviction may end the connection, and other evictions with it. So the list of regions is not walked meanwhile. */
static int drain_owner(struct owner *owner, void *arg)
{
	const struct region *region;
	uint64_t *tags;
	size_t n = 0;

	(void)arg;
	for (region = owner_regions(owner); region; region = region->next)
		n++;
	tags = xcalloc(n + 1, sizeof(*tags));
	n = 0;
	for (region = owner_regions(owner); region; region = region->next)
		if (region->flags & RMEM_SLAB)
			tags[n++] = region->tag;
	for (size_t i = 0; i < n; i++)
		evict(owner, tags[i], NULL);
	free(tags);
	return 0;
}

void drain(void)
{
	if (!donor.draining)
		say(LOG_NOTICE, "draining: no new clients and regions, all slabs are evicted");
	donor.draining = true;
	store_each_owner(donor.store, drain_owner, NULL);
}

static int stays(struct owner *owner, void *name)
{
	if (strcmp(owner_name(owner), name))
		return 0;
	/* The owner's last transaction may have freed all its regions, and the answer be lost: it may connect to learn of it. */
	if (owner_last_txn(owner))
		return 1;
	for (const struct region *region = owner_regions(owner); region; region = region->next)
		if (!(region->flags & RMEM_SLAB))
			return 1;
	return 0;
}

bool drained(const char *name)
{
	return donor.draining && !store_each_owner(donor.store, stays, (void *)name);
}

uint64_t evictions(void)
{
	uint64_t n = 0;

	for (const struct eviction *e = list; e; e = e->next)
		n++;
	return n;
}
