// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Every RDMA object of a process tree, and whether it moves. They are read from the driver while the tree runs,
 * as a dump reads them, but nothing is stopped: what is seen here is what a move would find a moment later.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "gids.h"
#include "plan.h"
#include "text.h"

/* What a process has mapped, in ascending order: it is asked of each of its regions. */
struct mapped {
	pid_t pid;
	struct mapped_range {
		uint64_t start, end;
		bool shared;
	} *range;
	size_t n;
};

struct look {
	struct plan *plan;
	const struct addresses *addresses;
	const struct contexts *asked;
	struct event_files files;
	struct rings rings;
	struct mapped *mapped;
	size_t n_mapped;
};

/* -------------------------------------------------------------- objects -- */

void plan_stays(struct plan *plan, json_t *object, const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	plan_problem(plan, "%s", text);
	json_object_set_new(object, "moves", json_false());
	if (!json_object_get(object, "reason"))
		json_object_set_new(object, "reason", text_json(text));
}

void plan_moves_but(struct plan *plan, json_t *object, const char *format, ...)
{
	const char *before = json_string_value(json_object_get(object, "note"));
	char text[1024], *all;
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	plan_note(plan, "%s", text);
	all = xasprintf("%s%s%s", before ?: "", before ? "; " : "", text);
	json_object_set_new(object, "note", text_json(all));
	free(all);
}

json_t *plan_object(struct plan *plan, const char *what, const struct context *c, json_t *fields)
{
	json_t *object = json_pack("{s:s}", "object", what);

	if (c)
		json_object_update_new(object, json_pack("{s:o, s:i}", "device", text_json(c->device[0] ? c->device : "?"),
							 "context", c->ours ? (int)c->query.context : -1));
	json_object_update_new(object, fields);
	json_object_set_new(object, "moves", json_true());
	json_array_append_new(plan->objects, object);
	return object;
}

void plan_print_object(FILE *f, json_t *object)
{
	static const char *const apart[] = { "object", "device", "context", "moves", "reason", "note" };
	const char *device = json_string_value(json_object_get(object, "device"));
	const char *text = json_string_value(json_object_get(object, "note"));
	const char *name;
	json_t *value;

	if (device)
		fprintf(f, "%s/%d: ", device, (int)json_integer_value(json_object_get(object, "context")));
	fputs(json_string_value(json_object_get(object, "object")), f);
	json_object_foreach(object, name, value) {
		size_t i;

		for (i = 0; i < sizeof(apart) / sizeof(*apart); i++)
			if (!strcmp(name, apart[i]))
				break;
		if (i < sizeof(apart) / sizeof(*apart))
			continue;
		if (json_is_string(value))
			fprintf(f, " %s %s", name, json_string_value(value));
		else if (json_is_null(value))
			fprintf(f, " %s none", name);
		else
			fprintf(f, " %s %lld", name, (long long)json_integer_value(value));
	}
	if (!json_is_true(json_object_get(object, "moves")))
		fprintf(f, ": NO: %s\n", json_string_value(json_object_get(object, "reason")));
	else
		fprintf(f, ": moves%s%s\n", text ? ", but " : "", text ?: "");
}

/* --------------------------------------------------------------- fields -- */

static json_t *handle(__le32 value)
{
	return le32toh(value) == RXE_MIGR_NO_HANDLE ? json_null() : json_integer(le32toh(value));
}

static json_t *hex(uint64_t value)
{
	char text[20];

	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)value);
	return json_string(text);
}

static json_t *gid(const uint8_t raw[16])
{
	char text[INET6_ADDRSTRLEN];

	return json_string(inet_ntop(AF_INET6, raw, text, sizeof(text)));
}

static void add_gid(json_t *array, const uint8_t raw[16])
{
	json_t *text;

	if (!memcmp(raw, &in6addr_any, 16))
		return;
	text = gid(raw);
	for (size_t i = 0; i < json_array_size(array); i++)
		if (json_equal(json_array_get(array, i), text)) {
			json_decref(text);
			return;
		}
	json_array_append_new(array, text);
}

