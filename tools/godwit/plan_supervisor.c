// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Who watches over a process, and starts another one when this one dies at its source: the runtime of its container, or
 * systemd. The control group of a process tells which. What else may watch over it, a loop in a script say, nobody can know.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "plan.h"
#include "text.h"

static bool begins_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

static bool ends_in(const char *text, const char *end)
{
	size_t len = strlen(text), n = strlen(end);

	return len > n && !strcmp(text + len - n, end);
}

/* ------------------------------------------------------------ containers -- */

#define ID_DIGITS	64
#define ID_SHOWN	12	/* as podman ps does */

/* What is before the container's ID in the name of a control group. */
static const struct {
	const char *start, *whose;
} runtimes[] = {
	{ "libpod-conmon-", "podman" },
	{ "libpod-payload-", "podman" },	/* (below that of a unit) */
	{ "libpod-", "podman" },
	{ "docker-", "Docker" },
	{ "cri-containerd-", "containerd" },
	{ "crio-", "CRI-O" },
};

/* (a scope of systemd's has an ending) */
static const char *id_in(const char *name, const char *start)
{
	const char *id = begins_with(name, start) ? name + strlen(start) : "";
	size_t n = strspn(id, "0123456789abcdef");

	return n == ID_DIGITS && (!id[n] || !strcmp(id + n, ".scope")) ? id : NULL;
}

static bool look_at_name(struct plan *plan, pid_t pid, const char *name)
{
	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
		const char *id = id_in(name, runtimes[i].start), *whose = runtimes[i].whose;

		if (!id)
			continue;
		if (!strcmp(whose, "podman"))
			plan_problem(plan, "process %d: it belongs to podman's container %.*s: move that (godwit migrate "
				     "--container %.*s)", pid, ID_SHOWN, id, ID_SHOWN, id);
		else
			plan_problem(plan, "process %d: it belongs to the container %.*s of %s, and only podman's can be moved: "
				     "run it by podman, or without a container", pid, ID_SHOWN, id, whose);
		return true;
	}
	return false;
}

static bool look_at_container(struct plan *plan, pid_t pid, const char *cgroup)
{
	char *copy = xstrdup(cgroup), *name, *save;
	bool found = false;

	for (name = strtok_r(copy, "/", &save); name && !found; name = strtok_r(NULL, "/", &save))
		found = look_at_name(plan, pid, name);
	free(copy);
	return found;
}

/* --------------------------------------------------------------- systemd -- */

struct unit {
	const char *name;	/* of a service */
	int uid;		/* whose manager has it; -1: that of the host */
	char restart[32];	/* what its Restart= says */
	pid_t main;		/* its main process; 0: it has none, or systemd does not know which */
};

/* What names of units are made of. (Ours goes into a command: who may make control groups could call one as he likes.) */
#define UNIT_LETTERS	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"

/*
 * The first that is no slice is the unit. Below that of a user's manager are the manager's own. Nobody starts scopes, of
 * sessions say, anew.
 */
static bool find_unit(char *cgroup, struct unit *unit)
{
	char *name, *save;

	unit->uid = -1;
	for (name = strtok_r(cgroup, "/", &save); name; name = strtok_r(NULL, "/", &save)) {
		name += *name == '_';	/* (what would be the name of a file of the kernel's has it in front) */
		if (ends_in(name, ".slice"))
			continue;
		if (!ends_in(name, ".service") || name[strspn(name, UNIT_LETTERS)])
			return false;
		unit->name = name;
		if (unit->uid >= 0 || sscanf(name, "user@%d.service", &unit->uid) != 1)
			return true;
	}
	return false;
}

/* A line for each: Restart=always */
static void read_answer(struct unit *unit, char *text)
{
	char *line, *save;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		sscanf(line, "Restart=%31s", unit->restart);
		sscanf(line, "MainPID=%d", &unit->main);
	}
}

/* -1 with fault() */
static int ask_systemd(struct unit *unit)
{
	char *uid = xasprintf("%d", unit->uid), *folder = xasprintf("XDG_RUNTIME_DIR=/run/user/%d", unit->uid), *text = NULL;
	const char *const hosts[] = { "systemctl", "show", "--property", "Restart,MainPID", "--", unit->name, NULL };
	/* (a user's manager answers nobody but this user; what has root's group this user can't trace) */
	const char *const users[] = {
		"setpriv", "--reuid", uid, "--clear-groups", "env", folder, "systemctl", "--user", "show", "--property",
		"Restart,MainPID", "--", unit->name, NULL,
	};
	int ret = run(unit->uid < 0 ? hosts : users, NULL, &text);

	if (ret)
		fault("systemctl show: %s", text && *text ? text_last_line(text) : "it fails");
	else if (text)
		read_answer(unit, text);
	free(text);
	free(folder);
	free(uid);
	return !ret && unit->restart[0] ? 0 : fault("systemctl show: it does not say");
}

/* If its main process dies, the unit does. One without such dies with its last process. */
static void refuse_unit(struct plan *plan, pid_t pid, struct unit *unit)
{
	char *whose = unit->uid < 0 ? xstrdup("systemd") : xasprintf("systemd of user %d", unit->uid);

	if (ask_systemd(unit))
		plan_problem(plan, "process %d: it is of %s, and %s does not say whether it would start that anew: %s", pid,
			     unit->name, whose, fault_text());
	else if (strcmp(unit->restart, "no") && (!unit->main || tree_has(&plan->tree, unit->main)))
		plan_problem(plan, "process %d: when it dies here, %s starts %s anew (Restart=%s): tell it not to%s: printf "
			     "'[Service]\\nRestart=no\\n' | systemctl%s edit --runtime --drop-in zz-godwit --stdin '%s'", pid,
			     whose, unit->name, unit->restart, unit->uid < 0 ? "" : ", as that user",
			     unit->uid < 0 ? "" : " --user", unit->name);
	fault_clear();
	free(whose);
}

static void look_at_unit(struct plan *plan, pid_t pid, const char *cgroup)
{
	char *copy = xstrdup(cgroup);
	struct unit unit = { 0 };

	/* (the folder is there if systemd is process 1) */
	if (find_unit(copy, &unit) && !access("/run/systemd/system", F_OK))
		refuse_unit(plan, pid, &unit);
	free(copy);
}

/* -------------------------------------------------------------- together -- */

bool plan_supervisor(struct plan *plan)
{
	char *before = xstrdup("");
	bool contained = false;

	for (size_t i = 0; i < plan->tree.n; i++) {
		pid_t pid = plan->tree.task[i].pid;
		char *cgroup = proc_cgroup(pid);

		/* (most are in that of their parent) */
		if (cgroup && strcmp(cgroup, before)) {
			if (look_at_container(plan, pid, cgroup))
				contained = true;
			else
				look_at_unit(plan, pid, cgroup);
		}
		free(before);
		before = cgroup ?: xstrdup("");
	}
	free(before);
	return contained;
}
