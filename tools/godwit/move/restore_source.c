// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The source asks the destination to restore the process, and waits until its copy is ready.
 */
#include "creds.h"
#include "move.h"

/* "restore" follows the files at once: when the destination hears it, all of them are there. */
int move_restore(struct move *m)
{
	json_t *creds = creds_collect(&m->plan.tree);

	if (!creds)
		return -1;
	move_set_stage(m, MOVE_RESTORING);
	if (move_say(m, json_pack("{s:s, s:b, s:i, s:i, s:o}", "op", "restore", "shell_job", m->plan.shell_job,
			     "processes", (int)m->plan.tree.n, "contexts", (int)m->plan.contexts.n, "creds", creds)) ||
	    move_hear(m, "received"))
		return -1;
	m->sent_ns = now_ns();
	report_step("restore", "at %s", m->host);
	return files_sync(m) ?: move_hear(m, "ready");
}
