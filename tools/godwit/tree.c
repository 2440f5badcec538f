// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * A process and its descendants: to collect, to stop and to kill them.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "proc.h"

static int tree_add(struct tree *tree, pid_t pid)
{
	pid_t *children;
	size_t i, n;
	int pidfd = pidfd_open(pid, 0);

	/* a child that has ended since it was listed */
	if (pidfd < 0 && errno == ESRCH && tree->n)
		return 0;
	if (pidfd < 0)
		return fault("process %d: %s", pid, strerror(errno));
	GROW(tree->task, tree->n);
	tree->task[tree->n++] = (struct task){
		.pid = pid, .pidfd = pidfd, .was_stopped = proc_state(pid) == 'T',
	};
	n = proc_children(pid, &children);
	for (i = 0; i < n; i++)
		if (tree_add(tree, children[i]))
			break;
	free(children);
	return i < n ? -1 : 0;
}

int tree_collect(struct tree *tree, pid_t root)
{
	*tree = (struct tree){ 0 };
	if (tree_add(tree, root) == 0)
		return 0;
	tree_free(tree);
	return -1;
}

int tree_refresh(struct tree *tree, pid_t root)
{
	struct tree now;

	if (tree_collect(&now, root))
		return -1;
	for (size_t i = 0; i < now.n; i++) {
		/* A task that is traced does not look stopped, so what was seen before counts. */
		for (size_t j = 0; j < tree->n; j++)
			if (tree->task[j].pid == now.task[i].pid) {
				now.task[i].was_stopped = tree->task[j].was_stopped;
				now.task[i].pending = tree->task[j].pending;
			}
	}
	tree_free(tree);
	*tree = now;
	return 0;
}

void tree_see_signals(struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++) {
		tree->task[i].was_stopped = proc_state(tree->task[i].pid) == 'T';
		tree->task[i].pending = proc_status(tree->task[i].pid, "ShdPnd", 16);
	}
}

int tree_told_to_end(const struct tree *tree, pid_t *pid)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGQUIT, SIGHUP };

	for (size_t i = 0; i < tree->n; i++) {
		uint64_t came;

		*pid = tree->task[i].pid;
		/* A signal that is ignored waits only because the task is traced. */
		came = proc_status(*pid, "ShdPnd", 16) & ~tree->task[i].pending & ~proc_status(*pid, "SigIgn", 16);
		for (size_t j = 0; j < sizeof(signals) / sizeof(signals[0]); j++)
			if (came & UINT64_C(1) << (signals[j] - 1))
				return signals[j];
	}
	return 0;
}

void tree_free(struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		close(tree->task[i].pidfd);
	free(tree->task);
	*tree = (struct tree){ 0 };
}

bool tree_has(const struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->n; i++)
		if (tree->task[i].pid == pid)
			return true;
	return false;
}

bool tree_takes(const struct tree *tree, pid_t pid)
{
	while (pid && !tree_has(tree, pid))
		pid = proc_parent(pid);
	return pid;
}

bool tree_leaves(const struct tree *tree, pid_t pid)
{
	return !tree_takes(tree, pid) && (!kill(pid, 0) || errno != ESRCH);
}

static bool gone(const struct task *task, int timeout_ms)
{
	struct pollfd p = { .fd = task->pidfd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

bool task_has_ended(const struct task *task)
{
	return gone(task, 0);
}

static bool is_alive(const struct task *task)
{
	return !task_has_ended(task) && !proc_is_killed(task->pid);
}

size_t tree_alive(const struct tree *tree)
{
	size_t i, n = 0;

	for (i = 0; i < tree->n; i++)
		n += is_alive(&tree->task[i]);
	return n;
}

bool proc_lives(const struct proc_id *id)
{
	struct task task = { .pid = id->pid, .pidfd = id->pid > 0 ? pidfd_open(id->pid, 0) : -1 };
	bool lives = task.pidfd >= 0 && proc_is_there(id) && is_alive(&task);

	close_fd(&task.pidfd);
	return lives;
}

int tree_wait_gone(const struct tree *tree, int timeout_ms)
{
	int64_t end = now_ns() + timeout_ms * INT64_C(1000000);

	for (size_t i = 0; i < tree->n; i++) {
		int64_t left = (end - now_ns()) / 1000000;

		if (!gone(&tree->task[i], left > 0 ? left : 0))
			return -1;
	}
	return 0;
}

void tree_send_stop(const struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++) {
		pid_t *tids;
		size_t n = proc_threads(tree->task[i].pid, &tids);

		for (size_t j = 0; j < n; j++)
			syscall(SYS_tgkill, tree->task[i].pid, tids[j], SIGSTOP);
		free(tids);
	}
}

void tree_release(const struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		if (!tree->task[i].was_stopped)
			pidfd_send_signal(tree->task[i].pidfd, SIGCONT, NULL, 0);
}

static void kill_below(pid_t pid)
{
	pid_t *children;
	size_t n = proc_children(pid, &children);

	for (size_t i = 0; i < n; i++) {
		kill_below(children[i]);
		kill(children[i], SIGKILL);
	}
	free(children);
}

#define KILL_MS	10000
/* A child may be stuck in the kernel, such as one that deletes a device which somebody has open. */
#define KILL_ALL_MS	60000

void proc_kill_descendants(void)
{
	int64_t end = now_ns() + KILL_ALL_MS * INT64_C(1000000);
	pid_t pid;

	/* A process may have forked while we looked. So go on until waitpid() finds no child. */
	do {
		kill_below(getpid());
		pid = waitpid(-1, NULL, WNOHANG);
		if (pid == 0)
			poll(NULL, 0, 1);
	} while ((pid >= 0 || errno == EINTR) && now_ns() < end);
}

void proc_kill_tree(const struct proc_id *id)
{
	struct tree tree;

	if (!proc_is_there(id) || tree_collect(&tree, id->pid))
		return;
	for (size_t i = tree.n; i-- > 0;)
		pidfd_send_signal(tree.task[i].pidfd, SIGKILL, NULL, 0);
	tree_wait_gone(&tree, KILL_MS);
	tree_free(&tree);
}
