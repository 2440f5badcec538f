// SPDX-License-Identifier: GPL-2.0
/*
 * Checkpoint. CRIU says once for each frozen task that it is frozen, before it
 * reads a page of any; so all contexts of the tree are stopped by then, and
 * nothing is written into memory that is being saved. What is found there is
 * put together, and the images written, when CRIU asks for the first file or
 * mapping.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin.h"

struct dumped_context {
	struct ibv_context *ctx;
	char		node[NODE_LEN];
	uint32_t	device;		/* index in dump.devices */
	bool		stopped;	/* by us */
	void		*buf;
	size_t		size;		/* of buf */
	struct records	records;	/* in buf */
};

struct dumped_task {
	pid_t		pid;
	int		files;
	struct mapping	*mappings;
	int		num_mappings;
	uint32_t	*contexts;	/* that it has open */
	uint32_t	num_contexts;
};

static struct {
	struct dumped_context *contexts;
	uint32_t	num_contexts;
	struct dumped_task *tasks;
	uint32_t	num_tasks;
	RdmaDeviceEntry	*devices;
	uint32_t	num_devices;
	uint64_t	stop_ns;
	pid_t		root;		/* of the tree: CRIU names it first */
	bool		began;
	void		*room;		/* for a dump, got ahead */
	size_t		room_size;
	RdmaInventoryEntry inventory;	/* once all is stopped */
	bool		collected;
	int		result;		/* of collecting */
} dump;

/* A new, zeroed last element of an array, or NULL. */
void *append(void *array, size_t size, size_t count)
{
	void **base = array;
	char *more = realloc(*base, (count + 1) * size);

	if (!more) {
		fail("no memory");
		return NULL;
	}
	*base = more;
	return memset(more + count * size, 0, size);
}

/* The same for protobuf's arrays of pointers; NULL or a new message. */
void *append_message(void *array, size_t *count,
		     const ProtobufCMessageDescriptor *descriptor)
{
	void **slot, *msg = malloc(descriptor->sizeof_message);

	slot = append(array, sizeof(*slot), *count);
	if (!slot || !msg) {
		free(msg);
		return NULL;
	}
	descriptor->message_init(msg);
	*slot = msg;
	++*count;
	return msg;
}

/* ---------------------------------------------------------- before freezing -- */

static int refuse(pid_t pid, int fd, enum file_kind kind, const char *node,
		  void *arg)
{
	(void)fd;
	(void)arg;
	if (kind != FILE_UVERBS)
		return 0;
	return fail("process %d uses %s: pre-dump is refused, since writes of RDMA do not show in the page tables; dump at once",
		    pid, node);
}

/*
 * The kernel finds pages that were written since the last pre-dump by the page
 * tables of the process, and RDMA writes don't touch those.
 */
int refuse_predump(int pid)
{
	return for_each_fd(pid, refuse, NULL) ? -1 : -ENOTSUP;
}

static int find_device(struct ibv_context *ctx, const char *node)
{
	RdmaDeviceEntry *device;
	char name[64];
	uint32_t i;

	for (i = 0; i < dump.num_devices; i++)
		if (!strcmp(dump.devices[i].node, node))
			return i;
	if (device_name(node, name))
		return fail(VERBS_CLASS "/%s/ibdev cannot be read: %m", node);
	if (!name[0])
		return fail(VERBS_CLASS "/%s/ibdev is empty", node);
	device = append(&dump.devices, sizeof(*device), dump.num_devices);
	if (!device || read_device(ctx, name, node, device))
		return -1;
	return dump.num_devices++;
}

/* What must be right before the first context is stopped. */
static int begin(void)
{
	if (dump.began)
		return 0;
	/* (no setting is for a checkpoint; but a mistake shows while the task runs) */
	if (check_criu() || load_config())
		return -1;
	if (in_image_dir("parent"))
		return fail("this checkpoint builds on an earlier one, which is refused for processes with RDMA: writes of RDMA do not show in the page tables; dump at once");
	if (add_inventory_plugin(CR_PLUGIN_DESC.name))
		return fail("no memory");
	if (watchdog_start())
		return -1;
	pass_lock(dump.root);
	dump.began = true;
	return 0;
}

