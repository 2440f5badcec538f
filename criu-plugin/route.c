// SPDX-License-Identifier: GPL-2.0
/*
 * Does a route lead to each peer? The verbs that restore a queue pair do not ask,
 * since its peer may be stopped or dead. So a restore at a host without a route
 * succeeds, and the connection fails when its time is over. This says so while a
 * route can still be added: the driver calls the peer again and again.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "restore.h"

/*
 * Does the kernel refuse to send from one of these addresses to the other? If the
 * first is not one of this network namespace, the device is in another, and
 * nothing is said.
 */
static bool is_unreachable(const uint8_t from[16], const uint8_t to[16])
{
	struct sockaddr_in6 here = { .sin6_family = AF_INET6 }, there = here;
	int fd, no = 0;
	bool ret;

	memcpy(&here.sin6_addr, from, 16);
	memcpy(&there.sin6_addr, to, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&there.sin6_addr))	/* it needs no route */
		return false;
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
	ret = !bind(fd, (void *)&here, sizeof(here)) &&
	      connect(fd, (void *)&there, sizeof(there));
	close(fd);
	return ret;
}

static void check_context(const struct saved_context *c, struct peers *peers)
{
	static const union ibv_gid as_recorded;
	const struct rxe_migr_rec_qp *qp;
	const struct saved_object *o;
	const uint8_t *from;

	for (o = c->objects; o < c->objects + c->num_objects; o++) {
		qp = (const void *)o->rec;
		if (!is_connected(qp) || is_among_us(qp))
			continue;
		from = memcmp(&o->sgid, &as_recorded, sizeof(as_recorded)) ?
		       o->sgid.raw : qp->sgid;
		if (is_unreachable(from, qp->dgid))
			name_peer(peers, qp);
	}
}

int check_routes(const pid_t *owners)
{
	struct peers peers = {};
	uint32_t i;
	int own;

	/* The program that gives the word has looked. */
	if (commit_is_asked())
		return 0;
	for (i = 0; i < saved.num_contexts; i++) {
		if (enter_netns(owners[i], &own))
			return -1;
		check_context(&saved.contexts[i], &peers);
		if (leave_netns(own))
			return -1;
	}
	if (peers.count)
		warn("no route leads to the peer of %u connection%s, so add one before the peer gives up: %s%s",
		     peers.count, peers.count == 1 ? "" : "s", peers.text,
		     more_peers(&peers));
	return 0;
}
