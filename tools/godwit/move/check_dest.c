// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The agent tells the source of this host, and whether this host would take the process. Nothing is stopped yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "agent.h"
#include "gids.h"
#include "host.h"
#include "move.h"
#include "reasons.h"
#include "text.h"

/* ---------------------------------------------------------------- hello -- */

static int add_device(const char *device, void *arg)
{
	json_object_set_new(arg, device, gids_json(device));
	return 0;
}

static int add_guid(const char *device, void *arg)
{
	char guid[NODE_GUID];

	rdma_node_guid(device, guid);
	json_object_set_new(arg, device, json_string(guid));
	return 0;
}

json_t *agent_hello(struct agent *a)
{
	json_t *devices = json_object(), *guids = json_object();

	rdma_each_device(add_device, devices);
	rdma_each_device(add_guid, guids);
	fault_clear();
	return json_pack("{s:i, s:s, s:s, s:o, s:o, s:i}", "wire", WIRE_VERSION, "version", GODWIT_VERSION, "boot",
			 host_boot_id(), "devices", devices, "guids", guids, "stage", (int)a->stage);
}

/* ---------------------------------------------------------------- check -- */

json_t *agent_keys(void)
{
	uint64_t keys[2];
	int ret = rdma_key_fingerprints(keys);
	json_t *all = json_pack("{s:[I, I], s:s*, s:b}", "keys", (json_int_t)keys[0], (json_int_t)keys[1],
				"unknown", ret ? fault_text() : NULL, "unsigned", host_allows_unsigned());

	fault_clear();
	return all;
}

static void check_pids(json_t *list, json_t *pids)
{
	json_t *pid;
	size_t i;

	json_array_foreach(pids, i, pid) {
		int number = json_integer_value(pid);
		char *path = xasprintf("/proc/%d", number), *name;

		if (access(path, F_OK) == 0) {
			name = proc_name(number);
			problem(list, "process %d: the number is taken there by %s", number, name);
			free(name);
		}
		free(path);
	}
}

static void check_ptys(json_t *list, json_t *ptys)
{
	json_t *pty;
	size_t i;

	json_array_foreach(ptys, i, pty) {
		char *path = xasprintf("/dev/pts/%d", (int)json_integer_value(pty));

		if (access(path, F_OK) == 0)
			problem(list, "terminal %s: the number is taken there", path);
		free(path);
	}
}

