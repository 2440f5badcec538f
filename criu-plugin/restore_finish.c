// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a restore, in CRIU itself. The tasks' memory is back, and the
 * tasks are frozen, about to return from their last system call before they go
 * on. In all contexts memory regions are registered, and contents and counters
 * are refilled. Then the tree's files are counted and the word to go on is
 * waited for. Only then do contexts resume.
 *
 * CRIU ignores what this hook returns. So the hook kills a tree that cannot go
 * on. CRIU notices this when it cannot detach from the tree, and says that the
 * restore failed.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "restore.h"

struct resuming {
	pid_t	*pids;		/* the tree */
	pid_t	*inner;		/* their numbers in their own namespaces */
	int	num_pids;
	struct ibv_context **ctx;
	pid_t	*owners;	/* of the contexts */
};

/* ------------------------------------------------------------------- tasks -- */

/* The process that has the number inner in its own pid namespace, or -1. */
static pid_t find_task(const void *arg, pid_t inner)
{
	const struct resuming *r = arg;
	int i;

	for (i = 0; i < r->num_pids; i++)
		if (r->inner[i] == inner)
			return r->pids[i];
	return fail("process %d was not restored", inner);
}

/* Each task must have as many RDMA files as before. */
static int check_files(const struct resuming *r)
{
	const RdmaTaskEntry *task;
	pid_t pid;
	int files;
	size_t i;

	for (i = 0; i < saved.inventory->n_tasks; i++) {
		task = saved.inventory->tasks[i];
		pid = find_task(r, task->pid);
		files = pid < 0 ? -1 : count_files(pid);
		if (files < 0)
			return -1;
		if ((uint32_t)files != task->files)
			return fail("process %d has %d RDMA files and not %u: this CRIU does not handle them like 4.1",
				    pid, files, task->files);
	}
	return 0;
}

static int set_option(pid_t tid, void *options)
{
	/* This fails for a zombie, which was restored as a zombie. */
	ptrace(PTRACE_SETOPTIONS, tid, NULL, *(long *)options);
	return 0;
}

/*
 * A tied tree dies with us, its tracer. Otherwise, if somebody killed CRIU,
 * this copy would run, while the process at the source may be alive.
 */
static void set_options(const struct resuming *r, long options)
{
	int i;

	for (i = 0; i < r->num_pids; i++)
		proc_each_thread(r->pids[i], set_option, &options);
}

