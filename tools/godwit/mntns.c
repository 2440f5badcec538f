// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What differs in a mount namespace from this host's?
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "godwit.h"
#include "mntns.h"
#include "proc.h"
#include "text.h"

/* ---------------------------------------------------------------- flags -- */

/* For flags_of() alone: no flag of MOUNT_ATTR_... has this bit. */
#define RELATIME	(1u << 31)

/* The flags of a mount with these options. *unknown, if given: the first option that does not go along, or NULL; to be freed. */
static unsigned int flags_of(const char *options, char **unknown)
{
	static const struct {
		const char *name;
		unsigned int flag;
	} known[] = {
		{ "rw", 0 }, { "ro", MOUNT_ATTR_RDONLY }, { "nosuid", MOUNT_ATTR_NOSUID }, { "nodev", MOUNT_ATTR_NODEV },
		{ "noexec", MOUNT_ATTR_NOEXEC }, { "noatime", MOUNT_ATTR_NOATIME }, { "nodiratime", MOUNT_ATTR_NODIRATIME },
		{ "relatime", RELATIME }, { "nosymfollow", MOUNT_ATTR_NOSYMFOLLOW },
	};
	char *copy = xstrdup(options), *save;
	unsigned int flags = 0;

	if (unknown)
		*unknown = NULL;
	for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		size_t i = 0;

		while (i < sizeof(known) / sizeof(known[0]) && strcmp(name, known[i].name))
			i++;
		if (i < sizeof(known) / sizeof(known[0]))
			flags |= known[i].flag;
		else if (unknown && !*unknown)
			*unknown = xstrdup(name);
	}
	free(copy);
	/* mountinfo names every kind of access time but strictatime. MOUNT_ATTR_RELATIME is 0, so RELATIME stands for it. */
	if (!(flags & (MOUNT_ATTR_NOATIME | RELATIME)))
		flags |= MOUNT_ATTR_STRICTATIME;
	return flags & ~RELATIME;
}

/* Options of a tmpfs as mount() takes them. */
static char *tmpfs_options(const char *super)
{
	const char *rest = strchr(super, ',');	/* the first option is "rw" or "ro" */

	return xstrdup(rest ? rest + 1 : "");
}

/* ---------------------------------------------------------- comparing -- */

struct compare {
	pid_t pid;
	struct mntns *ns;
	json_t *problems;
	json_t *own, *changed, *absent;
};

/* The file at this path in the namespace. */
static int stat_in(pid_t pid, const char *point, struct stat *st)
{
	char *path = xasprintf("/proc/%d/root%s", pid, point);
	int ret = stat(path, st);

	free(path);
	return ret;
}

/* Is this mount of the host's the twin of one of the first n? */
static bool is_twin(const struct mntns *ns, size_t n, size_t j)
{
	for (size_t i = 0; i < n; i++)
		if (ns->twin[i] == (int)j)
			return true;
	return false;
}

/*
 * The host's mount that this one is a copy of: it has the same place, on the mount that the parent is a copy of. (A second one
 * may be mounted over it.)
 */
static int find_twin(const struct mntns *ns, size_t i)
{
	const struct mount *its = &ns->its.mount[i];
	const struct mount *parent = i ? mounts_find(&ns->its, its->parent) : NULL;
	int above = parent ? ns->twin[parent - ns->its.mount] : -1;

	for (size_t j = 0; j < ns->host.n; j++) {
		const struct mount *mount = &ns->host.mount[j];

		if (mount->dev == its->dev && !strcmp(mount->point, its->point) && !strcmp(mount->root, its->root) &&
		    (!parent || (above >= 0 && ns->host.mount[above].id == mount->parent)) && !is_twin(ns, i, j))
			return j;
	}
	return -1;
}

/* A path on this host that leads to what is mounted there, the same path as there if possible; NULL: none does. Free it. */
static char *source_of(const struct compare *c, const struct mount *its, struct stat *st)
{
	const struct mounts *host = &c->ns->host;
	struct stat same;
	char *source = NULL;

	if (stat_in(c->pid, its->point, st))
		return NULL;
	if (stat(its->point, &same) == 0 && same_file(&same, st))
		return xstrdup(its->point);
	for (size_t j = 0; !source && j < host->n; j++) {
		const struct mount *mount = &host->mount[j];
		const char *rest = mount->dev == its->dev && !mount->hidden ? path_below(its->root, mount->root) : NULL;
		struct stat there;

		if (!rest)
			continue;
		source = xasprintf("%s%s", !strcmp(mount->point, "/") && *rest ? "" : mount->point, rest);
		if (stat(source, &there) || !same_file(&there, st) ||
		    mount_of(source) != mount->id) {
			free(source);
			source = NULL;
		}
	}
	return source;
}

