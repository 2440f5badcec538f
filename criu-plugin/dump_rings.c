// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: memory that a process and the driver share. The records have the
 * contents of a ring. In the process a ring is a mapping, which is known by its
 * offset in the device file.
 */
#include <string.h>

#include "dump.h"

static bool find_ring(const struct mapping *m, struct ibv_record_ring *ring,
		      uint32_t *n)
{
	const struct records *records;
	struct ibv_record_ring rings[2];
	uint32_t i;
	int j;

	for (*n = 0; *n < dump.num_contexts; ++*n) {
		if (strcmp(dump.contexts[*n].node, m->node))
			continue;
		records = &dump.contexts[*n].records;
		for (i = 0; i < records->count; i++) {
			for (j = ibv_record_rings(records->rec[i], rings); j-- > 0;) {
				if (rings[j].offset != m->pgoff)
					continue;
				*ring = rings[j];
				return true;
			}
		}
	}
	return false;
}

int collect_mappings(const struct dumped_task *task, RdmaTaskEntry *entry)
{
	const struct mapping *m;
	RdmaVmaEntry *vma;
	struct ibv_record_ring ring;
	uint32_t n;
	int i;

	for (i = 0; i < task->num_mappings; i++) {
		m = &task->mappings[i];
		if (!m->uverbs)
			continue;
		if (!find_ring(m, &ring, &n))
			return fail("process %d: " WHY_NO_RING, task->pid,
				    (unsigned long long)m->pgoff, m->node);
		vma = append_message(&entry->vmas, &entry->n_vmas,
				     &rdma_vma_entry__descriptor);
		if (!vma)
			return -1;
		vma->start = m->start;
		vma->end = m->end;
		vma->pgoff = m->pgoff;
		vma->context = n;
		vma->which = ring.which;
		vma->handle = ring.handle;
	}
	return 0;
}
