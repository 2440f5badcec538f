// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What the tree watches by inotify and fanotify. CRIU sets each watch again by a path, and looks for the path when all tasks
 * are frozen. So we look for the path before, as CRIU does it, and the destination must have a file there.
 */
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "plan.h"
#include "text.h"

struct watch {
	const struct proc_fd *fd;
	dev_t dev;
	ino_t ino;
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	};
};

/* --------------------------------------------------------------- mounts -- */

/* Open the root of this mount, if no other mount covers it. */
static int open_mount(const struct mount *mount)
{
	int fd = open(mount->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statx sx;

	if (fd >= 0 && (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx) || sx.stx_mnt_id != (uint64_t)mount->id))
		close_fd(&fd);
	return fd;
}

/* ---------------------------------------------------------------- paths -- */

/* The name of a file by its handle, to be freed; or NULL. *opened: the file system knows the handle. */
static char *path_by_handle(const struct mounts *mounts, struct watch *w, bool *opened)
{
	char *path = NULL;

	for (size_t i = 0; !path && i < mounts->n; i++) {
		int root = mounts->mount[i].dev == w->dev ? open_mount(&mounts->mount[i]) : -1;
		int fd = root < 0 ? -1 : open_by_handle_at(root, &w->handle, O_PATH | O_CLOEXEC);
		char *link = xasprintf("/proc/self/fd/%d", fd), text[PATH_MAX] = "";
		struct stat st;

		if (fd >= 0) {
			*opened = true;
			/* The file may have lost the name, or another file may have it now. */
			if (readlink(link, text, sizeof(text) - 1) > 0 && !stat(text, &st) && st.st_ino == w->ino)
				path = xstrdup(text);
		}
		free(link);
		close_fd(&fd);
		close_fd(&root);
	}
	return path;
}

