// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "wire.h"

/* Frames that wait to be sent with more of them. (There is one connection at a time.) */
static char waiting[65536];
static size_t num_waiting;
static bool corked;

static int await(int fd, short events, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	do
		n = poll(&p, 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : -1;
}

static int write_all(int fd, const char *data, size_t length)
{
	/* A non-blocking write takes what there is room for, and we see when there is no room for long. */
	if (length)
		fcntl(fd, F_SETFL, O_WRONLY | O_NONBLOCK);
	while (length) {
		ssize_t n;

		if (await(fd, POLLOUT, STALL_MS))
			return fault("the connection takes no data any more");
		n = write(fd, data, length);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return fault("the connection is lost: %s", strerror(errno));
		if (n > 0) {
			data += n;
			length -= n;
		}
	}
	return 0;
}

static int read_some(int fd, char *data, size_t length, int timeout_ms)
{
	while (length) {
		ssize_t n;

		if (await(fd, POLLIN, timeout_ms))
			return fault("the other end does not answer");
		n = read(fd, data, length);
		if (n == 0)
			return fault("the connection is lost");
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return fault("the connection is lost: %s", strerror(errno));
		if (n > 0) {
			data += n;
			length -= n;
		}
		timeout_ms = STALL_MS;
	}
	return 0;
}

static int flush(const struct wire *wire)
{
	size_t length = num_waiting;

	num_waiting = 0;
	return write_all(wire->out, waiting, length);
}

static int send_frame(const struct wire *wire, char type, const void *data, size_t length)
{
	char head[5];
	uint32_t be = htonl(length);

	memcpy(head, &be, 4);
	head[4] = type;
	if (num_waiting + sizeof(head) + length > sizeof(waiting) && flush(wire))
		return -1;
	memcpy(waiting + num_waiting, head, sizeof(head));
	num_waiting += sizeof(head);
	if (num_waiting + length <= sizeof(waiting)) {
		memcpy(waiting + num_waiting, data, length);
		num_waiting += length;
		return corked ? 0 : flush(wire);
	}
	return flush(wire) ?: write_all(wire->out, data, length);
}

void wire_cork(void)
{
	corked = true;
}

int wire_uncork(const struct wire *wire)
{
	corked = false;
	return flush(wire);
}

int wire_send(const struct wire *wire, json_t *message)
{
	char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
	int ret;

	json_decref(message);
	if (!text)
		return fault("a message could not be put together");
	ret = send_frame(wire, WIRE_JSON, text, strlen(text));
	free(text);
	return ret;
}

int wire_send_data(const struct wire *wire, const void *data, size_t length)
{
	return send_frame(wire, WIRE_DATA, data, length);
}

static int receive_json(const struct wire *wire, json_t **message, size_t length)
{
	char *text = xcalloc(1, length + 1);
	int ret = read_some(wire->in, text, length, STALL_MS);

	if (!ret) {
		*message = json_loadb(text, length, 0, NULL);
		if (!json_is_object(*message)) {
			json_decref(*message);
			*message = NULL;
			ret = fault("the other end talks no sense: is it godwit?");
		}
	}
	free(text);
	return ret;
}

int wire_receive(const struct wire *wire, json_t **message, void *data, size_t *length, int timeout_ms)
{
	size_t size = data ? *length : 0;
	char head[5];
	uint32_t be;

	*message = NULL;
	if (read_some(wire->in, head, sizeof(head), timeout_ms))
		return -1;
	memcpy(&be, head, 4);
	be = ntohl(be);
	/* The rest of a frame follows soon, or its sender is dead. */
	if (head[4] == WIRE_JSON && be <= WIRE_MAX)
		return receive_json(wire, message, be);
	if (head[4] == WIRE_DATA && be <= size) {
		*length = be;
		return read_some(wire->in, data, be, STALL_MS);
	}
	return fault("the other end talks no sense: is it godwit?");
}

bool wire_ready(const struct wire *wire, int timeout_ms)
{
	return await(wire->in, POLLIN, timeout_ms) == 0;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t length)
{
	static uint32_t table[256];
	const uint8_t *p = data;

	if (!table[1])
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = i;

			for (int bit = 0; bit < 8; bit++)
				c = c & 1 ? c >> 1 ^ 0x82f63b78 : c >> 1;
			table[i] = c;
		}
	crc = ~crc;
	while (length--)
		crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
	return ~crc;
}
