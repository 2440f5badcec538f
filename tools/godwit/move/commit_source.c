// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The two ends of a move, as its source brings them about: forward or back. Both can be called by the
 * process that did the work up to there, and by its guard when that process is gone; so they rely on what
 * the kernel shows, and take nothing for done.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <linux/netfilter.h>
#include <mntent.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "images.h"
#include "move.h"
#include "netlink.h"
#include "netns.h"
#include "state.h"

#define ANSWER_MS	20000
/* How long we try to reach a destination again whose connection broke. */
#define COMMIT_TRY_S	20
/* For how long it may be busy with itself. */
#define BUSY_S		40
/* The same before the commit, while the process stands still here, and again when it runs on. */
#define ABORT_TRY_S	10
#define ABORT_ANSWER_MS	5000

static void warn(struct move *m)
{
	if (fault_is_set())
		report_warn(&m->report, fault_text());
	fault_clear();
}

/* A failure's reason stays what it was while we tidy up. */
static char *set_aside(void)
{
	char *text = fault_is_set() ? xstrdup(fault_text()) : NULL;

	fault_clear();
	return text;
}

static void bring_back(char *reason)
{
	fault_clear();
	if (reason)
		fault("%s", reason);
	free(reason);
}

static void answer_criu(struct move *m, bool ok)
{
	if (m->criu_asks)
		criu_answer(&m->criu, ok);
	m->criu_asks = false;
}

/* Hear CRIU out. If it still runs then, it hangs: it will do neither the one nor the other any more. */
static void end_criu(struct move *m, bool ok)
{
	enum criu_event event = CRIU_NOTIFY;
	char script[64];

	answer_criu(m, ok);
	while (m->criu.sk >= 0 && event == CRIU_NOTIFY) {
		struct pollfd p = { .fd = m->criu.sk, .events = POLLIN };

		if (poll(&p, 1, CRIU_END_MS) != 1)
			break;
		event = criu_next(&m->criu, script, NULL);
		if (event == CRIU_NOTIFY)
			criu_answer(&m->criu, ok);
	}
	if (criu_wait(&m->criu, CRIU_END_MS)) {
		kill(m->criu.pid, SIGKILL);
		criu_wait(&m->criu, -1);
	}
	criu_close(&m->criu);
}

/* CRIU's lock on the tree's TCP connections. It leaves it in place when it is killed, or does its work. */
static void unlock_network(struct move *m)
{
	const char *logs = m->container.work ?: m->images;
	char *table = m->lock_table ? xstrdup(m->lock_table) : logs ? images_lock_table(logs) : NULL;
	/* ("CRIU-" and at least the first part of a UUID) */
	int ret = table ? nl_tables_delete_cut(NFPROTO_INET, table, 13) : 0;

	if (ret) {
		fault("nftables: CRIU's table inet %s is left behind: %s", table, strerror(-ret));
		warn(m);
	}
	free(table);
}

/* What it held stays as it is: see tree_hold(). */
static void kill_criu(struct move *m)
{
	if (m->criu.pid > 0)
		kill(m->criu.pid, SIGKILL);
	criu_wait(&m->criu, -1);
	criu_close(&m->criu);
}

/* -------------------------------------------------------- written down -- */

