// SPDX-License-Identifier: GPL-2.0
/*
 * Ids of librdmacm, made again in the kernel (restore_cm_command.c). The kernel
 * gives out the lowest number that is free on the host. So ids are made by
 * rising number, and other ids fill the gaps meanwhile.
 *
 * A connection is made as if for the first time, from this side, whichever side
 * began it then. The driver answers in the peer's place, and the events that
 * this causes are read here.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cm_lock.h"
#include "restore_cm.h"

/*
 * To make an id, all free numbers below it are given out meanwhile. An image
 * with a higher id is refused, so that it can't make us give out endless
 * numbers.
 */
#define MAX_ID (1 << 20)
#define CM_LOCK_MS 2000

/* ---------------------------------------------------------------- addresses -- */

static void load_address(union address *a, const ProtobufCBinaryData *from)
{
	memset(a, 0, sizeof(*a));
	memcpy(a, from->data, from->len < sizeof(*a) ? from->len : sizeof(*a));
}

static void address_to_gid(const union address *a, union ibv_gid *gid)
{
	struct in6_addr *in6 = (void *)gid;

	memset(gid, 0, sizeof(*gid));
	if (a->sa.sa_family == AF_INET6) {
		*in6 = a->in6.sin6_addr;
		return;
	}
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &a->in.sin_addr, 4);
}

/* port is in network byte order; 0: the address has none. */
static void gid_to_address(const union ibv_gid *gid, uint16_t port,
			   union address *a)
{
	const struct in6_addr *in6 = (const void *)gid;

	memset(a, 0, sizeof(*a));
	if (IN6_IS_ADDR_V4MAPPED(in6)) {
		a->in.sin_family = AF_INET;
		a->in.sin_port = port;
		memcpy(&a->in.sin_addr, gid->raw + 12, 4);
		return;
	}
	a->in6.sin6_family = AF_INET6;
	a->in6.sin6_port = port;
	a->in6.sin6_addr = *in6;
}

/*
 * A link-local address needs an interface: that of the GID from which the id
 * sends. It has another number here.
 */
static void set_link(union address *a, struct ibv_context *ctx,
		     const union address *src)
{
	union ibv_gid gid;

	if (a->sa.sa_family != AF_INET6 ||
	    !IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr))
		return;
	address_to_gid(src, &gid);
	a->in6.sin6_scope_id = gid_interface(ctx, &gid);
}

/* The first context of an id's device; saved.num_contexts: there is none. */
static uint32_t find_context(const RdmaCmIdEntry *id)
{
	uint32_t i;

	for (i = 0; i < saved.num_contexts; i++)
		if (id->device &&
		    !strcmp(saved.contexts[i].source->name, id->device))
			break;
	return i;
}

/*
 * The address that an id is bound to here. If it was an address of the id's
 * device, this is the address that takes its place here. Otherwise, such as a
 * loopback address, it is the same as before.
 */
static int translate(const RdmaCmIdEntry *id, struct ibv_context **ctx,
		     union address *a)
{
	const uint32_t n = find_context(id);
	const struct saved_context *c = &saved.contexts[n];
	union ibv_gid old, gid;

	load_address(a, &id->src_addr);
	address_to_gid(a, &old);
	if (n == saved.num_contexts || !has_gid(c->source, old.raw))
		return 0;
	if (choose_gid(c->source, c->here, old.raw, &gid))
		return -1;
	if (gid.global.subnet_prefix || gid.global.interface_id)
		gid_to_address(&gid, a->in.sin_port, a);
	set_link(a, ctx[n], a);
	return 0;
}

/* ---------------------------------------------------------------------- ids -- */

static int bind_id(int fd, const RdmaCmIdEntry *id, struct ibv_context **ctx)
{
	union address at;

	return translate(id, ctx, &at) ? -1 : cm_bind(fd, id, &at);
}

static int resolve_id(int fd, const RdmaCmIdEntry *id, struct ibv_context **ctx)
{
	const uint32_t n = find_context(id);
	union address src, dst;

	load_address(&dst, &id->dst_addr);
	if (translate(id, ctx, &src))
		return -1;
	if (n < saved.num_contexts)
		set_link(&dst, ctx[n], &src);
	if (cm_resolve_addr(fd, id, &src, &dst))
		return -1;
	return id->state == RXE_MIGR_CM_ROUTE_RESOLVED ? cm_resolve_route(fd, id) :
							 0;
}

