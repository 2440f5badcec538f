// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The stage of a move at its source. And what the source writes down: for its keeper, and for a person who settles the move.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "move.h"
#include "state.h"

/*
 * From each stage, the stages that may come next. Not in here: back from MOVE_RAN, since the process runs at the
 * destination; from MOVE_RESTORING to MOVE_FROZEN, since a copy that the source gave up may run; and out of the two ends.
 */
static const unsigned int next_stages[] = {
	[MOVE_RUNNING] = 1 << MOVE_FREEZING | 1 << MOVE_STAYED,
	[MOVE_FREEZING] = 1 << MOVE_FROZEN | 1 << MOVE_RUNNING | 1 << MOVE_STAYED,	/* MOVE_RUNNING: to try again */
	[MOVE_FROZEN] = 1 << MOVE_RESTORING | 1 << MOVE_RUNNING | 1 << MOVE_STAYED | 1 << MOVE_DECIDED,	/* by a person */
	[MOVE_RESTORING] = 1 << MOVE_DECIDED | 1 << MOVE_STAYED,
	[MOVE_DECIDED] = 1 << MOVE_RAN | 1 << MOVE_FROZEN | 1 << MOVE_MOVED,	/* MOVE_MOVED: a person says that it runs there */
	[MOVE_RAN] = 1 << MOVE_MOVED,
	[MOVE_MOVED] = 0,
	[MOVE_STAYED] = 0,
};

void move_set_stage(struct move *m, enum move_stage stage)
{
	if (stage != m->shared->stage && !(next_stages[m->shared->stage] & 1 << stage))
		abort();	/* a fault of ours: the keeper goes on from the last stage */
	m->shared->stage = stage;
}

/* -------------------------------------------------------- written down -- */

static const char *const stage_names[] = {
	[MOVE_FROZEN] = "frozen", [MOVE_DECIDED] = "decided", [MOVE_RAN] = "ran",
};

/* What is written down before the decision is all to be undone alike. */
static enum move_stage stage_to_save(const struct move *m)
{
	return m->shared->stage < MOVE_DECIDED ? MOVE_FROZEN : m->shared->stage == MOVE_RAN ? MOVE_RAN : MOVE_DECIDED;
}

enum move_stage move_stage_in(const json_t *state)
{
	const char *name = json_string_value(json_object_get(state, "stage"));

	for (enum move_stage stage = MOVE_FROZEN; name && stage <= MOVE_RAN; stage++)
		if (stage_names[stage] && !strcmp(stage_names[stage], name))
			return stage;
	return MOVE_RUNNING;
}

int move_save(struct move *m)
{
	json_t *stopped = json_array();

	/* Another process may have the number later, so the start time of this process is noted with it. */
	if (!m->process.start)
		m->process = proc_identify(m->process.pid);
	for (size_t i = 0; i < m->plan.tree.n; i++)
		if (m->plan.tree.task[i].was_stopped)
			json_array_append_new(stopped, json_integer(m->plan.tree.task[i].pid));
	return state_save(m->id, json_pack("{s:s, s:s, s:i, s:I, s:s, s:s*, s:s, s:s, s:o, s:o, s:b, s:O*, s:s*, s:s*, s:s*}",
		"id", m->id, "stage", stage_names[stage_to_save(m)], "pid", (int)m->process.pid,
		"start", (json_int_t)m->process.start, "to", m->host, "ssh", m->ssh, "images_base", m->images_base,
		"boot", m->shared->boot, "addresses", addresses_json(&m->addresses), "was_stopped", stopped,
		"stop_sent", m->shared->stop_sent, "container", m->container.facts, "dump", m->container.dump,
		"work", m->container.work, "lock", m->lock_table));
}

void move_remember_stopped(struct move *m, json_t *state)
{
	json_t *pid;
	size_t i;

	for (i = 0; i < m->plan.tree.n; i++)
		m->plan.tree.task[i].was_stopped = false;
	json_array_foreach(json_object_get(state, "was_stopped"), i, pid)
		for (size_t j = 0; j < m->plan.tree.n; j++)
			if (m->plan.tree.task[j].pid == json_integer_value(pid))
				m->plan.tree.task[j].was_stopped = true;
}

static char *copy_text(json_t *text)
{
	return json_is_string(text) ? xstrdup(json_string_value(text)) : NULL;
}

void move_remember_container(struct move *m, json_t *state)
{
	json_decref(m->container.facts);
	m->container.facts = json_incref(json_object_get(state, "container"));
	m->container.name = json_string_value(json_object_get(m->container.facts, "name"));
	m->container.dump = copy_text(json_object_get(state, "dump"));
	m->container.work = copy_text(json_object_get(state, "work"));
	m->lock_table = copy_text(json_object_get(state, "lock"));
}

int move_load(struct move *m, json_t *state)
{
	m->process.pid = json_integer_value(json_object_get(state, "pid"));
	m->process.start = json_integer_value(json_object_get(state, "start"));
	m->host = json_string_value(json_object_get(state, "to"));
	m->ssh = json_string_value(json_object_get(state, "ssh"));
	m->images_base = json_string_value(json_object_get(state, "images_base"));
	m->images = xasprintf("%s/%s", m->images_base, m->id);
	m->shared->stage = move_stage_in(state);
	if (m->shared->stage == MOVE_RUNNING)
		return fault("move %s: what is written down of it makes no sense: settle it with the godwit that wrote that", m->id);
	m->shared->stop_sent = json_is_true(json_object_get(state, "stop_sent"));
	snprintf(m->shared->boot, sizeof(m->shared->boot), "%s", json_string_value(json_object_get(state, "boot")));
	move_remember_container(m, state);
	if (addresses_from_json(&m->addresses, json_object_get(state, "addresses")))
		return -1;
	addresses_check_source(&m->addresses);	/* finds their interfaces */
	fault_clear();
	if (!proc_is_there(&m->process))
		return 0;
	if (tree_collect(&m->plan.tree, m->process.pid))
		return -1;
	move_remember_stopped(m, state);
	return 0;
}