int move_save(struct move *m)
{
	json_t *stopped = json_array();

	for (size_t i = 0; i < m->plan.tree.n; i++)
		if (m->plan.tree.task[i].was_stopped)
			json_array_append_new(stopped, json_integer(m->plan.tree.task[i].pid));
	return state_save(m->id, json_pack("{s:s, s:s, s:i, s:I, s:s, s:s*, s:s, s:s, s:o, s:o, s:b, s:b, s:b, s:O*, s:s*, s:s*, s:s*}",
		"id", m->id, "stage", "frozen", "pid", (int)m->pid, "start",
		(json_int_t)proc_identify(m->pid).start, "to", m->host, "ssh", m->ssh, "images_base", m->images_base,
		"boot", m->shared->boot, "addresses", addresses_json(&m->addresses), "was_stopped", stopped,
		"held", m->shared->held, "decided", m->shared->decided, "ran", m->shared->ran,
		"container", m->container.facts, "dump", m->container.dump, "work", m->container.work,
		"lock", m->lock_table));
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
	struct proc_id id = { json_integer_value(json_object_get(state, "pid")),
			      json_integer_value(json_object_get(state, "start")) };

	m->pid = id.pid;
	m->host = json_string_value(json_object_get(state, "to"));
	m->ssh = json_string_value(json_object_get(state, "ssh"));
	m->images_base = json_string_value(json_object_get(state, "images_base"));
	m->images = xasprintf("%s/%s", m->images_base, m->id);
	m->shared->stopping = m->shared->stopped = true;
	m->shared->held = json_is_true(json_object_get(state, "held"));
	m->shared->ran = json_is_true(json_object_get(state, "ran"));
	m->shared->decided = json_is_true(json_object_get(state, "decided"));
	snprintf(m->shared->boot, sizeof(m->shared->boot), "%s", json_string_value(json_object_get(state, "boot")));
	move_remember_container(m, state);
	if (addresses_from_json(&m->addresses, json_object_get(state, "addresses")))
		return -1;
	addresses_check_source(&m->addresses);	/* where they are */
	fault_clear();
	if (!proc_is_there(&id))
		return 0;
	if (tree_collect(&m->plan.tree, m->pid))
		return -1;
	move_remember_stopped(m, state);
	return 0;
}

/* -------------------------------------------------------------- forward -- */

/*
 * It runs there. The address goes first: a connection that CRIU lets go of as it dies can say nothing without it. CRIU
 * kills the tasks, too, but it may have been killed itself; how it ends is nobody's business but ours. Of its contexts
 * nothing ran since the stop: their end takes time that nobody waits for any more.
 */
static void end_here(struct move *m)
{
	char *name;

	if (m->ended)
		return;
	m->ended = true;
	if (addresses_del(&m->addresses, false))
		warn(m);
	if (m->container.name && container_stop(m)) {
		m->stuck = true;
		warn(m);
		kill_criu(m);
		return;
	}
	for (size_t i = 0; i < m->plan.tree.n; i++)
		pidfd_send_signal(m->plan.tree.task[i].pidfd, SIGKILL, NULL, 0);
	answer_criu(m, true);
	fault_clear();
	if (tree_wait_gone(&m->plan.tree, CRIU_END_MS)) {
		name = proc_name(m->pid);
		fault("process %d (%s) is killed here but does not end: it is stuck in the kernel", m->pid, name);
		free(name);
		warn(m);
	}
	contexts_free(&m->plan.contexts);
}

/* podman forgets it, and its network goes. */
static void put_away_container(struct move *m)
{
	json_t *netns = container_netns(m);

	if (!m->container.name || m->stuck)
		return;
	if (container_remove(m))
		warn(m);
	fault_clear();
	if (netns && netns_remove(netns))
		warn(m);
}

/*
 * Ask, and again over a new connection when the old one breaks: the destination holds the tasks so long, and
 * remembers whether it let them go.
 */
static json_t *insist(struct move *m, const char *op, json_t *(*hear)(struct move *m), int seconds)
{
	int64_t first = now_ns(), begin = first, patience = seconds * INT64_C(1000000000);
	bool connected = m->peer.wire.out >= 0;
	json_t *answer = NULL;

	for (int tries = 0;; tries++) {
		if (connected && wire_send(&m->peer.wire, json_pack("{s:s}", "op", op)) == 0)
			answer = hear(m);
		else if (json_object_get(m->peer.hello, "gone"))
			answer = json_incref(m->peer.hello);
		fault_clear();
		if (m->heard_ns > begin)
			begin = m->heard_ns;
		/* (once in any case: what an agent left that was killed, its successor undoes) */
		if (answer || (tries && now_ns() > begin + patience))
			return answer;
		if (tries == 0)
			report_note("the connection to %s is lost: trying again", m->host);
		else
			poll(NULL, 0, 500);
		peer_close(&m->peer);
		connected = peer_connect(&m->peer, m->host, m->ssh, m->id, true) == 0;
		/* It is there, and somebody puts right what a killed agent left: that ends. */
		if (!connected && json_object_get(m->peer.hello, "failed") && now_ns() < first + BUSY_S * INT64_C(1000000000))
			m->heard_ns = now_ns();
	}
}

