// SPDX-License-Identifier: MIT
/* Which files of librdmacm, and which of their ids, stand in the way of a move? */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "godwit.h"
#include "plan.h"
#include "rdma.h"
#include "reasons.h"
#include "text.h"

static const char *const states[] = {
	[RXE_MIGR_CM_IDLE] = "idle", [RXE_MIGR_CM_BOUND] = "bound", [RXE_MIGR_CM_LISTENING] = "listening",
	[RXE_MIGR_CM_ADDR_RESOLVED] = "addr_resolved", [RXE_MIGR_CM_ROUTE_RESOLVED] = "route_resolved",
	[RXE_MIGR_CM_CONNECTED] = "connected", [RXE_MIGR_CM_LEFT] = "left", [RXE_MIGR_CM_ENDED] = "ended",
	[RXE_MIGR_CM_BUSY] = "busy", [RXE_MIGR_CM_DATAGRAM] = "datagram", [RXE_MIGR_CM_FOREIGN] = "foreign",
	[RXE_MIGR_CM_STRAY] = "stray", [RXE_MIGR_CM_STAND_IN] = "stand_in",
};

/* "10.77.0.1:7471", "[fe80::1]:7471" or NULL */
static json_t *endpoint(const uint8_t raw[48], char text[INET6_ADDRSTRLEN])
{
	union ip_port a;

	memcpy(&a, raw, sizeof(a));
	text[0] = '\0';
	if (a.sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &a.in.sin_addr, text, INET6_ADDRSTRLEN);
	else if (a.sa.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &a.in6.sin6_addr, text, INET6_ADDRSTRLEN);
	else
		return json_null();
	return json_sprintf(a.sa.sa_family == AF_INET ? "%s:%u" : "[%s]:%u", text, ntohs(a.in.sin_port));
}

/* Its address as a GID, and its port. False: it has none, or one of a family that is not known here. */
static bool get_source(const struct rxe_migr_cm_id *id, struct in6_addr *gid, int *port)
{
	union ip_port a;

	memcpy(&a, id->src_addr, sizeof(a));
	*port = ntohs(a.in.sin_port);
	*gid = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
	if (a.sa.sa_family == AF_INET)
		memcpy(&gid->s6_addr[12], &a.in.sin_addr, 4);
	else if (a.sa.sa_family == AF_INET6)
		*gid = a.in6.sin6_addr;
	else
		return false;
	return true;
}

/* The plugin binds the id again, to the address that takes the place of this one. */
static void add_source(struct contexts *list, const struct rxe_migr_cm_id *id)
{
	struct in6_addr gid;
	int port;

	if (!get_source(id, &gid, &port))
		return;
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];

		if (strcmp(c->device, id->device))
			continue;
		GROW(c->cm_gid, c->cm_gids);
		c->cm_gid[c->cm_gids++] = gid;
		break;
	}
}

static bool moves_along(const struct addresses *addresses, const char *text)
{
	for (size_t i = 0; i < addresses->n; i++)
		if (!strcmp(addresses->address[i].text, text))
			return true;
	return false;
}

static bool is_connected(const struct rxe_migr_cm_id *id)
{
	return id->state == RXE_MIGR_CM_CONNECTED || id->state == RXE_MIGR_CM_LEFT;
}

/* What is asked of an id's QP. */
struct cm_qp {
	struct in6_addr dgid;	/* of its peer */
	bool failed;
};

/* Has the tree this QP, as the CRIU plugin looks for it? */
static bool have_qp(const struct contexts *list, const char *device, uint32_t qpn, struct cm_qp *found)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct context *c = &list->context[i];
		const struct rxe_migr_rec_qp *qp = strcmp(c->device, device) ? NULL : context_qp(c, qpn);

		if (qp) {
			memcpy(&found->dgid, qp->dgid, sizeof(found->dgid));
			found->failed = qp->qp_state == IBV_QPS_ERR;
			return true;
		}
	}
	return false;
}

/* The contexts as they are once the ids of a file are read. */
struct again {
	struct contexts now;
	bool read;
};

/* The same. Contexts were read before ids: a QP that is missing may be new, so we look again. */
static bool has_qp(const struct plan *plan, struct again *again, const char *device, uint32_t qpn, struct cm_qp *found)
{
	if (have_qp(&plan->contexts, device, qpn, found))
		return true;
	if (!again->read) {
		again->read = !contexts_find(&plan->tree, &again->now) && !contexts_inspect(&again->now);
		if (!again->read)
			contexts_free(&again->now);
		fault_clear();
	}
	return have_qp(&again->now, device, qpn, found);
}

/*
 * A peer that the destination must find. A network namespace brings along which of its neighbours it knows, and until it is made
 * there nobody can be asked in it.
 */
