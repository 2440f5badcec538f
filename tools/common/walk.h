/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Processes, as /proc shows them: threads, children, descriptors and mappings.
 */
#ifndef COMMON_WALK_H
#define COMMON_WALK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "rdma_file.h"

/* Call each for all processes of the host, or for the threads of one, until it returns other than 0; return that. */
int proc_each(int (*each)(pid_t pid, void *arg), void *arg);
int proc_each_thread(pid_t pid, int (*each)(pid_t tid, void *arg), void *arg);
/* The same for the direct children of a process, those of all its threads. */
int proc_each_child(pid_t pid, int (*each)(pid_t child, void *arg), void *arg);

/* The inode of a process's or thread's namespace of this kind, a name in /proc/PID/ns. 0: it has none any more. */
uint64_t proc_ns(pid_t pid, const char *kind);
/*
 * A process and all below it, parents before children: how many, and a list to be freed in any case. -1: no memory. As long as the
 * tree is frozen, the order is always the same.
 */
int proc_read_tree(pid_t root, pid_t **pids);

/*
 * What kind of file is it, and which? Its file system's server, which may be dead, is not asked: st gets device and inode, type,
 * and the number of a device, and no size and no times. path may be a descriptor of a process, in /proc.
 */
int stat_identity(int dir, const char *path, struct stat *st);

/* A copy of a process's descriptor here; -1 with errno. */
int proc_get_fd(pid_t pid, int fd);
/* Are these one open file? */
bool proc_same_file(pid_t pid1, int fd1, pid_t pid2, int fd2);
/* The order of two open files, for qsort(). 0: they are one. */
int proc_order_files(pid_t pid1, int fd1, pid_t pid2, int fd2);

enum { MEMORY_READ = 1, MEMORY_WRITE = 2, MEMORY_SHARED = 4 };

/* A mapping. path: what /proc/PID/maps says, NULL if that is nothing. */
struct proc_map {
	pid_t pid;
	uint64_t start, end, offset;
	bool shared;
	unsigned int flags;		/* MEMORY_... */
	unsigned int major, minor;	/* of the file's device; a btrfs has one for all subvolumes */
	unsigned long inode;
	const char *path;
};

/* Read a line of /proc/PID/maps. It loses its newline, and map->path points into it. False: it is no such line. */
bool proc_map_parse(pid_t pid, char *line, struct proc_map *map);
/* Do both map the same file? (Paths are compared, too: on a btrfs, device and inode do not tell files apart.) */
bool proc_map_same(const struct proc_map *a, const struct proc_map *b);
/* A path to the file that is mapped there, whatever its name is. proc_map_stat(): stat() it. */
#define MAP_PATH_LEN 64
void proc_map_path(const struct proc_map *map, char path[MAP_PATH_LEN]);
int proc_map_stat(const struct proc_map *map, struct stat *st);

/* What is kept of a mapping. */
struct mapping {
	uint64_t start, end, pgoff;	/* bytes */
	unsigned int flags;		/* MEMORY_... */
	bool uverbs;			/* for the CRIU plugin: of a device, which has this node */
	char node[NODE_LEN];
};

/* The flags that a memory region with these flags, IBV_ACCESS_..., needs of its memory when it is registered. */
unsigned int memory_needs(unsigned int access);

/* Do the mappings, by rising address, have all of this memory, without a hole, and with all flags in needs? */
bool memory_is_mapped(const struct mapping *mapping, size_t n, uint64_t start, uint64_t length, unsigned int needs);

#endif /* COMMON_WALK_H */
