// SPDX-License-Identifier: MIT
/*
 * rmem-load --host HOST --client NAME --key FILE [OPTION...]
 *
 * Puts, gets, flushes and commits at random until SIGTERM, and checks each byte. Then it reads all of its regions, frees
 * them, and ends with 0; or with 1 and one line as soon as something is not what it must be.
 *
 *	--port PORT	--seed N	--threads N (1)
 *	--ops N		so many operations, in place of SIGTERM
 *	--log FILE	what it did, line by line
 *	--timeout MS	of librmem's (10000)
 *	--reconnect	makes a broken connection anew, for as long as --patience SECONDS (60);
 *			else one is a failure
 *	--keep		leaves its regions there; what it finds at its start it frees in any case
 *	--leave N	one round in N ends the connection with a transaction in the queue, and makes another
 *	--usurp N	one step in N finds that another connection has taken this client's name (--reconnect)
 *	--end-host HOST	where the donor is at the end, if not at the same address: a second connection
 *			asks there for the regions and the last transaction
 *
 * SIGUSR1: a line that says how many operations there were.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "../../programs/random.h"

struct options options = { .threads = 1, .patience = 60 };
struct rmem *rmem;
FILE *log_file;
atomic_bool stop;
atomic_ullong rounds_done, bytes_put, bytes_got;

static atomic_ullong did[DID_KINDS];
static struct thread threads[MAX_THREADS];

void count(enum did kind, unsigned int n)
{
	atomic_fetch_add(&did[kind], n);
}

void say(struct thread *t, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(t->doing, sizeof(t->doing), format, ap);
	va_end(ap);
	if (log_file)
		fprintf(log_file, "%u.%llu %s\n", t->index, (unsigned long long)t->rounds, t->doing);
}

void fail(struct thread *t, const char *format, ...)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	char what[512];
	va_list ap;

	/* This is never unlocked: only the first thread that fails says so. */
	pthread_mutex_lock(&once);
	va_start(ap, format);
	vsnprintf(what, sizeof(what), format, ap);
	va_end(ap);
	fprintf(stderr, "rmem-load: failed: operation %llu, thread %u's %llu: %s: %s\n", atomic_load(&rounds_done), t->index,
		(unsigned long long)t->rounds, t->doing, what);
	if (log_file)
		fflush(log_file);
	fflush(stdout);
	_exit(1);
}

int ask(struct thread *t, int result)
{
	if (result && !(options.reconnect && (result == -ENOTCONN || result == -ETIMEDOUT)))
		fail(t, "%s: %s", strerror(-result), rmem_error());
	return result;
}

int refused(struct thread *t, int result, int expected)
{
	if (result == expected)
		return 0;
	if (!result)
		fail(t, "it was not refused (%s)", strerror(-expected));
	if (!options.reconnect || (result != -ENOTCONN && result != -ETIMEDOUT))
		fail(t, "%s, in place of %s: %s", strerror(-result), strerror(-expected), rmem_error());
	return result;
}

/* ------------------------------------------------------------------ begin and end */

static void usage(void)
{
	fprintf(stderr, "usage: rmem-load --host HOST --client NAME --key FILE [--port PORT] [--seed N]\n"
			"	[--threads N] [--ops N] [--log FILE] [--timeout MS] [--reconnect]\n"
			"	[--patience SECONDS] [--keep] [--leave N] [--usurp N] [--end-host HOST]\n");
	exit(2);
}

static void take_option(int option, const char *value)
{
	switch (option) {
	case 'h': options.host = value; break;
	case 'c': options.client = value; break;
	case 'k': options.key = value; break;
	case 'p': options.port = value; break;
	case 's': options.seed = strtoull(value, NULL, 0); break;
	case 't': options.threads = strtoul(value, NULL, 0); break;
	case 'o': options.ops = strtoull(value, NULL, 0); break;
	case 'l': options.log = value; break;
	case 'm': options.timeout_ms = strtoul(value, NULL, 0); break;
	case 'r': options.reconnect = true; break;
	case 'P': options.patience = strtoul(value, NULL, 0); break;
	case 'K': options.keep = true; break;
	case 'L': options.leave = strtoul(value, NULL, 0); break;
	case 'u': options.usurp = strtoul(value, NULL, 0); break;
	case 'e': options.end_host = value; break;
	default: usage();
	}
}

static void take_options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "host", 1, NULL, 'h' }, { "client", 1, NULL, 'c' }, { "key", 1, NULL, 'k' }, { "port", 1, NULL, 'p' },
		{ "seed", 1, NULL, 's' }, { "threads", 1, NULL, 't' }, { "ops", 1, NULL, 'o' }, { "log", 1, NULL, 'l' },
		{ "timeout", 1, NULL, 'm' }, { "reconnect", 0, NULL, 'r' }, { "patience", 1, NULL, 'P' },
		{ "keep", 0, NULL, 'K' }, { "leave", 1, NULL, 'L' }, { "usurp", 1, NULL, 'u' }, { "end-host", 1, NULL, 'e' }, { 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		take_option(option, optarg);
	if (optind != argc || !options.host || !options.client || !options.key || !options.threads ||
	    options.threads > MAX_THREADS || (options.usurp && !options.reconnect))
		usage();
	if (options.log) {
		log_file = fopen(options.log, "w");
		if (!log_file)
			fail(&threads[0], "%s: %s", options.log, strerror(errno));
	}
}

static int free_one(const struct rmem_region *region, void *arg)
{
	(void)arg;
	return rmem_free(rmem, region->tag);
}

