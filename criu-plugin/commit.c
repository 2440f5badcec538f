// SPDX-License-Identifier: GPL-2.0
/*
 * Before a restored tree goes on, the program that moves it may have the last
 * word: it must end the tree at the source first.
 *
 *	GODWIT_COMMIT_FD=N	a descriptor that CRIU has inherited: a socket
 *	GODWIT_COMMIT_SOCK=PATH	or a stream socket to connect to
 *	GODWIT_COMMIT_TIMEOUT=S	seconds to wait for the word; 30
 *	GODWIT_BEGIN_SOCK=PATH	a stream socket, which may be the same
 *
 * At the beginning we connect to GODWIT_BEGIN_SOCK and wait for the end of the
 * file: if a runtime starts CRIU, the other side learns CRIU's process from the
 * connection, and sees it die. Nobody else would say that CRIU died: its children
 * keep the runtime's connection to CRIU open, and wait for CRIU. Until the other
 * side closes, it may make devices in the network namespace that the runtime has
 * made.
 *
 * We say "ready PID\n", with the root of the tree, as CRIU numbers it. We wait
 * for "commit\n" and say "goes\n". Then we wait, for at most 10 s, for any
 * answer or the end of the file. If CRIU has died and the other side has not read
 * "goes", it knows that no task has run.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "restore.h"

static int sock = -1;

static int connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(addr.sun_path))
		return fail("%s is too long for a socket", path);
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (void *)&addr, sizeof(addr))) {
		fail("%s cannot be connected to: %m", path);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

static int left_ms(const struct timespec *end)
{
	struct timespec now;
	long ms;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (end->tv_sec - now.tv_sec) * 1000 +
	     (end->tv_nsec - now.tv_nsec) / 1000000;
	return ms > 0 ? ms : 0;
}

/* Read a line, without its newline. -1 and errno: none has come before end. */
static int read_line(int fd, char *line, size_t size, const struct timespec *end)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	size_t length = 0;
	int ret;

	while (length < size - 1) {
		ret = poll(&pfd, 1, left_ms(end));
		if (ret < 0 && errno == EINTR)
			continue;
		if (ret <= 0) {
			errno = ret ? errno : ETIMEDOUT;
			return -1;
		}
		ret = read(fd, line + length, 1);
		if (ret <= 0) {
			errno = ret ? errno : ECONNRESET;
			return -1;
		}
		if (line[length] == '\n')
			break;
		length++;
	}
	line[length] = '\0';
	return 0;
}

static struct timespec timeout(void)
{
	const char *seconds = getenv("GODWIT_COMMIT_TIMEOUT");
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds ? atoi(seconds) : 30;
	return end;
}

static int ask(int fd, pid_t root)
{
	struct timespec end = timeout();
	char line[32];

	snprintf(line, sizeof(line), "ready %d\n", root);
	if (write(fd, line, strlen(line)) != (ssize_t)strlen(line))
		return fail("who started the restore is gone: %m");
	if (read_line(fd, line, sizeof(line), &end))
		return fail("no word to go on: %m");
	if (strcmp(line, "commit"))
		return fail("the restore was called off: %s", line);
	return 0;
}

bool commit_is_asked(void)
{
	return getenv("GODWIT_COMMIT_FD") || getenv("GODWIT_COMMIT_SOCK");
}

int tell_begin(void)
{
	const char *path = getenv("GODWIT_BEGIN_SOCK");
	struct timespec end = timeout();
	char line[32];
	int fd, ret;

	if (!path)
		return 0;
	fd = connect_to(path);
	if (fd < 0)
		return -1;
	ret = read_line(fd, line, sizeof(line), &end);
	ret = ret && errno == ETIMEDOUT ? fail("no word to begin: %m") : 0;
	close(fd);
	return ret;
}

int wait_for_commit(pid_t root)
{
	const char *env = getenv("GODWIT_COMMIT_FD");
	const char *path = getenv("GODWIT_COMMIT_SOCK");

	if (!env && !path)
		return 0;
	sock = env ? atoi(env) : connect_to(path);
	return sock < 0 ? -1 : ask(sock, root);
}

void commit_goes(void)
{
	struct timespec end;
	char line[32];

	if (sock < 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += 10;
	if (send(sock, "goes\n", 5, MSG_NOSIGNAL) == 5)
		read_line(sock, line, sizeof(line), &end);
}
