// SPDX-License-Identifier: MIT
/*
 * rmem-steps --host ADDRESS --port PORT --dir FOLDER --programs FOLDER [--every N] [--from N]
 *
 * ADDRESS belongs to this very host, since both run here. The folder is made and emptied. --every N takes each Nth point, from
 * number --from on. Ends with 0; with 1 and a line if a point leaves something wrong; with 75 if most points were not reached.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "steps.h"

#define NOTHING 0
#define LIMIT_S 300

enum dies { CLIENT, DONOR, BOTH_AT_CLIENT, BOTH_AT_DONOR, KINDS };
static const char *const names[KINDS] = { "the client", "the donor", "both, at the client's", "both, at the donor's" };

static struct who who = { .client = "steps" };
static const char *dir, *programs;
static uint64_t every = 1, from;
static struct steps *client_steps, *donor_steps;
static pid_t client, donor;
static char point[200] = "the start";
static unsigned int reached, missed, one_more;

static void end_all(void)
{
	if (client > 0)
		kill(client, SIGKILL);
	if (donor > 0)
		kill(donor, SIGKILL);
}

static void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
static void fail(int code, const char *format, ...)
{
	va_list ap;

	end_all();
	printf("rmem-steps: %s: ", point);
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	putchar('\n');
	exit(code);
}

/* Makes a string that is used until the end. */
static char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *text(const char *format, ...)
{
	char *to;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&to, format, ap) < 0)
		abort();
	va_end(ap);
	return to;
}

/* ------------------------------------------------------------------ files */

static struct steps *steps_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct steps *steps;

	if (fd < 0 || ftruncate(fd, sizeof(*steps)))
		fail(75, "%s: %s", path, strerror(errno));
	steps = mmap(NULL, sizeof(*steps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (steps == MAP_FAILED)
		fail(75, "%s: %s", path, strerror(errno));
	close(fd);
	return steps;
}

static void write_file(const char *path, const char *contents)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(contents, f) < 0 || fclose(f))
		fail(75, "%s: %s", path, strerror(errno));
}

static void make_files(void)
{
	char *key = text("%s/key", dir);

	umask(077);
	if (mkdir(dir, 0700) && errno != EEXIST)
		fail(75, "%s: %s", dir, strerror(errno));
	who.key = key;
	write_file(key, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n");
	write_file(text("%s/conf", dir), text("[donor]\nlisten = %s\nport = %s\nheadroom = 16M\nsocket = %s/socket\n"
					      "persist = %s/store\n[client steps]\nkey = %s\n", who.host, who.port, dir, dir, key));
	client_steps = steps_file(text("%s/client", dir));
	donor_steps = steps_file(text("%s/donor", dir));
}

/* ------------------------------------------------------------------ processes */

static void child_begins(const char *steps)
{
	setenv(STEPS_ENV, steps, 1);
	setenv("LD_PRELOAD", text("%s/rmem-steps-kill.so", programs), 1);
	/* (what ends this program ends it) */
	if (!freopen(text("%s.out", steps), "a", stderr))
		_exit(75);
}

static bool listens(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(who.port)) };
	int sk = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok;

	inet_pton(AF_INET, who.host, &to.sin_addr);
	ok = sk >= 0 && !connect(sk, (struct sockaddr *)&to, sizeof(to));
	close(sk);
	return ok;
}

static void make_folder(void)
{
	char *command = text("'%s/../rmemd' --init --config '%s/conf'", programs, dir);

	if (system(command))
		fail(75, "%s", command);
	free(command);
}

/* Starts a donor that ends before its @at'th step, or after it. */
static void start_donor(uint64_t at, bool after)
{
	*donor_steps = (struct steps){ .at = at, .after = after };
	donor = fork();
	if (!donor) {
		child_begins(text("%s/donor", dir));
		execl(text("%s/../rmemd", programs), "rmemd", "--config", text("%s/conf", dir), NULL);
		_exit(127);
	}
}

/* Waits until the donor listens. false: it has ended before. */
static bool donor_up(void)
{
	int status;

	for (int i = 0; i < LIMIT_S * 50; i++) {
		if (listens())
			return true;
		if (waitpid(donor, &status, WNOHANG) == donor)
			return false;
		usleep(20000);
	}
	fail(1, "the donor does not come up");
}

static void start_client(uint64_t at, bool after, pid_t mate)
{
	*client_steps = (struct steps){ .at = at, .after = after, .mate = mate };
	client = fork();
	if (!client) {
		child_begins(text("%s/client", dir));
		execl("/proc/self/exe", "rmem-steps", "--client", "--host", who.host, "--port", who.port, "--dir", dir, "--programs",
		      programs, NULL);
		_exit(127);
	}
}

/* true: it was ended by SIGKILL. false: it ended by itself, with 0. */
static bool was_killed(const char *name, int status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return true;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail(1, "%s ended with %#x: %s", name, status, client_steps->failed);
	return false;
}

/* From now on no step ends the donor. Returns whether it has come to that step before, and so ends. */
static bool disarm_donor(void)
{
	return atomic_exchange(&donor_steps->at, NOTHING) == STEPS_DIES;
}

/* The donor that was killed comes again, is killed once more at step @again of its recovery, and comes again. */
static void recover(uint64_t again)
{
	bool up;

	start_donor(again, again & 1);
	up = donor_up();
	if (up && disarm_donor()) {
		waitpid(donor, NULL, 0);
		up = false;
	}
	if (!up && again) {
		start_donor(NOTHING, false);
		up = donor_up();
	}
	if (!up)
		fail(1, "the donor does not come up again");
}

/* ------------------------------------------------------------------ a point */