static void tie(const struct resuming *r)
{
	set_options(r, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
}

/*
 * From here on the tasks run, whatever becomes of us. godwit relies on the order
 * of proc_read_tree(): if one runs, those before it do.
 */
static void untie(const struct resuming *r)
{
	set_options(r, PTRACE_O_TRACESYSGOOD);
}

/* A tree that is being killed. */
struct dying {
	const pid_t	*pids;		/* the root first */
	int		count;
	bool		with_init;	/* the root is the first of its pid namespace */
};

static int reap_thread(pid_t tid, void *pid)
{
	if (tid != *(pid_t *)pid)
		waitpid(tid, NULL, __WALL | WNOHANG);
	return 0;
}

/*
 * Reap what has ended, but not the root, which is left to CRIU. The first
 * process of a pid namespace ends only after its tracer has reaped all others
 * there, and CRIU would wait for it for ever. Without such a namespace CRIU
 * kills each process by its number, which must not be another's by then.
 */
static void reap(const struct dying *d)
{
	pid_t pid;
	int i;

	for (i = 0; i < d->count; i++) {
		pid = d->pids[i];
		proc_each_thread(pid, reap_thread, &pid);
		if (d->with_init && i)
			waitpid(pid, NULL, __WALL | WNOHANG);
	}
}

/* A process is dead only when we, its tracer, have reaped each thread. */
static void wait_until_dead(const struct dying *d, pid_t pid)
{
	struct pollfd pfd = { .events = POLLIN };
	int i;

	pfd.fd = syscall(SYS_pidfd_open, pid, 0);
	if (pfd.fd < 0)
		return;
	for (i = 0; i < 1000 && !poll(&pfd, 1, 10); i++)
		reap(d);
	close(pfd.fd);
}

/* ---------------------------------------------------------------- contents -- */

static int destroy_placeholder(const struct saved_context *c,
			       struct ibv_context *ctx, uint32_t handle)
{
	struct ibv_restored *restored = calloc(1, sizeof(*restored));
	void *object = restored;
	int ret;

	if (!restored)
		return fail("no memory");
	/* Another process made the placeholder. Placeholders are PDs. */
	restored->type = RXE_MIGR_REC_PD;
	restored->handle = handle;
	restored->fd = -1;
	ret = ibv_restore_object(ctx, &object, RXE_MIGR_REC_PD,
				 IBV_RESTORE_DESTROY, NULL, 0);
	if (!ret)
		return 0;
	free(restored);
	return fail("%s: handle %u cannot be freed: %s", c->here->name, handle,
		    strerror(ret));
}

static int register_region(const struct resuming *r,
			   const struct saved_context *c,
			   struct ibv_context *ctx, const struct saved_object *o)
{
	struct ibv_restore_args args = {
		.record = o->rec,
		.record_length = le32toh(o->rec->length),
		.comp_channel_fd = -1,
		.async_fd = -1,
	};
	void *object;
	int ret;

	args.pid = find_task(r, o->pid);
	if (args.pid < 0)
		return -1;
	if (destroy_placeholder(c, ctx, le32toh(o->rec->handle)))
		return -1;
	ret = ibv_restore_object(ctx, &object, RXE_MIGR_REC_MR,
				 IBV_RESTORE_CREATE, &args, sizeof(args));
	if (ret)
		return creating_failed(c, o->rec, ret);
	free(object);
	return 0;
}

/*
 * Regions take the place of their placeholders. Then the other placeholders are
 * freed, so that holes are holes again.
 */
static int finish_handles(const struct resuming *r,
			  const struct saved_context *c,
			  struct ibv_context *ctx)
{
	const struct saved_object *o = c->objects;
	uint32_t handle, i;

	for (i = 0; i < c->num_objects; i++)
		if (le16toh(c->objects[i].rec->type) == RXE_MIGR_REC_MR &&
		    register_region(r, c, ctx, &c->objects[i]))
			return -1;
	for (handle = 0; handle < c->num_handles; handle++) {
		if (le32toh(o->rec->handle) == handle)
			o++;
		else if (destroy_placeholder(c, ctx, handle))
			return -1;
	}
	return 0;
}

static int refill_failed(const struct saved_context *c, int err)
{
	const struct rxe_migr_rec_qp *qp, *worst = NULL;
	char name[IBV_RECORD_NAME_LEN];
	uint32_t i;

	for (i = 0; i < c->num_objects; i++) {
		qp = (const void *)c->objects[i].rec;
		if (is_connected(qp) && (!worst || qp->path_mtu > worst->path_mtu))
			worst = qp;
	}
	if (err != EMSGSIZE || !worst)
		return fail("%s: the context cannot be refilled: %s",
			    c->here->name, strerror(err));
	ibv_record_name(&worst->hdr, name, sizeof(name));
	return fail("%s: %s: its path MTU of %u bytes is more than the MTU of this host's interface allows: set that MTU as at the source, or connect with a smaller path MTU",
		    c->here->name, name, 128U << worst->path_mtu);
}

static int refill(const struct saved_context *c, struct ibv_context *ctx)
{
	size_t length = 0, size;
	uint32_t i;
	char *buf;
	int ret;

	for (i = 0; i < c->records.count; i++)
		length += le32toh(c->records.rec[i]->length);
	buf = malloc(length ? length : 1);
	if (!buf)
		return fail("no memory");
	length = 0;
	for (i = 0; i < c->records.count; i++) {
		size = le32toh(c->records.rec[i]->length);
		memcpy(buf + length, c->records.rec[i], size);
		length += size;
	}
	ret = ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, buf, length);
	free(buf);
	return ret ? refill_failed(c, ret) : 0;
}

/*
 * The task whose context it is: the first one that has it open, as for memory.
 * The kernel lets only one process write() to a context's file, the process that
 * opened it, so one task must be chosen.
 */
static pid_t find_owner(const struct resuming *r, uint32_t context)
{
	const RdmaTaskEntry *task;
	size_t i, j;

	for (i = 0; i < saved.inventory->n_tasks; i++) {
		task = saved.inventory->tasks[i];
		for (j = 0; j < task->n_contexts; j++)
			if (task->contexts[j] == context)
				return find_task(r, task->pid);
	}
	return fail("%s: context %u is nobody's", INVENTORY, context);
}

