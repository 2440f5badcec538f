// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * How much memory a process tree has, and how much is free.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proc.h"

/* The value of a key in a text of the kernel's, in KiB. */
static uint64_t value_in(const char *text, const char *key)
{
	const char *line = text ? strstr(text, key) : NULL;

	return line ? strtoull(line + strlen(key), NULL, 10) : 0;
}

/* Of a page that processes share since fork(), each process counts its part. (For that the kernel walks the page tables.) */
static uint64_t part_of_anonymous(pid_t pid)
{
	char *path = xasprintf("/proc/%d/smaps_rollup", pid);
	char *text = read_file(path);
	uint64_t value = value_in(text, "\nPss_Anon:") + value_in(text, "\nSwapPss:");

	free(text);
	free(path);
	return value;
}

/* The part of a file that is mapped by MAP_SHARED. It is saved once, however often it is mapped. */
struct extent {
	unsigned int major, minor;
	unsigned long inode;
	uint64_t length, end;
};

struct extents {
	struct extent *extent;
	size_t n;
};

static int compare_extents(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	if (x->inode != y->inode)
		return x->inode < y->inode ? -1 : 1;
	if (x->major != y->major)
		return x->major < y->major ? -1 : 1;
	return (x->minor > y->minor) - (x->minor < y->minor);
}

static int add_extent(const struct proc_map *map, void *arg)
{
	struct extents *all = arg;
	uint64_t length = map->end - map->start;

	if (!map->shared)
		return 0;
	GROW(all->extent, all->n);
	all->extent[all->n++] = (struct extent){
		.major = map->major, .minor = map->minor, .inode = map->inode, .length = length, .end = map->offset + length,
	};
	return 0;
}

static uint64_t shared_extents(const struct tree *tree)
{
	struct extents all = { 0 };
	uint64_t sum = 0;

	for (size_t i = 0; i < tree->n; i++)
		proc_each_map(tree->task[i].pid, add_extent, &all);
	if (all.n)
		qsort(all.extent, all.n, sizeof(*all.extent), compare_extents);
	for (size_t i = 0, next; i < all.n; i = next) {
		struct extent file = all.extent[i];

		for (next = i + 1; next < all.n && !compare_extents(&file, &all.extent[next]); next++) {
			file.length += all.extent[next].length;
			file.end = all.extent[next].end > file.end ? all.extent[next].end : file.end;
		}
		/* Offsets into devices say nothing, so the sum of the lengths counts if it is less. */
		sum += file.length < file.end ? file.length : file.end;
	}
	free(all.extent);
	return sum;
}

uint64_t tree_memory(const struct tree *tree, uint64_t *in_ram)
{
	uint64_t sum = 0, shared = 0, extents = shared_extents(tree);

	*in_ram = 0;
	for (size_t i = 0; i < tree->n; i++) {
		pid_t pid = tree->task[i].pid;
		char *path = xasprintf("/proc/%d/status", pid), *text = read_file(path);
		uint64_t anonymous = value_in(text, "\nRssAnon:") + value_in(text, "\nVmSwap:");

		sum += 1024 * (anonymous + value_in(text, "\nRssFile:") + value_in(text, "\nHugetlbPages:"));
		shared += 1024 * value_in(text, "\nRssShmem:");
		*in_ram += 1024 * (tree->n == 1 ? anonymous : part_of_anonymous(pid));
		free(text);
		free(path);
	}
	return sum + (shared < extents ? shared : extents);
}

uint64_t memory_free(void)
{
	char *text = read_file("/proc/meminfo");
	uint64_t value = value_in(text, "\nMemAvailable:") + value_in(text, "\nSwapFree:");

	free(text);
	return 1024 * value;
}
