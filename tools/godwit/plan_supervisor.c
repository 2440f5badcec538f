// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Does somebody supervise the process or container, and start the program anew when it dies at its source? That may be the
 * runtime of a process's container, or systemd: control groups tell. We can't know of others, such as a loop in a script.
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

/* What the name of a control group has before the container's ID. */
static const struct {
	const char *start, *whose;
} runtimes[] = {
	{ "libpod-conmon-", "podman" },
	{ "libpod-payload-", "podman" },	/* below the control group of a unit */
	{ "libpod-", "podman" },
	{ "docker-", "Docker" },
	{ "cri-containerd-", "containerd" },
	{ "crio-", "CRI-O" },
};

/* The container's ID in such a name, or NULL. (A scope of systemd has an ending.) */
static const char *id_in(const char *name, const char *start)
{
	const char *id = begins_with(name, start) ? name + strlen(start) : "";
	size_t n = strspn(id, "0123456789abcdef");

	return n == ID_DIGITS && (!id[n] || !strcmp(id + n, ".scope")) ? id : NULL;
}

/* uid: for a container of podman's, the user whose rootless podman has it; -1: root's podman has it. */
static bool look_at_name(struct plan *plan, pid_t pid, const char *name, int uid)
{
	for (size_t i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
		const char *id = id_in(name, runtimes[i].start), *whose = runtimes[i].whose;

		if (!id)
			continue;
		if (strcmp(whose, "podman"))
			plan_problem(plan, "process %d: it belongs to the container %.*s of %s, and only podman's can be moved: "
				     "run it by podman, or without a container", pid, ID_SHOWN, id, whose);
		else if (uid >= 0)
			plan_problem(plan, "process %d: it belongs to the container %.*s of user %d's podman, and only "
				     "root's can be moved: run it by root's, or without a container", pid, ID_SHOWN, id, uid);
		else
			plan_problem(plan, "process %d: it belongs to podman's container %.*s: move that (godwit migrate "
				     "--container %.*s)", pid, ID_SHOWN, id, ID_SHOWN, id);
		return true;
	}
	return false;
}

static bool look_at_container(struct plan *plan, pid_t pid, const char *cgroup)
{
	char *copy = xstrdup(cgroup), *name, *save;
	bool found = false;
	int uid = -1;

	for (name = strtok_r(copy, "/", &save); name && !found; name = strtok_r(NULL, "/", &save)) {
		found = look_at_name(plan, pid, name, uid);
		sscanf(name, "user@%d.service", &uid);
	}
	free(copy);
	return found;
}

/* --------------------------------------------------------------- systemd -- */

struct unit {
	const char *name;	/* of a service */
	int uid;		/* of the user whose manager runs the unit; -1: the host's manager */
	const json_t *says;	/* what the manager says of the unit: {"Restart": "always", ...}; or a string: why it says nothing */
};

#define PROPERTIES	"ActiveState,MainPID,Restart,RestartForceExitStatus,FailureAction,WatchdogUSec,RuntimeMaxUSec"

/* What systemd does when the unit dies, unless the property is harmless. A drop-in lists the properties in this order. */
static const struct {
	const char *property, *harmless, *section;
} deeds[] = {
	{ "Restart", "no", "[Service]\\n" },
	{ "RestartForceExitStatus", "", "[Service]\\n" },
	{ "FailureAction", "none", "[Unit]\\n" },
};

#define N_DEEDS	(sizeof(deeds) / sizeof(deeds[0]))

/* Limits after which systemd kills the unit's processes, frozen or not; and how a unit's file calls them. */
static const struct {
	const char *property, *setting;
} limits[] = {
	{ "WatchdogUSec", "WatchdogSec" },
	{ "RuntimeMaxUSec", "RuntimeMaxSec" },
};

/* The letters of unit names. (We print the name in a command, and whoever may make control groups chooses names.) */
#define UNIT_LETTERS	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"

static bool is_service(const char *name)
{
	return ends_in(name, ".service") && !name[strspn(name, UNIT_LETTERS)];
}

/*
 * The first name that is no slice is the unit. If that is a user's manager, the units of that manager follow. Scopes, such as
 * those of sessions, are not started anew.
 */
