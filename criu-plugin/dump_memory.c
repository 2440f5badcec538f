// SPDX-License-Identifier: GPL-2.0
/* Which of the dumped tasks has the memory of each region. */
#include <endian.h>

#include "dump.h"
#include "region.h"

static bool has_open(const struct dumped_task *task, uint32_t context)
{
	uint32_t i;

	for (i = 0; i < task->num_contexts; i++)
		if (task->contexts[i] == context)
			return true;
	return false;
}

struct search {
	const struct rxe_migr_rec_mr *mr;
	uint32_t	context;
	pid_t		owner;
	uint32_t	task;		/* that was found */
};

/* See region_fate(). */
static bool find_task(unsigned int needs, void *arg)
{
	struct search *s = arg;
	const struct dumped_task *task;

	for (s->task = 0; s->task < dump.num_tasks; s->task++) {
		task = &dump.tasks[s->task];
		if ((s->owner > 0 ? task->pid == s->owner : has_open(task, s->context)) &&
		    memory_is_mapped(task->mappings, task->num_mappings,
				     le64toh(s->mr->start), le64toh(s->mr->length), needs))
			return true;
	}
	return false;
}

static bool is_dumped(pid_t pid)
{
	uint32_t i;

	for (i = 0; i < dump.num_tasks; i++)
		if (dump.tasks[i].pid == pid)
			return true;
	return false;
}

static int collect_region(uint32_t context, const struct rxe_migr_rec_mr *mr)
{
	const struct dumped_context *c = &dump.contexts[context];
	pid_t of = ibv_record_owner(c->buf, c->size, mr);
	struct search s = { .mr = mr, .context = context, .owner = of };
	char name[IBV_RECORD_NAME_LEN], why[REGION_WHY_LEN];
	RdmaMrOwnerEntry *owner;
	RdmaTaskEntry *task;

	if (region_fate(of, of > 0 && !is_dumped(of), le32toh(mr->access),
			find_task, &s, why) != REGION_MOVES) {
		ibv_record_name(&mr->hdr, name, sizeof(name));
		return fail("%s: %s: %s", dump.devices[c->device].name, name, why);
	}
	task = dump.inventory.tasks[s.task];
	owner = append_message(&task->mrs, &task->n_mrs,
			       &rdma_mr_owner_entry__descriptor);
	if (!owner)
		return -1;
	owner->context = context;
	owner->handle = le32toh(mr->hdr.handle);
	return 0;
}

int collect_regions(void)
{
	const struct records *records;
	uint32_t i, j;

	for (i = 0; i < dump.num_contexts; i++) {
		records = &dump.contexts[i].records;
		for (j = 0; j < records->count; j++)
			if (le16toh(records->rec[j]->type) == RXE_MIGR_REC_MR &&
			    collect_region(i, (const void *)records->rec[j]))
				return -1;
	}
	return 0;
}
