/* SPDX-License-Identifier: MIT */
#ifndef FAILING_H
#define FAILING_H

/*
 * Does round() in a process of its own, again until each allocation of each call that it makes of the driver, between
 * fail_allocations() and spare_allocations(), by that thread, has failed once. Says how many have.
 */
void sweep_allocations(void (*round)(void));
void fail_allocations(void);
void spare_allocations(void);
int allocations_failed(void);
int allocations_tolerated(void);	/* by calls that succeeded all the same */

#endif
