// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What speaks against a move: at the source, and at the destination, which the source asks. Nothing is stopped yet.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "content.h"
#include "host.h"
#include "move.h"
#include "netns.h"
#include "state.h"
#include "text.h"

#define CHECK_MS	60000
#define LIMIT_S		45	/* how long a process may be frozen, if the operator does not say */
#define LEAST_PAUSE_S	(AFTER_LIMIT_S + 2)	/* peers round their time, and to ask them takes a while */
#define RENEW_S		60	/* the default of pause_timeout: this host may wait for longer than its peers do */
#define CHECK_TRIES	5

/* The first problem becomes the reason. All are shown where steps are: with --verbose, or at a terminal. */
static int refuse_for(json_t *problems)
{
	size_t n = json_array_size(problems), i;
	json_t *text;

	if (!n)
		return 0;
	json_array_foreach(problems, i, text)
		report_note("%s", json_string_value(text));
	fault("%s%s", json_string_value(json_array_get(problems, 0)),
	      n > 1 ? " (and more: godwit check)" : "");
	return -1;
}

static const char *key_text(uint64_t fingerprint, char text[20])
{
	snprintf(text, 20, "%016llx", (unsigned long long)fingerprint);
	return fingerprint ? text : "none";
}

/*
 * Peers accept a changed address only with the cluster's key. While the key rotates, each of the two hosts must accept the
 * key that the other one signs with.
 */
static int check_keys(struct move *m, json_t *there)
{
	json_t *keys = json_object_get(there, "keys");
	uint64_t theirs[2] = { json_integer_value(json_array_get(keys, 0)), json_integer_value(json_array_get(keys, 1)) };
	const char *unknown = json_string_value(json_object_get(there, "unknown"));
	uint64_t ours[2];
	char a[20], b[20];

	if (!m->plan.rdma)
		return 0;
	if (rdma_key_fingerprints(ours))
		return -1;
	if (unknown)
		return fault("key: %s: %s", m->host, unknown);
	if (ours[0] != theirs[0] &&
	    (!ours[0] || !theirs[0] || ours[0] != theirs[1] || ours[1] != theirs[0]))
		return fault("key: this host has %s, %s has %s: godwit key set, with the same on all hosts",
			     key_text(ours[0], a), m->host, key_text(theirs[0], b));
	if (!ours[0] && !json_is_true(json_object_get(there, "unsigned")))
		return fault("key: %s has none: " KEY_HOW, m->host);
	if (m->gids_change && !ours[0])
		return fault("key: the RDMA address changes, and peers believe that only with the cluster's "
			     "key: godwit key set, here, on %s and at all peers", m->host);
	return 0;
}

/* A container has process numbers of its own and, if it has a network namespace, a device with numbers of its own. */
static void ask_for_container(const struct move *m, json_t *question)
{
	json_object_set(question, "container", m->container.facts);
	json_object_set_new(question, "pids", json_array());
	/* An archive of each volume is one of the images. */
	json_object_set_new(question, "memory", json_integer(m->plan.memory + container_volumes_size(m)));
	if (container_netns(m))
		json_object_set_new(question, "contexts", json_array());
}

/*
 * What speaks against the move at the destination, its keys included: an array of texts. The destination's name is put before
 * its own texts. NULL with fault().
 */
static json_t *ask_once(struct move *m)
{
	json_t *question = plan_json(&m->plan), *answer, *problems, *text, *named = json_array();
	size_t i;

	if (m->container.name)
		ask_for_container(m, question);
	json_object_set_new(question, "op", json_string("check"));
	json_object_set_new(question, "images", json_string(m->images_base));
	json_object_set_new(question, "addresses", addresses_json(&m->addresses));
	files_ask(m, question);
	answer = dest_ask(&m->dest, question, CHECK_MS + files_size(m) / CHECK_BYTES_MS);
	if (!answer)
		return NULL;
	if (check_keys(m, json_object_get(answer, "keys")))
		json_array_append_new(named, text_json(fault_text()));
	fault_clear();
	problems = json_object_get(answer, "problems");
	files_judge(m, json_object_get(answer, "digests"), problems);
	json_array_foreach(problems, i, text) {
		char *whole = xasprintf("%s: %s", m->host, json_string_value(text));

		json_array_append_new(named, text_json(whole));
		free(whole);
	}
	json_decref(answer);
	return named;
}

