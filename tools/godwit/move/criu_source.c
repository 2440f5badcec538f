// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * How CRIU ends at the source, and how its lock of the network is removed.
 */
#include <netinet/in.h>
#include <linux/netfilter.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "move.h"
#include "netlink.h"

void move_answer_criu(struct move *m, bool ok)
{
	if (m->criu_asks)
		criu_answer(&m->criu, ok);
	m->criu_asks = false;
}

/* Hear CRIU until its end. If it says nothing, or does not end, for CRIU_END_MS, it hangs, and is killed. */
void move_end_criu(struct move *m, bool ok)
{
	enum criu_event event = CRIU_NOTIFY;
	char script[64];

	move_answer_criu(m, ok);
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

/* The tasks that CRIU had frozen do not run: see tree_send_stop(). */
void move_kill_criu(struct move *m)
{
	if (m->criu.pid > 0)
		kill(m->criu.pid, SIGKILL);
	criu_wait(&m->criu, -1);
	criu_close(&m->criu);
}

/* CRIU locks the TCP connections of the tree, and leaves the lock in place when it is killed or its dump is accepted. */
void move_unlock_network(struct move *m)
{
	const char *logs = m->container.work ?: m->images;
	char *table = m->lock_table ? xstrdup(m->lock_table) : logs ? images_lock_table(logs) : NULL;
	/* The 13 bytes are "CRIU-" and the first part of a UUID. */
	int ret = table ? nl_tables_delete_cut(NFPROTO_INET, table, 13) : 0;

	if (ret) {
		fault("nftables: CRIU's table inet %s is left behind: %s", table, strerror(-ret));
		report_fault(&m->report);
	}
	free(table);
}
