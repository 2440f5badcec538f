// SPDX-License-Identifier: MIT
/*
 * labexec SOCKET CMD...: runs a command in a lab guest. Its stdout, stderr and exit status become those of labexec; 255: the
 * guest is gone. If labexec is killed, the command gets SIGTERM.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "frame.h"

static char data[FRAME_MAX];

static void die(const char *what)
{
	perror(what);
	exit(255);
}

static void put(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0)
			die("labexec: write");
		p += n;
		len -= n;
	}
}

static void get(int fd, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n <= 0) {
			fputs("labexec: the guest is gone\n", stderr);
			exit(255);
		}
		p += n;
		len -= n;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct frame f = { .type = F_EXEC };
	int32_t status;
	int s;

	if (argc < 3 || strlen(argv[1]) >= sizeof(addr.sun_path)) {
		fputs("usage: labexec SOCKET CMD...\n", stderr);
		return 255;
	}
	strcpy(addr.sun_path, argv[1]);
	for (int i = 2; i < argc; i++) {
		size_t n = strlen(argv[i]) + 1;

		if (f.len + n > FRAME_MAX) {
			fputs("labexec: command too long\n", stderr);
			return 255;
		}
		memcpy(data + f.len, argv[i], n);
		f.len += n;
	}
	s = socket(AF_UNIX, SOCK_STREAM, 0);
	if (s < 0 || connect(s, (struct sockaddr *)&addr, sizeof(addr)))
		die(argv[1]);
	put(s, &f, sizeof(f));
	put(s, data, f.len);
	for (;;) {
		get(s, &f, sizeof(f));
		if (f.len > sizeof(data))
			return 255;
		get(s, data, f.len);
		if (f.type == F_EXIT) {
			memcpy(&status, data, sizeof(status));
			return status;
		}
		put(f.type == F_ERR ? 2 : 1, data, f.len);
	}
}
