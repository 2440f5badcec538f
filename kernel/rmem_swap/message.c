// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Messages with a donor (rmem/wire.h): their memory, how they are posted, and what is taken from those that come. The donor is
 * not trusted: a message that does not fit ends the connection.
 */

#include <linux/overflow.h>

#include "rmem_swap.h"

#define MAX_GRACE_MS 60000

struct rs_recv {
	struct rs_donor *donor;
	struct ib_cqe cqe;
	struct rmem_msg *msg;
	u64 dma;
};

/* ------------------------------------------------------------------ memory */

void rs_messages_free(struct rs_donor *d, struct ib_device *ib)
{
	unsigned int i;

	for (i = 0; d->recvs && i < RS_RECVS; i++) {
		if (d->recvs[i].donor)
			ib_dma_unmap_single(ib, d->recvs[i].dma, RMEM_MSG_SIZE, DMA_FROM_DEVICE);
		kfree(d->recvs[i].msg);
	}
	kfree(d->recvs);
	d->recvs = NULL;
	if (d->out_dma)
		ib_dma_unmap_single(ib, d->out_dma, RMEM_MSG_SIZE, DMA_TO_DEVICE);
	d->out_dma = 0;
	kfree(d->out);
	kfree(d->in);
	d->out = d->in = NULL;
}

int rs_messages_make(struct rs_donor *d, struct ib_device *ib)
{
	struct rs_recv *recv;
	u64 dma;

	d->recvs = kcalloc(RS_RECVS, sizeof(*d->recvs), GFP_KERNEL);
	d->out = kzalloc(RMEM_MSG_SIZE, GFP_KERNEL);
	d->in = kzalloc(RMEM_MSG_SIZE, GFP_KERNEL);
	if (!d->recvs || !d->out || !d->in)
		return -ENOMEM;
	dma = ib_dma_map_single(ib, d->out, RMEM_MSG_SIZE, DMA_TO_DEVICE);
	if (ib_dma_mapping_error(ib, dma))
		return -ENOMEM;
	d->out_dma = dma;
	for (recv = d->recvs; recv < d->recvs + RS_RECVS; recv++) {
		recv->msg = kzalloc(RMEM_MSG_SIZE, GFP_KERNEL);
		if (!recv->msg)
			return -ENOMEM;
		recv->dma = ib_dma_map_single(ib, recv->msg, RMEM_MSG_SIZE, DMA_FROM_DEVICE);
		if (ib_dma_mapping_error(ib, recv->dma))
			return -ENOMEM;
		recv->donor = d;
	}
	return 0;
}

/* ------------------------------------------------------------------ receiving */

static void recv_done(struct ib_cq *cq, struct ib_wc *wc);

static int post_recv(struct rs_donor *d, struct rs_recv *recv)
{
	struct ib_sge sge = { .addr = recv->dma, .length = RMEM_MSG_SIZE, .lkey = d->pd->local_dma_lkey };
	struct ib_recv_wr wr = { .wr_cqe = &recv->cqe, .sg_list = &sge, .num_sge = 1 };

	recv->cqe.done = recv_done;
	ib_dma_sync_single_for_device(d->qp->device, recv->dma, RMEM_MSG_SIZE, DMA_FROM_DEVICE);
	return ib_post_recv(d->qp, &wr, NULL);
}

int rs_post_recvs(struct rs_donor *d)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < RS_RECVS && !ret; i++)
		ret = post_recv(d, &d->recvs[i]);
	return ret;
}

static const char *take_answer(struct rs_donor *d, struct rmem_msg *msg, u32 size)
{
	const char *wrong = NULL;
	unsigned long flags;

	spin_lock_irqsave(&d->lock, flags);
	if (!d->ask_type || le16_to_cpu(msg->type) != (d->ask_type | RMEM_ANSWER) || le64_to_cpu(msg->id) != d->ask_id) {
		wrong = "it answers what was not asked";
	} else if (msg->status && size != sizeof(*msg)) {
		wrong = "its refusal has a body";
	} else {
		d->ask_type = 0;
		memcpy(d->in, msg, size);
	}
	spin_unlock_irqrestore(&d->lock, flags);
	return wrong;
}

