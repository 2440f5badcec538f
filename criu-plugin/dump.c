// SPDX-License-Identifier: GPL-2.0
/*
 * Checkpoint. When all tasks are frozen, and before it reads a page of any,
 * CRIU calls checkpoint() for each task. This stops all contexts of the tree,
 * so nothing is written into memory that is being saved. When CRIU asks for the
 * first file or mapping, the plugin puts together what it has found, and writes
 * the images.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dump.h"

struct dump dump;

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
 * The kernel looks in the process's page tables for pages that were written
 * since the last pre-dump. RDMA writes don't touch these tables.
 */
int refuse_predump(int pid)
{
	return for_each_fd(pid, refuse, NULL) ? -1 : -ENOTSUP;
}

/*
 * Tasks make their contexts themselves, and the driver wants a capability in
 * the initial user namespace for that. CRIU has it, or the driver dumps
 * nothing. A task in another user namespace never has it. (CRIU itself refuses
 * a tree with several user namespaces.)
 */
static int refuse_user_namespace(pid_t root)
{
	uint64_t its = proc_ns(root, "user");

	/* 0: the task has ended, and CRIU says so */
	if (!its || its == proc_ns(getpid(), "user"))
		return 0;
	return fail("process %d has a user namespace of its own, in which no context can be restored: start it without one",
		    root);
}

/* What must be right before the first context is stopped. */
static int begin(void)
{
	if (dump.began)
		return 0;
	/*
	 * A mistake in the configuration shows here, while the task runs. No
	 * setting matters for a dump.
	 */
	if (check_criu() || load_config())
		return -1;
	if (in_image_dir("parent"))
		return fail("this checkpoint builds on an earlier one, which is refused for processes with RDMA: writes of RDMA do not show in the page tables; dump at once");
	if (criu_streams())
		return fail("--stream is refused for processes with RDMA, whose images would not be in the stream: dump into a folder");
	if (watchdog_start())
		return -1;
	pass_lock(dump.root);
	dump.began = true;
	return 0;
}

/* The task runs: skip a file that it has just closed or not opened yet. */
static int look_at_device(pid_t pid, int fd, enum file_kind kind,
			  const char *node, void *arg)
{
	struct rxe_migr_query query;
	struct ibv_context *ctx;
	char now[NODE_LEN];
	int mine, ret = 0;

	(void)arg;
	(void)node;
	if (kind == FILE_UVERBS &&
	    (begin() || refuse_user_namespace(dump.root)))
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
		if (query.state == RXE_MIGR_CTX_STOPPED) {
			dump.found_stopped = true;
			ret = watchdog_watch(pid, true);
		}
		if (!ret && find_device(ctx, now) < 0)
			ret = -1;
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

/* ------------------------------------------------------------------- frozen -- */

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
	char path[64];

	switch (kind) {
	case FILE_UVERBS:
		task->files++;
		if (begin() || refuse_user_namespace(dump.root) ||
		    refuse_outsiders() || know_mappings(task) ||
		    watchdog_watch(pid, false))
			return -1;
		return open_context(task, fd, node);
	case FILE_EVENTS:
		task->files++;
		return 0;
	case FILE_RDMA_CM:
		task->files++;
		return begin() || refuse_outsiders() || look_at_cm(pid, fd) ?
			-1 : 0;
	default:
		snprintf(path, sizeof(path), NODES "/%s", node);
		return fail("process %d, descriptor %d: " WHY_DEVICE, pid, fd, path);
	}
}

static int own_netns = -1;	/* CRIU's, while it is in that of its tasks */

static int leave_tasks_netns(void)
{
	int own = own_netns;

	own_netns = -1;
	return leave_netns(own);
}

/*
 * CRIU will open the files of mappings anew. Where network namespaces do not
 * share devices, a device can be opened only in the namespace that has it. So
 * from now on CRIU is in the network namespace of its tasks.
 */
static int enter_tasks_netns(void)
{
	return dump.num_contexts && !rdma_is_shared() ?
		enter_netns(dump.root, &own_netns) : 0;
}

static void interrupted(int signo)
{
	(void)signo;
}

/*
 * Whoever finds that CRIU hangs in the dump may interrupt it by SIGALRM, as
 * godwit does, and CRIU undoes the dump. But CRIU's own handler, for the
 * time until all tasks are frozen, lets the signal come again each second, also
 * while CRIU undoes the dump, and then aborts.
 */
static void take_one_alarm(void)
{
	static const struct sigaction once = { .sa_handler = interrupted };

	sigaction(SIGALRM, &once, NULL);
}

/*
 * Returns -ENOTSUP, so that CRIU asks the next plugin, too: a process may have
 * a GPU. A task without RDMA may have the memory of a region, so its mappings
 * are read; but not before a task with RDMA is found, so that a checkpoint
 * without RDMA does not wait for it.
 */
