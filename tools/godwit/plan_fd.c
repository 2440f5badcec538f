// SPDX-License-Identifier: Linux-OpenIB OR MIT
/* Which descriptors of the tree stand in the way of a move? */
#include <linux/major.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "netlink.h"
#include "plan.h"
#include "reasons.h"
#include "text.h"

/* -------------------------------------------------------------- devices -- */

static bool harmless(dev_t dev)
{
	/* null, zero, full, random, urandom */
	return major(dev) == 1 && (minor(dev) == 3 || minor(dev) == 5 || minor(dev) == 7 ||
				   minor(dev) == 8 || minor(dev) == 9);
}

/* /dev/tty, /dev/tty1, /dev/ttyS0, /dev/console, /dev/pts/0 */
static bool terminal(dev_t dev)
{
	return major(dev) == 4 || major(dev) == 5 || (major(dev) >= 136 && major(dev) <= 143);
}

static json_t *rdma_file(struct plan *plan, const char *what, const struct proc_fd *fd)
{
	return plan_object(plan, what, NULL, json_pack("{s:i, s:i, s:o}", "pid", fd->pid, "fd", fd->fd,
						       "path", text_json(fd->link)));
}

/*
 * The ends may have been read before an object was there, or before another process closed it. The first problem is worth reading
 * them anew; after it the move is refused anyway. True: look again.
 */
static bool read_ends_anew(struct plan *plan)
{
	if (json_array_size(plan->problems))
		return false;
	proc_ends_free(&plan->ends);
	return true;
}

#define PTMX	makedev(TTYAUX_MAJOR, 2)

/* The number of the pseudo-terminal that this descriptor of /dev/ptmx is the master of; or -1. */
static int master_number(pid_t pid, int fd)
{
	int number = -1, copy = proc_get_fd(pid, fd);

	if (copy < 0 || ioctl(copy, TIOCGPTN, &number))
		number = -1;
	close_fd(&copy);
	return number;
}

static int pty_number(const struct proc_fd *fd)
{
	if (!S_ISCHR(fd->st.st_mode))
		return -1;
	if (fd->st.st_rdev == PTMX)
		return master_number(fd->pid, fd->fd);
	return major(fd->st.st_rdev) == UNIX98_PTY_SLAVE_MAJOR ? (int)minor(fd->st.st_rdev) : -1;
}

static bool has_number(json_t *list, int number)
{
	json_t *value;
	size_t i;

	json_array_foreach(list, i, value)
		if (json_integer_value(value) == number)
			return true;
	return false;
}

struct pty_search {
	const struct tree *tree;
	int number;
	bool master;		/* in the tree */
	bool elsewhere;		/* a process that stays has an end open */
};

static int see_slave(const struct proc_end *end, void *arg)
{
	struct pty_search *s = arg;

	s->elsewhere |= tree_leaves(s->tree, end->pid);
	return s->elsewhere;
}

static int see_master(const struct proc_end *end, void *arg)
{
	struct pty_search *s = arg;

	if (master_number(end->pid, end->fd) != s->number)
		return 0;
	if (tree_takes(s->tree, end->pid))
		s->master = true;
	else
		s->elsewhere = true;
	return s->elsewhere;
}

static bool goes_along(struct plan *plan, int number)
{
	struct pty_search s = { .tree = &plan->tree, .number = number };

	if (!proc_each_end(&plan->ends, S_IFCHR, makedev(UNIX98_PTY_SLAVE_MAJOR, number), see_slave, &s))
		proc_each_end(&plan->ends, S_IFCHR, PTMX, see_master, &s);
	return s.master && !s.elsewhere;
}

/* A pseudo-terminal goes along with its number, if nobody else has it open. */
static void look_at_terminal(struct plan *plan, const struct proc_fd *fd)
{
	int number = pty_number(fd);
	bool goes;

	if (has_number(plan->ptys, number))
		return;
	goes = number >= 0 && goes_along(plan, number);
	if (number >= 0 && !goes && read_ends_anew(plan))
		goes = goes_along(plan, number);
	if (goes)
		json_array_append_new(plan->ptys, json_integer(number));
	else
		plan_problem(plan, "process %d, descriptor %d: the terminal %s stays here: "
			     "start the program without one", fd->pid, fd->fd, fd->link);
}

/* For contexts: plan_rdma(). */
static void look_at_uverbs(struct plan *plan, const struct proc_fd *fd)
{
	if (!context_is_gone(fd->pid, fd->fd))
		return;
	plan->gone = true;
	plan_stays(plan, rdma_file(plan, "gone", fd), "process %d, descriptor %d: " WHY_GONE, fd->pid, fd->fd);
}

static void look_at_device(struct plan *plan, const struct proc_fd *fd)
{
	char device[64];
	enum file_kind node = rdma_node(fd->st.st_rdev, device);

	if (harmless(fd->st.st_rdev))
		return;
	if (node == FILE_UVERBS)
		look_at_uverbs(plan, fd);
	else if (node == FILE_RDMA_CM)
		plan_cm(plan, fd);
	else if (node == FILE_OTHER_RDMA)
		plan_stays(plan, rdma_file(plan, "mad", fd), "process %d, descriptor %d: " WHY_DEVICE, fd->pid, fd->fd,
			   fd->link);
	else if (terminal(fd->st.st_rdev))
		look_at_terminal(plan, fd);
	else
		plan_problem(plan, "process %d, descriptor %d: the device %s can't be moved",
			     fd->pid, fd->fd, fd->link);
}

