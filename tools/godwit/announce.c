// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Tell the link who has an address now. Some neighbours learn from an ARP request, others from an ARP reply. So we send both,
 * each from and to the address itself (RFC 5944, 4.6).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netpacket/packet.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "address.h"

struct arp_packet {
	struct arphdr head;
	uint8_t sender_mac[ETH_ALEN];
	uint8_t sender_ip[4];
	uint8_t target_mac[ETH_ALEN];
	uint8_t target_ip[4];
} __attribute__((packed));

static int interface_mac(int fd, const char *ifname, uint8_t mac[ETH_ALEN])
{
	struct ifreq ifr = { 0 };

	strcpy(ifr.ifr_name, ifname);
	if (ioctl(fd, SIOCGIFHWADDR, &ifr))
		return -1;
	if (ifr.ifr_hwaddr.sa_family != ARPHRD_ETHER)
		return 1;	/* nobody asks for addresses there */
	memcpy(mac, ifr.ifr_hwaddr.sa_data, ETH_ALEN);
	return 0;
}

static int send_arp(int fd, const struct address *a, const uint8_t mac[ETH_ALEN], int op)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ARP),
		.sll_ifindex = if_nametoindex(a->here), .sll_halen = ETH_ALEN,
	};
	struct arp_packet packet = { .head = {
		.ar_hrd = htons(ARPHRD_ETHER), .ar_pro = htons(ETH_P_IP), .ar_hln = ETH_ALEN,
		.ar_pln = 4, .ar_op = htons(op),
	} };

	memset(to.sll_addr, 0xff, ETH_ALEN);
	memcpy(packet.sender_mac, mac, ETH_ALEN);
	memcpy(packet.sender_ip, &a->addr, 4);
	if (op == ARPOP_REPLY)
		memcpy(packet.target_mac, mac, ETH_ALEN);
	memcpy(packet.target_ip, &a->addr, 4);
	return sendto(fd, &packet, sizeof(packet), 0, (struct sockaddr *)&to, sizeof(to)) < 0 ? -1 : 0;
}

static int announce_arp(const struct address *a)
{
	int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint8_t mac[ETH_ALEN];
	int ret = fd < 0 ? -1 : interface_mac(fd, a->here, mac);

	if (ret == 0)
		ret = send_arp(fd, a, mac, ARPOP_REQUEST) ?: send_arp(fd, a, mac, ARPOP_REPLY);
	close_fd(&fd);
	return ret < 0 ? -1 : 0;
}

struct advertisement {
	struct nd_neighbor_advert head;
	struct nd_opt_hdr option;
	uint8_t mac[ETH_ALEN];
} __attribute__((packed));

static int announce_nd(const struct address *a)
{
	int fd = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6);
	struct sockaddr_in6 from = { .sin6_family = AF_INET6, .sin6_addr = a->addr };
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_scope_id = if_nametoindex(a->here) };
	struct advertisement packet = {
		.head = {
			.nd_na_type = ND_NEIGHBOR_ADVERT, .nd_na_flags_reserved = ND_NA_FLAG_OVERRIDE,
			.nd_na_target = a->addr,
		},
		.option = { .nd_opt_type = ND_OPT_TARGET_LINKADDR, .nd_opt_len = 1 },
	};
	int hops = 255, ret = fd < 0 ? -1 : interface_mac(fd, a->here, packet.mac);

	from.sin6_scope_id = to.sin6_scope_id;
	inet_pton(AF_INET6, "ff02::1", &to.sin6_addr);
	if (ret == 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof(hops)) ||
			 setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &to.sin6_scope_id, sizeof(int)) ||
			 bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
			 sendto(fd, &packet, sizeof(packet), 0, (struct sockaddr *)&to, sizeof(to)) < 0))
		ret = -1;
	close_fd(&fd);
	return ret < 0 ? -1 : 0;
}

int addresses_announce(const struct addresses *list)
{
	int failures = 0;

	for (size_t i = 0; i < list->n; i++) {
		const struct address *a = &list->address[i];

		if ((a->family == AF_INET ? announce_arp(a) : announce_nd(a))) {
			fault("address %s could not be announced on %s: %s", a->text, a->here,
			      strerror(errno));
			failures++;
		}
	}
	return failures ? -1 : 0;
}
