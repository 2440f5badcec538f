// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The stage of a move at its destination. And what the agent writes down: for its keeper, for `godwit status`, and for a
 * person who settles the move.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "agent.h"
#include "text.h"

/* We wait for so long for a source that was lost, or does not say what it has to: perhaps its host is dead. */
#define LINGER_S	120

void agent_linger(struct agent *a)
{
	a->deadline = now_ns() + (LINGER_S + a->patience) * INT64_C(1000000000);
}

/*
 * From each stage, the stages that may come next. On the way to STAGE_IDLE all is undone, which may be done more than once. Not
 * in here: from STAGE_COMMITTED or STAGE_RUNNING to STAGE_IDLE, since the process runs here, or may.
 */
static const unsigned int next_stages[] = {
	[STAGE_IDLE] = 1 << STAGE_IDLE | 1 << STAGE_PREPARED | 1 << STAGE_END,
	[STAGE_REMOVING] = 1 << STAGE_IDLE,
	[STAGE_PREPARED] = 1 << STAGE_RESTORING | 1 << STAGE_REMOVING | 1 << STAGE_IDLE,	/* STAGE_IDLE: there are no files */
	[STAGE_RESTORING] = 1 << STAGE_READY | 1 << STAGE_REMOVING,
	[STAGE_READY] = 1 << STAGE_COMMITTED | 1 << STAGE_REMOVING,
	[STAGE_COMMITTED] = 1 << STAGE_RUNNING | 1 << STAGE_LOST | 1 << STAGE_READY,	/* STAGE_READY: nothing was let go */
	[STAGE_RUNNING] = 1 << STAGE_END,
	[STAGE_LOST] = 1 << STAGE_REMOVING | 1 << STAGE_END,	/* STAGE_REMOVING: on a person's word */
	[STAGE_END] = 0,
};

void agent_set_stage(struct agent *a, enum stage stage)
{
	if (!(next_stages[a->stage] & 1 << stage))
		abort();	/* a fault of ours: the keeper goes on from what is written down */
	a->stage = stage;
	if (stage == STAGE_IDLE || stage >= STAGE_RUNNING)
		agent_linger(a);
	if (stage == STAGE_RUNNING)
		signal(SIGCHLD, SIG_IGN);	/* the process is our child, but may end as it likes */
}

/* TASKS_RAN stays until all is undone. So the plugin's word, which may be heard after CRIU's end, changes nothing then. */
void agent_set_tasks(struct agent *a, enum tasks tasks)
{
	if (tasks == TASKS_FROZEN || tasks > a->tasks)
		a->tasks = tasks;
}

void agent_set_adding(struct agent *a, bool adding)
{
	if (adding && a->stage != STAGE_PREPARED)
		abort();
	a->adding = adding;
}

void agent_set_criu_asks(struct agent *a, bool asks)
{
	if (asks && a->stage != STAGE_RESTORING)
		abort();
	a->criu_asks = asks;
}

int agent_enter_stage(struct agent *a, enum stage stage)
{
	agent_set_stage(a, stage);
	return agent_save(a);
}

/* -------------------------------------------------------- written down -- */

static const char *const stage_names[] = {
	[STAGE_IDLE] = "idle", [STAGE_REMOVING] = "removing", [STAGE_PREPARED] = "prepared",
	[STAGE_RESTORING] = "restoring", [STAGE_READY] = "ready", [STAGE_COMMITTED] = "committed",
	[STAGE_RUNNING] = "running", [STAGE_LOST] = "lost", [STAGE_END] = "end",
};

enum stage agent_stage_in(const json_t *state)
{
	const char *name = json_string_value(json_object_get(state, "stage"));

	for (enum stage stage = STAGE_IDLE; name && stage < STAGE_END; stage++)
		if (!strcmp(stage_names[stage], name))
			return stage;
	return STAGE_IDLE;
}

static json_t *id_json(const struct proc_id *id)
{
	return json_pack("[i, I]", (int)id->pid, (json_int_t)id->start);
}

static struct proc_id id_from_json(json_t *json)
{
	return (struct proc_id){ json_integer_value(json_array_get(json, 0)),
				 json_integer_value(json_array_get(json, 1)) };
}

/* In the order in which the CRIU plugin unties them from CRIU: all_outlived_criu() relies on it. */
void agent_note_restored(struct agent *a)
{
	pid_t *pids;
	int n = proc_read_tree(a->root, &pids);

	json_decref(a->restored);
	a->restored = json_array();
	for (int i = 0; i < n; i++) {
		struct proc_id id = proc_identify(pids[i]);

		json_array_append_new(a->restored, id_json(&id));
	}
	free(pids);
}

struct proc_id agent_restored(const struct agent *a, size_t n)
{
	return id_from_json(json_array_get(a->restored, n));
}

int agent_save(struct agent *a)
{
	if (a->stage == STAGE_IDLE || a->stage == STAGE_END) {
		state_remove(a->id);
		return 0;
	}
	return state_save(a->id, json_pack("{s:s, s:s, s:i, s:i, s:s*, s:o, s:b, s:O, s:o, s:o, s:O*, s:O*, s:o, s:b}",
		"id", a->id, "stage", stage_names[a->stage], "pid", (int)a->root,
		"agent", (int)getpid(), "images", a->images, "addresses", addresses_json(&a->addresses),
		"added", a->adding, "copied", a->copied, "criu_id", id_json(&a->criu_id),
		"root_id", id_json(&a->root_id), "restored", a->restored, "container", a->container,
		"plugin_id", id_json(&a->plugin_id), "ran", a->tasks == TASKS_RAN));
}

int agent_load(struct agent *a)
{
	json_t *state = state_load(a->id);
	const char *images = json_string_value(json_object_get(state, "images"));

	if (!state)
		return -1;
	a->stage = agent_stage_in(state);
	/* A podman that removes volumes may have outlived its agent. So all is undone once more. */
	if (a->stage == STAGE_REMOVING)
		a->stage = STAGE_PREPARED;
	a->images = images ? xstrdup(images) : NULL;
	json_decref(a->copied);
	a->copied = json_incref(json_object_get(state, "copied"));
	json_decref(a->container);
	a->container = json_incref(json_object_get(state, "container"));
	a->criu_id = id_from_json(json_object_get(state, "criu_id"));
	a->root_id = id_from_json(json_object_get(state, "root_id"));
	a->plugin_id = id_from_json(json_object_get(state, "plugin_id"));
	agent_set_tasks(a, json_is_true(json_object_get(state, "ran")) ? TASKS_RAN : TASKS_FROZEN);
	a->root = a->root_id.pid;
	a->restored = json_incref(json_object_get(state, "restored"));
	addresses_from_json(&a->addresses, json_object_get(state, "addresses"));
	a->adding = json_is_true(json_object_get(state, "added"));
	for (size_t i = 0; i < a->addresses.n; i++) {
		struct address *address = &a->addresses.address[i];

		address->added = a->adding;
		strcpy(address->here, address->ifname);
	}
	json_decref(state);
	return 0;
}

void agent_warn(struct agent *a, const char *text)
{
	json_array_append_new(a->warnings, text_json(text));
}
