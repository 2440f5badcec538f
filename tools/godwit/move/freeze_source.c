// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The source freezes the process and dumps it: CRIU does both, and then waits with all tasks frozen.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host.h"
#include "move.h"
#include "netns.h"
#include "reasons.h"
#include "text.h"

#define DUMP_TRIES	5

static int process_dump(struct move *m)
{
	struct criu_options options = {
		.log = "dump.log", .pid = m->process.pid,
		.shell_job = m->plan.shell_job, .external = m->plan.outside,
	};

	if (m->plan.mntns.own && mounts_enter(m))
		return -1;
	if (criu_start(&m->criu, m->images, -1))
		return -1;
	m->shared->criu = m->criu.pid;
	return criu_dump(&m->criu, &options);
}

static int start_dump(struct move *m)
{
	m->images = images_make(m->images_base, m->id);
	if (!m->images)
		return -1;
	/* CRIU looks at a lot before it freezes anything. So "pre-dump" sets the time and the deadline anew. */
	m->freeze_ns = now_ns();
	m->deadline = m->freeze_ns + m->limit_ms * INT64_C(1000000);
	move_renew_later(m, INT64_MAX);
	move_set_stage(m, MOVE_FREEZING);
	/* This tells the CRIU plugin that we are there. If CRIU is killed while stop signals are pending, we set contexts going. */
	setenv("GODWIT_HOLDS", "1", 1);
	return m->container.name ? container_dump(m) : process_dump(m);
}

/* Find in CRIU's log why it failed. */
static void explain(const struct move *m)
{
	char *log = move_dump_log(m);

	images_explain(m->container.dump ?: m->images, log);
	free(log);
}

static void print_line(FILE *f, pid_t tid, const char *file)
{
	char *path = xasprintf("/proc/%d/%s", tid, file), *text = read_file(path);

	if (text)
		fprintf(f, " %s=%.*s", file, (int)strcspn(text, "\n"), text);
	free(text);
	free(path);
}

/* What a thread does: its state, and where in the kernel it is. */
static void print_thread(FILE *f, pid_t tid)
{
	char *name = proc_name(tid);

	fprintf(f, "; %s %d %c", name, tid, proc_state(tid) ?: '?');
	free(name);
	print_line(f, tid, "wchan");
	print_line(f, tid, "syscall");
}

#define THREADS_SHOWN	8

/* Time is up in the middle of the dump: a warning says what CRIU waits for, since its log is removed with the images. */
static void warn_where(struct move *m)
{
	char *path = move_dump_log(m), *log = read_file(path), *text = NULL;
	size_t size, shown = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		goto out;
	fprintf(f, "criu is not done: its log ends with: %s", text_why(log));
	print_thread(f, m->criu.pid);
	for (size_t i = 0; i < m->plan.tree.n && shown < THREADS_SHOWN; i++) {
		pid_t *tids;
		size_t n = proc_threads(m->plan.tree.task[i].pid, &tids);

		for (size_t j = 0; j < n && shown < THREADS_SHOWN; j++, shown++)
			print_thread(f, tids[j]);
		free(tids);
	}
	fclose(f);
	report_warn(&m->report, text);
	free(text);
out:
	free(log);
	free(path);
}

/* In a network namespace we lock TCP in CRIU's place, and TCP alone: the tasks' queue pairs have to answer. */
static int container_asked(struct move *m, const char *script)
{
	json_t *netns = container_netns(m);

	if (netns && !strcmp(script, "network-lock"))
		return netns_lock_tcp(netns);
	return netns && !strcmp(script, "network-unlock") ? netns_unlock_tcp(netns) : 0;
}

/* Remember what podman removes from CRIU's folder when the archive is made: the name of CRIU's table. */
static void container_dumped(struct move *m)
{
	if (!container_netns(m))
		m->lock_table = images_lock_table(m->container.work);
}

