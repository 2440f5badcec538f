// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * A mount namespace like one of another host. A child makes it, since we stay in the host's.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "godwit.h"
#include "mntns.h"
#include "text.h"

static char *text_of(json_t *object, const char *key)
{
	return path_from_json(json_object_get(object, key));
}

static unsigned long number_of(json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* --------------------------------------------------------------- mounts -- */

static int compare_owner(json_t *own, const char *bind, const struct stat *st)
{
	json_t *owner = json_object_get(own, "owner");
	int uid, gid, mode;

	if (!owner || json_unpack(owner, "[i, i, i]", &uid, &gid, &mode) ||
	    ((uid_t)uid == st->st_uid && (gid_t)gid == st->st_gid && mode == (int)(st->st_mode & 07777)))
		return 0;
	return fault("%s: the process has it mounted; it belongs to user %d, group %d, with mode %04o there, and to user %d, "
		     "group %d, with mode %04o here: change that", bind, (int)st->st_uid, (int)st->st_gid,
		     (unsigned int)(st->st_mode & 07777), uid, gid, (unsigned int)mode);
}

/* If only this host has a mount below the folder, the namespace would not show it. */
static int compare_below(json_t *own, json_t *list, const struct mounts *host, const char *bind, const char *point)
{
	int ret = 0;

	for (size_t i = 0; !ret && json_is_true(json_object_get(own, "whole")) && i < host->n; i++) {
		const char *rest = path_below(host->mount[i].point, bind);

		char *at = xasprintf("%s%s", point, rest ?: "");

		if (rest && *rest && mntns_is_checked(&host->mount[i]) && !mntns_find_bind(list, host->mount[i].point, at))
			ret = fault("folder %s: the process has it mounted, and there another file system is mounted below it, on %s: "
				    "unmount that", bind, host->mount[i].point);
		free(at);
	}
	return ret;
}

/* Open, by its path on the host, what is to be bound: in the namespace something else may lie over it. */
static int open_source(json_t *own, json_t *list, const struct mounts *host, const char *bind, const char *point)
{
	bool folder = json_is_true(json_object_get(own, "folder"));
	int fd = mntns_open(AT_FDCWD, bind), tree = -1, ret;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		ret = fault("%s %s: the process has it mounted on %s, and it can't be had there: %s: make it there",
			    folder ? "folder" : "file", bind, point, mntns_error());
	else if (S_ISDIR(st.st_mode) != folder)
		ret = fault("%s %s: the process has it mounted on %s, and it is a %s there: replace it", folder ? "folder" : "file",
			    bind, point, folder ? "file" : "folder");
	else
		ret = compare_owner(own, bind, &st) ?: compare_below(own, list, host, bind, point);
	if (!ret) {
		tree = open_tree(fd, "", MNTNS_COPY_OF_FD);
		ret = tree < 0 ? fault("%s: %s", bind, strerror(errno)) : 0;
	}
	close_fd(&fd);
	json_object_set_new(own, "fd", json_integer(tree));
	return ret;
}

/* A file of /proc or /sys that this host does not have needs no protection. */
static int take_source(json_t *own, json_t *list, const struct mounts *host)
{
	char *point = text_of(own, "point"), *bind = text_of(own, "bind");
	int ret = 0;

	if (!point || point[0] != '/' || (bind && bind[0] != '/'))
		ret = fault("the source did not say what to mount where");
	else if (bind && mntns_is_kernels(point) && access(point, F_OK))
		json_object_set_new(own, "fd", json_null());
	else if (bind)
		ret = open_source(own, list, host, bind, point);
	else
		json_object_set_new(own, "fd", json_integer(-1));	/* it is made later */
	free(point);
	free(bind);
	return ret;
}

/* Make a folder in one of the namespace's own tmpfs, which is still empty. path: below the folder dir. */
static void make_place(int dir, const char *path)
{
	char *copy = xstrdup(path);

	for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdirat(dir, copy, 0755);
		*slash = '/';
	}
	mkdirat(dir, copy, 0755);
	free(copy);
}

/* So that parts of it can be taken, a tmpfs is mounted for a moment where nobody needs what is there. */
#define MOMENT	"/proc"

/*
 * Take two copies of the mount. "fd" is to be mounted. "tree" takes the files that come: it stays writable, whatever lies over
 * the place of "fd".
 */
static int take_part(json_t *own, int moment)
{
	char *root = text_of(own, "root");
	const char *part = root && root[0] == '/' && !json_object_get(own, "alone") ? root + 1 : "";
	int fd, copy = -1, tree = -1;

	if (*part)
		make_place(moment, part);
	else
		part = ".";
	fd = openat(moment, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0) {
		copy = open_tree(fd, "", MNTNS_COPY_OF_FD);
		tree = open_tree(fd, "", MNTNS_COPY_OF_FD);
	}
	json_object_set_new(own, "fd", json_integer(copy));
	json_object_set_new(own, "tree", json_integer(tree));
	close_fd(&fd);
	if (copy < 0 || tree < 0)
		fault("tmpfs, folder %s: %s", root ?: "?", strerror(errno));
	free(root);
	return copy < 0 || tree < 0 ? -1 : 0;
}

