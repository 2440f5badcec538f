// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Can CRIU bind the process's sockets here, and open its folders? See plan_names.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "agent.h"
#include "text.h"

/* ---------------------------------------------------------- TCP and UDP -- */

/* Bind it for a moment, as CRIU will. An address that moves is not here yet. Returns an errno. */
static int try_to_bind(const struct in6_addr *address, json_t *port)
{
	union ip_port at;
	socklen_t size = ip_port(address, json_integer_value(json_object_get(port, "port")), &at);
	int type = json_is_true(json_object_get(port, "udp")) ? SOCK_DGRAM : SOCK_STREAM;
	int fd = socket(at.sa.sa_family, type | SOCK_CLOEXEC, 0), on = 1, ret;
	int v6only = json_is_true(json_object_get(port, "v6only")), shared = json_is_true(json_object_get(port, "shared"));

	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof(shared));
	setsockopt(fd, SOL_IP, IP_FREEBIND, &on, sizeof(on));
	if (at.sa.sa_family == AF_INET6)
		setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &v6only, sizeof(v6only));
	ret = bind(fd, &at.sa, size) ? errno : 0;
	close_fd(&fd);
	return ret;
}

static void check_ports(json_t *list, json_t *ports)
{
	const char *key;
	json_t *port;

	json_object_foreach(ports, key, port) {
		const char *text = json_string_value(json_object_get(port, "address"));
		char shown[INET6_ADDRSTRLEN];
		struct in6_addr address;

		/* In a group of UDP sockets, ours would take a part of the packets. */
		if (json_is_true(json_object_get(port, "udp")) && json_is_true(json_object_get(port, "shared")))
			continue;
		if (text && inet_pton(AF_INET6, text, &address) == 1 && try_to_bind(&address, port) == EADDRINUSE)
			problem(list, "process %d, descriptor %d: the %s port %s:%d is taken there: end what has it",
				(int)json_integer_value(json_object_get(port, "pid")),
				(int)json_integer_value(json_object_get(port, "fd")),
				json_is_true(json_object_get(port, "udp")) ? "UDP" : "TCP", ip_text(&address, shown),
				(int)json_integer_value(json_object_get(port, "port")));
	}
}

/* ----------------------------------------------------- Unix sockets -- */

/* The names of this host's Unix sockets, as keys. */
static json_t *unix_names(void)
{
	char *text = read_file("/proc/net/unix"), *line, *save;
	json_t *names = json_object();

	for (line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		int at = 0;

		if (sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %n", &at) < 0 || !at || !line[at])
			continue;
		path_json_set(names, line + at, json_true());
	}
	free(text);
	return names;
}

/* Is there such a name on this host? A socket of another mount namespace may only seem to have it. */
static bool is_here(const char *name)
{
	char *path = path_from_key(name);
	struct stat st;
	bool here = path[0] != '/' || lstat(path, &st) == 0;

	free(path);
	return here;
}

/* CRIU would remove the name of a socket that is alive, and nobody could reach its owner any more. */
static void check_names(json_t *list, json_t *names)
{
	json_t *taken = json_object_size(names) ? unix_names() : NULL, *who;
	const char *name;

	json_object_foreach(names, name, who)
		if (json_object_get(taken, name) && is_here(name))
			problem(list, "process %d, descriptor %d: a process there has the Unix socket %s: end that",
				(int)json_integer_value(json_array_get(who, 0)), (int)json_integer_value(json_array_get(who, 1)),
				name);
	json_decref(taken);
}

/* ----------------------------------------------------------- folders -- */

static void check_folder(json_t *list, const char *name, json_t *mode)
{
	char *path = path_from_key(name);
	mode_t here = json_integer_value(mode);
	struct stat st;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		problem(list, "folder %s: it is not there: make it", name);
	else if ((st.st_mode ^ here) & 07777)
		problem(list, "folder %s: its mode is %o there and %o here: change it", name, st.st_mode & 07777, here & 07777);
	free(path);
}

void agent_check_names(json_t *message, json_t *list)
{
	json_t *mode;
	const char *name;

	check_ports(list, json_object_get(message, "ports"));
	check_names(list, json_object_get(message, "names"));
	json_object_foreach(json_object_get(message, "folders"), name, mode)
		check_folder(list, name, mode);
}
