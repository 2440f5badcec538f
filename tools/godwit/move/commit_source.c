// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Commit: the destination lets the copy run, and the process ends at the source. The keeper does this, too, when the
 * worker is gone. So it relies on what the kernel shows, and takes nothing for done.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include "move.h"
#include "netns.h"
#include "state.h"

#define ANSWER_MS	20000
/* If the connection breaks, we try for so long to reach the destination again. */
#define COMMIT_TRY_S	20

/*
 * The process runs at the destination: here it ends. The addresses go first, so that a TCP connection that a dying CRIU lets
 * go of can send nothing. CRIU kills the tasks, too, but CRIU may have been killed itself. The contexts are closed last: that
 * takes time, and nobody waits for it.
 */
static void end_here(struct move *m)
{
	char *name;

	if (m->ended)
		return;
	m->ended = true;
	if (addresses_del(&m->addresses, false))
		report_fault(&m->report);
	/* podman removes a namespace that it has made as soon as the tasks are dead. */
	if (container_network(m) && netns_take_down(container_netns(m)))
		report_fault(&m->report);
	if (m->container.name && container_stop(m)) {
		m->stuck = true;
		report_fault(&m->report);
		move_kill_criu(m);
		return;
	}
	for (size_t i = 0; i < m->plan.tree.n; i++)
		pidfd_send_signal(m->plan.tree.task[i].pidfd, SIGKILL, NULL, 0);
	move_answer_criu(m, true);
	fault_clear();
	if (tree_wait_gone(&m->plan.tree, CRIU_END_MS)) {
		name = proc_name(m->process.pid);
		fault("process %d (%s) is killed here but does not end: it is stuck in the kernel", m->process.pid, name);
		free(name);
		report_fault(&m->report);
	}
	contexts_free(&m->plan.contexts);
}

/* podman removes the container, and its network namespace goes. */
static void put_away_container(struct move *m)
{
	json_t *netns = container_netns(m);

	if (!m->container.name || m->stuck)
		return;
	if (container_remove(m))
		report_fault(&m->report);
	fault_clear();
	if (netns && (netns_remove(netns) || (container_network(m) && netns_wait_gone(netns))))
		report_fault(&m->report);
}

static json_t *hear_committed(struct move *m)
{
	json_t *answer;

	while (wire_receive(&m->dest.wire, &answer, NULL, NULL, ANSWER_MS) == 0) {
		bool waits = json_object_get(answer, "waits");

		m->heard_ns = now_ns();
		if (waits || json_object_get(answer, "resumed_ns_ago")) {
			move_set_stage(m, MOVE_RAN);
			move_save(m);
		}
		if (!waits)
			return answer;
		/* Its peers may be moving, too. Once the process has ended here, tombstones tell them where it is. */
		end_here(m);
		report_detail("process %d has ended here; %d QPs wait for their peers, %d of which move, too", m->process.pid,
			      (int)json_integer_value(json_object_get(answer, "waits")),
			      (int)json_integer_value(json_object_get(answer, "moving")));
		json_decref(answer);
	}
	return NULL;
}

/*
 * Only tidying up is left. The destination goes first: its container gets its restart policy back, however long the removing takes
 * here.
 */
static int finish(struct move *m)
{
	move_say_bye(m);
	put_away_container(m);
	if (!m->leave_images && images_remove(m->images))
		report_fault(&m->report);
	if (!m->stuck)
		state_remove(m->id);
	move_set_stage(m, MOVE_MOVED);
	return EXIT_OK;
}

static void measure(struct move *m, json_t *answer)
{
	int64_t since = json_integer_value(json_object_get(answer, "resumed_ns_ago"));
	int waiting = json_integer_value(json_object_get(answer, "waiting"));
	int lost = json_integer_value(json_object_get(answer, "lost"));

	m->resumed_ns -= since + m->dest.rtt_ns / 2;
	if (m->stop_ns) {
		m->report.blackout = m->resumed_ns - m->stop_ns;
		m->report.blackout_error = m->dest.rtt_ns / 2;
	}
	if (waiting)
		fault("%d QPs still wait for their peers to answer: godwit status, at %s", waiting, m->host);
	report_fault(&m->report);
	if (lost)
		fault("%d QPs failed: their peers did not take the new address", lost);
	report_fault(&m->report);
}

static bool is_anew(const struct move *m, json_t *answer)
{
	const char *boot = json_string_value(json_object_get(answer, "boot"));

	return boot && strcmp(boot, m->shared->boot);
}

/* The copy was never let go: the source turns back. */
static int stay_back(struct move *m, json_t *answer)
{
	const char *why = json_string_value(json_object_get(answer, "failed"));

	fault("%s: %s", m->host, why ?: "it talks no sense");
	json_decref(answer);
	return MOVE_TURNS;
}

/*
 * Nobody knows whether the copy runs. Here the process stays frozen until a person settles the move: a CRIU that is killed
 * undoes nothing, and no task that it had frozen runs (tree_send_stop()).
 */
static int stay_held(struct move *m, json_t *answer)
{
	const char *why = json_string_value(json_object_get(answer, "failed"));

	move_kill_criu(m);
	container_dump_end(m);
	dest_close(&m->dest);
	fault_clear();
	if (is_anew(m, answer))
		fault("%s was started anew, and may have run it before; process %d is held here: to let it run on "
		      "here: godwit settle %s abort", m->host, m->process.pid, m->id);
	else if (answer)
		fault("%s: %s; process %d is held here: to let it run on here: godwit settle %s abort", m->host,
		      why ?: "it talks no sense", m->process.pid, m->id);
	else
		fault("%s can't be reached, and may run it; process %d is held here: if %s is dead: godwit settle %s "
		      "abort, else when it can be reached again: godwit settle %s commit", m->host, m->process.pid, m->host,
		      m->id, m->id);
	json_decref(answer);
	return EXIT_LOST;
}

int move_commit(struct move *m)
{
	json_t *netns = container_netns_left(m);
	json_t *answer;

	report_step("commit", "process %d stays frozen here", m->process.pid);
	if (addresses_quiet_now(&m->addresses, m->id) && addresses_del(&m->addresses, false))
		report_fault(&m->report);
	fault_clear();
	if (netns && netns_keep_quiet(netns))
		report_fault(&m->report);
	answer = m->word ? NULL : move_insist(m, "commit", hear_committed, COMMIT_TRY_S);
	m->resumed_ns = now_ns();
	if (m->shared->stage != MOVE_RAN && !m->word)
		return move_is_undone(m, answer) ? stay_back(m, answer) : stay_held(m, answer);
	report_step("resume", "at %s", m->host);
	end_here(m);
	move_end_criu(m, true);
	fault_clear();
	move_unlock_network(m);
	if (addresses_end_quiet(&m->addresses, m->id))
		report_fault(&m->report);
	if (json_object_get(answer, "resumed_ns_ago"))
		measure(m, answer);
	else if (!m->word && !move_is_undone(m, answer))
		/* (If a godwit was killed after "bye", the destination knows nothing of the move any more, and calls it undone.) */
		fault("%s runs it, but can't be asked how it goes on: godwit status, there", m->host);
	report_fault(&m->report);
	json_decref(answer);
	return finish(m);
}
