// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What the source asks of the destination, in the order of a move. agent_answer() has the list.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "agent.h"
#include "content.h"
#include "host.h"
#include "text.h"

static int op_hello(struct agent *a, json_t *message, json_t **answer)
{
	(void)answer;
	if (json_integer_value(json_object_get(message, "wire")) != WIRE_VERSION)
		return fault("the godwit here (%s) does not understand the other one's: install the same",
			     GODWIT_VERSION);
	agent_tell(a, agent_hello(a));
	/* CRIU takes its time when it is asked first. The source does not wait for that. */
	if (a->stage == STAGE_IDLE && !a->criu_trouble && host_check_criu())
		a->criu_trouble = xstrdup(fault_text());
	content_warm_up();
	fault_clear();
	return 0;
}

static int op_ping(struct agent *a, json_t *message, json_t **answer)
{
	(void)a;
	(void)message;
	*answer = json_pack("{s:b}", "pong", 1);
	return 0;
}

static int op_check(struct agent *a, json_t *message, json_t **answer)
{
	json_t *digests = json_object(), *problems, *file;
	json_int_t bytes = 0;
	size_t i;

	if (a->stage != STAGE_IDLE)
		return fault("it is too late to ask what speaks against the move");
	addresses_free(&a->addresses);
	problems = agent_check(a, message, digests);
	/* The source has to read these files, too, so we wait for the source. */
	json_array_foreach(json_object_get(message, "files"), i, file)
		if (json_object_get(digests, json_string_value(json_object_get(file, "path")) ?: ""))
			bytes += json_integer_value(json_object_get(file, "size"));
	a->patience = bytes / CHECK_BYTES_MS / 1000;
	*answer = json_pack("{s:o, s:o, s:o}", "problems", problems, "digests", digests, "keys", agent_keys());
	return 0;
}

/* Everything that can be done while the process still runs. */
static int op_prepare(struct agent *a, json_t *message, json_t **answer)
{
	const char *base = json_string_value(json_object_get(message, "images"));

	if (a->stage != STAGE_IDLE)
		return fault("the move is under way already");
	/* The deadline is twice the source's limit, so that the source gives up first. */
	a->deadline = now_ns() + json_integer_value(json_object_get(message, "limit_ms")) * 2000000;
	addresses_free(&a->addresses);
	if (addresses_from_json(&a->addresses, json_object_get(message, "addresses")))
		return -1;
	a->container = json_incref(json_object_get(message, "container"));
	a->mntns = json_incref(json_object_get(message, "mntns"));
	agent_set_stage(a, STAGE_PREPARED);
	a->images = images_make(base ?: IMAGES_DIR, a->id);
	if (!a->images || agent_save(a) || addresses_keep_quiet(&a->addresses, a->id, false) ||
	    agent_set_environment(json_object_get(message, "env")) ||
	    (a->mntns && agent_make_mntns(a, json_object_get(message, "outside"))) ||
	    (a->container ? agent_prepare_container(a) : agent_start_criu(a)))
		return -1;
	*answer = json_pack("{s:b}", "prepared", 1);
	return 0;
}

static int op_restore(struct agent *a, json_t *message, json_t **answer)
{
	(void)answer;	/* "ready" is said when all is restored */
	return agent_restore(a, message);
}

static int op_commit(struct agent *a, json_t *message, json_t **answer)
{
	(void)message;
	(void)answer;
	return agent_commit(a);
}

static int op_abort(struct agent *a, json_t *message, json_t **answer)
{
	if (a->stage == STAGE_COMMITTED || a->stage == STAGE_RUNNING)
		return fault("it is too late: the process runs here");
	/* Some tasks may have run, so only a person may call that undone. */
	if (a->stage == STAGE_LOST && !json_object_get(message, "word"))
		return agent_lost();
	agent_undo_copy(a);
	/* What comes up when files are removed is said with "bye". */
	*answer = json_pack("{s:b, s:o}", "aborted", 1, "warnings", a->warnings);
	a->warnings = json_array();
	return 0;
}

/* The source knows now that the copy runs here. */
static void settle_in(struct agent *a, bool leave_images)
{
	agent_keep_files(a);
	/* By godwit settle podman has it already, and a person may have changed it, or ended the container, since. */
	if (a->container && !json_object_get(a->container, "policy_back"))
		agent_give_policy(a);
	if (!leave_images && images_remove(a->images))
		agent_warn(a, fault_text());
	fault_clear();
}

static int op_bye(struct agent *a, json_t *message, json_t **answer)
{
	if (a->stage == STAGE_READY || a->stage == STAGE_COMMITTED)
		return fault("it is too early: say commit or abort");
	if (a->stage < STAGE_COMMITTED)
		agent_undo_copy(a);
	/* Somebody else calls, such as godwit settle, and takes the connection. The rest is removed later. */
	if (a->stage == STAGE_REMOVING && agent_remove_files(a, true))
		return 0;
	if (a->stage == STAGE_RUNNING)
		settle_in(a, json_is_true(json_object_get(message, "leave_images")));
	*answer = json_pack("{s:b, s:O}", "bye", 1, "warnings", a->warnings);
	if (a->stage == STAGE_LOST)
		agent_set_stage(a, STAGE_END);	/* what is written down stays, for who asks later */
	else
		agent_enter_stage(a, STAGE_END);
	return 0;
}

/* godwit settle has given the container its restart policy. The source may never say "bye". */
static int op_policy(struct agent *a, json_t *message, json_t **answer)
{
	(void)message;
	if (a->container)
		json_object_set_new(a->container, "policy_back", json_true());
	*answer = json_pack("{s:b}", "policy", 1);
	return agent_save(a);
}

int agent_answer(struct agent *a, const char *op, json_t *message, json_t **answer)
{
	static const struct {
		const char *op;
		int (*function)(struct agent *, json_t *, json_t **);
	} ops[] = {
		{ "hello", op_hello }, { "ping", op_ping }, { "check", op_check },
		{ "prepare", op_prepare }, { "addresses", agent_take_addresses }, { "file", agent_take_file },
		{ "file-end", agent_end_file }, { "compare", agent_compare_file }, { "files-end", agent_end_files },
		{ "restore", op_restore }, { "commit", op_commit }, { "abort", op_abort }, { "policy", op_policy },
		{ "bye", op_bye },
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
		if (!strcmp(ops[i].op, op))
			return ops[i].function(a, message, answer);
	return fault("'%s' is not known here", op);
}
