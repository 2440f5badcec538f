// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The files in a mount namespace's own tmpfs: saved at the source, put into the new namespace at the destination.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "godwit.h"
#include "mntns.h"
#include "text.h"

int mntns_open(int root, const char *point)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | (root == AT_FDCWD ? 0 : RESOLVE_IN_ROOT),
	};

	return syscall(SYS_openat2, root, point, &how, sizeof(how));
}

const char *mntns_error(void)
{
	return errno == ELOOP ? "it has a symbolic link in it" : strerror(errno);
}

int mntns_each_with_files(json_t *differences, int (*each)(json_t *own, size_t number, void *arg), void *arg)
{
	size_t i, number = 0;
	json_t *own;
	int ret = 0;

	json_array_foreach(json_object_get(differences, "own"), i, own)
		if (!ret && json_is_true(json_object_get(own, "files")))
			ret = each(own, number++, arg);
	return ret;
}

/* ------------------------------------------------------------------ tar -- */

static int run_tar(const char *const argv[], bool save)
{
	char *said = NULL;
	int ret;

	ret = run(argv, NULL, &said);
	/*
	 * When tar saves, status 1 means that a file changed meanwhile, which frozen tasks prevent. tar also says that it leaves
	 * out a socket, which is no fault. When tar extracts, it only warns of an attribute that it can't set. So all that tar says
	 * then is a fault.
	 */
	ret = ret || (!save && said && *said) ? fault("tar: %s", said && *said ? text_last_line(said) : "it is not installed") : 0;
	free(said);
	return ret;
}

/*
 * Fill or save one tmpfs with tar. tree, a copy of its mount, shows the tmpfs without the mounts that lie in it. Folders that
 * are there already, on which others are mounted, are kept. tar ends with us.
 */
static int tar(int tree, const char *images, size_t number, bool save)
{
	char *folder = xasprintf("--directory=/proc/%d/fd/%d", getpid(), tree);
	char *file = xasprintf("--file=%s/mntns-%zu.tar", images, number);
	const char *const argv[] = {
		"setpriv", "--pdeathsig", "KILL", "tar", save ? "--create" : "--extract", file, folder, "--force-local",
		"--numeric-owner", "--warning=no-timestamp", "--xattrs", "--xattrs-include=*", "--acls",
		save ? "--sparse" : "--same-owner", save ? "--format=posix" : "--preserve-permissions", save ? "." : NULL, NULL,
	};
	int ret = run_tar(argv, save);

	free(folder);
	free(file);
	return ret;
}

/* ----------------------------------------------------------------- save -- */

static uint64_t counted;

static int count(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)ftw;
	/* A file that is removed in this moment has no link. */
	counted += (uint64_t)st->st_blocks * 512 / (type == FTW_F && st->st_nlink ? st->st_nlink : 1);
	return 0;
}

static int count_one(json_t *own, size_t number, void *arg)
{
	char *point = path_from_json(json_object_get(own, "point"));
	char *path = xasprintf("/proc/%d/root%s", *(pid_t *)arg, point ?: "");

	(void)number;
	nftw(path, count, 16, FTW_PHYS | FTW_MOUNT);
	free(path);
	free(point);
	return 0;
}

uint64_t mntns_bytes(pid_t pid, json_t *differences)
{
	counted = 0;
	mntns_each_with_files(differences, count_one, &pid);
	return counted;
}

struct save {
	int here, ns;
	const char *images;
};

/* In a child, whose namespace may change. */
static int save_one(json_t *own, size_t number, void *arg)
{
	const struct save *save = arg;
	char *point = path_from_json(json_object_get(own, "point"));
	int fd = -1, tree = -1, ret;
	struct stat st;

	if (setns(save->ns, CLONE_NEWNS) == 0) {
		fd = mntns_open(AT_FDCWD, point ?: "");
		tree = fd < 0 ? -1 : open_tree(fd, "", MNTNS_COPY_OF_FD);
	}
	if (tree < 0 || setns(save->here, CLONE_NEWNS) || fstat(tree, &st))
		ret = fault("tmpfs %s: %s", point ?: "?", strerror(errno));
	else if (st.st_dev != (dev_t)json_integer_value(json_object_get(own, "dev")))
		ret = fault("tmpfs %s: another file system is mounted there: try again", point);
	else
		ret = tar(tree, save->images, number, true);
	close_fd(&tree);
	close_fd(&fd);
	free(point);
	return ret;
}

int mntns_save(pid_t pid, json_t *differences, const char *images)
{
	char *path = xasprintf("/proc/%d/ns/mnt", pid);
	struct save save = { open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC), open(path, O_RDONLY | O_CLOEXEC), images };
	int ret;

	if (save.here < 0 || save.ns < 0)
		ret = fault("process %d: its mount namespace can't be had: %s", pid, strerror(errno));
	else
		ret = mntns_each_with_files(differences, save_one, &save);
	close_fd(&save.here);
	close_fd(&save.ns);
	free(path);
	return ret;
}

/* ----------------------------------------------------------------- fill -- */

struct fill {
	const struct mntns_made *made;
	const char *images;
};

static int fill_one(json_t *own, size_t number, void *arg)
{
	const struct fill *fill = arg;

	(void)own;
	return number < fill->made->trees ? tar(fill->made->tree[number], fill->images, number, false) :
					    fault("the source did not say how many tmpfs there are");
}

/* If tar has removed a folder, what was mounted on it is gone, too: is each mount where it was? */
static int look_at_own(int root, json_t *list)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < json_array_size(list); i++) {
		char *point = path_from_json(json_object_get(json_array_get(list, i), "point"));
		int fd = mntns_open(root, point ?: "");
		struct statx sx = { 0 };

		if (!mntns_is_kernels(point ?: "") &&
		    (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &sx) ||
		     !(sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) || !sx.stx_nlink))
			ret = fault("mount %s: it was lost as the files of the tmpfs came", point ?: "?");
		close_fd(&fd);
		free(point);
	}
	return ret;
}

int mntns_fill(const struct mntns_made *made, json_t *differences, const char *images)
{
	return mntns_each_with_files(differences, fill_one, &(struct fill){ made, images }) ?:
	       look_at_own(made->root, json_object_get(differences, "own"));
}
