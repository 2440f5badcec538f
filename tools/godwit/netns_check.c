// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Whether this host could make a network namespace: nothing that it brings along is here already.
 */
#include <net/if.h>
#include <string.h>
#include "host.h"
#include "netlink.h"
#include "netns_open.h"
#include "rdma.h"
#include "text.h"

/* Check the namespace that we are in, which messages call `there`: nothing has the MAC address, or one of the IP addresses. */
static void check_taken(const struct iface *i, const char *there, json_t *problems)
{
	json_t *list = run_json((const char *const[]){ "ip", "-j", "link", "show", NULL }), *link;
	size_t j;

	json_array_foreach(list, j, link)
		if (i->mac && !strcasecmp(text_of(link, "address") ?: "", i->mac))
			problem(problems, "interface %s: %s of %s has its MAC address %s there: give that one another", i->ifname,
				text_of(link, "ifname") ?: "?", there, i->mac);
	json_decref(list);
	for (j = 0; j < i->addresses.n; j++) {
		const struct address *a = &i->addresses.address[j];
		struct nl_address nl = { .family = a->family, .addr = a->addr };

		if (nl_address_find(&nl) == 0)
			problem(problems, "address %s: %s has it already: take it away there", a->text, there);
	}
}

static int check_inside(struct netns *n, void *problems)
{
	const char *const argv[] = { "nft", "list", "table", "netdev", NETNS_TABLE, NULL };

	for (size_t i = 0; i < n->n; i++) {
		if (if_nametoindex(n->iface[i].ifname))
			problem(problems, "interface %s: %s has one of that name there: take it away there", n->iface[i].ifname,
				n->path);
		check_taken(&n->iface[i], n->path, problems);
	}
	if (run(argv, NULL, NULL) == 0)
		problem(problems, "nftables: %s has the table netdev " NETNS_TABLE " there, of another move: end that, or delete "
			"the table", n->path);
	return 0;
}

void netns_check(json_t *json, json_t *problems)
{
	struct netns n;

	json_object_del(json, "cookie");	/* the source's */
	if (netns_open(&n, json) || host_check_nft())
		goto failed;
	for (size_t i = 0; i < n.n; i++) {
		const char *device = n.iface[i].device;

		if (iface_check_parent(&n.iface[i], " there"))
			problem(problems, "%s", fault_text());
		fault_clear();
		check_taken(&n.iface[i], "the destination", problems);
		if (device && rdma_name_is_taken(device))
			problem(problems, "device %s: there is one of that name there: take it away there (godwit link del %s)",
				device, device);
	}
	netns_check_sysctls(&n, problems);
	if (n.ns < 0 || !netns_inside(&n, check_inside, problems)) {
		netns_close(&n);
		return;
	}
failed:
	problem(problems, "%s", fault_text());
	fault_clear();
	netns_close(&n);
}
