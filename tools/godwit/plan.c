// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <arpa/inet.h>
#include <linux/major.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "plan.h"

static void add(json_t *list, const char *format, va_list ap)
{
	char *text;

	if (vasprintf(&text, format, ap) < 0)
		abort();
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_array_get(list, i)), text)) {
			free(text);
			return;
		}
	json_array_append_new(list, json_string(text));
	free(text);
}

void plan_problem(struct plan *plan, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	add(plan->problems, format, ap);
	va_end(ap);
}

void plan_note(struct plan *plan, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	add(plan->notes, format, ap);
	va_end(ap);
}

/* A number, once. */
static void add_number(json_t *list, int number)
{
	json_t *value;
	size_t i;

	json_array_foreach(list, i, value)
		if (json_integer_value(value) == number)
			return;
	json_array_append_new(list, json_integer(number));
}

/* ------------------------------------------------------------ processes -- */

static int tracer_of(pid_t pid)
{
	char *path = xasprintf("/proc/%d/status", pid);
	char *text = read_file(path);
	char *line = text ? strstr(text, "\nTracerPid:") : NULL;
	int tracer = line ? atoi(line + 11) : 0;

	free(text);
	free(path);
	return tracer;
}

static void look_at_tasks(struct plan *plan)
{
	pid_t root = plan->tree.task[0].pid;

	if (root == 1)
		plan_problem(plan, "process 1: it is this host's init");
	for (size_t i = 0; i < plan->tree.n; i++) {
		pid_t pid = plan->tree.task[i].pid;
		int tracer = tracer_of(pid);

		if (pid == getpid() || pid == getppid())
			plan_problem(plan, "process %d: godwit itself runs under it", root);
		if (tracer)
			plan_problem(plan, "process %d: process %d traces it: end that", pid, tracer);
	}
	plan->shell_job = !tree_has(&plan->tree, proc_sid(root));
	plan->own_netns = proc_own_netns(root);
	plan->file_locks = proc_has_locks(&plan->tree);
	plan->memory = tree_memory(&plan->tree);
}

/* ---------------------------------------------------------- descriptors -- */

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
	return plan_object(plan, what, NULL, json_pack("{s:i, s:i, s:s}", "pid", fd->pid, "fd", fd->fd,
						       "path", fd->link));
}

/* The number of the pseudo-terminal that this is an end of, or -1: none. */
static int pty_number(const struct proc_fd *fd, bool *master)
{
	int number = -1, copy;

	if (!S_ISCHR(fd->st.st_mode))
		return -1;
	*master = fd->st.st_rdev == makedev(TTYAUX_MAJOR, 2);
	if (!*master)
		return major(fd->st.st_rdev) == UNIX98_PTY_SLAVE_MAJOR ? (int)minor(fd->st.st_rdev) : -1;
	copy = proc_get_fd(fd->pid, fd->fd);
	if (copy < 0 || ioctl(copy, TIOCGPTN, &number))
		number = -1;
	close_fd(&copy);
	return number;
}

struct pty_search {
	const struct tree *tree;
	int number;
	bool master;		/* in the tree */
	bool elsewhere;		/* an end is held by a process that stays */
};

static int pty_end(const struct proc_fd *fd, void *arg)
{
	struct pty_search *s = arg;
	bool master;

	if (pty_number(fd, &master) != s->number)
		return 0;
	if (!tree_has(s->tree, fd->pid))
		s->elsewhere = true;
	else if (master)
		s->master = true;
	return s->elsewhere;
}

/* A pseudo-terminal goes along if nobody else has it, under the number that it has. */
static void look_at_terminal(struct plan *plan, const struct proc_fd *fd)
{
	bool master;
	struct pty_search s = { .tree = &plan->tree, .number = pty_number(fd, &master) };

	if (s.number >= 0)
		proc_each_fd_of_all(pty_end, &s);
	if (s.master && !s.elsewhere)
		add_number(plan->ptys, s.number);
	else
		plan_problem(plan, "process %d, descriptor %d: the terminal %s stays here: "
			     "start the program without one", fd->pid, fd->fd, fd->link);
}

static void look_at_device(struct plan *plan, const struct proc_fd *fd)
{
	char device[64];
	enum rdma_node node = rdma_node(fd->st.st_rdev, device);

	if (harmless(fd->st.st_rdev) || node == NODE_UVERBS)
		return;
	if (node == NODE_RDMA_CM)
		plan_cm(plan, fd);
	else if (node == NODE_RDMA_OTHER)
		plan_stays(plan, rdma_file(plan, "mad", fd), "process %d, descriptor %d: the device %s can't be moved: "
			   "close it before", fd->pid, fd->fd, fd->link);
	else if (terminal(fd->st.st_rdev))
		look_at_terminal(plan, fd);
	else
		plan_problem(plan, "process %d, descriptor %d: the device %s can't be moved",
			     fd->pid, fd->fd, fd->link);
}

struct pipe_search {
	const struct tree *tree;
	ino_t inode;
	pid_t holder;
};

static int other_end(const struct proc_fd *fd, void *arg)
{
	struct pipe_search *s = arg;

	if (!S_ISFIFO(fd->st.st_mode) || fd->st.st_ino != s->inode || tree_has(s->tree, fd->pid))
		return 0;
	s->holder = fd->pid;
	return 1;
}