/* Where CRIU looks for a file whose file system, such as an overlay, does not know the handle. */
static char *path_by_search(const struct watch *w)
{
	char *const places[] = {
		"/etc", "/var/spool", "/var/log", "/usr/share/dbus-1/services", "/usr/share/dbus-1/system-services",
		"/var/lib/polkit-1/localauthority", "/usr/share/polkit-1/actions", "/lib/udev", NULL,
	};
	FTS *search = fts_open(places, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	char *path = NULL;
	struct stat st;
	FTSENT *e;

	while (!path && search && (e = fts_read(search)))
		if (e->fts_info != FTS_DP && e->fts_info != FTS_NS && e->fts_statp->st_ino == w->ino &&
		    e->fts_statp->st_dev == w->dev)
			path = xstrdup(e->fts_path);
	if (search)
		fts_close(search);
	if (!path && !stat("/", &st) && st.st_ino == w->ino && st.st_dev == w->dev)
		path = xstrdup("/");
	return path;
}

/* -------------------------------------------------------------- watches -- */

static bool parse(const char *line, struct watch *w)
{
	const char *inode = strstr(line, " ino:"), *handle = strstr(line, " fhandle-bytes:");
	unsigned int dev, bytes, type;
	uint64_t ino;
	int at = 0;

	if (!inode || sscanf(inode, " ino:%" SCNx64 " sdev:%x", &ino, &dev) != 2)
		return false;
	w->ino = ino;
	w->dev = makedev(dev >> 20, dev & 0xfffff);	/* the kernel's own form of a device number */
	if (!handle || sscanf(handle, " fhandle-bytes:%x fhandle-type:%x f_handle:%n", &bytes, &type, &at) != 2 ||
	    !at || bytes > MAX_HANDLE_SZ)
		return false;
	w->handle.handle_bytes = bytes;
	w->handle.handle_type = type;
	for (unsigned int i = 0; i < bytes; i++)
		if (sscanf(handle + at + 2 * i, "%2hhx", &w->handle.f_handle[i]) != 1)
			return false;
	return true;
}

static void add_watch(struct plan *plan, const struct proc_fd *fd, const char *path, bool mount)
{
	json_t *name = path_json(path);
	struct stat st;

	for (size_t i = 0; i < json_array_size(plan->watches); i++) {
		json_t *known = json_array_get(plan->watches, i);

		if (json_equal(json_object_get(known, "path"), name) &&
		    json_is_true(json_object_get(known, "mount")) == mount)
			goto out;
	}
	if (!stat(path, &st))
		json_array_append_new(plan->watches, json_pack("{s:i, s:i, s:O, s:i, s:b}", "pid", fd->pid, "fd", fd->fd,
				      "path", name, "mode", (int)(st.st_mode & S_IFMT), "mount", mount));
out:
	json_decref(name);
}

static void look_at_inode(struct plan *plan, const struct mounts *mounts, struct watch *w, bool whole)
{
	bool opened = false;
	char *path = whole ? path_by_handle(mounts, w, &opened) : NULL;
	const struct mount *mount = NULL;

	if (whole && !path && !opened)
		path = path_by_search(w);
	for (size_t i = 0; !mount && i < mounts->n; i++)
		if (mounts->mount[i].dev == w->dev)
			mount = &mounts->mount[i];
	if (path)
		add_watch(plan, w->fd, path, false);
	else if (opened)
		plan_problem(plan, "process %d, descriptor %d: it watches a file on %s that has lost its name: end the watch "
			     "before", w->fd->pid, w->fd->fd, mount->point);
	else
		plan_problem(plan, "process %d, descriptor %d: it watches inode %" PRIu64 " of the file system on %s (%s), for "
			     "which CRIU finds no path: end the watch before", w->fd->pid, w->fd->fd, (uint64_t)w->ino,
			     mount ? mount->point : "?", mount ? mount->type : "not mounted here");
	free(path);
}

static void look_at_mount(struct plan *plan, const struct mounts *mounts, const struct proc_fd *fd, int id)
{
	for (size_t i = 0; i < mounts->n; i++)
		if (mounts->mount[i].id == id) {
			add_watch(plan, fd, mounts->mount[i].point, true);
			return;
		}
	plan_problem(plan, "process %d, descriptor %d: it watches a mount that is not this host's: end the watch before",
		     fd->pid, fd->fd);
}

struct look {
	struct plan *plan;
	struct mounts mounts;
};

static void look_at_line(struct look *look, const struct proc_fd *fd, const char *line)
{
	struct watch w = { .fd = fd };
	int id;

	if (!strncmp(line, "fanotify flags:", 15))
		return;
	/* CRIU would look for the file in the process's mount namespace. We look in the host's. */
	if (look->plan->mntns.own && (!strncmp(line, "inotify wd:", 11) || !strncmp(line, "fanotify ", 9)))
		plan_problem(look->plan, "process %d, descriptor %d: it watches a file from within a mount namespace of its own: "
			     "end the watch before", fd->pid, fd->fd);
	else if (sscanf(line, "fanotify mnt_id:%x", &id) == 1)
		look_at_mount(look->plan, &look->mounts, fd, id);
	else if (!strncmp(line, "fanotify sdev:", 14))
		plan_problem(look->plan, "process %d, descriptor %d: it watches a whole file system by fanotify, which CRIU "
			     "does not dump: end the watch before", fd->pid, fd->fd);
	else if (!strncmp(line, "inotify wd:", 11) || !strncmp(line, "fanotify ino:", 13))
		look_at_inode(look->plan, &look->mounts, &w, parse(line, &w));
}

static int look_at_fd(const struct proc_fd *fd, void *arg)
{
	char *text, *line, *save;

	if (strcmp(fd->link, "anon_inode:inotify") && strcmp(fd->link, "anon_inode:[fanotify]"))
		return 0;
	text = proc_fdinfo(fd);
	for (line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
		look_at_line(arg, fd, line);
	free(text);
	return 0;
}

int plan_watches(struct plan *plan)
{
	struct look look = { .plan = plan };
	int ret;

	if (mounts_read(getpid(), &look.mounts))
		return -1;
	ret = proc_each_fd(&plan->tree, look_at_fd, &look);
	mounts_free(&look.mounts);
	return ret;
}
