/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * For plan_rdma.c and the files that look at one kind of object for it.
 */
#ifndef GODWIT_PLAN_RDMA_H
#define GODWIT_PLAN_RDMA_H

#include "plan.h"
#include "reasons.h"

struct look {
	struct plan *plan;
	const struct addresses *addresses;
	const struct contexts *asked;
	struct event_files files;
	struct rings rings;
	struct mapped *mapped;	/* plan_mr.c */
	size_t n_mapped;
	const struct context *reached;	/* plan_qp.c: the last context with a UD queue pair; and do senders still find these? */
	bool reachable;
};

/* plan_mr.c: list a memory region. Does it move? */
void look_at_mr(struct look *look, const struct context *c, const struct rxe_migr_rec_mr *mr);
void free_mapped(struct look *look);

/* plan_qp.c: list a queue pair. Does it move, and does its peer find it? */
void look_at_qp(struct look *look, const struct context *c, const struct rxe_migr_rec_qp *qp);
bool qp_is_connected(const struct rxe_migr_rec_qp *qp);

/* plan_fields.c: what a record says, for plan_object() */
json_t *mr_fields(const struct rxe_migr_rec_mr *mr);
json_t *mw_fields(const struct rxe_migr_rec_mw *mw);
json_t *cq_fields(const struct rxe_migr_rec_cq *cq);
json_t *srq_fields(const struct rxe_migr_rec_srq *srq);
json_t *qp_fields(const struct rxe_migr_rec_qp *qp);
json_t *ah_fields(const struct rxe_migr_rec_ah *ah);
json_t *holders_json(const struct holders *h);	/* "PID:FD,PID:FD" */
json_t *hex_json(uint64_t value);
json_t *gid_json(const uint8_t raw[16]);
/* Add it, unless it is ::, or in the array already. */
void add_gid(json_t *array, const uint8_t raw[16]);

#endif /* GODWIT_PLAN_RDMA_H */
