// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Can the CRIU plugin make the process's ids of librdmacm here? See plan_cm.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_user_cm.h>
#include "agent.h"
#include "cm_lock.h"
#include "gids.h"
#include "host.h"
#include "text.h"

#define MAX_CM_ID (1 << 20) /* as the plugin has it */
#define CM_LOCK_MS 10000
#define RESOLVE_MS 4000 /* ARP gives up after three seconds */
#define RESOLVE_STEP_MS 200

/* Make an id by this file of librdmacm: the number that the kernel gives it, or -1. */
static int64_t next_cm_id(int fd)
{
	struct rdma_ucm_create_id_resp resp;
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		struct rdma_ucm_create_id create;
	} cmd = {
		{ RDMA_USER_CM_CMD_CREATE_ID, sizeof(cmd.create), sizeof(resp) },
		{ .response = (uintptr_t)&resp, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC },
	};

	return write(fd, &cmd, sizeof(cmd)) == sizeof(cmd) ? (int64_t)resp.id : -1;
}

/* The kernel numbers ids for the whole host and gives the lowest free number: a number that it leaves out is taken. */
static void check_cm_ids(json_t *list, json_t *ids)
{
	int fd = open(RDMA_CM, O_RDWR | O_CLOEXEC);
	int64_t highest = -1, last = -1, number = 0;
	json_t *id;
	size_t i;

	json_array_foreach(ids, i, id)
		if (json_integer_value(id) > highest && json_integer_value(id) < MAX_CM_ID)
			highest = json_integer_value(id);
	while (fd >= 0 && last < highest && number >= 0) {
		number = next_cm_id(fd);
		json_array_foreach(ids, i, id)
			if (json_integer_value(id) > last && json_integer_value(id) < number)
				problem(list, "id %lld of librdmacm: the number is taken there: end what has it, or "
					"move elsewhere", (long long)json_integer_value(id));
		last = number;
	}
	if (fd < 0 || number < 0)
		problem(list, RDMA_CM ": %s: modprobe rdma_ucm", strerror(errno));
	if (fd >= 0)
		close(fd);
}

/*
 * Take the lock of numbers and ports. False: others do not give it back. (If there is no such lock here, the worst is that a
 * number seems to be taken.)
 */
static bool take_lock(json_t *list, int *lock)
{
	*lock = cm_lock(CM_LOCK_MS);
	if (*lock >= 0 || errno != ETIMEDOUT)
		return true;
	problem(list, "ids of librdmacm: another move or check there does not get done with its own: try again");
	return false;
}

/*
 * To look for a peer takes an id, whose number a restore may want. So the lock is given back in between, while the kernel goes on
 * asking for the peer. 0, an errno, or -1: others do not give the lock back.
 */
static int find_peer(json_t *list, const char *address)
{
	int err = ETIMEDOUT, lock;

	for (int ms = 0; err == ETIMEDOUT && ms < RESOLVE_MS; ms += RESOLVE_STEP_MS) {
		if (!take_lock(list, &lock))
			return -1;
		err = rdma_resolve(address, RESOLVE_STEP_MS);
		close_fd(&lock);
		if (err)
			usleep(2 * CM_LOCK_STEP_MS * 1000);
	}
	return err;
}

/* A dead peer is one problem, however many ids are connected to it. */
static void check_cm_peers(json_t *list, json_t *peers)
{
	json_t *known = json_object(), *peer;
	size_t i;

	json_array_foreach(peers, i, peer) {
		const char *address = json_string_value(json_object_get(peer, "address"));
		int err;

		if (!address || json_object_get(known, address))
			continue;
		json_object_set_new(known, address, json_true());
		err = find_peer(list, address);
		if (err < 0)
			break;
		if (!err)
			continue;
		problem(list, "process %d, descriptor %d, id %lld of librdmacm: its peer's address %s cannot be resolved there: "
			"%s: is that host up?", (int)json_integer_value(json_object_get(peer, "pid")),
			(int)json_integer_value(json_object_get(peer, "fd")),
			(long long)json_integer_value(json_object_get(peer, "id")), address, strerror(err));
	}
	json_decref(known);
}

/* Which addresses of RDMA devices does this host have? */
struct look {
	const struct in6_addr *wanted;
	bool has;		/* that one */
	struct in6_addr other;	/* one of its family, or :: */
};

