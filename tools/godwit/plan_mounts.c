// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * A mount namespace of the tree's own goes along if it can be made elsewhere, and if CRIU, which runs in it, finds all files of
 * the tree there.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "host.h"
#include "plan.h"
#include "text.h"

#define OPEN_IT	"start the program in the namespace, or have it open the file there"

/* /dev/null and its like may be opened again for both reading and writing. */
static bool is_memory_device(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && major(st->st_rdev) == 1;
}

/* CRIU dumps these files without a look at the mount, or has our plugin do it; or plan_fds() refuses them. */
static bool needs_no_mount(const struct proc_fd *fd)
{
	static const char *const made_up[] = { "/memfd:", "/SYSV", "/dev/zero (deleted)", "/anon_hugepage", "/[aio]" };
	char device[64];

	for (size_t i = 0; i < sizeof(made_up) / sizeof(made_up[0]); i++)
		if (!strncmp(fd->link, made_up[i], strlen(made_up[i])))
			return true;
	return fd->link[0] != '/' || S_ISSOCK(fd->st.st_mode) ||
	       (S_ISCHR(fd->st.st_mode) && rdma_node(fd->st.st_rdev, device) != FILE_NOT_RDMA);
}

static bool is_there(const char *path, const struct stat *st)
{
	struct stat now;

	return st->st_nlink == 0 || (stat(path, &now) == 0 && same_file(&now, st));
}

/*
 * Does its name lead to this file in the namespace, where CRIU looks for it? (A mount may have come over it since. CRIU carries
 * along what has lost its name.)
 */
static bool is_seen(pid_t pid, const char *name, const struct stat *st)
{
	char *path = xasprintf("/proc/%d/root%s", pid, name);
	const char *end = name + strlen(name) - strlen(" (deleted)");
	bool seen = (end > name && !strcmp(end, " (deleted)")) || is_there(path, st);

	free(path);
	return seen;
}

static bool is_readonly(const struct mount *mount)
{
	return !strncmp(mount->options, "ro", 2) && (mount->options[2] == ',' || !mount->options[2]);
}

/* CRIU gives a file that has lost its name a name again, for a moment. On a read-only mount it can't. */
static bool is_stuck(const struct plan *plan, int mount, const struct stat *st)
{
	const struct mount *its = mounts_find(&plan->mntns.its, mount);

	return its && !st->st_nlink && is_readonly(its);
}

#define STUCK	"it was deleted, and is on a mount that is read-only in the process's mount namespace: "

/*
 * systemd, for example, opens standard input and output before it makes the namespace. At the destination CRIU takes that
 * host's file of the same name for such a file. We open it there for CRIU.
 */
static void look_at_outside(struct plan *plan, const struct proc_fd *fd, int mount, const char *path)
{
	char *key = xasprintf("file[%x:%" PRIx64 "]", mount, (uint64_t)fd->st.st_ino);

	if (!is_memory_device(&fd->st) && (!S_ISREG(fd->st.st_mode) || !fd->st.st_nlink))
		plan_problem(plan, "process %d, descriptor %d: %s was opened outside of the process's mount namespace: " OPEN_IT,
			     fd->pid, fd->fd, fd->link);
	else
		json_object_set_new(plan->outside, key, path_json(path));
	free(key);
}

static void look_for_name(struct plan *plan, int mount, const struct proc_fd *fd)
{
	if (is_stuck(plan, mount, &fd->st))
		plan_problem(plan, "process %d, descriptor %d: %s: " STUCK "close it before", fd->pid, fd->fd, fd->link);
	if (!is_seen(fd->pid, fd->link, &fd->st))
		plan_problem(plan, "process %d, descriptor %d: in its mount namespace a mount lies over %s: close it before",
			     fd->pid, fd->fd, fd->link);
}

/* The destination compares its file with the one that is at path on this host. */
static bool is_on_host(const char *path, const struct stat *st)
{
	return !S_ISREG(st->st_mode) || is_there(path, st);
}

static void look_on_host(struct plan *plan, const struct proc_fd *fd, const char *path)
{
	if (!is_on_host(path, &fd->st))
		plan_problem(plan, "process %d, descriptor %d: this host has no such file as %s in its mount namespace: close it "
			     "before", fd->pid, fd->fd, fd->link);
}

