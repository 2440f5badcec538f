// SPDX-License-Identifier: MIT
/* What both ends tell each other, over TCP. */
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "matrix.h"

#define PORT "18700"

void say(const void *data, size_t len)
{
	MUST(send(us.peer, data, len, MSG_NOSIGNAL) == (ssize_t)len);
}

void hear(void *data, size_t len)
{
	MUST(recv(us.peer, data, len, MSG_WAITALL) == (ssize_t)len);
}

/* Returns when both ends are here. */
void meet(void)
{
	char c = 'm';

	say(&c, 1);
	hear(&c, 1);
	MUST(c == 'm');
}

int connected(const char *host)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE };
	struct addrinfo *info;
	int fd, one = 1, s;

	MUST(!getaddrinfo(host, PORT, &hints, &info));
	s = socket(AF_INET, SOCK_STREAM, 0);
	MUST(s >= 0);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (host) {
		MUST(!connect(s, info->ai_addr, info->ai_addrlen));
		fd = s;
	} else {
		MUST(!bind(s, info->ai_addr, info->ai_addrlen) && !listen(s, 1));
		fd = accept(s, NULL, NULL);
		MUST(fd >= 0);
		close(s);
	}
	freeaddrinfo(info);
	return fd;
}
