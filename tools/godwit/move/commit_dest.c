// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Commit: the restored tasks are let go, their connections resume, and the source is told. If CRIU, podman or the agent is
 * killed meanwhile, this finishes what was begun.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "agent.h"

/* If peers do not answer RESUME for so long, the source warns of them. Their queue pairs have deadlines of their own. */
#define RESUME_WARN_MS	10000
#define MOVING_WARN_MS	120000	/* if all peers that have not answered are moving, too */
#define TELL_MS		500
/* How often we look for contexts that are to resume, if one fails, and after what time again. */
#define RESUME_TRIES	20
#define RESUME_AGAIN_MS	10

/* ---------------------------------------------------------- the tasks go -- */

/* From here on the addresses speak. The link hears of that before the tasks, or their queue pairs, call anybody. */
static void end_quiet(struct agent *a)
{
	if (addresses_end_quiet(&a->addresses, a->id))
		agent_warn(a, fault_text());
	fault_clear();
	if (addresses_announce(&a->addresses))
		agent_warn(a, fault_text());
	fault_clear();
	if (a->container)
		agent_end_container_quiet(a);
}

/* The plugin has taken the commit: from now on the tasks outlive CRIU. */
void agent_plugin_goes(struct agent *a)
{
	agent_set_tasks(a, TASKS_GO);
	end_quiet(a);
	if (write(a->commit_sk, "go\n", 3) < 0)
		close_fd(&a->commit_sk);	/* if CRIU has ended, the loop hears of it */
}

/* Tell the plugin, which answers; or, if CRIU asks, CRIU. (If that fails, CRIU has ended, and the loop hears of it.) */
static void let_go(struct agent *a)
{
	if (!a->criu_asks) {
		if (write(a->commit_sk, "commit\n", 7) < 0)
			close_fd(&a->commit_sk);
		return;
	}
	agent_set_criu_asks(a, false);
	agent_set_tasks(a, TASKS_GO);
	end_quiet(a);
	criu_answer(&a->criu, true);
	fault_clear();
}

/* Written down before anything can run, so that nobody says "undone" of a copy that ran. */
int agent_commit(struct agent *a)
{
	/* A source whose connection broke says "commit" again. */
	if (a->stage == STAGE_RUNNING)
		agent_tell_resumed(a);
	if (a->stage == STAGE_LOST)
		return agent_lost();
	if (a->stage >= STAGE_COMMITTED)
		return 0;
	if (a->stage != STAGE_READY)
		return fault("there is nothing to commit");
	if (a->container && now_ns() >= a->deadline)
		return fault("it is too late: podman has not waited for so long");
	if (agent_enter_stage(a, STAGE_COMMITTED)) {
		agent_set_stage(a, STAGE_READY);
		return -1;
	}
	a->committed_ns = now_ns();
	let_go(a);
	return 0;
}

/* ------------------------------------------- where somebody was killed -- */

static int resume_context(struct context *c)
{
	struct ibv_context *ctx = context_attach(c);
	struct ibv_restore_args args = { .pid = c->pid };
	int ret = ctx ? ibv_query_migration(ctx, &c->query) : errno;

	if (!ret && c->query.state == RXE_MIGR_CTX_RESTORING)
		ret = ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, &args, sizeof(args));
	if (ctx)
		ibv_detach_context(ctx);
	return ret ? fault("process %d, descriptor %d: its context can't go on: %s", c->pid, c->fd, strerror(ret)) : 0;
}

/* Whoever asks hears this reason. */
int agent_lost(void)
{
	return fault("criu was killed as it let the tasks go, and they have ended");
}

/*
 * CRIU was killed. Has it taken a process with it, by SIGKILL? The plugin unties one process after the other from CRIU. So if one
 * lives, those before it were untied, too, and what is gone of them has ended by itself. If one is gone without a trace, somebody
 * has reaped it, and nobody knows how it ended.
 */
static bool all_outlived_criu(const struct agent *a)
{
	size_t n = json_array_size(a->restored), i;

	for (i = n; i-- > 0;) {
		struct proc_id id = agent_restored(a, i);

		if (proc_lives(&id))
			return true;
		if (!proc_is_there(&id) || proc_is_killed(id.pid))
			return false;
	}
	return n > 0;
}

