// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A swap device over remote memory: loaded and unloaded. */

#include <linux/module.h>

#include "rmem_swap.h"

/*
 * Of all devices: rs_wq for what frees memory, so it has a thread for when there is no memory; rs_slow_wq for what may wait for
 * a donor, or for a workqueue.
 */
struct workqueue_struct *rs_wq, *rs_slow_wq;

static int __init rs_init(void)
{
	int ret;

	rs_wq = alloc_workqueue("rmem_swap", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!rs_wq)
		return -ENOMEM;
	ret = -ENOMEM;
	rs_slow_wq = alloc_workqueue("rmem_swap-slow", WQ_UNBOUND, 0);
	if (!rs_slow_wq)
		goto err_wq;
	ret = rs_verbs_register();
	if (ret)
		goto err_slow_wq;
	ret = rs_nl_register();
	if (ret)
		goto err_verbs;
	return 0;

err_verbs:
	rs_verbs_unregister();
err_slow_wq:
	destroy_workqueue(rs_slow_wq);
err_wq:
	destroy_workqueue(rs_wq);
	return ret;
}

/* Nobody has a device open, since that would hold the module. */
static void __exit rs_exit(void)
{
	rs_nl_unregister();
	rs_devs_del_all();
	rs_verbs_unregister();
	destroy_workqueue(rs_slow_wq);
	destroy_workqueue(rs_wq);
}

module_init(rs_init);
module_exit(rs_exit);

MODULE_DESCRIPTION("Swap device over remote memory");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("1");
