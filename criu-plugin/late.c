// SPDX-License-Identifier: GPL-2.0
/*
 * Peers wait for a stopped connection, but not for ever. A checkpoint notes
 * when it stopped the first queue pair, by the wall clock, the only clock that
 * two hosts share, and how long peers wait. A restore that comes later says so.
 * The peers' own hosts decide, and may wait longer. So the restore only warns,
 * unless the administrator has set late = refuse.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "dump.h"
#include "restore.h"

#define PAUSE_TIMEOUT	"/sys/module/rdma_rxe/parameters/pause_timeout"
#define NAMED		3	/* connections that the line names */
#define SECOND		1000000000ULL
#define DAEMON_WARNING	"<28>"	/* LOG_DAEMON | LOG_WARNING of syslog.h, which CRIU's names exclude */

static uint64_t now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * SECOND + ts.tv_nsec;
}

/* ------------------------------------------------------------- checkpoint -- */

void note_time(RdmaInventoryEntry *inventory)
{
	unsigned int seconds;
	FILE *file;

	if (!inventory->stop_ns)	/* there is no QP */
		return;
	inventory->has_stop_time = true;
	inventory->stop_time = now(CLOCK_REALTIME) -
			       (now(CLOCK_MONOTONIC) - inventory->stop_ns);
	file = fopen(PAUSE_TIMEOUT, "re");
	if (!file)
		return;
	if (fscanf(file, "%u", &seconds) == 1) {
		inventory->has_pause_timeout = true;
		inventory->pause_timeout = seconds;
	}
	fclose(file);
}

/* ---------------------------------------------------------------- restore -- */

bool is_connected(const struct rxe_migr_rec_qp *qp)
{
	return le16toh(qp->hdr.type) == RXE_MIGR_REC_QP &&
	       (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC) &&
	       qp->qp_state >= IBV_QPS_RTR && qp->qp_state <= IBV_QPS_SQE;
}

bool is_among_us(const struct rxe_migr_rec_qp *qp)
{
	const struct saved_context *c;
	uint32_t i;

	for (i = 0; i < saved.num_contexts; i++) {
		c = &saved.contexts[i];
		if (has_gid(c->source, qp->dgid) &&
		    find_qp(c, le32toh(qp->dest_qpn)))
			return true;
	}
	return false;
}

void name_peer(struct peers *list, const struct rxe_migr_rec_qp *qp)
{
	char gid[INET6_ADDRSTRLEN];

	if (list->count++ >= NAMED)
		return;
	inet_ntop(AF_INET6, qp->dgid, gid, sizeof(gid));
	list->length += snprintf(list->text + list->length,
				 sizeof(list->text) - list->length,
				 "%sQP %u -> %s, QP %u", list->length ? "; " : "",
				 le32toh(qp->qpn), gid, le32toh(qp->dest_qpn));
}

const char *more_peers(const struct peers *list)
{
	return list->count > NAMED ? "; ..." : "";
}

static void name_connections(struct peers *list)
{
	const struct rxe_migr_rec_qp *qp;
	const struct saved_context *c;
	uint32_t i, j;

	for (i = 0; i < saved.num_contexts; i++) {
		c = &saved.contexts[i];
		for (j = 0; j < c->num_objects; j++) {
			qp = (const void *)c->objects[j].rec;
			if (is_connected(qp) && !is_among_us(qp))
				name_peer(list, qp);
		}
	}
}

/*
 * A line to the host's journal, since container runtimes remove the log of a
 * restore that went well. syslog(3) would wait for a journal that stands still.
 */
static void tell_host(const char *text)
{
	const struct sockaddr_un addr = { AF_UNIX, "/dev/log" };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char line[sizeof(struct peers) + 256];
	int length = snprintf(line, sizeof(line), DAEMON_WARNING "criu: rdma: %s", text);

	if (fd < 0)
		return;
	sendto(fd, line, length, 0, (const struct sockaddr *)&addr, sizeof(addr));
	close(fd);
}

int check_time(void)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	uint64_t time = now(CLOCK_REALTIME), limit;
	struct peers list = {};
	char text[sizeof(list) + 128];

	/* The program that gives the word knows whether peers wait. */
	if (commit_is_asked() ||
	    !inventory->has_stop_time || !inventory->pause_timeout)
		return 0;
	limit = inventory->pause_timeout * SECOND;
	/* If the source's clock is ahead, nobody knows how late it is. */
	if (time < inventory->stop_time || time - inventory->stop_time <= limit)
		return 0;
	name_connections(&list);
	if (!list.count)
		return 0;
	time = (time - inventory->stop_time) / SECOND;
	snprintf(text, sizeof(text), "stopped %llu s ago, and peers wait for %u s: %s%u connection%s: %s%s",
		 (unsigned long long)time, inventory->pause_timeout,
		 refuses_late() ? "" : "they may have given up ", list.count,
		 list.count == 1 ? "" : "s", list.text, more_peers(&list));
	if (refuses_late())
		return fail("too late (late = refuse): %s", text);
	warn("late: %s", text);
	tell_host(text);
	return 0;
}