static int count_one(const struct rmem_region *region, void *count)
{
	(void)region;
	++*(unsigned int *)count;
	return 0;
}

static struct rmem *open_to(const char *host)
{
	struct rmem_options o = { .host = host, .port = options.port, .client = options.client, .key_file = options.key,
				  .timeout_ms = options.timeout_ms };
	struct rmem_op op = { 0 };
	struct rmem *r;

	r = below(2) ? rmem_connect(&o, NULL) : rmem_connect_async(&o, &op);
	if (!r)
		fail(&threads[0], "%s: %s: %s", host, strerror(errno), rmem_error());
	while (rmem_test(r, &op) == -EAGAIN)
		usleep(1000);
	if (op.result)
		fail(&threads[0], "%s: %s: %s", host, strerror(-op.result), rmem_error());
	return r;
}

static void connect_to(const char *host)
{
	say(&threads[0], "connect to %s", host);
	rmem = open_to(host);
}

/* Half of the threads register their buffer. Data of the other half goes through the library's own buffers. */
static void register_buffer(struct thread *t)
{
	if (t->index % 2 && rmem_register(rmem, t->buf, MAX_REGION))
		fail(t, "register: %s", rmem_error());
}

void leave(struct thread *t)
{
	say(t, "leave, and connect again");
	rmem_close(rmem);
	rmem = open_to(options.host);
	for (unsigned int i = 0; i < options.threads; i++)
		register_buffer(&threads[i]);
	if (rmem_last_txn(rmem) != first_txn + commits)
		fail(t, "the last transaction is %llu; it must be %llu", (unsigned long long)rmem_last_txn(rmem),
		     (unsigned long long)(first_txn + commits));
	count(DID_LEAVE, 1);
}

void usurp(struct thread *t)
{
	char before[sizeof(t->doing)];

	memcpy(before, t->doing, sizeof(before));
	say(t, "another connection after %s", before);
	rmem_close(open_to(options.host));
	count(DID_USURP, 1);
}

static void begin(void)
{
	struct thread *t = &threads[0];
	int result;

	rng = options.seed;
	connect_to(options.host);
	say(t, "free what an earlier run has left");
	result = rmem_each(rmem, free_one, NULL);
	if (!result)
		result = rmem_txn_go(rmem);
	if (result && result != -ENODATA)
		fail(t, "%s: %s", strerror(-result), rmem_error());
	first_txn = rmem_last_txn(rmem);
	printf("rmem-load: connected as %s\n", options.client);
	fflush(stdout);
}

static void report(void)
{
	static const char *const names[DID_KINDS] = {
		"put", "get", "put8", "flush", "alloc", "cp", "free", "go", "abort", "leave", "usurp", "long",
	};

	printf("rmem-load: did");
	for (unsigned int i = 0; i < DID_KINDS; i++)
		printf(" %s=%llu", names[i], atomic_load(&did[i]));
	putchar('\n');
}

/* Looks at what the donor says, not at what librmem has counted. */
static void end(void)
{
	unsigned int count = 0, known = 0, i;
	struct thread *t = &threads[0];
	uint64_t last;

	rmem_close(rmem);
	connect_to(options.end_host ? options.end_host : options.host);
	say(t, "the end");
	for (i = 0; i < options.threads; i++)
		known += threads[i].num_regions;
	rmem_each(rmem, count_one, &count);
	if (count != known)
		fail(t, "the donor has %u regions; there must be %u", count, known);
	last = rmem_last_txn(rmem);
	if (last != first_txn + commits)
		fail(t, "the donor's last transaction is %llu; it must be %llu", (unsigned long long)last,
		     (unsigned long long)(first_txn + commits));
	rmem_close(rmem);
	repair_report();
	report();
	printf("rmem-load: %llu operations, %llu commits, %llu bytes put, %llu got, all as the model says\n",
	       atomic_load(&rounds_done), (unsigned long long)commits, atomic_load(&bytes_put), atomic_load(&bytes_got));
}

static pthread_t main_thread;
static atomic_uint running;

static void *thread_main(void *arg)
{
	load_thread(arg);
	if (atomic_fetch_sub(&running, 1) == 1)
		pthread_kill(main_thread, SIGUSR2);
	return NULL;
}

static void run(const sigset_t *signals)
{
	unsigned int i;
	int sig;

	main_thread = pthread_self();
	atomic_store(&running, options.threads);
	for (i = 0; i < options.threads; i++) {
		threads[i].index = i;
		threads[i].buf = aligned_alloc(PAGE, MAX_REGION);
		if (!threads[i].buf)
			fail(&threads[i], "no memory");
		register_buffer(&threads[i]);
	}
	for (i = 0; i < options.threads; i++) {
		if (pthread_create(&threads[i].id, NULL, thread_main, &threads[i]))
			fail(&threads[i], "no thread");
	}
	while (!sigwait(signals, &sig) && sig != SIGUSR2) {
		if (sig == SIGUSR1) {
			printf("rmem-load: %llu operations so far\n", atomic_load(&rounds_done));
			fflush(stdout);
		} else {
			atomic_store(&stop, true);
		}
	}
	for (i = 0; i < options.threads; i++) {
		pthread_join(threads[i].id, NULL);
		free(threads[i].buf);
	}
}

int main(int argc, char **argv)
{
	sigset_t signals;

	take_options(argc, argv);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGUSR2);
	/* All threads block these signals, librmem's too. */
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	begin();
	run(&signals);
	end();
	return 0;
}
