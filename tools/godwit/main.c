// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "move/container.h"
#include "standard.h"

static const struct command {
	const char *name;
	int (*function)(int argc, char **argv);
	int lost;	/* the exit code if all was done, and its output could not be written */
} commands[] = {
	{ "check", cmd_check, EXIT_REFUSED }, { "migrate", cmd_migrate, EXIT_WARNED }, { "status", cmd_status, EXIT_REFUSED },
	{ "dump", cmd_dump, EXIT_REFUSED }, { "show", cmd_show, EXIT_REFUSED }, { "key", cmd_key, EXIT_REFUSED },
	{ "link", cmd_link, EXIT_REFUSED }, { "settle", cmd_settle, EXIT_WARNED },
	{ "agent", cmd_agent, EXIT_REFUSED },	/* not for people: usage.c leaves it out */
};

/* If jansson got no memory, a problem could be missing from a list, and the move would go on. So the program ends then. */
static void *json_memory(size_t size)
{
	return xrealloc(NULL, size);
}

int main(int argc, char **argv)
{
	const char *name = argc ? strrchr(argv[0], '/') : NULL;

	open_standard();
	json_set_alloc_funcs(json_memory, free);
	if (!strcmp(name ? name + 1 : argv[0] ?: "", "criu"))
		return cmd_relay(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	/* podman must not ask another host. */
	unsetenv("CONTAINER_HOST");
	unsetenv("CONTAINER_CONNECTION");
	/* tar must leave nothing out, and names are bytes. */
	unsetenv("TAR_OPTIONS");
	setenv("LC_ALL", "C", 1);
	if (argc < 2)
		usage();
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_usage(stdout);
		return end_output("godwit", EXIT_OK, EXIT_REFUSED);
	}
	if (!strcmp(argv[1], "--version")) {
		printf("godwit %s\n", GODWIT_VERSION);
		return end_output("godwit", EXIT_OK, EXIT_REFUSED);
	}
	if (print_help(argc - 1, argv + 1))
		return end_output("godwit", EXIT_OK, EXIT_REFUSED);
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return end_output("godwit", commands[i].function(argc - 1, argv + 1), commands[i].lost);
	fprintf(stderr, "godwit: there is no command '%s'\n", argv[1]);
	usage();
}
