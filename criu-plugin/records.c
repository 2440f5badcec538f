// SPDX-License-Identifier: GPL-2.0
/*
 * A record of a dump and its message in the image: one table of fields for
 * each kind of object, read in both directions.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/ib_user_ioctl_cmds.h>

#include "plugin.h"

/*
 * Up to 8 bytes: a little-endian number on one side, uint32_t or uint64_t on
 * the other. More: bytes, or a string, by the message's field.
 */
struct field {
	uint16_t	rec;	/* offset in the record ... */
	uint16_t	rec_size;
	uint16_t	msg;	/* ... and in the message */
	uint16_t	msg_size;
	uint16_t	has;	/* there, of an optional one: whether it is there */
};

#define F(name) { offsetof(struct REC, name), sizeof(((struct REC *)0)->name), \
		  offsetof(MSG, name), sizeof(((MSG *)0)->name), 0 }
#define OPTIONAL(name) { \
	offsetof(struct REC, name), sizeof(((struct REC *)0)->name), \
	offsetof(MSG, name), sizeof(((MSG *)0)->name), offsetof(MSG, has_##name) }

#define REC rxe_migr_rec_context
#define MSG RdmaContextEntry
static const struct field context[] = {
	F(abi_version), F(num_objects), F(device), F(stop_ns),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_event_file
#define MSG RdmaEventFileEntry
static const struct field event_file[] = {
	F(is_default),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_mr
#define MSG RdmaMrEntry
static const struct field mr[] = {
	F(pd), F(key), F(start), F(length), F(iova), F(access),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_cq
#define MSG RdmaCqEntry
static const struct field cq[] = {
	F(user_handle), F(ring_offset), F(cqe), F(comp_channel), F(comp_vector),
	F(async_file), F(comp_events), F(async_events), F(notify),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_srq
#define MSG RdmaSrqEntry
static const struct field srq[] = {
	F(user_handle), F(ring_offset), F(pd), F(srq_num), F(max_wr), F(max_sge),
	F(limit), F(async_file), F(async_events), F(error),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_qp
#define MSG RdmaQpEntry
static const struct field qp[] = {
	F(user_handle), F(sq_offset), F(rq_offset), F(pd), F(send_cq),
	F(recv_cq), F(srq), F(async_file), F(async_events),
	F(qpn), F(qp_type), F(qp_state), F(sq_sig_all), F(max_send_wr),
	F(max_recv_wr), F(max_inline), F(max_send_sge), F(max_recv_sge),
	F(access_flags), F(qkey), F(dest_qpn), F(rq_psn), F(sq_psn),
	F(pkey_index), F(src_port), F(path_mtu), F(port_num), F(timeout),
	F(retry_cnt), F(rnr_retry), F(min_rnr_timer), F(max_rd_atomic),
	F(max_dest_rd_atomic), F(sq_draining), F(en_sqd_async_notify),
	F(hop_limit), F(traffic_class), F(flow_label), F(sgid), F(dgid),
	F(req_psn), F(req_wqe_index), F(req_noack_pkts), F(req_opcode),
	F(req_rd_atomic), F(comp_psn), F(comp_opcode), F(comp_retry_cnt),
	F(comp_rnr_retry),
	F(resp_msn), F(resp_psn), F(resp_ack_psn), F(resp_opcode),
	F(resp_status), F(flags), F(resp_va), F(resp_offset), F(resp_resid),
	F(resp_rkey), F(resp_length), F(res_head), F(num_res),
	F(recv_resid), F(recv_cur_sge), F(recv_sge_offset),
	F(ssn), F(epoch), F(peer_epoch), OPTIONAL(old_gid),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_resp_res
#define MSG RdmaRespResEntry
static const struct field resp_res[] = {
	F(index), F(type), F(replay), F(state), F(flush_type), F(flush_level),
	F(first_psn), F(last_psn), F(cur_psn), F(rkey), F(length), F(resid),
	F(va), F(va_org),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_recv_wqe
#define MSG RdmaRecvWqeEntry
static const struct field recv_wqe[] = {
	F(wr_id), F(length), F(num_sge),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_alt_av
#define MSG RdmaAltAvEntry
static const struct field alt_av[] = {
	F(sgid), F(dgid), F(flow_label), F(hop_limit), F(traffic_class),
	F(port_num), F(timeout), F(pkey_index),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_ring
#define MSG RdmaRingEntry
static const struct field ring[] = {
	F(which), F(log2_elem_size), F(index_mask), F(producer), F(consumer),
	F(index), F(first), F(count),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_event
#define MSG RdmaEventEntry
static const struct field event[] = {
	F(file), F(object), F(event),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_ah
#define MSG RdmaAhEntry
static const struct field ah[] = {
	F(user_handle), F(pd), F(ah_num), F(sgid), F(dgid), F(flow_label),
	F(hop_limit), F(traffic_class), F(port_num), OPTIONAL(dmac),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_mcast
#define MSG RdmaMcastEntry
static const struct field mcast[] = {
	F(mgid), F(mlid),
};
#undef REC
#undef MSG

#define REC rxe_migr_rec_mw
#define MSG RdmaMwEntry
static const struct field mw[] = {
	F(addr), F(length), F(pd), F(rkey), F(mr), F(qp), F(access), F(type),
	F(state),
};
#undef REC
#undef MSG

#define KIND(TYPE, name, message)					\
	[RXE_MIGR_REC_##TYPE] = {					\
		sizeof(struct rxe_migr_rec_##name),			\
		offsetof(RdmaRecordEntry, message),			\
		&rdma_##message##_entry__descriptor,			\
		name, ARRAY_SIZE(name)					\
	}

static const struct kind {
	uint16_t	rec_size;
	uint16_t	msg;		/* offset of its pointer in the entry */
	const ProtobufCMessageDescriptor *descriptor;
	const struct field *fields;
	unsigned int	num_fields;
} kinds[] = {
	[RXE_MIGR_REC_PD] = {
		sizeof(struct rxe_migr_rec_pd), offsetof(RdmaRecordEntry, pd),
		&rdma_pd_entry__descriptor, NULL, 0,
	},
	KIND(CONTEXT, context, context),
	KIND(ASYNC_FILE, event_file, event_file),
	KIND(COMP_CHANNEL, event_file, event_file),
	KIND(MR, mr, mr),
	KIND(CQ, cq, cq),
	KIND(SRQ, srq, srq),
	KIND(QP, qp, qp),
	KIND(RESP_RES, resp_res, resp_res),
	KIND(RECV_WQE, recv_wqe, recv_wqe),
	KIND(ALT_AV, alt_av, alt_av),
	KIND(RING, ring, ring),
	KIND(EVENT, event, event),
	KIND(AH, ah, ah),
	KIND(MW, mw, mw),
	KIND(MCAST, mcast, mcast),
};

static const struct kind *find_kind(unsigned int type)
{
	if (type >= ARRAY_SIZE(kinds) || !kinds[type].descriptor)
		return NULL;
	return &kinds[type];
}

bool type_known(unsigned int type)
{
	return find_kind(type);
}

/* ----------------------------------------------------------- one field -- */

static bool is_bytes(const struct field *f)
{
	return f->rec_size > sizeof(uint64_t) &&
	       f->msg_size == sizeof(ProtobufCBinaryData);
}

static uint64_t get_number(const void *at, size_t size)
{
	uint64_t le = 0;

	memcpy(&le, at, size);
	return le64toh(le);
}

static bool put_number(void *at, size_t size, uint64_t number)
{
	uint64_t le = htole64(number);

	if (size < sizeof(number) && number >> (8 * size))
		return false;
	memcpy(at, &le, size);
	return true;
}

static bool field_to_message(const struct field *f, const void *rec, void *msg)
{
	const char *from = (const char *)rec + f->rec;
	void *to = (char *)msg + f->msg;

	if (f->has)
		*(protobuf_c_boolean *)((char *)msg + f->has) = true;
	if (is_bytes(f)) {
		ProtobufCBinaryData *bytes = to;

		bytes->data = malloc(f->rec_size);
		if (!bytes->data)
			return false;
		memcpy(bytes->data, from, f->rec_size);
		bytes->len = f->rec_size;
	} else if (f->rec_size > sizeof(uint64_t)) {
		*(char **)to = strndup(from, f->rec_size);
		return *(char **)to;
	} else if (f->msg_size == sizeof(uint32_t)) {
		*(uint32_t *)to = get_number(from, f->rec_size);
	} else {
		*(uint64_t *)to = get_number(from, f->rec_size);
	}
	return true;
}

static bool field_to_record(const struct field *f, const void *msg, void *rec)
{
	const void *from = (const char *)msg + f->msg;
	char *to = (char *)rec + f->rec;

	if (f->has && !*(const protobuf_c_boolean *)((const char *)msg + f->has))
		return true;	/* zero */
	if (is_bytes(f)) {
		const ProtobufCBinaryData *bytes = from;

		if (bytes->len != f->rec_size)
			return false;
		memcpy(to, bytes->data, f->rec_size);
		return true;
	}
	if (f->rec_size > sizeof(uint64_t)) {
		const char *string = *(char *const *)from;

		if (strlen(string) > f->rec_size)
			return false;
		memcpy(to, string, strlen(string));
		return true;
	}
	return put_number(to, f->rec_size, f->msg_size == sizeof(uint32_t) ?
			  *(const uint32_t *)from : *(const uint64_t *)from);
}

/* ---------------------------------------------------------- one record -- */

void free_message(RdmaRecordEntry *entry)
{
	if (entry)
		rdma_record_entry__free_unpacked(entry, NULL);
}

RdmaRecordEntry *record_to_message(const struct rxe_migr_rec *rec)
{
	const struct kind *kind = find_kind(le16toh(rec->type));
	size_t length = le32toh(rec->length), size = sizeof(*rec);
	RdmaRecordEntry *entry = malloc(sizeof(*entry));
	ProtobufCMessage *msg;
	unsigned int i;

	if (!entry)
		return NULL;
	rdma_record_entry__init(entry);
	entry->type = le16toh(rec->type);
	entry->flags = le16toh(rec->flags);
	entry->handle = le32toh(rec->handle);

	if (kind && kind->rec_size <= length) {
		msg = malloc(kind->descriptor->sizeof_message);
		if (!msg)
			goto no_memory;
		kind->descriptor->message_init(msg);
		*(ProtobufCMessage **)((char *)entry + kind->msg) = msg;
		for (i = 0; i < kind->num_fields; i++)
			if (!field_to_message(&kind->fields[i], rec, msg))
				goto no_memory;
		size = kind->rec_size;
	}
	if (length > size) {
		entry->rest.data = malloc(length - size);
		if (!entry->rest.data)
			goto no_memory;
		memcpy(entry->rest.data, (const char *)rec + size, length - size);
		entry->rest.len = length - size;
		entry->has_rest = 1;
	}
	return entry;
no_memory:
	free_message(entry);
	return NULL;
}

struct rxe_migr_rec *message_to_record(const RdmaRecordEntry *entry)
{
	const struct kind *kind = find_kind(entry->type);
	size_t rest = entry->has_rest ? entry->rest.len : 0, size, length;
	const void *msg = NULL;
	struct rxe_migr_rec *rec;
	unsigned int i;

	if (kind)
		msg = *(void *const *)((const char *)entry + kind->msg);
	if (kind && !msg)
		return NULL;
	size = kind ? kind->rec_size : sizeof(*rec);
	length = size + rest;
	if (rest > UINT32_MAX - size || entry->type > UINT16_MAX ||
	    entry->flags > UINT16_MAX)
		return NULL;

	rec = calloc(1, length);
	if (!rec)
		return NULL;
	rec->type = htole16(entry->type);
	rec->flags = htole16(entry->flags);
	rec->length = htole32(length);
	rec->handle = htole32(entry->handle);
	for (i = 0; kind && i < kind->num_fields; i++) {
		if (!field_to_record(&kind->fields[i], msg, rec)) {
			free(rec);
			return NULL;
		}
	}
	if (rest)
		memcpy((char *)rec + size, entry->rest.data, rest);
	return rec;
}

/* ------------------------------------------------------------ for people -- */

static const char *const other_names[] = {
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

const char *object_name(const struct rxe_migr_rec *rec, char name[NAME_LEN])
{
	const struct rxe_migr_rec_mr *mr = (const void *)rec;
	const struct rxe_migr_rec_srq *srq = (const void *)rec;
	const struct rxe_migr_rec_qp *qp = (const void *)rec;
	const struct rxe_migr_rec_ah *ah = (const void *)rec;
	const struct rxe_migr_rec_mw *mw = (const void *)rec;
	const struct rxe_migr_rec_other *other = (const void *)rec;
	uint32_t handle = le32toh(rec->handle), id;

	switch (le16toh(rec->type)) {
	case RXE_MIGR_REC_ASYNC_FILE:
		snprintf(name, NAME_LEN, "asynchronous event file %u", handle);
		break;
	case RXE_MIGR_REC_COMP_CHANNEL:
		snprintf(name, NAME_LEN, "completion channel %u", handle);
		break;
	case RXE_MIGR_REC_PD:
		snprintf(name, NAME_LEN, "protection domain %u", handle);
		break;
	case RXE_MIGR_REC_MR:
		snprintf(name, NAME_LEN, "memory region with key 0x%x (%llu bytes at 0x%llx)",
			 le32toh(mr->key), (unsigned long long)le64toh(mr->length),
			 (unsigned long long)le64toh(mr->start));
		break;
	case RXE_MIGR_REC_CQ:
		snprintf(name, NAME_LEN, "completion queue %u", handle);
		break;
	case RXE_MIGR_REC_SRQ:
		snprintf(name, NAME_LEN, "shared receive queue number %u",
			 le32toh(srq->srq_num));
		break;
	case RXE_MIGR_REC_QP:
		snprintf(name, NAME_LEN, "QP number %u", le32toh(qp->qpn));
		break;
	case RXE_MIGR_REC_AH:
		snprintf(name, NAME_LEN, "address handle number %u",
			 le32toh(ah->ah_num));
		break;
	case RXE_MIGR_REC_MW:
		snprintf(name, NAME_LEN, "memory window with key 0x%x",
			 le32toh(mw->rkey));
		break;
	case RXE_MIGR_REC_MCAST:
		snprintf(name, NAME_LEN, "multicast group of queue pair %u", handle);
		break;
	case RXE_MIGR_REC_OTHER:
		id = le32toh(rec->length) >= sizeof(*other) ?
			le32toh(other->object_id) : 0;
		if (id < ARRAY_SIZE(other_names) && other_names[id])
			snprintf(name, NAME_LEN, "%s %u", other_names[id], handle);
		else
			snprintf(name, NAME_LEN, "object %u of kind 0x%x", handle, id);
		break;
	default:
		snprintf(name, NAME_LEN, "record of type %u", le16toh(rec->type));
	}
	return name;
}
