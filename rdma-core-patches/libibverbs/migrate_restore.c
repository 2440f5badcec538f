// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * ibv_restore_object(): how each kind of object is created again. A record may
 * come from anywhere: find_record() checks its length, once, and the kernel
 * checks its contents.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "migrate_cmd.h"

#define DATA(x) ((struct migr_data){ &(x), sizeof(x) })
#define NO_DATA ((struct migr_data){ NULL, 0 })

/* --------------------------------------------------------------- objects -- */

static void set_ring(struct ibv_restored *restored, int i,
		     const struct mminfo *ring)
{
	restored->offset[i] = ring->offset;
	restored->size[i] = ring->size;
}

static int create_async_file(struct ibv_context *ctx, const void *record,
			     const struct ibv_restore_args *args,
			     struct ibv_restored *restored)
{
	const struct rxe_migr_rec_event_file *rec = record;
	struct migr_cmd cmd;
	int ret;

	(void)args;
	/* The first one came with the context. */
	if (le32toh(rec->is_default)) {
		if (ctx->async_fd < 0)
			return EINVAL;
		restored->fd = fcntl(ctx->async_fd, F_DUPFD_CLOEXEC, 0);
		return restored->fd < 0 ? errno : 0;
	}
	migr_start(&cmd, UVERBS_OBJECT_ASYNC_EVENT,
		   UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	migr_object(&cmd, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0);
	ret = migr_run(ctx, &cmd);
	if (!ret)
		restored->fd = migr_new_object(&cmd);
	return ret;
}

static int create_comp_channel(struct ibv_context *ctx, const void *record,
			       const struct ibv_restore_args *args,
			       struct ibv_restored *restored)
{
	struct ib_uverbs_create_comp_channel req = {};
	struct ib_uverbs_create_comp_channel_resp resp = {};
	int ret;

	(void)record;
	(void)args;
	ret = migr_write(ctx, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, DATA(req),
			 DATA(resp), NO_DATA);
	if (!ret)
		restored->fd = resp.fd;
	return ret;
}

static int create_pd(struct ibv_context *ctx, const void *record,
		     const struct ibv_restore_args *args,
		     struct ibv_restored *restored)
{
	struct ib_uverbs_alloc_pd req = {};
	struct ib_uverbs_alloc_pd_resp resp = {};
	int ret;

	(void)record;
	(void)args;
	ret = migr_write(ctx, IB_USER_VERBS_CMD_ALLOC_PD, DATA(req), DATA(resp),
			 NO_DATA);
	restored->handle = resp.pd_handle;
	return ret;
}

static int create_mr(struct ibv_context *ctx, const void *record,
		     const struct ibv_restore_args *args,
		     struct ibv_restored *restored)
{
	const struct rxe_migr_rec_mr *rec = record;
	struct ib_uverbs_reg_mr req = {
		.start = le64toh(rec->start),
		.length = le64toh(rec->length),
		.hca_va = le64toh(rec->iova),
		.pd_handle = le32toh(rec->pd),
		.access_flags = le32toh(rec->access),
	};
	struct ib_uverbs_reg_mr_resp resp = {};
	int ret;

	ret = migr_hint(ctx, (struct rxe_migr_hint){
		.type = RXE_MIGR_HINT_MR,
		.key = le32toh(rec->key),
		.pid = args->pid,
	});
	if (ret)
		return ret;
	ret = migr_write(ctx, IB_USER_VERBS_CMD_REG_MR, DATA(req), DATA(resp),
			 NO_DATA);
	restored->handle = resp.mr_handle;
	return ret;
}

static int create_cq(struct ibv_context *ctx, const void *record,
		     const struct ibv_restore_args *args,
		     struct ibv_restored *restored)
{
	const struct rxe_migr_rec_cq *rec = record;
	uint32_t vector = le32toh(rec->comp_vector), cqe;
	struct rxe_create_cq_resp uhw = {};
	struct migr_cmd cmd;
	int ret;

