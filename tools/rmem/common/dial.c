// SPDX-License-Identifier: MIT
/* A TCP connection with a deadline, and the clock of the deadline. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common.h"
#include "dial.h"
#include "why.h"

int64_t rmem_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int wait_for(int fd, short events, int64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = events };

	for (;;) {
		int64_t left = deadline - rmem_now_ms();
		int n = left > 0 ? poll(&p, 1, left) : 0;

		if (n > 0)
			return 0;
		if (!n)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

static int dial_one(const struct addrinfo *ai, int64_t deadline)
{
	int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
	socklen_t size = sizeof(int);
	int error = 0, ret = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, ai->ai_addr, ai->ai_addrlen))
		ret = errno == EINPROGRESS ? wait_for(fd, POLLOUT, deadline) : -errno;
	if (!ret && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
		error = errno;
	if (!ret)
		ret = -error;
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/* Each address gets its share of the time, since one that drops all packets would leave none to the others. */
static int dial_each(const struct addrinfo *list, int64_t deadline)
{
	int left = 0, ret = -EHOSTUNREACH;

	for (const struct addrinfo *ai = list; ai; ai = ai->ai_next)
		left++;
	for (const struct addrinfo *ai = list; ai && ret < 0; ai = ai->ai_next, left--) {
		int64_t now = rmem_now_ms();

		ret = dial_one(ai, now + (deadline - now) / left);
	}
	return ret;
}

int rmem_dial(const char *host, const char *service, int64_t *deadline, char **why)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	int64_t before = rmem_now_ms();
	struct addrinfo *list;
	int ret = getaddrinfo(host, service, &hints, &list);

	*deadline += rmem_now_ms() - before;
	if (ret) {
		int error = ret == EAI_SYSTEM && errno ? -errno : -EHOSTUNREACH;

		rmem_why(why, "donor %s: %s", host, gai_strerror(ret));
		return error;
	}
	ret = dial_each(list, *deadline);
	freeaddrinfo(list);
	if (ret < 0)
		rmem_why(why, "donor %s, port %s: %s: does rmemd run there?", host, service, strerror(-ret));
	return ret;
}

static int broke(const char *host, int ret, char **why)
{
	rmem_why(why, "donor %s: the handshake: %s", host, strerror(-ret));
	return ret;
}

/* @n is the result of a send() or recv(). Returns how many bytes it moved, 0 if it is to be called again, or -errno. */
static ssize_t moved(const char *host, int fd, ssize_t n, short events, int64_t deadline, char **why)
{
	int ret = n < 0 ? -errno : 0;

	if (ret == -EAGAIN)
		ret = wait_for(fd, events, deadline);
	if (ret && ret != -EINTR)
		return broke(host, ret, why);
	return n > 0 ? n : 0;
}

int rmem_tcp_send(const char *host, int fd, const void *data, size_t size, int64_t deadline, char **why)
{
	const uint8_t *at = data, *end = at + size;

	while (at < end) {
		ssize_t n = moved(host, fd, send(fd, at, end - at, MSG_NOSIGNAL), POLLOUT, deadline, why);

		if (n < 0)
			return n;
		at += n;
	}
	return 0;
}

int rmem_tcp_receive(const char *host, int fd, void *data, size_t size, int64_t deadline, char **why)
{
	uint8_t *at = data, *end = at + size;

	while (at < end) {
		ssize_t n = recv(fd, at, end - at, 0);

		if (!n) {
			rmem_why(why, "donor %s: it closed the connection in the handshake: see its log", host);
			return -ECONNRESET;
		}
		n = moved(host, fd, n, POLLIN, deadline, why);
		if (n < 0)
			return n;
		at += n;
	}
	return 0;
}