static json_t *hear_committed(struct move *m)
{
	json_t *answer;

	while (wire_receive(&m->peer.wire, &answer, NULL, NULL, ANSWER_MS) == 0) {
		bool waits = json_object_get(answer, "waits");

		m->heard_ns = now_ns();
		if (waits || json_object_get(answer, "resumed_ns_ago")) {
			m->shared->ran = true;
			move_save(m);
		}
		if (!waits)
			return answer;
		/* Perhaps its peers move, too: then tombstones tell them where it is. */
		end_here(m);
		report_detail("process %d has ended here; %d QPs wait for their peers, %d of which move, too", m->pid,
			      (int)json_integer_value(json_object_get(answer, "waits")),
			      (int)json_integer_value(json_object_get(answer, "moving")));
		json_decref(answer);
	}
	return NULL;
}

void move_say_bye(struct move *m)
{
	json_t *answer, *text, *warnings;
	size_t i;

	if (m->peer.wire.out < 0)
		return;
	answer = peer_ask(&m->peer, json_pack("{s:s, s:b}", "op", "bye", "leave_images", m->leave_images),
			  ANSWER_MS);
	warnings = json_object_get(answer, "warnings");
	json_array_foreach(warnings, i, text)
		report_warn(&m->report, json_string_value(text));
	if (!answer)
		warn(m);
	json_decref(answer);
	peer_close(&m->peer);
}

/* What is left to do is tidying up. */
static int finish(struct move *m)
{
	move_say_bye(m);
	if (!m->leave_images && images_remove(m->images))
		warn(m);
	if (!m->stuck)
		state_remove(m->id);
	m->shared->over = true;
	return EXIT_OK;
}

static void measure(struct move *m, json_t *answer)
{
	int64_t since = json_integer_value(json_object_get(answer, "resumed_ns_ago"));
	int waiting = json_integer_value(json_object_get(answer, "waiting"));
	int lost = json_integer_value(json_object_get(answer, "lost"));

	m->resumed_ns -= since + m->peer.rtt_ns / 2;
	if (m->stop_ns) {
		m->report.blackout = m->resumed_ns - m->stop_ns;
		m->report.blackout_error = m->peer.rtt_ns / 2;
	}
	if (waiting)
		fault("%d QPs still wait for their peers to answer: godwit status, at %s", waiting, m->host);
	warn(m);
	if (lost)
		fault("%d QPs failed: their peers did not take the new address", lost);
	warn(m);
}

/* Does the destination say so, in the life in which it was told to restore? */
static bool is_undone(const struct move *m, json_t *answer)
{
	const char *boot = json_string_value(json_object_get(answer, "boot"));

	return json_is_true(json_object_get(answer, "undone")) && boot && !strcmp(boot, m->shared->boot);
}

static bool is_anew(const struct move *m, json_t *answer)
{
	const char *boot = json_string_value(json_object_get(answer, "boot"));

	return boot && strcmp(boot, m->shared->boot);
}

/* It was never let go there. */
static int undecide(struct move *m, json_t *answer)
{
	const char *why = json_string_value(json_object_get(answer, "failed"));

	fault("%s: %s", m->host, why ?: "it talks no sense");
	m->shared->decided = m->shared->restoring = false;
	json_decref(answer);
	return move_back(m);
}

/*
 * Nobody knows whether it runs there. Here it stays as it is, until somebody does: killed, CRIU undoes nothing, and
 * no task that it held runs (tree_hold()).
 */
static int stay_held(struct move *m, json_t *answer)
{
	const char *why = json_string_value(json_object_get(answer, "failed"));

	kill_criu(m);
	container_dump_end(m);
	peer_close(&m->peer);
	fault_clear();
	if (is_anew(m, answer))
		fault("%s was started anew, and may have run it before; process %d is held here: to let it run on "
		      "here: godwit settle %s abort", m->host, m->pid, m->id);
	else if (answer)
		fault("%s: %s; process %d is held here: to let it run on here: godwit settle %s abort", m->host,
		      why ?: "it talks no sense", m->pid, m->id);
	else
		fault("%s can't be reached, and may run it; process %d is held here: if %s is dead: godwit settle %s "
		      "abort, else when it can be reached again: godwit settle %s commit", m->host, m->pid, m->host,
		      m->id, m->id);
	json_decref(answer);
	return EXIT_LOST;
}

