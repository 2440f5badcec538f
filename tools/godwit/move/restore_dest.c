// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The destination's `criu restore`, the gate that holds the restored tasks, and how all of it is undone.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "agent.h"
#include "creds.h"

/* Peers that do not answer RESUME for so long are named in a warning; they have their own deadlines. */
#define RESUME_WARN_MS	10000
#define MOVING_WARN_MS	120000	/* if all peers that are waited for are on their way themselves */
#define TELL_MS		500

int agent_set_environment(json_t *env)
{
	const char *name;
	json_t *value;

	json_object_foreach(env, name, value) {
		if (strncmp(name, "GODWIT_", 7) || !json_is_string(value))
			return fault("'%s' is no setting for the CRIU plugin", name);
		setenv(name, json_string_value(value), 1);
	}
	return 0;
}

int agent_start_criu(struct agent *a)
{
	char number[16];
	int ret;

	snprintf(number, sizeof(number), "%d", a->plugin_sk);
	setenv("GODWIT_COMMIT_FD", number, 1);
	/* (who holds a copy must not give it up by itself: only the source knows) */
	setenv("GODWIT_COMMIT_TIMEOUT", "1000000", 1);
	ret = criu_start(&a->criu, a->images, a->plugin_sk);
	close_fd(&a->plugin_sk);
	if (ret)
		return -1;
	a->criu_id = proc_identify(a->criu.pid);
	return agent_save(a);
}

int agent_restore(struct agent *a, json_t *message)
{
	struct criu_options options = {
		.log = "restore.log",
		.shell_job = json_is_true(json_object_get(message, "shell_job")),
	};

	if (a->stage != STAGE_PREPARED)
		return fault("there is nothing to restore");
	a->want_processes = json_integer_value(json_object_get(message, "processes"));
	a->want_contexts = json_integer_value(json_object_get(message, "contexts"));
	json_decref(a->want_creds);
	a->want_creds = json_incref(json_object_get(message, "creds"));
	agent_set_stage(a, STAGE_RESTORING);
	return agent_place_copies(a) ?: a->container ? agent_restore_container(a) : criu_restore(&a->criu, &options);
}

/* CRIU takes some that it can't set for set. They are final: each thread is held where it returns to what it did. */
static int look_at_creds(struct agent *a)
{
	json_t *creds = creds_collect(&a->tree);
	int ret = creds ? creds_compare(a->want_creds, creds) : -1;

	json_decref(creds);
	return ret;
}

/* All tasks are there, and held: is all of it as it should be? */
static int look_at_restored(struct agent *a)
{
	if (tree_collect(&a->tree, a->root) || contexts_find(&a->tree, &a->contexts) ||
	    contexts_query(&a->contexts))
		return -1;
	if ((json_int_t)a->tree.n != a->want_processes || (json_int_t)a->contexts.n != a->want_contexts)
		return fault("%zu processes and %zu contexts came back, not %lld and %lld", a->tree.n,
			     a->contexts.n, (long long)a->want_processes, (long long)a->want_contexts);
	for (size_t i = 0; i < a->contexts.n; i++)
		if (a->contexts.context[i].query.state != RXE_MIGR_CTX_RESTORING)
			return fault("process %d, descriptor %d: its context came back in the wrong state %u",
				     a->contexts.context[i].pid, a->contexts.context[i].fd,
				     a->contexts.context[i].query.state);
	return look_at_creds(a);
}

static void all_held(struct agent *a)
{
	if (look_at_restored(a) || (a->container && agent_hold_container(a))) {
		agent_failed(a);
		return;
	}
	a->root_id = proc_identify(a->root);
	agent_set_stage(a, STAGE_READY);
	agent_tell(a, json_pack("{s:b, s:i, s:i}", "ready", 1, "processes", (int)a->tree.n,
				"contexts", (int)a->contexts.n));
}

/* From here on the address speaks, and the tasks run. The link hears of it before they, or their queue pairs, call anybody. */
static void unguard(struct agent *a)
{
	if (addresses_unguard(&a->addresses, a->id))
		agent_warn(a, fault_text());
	fault_clear();
	if (addresses_announce(&a->addresses))
		agent_warn(a, fault_text());
	fault_clear();
	if (a->container)
		agent_unguard_container(a);
}

/* The plugin has taken the commit: now the tasks outlive CRIU. */
static void plugin_goes(struct agent *a)
{
	a->goes = true;
	unguard(a);
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
	unguard(a);
	criu_answer(&a->criu, true);
	fault_clear();
}

/* The last word that the plugin has for us, if CRIU was killed. */
static void hear_plugin_out(struct agent *a)
{
	char text[16];

	if (a->commit_sk >= 0 && recv(a->commit_sk, text, sizeof(text), MSG_DONTWAIT) > 0)
		plugin_goes(a);
}

/* Its address is not to refuse what its peers have, whom the source may still give it back to. */
static void all_lost(struct agent *a)
{
	if (a->container)
		agent_guard_container(a);
	agent_set_stage(a, STAGE_LOST);
}

