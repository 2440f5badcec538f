// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A packet of ours as it lies in memory; and one that is sent without a device, in
 * answer to a packet whose device is gone.
 */

#include <net/route.h>
#include <net/ipv6_stubs.h>
#include "rxe_migr_loc.h"
#include "rxe_net.h"

/* Write a packet of ours, which is signed, where pkt->hdr has room for it. */
void rxe_migr_write(struct rxe_pkt_info *pkt, const struct rxe_migr_hdr *hdr)
{
	pkt->opcode = hdr->opcode;
	pkt->paylen = RXE_MIGR_PAYLEN;
	pkt->psn = be32_to_cpu(hdr->psn) & BTH_PSN_MASK;
	bth_init(pkt, hdr->opcode, 0, 0, 0, IB_DEFAULT_PKEY_FULL,
		 be32_to_cpu(hdr->dest_qpn), 0, pkt->psn);
	memcpy(pkt->hdr + RXE_BTH_BYTES, hdr, sizeof(*hdr));
}

/* By the interface that a packet came by, from where it went, to where it came from */
static struct dst_entry *rxe_migr_route_back(const struct sk_buff *in)
{
	struct net *net = dev_net(in->dev);
	struct dst_entry *dst;
	struct flowi4 fl4 = {};
	struct flowi6 fl6 = {};
	struct rtable *rt;

	if (in->protocol == htons(ETH_P_IP)) {
		fl4.flowi4_oif = in->dev->ifindex;
		fl4.flowi4_proto = IPPROTO_UDP;
		fl4.saddr = ip_hdr(in)->daddr;
		fl4.daddr = ip_hdr(in)->saddr;
		rt = ip_route_output_key(net, &fl4);
		return IS_ERR(rt) ? NULL : &rt->dst;
	}

	fl6.flowi6_oif = in->dev->ifindex;
	fl6.flowi6_proto = IPPROTO_UDP;
	fl6.saddr = ipv6_hdr(in)->daddr;
	fl6.daddr = ipv6_hdr(in)->saddr;
	dst = ipv6_stub->ipv6_dst_lookup_flow(net, NULL, &fl6, NULL);

	return IS_ERR(dst) ? NULL : dst;
}

/* Put the headers of UDP and IP before a packet, and its ICRC behind it. */
static void rxe_migr_wrap(struct sk_buff *skb, struct rxe_pkt_info *pkt,
			  struct dst_entry *dst, const struct sk_buff *in,
			  const struct rxe_global_route *grh)
{
	prepare_udp_hdr(skb, htons(RXE_ROCE_V2_SPORT),
			htons(ROCE_V2_UDP_DPORT));
	if (in->protocol == htons(ETH_P_IP))
		prepare_ipv4_hdr(dst, skb, ip_hdr(in)->daddr,
				 ip_hdr(in)->saddr, IPPROTO_UDP,
				 grh->traffic_class, grh->hop_limit,
				 htons(IP_DF), false);
	else
		prepare_ipv6_hdr(dst, skb, &ipv6_hdr(in)->daddr,
				 &ipv6_hdr(in)->saddr, IPPROTO_UDP,
				 grh->traffic_class, grh->hop_limit);
	rxe_icrc_generate(skb, pkt);
}

/*
 * Send a packet of ours, which is signed, back to where @in came from. No socket is
 * charged with it: there is one for each packet that came. An answer that can't be made
 * counts as lost. The caller holds the RCU read lock, which keeps in->dev.
 */
void rxe_migr_send_raw(const struct sk_buff *in,
		       const struct rxe_global_route *grh,
		       const struct rxe_migr_hdr *hdr)
{
	struct dst_entry *dst = rxe_migr_route_back(in);
	struct rxe_pkt_info pkt = {};
	struct sk_buff *skb;
	unsigned int room;

	if (!dst)
		return;
	room = LL_RESERVED_SPACE(dst->dev) + sizeof(struct udphdr) +
	       sizeof(struct ipv6hdr);
	skb = alloc_skb(room + RXE_MIGR_PAYLEN, GFP_ATOMIC);
	if (!skb)
		goto release;

	skb_reserve(skb, room);
	skb->dev = dst->dev;
	skb->protocol = in->protocol;
	pkt.hdr = skb_put(skb, RXE_MIGR_PAYLEN);
	rxe_migr_write(&pkt, hdr);
	rxe_migr_wrap(skb, &pkt, dst, in, grh);
	if (in->protocol == htons(ETH_P_IP))
		ip_local_out(dev_net(dst->dev), NULL, skb);
	else
		ip6_local_out(dev_net(dst->dev), NULL, skb);
release:
	dst_release(dst);
}