/* "PID:FD,PID:FD" */
static json_t *descriptors(const struct holders *h)
{
	char *text = xstrdup("");
	json_t *json;

	for (size_t i = 0; i < h->n; i++) {
		char *longer = xasprintf("%s%s%d:%d", text, i ? "," : "", h->holder[i].pid, h->holder[i].fd);

		free(text);
		text = longer;
	}
	json = json_string(text);
	free(text);
	return json;
}

static json_t *mr_fields(const struct rxe_migr_rec_mr *mr)
{
	return json_pack("{s:I, s:I, s:o, s:o, s:I, s:o}", "handle", (json_int_t)le32toh(mr->hdr.handle),
			 "pd", (json_int_t)le32toh(mr->pd), "key", hex(le32toh(mr->key)),
			 "start", hex(le64toh(mr->start)), "length", (json_int_t)le64toh(mr->length),
			 "iova", hex(le64toh(mr->iova)));
}

static json_t *mw_fields(const struct rxe_migr_rec_mw *mw)
{
	return json_pack("{s:I, s:I, s:o, s:i, s:o, s:o}", "handle", (json_int_t)le32toh(mw->hdr.handle),
			 "pd", (json_int_t)le32toh(mw->pd), "rkey", hex(le32toh(mw->rkey)),
			 "type", mw->type, "mr", handle(mw->mr), "qp", handle(mw->qp));
}

static json_t *cq_fields(const struct rxe_migr_rec_cq *cq)
{
	return json_pack("{s:I, s:I, s:o}", "handle", (json_int_t)le32toh(cq->hdr.handle),
			 "cqe", (json_int_t)le32toh(cq->cqe), "comp_channel", handle(cq->comp_channel));
}

static json_t *srq_fields(const struct rxe_migr_rec_srq *srq)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "handle", (json_int_t)le32toh(srq->hdr.handle),
			 "srqn", (json_int_t)le32toh(srq->srq_num), "pd", (json_int_t)le32toh(srq->pd),
			 "max_wr", (json_int_t)le32toh(srq->max_wr), "limit", (json_int_t)le32toh(srq->limit));
}

static json_t *qp_fields(const struct rxe_migr_rec_qp *qp)
{
	json_t *fields = json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:o}",
		"handle", (json_int_t)le32toh(qp->hdr.handle), "lqpn", (json_int_t)le32toh(qp->qpn),
		"type", rdma_qp_type(qp->qp_type), "state", rdma_qp_state(qp->qp_state),
		"pd", (json_int_t)le32toh(qp->pd), "send_cq", (json_int_t)le32toh(qp->send_cq),
		"recv_cq", (json_int_t)le32toh(qp->recv_cq), "srq", handle(qp->srq));

	if (qp->qp_type != IBV_QPT_UD && qp->qp_state >= IBV_QPS_RTR)
		json_object_update_new(fields, json_pack("{s:I, s:o, s:o}",
			"rqpn", (json_int_t)le32toh(qp->dest_qpn), "sgid", gid(qp->sgid), "dgid", gid(qp->dgid)));
	return fields;
}

static json_t *ah_fields(const struct rxe_migr_rec_ah *ah)
{
	return json_pack("{s:I, s:I, s:I, s:o, s:o}", "handle", (json_int_t)le32toh(ah->hdr.handle),
			 "ahn", (json_int_t)le32toh(ah->ah_num), "pd", (json_int_t)le32toh(ah->pd),
			 "sgid", gid(ah->sgid), "dgid", gid(ah->dgid));
}

/* ------------------------------------------------------------- one object -- */

/* Do all of a device's? (Of link-local ones nobody knows whether they are anybody's: they are there always.) */
static bool all_move(const char *device, const struct addresses *addresses)
{
	struct gid *gids;
	size_t i, n = rdma_gids(device, &gids);

	for (i = 0; i < n; i++)
		if (gids[i].rocev2 && !IN6_IS_ADDR_LINKLOCAL(&gids[i].gid) && !addresses_have(addresses, &gids[i].gid))
			break;
	free(gids);
	fault_clear();
	return n && i == n;
}