	/* There is a vector for each CPU, and this host may have fewer CPUs. */
	if (ctx->num_comp_vectors > 0)
		vector %= ctx->num_comp_vectors;
	migr_start(&cmd, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	migr_object(&cmd, UVERBS_ATTR_CREATE_CQ_HANDLE, 0);
	migr_in32(&cmd, UVERBS_ATTR_CREATE_CQ_CQE,
		  migr_ring_request(le32toh(rec->cqe)));
	migr_in64(&cmd, UVERBS_ATTR_CREATE_CQ_USER_HANDLE,
		  le64toh(rec->user_handle));
	migr_in32(&cmd, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, vector);
	if (le32toh(rec->comp_channel) != RXE_MIGR_NO_HANDLE)
		migr_object(&cmd, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL,
			    args->comp_channel_fd);
	if (args->async_fd >= 0)
		migr_object(&cmd, UVERBS_ATTR_CREATE_CQ_EVENT_FD,
			    args->async_fd);
	migr_out(&cmd, UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cqe, sizeof(cqe));
	migr_out(&cmd, UVERBS_ATTR_UHW_OUT, &uhw, sizeof(uhw));
	ret = migr_run(ctx, &cmd);
	restored->handle = migr_new_object(&cmd);
	set_ring(restored, 0, &uhw.mi);
	return ret;
}

static int create_srq(struct ibv_context *ctx, const void *record,
		      const struct ibv_restore_args *args,
		      struct ibv_restored *restored)
{
	const struct rxe_migr_rec_srq *rec = record;
	struct rxe_create_srq_resp uhw = {};
	uint32_t max_wr, max_sge;
	struct migr_cmd cmd;
	int ret;

	ret = migr_hint(ctx, (struct rxe_migr_hint){
		.type = RXE_MIGR_HINT_SRQ,
		.index = le32toh(rec->srq_num),
	});
	if (ret)
		return ret;
	migr_start(&cmd, UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
	migr_object(&cmd, UVERBS_ATTR_CREATE_SRQ_HANDLE, 0);
	migr_object(&cmd, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, le32toh(rec->pd));
	migr_in64(&cmd, UVERBS_ATTR_CREATE_SRQ_TYPE, IB_UVERBS_SRQT_BASIC);
	migr_in64(&cmd, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE,
		  le64toh(rec->user_handle));
	migr_in32(&cmd, UVERBS_ATTR_CREATE_SRQ_MAX_WR,
		  migr_ring_request(le32toh(rec->max_wr)));
	migr_in32(&cmd, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, le32toh(rec->max_sge));
	migr_in32(&cmd, UVERBS_ATTR_CREATE_SRQ_LIMIT, le32toh(rec->limit));
	if (args->async_fd >= 0)
		migr_object(&cmd, UVERBS_ATTR_CREATE_SRQ_EVENT_FD,
			    args->async_fd);
	migr_out(&cmd, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &max_wr,
		 sizeof(max_wr));
	migr_out(&cmd, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &max_sge,
		 sizeof(max_sge));
	migr_out(&cmd, UVERBS_ATTR_UHW_OUT, &uhw, sizeof(uhw));
	ret = migr_run(ctx, &cmd);
	restored->handle = migr_new_object(&cmd);
	set_ring(restored, 0, &uhw.mi);
	return ret;
}

/*
 * Creates it with this host as its destination, which is found at once. REFILL
 * sets the recorded destination.
 */
static int create_ah(struct ibv_context *ctx, const void *record,
		     const struct ibv_restore_args *args,
		     struct ibv_restored *restored)
{
	const struct rxe_migr_rec_ah *rec = record;
	struct ib_uverbs_create_ah req = {
		.user_handle = le64toh(rec->user_handle),
		.pd_handle = le32toh(rec->pd),
		.attr = {
			.is_global = 1,
			.port_num = rec->port_num,
			.grh = {
				.flow_label = le32toh(rec->flow_label),
				.hop_limit = rec->hop_limit,
				.traffic_class = rec->traffic_class,
			},
		},
	};
	struct ib_uverbs_create_ah_resp resp = {};
	struct rxe_create_ah_resp uhw = {};
	int ret;

	memcpy(req.attr.grh.dgid, migr_choose_gid(&args->sgid, rec->sgid),
	       sizeof(req.attr.grh.dgid));
	ret = migr_find_gid(ctx, rec->port_num, &args->sgid, rec->sgid,
			    &req.attr.grh.sgid_index);
	if (ret)
		return ret;
	ret = migr_hint(ctx, (struct rxe_migr_hint){
		.type = RXE_MIGR_HINT_AH,
		.index = le32toh(rec->ah_num),
	});
	if (ret)
		return ret;
	ret = migr_write(ctx, IB_USER_VERBS_CMD_CREATE_AH, DATA(req),
			 DATA(resp), DATA(uhw));
	restored->handle = resp.ah_handle;
	return ret;
}

/* Creates no object, but attaches the queue pair to the group. */
static int create_mcast(struct ibv_context *ctx, const void *record,
			const struct ibv_restore_args *args,
			struct ibv_restored *restored)
{
	const struct rxe_migr_rec_mcast *rec = record;
	struct ib_uverbs_attach_mcast req = {
		.qp_handle = le32toh(rec->hdr.handle),
		.mlid = le16toh(rec->mlid),
	};