static int look_at_fd(const struct proc_fd *fd, void *arg)
{
	struct plan *plan = arg;
	char *path = NULL;
	int mount;

	if (needs_no_mount(fd))
		return 0;
	mount = proc_fd_mount(fd);
	switch (mntns_place(&plan->mntns, mount, fd->link, &path)) {
	case PLACE_ALONG:
		look_for_name(plan, mount, fd);
		break;
	case PLACE_OUTSIDE:
		look_at_outside(plan, fd, mount, path);
		look_on_host(plan, fd, path);
		break;
	case PLACE_HERE:
		look_for_name(plan, mount, fd);
		look_on_host(plan, fd, path);
		break;
	case PLACE_UNKNOWN:
		if (mounts_find(&plan->mntns.its, mount))
			plan_problem(plan, "process %d, descriptor %d: %s is on a mount of its own namespace that does not go along: "
				     "close it before", fd->pid, fd->fd, fd->link);
		else
			plan_problem(plan, "process %d, descriptor %d: %s was opened in another mount namespace: " OPEN_IT,
				     fd->pid, fd->fd, fd->link);
	}
	free(path);
	return 0;
}

static void look_at_link(struct plan *plan, pid_t pid, const char *name, const char *what)
{
	char *path = xasprintf("/proc/%d/%s", pid, name), link[PATH_MAX] = "";
	struct stat st;

	if (!mounts_find(&plan->mntns.its, mount_of(path)))
		plan_problem(plan, "process %d: %s is outside of its mount namespace: start the program in the namespace", pid, what);
	else if (!stat(path, &st) && is_stuck(plan, mount_of(path), &st))
		plan_problem(plan, "process %d: %s: " STUCK "start the program anew", pid, what);
	else if (readlink(path, link, sizeof(link) - 1) > 0 && !stat(path, &st) && !is_seen(pid, link, &st))
		plan_problem(plan, "process %d: in its mount namespace a mount lies over %s, %s: unmount it", pid, what, link);
	free(path);
}

/* Rings of RDMA are left out, because our plugin maps them. A mapped file on no mount that we know is memory. */
static int look_at_map(const struct proc_map *map, void *arg)
{
	struct plan *plan = arg;
	int mount = map->path && map->path[0] == '/' && map->inode ? proc_map_mount(map) : -1;
	const char *problem = NULL;
	char device[64], *path = NULL;
	struct stat st;

	if (mount < 0 || proc_map_stat(map, &st) ||
	    (S_ISCHR(st.st_mode) && rdma_node(st.st_rdev, device) != FILE_NOT_RDMA))
		return 0;
	switch (mntns_place(&plan->mntns, mount, map->path, &path)) {
	case PLACE_HERE:
	case PLACE_ALONG:
		if (is_stuck(plan, mount, &st))
			problem = STUCK "start the program anew";
		else if (!is_seen(map->pid, map->path, &st))
			problem = "in its mount namespace a mount lies over it: unmount that";
		else if (path && !is_on_host(path, &st))
			problem = "this host has no such file: start the program from one that it has";
		break;
	case PLACE_OUTSIDE:
		problem = "it was opened outside of the process's mount namespace: " OPEN_IT;
		break;
	case PLACE_UNKNOWN:
		if (mounts_find(&plan->mntns.its, mount))
			problem = "it is on a mount of the process's namespace that does not go along: " OPEN_IT;
	}
	free(path);
	if (problem)
		plan_problem(plan, "process %d, mapped file %s: %s", map->pid, map->path, problem);
	return problem != NULL;
}

static void look_at_task(struct plan *plan, pid_t pid)
{
	char *path = xasprintf("/proc/%d/root", pid), root[8] = "";

	if (readlink(path, root, sizeof(root) - 1) < 0 || strcmp(root, "/") || mount_of(path) != plan->mntns.its.mount[0].id)
		plan_problem(plan, "process %d: its root is a folder of its mount namespace, in which it was put by chroot(): "
			     "start the program without that", pid);
	look_at_link(plan, pid, "cwd", "its working directory");
	look_at_link(plan, pid, "exe", "its program");
	proc_each_map(pid, look_at_map, plan);
	free(path);
}

/*
 * CRIU runs in the namespace, with its libraries, its settings and our plugin from there. (A folder that is mounted on itself
 * shows what the host has.)
 */
static bool needs_criu(const char *point)
{
	const char *const places[] = {
		"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/criu", "/etc/godwit",
		"/run/criu.kdat", host_plugin_path(),
	};

	if (path_below(point, "/usr/lib/modules") || path_below(point, "/usr/share") || path_below(point, "/usr/src"))
		return false;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (path_below(point, places[i]) || path_below(places[i], point))
			return true;
	return false;
}

