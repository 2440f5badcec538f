// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and checks all images, and matches them to this host's devices, while
 * there is no task yet that could be left half restored.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "restore.h"

#define MAX_HANDLES (1 << 20)

struct saved saved;

static int no_memory(void)
{
	return fail("no memory");
}

/* ---------------------------------------------------------------- looking -- */

const struct saved_object *find_object(const struct saved_context *c,
				       uint32_t handle)
{
	uint32_t from = 0, to = c->num_objects, middle, at;

	while (from < to) {
		middle = from + (to - from) / 2;
		at = le32toh(c->objects[middle].rec->handle);
		if (at == handle)
			return &c->objects[middle];
		if (at < handle)
			from = middle + 1;
		else
			to = middle;
	}
	return NULL;
}

static int by_qpn(const void *a, const void *b)
{
	const struct saved_object *const *x = a, *const *y = b;
	const struct rxe_migr_rec_qp *qp1 = (const void *)(*x)->rec;
	const struct rxe_migr_rec_qp *qp2 = (const void *)(*y)->rec;
	uint32_t n1 = le32toh(qp1->qpn), n2 = le32toh(qp2->qpn);

	return (n1 > n2) - (n1 < n2);
}

const struct saved_object *find_qp(const struct saved_context *c, uint32_t qpn)
{
	const struct rxe_migr_rec_qp qp = { .qpn = htole32(qpn) };
	const struct saved_object key = { .rec = &qp.hdr }, *wanted = &key, **qps;

	qps = bsearch(&wanted, c->qps, c->num_qps, sizeof(*c->qps), by_qpn);
	return qps ? *qps : NULL;
}

static int by_ordinal(const void *a, const void *b)
{
	const struct saved_file *x = a, *y = b;

	if (x->file.handle != y->file.handle)
		return x->file.handle < y->file.handle ? -1 : 1;
	return (x->file.type > y->file.type) - (x->file.type < y->file.type);
}

const struct saved_file *find_event_file(const struct saved_context *c,
					 uint32_t type, uint32_t handle)
{
	const struct saved_file key = { .file = { type, handle } };

	return bsearch(&key, c->files, c->num_files, sizeof(key), by_ordinal);
}

static int by_start(const void *a, const void *b)
{
	const RdmaVmaEntry *const *x = a, *const *y = b;

	if ((*x)->start != (*y)->start)
		return (*x)->start < (*y)->start ? -1 : 1;
	return ((*x)->pgoff > (*y)->pgoff) - ((*x)->pgoff < (*y)->pgoff);
}

const RdmaVmaEntry *find_vma(uint64_t start, uint64_t pgoff)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	RdmaVmaEntry key = { .start = start, .pgoff = pgoff };
	RdmaVmaEntry *wanted = &key, **vma = NULL;
	size_t i;

	for (i = 0; !vma && i < inventory->n_tasks; i++)
		if (inventory->tasks[i]->pid == (uint32_t)getpid())
			vma = bsearch(&wanted, inventory->tasks[i]->vmas,
				      inventory->tasks[i]->n_vmas, sizeof(*vma),
				      by_start);
	return vma ? *vma : NULL;
}

static int by_offset(const void *a, const void *b)
{
	const struct ibv_record_ring *x = &((const struct saved_ring *)a)->ring;
	const struct ibv_record_ring *y = &((const struct saved_ring *)b)->ring;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	if (x->handle != y->handle)
		return x->handle < y->handle ? -1 : 1;
	return (x->which > y->which) - (x->which < y->which);
}

const struct saved_ring *find_ring(const RdmaVmaEntry *vma)
{
	const struct saved_ring key = { .ring = {
		.which = vma->which, .handle = vma->handle, .offset = vma->pgoff,
	} };
	const struct saved_context *c;

	if (vma->context >= saved.num_contexts)
		return NULL;
	c = &saved.contexts[vma->context];
	return bsearch(&key, c->rings, c->num_rings, sizeof(key), by_offset);
}

/* ---------------------------------------------------------------- sorting -- */

static int by_handle(const void *a, const void *b)
{
	const struct saved_object *x = a, *y = b;
	uint32_t h1 = le32toh(x->rec->handle), h2 = le32toh(y->rec->handle);

	return (h1 > h2) - (h1 < h2);
}

/* Records of a type stay in their order. There are few types. */
static int sort_records(struct records *records)
{
	uint32_t type = 0, next, its, n = 0, i;
	const struct rxe_migr_rec **sorted;

	sorted = calloc(records->count, sizeof(*sorted));
	if (records->count && !sorted)
		return no_memory();
	for (; n < records->count; type = next) {
		next = UINT32_MAX;
		for (i = 0; i < records->count; i++) {
			its = le16toh(records->rec[i]->type);
			if (its == type)
				sorted[n++] = records->rec[i];
			else if (its > type && its < next)
				next = its;
		}
	}
	free(records->rec);
	records->rec = sorted;
	return 0;
}

