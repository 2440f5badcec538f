// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "address.h"
#include "netlink.h"
#include "rdma.h"

int address_parse(struct addresses *list, const char *text)
{
	struct address a = { .prefixlen = -1 };
	char *copy = xstrdup(text), *ifname, *len, *end = NULL;

	ifname = strchr(copy, '%');
	if (ifname)
		*ifname++ = '\0';
	len = strchr(copy, '/');
	if (len)
		*len++ = '\0';
	if (len)
		a.prefixlen = strtol(len, &end, 10);
	a.family = strchr(copy, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(a.family, copy, &a.addr) != 1 || (len && (!*len || *end)) ||
	    (len && (a.prefixlen < 0 || a.prefixlen > (a.family == AF_INET ? 32 : 128))) ||
	    (ifname && (!*ifname || strlen(ifname) >= IFNAMSIZ))) {
		free(copy);
		return fault("address %s: it is not of the form ADDRESS/LENGTH%%INTERFACE", text);
	}
	snprintf(a.ifname, sizeof(a.ifname), "%s", ifname ? ifname : "");
	inet_ntop(a.family, &a.addr, a.text, sizeof(a.text));
	free(copy);
	GROW(list->address, list->n);
	list->address[list->n++] = a;
	return 0;
}

const char *ip_text(const struct in6_addr *a, char text[INET6_ADDRSTRLEN])
{
	if (IN6_IS_ADDR_V4MAPPED(a))
		return inet_ntop(AF_INET, &a->s6_addr[12], text, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, a, text, INET6_ADDRSTRLEN);
}

socklen_t ip_port(const struct in6_addr *a, int port, union ip_port *to)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(a);

	*to = (union ip_port){ 0 };
	if (v4) {
		to->in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
		memcpy(&to->in.sin_addr, &a->s6_addr[12], 4);
	} else {
		to->in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = *a };
	}
	return v4 ? sizeof(to->in) : sizeof(to->in6);
}

bool ip_text_is(const char *with_length, const char *address)
{
	size_t len = strlen(address);

	return with_length && !strncmp(with_length, address, len) && with_length[len] == '/';
}

void addresses_free(struct addresses *list)
{
	free(list->address);
	*list = (struct addresses){ 0 };
}

static struct in6_addr as_gid(const struct address *a)
{
	struct in6_addr gid = a->addr;

	if (a->family == AF_INET) {
		memset(&gid, 0, sizeof(gid));
		gid.s6_addr[10] = gid.s6_addr[11] = 0xff;
		memcpy(&gid.s6_addr[12], &a->addr, 4);
	}
	return gid;
}

const struct address *addresses_find(const struct addresses *list, const struct in6_addr *gid)
{
	for (size_t i = 0; i < list->n; i++) {
		struct in6_addr a = as_gid(&list->address[i]);

		if (!memcmp(&a, gid, sizeof(a)))
			return &list->address[i];
	}
	return NULL;
}

bool addresses_have(const struct addresses *list, const struct in6_addr *gid)
{
	return addresses_find(list, gid);
}

json_t *addresses_json(const struct addresses *list)
{
	json_t *array = json_array();

	for (size_t i = 0; i < list->n; i++) {
		const struct address *a = &list->address[i];
		char *text = xasprintf("%s/%d%%%s", a->text, a->prefixlen, a->ifname);

		json_array_append_new(array, json_string(text));
		free(text);
	}
	return array;
}

int addresses_from_json(struct addresses *list, json_t *json)
{
	json_t *value;
	size_t i;

	json_array_foreach(json, i, value)
		if (!json_is_string(value) || address_parse(list, json_string_value(value)))
			return fault("an address of the move makes no sense");
	return 0;
}

/* ----------------------------------------------------- may it be moved? -- */

static struct nl_address as_nl(const struct address *a)
{
	return (struct nl_address){
		.family = a->family, .addr = a->addr, .prefixlen = a->prefixlen,
		.ifindex = if_nametoindex(a->ifname),
	};
}

int addresses_check_source(struct addresses *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct address *a = &list->address[i];
		struct nl_address nl = as_nl(a);
		int ret = nl_address_find(&nl);

		if (ret)
			return fault("address %s: %s", a->text, ret == -ENOENT ?
				     "this host does not have it" : strerror(-ret));
		if (nl_address_has_secondaries(&nl))
			return fault("address %s: others of its subnet would vanish with it, as they are "
				     "secondary to it: add it after them", a->text);
		if (a->prefixlen < 0)
			a->prefixlen = nl.prefixlen;
		if (!if_indextoname(nl.ifindex, a->here))
			return fault("address %s: %s", a->text, strerror(errno));
		if (!a->ifname[0])
			strcpy(a->ifname, a->here);
	}
	return 0;
}