/*
 * Nobody tells those who send to a UD queue pair where it is: they find it only if its address moves along.
 * Which one that is, only the address handles that it answers with can say; of one that answers nobody, any.
 */
static bool stays_reachable(const struct context *c, const struct addresses *addresses)
{
	const struct rxe_migr_rec_ah *ah;
	const struct rxe_migr_rec *rec;
	struct in6_addr sgid;
	bool answers = false;

	ibv_for_each_record(rec, c->dump, c->length) {
		if (le16toh(rec->type) != RXE_MIGR_REC_AH)
			continue;
		answers = true;
		ah = (const void *)rec;
		memcpy(&sgid, ah->sgid, sizeof(sgid));
		if (!addresses_have(addresses, &sgid))
			return false;
	}
	return answers || all_move(c->device, addresses);
}

/* Is this QP connected to itself? Tombstones tell a peer apart by its address and number. */
static bool is_own_peer(const struct rxe_migr_rec_qp *qp)
{
	return qp->qpn == qp->dest_qpn && !memcmp(qp->sgid, qp->dgid, sizeof(qp->dgid));
}

static bool is_connected(const struct rxe_migr_rec_qp *qp)
{
	return (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC) &&
	       qp->qp_state >= IBV_QPS_RTR && qp->qp_state < IBV_QPS_ERR;
}

/* The same QP before its peer was asked; NULL: nobody has asked it. */
static const struct rxe_migr_rec_qp *when_asked(const struct look *look, const struct context *c,
						const struct rxe_migr_rec_qp *qp)
{
	for (size_t i = 0; i < look->asked->n; i++) {
		const struct context *a = &look->asked->context[i];
		const struct rxe_migr_rec *rec;

		if (a->pid != c->pid || a->fd != c->fd)
			continue;
		ibv_for_each_record(rec, a->dump, a->length) {
			const struct rxe_migr_rec_qp *was = (const void *)rec;

			if (le16toh(rec->type) == RXE_MIGR_REC_QP && was->qpn == qp->qpn &&
			    was->dest_qpn == qp->dest_qpn && is_connected(was))
				return was;
		}
	}
	return NULL;
}

/*
 * A peer that never spoke our protocol. If it was asked, and said nothing, but has sent or acknowledged something
 * since, it lives.
 */
static void look_at_silent_peer(struct look *look, const struct context *c, const struct rxe_migr_rec_qp *qp,
				json_t *object)
{
	const struct rxe_migr_rec_qp *was = when_asked(look, c, qp);
	struct plan *plan = look->plan;
	char peer[INET6_ADDRSTRLEN];
	struct in6_addr sgid;
	const char *has;

	if (!was) {
		plan_moves_but(plan, object, "process %d, %s, QP %u: it is not known yet whether its peer speaks our "
			       "protocol", c->pid, c->device, le32toh(qp->qpn));
		return;
	}
	if (qp->resp_psn != was->resp_psn || (qp->qp_type == IBV_QPT_RC && qp->comp_psn != was->comp_psn)) {
		has = "has";
		add_gid(plan->stock_peers, qp->dgid);
	} else {
		has = "does not answer, or has";
	}
	inet_ntop(AF_INET6, qp->dgid, peer, sizeof(peer));
	memcpy(&sgid, qp->sgid, sizeof(sgid));
	if (!addresses_have(look->addresses, &sgid)) {
		plan_stays(plan, object, "process %d, %s, QP %u: its peer, QP %u at %s, %s a driver without this "
			   "protocol, or another key or none, and would not find this one at another address: --address",
			   c->pid, c->device, le32toh(qp->qpn), le32toh(qp->dest_qpn), peer, has);
		return;
	}
	add_gid(plan->silent_peers, qp->dgid);
	plan_moves_but(plan, object, "process %d, %s, QP %u: its peer, QP %u at %s, %s a driver without this "
		       "protocol, or another key or none: it lives through the move if its own retries last longer",
		       c->pid, c->device, le32toh(qp->qpn), le32toh(qp->dest_qpn), peer, has);
}

