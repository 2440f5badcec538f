// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The destination restores the process: `criu restore`, and what keeps the restored tasks frozen until the commit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "agent.h"
#include "creds.h"
#include "text.h"

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

int agent_make_mntns(struct agent *a, json_t *outside)
{
	const char *key;
	json_t *file;
	int ret = 0;

	if (mntns_make(a->mntns, &a->made))
		return -1;
	a->criu.mntns = fcntl(a->made.ns, F_DUPFD_CLOEXEC, 0);
	if (a->criu.mntns < 0)
		return fault("the mount namespace can't be kept open: %s", strerror(errno));
	json_object_foreach(outside, key, file) {
		char *path = path_from_json(file);

		ret = ret ?: criu_give_file(&a->criu, key, path ?: "");
		free(path);
	}
	return ret;
}

int agent_start_criu(struct agent *a)
{
	char number[16];
	int ret;

	snprintf(number, sizeof(number), "%d", a->plugin_sk);
	setenv("GODWIT_COMMIT_FD", number, 1);
	/* The plugin must not give the copy up by itself: only the source knows what becomes of the copy. */
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
	agent_enter_stage(a, STAGE_RESTORING);
	if (agent_place_files(a) || (a->mntns && mntns_fill(&a->made, a->mntns, a->images)) || criu_look_at_files(&a->criu))
		return -1;
	mntns_close(&a->made);
	return a->container ? agent_restore_container(a) : criu_restore(&a->criu, &options);
}

/* CRIU ignores some credentials that it can't set. All are final now: each thread is frozen where its program goes on. */
static int look_at_creds(struct agent *a)
{
	json_t *creds = creds_collect(&a->tree);
	int ret = creds ? creds_compare(a->want_creds, creds) : -1;

	json_decref(creds);
	return ret;
}

/*
 * CRIU is the parent of the copy, and ends when it has let the copy go. No file of /proc tells whether a process wants a signal
 * then, but CRIU warns of it.
 */
static int look_at_pdeathsig(struct agent *a)
{
	if (a->container || !images_log_says(a->images, "restore.log", "Root task has pdeath_sig configured"))
		return 0;
	return fault("process %d: it asked for a signal when its parent ends (PR_SET_PDEATHSIG), and would get it at once: start it "
		     "without that", a->root);
}

/* All tasks are there, and frozen: is all of it as it should be? */
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
	return look_at_creds(a) ?: look_at_pdeathsig(a);
}

static void all_restored(struct agent *a)
{
	if (look_at_restored(a) || (a->container && agent_limit_container(a))) {
		agent_failed(a);
		return;
	}
	a->root_id = proc_identify(a->root);
	agent_enter_stage(a, STAGE_READY);
	agent_tell(a, json_pack("{s:b, s:i, s:i}", "ready", 1, "processes", (int)a->tree.n,
				"contexts", (int)a->contexts.n));
	agent_note_restored(a);
}

static void criu_ended(struct agent *a, enum criu_event event)
{
	if (event == CRIU_FAILED && !a->container)
		images_explain(a->images, "restore.log");
	criu_wait(&a->criu, 10000);
	criu_close(&a->criu);
	if (event == CRIU_DONE && a->stage == STAGE_COMMITTED) {
		a->running_ns = now_ns();
		/* This is saved for our keeper, which must not count the tasks: they run, and may end. */
		agent_set_tasks(a, TASKS_RAN);
		agent_save(a);
		fault_clear();
	} else if (a->stage == STAGE_COMMITTED) {
		agent_criu_died_late(a);
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
		agent_set_criu_asks(a, true);
		if (a->want_contexts) {
			/* The plugin should have asked us first: it has failed, and CRIU does not know that. */
			images_explain(a->images, "restore.log");
			agent_failed(a);
		} else {
			all_restored(a);
		}
	} else if (criu_answer(&a->criu, true)) {
		criu_ended(a, CRIU_FAILED);
	}
}

/*
 * If CRIU was killed, podman waits for the runtime, and the runtime for tasks that wait for CRIU: they keep its connection to the
 * runtime open.
 */
void agent_plugin_died(struct agent *a)
{
	if (agent_podman_ends(a)) {
		agent_criu_event(a);
		return;
	}
	fault_clear();
	fault(CRIU_WAS_KILLED);
	agent_failed(a);
}

void agent_plugin_event(struct agent *a)
{
	char text[32];
	ssize_t n = read(a->commit_sk, text, sizeof(text) - 1);

	fault_clear();
	text[n > 0 ? n : 0] = '\0';
	/* If a process moves, and no container, CRIU has told us the root of the tree already. */
	if (n > 0 && a->stage == STAGE_RESTORING && a->container)
		sscanf(text, "ready %d", &a->root);
	if (n > 0 && a->stage == STAGE_RESTORING) {
		all_restored(a);
	} else if (n > 0) {
		agent_plugin_goes(a);
	} else {
		/* CRIU tells us why. */
		if (a->stage < STAGE_COMMITTED)
			agent_take_container_down(a);
		close_fd(&a->commit_sk);
	}
}