int addresses_check_destination(const struct addresses *list)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct address *a = &list->address[i];
		struct nl_address nl = as_nl(a);

		if (!nl.ifindex)
			return fault("address %s: the destination has no interface %s: give "
				     "--address %s/%d%%INTERFACE", a->text, a->ifname, a->text, a->prefixlen);
		if (nl_address_find(&nl) == 0)
			return fault("address %s: the destination has it already", a->text);
	}
	return 0;
}

/* ------------------------------------------------------------ kept quiet -- */

static char *quiet_name(const char *id)
{
	return xasprintf("godwit-%s", id);
}

int addresses_keep_quiet(const struct addresses *list, const char *id, bool asleep)
{
	static const char *const argv[] = { "nft", "-f", "-", NULL };
	const char *flags = asleep ? " flags dormant;" : "";
	char *name = quiet_name(id), *text = NULL, *output = NULL;
	size_t size;
	FILE *f;
	int ret;

	if (!list->n) {
		free(name);
		return 0;
	}
	f = open_memstream(&text, &size);
	if (!f)
		return fault("nftables: out of memory");
	fprintf(f, "table inet %s {%s\n"
		" chain output { type filter hook output priority -10; }\n"
		" chain input { type filter hook input priority -10; }\n}\n"
		"table arp %s {%s\n chain output { type filter hook output priority -10; }\n}\n", name, flags, name,
		flags);
	for (size_t i = 0; i < list->n; i++) {
		const struct address *a = &list->address[i];
		const char *ip = a->family == AF_INET ? "ip" : "ip6";

		fprintf(f, "add rule inet %s output %s saddr %s drop\n", name, ip, a->text);
		fprintf(f, "add rule inet %s input %s daddr %s drop\n", name, ip, a->text);
		if (a->family == AF_INET)
			fprintf(f, "add rule arp %s output arp saddr ip %s drop\n", name, a->text);
		else
			fprintf(f, "add rule inet %s output icmpv6 taddr %s drop\n", name, a->text);
	}
	fclose(f);
	ret = run(argv, text, &output);
	if (ret)
		fault("nft can't keep the address quiet: %s", output ? output : "it could not be run");
	free(output);
	free(text);
	free(name);
	return ret ? -1 : 0;
}

int addresses_quiet_now(const struct addresses *list, const char *id)
{
	char *name = quiet_name(id);
	int ret = list->n ? nl_tables_wake(name) : 0;

	free(name);
	return ret ? fault("nftables: %s could not be made quiet: %s", list->address[0].text, strerror(-ret)) : 0;
}

int addresses_end_quiet(const struct addresses *list, const char *id)
{
	char *name = quiet_name(id);
	int ret = list->n ? nl_tables_delete(name) : 0;

	if (ret)
		fault("nftables: the tables %s could not be deleted (%s): do it by hand", name, strerror(-ret));
	free(name);
	return ret ? -1 : 0;
}

/* ------------------------------------------------------- to have and not -- */

int addresses_add(struct addresses *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct address *a = &list->address[i];
		struct nl_address nl = as_nl(a);
		int ret = nl_address_add(&nl);

		a->added = ret == 0;
		if (ret)
			return fault("address %s can't be added to %s: %s", a->text, a->ifname, strerror(-ret));
		strcpy(a->here, a->ifname);
	}
	return 0;
}

int addresses_del(struct addresses *list, bool added_only)
{
	int failures = 0;

	for (size_t i = list->n; i-- > 0;) {
		struct address *a = &list->address[i];
		struct nl_address nl = as_nl(a);
		int ret;

		if (added_only && !a->added)
			continue;
		ret = nl_address_find(&nl) ?: nl_address_del(&nl);
		if (ret && ret != -ENOENT && ret != -EADDRNOTAVAIL) {
			fault("address %s can't be taken from %s: %s", a->text, a->here, strerror(-ret));
			failures++;
		} else {
			a->added = false;
		}
	}
	return failures ? -1 : 0;
}

int addresses_wait_gids(const struct addresses *list, int timeout_ms)
{
	int64_t end = now_ns() + timeout_ms * INT64_C(1000000);

	for (size_t i = 0; i < list->n; i++) {
		struct in6_addr gid = as_gid(&list->address[i]);
		const char *ifname = list->address[i].ifname;

		/* The kernel adds the GID from a work item, and sysfs has no way to wait for that. */
		while (!rdma_has_gid(ifname, &gid) && rdma_on_interface(ifname)) {
			if (now_ns() > end)
				return fault("address %s: its GID did not appear on %s's RDMA device",
					     list->address[i].text, ifname);
			poll(NULL, 0, 1);
		}
	}
	return 0;
}

int addresses_kill_sockets(const struct addresses *list)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct address *a = &list->address[i];
		int ret = a->added ? nl_tcp_destroy(a->family, &a->addr) : 0;

		if (ret)
			return fault("TCP sockets of %s could not be destroyed: %s", a->text, strerror(-ret));
	}
	return 0;
}
