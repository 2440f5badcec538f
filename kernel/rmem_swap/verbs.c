// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * RDMA devices, and the verbs objects of each donor.
 *
 * The queue pair has the times of librmem. It waits 268 ms for an answer, 7 times, so that it fails some 2 seconds after a donor
 * falls silent. It takes at most 6 RNR NAKs in a row. A donor in order sends none: it has a receive for each message that we send,
 * and a donor that is stopped, because it moves, sends none either. Without this limit a broken donor would hold its I/O for ever.
 * The send queue has room for all that can be posted at once: RS_DEPTH requests, a message, and a drain.
 */

#include <linux/in6.h>
#include <linux/netlink.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "rmem_swap.h"

#define ACK_TIMEOUT 16
#define RETRIES 6
#define RNR_RETRIES 6
#define RNR_TIMER 12
#define RD_ATOMIC 16
#define HOPS 64
#define SENDS (RS_DEPTH + 4)
#define MAX_24 0xffffff

struct rs_ibdev {
	struct list_head list;
	struct ib_device *ib;
	struct list_head donors;	/* rs_donor.on_ibdev */
	wait_queue_head_t none;
};

static DEFINE_MUTEX(rs_ib_lock);
static LIST_HEAD(rs_ibdevs);

/* ------------------------------------------------------------------ page I/O */

/* Returns the request to post next, or NULL. */
static struct rs_io *io_done(struct rs_io *io, bool ok)
{
	struct rs_donor *d = io->donor;

	if (io->saves) {
		rs_save_ended(io, ok);
		return NULL;
	}
	if (!ok)
		rs_count_both(d, RS_REQUEUED);
	if (io->buf) {
		if (ok)
			rs_count_both(d, RS_OUT_REMOTE);
		return rs_page_written(io, ok);
	}
	if (ok)
		rs_count_both(d, RS_IN_REMOTE);
	rs_slab_put(io);
	if (ok)
		rs_io_end(io, BLK_STS_OK);
	else
		rs_io_again(io);
	return NULL;
}

static void io_completed(struct ib_cq *cq, struct ib_wc *wc)
{
	struct rs_io *io = container_of(wc->wr_cqe, struct rs_io, cqe);
	bool ok = wc->status == IB_WC_SUCCESS;

	ib_dma_unmap_page(cq->device, io->dma, RMEM_PAGE, io->buf ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
	if (!ok)
		rs_donor_fail(io->donor, "%s: %s", io->buf ? "WRITE" : "READ", ib_wc_status_msg(wc->status));
	rs_post_all(io_done(io, ok));
}

static bool map_memory(struct rs_io *io)
{
	struct ib_device *ib = io->donor->qp->device;

	if (io->buf)
		io->dma = ib_dma_map_page(ib, io->buf->data, 0, RMEM_PAGE, DMA_TO_DEVICE);
	else
		io->dma = ib_dma_map_page(ib, io->bvec.bv_page, io->bvec.bv_offset, RMEM_PAGE, DMA_FROM_DEVICE);
	return !ib_dma_mapping_error(ib, io->dma);
}

static bool post(struct rs_io *io)
{
	struct rs_donor *d = io->donor;
	u64 offset = (io->index & ((1ULL << io->dev->slab_shift) - 1)) * RMEM_PAGE;
	struct ib_sge sge = { .length = RMEM_PAGE, .lkey = d->pd->local_dma_lkey };
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = &io->cqe, .sg_list = &sge, .num_sge = 1, .send_flags = IB_SEND_SIGNALED,
			.opcode = io->buf ? IB_WR_RDMA_WRITE : IB_WR_RDMA_READ,
		},
		.remote_addr = io->slab->addr + offset, .rkey = io->slab->rkey,
	};
	int ret;

	if (!map_memory(io)) {
		rs_donor_fail(d, "the RDMA device can't map a page");
		return false;
	}
	sge.addr = io->dma;
	io->cqe.done = io_completed;
	/* As soon as @io is posted it may end. Then this lock alone keeps rs_verbs_destroy() from destroying the queue pair. */
	rcu_read_lock();
	ret = ib_post_send(d->qp, &wr.wr, NULL);
	rcu_read_unlock();
	if (!ret)
		return true;
	ib_dma_unmap_page(d->qp->device, io->dma, RMEM_PAGE, io->buf ? DMA_TO_DEVICE : DMA_FROM_DEVICE);
	rs_donor_fail(d, "the queue pair does not take a request: %d", ret);
	return false;
}