static bool is_host_file_system(const struct mounts *host, dev_t dev)
{
	for (size_t j = 0; j < host->n; j++)
		if (host->mount[j].dev == dev)
			return true;
	return false;
}

/* A tmpfs may be mounted in several places, each of which shows a part of it. Files that two of them show go along once. */
static bool is_shown_by_another(const struct mounts *its, const struct mount *mount)
{
	for (size_t i = 0; i < its->n; i++) {
		const struct mount *other = &its->mount[i];

		if (other != mount && other->dev == mount->dev && !other->hidden && path_below(mount->root, other->root) &&
		    (strcmp(mount->root, other->root) || other < mount))
			return true;
	}
	return false;
}

static void add_tmpfs(struct compare *c, const struct mount *its, const struct stat *st)
{
	char *options = tmpfs_options(its->super);
	bool shown = is_shown_by_another(&c->ns->its, its);

	json_array_append_new(c->own, json_pack("{s:o, s:s, s:I, s:I, s:o, s:b, s:i}", "point", path_json(its->point), "tmpfs",
			      options, "fs", (json_int_t)its->dev, "dev", (json_int_t)st->st_dev, "root", path_json(its->root),
			      "files", !shown, "flags", (int)flags_of(its->options, NULL)));
	free(options);
}

/* Is it a folder that systemd made for PrivateTmp=yes? Only its unit sees the folder, which is removed when the unit ends. */
static bool is_private_folder(const struct mount *its, const struct stat *st)
{
	const char *name = strstr(its->root, "/systemd-private-"), *rest = name ? strchr(name + 1, '/') : NULL;

	return S_ISDIR(st->st_mode) && rest && !strcmp(rest, "/tmp");
}

/* Its files go along into a tmpfs. */
static void add_private_folder(struct compare *c, const struct mount *its, const struct stat *st)
{
	json_array_append_new(c->own, json_pack("{s:o, s:s, s:I, s:I, s:o, s:b, s:b, s:i}", "point", path_json(its->point),
			      "tmpfs", "", "fs", (json_int_t)its->dev, "dev", (json_int_t)st->st_dev, "root",
			      path_json(its->root), "alone", 1, "files", 1, "flags", (int)flags_of(its->options, NULL)));
}

static void add_bind(struct compare *c, const struct mount *its, const char *source, const struct stat *st)
{
	json_t *own = json_pack("{s:o, s:o, s:b, s:i}", "point", path_json(its->point), "bind", path_json(source), "folder",
				S_ISDIR(st->st_mode), "flags", (int)flags_of(its->options, NULL));

	/* A file or folder that is mounted on itself is the destination's own, like anything that is not mounted. */
	if (strcmp(source, its->point))
		json_object_set_new(own, "owner", json_pack("[i, i, i]", (int)st->st_uid, (int)st->st_gid,
							    (int)(st->st_mode & 07777)));
	json_array_append_new(c->own, own);
}

/* Is the same mount hidden on the host, too? That is so of automount points below a folder that is mounted as a whole. */
static bool is_hidden_on_host(const struct mounts *host, const struct mount *its)
{
	for (size_t j = 0; j < host->n; j++)
		if (host->mount[j].hidden && host->mount[j].dev == its->dev && !strcmp(host->mount[j].root, its->root) &&
		    !strcmp(host->mount[j].point, its->point))
			return true;
	return false;
}

/* Is point in a tmpfs of the namespace's own? There tar may replace a file, and what is mounted on the file would be lost. */
static bool is_in_tmpfs(const struct compare *c, const char *point)
{
	bool inside = false;
	json_t *own;
	size_t i;

	json_array_foreach(c->own, i, own) {
		char *above = path_from_json(json_object_get(own, "point"));

		if (above && path_below(point, above))
			inside = json_object_get(own, "tmpfs");
		free(above);
	}
	return inside;
}

/* systemd puts mounts into the namespace of a unit by this mount. The destination's systemd does not know the process. */
static bool is_systemds(const struct mount *its)
{
	return !strcmp(its->point, "/run/systemd/incoming") && strstr(its->root, "/systemd/propagate/");
}

/* Mounts of users who are logged in come and go. */
static bool is_sessions(const struct mount *mount)
{
	const char *rest = path_below(mount->point, "/run/user");

	return rest && *rest;
}

