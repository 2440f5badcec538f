// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * How much memory a process tree has.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proc.h"

static uint64_t status_value(pid_t pid, const char *key)
{
	char *path = xasprintf("/proc/%d/status", pid);
	char *text = read_file(path);
	char *line = text ? strstr(text, key) : NULL;
	uint64_t value = line ? strtoull(line + strlen(key), NULL, 10) : 0;

	free(text);
	free(path);
	return value;
}

/* What is mapped of a file by MAP_SHARED, which is saved once, however often it is mapped. */
struct extent {
	char file[64];	/* device and inode, as maps gives them */
	uint64_t length, end;
};

static int compare_extents(const void *a, const void *b)
{
	return strcmp(((const struct extent *)a)->file, ((const struct extent *)b)->file);
}

static uint64_t shared_extents(const struct tree *tree)
{
	struct extent *all = NULL;
	size_t n = 0, room = 0;
	uint64_t sum = 0;

	for (size_t i = 0; i < tree->n; i++) {
		char *path = xasprintf("/proc/%d/maps", tree->task[i].pid);
		char *text = read_file(path), *line, *at = NULL;

		free(path);
		for (line = text ? strtok_r(text, "\n", &at) : NULL; line; line = strtok_r(NULL, "\n", &at)) {
			char *rest, device[16], mode[8];
			uint64_t start = strtoull(line, &rest, 16), end = strtoull(rest + 1, &rest, 16), offset, inode;

			if (sscanf(rest, "%7s %" SCNx64 " %15s %" SCNu64, mode, &offset, device, &inode) != 4 ||
			    mode[3] != 's')
				continue;
			if (n == room)
				all = xrealloc(all, (room = room ? 2 * room : 64) * sizeof(*all));
			snprintf(all[n].file, sizeof(all[n].file), "%s %" PRIu64, device, inode);
			all[n].length = end - start;
			all[n++].end = offset + end - start;
		}
		free(text);
	}
	if (n)
		qsort(all, n, sizeof(*all), compare_extents);
	for (size_t i = 0, next; i < n; i = next) {
		struct extent file = all[i];

		for (next = i + 1; next < n && !compare_extents(&file, &all[next]); next++) {
			file.length += all[next].length;
			file.end = all[next].end > file.end ? all[next].end : file.end;
		}
		/* (offsets into devices say nothing) */
		sum += file.length < file.end ? file.length : file.end;
	}
	free(all);
	return sum;
}

uint64_t tree_memory(const struct tree *tree)
{
	uint64_t sum = 0, shared = 0, extents = shared_extents(tree);

	for (size_t i = 0; i < tree->n; i++) {
		pid_t pid = tree->task[i].pid;

		sum += 1024 * (status_value(pid, "\nRssAnon:") + status_value(pid, "\nRssFile:") +
			       status_value(pid, "\nHugetlbPages:") + status_value(pid, "\nVmSwap:"));
		shared += 1024 * status_value(pid, "\nRssShmem:");
	}
	return sum + (shared < extents ? shared : extents);
}
