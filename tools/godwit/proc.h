/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * A process and its descendants, seen through /proc.
 */
#ifndef GODWIT_PROC_H
#define GODWIT_PROC_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "godwit.h"
#include "mntns.h"
#include "walk.h"

struct task {
	pid_t pid;
	int pidfd;
	bool was_stopped;	/* by a signal, before CRIU froze it */
	uint64_t pending;	/* signals that waited for it then, a bit for each: number N is bit N - 1 */
};

struct tree {
	struct task *task;	/* the root first, parents before children */
	size_t n;
};

/* tree.c */
int tree_collect(struct tree *tree, pid_t root);
/* Collect the tree anew: it may have forked meanwhile. If that fails, the tree stays what it was. */
int tree_refresh(struct tree *tree, pid_t root);
/* Note which tasks a signal has stopped, and what signals wait. Call it before CRIU traces them: tracing hides the first. */
void tree_see_signals(struct tree *tree);
/* Since then somebody has asked a task to end, by a signal that waits. The signal's number, and *pid, or 0. */
int tree_told_to_end(const struct tree *tree, pid_t *pid);
void tree_free(struct tree *tree);
bool tree_has(const struct tree *tree, pid_t pid);
/* Is this a process of the tree, or was it forked below the tree since that was read? */
bool tree_takes(const struct tree *tree, pid_t pid);
/* Does it stay here when the tree goes? A process that has ended does not. */
bool tree_leaves(const struct tree *tree, pid_t pid);
/* Has the process ended? (Its first thread may have ended alone.) */
bool task_has_ended(const struct task *task);
/* How many tasks still run: were not killed, and are no zombies. */
size_t tree_alive(const struct tree *tree);
/* Wait until all have ended. -1: one has not. */
int tree_wait_gone(const struct tree *tree, int timeout_ms);
/*
 * tree_send_stop() sends SIGSTOP to each thread, all of which CRIU traces. The signal stays pending meanwhile; if CRIU dies, it
 * stops the thread before its first instruction. Tasks that were stopped before get it, too, since a CRIU that is killed may
 * leave them running. tree_release() sends SIGCONT, which takes the signals back, and wakes the threads that they stopped.
 * Tasks that were stopped before do not get SIGCONT.
 */
void tree_send_stop(const struct tree *tree);
void tree_release(const struct tree *tree);
/*
 * tree_memory.c: the bytes that the tree has in memory and swap. *in_ram: those of them that need new memory at the destination
 * in any case: not files, huge pages and shared memory, which may be there already.
 */
uint64_t tree_memory(const struct tree *tree, uint64_t *in_ram);
uint64_t memory_free(void);	/* of this host, free swap included */

/* The threads of a process, or the direct children of all its threads: how many, and a list to be freed. */
size_t proc_threads(pid_t pid, pid_t **tids);
size_t proc_children(pid_t pid, pid_t **children);
/* tree.c: kill and reap all our descendants, children before their parents, until none is left, or a minute is over. */
void proc_kill_descendants(void);
/* A process. Its number alone may have been given to another one meanwhile. */
struct proc_id {
	pid_t pid;
	unsigned long long start;	/* when it began */
};

struct proc_id proc_identify(pid_t pid);
bool proc_is_there(const struct proc_id *id);	/* also as a zombie */
bool proc_lives(const struct proc_id *id);	/* tree.c: it has not ended, and was not killed */
/* tree.c: kill it and all below it, children before their parents, and wait a while until they are dead. */
void proc_kill_tree(const struct proc_id *id);
/* The number in a line of /proc/PID/status; 0 if there is none. */
uint64_t proc_status(pid_t pid, const char *name, int base);
char *proc_name(pid_t pid);	/* its comm, clean (text.h), or "?" */
bool proc_is_killed(pid_t pid);	/* by SIGKILL, or it is gone */
char proc_state(pid_t pid);	/* as in /proc/PID/stat, 0 when it is gone */
pid_t proc_sid(pid_t pid);
pid_t proc_parent(pid_t pid);	/* 0: it is gone, or has none here */
/* Its control group in the unified hierarchy, as "/system.slice/web.service"; NULL: there is none. Free it. */
char *proc_cgroup(pid_t pid);