static void look_at_qp(struct look *look, const struct context *c, const struct rxe_migr_rec_qp *qp)
{
	struct plan *plan = look->plan;
	json_t *object = plan_object(plan, "qp", c, qp_fields(qp));
	const char *refusal = ibv_record_refusal(&qp->hdr);
	uint32_t qpn = le32toh(qp->qpn);
	struct in6_addr sgid;

	memcpy(&sgid, qp->sgid, sizeof(sgid));
	plan->qps++;
	if (qp->qp_type == IBV_QPT_UD) {
		if (qp->qp_state >= IBV_QPS_RTR && !stays_reachable(c, look->addresses))
			plan_moves_but(plan, object, "process %d, %s, QP %u: what others send to this UD queue pair "
				       "arrives only if the address that they send to moves along: --address",
				       c->pid, c->device, qpn);
	} else if (refusal) {
		plan_stays(plan, object, "process %d, %s, QP %u: %s", c->pid, c->device, qpn, refusal);
	} else if (is_connected(qp) && is_own_peer(qp) && !addresses_have(look->addresses, &sgid)) {
		plan_stays(plan, object, "process %d, %s, QP %u: it is connected to itself, and would not find itself at "
			   "another address: --address", c->pid, c->device, qpn);
	} else if (is_connected(qp) && !(qp->flags & RXE_MIGR_QP_PEER_KNOWS)) {
		look_at_silent_peer(look, c, qp, object);
	}
}

static int add_range(const struct proc_map *map, void *arg)
{
	struct mapped *m = arg;

	GROW(m->range, m->n);
	m->range[m->n++] = (struct mapped_range){ map->start, map->end, map->shared };
	return 0;
}

static const struct mapped *mapped_by(struct look *look, pid_t pid)
{
	struct mapped *m;

	for (size_t i = 0; i < look->n_mapped; i++)
		if (look->mapped[i].pid == pid)
			return &look->mapped[i];
	GROW(look->mapped, look->n_mapped);
	m = &look->mapped[look->n_mapped++];
	*m = (struct mapped){ .pid = pid };
	proc_each_map(pid, add_range, m);
	return m;
}

static void free_mapped(struct look *look)
{
	for (size_t i = 0; i < look->n_mapped; i++)
		free(look->mapped[i].range);
	free(look->mapped);
}

/* Is it mapped without a hole? shared: by mappings that are */
static bool has_memory(struct look *look, pid_t pid, const struct rxe_migr_rec_mr *mr, bool shared)
{
	uint64_t at = le64toh(mr->start), end = at + le64toh(mr->length);
	const struct mapped *m = mapped_by(look, pid);
	size_t low = 0, high = m->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m->range[middle].end <= at)
			low = middle + 1;
		else
			high = middle;
	}
	for (; at < end && low < m->n && m->range[low].start <= at && (m->range[low].shared || !shared); low++)
		at = m->range[low].end;
	return at >= end;
}

/* As the CRIU plugin looks for whom it registers it again. */
static bool has_owner(struct look *look, const struct context *c, const struct rxe_migr_rec_mr *mr, pid_t owner)
{
	if (owner > 0)
		return has_memory(look, owner, mr, false);
	for (size_t i = 0; i < c->holders.n; i++)
		if (has_memory(look, c->holders.holder[i].pid, mr, owner == 0))
			return true;
	return false;
}

static void look_at_mr(struct look *look, const struct context *c, const struct rxe_migr_rec_mr *mr)
{
	struct plan *plan = look->plan;
	json_t *object = plan_object(plan, "mr", c, mr_fields(mr));
	unsigned int key = le32toh(mr->key);
	pid_t owner = ibv_record_owner(c->dump, c->length, mr);

	if (owner >= 0)
		json_object_set_new(object, "pid", json_integer(owner));
	if (owner > 0 && !tree_has(&plan->tree, owner))
		plan_stays(plan, object, "process %d, %s, MR with key 0x%x: its memory is that of process %d, which "
			   "stays here: start both under one process", c->pid, c->device, key, owner);
	else if (has_owner(look, c, mr, owner))
		return;
	else if (owner == 0)
		plan_stays(plan, object, "process %d, %s, MR with key 0x%x: the process whose memory it is has "
			   "ended, and it can't be registered again: deregister it before", c->pid, c->device, key);
	else {
		plan_stays(plan, object, "process %d, %s, MR with key 0x%x: its memory is no longer mapped, and "
			   "can't be registered again: deregister it before", c->pid, c->device, key);
		plan->passing = true;
	}
}

