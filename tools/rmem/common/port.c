// SPDX-License-Identifier: MIT
/* The RDMA port that has an IP address. */
#include <errno.h>
#include <arpa/inet.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <string.h>
#include "common.h"
#include "why.h"

int rmem_gid_of(const struct sockaddr *address, union ibv_gid *gid)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;

	memset(gid, 0, sizeof(*gid));
	switch (address->sa_family) {
	case AF_INET6:
		memcpy(gid->raw, &six->sin6_addr, 16);
		return 0;
	case AF_INET:
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &four->sin_addr, 4);
		return 0;
	default:
		return -1;
	}
}

static int find_gid(struct ibv_context *context, uint8_t num, const struct ibv_port_attr *attr, struct rmem_port *port)
{
	struct ibv_gid_entry entry;

	for (int i = 0; i < attr->gid_tbl_len && i <= UINT8_MAX; i++) {
		if (ibv_query_gid_ex(context, num, i, &entry, 0) || entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(&entry.gid, &port->gid, sizeof(entry.gid)))
			continue;
		port->num = num;
		port->gid_index = i;
		port->mtu = attr->active_mtu;
		return 0;
	}
	return -1;
}

static int look_in(struct ibv_context *context, struct rmem_port *port)
{
	struct ibv_device_attr_ex device = { 0 };
	struct ibv_port_attr attr;

	if (ibv_query_device_ex(context, NULL, &device))
		return -1;
	for (unsigned int num = 1; num <= device.orig_attr.phys_port_cnt; num++) {
		if (ibv_query_port(context, num, &attr) || attr.state != IBV_PORT_ACTIVE)
			continue;
		if (find_gid(context, num, &attr, port))
			continue;
		port->context = context;
		port->atomic_write = device.device_cap_flags_ex & IB_UVERBS_DEVICE_ATOMIC_WRITE;
		return 0;
	}
	return -1;
}

static int look_everywhere(struct ibv_device **list, const char *device, struct rmem_port *port)
{
	for (; *list; list++) {
		struct ibv_context *context;

		if (device && strcmp(device, ibv_get_device_name(*list)))
			continue;
		context = ibv_open_device(*list);
		if (!context)
			continue;
		if (!look_in(context, port))
			return 0;
		ibv_close_device(context);
	}
	return -1;
}

int rmem_port_of(const struct sockaddr *local, const char *device, struct rmem_port *port, char **why)
{
	char text[INET6_ADDRSTRLEN] = "?";
	struct ibv_device **list;
	int ret;

	memset(port, 0, sizeof(*port));
	if (rmem_gid_of(local, &port->gid))
		return rmem_why(why, "address: it is neither IPv4 nor IPv6: connect by one of these");
	list = ibv_get_device_list(NULL);
	if (!list)
		return rmem_why(why, "RDMA devices: %s: rdma link add NAME type rxe netdev INTERFACE", strerror(errno));
	ret = look_everywhere(list, device, port);
	ibv_free_device_list(list);
	if (!ret)
		return 0;
	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)port->gid.raw))
		inet_ntop(AF_INET, port->gid.raw + 12, text, sizeof(text));
	else
		inet_ntop(AF_INET6, port->gid.raw, text, sizeof(text));
	if (device)
		return rmem_why(why, "%s: it has no active port with the address %s: name another device", device, text);
	return rmem_why(why, "%s: no RDMA device has this address: rdma link add NAME type rxe netdev INTERFACE", text);
}
