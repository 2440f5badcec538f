// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The ids that a file of librdmacm has, /dev/infiniband/rdma_cm. ucma tells
 * them to nobody but their process, and their process knows them by pointers
 * of its own. They are only read here.
 */

#include <linux/file.h>
#include <rdma/ib_addr.h>
#include <rdma/rdma_cm.h>
#include <rdma/rdma_user_cm.h>
#include "rxe_migr_loc.h"

#include <cma_priv.h>
#include "rxe_migr_ucma.h"	/* the structures of this kernel's ucma.c */

static void rxe_migr_cm_addr(u8 to[48], const struct sockaddr_storage *from)
{
	memcpy(to, from, rdma_addr_size((struct sockaddr *)from));
}

static u32 rxe_migr_cm_unread(const struct ucma_file *ufile,
			      const struct ucma_context *ctx)
{
	const struct ucma_event *event;
	u32 count = 0;

	lockdep_assert_held(&ufile->mut);

	list_for_each_entry(event, &ufile->event_list, list)
		count += event->ctx == ctx || event->conn_req_ctx == ctx;

	return count;
}

static void rxe_migr_cm_bound(struct rxe_migr_cm_id *out,
			      const struct rdma_id_private *id)
{
	const struct rdma_addr *addr = &id->id.route.addr;
	const struct ib_device *dev = READ_ONCE(id->id.device);

	out->state = READ_ONCE(id->state);
	out->ps = id->id.ps;
	out->qp_type = id->id.qp_type;
	out->qp_num = id->qp_num;
	if (id->reuseaddr)
		out->flags |= RXE_MIGR_CM_REUSEADDR;
	if (id->afonly)
		out->flags |= RXE_MIGR_CM_AFONLY;
	rxe_migr_cm_addr(out->src_addr, &addr->src_addr);
	rxe_migr_cm_addr(out->dst_addr, &addr->dst_addr);
	if (dev)
		strscpy(out->device, dev_name(&dev->dev), sizeof(out->device));
}

/*
 * The id itself lives as long as its context has a reference, which is taken
 * and given back as ucma does: one that is being destroyed has none.
 */
static void rxe_migr_cm_id(struct rxe_migr_cm_id *out,
			   const struct ucma_file *ufile,
			   struct ucma_context *ctx)
{
	lockdep_assert_held(&ufile->mut);

	memset(out, 0, sizeof(*out));
	out->id = ctx->id;
	out->uid = ctx->uid;
	out->events_reported = ctx->events_reported;
	out->events_unread = rxe_migr_cm_unread(ufile, ctx);
	out->backlog = atomic_read(&ctx->backlog);
	if (!list_empty(&ctx->mc_list))
		out->flags |= RXE_MIGR_CM_MULTICAST;
	if (!refcount_inc_not_zero(&ctx->ref)) {
		out->flags |= RXE_MIGR_CM_CLOSED;
		return;
	}
	rxe_migr_cm_bound(out, container_of(ctx->cm_id, struct rdma_id_private,
					    id));
	if (refcount_dec_and_test(&ctx->ref))
		complete(&ctx->comp);
}

/* At most max of them; *count: how many there are. */
int rxe_migr_cm_ids(struct file *file, struct rxe_migr_cm_id *ids,
		    unsigned int max, unsigned int *count)
{
	struct ucma_file *ufile = file->private_data;
	struct ucma_context *ctx;

	*count = 0;
	/* built for another kernel's ucma? */
	if (!rxe_migr_is_cm(file) || ufile->filp != file)
		return -EINVAL;

	mutex_lock(&ufile->mut);
	list_for_each_entry(ctx, &ufile->ctx_list, list)
		if ((*count)++ < max)
			rxe_migr_cm_id(ids++, ufile, ctx);
	mutex_unlock(&ufile->mut);

	return 0;
}
