// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Addresses: read them from a packet or a QP, and say where packets go. */

#include "rxe_migr_loc.h"

void rxe_migr_sgid(const struct rxe_av *av, union ib_gid *gid)
{
	if (av->network_type == RXE_NETWORK_TYPE_IPV4)
		ipv6_addr_set_v4mapped(av->sgid_addr._sockaddr_in.sin_addr.s_addr,
				       (struct in6_addr *)gid);
	else
		memcpy(gid->raw, &av->sgid_addr._sockaddr_in6.sin6_addr,
		       sizeof(gid->raw));
}

bool rxe_migr_same_family(const u8 *gid, const u8 *other)
{
	return ipv6_addr_v4mapped((const struct in6_addr *)gid) ==
	       ipv6_addr_v4mapped((const struct in6_addr *)other);
}

void rxe_migr_packet_gids(struct sk_buff *skb, union ib_gid *from,
			  union ib_gid *to)
{
	if (skb->protocol == htons(ETH_P_IP)) {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr,
				       (struct in6_addr *)from);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr,
				       (struct in6_addr *)to);
	} else {
		memcpy(from->raw, &ipv6_hdr(skb)->saddr, sizeof(from->raw));
		memcpy(to->raw, &ipv6_hdr(skb)->daddr, sizeof(to->raw));
	}
}

/*
 * Point av at another peer, by its GID. rxe loops a packet back if the MAC address in
 * av is the device's own, so set it if this device has the GID. Without a device the
 * MAC address stays zero.
 */
void rxe_migr_call_at(struct rxe_dev *rxe, struct rxe_av *av,
		      const union ib_gid *gid)
{
	const struct ib_gid_attr *attr;
	struct net_device *ndev;

	memcpy(av->grh.dgid.raw, gid->raw, sizeof(gid->raw));
	rdma_gid2ip((struct sockaddr *)&av->dgid_addr, gid);

	eth_zero_addr(av->dmac);
	if (!rxe)
		return;
	attr = rdma_find_gid_by_port(&rxe->ib_dev, gid,
				     IB_GID_TYPE_ROCE_UDP_ENCAP, 1, NULL);
	if (IS_ERR(attr))
		return;
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(attr);
	if (!IS_ERR(ndev))
		ether_addr_copy(av->dmac, ndev->dev_addr);
	rcu_read_unlock();
	rdma_put_gid_attr(attr);
}

/*
 * Find the device's GID that is av's source address, and set its index in av. VLANs may
 * have the same address, so look first at the interface that the packet came by. Fails
 * if the device does not have the address any more.
 */
int rxe_migr_find_source(struct rxe_dev *rxe, struct net_device *came_by,
			 struct rxe_av *av)
{
	const struct ib_gid_attr *attr;
	union ib_gid gid;

	rxe_migr_sgid(av, &gid);
	attr = rdma_find_gid_by_port(&rxe->ib_dev, &gid,
				     IB_GID_TYPE_ROCE_UDP_ENCAP, 1, came_by);
	/* A looped-back packet came by the sender's interface: look at all. */
	if (IS_ERR(attr))
		attr = rdma_find_gid_by_port(&rxe->ib_dev, &gid,
					     IB_GID_TYPE_ROCE_UDP_ENCAP, 1,
					     NULL);
	if (IS_ERR(attr))
		return PTR_ERR(attr);

	av->grh.sgid_index = attr->index;
	rdma_put_gid_attr(attr);

	return 0;
}

/* The way back of a packet: from where it went, to where it came from */
void rxe_migr_answer_av(struct rxe_dev *rxe, struct rxe_av *av,
			const union ib_gid *from, const union ib_gid *to)
{
	bool v4 = ipv6_addr_v4mapped((const struct in6_addr *)to);

	*av = (struct rxe_av) {
		.port_num = 1,
		.network_type = v4 ? RXE_NETWORK_TYPE_IPV4 :
				     RXE_NETWORK_TYPE_IPV6,
		.grh.hop_limit = 64,
	};
	rdma_gid2ip((struct sockaddr *)&av->sgid_addr, to);
	rxe_migr_call_at(rxe, av, from);
}
