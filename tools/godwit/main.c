// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "container.h"

static const struct command {
	const char *name;
	int (*function)(int argc, char **argv);
	const char *arguments, *what;	/* NULL: not for people */
} commands[] = {
	{ "check", cmd_check, "[PID]", "can this host, this process move? each RDMA object; why not?" },
	{ "migrate", cmd_migrate, "PID --to HOST", "move a process and its children, or --container NAME" },
	{ "status", cmd_status, "", "what is stopped, paused, resuming or held here" },
	{ "dump", cmd_dump, "PID", "the RDMA objects of a process" },
	{ "show", cmd_show, "IMAGES", "the RDMA part of a checkpoint" },
	{ "key", cmd_key, "COMMAND", "the cluster's key: set, generate, show, add, rotate, drop-old, clear, load" },
	{ "link", cmd_link, "add|del NAME", "a device of its own for a container" },
	{ "settle", cmd_settle, "ID commit|abort", "decide about a process that is held here" },
	{ "agent", cmd_agent, NULL, NULL },
};

static void print_usage(FILE *f)
{
	fprintf(f, "usage: godwit COMMAND [ARGUMENTS]\n\n");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (commands[i].what)
			fprintf(f, "  %-8s %-16s %s\n", commands[i].name, commands[i].arguments,
				commands[i].what);
	fprintf(f, "\ncheck, dump, show, status and migrate take --json; see godwit(1) for the rest.\n");
}

void usage(void)
{
	print_usage(stderr);
	exit(EXIT_USAGE);
}

int failed(int code)
{
	fprintf(stderr, "godwit: %s\n", fault_text());
	return code;
}

pid_t parse_pid(const char *text)
{
	char *end;
	long pid = strtol(text, &end, 10);

	if (*end || end == text || pid <= 0 || pid > 1 << 22) {
		fprintf(stderr, "godwit: '%s' is no process id\n", text);
		exit(EXIT_USAGE);
	}
	return pid;
}

/* What JSON has no memory for would be missing from a list, and a problem that is not listed is taken for none. */
static void *json_memory(size_t size)
{
	return xrealloc(NULL, size);
}

int main(int argc, char **argv)
{
	const char *name = argc ? strrchr(argv[0], '/') : NULL;

	json_set_alloc_funcs(json_memory, free);
	if (!strcmp(name ? name + 1 : argv[0] ?: "", "criu"))
		return cmd_relay(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	/* (the podman of another host is none of ours) */
	unsetenv("CONTAINER_HOST");
	unsetenv("CONTAINER_CONNECTION");
	if (argc < 2)
		usage();
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_usage(stdout);
		return EXIT_OK;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("godwit %s\n", GODWIT_VERSION);
		return EXIT_OK;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].function(argc - 1, argv + 1);
	fprintf(stderr, "godwit: there is no command '%s'\n", argv[1]);
	usage();
}