static void look_at_places(struct plan *plan, pid_t root)
{
	json_t *own = json_object_get(plan->mntns.differences, "own"), *absent = json_object_get(plan->mntns.differences, "absent");

	for (size_t i = 0; i < json_array_size(own) + json_array_size(absent); i++) {
		json_t *mount = json_array_get(own, i);
		json_t *name = mount ? json_object_get(mount, "point") : json_array_get(absent, i - json_array_size(own));
		char *point = path_from_json(name);

		if (point && needs_criu(point) && !(mount && json_equal(json_object_get(mount, "bind"), name)))
			plan_problem(plan, "process %d: its mount namespace %s on %s, and criu, which has to run there, needs what "
				     "lies there: start the program without that", root,
				     mount ? "has a mount of its own" : "lacks the host's mount", point);
		free(point);
	}
}

/* CRIU writes the settings of a UTS, IPC or network namespace to /proc/sys. */
static void look_at_sysctls(struct plan *plan, pid_t root)
{
	static const char *const kinds[] = { "uts", "ipc", "net" };

	for (size_t i = 0; i < plan->mntns.its.n; i++) {
		const struct mount *its = &plan->mntns.its.mount[i];

		if (its->hidden || !is_readonly(its) || (strcmp(its->point, "/proc") && !path_below(its->point, "/proc/sys")))
			continue;
		for (size_t j = 0; j < sizeof(kinds) / sizeof(kinds[0]); j++)
			if (proc_ns(root, kinds[j]) != proc_ns(getpid(), kinds[j])) {
				plan_problem(plan, "process %d: %s is read-only in its mount namespace, and criu, which runs there, has "
					     "to set what is in its %s namespace: start the program without one of them", root,
					     its->point, kinds[j]);
				return;
			}
	}
}

/* ------------------------------------------------------ other processes -- */

struct others {
	struct plan *plan;
	uint64_t host;
	uint64_t *seen;		/* namespaces that are seen already */
	size_t n;
};

static bool is_seen_before(struct others *others, uint64_t ns)
{
	for (size_t i = 0; i < others->n; i++)
		if (others->seen[i] == ns)
			return true;
	GROW(others->seen, others->n);
	others->seen[others->n++] = ns;
	return false;
}

/* The place of a tmpfs of the tree's own that these mounts show, too; or NULL. */
static char *find_shared(const struct plan *plan, const struct mounts *mounts)
{
	json_t *own;
	size_t i;

	json_array_foreach(json_object_get(plan->mntns.differences, "own"), i, own) {
		dev_t fs = json_integer_value(json_object_get(own, "fs"));
		char *root = json_object_get(own, "alone") ? path_from_json(json_object_get(own, "root")) : NULL;
		bool found = false;

		for (size_t j = 0; j < mounts->n && json_object_get(own, "tmpfs"); j++)
			found |= mounts->mount[j].dev == fs && (!root || path_below(mounts->mount[j].root, root));
		free(root);
		if (found)
			return path_from_json(json_object_get(own, "point"));
	}
	return NULL;
}

/* A process that stays behind and has the tmpfs, too, would see another one than the tree does. */
static int look_at_other(pid_t pid, void *arg)
{
	struct others *others = arg;
	struct plan *plan = others->plan;
	uint64_t ns = proc_ns(pid, "mnt");
	struct mounts mounts;
	char *shared;

	if (!ns || ns == others->host || tree_has(&plan->tree, pid) || is_seen_before(others, ns))
		return 0;
	if (mounts_read(pid, &mounts)) {	/* it has ended */
		fault_clear();
		return 0;
	}
	shared = find_shared(plan, &mounts);
	if (shared)
		plan_problem(plan, "process %d: process %d, which stays here, has the tmpfs on %s in its mount namespace, too: end "
			     "that process before", plan->tree.task[0].pid, pid, shared);
	free(shared);
	mounts_free(&mounts);
	return 0;
}

static void look_at_others(struct plan *plan)
{
	struct others others = { .plan = plan, .host = proc_ns(getpid(), "mnt") };

	proc_each(look_at_other, &others);
	free(others.seen);
}

int plan_mounts(struct plan *plan)
{
	pid_t root = plan->tree.task[0].pid;
	uint64_t bytes;

	if (proc_ns(root, "mnt") == proc_ns(getpid(), "mnt"))
		return 0;
	if (proc_ns(1, "mnt") != proc_ns(getpid(), "mnt"))
		return fault("godwit runs in a mount namespace of its own, from which that of process %d can't be told: start it "
			     "in the host's", root);
	if (mntns_read(root, &plan->mntns, plan->problems))
		return -1;
	bytes = mntns_bytes(root, plan->mntns.differences);
	plan->memory += bytes;
	plan->in_ram += bytes;
	look_at_others(plan);
	look_at_places(plan, root);
	look_at_sysctls(plan, root);
	for (size_t i = 0; i < plan->tree.n; i++)
		look_at_task(plan, plan->tree.task[i].pid);
	return proc_each_fd(&plan->tree, look_at_fd, plan);
}
