/* SPDX-License-Identifier: MIT */
#ifndef FAILING_H
#define FAILING_H

/* From now on all allocations of this thread's calls of the driver fail in turn. */
void fail_allocations(void);
int allocations_failed(void);

#endif
