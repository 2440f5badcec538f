// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit check: can this host take part in a move? Can this process move, and what of it can't?
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host.h"
#include "plan.h"

/* One line for each thing looked at: it holds, or why not. */
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
	uint64_t fingerprint;

	if (rdma_key_fingerprint(&fingerprint))
		return -1;
	return fingerprint ? 0 : fault("none is set: only connections whose address moves along can move");
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

static void print_process(const struct plan *plan)
{
	pid_t pid = plan->tree.task[0].pid;
	char *name = proc_name(pid);
	json_t *text;
	size_t i;

	printf("process %d (%s): %zu process%s, %.1f MiB, %zu RDMA context%s, %zu QP%s\n", pid, name,
	       plan->tree.n, plan->tree.n == 1 ? "" : "es", plan->memory / 1048576.0, plan->contexts.n,
	       plan->contexts.n == 1 ? "" : "s", plan->qps, plan->qps == 1 ? "" : "s");
	json_array_foreach(plan->notes, i, text)
		printf("  note: %s\n", json_string_value(text));
	json_array_foreach(plan->problems, i, text)
		printf("  NO: %s\n", json_string_value(text));
	if (!json_array_size(plan->problems))
		printf("  it can move\n");
	free(name);
}

static bool all_ok(json_t *list)
{
	json_t *entry;
	size_t i;

	json_array_foreach(list, i, entry)
		/* (a move without a changed address needs no key) */
		if (!json_is_true(json_object_get(entry, "ok")) &&
		    strcmp(json_string_value(json_object_get(entry, "what")), "cluster key"))
			return false;
	return true;
}

static int check(pid_t pid, bool json, const struct addresses *addresses)
{
	json_t *host = look_at_host(), *all;
	struct plan plan = { 0 };
	bool ok = all_ok(host);

	if (pid && plan_make(&plan, pid, addresses))
		return failed(EXIT_REFUSED);
	ok = ok && !(pid && json_array_size(plan.problems));
	if (json) {
		all = json_pack("{s:b, s:O}", "ok", ok, "host", host);
		if (pid)
			json_object_set_new(all, "process", json_pack("{s:i, s:i, s:i, s:I, s:O, s:O}",
				"pid", (int)pid, "processes", (int)plan.tree.n,
				"contexts", (int)plan.contexts.n, "memory", (json_int_t)plan.memory,
				"problems", plan.problems, "notes", plan.notes));
		json_dumpf(all, stdout, JSON_INDENT(1));
		putchar('\n');
	} else {
		print_host(host);
		if (pid)
			print_process(&plan);
	}
	return ok ? EXIT_OK : EXIT_REFUSED;
}

int cmd_check(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "address", required_argument, NULL, 'a' },
		{ }
	};
	struct addresses addresses = { 0 };
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, "ja:", options, NULL)) != -1)
		switch (c) {
		case 'j': json = true; break;
		case 'a':
			if (address_parse(&addresses, optarg))
				return failed(EXIT_USAGE);
			break;
		default: usage();
		}
	if (argc > optind + 1)
		usage();
	return check(argc > optind ? parse_pid(argv[optind]) : 0, json, &addresses);
}
