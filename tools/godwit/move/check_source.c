// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The source's side of a move up to the decision: check, freeze, dump, transfer, restore.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "content.h"
#include "creds.h"
#include "gids.h"
#include "host.h"
#include "images.h"
#include "move.h"
#include "netns.h"
#include "state.h"
#include "text.h"

#define CHECK_MS	60000
#define LIMIT_S		45	/* a process may be stopped for so long */
#define AFTER_LIMIT_S	10	/* and its peers are called by then */
#define LEAST_PAUSE_S	(AFTER_LIMIT_S + 2)	/* (they round, and it takes a while to ask) */
#define RENEW_S		60	/* the default: peers of a host that waits for longer, or for ever, may not */
#define RENEW_LEAST_NS	INT64_C(1000000000)
#define RENEWED_MS	1280	/* the last pause of those in which they answer; 2.5 s in all */
#define CHECK_TRIES	5
#define DUMP_TRIES	5

/* -------------------------------------------------------------- waiting -- */

static void renew_later(struct move *m, int64_t until)
{
	int64_t now = now_ns(), wait = until > now ? (until - now) / 4 : 0;

	wait = wait > m->renew_every ? m->renew_every : wait;
	m->renew_ns = now + (wait < RENEW_LEAST_NS ? RENEW_LEAST_NS : wait);
}

/* When a quarter of their time is over. */
void move_renew(struct move *m)
{
	if (!m->plan.rdma || now_ns() < m->renew_ns)
		return;
	contexts_renew(&m->plan.contexts);
	renew_later(m, contexts_peers_wait(&m->plan.contexts));
}

int move_await(struct move *m, int fd, int criu)
{
	struct pollfd p[3] = {
		{ .fd = fd, .events = POLLIN },
		{ .fd = criu, .events = POLLIN },
		{ .fd = m->signals, .events = POLLIN },
	};
	int64_t left, until;
	int n;

	do {
		move_renew(m);
		until = m->plan.rdma && m->renew_ns < m->deadline ? m->renew_ns : m->deadline;
		left = (until - now_ns()) / 1000000;
		n = poll(p, 3, left > 0 ? left + 1 : 0);
	} while ((n < 0 && errno == EINTR) || (n == 0 && now_ns() < m->deadline));
	if (n == 0)
		return fault("it took longer than %d s: give --limit, or less memory to move",
			     m->limit_ms / 1000);
	if (p[2].revents) {
		struct signalfd_siginfo info;

		if (read(m->signals, &info, sizeof(info)) == sizeof(info))
			return fault("interrupted by signal %u", info.ssi_signo);
	}
	return p[1].revents && !p[0].revents;
}

/*
 * Wait for a word of CRIU (criu set) or of the destination; the other one's end, a signal and the end of
 * our time are faults.
 */
static int await(struct move *m, bool criu)
{
	int ret = criu ? move_await(m, m->criu.sk, -1) : move_await(m, m->peer.wire.in, m->criu.pidfd);

	return ret == 1 ? fault("criu was killed, or ended, in the middle") : ret;
}

/* The destination's next word, which is to have this key. */
static int hear(struct move *m, const char *key)
{
	json_t *answer;
	int ret = 0;

	if (await(m, false) || wire_receive(&m->peer.wire, &answer, NULL, NULL, 1000))
		return -1;
	if (peer_understand(&m->peer, answer) || !json_object_get(answer, key))
		ret = fault("%s: godwit there talks no sense", m->host);
	json_decref(answer);
	return ret;
}

/* The connection takes no more: did the destination say why it went away? */
static int say_why(struct move *m)
{
	char *lost;

	if (wire_ready(&m->peer.wire, 0)) {
		lost = xstrdup(fault_text());
		fault_clear();
		hear(m, "failed");
		fault("%s", lost);
		free(lost);
	}
	return -1;
}

static int say(struct move *m, json_t *message)
{
	return wire_send(&m->peer.wire, message) ? say_why(m) : 0;
}

/* -------------------------------------------------------------- checking -- */

/* The first problem is the reason, the others are shown if somebody looks. */
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

/* What stands for a device of ours there. */
static void device_there(const struct move *m, const char *device, char there[64])
{
	size_t len = strlen(device);

	for (const char *at = m->device_map; at && *at; at = strchr(at, ','), at += !!at) {
		if (strncmp(at, device, len) || at[len] != '=')
			continue;
		snprintf(there, 64, "%.*s", (int)strcspn(at + len + 1, ","), at + len + 1);
		return;
	}
	snprintf(there, 64, "%s", device);
}

