/* SPDX-License-Identifier: MIT */
/*
 * rmem-steps: ends a client, a donor that persists, or both, at each step of their conversation, and checks what is there then.
 *
 *	rmem-steps-kill.c	a library that both have preloaded: counts steps, and ends its process at one of them
 *	steps_client.c		the client: things in a fixed order, and what must be there after each of them
 *	rmem-steps.c		the command line, processes, the points
 */
#ifndef STEPS_H
#define STEPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rmem.h"

#define STEPS_ENV "RMEM_STEPS" /* the path of a file that is a struct steps */

#define STEPS_DIES UINT64_MAX

struct steps {
	_Atomic uint64_t taken;
	_Atomic uint64_t at; /* the step at which it ends; 0: none; STEPS_DIES: it has come there, and ends */
	int32_t after;	/* 1: the step is done first */
	int32_t mate;	/* a process that ends with it; 0: none */
	uint64_t acked; /* of the client: how many units it was told are done */
	char failed[300];
};

struct who {
	const char *host, *port, *client, *key;
};

/* Does all units, and goes on over restarts of the donor; returns 0 when they are done. */
int client_run(const struct who *who, struct steps *steps);
/* What is there must be what @acked units make, or one more. Returns NULL, or what is wrong. *@found: how many units it is. */
const char *client_check(const struct who *who, uint64_t acked, uint64_t *found);
uint64_t client_units(void);

#endif
