// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "host.h"
#include "huge.h"
#include "plan.h"
#include "reasons.h"
#include "text.h"

/* ------------------------------------------------------------ processes -- */

static int look_at_map(const struct proc_map *map, void *arg)
{
	if (map->path && !strncmp(map->path, "/SYSV", 5)) {
		plan_problem(arg, "process %d: it has memory shared by shmget() in this host's IPC namespace, where it "
			     "stays: start it in one of its own", map->pid);
		return 1;
	}
	return 0;
}

static void look_at_tasks(struct plan *plan)
{
	pid_t root = plan->tree.task[0].pid;

	if (root == 1)
		plan_problem(plan, "process 1: it is this host's init");
	for (size_t i = 0; i < plan->tree.n; i++) {
		pid_t pid = plan->tree.task[i].pid;
		int tracer = (int)proc_status(pid, "TracerPid", 10);

		if (pid == getpid() || pid == getppid())
			plan_problem(plan, "process %d: godwit itself runs under it", root);
		if (task_has_ended(&plan->tree.task[i])) {
			plan_problem(plan, "process %d: it has ended, and its parent has not waited for it: end the parent, or have it "
				     "wait", pid);
			plan->passing = true;
		}
		if (tracer)
			plan_problem(plan, "process %d: process %d traces it: end that", pid, tracer);
	}
	for (size_t i = 0; proc_ns(root, "ipc") == proc_ns(getpid(), "ipc") && i < plan->tree.n; i++)
		proc_each_map(plan->tree.task[i].pid, look_at_map, plan);
	plan->shell_job = !tree_has(&plan->tree, proc_sid(root));
	plan->own_netns = proc_ns(root, "net") != proc_ns(getpid(), "net");
	plan->memory = tree_memory(&plan->tree, &plan->in_ram);
}

/* ------------------------------------------------------------- together -- */

/*
 * A process may have opened a device before it entered its network namespace, in which that device can't be opened again. For a
 * container, container_look_at_network() looks.
 */
static void look_at_netns(struct plan *plan)
{
	for (size_t i = 0; plan->own_netns && !plan->contained && !rdma_is_shared() && i < plan->contexts.n; i++) {
		const struct context *c = &plan->contexts.context[i];

		if (rdma_device_exists(c->device))
			plan_problem(plan, "process %d, %s: " WHY_OWN_NETNS, c->pid, c->device);
	}
}

/* units: what systemd has said of units at an earlier look. */
static int look_at_all(struct plan *plan, pid_t pid, bool contained, const struct addresses *addresses,
		       const struct contexts *asked, json_t *units)
{
	bool alone;

	*plan = (struct plan){
		.problems = json_array(), .known_problems = json_object(), .notes = json_array(),
		.known_notes = json_object(), .objects = json_array(), .ptys = json_array(),
		.watches = json_array(), .locks = json_array(), .leased = json_array(), .cm_ids = json_array(),
		.cm_peers = json_array(), .cm_ports = json_array(), .stock_peers = json_array(), .silent_peers = json_array(),
		.gids = json_object(),
		.addresses = addresses, .contained = contained, .units = json_incref(units),
		.outside = json_object(), .ports = json_object(), .names = json_object(),
		.folders = json_object(),
	};
	if (tree_collect(&plan->tree, pid))
		goto fail;
	/* If the process is in a container, that problem says enough. */
	alone = !contained && !plan_supervisor(plan);
	look_at_tasks(plan);
	if (alone)
		plan_namespaces(plan);
	if ((alone && plan_mounts(plan)) ||
	    (!contained && proc_files(&plan->tree, &plan->mntns, &plan->files)) ||
	    contexts_find(&plan->tree, &plan->contexts) ||
	    contexts_inspect(&plan->contexts) ||
	    plan_fds(plan) ||
	    (!contained && plan_watches(plan)) ||
	    plan_rdma(plan, addresses, asked))
		goto fail;
	look_at_netns(plan);
	/* A network namespace of the tree's own goes along, with its addresses and all else. */
	if (!plan->own_netns && plan_inet(plan))
		goto fail;
	if (!contained)
		plan_cwds(plan);
	return 0;
fail:
	plan_free(plan);
	return -1;
}