static int attach(struct resuming *r, uint32_t n)
{
	int fd;

	if (!is_made(n))
		return fail("%s: no task has asked for context %u",
			    saved.contexts[n].here->name, n);
	r->owners[n] = find_owner(r, n);
	if (r->owners[n] < 0)
		return -1;
	fd = open_made_context(n);
	if (fd < 0)
		return -1;
	r->ctx[n] = ibv_attach_context(fd);
	if (r->ctx[n])
		return 0;
	close(fd);
	return fail("no memory");
}

static int prepare(struct resuming *r)
{
	uint32_t i;

	for (i = 0; i < saved.num_contexts; i++)
		if (attach(r, i) ||
		    finish_handles(r, &saved.contexts[i], r->ctx[i]) ||
		    refill(&saved.contexts[i], r->ctx[i]))
			return -1;
	return adopt_cm_files(find_task, r, r->ctx) || check_files(r) ||
	       check_routes(r->owners, r->ctx) ? -1 : 0;
}

static int resume(const struct resuming *r)
{
	struct ibv_restore_args args = {};
	uint32_t i;
	int ret;

	for (i = 0; i < saved.num_contexts; i++) {
		args.pid = r->owners[i];
		ret = ibv_restore_object(r->ctx[i], NULL, 0, IBV_RESTORE_RESUME,
					 &args, sizeof(args));
		if (ret)
			return fail("%s: the context cannot go on: %s",
				    saved.contexts[i].here->name, strerror(ret));
	}
	return 0;
}

/*
 * If we are killed now, whoever gave the word lets the contexts go on in our
 * place, so the tasks must outlive us. If nobody gave it, a task that outlived
 * us would wait for ever for a context that does not go on, so the tasks die
 * with us until all contexts go on.
 */
static int let_go(const struct resuming *r)
{
	int ret;

	commit_goes();
	if (commit_is_asked()) {
		untie(r);
		return resume(r);
	}
	ret = resume(r);
	if (!ret)
		untie(r);
	return ret;
}

static int find_tree(struct resuming *r, pid_t root)
{
	int i;

	r->num_pids = proc_read_tree(root, &r->pids);
	if (r->num_pids < 0)
		return fail("no memory");
	r->inner = calloc(r->num_pids, sizeof(*r->inner));
	r->ctx = calloc(saved.num_contexts + 1, sizeof(*r->ctx));
	r->owners = calloc(saved.num_contexts + 1, sizeof(*r->owners));
	if (!r->inner || !r->ctx || !r->owners)
		return fail("no memory");
	for (i = 0; i < r->num_pids; i++)
		r->inner[i] = inner_pid(r->pids[i]);
	return 0;
}

static void kill_tree(const struct resuming *r, pid_t root)
{
	struct dying d = { &root, 1, inner_pid(root) == 1 };
	int i;

	if (r->num_pids > 0) {
		d.pids = r->pids;
		d.count = r->num_pids;
	}
	/* Children first: the end of a parent may free their numbers. */
	for (i = d.count; i-- > 0;)
		kill(d.pids[i], SIGKILL);
	for (i = 0; i < d.count; i++)
		wait_until_dead(&d, d.pids[i]);
}

/* The whole tree, whose root CRIU names first. */
static int resume_tree(pid_t root)
{
	struct resuming r = {};
	int ret = -1;
	uint32_t n;

	if (!find_tree(&r, root)) {
		tie(&r);
		if ((!saved.inventory || !prepare(&r)) && !wait_for_commit(root))
			ret = let_go(&r);
	}
	forget_lock(root);
	if (ret)
		kill_tree(&r, root);
	for (n = 0; r.ctx && n < saved.num_contexts; n++)
		ibv_detach_context(r.ctx[n]);
	free(r.ctx);
	free(r.owners);
	free(r.inner);
	free(r.pids);
	store_drain();
	return ret;
}

int resume_late(int pid)
{
	static bool done;
	static int result;

	/* Somebody may want the last word for a tree without RDMA, too. */
	if (!saved.inventory && !commit_is_asked())
		return -ENOTSUP;
	if (!done)
		result = resume_tree(pid);
	done = true;
	return result ? result : -ENOTSUP;	/* to the next plugin */
}
