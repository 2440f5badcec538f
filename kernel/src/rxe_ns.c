// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Network namespaces: their sockets, the devices that end with them, and what devices
 * leave to them.
 */

#include <linux/if_vlan.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/rtnetlink.h>
#include <linux/wait.h>
#include <net/netns/generic.h>
#include <net/udp_tunnel.h>
#include <rdma/ib_cache.h>
#include "rxe.h"

/*
 * An interface that has a device, or whose device has left something. A device that is
 * made while another one of the interface has not ended yet has a place of its own.
 */
struct rxe_ns_place {
	struct list_head	list;	/* RCU; of the namespace's places */
	struct rcu_head		rcu;
	int			ifindex;
	bool			has_dev;
	struct rxe_migr_dev	migr;
};

struct rxe_ns {
	struct list_head	devs;
	struct list_head	places;
	struct rxe_recv_sockets	socks;	/* open while there are places */
	struct delayed_work	reap;	/* pending while something waits for its end */
};

static unsigned int rxe_ns_id;
static DEFINE_MUTEX(rxe_ns_mutex);	/* struct rxe_ns of each namespace */
static DECLARE_WAIT_QUEUE_HEAD(rxe_ns_left);

/* --------------------------------------------------------------- sockets -- */

static void rxe_ns_close(struct rxe_recv_sockets *socks)
{
	if (!socks->sk4)
		return;
	if (socks->sk6)
		udp_tunnel_sock_release(socks->sk6);
	udp_tunnel_sock_release(socks->sk4);
	socks->sk6 = NULL;
	socks->sk4 = NULL;
	/* a packet that has found its socket may still look at the namespace */
	synchronize_rcu();
}

static int rxe_ns_open(struct net *net, struct rxe_recv_sockets *socks)
{
	const __be16 port = htons(ROCE_V2_UDP_DPORT);
	struct socket *sock;

	sock = rxe_setup_udp_tunnel(net, port, false);
	if (IS_ERR(sock))
		return PTR_ERR(sock);
	socks->sk4 = sock;

	if (!IS_ENABLED(CONFIG_IPV6))
		return 0;

	sock = rxe_setup_udp_tunnel(net, port, true);
	if (!IS_ERR(sock)) {
		socks->sk6 = sock;
	} else if (PTR_ERR(sock) != -EAFNOSUPPORT) {
		rxe_ns_close(socks);
		return PTR_ERR(sock);
	}

	return 0;
}

struct sock *rxe_ns_sk6(const struct rxe_dev *rxe)
{
	const struct rxe_ns *ns = net_generic(rxe->ns.net, rxe_ns_id);

	return ns->socks.sk6 ? ns->socks.sk6->sk : NULL;
}

/* ------------------------------------------------------------------ GIDs -- */

/* The interface of a GID, with a reference, if it is in another namespace; or NULL */
static struct net_device *rxe_ns_stranger(struct rxe_dev *rxe, int index)
{
	const struct ib_gid_attr *attr;
	struct net_device *ndev;

	attr = rdma_get_gid_attr(&rxe->ib_dev, 1, index);
	if (IS_ERR(attr))
		return NULL;

	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(attr);
	if (IS_ERR(ndev) || net_eq(dev_net(ndev), rxe->ns.net))
		ndev = NULL;
	dev_hold(ndev);
	rcu_read_unlock();
	rdma_put_gid_attr(attr);

	return ndev;
}

/*
 * ib_core gives a device the addresses of all interfaces above its own as GIDs,
 * also of a macvlan, ipvlan or VLAN in another namespace. The device has no
 * route from these. And where namespaces share devices, rdma_cm takes the first
 * device that has the GID, so it may take this one and not the one that the
 * macvlan has itself. ib_core has no way to refuse a GID without an error in the
 * kernel's log, so it is taken away as soon as it is there.
 */
static void rxe_ns_clean_gids(struct rxe_dev *rxe)
{
	struct net_device *ndev;
	int i;

	for (i = 0; i < RXE_PORT_GID_TBL_LEN; i++) {
		ndev = rxe_ns_stranger(rxe, i);
		if (ndev)
			roce_del_all_netdev_gids(&rxe->ib_dev, 1, ndev);
		dev_put(ndev);
	}
}

static void rxe_ns_gid_work(struct work_struct *work)
{
	struct rxe_dev *rxe = container_of(work, struct rxe_dev, ns.gid_work);

	/* The cache of a device that ends is freed when nobody holds it. */
	if (!ib_device_try_get(&rxe->ib_dev))
		return;

	rxe_ns_clean_gids(rxe);
	ib_device_put(&rxe->ib_dev);
}

/*
 * The table of GIDs may be locked. An interface that goes to another namespace
 * loses its GIDs and gets new ones there, so this hears of it, too.
 */
static void rxe_ns_gid_event(struct ib_event_handler *handler,
			     struct ib_event *event)
{
	struct rxe_dev *rxe = container_of(handler, struct rxe_dev,
					   ns.gid_event);

