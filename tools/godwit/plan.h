/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What a move of a process would take along, and what stands in its way on this host.
 */
#ifndef GODWIT_PLAN_H
#define GODWIT_PLAN_H

#include <jansson.h>
#include "address.h"
#include "proc.h"
#include "rdma.h"

struct plan {
	struct tree tree;
	struct contexts contexts;
	struct proc_files files;
	uint64_t memory;	/* bytes resident */
	size_t qps;
	bool rdma;		/* it holds contexts */
	bool shell_job;		/* its session's leader stays behind */
	bool file_locks;
	bool own_netns;
	json_t *problems;	/* strings: each forbids the move */
	json_t *notes;		/* strings: worth knowing */
};

/* Look at it all. -1 with fault(): it can't even be looked at. addresses: those that move along. */
int plan_make(struct plan *plan, pid_t pid, const struct addresses *addresses);
void plan_free(struct plan *plan);

/* What the destination is asked about. */
json_t *plan_json(const struct plan *plan);

/* The GIDs that the QPs and AHs of the contexts send from: an array of strings. */
json_t *plan_source_gids(const struct plan *plan);

void plan_problem(struct plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));
void plan_note(struct plan *plan, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* GODWIT_PLAN_H */
