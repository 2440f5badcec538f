// SPDX-License-Identifier: GPL-2.0
/*
 * Does a route lead to each peer? The verbs that restore a queue pair do not ask,
 * since its peer may be stopped or dead. So a restore at a host without a route
 * succeeds, and the connection fails when its time is over. (Not always: without a
 * route the driver takes a peer with an IPv4 address for one on the interface's
 * link.) This says so while a route can still be added: the driver calls the peer
 * again and again.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netlink_route.h"
#include "restore.h"

/* Where packets leave. */
struct way {
	union ibv_gid	from;
	uint32_t	ifindex;	/* 0: not known, so nothing is said */
};

/*
 * The interface of the device's GID. If the GID is no address of this network
 * namespace, the device is in another, and its number of the interface means
 * nothing here.
 */
static uint32_t interface_here(struct ibv_context *ctx,
			       const union ibv_gid *gid)
{
	struct sockaddr_in6 here = { .sin6_family = AF_INET6 };
	int fd, no = 0;
	bool is_here;

	memcpy(&here.sin6_addr, gid, sizeof(*gid));
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
	is_here = !bind(fd, (void *)&here, sizeof(here));
	close(fd);
	return is_here ? gid_interface(ctx, gid) : 0;
}

/* The driver looks for a route from the interface of the GID, too. */
static bool is_unreachable(const struct way *way, const uint8_t to[16])
{
	struct in6_addr there;
	int mtu, ret, skip;
	bool v4;

	memcpy(&there, to, sizeof(there));
	if (!way->ifindex || IN6_IS_ADDR_LINKLOCAL(&there))
		return false;	/* (link-local: it needs no route) */
	v4 = IN6_IS_ADDR_V4MAPPED(&there);
	skip = v4 ? 12 : 0;
	ret = nl_route(v4 ? AF_INET : AF_INET6, to + skip,
		       way->from.raw + skip, way->ifindex, &mtu);
	/* EACCES, EINVAL: a route prohibits it, or is a black hole. */
	return ret == -ENETUNREACH || ret == -EHOSTUNREACH ||
	       ret == -EACCES || ret == -EINVAL;
}

/* What the kernel has said of a peer's address. Many connections may lead there. */
struct answer {
	uint8_t		from[16], to[16];
	bool		unreachable;
};

static int by_ends(const void *a, const void *b)
{
	return memcmp(a, b, offsetof(struct answer, unreachable));
}

/* answers: a tree, see tsearch(3) */
static bool lacks_route(struct ibv_context *ctx, struct way *way, void **answers,
			const uint8_t from[16], const uint8_t to[16])
{
	struct answer key = {}, *answer, **known;

	memcpy(key.from, from, sizeof(key.from));
	memcpy(key.to, to, sizeof(key.to));
	known = tfind(&key, answers, by_ends);
	if (known)
		return (*known)->unreachable;
	if (memcmp(from, &way->from, sizeof(way->from))) {
		memcpy(&way->from, from, sizeof(way->from));
		way->ifindex = interface_here(ctx, &way->from);
	}
	key.unreachable = is_unreachable(way, to);
	answer = malloc(sizeof(*answer));
	if (answer) {
		*answer = key;
		if (!tsearch(answer, answers, by_ends))
			free(answer);
	}
	return key.unreachable;
}

static void check_context(const struct saved_context *c,
			  struct ibv_context *ctx, struct peers *peers)
{
	static const union ibv_gid as_recorded;
	const struct rxe_migr_rec_qp *qp;
	const struct saved_object *o;
	void *answers = NULL;
	const uint8_t *from;
	struct way way = {};

	for (o = c->objects; o < c->objects + c->num_objects; o++) {
		qp = (const void *)o->rec;
		if (!is_connected(qp))
			continue;
		from = memcmp(&o->sgid, &as_recorded, sizeof(as_recorded)) ?
		       o->sgid.raw : qp->sgid;
		if (lacks_route(ctx, &way, &answers, from, qp->dgid) &&
		    !is_among_us(qp))
			name_peer(peers, qp);
	}
	tdestroy(answers, free);
}

int check_routes(const pid_t *owners, struct ibv_context **ctx)
{
	struct peers peers = {};
	uint32_t i;
	int own;

	/* The program that gives the word has looked. */
	if (commit_is_asked())
		return 0;
	for (i = 0; i < saved.num_contexts; i++) {
		if (enter_netns(owners[i], &own)) {
			warn("it is not known whether a route leads to each peer");
			return 0;
		}
		check_context(&saved.contexts[i], ctx[i], &peers);
		if (leave_netns(own))
			return -1;
	}
	if (peers.count)
		warn("no route leads to the peer of %u connection%s, so add one before the peer gives up: %s%s",
		     peers.count, peers.count == 1 ? "" : "s", peers.text,
		     more_peers(&peers));
	return 0;
}