/*
 * Posts @io, which has a reference to its slab, or is NULL. If that fails, io_done() may return a request to post in its place, and
 * so on. From a task or a softirq
 */
void rs_post_all(struct rs_io *io)
{
	while (io && !post(io))
		io = io_done(io, false);
}

/* ------------------------------------------------------------------ make, destroy */

static void qp_event(struct ib_event *event, void *context)
{
	switch (event->event) {
	case IB_EVENT_QP_FATAL:
	case IB_EVENT_QP_REQ_ERR:
	case IB_EVENT_QP_ACCESS_ERR:
		rs_donor_fail(context, "%s", ib_event_msg(event->event));
		break;
	default:
		break;
	}
}

/*
 * Completions are handled in a softirq, so that no page waits for a worker. A driver that finds them in an interrupt raises the
 * softirq there, and it runs when the interrupt ends. But rxe finds them in a worker, and a softirq that is raised there waits for
 * ksoftirqd. So it is raised in an interrupt of our own. rxe holds the queue's lock, so this can't be done at once.
 */
static void raise_poll(struct irq_work *work)
{
	struct rs_donor *d = container_of(work, struct rs_donor, poll_work);

	d->poll(d->cq, d);
}

static void has_completed(struct ib_cq *cq, void *context)
{
	struct rs_donor *d = context;

	if (in_interrupt())
		d->poll(cq, d);
	else
		irq_work_queue(&d->poll_work);
}

static int make_cq(struct rs_donor *d, struct ib_device *ib)
{
	d->cq = ib_alloc_cq_any(ib, d, SENDS + RS_RECVS + 2, IB_POLL_SOFTIRQ);
	if (IS_ERR(d->cq))
		return PTR_ERR(d->cq);
	init_irq_work(&d->poll_work, raise_poll);
	/* No queue pair uses it yet, so nothing completes. */
	d->poll = d->cq->comp_handler;
	d->cq->comp_handler = has_completed;
	return 0;
}

/* From now on nobody calls us for the queue, and nobody polls it. (ib_core's own function polls it if its queue pair stays.) */
static void end_polls(struct rs_donor *d)
{
	d->cq->comp_handler = d->poll;
	irq_work_sync(&d->poll_work);
	irq_poll_disable(&d->cq->iop);
	/* ib_core's function uses the queue a little longer, in its softirq, and RCU waits for softirqs. */
	synchronize_rcu();
	irq_poll_enable(&d->cq->iop);
}

