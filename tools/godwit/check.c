// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit check: can this host take part in a move? Can this process move, and if not, why?
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "host.h"
#include "move/move.h"
#include "standard.h"
#include "text.h"

/* One line for each thing that we look at: it is ok, or why not. */
static void look(json_t *list, const char *what, int failure)
{
	json_array_append_new(list, json_pack("{s:s, s:b, s:s*}", "what", what, "ok", !failure,
					      "reason", failure ? fault_text() : NULL));
	fault_clear();
}

static int look_at_device(const char *device, void *list)
{
	char *what = xasprintf("device %s", device);

	look(list, what, host_check_device(device));
	free(what);
	return 0;
}

static int check_key(void)
{
	uint64_t fingerprints[2];

	if (host_check_key(fingerprints))
		return -1;
	return fingerprints[0] ? 0 : fault("none is set, and allow_unsigned is: whoever can send packets can pause a "
					   "connection, and only one whose address moves along can move");
}

static json_t *look_at_host(void)
{
	json_t *list = json_array();
	size_t before;

	look(list, "privilege", host_check_root());
	look(list, "criu", host_check_criu());
	look(list, "nftables", host_check_nft());
	look(list, "CRIU plugin", host_check_plugin());
	before = json_array_size(list);
	rdma_each_device(look_at_device, list);
	if (json_array_size(list) == before)
		look(list, "devices", fault("there is no rxe device: rdma link add rxe0 type rxe netdev "
					    "INTERFACE"));
	else
		look(list, "cluster key", check_key());
	return list;
}

static void print_host(json_t *list)
{
	json_t *entry;
	size_t i;

	json_array_foreach(list, i, entry) {
		const char *reason = json_string_value(json_object_get(entry, "reason"));

		printf("%-14s %s%s\n", json_string_value(json_object_get(entry, "what")),
		       reason ? "NO: " : "ok", reason ?: "");
	}
}

/* --------------------------------------------------------------- process -- */

static void print_process(const struct move *m, json_t *there)
{
	const struct plan *plan = &m->plan;
	pid_t pid = plan->tree.task[0].pid;
	char *name = proc_name(pid);
	json_t *text;
	size_t i;

	printf("process %d (%s): %zu process%s, %.1f MiB, %zu RDMA context%s, %zu QP%s\n", pid, name,
	       plan->tree.n, plan->tree.n == 1 ? "" : "es", plan->memory / 1048576.0, plan->contexts.n,
	       plan->contexts.n == 1 ? "" : "s", plan->qps, plan->qps == 1 ? "" : "s");
	json_array_foreach(plan->objects, i, text)
		plan_print_object(stdout, text);
	json_array_foreach(plan->problems, i, text)
		printf("  NO: %s\n", json_string_value(text));
	json_array_foreach(there, i, text)
		printf("  NO: %s\n", json_string_value(text));
	if (!json_array_size(plan->problems) && !json_array_size(there))
		printf("  it can move\n");
	free(name);
}

static json_t *process_json(const struct plan *plan)
{
	return json_pack("{s:i, s:i, s:i, s:I, s:O, s:O, s:O}", "pid", (int)plan->tree.task[0].pid,
			 "processes", (int)plan->tree.n, "contexts", (int)plan->contexts.n,
			 "memory", (json_int_t)plan->memory, "objects", plan->objects,
			 "problems", plan->problems, "notes", plan->notes);
}

/* What the destination has against the move, or why it can't be asked: an array. */
static json_t *look_there(struct move *m)
{
	json_t *problems = move_problems_there(m);

	if (!problems)
		problems = json_pack("[s]", fault_text());
	fault_clear();
	return problems;
}

/*
 * needs_key: a missing key counts. It does not count for a process, whose plan says so, or if this host is told to do without a
 * key.
 */
static bool all_ok(json_t *list, bool needs_key)
{
	json_t *entry;
	size_t i;

	json_array_foreach(list, i, entry)
		if (!json_is_true(json_object_get(entry, "ok")) &&
		    (needs_key || strcmp(json_string_value(json_object_get(entry, "what")), "cluster key")))
			return false;
	return true;
}

static void print(const struct move *m, bool ok, json_t *host, json_t *there)
{
	json_t *all;

	if (!m->json) {
		print_host(host);
		if (m->process.pid)
			print_process(m, there);
		return;
	}
	all = json_pack("{s:b, s:O}", "ok", ok, "host", host);
	if (m->process.pid)
		json_object_set_new(all, "process", process_json(&m->plan));
	if (m->host)
		json_object_set_new(all, "destination", json_pack("{s:s, s:O}", "host", m->host,
								   "problems", there));
	json_dumpf(all, stdout, JSON_INDENT(1));
	putchar('\n');
}

static int check(struct move *m)
{
	json_t *host, *there = NULL;
	bool ok;
	int code;

	if (m->process.pid && host_check_root())
		return failed_as(m->json, EXIT_REFUSED);
	/* The connection comes first: ssh and the destination's look at itself take as long as our own look, and run meanwhile. */
	if (m->host) {
		move_make_id(m);
		if (dest_start(&m->dest, m->host, m->ssh, m->id, false))
			return failed_as(m->json, EXIT_REFUSED);
	}
	host = look_at_host();
	ok = all_ok(host, !m->process.pid && !host_allows_unsigned());
	if (m->process.pid && move_plan(m)) {
		dest_close(&m->dest);
		return failed_as(m->json, EXIT_REFUSED);
	}
	if (m->host)
		there = look_there(m);
	ok = ok && !json_array_size(m->plan.problems) && !json_array_size(there);
	print(m, ok, host, there);
	code = end_output("godwit", ok ? EXIT_OK : EXIT_REFUSED, EXIT_REFUSED);
	dest_close(&m->dest);
	return code;
}

/* Work in a child, which ends with us. */
static int check_first(struct move *m)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		go_first();
		exit(check(m));
	}
	if (pid < 0)
		return check(m);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fault("check: its process was killed by signal %d", WTERMSIG(status));
	return failed_as(m->json, EXIT_REFUSED);
}

const struct option check_options[] = {
	{ "address", required_argument, NULL, 'a' },
	{ "copy", required_argument, NULL, 'c' },
	{ "device", required_argument, NULL, 'd' },
	{ "gid", required_argument, NULL, 'g' },
	{ "images", required_argument, NULL, 'i' },
	{ "json", no_argument, NULL, 'j' },
	{ "shared", required_argument, NULL, 'S' },
	{ "ssh", required_argument, NULL, 's' },
	{ "to", required_argument, NULL, 't' },
	{ }
};

int cmd_check(int argc, char **argv)
{
	struct move m = MOVE_INIT;
	int c;

	while ((c = getopt_long(argc, argv, "ja:t:", check_options, NULL)) != -1)
		switch (c) {
		case 'a':
			if (address_parse(&m.addresses, optarg))
				return failed(EXIT_USAGE);
			break;
		case 'c': move_path(&m.copy, optarg); break;
		case 'd':
			if (move_device(&m, optarg))
				return failed(EXIT_USAGE);
			break;
		case 'g':
			if (move_gid(&m, optarg))
				return failed(EXIT_USAGE);
			break;
		case 'i': m.images_base = parse_text(optarg); break;
		case 'j': m.json = true; break;
		case 's': m.ssh = parse_text(optarg); break;
		case 'S': move_path(&m.share, optarg); break;
		case 't': m.host = parse_text(optarg); break;
		default: usage();
		}
	move_check_usage(&m);
	if (m.host || argc > optind)
		m.process.pid = parse_pid(only_argument(argc, argv, optind, "process is to move there: give its PID"));
	return check_first(&m);
}