/* ---------------------------------------------------------------- contexts -- */

static bool has_handle(unsigned int type)
{
	switch (type) {
	case RXE_MIGR_REC_PD:
	case RXE_MIGR_REC_MR:
	case RXE_MIGR_REC_CQ:
	case RXE_MIGR_REC_SRQ:
	case RXE_MIGR_REC_QP:
	case RXE_MIGR_REC_AH:
	case RXE_MIGR_REC_MW:
		return true;
	default:
		return false;
	}
}

static void add_record(struct saved_context *c, const struct rxe_migr_rec *rec)
{
	const unsigned int type = le16toh(rec->type);
	struct ibv_record_ring rings[2];
	int i, count;

	if (type == RXE_MIGR_REC_ASYNC_FILE || type == RXE_MIGR_REC_COMP_CHANNEL)
		c->files[c->num_files++] = (struct saved_file){
			.rec = (const void *)rec,
			.file = { type, le32toh(rec->handle) },
		};
	if (!has_handle(type))
		return;
	c->objects[c->num_objects++].rec = rec;
	count = ibv_record_rings(rec, rings);
	for (i = 0; i < count; i++)
		c->rings[c->num_rings++].ring = rings[i];
}

static int sort_objects(struct saved_context *c)
{
	char name[IBV_RECORD_NAME_LEN];
	uint32_t i, last;

	qsort(c->objects, c->num_objects, sizeof(*c->objects), by_handle);
	for (i = 1; i < c->num_objects; i++)
		if (c->objects[i].rec->handle == c->objects[i - 1].rec->handle)
			return fail("two objects have the handle of %s",
				    ibv_record_name(c->objects[i].rec, name, sizeof(name)));
	if (!c->num_objects)
		return 0;
	last = le32toh(c->objects[c->num_objects - 1].rec->handle);
	if (last >= MAX_HANDLES)
		return fail("%s: its handle is too high",
			    ibv_record_name(c->objects[c->num_objects - 1].rec, name, sizeof(name)));
	c->num_handles = last + 1;
	return 0;
}

/* When the objects have their places. */
static void collect_qps(struct saved_context *c)
{
	uint32_t i;

	for (i = 0; i < c->num_objects; i++)
		if (le16toh(c->objects[i].rec->type) == RXE_MIGR_REC_QP)
			c->qps[c->num_qps++] = &c->objects[i];
	qsort(c->qps, c->num_qps, sizeof(*c->qps), by_qpn);
}

static int sort_context(struct saved_context *c)
{
	uint32_t i, count = c->records.count;

	c->objects = calloc(count, sizeof(*c->objects));
	c->qps = calloc(count, sizeof(*c->qps));
	c->files = calloc(count, sizeof(*c->files));
	c->rings = calloc(2 * (size_t)count, sizeof(*c->rings));
	if (count && (!c->objects || !c->qps || !c->files || !c->rings))
		return no_memory();
	if (sort_records(&c->records))
		return -1;
	for (i = 0; i < count; i++)
		add_record(c, c->records.rec[i]);
	qsort(c->files, c->num_files, sizeof(*c->files), by_ordinal);
	for (i = 0; i < c->num_files; i++)
		c->files[i].slot = saved.num_files++;
	qsort(c->rings, c->num_rings, sizeof(*c->rings), by_offset);
	for (i = 0; i < c->num_rings; i++)
		c->rings[i].slot = saved.num_rings++;
	if (sort_objects(c))
		return -1;
	collect_qps(c);
	return 0;
}

/* ----------------------------------------------------- devices and addresses -- */

/*
 * The device must be there, and its driver must be ours. Where namespaces do not
 * share devices, it can be opened only in the network namespace of the tasks.
 */
static int read_here(const char *name, const struct node *node,
		     RdmaDeviceEntry *here)
{
	struct ibv_context *ctx;
	int own = -1, ret = -1;

	if (!rdma_is_shared() && enter_given_netns(&own))
		return -1;
	ctx = open_context_file(name, node, 1);
	if (ctx)
		ret = read_device(ctx, name, node->name, here);
	ibv_detach_context(ctx);
	return leave_netns(own) ? -1 : ret;
}

/* Find the device that takes the place of the source's. Each is read once. */
static int find_here(struct saved_context *c)
{
	RdmaDeviceEntry *here;
	const char *name;
	uint32_t i;

	for (i = 0; i < saved.num_contexts; i++) {
		if (saved.contexts[i].source != c->source)
			continue;
		c->here = saved.contexts[i].here;
		c->node = saved.contexts[i].node;
		return 0;
	}
	name = choose_device(c->source->name);
	if (!name || find_node(name, &c->node))
		return -1;
	here = malloc(sizeof(*here));
	if (!here)
		return no_memory();
	c->here = here;
	return read_here(name, &c->node, here);
}

