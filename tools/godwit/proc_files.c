// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The files that a process tree has open or mapped, and whether they change.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "content.h"
#include "proc.h"

/* ---------------------------------------------------------------- paths -- */

int proc_fd_mount(const struct proc_fd *fd)
{
	char *text = proc_fdinfo(fd), *line = text ? strstr(text, "mnt_id:") : NULL;
	int mount = line ? atoi(line + strlen("mnt_id:")) : -1;

	free(text);
	return mount;
}

int proc_map_mount(const struct proc_map *map)
{
	char path[MAP_PATH_LEN];

	proc_map_path(map, path);
	return mount_of(path);
}

char *proc_fd_path(const struct proc_fd *fd, const struct mntns *ns)
{
	char *path = NULL;

	if (ns->own)
		mntns_place(ns, proc_fd_mount(fd), fd->link, &path);
	return ns->own ? path : xstrdup(fd->link);
}

/* ---------------------------------------------------------------- files -- */

/* Could it be written to? A shared mapping that is read-only now may have been writable, and may become so again (mprotect). */
static bool map_writable(const struct proc_map *map)
{
	char path[MAP_PATH_LEN];
	struct stat st;

	proc_map_path(map, path);
	return lstat(path, &st) || st.st_mode & S_IWUSR;
}

static void file_look(struct proc_file *file, const struct stat *st)
{
	file->size = st->st_size;
	file->mode = st->st_mode;
	file->mtime = content_time(&st->st_mtim);
	file->ctime = content_time(&st->st_ctim);
}

static void note_place(struct proc_files *files, size_t i)
{
	/* A path need not be UTF-8. */
	json_object_set_new_nocheck(files->places, files->file[i].path, json_integer(i));
}

struct proc_file *proc_files_find(const struct proc_files *files, const char *path)
{
	json_t *place = json_object_get(files->places, path);

	return place ? &files->file[json_integer_value(place)] : NULL;
}

void proc_files_keep(struct proc_files *files, size_t kept)
{
	if (kept == files->n)
		return;		/* no file has another place */
	files->n = kept;
	json_object_clear(files->places);
	for (size_t i = 0; i < kept; i++)
		note_place(files, i);
}

static void files_add(struct proc_files *files, const char *path, const struct stat *st,
		      bool mapped, bool writable)
{
	size_t len = strlen(path);
	struct proc_file *known;

	if (path[0] != '/' || !S_ISREG(st->st_mode))
		return;
	/* CRIU carries unlinked files along. Such files have no links, whatever they are called. */
	if (st->st_nlink == 0 || (len > 10 && !strcmp(path + len - 10, " (deleted)")))
		return;
	known = proc_files_find(files, path);
	if (known) {
		known->mapped |= mapped;
		known->writable |= writable;
		return;
	}
	GROW(files->file, files->n);
	files->file[files->n] = (struct proc_file){
		.path = xstrdup(path), .dev = st->st_dev, .ino = st->st_ino, .mapped = mapped, .writable = writable,
	};
	note_place(files, files->n);
	file_look(&files->file[files->n++], st);
}

struct files_look {
	struct proc_files *files;
	const struct mntns *ns;
};

static int files_add_fd(const struct proc_fd *fd, void *arg)
{
	const struct files_look *look = arg;
	char *path;

	/* CRIU carries memfds and shared memory along. */
	if (!strncmp(fd->link, "/memfd:", 7) || !strncmp(fd->link, "/SYSV", 5) || !S_ISREG(fd->st.st_mode))
		return 0;
	path = proc_fd_path(fd, look->ns);
	if (path)
		files_add(look->files, path, &fd->st, false, fd->writable);
	free(path);
	return 0;
}

struct map_walk {
	const struct files_look *look;
	struct proc_map last;	/* many mappings of one file follow each other */
	struct stat st;
	char *path;		/* the path of its regular file, which st is of; or NULL */
};

static void see_file(struct map_walk *walk, const struct proc_map *map)
{
	const struct mntns *ns = walk->look->ns;
	char *path = NULL;

	if (ns->own)
		mntns_place(ns, proc_map_mount(map), map->path, &path);
	else
		path = xstrdup(map->path);
	free(walk->path);
	walk->last = *map;
	walk->path = path && !stat(path, &walk->st) && walk->st.st_ino == map->inode && S_ISREG(walk->st.st_mode) ? path : NULL;
	if (!walk->path)
		free(path);
}

static int files_add_map(const struct proc_map *map, void *arg)
{
	struct map_walk *walk = arg;

	if (!map->path || map->path[0] != '/')
		return 0;
	if (!proc_map_same(map, &walk->last))
		see_file(walk, map);
	if (walk->path)
		files_add(walk->look->files, walk->path, &walk->st, true, map->shared && map_writable(map));
	return 0;
}

static int64_t today(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return content_time(&now);
}

int proc_files(const struct tree *tree, const struct mntns *ns, struct proc_files *files)
{
	struct files_look look = { files, ns };

	*files = (struct proc_files){ .places = json_object(), .looked = today() };
	for (size_t i = 0; i < tree->n; i++) {
		struct map_walk walk = { .look = &look };

		proc_each_map(tree->task[i].pid, files_add_map, &walk);
		free(walk.path);
	}
	return proc_each_fd(tree, files_add_fd, &look);
}

bool proc_files_refresh(struct proc_files *files)
{
	bool changed = false;
	size_t kept = 0;

	files->looked = today();
	for (size_t i = 0; i < files->n; i++) {
		struct proc_file file = files->file[i];
		struct stat st;

		if (stat(file.path, &st) || st.st_dev != file.dev || st.st_ino != file.ino) {
			free(file.path);
			changed = true;
			continue;
		}
		changed |= (uint64_t)st.st_size != file.size || st.st_mode != file.mode;
		file_look(&file, &st);
		files->file[kept++] = file;
	}
	proc_files_keep(files, kept);
	return changed;
}

bool proc_file_changed(const struct proc_file *file)
{
	struct stat st;

	return stat(file->path, &st) || st.st_dev != file->dev || st.st_ino != file->ino ||
	       content_time(&st.st_ctim) != file->ctime;
}

void proc_files_free(struct proc_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		free(files->file[i].path);
	free(files->file);
	json_decref(files->places);
	*files = (struct proc_files){ 0 };
}
