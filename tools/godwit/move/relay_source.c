// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit by the name of criu. While godwit has podman checkpoint a container, the container's runtime finds us first in its
 * PATH, in a folder with a socket at which `godwit migrate` waits. If the runtime asks for a dump, we pass the socket that the
 * runtime speaks on to `godwit migrate`, and live until it lets us go. For anything else we become the real criu.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "container.h"
#include "rpc.pb-c.h"

/* Take the folder in which we were found out of PATH, so that criu is the real one. Gives the folder; free it. */
static char *leave_path(void)
{
	char *own = xstrdup((const char *)getauxval(AT_EXECFN)), *path = xstrdup(getenv("PATH") ?: ""), *others = NULL;
	char *end = strrchr(own, '/'), *name, *save, *longer;

	if (end)
		*end = '\0';
	for (name = strtok_r(path, ":", &save); name; name = strtok_r(NULL, ":", &save)) {
		if (!strcmp(name, own))
			continue;
		longer = xasprintf("%s%s%s", others ?: "", others ? ":" : "", name);
		free(others);
		others = longer;
	}
	setenv("PATH", others ?: "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	free(others);
	free(path);
	return own;
}

static bool is_dump(int sk)
{
	ssize_t size = recv(sk, NULL, 0, MSG_PEEK | MSG_TRUNC);
	uint8_t *buf = size > 0 ? xcalloc(1, size) : NULL;
	CriuReq *req = NULL;
	bool dump;

	if (buf && recv(sk, buf, size, MSG_PEEK) == size)
		req = criu_req__unpack(NULL, size, buf);
	dump = req && req->type == CRIU_REQ_TYPE__DUMP;
	if (req)
		criu_req__free_unpacked(req, NULL);
	free(buf);
	return dump;
}

static int pass(const char *folder, int fd)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), ret = -1;
	char *path = xasprintf("%s/" RELAY_SOCKET, folder);

	if (strlen(path) < sizeof(sun.sun_path) && sk >= 0) {
		strcpy(sun.sun_path, path);
		if (connect(sk, (struct sockaddr *)&sun, sizeof(sun)) == 0)
			ret = fds_send(sk, &fd, 1);
	}
	free(path);
	if (ret)
		close_fd(&sk);
	return sk;
}

int cmd_relay(int argc, char **argv)
{
	char *folder = leave_path(), byte;
	int fd = argc == 3 && !strcmp(argv[1], "swrk") ? atoi(argv[2]) : -1, sk;

	if (fd < 0 || !is_dump(fd)) {
		execvp("criu", argv);
		perror("criu");
		return 127;
	}
	sk = pass(folder, fd);
	free(folder);
	if (sk < 0) {
		fprintf(stderr, "criu: godwit, which asked for this checkpoint, is gone\n");
		return EXIT_FAILURE;
	}
	/* godwit migrate has the socket, too. So the runtime sees the socket closed only when godwit migrate closes it. */
	close(fd);
	return read(sk, &byte, 1) == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