/* Tell the kernel where the peer is now: the queue pair has its address. */
static int resolve_peer(int fd, const RdmaCmIdEntry *id, struct ibv_context *ctx)
{
	const struct saved_object *o =
		find_qp(&saved.contexts[id->context], id->qp_num);
	const struct rxe_migr_rec_qp *qp = (const void *)o->rec;
	union address src, dst, then;
	union ibv_gid gid = o->sgid;

	if (!gid.global.subnet_prefix && !gid.global.interface_id)
		memcpy(gid.raw, qp->sgid, sizeof(gid.raw));
	gid_to_address(&gid, 0, &src);
	set_link(&src, ctx, &src);
	memcpy(gid.raw, qp->dgid, sizeof(gid.raw));
	load_address(&then, &id->dst_addr);
	gid_to_address(&gid, then.in.sin_port, &dst);
	set_link(&dst, ctx, &src);
	/*
	 * The peer does not get the REQ. But the kernel sends no REQ before it
	 * knows the peer's hardware address.
	 */
	return cm_resolve_addr(fd, id, &src, &dst) || cm_resolve_route(fd, id) ? -1 : 0;
}

static int expect(const RdmaCmIdEntry *id, struct ibv_context *ctx,
		  uint8_t cookie[8])
{
	struct rxe_migr_cm_connect connect = {
		.qp_num = id->qp_num,
		.comm_id = id->comm_id,
		.remote_comm_id = id->remote_comm_id,
		.state = id->state,
	};
	int err;

	if (getrandom(cookie, sizeof(connect.cookie), 0) !=
	    sizeof(connect.cookie))
		return fail("no random numbers: %m");
	memcpy(connect.cookie, cookie, sizeof(connect.cookie));
	err = ibv_expect_cm_connect(ctx, &connect);
	return err ? fail("id %u of librdmacm: QP %u cannot be connected: %s",
			  id->id, id->qp_num, strerror(err)) : 0;
}

static int connect_id(int fd, const RdmaCmIdEntry *id, struct ibv_context *ctx)
{
	uint8_t cookie[8];

	if (resolve_peer(fd, id, ctx) || expect(id, ctx, cookie))
		return -1;
	return cm_connect(fd, id, cookie);
}

static bool is_bound(const RdmaCmIdEntry *id)
{
	return id->state == RXE_MIGR_CM_BOUND ||
	       id->state == RXE_MIGR_CM_LISTENING;
}

static int fill_id(int fd, const RdmaCmIdEntry *id, struct ibv_context **ctx)
{
	switch (id->state) {
	case RXE_MIGR_CM_ADDR_RESOLVED:
	case RXE_MIGR_CM_ROUTE_RESOLVED:
		return resolve_id(fd, id, ctx);
	case RXE_MIGR_CM_CONNECTED:
	case RXE_MIGR_CM_LEFT:
		return connect_id(fd, id, ctx[id->context]);
	default:
		return 0;
	}
}

/* Make an id. The free numbers below, which come first, go to fillers. */
static int make_id_here(const struct made_id *made, struct made_id **fillers,
			uint32_t **numbers, size_t *count)
{
	const RdmaCmIdEntry *id = made->saved;
	struct made_id *filler;
	uint32_t number, *slot;
	int err;

	for (;;) {
		err = cm_create_id(made->fd, id, &number);
		if (err)
			return fail("an id of librdmacm cannot be made: %s",
				    strerror(err));
		if (number == id->id)
			return 0;
		filler = append(fillers, sizeof(*filler), *count);
		slot = append(numbers, sizeof(*slot), *count);
		if (!filler || !slot)
			return -1;
		*filler = *made;
		*slot = number;
		++*count;
		if (number > id->id)
			return fail("id %u of librdmacm is in use on this host: end what has it, or move to another one",
				    id->id);
	}
}

/*
 * An id belongs to the network namespace of whoever makes it, for ever. So CRIU
 * makes it in its task's.
 */
static int make_id(const struct made_id *made, struct made_id **fillers,
		   uint32_t **numbers, size_t *count)
{
	int own, ret;

	if (enter_netns(made->pid, &own))
		return -1;
	ret = make_id_here(made, fillers, numbers, count);
	return leave_netns(own) ? -1 : ret;
}

static int by_number(const void *a, const void *b)
{
	const struct made_id *ma = a, *mb = b;

	return ma->saved->id < mb->saved->id ? -1 : ma->saved->id > mb->saved->id;
}