/* a->tree gets the processes that still live. If the root has ended, its children have a parent outside of the tree now. */
static void collect_living(struct agent *a)
{
	for (size_t i = 0; i < json_array_size(a->restored); i++) {
		struct proc_id id = agent_restored(a, i);
		struct tree more;

		if (!proc_lives(&id) || tree_has(&a->tree, id.pid) || tree_collect(&more, id.pid))
			continue;
		for (size_t j = 0; j < more.n; j++) {
			GROW(a->tree.task, a->tree.n);
			a->tree.task[a->tree.n++] = more.task[j];
		}
		free(more.task);
	}
	fault_clear();
}

/* Have the contexts resume in the place of the plugin, which does that as its last act. */
static int resume_contexts(struct agent *a)
{
	int ret;

	fault_clear();
	tree_free(&a->tree);
	contexts_free(&a->contexts);
	collect_living(a);
	ret = contexts_find(&a->tree, &a->contexts);
	for (size_t i = 0; !ret && i < a->contexts.n; i++)
		ret = resume_context(&a->contexts.context[i]);
	return ret;
}

/*
 * The tasks run. Between our look for contexts and our call to one of them, its task may end or close the device. Then the context
 * is gone, or another task holds it, so we look again. Only a call that fails each time is an error.
 */
static int resume_all(struct agent *a)
{
	for (int tries = 1; resume_contexts(a); tries++) {
		if (tries == RESUME_TRIES)
			return -1;
		poll(NULL, 0, RESUME_AGAIN_MS);
	}
	return 0;
}

/* If a process has ended, those below it are below another one now, so each is looked for. */
static void end_all(const struct agent *a)
{
	for (size_t i = 0; i < json_array_size(a->restored); i++) {
		struct proc_id id = agent_restored(a, i);

		if (proc_lives(&id))
			proc_kill_tree(&id);
	}
}

/* If a process may have died with CRIU, the copy is not whole. */
static int see_through(struct agent *a)
{
	if (all_outlived_criu(a) && resume_all(a) == 0) {
		a->running_ns = now_ns();
		return 0;
	}
	proc_kill_tree(&a->root_id);
	end_all(a);
	/* What has forked meanwhile, and has lost its parent, is ours. (A container's ends with its first process.) */
	if (!a->container)
		proc_kill_descendants();
	fault_clear();
	return agent_lost();
}

/* CRIU was killed: has its plugin said before that it takes the commit? */
static void hear_plugin_out(struct agent *a)
{
	char text[16];

	if (a->commit_sk >= 0 && recv(a->commit_sk, text, sizeof(text), MSG_DONTWAIT) > 0)
		agent_plugin_goes(a);
}

/* Without tasks, the addresses must not refuse the packets of peers: the process may still go on at the source. */
static void all_lost(struct agent *a)
{
	if (a->container)
		agent_keep_container_quiet(a);
	agent_enter_stage(a, STAGE_LOST);
}

/*
 * CRIU was killed after the commit. If the plugin had taken the commit, the tasks run, or have ended. If not, no task has
 * run, and all can be undone.
 */
void agent_criu_died_late(struct agent *a)
{
	char *why = xasprintf("the container runs, but podman may not know that: %s", fault_text());

	if (a->container)
		agent_await_plugin(a);
	hear_plugin_out(a);
	if (a->container)
		agent_await_criu(a);
	if (a->tasks != TASKS_FROZEN && see_through(a) == 0) {
		if (a->container)
			agent_warn(a, why);
		free(why);
		return;
	}
	free(why);
	if (a->tasks != TASKS_FROZEN)
		all_lost(a);
	else
		agent_set_stage(a, STAGE_READY);
	agent_failed(a);
}

/* Find the tasks, which run, and so may have forked or ended. */
static void find_again(struct agent *a)
{
	a->running_ns = now_ns();
	if (proc_is_there(&a->root_id) && tree_collect(&a->tree, a->root) == 0)
		contexts_find(&a->tree, &a->contexts);
	fault_clear();
}