static const char *take_evict(struct rs_donor *d, struct rmem_msg *msg, u32 size)
{
	struct rmem_evict *evict = rs_body_of(msg);
	const char *wrong = NULL;
	u32 grace_ms;
	unsigned long flags;

	if (size != sizeof(*msg) + sizeof(*evict))
		return "its notice has a wrong length";
	grace_ms = min_t(u32, le32_to_cpu(evict->grace_ms), MAX_GRACE_MS);
	spin_lock_irqsave(&d->lock, flags);
	if (d->n_evicts == RS_NOTICES) {
		wrong = "it sends more notices than it may";
	} else {
		d->evicts[(d->first_evict + d->n_evicts) % RS_NOTICES] = (struct rs_named){
			.tag = le64_to_cpu(evict->tag), .addr = le64_to_cpu(evict->addr),
			.until = jiffies + msecs_to_jiffies(grace_ms) / 2,
		};
		WRITE_ONCE(d->n_evicts, d->n_evicts + 1);
	}
	spin_unlock_irqrestore(&d->lock, flags);
	return wrong;
}

/* A newer question makes the older one void. */
static const char *take_ask_heat(struct rs_donor *d, struct rmem_msg *msg, u32 size)
{
	struct rmem_ask_heat *ask = rs_body_of(msg);
	unsigned long flags;
	u32 count, i;

	if (size < sizeof(*msg) + sizeof(*ask))
		return "its question has a wrong length";
	count = le32_to_cpu(ask->count);
	if (count > RMEM_HEAT_MAX || size != sizeof(*msg) + struct_size(ask, tags, count))
		return "its question has a wrong length";
	spin_lock_irqsave(&d->lock, flags);
	d->heat_asked = true;
	d->heat_round = le32_to_cpu(ask->round);
	d->heat_count = count;
	for (i = 0; i < count; i++)
		d->heat_tags[i] = le64_to_cpu(ask->tags[i]);
	spin_unlock_irqrestore(&d->lock, flags);
	return NULL;
}

static const char *take_notice(struct rs_donor *d, struct rmem_msg *msg, u32 size)
{
	const char *wrong = "it sends an unknown notice";

	if (msg->id || msg->status)
		return "its notice has an id or a status";
	if (msg->type == cpu_to_le16(RMEM_EVICT))
		wrong = take_evict(d, msg, size);
	else if (msg->type == cpu_to_le16(RMEM_ASK_HEAT))
		wrong = take_ask_heat(d, msg, size);
	if (!wrong) {
		queue_work(d->wq, &d->notice_work);
		/* The workqueue may be waiting for the disk. */
		wake_up_all(&d->dev->wait);
	}
	return wrong;
}

static void completed_one(struct rs_donor *d)
{
	if (atomic_dec_and_test(&d->ask_left))
		complete(&d->asked);
}

/* The receive is posted again before ask() learns of the answer: the next request may follow at once. */
static void recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rs_recv *recv = container_of(wc->wr_cqe, struct rs_recv, cqe);
	struct rs_donor *d = recv->donor;
	struct rmem_msg *msg = recv->msg;
	const char *wrong = NULL;
	u32 size = wc->byte_len;
	bool answer;

	if (wc->status != IB_WC_SUCCESS) {
		rs_donor_fail(d, "RECV: %s", ib_wc_status_msg(wc->status));
		return;
	}
	ib_dma_sync_single_for_cpu(cq->device, recv->dma, RMEM_MSG_SIZE, DMA_FROM_DEVICE);
	if (size < sizeof(*msg) || size > RMEM_MSG_SIZE || le32_to_cpu(msg->size) != size || wc->opcode != IB_WC_RECV ||
	    wc->wc_flags & (IB_WC_WITH_IMM | IB_WC_WITH_INVALIDATE)) {
		rs_donor_fail(d, "its message is not as long as it says, or no plain SEND");
		return;
	}
	answer = le16_to_cpu(msg->type) & RMEM_ANSWER;
	wrong = answer ? take_answer(d, msg, size) : take_notice(d, msg, size);
	if (!wrong && post_recv(d, recv))
		wrong = "a receive can't be posted";
	if (wrong)
		rs_donor_fail(d, "%s", wrong);
	else if (answer)
		completed_one(d);
}

/* ------------------------------------------------------------------ sending */

static void sent_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rs_donor *d = container_of(wc->wr_cqe, struct rs_donor, out_cqe);

	if (wc->status != IB_WC_SUCCESS)
		rs_donor_fail(d, "SEND: %s", ib_wc_status_msg(wc->status));
	else
		completed_one(d);
}

int rs_post_message(struct rs_donor *d, u32 size)
{
	struct ib_sge sge = { .addr = d->out_dma, .length = size, .lkey = d->pd->local_dma_lkey };
	struct ib_send_wr wr = {
		.wr_cqe = &d->out_cqe, .sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED,
	};

	d->out_cqe.done = sent_done;
	ib_dma_sync_single_for_device(d->qp->device, d->out_dma, RMEM_MSG_SIZE, DMA_TO_DEVICE);
	return ib_post_send(d->qp, &wr, NULL);
}