static void add_peer(struct plan *plan, const struct proc_fd *fd, uint32_t id, const char *address)
{
	if (plan->own_netns)
		return;
	json_array_append_new(plan->cm_peers, json_pack("{s:i, s:i, s:I, s:s}", "pid", fd->pid, "fd", fd->fd, "id",
							(json_int_t)id, "address", address));
}

/* A port that must be free there. All ports of a network namespace that goes along are. */
static void add_port(struct plan *plan, const struct proc_fd *fd, const struct rxe_migr_cm_id *id)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr gid;
	int port;

	if (plan->own_netns || !get_source(id, &gid, &port))
		return;
	inet_ntop(AF_INET6, &gid, text, sizeof(text));
	json_array_append_new(plan->cm_ports, json_pack("{s:i, s:i, s:I, s:i, s:s, s:i, s:b, s:b}", "pid", fd->pid,
		"fd", fd->fd, "id", (json_int_t)id->id, "ps", (int)id->ps, "address", text, "port", port,
		"reuseaddr", id->flags & RXE_MIGR_CM_REUSEADDR, "afonly", id->flags & RXE_MIGR_CM_AFONLY));
}

json_t *plan_cm_ports(const struct plan *plan)
{
	json_t *ports = json_deep_copy(plan->cm_ports), *port;
	size_t i;

	json_array_foreach(ports, i, port) {
		json_t *gid = json_object_get(plan->gids, json_string_value(json_object_get(port, "address")));
		json_t *there = json_object_get(gid, "there");

		if (there)
			json_object_set(port, "address", there);
	}
	return ports;
}

static bool has_threads(pid_t pid)
{
	pid_t *tids;
	size_t n = proc_threads(pid, &tids);

	free(tids);
	return n > 1;
}

/*
 * rdma_get_request() hands each new id over to an event channel of its own. The kernel refuses that if the listener's file was
 * not opened by the program itself. Only the memory of the program tells whether it calls rdma_get_request().
 */
static void say_refuses(struct plan *plan, json_t *object, const char *why)
{
	plan_moves_but(plan, object, "process %d, descriptor %d, id %d of librdmacm: it listens, and %s: if its program takes "
		       "requests by rdma_get_request(), as rsockets do, it refuses clients after the move: start it "
		       "again there", (int)json_integer_value(json_object_get(object, "pid")),
		       (int)json_integer_value(json_object_get(object, "fd")),
		       (int)json_integer_value(json_object_get(object, "id")), why);
}

static void look_at_id(struct plan *plan, const struct proc_fd *fd, const struct rxe_migr_cm_id *id, struct again *again)
{
	bool connected = is_connected(id), has;
	const char *why = ibv_cm_id_refusal(id);
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];
	struct cm_qp qp;
	json_t *object;

	object = plan_object(plan, "cm_id", NULL, json_pack("{s:i, s:i, s:I, s:s, s:I}",
		"pid", fd->pid, "fd", fd->fd, "id", (json_int_t)id->id,
		"state", id->state <= RXE_MIGR_CM_STAND_IN ? states[id->state] : "unknown",
		"unread", (json_int_t)id->events_unread));
	json_object_set_new(object, "src", endpoint(id->src_addr, src));
	json_object_set_new(object, "dst", endpoint(id->dst_addr, dst));
	if (connected)
		json_object_set_new(object, "qp", json_integer(id->qp_num));
	json_array_append_new(plan->cm_ids, json_integer(id->id));
	add_source(&plan->contexts, id);
	has = !why && connected && has_qp(plan, again, id->device, id->qp_num, &qp);
	if (why)
		plan_stays(plan, object, "process %d, descriptor %d, id %u of librdmacm: %s", fd->pid, fd->fd, id->id, why);
	else if (connected && !has)
		plan_stays(plan, object, "process %d, descriptor %d, id %u of librdmacm: " WHY_QP_ELSEWHERE, fd->pid, fd->fd,
			   id->id, id->qp_num);
	else if (connected && moves_along(plan->addresses, src))
		plan_moves_but(plan, object, "process %d, descriptor %d, id %u of librdmacm: %s gets another MAC "
			       "address, so the kernel of its peer reports RDMA_CM_EVENT_UNREACHABLE", fd->pid, fd->fd,
			       id->id, src);
	else if (id->state == RXE_MIGR_CM_CONNECTED && qp.failed && !plan->own_netns)
		plan_moves_but(plan, object, "process %d, descriptor %d, id %u of librdmacm: its queue pair %u has failed, so its "
			       "peer is not told where it is: a disconnect afterwards may take two minutes: disconnect it before",
			       fd->pid, fd->fd, id->id, id->qp_num);
	else if (id->state == RXE_MIGR_CM_LISTENING && has_threads(fd->pid))
		say_refuses(plan, object, "its process has threads");
	/* The peer of a queue pair may have moved since the id was connected. */
	if (has)
		add_peer(plan, fd, id->id, ip_text(&qp.dgid, dst));
	else if (!why && (id->state == RXE_MIGR_CM_ADDR_RESOLVED || id->state == RXE_MIGR_CM_ROUTE_RESOLVED))
		add_peer(plan, fd, id->id, dst);
	if (!why && (id->state == RXE_MIGR_CM_BOUND || id->state == RXE_MIGR_CM_LISTENING))
		add_port(plan, fd, id);
	if (id->state == RXE_MIGR_CM_BUSY || id->flags & RXE_MIGR_CM_REQUESTED)
		plan->passing = true;
}

