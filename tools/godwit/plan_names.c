// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Addresses of TCP and UDP sockets, names of Unix sockets, and folders: which stand in the way of a move? CRIU binds the sockets
 * again and opens the folders again, so the destination looks before the freeze whether CRIU can.
 */
#include <arpa/inet.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "plan.h"
#include "text.h"

/* ---------------------------------------------------------- TCP and UDP -- */

static bool is_loopback(const struct in6_addr *a)
{
	return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

static bool is_any(const struct in6_addr *a)
{
	static const struct in6_addr any4 = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

	return IN6_IS_ADDR_UNSPECIFIED(a) || !memcmp(a, &any4, sizeof(any4));
}

static bool is_group(const struct in6_addr *a)
{
	return IN6_IS_ADDR_MULTICAST(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] >> 4 == 14);
}

static void stays_behind(struct plan *plan, const struct proc_inet *s)
{
	const char *kind = s->udp ? "UDP" : "TCP";
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];

	ip_text(&s->local, local);
	ip_text(&s->remote, remote);
	if (s->remote_port)
		plan_problem(plan, "process %d, descriptor %d: the %s connection %s:%u - %s:%u can't move without its address: use "
			     "an address of its own, and --address %s", s->pid, s->fd, kind, local, s->local_port, remote,
			     s->remote_port, local);
	else
		plan_problem(plan, "process %d, descriptor %d: the %s socket is bound to %s:%u: use an address of its own, and "
			     "--address %s", s->pid, s->fd, kind, local, s->local_port, local);
	/* Many a UDP socket is there for a moment only: a question to a name server. */
	plan->passing |= s->udp;
}

/*
 * The other end of a connection over the loopback, or to an address that moves, goes along, or the connection would be cut, and
 * nobody would notice.
 */
static void look_at_peer(struct plan *plan, const struct proc_inet *s)
{
	bool within = s->remote_port && (is_loopback(&s->local) || addresses_have(plan->addresses, &s->remote));
	const struct proc_inet *peer = within ? proc_inet_peer(s) : NULL;
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];

	if (!peer || peer->pid)
		return;
	plan_problem(plan, "process %d, descriptor %d: the %s connection %s:%u - %s:%u leads to a process that stays here: close it "
		     "before", s->pid, s->fd, s->udp ? "UDP" : "TCP", ip_text(&s->local, local), s->local_port,
		     ip_text(&s->remote, remote), s->remote_port);
	plan->passing = true;
}

/* Each address and port counts once. CRIU binds connected TCP sockets in any case. */
static void need_port(struct plan *plan, const struct proc_inet *s)
{
	char address[INET6_ADDRSTRLEN], *key;
	int copy, v6only = 0, shared = 0;
	socklen_t len = sizeof(int);

	if (!s->local_port || (!s->udp && s->remote_port))
		return;
	inet_ntop(AF_INET6, &s->local, address, sizeof(address));
	key = xasprintf("%d %s %u", s->udp, address, s->local_port);
	if (!json_object_get(plan->ports, key)) {
		copy = proc_get_fd(s->pid, s->fd);
		if (copy >= 0) {
			getsockopt(copy, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, &len);
			getsockopt(copy, SOL_SOCKET, SO_REUSEPORT, &shared, &len);
		}
		close_fd(&copy);
		json_object_set_new(plan->ports, key, json_pack("{s:i, s:i, s:b, s:s, s:i, s:b, s:b}", "pid", s->pid, "fd", s->fd,
			"udp", s->udp, "address", address, "port", (int)s->local_port, "v6only", v6only, "shared", shared));
	}
	free(key);
}

static int look_at_inet(const struct proc_inet *s, void *arg)
{
	struct plan *plan = arg;

	if (!is_any(&s->local) && !is_loopback(&s->local) && !is_group(&s->local) && !addresses_have(plan->addresses, &s->local)) {
		stays_behind(plan, s);
		return 0;
	}
	look_at_peer(plan, s);
	need_port(plan, s);
	return 0;
}

int plan_inet(struct plan *plan)
{
	return proc_each_inet(&plan->tree, look_at_inet, plan);
}

/* ----------------------------------------------------- Unix sockets -- */

/* As /proc/net/unix has it: a @ for each zero byte of an abstract name. Names without a folder say nothing there. */
void plan_unix_name(struct plan *plan, const struct proc_fd *fd, int copy)
{
	struct sockaddr_un sun = { 0 };
	socklen_t len = sizeof(sun);
	char name[sizeof(sun.sun_path) + 1] = "";
	bool abstract;

	if (getsockname(copy, (struct sockaddr *)&sun, &len) || len <= offsetof(struct sockaddr_un, sun_path))
		return;
	len -= offsetof(struct sockaddr_un, sun_path);
	abstract = !sun.sun_path[0];
	for (size_t i = 0; i < len && i < sizeof(sun.sun_path); i++)
		name[i] = abstract && !sun.sun_path[i] ? '@' : sun.sun_path[i];
	if (abstract ? plan->own_netns : name[0] != '/' || plan->mntns.own)
		return;
	path_json_set(plan->names, name, json_pack("[i, i]", fd->pid, fd->fd));
}

/* ----------------------------------------------------------- folders -- */

/* In a mount namespace of its own, folders are made there with the mounts, or the move is refused: plan_mounts.c. */
void plan_folder(struct plan *plan, const char *path, const struct stat *st)
{
	/* CRIU takes removed folders along. */
	if (!plan->mntns.own && path[0] == '/' && S_ISDIR(st->st_mode) && st->st_nlink && strncmp(path, "/proc/", 6))
		path_json_set(plan->folders, path, json_integer(st->st_mode));
}

static void look_at_cwd(struct plan *plan, pid_t pid)
{
	char *link = xasprintf("/proc/%d/cwd", pid), path[PATH_MAX];
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	struct stat st;

	if (n > 0 && stat(link, &st) == 0) {
		path[n] = '\0';
		plan_folder(plan, path, &st);
	}
	free(link);
}

void plan_cwds(struct plan *plan)
{
	for (size_t i = 0; i < plan->tree.n; i++)
		look_at_cwd(plan, plan->tree.task[i].pid);
}