void move_sync(struct move *m)
{
	static const char *const types[] = {
		"nfs", "cifs", "smb3", "9p", "ceph", "fuse", "gfs2", "ocfs2", "lustre", "afs", "gpfs",
	};
	char *path = xasprintf("/proc/%d/mounts", (int)m->pid);
	FILE *f = m->synced ? NULL : setmntent(path, "re");
	struct mntent *e;

	m->synced = true;
	free(path);
	while (f && (e = getmntent(f)))
		for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
			if (!strncmp(e->mnt_type, types[i], strlen(types[i]))) {
				int fd;

				path = xasprintf("/proc/%d/root%s", (int)m->pid, e->mnt_dir);
				fd = open(path, O_RDONLY | O_CLOEXEC);
				if (fd >= 0)
					syncfs(fd);
				close_fd(&fd);
				free(path);
			}
	if (f)
		endmntent(f);
}

int move_forward(struct move *m)
{
	json_t *netns = container_netns(m);
	json_t *answer;

	report_phase("commit", "process %d is held here", m->pid);
	move_sync(m);
	if (addresses_silence(&m->addresses, m->id) && addresses_del(&m->addresses, false))
		warn(m);
	fault_clear();
	if (netns && netns_guard(netns))
		warn(m);
	answer = m->word ? NULL : insist(m, "commit", hear_committed, COMMIT_TRY_S);
	m->resumed_ns = now_ns();
	if (!m->shared->ran && !m->word)
		return is_undone(m, answer) ? undecide(m, answer) : stay_held(m, answer);
	report_phase("resume", "at %s", m->host);
	end_here(m);
	end_criu(m, true);
	fault_clear();
	unlock_network(m);
	if (addresses_unguard(&m->addresses, m->id))
		warn(m);
	put_away_container(m);
	if (json_object_get(answer, "resumed_ns_ago"))
		measure(m, answer);
	else if (!m->word && fault("%s runs it, but can't be asked how it goes on: godwit status, there", m->host))
		warn(m);
	json_decref(answer);
	return finish(m);
}

/* ----------------------------------------------------------------- back -- */

static int repair_off(const struct proc_tcp *tcp, void *arg)
{
	int fd = proc_get_fd(tcp->pid, tcp->fd), off = 0, on = 0;
	socklen_t len = sizeof(on);

	(void)arg;
	if (fd >= 0 && getsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, &len) == 0 && on &&
	    setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)))
		fault("process %d, descriptor %d: its TCP connection can't be set going again: %s",
		      tcp->pid, tcp->fd, strerror(errno));
	close_fd(&fd);
	return 0;
}

/* The tree and its connections go on. -1: something does not. */
static int revive(struct move *m)
{
	struct contexts contexts;

	contexts_free(&m->plan.contexts);
	/* Before CRIU lets the tasks go, if it still can: they shall not notice. */
	if (contexts_find(&m->plan.tree, &contexts) == 0)
		contexts_abort(&contexts);
	warn(m);
	/* (a CRIU that lives lets them go in good order: then they need not be seen to stop) */
	if (m->criu_asks && m->shared->held && criu_wait(&m->criu, 0))
		tree_release(&m->plan.tree);
	end_criu(m, false);
	if (m->container.name)
		container_thaw(m);
	fault_clear();
	/* And after, for CRIU may have stopped more before it ended. */
	contexts_free(&contexts);
	if (contexts_find(&m->plan.tree, &contexts) == 0 && contexts_abort(&contexts))
		warn(m);
	contexts_free(&contexts);
	proc_each_tcp(&m->plan.tree, repair_off, NULL);
	warn(m);
	unlock_network(m);
	if (m->shared->held)
		tree_release(&m->plan.tree);
	if (m->plan.tree.n && tree_alive(&m->plan.tree) == m->plan.tree.n)
		return 0;
	if (!m->shared->stopped)
		return fault("a process of it has ended by itself, before it was stopped");
	return fault("a process of it has ended");
}