/* Note what is lost wherever the ids move to: see criu-plugin/README.md. */
static void say_limits(struct plan *plan, json_t *object, const struct proc_fd *fd, const struct rxe_migr_cm_id *ids,
		       int count)
{
	bool listens = false, connected = false;

	for (int i = 0; i < count; i++) {
		listens |= ids[i].state == RXE_MIGR_CM_LISTENING;
		connected |= is_connected(&ids[i]);
	}
	if (listens)
		plan_moves_but(plan, object, "process %d, descriptor %d, rdma_cm: a client that asks for a connection "
			       "during the move is refused", fd->pid, fd->fd);
	if (connected)
		plan_moves_but(plan, object, "process %d, descriptor %d, rdma_cm: if a peer ends during the move, "
			       "no RDMA_CM_EVENT_DISCONNECTED comes", fd->pid, fd->fd);
	if (has_threads(fd->pid))
		plan_moves_but(plan, object, "process %d, descriptor %d, rdma_cm: afterwards its ids can't be handed to "
			       "another event channel: rdma_migrate_id() and rdma_get_request() fail", fd->pid, fd->fd);
}

void plan_cm(struct plan *plan, const struct proc_fd *fd)
{
	json_t *object = plan_object(plan, "rdma_cm", NULL, json_pack("{s:i, s:i, s:o}", "pid", fd->pid, "fd", fd->fd,
								      "path", text_json(fd->link)));
	struct rxe_migr_cm_id *ids = NULL;
	int count = rdma_cm_ids(&plan->driver, fd->pid, fd->fd, &ids);
	pid_t outsider = find_outsider(&plan->tree, &plan->ends, fd);
	struct again again = { 0 };

	plan->rdma = plan->cm = true;
	if (outsider)
		plan_stays(plan, object, "process %d, descriptor %d, rdma_cm: " WHY_OUTSIDER, fd->pid, fd->fd, outsider,
			   "file open");
	if (count < 0)
		plan_stays(plan, object, "process %d, descriptor %d, rdma_cm: %s", fd->pid, fd->fd, fault_text());
	fault_clear();
	for (int i = 0; i < count; i++)
		look_at_id(plan, fd, &ids[i], &again);
	contexts_free(&again.now);
	say_limits(plan, object, fd, ids, count);
	free(ids);
}

/* The node GUID by which this file of librdmacm knows the device of a context, as in sysfs; "": unknown. */
static void known_guid(const struct context *c, pid_t pid, int fd, char text[NODE_GUID])
{
	struct ibv_context *ctx = context_attach(c);
	struct rxe_migr_cm_device known;
	int copy = proc_get_fd(pid, fd);

	text[0] = '\0';
	if (ctx && copy >= 0 && ibv_cm_device(ctx, copy, &known, NULL) == 0)
		for (int i = 0; i < 8; i += 2)
			sprintf(text + i / 2 * 5, "%02x%02x%s", known.guid[i], known.guid[i + 1], i < 6 ? ":" : "");
	if (ctx)
		ibv_detach_context(ctx);
	close_fd(&copy);
}

static bool is_object(const json_t *object, const char *key, const char *value)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text && !strcmp(text, value);
}

void plan_cm_there(struct plan *plan, const char *host, json_t *guids)
{
	char known[NODE_GUID];
	json_t *object;
	size_t i;

	json_array_foreach(plan->objects, i, object) {
		int pid = json_integer_value(json_object_get(object, "pid"));
		int fd = json_integer_value(json_object_get(object, "fd"));
		bool file = is_object(object, "object", "rdma_cm");

		/* An id that has a note is left out: its process has threads, and the note says so. */
		if (!file && !(is_object(object, "object", "cm_id") && is_object(object, "state", "listening") &&
			       !json_object_get(object, "note")))
			continue;
		for (size_t n = 0; n < plan->contexts.n; n++) {
			const struct context *c = &plan->contexts.context[n];
			const char *there = json_string_value(json_object_get(guids, c->device));

			known_guid(c, pid, fd, known);
			if (!there || !strcmp(there, known))
				continue;
			if (!file)
				say_refuses(plan, object, "its device has another node GUID there");
			else
				plan_moves_but(plan, object, "process %d, descriptor %d, rdma_cm: on %s the device %s has "
					       "another node GUID: event channels that are opened afterwards connect "
					       "nothing, and ids can't be handed to them", pid, fd, host, c->device);
			break;
		}
	}
}
