// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Whether a queue pair moves, and whether its peer finds it where it moves to.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include "plan_rdma.h"

/*
 * Do all GIDs of a device move along? (Link-local GIDs do not count: they are there always, and nobody knows whether anybody
 * uses them. Nothing is sent from GIDs of other namespaces.)
 */
static bool all_move(const char *device, const struct addresses *addresses)
{
	struct gid *gids;
	size_t i, n = rdma_gids(device, &gids);

	for (i = 0; i < n; i++)
		if (gids[i].rocev2 && gids[i].ifname[0] && !IN6_IS_ADDR_LINKLOCAL(&gids[i].gid) &&
		    !addresses_have(addresses, &gids[i].gid))
			break;
	free(gids);
	fault_clear();
	return n && i == n;
}

/*
 * Nobody tells those who send to a UD queue pair where it is: they find it only if its address moves along. Only the address
 * handles that it answers with tell which address that is. If there are none, each address of the device may be it.
 */
static bool answers_reach(const struct context *c, const struct addresses *addresses)
{
	const struct rxe_migr_rec_ah *ah;
	const struct rxe_migr_rec *rec;
	struct in6_addr sgid;
	bool answers = false;

	ibv_for_each_record(rec, c->dump, c->length) {
		if (le16toh(rec->type) != RXE_MIGR_REC_AH)
			continue;
		answers = true;
		ah = (const void *)rec;
		memcpy(&sgid, ah->sgid, sizeof(sgid));
		if (!addresses_have(addresses, &sgid))
			return false;
	}
	return answers || all_move(c->device, addresses);
}

/*
 * A container with a network namespace takes all of its addresses, and no device of another namespace (container_source.c). A
 * process that has a namespace of its own has nothing but lo there, and a device of its host's.
 */
static bool takes_all(const struct look *look)
{
	return look->plan->contained && look->plan->own_netns;
}

static bool goes_along(const struct look *look, const struct in6_addr *gid)
{
	return takes_all(look) || addresses_have(look->addresses, gid);
}

/* Do senders find the UD queue pairs of a context again? Found out once for all of them. */
static bool stays_reachable(struct look *look, const struct context *c)
{
	if (look->reached != c) {
		look->reached = c;
		look->reachable = takes_all(look) || answers_reach(c, look->addresses);
	}
	return look->reachable;
}

/* Is this QP connected to itself? Tombstones tell a peer apart by its address and number. */
static bool is_own_peer(const struct rxe_migr_rec_qp *qp)
{
	return qp->qpn == qp->dest_qpn && !memcmp(qp->sgid, qp->dgid, sizeof(qp->dgid));
}

bool qp_is_connected(const struct rxe_migr_rec_qp *qp)
{
	return (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC) &&
	       qp->qp_state >= IBV_QPS_RTR && qp->qp_state < IBV_QPS_ERR;
}

/* The same QP before its peer was asked; NULL: nobody has asked it. */
static const struct rxe_migr_rec_qp *when_asked(const struct look *look, const struct context *c,
						const struct rxe_migr_rec_qp *qp)
{
	for (size_t i = 0; i < look->asked->n; i++) {
		const struct context *a = &look->asked->context[i];
		const struct rxe_migr_rec_qp *was;

		if (a->pid != c->pid || a->fd != c->fd)
			continue;
		was = context_qp(a, le32toh(qp->qpn));
		if (was && was->dest_qpn == qp->dest_qpn && qp_is_connected(was))
			return was;
	}
	return NULL;
}

/*
 * A peer that never spoke our protocol. If it was asked, and said nothing, but has sent or acknowledged something
 * since, it lives.
 */
static void look_at_silent_peer(struct look *look, const struct context *c, const struct rxe_migr_rec_qp *qp,
				json_t *object)
{
	const struct rxe_migr_rec_qp *was = when_asked(look, c, qp);
	struct plan *plan = look->plan;
	char peer[INET6_ADDRSTRLEN], name[IBV_RECORD_NAME_LEN];
	struct in6_addr sgid;
	const char *has;

	ibv_record_name(&qp->hdr, name, sizeof(name));
	if (!was) {
		plan_moves_but(plan, object, "process %d, %s, %s: it is not known yet whether its peer speaks our "
			       "protocol", c->pid, c->device, name);
		return;
	}
	if (qp->resp_psn != was->resp_psn || (qp->qp_type == IBV_QPT_RC && qp->comp_psn != was->comp_psn)) {
		has = "has";
		add_gid(plan->stock_peers, qp->dgid);
	} else {
		has = "does not answer, or has";
	}
	inet_ntop(AF_INET6, qp->dgid, peer, sizeof(peer));
	memcpy(&sgid, qp->sgid, sizeof(sgid));
	if (!goes_along(look, &sgid)) {
		plan_stays(plan, object, "process %d, %s, %s: its peer, QP %u at %s, %s a driver without this "
			   "protocol, or another key or none, and would not find this one at another address: --address",
			   c->pid, c->device, name, le32toh(qp->dest_qpn), peer, has);
		return;
	}
	add_gid(plan->silent_peers, qp->dgid);
	plan_moves_but(plan, object, "process %d, %s, %s: its peer, QP %u at %s, %s a driver without this "
		       "protocol, or another key or none: it lives through the move if its own retries last longer",
		       c->pid, c->device, name, le32toh(qp->dest_qpn), peer, has);
}

void look_at_qp(struct look *look, const struct context *c, const struct rxe_migr_rec_qp *qp)
{
	struct plan *plan = look->plan;
	json_t *object = plan_object(plan, "qp", c, qp_fields(qp));
	const char *refusal = ibv_record_refusal(&qp->hdr);
	char name[IBV_RECORD_NAME_LEN];
	struct in6_addr sgid;

	ibv_record_name(&qp->hdr, name, sizeof(name));
	memcpy(&sgid, qp->sgid, sizeof(sgid));
	plan->qps++;
	if (qp->qp_type == IBV_QPT_UD) {
		if (qp->qp_state >= IBV_QPS_RTR && !stays_reachable(look, c))
			plan_moves_but(plan, object, "process %d, %s, %s: what others send to this UD queue pair "
				       "arrives only if the address that they send to moves along: --address",
				       c->pid, c->device, name);
	} else if (refusal) {
		plan_stays(plan, object, "process %d, %s, %s: %s", c->pid, c->device, name, refusal);
	} else if (qp_is_connected(qp) && is_own_peer(qp) && !goes_along(look, &sgid)) {
		plan_stays(plan, object, "process %d, %s, %s: it is connected to itself, and would not find itself at "
			   "another address: --address", c->pid, c->device, name);
	} else if (qp_is_connected(qp) && !(qp->flags & RXE_MIGR_QP_PEER_KNOWS)) {
		look_at_silent_peer(look, c, qp, object);
	}
}