	if (event->event == IB_EVENT_GID_CHANGE)
		schedule_work(&rxe->ns.gid_work);
}

static void rxe_ns_watch_gids(struct rxe_dev *rxe)
{
	INIT_WORK(&rxe->ns.gid_work, rxe_ns_gid_work);
	INIT_IB_EVENT_HANDLER(&rxe->ns.gid_event, &rxe->ib_dev,
			      rxe_ns_gid_event);
	ib_register_event_handler(&rxe->ns.gid_event);
}

static void rxe_ns_unwatch_gids(struct rxe_dev *rxe)
{
	ib_unregister_event_handler(&rxe->ns.gid_event);
	cancel_work_sync(&rxe->ns.gid_work);
}

/* ---------------------------------------------------------------- places -- */

static void rxe_ns_free_place(struct rxe_ns_place *place)
{
	list_del_rcu(&place->list);
	rxe_migr_dev_cleanup(&place->migr);
	kfree_rcu(place, rcu);
}

/* Free what has had its time, and the places and sockets that nobody needs any more. */
static void rxe_ns_reap(struct rxe_ns *ns)
{
	struct rxe_ns_place *place, *next;
	bool wait = false;

	lockdep_assert_held(&rxe_ns_mutex);

	list_for_each_entry_safe(place, next, &ns->places, list) {
		if (rxe_migr_dev_reap(&place->migr))
			wait = true;
		else if (!place->has_dev)
			rxe_ns_free_place(place);
	}
	if (list_empty(&ns->places))
		rxe_ns_close(&ns->socks);
	if (wait)
		queue_delayed_work(system_unbound_wq, &ns->reap, HZ);
}

static void rxe_ns_reap_work(struct work_struct *work)
{
	struct rxe_ns *ns = container_of(work, struct rxe_ns, reap.work);

	mutex_lock(&rxe_ns_mutex);
	rxe_ns_reap(ns);
	mutex_unlock(&rxe_ns_mutex);
}

/* The place for a new device of the interface */
static struct rxe_ns_place *rxe_ns_take_place(struct rxe_ns *ns, int ifindex)
{
	struct rxe_ns_place *place;

	lockdep_assert_held(&rxe_ns_mutex);

	list_for_each_entry(place, &ns->places, list) {
		if (place->ifindex == ifindex && !place->has_dev) {
			place->has_dev = true;
			return place;
		}
	}

	place = kzalloc(sizeof(*place), GFP_KERNEL);
	if (place) {
		place->ifindex = ifindex;
		place->has_dev = true;
		rxe_migr_dev_init(&place->migr, &ns->reap);
		list_add_rcu(&place->list, &ns->places);
	}

	return place;
}

static void rxe_ns_give_place(struct rxe_ns *ns, struct rxe_ns_place *place)
{
	rxe_migr_dev_ends(&place->migr);
	place->has_dev = false;
	rxe_ns_reap(ns);
}

void rxe_ns_rcv_orphan(struct sk_buff *skb)
{
	struct net_device *ndev = skb->dev;
	struct net *net = dev_net(ndev);
	struct rxe_ns *ns = net_generic(net, rxe_ns_id);
	struct rxe_ns_place *place;

	/* as of a device; but the interface below may be in another namespace */
	if (is_vlan_dev(ndev))
		ndev = vlan_dev_real_dev(ndev);
	if (!net_eq(dev_net(ndev), net))
		return;

	rcu_read_lock();
	list_for_each_entry_rcu(place, &ns->places, list)
		if (place->ifindex == ndev->ifindex)
			rxe_migr_rcv_orphan(&place->migr, skb);
	rcu_read_unlock();
}

/* --------------------------------------------------------------- devices -- */

/* The caller holds the namespace until the device is registered, or has left. */
int rxe_ns_join(struct rxe_dev *rxe, const struct net_device *ndev,
		struct net *net)
{
	struct rxe_ns *ns = net_generic(net, rxe_ns_id);
	struct rxe_ns_place *place;
	int err = -ENOMEM;

	mutex_lock(&rxe_ns_mutex);
	place = rxe_ns_take_place(ns, ndev->ifindex);
	if (place)
		err = ns->socks.sk4 ? 0 : rxe_ns_open(net, &ns->socks);
	if (!err) {
		rxe->ns.net = net;
		rxe->migr = &place->migr;
		list_add(&rxe->ns.list, &ns->devs);
	} else if (place) {
		rxe_ns_give_place(ns, place);
	}
	mutex_unlock(&rxe_ns_mutex);
	if (err)
		return err;

	/* if namespaces do not share devices, only this one sees the device */
	if (!rdma_dev_access_netns(&rxe->ib_dev, net))
		write_pnet(&rxe->ib_dev.coredev.rdma_net, net);

	rxe_ns_watch_gids(rxe);