static void look_at_event_file(struct look *look, const struct context *c, const struct rxe_migr_rec_event_file *rec)
{
	struct plan *plan = look->plan;
	bool async = le16toh(rec->hdr.type) == RXE_MIGR_REC_ASYNC_FILE;
	const struct event_file *f = NULL;
	json_t *object;

	for (size_t i = 0; !f && i < look->files.n; i++)
		if (look->files.file[i].context == c && look->files.file[i].file.type == le16toh(rec->hdr.type) &&
		    look->files.file[i].file.handle == le32toh(rec->hdr.handle))
			f = &look->files.file[i];
	object = plan_object(plan, async ? "async_file" : "comp_channel", c,
			    json_pack("{s:I, s:o}", "number", (json_int_t)le32toh(rec->hdr.handle),
				      "descriptors", f ? descriptors(&f->holders) : json_null()));
	if (f && f->holders.outsider)
		plan_stays(plan, object, "process %d, descriptor %d: process %d has this event file open, too, and "
			   "stays here: end it, or start both under one process", f->holders.holder[0].pid,
			   f->holders.holder[0].fd, f->holders.outsider);
}

/* The driver asks the interface for its frames; IP throws them away where nobody has joined. */
static void look_at_group(struct look *look, const struct context *c, const struct rxe_migr_rec_mcast *rec)
{
	struct plan *plan = look->plan;
	json_t *object = plan_object(plan, "mcast", c, json_pack("{s:I, s:o}", "qp",
				     (json_int_t)le32toh(rec->hdr.handle), "mgid", gid(rec->mgid)));

	plan_moves_but(plan, object, "process %d, %s, QP with handle %u: what is sent to the group %s arrives only if "
		       "the host that it moves to is a member of it in IP: ip address add GROUP dev INTERFACE autojoin",
		       c->pid, c->device, le32toh(rec->hdr.handle),
		       json_string_value(json_object_get(object, "mgid")));
}

static void refuse(struct plan *plan, json_t *object, const struct context *c, const struct rxe_migr_rec *rec)
{
	char name[96];

	plan_stays(plan, object, "process %d, %s, %s: %s", c->pid, c->device,
		   ibv_record_name(rec, name, sizeof(name)), ibv_record_refusal(rec));
}

static void look_at_record(struct look *look, const struct context *c, const struct rxe_migr_rec *rec)
{
	struct plan *plan = look->plan;
	const json_int_t number = le32toh(rec->handle);
	const char *kind;
	json_t *object;

	switch (le16toh(rec->type)) {
	case RXE_MIGR_REC_CONTEXT:
	case RXE_MIGR_REC_RESP_RES:
	case RXE_MIGR_REC_RECV_WQE:
	case RXE_MIGR_REC_ALT_AV:
	case RXE_MIGR_REC_RING:
	case RXE_MIGR_REC_EVENT:
	case RXE_MIGR_REC_MR_OWNER:
		break;	/* parts of an object */
	case RXE_MIGR_REC_ASYNC_FILE:
	case RXE_MIGR_REC_COMP_CHANNEL:
		look_at_event_file(look, c, (const void *)rec);
		break;
	case RXE_MIGR_REC_PD:
		plan_object(plan, "pd", c, json_pack("{s:I}", "handle", number));
		break;
	case RXE_MIGR_REC_MR:
		look_at_mr(look, c, (const void *)rec);
		break;
	case RXE_MIGR_REC_MW:
		plan_object(plan, "mw", c, mw_fields((const void *)rec));
		break;
	case RXE_MIGR_REC_CQ:
		plan_object(plan, "cq", c, cq_fields((const void *)rec));
		break;
	case RXE_MIGR_REC_SRQ:
		plan_object(plan, "srq", c, srq_fields((const void *)rec));
		break;
	case RXE_MIGR_REC_AH:
		plan_object(plan, "ah", c, ah_fields((const void *)rec));
		break;
	case RXE_MIGR_REC_QP:
		look_at_qp(look, c, (const void *)rec);
		break;
	case RXE_MIGR_REC_MCAST:
		look_at_group(look, c, (const void *)rec);
		break;
	case RXE_MIGR_REC_OTHER:
		kind = ibv_uverbs_object_str(le32toh(((const struct rxe_migr_rec_other *)rec)->object_id));
		object = plan_object(plan, "other", c, json_pack("{s:I, s:s}", "handle", number, "kind", kind));
		refuse(plan, object, c, rec);
		break;
	default:
		if (!ibv_record_refusal(rec))
			break;
		object = plan_object(plan, "unknown", c, json_pack("{s:I, s:i}", "handle", number, "kind",
								 (int)le16toh(rec->type)));
		refuse(plan, object, c, rec);
	}
}

