// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The two ends of a move, as its source brings them about: forward or back. Both can be called by the
 * process that did the work up to there, and by its guard when that process is gone; so they rely on what
 * the kernel shows, and take nothing for done.
 */
#include <errno.h>
#include <netinet/in.h>
#include <linux/netfilter.h>
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

#define ANSWER_MS	20000
/* How long we try to reach a destination again whose connection broke. */
#define COMMIT_TRY_S	60
#define ABORT_TRY_S	15

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
	char *table = m->images ? images_lock_table(m->images) : NULL;
	/* ("CRIU-" and at least the first part of a UUID) */
	int ret = table ? nl_tables_delete_cut(NFPROTO_INET, table, 13) : 0;

	if (ret) {
		fault("nftables: CRIU's table inet %s is left behind: %s", table, strerror(-ret));
		warn(m);
	}
	free(table);
}

/* -------------------------------------------------------------- forward -- */

/*
 * CRIU kills them, too, but it may have been killed itself. The destination is told only when they are gone:
 * files that both hosts see are written to until then. How CRIU ends is nobody's business but ours.
 */
static int end_tasks(struct move *m)
{
	char *name;

	for (size_t i = 0; i < m->plan.tree.n; i++)
		pidfd_send_signal(m->plan.tree.task[i].pidfd, SIGKILL, NULL, 0);
	answer_criu(m, true);
	fault_clear();
	if (tree_wait_gone(&m->plan.tree, CRIU_END_MS) == 0)
		return 0;
	name = proc_name(m->pid);
	fault("process %d (%s) is killed but does not end, and %s holds its copy: there, when it is gone: "
	      "godwit settle %s commit", m->pid, name, m->host, m->id);
	free(name);
	return -1;
}

/*
 * Ask, and again over a new connection when the old one breaks: the destination holds the tasks so long.
 * An answer that has "gone" says that the destination knows no such move any more.
 */
static json_t *insist(struct move *m, const char *op, json_t *(*hear)(struct move *m), int seconds)
{
	int64_t end = now_ns() + seconds * INT64_C(1000000000);
	bool connected = m->peer.wire.out >= 0;
	json_t *answer = NULL;

	for (int tries = 0;; tries++) {
		if (connected && wire_send(&m->peer.wire, json_pack("{s:s}", "op", op)) == 0)
			answer = hear(m);
		else if (json_object_get(m->peer.hello, "gone"))
			answer = json_incref(m->peer.hello);
		fault_clear();
		if (answer || now_ns() > end)
			return answer;
		if (tries == 0)
			report_note("the connection to %s is lost: trying again", m->host);
		else
			poll(NULL, 0, 500);
		peer_close(&m->peer);
		connected = peer_connect(&m->peer, m->host, m->ssh, m->id, true) == 0;
	}
}

static json_t *hear_committed(struct move *m)
{
	json_t *answer;

	while (wire_receive(&m->peer.wire, &answer, NULL, NULL, ANSWER_MS) == 0) {
		if (!json_object_get(answer, "waits"))
			return answer;
		/* Perhaps its peers move, too: then tombstones tell them where it is. */
		contexts_free(&m->plan.contexts);
		report_detail("process %d has ended here; %d QPs wait for their peers, %d of which move, too", m->pid,
			      (int)json_integer_value(json_object_get(answer, "waits")),
			      (int)json_integer_value(json_object_get(answer, "moving")));
		json_decref(answer);
	}
	return NULL;
}

/*
 * It runs there now. What is left to do is tidying up. Of its contexts nothing ran since the stop: to destroy
 * them takes time that nobody waits for any more.
 */
static int finish(struct move *m)
{
	json_t *answer, *text, *warnings;
	size_t i;

	contexts_free(&m->plan.contexts);
	answer = peer_ask(&m->peer, json_pack("{s:s, s:b}", "op", "bye", "leave_images", m->leave_images),
			  ANSWER_MS);
	warnings = json_object_get(answer, "warnings");
	json_array_foreach(warnings, i, text)
		report_warn(&m->report, json_string_value(text));
	if (!answer)
		warn(m);
	json_decref(answer);
	if (!m->leave_images && images_remove(m->images))
		warn(m);
	peer_close(&m->peer);
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

/* Nobody has it any more, but for its images. */
static int lost(struct move *m, json_t *answer)
{
	const char *why = json_string_value(json_object_get(answer, "failed"));

	if (answer)
		fault("%s: %s: the process is lost; its images are in %s", m->host, why ?: "it talks no sense",
		      m->images);
	else
		fault("%s can't be reached and holds the process, which has ended here: there: "
		      "godwit settle %s commit", m->host, m->id);
	return EXIT_LOST;
}

int move_forward(struct move *m)
{
	json_t *answer;

	report_phase("commit", "process %d ends here", m->pid);
	/* First: a connection that CRIU lets go of as it dies can say nothing without it. */
	if (addresses_del(&m->addresses, false))
		warn(m);
	if (end_tasks(m))
		return EXIT_LOST;
	answer = insist(m, "commit", hear_committed, COMMIT_TRY_S);
	m->resumed_ns = now_ns();
	report_phase("resume", "at %s", m->host);
	end_criu(m, true);
	fault_clear();
	unlock_network(m);
	if (!json_object_get(answer, "resumed_ns_ago"))
		return lost(m, answer);
	measure(m, answer);
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
	if (tree_alive(&m->plan.tree) == m->plan.tree.n)
		return 0;
	if (!m->shared->stopped)
		return fault("a process of it has ended by itself, before it was stopped");
	return fault("a process of it has ended");
}

/* What it had to say before it heard us may come first. */
static json_t *hear_aborted(struct move *m)
{
	json_t *answer;

	while (wire_receive(&m->peer.wire, &answer, NULL, NULL, ANSWER_MS) == 0) {
		if (json_object_get(answer, "aborted"))
			return answer;
		json_decref(answer);
	}
	return NULL;
}

static void tell_abort(struct move *m)
{
	/* (before it was to restore, it forgets us by itself when the connection ends) */
	json_t *answer = insist(m, "abort", hear_aborted, m->shared->restoring ? ABORT_TRY_S : 0), *text;
	size_t i;

	json_array_foreach(json_object_get(answer, "warnings"), i, text)
		report_warn(&m->report, json_string_value(text));
	if (!answer && m->shared->restoring) {
		fault("%s could not be told; if it holds a copy: there: godwit settle %s abort", m->host,
		      m->id);
		warn(m);
	}
	json_decref(answer);
	peer_close(&m->peer);
}

int move_back(struct move *m)
{
	char *reason = set_aside();
	int ret = 0;

	if (m->shared->stopping && revive(m)) {
		/* (a process that ends while it is asked to move is nobody's failure) */
		ret = m->shared->stopped ? -1 : 0;
		free(reason);
		reason = set_aside();
	}
	tell_abort(m);
	if (m->shared->stopping && addresses_announce(&m->addresses))
		warn(m);
	if (m->images && !m->leave_images && images_remove(m->images))
		warn(m);
	m->shared->over = true;
	bring_back(reason);
	return ret ? EXIT_LOST : EXIT_STAYED;
}