static bool find_unit(char *cgroup, struct unit *unit)
{
	char *name, *save;

	unit->uid = -1;
	for (name = strtok_r(cgroup, "/", &save); name; name = strtok_r(NULL, "/", &save)) {
		name += *name == '_';	/* systemd puts _ before a name that would be one of the kernel's files */
		if (ends_in(name, ".slice"))
			continue;
		if (!is_service(name))
			return false;
		unit->name = name;
		if (unit->uid >= 0 || sscanf(name, "user@%d.service", &unit->uid) != 1)
			return true;
	}
	return false;
}

static const char *said(const struct unit *unit, const char *property)
{
	return json_string_value(json_object_get(unit->says, property)) ?: "";
}

/* Each line has a property: Restart=always */
static json_t *read_answer(char *text)
{
	json_t *says = json_object();
	char *line, *save;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = '\0';
		json_object_set_new(says, line, text_json(value));
	}
	return says;
}

/* What the manager says of the unit, or why it says nothing. A manager that hangs gets 10 s. */
static json_t *ask_systemd(const struct unit *unit)
{
	char *uid = xasprintf("%d", unit->uid), *folder = xasprintf("XDG_RUNTIME_DIR=/run/user/%d", unit->uid), *text = NULL;
	const char *const hosts[] = {
		"timeout", "-k", "1", "10", "systemctl", "show", "--property", PROPERTIES, "--", unit->name, NULL,
	};
	/* A user's manager answers only that user. We keep root's group, so that the user can't trace us. */
	const char *const users[] = {
		"timeout", "-k", "1", "10", "setpriv", "--reuid", uid, "--clear-groups", "env", folder, "systemctl", "--user",
		"show", "--property", PROPERTIES, "--", unit->name, NULL,
	};
	int ret = run(unit->uid < 0 ? hosts : users, NULL, &text);
	json_t *says = !ret && text && strstr(text, "Restart=") ? read_answer(text) : NULL;

	if (!says)
		says = text_json(text && *text ? text_last_line(text) : ret == TIMED_OUT || ret < 0 ? "no answer" : "it fails");
	free(text);
	free(folder);
	free(uid);
	return says;
}

/* Ask once for all looks of a plan. */
static void know_unit(struct plan *plan, struct unit *unit)
{
	char *key = xasprintf("%d/%s", unit->uid, unit->name);

	if (!json_object_get(plan->units, key))
		json_object_set_new(plan->units, key, ask_systemd(unit));
	unit->says = json_object_get(plan->units, key);
	free(key);
}

/* Refuse if the manager of the unit would do more than note that the unit dies. who: such as "process 17" */
static void refuse_deeds(struct plan *plan, const char *who, const struct unit *unit, const char *end)
{
	char *whose = unit->uid < 0 ? xstrdup("systemd") : xasprintf("systemd of user %d", unit->uid);
	char *says = xstrdup(""), *drop_in = xstrdup(""), *old;
	const char *section = "";
	bool anew = false;

	for (size_t i = 0; i < N_DEEDS; i++) {
		const char *value = said(unit, deeds[i].property);

		if (!*value || !strcmp(value, deeds[i].harmless))
			continue;
		says = xasprintf("%s%s%s=%s", old = says, *says ? ", " : "", deeds[i].property, value);
		free(old);
		drop_in = xasprintf("%s%s%s=%s\\n", old = drop_in, strcmp(section, deeds[i].section) ? deeds[i].section : "",
				    deeds[i].property, deeds[i].harmless);
		free(old);
		section = deeds[i].section;
		anew |= begins_with(deeds[i].property, "Restart");
	}
	if (*says)
		plan_problem(plan, "%s: when it dies here, %s%s %s %s%s (%s): tell it not to%s: printf '%s' | "
			     "systemctl%s edit --runtime --drop-in zz-godwit --stdin -- '%s'", who, end, whose,
			     anew ? "starts" : "takes", unit->name, anew ? " anew" : " for failed", says,
			     unit->uid < 0 ? "" : ", as that user", drop_in, unit->uid < 0 ? "" : " --user", unit->name);
	free(drop_in);
	free(says);
	free(whose);
}

