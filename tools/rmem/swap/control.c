// SPDX-License-Identifier: MIT
/* The operator's socket: one line, "drain DONOR". One line in answer, "ok" or the reason why not. */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rmemswap.h"

#define PATIENCE_S 2 /* how long a program may be connected and say nothing */

static int listener = -1;
static char listens_at[sizeof(((struct sockaddr_un *)0)->sun_path)];
static struct event *acceptable;
static void (*on_line)(int fd, char *line);

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	const struct timeval patience = { .tv_sec = PATIENCE_S };
	char line[256];
	ssize_t n;
	int sk = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

	(void)what, (void)arg;
	if (sk < 0)
		return;
	/* Only root can connect, and rmemswap drain sends its line at once. */
	setsockopt(sk, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	n = recv(sk, line, sizeof(line) - 1, 0);
	line[n > 0 ? n : 0] = 0;
	line[strcspn(line, "\n")] = 0;
	on_line(sk, line);
}

void control_answer(int fd, const char *error)
{
	char line[320];
	int n = snprintf(line, sizeof(line), "%s\n", error ? error : "ok");

	if (send(fd, line, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		say(LOG_DEBUG, "socket: %s", strerror(errno));
	close(fd);
}

/* Removes a socket that a killed service has left. A service that runs keeps its socket. */
static int take_place(const struct sockaddr_un *address)
{
	int sk = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool runs = sk >= 0 && !connect(sk, (const struct sockaddr *)address, sizeof(*address));

	if (sk >= 0)
		close(sk);
	if (runs)
		return fault("%s: rmemswap runs already", address->sun_path);
	unlink(address->sun_path);
	return 0;
}

int control_open(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mode_t mask;
	int ret;

	if (strlen(path) >= sizeof(address.sun_path))
		return fault("%s: %s", path, strerror(ENAMETOOLONG));
	strcpy(address.sun_path, path);
	if (!strcmp(path, SOCKET_PATH))
		mkdir("/run/rmemswap", 0700);
	if (take_place(&address))
		return -1;
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mask = umask(0177);
	ret = listener < 0 ? -1 : bind(listener, (struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (ret || listen(listener, 4))
		return fault("%s: %s", path, strerror(errno));
	strcpy(listens_at, path);
	return 0;
}

void control_listen(struct event_base *base, void (*asked)(int fd, char *line))
{
	on_line = asked;
	acceptable = event_new(base, listener, EV_READ | EV_PERSIST, on_accept, NULL);
	if (acceptable)
		event_add(acceptable, NULL);
}

void control_forget(void)
{
	if (*listens_at)
		unlink(listens_at);
}

void control_close(void)
{
	if (acceptable)
		event_free(acceptable);
	if (listener >= 0)
		close(listener);
	control_forget();
}
