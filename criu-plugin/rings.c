// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: the mappings that a process and the driver share. Their contents are
 * in the records; what is in the process is a mapping, known by its offset in
 * the device file.
 */
#include <errno.h>
#include <unistd.h>

#include "plugin.h"

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
	const struct ibv_record_ring *ring;
	uint32_t i;

	if (vma->context >= saved.num_contexts)
		return NULL;
	c = &saved.contexts[vma->context];
	for (i = 0; i < c->num_rings; i++) {
		ring = &c->rings[i].ring;
		if (ring->offset == vma->pgoff && ring->handle == vma->handle &&
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