/* What a dump may grow by while its size is asked for. */
#define ROOM_SLACK	4096
/* As many pages of it are got ahead: most of a dump's largest size is not used. */
#define ROOM_POPULATED	(16 << 20)

static void populate(void *buf, size_t size)
{
	uintptr_t page = sysconf(_SC_PAGESIZE);
	uintptr_t start = ((uintptr_t)buf + page - 1) & -page;
	uintptr_t end = ((uintptr_t)buf + size) & -page;

	if (end > start + ROOM_POPULATED)
		end = start + ROOM_POPULATED;
	if (end > start)
		madvise((void *)start, end - start, MADV_POPULATE_WRITE);
}

/*
 * Memory for the largest dump, with its pages: the driver would wait for each
 * of them while the context stands still. Without, it is got when it is needed.
 */
static int get_room_ahead(struct ibv_context *ctx)
{
	int size, ret;
	void *buf;

	ret = ibv_dump_context(ctx, &size, NULL, 0);
	if (ret == ENOKEY)
		return fail(NO_KEY);
	if (ret != ENOSPC || (size_t)size <= dump.room_size)
		return 0;
	buf = realloc(dump.room, size + ROOM_SLACK);
	if (!buf)
		return 0;
	dump.room = buf;
	dump.room_size = size + ROOM_SLACK;
	populate(dump.room, dump.room_size);
	return 0;
}

/* The task runs: what it has just closed, or not opened yet, is none of ours. */
static int look_at_device(pid_t pid, int fd, enum file_kind kind,
			  const char *node, void *arg)
{
	struct rxe_migr_query query;
	struct ibv_context *ctx;
	char now[NODE_LEN];
	int mine, ret = 0;

	(void)arg;
	(void)node;
	if (kind == FILE_UVERBS && begin())
		return -1;
	mine = kind == FILE_UVERBS ? proc_get_fd(pid, fd) : -1;
	if (mine < 0)
		return 0;
	/* Perhaps that number stands for another file by now. */
	if (fd_kind(0, mine, now) != FILE_UVERBS) {
		close(mine);
		return 0;
	}
	ctx = ibv_attach_context(mine);
	if (!ctx) {
		close(mine);
		return fail("no memory");
	}
	if (!ibv_query_migration(ctx, &query)) {
		ret = find_device(ctx, now) < 0 ? -1 : 0;
		ret = ret ?: get_room_ahead(ctx);
	}
	ibv_detach_context(ctx);
	return ret;
}

/* What takes time and can be done while the task still runs. */
int look_ahead(int pid)
{
	if (!dump.root)
		dump.root = pid;
	return for_each_fd(pid, look_at_device, NULL) ? -1 : -ENOTSUP;
}

/* ---------------------------------------------------------------- contexts -- */

static int collect_records(struct dumped_context *c, uint32_t count)
{
	const char *device = dump.devices[c->device].name;
	const struct rxe_migr_rec *rec = NULL, **slot;
	char name[NAME_LEN];
	unsigned int type;
	const char *refusal;

	while (count--) {
		rec = ibv_next_record(c->buf, c->size, rec);
		if (!rec)
			return fail("%s: the driver's dump makes no sense", device);
		type = le16toh(rec->type);
		if (type == RXE_MIGR_REC_MR_OWNER)
			continue;	/* for us only: see belongs() */
		refusal = ibv_record_refusal(rec);
		if (refusal)
			return fail("%s: %s: %s", device,
				    ibv_record_name(rec, name, sizeof(name)), refusal);
		slot = append(&c->records.rec, sizeof(*slot), c->records.count);
		if (!slot)
			return -1;
		*slot = rec;
		c->records.count++;
	}
	return 0;
}

/*
 * Stop it and take its records. How many bytes they need may change until the
 * context is stopped.
 */
