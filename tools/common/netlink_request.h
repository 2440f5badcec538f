/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * A request to netlink, and the way to its answers.
 */
#ifndef COMMON_NETLINK_REQUEST_H
#define COMMON_NETLINK_REQUEST_H

#include <linux/netlink.h>
#include <stddef.h>

struct nl_request {
	struct nlmsghdr head;
	char body[512];
};

struct nl_request nl_request(int type, int flags);
/* Append data, with padding before it. Gives the place of the copy. There is room for a header and a few attributes. */
void *nl_put(struct nl_request *r, const void *data, size_t length);
void nl_put_attr(struct nl_request *r, int type, const void *data, size_t length);

/* All of these give 0 or a negative errno; nl_open() a socket. each: called for each answer, or NULL. */
int nl_open(int protocol);
int nl_receive(int fd, void (*each)(const struct nlmsghdr *, void *), void *arg);
int nl_ask(int fd, const struct nl_request *r, void (*each)(const struct nlmsghdr *, void *), void *arg);
/* The same over a socket of its own. */
int nl_talk(int protocol, const struct nl_request *r, void (*each)(const struct nlmsghdr *, void *), void *arg);

/* The first attribute of this type, of this length or more, between two places; or NULL. */
const struct nlattr *nl_find_between(const void *from, const void *to, int type, size_t length);
/* What is in the first such attribute behind the header of a message; or NULL. */
const void *nl_find_attr(const struct nlmsghdr *h, size_t header, int type, size_t length);

#endif /* COMMON_NETLINK_REQUEST_H */
