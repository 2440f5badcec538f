// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: memory that a process and the driver share. The records have the
 * contents of a ring. In the process a ring is a mapping, which is known by its
 * offset in the device file.
 */
#include <stdlib.h>
#include <string.h>

#include "dump.h"

struct known_ring {
	struct ibv_record_ring ring;
	uint32_t	context;
};

/* The rings of all contexts, by their offsets. */
static struct known_ring *rings;
static uint32_t num_rings;

static int by_offset(const void *a, const void *b)
{
	const struct known_ring *x = a, *y = b;

	if (x->ring.offset != y->ring.offset)
		return x->ring.offset < y->ring.offset ? -1 : 1;
	return (x->context > y->context) - (x->context < y->context);
}

static int add_rings(uint32_t context, const struct rxe_migr_rec *rec)
{
	struct ibv_record_ring its[2];
	struct known_ring *known;
	int i;

	for (i = ibv_record_rings(rec, its); i-- > 0;) {
		known = append(&rings, sizeof(*known), num_rings);
		if (!known)
			return -1;
		*known = (struct known_ring){ its[i], context };
		num_rings++;
	}
	return 0;
}

int collect_rings(void)
{
	const struct records *records;
	uint32_t i, j;

	for (i = 0; i < dump.num_contexts; i++) {
		records = &dump.contexts[i].records;
		for (j = 0; j < records->count; j++)
			if (add_rings(i, records->rec[j]))
				return -1;
	}
	if (num_rings)
		qsort(rings, num_rings, sizeof(*rings), by_offset);
	return 0;
}

/* Two devices may have rings at one offset: the device decides. */
static const struct known_ring *find_ring(const struct mapping *m)
{
	uint32_t from = 0, to = num_rings, middle;

	while (from < to) {
		middle = from + (to - from) / 2;
		if (rings[middle].ring.offset < m->pgoff)
			from = middle + 1;
		else
			to = middle;
	}
	for (; from < num_rings && rings[from].ring.offset == m->pgoff; from++)
		if (!strcmp(dump.contexts[rings[from].context].node, m->node))
			return &rings[from];
	return NULL;
}

int collect_mappings(const struct dumped_task *task, RdmaTaskEntry *entry)
{
	const struct known_ring *known;
	const struct mapping *m;
	RdmaVmaEntry *vma;
	int i;

	for (i = 0; i < task->num_mappings; i++) {
		m = &task->mappings[i];
		if (!m->uverbs)
			continue;
		known = find_ring(m);
		if (!known)
			return fail("process %d: " WHY_NO_RING, task->pid,
				    (unsigned long long)m->pgoff, m->node);
		vma = append_message(&entry->vmas, &entry->n_vmas,
				     &rdma_vma_entry__descriptor);
		if (!vma)
			return -1;
		vma->start = m->start;
		vma->end = m->end;
		vma->pgoff = m->pgoff;
		vma->context = known->context;
		vma->which = known->ring.which;
		vma->handle = known->ring.handle;
	}
	return 0;
}
