// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A donor fails: the reason is kept, all that wait for the donor are woken, and all that is posted to it is ended. Any file may
 * find that a donor fails. The donor's workqueue does the rest (lost_work in donor.c).
 */

#include "rmem_swap.h"

bool rs_donor_is_up(struct rs_donor *d)
{
	return READ_ONCE(d->state) == RMEM_SWAP_UP && !test_bit(RS_FAILED, &d->flags);
}

/* Only the first call counts, with its reason. From any context */
void rs_donor_fail(struct rs_donor *d, const char *format, ...)
{
	unsigned long flags;
	bool first;
	va_list ap;

	spin_lock_irqsave(&d->lock, flags);
	first = !test_bit(RS_FAILED, &d->flags);
	if (first) {
		va_start(ap, format);
		vsnprintf(d->reason, sizeof(d->reason), format, ap);
		va_end(ap);
		set_bit(RS_FAILED, &d->flags);
	}
	spin_unlock_irqrestore(&d->lock, flags);
	if (!first)
		return;
	/* ask() in talk.c waits for this, and then looks for RS_FAILED. */
	complete(&d->asked);
	wake_up_all(&d->dev->wait);
	/* queue_work() orders RS_FAILED before what lost_work reads of the verbs objects. */
	queue_work(d->wq, &d->lost_work);
}

/* @reason is empty if the donor has not failed. */
void rs_donor_reason(struct rs_donor *d, char reason[RS_REASON])
{
	unsigned long flags;

	spin_lock_irqsave(&d->lock, flags);
	strscpy(reason, d->reason, RS_REASON);
	spin_unlock_irqrestore(&d->lock, flags);
}

/* Completes all that is posted. From the donor's workqueue, once the donor has failed, or if nothing is posted any more */
void rs_verbs_drain(struct rs_donor *d)
{
	if (!d->ibdev || d->drained)
		return;
	ib_drain_qp(d->qp);
	d->drained = true;
}
