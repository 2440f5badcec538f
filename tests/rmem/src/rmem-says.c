// SPDX-License-Identifier: MIT
/*
 * rmem-says --host HOST [--port PORT] --client NAME --key FILE: a client that does what it reads, a line at a time, and says what
 * came of it: the line's number, the line, and "ok" or why not.
 *
 *	alloc TAG SIZE [slab]	put TAG BYTE	fills the region		get TAG		"all BYTE", or "mixed"
 *	cp TAG TAG [N]		the first becomes like the second, from its byte N on		cps N TAG TAG	N times
 *	free TAG		go	abort	txn	the last one
 *	puts BYTE TAG...	fills some regions at once, with one rmem_op (on_error). It says how many puts have begun, and
 *				why another one has not. The tag "out" is a range in no region
 *	connection		keeps its number	go-on		goes on this connection only
 *	flush TAG		reconnect	tags	the number of regions
 *	deaf			from now on it calls the library for commands only, so no notice is heard
 *
 * Of each slab that the donor takes back it says "evicted TAG". It ends with its input.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rmem.h"

enum { MAX_SIZE = 8 << 20, MAX_WORDS = 8 };

static struct rmem *rmem;
static bool deaf;
static unsigned int connection;
static uint8_t bytes[MAX_SIZE];
static char more[100]; /* of an answer that is "ok" */

static void evicted(const struct rmem_region *region, void *arg)
{
	(void)arg;
	printf("evicted %llu\n", (unsigned long long)region->tag);
}

/* ------------------------------------------------------------------ commands */

static int find(const char *tag, struct rmem_region *region)
{
	int result = rmem_find(rmem, strtoull(tag, NULL, 0), region);

	return !result && region->size > MAX_SIZE ? -EFBIG : result;
}

static int do_alloc(char **word)
{
	uint64_t addr;

	return rmem_alloc(rmem, strtoull(word[0], NULL, 0), strtoull(word[1], NULL, 0), word[2] ? RMEM_SLAB : 0, &addr);
}

static int do_put(char **word)
{
	struct rmem_region region;
	int result = find(word[0], &region);

	if (result)
		return result;
	memset(bytes, strtoul(word[1], NULL, 0), region.size);
	return rmem_put(rmem, region.addr, bytes, region.size);
}

static int begin_put(const char *tag, struct rmem_op *op)
{
	struct rmem_region region = { .addr = UINT64_MAX - 4095, .size = 1 };
	int result = strcmp(tag, "out") ? find(tag, &region) : 0;

	return result ? result : rmem_put_async(rmem, region.addr, bytes, region.size, op);
}

/* The op stays for the next time: it must be as good as new. */
static int do_puts(char **word)
{
	static struct rmem_op op = { .on_error = true };
	int begun = 0, n = 0, failed = 0, result;

	memset(bytes, strtoul(word[0], NULL, 0), sizeof(bytes));
	for (char **tag = word + 1; *tag; tag++, n++) {
		result = begin_put(*tag, &op);
		failed = result ? result : failed;
		begun += !result;
	}
	result = rmem_wait(rmem, &op);
	if (begun && !op.done)
		return -EINPROGRESS;
	snprintf(more, sizeof(more), ", %d of %d begun%s%s", begun, n, failed ? ": " : "", failed ? strerror(-failed) : "");
	return result;
}

static int do_get(char **word)
{
	struct rmem_region region;
	int result = find(word[0], &region);

	if (!result)
		result = rmem_get(rmem, bytes, region.addr, region.size);
	if (result)
		return result;
	if (memcmp(bytes, bytes + 1, region.size - 1))
		strcpy(more, ", mixed");
	else
		snprintf(more, sizeof(more), ", all %u", bytes[0]);
	return 0;
}

static int do_cp(char **word)
{
	struct rmem_region dst, src;
	uint64_t from = word[2] ? strtoull(word[2], NULL, 0) : 0, left;
	int result = find(word[0], &dst);

	if (!result)
		result = find(word[1], &src);
	if (result)
		return result;
	left = src.size - from;
	return rmem_cp(rmem, dst.addr, src.addr + from, dst.size < left ? dst.size : left);
}

static int do_cps(char **word)
{
	int result = 0;

	for (unsigned long n = strtoul(word[0], NULL, 0); n && !result; n--)
		result = do_cp(word + 1);
	return result;
}

static int do_free(char **word)
{
	return rmem_free(rmem, strtoull(word[0], NULL, 0));
}

static int do_flush(char **word)
{
	struct rmem_region region;
	int result = find(word[0], &region);

	return result ? result : rmem_flush(rmem, region.addr, region.size);
}

