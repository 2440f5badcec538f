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
#include <sys/stat.h>
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

#define STILL_MS	5000

static off_t log_size(const struct move *m)
{
	char *log = move_dump_log(m);
	struct stat st;
	off_t size = stat(log, &st) ? -1 : st.st_size;

	free(log);
	return size;
}

/*
 * CRIU is in the middle of its dump, and may hang there. SIGALRM ends the system call in which it waits, whatever for, and the
 * plugin sees to it that it does so once. CRIU then takes the dump for failed, undoes it, and ends. But if a task runs code of
 * CRIU's for a moment, it would be left there, and die. So only a CRIU whose log stands still is interrupted: the log grows for
 * each task and thread.
 */
static void break_off(struct move *m)
{
	struct pollfd p = { .fd = m->criu.sk, .events = POLLIN };
	int64_t start = now_ns(), grown = start;
	off_t size = log_size(m), before;

	do {
		if (poll(&p, 1, 100))
			return;
		before = size;
		size = log_size(m);
		if (size != before)
			grown = now_ns();
		if (now_ns() - grown >= STILL_MS * INT64_C(1000000)) {
			if (m->criu.pid > 0)
				kill(m->criu.pid, SIGALRM);
			return;
		}
	} while (now_ns() - start < CRIU_END_MS * INT64_C(1000000));
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
