// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Namespaces. CRIU makes some kinds again, one namespace for the whole tree. It makes none for a part of the tree.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "plan.h"

static const struct kind {
	const char *file;	/* in /proc/PID/ns */
	const char *name;
	bool moves;
} kinds[] = {
	{ "mnt", "mount", true },	/* plan_mounts.c */
	{ "pid", "PID", false },
	{ "user", "user", false },
	{ "cgroup", "cgroup", false },
	{ "net", "network", true },
	{ "ipc", "IPC", true },
	{ "uts", "UTS", true },
	/* A process that has moved once has a time namespace, in which its clocks went on. */
	{ "time", "time", true },
};

/* Look at a task, or one of its threads. The first kind that is not as it must be says enough. */
static void look_at_thread(struct plan *plan, pid_t pid, pid_t tid)
{
	uint64_t time = proc_ns(tid, "time"), children = proc_ns(tid, "time_for_children");
	pid_t root = plan->tree.task[0].pid;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct kind *kind = &kinds[i];
		uint64_t its = proc_ns(tid, kind->file), roots = proc_ns(root, kind->file);

		if (!its || !roots)
			continue;
		if (its != roots) {
			plan_problem(plan, "process %d, thread %d: it has another %s namespace than process %d, with which "
				     "it would move, and CRIU makes one for all: start both in the same", pid, tid,
				     kind->name, root);
			return;
		}
		if (tid == root && !kind->moves && its != proc_ns(getpid(), kind->file)) {
			plan_problem(plan, "process %d: it has a %s namespace of its own, which can't be moved: start the "
				     "program in this host's", pid, kind->name);
			return;
		}
	}
	if (time && children && time != children)
		plan_problem(plan, "process %d, thread %d: it has made a time namespace for its children, which CRIU does not "
			     "dump: start the program in that one", pid, tid);
}

/* An interface can't move: the other end of a veth, for example, stays here. */
static void look_at_interfaces(struct plan *plan)
{
	pid_t root = plan->tree.task[0].pid;
	char *path = xasprintf("/proc/%d/net/dev", root), name[32];
	char *text = read_file(path), *line, *save;

	for (line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
		/* The two lines of headings have no colon. */
		if (sscanf(line, " %31[^:]:", name) == 1 && strchr(line, ':') && strcmp(name, "lo"))
			plan_problem(plan, "process %d: its network namespace has the interface %s, which can't be moved: "
				     "only one that has no interface but lo can", root, name);
	free(text);
	free(path);
}

/* Is it a descriptor of a namespace ("net:[4026531840]"), other than the tree's? */
static int look_at_fd(const struct proc_fd *fd, void *arg)
{
	struct plan *plan = arg;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t len = strlen(kinds[i].file);

		if (!strncmp(fd->link, kinds[i].file, len) && !strncmp(fd->link + len, ":[", 2) &&
		    fd->st.st_ino != proc_ns(plan->tree.task[0].pid, kinds[i].file))
			plan_problem(plan, "process %d, descriptor %d: it is a %s namespace in which the process is not: "
				     "close it before", fd->pid, fd->fd, kinds[i].name);
	}
	return 0;
}

void plan_namespaces(struct plan *plan)
{
	for (size_t i = 0; i < plan->tree.n; i++) {
		pid_t *tids;
		size_t n = proc_threads(plan->tree.task[i].pid, &tids);

		for (size_t j = 0; j < n; j++)
			look_at_thread(plan, plan->tree.task[i].pid, tids[j]);
		free(tids);
	}
	if (plan->own_netns)
		look_at_interfaces(plan);
	proc_each_fd(&plan->tree, look_at_fd, plan);
}
