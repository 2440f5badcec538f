// SPDX-License-Identifier: MIT
/* rmemctl: asks a running rmemd. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "standard.h"

#define SOCKET_PATH "/run/rmemd/rmemd.sock"

/* Exit codes, as rmemctl(1) promises them. */
enum {
	EXIT_OK = 0,
	EXIT_REFUSED = 1, /* by rmemd */
	EXIT_USAGE = 2,
	EXIT_UNREACHED = 3,
};

static void usage(FILE *to)
{
	fprintf(to,
		"usage: rmemctl [--json] [--socket PATH] COMMAND\n\n"
		"  status            what rmemd does, and what it has left\n"
		"  list [CLIENT]     clients and their regions\n"
		"  evict CLIENT TAG  take a slab back\n"
		"  drain             no new clients and regions, evict all slabs\n"
		"  stats             counters\n\n"
		"  --version, --help\n\n"
		"See rmemctl(1).\n");
}

/* ------------------------------------------------------------------ printing */

/* Prints key and value pairs as rdma(8) does, without lists and without keys that have no value. */
static void print_pairs(const json_t *object)
{
	const char *key, *before = "";
	json_t *value;

	json_object_foreach((json_t *)object, key, value) {
		if (!strcmp(key, "ok") || json_is_array(value) || json_is_null(value))
			continue;
		printf("%s%s ", before, key);
		before = " ";
		if (json_is_string(value))
			fputs(json_string_value(value), stdout);
		else if (json_is_integer(value))
			printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
		else
			fputs(json_is_true(value) ? "yes" : "no", stdout);
	}
	putchar('\n');
}

static void print_list(const json_t *answer)
{
	json_t *client, *region;
	size_t i, j;

	json_array_foreach(json_object_get(answer, "clients"), i, client) {
		print_pairs(client);
		json_array_foreach(json_object_get(client, "regions"), j, region) {
			printf("    ");
			print_pairs(region);
		}
	}
}

/* ------------------------------------------------------------------ asking */

static int lost(const char *path, const char *why)
{
	fprintf(stderr, "rmemctl: %s: %s: does rmemd run, and are you root?\n", path, why);
	return -1;
}

static int open_socket(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sk = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path)) {
		lost(path, strerror(ENAMETOOLONG));
		goto close;
	}
	strcpy(address.sun_path, path);
	if (sk >= 0 && !connect(sk, (struct sockaddr *)&address, sizeof(address)))
		return sk;
	lost(path, strerror(errno));
close:
	if (sk >= 0)
		close(sk);
	return -1;
}

/* Reads the answer, which is one line. Returns NULL after a message. */
static json_t *ask(const char *path, json_t *request)
{
	int sk = open_socket(path);
	FILE *stream = sk >= 0 ? fdopen(sk, "r+") : NULL;
	char *line = NULL;
	size_t size = 0;
	json_t *answer = NULL;
	bool there;

	if (!stream)
		return NULL;
	json_dumpf(request, stream, JSON_COMPACT);
	putc('\n', stream);
	there = fflush(stream) == 0 && getline(&line, &size, stream) > 0;
	if (there)
		answer = json_loads(line, 0, NULL);
	if (!answer)
		lost(path, there ? "it does not answer in JSON" : "it ended before it answered");
	free(line);
	fclose(stream);
	return answer;
}

static int show(const json_t *answer, const char *command, bool json)
{
	bool ok = json_is_true(json_object_get(answer, "ok"));
	const char *error = json_string_value(json_object_get(answer, "error"));

	if (json) {
		json_dumpf(answer, stdout, JSON_INDENT(2));
		putchar('\n');
	} else if (ok && !strcmp(command, "list")) {
		print_list(answer);
	} else if (ok) {
		print_pairs(answer);
	}
	if (!ok)
		fprintf(stderr, "rmemctl: %s\n", error ? error : "rmemd refused, and does not say why");
	return end_output("rmemctl", ok ? EXIT_OK : EXIT_REFUSED, EXIT_REFUSED);
}

/* ------------------------------------------------------------------ commands */

static const struct command {
	const char *name;
	int least, most; /* arguments */
} commands[] = {
	{ "status", 0, 0 }, { "list", 0, 1 }, { "evict", 2, 2 }, { "drain", 0, 0 }, { "stats", 0, 0 },
};

static const struct command *find_command(const char *name, int arguments)
{
	for (size_t i = 0; name && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(commands[i].name, name))
			return arguments >= commands[i].least && arguments <= commands[i].most ? &commands[i] : NULL;
	return NULL;
}

static bool tag_good(const char *text)
{
	char *end;

	errno = 0;
	strtoull(text, &end, 0);
	return text[0] >= '0' && text[0] <= '9' && !*end && !errno;
}

static int run(const char *path, bool json, char **words, int n)
{
	const struct command *command = find_command(n ? words[0] : NULL, n - 1);
	json_t *request, *answer;
	int code = EXIT_UNREACHED;

	if (!command) {
		if (n)
			fprintf(stderr, "rmemctl: %s: there is no such command, or it takes other arguments: rmemctl --help\n", words[0]);
		else
			usage(stderr);
		return EXIT_USAGE;
	}
	if (n > 2 && !tag_good(words[2])) {
		fprintf(stderr, "rmemctl: '%s' is no tag: give a number of 64 bits\n", words[2]);
		return EXIT_USAGE;
	}
	request = json_pack("{s:s, s:s*, s:s*}", "command", command->name, "client", n > 1 ? words[1] : NULL,
			    "tag", n > 2 ? words[2] : NULL);
	if (!request) {
		fprintf(stderr, "rmemctl: an argument is not UTF-8\n");
		return EXIT_USAGE;
	}
	answer = ask(path, request);
	if (answer)
		code = show(answer, command->name, json);
	json_decref(answer);
	json_decref(request);
	return code;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },    { "socket", required_argument, NULL, 's' },
		{ "version", no_argument, NULL, 'V' }, { "help", no_argument, NULL, 'h' },
		{ }
	};
	const char *path = SOCKET_PATH;
	bool json = false;
	int c;

	open_standard();
	signal(SIGPIPE, SIG_IGN);
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'j': json = true; break;
		case 's': path = optarg; break;
		case 'V': printf("rmemctl %s\n", RMEM_PROGRAM_VERSION); return end_output("rmemctl", EXIT_OK, EXIT_REFUSED);
		case 'h': usage(stdout); return end_output("rmemctl", EXIT_OK, EXIT_REFUSED);
		default: return EXIT_USAGE;
		}
	}
	return run(path, json, argv + optind, argc - optind);
}