static void clean(void)
{
	char *command = text("rm -rf '%s/store'", dir);

	if (system(command))
		fail(75, "%s", command);
	free(command);
}

static void donor_ended(int status, uint64_t again)
{
	donor = 0;
	if (!was_killed("the donor", status))
		fail(1, "the donor ended by itself");
	recover(again);
}

/* Waits until the client has ended, and the donor, too, if @both end. Returns whether one of them was killed. */
static bool wait_for_end(bool both, uint64_t again)
{
	bool client_killed = false, donor_killed = false;
	int status;
	pid_t pid;

	alarm(LIMIT_S);
	while (client > 0 || (both && client_killed && !donor_killed)) {
		pid = waitpid(-1, &status, 0);
		if (pid == client) {
			client = 0;
			client_killed = was_killed("the client", status);
		} else if (pid == donor) {
			donor_ended(status, again);
			donor_killed = true;
		}
	}
	/*
	 * If the donor has not reached its step when the client ends, the donor must not reach it during the check. A donor that
	 * has ended otherwise is found here, too.
	 */
	if (waitpid(donor, &status, disarm_donor() ? 0 : WNOHANG) == donor) {
		donor_ended(status, again);
		donor_killed = true;
	}
	alarm(0);
	return client_killed || donor_killed;
}

static void run_point(enum dies dies, bool after, uint64_t at, uint64_t again)
{
	bool at_client = dies == CLIENT || dies == BOTH_AT_CLIENT;
	uint64_t acked, found;
	const char *why;

	snprintf(point, sizeof(point), "%s step %llu, %s it, then step %llu of the recovery", names[dies], (unsigned long long)at,
		 after ? "after" : "before", (unsigned long long)again);
	clean();
	make_folder();
	start_donor(NOTHING, false);
	if (!donor_up())
		fail(75, "the donor does not start");
	/* From now on the donor's steps count. */
	donor_steps->taken = 0;
	start_client(at_client ? at : NOTHING, after, dies == BOTH_AT_CLIENT ? donor : 0);
	if (dies == BOTH_AT_DONOR)
		donor_steps->mate = client;
	donor_steps->after = after;
	donor_steps->at = at_client ? NOTHING : at;
	if (wait_for_end(dies == BOTH_AT_CLIENT || dies == BOTH_AT_DONOR, again))
		reached++;
	else
		missed++;
	acked = client_steps->acked;
	if (dies == DONOR && acked != client_units())
		fail(1, "the client has done %llu units", (unsigned long long)acked);
	why = client_check(&who, acked, &found);
	if (why)
		fail(1, "%s", why);
	one_more += found != acked;
	kill(donor, SIGKILL);
	waitpid(donor, NULL, 0);
	donor = 0;
}

/* How many steps there are when nobody dies. */
static void count_steps(uint64_t *client_takes, uint64_t *donor_takes)
{
	run_point(CLIENT, false, NOTHING, NOTHING);
	*client_takes = client_steps->taken;
	*donor_takes = donor_steps->taken;
	if (client_steps->acked != client_units() || *client_takes < 30 || *donor_takes < 30)
		fail(75, "%llu units, %llu and %llu steps", (unsigned long long)client_steps->acked,
		     (unsigned long long)*client_takes, (unsigned long long)*donor_takes);
	reached = missed = 0;
}

static void all_points(void)
{
	uint64_t takes[KINDS], n = 0, done = 0;

	count_steps(&takes[CLIENT], &takes[DONOR]);
	takes[BOTH_AT_CLIENT] = takes[CLIENT];
	takes[BOTH_AT_DONOR] = takes[DONOR];
	for (enum dies dies = CLIENT; dies < KINDS; dies++)
		for (uint64_t at = 1; at <= takes[dies]; at++)
			for (int after = 0; after < 2; after++)
				if (n++ % every == from % every) {
					run_point(dies, after, at, done % 3 ? done % 7 : NOTHING);
					done++;
				}
	printf("rmem-steps: %llu points of %llu: %u reached, %u not; at %u a unit was done that nobody had been told of\n",
	       (unsigned long long)done, (unsigned long long)n, reached, missed, one_more);
	if (missed * 4 > done)
		exit(75);
}

/* ------------------------------------------------------------------ the command line */

static void too_long(int sig)
{
	static const char says[] = "rmem-steps: a point takes too long\n";

	(void)sig;
	end_all();
	if (write(1, says, sizeof(says) - 1) > 0)
		_exit(1);
	_exit(1);
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "host", 1, NULL, 'h' }, { "port", 1, NULL, 'p' }, { "dir", 1, NULL, 'd' }, { "programs", 1, NULL, 'P' },
		{ "every", 1, NULL, 'e' }, { "from", 1, NULL, 'f' }, { "client", 0, NULL, 'c' }, { 0 },
	};
	bool is_client = false;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (option) {
		case 'h': who.host = optarg; break;
		case 'p': who.port = optarg; break;
		case 'd': dir = optarg; break;
		case 'P': programs = optarg; break;
		case 'e': every = strtoull(optarg, NULL, 0); break;
		case 'f': from = strtoull(optarg, NULL, 0); break;
		case 'c': is_client = true; break;
		default: return 2;
		}
	if (optind != argc || !who.host || !who.port || !dir || !programs || !every)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (is_client) {
		int fd = open(text("%s/client", dir), O_RDWR | O_CLOEXEC);
		struct steps *steps = mmap(NULL, sizeof(*steps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		who.key = text("%s/key", dir);
		return steps == MAP_FAILED ? 75 : client_run(&who, steps);
	}
	signal(SIGALRM, too_long);
	make_files();
	all_points();
	return 0;
}
