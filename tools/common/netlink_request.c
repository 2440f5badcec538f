// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "netlink_request.h"

void *nl_put(struct nl_request *r, const void *data, size_t length)
{
	char *at = (char *)r + NLMSG_ALIGN(r->head.nlmsg_len);

	memcpy(at, data, length);
	r->head.nlmsg_len = NLMSG_ALIGN(r->head.nlmsg_len) + length;
	return at;
}

void nl_put_attr(struct nl_request *r, int type, const void *data, size_t length)
{
	struct nlattr attr = { .nla_len = NLA_HDRLEN + length, .nla_type = type };

	nl_put(r, &attr, sizeof(attr));
	nl_put(r, data, length);
}

struct nl_request nl_request(int type, int flags)
{
	return (struct nl_request){ .head = {
		.nlmsg_len = NLMSG_HDRLEN, .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags,
		.nlmsg_seq = 1,
	} };
}

int nl_open(int protocol)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	return fd < 0 ? -errno : fd;
}

/* Read answers until the acknowledge or the end of a dump. each() gets all answers before that. */
int nl_receive(int fd, void (*each)(const struct nlmsghdr *, void *), void *arg)
{
	static char buf[65536] __attribute__((aligned(NLMSG_ALIGNTO)));

	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);
		const struct nlmsghdr *h;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		for (h = (void *)buf; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_ERROR)
				return ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (each)
				each(h, arg);
		}
	}
}

int nl_ask(int fd, const struct nl_request *r, void (*each)(const struct nlmsghdr *, void *), void *arg)
{
	return send(fd, r, r->head.nlmsg_len, 0) < 0 ? -errno : nl_receive(fd, each, arg);
}

int nl_talk(int protocol, const struct nl_request *r, void (*each)(const struct nlmsghdr *, void *),
		void *arg)
{
	int fd = nl_open(protocol), ret;

	if (fd < 0)
		return fd;
	ret = nl_ask(fd, r, each, arg);
	close(fd);
	return ret;
}

const struct nlattr *nl_find_between(const void *from, const void *to, int type, size_t length)
{
	const struct nlattr *attr = from;

	for (; (const void *)(attr + 1) <= to && attr->nla_len >= NLA_HDRLEN;
	     attr = (void *)((char *)attr + NLA_ALIGN(attr->nla_len)))
		if ((attr->nla_type & NLA_TYPE_MASK) == type && attr->nla_len >= NLA_HDRLEN + length)
			return attr;
	return NULL;
}

const void *nl_find_attr(const struct nlmsghdr *h, size_t header, int type, size_t length)
{
	const struct nlattr *attr = nl_find_between((char *)NLMSG_DATA(h) + NLMSG_ALIGN(header),
						 (const char *)h + h->nlmsg_len, type, length);

	return attr ? attr + 1 : NULL;
}
