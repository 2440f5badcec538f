// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include "huge.h"

/* Huge pages of one file, or of memory without one. After fork() parent and child share the pages, until one writes to them. */
struct used {
	dev_t dev;
	ino_t ino;
	uint64_t page;
	uint64_t bytes;
	pid_t pid;		/* the process that was looked at last, */
	uint64_t its;		/* and how many bytes it has */
};

struct all_used {
	struct used *used;
	size_t n;
};

static struct used *find_used(struct all_used *all, const struct stat *st, uint64_t page)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->used[i].dev == st->st_dev && all->used[i].ino == st->st_ino)
			return &all->used[i];
	GROW(all->used, all->n);
	all->used[all->n] = (struct used){ .dev = st->st_dev, .ino = st->st_ino, .page = page };
	return &all->used[all->n++];
}

static int add_map(const struct proc_map *map, void *arg)
{
	static const char deleted[] = " (deleted)";
	size_t len = map->path ? strlen(map->path) : 0;
	uint64_t length = map->end - map->start;
	struct used *used;
	struct statfs fs;
	struct stat st;
	char path[MAP_PATH_LEN];

	if (len < strlen(deleted) || strcmp(map->path + len - strlen(deleted), deleted))
		return 0;
	proc_map_path(map, path);
	if (statfs(path, &fs) || fs.f_type != HUGETLBFS_MAGIC || proc_map_stat(map, &st))
		return 0;
	used = find_used(arg, &st, fs.f_bsize);
	if (used->pid != map->pid)
		used->its = 0;
	used->pid = map->pid;
	used->its += length;
	/* A restore makes shared memory again from the beginning of that memory on. */
	if (map->shared && used->its < map->offset + length)
		used->its = map->offset + length;
	if (used->bytes < used->its)
		used->bytes = used->its;
	return 0;
}

json_t *huge_used(const struct tree *tree)
{
	struct all_used all = { 0 };
	json_t *sizes = json_object();

	for (size_t i = 0; i < tree->n; i++)
		proc_each_map(tree->task[i].pid, add_map, &all);
	for (size_t i = 0; i < all.n; i++) {
		char size[24];

		snprintf(size, sizeof(size), "%" PRIu64, all.used[i].page);
		json_object_set_new(sizes, size, json_integer(all.used[i].bytes +
				    json_integer_value(json_object_get(sizes, size))));
	}
	free(all.used);
	return sizes;
}

static uint64_t pool_value(uint64_t size, const char *name)
{
	char *path = xasprintf(HUGE_DIR "/%s", (unsigned long long)size >> 10, name);
	char *text = read_file(path);
	uint64_t value = text ? strtoull(text, NULL, 10) : 0;

	free(text);
	free(path);
	return value;
}

uint64_t huge_free(uint64_t size)
{
	uint64_t extra = pool_value(size, "nr_overcommit_hugepages"), surplus = pool_value(size, "surplus_hugepages");
	uint64_t free_pages = pool_value(size, "free_hugepages"), reserved = pool_value(size, "resv_hugepages");

	/* The kernel counts reserved pages as free. */
	free_pages += extra > surplus ? extra - surplus : 0;
	return free_pages > reserved ? free_pages - reserved : 0;
}
