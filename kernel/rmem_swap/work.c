// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The workqueues of the module. Most files queue works, so this file calls no other of ours. */

#include "rmem_swap.h"

/*
 * All devices share them. (Each device also has workqueues for its disk_work and its read_work.) Works on rs_wq free memory, so it
 * has a rescuer thread. They do not sleep for long. Works on rs_slow_wq may wait for a donor, or for a workqueue.
 */
struct workqueue_struct *rs_wq, *rs_slow_wq;

int rs_wqs_make(void)
{
	rs_wq = alloc_workqueue("rmem_swap", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!rs_wq)
		return -ENOMEM;
	rs_slow_wq = alloc_workqueue("rmem_swap-slow", WQ_UNBOUND, 0);
	if (rs_slow_wq)
		return 0;
	destroy_workqueue(rs_wq);
	return -ENOMEM;
}

void rs_wqs_destroy(void)
{
	destroy_workqueue(rs_slow_wq);
	destroy_workqueue(rs_wq);
}