/* ------------------------------------------------------ pipes, sockets, others -- */

struct search {
	const struct tree *tree;
	bool inside;		/* the tree has it */
	pid_t holder;		/* the first other process that has it; 0: none */
};

static int see_end(const struct proc_end *end, void *arg)
{
	struct search *s = arg;

	if (tree_takes(s->tree, end->pid))
		s->inside = true;
	else if (!s->holder && tree_leaves(s->tree, end->pid))
		s->holder = end->pid;
	return 0;
}

/* A process that stays and has this pipe; 0: none. */
static pid_t pipe_holder(struct plan *plan, ino_t inode)
{
	struct search s = { .tree = &plan->tree };

	proc_each_end(&plan->ends, S_IFIFO, inode, see_end, &s);
	return s.holder;
}

static void look_at_pipe(struct plan *plan, const struct proc_fd *fd)
{
	pid_t holder;

	if (strncmp(fd->link, "pipe:", 5))
		return;
	holder = pipe_holder(plan, fd->st.st_ino);
	if (holder && read_ends_anew(plan))
		holder = pipe_holder(plan, fd->st.st_ino);
	if (holder)
		plan_problem(plan, "process %d, descriptor %d: the pipe's other end is process %d's, which stays "
			     "here: start the program with a file in its place", fd->pid, fd->fd, holder);
}

/*
 * A Unix socket goes along together with the socket that it is connected to. (CRIU finds one that nobody has accepted yet.)
 * Many connections last for a moment only: a line for syslog, a question to nscd. So all is looked at again, the ends, too.
 */
static void look_at_unix(struct plan *plan, const struct proc_fd *fd, int copy)
{
	uint32_t peer = nl_unix_peer(copy, fd->st.st_ino);
	struct search s = { .tree = &plan->tree };

	if (peer)
		proc_each_end(&plan->ends, S_IFSOCK, peer, see_end, &s);
	if (s.inside || !s.holder)
		return;
	plan_problem(plan, "process %d, descriptor %d: the Unix socket is connected to process %d's, which stays "
		     "here: close it before", fd->pid, fd->fd, s.holder);
	plan->passing = true;
}

/* Is it a descriptor of the file that was passed? */
static int is_this_file(const struct proc_fd *fd, void *arg)
{
	return proc_same_file(getpid(), *(int *)arg, fd->pid, fd->fd);
}

static bool is_stray_rdma(const struct plan *plan, int passed)
{
	char *path = xasprintf("/proc/self/fd/%d", passed), link[64] = "", device[64];
	bool rdma = readlink(path, link, sizeof(link) - 1) > 0 && !strcmp(link, "anon_inode:[infinibandevent]");
	struct stat st;

	free(path);
	if (!rdma)
		rdma = !fstat(passed, &st) && S_ISCHR(st.st_mode) && rdma_node(st.st_rdev, device) != FILE_NOT_RDMA;
	return rdma && !proc_each_fd(&plan->tree, is_this_file, &passed);
}

/*
 * A descriptor that was sent through a socket and is not received yet is in no table of descriptors. We can peek at the first
 * message. (Not if the process peeks itself, with SO_PEEK_OFF: our peek would move its offset.)
 */
static void look_at_queue(struct plan *plan, const struct proc_fd *fd, int copy)
{
	union {
		struct cmsghdr hdr;
		char room[CMSG_SPACE(253 * sizeof(int))];	/* SCM_MAX_FD */
	} control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int from = -1, stray = 0, passed;
	socklen_t len = sizeof(from);

	if (getsockopt(copy, SOL_SOCKET, SO_PEEK_OFF, &from, &len) || from >= 0 ||
	    recvmsg(copy, &msg, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(passed) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(passed)) {
			memcpy(&passed, CMSG_DATA(c) + at, sizeof(passed));
			stray += is_stray_rdma(plan, passed);
			close(passed);
		}
	}
	if (!stray)
		return;
	plan_stays(plan, rdma_file(plan, "passed", fd), "process %d, descriptor %d: an RDMA file has been passed through this "
		   "socket that no process has received: receive it before", fd->pid, fd->fd);
	plan->passing = true;
}

static bool known_protocol(int protocol)
{
	return protocol == IPPROTO_IP || protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ||
	       protocol == IPPROTO_UDPLITE;
}

