// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Who has the RDMA files of a process tree open: processes of the tree, and others.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "rdma.h"

/* ---------------------------------------------------------- event files -- */

static bool is_event_file(const struct proc_fd *fd)
{
	return !strcmp(fd->link, EVENT_FILE);
}

static const struct context *context_of_event(const struct contexts *list, const struct proc_fd *fd,
					      struct rxe_migr_event_fd *file)
{
	int copy = proc_get_fd(fd->pid, fd->fd);
	const struct context *found = NULL;

	for (size_t i = 0; !found && copy >= 0 && i < list->n; i++) {
		struct ibv_context *ctx = context_attach(&list->context[i]);

		if (!ctx)
			continue;
		if (ibv_query_event_fd(ctx, copy, file) == 0)
			found = &list->context[i];
		ibv_detach_context(ctx);
	}
	close_fd(&copy);
	return found;
}

struct event_search {
	const struct contexts *list;
	struct event_files *files;
};

static int add_event_file(const struct proc_fd *fd, void *arg)
{
	struct event_search *s = arg;
	struct event_file *f;

	if (!is_event_file(fd))
		return 0;
	for (size_t i = 0; i < s->files->n; i++)
		if (holders_have(&s->files->file[i].holders, fd)) {
			holders_add(&s->files->file[i].holders, fd);
			return 0;
		}
	GROW(s->files->file, s->files->n);
	f = &s->files->file[s->files->n++];
	*f = (struct event_file){ 0 };
	f->context = context_of_event(s->list, fd, &f->file);
	holders_add(&f->holders, fd);
	return 0;
}

int event_files_find(const struct tree *tree, const struct contexts *list, struct event_files *files)
{
	*files = (struct event_files){ 0 };
	return proc_each_fd(tree, add_event_file, &(struct event_search){ list, files });
}

void event_files_free(struct event_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		free(files->file[i].holders.holder);
	free(files->file);
	*files = (struct event_files){ 0 };
}

/* ---------------------------------------------------------------- rings -- */

static int by_offset(const void *a, const void *b)
{
	const struct ring *x = a, *y = b;

	return (x->offset > y->offset) - (x->offset < y->offset);
}

void rings_collect(const struct contexts *list, struct rings *rings)
{
	*rings = (struct rings){ 0 };
	for (size_t i = 0; i < list->n; i++) {
		const struct context *c = &list->context[i];
		const struct rxe_migr_rec *rec;

		ibv_for_each_record(rec, c->dump, c->length) {
			struct ibv_record_ring its[2];

			for (int n = ibv_record_rings(rec, its); n-- > 0;) {
				GROW(rings->ring, rings->n);
				rings->ring[rings->n++] = (struct ring){ its[n].offset, i };
			}
		}
	}
	if (rings->n)
		qsort(rings->ring, rings->n, sizeof(*rings->ring), by_offset);
}

void rings_free(struct rings *rings)
{
	free(rings->ring);
	*rings = (struct rings){ 0 };
}

const struct ring *rings_find(const struct rings *rings, const struct contexts *list, const char *device,
			      uint64_t offset)
{
	size_t low = 0, high = rings->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (rings->ring[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	/* Two devices may have rings at one offset: the device decides. */
	for (; low < rings->n && rings->ring[low].offset == offset; low++)
		if (!device || !strcmp(list->context[rings->ring[low].context].device, device))
			return &rings->ring[low];
	return NULL;
}

/* ------------------------------------------------------------ outsiders -- */

struct outside {
	const struct tree *tree;
	struct contexts *list;
	struct event_files *files;
	const struct rings *rings;
};

/* Another godwit holds a file only while it looks at it. */
static bool is_outside(const struct outside *o, pid_t pid)
{
	return tree_leaves(o->tree, pid) && !proc_is_ours(pid);
}

static int outside_fd(const struct proc_fd *fd, void *arg)
{
	struct outside *o = arg;
	char device[64];

	if (tree_has(o->tree, fd->pid))
		return 0;
	if (S_ISCHR(fd->st.st_mode) && rdma_node(fd->st.st_rdev, device) == FILE_UVERBS) {
		for (size_t i = 0; i < o->list->n; i++)
			if (holders_have(&o->list->context[i].holders, fd) && is_outside(o, fd->pid))
				o->list->context[i].holders.outsider = fd->pid;
	} else if (is_event_file(fd)) {
		for (size_t i = 0; i < o->files->n; i++)
			if (holders_have(&o->files->file[i].holders, fd) && is_outside(o, fd->pid))
				o->files->file[i].holders.outsider = fd->pid;
	}
	return 0;
}

static int outside_map(const struct proc_map *map, void *arg)
{
	struct outside *o = arg;
	char path[MAP_PATH_LEN], device[64];
	const struct ring *ring;
	struct stat st;

	if (!map->shared || !rings_find(o->rings, o->list, NULL, map->offset))
		return 0;
	proc_map_path(map, path);
	if (stat_identity(AT_FDCWD, path, &st) || !S_ISCHR(st.st_mode) || rdma_node(st.st_rdev, device) != FILE_UVERBS)
		return 0;
	ring = rings_find(o->rings, o->list, device, map->offset);
	/* A ring of a device that is gone may have this number and offset, too. */
	if (ring && same_file(&o->list->context[ring->context].st, &st) && tree_leaves(o->tree, map->pid))
		o->list->context[ring->context].holders.outsider = map->pid;
	return 0;
}

static int outside_maps(pid_t pid, void *arg)
{
	struct outside *o = arg;

	return tree_has(o->tree, pid) ? 0 : proc_each_map(pid, outside_map, o);
}

void find_outsiders(const struct tree *tree, struct contexts *list, struct event_files *files,
		    const struct rings *rings)
{
	struct outside o = { .tree = tree, .list = list, .files = files, .rings = rings };

	if (!list->n && !files->n)
		return;
	proc_each_fd_of_all(outside_fd, &o);
	if (rings->n)
		proc_each(outside_maps, &o);
}

struct outside_search {
	const struct tree *tree;
	const struct proc_fd *fd;
	pid_t pid;
};

static int has_open(const struct proc_end *end, void *arg)
{
	struct outside_search *s = arg;

	if (!proc_same_file(s->fd->pid, s->fd->fd, end->pid, end->fd) || !tree_leaves(s->tree, end->pid) ||
	    proc_is_ours(end->pid))
		return 0;
	s->pid = end->pid;
	return 1;
}

pid_t find_outsider(const struct tree *tree, struct proc_ends *ends, const struct proc_fd *fd)
{
	struct outside_search s = { .tree = tree, .fd = fd };

	proc_each_end(ends, S_IFCHR, fd->st.st_rdev, has_open, &s);
	return s.pid;
}