static int do_go(char **word)
{
	(void)word;
	return rmem_txn_go(rmem);
}

static int do_connection(char **word)
{
	(void)word;
	connection = rmem_connection(rmem);
	return 0;
}

static int do_go_on(char **word)
{
	(void)word;
	return rmem_txn_go_on(rmem, connection);
}

static int do_abort(char **word)
{
	(void)word;
	return rmem_txn_abort(rmem);
}

static int do_txn(char **word)
{
	(void)word;
	snprintf(more, sizeof(more), ", %llu", (unsigned long long)rmem_last_txn(rmem));
	return 0;
}

static int do_reconnect(char **word)
{
	(void)word;
	return rmem_reconnect(rmem);
}

static int count_one(const struct rmem_region *region, void *count)
{
	(void)region;
	++*(unsigned int *)count;
	return 0;
}

static int do_tags(char **word)
{
	unsigned int count = 0;

	(void)word;
	rmem_each(rmem, count_one, &count);
	snprintf(more, sizeof(more), ", %u", count);
	return 0;
}

static int do_deaf(char **word)
{
	(void)word;
	deaf = true;
	return 0;
}

static const struct {
	const char *name;
	int words;
	int (*does)(char **word);
} commands[] = {
	{ "alloc", 2, do_alloc }, { "put", 2, do_put }, { "puts", 2, do_puts }, { "get", 1, do_get }, { "cp", 2, do_cp },
	{ "cps", 3, do_cps }, { "free", 1, do_free }, { "flush", 1, do_flush }, { "go", 0, do_go }, { "abort", 0, do_abort }, { "txn", 0, do_txn },
	{ "connection", 0, do_connection }, { "go-on", 0, do_go_on },
	{ "reconnect", 0, do_reconnect }, { "tags", 0, do_tags }, { "deaf", 0, do_deaf },
};

static int does(char *line)
{
	char *word[MAX_WORDS + 1] = { 0 }, *rest = line;
	int n = 0;

	while (n < MAX_WORDS && (word[n] = strtok_r(rest, " ", &rest)))
		n++;
	for (size_t i = 0; n && i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(word[0], commands[i].name) && n > commands[i].words)
			return commands[i].does(word + 1);
	return -ENOSYS;
}

static void obey(char *line)
{
	static unsigned int number;
	char *copy = strdup(line);
	int result;

	more[0] = '\0';
	result = does(line);
	printf("%u %s: %s%s\n", ++number, copy ? copy : "?", result ? strerror(-result) : "ok", result ? "" : more);
	free(copy);
	if (result)
		printf("(%s)\n", rmem_error());
}

/* ------------------------------------------------------------------ input */

/* false: the input has ended. */
static bool take_input(void)
{
	static char input[4096];
	static size_t have;
	ssize_t n = read(STDIN_FILENO, input + have, sizeof(input) - have);
	char *end;

	if (n <= 0)
		return false;
	have += n;
	while ((end = memchr(input, '\n', have))) {
		*end = '\0';
		obey(input);
		have -= end + 1 - input;
		memmove(input, end + 1, have);
	}
	return have < sizeof(input);
}

static void serve(void)
{
	struct pollfd fds[2] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .events = POLLIN } };

	/* rmem_poll() comes first, since the descriptor does not show what had come before poll(). */
	do {
		if (!deaf)
			rmem_poll(rmem);
		fflush(stdout);
		fds[1].fd = deaf ? -1 : rmem_fd(rmem); /* poll() ignores a negative descriptor */
		if (poll(fds, 2, -1) < 0)
			return;
	} while (!(fds[0].revents & (POLLIN | POLLHUP)) || take_input());
}

static int usage(void)
{
	fprintf(stderr, "usage: rmem-says --host HOST [--port PORT] --client NAME --key FILE\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "host", 1, NULL, 'h' }, { "port", 1, NULL, 'p' }, { "client", 1, NULL, 'c' }, { "key", 1, NULL, 'k' }, { 0 },
	};
	struct rmem_options o = { 0 };
	const char *reason = "";
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (option) {
		case 'h': o.host = optarg; break;
		case 'p': o.port = optarg; break;
		case 'c': o.client = optarg; break;
		case 'k': o.key_file = optarg; break;
		default: return usage();
		}
	if (optind != argc || !o.host || !o.client || !o.key_file)
		return usage();
	rmem = rmem_connect(&o, &reason);
	if (!rmem) {
		fprintf(stderr, "rmem-says: %s: %s\n", strerror(errno), reason);
		return 1;
	}
	rmem_on_evict(rmem, evicted, NULL);
	printf("rmem-says: connected\n");
	serve();
	rmem_close(rmem);
	return 0;
}