static int make_qp(struct rs_donor *d, struct ib_device *ib)
{
	struct ib_qp_init_attr init = {
		.event_handler = qp_event, .qp_context = d, .qp_type = IB_QPT_RC, .sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = { .max_send_wr = SENDS, .max_recv_wr = RS_RECVS + 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = d->port,
		/* The donor sends a WRITE of no bytes to see whether we live. No memory of ours has a remote key. */
		.qp_access_flags = IB_ACCESS_REMOTE_WRITE,
	};
	int ret;

	d->pd = ib_alloc_pd(ib, 0);
	if (IS_ERR(d->pd))
		return PTR_ERR(d->pd);
	ret = make_cq(d, ib);
	if (ret)
		return ret;
	strscpy(d->ibdev_name, dev_name(&ib->dev), sizeof(d->ibdev_name));
	init.send_cq = init.recv_cq = d->cq;
	d->qp = ib_create_qp(d->pd, &init);
	if (IS_ERR(d->qp))
		return PTR_ERR(d->qp);
	d->qpn = d->qp->qp_num;
	return ib_modify_qp(d->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS);
}

static void destroy_objects(struct rs_donor *d, struct ib_device *ib)
{
	/* If the queue pair can't be destroyed, it may still use the other objects, so they stay, too. */
	bool stays = !IS_ERR_OR_NULL(d->qp) && ib_destroy_qp(d->qp), polled = !IS_ERR_OR_NULL(d->cq);

	if (polled)
		end_polls(d);
	if (!WARN_ONCE(stays, "rmem_swap: a queue pair can't be destroyed")) {
		if (polled)
			ib_free_cq(d->cq);
		rs_messages_free(d, ib);
		if (!IS_ERR_OR_NULL(d->pd))
			ib_dealloc_pd(d->pd);
	}
	d->qp = NULL;
	d->cq = NULL;
	d->pd = NULL;
}

static struct rs_ibdev *find_ibdev(const char *name)
{
	struct rs_ibdev *ibdev;

	lockdep_assert_held(&rs_ib_lock);

	list_for_each_entry(ibdev, &rs_ibdevs, list)
		if (!strcmp(dev_name(&ibdev->ib->dev), name))
			return ibdev;
	return NULL;
}

static int read_port(struct rs_donor *d, struct ib_device *ib, struct netlink_ext_ack *extack)
{
	struct ib_port_attr attr;
	int ret;

	if (!rdma_is_port_valid(ib, d->port) || !rdma_protocol_roce(ib, d->port)) {
		NL_SET_ERR_MSG(extack, "the RDMA device has no such port, or the port is not RoCE");
		return -EINVAL;
	}
	ret = ib_query_port(ib, d->port, &attr);
	if (!ret)
		ret = rdma_query_gid(ib, d->port, d->gid_index, &d->gid);
	if (ret) {
		NL_SET_ERR_MSG(extack, "the port has no such GID");
		return ret;
	}
	d->mtu = attr.active_mtu;
	d->psn = get_random_u32() & MAX_24;
	return 0;
}

static int make_objects(struct rs_donor *d, struct ib_device *ib, struct netlink_ext_ack *extack)
{
	int ret = read_port(d, ib, extack);

	if (ret)
		return ret;
	ret = make_qp(d, ib);
	if (!ret)
		ret = rs_messages_make(d, ib);
	if (!ret)
		ret = rs_post_recvs(d);
	if (ret) {
		NL_SET_ERR_MSG(extack, "the RDMA device has no queue pair for us");
		destroy_objects(d, ib);
	}
	return ret;
}

int rs_verbs_make(struct rs_donor *d, const char *name, u32 port, u32 gid_index, struct netlink_ext_ack *extack)
{
	struct rs_ibdev *ibdev;
	int ret = -ENODEV;

	d->port = port;
	d->gid_index = gid_index;
	mutex_lock(&rs_ib_lock);
	ibdev = find_ibdev(name);
	if (!ibdev)
		NL_SET_ERR_MSG(extack, "there is no such RDMA device");
	else
		ret = make_objects(d, ibdev->ib, extack);
	if (!ret) {
		WRITE_ONCE(d->ibdev, ibdev);
		list_add_tail(&d->on_ibdev, &ibdev->donors);
		/* The donor may have failed before this, and lost_work has found nothing to destroy. Pairs with rs_donor_fail(). */
		smp_mb();
		if (test_bit(RS_FAILED, &d->flags))
			queue_work(d->wq, &d->lost_work);
	}
	mutex_unlock(&rs_ib_lock);
	return ret;
}

void rs_verbs_destroy(struct rs_donor *d)
{
	struct rs_ibdev *ibdev = d->ibdev;

	if (!ibdev)
		return;
	rs_verbs_drain(d);
	/* All I/O has ended, but post() may not have returned yet. Messages and drains are posted by this workqueue. */
	synchronize_rcu();
	destroy_objects(d, ibdev->ib);
	mutex_lock(&rs_ib_lock);
	WRITE_ONCE(d->ibdev, NULL);
	list_del_init(&d->on_ibdev);
	wake_up_all(&ibdev->none);
	mutex_unlock(&rs_ib_lock);
}

/* ------------------------------------------------------------------ connect */

struct resolution {
	struct completion done;
	int status;
};

static void resolved(int status, struct sockaddr *src, struct rdma_dev_addr *addr, void *context)
{
	struct resolution *r = context;

	r->status = status;
	complete(&r->done);
}

static int resolve(struct rs_donor *d, u8 *mac)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} from, to;
	const struct ib_gid_attr *gid = rdma_get_gid_attr(d->qp->device, d->port, d->gid_index);
	struct rdma_dev_addr addr = { .net = &init_net };
	struct resolution r;
	int ret;

	if (IS_ERR(gid))
		return PTR_ERR(gid);
	rdma_gid2ip(&from.any, &d->gid);
	rdma_gid2ip(&to.any, &d->peer_gid);
	addr.sgid_attr = gid;
	init_completion(&r.done);
	ret = rdma_resolve_ip(&from.any, &to.any, &addr, 1000, resolved, true, &r);
	if (!ret) {
		wait_for_completion(&r.done);
		ret = r.status;
	}
	if (!ret)
		memcpy(mac, addr.dst_dev_addr, ETH_ALEN);
	rdma_put_gid_attr(gid);
	return ret;
}

