// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit dump: what RDMA objects a process has. It runs on meanwhile.
 */
#include <stdio.h>
#include "host.h"
#include "rdma.h"
#include "records.h"

static json_t *context_json(const struct context *c)
{
	json_t *records = json_array();
	const struct rxe_migr_rec *rec;

	ibv_for_each_record(rec, c->dump, c->length)
		json_array_append_new(records, record_json(rec));
	return json_pack("{s:i, s:i, s:s, s:i, s:i, s:o}", "pid", (int)c->pid, "fd", c->fd,
			 "device", c->device, "state", (int)c->query.state,
			 "bytes", (int)c->length, "records", records);
}

static void print_json(const struct contexts *list)
{
	json_t *array = json_array();

	for (size_t i = 0; i < list->n; i++)
		json_array_append_new(array, context_json(&list->context[i]));
	json_dumpf(array, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(array);
}

static void print(const struct contexts *list, bool all)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct context *c = &list->context[i];
		const struct rxe_migr_rec *rec;

		printf("process %d, descriptor %d: %s, %s, %u QPs, %zu bytes of records\n", c->pid, c->fd,
		       c->device, c->ours ? context_state(c) : "not our driver", c->query.num_qp, c->length);
		ibv_for_each_record(rec, c->dump, c->length)
			record_print(stdout, rec, all);
	}
}

const struct option dump_options[] = {
	{ "all", no_argument, NULL, 'a' },
	{ "json", no_argument, NULL, 'j' },
	{ }
};

int cmd_dump(int argc, char **argv)
{
	struct contexts contexts = { 0 };
	bool json = false, all = false;
	struct tree tree;
	pid_t pid;
	int c;

	while ((c = getopt_long(argc, argv, "ja", dump_options, NULL)) != -1) {
		json |= c == 'j';
		all |= c == 'a';
		if (c == '?')
			usage();
	}
	pid = parse_pid(only_argument(argc, argv, optind, "process: give its PID"));
	if (host_check_root() || tree_collect(&tree, pid))
		return failed_as(json, EXIT_REFUSED);
	if (contexts_find(&tree, &contexts) || contexts_inspect(&contexts))
		return failed_as(json, EXIT_REFUSED);
	if (json)
		print_json(&contexts);
	else
		print(&contexts, all);
	return EXIT_OK;
}