static void check_watch(json_t *list, json_t *watch)
{
	char *path = path_from_json(json_object_get(watch, "path"));
	int pid = json_integer_value(json_object_get(watch, "pid")), fd = json_integer_value(json_object_get(watch, "fd"));
	mode_t mode = json_integer_value(json_object_get(watch, "mode"));
	struct statx sx;

	if (!path || statx(AT_FDCWD, path, 0, STATX_TYPE, &sx))
		problem(list, "process %d, descriptor %d: it watches %s, which is not there: make it there, or end the watch",
			pid, fd, path ?: "a file without a name");
	else if ((sx.stx_mode ^ mode) & S_IFMT)
		problem(list, "process %d, descriptor %d: it watches %s, which is a file of another kind there: replace it",
			pid, fd, path);
	else if (json_is_true(json_object_get(watch, "mount")) && !(sx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		problem(list, "process %d, descriptor %d: it watches the mount %s, and nothing is mounted there: mount it",
			pid, fd, path);
	free(path);
}

static void check_watches(json_t *list, json_t *watches)
{
	json_t *watch;
	size_t i;

	json_array_foreach(watches, i, watch)
		check_watch(list, watch);
}

/*
 * Would CRIU have to wait for a lock of the process here? (For a lock of flock() only an attempt tells: we have the lock for a
 * moment. A network file system gives a write lock only on a file that is open for writing.)
 */
static bool is_locked(const char *path, json_t *lock)
{
	bool whole = json_is_true(json_object_get(lock, "flock")), write = json_is_true(json_object_get(lock, "write")), locked;
	int fd = open(path, (write ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct flock l = {
		.l_type = write ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET,
		.l_start = json_integer_value(json_object_get(lock, "start")),
		.l_len = json_integer_value(json_object_get(lock, "length")),
	};

	if (fd < 0)
		return false;
	locked = whole ? flock(fd, (write ? LOCK_EX : LOCK_SH) | LOCK_NB) && errno == EWOULDBLOCK :
		 !fcntl(fd, F_OFD_GETLK, &l) && l.l_type != F_UNLCK;
	close(fd);
	return locked;
}

static void check_locks(json_t *list, json_t *locks)
{
	json_t *lock;
	size_t i;

	json_array_foreach(locks, i, lock) {
		char *path = path_from_json(json_object_get(lock, "path"));

		if (!path || is_locked(path, lock))
			problem(list, "file %s: the lock that process %d has on it can't be had there: another has it there, or "
				"both hosts share the file: have one of them unlock it", path ?: "without a name",
				(int)json_integer_value(json_object_get(lock, "pid")));
		free(path);
	}
}

/* Make the mount namespace, and let it go again. */
static void check_mntns(json_t *list, json_t *differences)
{
	struct mntns_made made = MNTNS_MADE_INIT;

	if (differences && proc_ns(1, "mnt") != proc_ns(getpid(), "mnt"))
		problem(list, "godwit runs in a mount namespace of its own there, in which the process would be, too: have ssh start "
			"it in the host's");
	else if (differences && mntns_make(differences, &made))
		problem(list, "%s", fault_text());
	fault_clear();
	mntns_close(&made);
}

/* Who has this number, as far as `rdma resource` tells: " by process 17 (name)", or "". Free it. */
static char *taker(json_t *live, const char *device, const char *key, json_int_t number)
{
	json_t *object;
	size_t i;

	json_array_foreach(live, i, object) {
		const char *name = json_string_value(json_object_get(object, "ifname"));
		json_t *value = json_object_get(object, key);
		/* rdma prints keys in hexadecimal, as strings. The application chooses the lowest byte of a key. */
		bool same = json_is_string(value) ?
			strtoll(json_string_value(value), NULL, 16) >> 8 == number >> 8 :
			value && json_integer_value(value) == number;

		if (name && !strcmp(name, device) && same)
			return xasprintf(" by process %d (%s)", (int)json_integer_value(json_object_get(object, "pid")),
					 json_string_value(json_object_get(object, "comm")) ?: "?");
	}
	return xstrdup("");
}

/* The QPs and MRs of this host, asked for when somebody has a number; or NULL. */
struct live {
	json_t *qps, *mrs;
};

static json_t *live_of(struct live *live, int type)
{
	if (type == RXE_MIGR_HINT_QP)
		return live->qps = live->qps ?: rdma_resources("qp") ?: json_array();
	if (type == RXE_MIGR_HINT_MR)
		return live->mrs = live->mrs ?: rdma_resources("mr") ?: json_array();
	return NULL;
}

static void report_taken(json_t *list, struct live *live, const char *device, int type, json_int_t number)
{
	static const char *const names[] = {
		[RXE_MIGR_HINT_QP] = "QP", [RXE_MIGR_HINT_MR] = "MR key", [RXE_MIGR_HINT_SRQ] = "SRQ",
		[RXE_MIGR_HINT_AH] = "AH", [RXE_MIGR_HINT_MW] = "MW key",
	};
	bool key = type == RXE_MIGR_HINT_MR || type == RXE_MIGR_HINT_MW;
	char *by = taker(live_of(live, type), device, type == RXE_MIGR_HINT_QP ? "lqpn" : "lkey", number);

	problem(list, key ? "%s, %s 0x%llx: it is taken there%s: end that, or move elsewhere" :
		"%s, %s %llu: it is taken there%s: end that, or move elsewhere", device, names[type],
		(unsigned long long)number, by);
	free(by);
}

static void check_identities(json_t *list, struct live *live, const struct device_here *d, json_t *identities)
{
	json_t *identity;
	size_t i;

	json_array_foreach(identities, i, identity) {
		int type = json_integer_value(json_array_get(identity, 0));
		json_int_t number = json_integer_value(json_array_get(identity, 1));

		if (d->ctx && ibv_query_taken(d->ctx, type, number) == EEXIST)
			report_taken(list, live, d->name, type, number);
	}
}

static void check_flows(json_t *list, const struct addresses *moving, const struct device_here *d, json_t *flows)
{
	json_t *flow;
	size_t i;

	json_array_foreach(flows, i, flow) {
		if (agent_flow(moving, d, flow))
			problem(list, "%s", fault_text());
		fault_clear();
	}
}

static void leave_device(struct device_here *d)
{
	if (d->ctx)
		ibv_close_device(d->ctx);
	json_decref(d->gids);
	*d = (struct device_here){ 0 };
}

/* Most contexts are of the device of the context before. */
static int look_at_device(struct device_here *d, const char *name)
{
	if (d->name && !strcmp(d->name, name))
		return 0;
	leave_device(d);
	if (host_check_device(name))
		return -1;
	*d = (struct device_here){ .name = name, .ctx = rdma_open(name), .gids = gids_json(name) };
	rdma_netdev(name, d->own);
	fault_clear();
	return 0;
}

static void check_contexts(json_t *list, const struct addresses *moving, json_t *contexts, bool own_netns)
{
	struct device_here d = { 0 };
	struct live live = { 0 };
	json_t *context;
	size_t i;

	json_array_foreach(contexts, i, context) {
		const char *device = json_string_value(json_object_get(context, "device"));

		if (!device || !rdma_device_exists(device)) {
			problem(list, "device %s: there is none: rdma link add %s type rxe netdev INTERFACE, "
				"or give --device", device, device);
			continue;
		}
		if (own_netns && !rdma_is_shared())
			problem(list, "device %s: " WHY_OWN_NETNS, device);
		if (look_at_device(&d, device)) {
			problem(list, "%s", fault_text());
		} else {
			check_identities(list, &live, &d, json_object_get(context, "identities"));
			check_flows(list, moving, &d, json_object_get(context, "flows"));
		}
		fault_clear();
	}
	leave_device(&d);
	json_decref(live.qps);
	json_decref(live.mrs);
}

static void check_rdma(json_t *list, const struct addresses *moving, json_t *message)
{
	json_t *contexts = json_object_get(message, "contexts");
	bool cm = json_is_true(json_object_get(message, "rdma_cm"));

	check_contexts(list, moving, contexts, json_is_true(json_object_get(message, "own_netns")));
	if (cm) {
		agent_check_cm(message, list);
		/* By now the kernel has asked for each peer. What it knows of them is not asked for again. */
		agent_check_neighbours(moving, json_object_get(message, "cm_peers"), list);
	}
	if ((cm || json_array_size(contexts)) && host_check_plugin())
		problem(list, "%s", fault_text());
	fault_clear();
}

/*
 * How a person settles a move whose godwits were killed. Such a move to here has left something: a copy, an address, the tables
 * that keep the address quiet. (STAGE_RUNNING leaves nothing to undo: it is written down for the source alone.) A move from here
 * may not be tidied up: if somebody did that later, he would remove what this move brings back. NULL: nothing is in the way.
 */
static const char *how_to_settle(const json_t *state)
{
	enum stage stage = agent_stage_in(state);

	if (stage == STAGE_COMMITTED || move_stage_in(state) == MOVE_RAN)
		return "commit";
	return stage == STAGE_IDLE || stage == STAGE_RUNNING ? NULL : "abort";
}

static void check_moves(json_t *list)
{
	json_t *all, *state;
	size_t i;

	if (state_all(&all))
		problem(list, "%s", fault_text());
	json_array_foreach(all, i, state) {
		const char *id = json_string_value(json_object_get(state, "id")), *how = how_to_settle(state);
		int lock = how ? state_lock(id) : -1;

		if (lock >= 0)
			problem(list, "move %s: godwit was killed there and has left it half done: there: godwit settle %s %s",
				id, id, how);
		close_fd(&lock);
	}
	json_decref(all);
	fault_clear();
}

/* Does the source talk to us from an address that is to move? */
static int check_ssh(const struct addresses *addresses)
{
	const char *connection = getenv("SSH_CONNECTION");
	char from[INET6_ADDRSTRLEN];

	if (!connection || sscanf(connection, "%45s", from) != 1)
		return 0;
	for (size_t i = 0; i < addresses->n; i++)
		if (!strcmp(addresses->address[i].text, from))
			return fault("address %s: ssh comes from it, and would be cut when it moves: "
				     "connect from another", from);
	return 0;
}

json_t *agent_check(struct agent *a, json_t *message, json_t *digests)
{
	const char *base = json_string_value(json_object_get(message, "images"));
	json_t *list = json_array();

	fault_clear();
	/* Moves are checked first: an unfinished move may be why an address is taken. */
	check_moves(list);
	if (addresses_from_json(&a->addresses, json_object_get(message, "addresses")) ||
	    addresses_check_destination(&a->addresses) || check_ssh(&a->addresses) || host_check_nft())
		problem(list, "%s", fault_text());
	fault_clear();
	if (a->criu_trouble)
		problem(list, "%s", a->criu_trouble);
	check_pids(list, json_object_get(message, "pids"));
	check_ptys(list, json_object_get(message, "ptys"));
	/* Mounts are checked before files: a folder that is not there is why its files are not there. */
	check_mntns(list, json_object_get(message, "mntns"));
	agent_check_names(message, list);
	agent_check_files(message, list, digests);
	check_watches(list, json_object_get(message, "watches"));
	check_locks(list, json_object_get(message, "locks"));
	agent_check_room(message, base ?: IMAGES_DIR, list);
	check_rdma(list, &a->addresses, message);
	if (json_object_get(message, "container"))
		agent_check_container(message, list);
	return list;
}