static int stop_context(struct dumped_context *c)
{
	const char *device = dump.devices[c->device].name;
	struct rxe_migr_query query;
	bool running;
	size_t size = 0;
	int count, ret;
	void *buf;

	ret = ibv_query_migration(c->ctx, &query);
	if (ret)
		return fail("%s: its driver cannot dump this context (%s): is it Godwit's rdma_rxe?",
			    device, strerror(ret));
	if (query.state == RXE_MIGR_CTX_RESTORING)
		return fail("%s: the context is just being restored", device);
	if (query.abi_version != RXE_MIGR_ABI_VERSION)
		return fail("%s: the driver has version %u and this plugin %u: install what belongs together",
			    device, query.abi_version, RXE_MIGR_ABI_VERSION);

	/* A tree that an earlier checkpoint left stopped stays so if this fails. */
	running = query.state != RXE_MIGR_CTX_STOPPED;
	c->buf = dump.room;
	size = dump.room_size;
	dump.room = NULL;
	dump.room_size = 0;
	ret = ibv_dump_context(c->ctx, &count, c->buf, size);
	while (ret == ENOSPC) {
		size = count + ROOM_SLACK;
		buf = realloc(c->buf, size);
		if (!buf)
			return fail("no memory");
		c->buf = buf;
		ret = ibv_dump_context(c->ctx, &count, c->buf, size);
	}
	if (ret == ENOKEY)	/* since a moment ago */
		return fail(NO_KEY);
	if (ret)
		return fail("%s: the context cannot be stopped: %s", device,
			    strerror(ret));
	c->stopped = running;
	if (!ibv_query_migration(c->ctx, &query) && query.stop_ns &&
	    (!dump.stop_ns || query.stop_ns < dump.stop_ns))
		dump.stop_ns = query.stop_ns;
	c->size = size;
	return collect_records(c, count);
}

static struct dumped_context *add_context(int fd, const char *node)
{
	struct dumped_context *c;
	struct ibv_context *ctx;
	int device;

	ctx = ibv_attach_context(fd);
	if (!ctx) {
		fail("no memory");
		return NULL;
	}
	device = find_device(ctx, node);
	c = device < 0 ? NULL :
	    append(&dump.contexts, sizeof(*c), dump.num_contexts);
	if (!c) {
		free(ctx);	/* (fd stays the caller's) */
		return NULL;
	}
	c->ctx = ctx;
	c->device = device;
	strcpy(c->node, node);
	dump.num_contexts++;
	return c;
}

/* The index of the context of a descriptor, or -1. */
static int find_context(int fd)
{
	uint32_t i;

	for (i = 0; i < dump.num_contexts; i++)
		if (same_file(dump.contexts[i].ctx->cmd_fd, fd))
			return i;
	return -1;
}

static int open_context(struct dumped_task *task, int fd, const char *node)
{
	struct dumped_context *c;
	uint32_t *slot;
	int mine, n, ret = 0;

	mine = proc_get_fd(task->pid, fd);
	if (mine < 0)
		return fail("file %d of process %d cannot be opened: %m", fd,
			    task->pid);
	n = find_context(mine);
	if (n >= 0) {
		close(mine);
	} else {
		n = dump.num_contexts;
		c = add_context(mine, node);
		if (!c) {
			close(mine);
			return -1;
		}
		ret = stop_context(c);
	}
	slot = append(&task->contexts, sizeof(*slot), task->num_contexts);
	if (!slot)
		return -1;
	*slot = n;
	task->num_contexts++;
	return ret;
}

static int know_mappings(struct dumped_task *task)
{
	if (task->num_mappings < 0)
		task->num_mappings = read_mappings(task->pid, &task->mappings);
	return task->num_mappings < 0 ? -1 : 0;
}

static int checkpoint_fd(pid_t pid, int fd, enum file_kind kind,
			 const char *node, void *arg)
{
	struct dumped_task *task = arg;

	switch (kind) {
	case FILE_UVERBS:
		task->files++;
		if (begin() || know_mappings(task) || watchdog_watch(pid))
			return -1;
		return open_context(task, fd, node);
	case FILE_EVENTS:
		task->files++;
		return 0;
	case FILE_RDMA_CM:
		task->files++;
		return begin() || look_at_cm(pid, fd) ? -1 : 0;
	default:
		return fail("process %d has /dev/infiniband/%s open (file %d), which cannot be moved",
			    pid, node, fd);
	}
}

/*
 * CRIU goes on to the next plugin in any case: a process may have a GPU, too.
 * Without RDMA it may still have the memory of a region; but as long as no task
 * has any, nobody waits for its mappings to be read.
 */