/* As it is given: IPv4 without ::ffff: */
static const char *plain(const char *gid)
{
	return strncmp(gid, "::ffff:", 7) ? gid : gid + 7;
}

/* What is a GID of ours there, on a device with these? NULL with fault(). */
static const char *gid_there(const struct move *m, json_t *here, json_t *gids, const char *old, const char *device)
{
	const char *asked = json_string_value(json_object_get(m->gids_asked, old));
	const char *new = asked ?: old;
	struct in6_addr gid;

	if (inet_pton(AF_INET6, new, &gid) != 1 || addresses_have(&m->addresses, &gid) || gids_find(gids, new))
		return new;
	if (!asked)
		return gids_choose(here, gids, old, m->host, device);
	fault("%s: --gid %s=%s: %s there has no such GID", m->host, plain(old), plain(new), device);
	return NULL;
}

/* Of one context: what its GIDs become on the device that stands for its own. (That there is none, it says itself.) */
static void map_context_gids(struct move *m, const struct context *c, json_t *problems)
{
	json_t *here = gids_json(c->device), *old = plan_context_gids(c, here), *gids, *text;
	char there[64];
	size_t i;

	device_there(m, c->device, there);
	gids = json_object_get(json_object_get(m->peer.hello, "devices"), there);
	json_array_foreach(old, i, text) {
		const char *name = json_string_value(text), *new;

		if (!gids || json_object_get(m->plan.gids, name))
			continue;
		new = gid_there(m, here, gids, name, there);
		m->gids_change |= new && strcmp(name, new);
		json_object_set_new(m->plan.gids, name, json_pack("{s:s*, s:O*}", "there", new, "mtu",
				    json_object_get(gids_find(here, name), "mtu")));
		if (!new)
			json_array_append_new(problems, json_string(fault_text()));
		fault_clear();
	}
	json_decref(here);
	json_decref(old);
}

/* Before map_devices(). */
static void map_gids(struct move *m, json_t *problems)
{
	const char *old;
	json_t *new;

	for (size_t i = 0; i < m->plan.contexts.n; i++)
		map_context_gids(m, &m->plan.contexts.context[i], problems);
	json_object_foreach(m->gids_asked, old, new)
		if (!json_object_get(m->plan.gids, old))
			json_array_append_new(problems, json_sprintf("--gid %s=%s: the process sends from no such GID",
								     plain(old), plain(json_string_value(new))));
}

/* GIDs that change, as the plugin takes them: "OLD=NEW,OLD=NEW" */
static char *gid_map_text(json_t *gids)
{
	char *text = xstrdup("");
	const char *old;
	json_t *entry;

	json_object_foreach(gids, old, entry) {
		const char *new = json_string_value(json_object_get(entry, "there"));
		char *longer;

		if (!new || !strcmp(new, old))
			continue;
		longer = xasprintf("%s%s%s=%s", text, *text ? "," : "", old, new);
		free(text);
		text = longer;
	}
	return text;
}

static const char *key_text(uint64_t fingerprint, char text[20])
{
	snprintf(text, 20, "%016llx", (unsigned long long)fingerprint);
	return fingerprint ? text : "none";
}

/*
 * Peers believe in a changed address only with the cluster's key. While that rotates, what each host signs with the
 * other has to accept.
 */
static int check_keys(struct move *m)
{
	json_t *keys = json_object_get(m->peer.hello, "keys");
	uint64_t theirs[2] = { json_integer_value(json_array_get(keys, 0)), json_integer_value(json_array_get(keys, 1)) };
	const char *unknown = json_string_value(json_object_get(m->peer.hello, "keys_unknown"));
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
	if (!ours[0] && !json_is_true(json_object_get(m->peer.hello, "unsigned")))
		return fault("key: %s has none: " KEY_HOW, m->host);
	if (m->gids_change && !ours[0])
		return fault("key: the RDMA address changes, and peers believe that only with the cluster's "
			     "key: godwit key set, here, on %s and at all peers", m->host);
	return 0;
}

/* The device names there, for what is asked about them. */
static void map_devices(struct move *m)
{
	for (size_t i = 0; i < m->plan.contexts.n; i++) {
		char there[64];

		device_there(m, m->plan.contexts.context[i].device, there);
		strcpy(m->plan.contexts.context[i].device, there);
	}
}

/* The destination's own answer: an array of texts; each is given the host's name. */
/* Numbers of its processes are its own, and so are those of its device's objects, if it has one. */
static void ask_for_container(const struct move *m, json_t *question)
{
	json_object_set(question, "container", m->container.facts);
	json_object_set_new(question, "pids", json_array());
	if (container_netns(m))
		json_object_set_new(question, "contexts", json_array());
}

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
	answer = peer_ask(&m->peer, question, CHECK_MS + files_size(m) / CHECK_BYTES_MS);
	if (!answer)
		return NULL;
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

