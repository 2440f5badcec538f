// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The steps of a move, as the source takes them.
 */
#include "move.h"

static int until_ready(struct move *m)
{
	report_step("freeze", "process %d", m->process.pid);
	/* We save before we look: if two moves begin at once, at least one sees what the other has written down. */
	if (move_save(m) || move_check_others(m) || (m->container.name && container_take_policy(m)) ||
	    addresses_keep_quiet(&m->addresses, m->id, true) || move_freeze_and_dump(m))
		return -1;
	m->dumped_ns = now_ns();
	/* Somebody may have connected to it since the check. */
	if (tree_refresh(&m->plan.tree, m->process.pid) ||
	    (m->container.name && (container_is_whole(m) || container_check_connections(m))))
		return -1;
	/* From here to the decision CRIU only waits. If it dies, no task is to run before we have tidied up. */
	m->shared->stop_sent = true;
	/* We save before we send the signals: to take back a signal that was not sent does no harm. */
	if (move_save(m))
		return -1;
	tree_send_stop(&m->plan.tree);
	if (move_find_stop_time(m) || move_transfer(m) || move_restore(m))
		return -1;
	m->ready_ns = now_ns();
	if (move_may_decide(m))
		return -1;
	m->report.checkpoint = m->dumped_ns - m->freeze_ns;
	m->report.transfer = m->sent_ns - m->dumped_ns;
	m->report.restore = m->ready_ns - m->sent_ns;
	return 0;
}

int move_transact(struct move *m)
{
	int code = move_check(m);

	if (code)
		return code;
	if (m->dry_run) {
		move_say_bye(m);
		return EXIT_OK;
	}
	if (until_ready(m) == 0)
		move_decide(m);
	return move_end(m);
}
