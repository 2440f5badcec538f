// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Responder resources of a queue pair: the READs, ATOMICs and FLUSHes that it may
 * have to answer again.
 */

#include "rxe_migr_loc.h"

u8 rxe_migr_res_type(int type)
{
	switch (type) {
	case RXE_READ_MASK:
		return RXE_MIGR_RES_READ;
	case RXE_ATOMIC_MASK:
		return RXE_MIGR_RES_ATOMIC;
	case RXE_ATOMIC_WRITE_MASK:
		return RXE_MIGR_RES_ATOMIC_WRITE;
	case RXE_FLUSH_MASK:
		return RXE_MIGR_RES_FLUSH;
	}

	return 0;
}

static int rxe_migr_res_mask(u8 type)
{
	switch (type) {
	case RXE_MIGR_RES_READ:
		return RXE_READ_MASK;
	case RXE_MIGR_RES_ATOMIC:
		return RXE_ATOMIC_MASK;
	case RXE_MIGR_RES_ATOMIC_WRITE:
		return RXE_ATOMIC_WRITE_MASK;
	case RXE_MIGR_RES_FLUSH:
		return RXE_FLUSH_MASK;
	}

	return 0;
}

/* The caller has read type once, since res->type of a running QP changes. */
void rxe_migr_dump_res(const struct resp_res *res, u8 type, u32 handle,
		       u16 index, struct rxe_migr_sink *sink)
{
	struct rxe_migr_rec_resp_res *rec;

	rec = rxe_migr_put(sink, RXE_MIGR_REC_RESP_RES, handle, sizeof(*rec));
	if (!rec)
		return;

	rec->index = cpu_to_le16(index);
	rec->type = type;
	rec->replay = res->replay;
	rec->state = res->state;
	rec->first_psn = cpu_to_le32(res->first_psn);
	rec->last_psn = cpu_to_le32(res->last_psn);
	rec->cur_psn = cpu_to_le32(res->cur_psn);
	switch (type) {
	case RXE_MIGR_RES_READ:
		rec->rkey = cpu_to_le32(res->read.rkey);
		rec->length = cpu_to_le32(res->read.length);
		rec->resid = cpu_to_le32(res->read.resid);
		rec->va = cpu_to_le64(res->read.va);
		rec->va_org = cpu_to_le64(res->read.va_org);
		break;
	case RXE_MIGR_RES_ATOMIC:
		rec->va_org = cpu_to_le64(res->atomic.orig_val);
		break;
	case RXE_MIGR_RES_FLUSH:
		rec->flush_type = res->flush.type;
		rec->flush_level = res->flush.level;
		rec->length = cpu_to_le32(res->flush.length);
		rec->va = cpu_to_le64(res->flush.va);
		break;
	}
}

int rxe_migr_refill_res(struct ib_uverbs_file *ufile,
			const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_resp_res *rec = (const void *)hdr;
	struct rxe_qp *qp = rxe_migr_uqp(ufile, hdr);
	struct resp_res *res;
	u16 index;
	int type;

	if (length < sizeof(*rec) || !qp)
		return -EINVAL;

	index = le16_to_cpu(rec->index);
	type = rxe_migr_res_mask(rec->type);

	mutex_lock(&qp->migr.mutex);
	if (!qp->resp.resources || index >= qp->attr.max_dest_rd_atomic ||
	    !type || rec->state > rdatm_res_state_replay) {
		mutex_unlock(&qp->migr.mutex);
		return -EINVAL;
	}

	res = &qp->resp.resources[index];
	memset(res, 0, sizeof(*res));
	res->type = type;
	res->replay = !!rec->replay;
	res->state = rec->state;
	res->first_psn = le32_to_cpu(rec->first_psn) & BTH_PSN_MASK;
	res->last_psn = le32_to_cpu(rec->last_psn) & BTH_PSN_MASK;
	res->cur_psn = le32_to_cpu(rec->cur_psn) & BTH_PSN_MASK;
	switch (type) {
	case RXE_READ_MASK:
		/* each replay looks up the MR and checks the range */
		res->read.rkey = le32_to_cpu(rec->rkey);
		res->read.length = le32_to_cpu(rec->length);
		res->read.resid = le32_to_cpu(rec->resid);
		res->read.va = le64_to_cpu(rec->va);
		res->read.va_org = le64_to_cpu(rec->va_org);
		break;
	case RXE_ATOMIC_MASK:
		res->atomic.orig_val = le64_to_cpu(rec->va_org);
		break;
	case RXE_FLUSH_MASK:
		res->flush.type = rec->flush_type;
		res->flush.level = rec->flush_level;
		res->flush.length = le32_to_cpu(rec->length);
		res->flush.va = le64_to_cpu(rec->va);
		break;
	}
	mutex_unlock(&qp->migr.mutex);

	return 0;
}