static int take_numbers(struct made_id *ids, size_t count)
{
	struct made_id *fillers = NULL;
	uint32_t *numbers = NULL;
	size_t i, filled = 0;
	int ret = 0;

	qsort(ids, count, sizeof(*ids), by_number);
	for (i = 0; !ret && i < count; i++)
		ret = make_id(&ids[i], &fillers, &numbers, &filled);
	for (i = 0; i < filled; i++)
		cm_destroy_id(fillers[i].fd, numbers[i]);
	free(fillers);
	free(numbers);
	return ret;
}

/* Bind to known ports before the kernel gives other ids any port. */
static int take_ports(struct ibv_context **ctx, const struct made_id *ids,
		      size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (cm_set_options(ids[i].fd, ids[i].saved) ||
		    (is_bound(ids[i].saved) &&
		     bind_id(ids[i].fd, ids[i].saved, ctx)))
			return -1;
	return 0;
}

/*
 * Restores of this host take turns. If there is no lock, as in a mount
 * namespace without a /run that can be written, or if others have it for long,
 * go on without it. The lock matters only to restores and checks at the same
 * moment, and while we wait for it, the program stands still.
 */
static int take_numbers_and_ports(struct ibv_context **ctx, struct made_id *ids,
				  size_t count)
{
	int lock = cm_lock(CM_LOCK_MS), ret;

	if (lock < 0)
		warn("ids of librdmacm: the lock " CM_LOCK " cannot be had (%m): another restore or check at this moment may fail");
	ret = take_numbers(ids, count) || take_ports(ctx, ids, count) ? -1 : 0;
	if (lock >= 0)
		close(lock);
	return ret;
}

int make_cm_ids(struct ibv_context *driver, struct ibv_context **ctx,
		struct made_id *ids, size_t count)
{
	int ret, err;
	size_t i;

	if (!count)
		return 0;
	ret = take_numbers_and_ports(ctx, ids, count);
	for (i = 0; !ret && i < count; i++)
		ret = fill_id(ids[i].fd, ids[i].saved, ctx);
	for (i = 0; !ret && i < count; i++) {
		err = ibv_refill_cm_id(driver, ids[i].fd, ids[i].saved->id,
				       ids[i].saved->events_reported);
		if (err)
			ret = fail("id %u of librdmacm: its events cannot be counted: %s",
				   ids[i].saved->id, strerror(err));
	}
	/* From here on nobody here reads events: they are the program's. */
	for (i = 0; !ret && i < count; i++)
		if (ids[i].saved->state == RXE_MIGR_CM_LISTENING)
			ret = cm_listen(ids[i].fd, ids[i].saved);
	return ret;
}

/* ------------------------------------------------------------------- images -- */

static int check_id(const RdmaCmIdEntry *id)
{
	union address src, dst;

	load_address(&src, &id->src_addr);
	load_address(&dst, &id->dst_addr);
	if (id->id >= MAX_ID)
		return fail("%s: id %u of librdmacm: no such number",
			    INVENTORY, id->id);
	switch (id->state) {
	case RXE_MIGR_CM_IDLE:
	case RXE_MIGR_CM_ENDED:
		return 0;
	case RXE_MIGR_CM_BOUND:
	case RXE_MIGR_CM_LISTENING:
		if (address_size(&src))
			return 0;
		break;
	case RXE_MIGR_CM_ADDR_RESOLVED:
	case RXE_MIGR_CM_ROUTE_RESOLVED:
		if (address_size(&src) && address_size(&dst))
			return 0;
		break;
	case RXE_MIGR_CM_CONNECTED:
	case RXE_MIGR_CM_LEFT:
		if (id->has_context && id->context < saved.num_contexts &&
		    id->has_qp_num && id->has_comm_id &&
		    id->has_remote_comm_id &&
		    find_qp(&saved.contexts[id->context], id->qp_num))
			return 0;
		break;
	}
	return fail("%s: id %u of librdmacm is not whole", INVENTORY, id->id);
}

int check_cm_ids(void)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	size_t i, j;

	for (i = 0; i < inventory->n_cm_files; i++) {
		for (j = 0; j < inventory->cm_files[i]->n_ids; j++)
			if (check_id(inventory->cm_files[i]->ids[j]))
				return -1;
		for (j = 0; j < inventory->cm_files[i]->n_devices; j++)
			if (inventory->cm_files[i]->devices[j]->guid.len != 8)
				return fail("%s: the GUID of a device is not whole",
					    INVENTORY);
		for (j = 0; j < inventory->cm_files[i]->n_events; j++)
			if (inventory->cm_files[i]->events[j].len !=
			    sizeof(struct rxe_migr_cm_event))
				return fail("%s: an event of librdmacm is not whole",
					    INVENTORY);
	}
	return 0;
}
