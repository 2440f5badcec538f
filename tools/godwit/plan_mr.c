// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Whether a memory region moves: some process of the tree must have its memory mapped, with what the region needs of it.
 */
#include <endian.h>
#include <stdlib.h>
#include "plan_rdma.h"
#include "region.h"

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

struct search {
	struct look *look;
	const struct context *context;
	const struct rxe_migr_rec_mr *mr;
	pid_t owner;
};

static bool has_memory(const struct search *s, pid_t pid, unsigned int needs)
{
	const struct mapped *m = mapped_by(s->look, pid);

	return memory_is_mapped(m->mapping, m->n, le64toh(s->mr->start), le64toh(s->mr->length), needs);
}

/* See region_fate(). */
static bool find_process(unsigned int needs, void *arg)
{
	const struct search *s = arg;
	const struct holders *holders = &s->context->holders;

	if (s->owner > 0)
		return has_memory(s, s->owner, needs);
	for (size_t i = 0; i < holders->n; i++)
		if (has_memory(s, holders->holder[i].pid, needs))
			return true;
	return false;
}

void look_at_mr(struct look *look, const struct context *c, const struct rxe_migr_rec_mr *mr)
{
	struct plan *plan = look->plan;
	json_t *object = plan_object(plan, "mr", c, mr_fields(mr));
	pid_t owner = ibv_record_owner(c->dump, c->length, mr);
	struct search s = { .look = look, .context = c, .mr = mr, .owner = owner };
	char name[IBV_RECORD_NAME_LEN], why[REGION_WHY_LEN];
	enum region_fate fate;

	if (owner >= 0)
		json_object_set_new(object, "pid", json_integer(owner));
	fate = region_fate(owner, owner > 0 && !tree_has(&plan->tree, owner), le32toh(mr->access), find_process, &s, why);
	if (fate == REGION_MOVES)
		return;
	ibv_record_name(&mr->hdr, name, sizeof(name));
	plan_stays(plan, object, "process %d, %s, %s: %s", c->pid, c->device, name, why);
	plan->passing |= fate == REGION_UNMAPPED;
}