/* What it had to say before it heard us may come first. */
static json_t *hear_aborted(struct move *m)
{
	json_t *answer;

	while (wire_receive(&m->peer.wire, &answer, NULL, NULL, ABORT_ANSWER_MS) == 0) {
		if (json_object_get(answer, "aborted") || json_is_false(json_object_get(answer, "undone")))
			return answer;
		json_decref(answer);
	}
	return NULL;
}

enum copy { COPY_UNDONE, COPY_RUNS, COPY_UNKNOWN };

/* What became of the destination's copy? COPY_RUNS: or it may, or may have run. */
static enum copy tell_abort(struct move *m, int seconds)
{
	json_t *answer = insist(m, "abort", hear_aborted, seconds), *text;
	enum copy copy = COPY_RUNS;
	size_t i;

	json_array_foreach(json_object_get(answer, "warnings"), i, text)
		report_warn(&m->report, json_string_value(text));
	if (json_object_get(answer, "aborted") || is_undone(m, answer))
		copy = COPY_UNDONE;
	else if (!answer && !json_object_get(m->peer.hello, "failed"))
		copy = COPY_UNKNOWN;
	json_decref(answer);
	return copy;
}

/*
 * A destination that is ready lets its copy go on a person's word, too, who took us for dead while we hung. So before
 * anything runs on here it is asked; but not for longer than peers wait.
 */
static enum copy ask_first(struct move *m)
{
	enum copy copy;

	m->peer.until = now_ns() + ABORT_TRY_S * INT64_C(1000000000);
	copy = tell_abort(m, ABORT_TRY_S);
	m->peer.until = 0;
	return copy;
}

/* It runs on here: what is left there is to go. */
static void tell_later(struct move *m)
{
	enum copy copy = tell_abort(m, m->shared->restoring ? ABORT_TRY_S : 0);

	if (m->shared->restoring && copy == COPY_UNKNOWN)
		fault("%s could not be told; if it holds a copy: there: godwit settle %s abort", m->host, m->id);
	if (m->shared->restoring && copy == COPY_RUNS)
		fault("%s may run it, too: see there, and end one of the two", m->host);
	warn(m);
}

/* Somebody had it let go there before we could take it back. */
static int forward_after_all(struct move *m, char *reason)
{
	char *text = xasprintf("%s; but %s was told meanwhile to let it run", reason ?: "it failed", m->host);
	int code;

	free(reason);
	m->stop_ns = 0;	/* (when it was let go, nobody knows) */
	m->shared->decided = true;
	move_save(m);
	code = move_forward(m);
	if (code == EXIT_OK)
		report_warn(&m->report, text);
	free(text);
	return code;
}

int move_back(struct move *m)
{
	json_t *netns = container_netns(m);
	char *reason = set_aside();
	enum copy copy = m->shared->restoring ? ask_first(m) : COPY_UNKNOWN;
	int ret = 0;

	if (copy == COPY_RUNS)
		return forward_after_all(m, reason);
	if (addresses_unguard(&m->addresses, m->id))
		warn(m);
	if (netns && netns_unguard(netns))
		warn(m);
	if (netns && netns_unlock_tcp(netns))
		warn(m);
	if (m->shared->stopping && revive(m)) {
		/* (a process that ends while it is asked to move is nobody's failure) */
		ret = m->shared->stopped ? -1 : 0;
		free(reason);
		reason = set_aside();
	}
	container_dump_end(m);
	container_forget_dump(m);
	if (copy == COPY_UNKNOWN)
		tell_later(m);
	peer_close(&m->peer);
	if (m->shared->stopping && addresses_announce(&m->addresses))
		warn(m);
	if (m->images && !m->leave_images && images_remove(m->images))
		warn(m);
	state_remove(m->id);
	m->shared->over = true;
	bring_back(reason);
	return ret ? EXIT_LOST : EXIT_STAYED;
}
