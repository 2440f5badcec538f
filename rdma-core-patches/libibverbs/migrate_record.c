// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Records of a dump: what is in them, what they are called, what cannot move. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <infiniband/migrate.h>
#include <infiniband/migrate_fields.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MEMBER_SIZE(record, member) \
	sizeof(((struct rxe_migr_rec_##record *)0)->member)

/* ---------------------------------------------------------------- fields -- */

enum place { MAIN, MORE, LATER };

#define FIELD(record, member, name, unit, place) {			\
	#name, offsetof(struct rxe_migr_rec_##record, member),		\
	MEMBER_SIZE(record, member), IBV_RECORD_##unit, place == MAIN },
#define PLUS_SIZE(record, member, name, unit, place) \
	+ MEMBER_SIZE(record, member)

/* Declares the table, and checks that it has all but the reserved bytes. */
#define FIELDS(record, reserved)					\
	static const struct ibv_record_field record##_fields[] = {	\
		IBV_FIELDS_##record(FIELD)				\
	};								\
	static_assert(sizeof(struct rxe_migr_rec) + (reserved)		\
		      IBV_FIELDS_##record(PLUS_SIZE) ==			\
		      sizeof(struct rxe_migr_rec_##record),		\
		      "IBV_FIELDS_" #record " has not all fields")

FIELDS(context, 0);
FIELDS(event_file, 0);
FIELDS(pd, 0);
FIELDS(mr, 0);
FIELDS(cq, MEMBER_SIZE(cq, reserved));
FIELDS(srq, 0);
FIELDS(qp, 0);
FIELDS(resp_res, MEMBER_SIZE(resp_res, reserved));
FIELDS(recv_wqe, 0);
FIELDS(alt_av, MEMBER_SIZE(alt_av, reserved));
FIELDS(ring, 0);
FIELDS(event, 0);
FIELDS(ah, MEMBER_SIZE(ah, reserved));
FIELDS(mcast, MEMBER_SIZE(mcast, reserved));
FIELDS(mw, MEMBER_SIZE(mw, reserved));
FIELDS(mr_owner, 0);
FIELDS(other, 0);

#define KIND(TYPE, record, name)					\
	[RXE_MIGR_REC_##TYPE] = {					\
		name, sizeof(struct rxe_migr_rec_##record),		\
		ARRAY_LEN(record##_fields), record##_fields		\
	}

static const struct ibv_record_kind kinds[] = {
	KIND(CONTEXT, context, "context"),
	KIND(ASYNC_FILE, event_file, "async file"),
	KIND(COMP_CHANNEL, event_file, "completion channel"),
	KIND(PD, pd, "PD"),
	KIND(MR, mr, "MR"),
	KIND(CQ, cq, "CQ"),
	KIND(SRQ, srq, "SRQ"),
	KIND(QP, qp, "QP"),
	KIND(RESP_RES, resp_res, "responder resource"),
	KIND(RECV_WQE, recv_wqe, "receive in hand"),
	KIND(ALT_AV, alt_av, "alternate path"),
	KIND(RING, ring, "ring"),
	KIND(EVENT, event, "pending event"),
	KIND(AH, ah, "AH"),
	KIND(MW, mw, "MW"),
	KIND(OTHER, other, "other object"),
	KIND(MCAST, mcast, "multicast group"),
	KIND(MR_OWNER, mr_owner, "MR owner"),
};

const struct ibv_record_kind *ibv_record_kind(unsigned int type)
{
	return type < ARRAY_LEN(kinds) && kinds[type].name ? &kinds[type] : NULL;
}

uint64_t ibv_record_number(const struct rxe_migr_rec *rec,
			   const struct ibv_record_field *field)
{
	uint64_t le = 0;

	if (field->size <= sizeof(le))
		memcpy(&le, (const char *)rec + field->offset, field->size);
	return le64toh(le);
}

/* ------------------------------------------------------------ for people -- */

/* NULL: it is not known. */
static const char *object_str(uint32_t object_id)
{
	static const char *const names[] = {
		[UVERBS_OBJECT_CQ] = "completion queue",
		[UVERBS_OBJECT_QP] = "queue pair",
		[UVERBS_OBJECT_SRQ] = "shared receive queue",
		[UVERBS_OBJECT_AH] = "address handle",
		[UVERBS_OBJECT_MR] = "memory region",
		[UVERBS_OBJECT_MW] = "memory window",
		[UVERBS_OBJECT_FLOW] = "flow steering rule",
		[UVERBS_OBJECT_XRCD] = "XRC domain",
		[UVERBS_OBJECT_RWQ_IND_TBL] = "receive work queue table",
		[UVERBS_OBJECT_WQ] = "work queue",
		[UVERBS_OBJECT_FLOW_ACTION] = "flow action",
		[UVERBS_OBJECT_DM] = "device memory",
		[UVERBS_OBJECT_COUNTERS] = "set of counters",
	};

	return object_id < ARRAY_LEN(names) ? names[object_id] : NULL;
}

const char *ibv_uverbs_object_str(uint32_t object_id)
{
	const char *known = object_str(object_id);

	return known ? known : "unknown object";
}

/* Its type, if it is known and all of the structure is there; or 0. */
static unsigned int whole_type(const struct rxe_migr_rec *rec)
{
	unsigned int type = le16toh(rec->type);
	const struct ibv_record_kind *kind = ibv_record_kind(type);

	return kind && kind->size <= le32toh(rec->length) ? type : 0;
}

const char *ibv_record_name(const struct rxe_migr_rec *rec, char *name,
			    size_t size)
{
	const struct rxe_migr_rec_mr *mr = (const void *)rec;
	const struct rxe_migr_rec_srq *srq = (const void *)rec;
	const struct rxe_migr_rec_qp *qp = (const void *)rec;
	const struct rxe_migr_rec_ah *ah = (const void *)rec;
	const struct rxe_migr_rec_mw *mw = (const void *)rec;
	const struct rxe_migr_rec_other *other = (const void *)rec;
	uint32_t handle = le32toh(rec->handle), id;

	switch (whole_type(rec)) {
	case RXE_MIGR_REC_ASYNC_FILE:
		snprintf(name, size, "asynchronous event file %u", handle);
		break;
	case RXE_MIGR_REC_COMP_CHANNEL:
		snprintf(name, size, "completion channel %u", handle);
		break;
	case RXE_MIGR_REC_PD:
		snprintf(name, size, "protection domain %u", handle);
		break;
	case RXE_MIGR_REC_MR:
		snprintf(name, size,
			 "memory region with key 0x%x (%llu bytes at 0x%llx)",
			 le32toh(mr->key), (unsigned long long)le64toh(mr->length),
			 (unsigned long long)le64toh(mr->start));
		break;
	case RXE_MIGR_REC_CQ:
		snprintf(name, size, "completion queue %u", handle);
		break;
	case RXE_MIGR_REC_SRQ:
		snprintf(name, size, "shared receive queue number %u",
			 le32toh(srq->srq_num));
		break;
	case RXE_MIGR_REC_QP:
		snprintf(name, size, "QP %u", le32toh(qp->qpn));
		break;
	case RXE_MIGR_REC_AH:
		snprintf(name, size, "address handle number %u",
			 le32toh(ah->ah_num));
		break;
	case RXE_MIGR_REC_MW:
		snprintf(name, size, "memory window with key 0x%x",
			 le32toh(mw->rkey));
		break;
	case RXE_MIGR_REC_MCAST:
		snprintf(name, size, "multicast group of queue pair %u", handle);
		break;
	case RXE_MIGR_REC_OTHER:
		id = le32toh(other->object_id);
		if (object_str(id))
			snprintf(name, size, "%s %u", object_str(id), handle);
		else
			snprintf(name, size, "object %u of kind 0x%x", handle, id);
		break;
	default:
		snprintf(name, size, "record of type %u", le16toh(rec->type));
	}
	return name;
}

const char *ibv_record_refusal(const struct rxe_migr_rec *rec)
{
	const struct rxe_migr_rec_qp *qp = (const void *)rec;

	if (!ibv_record_kind(le16toh(rec->type)))
		return le16toh(rec->flags) & RXE_MIGR_REC_MANDATORY ?
			"the driver is newer than what reads its dump: install what belongs together" :
			NULL;
	switch (whole_type(rec)) {
	case 0:
		return "its record is too short: install what belongs together";
	case RXE_MIGR_REC_OTHER:
		return "objects of this kind cannot be moved: destroy it before";
	case RXE_MIGR_REC_QP:
		return qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC ||
		       qp->qp_type == IBV_QPT_UD ? NULL :
			"queue pairs of its type cannot be moved: destroy it before";
	default:
		return NULL;
	}
}

/* ----------------------------------------------------- what they refer to -- */

static int add_ring(struct ibv_record_ring *ring, const struct rxe_migr_rec *rec,
		    uint32_t which, __le64 offset)
{
	if (!offset)	/* no ring: rxe gives out no offset 0 */
		return 0;
	*ring = (struct ibv_record_ring){
		.which = which, .handle = le32toh(rec->handle),
		.offset = le64toh(offset),
	};
	return 1;
}

int ibv_record_rings(const struct rxe_migr_rec *rec,
		     struct ibv_record_ring rings[2])
{
	const struct rxe_migr_rec_cq *cq = (const void *)rec;
	const struct rxe_migr_rec_srq *srq = (const void *)rec;
	const struct rxe_migr_rec_qp *qp = (const void *)rec;
	int n;

	switch (whole_type(rec)) {
	case RXE_MIGR_REC_CQ:
		return add_ring(rings, rec, RXE_MIGR_RING_CQ, cq->ring_offset);
	case RXE_MIGR_REC_SRQ:
		return add_ring(rings, rec, RXE_MIGR_RING_SRQ, srq->ring_offset);
	case RXE_MIGR_REC_QP:
		n = add_ring(rings, rec, RXE_MIGR_RING_SQ, qp->sq_offset);
		if (le32toh(qp->srq) == RXE_MIGR_NO_HANDLE)
			n += add_ring(rings + n, rec, RXE_MIGR_RING_RQ,
				      qp->rq_offset);
		return n;
	default:
		return 0;
	}
}

int ibv_record_owner(const void *dump, size_t length,
		     const struct rxe_migr_rec_mr *mr)
{
	const struct rxe_migr_rec_mr_owner *owner;

	owner = (const void *)ibv_next_record(dump, length, &mr->hdr);
	return owner && whole_type(&owner->hdr) == RXE_MIGR_REC_MR_OWNER ?
		(int)le32toh(owner->pid) : -1;
}
