// SPDX-License-Identifier: MIT
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <time.h>

#include "recoverable.h"

static bool faults;
static struct rmem *connection;
static time_t began;

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	if (!*text || *end) {
		fprintf(stderr, "%s: not a number\n", text);
		exit(EXIT_USAGE);
	}
	return value;
}

static void take_option(struct options *o, int c)
{
	switch (c) {
	case 'H': o->donor.host = optarg; break;
	case 'P': o->donor.port = optarg; break;
	case 'C': o->donor.client = optarg; break;
	case 'K': o->donor.key_file = optarg; break;
	case 'D': o->donor.device = optarg; break;
	case 't': o->memory.tag = number(optarg); break;
	case 'w': o->memory.timeout_ms = number(optarg) * 1000; break;
	case 'f': o->memory.flags |= RVM_FAULTS; break;
	case 'g': o->memory.flags |= RVM_FAULTS | RVM_SIGNAL; break;
	case 'n': o->count = number(optarg); break;
	case 'T': o->threads = number(optarg); break;
	case 's': o->seconds = number(optarg); break;
	case 'l': o->limit = number(optarg); break;
	case 'S': o->seed = number(optarg); break;
	case 'c': o->check = true; break;
	default: exit(EXIT_USAGE);
	}
}

void options_parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "host", 1, NULL, 'H' }, { "port", 1, NULL, 'P' }, { "client", 1, NULL, 'C' }, { "key", 1, NULL, 'K' },
		{ "device", 1, NULL, 'D' }, { "tag", 1, NULL, 't' }, { "timeout", 1, NULL, 'w' }, { "faults", 0, NULL, 'f' },
		{ "signal", 0, NULL, 'g' }, { "accounts", 1, NULL, 'n' }, { "keys", 1, NULL, 'n' }, { "threads", 1, NULL, 'T' },
		{ "seconds", 1, NULL, 's' }, { "transfers", 1, NULL, 'l' }, { "operations", 1, NULL, 'l' },
		{ "seed", 1, NULL, 'S' }, { "check", 0, NULL, 'c' }, { 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		take_option(o, c);
	if (!o->donor.host || !o->donor.client || !o->donor.key_file || !o->count || !o->threads) {
		fprintf(stderr, "%s: --host, --client and --key are needed, and numbers that are not 0\n", argv[0]);
		exit(EXIT_USAGE);
	}
	if (!o->seconds && !o->limit)
		o->seconds = 10;
	faults = o->memory.flags & RVM_FAULTS;
	began = now();
}

bool time_is_over(const struct options *o)
{
	return o->seconds && now() - began >= (time_t)o->seconds;
}

static _Noreturn void cannot_ask(const char *what, int error, const char *why)
{
	fprintf(stderr, "%s: %s: %s\n", what, strerror(error), why);
	exit(EXIT_CANNOT_ASK);
}

/* An error of the memory itself is a violation. With any other error the question could not be asked. */
static struct rvm *init_failed(int error)
{
	if (error == ENOENT)
		return NULL;
	if (error == EBADMSG || error == EEXIST || error == EINVAL)
		VIOLATION("rvm_init: %s", strerror(error));
	cannot_ask("rvm_init", error, rmem_error());
}

struct rvm *memory_open(struct options *o, size_t size)
{
	const char *reason;
	struct rvm *v;

	if (!connection)
		connection = rmem_connect(&o->donor, &reason);
	if (!connection)
		cannot_ask("rmem_connect", errno, reason);
	o->memory.size = size;
	v = rvm_init(connection, &o->memory);
	return v ? v : init_failed(errno);
}

void memory_close(struct rvm *v)
{
	rvm_close(v);
	rmem_close(connection);
	connection = NULL;
}

void rvm_must(int ret, const char *call)
{
	if (ret == -ENOTCONN || ret == -ESTALE || ret == -EACCES || ret == -EPROTO)
		cannot_ask(call, -ret, rmem_error());
	if (ret)
		VIOLATION("%s: %s", call, strerror(-ret));
}

void set_range(struct rvm *v, void *p, size_t size)
{
	if (!faults)
		RVM(rvm_set_range(v, p, size));
}

uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t rnd(uint64_t *state, uint64_t below)
{
	*state += 0x9e3779b97f4a7c15ull;
	return mix(*state) % below;
}