static void add_own(struct compare *c, const struct mount *its)
{
	struct stat st = { 0 };
	char *source = NULL;

	if (is_systemds(its) || is_sessions(its) || (its->hidden && is_hidden_on_host(&c->ns->host, its)))
		return;
	if (its->hidden)
		problem(c->problems, "process %d: in its mount namespace another mount lies over its own mount %s: unmount one "
			"of the two", c->pid, its->point);
	else if ((source = source_of(c, its, &st)) && !S_ISDIR(st.st_mode) && is_in_tmpfs(c, its->point))
		problem(c->problems, "process %d: in its mount namespace a file is mounted on %s, which is in a tmpfs of its own; "
			"there only folders go along: unmount it", c->pid, its->point);
	else if (source && is_private_folder(its, &st))
		add_private_folder(c, its, &st);
	else if (source)
		add_bind(c, its, source, &st);
	else if (is_host_file_system(&c->ns->host, its->dev))
		problem(c->problems, "process %d: in its mount namespace %s of a file system of this host is mounted on %s, and "
			"no path of this host leads to it: unmount it", c->pid, its->root, its->point);
	else if (strcmp(its->type, "tmpfs"))
		problem(c->problems, "process %d: its mount namespace has a file system of its own (%s) mounted on %s, and only "
			"tmpfs goes along: unmount it", c->pid, its->type, its->point);
	else if (!strncmp(its->super, "ro", 2) && (its->super[2] == ',' || !its->super[2]))
		problem(c->problems, "process %d: its mount namespace has a tmpfs of its own mounted on %s, which is read-only: "
			"make only the mount read-only: mount -o remount,bind,ro", c->pid, its->point);
	else if (!S_ISDIR(st.st_mode))
		problem(c->problems, "process %d: its mount namespace has a file of a tmpfs of its own mounted on %s, and only "
			"folders go along: unmount it", c->pid, its->point);
	else
		add_tmpfs(c, its, &st);
	free(source);
}

static bool is_group_of_host(const struct mounts *host, int shared)
{
	for (size_t j = 0; j < host->n; j++)
		if (host->mount[j].shared == shared)
			return true;
	return false;
}

static void compare_mount(struct compare *c, size_t i)
{
	const struct mount *its = &c->ns->its.mount[i], *twin;
	char *unknown;
	unsigned int flags = flags_of(its->options, &unknown);

	c->ns->twin[i] = find_twin(c->ns, i);
	if (its->shared && is_group_of_host(&c->ns->host, its->shared))
		problem(c->problems, "process %d: its mount namespace and this host's see what the other one mounts below %s: "
			"mount --make-private %s there", c->pid, its->point, its->point);
	twin = c->ns->twin[i] < 0 ? NULL : &c->ns->host.mount[c->ns->twin[i]];
	if (unknown && (!twin || strcmp(its->options, twin->options)))
		problem(c->problems, "process %d: in its mount namespace %s is mounted with the option %s, which does not go along: "
			"unmount it", c->pid, its->point, unknown);
	free(unknown);
	if (!twin)
		add_own(c, its);
	else if (!its->hidden && flags != flags_of(twin->options, NULL))
		json_array_append_new(c->changed, json_pack("{s:o, s:i}", "point", path_json(its->point), "flags", (int)flags));
}

/* Mounts of the host that came later, or were unmounted in the namespace: those below others first. */
static void find_absent(struct compare *c)
{
	const struct mntns *ns = c->ns;

	for (size_t j = ns->host.n; j-- > 0;)
		if (!ns->host.mount[j].hidden && !is_twin(ns, ns->its.n, j))
			json_array_append_new(c->absent, path_json(ns->host.mount[j].point));
}

bool mntns_is_kernels(const char *path)
{
	return path_below(path, "/proc") || path_below(path, "/sys");
}

bool mntns_is_checked(const struct mount *mount)
{
	return !mount->hidden && strcmp(mount->type, "autofs") && !mntns_is_kernels(mount->point) && !is_sessions(mount);
}

bool mntns_find_bind(json_t *list, const char *bind, const char *point)
{
	json_t *name = path_json(bind), *at = path_json(point ?: ""), *own;
	bool found = false;
	size_t i;

	json_array_foreach(list, i, own)
		found |= json_equal(json_object_get(own, "bind"), name) &&
			 (!point || json_equal(json_object_get(own, "point"), at));
	json_decref(name);
	json_decref(at);
	return found;
}

/* Mark the folders that show all that the host has mounted below them. */
static void find_whole(struct compare *c)
{
	json_t *own;
	size_t i;

	json_array_foreach(c->own, i, own) {
		char *bind = path_from_json(json_object_get(own, "bind")), *point = path_from_json(json_object_get(own, "point"));
		bool whole = bind && json_is_true(json_object_get(own, "folder"));

		for (size_t j = 0; whole && j < c->ns->host.n; j++) {
			const struct mount *mount = &c->ns->host.mount[j];
			const char *rest = path_below(mount->point, bind);

			char *at = xasprintf("%s%s", point, rest ?: "");

			whole = !rest || !*rest || !mntns_is_checked(mount) || mntns_find_bind(c->own, mount->point, at);
			free(at);
		}
		if (whole)
			json_object_set_new(own, "whole", json_true());
		free(bind);
		free(point);
	}
}

