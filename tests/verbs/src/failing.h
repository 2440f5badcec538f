/* SPDX-License-Identifier: MIT */
#ifndef FAILING_H
#define FAILING_H

/*
 * Runs round() in a process of its own, again and again, until each allocation has failed once, of each call of the driver that
 * this thread makes between fail_allocations() and spare_allocations(). Prints how many have failed.
 */
void sweep_allocations(void (*round)(void));
void fail_allocations(void);
void spare_allocations(void);
int allocations_failed(void);
int allocations_tolerated(void);	/* by calls that succeeded all the same */

#endif
