// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit settle: a person decides how a move ends whose two ends can't talk to each other any more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host.h"
#include "move/move.h"
#include "podman.h"
#include "state.h"

#define ANSWER_MS	30000
#define BYE_MS		600000	/* what was copied is removed meanwhile */

/* host: it has sent them; or NULL */
static void warn(const char *host, json_t *warnings)
{
	json_t *warning;
	size_t i;

	json_array_foreach(warnings, i, warning)
		fprintf(stderr, "godwit: warning: %s%s%s\n", host ?: "", host ? ": " : "", json_string_value(warning));
}

/* 0: the copy is undone. -1 with fault(): the destination refuses (dest->refused), or can't be heard. */
static int ask_abort(struct dest *dest)
{
	json_t *word = json_pack("{s:s, s:b}", "op", "abort", "word", 1);
	json_t *answer = wire_send(&dest->wire, word) ? NULL : dest_hear_aborted(dest, ANSWER_MS);
	bool aborted = json_object_get(answer, "aborted");

	warn(dest->host, json_object_get(answer, "warnings"));
	dest->refused = answer && dest_understand(dest, answer);
	json_decref(answer);
	return aborted ? 0 : -1;
}

static int ask_commit(struct dest *dest)
{
	json_t *answer = dest_ask(dest, json_pack("{s:s}", "op", "commit"), ANSWER_MS);

	json_decref(answer);
	return answer ? 0 : -1;
}

/*
 * If the source lives, it lets nothing run before it has asked the agent, and the agent must answer at once. But podman takes
 * seconds. So this process tells podman, and the agent only remembers that. Before its answer the agent may tell more of the
 * commit. (A source that has come back has the connection now, and says "bye".)
 */
static void give_policy(struct dest *dest, json_t *container)
{
	int ret = podman_give_policy(container);
	json_t *answer = NULL;

	if (ret)
		fprintf(stderr, "godwit: warning: %s\n", fault_text());
	fault_clear();
	if (ret < 0 || wire_send(&dest->wire, json_pack("{s:s}", "op", "policy")))
		return;
	while (!json_object_get(answer, "policy") && !json_object_get(answer, "failed")) {
		json_decref(answer);
		if (wire_receive(&dest->wire, &answer, NULL, NULL, ANSWER_MS))
			break;
	}
	json_decref(answer);
}

/* At the destination, through its agent, which remembers for the source that it let the copy go. */
static int settle_there(const char *id, json_t *state, bool commit)
{
	struct dest dest = DEST_INIT;
	json_t *bye = NULL;

	if (dest_connect(&dest, NULL, NULL, id, true))
		return failed(EXIT_REFUSED);
	if (commit ? ask_commit(&dest) : ask_abort(&dest))
		return failed(dest.refused ? EXIT_REFUSED : EXIT_LOST);
	if (!commit)
		bye = dest_ask(&dest, json_pack("{s:s}", "op", "bye"), BYE_MS);
	else if (json_object_get(state, "container"))
		give_policy(&dest, json_object_get(state, "container"));
	warn(dest.host, json_object_get(bye, "warnings"));
	dest_close(&dest);
	if (!commit && !bye)
		fprintf(stderr, "godwit: warning: not all of its files may be removed: if godwit status shows it later: godwit "
				"settle %s abort\n", id);
	json_decref(bye);
	printf("godwit: %s: %s\n", id, commit ? "the process runs here" : "forgotten");
	return EXIT_OK;
}

/* Say how the move has ended. If the destination had decided before, this may differ from the person's word. */
static int say(const struct move *m, int code, bool commit)
{
	bool ended = code == EXIT_OK;

	warn(NULL, m->report.warnings);
	if (code != EXIT_OK && code != EXIT_STAYED)
		return failed(code);
	if (ended != commit) {
		fault("%s decided this", m->host);
		fprintf(stderr, "godwit: %s: the process %s: %s\n", m->id, ended ? "has ended here" : "runs on here", fault_text());
		return commit ? EXIT_STAYED : EXIT_REFUSED;
	}
	printf("godwit: %s: the process %s\n", m->id, ended ? "has ended here" : "runs on here");
	return json_array_size(m->report.warnings) ? EXIT_WARNED : EXIT_OK;
}

/*
 * At the source, where the process is frozen. The destination has the first word, if it can be reached; else the person's
 * word counts.
 */
static int settle_here(struct move *m, bool commit)
{
	bool reached = dest_connect(&m->dest, m->host, m->ssh, m->id, true) == 0;

	if (!reached && m->dest.hello && !json_object_get(m->dest.hello, "gone"))
		return failed(EXIT_REFUSED);
	fault_clear();
	if (commit) {
		m->word = !m->dest.hello;
		if (m->shared->stage == MOVE_FROZEN) {
			/* godwit may have been killed before it had synced. If this fails, the person decides once more. */
			if (!m->word && move_sync(m))
				return failed(EXIT_REFUSED);
			move_decide(m);
		}
		return say(m, move_end(m), true);
	}
	if (m->shared->stage == MOVE_RAN) {
		fault("process %d runs at %s: godwit settle %s commit", m->process.pid, m->host, m->id);
		return failed(EXIT_REFUSED);
	}
	if (reached && ask_abort(&m->dest))
		return failed(EXIT_REFUSED);
	move_set_stage(m, MOVE_FROZEN);
	return say(m, move_end(m), false);
}

int cmd_settle(int argc, char **argv)
{
	static struct move_shared shared;
	struct move m = MOVE_INIT;
	const char *word;
	json_t *state;

	word = only_argument(argc, argv, 2, "move and how it ends: ID commit, or ID abort");
	if (strcmp(word, "commit") && strcmp(word, "abort"))
		wrong_usage("'%s': say commit or abort", word);
	if (host_check_root())
		return failed(EXIT_REFUSED);
	state = state_load(argv[1]);
	if (!json_object_get(state, "to"))
		return settle_there(argv[1], state, !strcmp(word, "commit"));
	m.shared = &shared;
	m.report.warnings = json_array();
	snprintf(m.id, sizeof(m.id), "%s", argv[1]);
	m.lock = state_lock(m.id);
	if (m.lock < 0 || move_load(&m, state))
		return failed(EXIT_REFUSED);
	return settle_here(&m, !strcmp(word, "commit"));
}
