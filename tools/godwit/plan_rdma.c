// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Every RDMA object of a process tree, and whether it moves. Objects are read from the driver as a dump reads them, but while
 * the tree runs: nothing is stopped, and a move would find the same a moment later.
 */
#include <endian.h>
#include <infiniband/verbs.h>
#include <string.h>
#include "plan_rdma.h"
#include "text.h"

/* ---------------------------------------------------------- one object -- */

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
				      "descriptors", f ? holders_json(&f->holders) : json_null()));
	if (f && f->holders.outsider)
		plan_stays(plan, object, "process %d, descriptor %d: " WHY_OUTSIDER, f->holders.holder[0].pid,
			   f->holders.holder[0].fd, f->holders.outsider, "event file open");
}

/* The driver has the interface receive the frames of a group. IP drops them if this host has not joined the group. */
static void look_at_group(struct look *look, const struct context *c, const struct rxe_migr_rec_mcast *rec)
{
	struct plan *plan = look->plan;
	json_t *object = plan_object(plan, "mcast", c, json_pack("{s:I, s:o}", "qp",
				     (json_int_t)le32toh(rec->hdr.handle), "mgid", gid_json(rec->mgid)));

	plan_moves_but(plan, object, "process %d, %s, QP with handle %u: what is sent to the group %s arrives only if "
		       "the host that it moves to is a member of it in IP: ip address add GROUP dev INTERFACE autojoin",
		       c->pid, c->device, le32toh(rec->hdr.handle),
		       json_string_value(json_object_get(object, "mgid")));
}

static void refuse(struct plan *plan, json_t *object, const struct context *c, const struct rxe_migr_rec *rec)
{
	char name[IBV_RECORD_NAME_LEN];

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
	json_t *object = plan_object(plan, "context", c, json_pack("{s:o, s:s}",
		"descriptors", holders_json(&c->holders), "state", context_state(c)));
	const struct rxe_migr_rec *rec;

	plan->rdma = true;
	if (!c->ours) {
		plan_stays(plan, object, "process %d, descriptor %d: the driver of %s does not know how to move: "
			   LOAD_OURS, c->pid, c->fd, c->device[0] ? c->device : "its device");
		return;
	}
	if (c->query.abi_version != RXE_MIGR_ABI_VERSION) {
		plan_stays(plan, object, "process %d, %s: " WHY_VERSION, c->pid, c->device, c->query.abi_version,
			   RXE_MIGR_ABI_VERSION);
		return;
	}
	if (c->query.state != RXE_MIGR_CTX_RUNNING)
		plan_stays(plan, object, "process %d, %s: it is being moved already", c->pid, c->device);
	if (c->holders.outsider)
		plan_stays(plan, object, "process %d, %s: " WHY_OUTSIDER, c->pid, c->device, c->holders.outsider,
			   "context open or its rings mapped");
	ibv_for_each_record(rec, c->dump, c->length)
		look_at_record(look, c, rec);
}

/* ------------------------------------------------- what is of no context -- */

static void look_at_stray_event_files(struct look *look)
{
	struct plan *plan = look->plan;

	if (plan->gone)
		return;		/* they may be of a context that is refused already */
	for (size_t i = 0; i < plan->contexts.n; i++)
		if (!plan->contexts.context[i].ours)
			return;	/* only our driver tells whose files they are */
	for (size_t i = 0; i < look->files.n; i++) {
		const struct event_file *f = &look->files.file[i];

		if (!f->context)
			plan_stays(plan, plan_object(plan, "event_file", NULL, json_pack("{s:o}", "descriptors",
				   holders_json(&f->holders))), "process %d, descriptor %d: " WHY_NO_CONTEXT,
				   f->holders.holder[0].pid, f->holders.holder[0].fd);
	}
}

static bool is_ring(const struct look *look, const char *device, uint64_t at)
{
	const struct contexts *list = &look->plan->contexts;

	if (look->plan->gone)
		return true;	/* as below */
	for (size_t i = 0; i < list->n; i++)
		if (!list->context[i].ours && !strcmp(list->context[i].device, device))
			return true;	/* it is said already that this context can't move */
	return rings_find(&look->rings, list, device, at);
}

/* The shared mappings of a process. Thousands may be of one device, one behind the other. */
struct map_look {
	struct look *look;
	struct proc_map last;
	bool uverbs;		/* its file is a device's, ... */
	char device[64];	/* ... of this one */
};

static void see_device(struct map_look *m, const struct proc_map *map)
{
	struct stat st;

	m->last = *map;
	m->uverbs = !proc_map_stat(map, &st) && S_ISCHR(st.st_mode) && rdma_node(st.st_rdev, m->device) == FILE_UVERBS;
}

static int look_at_map(const struct proc_map *map, void *arg)
{
	struct map_look *m = arg;
	struct plan *plan = m->look->plan;
	json_t *object;

	if (!map->shared || !map->inode)
		return 0;
	if (!proc_map_same(map, &m->last))
		see_device(m, map);
	if (!m->uverbs || is_ring(m->look, m->device, map->offset))
		return 0;
	object = plan_object(plan, "mapping", NULL, json_pack("{s:i, s:o, s:o, s:o}", "pid", map->pid,
			     "start", hex_json(map->start), "of", text_json(m->device), "offset", hex_json(map->offset)));
	plan_stays(plan, object, "process %d: " WHY_NO_RING, map->pid, (unsigned long long)map->offset,
		   m->device[0] ? m->device : "a device");
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
		proc_each_map(plan->tree.task[i].pid, look_at_map, &(struct map_look){ .look = &look });
	free_mapped(&look);
	rings_free(&look.rings);
	event_files_free(&look.files);
	return 0;
}
