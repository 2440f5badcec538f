// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The usage, and how a subcommand fails. A file of its own: main.c calls the subcommands, and they call this.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "godwit.h"

static const struct {
	const char *name, *arguments, *does;
	const struct option *options;
} commands[] = {
	{ "check", "[PID] [--to HOST]", "can this host, this process move? each RDMA object; why not?", check_options },
	{ "migrate", "PID --to HOST", "move a process and its children, or --container NAME", migrate_options },
	{ "status", "", "what is stopped, paused or resuming here, and moves that are not over", status_options },
	{ "dump", "PID", "the RDMA objects of a process", dump_options },
	{ "show", "IMAGES", "the RDMA part of a checkpoint", show_options },
	{ "key", "COMMAND [FILE]", "the cluster's key: set, generate, show, add, rotate, drop-old, clear, load", NULL },
	{ "link", "add|del NAME", "a device of its own for a container", link_options },
	{ "settle", "ID commit|abort", "decide about a process that is held here", NULL },
};

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

void print_usage(FILE *f)
{
	fprintf(f, "usage: godwit COMMAND [ARGUMENTS]\n\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(f, "  %-8s %-17s %s\n", commands[i].name, commands[i].arguments, commands[i].does);
	fprintf(f, "\ngodwit COMMAND --help names its options; godwit(1) has the rest.\n");
}

void usage(void)
{
	print_usage(stderr);
	exit(EXIT_USAGE);
}

static void print_options(const struct option *option)
{
	if (option)
		printf("\noptions:");
	for (; option && option->name; option++)
		printf(" --%s%s", option->name, option[1].name ? "" : "\n");
}

bool print_help(int argc, char **argv)
{
	bool asked = false;

	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		asked |= !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
	for (size_t i = 0; asked && i < N_COMMANDS; i++)
		if (!strcmp(argv[0], commands[i].name)) {
			printf("usage: godwit %s %s\n\n  %s\n", argv[0], commands[i].arguments, commands[i].does);
			print_options(commands[i].options);
			printf("\nSee godwit(1).\n");
			return true;
		}
	return false;
}

void wrong_usage(const char *format, ...)
{
	va_list ap;
	char *text;

	va_start(ap, format);
	if (vasprintf(&text, format, ap) >= 0)
		fault("%s", text);
	exit(failed(EXIT_USAGE));
}

const char *only_argument(int argc, char **argv, int at, const char *what)
{
	if (at >= argc)
		wrong_usage("say which %s", what);
	if (at < argc - 1)
		wrong_usage("'%s': that is one argument too many", argv[at + 1]);
	return argv[at];
}

int failed(int code)
{
	fprintf(stderr, "godwit: %s\n", fault_text());
	return code;
}

int failed_as(bool json, int code)
{
	if (json) {
		json_t *object = json_pack("{s:b, s:s}", "ok", 0, "reason", fault_text());

		json_dumpf(object, stdout, JSON_INDENT(1));
		putchar('\n');
		json_decref(object);
	}
	return failed(code);
}

static int parse_number(const char *text, int most, const char *what)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (*end || end == text || number <= 0 || number > most)
		wrong_usage("'%s' is no %s", text, what);
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
