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
#include <time.h>
#include "move.h"
#include "netlink.h"

void move_answer_criu(struct move *m, bool ok)
{
	if (m->criu_asks)
		criu_answer(&m->criu, ok);
	m->criu_asks = false;
}

char *move_dump_log(const struct move *m)
{
	return xasprintf("%s/dump.log", m->container.work ?: m->images);
}

#define STILL_S		5

/* Has CRIU written nothing to its log for a while? */
static bool stands_still(const struct move *m)
{
	char *log = move_dump_log(m);
	struct stat st;
	bool still = stat(log, &st) == 0 && time(NULL) - st.st_mtime >= STILL_S;

	free(log);
	return still;
}

/*
 * CRIU is in the middle of its dump, and may hang there. SIGALRM ends the system call in which it waits, whatever for. CRIU then
 * takes the dump for failed, as when it can't freeze the tasks in time, undoes it, and ends. But if a task runs code of CRIU's for
 * a moment, it would be left there, and die. So we wait while the log grows, as it does for each task and thread.
 */
static void break_off(struct move *m)
{
	struct pollfd p = { .fd = m->criu.sk, .events = POLLIN };
	int64_t end = now_ns() + CRIU_END_MS * INT64_C(1000000);

	do {
		if (poll(&p, 1, 100))
			return;
	} while (!stands_still(m) && now_ns() < end);
	if (m->criu.pid > 0)
		kill(m->criu.pid, SIGALRM);
}

/* Hear CRIU until its end. If it says nothing, or does not end, for CRIU_END_MS, it hangs, and is killed. */
void move_end_criu(struct move *m, bool ok)
{
	enum criu_event event = CRIU_NOTIFY;
	bool silent = false;
	char script[64];

	if (!ok && !m->criu_asks && m->criu.sk >= 0)
		break_off(m);
	move_answer_criu(m, ok);
	while (m->criu.sk >= 0 && event == CRIU_NOTIFY) {
		struct pollfd p = { .fd = m->criu.sk, .events = POLLIN };

		silent = poll(&p, 1, CRIU_END_MS) != 1;
		if (silent)
			break;
		event = criu_next(&m->criu, script, NULL);
		if (event == CRIU_NOTIFY)
			criu_answer(&m->criu, ok);
	}
	if (criu_wait(&m->criu, silent ? 0 : CRIU_END_MS)) {
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
