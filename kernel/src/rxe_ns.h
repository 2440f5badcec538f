/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Network namespaces. A device belongs to the namespace of its network
 * device: it receives by sockets of that namespace, finds its routes there,
 * and has GIDs of interfaces there only.
 *
 * A context keeps its device's namespace alive, as an open socket does. When
 * a namespace ends, its devices end first, so rxe_dev.ns.net outlives the
 * device.
 *
 * What a device leaves, struct rxe_migr_dev, stays with the namespace for some time:
 * the next device of the same interface has it; and as long as there is none, packets
 * that come by the interface are answered without a device. It ends with the namespace.
 */
#ifndef RXE_NS_H
#define RXE_NS_H

#include <linux/list.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

struct rxe_dev;
struct sk_buff;

struct rxe_ns_dev {
	struct net		*net;	/* no reference */
	struct list_head	list;	/* of the namespace's devices */
	struct ib_event_handler	gid_event;
	struct work_struct	gid_work;
};

int rxe_ns_init(void);
void rxe_ns_exit(void);

/* Calls rxe_net_add() in the namespace of the network device. */
int rxe_ns_add(const char *ibdev_name, struct net_device *ndev);

/* A device that is being made joins, and has rxe_dev.migr then; one that has ended leaves. */
int rxe_ns_join(struct rxe_dev *rxe, const struct net_device *ndev,
		struct net *net);
void rxe_ns_leave(struct rxe_dev *rxe);

/* A device is about to be seen in a namespace: only in its own, without others' GIDs. */
int rxe_ns_enable(struct rxe_dev *rxe);

/* A packet came to a socket here, by an interface without a device. The caller frees it. */
void rxe_ns_rcv_orphan(struct sk_buff *skb);

/* The IPv6 socket of a device that has joined; NULL where there is no IPv6 */
struct sock *rxe_ns_sk6(const struct rxe_dev *rxe);

#endif /* RXE_NS_H */