static int to_rtr(struct rs_donor *d, u32 mtu)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR, .path_mtu = mtu, .dest_qp_num = d->peer_qpn, .rq_psn = d->peer_psn,
		.max_dest_rd_atomic = min(d->qp->device->attrs.max_qp_rd_atom, RD_ATOMIC), .min_rnr_timer = RNR_TIMER,
		.ah_attr = { .type = RDMA_AH_ATTR_TYPE_ROCE, .port_num = d->port },
	};
	int ret = resolve(d, attr.ah_attr.roce.dmac);

	if (ret)
		return ret;
	rdma_ah_set_grh(&attr.ah_attr, &d->peer_gid, 0, d->gid_index, HOPS, 0);
	return ib_modify_qp(d->qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			    IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
}

int rs_verbs_connect(struct rs_donor *d)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTS, .sq_psn = d->psn, .timeout = ACK_TIMEOUT, .retry_cnt = RETRIES,
		.rnr_retry = RNR_RETRIES, .max_rd_atomic = min(d->qp->device->attrs.max_qp_init_rd_atom, RD_ATOMIC),
	};
	int ret = to_rtr(d, min(d->mtu, d->peer_mtu));

	return ret ?: ib_modify_qp(d->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
				   IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC);
}

/* ------------------------------------------------------------------ RDMA devices that come and go */

static int add_one(struct ib_device *ib);
static void remove_one(struct ib_device *ib, void *data);

static struct ib_client client = {
	.name = "rmem_swap",
	.add = add_one,
	.remove = remove_one,
};

static int add_one(struct ib_device *ib)
{
	struct rs_ibdev *ibdev = kzalloc(sizeof(*ibdev), GFP_KERNEL);

	if (!ibdev)
		return -ENOMEM;
	ibdev->ib = ib;
	INIT_LIST_HEAD(&ibdev->donors);
	init_waitqueue_head(&ibdev->none);
	ib_set_client_data(ib, &client, ibdev);
	mutex_lock(&rs_ib_lock);
	list_add_tail(&ibdev->list, &rs_ibdevs);
	mutex_unlock(&rs_ib_lock);
	return 0;
}

static bool is_unused(struct rs_ibdev *ibdev)
{
	bool unused;

	mutex_lock(&rs_ib_lock);
	unused = list_empty(&ibdev->donors);
	mutex_unlock(&rs_ib_lock);
	return unused;
}

/* The donors' workqueues destroy the objects. The last one wakes us under rs_ib_lock, and does not touch ibdev afterwards. */
static void remove_one(struct ib_device *ib, void *data)
{
	struct rs_ibdev *ibdev = data;
	struct rs_donor *d;

	mutex_lock(&rs_ib_lock);
	list_del(&ibdev->list);
	list_for_each_entry(d, &ibdev->donors, on_ibdev)
		rs_donor_fail(d, "its RDMA device is removed");
	mutex_unlock(&rs_ib_lock);
	wait_event(ibdev->none, is_unused(ibdev));
	kfree(ibdev);
}

int rs_verbs_register(void)
{
	return ib_register_client(&client);
}

void rs_verbs_unregister(void)
{
	ib_unregister_client(&client);
}
