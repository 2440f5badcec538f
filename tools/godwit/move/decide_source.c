// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The decision: may the copy be the only one from now on? And, after it or before it, how the move ends.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <stdlib.h>
#include "move.h"

#define RENEWED_MS	1280	/* the last of the pauses in which peers may answer; all take 2.5 s */

/* A process that was killed while it was frozen is not to come back elsewhere. */
static int all_alive(struct move *m)
{
	return tree_alive(&m->plan.tree) == m->plan.tree.n ? 0 : fault("a process of it was killed while it was frozen");
}

/* The copy would not get the signal, or would not have the process. */
static int nothing_came(struct move *m)
{
	pid_t pid;
	int sig = tree_told_to_end(&m->plan.tree, &pid);

	if (sig)
		return fault("process %d got SIG%s while it was frozen, which its copy would not get", pid, sigabbrev_np(sig));
	return m->container.name ? container_is_whole(m) ?: container_is_paused(m) : 0;
}

/* If somebody has set the contexts going, the copy must not run: it lacks what they have received since. */
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

/* A peer that answered before does not answer. c: a context with such a peer. */
static int is_silent(struct move *m, const struct context *c)
{
	uint32_t qpn = c->query.silent_qpn;	/* contexts_inspect() asks anew, and may change it */
	const struct rxe_migr_rec_qp *qp;
	char peer[INET6_ADDRSTRLEN] = "?";

	if (contexts_inspect(&m->plan.contexts))
		return -1;
	qp = context_qp(c, qpn);
	if (qp)
		inet_ntop(AF_INET6, qp->dgid, peer, sizeof(peer));
	return fault("process %d, %s, QP %u: its peer, QP %u at %s, answered before the freeze, and does not answer now: is its "
		     "host there, and does godwit key show say the same there?",
		     c->pid, c->device, qpn, qp ? le32toh(qp->dest_qpn) : 0, peer);
}

/*
 * The decision makes the copy the only one. So its peers must know that it moves, and wait until it can have called them. If one
 * has not said so, or their time is nearly over, they are asked for more, and get time to answer.
 */
static int peers_wait(struct move *m)
{
	const struct contexts *list = &m->plan.contexts;
	const int64_t needed = AFTER_LIMIT_S * INT64_C(1000000000);

	for (int wait = 10; contexts_silent(list) || contexts_peers_wait(list) < now_ns() + needed; wait *= 2) {
		if (wait > RENEWED_MS)
			break;
		if (wait == 10)
			contexts_renew(&m->plan.contexts);
		poll(NULL, 0, wait);
		if (contexts_query(&m->plan.contexts))
			return -1;
	}
	if (contexts_silent(list))
		return is_silent(m, contexts_silent(list));
	if (contexts_peers_wait(list) < now_ns() + needed)
		return fault("a peer is dead, or does not wait for so long: "
			     "/sys/module/rdma_rxe/parameters/pause_timeout and pause_max, at its host");
	return 0;
}

int move_may_decide(struct move *m)
{
	/* Is the destination still there? After the decision it is too late to ask. */
	if (move_say(m, json_pack("{s:s}", "op", "ping")) || move_hear(m, "pong") || peers_wait(m))
		return -1;
	return all_alive(m) ?: nothing_came(m) ?: still_stopped(m);
}

void move_decide(struct move *m)
{
	move_set_stage(m, MOVE_DECIDED);
	move_save(m);
}

/* The abort has found that a person let the copy go. Gives the warning that says so; free it. */
static char *turn_forward(struct move *m)
{
	char *text = xasprintf("%s; but %s was told meanwhile to let it run", fault_is_set() ? fault_text() : "it failed", m->host);

	fault_clear();
	m->stop_ns = 0;	/* nobody knows when the copy was let go */
	move_decide(m);
	return text;
}

int move_end(struct move *m)
{
	char *turned = NULL;
	int code;

	for (;;) {
		code = m->shared->stage >= MOVE_DECIDED ? move_commit(m) : move_abort(m);
		if (code != MOVE_TURNS)
			break;
		if (m->shared->stage == MOVE_DECIDED)
			move_set_stage(m, MOVE_FROZEN);
		else
			turned = turn_forward(m);
	}
	if (turned && code == EXIT_OK)
		report_warn(&m->report, turned);
	free(turned);
	return code;
}