	return 0;
}

void rxe_ns_leave(struct rxe_dev *rxe)
{
	struct rxe_ns *ns = net_generic(rxe->ns.net, rxe_ns_id);

	mutex_lock(&rxe_ns_mutex);
	if (!list_empty(&rxe->ns.list)) {
		rxe_ns_unwatch_gids(rxe);
		rxe_ns_give_place(ns, container_of(rxe->migr,
						   struct rxe_ns_place, migr));
		/* last: rxe_ns_exit_net() waits for this, then ns is freed */
		list_del_init(&rxe->ns.list);
	}
	mutex_unlock(&rxe_ns_mutex);
	wake_up_all(&rxe_ns_left);
}

/*
 * ib_core lets root take a device to another namespace, where it is enabled again.
 * Its interface, and so its sockets and routes, would stay behind, so it ends.
 */
int rxe_ns_enable(struct rxe_dev *rxe)
{
	if (!rdma_dev_access_netns(&rxe->ib_dev, rxe->ns.net)) {
		ib_unregister_device_queued(&rxe->ib_dev);
		return -EOPNOTSUPP;
	}

	rxe_ns_clean_gids(rxe);

	return 0;
}

/* The namespace of ndev, with a reference; NULL if either is about to end */
static struct net *rxe_ns_get(const struct net_device *ndev)
{
	struct net *net = NULL;

	rtnl_lock();
	if (ndev->reg_state == NETREG_REGISTERED)
		net = maybe_get_net(dev_net(ndev));
	rtnl_unlock();

	return net;
}

static bool rxe_ns_has(const struct net *net, const struct net_device *ndev)
{
	bool has;

	rtnl_lock();
	has = ndev->reg_state == NETREG_REGISTERED &&
	      net_eq(dev_net(ndev), net);
	rtnl_unlock();

	return has;
}

int rxe_ns_add(const char *ibdev_name, struct net_device *ndev)
{
	struct net *net = rxe_ns_get(ndev);
	struct rxe_dev *rxe;
	int err;

	if (!net)
		return -ENODEV;

	err = rxe_net_add(ibdev_name, ndev, net);
	/* has ndev left, or ended, before the notifier could find the device? */
	if (!err && !rxe_ns_has(net, ndev)) {
		err = -ENODEV;
		rxe = rxe_get_dev_from_net(ndev);
		if (rxe) {
			/* ndev may have got another device where it is now. */
			if (net_eq(rxe->ns.net, net))
				ib_unregister_device_queued(&rxe->ib_dev);
			ib_device_put(&rxe->ib_dev);
		}
	}
	put_net(net);

	return err;
}

/* ------------------------------------------------------------ namespaces -- */

static int __net_init rxe_ns_init_net(struct net *net)
{
	struct rxe_ns *ns = net_generic(net, rxe_ns_id);

	INIT_LIST_HEAD(&ns->devs);
	INIT_LIST_HEAD(&ns->places);
	INIT_DELAYED_WORK(&ns->reap, rxe_ns_reap_work);

	return 0;
}

/*
 * A namespace ends: wait until all its devices have ended, since a queue pair
 * has a socket and routes of the namespace. This runs before the network devices
 * end or return to the initial namespace (except bridges, bonds and the like,
 * whose end the notifier has heard). Nobody can make another device or a context
 * here any more. What devices have left ends now.
 */
static void __net_exit rxe_ns_exit_net(struct net *net)
{
	struct rxe_ns *ns = net_generic(net, rxe_ns_id);
	struct rxe_ns_place *place, *next;
	struct rxe_dev *rxe;

	mutex_lock(&rxe_ns_mutex);
	list_for_each_entry(rxe, &ns->devs, ns.list) {
		/* A device that has ended already is about to leave. */
		if (!ib_device_try_get(&rxe->ib_dev))
			continue;
		ib_unregister_device_queued(&rxe->ib_dev);
		ib_device_put(&rxe->ib_dev);
	}
	mutex_unlock(&rxe_ns_mutex);

	wait_event(rxe_ns_left, list_empty_careful(&ns->devs));

	cancel_delayed_work_sync(&ns->reap);
	mutex_lock(&rxe_ns_mutex);
	list_for_each_entry_safe(place, next, &ns->places, list)
		rxe_ns_free_place(place);
	rxe_ns_close(&ns->socks);
	mutex_unlock(&rxe_ns_mutex);
}

/* As these are registered like a device's, the kernel calls exit before network devices end. */
static struct pernet_operations rxe_ns_ops = {
	.init	= rxe_ns_init_net,
	.exit	= rxe_ns_exit_net,
	.id	= &rxe_ns_id,
	.size	= sizeof(struct rxe_ns),
};

int rxe_ns_init(void)
{
	return register_pernet_device(&rxe_ns_ops);
}

void rxe_ns_exit(void)
{
	unregister_pernet_device(&rxe_ns_ops);
}
