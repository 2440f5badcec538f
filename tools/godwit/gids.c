// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gids.h"
#include "netlink.h"
#include "rdma.h"
#include "text.h"

int interface_mtu(const char *ifname)
{
	char *path = xasprintf("/sys/class/net/%s/mtu", ifname);
	char *text = read_file(path);
	int mtu = text ? atoi(text) : 0;

	free(text);
	free(path);
	return mtu;
}

int path_mtu_within(int mtu)
{
	int bytes = 4096;

	while (bytes > 256 && bytes + PATH_MTU_HEADERS > mtu)
		bytes /= 2;
	return bytes;
}

/* ------------------------------------------------------------- a device's -- */

/* The address of an interface that this GID stands for, or NULL. */
static const struct nl_address *address_of(const struct gid *gid, const struct nl_address *list, ssize_t n)
{
	struct nl_address wanted = nl_of_gid(&gid->gid);

	for (ssize_t i = 0; i < n; i++)
		if (list[i].ifindex == gid->ifindex && nl_same_address(&list[i], &wanted))
			return &list[i];
	return NULL;
}

json_t *gids_json(const char *device)
{
	struct nl_address *address = NULL;
	ssize_t addresses = nl_addresses(AF_UNSPEC, &address);
	json_t *list = json_array();
	struct gid *gid;
	size_t n = rdma_gids(device, &gid);
	int mtu = 0;

	for (size_t i = 0; i < n; i++) {
		const struct nl_address *a = address_of(&gid[i], address, addresses);
		char text[INET6_ADDRSTRLEN];

		if (!i || gid[i].ifindex != gid[i - 1].ifindex)
			mtu = interface_mtu(gid[i].ifname);
		inet_ntop(AF_INET6, &gid[i].gid, text, sizeof(text));
		/* A VLAN has the link-local GID of the interface below it. A restore finds GIDs by value, so it takes the first. */
		if (!gid[i].rocev2 || gids_find(list, text))
			continue;
		json_array_append_new(list, json_pack("{s:s, s:o, s:b, s:i, s:b, s:i}", "gid", text,
			"interface", text_json(gid[i].ifname), "own", gid[i].own, "prefix", a ? a->prefixlen : -1,
			"secondary", a && a->secondary, "mtu", mtu));
	}
	free(gid);
	free(address);
	return list;
}

json_t *gids_find(json_t *gids, const char *gid)
{
	json_t *entry;
	size_t i;

	json_array_foreach(gids, i, entry)
		if (!strcmp(json_string_value(json_object_get(entry, "gid")) ?: "", gid))
			return entry;
	return NULL;
}

/* -------------------------------------------------------------- the choice -- */

struct subnet {
	struct in6_addr gid;
	struct nl_address address;
	bool own;
};

/* The subnet of a GID; -1: it is in none. */
static int subnet_of(json_t *entry, struct subnet *s)
{
	const char *text = json_string_value(json_object_get(entry, "gid"));

	if (!text || inet_pton(AF_INET6, text, &s->gid) != 1)
		return -1;
	s->address = nl_of_gid(&s->gid);
	s->address.prefixlen = json_integer_value(json_object_get(entry, "prefix"));
	s->address.secondary = json_is_true(json_object_get(entry, "secondary"));
	s->own = json_is_true(json_object_get(entry, "own"));
	return s->address.prefixlen < 0 || s->address.prefixlen > (s->address.family == AF_INET ? 32 : 128) ? -1 : 0;
}

/*
 * Can a GID of the new subnet take the place of one of the old? All links have the same link-local subnet: it counts only if
 * both GIDs are on the devices' own interfaces.
 */
static bool stands_for(const struct subnet *new, const struct subnet *old)
{
	return new->address.prefixlen == old->address.prefixlen && nl_same_subnet(&old->address, &new->address) &&
	       (!IN6_IS_ADDR_LINKLOCAL(&old->gid) || (new->own && old->own));
}

/* "10.99.0.0/24" */
static const char *subnet_text(const struct subnet *s, char text[INET6_ADDRSTRLEN + 4])
{
	struct in6_addr net = s->address.addr;

	for (int bit = s->address.prefixlen; bit < 128; bit++)
		net.s6_addr[bit / 8] &= ~(0x80 >> bit % 8);
	inet_ntop(s->address.family, &net, text, INET6_ADDRSTRLEN);
	sprintf(text + strlen(text), "/%d", s->address.prefixlen);
	return text;
}

const char *gids_choose(json_t *here, json_t *there, const char *old, const char *host, const char *device)
{
	const char *found = NULL;
	char name[INET6_ADDRSTRLEN], first[INET6_ADDRSTRLEN], second[INET6_ADDRSTRLEN], net[INET6_ADDRSTRLEN + 4];
	struct subnet gone, new, candidate, rival;
	bool several = false;
	json_t *entry;
	size_t i;

	if (subnet_of(gids_find(here, old), &gone)) {
		fault("%s: GID %s stays behind, and is no address of this host that has a subnet: give --gid %s=GID", host, old, old);
		return NULL;
	}
	json_array_foreach(there, i, entry) {
		/* A secondary address may have come with another process, and may leave with it. A temporary address ends. */
		if (subnet_of(entry, &new) || new.address.secondary || !stands_for(&new, &gone))
			continue;
		several = found;
		if (found)
			rival = new;
		else
			candidate = new;
		found = found ?: json_string_value(json_object_get(entry, "gid"));
	}
	if (found && !several)
		return found;
	ip_text(&gone.gid, name);
	if (!found)
		fault("%s: GID %s stays behind, and %s there has no address in its subnet %s: add one, or give --address %s, or "
		      "--gid %s=GID", host, name, device, subnet_text(&gone, net), name, name);
	else
		fault("%s: GID %s stays behind, and both %s and %s of %s there are in its subnet: give --gid %s=GID, or "
		      "--address %s", host, name, ip_text(&candidate.gid, first), ip_text(&rival.gid, second),
		      device, name, name);
	return NULL;
}

/* -------------------------------------------------------- the command line -- */

/* Write an address as inet_ntop() writes the GID; IPv4 is mapped. */
static int canonical(const char *ip, size_t length, char gid[INET6_ADDRSTRLEN])
{
	struct in6_addr raw = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
	char text[INET6_ADDRSTRLEN];

	if (length >= sizeof(text))
		return -1;
	memcpy(text, ip, length);
	text[length] = '\0';
	if (inet_pton(AF_INET, text, &raw.s6_addr[12]) != 1 && inet_pton(AF_INET6, text, &raw) != 1)
		return -1;
	inet_ntop(AF_INET6, &raw, gid, INET6_ADDRSTRLEN);
	return 0;
}

int gids_parse(json_t *map, const char *text)
{
	char old[INET6_ADDRSTRLEN], new[INET6_ADDRSTRLEN];
	const char *is = strchr(text, '=');

	if (!is || canonical(text, is - text, old) || canonical(is + 1, strlen(is + 1), new))
		return fault("--gid %s: it is not of the form OLD=NEW, two IP addresses", text);
	if (json_object_get(map, old))
		return fault("--gid %s: %.*s was given before", text, (int)(is - text), text);
	json_object_set_new(map, old, json_string(new));
	return 0;
}