/*
 * Killed after the commit, CRIU has let go of the tasks, or they have ended with it. What did not hear of the commit
 * can be undone: none of them has run.
 */
static void criu_died_late(struct agent *a)
{
	char *why = xasprintf("the container runs, but podman may not know that: %s", fault_text());

	if (a->container)
		agent_await_plugin(a);
	hear_plugin_out(a);
	if (a->container)
		agent_await_criu(a);
	if (a->goes && agent_see_through(a) == 0) {
		if (a->container)
			agent_warn(a, why);
		free(why);
		return;
	}
	free(why);
	if (a->goes)
		all_lost(a);
	else
		a->stage = STAGE_READY;
	agent_failed(a);
}

static void criu_ended(struct agent *a, enum criu_event event)
{
	if (event == CRIU_FAILED && !a->container)
		images_explain(a->images, "restore.log");
	criu_wait(&a->criu, 10000);
	criu_close(&a->criu);
	if (event == CRIU_DONE && a->stage == STAGE_COMMITTED) {
		a->running_ns = now_ns();
		/* (whoever goes on when we are killed shall not ask what has become of each task) */
		a->ran = true;
		agent_save(a);
		fault_clear();
	} else if (a->stage == STAGE_COMMITTED) {
		criu_died_late(a);
	} else {
		if (event == CRIU_DONE)
			fault("criu let the tasks go before the commit");
		agent_failed(a);
	}
}

void agent_criu_event(struct agent *a)
{
	enum criu_event event;
	char script[64];

	fault_clear();
	if (a->container) {
		criu_ended(a, agent_podman_event(a));
		return;
	}
	event = criu_next(&a->criu, script, &a->root);
	if (event != CRIU_NOTIFY) {
		criu_ended(a, event);
	} else if (!strcmp(script, "pre-resume") && a->stage == STAGE_RESTORING) {
		a->gate = true;
		if (a->want_contexts) {
			/* CRIU does not hear that its plugin has failed. */
			images_explain(a->images, "restore.log");
			agent_failed(a);
		} else {
			all_held(a);
		}
	} else if (criu_answer(&a->criu, true)) {
		criu_ended(a, CRIU_FAILED);
	}
}

void agent_plugin_event(struct agent *a)
{
	char text[32];
	ssize_t n = read(a->commit_sk, text, sizeof(text) - 1);

	fault_clear();
	text[n > 0 ? n : 0] = '\0';
	/* (of a process CRIU has said it already) */
	if (n > 0 && a->stage == STAGE_RESTORING && a->container)
		sscanf(text, "ready %d", &a->root);
	if (n > 0 && a->stage == STAGE_RESTORING)
		all_held(a);
	else if (n > 0)
		plugin_goes(a);
	else if (n <= 0)
		close_fd(&a->commit_sk);	/* why, CRIU tells */
}

/* Whoever asks hears the same. */
int agent_lost(void)
{
	return fault("criu was killed as it let the tasks go, and they have ended");
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
	a->stage = STAGE_COMMITTED;
	if (agent_save(a)) {
		a->stage = STAGE_READY;
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

int agent_see_through(struct agent *a)
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
		unguard(a);
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
	if (agent_see_through(a))
		all_lost(a);
}

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
	agent_set_stage(a, STAGE_RUNNING);
	agent_tell_resumed(a);
	addresses_announce(&a->addresses);	/* once more: the first may have been lost */
	fault_clear();
	if (a->container)
		agent_announce_container(a);
}

static void warn_of(struct agent *a, int failed)
{
	if (failed)
		agent_warn(a, fault_text());
	fault_clear();
}

void agent_undo(struct agent *a)
{
	incoming_drop(&a->incoming);
	if (a->container)
		agent_undo_container(a);
	/* (of an agent that was killed, they need not be our children) */
	proc_kill_tree(&a->criu_id);
	proc_kill_tree(&a->root_id);
	proc_kill_descendants();
	criu_close(&a->criu);
	close_fd(&a->commit_sk);
	a->criu = (struct criu)CRIU_INIT;
	a->criu_id = a->root_id = (struct proc_id){ 0 };
	a->gate = a->adding = a->goes = false;
	fault_clear();
	/* Their sockets speak on after their death, so: not before the guard falls. */
	warn_of(a, addresses_kill_sockets(&a->addresses));
	warn_of(a, addresses_del(&a->addresses, true));
	warn_of(a, addresses_unguard(&a->addresses, a->id));
	if (a->container)
		agent_undo_netns(a);
	agent_take_back_copies(a);
	if (a->images)
		warn_of(a, images_remove(a->images));
	free(a->images);
	a->images = NULL;
	json_decref(a->want_creds);
	a->want_creds = NULL;
	json_decref(a->container);
	a->container = NULL;
	addresses_free(&a->addresses);
	tree_free(&a->tree);
	contexts_free(&a->contexts);
	agent_set_stage(a, STAGE_IDLE);
}