static int choose_gids(struct saved_context *c)
{
	const struct rxe_migr_rec_qp *qp;
	const struct rxe_migr_rec_ah *ah;
	struct saved_object *o;
	const uint8_t *sgid;

	for (o = c->objects; o < c->objects + c->num_objects; o++) {
		qp = (const void *)o->rec;
		ah = (const void *)o->rec;
		switch (le16toh(o->rec->type)) {
		case RXE_MIGR_REC_QP:
			sgid = qp->sgid;
			break;
		case RXE_MIGR_REC_AH:
			sgid = ah->sgid;
			break;
		default:
			continue;
		}
		if (choose_gid(c->source, c->here, sgid, &o->sgid))
			return -1;
	}
	return 0;
}

static int load_context(uint32_t n)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	const RdmaContextImageEntry *image = inventory->contexts[n];
	struct saved_context *c = &saved.contexts[n];

	if (image->device >= inventory->n_devices)
		return fail("%s: context %u is of no device", INVENTORY, n);
	if (read_context(n, image, &c->records) || sort_context(c))
		return -1;
	c->source = inventory->devices[image->device];
	return find_here(c) || choose_gids(c) ? -1 : 0;
}

/* ------------------------------------------------------------------ checks -- */

static int set_owners(const RdmaTaskEntry *task)
{
	const RdmaMrOwnerEntry *mr;
	struct saved_object *o;
	size_t i;

	for (i = 0; i < task->n_mrs; i++) {
		mr = task->mrs[i];
		if (mr->context >= saved.num_contexts)
			return fail("%s: no context %u", INVENTORY, mr->context);
		o = (void *)find_object(&saved.contexts[mr->context], mr->handle);
		if (!o || le16toh(o->rec->type) != RXE_MIGR_REC_MR)
			return fail("%s: no memory region %u", INVENTORY, mr->handle);
		o->pid = task->pid;
	}
	return 0;
}

static int check_owners(const struct saved_context *c)
{
	char name[IBV_RECORD_NAME_LEN];
	uint32_t i;

	for (i = 0; i < c->num_objects; i++)
		if (le16toh(c->objects[i].rec->type) == RXE_MIGR_REC_MR &&
		    !c->objects[i].pid)
			return fail("%s: nobody owns %s", INVENTORY,
				    ibv_record_name(c->objects[i].rec, name, sizeof(name)));
	return 0;
}

static int check_file(const RdmaFileEntry *file)
{
	if (file->context >= saved.num_contexts)
		return fail("%s: file %u is of no context", INVENTORY, file->id);
	if (file->type != RXE_MIGR_REC_CONTEXT &&
	    !find_event_file(&saved.contexts[file->context], file->type,
			     file->handle))
		return fail("%s: file %u is no event file of its context",
			    INVENTORY, file->id);
	return 0;
}

static int check_versions(void)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	size_t i;

	/* records of version 1 are valid in version 2 */
	if (inventory->abi_version < 1 || inventory->abi_version > RXE_MIGR_ABI_VERSION)
		return fail("%s: its records have version %u, and this plugin knows %u: use the plugin that wrote it",
			    INVENTORY, inventory->abi_version, RXE_MIGR_ABI_VERSION);
	for (i = 0; i < inventory->n_needs; i++)
		if (strcmp(inventory->needs[i], NEEDS_RDMA_CM) &&
		    strcmp(inventory->needs[i], NEEDS_CM_ID))
			return fail("%s: it needs %s, which this plugin does not know: use the plugin that wrote it",
				    INVENTORY, inventory->needs[i]);
	return 0;
}

int load_images(void)
{
	const RdmaInventoryEntry *inventory;
	size_t i;

	inventory = saved.inventory = read_inventory();
	if (!inventory || check_versions())
		return -1;
	saved.contexts = calloc(inventory->n_contexts, sizeof(*saved.contexts));
	if (inventory->n_contexts && !saved.contexts)
		return no_memory();
	for (i = 0; i < inventory->n_contexts; i++) {
		if (load_context(i))
			return -1;
		saved.num_contexts++;
	}
	for (i = 0; i < inventory->n_tasks; i++) {
		if (set_owners(inventory->tasks[i]))
			return -1;
		if (inventory->tasks[i]->n_vmas)
			qsort(inventory->tasks[i]->vmas,
			      inventory->tasks[i]->n_vmas,
			      sizeof(*inventory->tasks[i]->vmas), by_start);
	}
	for (i = 0; i < saved.num_contexts; i++)
		if (check_owners(&saved.contexts[i]))
			return -1;
	for (i = 0; i < inventory->n_files; i++)
		if (check_file(inventory->files[i]))
			return -1;
	return 0;
}
