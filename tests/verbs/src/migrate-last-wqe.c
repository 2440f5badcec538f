// SPDX-License-Identifier: MIT
/*
 * migrate-last-wqe: a queue pair in error that takes its receives from an SRQ says LAST_WQE_REACHED once: at the source, where
 * the event may be unread, or after the restore, if the record says that the event is still owed.
 */
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include "../../programs/dumps.h"

static void own(int ready)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 10, .max_send_sge = 1 }, .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
	};
	struct ibv_qp_attr a = { .port_num = 1, .path_mtu = IBV_MTU_1024 };
	struct ibv_qp *qp;

	CHECK(pd && cq && (init.srq = ibv_create_srq(pd, &srq_init)));
	CHECK((qp = ibv_create_qp(pd, &init)));
	find_gid(ctx, NULL);
	a.dest_qp_num = qp->qp_num;
	a.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index } };
	lead(qp, a, IBV_QPS_ERR);
	CHECK(write(ready, &ctx->cmd_fd, sizeof(int)) == sizeof(int));
	for (;;)
		pause();
}

/* The record of the unread event, or NULL. */
static struct rxe_migr_rec_event *unread(const struct dump *d)
{
	const struct rxe_migr_rec *rec = NULL;

	while ((rec = next(d, rec)))
		if (type_of(rec) == RXE_MIGR_REC_EVENT &&
		    ((const struct rxe_migr_rec_event *)rec)->event == htole32(IBV_EVENT_QP_LAST_WQE_REACHED))
			return (struct rxe_migr_rec_event *)rec;
	return NULL;
}

/* How many of these events come: as many as are wanted, after whatever time, and any that follow soon. */
static int events(struct ibv_context *ctx, int want)
{
	struct pollfd p = { ctx->async_fd, POLLIN, 0 };
	struct ib_uverbs_async_event_desc event;
	int n = 0;

	while (poll(&p, 1, n < want ? 60000 : 1000) > 0) {
		CHECK(read(ctx->async_fd, &event, sizeof(event)) == sizeof(event));
		n += event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
	}
	return n;
}

static void goes_on(const struct dump *d, bool is_unread, bool owed)
{
	struct rxe_migr_rec_qp *qp = (void *)first_of(d, RXE_MIGR_REC_QP);
	struct rxe_migr_rec_event *event = unread(d);
	struct rxe_migr_rec hdr = event->hdr;
	struct ibv_context *ctx;
	struct dump again;
	int n;

	qp->owes_last_wqe = owed;
	if (!is_unread) {	/* a record that may be skipped, of an unknown type */
		event->hdr.type = htole16(0x7777);
		event->hdr.flags = 0;
	}
	ctx = restore(d, NULL);
	again = take(ctx, ibv_inspect_context);
	CHECK(((const struct rxe_migr_rec_qp *)first_of(&again, RXE_MIGR_REC_QP))->owes_last_wqe == owed);
	CHECK(!unread(&again) == !is_unread);
	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, NULL, 0));
	n = events(ctx, is_unread + owed);
	if (n != is_unread + owed)
		DIE("unread %d, owed %d: %d events", is_unread, owed, n);
	ibv_detach_context(ctx);
	event->hdr = hdr;
	free(again.buf);
}

int main(void)
{
	struct ibv_context *ctx = start_owner(own);
	struct dump d;

	for (int i = 0;; i++) {
		d = take(ctx, ibv_inspect_context);
		if (unread(&d))
			break;
		CHECK(i < 6000);
		free(d.buf);
		usleep(10000);
	}
	free(d.buf);
	d = take(ctx, ibv_dump_context);
	CHECK(unread(&d) && !((const struct rxe_migr_rec_qp *)first_of(&d, RXE_MIGR_REC_QP))->owes_last_wqe);
	end_owner(ctx);
	goes_on(&d, true, false);
	goes_on(&d, false, false);
	goes_on(&d, false, true);
	puts("LAST_WQE_REACHED is said once");
	return 0;
}
