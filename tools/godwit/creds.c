// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "creds.h"
#include "text.h"

/* -------------------------------------------------------------- reading -- */

/* The value of a line of /proc/PID/status, or "" if there is no such line. Free it. */
static char *status_line(const char *status, const char *name)
{
	char *key = xasprintf("\n%s:", name), *value;
	const char *at = strstr(status, key);
	size_t len;

	at = at ? at + strlen(key) : "";
	free(key);
	at += strspn(at, " \t");
	len = strcspn(at, "\n");
	while (len && at[len - 1] == ' ')
		len--;
	value = xasprintf("%.*s", (int)len, at);
	for (char *c = value; *c; c++)
		if (*c == '\t')
			*c = ' ';
	return value;
}

static void add_lines(json_t *creds, const char *status)
{
	static const char *const names[] = {
		"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
		"Seccomp_filters",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char *value = status_line(status, names[i]);

		json_object_set_new(creds, names[i], text_json(value));
		free(value);
	}
}

/* Without a security module the kernel gives an error. AppArmor says "unconfined". Both mean the same. */
static void add_label(json_t *creds, pid_t pid, pid_t tid)
{
	char *path = xasprintf("/proc/%d/task/%d/attr/current", pid, tid);
	char *label = read_file(path) ?: xstrdup("");

	label[strcspn(label, "\n")] = '\0';
	json_object_set_new(creds, "security label", text_json(strcmp(label, "unconfined") ? label : ""));
	free(label);
	free(path);
}

static char *limit_text(rlim_t limit)
{
	return limit == RLIM_INFINITY ? xstrdup("unlimited") : xasprintf("%llu", (unsigned long long)limit);
}

static int add_limits(json_t *creds, pid_t pid)
{
	static const char *const names[RLIM_NLIMITS] = {
		[RLIMIT_CPU] = "RLIMIT_CPU", [RLIMIT_FSIZE] = "RLIMIT_FSIZE", [RLIMIT_DATA] = "RLIMIT_DATA",
		[RLIMIT_STACK] = "RLIMIT_STACK", [RLIMIT_CORE] = "RLIMIT_CORE", [RLIMIT_RSS] = "RLIMIT_RSS",
		[RLIMIT_NPROC] = "RLIMIT_NPROC", [RLIMIT_NOFILE] = "RLIMIT_NOFILE",
		[RLIMIT_MEMLOCK] = "RLIMIT_MEMLOCK", [RLIMIT_AS] = "RLIMIT_AS", [RLIMIT_LOCKS] = "RLIMIT_LOCKS",
		[RLIMIT_SIGPENDING] = "RLIMIT_SIGPENDING", [RLIMIT_MSGQUEUE] = "RLIMIT_MSGQUEUE",
		[RLIMIT_NICE] = "RLIMIT_NICE", [RLIMIT_RTPRIO] = "RLIMIT_RTPRIO", [RLIMIT_RTTIME] = "RLIMIT_RTTIME",
	};

	for (int i = 0; i < RLIM_NLIMITS; i++) {
		char *soft, *hard, *both;
		struct rlimit limit;

		if (prlimit(pid, i, NULL, &limit))
			return fault("process %d: its %s can't be read: %s", pid, names[i], strerror(errno));
		soft = limit_text(limit.rlim_cur);
		hard = limit_text(limit.rlim_max);
		both = xasprintf("%s:%s", soft, hard);
		json_object_set_new(creds, names[i], json_string(both));
		free(both);
		free(soft);
		free(hard);
	}
	return 0;
}

/* The index of these credentials in kinds: most threads have the same. Takes creds over. */
static size_t kind_of(json_t *kinds, json_t *creds)
{
	json_t *kind;
	size_t i;

	json_array_foreach(kinds, i, kind)
		if (json_equal(kind, creds)) {
			json_decref(creds);
			return i;
		}
	json_array_append_new(kinds, creds);
	return i;
}

static int add_thread(json_t *kinds, json_t *threads, json_t *limits, pid_t pid, pid_t tid)
{
	char *path = xasprintf("/proc/%d/task/%d/status", pid, tid);
	char *status = read_file(path), *state, *numbers, *inner;
	json_t *creds;

	free(path);
	if (!status)
		return fault("process %d, thread %d: its credentials can't be read: %s", pid, tid, strerror(errno));
	state = status_line(status, "State");
	numbers = status_line(status, "NSpid");
	inner = strrchr(numbers, ' ');
	/* CRIU restores a dead thread with credentials of CRIU's own. */
	if (state[0] != 'Z' && state[0] != 'X') {
		creds = json_object();
		add_lines(creds, status);
		add_label(creds, pid, tid);
		json_object_update(creds, limits);
		json_object_set_new(threads, inner ? inner + 1 : numbers,
				    json_pack("[i, i, i]", (int)kind_of(kinds, creds), (int)pid, (int)tid));
	}
	free(numbers);
	free(state);
	free(status);
	return 0;
}

static int add_process(json_t *kinds, json_t *threads, struct task *task)
{
	json_t *limits = json_object();
	pid_t *tids;
	size_t n = proc_threads(task->pid, &tids);
	int ret = add_limits(limits, task->pid);

	for (size_t i = 0; !ret && i < n; i++)
		ret = add_thread(kinds, threads, limits, task->pid, tids[i]);
	free(tids);
	json_decref(limits);
	return ret;
}

json_t *creds_collect(const struct tree *tree)
{
	json_t *kinds = json_array(), *threads = json_object();
	json_t *all = json_pack("{s:o, s:o}", "kinds", kinds, "threads", threads);

	for (size_t i = 0; i < tree->n; i++)
		if (add_process(kinds, threads, &tree->task[i])) {
			json_decref(all);
			return NULL;
		}
	return all;
}

/* ------------------------------------------------------------ comparing -- */

static const char *shown(json_t *value)
{
	const char *text = json_string_value(value);

	return text && text[0] ? text : "none";
}

static int compare_kinds(const char *whose, json_t *source, json_t *there)
{
	const char *name;
	json_t *value;

	json_object_foreach(source, name, value)
		if (!json_equal(value, json_object_get(there, name)))
			return fault("%s: its %s would be %s there and is %s here: let root there have every capability, and "
				     "limits of the kernel as high as here", whose, name,
				     shown(json_object_get(there, name)), shown(value));
	return 0;
}

static json_t *kind_at(json_t *all, json_t *thread)
{
	return json_array_get(json_object_get(all, "kinds"), json_integer_value(json_array_get(thread, 0)));
}

int creds_compare(json_t *source, json_t *there)
{
	json_t *threads = json_object_get(source, "threads"), *thread;
	const char *inner;

	if (!json_object_size(threads))
		return fault("the source did not say what credentials there are");
	json_object_foreach(threads, inner, thread) {
		json_t *back = json_object_get(json_object_get(there, "threads"), inner);
		int pid = json_integer_value(json_array_get(thread, 1));
		int tid = json_integer_value(json_array_get(thread, 2));
		char *whose = tid == pid ? xasprintf("process %d", pid) : xasprintf("process %d, thread %d", pid, tid);
		int ret = back ? compare_kinds(whose, kind_at(source, thread), kind_at(there, back)) :
				 fault("%s: it did not come back", whose);

		free(whose);
		if (ret)
			return ret;
	}
	return 0;
}