/* ------------------------------------------------------------- contexts -- */

static void look_at_context(struct look *look, const struct context *c)
{
	struct plan *plan = look->plan;
	static const char *const states[] = { "running", "stopped", "restoring", "resuming" };
	json_t *object = plan_object(plan, "context", c, json_pack("{s:o, s:s}",
		"descriptors", descriptors(&c->holders), "state",
		c->ours && c->query.state < 4 ? states[c->query.state] : "unknown"));
	const struct rxe_migr_rec *rec;

	plan->rdma = true;
	if (!c->ours) {
		plan_stays(plan, object, "process %d, descriptor %d: the driver of %s does not know how to move: "
			   "load our rdma_rxe", c->pid, c->fd, c->device[0] ? c->device : "its device");
		return;
	}
	if (c->query.abi_version != RXE_MIGR_ABI_VERSION) {
		plan_stays(plan, object, "process %d, %s: its driver speaks version %u, godwit %u: install both from "
			   "one release", c->pid, c->device, c->query.abi_version, RXE_MIGR_ABI_VERSION);
		return;
	}
	if (c->query.state != RXE_MIGR_CTX_RUNNING)
		plan_stays(plan, object, "process %d, %s: it is being moved already", c->pid, c->device);
	if (c->holders.outsider)
		plan_stays(plan, object, "process %d, %s: process %d has this context open or its rings mapped, too, "
			   "and stays here: end it, or start both under one process", c->pid, c->device,
			   c->holders.outsider);
	ibv_for_each_record(rec, c->dump, c->length)
		look_at_record(look, c, rec);
}

/* ------------------------------------------------- what is of no context -- */

static void look_at_stray_event_files(struct look *look)
{
	struct plan *plan = look->plan;

	for (size_t i = 0; i < plan->contexts.n; i++)
		if (!plan->contexts.context[i].ours)
			return;	/* whose files they are, only our driver tells */
	for (size_t i = 0; i < look->files.n; i++) {
		const struct event_file *f = &look->files.file[i];

		if (!f->context)
			plan_stays(plan, plan_object(plan, "event_file", NULL, json_pack("{s:o}", "descriptors",
				   descriptors(&f->holders))), "process %d, descriptor %d: an event file whose "
				   "context is closed can't be moved: close it before", f->holders.holder[0].pid,
				   f->holders.holder[0].fd);
	}
}

static bool is_ring(const struct look *look, const char *device, uint64_t at)
{
	const struct contexts *list = &look->plan->contexts;

	for (size_t i = 0; i < list->n; i++)
		if (!list->context[i].ours && !strcmp(list->context[i].device, device))
			return true;	/* that it can't move is said already */
	return rings_find(&look->rings, list, device, at);
}

