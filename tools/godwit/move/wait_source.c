// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The source waits for CRIU, podman or the destination, but no longer than --limit. Meanwhile its peers wait for it, and
 * are asked to wait on.
 */
#include <errno.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "move.h"

#define RENEW_LEAST_NS	INT64_C(1000000000)

void move_renew_later(struct move *m, int64_t until)
{
	int64_t now = now_ns(), wait = until > now ? (until - now) / 4 : 0;

	wait = wait > m->renew_every ? m->renew_every : wait;
	m->renew_ns = now + (wait < RENEW_LEAST_NS ? RENEW_LEAST_NS : wait);
}

/* Peers are asked again each time that a quarter of the time for which they wait is over. */
void move_renew(struct move *m)
{
	if (!m->plan.rdma || now_ns() < m->renew_ns)
		return;
	contexts_renew(&m->plan.contexts);
	move_renew_later(m, contexts_peers_wait(&m->plan.contexts));
}

int move_await(struct move *m, int fd, int criu)
{
	struct pollfd p[3] = {
		{ .fd = fd, .events = POLLIN },
		{ .fd = criu, .events = POLLIN },
		{ .fd = m->signals, .events = POLLIN },
	};
	int64_t left, until;
	int n;

	do {
		move_renew(m);
		until = m->plan.rdma && m->renew_ns < m->deadline ? m->renew_ns : m->deadline;
		left = (until - now_ns()) / 1000000;
		n = poll(p, 3, left > 0 ? left + 1 : 0);
	} while ((n < 0 && errno == EINTR) || (n == 0 && now_ns() < m->deadline));
	if (n == 0)
		return fault("it took longer than %d s: give --limit, or less memory to move",
			     m->limit_ms / 1000);
	if (p[2].revents) {
		struct signalfd_siginfo info;

		if (read(m->signals, &info, sizeof(info)) == sizeof(info))
			return fault("interrupted by signal %u", info.ssi_signo);
	}
	return p[1].revents && !p[0].revents;
}
