// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What the destination must have for the RDMA objects: numbers, ways to peers, GIDs, and locked memory.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "gids.h"
#include "plan_rdma.h"
#include "text.h"

/* Count a region for the process of the tree that has pinned it. */
static void add_pinned(const struct plan *plan, pid_t owner, const struct rxe_migr_rec_mr *mr, uint64_t *bytes)
{
	uint64_t page = sysconf(_SC_PAGESIZE), start = le64toh(mr->start), end = start + le64toh(mr->length);

	for (size_t i = 0; i < plan->tree.n; i++)
		if (plan->tree.task[i].pid == owner)
			bytes[i] += ((end + page - 1) / page - start / page) * page;
}

json_t *plan_pinned(const struct plan *plan)
{
	uint64_t *bytes = xcalloc(plan->tree.n, sizeof(*bytes));
	json_t *list = json_array();

	for (size_t i = 0; i < plan->contexts.n; i++) {
		const struct context *c = &plan->contexts.context[i];
		const struct rxe_migr_rec *rec;

		ibv_for_each_record(rec, c->dump, c->length) {
			const struct rxe_migr_rec_mr *mr = (const void *)rec;

			if (le16toh(rec->type) == RXE_MIGR_REC_MR)
				add_pinned(plan, ibv_record_owner(c->dump, c->length, mr), mr, bytes);
		}
	}
	for (size_t i = 0; i < plan->tree.n; i++) {
		pid_t pid = plan->tree.task[i].pid;
		struct rlimit limit;

		if (bytes[i] && !prlimit(pid, RLIMIT_MEMLOCK, NULL, &limit) && bytes[i] > limit.rlim_cur)
			json_array_append_new(list, json_pack("{s:i, s:I, s:I}", "pid", pid, "bytes", (json_int_t)bytes[i],
							      "limit", (json_int_t)limit.rlim_cur));
	}
	free(bytes);
	return list;
}

static void add_identity(json_t *list, unsigned int type, __le32 number)
{
	json_array_append_new(list, json_pack("[i, I]", type, (json_int_t)le32toh(number)));
}

/* Add a flow: from the GID that the connection gets there, to its peer. known: keys of the flows that are in the list already. */
static void add_flow(json_t *list, json_t *known, const struct rxe_migr_rec_qp *qp, json_t *gids)
{
	json_t *old = gid_json(qp->sgid), *to = gid_json(qp->dgid);
	json_t *entry = json_object_get(gids, json_string_value(old));
	const char *from = json_string_value(json_object_get(entry, "there"));
	int mtu = 128 << qp->path_mtu;
	char *key = xasprintf("%s %s %d", from ?: "", json_string_value(to), mtu);

	if (from && !json_object_get(known, key)) {
		json_object_set_new(known, key, json_true());
		json_array_append_new(list, json_pack("{s:I, s:s, s:O, s:i, s:i}", "qp", (json_int_t)le32toh(qp->qpn),
			"from", from, "to", to, "mtu", mtu, "here",
			path_mtu_within(json_integer_value(json_object_get(entry, "mtu")))));
	}
	free(key);
	json_decref(old);
	json_decref(to);
}

json_t *plan_context_json(const struct context *c, json_t *gids)
{
	json_t *list = json_array(), *flows = json_array(), *known = json_object();
	const struct rxe_migr_rec *rec;

	ibv_for_each_record(rec, c->dump, c->length) {
		const void *r = rec;

		switch (le16toh(rec->type)) {
		case RXE_MIGR_REC_QP:
			add_identity(list, RXE_MIGR_HINT_QP, ((const struct rxe_migr_rec_qp *)r)->qpn);
			if (qp_is_connected(r))
				add_flow(flows, known, r, gids);
			break;
		case RXE_MIGR_REC_MR:
			add_identity(list, RXE_MIGR_HINT_MR, ((const struct rxe_migr_rec_mr *)r)->key);
			break;
		case RXE_MIGR_REC_SRQ:
			add_identity(list, RXE_MIGR_HINT_SRQ, ((const struct rxe_migr_rec_srq *)r)->srq_num);
			break;
		case RXE_MIGR_REC_AH:
			add_identity(list, RXE_MIGR_HINT_AH, ((const struct rxe_migr_rec_ah *)r)->ah_num);
			break;
		case RXE_MIGR_REC_MW:
			add_identity(list, RXE_MIGR_HINT_MW, ((const struct rxe_migr_rec_mw *)r)->rkey);
			break;
		}
	}
	json_decref(known);
	return json_pack("{s:o, s:o, s:o}", "device", text_json(c->device), "identities", list, "flows", flows);
}

json_t *plan_context_gids(const struct context *c, json_t *here)
{
	json_t *array = json_array();
	const struct rxe_migr_rec *rec;

	for (size_t i = 0; i < c->cm_gids; i++) {
		json_t *text = gid_json(c->cm_gid[i].s6_addr);

		if (gids_find(here, json_string_value(text)))
			add_gid(array, c->cm_gid[i].s6_addr);
		json_decref(text);
	}
	ibv_for_each_record(rec, c->dump, c->length) {
		if (le16toh(rec->type) == RXE_MIGR_REC_QP)
			add_gid(array, ((const struct rxe_migr_rec_qp *)rec)->sgid);
		if (le16toh(rec->type) == RXE_MIGR_REC_AH)
			add_gid(array, ((const struct rxe_migr_rec_ah *)rec)->sgid);
	}
	return array;
}
