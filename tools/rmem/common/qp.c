// SPDX-License-Identifier: MIT
/* The way of a queue pair to RTS, towards a peer that has described itself in a message. */
#include <errno.h>
#include <string.h>
#include "common.h"

#define MAX_24 0xffffffu
#define RD_ATOMIC 16
/*
 * The peer has 268 ms for an answer, and there are 6 retries: so the connection of a peer that is gone ends after 2 seconds.
 * (For rxe, 7 retries would mean endless ones.) RNR has no limit on retries, since a peer that has no receive posted is alive.
 */
#define ACK_TIMEOUT 16
#define RETRIES 6
#define RNR_FOR_EVER 7
#define RNR_TIMER 12 /* 0.64 ms */

void rmem_qp_describe(const struct rmem_port *port, const struct ibv_qp *qp, struct rmem_qp *mine)
{
	uint32_t psn;

	rmem_random(&psn, sizeof(psn));
	memset(mine, 0, sizeof(*mine));
	memcpy(mine->gid, port->gid.raw, sizeof(mine->gid));
	mine->qpn = htole32(qp->qp_num);
	mine->psn = htole32(psn & MAX_24);
	mine->mtu = htole32(port->mtu);
}

static bool sane(const struct rmem_qp *theirs)
{
	static const uint8_t none[16];
	uint32_t mtu = le32toh(theirs->mtu), qpn = le32toh(theirs->qpn);

	/* QPNs 0 and 1 are those of management; 0xffffff is multicast */
	return qpn > 1 && qpn < MAX_24 && le32toh(theirs->psn) <= MAX_24 && mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 &&
	       !theirs->reserved && memcmp(theirs->gid, none, sizeof(none)) && theirs->gid[0] != 0xff;
}

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

static int to_init(const struct rmem_port *port, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = port->num,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(const struct rmem_port *port, struct ibv_qp *qp, const struct rmem_qp *theirs, int depth)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = smaller(port->mtu, le32toh(theirs->mtu)),
		.dest_qp_num = le32toh(theirs->qpn), .rq_psn = le32toh(theirs->psn), .max_dest_rd_atomic = depth,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {
			.is_global = 1, .port_num = port->num,
			.grh = { .sgid_index = port->gid_index, .hop_limit = 64 },
		},
	};

	memcpy(attr.ah_attr.grh.dgid.raw, theirs->gid, sizeof(theirs->gid));
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ibv_qp *qp, const struct rmem_qp *mine, int depth)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .sq_psn = le32toh(mine->psn), .timeout = ACK_TIMEOUT, .retry_cnt = RETRIES,
		.rnr_retry = RNR_FOR_EVER, .max_rd_atomic = depth,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_MAX_QP_RD_ATOMIC);
}

int rmem_qp_connect(const struct rmem_port *port, struct ibv_qp *qp, const struct rmem_qp *mine, const struct rmem_qp *theirs)
{
	struct ibv_device_attr device;
	int ret;

	if (!sane(theirs))
		return -EPROTO;
	ret = ibv_query_device(port->context, &device);
	if (!ret)
		ret = to_init(port, qp);
	if (!ret)
		ret = to_rtr(port, qp, theirs, smaller(device.max_qp_rd_atom, RD_ATOMIC));
	if (!ret)
		ret = to_rts(qp, mine, smaller(device.max_qp_init_rd_atom, RD_ATOMIC));
	return ret > 0 ? -ret : ret;
}
