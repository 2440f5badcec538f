// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Network namespaces of this host: opened, entered, left, and found.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "godwit.h"
#include "ns.h"
#include "walk.h"

int ns_open(const char *path)
{
	int ns = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (ns >= 0 && ioctl(ns, NS_GET_NSTYPE) != CLONE_NEWNET) {
		close_fd(&ns);
		errno = ENOTTY;
	}
	return ns;
}

int ns_ours(void)
{
	int ns = ns_open("/proc/self/ns/net");

	return ns < 0 ? fault("network namespace of this host: it can't be opened: %s", strerror(errno)) : ns;
}

bool ns_same(int a, int b)
{
	struct stat x, y;

	return !fstat(a, &x) && !fstat(b, &y) && same_file(&x, &y);
}

int ns_enter(int ns)
{
	return setns(ns, CLONE_NEWNET) ? fault("network namespace: it can't be entered: %s", strerror(errno)) : 0;
}

void ns_come_back(int ours)
{
	if (setns(ours, CLONE_NEWNET))
		abort();
}

int ns_cookie(uint64_t *cookie)
{
	int sk = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), ret;
	socklen_t size = sizeof(*cookie);

	ret = sk < 0 ? -1 : getsockopt(sk, SOL_SOCKET, SO_NETNS_COOKIE, cookie, &size);
	close_fd(&sk);
	return ret;
}

/* ----------------------------------------------------------------- find -- */

struct search {
	int ours, ns;
	bool (*is_it)(void *arg);
	void *arg;
	char *path;
	ino_t *seen;	/* all namespaces lie in one file system */
	size_t n;
};

static bool was_seen(const struct search *s, ino_t ino)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->seen[i] == ino)
			return true;
	return false;
}

/* Once in each namespace. One that can't be entered is not it. */
static bool is_it(struct search *s, int ns)
{
	struct stat st;
	bool is;

	if (fstat(ns, &st) || was_seen(s, st.st_ino))
		return false;
	GROW(s->seen, s->n);
	s->seen[s->n++] = st.st_ino;
	if (ns_same(ns, s->ours) || setns(ns, CLONE_NEWNET))
		return false;
	is = s->is_it(s->arg);
	ns_come_back(s->ours);
	return is;
}

/* 1: this is it, and it stays open. Takes path. */
static int look_in(struct search *s, char *path)
{
	int ns = ns_open(path);

	if (ns >= 0 && is_it(s, ns)) {
		s->ns = ns;
		s->path = path;
		return 1;
	}
	close_fd(&ns);
	free(path);
	return 0;
}

static int look_at_process(pid_t pid, void *arg)
{
	return was_seen(arg, proc_ns(pid, "net")) ? 0 : look_in(arg, xasprintf("/proc/%d/ns/net", pid));
}

static int look_at_names(struct search *s)
{
	DIR *dir = opendir("/run/netns");
	struct dirent *de;
	int found = 0;

	while (!found && dir && (de = readdir(dir)))
		if (de->d_name[0] != '.')
			found = look_in(s, xasprintf("/run/netns/%s", de->d_name));
	if (dir)
		closedir(dir);
	return found;
}

int ns_find(int ours, bool (*is)(void *arg), void *arg, char **path)
{
	struct search s = { .ours = ours, .ns = -1, .is_it = is, .arg = arg };

	if (!look_at_names(&s))
		proc_each(look_at_process, &s);
	free(s.seen);
	*path = s.path;
	return s.ns;
}