/* The process runs on: a file that it renames, removes or cuts while we ask is not what the destination lacks. */
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

	if (peer_hello(&m->peer))
		return NULL;
	boot = json_string_value(json_object_get(m->peer.hello, "boot")) ?: "";
	if (m->shared)
		snprintf(m->shared->boot, sizeof(m->shared->boot), "%s", boot);
	if (!strcmp(boot, host_boot_id())) {
		fault("%s: that is this host", m->host);
		return NULL;
	}
	problems = json_array();
	/* (a container's own device is made there with all its addresses) */
	if (!container_netns(m)) {
		map_gids(m, problems);
		map_devices(m);
		plan_cm_there(&m->plan, m->host, json_object_get(m->peer.hello, "guids"));
	}
	if (check_keys(m))
		json_array_append_new(problems, text_json(fault_text()));
	fault_clear();
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
 * What a move has left held here may run elsewhere, and its peers be that one's: it neither moves nor, should that fail,
 * goes on, before somebody has said what became of the first move.
 */
static int check_moves_here(const struct move *m)
{
	json_t *all, *state;
	int ret = state_all(&all);
	size_t i;

	json_array_foreach(all, i, state) {
		const char *id = json_string_value(json_object_get(state, "id"));
		struct proc_id held = { json_integer_value(json_object_get(state, "pid")),
					json_integer_value(json_object_get(state, "start")) };

		if (ret || !strcmp(id, m->id) || !json_object_get(state, "to") || !proc_is_there(&held) ||
		    (!is_below(held.pid, m->pid) && !is_below(m->pid, held.pid)))
			continue;
		ret = fault("process %d: it is in the middle of move %s: if that was left half done: godwit settle %s "
			    "commit, or abort", m->pid, id, id);
	}
	json_decref(all);
	return ret;
}

/* Why it neither asks peers nor moves RDMA: it has no key, or nobody can tell. NULL: it does. Free it. */
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
	char *mute;
	int ret;

	if (check_moves_here(m))
		return -1;
	/* (once: who was not asked for want of a key must not move with one that is there a moment later) */
	mute = why_mute();
	/* (who does not say where to, may mean an address that goes along) */
	ret = m->host && !mute ? plan_ask_peers(m->pid, &asked) : 0;
	if (!ret)
		ret = plan_make(&m->plan, m->pid, m->container.name, &m->addresses, &asked);
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
	if (images_space(m->images_base) < m->plan.memory + (1 << 20))
		plan_problem(&m->plan, "disk: %s has not enough room for %llu MiB: give --images", m->images_base,
			     (unsigned long long)m->plan.memory >> 20);
	return 0;
}

/*
 * Peers give up a process that is stopped for too long, and nobody may decide for a copy then. How long they wait is
 * up to them: see peers_wait(). This host's own limits are what a cluster's hosts are taken to have.
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
	char *gid_map = gid_map_text(m->plan.gids);
	json_t *env = json_object(), *answer;

	if (*gid_map)
		json_object_set_new(env, "GODWIT_SGID_MAP", json_string(gid_map));
	free(gid_map);
	if (m->device_map)
		json_object_set_new(env, "GODWIT_DEVICE_MAP", json_string(m->device_map));
	answer = peer_ask(&m->peer, json_pack("{s:s, s:s, s:o, s:i, s:o, s:O*}", "op", "prepare",
		"images", m->images_base, "addresses", addresses_json(&m->addresses),
		"limit_ms", m->limit_ms, "env", env, "container", m->container.facts), CHECK_MS);
	json_decref(answer);
	return answer ? peer_ping(&m->peer) : -1;
}

/* A peer that can't be told: its own retries decide whether it lives. Nothing is stopped yet. */
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

int move_check(struct move *m)
{
	report_phase("check", "process %d", m->pid);
	if (host_check_root() || peer_start(&m->peer, m->host, m->ssh, m->id, false) ||
	    check_here(m) || check_there(m) || prepare_there(m)) {
		peer_close(&m->peer);
		return EXIT_REFUSED;
	}
	name_silent_peers(m);
	report_detail("process %d: %zu process%s, %zu context%s, %zu QP%s, %.1f MiB", m->pid,
		     m->plan.tree.n, m->plan.tree.n == 1 ? "" : "es", m->plan.contexts.n,
		     m->plan.contexts.n == 1 ? "" : "s", m->plan.qps, m->plan.qps == 1 ? "" : "s",
		     m->plan.memory / 1048576.0);
	return EXIT_OK;
}