	(void)args;
	restored->handle = req.qp_handle;
	memcpy(req.gid, rec->mgid, sizeof(req.gid));
	return migr_write(ctx, IB_USER_VERBS_CMD_ATTACH_MCAST, DATA(req),
			  NO_DATA, NO_DATA);
}

static int create_mw(struct ibv_context *ctx, const void *record,
		     const struct ibv_restore_args *args,
		     struct ibv_restored *restored)
{
	const struct rxe_migr_rec_mw *rec = record;
	struct ib_uverbs_alloc_mw req = {
		.pd_handle = le32toh(rec->pd),
		.mw_type = rec->type,
	};
	struct ib_uverbs_alloc_mw_resp resp = {};
	int ret;

	(void)args;
	ret = migr_hint(ctx, (struct rxe_migr_hint){
		.type = RXE_MIGR_HINT_MW,
		.key = le32toh(rec->rkey),
	});
	if (ret)
		return ret;
	ret = migr_write(ctx, IB_USER_VERBS_CMD_ALLOC_MW, DATA(req), DATA(resp),
			 NO_DATA);
	restored->handle = resp.mw_handle;
	return ret;
}

/* -------------------------------------------------------------- commands -- */

static const struct kind {
	size_t		record_size;
	migr_create_fn *create;
	migr_create_fn *finish;
	/* how to destroy it; close() destroys an event file */
	uint16_t	object;
	uint16_t	destroy;
	uint16_t	answer;	/* of destroy, bytes */
} kinds[] = {
	[RXE_MIGR_REC_ASYNC_FILE] = {
		.record_size = sizeof(struct rxe_migr_rec_event_file),
		.create = create_async_file,
	},
	[RXE_MIGR_REC_COMP_CHANNEL] = {
		.record_size = sizeof(struct rxe_migr_rec_event_file),
		.create = create_comp_channel,
	},
	[RXE_MIGR_REC_PD] = {
		.record_size = sizeof(struct rxe_migr_rec_pd),
		.create = create_pd,
		.object = UVERBS_OBJECT_PD,
		.destroy = UVERBS_METHOD_PD_DESTROY,
	},
	[RXE_MIGR_REC_MR] = {
		.record_size = sizeof(struct rxe_migr_rec_mr),
		.create = create_mr,
		.object = UVERBS_OBJECT_MR,
		.destroy = UVERBS_METHOD_MR_DESTROY,
	},
	[RXE_MIGR_REC_CQ] = {
		.record_size = sizeof(struct rxe_migr_rec_cq),
		.create = create_cq,
		.object = UVERBS_OBJECT_CQ,
		.destroy = UVERBS_METHOD_CQ_DESTROY,
		.answer = sizeof(struct ib_uverbs_destroy_cq_resp),
	},
	[RXE_MIGR_REC_SRQ] = {
		.record_size = sizeof(struct rxe_migr_rec_srq),
		.create = create_srq,
		.object = UVERBS_OBJECT_SRQ,
		.destroy = UVERBS_METHOD_SRQ_DESTROY,
		.answer = sizeof(struct ib_uverbs_destroy_srq_resp),
	},
	[RXE_MIGR_REC_QP] = {
		.record_size = sizeof(struct rxe_migr_rec_qp),
		.create = migr_create_qp,
		.finish = migr_modify_qp,
		.object = UVERBS_OBJECT_QP,
		.destroy = UVERBS_METHOD_QP_DESTROY,
		.answer = sizeof(struct ib_uverbs_destroy_qp_resp),
	},
	[RXE_MIGR_REC_AH] = {
		.record_size = sizeof(struct rxe_migr_rec_ah),
		.create = create_ah,
		.object = UVERBS_OBJECT_AH,
		.destroy = UVERBS_METHOD_AH_DESTROY,
	},
	[RXE_MIGR_REC_MCAST] = {
		.record_size = sizeof(struct rxe_migr_rec_mcast),
		.create = create_mcast,
	},
	[RXE_MIGR_REC_MW] = {
		.record_size = sizeof(struct rxe_migr_rec_mw),
		.create = create_mw,
		.object = UVERBS_OBJECT_MW,
		.destroy = UVERBS_METHOD_MW_DESTROY,
	},
};

static const struct kind *find_kind(unsigned int type)
{
	if (type >= sizeof(kinds) / sizeof(kinds[0]) || !kinds[type].create)
		return NULL;
	return &kinds[type];
}

/* The record in args, or NULL if it is not a whole record of this kind. */
static const struct rxe_migr_rec *find_record(const struct ibv_restore_args *args,
					      const struct kind *kind, int type)
{
	const struct rxe_migr_rec *rec = args->record;

	if (!rec || args->record_length < sizeof(*rec) ||
	    le16toh(rec->type) != type ||
	    le32toh(rec->length) > args->record_length ||
	    le32toh(rec->length) < kind->record_size)
		return NULL;
	return rec;
}

static int destroy(struct ibv_context *ctx, struct ibv_restored *restored)
{
	const struct kind *kind = find_kind(restored->type);
	struct ib_uverbs_destroy_cq_resp answer;	/* the largest */
	struct migr_cmd cmd;

	if (!kind)
		return EINVAL;
	if (restored->fd >= 0) {
		close(restored->fd);
		restored->fd = -1;
	}
	if (!kind->object)
		return 0;
	/* The attributes have the same ids for every kind. */
	migr_start(&cmd, kind->object, kind->destroy);
	migr_object(&cmd, UVERBS_ATTR_DESTROY_PD_HANDLE, restored->handle);
	if (kind->answer)
		migr_out(&cmd, UVERBS_ATTR_DESTROY_CQ_RESP, &answer,
			 kind->answer);
	return migr_run(ctx, &cmd);
}

static int create(struct ibv_context *ctx, void **object, int type,
		  const struct ibv_restore_args *args)
{
	const struct kind *kind = find_kind(type);
	const struct rxe_migr_rec *rec;
	struct ibv_restored *restored;
	int ret;

	rec = kind ? find_record(args, kind, type) : NULL;
	if (!rec)
		return EINVAL;
	restored = calloc(1, sizeof(*restored));
	if (!restored)
		return ENOMEM;
	restored->type = type;
	restored->fd = -1;

	ret = kind->create(ctx, rec, args, restored);
	if (ret)
		goto free;
	if (kind->object && restored->handle != le32toh(rec->handle)) {
		ret = EBUSY;
		goto undo;
	}
	if (kind->finish)
		ret = kind->finish(ctx, rec, args, restored);
	if (ret)
		goto undo;
	*object = restored;
	return 0;
undo:
	destroy(ctx, restored);
free:
	free(restored);
	return ret;
}

static int create_placeholder(struct ibv_context *ctx, void **object)
{
	struct ibv_restored *restored = calloc(1, sizeof(*restored));
	int ret;

	if (!restored)
		return ENOMEM;
	restored->type = RXE_MIGR_REC_PD;
	restored->fd = -1;
	ret = create_pd(ctx, NULL, NULL, restored);
	if (ret)
		free(restored);
	else
		*object = restored;
	return ret;
}

/* The kernel takes records only; a dump's buffer may be longer than these. */
static int refill(struct ibv_context *ctx, const void *records, size_t length)
{
	struct rxe_migr_buf buf = { .addr = (uintptr_t)records };
	const struct rxe_migr_rec *rec = NULL;

	while ((rec = ibv_next_record(records, length, rec)))
		buf.length += le32toh(rec->length);
	if (errno)
		return EINVAL;
	if (!buf.length)
		return 0;
	return migr_driver(ctx, RXE_METHOD_MIGR_REFILL, &buf, sizeof(buf), NULL,
			   0);
}

static int resume(struct ibv_context *ctx, const struct ibv_restore_args *args,
		  size_t length)
{
	struct rxe_migr_resume in = {};

	if (args) {
		if (length != sizeof(*args))
			return EINVAL;
		in.pid = args->pid;
	}
	return migr_driver(ctx, RXE_METHOD_MIGR_RESUME, &in, sizeof(in), NULL,
			   0);
}

int ibv_restore_object(struct ibv_context *ctx, void **object, int object_type,
		       int cmd, void *args, size_t length)
{
	int ret;

	switch (cmd) {
	case IBV_RESTORE_CREATE:
		if (!object || !args || length != sizeof(struct ibv_restore_args))
			return EINVAL;
		return create(ctx, object, object_type, args);
	case IBV_RESTORE_PLACEHOLDER:
		return object ? create_placeholder(ctx, object) : EINVAL;
	case IBV_RESTORE_DESTROY:
		if (!object || !*object)
			return EINVAL;
		ret = destroy(ctx, *object);
		if (!ret) {
			free(*object);
			*object = NULL;
		}
		return ret;
	case IBV_RESTORE_REFILL:
		return args ? refill(ctx, args, length) : EINVAL;
	case IBV_RESTORE_RESUME:
		return resume(ctx, args, length);
	default:
		return EOPNOTSUPP;
	}
}