int checkpoint(int pid)
{
	struct dumped_task *task;

	task = append(&dump.tasks, sizeof(*task), dump.num_tasks);
	if (!task)
		return -1;
	task->pid = pid;
	task->num_mappings = -1;
	/* Before anything stops: it takes its time. */
	if (dump.began && know_mappings(task))
		return -1;
	if (for_each_fd(pid, checkpoint_fd, task))
		return -1;
	dump.num_tasks++;
	return -ENOTSUP;
}

/* --------------------------------------------------------------- inventory -- */

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

static int collect_mappings(const struct dumped_task *task, RdmaTaskEntry *entry)
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
			return fail("process %d maps 0x%llx of %s, which is no whole ring of an open context",
				    task->pid, (unsigned long long)m->pgoff, m->node);
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

static bool has_memory(const struct dumped_task *task, uint64_t start,
		       uint64_t length, bool shared)
{
	struct memory memory = { start, start + length, shared };
	const struct mapping *m;
	int i;

	for (i = 0; i < task->num_mappings; i++) {
		m = &task->mappings[i];
		if (memory_found(&memory, m->start, m->end, m->shared))
			return true;
	}
	return memory.start >= memory.end;
}

/* Is the region already one of a task's? */
static bool has_owner(uint32_t context, uint32_t handle)
{
	const RdmaTaskEntry *task;
	size_t i, j;

	for (i = 0; i < dump.inventory.n_tasks; i++) {
		task = dump.inventory.tasks[i];
		for (j = 0; j < task->n_mrs; j++)
			if (task->mrs[j]->context == context &&
			    task->mrs[j]->handle == handle)
				return true;
	}
	return false;
}

static bool has_open(const struct dumped_task *task, uint32_t context)
{
	uint32_t i;

	for (i = 0; i < task->num_contexts; i++)
		if (task->contexts[i] == context)
			return true;
	return false;
}

/*
 * Is the region this task's memory? If the one that has registered it has
 * ended, it is any other's that has the same memory: shared, that is. If the
 * driver does not say who it was, it is taken to be the first that has the
 * context open and something mapped there: parents come before their children,
 * and after fork() it is the parent that keeps the pages that were pinned.
 */
static bool belongs(const struct dumped_task *task, uint32_t context,
		    const struct rxe_migr_rec_mr *mr)
{
	const struct dumped_context *c = &dump.contexts[context];
	pid_t owner = ibv_record_owner(c->buf, c->size, mr);

	if (!has_memory(task, le64toh(mr->start), le64toh(mr->length), !owner))
		return false;
	return owner > 0 ? task->pid == owner : has_open(task, context);
}

static int collect_regions(const struct dumped_task *task, RdmaTaskEntry *entry)
{
	const struct rxe_migr_rec_mr *mr;
	const struct records *records;
	RdmaMrOwnerEntry *owner;
	uint32_t i, j;

	for (i = 0; i < dump.num_contexts; i++) {
		records = &dump.contexts[i].records;
		for (j = 0; j < records->count; j++) {
			mr = (const void *)records->rec[j];
			if (le16toh(mr->hdr.type) != RXE_MIGR_REC_MR ||
			    !belongs(task, i, mr) ||
			    has_owner(i, le32toh(mr->hdr.handle)))
				continue;
			owner = append_message(&entry->mrs, &entry->n_mrs,
					       &rdma_mr_owner_entry__descriptor);
			if (!owner)
				return -1;
			owner->context = i;
			owner->handle = le32toh(mr->hdr.handle);
		}
	}
	return 0;
}

static bool is_dumped(pid_t pid)
{
	uint32_t i;

	for (i = 0; i < dump.num_tasks; i++)
		if (dump.tasks[i].pid == pid)
			return true;
	return false;
}

static int nobodys(const struct dumped_context *c, const struct rxe_migr_rec *mr)
{
	pid_t owner = ibv_record_owner(c->buf, c->size, (const void *)mr);
	const char *device = dump.devices[c->device].name;
	char name[NAME_LEN];

	ibv_record_name(mr, name, sizeof(name));
	if (!owner)
		return fail("%s: %s: the process whose memory it is has ended, and it cannot be registered again",
			    device, name);
	if (owner > 0 && !is_dumped(owner))
		return fail("%s: %s: its memory is that of process %d, which is not moved",
			    device, name, owner);
	return fail("%s: %s: its memory is no longer mapped, and cannot be registered again: deregister it, or try again",
		    device, name);
}