/* The process runs. If it renames, removes or cuts a file while we ask, a problem with files may mean nothing: ask again. */
static json_t *ask_there(struct move *m)
{
	for (int tries = 1;; tries++) {
		json_t *problems = ask_once(m);

		if (!json_array_size(problems) || tries == CHECK_TRIES || !proc_files_refresh(&m->plan.files))
			return problems;
		json_decref(problems);
	}
}

json_t *move_problems_there(struct move *m)
{
	json_t *problems, *more;
	const char *boot;

	if (dest_hello(&m->dest))
		return NULL;
	boot = json_string_value(json_object_get(m->dest.hello, "boot")) ?: "";
	if (m->shared)
		snprintf(m->shared->boot, sizeof(m->shared->boot), "%s", boot);
	if (!strcmp(boot, host_boot_id())) {
		fault("%s: that is this host", m->host);
		return NULL;
	}
	problems = json_array();
	/* A container with a network namespace gets its own device there, with all addresses. */
	if (!container_netns(m)) {
		move_map_gids(m, problems);
		move_map_devices(m);
		plan_cm_there(&m->plan, m->host, json_object_get(m->dest.hello, "guids"));
	}
	files_drop_copied(m);
	more = ask_there(m);
	json_array_extend(problems, more);
	if (!more) {
		json_decref(problems);
		return NULL;
	}
	json_decref(more);
	return problems;
}

static int check_there(struct move *m)
{
	json_t *problems = move_problems_there(m);
	int ret = problems ? refuse_for(problems) : -1;

	json_decref(problems);
	return ret;
}

static bool is_below(pid_t pid, pid_t root)
{
	struct tree tree;
	bool has = tree_collect(&tree, root) == 0 && tree_has(&tree, pid);

	tree_free(&tree);
	fault_clear();
	return has;
}

/*
 * A process that another move has left frozen here may run elsewhere, and its peers may talk to that copy. So it does not move
 * before somebody has settled the other move.
 */
int move_check_others(const struct move *m)
{
	json_t *all, *state;
	int ret = state_all(&all);
	size_t i;

	json_array_foreach(all, i, state) {
		const char *id = json_string_value(json_object_get(state, "id"));
		struct proc_id root = { json_integer_value(json_object_get(state, "pid")),
					json_integer_value(json_object_get(state, "start")) };

		if (ret || !strcmp(id, m->id) || !json_object_get(state, "to") || !proc_is_there(&root) ||
		    (!is_below(root.pid, m->process.pid) && !is_below(m->process.pid, root.pid)))
			continue;
		ret = fault("process %d: it is in the middle of move %s: if that was left half done: godwit settle %s "
			    "commit, or abort", m->process.pid, id, id);
	}
	json_decref(all);
	return ret;
}

/* Why this host neither asks peers nor moves RDMA: it has no key, or nobody can tell. NULL: it does both. Free it. */
static char *why_mute(void)
{
	uint64_t fingerprints[2];
	char *why = host_check_key(fingerprints) ? xstrdup(fault_text()) : NULL;

	fault_clear();
	return why;
}

int move_plan(struct move *m)
{
	struct contexts asked = { 0 };
	uint64_t images;
	char *mute;
	int ret;

	if (move_check_others(m))
		return -1;
	/* We look for the key once. If there is none, peers are not asked, and a later key must not let the move begin. */
	mute = why_mute();
	/* Without a destination we do not know which addresses go along, so peers are not asked. */
	ret = m->host && !mute ? plan_ask_peers(m->process.pid, &asked) : 0;
	if (!ret)
		ret = plan_make(&m->plan, m->process.pid, m->container.name, &m->addresses, &asked);
	contexts_free(&asked);
	if (!ret && m->plan.rdma && mute)
		plan_problem(&m->plan, "%s", mute);
	free(mute);
	if (ret)
		return -1;
	m->report.rdma = m->plan.rdma;
	m->report.stock_peers = json_incref(m->plan.stock_peers);
	files_asked(m);
	if (m->container.name)
		container_facts(m);
	if (addresses_check_source(&m->addresses)) {
		plan_problem(&m->plan, "%s", fault_text());
		fault_clear();
	}
	images = m->plan.memory + container_volumes_size(m);
	if (images_space(m->images_base) < images + (1 << 20))
		plan_problem(&m->plan, "disk: %s has not enough room for %llu MiB: give --images", m->images_base,
			     (unsigned long long)images >> 20);
	return 0;
}

