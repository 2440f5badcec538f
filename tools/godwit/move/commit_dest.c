// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Commit: the restored tasks are let go, their connections resume, and the source is told. If somebody was killed in
 * between, what is left to be done is done here.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "agent.h"

/* Peers that do not answer RESUME for so long are named in a warning; they have their own deadlines. */
#define RESUME_WARN_MS	10000
#define MOVING_WARN_MS	120000	/* if all peers that are waited for are on their way themselves */
#define TELL_MS		500

/* ---------------------------------------------------------- the tasks go -- */

/* The addresses speak from here on. The link is told of that before the tasks, or their queue pairs, call anybody. */
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

/* The plugin has taken the commit: now the tasks outlive CRIU. */
void agent_plugin_goes(struct agent *a)
{
	a->goes = true;
	end_quiet(a);
	if (write(a->commit_sk, "go\n", 3) < 0)
		close_fd(&a->commit_sk);	/* (that it has ended, we hear) */
}

/* (as it answers, if it can; that it can't, we hear when CRIU has ended) */
static void let_go(struct agent *a)
{
	if (!a->gate) {
		if (write(a->commit_sk, "commit\n", 7) < 0)
			close_fd(&a->commit_sk);
		return;
	}
	a->gate = false;
	a->goes = true;
	end_quiet(a);
	criu_answer(&a->criu, true);
	fault_clear();
}

/* It is written down before anything can run: "undone" is never said of what has. */
int agent_commit(struct agent *a)
{
	/* (a source that lost us says it twice) */
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

/* What the plugin does at last. */
static int resume_contexts(struct agent *a)
{
	for (size_t i = 0; i < a->contexts.n; i++) {
		const struct context *c = &a->contexts.context[i];
		struct ibv_restore_args args = { .pid = c->pid };
		struct ibv_context *ctx = c->query.state == RXE_MIGR_CTX_RESTORING ? context_attach(c) : NULL;
		int ret = ctx ? ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_RESUME, &args, sizeof(args)) : 0;

		if (ctx)
			ibv_detach_context(ctx);
		if (ret)
			return fault("process %d, descriptor %d: its context can't go on: %s", c->pid, c->fd,
				     strerror(ret));
	}
	return 0;
}

/* Whoever asks hears the same. */
int agent_lost(void)
{
	return fault("criu was killed as it let the tasks go, and they have ended");
}

static int see_through(struct agent *a)
{
	fault_clear();
	tree_free(&a->tree);
	contexts_free(&a->contexts);
	if (proc_is_there(&a->root_id) && tree_collect(&a->tree, a->root) == 0 &&
	    (json_int_t)tree_alive(&a->tree) == a->want_processes && contexts_find(&a->tree, &a->contexts) == 0 &&
	    contexts_query(&a->contexts) == 0 && resume_contexts(a) == 0) {
		a->running_ns = now_ns();
		return 0;
	}
	proc_kill_tree(&a->root_id);
	fault_clear();
	return agent_lost();
}

/* The last word that the plugin has for us, if CRIU was killed. */
static void hear_plugin_out(struct agent *a)
{
	char text[16];

	if (a->commit_sk >= 0 && recv(a->commit_sk, text, sizeof(text), MSG_DONTWAIT) > 0)
		agent_plugin_goes(a);
}

/* Its address is not to refuse what its peers have, whom the source may still give it back to. */
static void all_lost(struct agent *a)
{
	if (a->container)
		agent_keep_container_quiet(a);
	agent_enter_stage(a, STAGE_LOST);
}

/*
 * Killed after the commit, CRIU has let go of the tasks, or they have ended with it. What did not hear of the commit
 * can be undone: none of them has run.
 */
void agent_criu_died_late(struct agent *a)
{
	char *why = xasprintf("the container runs, but podman may not know that: %s", fault_text());

	if (a->container)
		agent_await_plugin(a);
	hear_plugin_out(a);
	if (a->container)
		agent_await_criu(a);
	if (a->goes && see_through(a) == 0) {
		if (a->container)
			agent_warn(a, why);
		free(why);
		return;
	}
	free(why);
	if (a->goes)
		all_lost(a);
	else
		agent_set_stage(a, STAGE_READY);
	agent_failed(a);
}

/* Tasks that run: they fork and end as they like. */
static void find_again(struct agent *a)
{
	a->running_ns = now_ns();
	if (proc_is_there(&a->root_id) && tree_collect(&a->tree, a->root) == 0)
		contexts_find(&a->tree, &a->contexts);
	fault_clear();
}

void agent_take_over(struct agent *a)
{
	struct criu criu = { .pid = a->criu_id.pid, .sk = -1, .images = -1 };
	bool ended = true;

	if (a->container)
		agent_inherit_plugin(a);
	if (a->stage < STAGE_COMMITTED) {
		agent_undo(a);
		return;
	}
	if (a->stage != STAGE_COMMITTED)
		return;
	a->committed_ns = now_ns();
	if (a->ran) {
		find_again(a);
		return;
	}
	/* (without its tasks, an address would refuse its peers' connections) */
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

/* How long ago was the last RESUME of all answered? Without any: since the tasks run. */
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

/* Of the QPs: how many still wait for an answer; of those, how many for a peer that is stopped; and how many gave up. */
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
		/* (the process may have ended by now: that is its own business) */
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
	addresses_announce(&a->addresses);	/* once more: the first may have been lost */
	fault_clear();
	if (a->container)
		agent_announce_container(a);
}
