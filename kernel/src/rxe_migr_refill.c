// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Refill a context: the walk over the records of a dump. Verbs have created the
 * objects, and this restores what verbs can't. The records may come from anybody:
 * nothing in them is trusted.
 */

#include "rxe_migr_loc.h"

/*
 * Packets of a larger path MTU than the port takes are lost, and the QP sends them for
 * ever. If the source's port did not take more, none was ever sent.
 */
static int rxe_migr_refill_context(struct ib_uverbs_file *ufile,
				   const struct rxe_migr_rec *hdr,
				   size_t length)
{
	const struct rxe_migr_rec_context *rec = (const void *)hdr;
	struct rxe_ucontext *uc = to_ruc(ufile->ucontext);
	struct rxe_dev *rxe = to_rdev(uc->ibuc.device);
	unsigned long index;
	struct rxe_qp *qp;
	enum ib_mtu most;
	int err = 0;

	most = READ_ONCE(rxe->port.attr.active_mtu);
	/* an old dump does not say what the source's port took */
	if (length < sizeof(*rec) || rec->active_mtu <= most)
		return 0;

	rxe_migr_for_each_qp(qp, index, uc) {
		spin_lock_irq(&qp->state_lock);
		if (rxe_migr_connected(qp) && qp->attr.path_mtu > most)
			err = -EMSGSIZE;
		spin_unlock_irq(&qp->state_lock);
	}

	return err;
}

static int rxe_migr_refill_ring(struct ib_uverbs_file *ufile,
				const struct rxe_migr_rec *hdr, size_t length)
{
	const struct rxe_migr_rec_ring *rec = (const void *)hdr;

	if (length < sizeof(*rec))
		return -EINVAL;

	switch (le32_to_cpu(rec->which)) {
	case RXE_MIGR_RING_CQ:
		return rxe_migr_refill_cq_ring(ufile, rec, length);
	case RXE_MIGR_RING_SQ:
	case RXE_MIGR_RING_RQ:
		return rxe_migr_refill_qp_ring(ufile, rec, length);
	case RXE_MIGR_RING_SRQ:
		return rxe_migr_refill_srq_ring(ufile, rec, length);
	}

	return -EINVAL;
}

/*
 * In which pass each record is applied. Rings come before QPs, since the receive that a
 * QP has in hand lies in its ring.
 */
static const struct {
	u16 type;
	u8 pass;
	int (*refill)(struct ib_uverbs_file *ufile,
		      const struct rxe_migr_rec *hdr, size_t length);
} rxe_migr_refills[] = {
	{ RXE_MIGR_REC_CONTEXT,		0, rxe_migr_refill_context },
	{ RXE_MIGR_REC_RING,		0, rxe_migr_refill_ring },
	{ RXE_MIGR_REC_CQ,		0, rxe_migr_refill_cq },
	{ RXE_MIGR_REC_SRQ,		0, rxe_migr_refill_srq },
	{ RXE_MIGR_REC_AH,		0, rxe_migr_refill_ah },
	{ RXE_MIGR_REC_RECV_WQE,	0, rxe_migr_refill_recv_wqe },
	{ RXE_MIGR_REC_QP,		1, rxe_migr_refill_qp },
	{ RXE_MIGR_REC_RESP_RES,	1, rxe_migr_refill_res },
	{ RXE_MIGR_REC_MW,		1, rxe_migr_refill_mw },
	{ RXE_MIGR_REC_EVENT,		2, rxe_migr_refill_event },
	/* verbs have done all that there is to do */
	{ RXE_MIGR_REC_ASYNC_FILE,	3, NULL },
	{ RXE_MIGR_REC_COMP_CHANNEL,	3, NULL },
	{ RXE_MIGR_REC_PD,		3, NULL },
	{ RXE_MIGR_REC_MR,		3, NULL },
	{ RXE_MIGR_REC_MCAST,		3, NULL },
};

#define RXE_MIGR_REFILL_PASSES 3

static int rxe_migr_refill_one(struct ib_uverbs_file *ufile,
			       const struct rxe_migr_rec *hdr, u8 pass)
{
	u16 type = le16_to_cpu(hdr->type);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rxe_migr_refills); i++) {
		if (rxe_migr_refills[i].type != type)
			continue;
		if (rxe_migr_refills[i].pass != pass)
			return 0;
		return rxe_migr_refills[i].refill(ufile, hdr,
						  le32_to_cpu(hdr->length));
	}

	return le16_to_cpu(hdr->flags) & RXE_MIGR_REC_MANDATORY ?
		-EOPNOTSUPP : 0;
}

int rxe_migr_refill_ufile(struct ib_uverbs_file *ufile, const void *buf,
			  size_t length)
{
	const struct rxe_migr_rec *hdr;
	size_t pos, rec_length;
	u8 pass;
	int err;

	lockdep_assert_held_write(&ufile->hw_destroy_rwsem);

	for (pass = 0; pass < RXE_MIGR_REFILL_PASSES; pass++) {
		for (pos = 0; pos < length; pos += rec_length) {
			hdr = buf + pos;
			if (length - pos < sizeof(*hdr))
				return -EINVAL;
			rec_length = le32_to_cpu(hdr->length);
			if (rec_length < sizeof(*hdr) ||
			    rec_length > length - pos)
				return -EINVAL;
			err = rxe_migr_refill_one(ufile, hdr, pass);
			if (err)
				return err;
			cond_resched();
		}
	}

	return 0;
}