static int take_parts(json_t *list, size_t first)
{
	json_int_t fs = number_of(json_array_get(list, first), "fs");
	int moment = open(MOMENT, O_PATH | O_DIRECTORY | O_CLOEXEC), ret = 0;
	bool alone = json_object_get(json_array_get(list, first), "alone");

	for (size_t i = first; !ret && i < json_array_size(list); i++) {
		json_t *own = json_array_get(list, i);

		if (i == first || (!alone && json_object_get(own, "tmpfs") && !json_object_get(own, "alone") &&
				   (json_int_t)number_of(own, "fs") == fs))
			ret = take_part(own, moment);
	}
	close_fd(&moment);
	return ret;
}

static int make_tmpfs(json_t *list)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < json_array_size(list); i++) {
		json_t *own = json_array_get(list, i);
		const char *options = json_string_value(json_object_get(own, "tmpfs"));

		if (!options || json_integer_value(json_object_get(own, "fd")) >= 0)
			continue;
		if (mount("none", MOMENT, "tmpfs", 0, options))
			return fault("tmpfs: the process has one of its own, and one with its options (%s) can't be mounted there: %s",
				     options, strerror(errno));
		ret = take_parts(list, i);
		if (umount2(MOMENT, MNT_DETACH) && !ret)
			ret = fault("tmpfs: umount: %s", strerror(errno));
	}
	return ret;
}

/* The last of the first n mounts that point lies in; *rest: the path of point below that mount, or "". NULL: none. */
static json_t *find_above(json_t *list, size_t n, const char *point, const char **rest)
{
	json_t *found = NULL;

	for (size_t i = 0; i < n; i++) {
		json_t *own = json_array_get(list, i);
		char *above = text_of(own, "point");
		const char *below = above ? path_below(point, above) : NULL;

		if (below) {
			found = own;
			*rest = *below ? below + 1 : "";
		}
		free(above);
	}
	return found;
}

static int mount_at(json_t *list, size_t n, const char *point, unsigned long propagation)
{
	struct mount_attr attr = { .propagation = propagation };
	json_t *own = json_array_get(list, n), *above;
	int fd = number_of(own, "fd"), place, ret;
	const char *rest;

	above = find_above(list, n, point, &rest);
	if (above && json_object_get(above, "tmpfs") && *rest)
		make_place(number_of(above, "tree"), rest);
	place = mntns_open(AT_FDCWD, point);
	ret = place < 0 ? -1 : move_mount(fd, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	/* Without this a bound mount would be in the group of propagation of the mount that it is a copy of. */
	ret = ret ?: mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr));
	if (ret)
		fault("mount %s: the process has %s mounted there, and it can't be mounted on that place there: %s", point,
		      json_object_get(own, "tmpfs") ? "a tmpfs of its own" : "another file or folder",
		      mntns_error());
	close_fd(&place);
	return ret;
}

static int mount_own(json_t *list, size_t n, unsigned long propagation)
{
	char *point = text_of(json_array_get(list, n), "point");
	int ret = 0;

	if (json_is_integer(json_object_get(json_array_get(list, n), "fd")))
		ret = mount_at(list, n, point, propagation);
	free(point);
	return ret;
}

static int set_flags(int mount, json_t *json)
{
	struct mount_attr attr = { .attr_clr = MNTNS_FLAGS, .attr_set = number_of(json, "flags") & MNTNS_FLAGS };

	return mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof(attr));
}

/* A mount of this host's; if there is no such place, there is nothing to protect. */
static int change_flags(json_t *json)
{
	char *point = text_of(json, "point");
	int place = mntns_open(AT_FDCWD, point ?: ""), ret = 0;

	if (place < 0 ? errno != ENOENT && errno != ENOTDIR : set_flags(place, json))
		ret = fault("mount %s: the process has it with other flags than its host, and they can't be set there: %s", point ?: "?",
		      mntns_error());
	close_fd(&place);
	free(point);
	return ret;
}

/* Call this when all are mounted: in a read-only mount no place can be made. */
static int set_all_flags(json_t *changed, json_t *list)
{
	json_t *json;
	size_t i;

	json_array_foreach(changed, i, json)
		if (change_flags(json))
			return -1;
	json_array_foreach(list, i, json)
		if (json_is_integer(json_object_get(json, "fd")) && set_flags(number_of(json, "fd"), json))
			return fault("a mount of the process can't get its flags there: %s", strerror(errno));
	return 0;
}

/* If this host has nothing mounted at such a place either, that is no error. */
static int unmount_absent(json_t *list)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < json_array_size(list); i++) {
		char *point = path_from_json(json_array_get(list, i)), *path;
		int fd = mntns_open(AT_FDCWD, point ?: "");

		path = xasprintf("/proc/self/fd/%d", fd);
		if (fd < 0 ? errno != ENOENT && errno != ENOTDIR && errno != ELOOP :
			     umount2(path, MNT_DETACH) && errno != EINVAL)
			ret = fault("mount %s: the process has it unmounted, and it can't be unmounted there: %s", point ?: "?",
				    strerror(errno));
		close_fd(&fd);
		free(path);
		free(point);
	}
	return ret;
}

