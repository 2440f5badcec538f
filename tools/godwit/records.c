// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "rdma.h"
#include "records.h"
#include "text.h"

enum kind { NUMBER, HEX, HANDLE, GID, TEXT, QP_TYPE, QP_STATE };

struct field {
	const char *name;
	uint16_t offset, size;
	enum kind kind;
	bool first;	/* among what a person looks for first */
};

#define FIELD(name, record, member, kind, first) {			\
	name, offsetof(struct rxe_migr_rec_##record, member),		\
	sizeof(((struct rxe_migr_rec_##record *)0)->member), kind, first }
#define F(record, member, kind, first) FIELD(#member, record, member, kind, first)
/* (a record has a type, so what is one of its object's has another name) */
#define T(record, first) FIELD(#record "_type", record, type, NUMBER, first)

static const struct field context_fields[] = {
	F(context, abi_version, NUMBER, false),
	F(context, num_objects, NUMBER, true),
	F(context, device, TEXT, true),
	F(context, stop_ns, NUMBER, false),
	{ }
};

static const struct field event_file_fields[] = {
	F(event_file, is_default, NUMBER, true),
	{ }
};

static const struct field pd_fields[] = {

	{ }
};

static const struct field mr_fields[] = {
	F(mr, pd, NUMBER, true),
	F(mr, key, HEX, true),
	F(mr, start, HEX, true),
	F(mr, length, NUMBER, true),
	F(mr, iova, HEX, true),
	F(mr, access, HEX, false),
	{ }
};

static const struct field cq_fields[] = {
	F(cq, user_handle, HEX, false),
	F(cq, ring_offset, HEX, false),
	F(cq, cqe, NUMBER, true),
	F(cq, comp_channel, HANDLE, true),
	F(cq, comp_vector, NUMBER, false),
	F(cq, async_file, HANDLE, false),
	F(cq, comp_events, NUMBER, false),
	F(cq, async_events, NUMBER, false),
	F(cq, notify, NUMBER, true),
	{ }
};

static const struct field srq_fields[] = {
	F(srq, user_handle, HEX, false),
	F(srq, ring_offset, HEX, false),
	F(srq, pd, NUMBER, true),
	F(srq, srq_num, NUMBER, true),
	F(srq, max_wr, NUMBER, true),
	F(srq, max_sge, NUMBER, false),
	F(srq, limit, NUMBER, false),
	F(srq, async_file, HANDLE, false),
	F(srq, async_events, NUMBER, false),
	F(srq, error, NUMBER, false),
	{ }
};

static const struct field qp_fields[] = {
	F(qp, user_handle, HEX, false),
	F(qp, sq_offset, HEX, false),
	F(qp, rq_offset, HEX, false),
	F(qp, pd, NUMBER, false),
	F(qp, send_cq, NUMBER, false),
	F(qp, recv_cq, NUMBER, false),
	F(qp, srq, HANDLE, false),
	F(qp, async_file, HANDLE, false),
	F(qp, async_events, NUMBER, false),
	F(qp, qpn, NUMBER, true),
	F(qp, qp_type, QP_TYPE, true),
	F(qp, qp_state, QP_STATE, true),
	F(qp, sq_sig_all, NUMBER, false),
	F(qp, max_send_wr, NUMBER, false),
	F(qp, max_recv_wr, NUMBER, false),
	F(qp, max_inline, NUMBER, false),
	F(qp, max_send_sge, NUMBER, false),
	F(qp, max_recv_sge, NUMBER, false),
	F(qp, access_flags, HEX, false),
	F(qp, qkey, HEX, false),
	F(qp, dest_qpn, NUMBER, true),
	F(qp, rq_psn, NUMBER, false),
	F(qp, sq_psn, NUMBER, false),
	F(qp, pkey_index, NUMBER, false),
	F(qp, src_port, NUMBER, false),
	F(qp, path_mtu, NUMBER, false),
	F(qp, port_num, NUMBER, false),
	F(qp, timeout, NUMBER, false),
	F(qp, retry_cnt, NUMBER, false),
	F(qp, rnr_retry, NUMBER, false),
	F(qp, min_rnr_timer, NUMBER, false),
	F(qp, max_rd_atomic, NUMBER, false),
	F(qp, max_dest_rd_atomic, NUMBER, false),
	F(qp, sq_draining, NUMBER, false),
	F(qp, en_sqd_async_notify, NUMBER, false),
	F(qp, hop_limit, NUMBER, false),
	F(qp, traffic_class, NUMBER, false),
	F(qp, flow_label, NUMBER, false),
	F(qp, sgid, GID, true),
	F(qp, dgid, GID, true),
	F(qp, req_psn, NUMBER, true),
	F(qp, req_wqe_index, NUMBER, false),
	F(qp, req_noack_pkts, NUMBER, false),
	F(qp, req_opcode, NUMBER, false),
	F(qp, req_rd_atomic, NUMBER, false),
	F(qp, comp_psn, NUMBER, false),
	F(qp, comp_opcode, NUMBER, false),
	F(qp, comp_retry_cnt, NUMBER, false),
	F(qp, comp_rnr_retry, NUMBER, false),
	F(qp, resp_msn, NUMBER, false),
	F(qp, resp_psn, NUMBER, true),
	F(qp, resp_ack_psn, NUMBER, false),
	F(qp, resp_opcode, NUMBER, false),
	F(qp, resp_status, NUMBER, false),
	F(qp, flags, HEX, false),
	F(qp, resp_va, HEX, false),
	F(qp, resp_offset, NUMBER, false),
	F(qp, resp_resid, NUMBER, false),
	F(qp, resp_rkey, HEX, false),
	F(qp, resp_length, NUMBER, false),
	F(qp, res_head, NUMBER, false),
	F(qp, num_res, NUMBER, false),
	F(qp, recv_resid, NUMBER, false),
	F(qp, recv_cur_sge, NUMBER, false),
	F(qp, recv_sge_offset, NUMBER, false),
	F(qp, ssn, NUMBER, false),
	F(qp, epoch, NUMBER, true),
	F(qp, peer_epoch, NUMBER, false),
	F(qp, old_gid, GID, false),
	{ }
};

static const struct field resp_res_fields[] = {
	F(resp_res, index, NUMBER, true),
	T(resp_res, true),
	F(resp_res, replay, NUMBER, false),
	F(resp_res, state, NUMBER, false),
	F(resp_res, flush_type, NUMBER, false),
	F(resp_res, flush_level, NUMBER, false),
	F(resp_res, first_psn, NUMBER, true),
	F(resp_res, last_psn, NUMBER, true),
	F(resp_res, cur_psn, NUMBER, false),
	F(resp_res, rkey, HEX, false),
	F(resp_res, length, NUMBER, false),
	F(resp_res, resid, NUMBER, false),
	F(resp_res, va, HEX, false),
	F(resp_res, va_org, HEX, false),
	{ }
};

static const struct field recv_wqe_fields[] = {
	F(recv_wqe, wr_id, NUMBER, true),
	F(recv_wqe, length, NUMBER, true),
	F(recv_wqe, num_sge, NUMBER, false),
	{ }
};

static const struct field alt_av_fields[] = {
	F(alt_av, sgid, GID, true),
	F(alt_av, dgid, GID, true),
	F(alt_av, flow_label, NUMBER, false),
	F(alt_av, hop_limit, NUMBER, false),
	F(alt_av, traffic_class, NUMBER, false),
	F(alt_av, port_num, NUMBER, false),
	F(alt_av, timeout, NUMBER, false),
	F(alt_av, pkey_index, NUMBER, false),
	{ }
};

static const struct field ring_fields[] = {
	F(ring, which, NUMBER, true),
	F(ring, log2_elem_size, NUMBER, false),
	F(ring, index_mask, NUMBER, false),
	F(ring, producer, NUMBER, true),
	F(ring, consumer, NUMBER, true),
	F(ring, index, NUMBER, true),
	F(ring, first, NUMBER, false),
	F(ring, count, NUMBER, true),
	{ }
};

static const struct field event_fields[] = {
	F(event, file, NUMBER, false),
	F(event, object, NUMBER, true),
	F(event, event, NUMBER, true),
	{ }
};

static const struct field ah_fields[] = {
	F(ah, user_handle, HEX, false),
	F(ah, pd, NUMBER, false),
	F(ah, ah_num, NUMBER, true),
	F(ah, sgid, GID, false),
	F(ah, dgid, GID, true),
	F(ah, flow_label, NUMBER, false),
	F(ah, hop_limit, NUMBER, false),
	F(ah, traffic_class, NUMBER, false),
	F(ah, port_num, NUMBER, false),
	F(ah, dmac, HEX, false),
	{ }
};

static const struct field mcast_fields[] = {
	F(mcast, mgid, GID, true),
	F(mcast, mlid, NUMBER, false),
	{ }
};

static const struct field mw_fields[] = {
	F(mw, addr, HEX, false),
	F(mw, length, NUMBER, false),
	F(mw, pd, NUMBER, false),
	F(mw, rkey, HEX, true),
	F(mw, mr, HANDLE, false),
	F(mw, qp, HANDLE, false),
	F(mw, access, HEX, false),
	T(mw, true),
	F(mw, state, NUMBER, false),
	{ }
};

static const struct field mr_owner_fields[] = {
	F(mr_owner, pid, NUMBER, true),
	{ }
};

static const struct field other_fields[] = {
	F(other, object_id, NUMBER, true),
	{ }
};

static const struct field *const fields[] = {
	[RXE_MIGR_REC_CONTEXT] = context_fields,
	[RXE_MIGR_REC_ASYNC_FILE] = event_file_fields,
	[RXE_MIGR_REC_COMP_CHANNEL] = event_file_fields,
	[RXE_MIGR_REC_PD] = pd_fields,
	[RXE_MIGR_REC_MR] = mr_fields,
	[RXE_MIGR_REC_CQ] = cq_fields,
	[RXE_MIGR_REC_SRQ] = srq_fields,
	[RXE_MIGR_REC_QP] = qp_fields,
	[RXE_MIGR_REC_RESP_RES] = resp_res_fields,
	[RXE_MIGR_REC_RECV_WQE] = recv_wqe_fields,
	[RXE_MIGR_REC_ALT_AV] = alt_av_fields,
	[RXE_MIGR_REC_RING] = ring_fields,
	[RXE_MIGR_REC_EVENT] = event_fields,
	[RXE_MIGR_REC_AH] = ah_fields,
	[RXE_MIGR_REC_MW] = mw_fields,
	[RXE_MIGR_REC_MCAST] = mcast_fields,
	[RXE_MIGR_REC_MR_OWNER] = mr_owner_fields,
	[RXE_MIGR_REC_OTHER] = other_fields,
};

static uint64_t number(const struct rxe_migr_rec *rec, const struct field *f)
{
	const char *at = (const char *)rec + f->offset;
	uint64_t value = 0;

	memcpy(&value, at, f->size);
	return le64toh(value);
}

static char *number_text(const struct field *f, uint64_t value)
{
	switch (f->kind) {
	case HEX:
		return xasprintf("0x%" PRIx64, value);
	case HANDLE:
		return value == RXE_MIGR_NO_HANDLE ? xstrdup("none") : xasprintf("%" PRIu64, value);
	case QP_TYPE:
		return xstrdup(rdma_qp_type(value));
	case QP_STATE:
		return xstrdup(rdma_qp_state(value));
	default:
		return xasprintf("%" PRIu64, value);
	}
}

/* A value as text; it is text that JSON takes as a string, too, unless it is a plain number. */
static char *value_text(const struct rxe_migr_rec *rec, const struct field *f)
{
	const char *at = (const char *)rec + f->offset;
	char text[INET6_ADDRSTRLEN];

	switch (f->kind) {
	case GID:
		return xstrdup(inet_ntop(AF_INET6, at, text, sizeof(text)));
	case TEXT:
		return xasprintf("%.*s", f->size, at);
	default:
		return number_text(f, number(rec, f));
	}
}

static const struct field *fields_of(unsigned int type)
{
	return type < sizeof(fields) / sizeof(*fields) ? fields[type] : NULL;
}

static bool present(const struct rxe_migr_rec *rec, const struct field *f)
{
	return f->offset + f->size <= le32toh(rec->length);
}

json_t *record_json(const struct rxe_migr_rec *rec)
{
	json_t *object = json_pack("{s:s, s:I, s:I}", "type", rdma_record_name(le16toh(rec->type)),
				   "handle", (json_int_t)le32toh(rec->handle),
				   "length", (json_int_t)le32toh(rec->length));
	const struct field *f;

	for (f = fields_of(le16toh(rec->type)); f && f->name; f++) {
		char *text;

		if (!present(rec, f))
			continue;
		text = value_text(rec, f);
		json_object_set_new(object, f->name, f->kind == NUMBER ?
				    json_integer(number(rec, f)) : text_json(text));
		free(text);
	}
	return object;
}

static const struct field *fields_of_name(const char *name)
{
	for (unsigned int type = 0; type < sizeof(fields) / sizeof(*fields); type++)
		if (!strcmp(rdma_record_name(type), name))
			return fields[type];
	return NULL;
}

static void print_name(FILE *out, const char *type, int handle)
{
	fprintf(out, "  %-18s %4d ", type, handle);
}

static void print_field(FILE *out, const struct field *f, char *text)
{
	fprintf(out, " %s %s", f->name, text);
	free(text);
}

void record_print(FILE *out, const struct rxe_migr_rec *rec, bool all)
{
	const struct field *f;

	print_name(out, rdma_record_name(le16toh(rec->type)), le32toh(rec->handle));
	for (f = fields_of(le16toh(rec->type)); f && f->name; f++)
		if (present(rec, f) && (all || f->first))
			print_field(out, f, value_text(rec, f));
	fputc('\n', out);
}

void record_print_saved(FILE *out, json_t *record, bool all)
{
	const char *type = json_string_value(json_object_get(record, "type"));
	const struct field *f;

	print_name(out, type, json_integer_value(json_object_get(record, "handle")));
	for (f = fields_of_name(type); f && f->name; f++) {
		json_t *value = json_object_get(record, f->name);

		if (value && (all || f->first))
			print_field(out, f, json_is_string(value) ? xstrdup(json_string_value(value)) :
				    number_text(f, json_integer_value(value)));
	}
	fputc('\n', out);
}
