/* SPDX-License-Identifier: GPL-2.0 */
/* Checkpoint: what dump.c and the files that it uses share. */
#ifndef RDMA_DUMP_H
#define RDMA_DUMP_H

#include "plugin.h"

struct dumped_context {
	struct ibv_context *ctx;
	char		node[NODE_LEN];
	uint32_t	device;		/* index in dump.devices */
	bool		stopped;	/* by us */
	void		*buf;
	size_t		size;		/* of buf */
	struct records	records;	/* in buf */
	struct rxe_migr_rec_qp **qps;	/* of these, by number */
	uint32_t	num_qps;
};

struct dumped_task {
	pid_t		pid;
	int		files;
	struct mapping	*mappings;
	int		num_mappings;
	uint32_t	*contexts;	/* that the task has open */
	uint32_t	num_contexts;
};

extern struct dump {
	struct dumped_context *contexts;
	uint32_t	num_contexts;
	struct dumped_task *tasks;
	uint32_t	num_tasks;
	RdmaDeviceEntry	*devices;
	uint32_t	num_devices;
	uint64_t	stop_ns;
	pid_t		root;		/* of the tree: CRIU names it first */
	bool		began;
	bool		found_stopped;	/* a context, by an earlier dump */
	void		*room;		/* for the next dump, allocated ahead */
	size_t		room_size;
	RdmaInventoryEntry inventory;	/* filled when all is stopped */
	bool		collected;
	int		result;		/* of collecting */
} dump;

/* dump.c: what hooks.c calls */
int refuse_predump(int pid);
int look_ahead(int pid);
int checkpoint(int pid);
int accept_mapping(const struct stat *st);
int dump_file(int fd, int id);
void dump_end(bool failed);

/* ------------------------------------------------ dump_contexts.c: contexts -- */

/*
 * The index of a node's device in dump.devices, or -1. The first call for a
 * device reads its GID table.
 */
int find_device(struct ibv_context *ctx, const char *node);

/* Get memory for the largest dump before its context is stopped. */
int get_room_ahead(struct ibv_context *ctx);

/* Stop and dump the context of a task's descriptor, unless that is done. */
int open_context(struct dumped_task *task, int fd, const char *node);

/* The index of the context of a descriptor of ours, or -1. */
int find_context(int fd);

/* The index of the context that has this queue pair, or -1. */
int find_qp_context(const char *device, uint32_t qp_num);

/* The nth context of the tree, and its device's name, or NULL. */
struct ibv_context *dumped_context(uint32_t n, const char **device);

/* Note which peers of a device's contexts have answered STOP since the dump. */
int note_answers(uint32_t device);

/* If the checkpoint has failed, let the contexts that we have stopped go on. */
void end_contexts(bool failed);

/* ----------------------------------------- dump_outsiders.c: who stays here -- */

/*
 * Once, before the first context is stopped: does a process outside of the tree
 * have a context or a file of librdmacm of the tree open, too?
 */
int refuse_outsiders(void);

/* ------------------------------------- dump_rings.c, dump_memory.c: memory -- */

int collect_rings(void);		/* first */
int collect_mappings(const struct dumped_task *task, RdmaTaskEntry *entry);
int collect_regions(void);	/* when the inventory has all tasks */

/* -------------------------------------------------- dump_cm.c: librdmacm -- */

int look_at_cm(pid_t pid, int fd);
void note_needs(RdmaInventoryEntry *inventory);	/* when all are looked at */
int dump_cm_file(int fd, int id, RdmaCmFileEntry *entry);
void end_cm(void);

/* ----------------------------------------------------------- watchdog.c -- */

/*
 * Lets contexts go on if CRIU is killed, or lets the tasks live. found_stopped:
 * the task has a context that was stopped before this dump.
 */
int watchdog_start(void);
int watchdog_watch(pid_t pid, bool found_stopped);
void watchdog_leave(bool stay);

/* late.c: note when the first QP was stopped, and how long peers wait */
void note_time(RdmaInventoryEntry *inventory);

#endif /* RDMA_DUMP_H */