static void look_at_socket(struct plan *plan, const struct proc_fd *fd)
{
	int copy = proc_get_fd(fd->pid, fd->fd), domain = AF_INET, type = SOCK_STREAM, protocol = 0;
	socklen_t len = sizeof(int);

	if (copy < 0 || getsockopt(copy, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
	    getsockopt(copy, SOL_SOCKET, SO_TYPE, &type, &len) ||
	    getsockopt(copy, SOL_SOCKET, SO_PROTOCOL, &protocol, &len)) {
		close_fd(&copy);
		return;
	}
	if (domain == AF_UNIX) {
		plan_unix_name(plan, fd, copy);
		look_at_unix(plan, fd, copy);
		look_at_queue(plan, fd, copy);
	} else if ((domain == AF_INET || domain == AF_INET6) ?
		 type != SOCK_RAW && ((type != SOCK_STREAM && type != SOCK_DGRAM) || !known_protocol(protocol)) :
		 domain != AF_NETLINK && domain != AF_PACKET) {
		plan_problem(plan, "process %d, descriptor %d: CRIU can't dump sockets of family %d, type %d, protocol "
			     "%d: close it before", fd->pid, fd->fd, domain, type, protocol);
	}
	close_fd(&copy);
}

/* Anonymous files: CRIU, which Debian builds without libbpf, or our plugin must be able to dump them. */
static void look_at_anon(struct plan *plan, const struct proc_fd *fd)
{
	static const char *const kinds[] = {
		"[eventfd]", "[eventpoll]", "inotify", "[fanotify]", "[signalfd]", "[timerfd]", "[pidfd]",
		"[infinibandevent]",
	};
	const char *kind = fd->link + strlen("anon_inode:");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kind, kinds[i]))
			return;
	plan_problem(plan, "process %d, descriptor %d: CRIU can't dump %s: close it before",
		     fd->pid, fd->fd, fd->link);
}

/* Is the lock listed already? An inherited descriptor shows it again. */
static bool have_lock(const struct plan *plan, const json_t *path, long long start, bool whole)
{
	json_t *lock;
	size_t i;

	json_array_foreach(plan->locks, i, lock)
		if (json_equal(json_object_get(lock, "path"), path) &&
		    json_integer_value(json_object_get(lock, "start")) == start &&
		    json_is_true(json_object_get(lock, "flock")) == whole)
			return true;
	return false;
}

/*
 * CRIU takes each lock again, and waits until it gets it. (What a lease needs shows only when it is set.) fdinfo of the file
 * tells which locks the tree has. /proc/locks does not: an inherited lock may name a process that is gone.
 */
static void look_at_locks(struct plan *plan, const struct proc_fd *fd)
{
	char *name = proc_fd_path(fd, &plan->mntns), *text = proc_fdinfo(fd), *line, *save;
	json_t *path = path_json(name ?: "");

	for (line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		char kind[16], access[16], end[32];
		bool whole;
		long long start;

		if (sscanf(line, "lock: %*d: %15s %*s %15s %*d %*s %lld %31s", kind, access, &start, end) != 4)
			continue;
		if (!strcmp(kind, "LEASE")) {
			if (!name)
				plan_problem(plan, "process %d, descriptor %d: it has a lease on %s, which is in a tmpfs of its mount "
					     "namespace and is read for the move: end the lease before", fd->pid, fd->fd, fd->link);
			else if (strcmp(access, "READ"))
				json_array_append(plan->leased, path);
			continue;
		}
		/* Nobody else has locked a file in a tmpfs of the namespace's own. */
		if (!name)
			continue;
		whole = !strcmp(kind, "FLOCK");
		if (have_lock(plan, path, start, whole))
			continue;
		json_array_append_new(plan->locks, json_pack("{s:i, s:O, s:b, s:b, s:I, s:I}", "pid", fd->pid,
			"path", path, "flock", whole, "write", !strcmp(access, "WRITE"), "start", (json_int_t)start,
			"length", (json_int_t)(strcmp(end, "EOF") ? atoll(end) - start + 1 : 0)));
	}
	json_decref(path);
	free(text);
	free(name);
}

static int look_at_fd(const struct proc_fd *fd, void *arg)
{
	if (!strncmp(fd->link, "anon_inode:", strlen("anon_inode:")))
		look_at_anon(arg, fd);
	else if (S_ISCHR(fd->st.st_mode) || S_ISBLK(fd->st.st_mode))
		look_at_device(arg, fd);
	else if (S_ISFIFO(fd->st.st_mode))
		look_at_pipe(arg, fd);
	else if (S_ISSOCK(fd->st.st_mode))
		look_at_socket(arg, fd);
	else if (S_ISREG(fd->st.st_mode))
		look_at_locks(arg, fd);
	else if (S_ISDIR(fd->st.st_mode))
		plan_folder(arg, fd->link, &fd->st);
	return 0;
}

/* For a container, only files of RDMA, which podman's runtime does not know. */
static int look_at_contained(const struct proc_fd *fd, void *arg)
{
	char device[64];

	if (S_ISCHR(fd->st.st_mode) && rdma_node(fd->st.st_rdev, device) != FILE_NOT_RDMA)
		look_at_device(arg, fd);
	return 0;
}

int plan_fds(struct plan *plan)
{
	int ret = proc_each_fd(&plan->tree, plan->contained ? look_at_contained : look_at_fd, plan);

	if (plan->driver)
		ibv_close_device(plan->driver);
	plan->driver = NULL;
	return ret;
}