/* A folder that becomes a tmpfs must be mounted in one place only: in another place it would stay what it was. */
static void look_at_private_folders(struct compare *c)
{
	json_t *own;
	size_t i;

	json_array_foreach(c->own, i, own) {
		char *point = path_from_json(json_object_get(own, "point")), *root = path_from_json(json_object_get(own, "root"));

		for (size_t j = 0; json_object_get(own, "alone") && j < c->ns->its.n; j++) {
			const struct mount *its = &c->ns->its.mount[j];

			if (c->ns->twin[j] < 0 && its->dev == (dev_t)json_integer_value(json_object_get(own, "fs")) &&
			    path_below(its->root, root) && strcmp(its->point, point))
				problem(c->problems, "process %d: in its mount namespace what is mounted on %s is mounted on %s, too: "
					"unmount one of the two", c->pid, point, its->point);
		}
		free(point);
		free(root);
	}
}

int mntns_read(pid_t pid, struct mntns *ns, json_t *problems)
{
	struct compare c = {
		.pid = pid, .ns = ns, .problems = json_array(),
		.own = json_array(), .changed = json_array(), .absent = json_array(),
	};
	const struct mount *root;
	int ret;

	*ns = (struct mntns){ .own = true, .id = proc_ns(pid, "mnt") };
	ret = mounts_read(getpid(), &ns->host) ?: mounts_read(pid, &ns->its);
	if (!ret) {
		ns->twin = xcalloc(ns->its.n, sizeof(*ns->twin));
		for (size_t i = 0; i < ns->its.n; i++)
			compare_mount(&c, i);
		find_absent(&c);
		find_whole(&c);
		look_at_private_folders(&c);
		root = &ns->its.mount[0];
		if (ns->twin[0] < 0 || strcmp(root->point, "/") || root->hidden) {
			json_array_clear(c.problems);
			problem(c.problems, "process %d: the root of its mount namespace is another than this host's, which can't "
				"be moved: start the program in this host's", pid);
		}
		ns->differences = json_pack("{s:b, s:b, s:O, s:O, s:O}", "slave", root->master != 0, "shared",
					    root->shared != 0, "absent", c.absent, "own", c.own, "changed", c.changed);
	}
	json_array_extend(problems, c.problems);
	json_decref(c.problems);
	json_decref(c.own);
	json_decref(c.changed);
	json_decref(c.absent);
	return ret;
}

void mntns_free(struct mntns *ns)
{
	mounts_free(&ns->host);
	mounts_free(&ns->its);
	free(ns->twin);
	json_decref(ns->differences);
	*ns = (struct mntns){ 0 };
}

/* --------------------------------------------------------------- places -- */

/*
 * The place of a file on one of the namespace's own mounts. PLACE_HERE with *path: the host's file is mounted there.
 * PLACE_ALONG: a tmpfs is.
 */
static enum place place_of_own(const struct mntns *ns, const struct mount *its, const char *name, char **path)
{
	json_t *own;
	size_t i;

	json_array_foreach(json_object_get(ns->differences, "own"), i, own) {
		char *point = path_from_json(json_object_get(own, "point"));
		char *bind = path_from_json(json_object_get(own, "bind"));
		const char *rest = point && !strcmp(point, its->point) ? path_below(name, point) : NULL;

		if (rest && bind)
			*path = xasprintf("%s%s", strcmp(bind, "/") || !*rest ? bind : "", rest);
		free(bind);
		free(point);
		if (rest)
			return *path ? PLACE_HERE : PLACE_ALONG;
	}
	return PLACE_UNKNOWN;
}

enum place mntns_place(const struct mntns *ns, int mount, const char *name, char **path)
{
	const struct mount *its = mounts_find(&ns->its, mount);

	*path = NULL;
	if (its && ns->twin[its - ns->its.mount] < 0)
		return place_of_own(ns, its, name, path);
	if (!its && ns->own && !mounts_find(&ns->host, mount))
		return PLACE_UNKNOWN;
	*path = xstrdup(name);
	return !its && ns->own ? PLACE_OUTSIDE : PLACE_HERE;
}

bool mntns_binds(const struct mntns *ns, const char *file)
{
	return mntns_find_bind(json_object_get(ns->differences, "own"), file, NULL);
}