static void look_at_pipe(struct plan *plan, const struct proc_fd *fd)
{
	struct pipe_search s = { .tree = &plan->tree, .inode = fd->st.st_ino };

	if (strncmp(fd->link, "pipe:", 5) || !proc_each_fd_of_all(other_end, &s))
		return;
	plan_problem(plan, "process %d, descriptor %d: the pipe's other end is process %d's, which stays "
		     "here: start the program with a file in its place", fd->pid, fd->fd, s.holder);
}

static int look_at_fd(const struct proc_fd *fd, void *arg)
{
	if (S_ISCHR(fd->st.st_mode) || S_ISBLK(fd->st.st_mode))
		look_at_device(arg, fd);
	else if (S_ISFIFO(fd->st.st_mode))
		look_at_pipe(arg, fd);
	return 0;
}

/* ------------------------------------------------------------------ TCP -- */

struct tcp_look {
	struct plan *plan;
	const struct addresses *addresses;
};

static bool is_loopback(const struct in6_addr *a)
{
	return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

static bool is_any(const struct in6_addr *a)
{
	static const struct in6_addr any4 = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

	return IN6_IS_ADDR_UNSPECIFIED(a) || !memcmp(a, &any4, sizeof(any4));
}

static const char *ip_text(const struct in6_addr *a, char text[INET6_ADDRSTRLEN])
{
	if (IN6_IS_ADDR_V4MAPPED(a))
		return inet_ntop(AF_INET, &a->s6_addr[12], text, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, a, text, INET6_ADDRSTRLEN);
}

static int look_at_tcp(const struct proc_tcp *tcp, void *arg)
{
	struct tcp_look *look = arg;
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];

	if (is_any(&tcp->local) || is_loopback(&tcp->local) ||
	    addresses_have(look->addresses, &tcp->local))
		return 0;
	ip_text(&tcp->local, local);
	ip_text(&tcp->remote, remote);
	if (tcp->remote_port)
		plan_problem(look->plan, "process %d, descriptor %d: the TCP connection %s:%u - %s:%u can't "
			     "move without its address: use an address of its own, and --address %s",
			     tcp->pid, tcp->fd, local, tcp->local_port, remote, tcp->remote_port, local);
	else
		plan_problem(look->plan, "process %d, descriptor %d: the TCP socket is bound to %s:%u: use an "
			     "address of its own, and --address %s", tcp->pid, tcp->fd, local,
			     tcp->local_port, local);
	return 0;
}

/* ------------------------------------------------------------- together -- */

static int look_at_all(struct plan *plan, pid_t pid, const struct addresses *addresses)
{
	struct tcp_look look = { plan, addresses };

	*plan = (struct plan){
		.problems = json_array(), .notes = json_array(), .objects = json_array(), .ptys = json_array(),
		.cm_ids = json_array(), .addresses = addresses,
	};
	if (tree_collect(&plan->tree, pid))
		goto fail;
	look_at_tasks(plan);
	if (proc_files(&plan->tree, &plan->files) ||
	    proc_each_fd(&plan->tree, look_at_fd, plan) ||
	    plan_rdma(plan, addresses))
		goto fail;
	/* (a network namespace of its own goes along, addresses and all) */
	if (!plan->own_netns && proc_each_tcp(&plan->tree, look_at_tcp, &look))
		goto fail;
	return 0;
fail:
	plan_free(plan);
	return -1;
}

/*
 * The process runs: a region that was there may be gone, with its memory, a moment later, and so may what
 * librdmacm is about. What is there to stay is there again at each look. (UCX unmaps first, and deregisters
 * when it comes by.)
 */
int plan_make(struct plan *plan, pid_t pid, const struct addresses *addresses)
{
	for (int looks = 1;; looks++) {
		if (look_at_all(plan, pid, addresses))
			return -1;
		if (!plan->passing || looks == 20)
			return 0;
		plan_free(plan);
		poll(NULL, 0, 100);
	}
}

void plan_free(struct plan *plan)
{
	tree_free(&plan->tree);
	contexts_free(&plan->contexts);
	proc_files_free(&plan->files);
	json_decref(plan->problems);
	json_decref(plan->notes);
	json_decref(plan->objects);
	json_decref(plan->ptys);
	json_decref(plan->cm_ids);
	*plan = (struct plan){ 0 };
}

static json_t *files_json(const struct proc_files *files)
{
	json_t *array = json_array();

	for (size_t i = 0; i < files->n; i++)
		json_array_append_new(array, json_pack("{s:s, s:I, s:i, s:b}",
			"path", files->file[i].path, "size", (json_int_t)files->file[i].size,
			"mode", (int)files->file[i].mode, "writable", files->file[i].writable));
	return array;
}

static json_t *pids_json(const struct tree *tree)
{
	json_t *array = json_array();
	pid_t *tids;
	size_t n = tree_threads(tree, &tids);

	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, json_integer(tids[i]));
	free(tids);
	return array;
}

json_t *plan_json(const struct plan *plan)
{
	json_t *contexts = json_array();

	for (size_t i = 0; i < plan->contexts.n; i++)
		json_array_append_new(contexts, plan_context_json(&plan->contexts.context[i]));
	return json_pack("{s:o, s:o, s:O, s:O, s:o, s:I, s:b}", "pids", pids_json(&plan->tree),
			 "files", files_json(&plan->files), "ptys", plan->ptys, "cm_ids", plan->cm_ids, "contexts", contexts,
			 "memory", (json_int_t)plan->memory, "rdma_cm", plan->cm);
}