/* An open descriptor. link: what /proc/PID/fd/FD says. */
struct proc_fd {
	pid_t pid;
	int fd;
	const char *link;
	struct stat st;
	bool writable;
};

/* What /proc/PID/fdinfo says of it, to be freed; NULL: it is closed. */
char *proc_fdinfo(const struct proc_fd *fd);
/* Call each for all descriptors of the tree until it returns other than 0; return that. */
int proc_each_fd(const struct tree *tree, int (*each)(const struct proc_fd *, void *), void *arg);
/*
 * The same for every descriptor of every process of the host. st is of stat_identity(): a process that has nothing to do with us
 * may have a file open on a server that is dead.
 */
int proc_each_fd_of_all(int (*each)(const struct proc_fd *, void *), void *arg);

/* proc_ends.c: the descriptors of pipes, sockets and character devices that processes of the host had when it was read. */
struct proc_end {
	mode_t type;		/* S_IFIFO, S_IFSOCK, S_IFCHR */
	uint64_t number;	/* the inode's; of a device its own, st_rdev */
	pid_t pid;
	int fd;
};

struct proc_ends {
	struct proc_end *end;
	size_t n;
	bool read;
};

/* As proc_each_fd(), for all that have a file of this type and number, by rising pid. The first call reads them. */
int proc_each_end(struct proc_ends *all, mode_t type, uint64_t number, int (*each)(const struct proc_end *, void *), void *arg);
void proc_ends_free(struct proc_ends *all);

/* As proc_each_fd(), for the mappings of one process, by rising address. */
int proc_each_map(pid_t pid, int (*each)(const struct proc_map *, void *), void *arg);
/* Does it run the program that we are? */
bool proc_is_ours(pid_t pid);

/* proc_files.c: files that must be at the destination as they are here. */
struct proc_file {
	char *path;
	dev_t dev;
	ino_t ino;
	uint64_t size;
	mode_t mode;
	int64_t mtime, ctime;	/* content_time() */
	bool mapped;
	bool writable;		/* who has it open may have written to it */
	bool settled;		/* the destination has the same, unless the process has written to it since */
};

struct proc_files {
	struct proc_file *file;
	size_t n;
	json_t *places;		/* {path: its place in the list}: there may be some thousand */
	int64_t looked;		/* when we looked: CLOCK_REALTIME */
};

/* ns: the mount namespace of the tree. The paths are this host's; files in a tmpfs of the namespace's own are left out. */
int proc_files(const struct tree *tree, const struct mntns *ns, struct proc_files *files);
/* The file of this path, or NULL. */
struct proc_file *proc_files_find(const struct proc_files *files, const char *path);
/* Keep only the first ones, among which the caller has moved those to keep. */
void proc_files_keep(struct proc_files *files, size_t kept);
/* Look at the files again, and drop those that are gone or replaced. Was one dropped, or changed in size or mode? */
bool proc_files_refresh(struct proc_files *files);
/* Is it another file than when we looked, or was it written to? (A write through a mapping need not show.) */
bool proc_file_changed(const struct proc_file *file);
void proc_files_free(struct proc_files *files);

/* The mount that the file is in; -1: nobody can tell. proc_fd_path(): the path of the file on this host, to be freed; or NULL. */
int proc_fd_mount(const struct proc_fd *fd);
int proc_map_mount(const struct proc_map *map);
char *proc_fd_path(const struct proc_fd *fd, const struct mntns *ns);

/* proc_inet.c: a TCP or UDP socket. */
struct proc_inet {
	pid_t pid;		/* who of the tree has it open; 0: nobody */
	int fd;
	bool udp;
	struct in6_addr local, remote;	/* IPv4 as mapped */
	uint16_t local_port, remote_port;
	unsigned long inode;
	uint64_t netns;
	const struct inet_table *table;	/* where it is, for proc_inet_peer() */
};

/* As proc_each_fd(). */
int proc_each_inet(const struct tree *tree, int (*each)(const struct proc_inet *, void *), void *arg);
/*
 * The other end, if that is in the same network namespace. NULL: it is not, or no process has it open: then it is closed, or is
 * not accepted yet.
 */
const struct proc_inet *proc_inet_peer(const struct proc_inet *s);

#endif /* GODWIT_PROC_H */
