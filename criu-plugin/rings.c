// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: the mappings that a process and the driver share. Their contents are
 * in the records; what is in the process is a mapping, known by its offset in
 * the device file.
 */
#include <endian.h>
#include <errno.h>
#include <unistd.h>

#include "plugin.h"

int record_rings(const struct rxe_migr_rec *rec, struct ring rings[2])
{
	const struct rxe_migr_rec_cq *cq = (const void *)rec;
	const struct rxe_migr_rec_srq *srq = (const void *)rec;
	const struct rxe_migr_rec_qp *qp = (const void *)rec;
	struct ring all[2] = {};
	int i, count = 0;

	switch (le16toh(rec->type)) {
	case RXE_MIGR_REC_CQ:
		all[0] = (struct ring){ .which = RXE_MIGR_RING_CQ,
					.pgoff = le64toh(cq->ring_offset) };
		break;
	case RXE_MIGR_REC_SRQ:
		all[0] = (struct ring){ .which = RXE_MIGR_RING_SRQ,
					.pgoff = le64toh(srq->ring_offset) };
		break;
	case RXE_MIGR_REC_QP:
		all[0] = (struct ring){ .which = RXE_MIGR_RING_SQ,
					.pgoff = le64toh(qp->sq_offset) };
		if (le32toh(qp->srq) == RXE_MIGR_NO_HANDLE)
			all[1] = (struct ring){ .which = RXE_MIGR_RING_RQ,
						.pgoff = le64toh(qp->rq_offset) };
		break;
	}
	/* rxe gives out no offset 0. */
	for (i = 0; i < 2; i++) {
		if (!all[i].pgoff)
			continue;
		rings[count] = all[i];
		rings[count++].handle = le32toh(rec->handle);
	}
	return count;
}

/* What this task had mapped there. */
static const RdmaVmaEntry *find_vma(uint64_t start, uint64_t pgoff)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	const RdmaVmaEntry *vma;
	size_t i, j;

	for (i = 0; i < inventory->n_tasks; i++) {
		if (inventory->tasks[i]->pid != (uint32_t)getpid())
			continue;
		for (j = 0; j < inventory->tasks[i]->n_vmas; j++) {
			vma = inventory->tasks[i]->vmas[j];
			if (vma->start == start && vma->pgoff == pgoff)
				return vma;
		}
	}
	return NULL;
}

static const struct saved_ring *find_ring(const RdmaVmaEntry *vma)
{
	const struct saved_context *c;
	const struct ring *ring;
	uint32_t i;

	if (vma->context >= saved.num_contexts)
		return NULL;
	c = &saved.contexts[vma->context];
	for (i = 0; i < c->num_rings; i++) {
		ring = &c->rings[i].ring;
		if (ring->pgoff == vma->pgoff && ring->handle == vma->handle &&
		    ring->which == vma->which)
			return &c->rings[i];
	}
	return NULL;
}

/*
 * CRIU 4.1 gives each mapping of a device a file of its own, so it uses each
 * descriptor that it gets here, for one mapping, and closes it then. (A
 * version that does not would leave descriptors behind; resume.c counts them.)
 */
int restore_mapping(uint64_t start, uint64_t pgoff, uint64_t *new_pgoff,
		    int *fd)
{
	const struct saved_ring *ring;
	const RdmaVmaEntry *vma;

	if (!saved.inventory)
		return -ENOTSUP;
	vma = find_vma(start, pgoff);
	if (!vma)
		return -ENOTSUP;
	ring = find_ring(vma);
	if (!ring)
		return fail("%s: no ring is known of the mapping at 0x%llx",
			    INVENTORY, (unsigned long long)start);
	if (make_context(vma->context))
		return -1;
	*fd = open_made_context(vma->context);
	if (*fd < 0)
		return -1;
	*new_pgoff = made_ring(ring);
	return 1;
}
