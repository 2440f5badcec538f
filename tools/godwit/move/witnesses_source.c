// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Who sees at the source that a container has ended? podman's conmon does, and so does each podman that is connected to it: podman
 * run and podman start --attach end with the container. If a unit of systemd waits for one of these, systemd may start the
 * container again. podman started by a unit leaves conmon in the control group of that unit.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "move.h"
#include "netlink.h"
#include "text.h"

struct search {
	struct plan *plan;
	struct witnesses *witnesses;
};

static void add(struct witnesses *w, pid_t pid)
{
	GROW(w->pid, w->n);
	w->pid[w->n++] = pid;
}

static int add_holder(const struct proc_end *end, void *witnesses)
{
	add(witnesses, end->pid);
	return 0;
}

/* conmon binds its socket by a path of its own: /proc/self/fd/N/attach. Each connection has the same name. */
static bool is_attach(int sock)
{
	struct sockaddr_un sun = { 0 };
	socklen_t len = sizeof(sun) - 1;
	const char *name;

	if (getsockname(sock, (struct sockaddr *)&sun, &len) || sun.sun_family != AF_UNIX)
		return false;
	name = strrchr(sun.sun_path, '/');
	return name && !strcmp(name, "/attach");
}

static int look_at_fd(const struct proc_fd *fd, void *arg)
{
	struct search *s = arg;
	int copy = S_ISSOCK(fd->st.st_mode) ? proc_get_fd(fd->pid, fd->fd) : -1;
	uint32_t peer = copy >= 0 && is_attach(copy) ? nl_unix_peer(copy, fd->st.st_ino) : 0;

	if (peer)
		proc_each_end(&s->plan->ends, S_IFSOCK, peer, add_holder, s->witnesses);
	close_fd(&copy);
	return 0;
}

void container_look_at_witnesses(struct move *m, pid_t conmon, const char *label)
{
	struct task task = { .pid = conmon };
	struct tree alone = { .task = &task, .n = 1 };
	struct witnesses witnesses = { .unit = label };
	char *who = xasprintf("container %s", m->container.name);

	add(&witnesses, conmon);
	proc_each_fd(&alone, look_at_fd, &(struct search){ &m->plan, &witnesses });
	plan_witnesses(&m->plan, who, &witnesses);
	free(witnesses.pid);
	free(who);
}
