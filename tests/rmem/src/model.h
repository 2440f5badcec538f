/* SPDX-License-Identifier: MIT */
/*
 * What a donor's store must hold after a crash. A scenario writes down each thing that it does, before the store hears of it, and
 * how much the store has reported as durable. Both lie in memory that outlives the process. A store that is opened must hold what
 * a first part of these things makes, and this part must reach at least as far as was reported.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "store.h"

#define OWNERS 3
#define TAGS 6
#define PLAN_SIZE (32u << 20)

enum did { DID_ALLOC, DID_WRITE, DID_FREE, DID_TXN };

struct shared {
	uint64_t used;	/* of the plan */
	uint64_t units; /* things that happen wholly or not at all */
	uint64_t acked; /* so many are durable */
	uint64_t top[OWNERS], next_top[OWNERS]; /* addresses below are given out; next_top: also if not acked yet */
	enum { PHASE_OPEN = 1, PHASE_RUN, PHASE_SYNC } phase;
	uint64_t phase_calls; /* of the disk, when it began */
	uint64_t calls, checkpoints, groups; /* groups: syncs that several clients' transactions have shared */
	uint64_t segment; /* of the log; 0: a small one */
	char violation[400];
	uint8_t plan[PLAN_SIZE];
};

/* Writes down one thing. @last: a unit ends with it. @bytes: of DID_WRITE. */
void model_did(struct shared *shared, enum did did, bool last, unsigned int owner, uint64_t number, uint64_t addr,
	       uint64_t size, const void *bytes);
void model_acked(struct shared *shared);
/* The store has just been opened. What it holds is durable, and what it does not hold will not come. false: shared->violation */
bool model_resolve(struct shared *shared, struct store *store);
const char *owner_of(unsigned int i);

/* Of a transaction; 0 before the first. */
static inline uint64_t word_of(uint64_t txn)
{
	return txn * 0x9e3779b97f4a7c15u;
}

#endif