/* systemctl shows what counts for the unit that runs. The unit's file may have changed since. */
static void refuse_limits(struct plan *plan, const char *who, const struct unit *unit)
{
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		const char *value = said(unit, limits[i].property);

		if (*value && strcmp(value, "0") && strcmp(value, "infinity"))
			plan_problem(plan, "%s: while it is stopped here, systemd may kill %s (%s=%s): start that "
				     "without %s=", who, unit->name, limits[i].setting, value, limits[i].setting);
	}
}

/* systemd is process 1. */
static bool systemd_runs(void)
{
	return !access("/run/systemd/system", F_OK);
}

/* A unit that has ended does not supervise processes that it left behind. */
static bool is_active(struct plan *plan, const char *who, struct unit *unit)
{
	know_unit(plan, unit);
	if (json_is_object(unit->says))
		return strcmp(said(unit, "ActiveState"), "inactive") && strcmp(said(unit, "ActiveState"), "failed");
	plan_problem(plan, "%s: it is of %s, and systemd does not say whether it would start that anew: systemctl show: %s", who,
		     unit->name, json_string_value(unit->says));
	return false;
}

/* ends: the unit dies with the process. If it is false, the unit may die with it, and end says why. */
static void refuse_unit(struct plan *plan, const char *who, const struct unit *unit, bool ends, const char *end)
{
	refuse_deeds(plan, who, unit, ends ? "" : end);
	if (ends)
		refuse_limits(plan, who, unit);
}

/*
 * A unit dies with its main process, or, if it has none, with its last process. If the main process is the tree's parent, such
 * as a script, it may end when the tree does.
 */
static void look_at_unit(struct plan *plan, pid_t pid, const char *cgroup)
{
	char *copy = xstrdup(cgroup), *who = xasprintf("process %d", pid);
	struct unit unit = { 0 };

	if (find_unit(copy, &unit) && systemd_runs() && is_active(plan, who, &unit)) {
		pid_t main = atoi(said(&unit, "MainPID"));
		bool ends = !main || tree_has(&plan->tree, main);

		if (ends || main == proc_parent(pid))
			refuse_unit(plan, who, &unit, ends, "its parent may end, and ");
	}
	free(who);
	free(copy);
}

/* ------------------------------------------------- of a container of podman's -- */

static bool is_witness(pid_t pid, const struct witnesses *w)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->pid[i] == pid)
			return true;
	return false;
}

/*
 * starter: the unit has started the container, and its main process may wait for it in some way. pid: a witness in the unit, whose
 * parent, such as a script, may end when the witness does; or 0.
 */
static void look_at_its_unit(struct plan *plan, const char *who, struct unit *unit, const struct witnesses *w, pid_t pid,
			     bool starter)
{
	if (systemd_runs() && is_active(plan, who, unit)) {
		pid_t main = atoi(said(unit, "MainPID"));
		bool ends = !main || is_witness(main, w);

		if (ends || starter || main == proc_parent(pid))
			refuse_unit(plan, who, unit, ends, "the unit's main process may end, and ");
	}
}

void plan_witnesses(struct plan *plan, const char *who, const struct witnesses *w)
{
	struct unit named = { .name = w->unit, .uid = -1 };

	for (size_t i = 0; i < w->n; i++) {
		char *cgroup = proc_cgroup(w->pid[i]);
		struct unit unit = { 0 };

		if (cgroup && find_unit(cgroup, &unit))
			look_at_its_unit(plan, who, &unit, w, w->pid[i], i == 0);
		free(cgroup);
	}
	if (is_service(w->unit))
		look_at_its_unit(plan, who, &named, w, 0, true);
}

/* -------------------------------------------------------------- together -- */

bool plan_supervisor(struct plan *plan)
{
	char *before = xstrdup("");
	bool contained = false;

	for (size_t i = 0; i < plan->tree.n; i++) {
		pid_t pid = plan->tree.task[i].pid;
		char *cgroup = proc_cgroup(pid);

		/* Most processes are in the control group of their parent. */
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
