/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The wing of checkpoint: what dump.c, which puts it together, and the files
 * dump_*.c share.
 */
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
};

struct dumped_task {
	pid_t		pid;
	int		files;
	struct mapping	*mappings;
	int		num_mappings;
	uint32_t	*contexts;	/* that it has open */
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
	void		*room;		/* for a dump, got ahead */
	size_t		room_size;
	RdmaInventoryEntry inventory;	/* once all is stopped */
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

/* The index of a node's device, with its GID table as it is now; or -1. */
int find_device(struct ibv_context *ctx, const char *node);

/* Memory for the largest dump, before its context stands still. */
int get_room_ahead(struct ibv_context *ctx);

/* Stop and dump the context of a task's descriptor, if it is a new one. */
int open_context(struct dumped_task *task, int fd, const char *node);

/* The index of the context of a descriptor of ours, or -1. */
int find_context(int fd);

/* The context that has a queue pair, by its device and number, or -1. */
int find_qp_context(const char *device, uint32_t qp_num);

/* The nth context of the tree, and its device's name, or NULL. */
struct ibv_context *dumped_context(uint32_t n, const char **device);

/* Which peers have answered STOP since the dump? */
int note_answers(struct dumped_context *c);

/* If the checkpoint has failed, those that we have stopped go on. */
void end_contexts(bool failed);

/* ------------------------------------- dump_rings.c, dump_memory.c: memory -- */

int collect_mappings(const struct dumped_task *task, RdmaTaskEntry *entry);
int collect_regions(const struct dumped_task *task, RdmaTaskEntry *entry);
int check_regions(void);	/* all are somebody's */

/* -------------------------------------------------- dump_cm.c: librdmacm -- */

int look_at_cm(pid_t pid, int fd);
int dump_cm_file(int fd, int id, RdmaInventoryEntry *inventory);
void end_cm(void);

/* ----------------------------------------------------------- watchdog.c -- */

/* Contexts come back to life if CRIU does not, or lets them live. */
int watchdog_start(void);
int watchdog_watch(pid_t pid);
void watchdog_leave(bool saved);

/* late.c: when it was stopped, and for how long peers wait */
void note_time(RdmaInventoryEntry *inventory);

#endif /* RDMA_DUMP_H */
