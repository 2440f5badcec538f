// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The fields of an RDMA object, as a plan lists them.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan_rdma.h"

static json_t *handle(__le32 value)
{
	return le32toh(value) == RXE_MIGR_NO_HANDLE ? json_null() : json_integer(le32toh(value));
}

json_t *hex_json(uint64_t value)
{
	char text[20];

	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)value);
	return json_string(text);
}

json_t *gid_json(const uint8_t raw[16])
{
	char text[INET6_ADDRSTRLEN];

	return json_string(inet_ntop(AF_INET6, raw, text, sizeof(text)));
}

void add_gid(json_t *array, const uint8_t raw[16])
{
	json_t *text;

	if (!memcmp(raw, &in6addr_any, 16))
		return;
	text = gid_json(raw);
	for (size_t i = 0; i < json_array_size(array); i++)
		if (json_equal(json_array_get(array, i), text)) {
			json_decref(text);
			return;
		}
	json_array_append_new(array, text);
}

/* "PID:FD,PID:FD" */
json_t *holders_json(const struct holders *h)
{
	char *text = xstrdup("");
	json_t *json;

	for (size_t i = 0; i < h->n; i++) {
		char *longer = xasprintf("%s%s%d:%d", text, i ? "," : "", h->holder[i].pid, h->holder[i].fd);

		free(text);
		text = longer;
	}
	json = json_string(text);
	free(text);
	return json;
}

json_t *mr_fields(const struct rxe_migr_rec_mr *mr)
{
	return json_pack("{s:I, s:I, s:o, s:o, s:I, s:o}", "handle", (json_int_t)le32toh(mr->hdr.handle),
			 "pd", (json_int_t)le32toh(mr->pd), "key", hex_json(le32toh(mr->key)),
			 "start", hex_json(le64toh(mr->start)), "length", (json_int_t)le64toh(mr->length),
			 "iova", hex_json(le64toh(mr->iova)));
}

json_t *mw_fields(const struct rxe_migr_rec_mw *mw)
{
	return json_pack("{s:I, s:I, s:o, s:i, s:o, s:o}", "handle", (json_int_t)le32toh(mw->hdr.handle),
			 "pd", (json_int_t)le32toh(mw->pd), "rkey", hex_json(le32toh(mw->rkey)),
			 "mw_type", mw->type, "mr", handle(mw->mr), "qp", handle(mw->qp));
}

json_t *cq_fields(const struct rxe_migr_rec_cq *cq)
{
	return json_pack("{s:I, s:I, s:o}", "handle", (json_int_t)le32toh(cq->hdr.handle),
			 "cqe", (json_int_t)le32toh(cq->cqe), "comp_channel", handle(cq->comp_channel));
}

json_t *srq_fields(const struct rxe_migr_rec_srq *srq)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "handle", (json_int_t)le32toh(srq->hdr.handle),
			 "srqn", (json_int_t)le32toh(srq->srq_num), "pd", (json_int_t)le32toh(srq->pd),
			 "max_wr", (json_int_t)le32toh(srq->max_wr), "limit", (json_int_t)le32toh(srq->limit));
}

json_t *qp_fields(const struct rxe_migr_rec_qp *qp)
{
	json_t *fields = json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:o}",
		"handle", (json_int_t)le32toh(qp->hdr.handle), "lqpn", (json_int_t)le32toh(qp->qpn),
		"type", rdma_qp_type(qp->qp_type), "state", rdma_qp_state(qp->qp_state),
		"pd", (json_int_t)le32toh(qp->pd), "send_cq", (json_int_t)le32toh(qp->send_cq),
		"recv_cq", (json_int_t)le32toh(qp->recv_cq), "srq", handle(qp->srq));

	if (qp->qp_type != IBV_QPT_UD && qp->qp_state >= IBV_QPS_RTR)
		json_object_update_new(fields, json_pack("{s:I, s:o, s:o}",
			"rqpn", (json_int_t)le32toh(qp->dest_qpn), "sgid", gid_json(qp->sgid), "dgid", gid_json(qp->dgid)));
	return fields;
}

json_t *ah_fields(const struct rxe_migr_rec_ah *ah)
{
	return json_pack("{s:I, s:I, s:I, s:o, s:o}", "handle", (json_int_t)le32toh(ah->hdr.handle),
			 "ahn", (json_int_t)le32toh(ah->ah_num), "pd", (json_int_t)le32toh(ah->pd),
			 "sgid", gid_json(ah->sgid), "dgid", gid_json(ah->dgid));
}
