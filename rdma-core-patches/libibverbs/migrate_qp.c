// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Restores a queue pair: creates it as it was created, then leads it through
 * the states to the state where it was. REFILL sets afterwards what verbs can't
 * set.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "migrate_cmd.h"

int migr_create_qp(struct ibv_context *ctx, const void *record,
		   const struct ibv_restore_args *args,
		   struct ibv_restored *restored)
{
	const struct rxe_migr_rec_qp *rec = record;
	struct ib_uverbs_qp_cap cap = {
		.max_send_wr = migr_ring_request(le32toh(rec->max_send_wr)),
		.max_recv_wr = migr_ring_request(le32toh(rec->max_recv_wr)),
		.max_send_sge = le16toh(rec->max_send_sge),
		.max_recv_sge = le16toh(rec->max_recv_sge),
		.max_inline_data = le32toh(rec->max_inline),
	};
	struct rxe_create_qp_resp uhw = {};
	struct ib_uverbs_qp_cap got;
	struct migr_cmd cmd;
	uint32_t qpn;
	int ret;

	ret = migr_hint(ctx, (struct rxe_migr_hint){
		.type = RXE_MIGR_HINT_QP,
		.index = le32toh(rec->qpn),
	});
	if (ret)
		return ret;
	migr_start(&cmd, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
	migr_object(&cmd, UVERBS_ATTR_CREATE_QP_HANDLE, 0);
	migr_object(&cmd, UVERBS_ATTR_CREATE_QP_PD_HANDLE, le32toh(rec->pd));
	migr_object(&cmd, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
		    le32toh(rec->send_cq));
	migr_object(&cmd, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE,
		    le32toh(rec->recv_cq));
	if (le32toh(rec->srq) != RXE_MIGR_NO_HANDLE)
		migr_object(&cmd, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE,
			    le32toh(rec->srq));
	migr_in64(&cmd, UVERBS_ATTR_CREATE_QP_USER_HANDLE,
		  le64toh(rec->user_handle));
	migr_in(&cmd, UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof(cap));
	migr_in64(&cmd, UVERBS_ATTR_CREATE_QP_TYPE, rec->qp_type);
	if (rec->sq_sig_all)
		migr_in64(&cmd, UVERBS_ATTR_CREATE_QP_FLAGS,
			  IB_UVERBS_QP_CREATE_SQ_SIG_ALL);
	if (args->async_fd >= 0)
		migr_object(&cmd, UVERBS_ATTR_CREATE_QP_EVENT_FD,
			    args->async_fd);
	migr_out(&cmd, UVERBS_ATTR_CREATE_QP_RESP_CAP, &got, sizeof(got));
	migr_out(&cmd, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qpn, sizeof(qpn));
	migr_out(&cmd, UVERBS_ATTR_UHW_OUT, &uhw, sizeof(uhw));
	ret = migr_run(ctx, &cmd);

	restored->handle = migr_new_object(&cmd);
	restored->offset[0] = uhw.sq_mi.offset;
	restored->size[0] = uhw.sq_mi.size;
	restored->offset[1] = uhw.rq_mi.offset;
	restored->size[1] = uhw.rq_mi.size;
	return ret;
}

/* ---------------------------------------------------------------- states -- */

/*
 * The attributes that the transition to a state takes, for RC, UC and UD. The
 * kernel refuses attributes that the specification's table does not name for a
 * type.
 */
static const struct {
	uint8_t  state;
	uint32_t rc, uc, ud;
} steps[] = {
	{ IBV_QPS_INIT,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
	{ IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	  0 },
	{ IBV_QPS_RTS,
	  IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
	  IBV_QP_SQ_PSN,
	  IBV_QP_SQ_PSN },
	{ IBV_QPS_SQD,
	  IBV_QP_EN_SQD_ASYNC_NOTIFY,
	  IBV_QP_EN_SQD_ASYNC_NOTIFY,
	  IBV_QP_EN_SQD_ASYNC_NOTIFY },
};

static int modify(const struct ibv_context *ctx,
		  const struct ib_uverbs_modify_qp *attrs, uint8_t state,
		  uint32_t mask)
{
	struct ib_uverbs_modify_qp req = *attrs;

	req.qp_state = state;
	req.attr_mask = mask | IBV_QP_STATE;
	return migr_write(ctx, IB_USER_VERBS_CMD_MODIFY_QP,
			  (struct migr_data){ &req, sizeof(req) },
			  (struct migr_data){}, (struct migr_data){});
}

static void fill_attrs(struct ib_uverbs_modify_qp *req,
		       const struct rxe_migr_rec_qp *rec, uint32_t handle)
{
	*req = (struct ib_uverbs_modify_qp){
		.qp_handle = handle,
		.qkey = le32toh(rec->qkey),
		.rq_psn = le32toh(rec->rq_psn),
		/* (if the QP had none, REFILL takes this one back) */
		.sq_psn = le32toh(rec->sq_psn) & 0xffffff,
		.dest_qp_num = le32toh(rec->dest_qpn),
		.qp_access_flags = le32toh(rec->access_flags),
		.pkey_index = le16toh(rec->pkey_index),
		.path_mtu = rec->path_mtu,
		.en_sqd_async_notify = rec->en_sqd_async_notify,
		.max_rd_atomic = rec->max_rd_atomic,
		.max_dest_rd_atomic = rec->max_dest_rd_atomic,
		.min_rnr_timer = rec->min_rnr_timer,
		.port_num = rec->port_num,
		.timeout = rec->timeout,
		.retry_cnt = rec->retry_cnt,
		.rnr_retry = rec->rnr_retry,
		.dest = {
			.is_global = 1,
			.port_num = rec->port_num,
			.flow_label = le32toh(rec->flow_label),
			.hop_limit = rec->hop_limit,
			.traffic_class = rec->traffic_class,
		},
	};
}

/*
 * The last of steps[] to take. A queue pair in error is led to RTS if it had or
 * may have got that far, so that its attributes can be queried; else to INIT.
 */
static int last_state(const struct rxe_migr_rec_qp *rec)
{
	static const uint8_t no_path[sizeof(rec->dgid)];

	if (rec->qp_state != IBV_QPS_ERR)
		return rec->qp_state;
	if (rec->qp_type == IBV_QPT_UD ||
	    memcmp(rec->dgid, no_path, sizeof(no_path)))
		return IBV_QPS_RTS;
	return IBV_QPS_INIT;
}

/*
 * To set a path the kernel looks for the peer on the wire, and the peer may be
 * gone, or away for a moment. So the path leads to this host, which is found at
 * once, and REFILL puts the recorded peer back.
 */
static int find_path(const struct ibv_context *ctx,
		     const struct rxe_migr_rec_qp *rec,
		     const struct ibv_restore_args *args,
		     struct ib_uverbs_qp_dest *dest)
{
	memcpy(dest->dgid, migr_choose_gid(&args->sgid, rec->sgid),
	       sizeof(dest->dgid));
	return migr_find_gid(ctx, rec->port_num, &args->sgid, rec->sgid,
			     &dest->sgid_index);
}

int migr_modify_qp(struct ibv_context *ctx, const void *record,
		   const struct ibv_restore_args *args,
		   struct ibv_restored *restored)
{
	const struct rxe_migr_rec_qp *rec = record;
	struct ib_uverbs_modify_qp attrs;
	int last = last_state(rec), ret;
	uint32_t mask;
	size_t i;

	if (last > IBV_QPS_SQD)
		return EINVAL;
	fill_attrs(&attrs, rec, restored->handle);
	for (i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (steps[i].state > last)
			break;
		mask = rec->qp_type == IBV_QPT_RC ? steps[i].rc :
		       rec->qp_type == IBV_QPT_UC ? steps[i].uc : steps[i].ud;
		if (mask & IBV_QP_AV) {
			ret = find_path(ctx, rec, args, &attrs.dest);
			if (ret)
				return ret;
		}
		ret = modify(ctx, &attrs, steps[i].state, mask);
		if (ret)
			return ret;
	}
	return rec->qp_state == IBV_QPS_ERR ?
	       modify(ctx, &attrs, IBV_QPS_ERR, 0) : 0;
}