/*
 * Peers give up queue pairs that are stopped for too long, and then the copy must not become the only one. How long peers
 * wait is theirs to say: see peers_wait(). Here all hosts are taken to have this host's limits.
 */
static int check_limit(struct move *m)
{
	int once = m->plan.rdma ? host_pause_timeout() : 0, wait = m->plan.rdma ? host_pause_max() : 0;
	int most = wait - AFTER_LIMIT_S;

	if (once && once < LEAST_PAUSE_S)
		return fault("peers wait for %d s only, and need %d: write a higher number to "
			     "/sys/module/rdma_rxe/parameters/pause_timeout, here and at its peers", once, LEAST_PAUSE_S);
	m->renew_every = (once && once < RENEW_S ? once : RENEW_S) * INT64_C(1000000000) / 4;
	if (!m->limit_ms)
		m->limit_ms = (wait && most < LIMIT_S ? most : LIMIT_S) * 1000;
	if (wait && m->limit_ms > most * INT64_C(1000))
		return fault("--limit %d: peers wait for %d s at most, so that %d is the most: write a higher number to "
			     "/sys/module/rdma_rxe/parameters/pause_max, here and at its peers", m->limit_ms / 1000,
			     wait, most);
	return 0;
}

static int check_here(struct move *m)
{
	if (host_check_criu() || host_check_nft() || move_plan(m) || check_limit(m) ||
	    (m->plan.rdma && host_check_plugin()))
		return -1;
	return refuse_for(m->plan.problems);
}

static int prepare_there(struct move *m)
{
	json_t *answer = dest_ask(&m->dest, json_pack("{s:s, s:s, s:o, s:i, s:o, s:O*, s:O*, s:O}", "op", "prepare",
		"images", m->images_base, "addresses", addresses_json(&m->addresses),
		"limit_ms", m->limit_ms, "env", move_plugin_env(m), "container", m->container.facts,
		"mntns", m->plan.mntns.differences, "outside", m->plan.outside), CHECK_MS);

	netns_drop_sysctls(container_netns(m));
	json_decref(answer);
	return answer ? dest_ping(&m->dest) : -1;
}

/* A peer that can't be told to wait lives through the move only by its own retries. The operator hears of it first. */
static void name_silent_peers(const struct move *m)
{
	json_t *gid, *live;
	size_t i, j;

	json_array_foreach(m->plan.silent_peers, i, gid) {
		const char *may = "does not answer, or ";

		json_array_foreach(m->plan.stock_peers, j, live)
			if (json_equal(gid, live))
				may = "";
		report_beforehand("the peer at %s %shas a driver without this protocol, or another key or none: it can't be "
				  "told, and lives through the move only if its own retries last longer",
				  json_string_value(gid), may);
	}
}

static int start_there(struct move *m)
{
	return dest_start(&m->dest, m->host, m->ssh, m->id, false);
}

/*
 * The destination looks at itself while we look here, but does not wait for us for long (agent_linger()). To look at all files of a
 * container may take longer. So then the destination is started after that.
 */
static int check_both(struct move *m)
{
	int ret = m->container.name ? check_here(m) ?: start_there(m) : start_there(m) ?: check_here(m);

	return ret ?: check_there(m);
}

int move_check(struct move *m)
{
	report_step("check", "process %d", m->process.pid);
	/* What takes longer than the process may be frozen would only fail later. */
	if (files_sync_early(m, m->limit_ms ?: LIMIT_S * 1000) || check_both(m)) {
		dest_close(&m->dest);
		return EXIT_REFUSED;
	}
	if (prepare_there(m)) {
		move_take_back(m);
		return EXIT_REFUSED;
	}
	name_silent_peers(m);
	container_tell_network(m);
	report_detail("process %d: %zu process%s, %zu context%s, %zu QP%s, %.1f MiB", m->process.pid,
		     m->plan.tree.n, m->plan.tree.n == 1 ? "" : "es", m->plan.contexts.n,
		     m->plan.contexts.n == 1 ? "" : "s", m->plan.qps, m->plan.qps == 1 ? "" : "s",
		     m->plan.memory / 1048576.0);
	return EXIT_OK;
}
