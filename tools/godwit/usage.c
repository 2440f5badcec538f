// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The usage, and how a subcommand fails. A file of its own: main.c calls the subcommands, and they call this.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "godwit.h"

void print_usage(FILE *f)
{
	static const char *const lines[][3] = {
		{ "check", "[PID]", "can this host, this process move? each RDMA object; why not?" },
		{ "migrate", "PID --to HOST", "move a process and its children, or --container NAME" },
		{ "status", "", "what is stopped, paused or resuming here, and moves that are not over" },
		{ "dump", "PID", "the RDMA objects of a process" },
		{ "show", "IMAGES", "the RDMA part of a checkpoint" },
		{ "key", "COMMAND", "the cluster's key: set, generate, show, add, rotate, drop-old, clear, load" },
		{ "link", "add|del NAME", "a device of its own for a container" },
		{ "settle", "ID commit|abort", "decide about a process that is held here" },
	};

	fprintf(f, "usage: godwit COMMAND [ARGUMENTS]\n\n");
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		fprintf(f, "  %-8s %-16s %s\n", lines[i][0], lines[i][1], lines[i][2]);
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

static int parse_number(const char *text, int most, const char *what)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (*end || end == text || number <= 0 || number > most) {
		fprintf(stderr, "godwit: '%s' is no %s\n", text, what);
		exit(EXIT_USAGE);
	}
	return number;
}

pid_t parse_pid(const char *text)
{
	return parse_number(text, 1 << 22, "process id");
}

int parse_seconds(const char *text)
{
	return parse_number(text, INT_MAX / 1000, "number of seconds");
}