static int look_at_device(const char *device, void *arg)
{
	json_t *gids = gids_json(device), *gid;
	struct look *look = arg;
	size_t i;

	json_array_foreach(gids, i, gid) {
		struct in6_addr a;

		if (json_integer_value(json_object_get(gid, "prefix")) < 0 ||
		    inet_pton(AF_INET6, json_string_value(json_object_get(gid, "gid")), &a) != 1 || IN6_IS_ADDR_LINKLOCAL(&a) ||
		    IN6_IS_ADDR_V4MAPPED(&a) != IN6_IS_ADDR_V4MAPPED(look->wanted))
			continue;
		look->has |= !memcmp(&a, look->wanted, sizeof(a));
		look->other = a;
	}
	json_decref(gids);
	return 0;
}

/* An address that stands for any: librdmacm takes a loopback address for one, too. */
static bool is_any(const struct in6_addr *a)
{
	const uint8_t *v4 = &a->s6_addr[12];

	return IN6_IS_ADDR_V4MAPPED(a) ? v4[0] == 127 || !(v4[0] | v4[1] | v4[2] | v4[3]) :
	       IN6_IS_ADDR_UNSPECIFIED(a) || IN6_IS_ADDR_LOOPBACK(a);
}

/*
 * Bind an id for a moment, as the plugin will. Nobody here is bound to an address that comes only with the move, but somebody
 * may be bound to any address. To find out, bind an address that this host has: if somebody is bound to any address, the kernel
 * says EADDRNOTAVAIL. A link-local address is tried like this, too: only the plugin knows its interface. Returns an errno.
 */
static int try_to_bind(const struct in6_addr *address, const struct cm_port *port)
{
	struct look look = { .wanted = address };
	int err = rdma_try_bind(address, port);

	if (!err || err == EADDRINUSE || is_any(address))
		return err;
	rdma_each_device(look_at_device, &look);
	fault_clear();
	if (look.has)
		return err;
	if (is_any(&look.other))
		return 0;	/* no address of the family is here: the plugin will tell */
	err = rdma_try_bind(&look.other, port);
	return err == EADDRINUSE ? 0 : err;
}

static bool is_taken(int err)
{
	return err == EADDRINUSE || err == EADDRNOTAVAIL;
}

static void check_cm_ports(json_t *list, json_t *ports)
{
	json_t *port;
	size_t i;

	json_array_foreach(ports, i, port) {
		const char *text = json_string_value(json_object_get(port, "address"));
		struct cm_port p = {
			.ps = json_integer_value(json_object_get(port, "ps")),
			.port = json_integer_value(json_object_get(port, "port")),
			.reuseaddr = json_is_true(json_object_get(port, "reuseaddr")),
			.afonly = json_is_true(json_object_get(port, "afonly")),
		};
		char shown[INET6_ADDRSTRLEN];
		struct in6_addr address;
		int err;

		if (!text || inet_pton(AF_INET6, text, &address) != 1)
			continue;
		err = try_to_bind(&address, &p);
		if (err)
			problem(list, "process %d, descriptor %d, id %lld of librdmacm: its RDMA port %d, at the address %s, %s "
				"there: %s", (int)json_integer_value(json_object_get(port, "pid")),
				(int)json_integer_value(json_object_get(port, "fd")),
				(long long)json_integer_value(json_object_get(port, "id")), p.port, ip_text(&address, shown),
				is_taken(err) ? "is taken" : "can't be had",
				is_taken(err) ? "end what has it, or move elsewhere" : strerror(err));
	}
}

static int check_driver(const char *device, void *arg)
{
	(void)arg;
	return host_check_device(device) == 0;
}

/* A process that has only files of librdmacm needs our driver, too, on any device. */
void agent_check_cm(json_t *message, json_t *list)
{
	int lock;

	if (rdma_each_device(check_driver, NULL) <= 0)
		problem(list, "devices: no rxe device there has our driver, which rdma_cm needs: rdma link add "
			"rxe0 type rxe netdev INTERFACE");
	if (take_lock(list, &lock)) {
		check_cm_ids(list, json_object_get(message, "cm_ids"));
		check_cm_ports(list, json_object_get(message, "cm_ports"));
		close_fd(&lock);
		check_cm_peers(list, json_object_get(message, "cm_peers"));
	}
	fault_clear();
}