/* If it is no mount on this host, its folder or file is mounted on itself, with all that is mounted below it. */
static int mount_itself(json_t *json)
{
	char *point = text_of(json, "point");
	int place = mntns_open(AT_FDCWD, point ?: ""), mount = -1, ret = 0;
	struct statx sx;

	if (place >= 0 && statx(place, "", AT_EMPTY_PATH, 0, &sx) == 0 && !(sx.stx_attributes & STATX_ATTR_MOUNT_ROOT)) {
		mount = open_tree(place, "", MNTNS_COPY_OF_FD | AT_RECURSIVE);
		if (mount < 0 || move_mount(mount, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
			ret = fault("mount %s: the process has it with other flags than its host, and it can't be mounted on itself "
				    "there: %s", point, strerror(errno));
	}
	close_fd(&mount);
	close_fd(&place);
	free(point);
	return ret;
}

static int take_sources(json_t *list)
{
	struct mounts host;
	int ret = mounts_read(getpid(), &host);

	for (size_t i = 0; !ret && i < json_array_size(list); i++)
		ret = take_source(json_array_get(list, i), list, &host);
	mounts_free(&host);
	return ret;
}

static int make_all(json_t *differences)
{
	unsigned long propagation = json_is_true(json_object_get(differences, "slave")) ? MS_SLAVE : MS_PRIVATE;
	json_t *list = json_object_get(differences, "own"), *changed = json_object_get(differences, "changed");

	if (take_sources(list))
		return -1;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | propagation, NULL))
		return fault("a mount namespace can't be made: %s", strerror(errno));
	if (unmount_absent(json_object_get(differences, "absent")))
		return -1;
	for (size_t i = 0; i < json_array_size(changed); i++)
		if (mount_itself(json_array_get(changed, i)))
			return -1;
	if (make_tmpfs(list))
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++)
		if (mount_own(list, i, propagation))
			return -1;
	if (set_all_flags(changed, list))
		return -1;
	if (json_is_true(json_object_get(differences, "shared")) && mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL))
		return fault("mount: %s", strerror(errno));
	return 0;
}

/* ---------------------------------------------------------------- child -- */

static int send_tree(json_t *own, size_t number, void *arg)
{
	int fd = number_of(own, "tree");

	(void)number;
	return fds_send(*(int *)arg, &fd, 1);
}

/* Gives the mounts of the tmpfs to be filled, the root and the namespace to the parent; or the fault. */
static void work(json_t *differences, int sk)
{
	int last[2] = { -1, -1 }, ret;

	fault_clear();
	ret = make_all(differences);
	if (!ret) {
		last[0] = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		last[1] = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	}
	if (last[0] >= 0 && last[1] >= 0 && !mntns_each_with_files(differences, send_tree, &sk) && !fds_send(sk, last, 2))
		_exit(0);
	fault("a mount namespace can't be made: %s", strerror(errno));
	(void)!send(sk, fault_text(), strlen(fault_text()) + 1, MSG_NOSIGNAL);
	_exit(1);
}

static int receive(int sk, int *fd, size_t n)
{
	char why[1024] = "";

	if (recv(sk, why, sizeof(why) - 1, MSG_PEEK) <= 0)
		return fault("a child of godwit was killed");
	return why[1] || fds_receive(sk, fd, n, 0) ? fault("%s", why) : 0;
}

struct hear {
	int sk;
	struct mntns_made *made;
};

static int receive_tree(json_t *own, size_t number, void *arg)
{
	const struct hear *hear = arg;
	int fd;

	(void)own;
	(void)number;
	if (receive(hear->sk, &fd, 1))
		return -1;
	GROW(hear->made->tree, hear->made->trees);
	hear->made->tree[hear->made->trees++] = fd;
	return 0;
}

int mntns_make(json_t *differences, struct mntns_made *made)
{
	int sk[2], last[2], ret, status;
	pid_t pid;

	*made = (struct mntns_made)MNTNS_MADE_INIT;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		return fault("socketpair: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		work(differences, sk[1]);
	close(sk[1]);
	ret = pid < 0 ? fault("fork: %s", strerror(errno)) :
	      mntns_each_with_files(differences, receive_tree, &(struct hear){ sk[0], made }) ?: receive(sk[0], last, 2);
	close(sk[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (ret) {
		mntns_close(made);
	} else {
		made->root = last[0];
		made->ns = last[1];
	}
	return ret;
}

void mntns_close(struct mntns_made *made)
{
	close_fd(&made->ns);
	close_fd(&made->root);
	for (size_t i = 0; i < made->trees; i++)
		close_fd(&made->tree[i]);
	free(made->tree);
	*made = (struct mntns_made)MNTNS_MADE_INIT;
}
