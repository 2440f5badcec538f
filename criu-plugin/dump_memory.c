// SPDX-License-Identifier: GPL-2.0
/* Which of the dumped tasks has the memory of each region. */
#include <endian.h>

#include "dump.h"

static bool has_open(const struct dumped_task *task, uint32_t context)
{
	uint32_t i;

	for (i = 0; i < task->num_contexts; i++)
		if (task->contexts[i] == context)
			return true;
	return false;
}

/*
 * Is the region this task's memory? It is if this task has registered it, and
 * still has all of it mapped, with the access that the region needs. If the
 * task that registered it has ended, the region belongs to the first task that
 * has the context open and has the memory mapped, shared. If the driver does
 * not say which task registered it, the region belongs to the first that has
 * the context open and the memory mapped: parents come before their children,
 * and after fork() the parent keeps the pages that were pinned.
 */
static bool belongs(const struct dumped_task *task, uint32_t context,
		    const struct rxe_migr_rec_mr *mr, unsigned int needs)
{
	const struct dumped_context *c = &dump.contexts[context];
	pid_t owner = ibv_record_owner(c->buf, c->size, mr);

	if (owner > 0 ? task->pid != owner : !has_open(task, context))
		return false;
	if (!owner)
		needs |= MEMORY_SHARED;
	return memory_is_mapped(task->mappings, task->num_mappings,
				le64toh(mr->start), le64toh(mr->length), needs);
}

static bool is_dumped(pid_t pid)
{
	uint32_t i;

	for (i = 0; i < dump.num_tasks; i++)
		if (dump.tasks[i].pid == pid)
			return true;
	return false;
}

static int nobodys(uint32_t context, const struct rxe_migr_rec_mr *mr)
{
	const struct dumped_context *c = &dump.contexts[context];
	pid_t owner = ibv_record_owner(c->buf, c->size, mr);
	const char *device = dump.devices[c->device].name;
	char name[IBV_RECORD_NAME_LEN];
	uint32_t i;

	ibv_record_name(&mr->hdr, name, sizeof(name));
	for (i = 0; i < dump.num_tasks; i++)
		if (belongs(&dump.tasks[i], context, mr, 0))
			return fail("%s: %s: " WHY_PROTECTED, device, name);
	if (!owner)
		return fail("%s: %s: " WHY_OWNER_ENDED, device, name);
	if (owner > 0 && !is_dumped(owner))
		return fail("%s: %s: " WHY_OWNER_STAYS, device, name, owner);
	return fail("%s: %s: " WHY_UNMAPPED, device, name);
}

static int collect_region(uint32_t context, const struct rxe_migr_rec_mr *mr)
{
	const unsigned int needs = memory_needs(le32toh(mr->access));
	RdmaMrOwnerEntry *owner;
	RdmaTaskEntry *task;
	uint32_t i;

	for (i = 0; i < dump.num_tasks; i++)
		if (belongs(&dump.tasks[i], context, mr, needs))
			break;
	if (i == dump.num_tasks)
		return nobodys(context, mr);
	task = dump.inventory.tasks[i];
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
