// SPDX-License-Identifier: MIT
/* What stands in the way of a move: files of librdmacm and their ids. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "godwit.h"
#include "plan.h"
#include "rdma.h"

static const char *const states[] = {
	[RXE_MIGR_CM_IDLE] = "idle", [RXE_MIGR_CM_BOUND] = "bound", [RXE_MIGR_CM_LISTENING] = "listening",
	[RXE_MIGR_CM_ADDR_RESOLVED] = "addr_resolved", [RXE_MIGR_CM_ROUTE_RESOLVED] = "route_resolved",
	[RXE_MIGR_CM_CONNECTED] = "connected", [RXE_MIGR_CM_LEFT] = "left", [RXE_MIGR_CM_ENDED] = "ended",
	[RXE_MIGR_CM_BUSY] = "busy", [RXE_MIGR_CM_DATAGRAM] = "datagram", [RXE_MIGR_CM_FOREIGN] = "foreign",
	[RXE_MIGR_CM_STRAY] = "stray",
};

/* "10.77.0.1:7471", "[fe80::1]:7471" or NULL */
static json_t *endpoint(const uint8_t raw[48], char text[INET6_ADDRSTRLEN])
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		uint8_t raw[48];
	} a;

	memcpy(a.raw, raw, sizeof(a.raw));
	text[0] = '\0';
	if (a.sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &a.in.sin_addr, text, INET6_ADDRSTRLEN);
	else if (a.sa.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &a.in6.sin6_addr, text, INET6_ADDRSTRLEN);
	else
		return json_null();
	return json_sprintf(a.sa.sa_family == AF_INET ? "%s:%u" : "[%s]:%u", text, ntohs(a.in.sin_port));
}

static bool moves_along(const struct addresses *addresses, const char *text)
{
	for (size_t i = 0; i < addresses->n; i++)
		if (!strcmp(addresses->address[i].text, text))
			return true;
	return false;
}

static void look_at_id(struct plan *plan, const struct proc_fd *fd, const struct rxe_migr_cm_id *id)
{
	bool connected = id->state == RXE_MIGR_CM_CONNECTED || id->state == RXE_MIGR_CM_LEFT;
	const char *why = ibv_cm_id_refusal(id);
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];
	json_t *object;

	object = plan_object(plan, "cm_id", NULL, json_pack("{s:i, s:i, s:I, s:s}",
		"pid", fd->pid, "fd", fd->fd, "id", (json_int_t)id->id,
		"state", id->state <= RXE_MIGR_CM_STRAY ? states[id->state] : "unknown"));
	json_object_set_new(object, "src", endpoint(id->src_addr, src));
	json_object_set_new(object, "dst", endpoint(id->dst_addr, dst));
	if (connected)
		json_object_set_new(object, "qp", json_integer(id->qp_num));
	json_array_append_new(plan->cm_ids, json_integer(id->id));
	if (why)
		plan_stays(plan, object, "process %d, descriptor %d, id %u of librdmacm: %s", fd->pid, fd->fd, id->id, why);
	else if (connected && moves_along(plan->addresses, src))
		plan_moves_but(plan, object, "process %d, descriptor %d, id %u of librdmacm: %s gets another MAC "
			       "address, of which the kernel of its peer says RDMA_CM_EVENT_UNREACHABLE", fd->pid, fd->fd,
			       id->id, src);
	if (id->state == RXE_MIGR_CM_BUSY || id->flags & RXE_MIGR_CM_REQUESTED)
		plan->passing = true;
}

void plan_cm(struct plan *plan, const struct proc_fd *fd)
{
	json_t *object = plan_object(plan, "rdma_cm", NULL, json_pack("{s:i, s:i, s:s}", "pid", fd->pid, "fd", fd->fd,
								      "path", fd->link));
	struct rxe_migr_cm_id *ids = NULL;
	int count = rdma_cm_ids(fd->pid, fd->fd, &ids);

	plan->rdma = plan->cm = true;
	if (count < 0)
		plan_stays(plan, object, "process %d, descriptor %d, rdma_cm: %s", fd->pid, fd->fd, fault_text());
	fault_clear();
	for (int i = 0; i < count; i++)
		look_at_id(plan, fd, &ids[i]);
	free(ids);
}