int checkpoint(int pid)
{
	struct dumped_task *task;

	if (!dump.num_tasks)
		take_one_alarm();
	if (leave_tasks_netns())
		return -1;
	task = append(&dump.tasks, sizeof(*task), dump.num_tasks);
	if (!task)
		return -1;
	task->pid = pid;
	task->num_mappings = -1;
	/* This takes time, so do it before this task's contexts are stopped. */
	if (dump.began && know_mappings(task))
		return -1;
	if (for_each_fd(pid, checkpoint_fd, task))
		return -1;
	dump.num_tasks++;
	return enter_tasks_netns() ? -1 : -ENOTSUP;
}

/* ---------------------------------------------------------------- inventory -- */

static int collect_tasks(void)
{
	RdmaTaskEntry *entry;
	uint32_t i;

	if (collect_rings())
		return -1;
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
		if (collect_mappings(&dump.tasks[i], entry))
			return -1;
	}
	return collect_regions();
}

static int write_contexts(void)
{
	RdmaContextImageEntry *entry;
	uint32_t i;

	for (i = 0; i < dump.num_devices; i++)
		if (note_answers(i))
			return -1;
	for (i = 0; i < dump.num_contexts; i++) {
		entry = append_message(&dump.inventory.contexts,
				       &dump.inventory.n_contexts,
				       &rdma_context_image_entry__descriptor);
		if (!entry)
			return -1;
		entry->device = dump.contexts[i].device;
		if (write_context(i, &dump.contexts[i].records, entry))
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

/* All tasks are frozen and all contexts are stopped: write the images. */
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
	note_needs(&dump.inventory);
	if (!add_devices() && !collect_tasks() && !write_contexts())
		dump.result = write_inventory(&dump.inventory);
	/*
	 * A restore fails if CRIU's inventory names the plugin and its images
	 * are missing. So CRIU names the plugin only when they are there: they
	 * never are if a task closed its files just before it was frozen.
	 */
	if (!dump.result && dump.began &&
	    add_inventory_plugin(CR_PLUGIN_DESC.name))
		dump.result = fail("no memory");
	return dump.result;
}

/* ------------------------------------------------------- files and mappings -- */

int accept_mapping(const struct stat *st)
{
	char node[NODE_LEN];

	if (!S_ISCHR(st->st_mode) || device_kind(st->st_rdev, node) != FILE_UVERBS)
		return -ENOTSUP;
	return collect();
}

/*
 * CRIU does not say which file is the last, so each is added when CRIU names
 * it; and to write the whole inventory again each time would take too long.
 */
static int add_to_inventory(RdmaFileEntry *file, RdmaCmFileEntry *cm_file)
{
	RdmaInventoryEntry more = RDMA_INVENTORY_ENTRY__INIT;

	more.version = dump.inventory.version;	/* required in each part */
	more.abi_version = dump.inventory.abi_version;
	more.stop_ns = dump.inventory.stop_ns;
	more.files = &file;
	more.n_files = !!file;
	more.cm_files = &cm_file;
	more.n_cm_files = !!cm_file;
	dump.result = extend_inventory(&more);
	return dump.result;
}

static int add_file(int fd, int id, uint32_t context, uint32_t type,
		    uint32_t handle)
{
	RdmaFileEntry entry = RDMA_FILE_ENTRY__INIT;
	int flags;

	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return fail("the flags of a file cannot be read: %m");
	entry.id = id;
	entry.context = context;
	entry.type = type;
	entry.handle = handle;
	entry.flags = flags;
	return add_to_inventory(&entry, NULL);
}

static int add_cm_file(int fd, int id)
{
	RdmaCmFileEntry entry = RDMA_CM_FILE_ENTRY__INIT;

	return dump_cm_file(fd, id, &entry) || add_to_inventory(NULL, &entry) ?
		-1 : 0;
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
	return fail(WHY_NO_CONTEXT);
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
		return collect() ? -1 : add_cm_file(fd, id);
	default:
		return -ENOTSUP;
	}
}

/* ---------------------------------------------------------------------- end -- */

/*
 * CRIU calls this before it lets go of the tasks. It does not say whether they
 * live on after a good checkpoint: the watchdog sees that. After a failed one the
 * watchdog stays only if this dump found contexts that an earlier dump had stopped,
 * since the watchdog of that dump may be dead. A watchdog also goes if its dump failed
 * before it stopped anything.
 */
void dump_end(bool failed)
{
	leave_tasks_netns();
	end_contexts(failed);
	end_cm();
	pass_lock_end(dump.collected);
	watchdog_leave(!failed || dump.found_stopped);
}