/* ------------------------------------------------------ freeze and dump -- */

static int process_dump(struct move *m)
{
	struct criu_options options = {
		.log = "dump.log", .pid = m->pid,
		.shell_job = m->plan.shell_job,
	};

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
	/* (it has a lot to look at before it stops anything, and says when) */
	m->freeze_ns = now_ns();
	m->deadline = m->freeze_ns + m->limit_ms * INT64_C(1000000);
	renew_later(m, INT64_MAX);
	m->shared->stopping = true;
	/* (once we hold the tasks, nobody but us sets their contexts going) */
	setenv("GODWIT_HOLDS", "1", 1);
	return m->container.name ? container_dump(m) : process_dump(m);
}

/* What CRIU left says why it failed. */
static void explain(const struct move *m)
{
	char *log = xasprintf("%s/dump.log", m->container.work ?: m->images);

	images_explain(m->container.dump ?: m->images, log);
	free(log);
}

/* Locks of TCP alone: the tasks' queue pairs have to answer. */
static int container_asked(struct move *m, const char *script)
{
	json_t *netns = container_netns(m);

	if (netns && !strcmp(script, "network-lock"))
		return netns_lock_tcp(netns);
	return netns && !strcmp(script, "network-unlock") ? netns_unlock_tcp(netns) : 0;
}

/* What CRIU has left, podman removes when it has its archive. */
static void container_dumped(struct move *m)
{
	if (!container_netns(m))
		m->lock_table = images_lock_table(m->container.work);
}

/* Returns 1 if CRIU says that it failed: then all runs as before. */
static int until_dumped(struct move *m)
{
	char script[64];

	for (;;) {
		if (await(m, true))
			return -1;
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
			renew_later(m, INT64_MAX);
			/* (who was, when it was checked, may have been woken since) */
			tree_refresh(&m->plan.tree, m->pid);
			tree_see_stopped(&m->plan.tree);
		}
		if (!strcmp(script, "query-ext-files")) {
			m->shared->stopped = true;
			report_phase("dump", "to %s", m->images);
		}
		if (!strcmp(script, "post-dump")) {
			if (m->container.name)
				container_dumped(m);
			return 0;
		}
		if (m->container.name && container_asked(m, script))
			return -1;
		m->criu_asks = false;
		if (criu_answer(&m->criu, true))
			return -1;
	}
}

/* The driver's own time of the first QP stopped; without RDMA, the beginning of the freeze. */
static int find_stop_time(struct move *m)
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
	/* (they have answered by now, and may wait for less than we took them to) */
	renew_later(m, contexts_peers_wait(&m->plan.contexts));
	return contexts_hold(&m->plan.contexts);
}

/* ------------------------------------------------- transfer and restore -- */

struct progress {
	struct move *m;
	uint64_t whole;
	bool stopped;	/* by us: we know why */
};

/* Stop sending when the destination has something to say, which is never good news; or time is up. */
static int on_progress(void *arg, uint64_t bytes)
{
	struct progress *p = arg;

	report_progress(bytes, p->whole);
	move_renew(p->m);
	p->stopped = true;
	if (wire_ready(&p->m->peer.wire, 0)) {
		hear(p->m, "failed");
		return fault("%s: godwit there talks no sense", p->m->host);
	}
	if (now_ns() > p->m->deadline)
		return fault("it took longer than %d s: give --limit", p->m->limit_ms / 1000);
	p->stopped = false;
	return 0;
}

static int send_files(struct move *m, struct progress *p)
{
	int ret = 0;

	wire_cork();
	for (size_t i = 0; !ret && i < m->copy.n; i++)
		ret = images_send_file(&m->peer.wire, m->copy.path[i], on_progress, p);
	ret = ret ?: images_send(&m->peer.wire, m->images, on_progress, p, &m->report.bytes);
	ret = ret ?: files_compare(m);
	return wire_uncork(&m->peer.wire) ?: ret;
}

static int transfer(struct move *m)
{
	struct progress p = { .m = m };

	if (m->container.name && container_archive(m))
		return -1;
	p.whole = images_size(m->images);
	report_phase("transfer", "%.1f MiB to %s", p.whole / 1048576.0, m->host);
	if (m->addresses.n && (say(m, json_pack("{s:s}", "op", "addresses")) || hear(m, "added")))
		return -1;
	if (send_files(m, &p))
		return p.stopped ? -1 : say_why(m);
	return say(m, json_pack("{s:s}", "op", "files-end"));
}