static int check_regions(void)
{
	const struct records *records;
	uint32_t i, j;

	for (i = 0; i < dump.num_contexts; i++) {
		records = &dump.contexts[i].records;
		for (j = 0; j < records->count; j++)
			if (le16toh(records->rec[j]->type) == RXE_MIGR_REC_MR &&
			    !has_owner(i, le32toh(records->rec[j]->handle)))
				return nobodys(&dump.contexts[i], records->rec[j]);
	}
	return 0;
}

static int collect_tasks(void)
{
	RdmaTaskEntry *entry;
	uint32_t i;

	for (i = 0; i < dump.num_tasks; i++) {
		if (know_mappings(&dump.tasks[i]))
			return -1;
		entry = append_message(&dump.inventory.tasks,
				       &dump.inventory.n_tasks,
				       &rdma_task_entry__descriptor);
		if (!entry)
			return -1;
		entry->pid = inner_pid(dump.tasks[i].pid);
		entry->files = dump.tasks[i].files;
		entry->contexts = dump.tasks[i].contexts;
		entry->n_contexts = dump.tasks[i].num_contexts;
		if (collect_mappings(&dump.tasks[i], entry) ||
		    collect_regions(&dump.tasks[i], entry))
			return -1;
	}
	return check_regions();
}

static int by_qpn(const void *a, const void *b)
{
	const struct rxe_migr_status *x = a, *y = b;

	return x->qpn < y->qpn ? -1 : x->qpn > y->qpn;
}

/* All QPs of the device that are not plainly running, by their numbers; none if there are too many. */
static int read_status(struct ibv_context *ctx, struct rxe_migr_status **status)
{
	struct rxe_migr_status *more;
	int count, room = 0, ret, i, n = 0;

	*status = NULL;
	while ((ret = ibv_query_device_migration(ctx, &count, *status, room)) == ENOSPC) {
		if (room > count)	/* there are more than the driver tells */
			break;
		room = count + 64;
		more = realloc(*status, room * sizeof(*more));
		if (!more)
			return fail("no memory");
		*status = more;
	}
	if (ret && ret != ENOSPC)
		return fail("the states of the QPs cannot be read: %s", strerror(ret));
	for (i = 0; !ret && i < count; i++)
		if (!(*status)[i].tombstone)
			(*status)[n++] = (*status)[i];
	qsort(*status, n, sizeof(**status), by_qpn);
	return n;
}

/*
 * STOP is sent when a dump is complete. Peers may have answered it since, and
 * are waited for longer than such that may not speak the protocol at all.
 */
static int note_answers(struct dumped_context *c)
{
	struct rxe_migr_status *status, key, *now;
	struct rxe_migr_rec_qp *qp;
	uint32_t i;
	int n;

	n = read_status(c->ctx, &status);
	for (i = 0; n > 0 && i < c->records.count; i++) {
		qp = (void *)c->records.rec[i];
		if (le16toh(qp->hdr.type) != RXE_MIGR_REC_QP)
			continue;
		key.qpn = le32toh(qp->qpn);
		now = bsearch(&key, status, n, sizeof(*status), by_qpn);
		if (now && now->flags & RXE_MIGR_STATUS_PEER_KNOWS)
			qp->flags |= RXE_MIGR_QP_PEER_KNOWS;
	}
	free(status);
	return n < 0 ? -1 : 0;
}

static int write_contexts(void)
{
	RdmaContextImageEntry *entry;
	uint32_t i;

	for (i = 0; i < dump.num_contexts; i++) {
		entry = append_message(&dump.inventory.contexts,
				       &dump.inventory.n_contexts,
				       &rdma_context_image_entry__descriptor);
		if (!entry)
			return -1;
		entry->device = dump.contexts[i].device;
		if (note_answers(&dump.contexts[i]) ||
		    write_context(i, &dump.contexts[i].records, entry))
			return -1;
	}
	return 0;
}

static int add_devices(void)
{
	RdmaDeviceEntry **slot;
	uint32_t i;

	for (i = 0; i < dump.num_devices; i++) {
		slot = append(&dump.inventory.devices, sizeof(*slot), i);
		if (!slot)
			return -1;
		*slot = &dump.devices[i];
		dump.inventory.n_devices++;
	}
	return 0;
}

