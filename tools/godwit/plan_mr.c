// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Whether a memory region moves: some process of the tree must have its memory mapped, with what the region needs of it.
 */
#include <endian.h>
#include <stdlib.h>
#include "plan_rdma.h"

/* The mappings of a process, in ascending order. They are kept, since each of its regions needs them. */
struct mapped {
	pid_t pid;
	struct mapping *mapping;
	size_t n;
};

static int add_mapping(const struct proc_map *map, void *arg)
{
	struct mapped *m = arg;

	GROW(m->mapping, m->n);
	m->mapping[m->n++] = (struct mapping){ .start = map->start, .end = map->end, .flags = map->flags };
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
	proc_each_map(pid, add_mapping, m);
	return m;
}

void free_mapped(struct look *look)
{
	for (size_t i = 0; i < look->n_mapped; i++)
		free(look->mapped[i].mapping);
	free(look->mapped);
}

/* Has the process the memory of the region mapped, without a hole, and with these flags? */
static bool has_memory(struct look *look, pid_t pid, const struct rxe_migr_rec_mr *mr, unsigned int needs)
{
	const struct mapped *m = mapped_by(look, pid);

	return memory_is_mapped(m->mapping, m->n, le64toh(mr->start), le64toh(mr->length), needs);
}

/* The rule by which the CRIU plugin chooses the process that registers it again (criu-plugin/dump_memory.c). */
static bool has_owner(struct look *look, const struct context *c, const struct rxe_migr_rec_mr *mr, pid_t owner,
		      unsigned int needs)
{
	if (owner > 0)
		return has_memory(look, owner, mr, needs);
	if (owner == 0)
		needs |= MEMORY_SHARED;
	for (size_t i = 0; i < c->holders.n; i++)
		if (has_memory(look, c->holders.holder[i].pid, mr, needs))
			return true;
	return false;
}

void look_at_mr(struct look *look, const struct context *c, const struct rxe_migr_rec_mr *mr)
{
	struct plan *plan = look->plan;
	json_t *object = plan_object(plan, "mr", c, mr_fields(mr));
	pid_t owner = ibv_record_owner(c->dump, c->length, mr);
	char name[IBV_RECORD_NAME_LEN];

	ibv_record_name(&mr->hdr, name, sizeof(name));
	if (owner >= 0)
		json_object_set_new(object, "pid", json_integer(owner));
	if (owner > 0 && !tree_has(&plan->tree, owner)) {
		plan_stays(plan, object, "process %d, %s, %s: " WHY_OWNER_STAYS, c->pid, c->device, name, owner);
	} else if (has_owner(look, c, mr, owner, memory_needs(le32toh(mr->access)))) {
		return;
	} else if (has_owner(look, c, mr, owner, 0)) {
		plan_stays(plan, object, "process %d, %s, %s: " WHY_PROTECTED, c->pid, c->device, name);
	} else if (owner == 0) {
		plan_stays(plan, object, "process %d, %s, %s: " WHY_OWNER_ENDED, c->pid, c->device, name);
	} else {
		plan_stays(plan, object, "process %d, %s, %s: " WHY_UNMAPPED, c->pid, c->device, name);
		plan->passing = true;
	}
}