/* Answer CRIU until all is saved and it waits. 1: CRIU says that it failed, and all runs as before; -1 with fault(). */
static int until_dumped(struct move *m)
{
	char script[64];

	for (;;) {
		if (move_await(m, m->criu.sk, -1)) {
			if (now_ns() >= m->deadline)
				warn_where(m);
			return -1;
		}
		switch (criu_next(&m->criu, script, NULL)) {
		case CRIU_NOTIFY:
			m->criu_asks = true;
			break;
		case CRIU_DONE:
			return fault("criu ended before it was to");
		case CRIU_FAILED:
			explain(m);
			return 1;
		case CRIU_DIED:
			return -1;
		}
		if (!strcmp(script, "pre-dump")) {
			m->freeze_ns = now_ns();
			m->deadline = m->freeze_ns + m->limit_ms * INT64_C(1000000);
			move_renew_later(m, INT64_MAX);
			/* A task that was stopped during the check may have been woken since. */
			tree_refresh(&m->plan.tree, m->process.pid);
			tree_see_signals(&m->plan.tree);
		}
		if (!strcmp(script, "query-ext-files")) {
			move_set_stage(m, MOVE_FROZEN);
			report_step("dump", "to %s", m->images);
		}
		if (!strcmp(script, "post-dump")) {
			if (m->container.name)
				container_dumped(m);
			return m->plan.mntns.own ? mounts_compare(m) : 0;
		}
		if (m->container.name && container_asked(m, script))
			return -1;
		m->criu_asks = false;
		if (criu_answer(&m->criu, true))
			return -1;
	}
}

/* The plugin's own reasons end with TRY_AGAIN. Those that it takes from ibv_cm_id_refusal() end with IBV_TRY_AGAIN. */
_Static_assert(!__builtin_strcmp(TRY_AGAIN, IBV_TRY_AGAIN), "temporary reasons end alike");

/* Does the CRIU plugin say that what stands in the way may be gone in a moment? */
static bool passing(const char *reason)
{
	size_t len = strlen(reason), end = strlen(TRY_AGAIN);

	return len >= end && !strcmp(reason + len - end, TRY_AGAIN);
}

static int begin_anew(struct move *m)
{
	if (criu_wait(&m->criu, CRIU_END_MS))
		return -1;
	criu_close(&m->criu);
	container_dump_end(m);
	container_forget_dump(m);
	m->shared->criu = -1;
	move_set_stage(m, MOVE_RUNNING);
	if (images_remove(m->images))
		return -1;
	free(m->images);
	m->images = NULL;
	fault_clear();
	return dest_ping(&m->dest);
}

/*
 * The process runs until it is frozen, and may change its RDMA objects just then. The CRIU plugin refuses what is half
 * done, and the freeze is tried again.
 */
int move_freeze_and_dump(struct move *m)
{
	for (int tries = 1;; tries++) {
		int ret = start_dump(m) ? -1 : until_dumped(m);

		if (ret <= 0 || tries == DUMP_TRIES || !passing(fault_text()))
			return ret;
		report_detail("again: %s", fault_text());
		if (begin_anew(m))
			return -1;
		poll(NULL, 0, 100);
	}
}

/* The driver's own time of the first QP stopped; without RDMA, the beginning of the freeze. */
int move_find_stop_time(struct move *m)
{
	contexts_free(&m->plan.contexts);
	m->stop_ns = 0;
	if (contexts_find(&m->plan.tree, &m->plan.contexts) ||
	    contexts_query(&m->plan.contexts))
		return -1;
	for (size_t i = 0; i < m->plan.contexts.n; i++) {
		const struct context *c = &m->plan.contexts.context[i];

		if (c->query.state != RXE_MIGR_CTX_STOPPED)
			return fault("process %d, descriptor %d: its context was not stopped: is the CRIU "
				     "plugin %s loaded?", c->pid, c->fd, host_plugin_path());
		if (c->query.stop_ns && (!m->stop_ns || (int64_t)c->query.stop_ns < m->stop_ns))
			m->stop_ns = c->query.stop_ns;
	}
	if (!m->stop_ns)
		m->stop_ns = m->freeze_ns;
	/* Peers have answered STOP by now, and may wait for less time than we assumed. */
	move_renew_later(m, contexts_peers_wait(&m->plan.contexts));
	return contexts_keep_open(&m->plan.contexts);
}
