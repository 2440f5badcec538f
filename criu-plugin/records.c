// SPDX-License-Identifier: GPL-2.0
/*
 * Turns a record of a dump into its message in the image, and back. The verbs
 * extension says which fields a record has.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/migrate_fields.h>

#include "plugin.h"

/*
 * A field of up to 8 bytes is a number: little-endian in the record, uint32_t
 * or uint64_t in the message. A longer field is bytes or a string, as the
 * message declares it.
 */
struct field {
	uint16_t	rec;	/* offset in the record ... */
	uint16_t	rec_size;
	uint16_t	msg;	/* ... and in the message */
	uint16_t	msg_size;
	uint16_t	has;	/* ... of has_NAME in the message; 0: none */
};

#define FIELD(record, member, name, unit, place) {			\
	offsetof(struct rxe_migr_rec_##record, member),			\
	sizeof(((struct rxe_migr_rec_##record *)0)->member),		\
	offsetof(record##_message, name),				\
	sizeof(((record##_message *)0)->name),				\
	HAS_##place(record##_message, name) },
#define HAS_MAIN(message, name) 0
#define HAS_MORE(message, name) 0
#define HAS_LATER(message, name) offsetof(message, has_##name)

/* The message as it must be declared: the record's fields, in its order. */
#define DECLARE(record, member, name, unit, place)			\
	DECLARE_##place(name)						\
	TYPE_##unit(sizeof(((struct rxe_migr_rec_##record *)0)->member)) name;
#define DECLARE_MAIN(name)
#define DECLARE_MORE(name)
#define DECLARE_LATER(name) protobuf_c_boolean has_##name;
#define TYPE_NUMBER(size)						\
	__typeof__(__builtin_choose_expr((size) > sizeof(uint32_t),	\
					 (uint64_t)0, (uint32_t)0))
#define TYPE_HEX(size)		TYPE_NUMBER(size)
#define TYPE_HANDLE(size)	TYPE_NUMBER(size)
#define TYPE_QP_TYPE(size)	TYPE_NUMBER(size)
#define TYPE_QP_STATE(size)	TYPE_NUMBER(size)
#define TYPE_GID(size)		ProtobufCBinaryData
#define TYPE_TEXT(size)		char *
#define SAME_PLACE(record, member, name, unit, place)			\
	&& offsetof(struct record##_declared, name) ==			\
	   offsetof(record##_message, name)

#define FIELDS(record, Message)						\
	typedef Rdma##Message##Entry record##_message;			\
	struct record##_declared {					\
		ProtobufCMessage base;					\
		IBV_FIELDS_##record(DECLARE)				\
	};								\
	_Static_assert(sizeof(struct record##_declared) ==		\
		       sizeof(record##_message)				\
		       IBV_FIELDS_##record(SAME_PLACE),			\
		       "images/rdma.proto: not the fields of a " #record); \
	static const struct field record##_fields[] = {			\
		IBV_FIELDS_##record(FIELD)				\
	}

FIELDS(context, Context);
FIELDS(event_file, EventFile);
FIELDS(pd, Pd);
FIELDS(mr, Mr);
FIELDS(cq, Cq);
FIELDS(srq, Srq);
FIELDS(qp, Qp);
FIELDS(resp_res, RespRes);
FIELDS(recv_wqe, RecvWqe);
FIELDS(alt_av, AltAv);
FIELDS(ring, Ring);
FIELDS(event, Event);
FIELDS(ah, Ah);
FIELDS(mcast, Mcast);
FIELDS(mw, Mw);

#define KIND(TYPE, record)						\
	[RXE_MIGR_REC_##TYPE] = {					\
		sizeof(struct rxe_migr_rec_##record),			\
		offsetof(RdmaRecordEntry, record),			\
		&rdma_##record##_entry__descriptor,			\
		record##_fields, ARRAY_SIZE(record##_fields)		\
	}

static const struct kind {
	uint16_t	rec_size;
	uint16_t	msg;		/* offset of its pointer in the entry */
	const ProtobufCMessageDescriptor *descriptor;
	const struct field *fields;
	unsigned int	num_fields;
} kinds[] = {
	KIND(CONTEXT, context),
	KIND(ASYNC_FILE, event_file),
	KIND(COMP_CHANNEL, event_file),
	KIND(PD, pd),
	KIND(MR, mr),
	KIND(CQ, cq),
	KIND(SRQ, srq),
	KIND(QP, qp),
	KIND(RESP_RES, resp_res),
	KIND(RECV_WQE, recv_wqe),
	KIND(ALT_AV, alt_av),
	KIND(RING, ring),
	KIND(EVENT, event),
	KIND(AH, ah),
	KIND(MW, mw),
	KIND(MCAST, mcast),
};

static const struct kind *find_kind(unsigned int type)
{
	if (type >= ARRAY_SIZE(kinds) || !kinds[type].descriptor)
		return NULL;
	return &kinds[type];
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
		return true;	/* the record keeps zeros */
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