void agent_take_over(struct agent *a)
{
	struct criu criu = CRIU_INIT;
	bool ended = true;

	criu.pid = a->criu_id.pid;
	if (a->container)
		agent_inherit_plugin(a);
	if (a->stage < STAGE_COMMITTED) {
		agent_undo_copy(a);
		return;
	}
	if (a->stage != STAGE_COMMITTED)
		return;
	a->committed_ns = now_ns();
	if (a->tasks == TASKS_RAN) {
		find_again(a);
		return;
	}
	/* If the tasks are gone, the addresses stay quiet, so that they do not refuse the packets of peers. */
	if (proc_is_there(&a->root_id))
		end_quiet(a);
	if (a->commit_sk >= 0 && write(a->commit_sk, "commit\ngo\n", 10) < 0)
		close_fd(&a->commit_sk);
	if (!a->container && proc_is_there(&a->criu_id)) {
		criu.pidfd = pidfd_open(criu.pid, 0);
		kill(criu.pid, SIGCONT);
		ended = criu_wait(&criu, CRIU_END_MS) == 0;
		if (!ended)
			kill(criu.pid, SIGKILL);
		criu_wait(&criu, CRIU_END_MS);
		close_fd(&criu.pidfd);
	}
	if (a->container)
		agent_await_criu(a);
	if (see_through(a))
		all_lost(a);
}

/* ----------------------------------------------- connections resume -- */

/* For how long has every RESUME been answered? Without any RESUME: for how long have the tasks run? */
static int64_t since_resumed(const struct agent *a)
{
	int64_t since = INT64_MAX;

	for (size_t i = 0; i < a->contexts.n; i++) {
		const struct rxe_migr_query *q = &a->contexts.context[i].query;

		if (q->resume_ns && (int64_t)(q->now_ns - q->resume_ns) < since)
			since = q->now_ns - q->resume_ns;
	}
	return since == INT64_MAX ? now_ns() - a->running_ns : since;
}

/* How many QPs still wait for an answer; how many of these have a peer that is stopped itself; how many QPs have failed. */
static void count_resuming(const struct agent *a, unsigned int *waiting, unsigned int *paused, unsigned int *lost)
{
	*waiting = *paused = *lost = 0;
	for (size_t i = 0; i < a->contexts.n; i++) {
		*waiting += a->contexts.context[i].query.num_resuming;
		*paused += a->contexts.context[i].query.num_paused;
		*lost += a->contexts.context[i].query.num_failed;
	}
}

void agent_tell_resumed(struct agent *a)
{
	unsigned int waiting, paused, lost;

	count_resuming(a, &waiting, &paused, &lost);
	agent_tell(a, json_pack("{s:I, s:i, s:i}", "resumed_ns_ago", (json_int_t)since_resumed(a),
				"waiting", (int)waiting, "lost", (int)lost));
}

void agent_resumed(struct agent *a)
{
	int64_t for_ms = (now_ns() - a->committed_ns) / 1000000;
	unsigned int waiting, paused, lost;

	if (!a->running_ns)
		return;
	if (contexts_query(&a->contexts)) {
		/* The process runs and may end as it likes, so it may be gone by now. */
		fault_clear();
		contexts_free(&a->contexts);
	}
	count_resuming(a, &waiting, &paused, &lost);
	if (paused == waiting)
		a->moving_ms = for_ms;
	if (waiting && for_ms < MOVING_WARN_MS && for_ms - a->moving_ms < RESUME_WARN_MS) {
		if (for_ms / TELL_MS != a->told) {
			a->told = for_ms / TELL_MS;
			agent_tell(a, json_pack("{s:i, s:i}", "waits", (int)waiting, "moving", (int)paused));
		}
		return;
	}
	agent_enter_stage(a, STAGE_RUNNING);
	agent_tell_resumed(a);
	addresses_announce(&a->addresses);	/* again: the first announcement may have been lost */
	fault_clear();
	if (a->container)
		agent_announce_container(a);
}