/* All tasks are frozen, all contexts stopped: put it together. */
static int collect(void)
{
	if (dump.collected)
		return dump.result;
	dump.collected = true;
	dump.result = -1;
	rdma_inventory_entry__init(&dump.inventory);
	dump.inventory.version = IMAGE_VERSION;
	dump.inventory.abi_version = RXE_MIGR_ABI_VERSION;
	dump.inventory.stop_ns = dump.stop_ns;
	note_time(&dump.inventory);
	if (!add_devices() && !collect_tasks() && !write_contexts())
		dump.result = write_inventory(&dump.inventory);
	return dump.result;
}

/* ------------------------------------------------------ files and mappings -- */

int accept_mapping(const struct stat *st)
{
	char node[NODE_LEN];

	if (!S_ISCHR(st->st_mode) || device_kind(st->st_rdev, node) != FILE_UVERBS)
		return -ENOTSUP;
	return collect();
}

static int add_file(int fd, int id, uint32_t context, uint32_t type,
		    uint32_t handle)
{
	RdmaFileEntry *entry;
	int flags;

	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return fail("the flags of a file cannot be read: %m");
	entry = append_message(&dump.inventory.files, &dump.inventory.n_files,
			       &rdma_file_entry__descriptor);
	if (!entry)
		return -1;
	entry->id = id;
	entry->context = context;
	entry->type = type;
	entry->handle = handle;
	entry->flags = flags;

	/* CRIU does not say which file is the last. */
	return write_inventory(&dump.inventory);
}

int find_qp_context(const char *device, uint32_t qp_num)
{
	const struct rxe_migr_rec_qp *qp;
	const struct dumped_context *c;
	uint32_t i, j;

	for (i = 0; i < dump.num_contexts; i++) {
		c = &dump.contexts[i];
		if (strcmp(dump.devices[c->device].name, device))
			continue;
		for (j = 0; j < c->records.count; j++) {
			qp = (const void *)c->records.rec[j];
			if (le16toh(qp->hdr.type) == RXE_MIGR_REC_QP &&
			    le32toh(qp->qpn) == qp_num)
				return i;
		}
	}
	return -1;
}

struct ibv_context *dumped_context(uint32_t n, const char **device)
{
	if (n >= dump.num_contexts)
		return NULL;
	*device = dump.devices[dump.contexts[n].device].name;
	return dump.contexts[n].ctx;
}

static int dump_event_file(int fd, int id)
{
	struct rxe_migr_event_fd file;
	uint32_t i;
	int ret;

	for (i = 0; i < dump.num_contexts; i++) {
		ret = ibv_query_event_fd(dump.contexts[i].ctx, fd, &file);
		if (!ret)
			return add_file(fd, id, i, file.type, file.handle);
		if (ret != ENOENT)
			return fail("event file: the driver cannot tell what it is: %s",
				    strerror(ret));
	}
	return fail("an event file is open whose context is closed: it cannot be moved");
}

int dump_file(int fd, int id)
{
	char node[NODE_LEN];
	int n;

	switch (fd_kind(0, fd, node)) {
	case FILE_UVERBS:
		if (collect())
			return -1;
		n = find_context(fd);
		if (n < 0)
			return fail("%s: a context turned up after all were stopped",
				    node);
		return add_file(fd, id, n, RXE_MIGR_REC_CONTEXT, 0);
	case FILE_EVENTS:
		return collect() ? -1 : dump_event_file(fd, id);
	case FILE_RDMA_CM:
		return collect() ? -1 : dump_cm_file(fd, id, &dump.inventory);
	default:
		return -ENOTSUP;
	}
}

/* --------------------------------------------------------------------- end -- */

/*
 * Before CRIU lets go of the tasks. It does not say whether they are to live
 * on after a checkpoint that has succeeded: the watchdog sees that.
 */
void dump_end(bool failed)
{
	struct dumped_context *c;
	uint32_t i;
	int ret;

	for (i = 0; i < dump.num_contexts; i++) {
		c = &dump.contexts[i];
		ret = failed && c->stopped ? ibv_abort_context(c->ctx) : 0;
		if (ret)
			fail("%s: the context cannot be let go on: %s",
			     dump.devices[c->device].name, strerror(ret));
		ibv_detach_context(c->ctx);
	}
	end_cm();
	pass_lock_end();
	watchdog_leave(!failed);
}
