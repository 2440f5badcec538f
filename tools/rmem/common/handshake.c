// SPDX-License-Identifier: MIT
/* The client's side of the handshake over TCP. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include "common.h"
#include "dial.h"
#include "why.h"

static const struct {
	enum rmem_status status;
	int error;
	const char *text;
} answers[] = {
	{ RMEM_BAD_MESSAGE, EPROTO, "it did not understand a message: use the same version on both sides" },
	{ RMEM_BAD_VERSION, EPROTO, "it speaks another version: use the same version on both sides" },
	{ RMEM_DENIED, EACCES, "it does not know this name with this key, or sees another address: see its log and rmemd.conf" },
	{ RMEM_FULL, ENOMEM, "it has no room: free regions, or raise its limits" },
	{ RMEM_DRAINING, EBUSY, "it is being drained: use another donor" },
	{ RMEM_NO_TAG, ENOENT, "there is no such tag" },
	{ RMEM_OTHER_SIZE, EEXIST, "the tag has another size or other flags" },
	{ RMEM_OUT_OF_RANGE, ERANGE, "a range is not in a region of this client" },
	{ RMEM_OVERLAP, EINVAL, "the ranges of a copy overlap" },
	{ RMEM_BAD_TXN, EPROTO, "it does not expect this transaction: let one process alone use a client's name" },
	{ RMEM_NOT_DURABLE, EIO, "its disk failed: start it with a good one" },
	{ RMEM_EMPTY, EINVAL, "the size is 0" },
};

const char *rmem_status_text(unsigned int status, int *error)
{
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		if (answers[i].status != status)
			continue;
		*error = -answers[i].error;
		return answers[i].text;
	}
	*error = -EPROTO;
	return "its answer has a status that is not known here: use the same version on both sides";
}

static int refused(const struct rmem_dest *dest, const char *what, unsigned int status, char **why)
{
	int error;
	const char *text = rmem_status_text(status, &error);

	rmem_why(why, "donor %s: %s: %s", dest->host, what, text);
	return error;
}

static int say_hello(const struct rmem_dest *dest, struct rmem_handshake *h, char **why)
{
	socklen_t size = sizeof(h->local);
	int ret;

	if (getsockname(h->fd, (struct sockaddr *)&h->local, &size)) {
		ret = -errno;
		rmem_why(why, "donor %s: %s", dest->host, strerror(-ret));
		return ret;
	}
	h->hello = (struct rmem_hello){ .magic = htole32(RMEM_MAGIC), .version = htole32(RMEM_VERSION) };
	strncpy(h->hello.client, dest->client, sizeof(h->hello.client) - 1);
	rmem_random(h->hello.nonce, sizeof(h->hello.nonce));
	ret = rmem_tcp_send(dest->host, h->fd, &h->hello, sizeof(h->hello), h->deadline, why);
	if (!ret)
		ret = rmem_tcp_receive(dest->host, h->fd, &h->challenge, sizeof(h->challenge), h->deadline, why);
	return ret;
}

int rmem_greet(const struct rmem_dest *dest, struct rmem_handshake *h, char **why)
{
	int ret;

	h->fd = rmem_dial(dest->host, dest->service, &h->deadline, why);
	if (h->fd < 0)
		return h->fd;
	ret = say_hello(dest, h, why);
	if (ret)
		return ret;
	if (le32toh(h->challenge.magic) != RMEM_MAGIC) {
		rmem_why(why, "donor %s, port %s: what answers there is not rmemd: name its port", dest->host, dest->service);
		return -EPROTO;
	}
	if (h->challenge.status)
		return refused(dest, "a connection", le32toh(h->challenge.status), why);
	if (le32toh(h->challenge.version) != RMEM_VERSION)
		return refused(dest, "a connection", RMEM_BAD_VERSION, why);
	return 0;
}

int rmem_prove(const struct rmem_dest *dest, struct rmem_handshake *h, char **why)
{
	uint8_t mac[RMEM_MAC_SIZE];
	int ret;

	rmem_mac_client(h->proof.mac, dest->key, &h->hello, &h->challenge, &h->proof.qp);
	ret = rmem_tcp_send(dest->host, h->fd, &h->proof, sizeof(h->proof), h->deadline, why);
	if (!ret)
		ret = rmem_tcp_receive(dest->host, h->fd, &h->welcome, sizeof(h->welcome), h->deadline, why);
	if (ret)
		return ret;
	if (h->welcome.status)
		return refused(dest, dest->client, le32toh(h->welcome.status), why);
	rmem_mac_donor(mac, dest->key, &h->hello, &h->challenge, &h->proof, &h->welcome);
	if (rmem_mac_equal(mac, h->welcome.mac))
		return 0;
	rmem_why(why, "donor %s: it does not know the key of %s: another host has its address?", dest->host, dest->client);
	return -EACCES;
}
