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

static char *number_text(const struct ibv_record_field *f, uint64_t value)
{
	switch (f->unit) {
	case IBV_RECORD_HEX:
		return xasprintf("0x%" PRIx64, value);
	case IBV_RECORD_HANDLE:
		return value == RXE_MIGR_NO_HANDLE ? xstrdup("none") : xasprintf("%" PRIu64, value);
	case IBV_RECORD_QP_TYPE:
		return xstrdup(rdma_qp_type(value));
	case IBV_RECORD_QP_STATE:
		return xstrdup(rdma_qp_state(value));
	default:
		return xasprintf("%" PRIu64, value);
	}
}

/* A value as text. JSON gets this text as a string, unless the value is a plain number. */
static char *value_text(const struct rxe_migr_rec *rec, const struct ibv_record_field *f)
{
	const char *at = (const char *)rec + f->offset;
	char text[INET6_ADDRSTRLEN];

	switch (f->unit) {
	case IBV_RECORD_GID:
		return xstrdup(inet_ntop(AF_INET6, at, text, sizeof(text)));
	case IBV_RECORD_TEXT:
		return xasprintf("%.*s", f->size, at);
	default:
		return number_text(f, ibv_record_number(rec, f));
	}
}

/* kind may be NULL: then there are no fields. */
#define for_each_field(f, kind)							\
	for (f = (kind) ? (kind)->fields : NULL; f && f < (kind)->fields + (kind)->num_fields; f++)

static bool present(const struct rxe_migr_rec *rec, const struct ibv_record_field *f)
{
	return f->offset + f->size <= le32toh(rec->length);
}

static const struct ibv_record_kind *kind_of(const struct rxe_migr_rec *rec)
{
	return ibv_record_kind(le16toh(rec->type));
}

const char *record_kind_name(unsigned int type)
{
	const struct ibv_record_kind *kind = ibv_record_kind(type);

	return kind ? kind->name : "unknown record";
}

json_t *record_json(const struct rxe_migr_rec *rec)
{
	json_t *object = json_pack("{s:s, s:I, s:I}", "type", record_kind_name(le16toh(rec->type)),
				   "handle", (json_int_t)le32toh(rec->handle),
				   "length", (json_int_t)le32toh(rec->length));
	const struct ibv_record_kind *kind = kind_of(rec);
	const struct ibv_record_field *f;

	for_each_field(f, kind) {
		char *text;

		if (!present(rec, f))
			continue;
		text = value_text(rec, f);
		json_object_set_new(object, f->name, f->unit == IBV_RECORD_NUMBER ?
				    json_integer(ibv_record_number(rec, f)) : text_json(text));
		free(text);
	}
	return object;
}

static const struct ibv_record_kind *kind_of_name(const char *name)
{
	const struct ibv_record_kind *kind;

	for (unsigned int type = 1; (kind = ibv_record_kind(type)); type++)
		if (!strcmp(kind->name, name))
			return kind;
	return NULL;
}

static void print_name(FILE *out, const char *type, int handle)
{
	fprintf(out, "  %-18s %4d ", type, handle);
}

static void print_field(FILE *out, const struct ibv_record_field *f, char *text)
{
	fprintf(out, " %s %s", f->name, text);
	free(text);
}

void record_print(FILE *out, const struct rxe_migr_rec *rec, bool all)
{
	const struct ibv_record_kind *kind = kind_of(rec);
	const struct ibv_record_field *f;

	print_name(out, record_kind_name(le16toh(rec->type)), le32toh(rec->handle));
	for_each_field(f, kind)
		if (present(rec, f) && (all || f->is_main))
			print_field(out, f, value_text(rec, f));
	fputc('\n', out);
}

void record_print_saved(FILE *out, json_t *record, bool all)
{
	const char *type = json_string_value(json_object_get(record, "type"));
	const struct ibv_record_kind *kind = kind_of_name(type);
	const struct ibv_record_field *f;

	print_name(out, type, json_integer_value(json_object_get(record, "handle")));
	for_each_field(f, kind) {
		json_t *value = json_object_get(record, f->name);

		if (value && (all || f->is_main))
			print_field(out, f, json_is_string(value) ? xstrdup(json_string_value(value)) :
				    number_text(f, json_integer_value(value)));
	}
	fputc('\n', out);
}