/* Asked for at once behind the files: all of them are there when it is heard. */
static int restore(struct move *m)
{
	json_t *creds = creds_collect(&m->plan.tree);

	if (!creds)
		return -1;
	m->shared->restoring = true;
	if (say(m, json_pack("{s:s, s:b, s:i, s:i, s:o}", "op", "restore", "shell_job", m->plan.shell_job,
			     "processes", (int)m->plan.tree.n, "contexts", (int)m->plan.contexts.n, "creds", creds)) ||
	    hear(m, "received"))
		return -1;
	m->sent_ns = now_ns();
	report_phase("restore", "at %s", m->host);
	move_sync(m);
	return hear(m, "ready");
}

/* Does the plugin say that it is worth while? */
static bool passing(const char *reason)
{
	static const char again[] = "try again";
	size_t len = strlen(reason);

	return len >= strlen(again) && !strcmp(reason + len - strlen(again), again);
}

static int begin_anew(struct move *m)
{
	if (criu_wait(&m->criu, CRIU_END_MS))
		return -1;
	criu_close(&m->criu);
	container_dump_end(m);
	container_forget_dump(m);
	m->shared->criu = -1;
	m->shared->stopping = m->shared->stopped = false;
	if (images_remove(m->images))
		return -1;
	free(m->images);
	m->images = NULL;
	fault_clear();
	return peer_ping(&m->peer);
}

/*
 * The process runs until it is frozen: what was there to be moved when we looked may just be about to
 * change then.
 */
static int freeze_and_dump(struct move *m)
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

/* What was killed while it was held is not to come back elsewhere. */
static int all_alive(struct move *m)
{
	return tree_alive(&m->plan.tree) == m->plan.tree.n ? 0 : fault("a process of it was killed while it was held");
}

/* Whoever has set its contexts going meanwhile, its copy must not run: what they have received since, that has not. */
static int still_stopped(struct move *m)
{
	if (contexts_query(&m->plan.contexts))
		return -1;
	for (size_t i = 0; i < m->plan.contexts.n; i++) {
		const struct context *c = &m->plan.contexts.context[i];

		if (c->query.state != RXE_MIGR_CTX_STOPPED)
			return fault("process %d, descriptor %d: somebody has set its connections going again", c->pid, c->fd);
	}
	return 0;
}

/*
 * The decision makes the copy the only one. So its peers must wait until it can have called them; if their time is
 * nearly over, they are asked for more, and given the time to answer.
 */
static int peers_wait(struct move *m)
{
	int64_t needed = AFTER_LIMIT_S * INT64_C(1000000000);

	for (int wait = 10; contexts_peers_wait(&m->plan.contexts) < now_ns() + needed; wait *= 2) {
		if (wait > RENEWED_MS)
			return fault("a peer is dead, or does not wait for so long: "
				     "/sys/module/rdma_rxe/parameters/pause_timeout and pause_max, at its host");
		if (wait == 10)
			contexts_renew(&m->plan.contexts);
		poll(NULL, 0, wait);
		if (contexts_query(&m->plan.contexts))
			return -1;
	}
	return 0;
}

int move_until_ready(struct move *m)
{
	report_phase("freeze", "process %d", m->pid);
	/* (of two that begin at once, one at least sees what the other has written down) */
	if (move_save(m) || check_moves_here(m) || addresses_guard(&m->addresses, m->id, true) || freeze_and_dump(m))
		return EXIT_STAYED;
	m->dumped_ns = now_ns();
	if (tree_refresh(&m->plan.tree, m->pid) || (m->container.name && container_is_whole(m)))
		return EXIT_STAYED;
	/* From here to the decision CRIU only waits. If it dies, nobody shall run before we have tidied up. */
	m->shared->held = true;
	/* (written down before: who releases what is not held does no harm) */
	if (move_save(m))
		return EXIT_STAYED;
	tree_hold(&m->plan.tree);
	if (find_stop_time(m) || transfer(m) || restore(m))
		return EXIT_STAYED;
	m->ready_ns = now_ns();
	/* Is it there still? Nothing more can be asked once we have decided. */
	if (say(m, json_pack("{s:s}", "op", "ping")) || hear(m, "pong") || all_alive(m) || still_stopped(m) || peers_wait(m))
		return EXIT_STAYED;
	m->report.checkpoint = m->dumped_ns - m->freeze_ns;
	m->report.transfer = m->sent_ns - m->dumped_ns;
	m->report.restore = m->ready_ns - m->sent_ns;
	return EXIT_OK;
}
