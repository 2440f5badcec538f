// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A context stops, is dumped, and goes on, with all its queue pairs. */

#include "rxe_migr_loc.h"

void rxe_migr_set_ctx_state(struct rxe_ucontext *uc, u32 state)
{
	spin_lock(&uc->migr.lock);
	WRITE_ONCE(uc->migr.state, state);
	spin_unlock(&uc->migr.lock);
}

/*
 * Let every stopped QP of the context go on. All peers are called before the tasks of
 * the first QP run: they may have much to do, and the last peer would wait for that.
 */
void rxe_migr_go_ctx(struct rxe_ucontext *uc)
{
	unsigned long index;
	struct rxe_qp *qp;

	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_go_qp(qp);
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_release_qp(qp);
}

/*
 * How long to wait for packets on their way to UC QPs. In that time STOP is repeated at
 * most seven times. A peer with another driver never answers.
 */
#define RXE_MIGR_ARRIVAL HZ

/*
 * All QPs are marked as stopped before the first one is waited for, so that the whole
 * context stops at one time. Peers of UC QPs must come to rest before the dump, so they
 * are told now; the other peers are told once the dump is complete.
 */
static void rxe_migr_stop_ctx(struct rxe_ucontext *uc)
{
	unsigned long index, end;
	struct rxe_qp *qp;

	WRITE_ONCE(uc->migr.stop_ns, ktime_get_ns());
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_stop_qp(qp);
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_hush_qp(qp);
	end = jiffies + RXE_MIGR_ARRIVAL;
	rxe_migr_for_each_qp(qp, index, uc)
		while (!rxe_migr_arrived(qp) && time_before(jiffies, end))
			usleep_range(200, 400);
	rxe_migr_for_each_qp(qp, index, uc)
		rxe_migr_drain_qp(qp);
}

/* Room for events that come between the call that asks for the size and the dump */
#define RXE_MIGR_SLACK (16 * sizeof(struct rxe_migr_rec_event))

int rxe_migr_dump_ctx(struct ib_uverbs_file *ufile, struct rxe_ucontext *uc,
		      bool stop, struct rxe_migr_sink *sink, bool *did_stop)
{
	bool stopped = uc->migr.state == RXE_MIGR_CTX_STOPPED;
	struct rxe_migr_sink count = { .all = sink->all };
	unsigned long index;
	struct rxe_qp *qp;
	int err;

	if (stop && uc->migr.state == RXE_MIGR_CTX_RESTORING)
		return -EBUSY;

	rxe_migr_dump_ufile(ufile, uc, &count);
	sink->length = count.length + RXE_MIGR_SLACK;
	sink->count = count.count;
	if (sink->length > sink->size)
		return -ENOSPC;

	/* allocate no more than is needed; an SRQ may grow meanwhile */
	sink->size = min(sink->size, 2 * count.length + SZ_64K);
	sink->buf = kvmalloc(sink->size, GFP_KERNEL_ACCOUNT);
	if (!sink->buf)
		return -ENOMEM;

	/* the key may have been cleared while the caller waited for the lock */
	if (stop && !stopped && !rxe_migr_speaks())
		return -ENOKEY;

	/* from now on modify verbs find the context stopped */
	if (stop && !stopped) {
		rxe_migr_set_ctx_state(uc, RXE_MIGR_CTX_STOPPED);
		rxe_migr_stop_ctx(uc);
		*did_stop = true;
	}
	/* from now on no ABORT that belongs to an earlier dump is taken */
	if (stop)
		uc->migr.dump_ns = ktime_get_ns();

	sink->length = 0;
	sink->count = 0;
	err = rxe_migr_dump_ufile(ufile, uc, sink);

	if (*did_stop && !err)
		rxe_migr_for_each_qp(qp, index, uc)
			if (qp_type(qp) != IB_QPT_UC)
				rxe_migr_announce_stop(qp);

	return err;
}

/*
 * Undo a stop, if the context is stopped. Its peers may have heard of it, and are called.
 * If since is not 0, the context must not have been dumped again since that time.
 */
int rxe_migr_unstop_ctx(struct rxe_ucontext *uc, u64 since)
{
	int err = 0;

	spin_lock(&uc->migr.lock);
	if (uc->migr.state != RXE_MIGR_CTX_STOPPED)
		err = -EINVAL;
	else if (since && uc->migr.dump_ns >= since)
		err = -ESTALE;
	else
		WRITE_ONCE(uc->migr.state, RXE_MIGR_CTX_RESUMING);
	spin_unlock(&uc->migr.lock);
	if (err)
		return err;

	rxe_migr_go_ctx(uc);

	return 0;
}