static int look_at_map(const struct proc_map *map, void *arg)
{
	struct look *look = arg;
	struct plan *plan = look->plan;
	json_t *object;
	char device[64];
	struct stat st;

	if (!map->shared || !map->inode || proc_map_stat(map, &st) || !S_ISCHR(st.st_mode) ||
	    rdma_node(st.st_rdev, device) != FILE_UVERBS || is_ring(look, device, map->offset))
		return 0;
	object = plan_object(plan, "mapping", NULL, json_pack("{s:i, s:o, s:o, s:o}", "pid", map->pid,
			     "start", hex(map->start), "of", text_json(device), "offset", hex(map->offset)));
	plan_stays(plan, object, "process %d maps 0x%llx of %s, which is no ring of a context that it has open: "
		   "unmap it before", map->pid, (unsigned long long)map->offset, device[0] ? device : "a device");
	return 0;
}

/* ------------------------------------------------------------- together -- */

int plan_ask_peers(pid_t pid, struct contexts *asked)
{
	struct tree tree;
	int ret;

	*asked = (struct contexts){ 0 };
	if (tree_collect(&tree, pid))
		return -1;
	ret = contexts_find(&tree, asked) ? -1 : contexts_inspect(asked);
	tree_free(&tree);
	if (!ret)
		contexts_ask_peers(asked);
	return ret;
}

int plan_rdma(struct plan *plan, const struct addresses *addresses, const struct contexts *asked)
{
	struct look look = { .plan = plan, .addresses = addresses, .asked = asked };

	if (event_files_find(&plan->tree, &plan->contexts, &look.files))
		return -1;
	rings_collect(&plan->contexts, &look.rings);
	find_outsiders(&plan->tree, &plan->contexts, &look.files, &look.rings);
	for (size_t i = 0; i < plan->contexts.n; i++)
		look_at_context(&look, &plan->contexts.context[i]);
	look_at_stray_event_files(&look);
	for (size_t i = 0; i < plan->tree.n; i++)
		proc_each_map(plan->tree.task[i].pid, look_at_map, &look);
	free_mapped(&look);
	rings_free(&look.rings);
	event_files_free(&look.files);
	return 0;
}

/* -------------------------------------------------- for the destination -- */

/* Pages that a process of the tree has pinned for its regions. */
static uint64_t pinned_pages(const struct plan *plan, pid_t pid, uint64_t page)
{
	uint64_t pages = 0;

	for (size_t i = 0; i < plan->contexts.n; i++) {
		const struct context *c = &plan->contexts.context[i];
		const struct rxe_migr_rec *rec;

		ibv_for_each_record(rec, c->dump, c->length) {
			const struct rxe_migr_rec_mr *mr = (const void *)rec;
			uint64_t end;

			if (le16toh(rec->type) != RXE_MIGR_REC_MR || ibv_record_owner(c->dump, c->length, mr) != pid)
				continue;
			end = le64toh(mr->start) + le64toh(mr->length);
			pages += (end + page - 1) / page - le64toh(mr->start) / page;
		}
	}
	return pages;
}

json_t *plan_pinned(const struct plan *plan)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	json_t *list = json_array();

	for (size_t i = 0; i < plan->tree.n; i++) {
		pid_t pid = plan->tree.task[i].pid;
		uint64_t bytes = pinned_pages(plan, pid, page) * page;
		struct rlimit limit;

		if (bytes && !prlimit(pid, RLIMIT_MEMLOCK, NULL, &limit) && bytes > limit.rlim_cur)
			json_array_append_new(list, json_pack("{s:i, s:I, s:I}", "pid", pid, "bytes", (json_int_t)bytes,
							      "limit", (json_int_t)limit.rlim_cur));
	}
	return list;
}

static void add_identity(json_t *list, unsigned int type, __le32 number)
{
	json_array_append_new(list, json_pack("[i, I]", type, (json_int_t)le32toh(number)));
}

/* Where a connection leads from its place there; known: keys of what is in the list already. */
static void add_flow(json_t *list, json_t *known, const struct rxe_migr_rec_qp *qp, json_t *gids)
{
	json_t *old = gid(qp->sgid), *to = gid(qp->dgid);
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
			if (is_connected(r))
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
		json_t *text = gid(c->cm_gid[i].s6_addr);

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
