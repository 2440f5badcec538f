// SPDX-License-Identifier: MIT
/* rmemswap: swap to memory of other hosts. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rmemswap.h"
#include "standard.h"

struct arguments {
	const char *conf, *socket;
	bool json, slabs;
	unsigned int interval, count;
};

static void usage(FILE *to)
{
	fprintf(to,
		"usage: rmemswap run [--config FILE] [--socket PATH]\n"
		"       rmemswap status [--json] [--slabs]\n"
		"       rmemswap top [--json] [--interval SECONDS] [--count N]\n"
		"       rmemswap drain DONOR [--json] [--socket PATH]\n"
		"       rmemswap --version | --help\n\n"
		"  run     make the devices of " CONF_PATH ", swap to them, keep their donors connected\n"
		"  status  devices, donors and what was paged\n"
		"  top     the same, each second, and the hottest slabs\n"
		"  drain   a donor's slabs are unmapped, and it is not connected again\n\n"
		"See rmemswap(8).\n");
}

static bool number(const char *option, const char *text, unsigned int *to)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n < 1 || n > 86400) {
		fault("--%s: '%s' is no number from 1 to 86400", option, text);
		return false;
	}
	*to = n;
	return true;
}

/* Returns an exit code, or -1 to go on. */
static int parse_arguments(int argc, char **argv, struct arguments *a)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' }, { "socket", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' },	    { "slabs", no_argument, NULL, 'S' },
		{ "interval", required_argument, NULL, 'i' }, { "count", required_argument, NULL, 'n' },
		{ "version", no_argument, NULL, 'V' },	    { "help", no_argument, NULL, 'h' },
		{ }
	};
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'c': a->conf = optarg; break;
		case 's': a->socket = optarg; break;
		case 'j': a->json = true; break;
		case 'S': a->slabs = true; break;
		case 'i':
			if (!number("interval", optarg, &a->interval))
				return EXIT_USAGE;
			break;
		case 'n':
			if (!number("count", optarg, &a->count))
				return EXIT_USAGE;
			break;
		case 'V': printf("rmemswap %s\n", RMEM_PROGRAM_VERSION); return end_output(say_as, EXIT_OK, EXIT_FAILED);
		case 'h': usage(stdout); return end_output(say_as, EXIT_OK, EXIT_FAILED);
		default: return EXIT_USAGE;
		}
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct arguments a = { .conf = CONF_PATH, .socket = SOCKET_PATH, .interval = 1 };
	const char *command;
	int code, words;

	open_standard();
	say_as = "rmemswap";
	code = parse_arguments(argc, argv, &a);
	if (code >= 0)
		return code;
	command = argc > optind ? argv[optind] : "";
	words = argc - optind;
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(command, "run") && words == 1)
		return service_run(a.conf, a.socket);
	if (!strcmp(command, "status") && words == 1)
		return status_command(a.json, a.slabs);
	if (!strcmp(command, "top") && words == 1)
		return top_command(a.interval, a.count, a.json);
	if (!strcmp(command, "drain") && words == 2)
		return drain_command(argv[optind + 1], a.socket, a.json);
	if (words)
		fault("%s: there is no such command, or it takes other arguments: rmemswap --help", command);
	else
		usage(stderr);
	return EXIT_USAGE;
}
