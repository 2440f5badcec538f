// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Abort: the process goes on at the source, and the destination forgets it. The keeper does this, too, when the
 * worker is gone. So it relies on what the kernel shows, and takes nothing for done.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "move.h"
#include "netns.h"
#include "state.h"

/* How long the destination is asked while the process is frozen here, and again when the process runs on. */
#define ABORT_TRY_S	10
#define ABORT_ANSWER_MS	5000
#define LAST_MS		30000	/* how long we wait until files are removed there */

/* While we tidy up, other faults must not replace the reason of the failure. */
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

/* -------------------------------------------------------- the process -- */

static int repair_off(const struct proc_inet *tcp, void *arg)
{
	int fd = tcp->udp ? -1 : proc_get_fd(tcp->pid, tcp->fd), off = 0, on = 0;
	socklen_t len = sizeof(on);

	(void)arg;
	if (fd >= 0 && getsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, &len) == 0 && on &&
	    setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off)))
		fault("process %d, descriptor %d: its TCP connection can't be set going again: %s",
		      tcp->pid, tcp->fd, strerror(errno));
	close_fd(&fd);
	return 0;
}

/* The tasks and their connections go on. -1 with fault(): a task has ended. */
static int revive(struct move *m)
{
	struct contexts contexts;

	contexts_free(&m->plan.contexts);
	/* Contexts go on first, before CRIU lets the tasks go, if it still can: the tasks are not to notice anything. */
	if (contexts_find(&m->plan.tree, &contexts) == 0)
		contexts_abort(&contexts);
	report_fault(&m->report);
	/*
	 * While CRIU lives, it lets the tasks go itself. So we take our signals back before that, and nobody sees the tasks stopped
	 * by our signals.
	 */
	if (m->criu_asks && m->shared->stop_sent && criu_wait(&m->criu, 0))
		tree_release(&m->plan.tree);
	move_end_criu(m, false);
	if (m->container.name)
		container_thaw(m);
	fault_clear();
	/* And again: CRIU may have stopped more contexts before it ended. */
	contexts_free(&contexts);
	if (contexts_find(&m->plan.tree, &contexts) == 0 && contexts_abort(&contexts))
		report_fault(&m->report);
	contexts_free(&contexts);
	proc_each_inet(&m->plan.tree, repair_off, NULL);
	report_fault(&m->report);
	move_unlock_network(m);
	if (m->shared->stop_sent)
		tree_release(&m->plan.tree);
	if (m->plan.tree.n && tree_alive(&m->plan.tree) == m->plan.tree.n)
		return 0;
	if (m->shared->stage < MOVE_FROZEN)
		return fault("one of the processes that were to move has ended by itself, before it was frozen");
	return fault("one of the processes that were to move has ended");
}

/* ---------------------------------------------------- the destination -- */

static json_t *hear_aborted(struct move *m)
{
	return dest_hear_aborted(&m->dest, ABORT_ANSWER_MS);
}

enum copy { COPY_UNDONE, COPY_RUNS, COPY_UNKNOWN };

/* What became of the destination's copy? COPY_RUNS: it runs, or may run, or may have run. */
static enum copy tell_abort(struct move *m, int seconds)
{
	json_t *answer = move_insist(m, "abort", hear_aborted, seconds);
	enum copy copy = COPY_RUNS;

	move_take_warnings(m, answer);
	if (json_object_get(answer, "aborted") || move_is_undone(m, answer))
		copy = COPY_UNDONE;
	else if (!answer && !json_object_get(m->dest.hello, "failed"))
		copy = COPY_UNKNOWN;
	json_decref(answer);
	return copy;
}

/*
 * A destination that is ready lets its copy go also on the word of a person who took us for dead while we hung. So the
 * destination is asked before anything runs on here, but not for longer than peers wait.
 */
static enum copy ask_first(struct move *m)
{
	enum copy copy;

	m->dest.until = now_ns() + ABORT_TRY_S * INT64_C(1000000000);
	copy = tell_abort(m, ABORT_TRY_S);
	m->dest.until = 0;
	return copy;
}

/* The process runs on here: the destination is to undo what it has. */
static enum copy tell_later(struct move *m)
{
	enum copy copy = tell_abort(m, m->shared->stage == MOVE_RESTORING ? ABORT_TRY_S : 0);

	if (m->shared->stage == MOVE_RESTORING && copy == COPY_UNKNOWN)
		fault("%s could not be told; if it holds a copy: there: godwit settle %s abort", m->host, m->id);
	if (m->shared->stage == MOVE_RESTORING && copy == COPY_RUNS)
		fault("%s may run it, too: see there, and end one of the two", m->host);
	report_fault(&m->report);
	return copy;
}

/* The destination has said that nothing runs there. It removes files after that, and says what it could not remove. */
static void hear_last(struct move *m)
{
	int64_t end = now_ns() + LAST_MS * INT64_C(1000000), left = LAST_MS;
	json_t *answer = NULL;

	if (m->dest.wire.out < 0 || json_object_get(m->dest.hello, "gone"))
		return;
	if (wire_send(&m->dest.wire, json_pack("{s:s}", "op", "bye")) == 0)
		while (left > 0 && wire_receive(&m->dest.wire, &answer, NULL, NULL, left) == 0 && !json_object_get(answer, "bye")) {
			json_decref(answer);
			answer = NULL;
			left = (end - now_ns()) / 1000000;
		}
	fault_clear();
	move_take_warnings(m, answer);
	if (!answer)
		fault("%s may still remove files that the move has brought there: if godwit status, there, shows it later: "
		      "there: godwit settle %s abort", m->host, m->id);
	report_fault(&m->report);
	json_decref(answer);
}

void move_take_back(struct move *m)
{
	char *reason = set_aside();

	if (m->dest.refused)
		hear_last(m);
	dest_close(&m->dest);
	bring_back(reason);
}

int move_abort(struct move *m)
{
	char *reason = set_aside();
	json_t *netns = container_netns_left(m);
	enum copy copy = m->shared->stage == MOVE_RESTORING ? ask_first(m) : COPY_UNKNOWN;
	int ret = 0;

	if (copy == COPY_RUNS) {
		bring_back(reason);
		return MOVE_TURNS;
	}
	if (addresses_end_quiet(&m->addresses, m->id))
		report_fault(&m->report);
	if (netns && netns_end_quiet(netns))
		report_fault(&m->report);
	if (netns && netns_unlock_tcp(netns))
		report_fault(&m->report);
	if (m->shared->stage >= MOVE_FREEZING && revive(m)) {
		/* A process that ended by itself before it was frozen is not lost. */
		ret = m->shared->stage >= MOVE_FROZEN ? -1 : 0;
		free(reason);
		reason = set_aside();
	}
	container_dump_end(m);
	container_forget_dump(m);
	if (container_give_policy_back(m))
		report_fault(&m->report);
	if (netns && netns_check_name(netns, m->process.pid))
		report_fault(&m->report);
	if (copy == COPY_UNKNOWN)
		copy = tell_later(m);
	if (m->shared->stage >= MOVE_FREEZING && addresses_announce(&m->addresses))
		report_fault(&m->report);
	if (m->images && !m->leave_images && images_remove(m->images))
		report_fault(&m->report);
	state_remove(m->id);
	move_set_stage(m, MOVE_STAYED);
	if (copy == COPY_UNDONE)
		hear_last(m);
	dest_close(&m->dest);
	bring_back(reason);
	return ret ? EXIT_LOST : EXIT_STAYED;
}