/*
 * The process runs. A memory region may lose its memory a moment before it is deregistered itself, and ids of librdmacm come and
 * go. A problem that stays is there at each look. (UCX unmaps memory first, and deregisters it some time later.)
 */
int plan_make(struct plan *plan, pid_t pid, bool contained, const struct addresses *addresses,
	      const struct contexts *asked)
{
	json_t *units = json_object();
	int ret;

	for (int looks = 1;; looks++) {
		ret = look_at_all(plan, pid, contained, addresses, asked, units);
		if (ret || !plan->passing || looks == 20)
			break;
		plan_free(plan);
		poll(NULL, 0, 100);
	}
	json_decref(units);
	return ret;
}

void plan_free(struct plan *plan)
{
	tree_free(&plan->tree);
	contexts_free(&plan->contexts);
	proc_files_free(&plan->files);
	proc_ends_free(&plan->ends);
	json_decref(plan->problems);
	json_decref(plan->known_problems);
	json_decref(plan->notes);
	json_decref(plan->known_notes);
	json_decref(plan->objects);
	json_decref(plan->ptys);
	json_decref(plan->watches);
	json_decref(plan->locks);
	json_decref(plan->leased);
	json_decref(plan->cm_ids);
	json_decref(plan->cm_peers);
	json_decref(plan->cm_ports);
	json_decref(plan->stock_peers);
	json_decref(plan->silent_peers);
	json_decref(plan->gids);
	json_decref(plan->units);
	json_decref(plan->outside);
	json_decref(plan->ports);
	json_decref(plan->names);
	json_decref(plan->folders);
	mntns_free(&plan->mntns);
	*plan = (struct plan){ 0 };
}

static json_t *files_json(const struct proc_files *files)
{
	json_t *array = json_array();

	for (size_t i = 0; i < files->n; i++)
		json_array_append_new(array, json_pack("{s:o, s:I, s:i, s:b, s:I}",
			"path", path_json(files->file[i].path), "size", (json_int_t)files->file[i].size,
			"mode", (int)files->file[i].mode, "writable", files->file[i].writable,
			"mtime", (json_int_t)files->file[i].mtime));
	return array;
}

static int add_number(pid_t tid, void *array)
{
	json_array_append_new(array, json_integer(tid));
	return 0;
}

static json_t *pids_json(const struct tree *tree)
{
	json_t *array = json_array();

	for (size_t i = 0; i < tree->n; i++)
		proc_each_thread(tree->task[i].pid, add_number, array);
	return array;
}

json_t *plan_json(const struct plan *plan)
{
	json_t *contexts = json_array();

	for (size_t i = 0; i < plan->contexts.n; i++)
		json_array_append_new(contexts, plan_context_json(&plan->contexts.context[i], plan->gids));
	return json_pack("{s:o, s:o, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:O, s:o, s:o, s:I, s:I, s:o, s:o, s:b, s:b, s:O*}",
			 "pids", pids_json(&plan->tree), "files", files_json(&plan->files), "folders", plan->folders,
			 "ports", plan->ports, "names", plan->names, "ptys", plan->ptys, "watches", plan->watches,
			 "locks", plan->locks, "cm_ids", plan->cm_ids,
			 "cm_peers", plan->cm_peers, "cm_ports", plan_cm_ports(plan), "contexts", contexts,
			 "memory", (json_int_t)plan->memory, "in_ram", (json_int_t)plan->in_ram, "huge", huge_used(&plan->tree),
			 "pinned", plan_pinned(plan), "rdma_cm", plan->cm, "own_netns", plan->own_netns,
			 "mntns", plan->mntns.differences);
}
