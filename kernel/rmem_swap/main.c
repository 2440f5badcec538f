// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* A swap device over remote memory: loaded and unloaded. */

#include <linux/in.h>
#include <linux/module.h>
#include <linux/net.h>
#include <net/genetlink.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "rmem_swap.h"

/*
 * The kernel receives packets into its reserves of memory only while some socket is marked as one whose packets free memory
 * (sk_set_memalloc()). The RDMA device receives by a socket that is not ours, and takes such packets. This socket of ours only has
 * the mark, and receives nothing.
 */
static struct socket *known;

static int make_known(void)
{
	int ret = sock_create_kern(&init_net, AF_INET, SOCK_DGRAM, IPPROTO_UDP, &known);

	if (!ret)
		sk_set_memalloc(known->sk);
	return ret;
}

static void forget_known(void)
{
	sk_clear_memalloc(known->sk);
	sock_release(known);
}

static int __init rs_init(void)
{
	int ret = rs_wqs_make();

	if (ret)
		return ret;
	ret = rs_verbs_register();
	if (ret)
		goto err_wqs;
	ret = make_known();
	if (ret)
		goto err_verbs;
	ret = rs_nl_register();
	if (ret)
		goto err_known;
	return 0;

err_known:
	forget_known();
err_verbs:
	rs_verbs_unregister();
err_wqs:
	rs_wqs_destroy();
	return ret;
}

/* Nobody has a device open, since that would hold the module. */
static void __exit rs_exit(void)
{
	rs_nl_unregister();
	rs_devs_del_all();
	rs_donors_wait();
	forget_known();
	rs_verbs_unregister();
	rs_wqs_destroy();
}

module_init(rs_init);
module_exit(rs_exit);

MODULE_DESCRIPTION("Swap device over remote memory");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION("1");
MODULE_ALIAS_GENL_FAMILY(RMEM_SWAP_FAMILY);
