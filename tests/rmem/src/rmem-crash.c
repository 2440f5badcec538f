// SPDX-License-Identifier: MIT
/*
 * rmem-crash [--points N] [--recoveries N] [--seed S]: a donor's store on a disk that loses, at a crash, what was not synced
 * (rmem-lossy.c). A process works on a store until a given call of the disk, the point. There it ends as by a power cut. Other
 * processes follow, and some of them end in their recovery, too. Each checks that it finds what may be there (model.h). Every
 * fifth time the disk fails the call instead, and the crash comes after the store's reaction.
 *
 * Of some crashes, the recovery crashes at each of its calls. It finds the same files each time.
 *
 * Then logs, an index and a folder with damage must be refused by name.
 *
 * 0: all held; 1: a violation, which is printed; 75: the points were not reached.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "scenario.h"

#define CRASHED 99
#define TURNS 30
#define STRIDE 13

static struct shared *shared;
static int shared_fd;
static char folder[64] = "/dev/shm/rmem-crash.XXXXXX", store_dir[80], saved_dir[80], library[4096], self[4096];

static struct {
	uint64_t points, recovery, checkpoint, again, failures, walked;
} counts;

static int finish(int status)
{
	shell("rm -rf %s %s", folder, saved_dir);
	return status;
}

static int cannot(const char *what)
{
	fprintf(stderr, "rmem-crash: %s: %s\n", what, strerror(errno));
	exit(finish(75));
}

/* ---------------------------------------------------------------- child -- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	a = (a ^ (b << 32 | b)) * 0x9e3779b97f4a7c15u;
	return (a ^ a >> 29) * 0xbf58476d1ce4e5b9u >> 33;
}

/* A process on the lossy disk: --child FD DIR SEED TURNS FAILS. @fails: it crashes at its end. */
static int child(char **arg)
{
	uint64_t (*calls)(void) = dlsym(RTLD_DEFAULT, "lossy_calls");
	uint64_t (*syncs)(void) = dlsym(RTLD_DEFAULT, "lossy_syncs");
	void (*crash)(void) = dlsym(RTLD_DEFAULT, "lossy_crash");
	struct scenario scenario = { .dir = arg[1], .seed = strtoull(arg[2], NULL, 10), .turns = atoi(arg[3]),
				     .restarts = true, .calls = calls, .syncs = syncs };
	int fd = atoi(arg[0]), ret;

	scenario.shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (scenario.shared == MAP_FAILED || !calls || !syncs || !crash)
		return 75;
	ret = scenario_run(&scenario);
	if (ret != 1 && atoi(arg[4]))
		crash();
	return ret;
}

/* Runs a child that crashes at call @crash (0: does not), or whose call of that number fails. Its exit status. */
static int run_child(uint64_t seed, unsigned int turns, uint64_t crash, bool fails)
{
	char number[6][24];
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		snprintf(number[0], 24, "%d", shared_fd);
		snprintf(number[1], 24, "%llu", (unsigned long long)seed);
		snprintf(number[2], 24, "%u", turns);
		snprintf(number[3], 24, "%d", fails);
		snprintf(number[4], 24, "%llu", (unsigned long long)crash);
		setenv("LOSSY_DIR", folder, 1);
		snprintf(number[5], 24, "%llu", (unsigned long long)mix(seed, crash));
		setenv("LOSSY_SEED", number[5], 1);
		setenv(fails ? "LOSSY_FAIL" : "LOSSY_CRASH", number[4], 1);
		setenv("LD_PRELOAD", library, 1);
		execl(self, self, "--child", number[0], store_dir, number[1], number[2], number[3], NULL);
		_exit(75);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		cannot("fork");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void begin_anew(void)
{
	shell("rm -rf %s", store_dir);
	memset(shared, 0, offsetof(struct shared, plan));
}

/* --------------------------------------------------------------- points -- */

static int violation(uint64_t seed, uint64_t point, const char *where, int status)
{
	fprintf(stderr, "rmem-crash: broken: seed %" PRIu64 ", point %" PRIu64 ", %s: exit %d: %s\n", seed, point, where,
		status, shared->violation);
	return 1;
}

/* Counts where the point fell. (A sync writes and syncs the log. Calls after that belong to a checkpoint.) */
static void count_point(uint64_t call)
{
	counts.points++;
	if (shared->phase == PHASE_OPEN)
		counts.recovery++;
	else if (shared->phase == PHASE_SYNC && call > shared->phase_calls + 2)
		counts.checkpoint++;
}

/* A crash at this call, perhaps another in the recovery, and a look at what is left. */
static int try_point(uint64_t seed, uint64_t point)
{
	uint64_t dice = mix(seed, point);
	bool fails = point % 5 == 4;
	int status;

	begin_anew();
	status = run_child(seed, TURNS, point, fails);
	if (status != CRASHED)
		return status == 0 ? 75 : violation(seed, point, "first", status);
	if (fails)
		counts.failures++;
	else
		count_point(point);
	for (unsigned int i = 0; i < 3 && dice >> i & 1; i++) {
		shared->violation[0] = '\0';
		status = run_child(dice + i, 6, 1 + mix(dice, i) % 40, false);
		if (status != CRASHED && status != 0)
			return violation(seed, point, "in between", status);
		if (status == CRASHED) {
			counts.again += shared->phase == PHASE_OPEN;
			counts.points++;
		}
	}
	shared->violation[0] = '\0';
	status = run_child(dice + 99, 8, 0, false);
	return status ? violation(seed, point, "afterwards", status) : 0;
}

/* How many calls a scenario makes. */
static uint64_t measure(uint64_t seed)
{
	int status;

	begin_anew();
	status = run_child(seed, TURNS, 0, false);
	if (status) {
		violation(seed, 0, "without a crash", status);
		exit(finish(status == 75 ? 75 : 1));
	}
	return shared->calls;
}

static uint64_t all_counts(void)
{
	return counts.points + counts.failures;
}

static int try_points(uint64_t points, uint64_t seed)
{
	uint64_t checkpoints = 0, seeds = 0;
	int ret;

	while (all_counts() < points) {
		uint64_t calls = measure(seed);

		checkpoints += shared->checkpoints;
		seeds++;
		/* Every call of the first scenario. Of each other one every STRIDE-th, from another first call each time. */
		uint64_t step = seeds == 1 ? 1 : STRIDE, point = seeds == 1 ? 1 : 1 + seed % STRIDE;

		for (; point <= calls && all_counts() < points; point += step) {
			ret = try_point(seed, point);
			if (ret == 1)
				return 1;
			if (ret) {
				fprintf(stderr, "rmem-crash: seed %" PRIu64 ", point %" PRIu64 ": not reached\n", seed,
					point);
				return 75;
			}
		}
		seed++;
	}
	printf("rmem-crash: %" PRIu64 " scenarios with %" PRIu64 " checkpoints\n", seeds, checkpoints);
	return 0;
}

/* ---------------------------------------------------------- group commit -- */

/* Without checkpoints, so that all syncs are of the log. */
static int try_groups(uint64_t seed)
{
	int status;

	begin_anew();
	shared->segment = 1 << 30;
	status = run_child(seed, 20 * TURNS, 0, false);
	if (status)
		return status == 75 ? 75 : violation(seed, 0, "groups", status);
	printf("rmem-crash: %" PRIu64 " times, transactions of several clients had one sync\n", shared->groups);
	return 0;
}

/* ----------------------------------------------------------- recoveries -- */

/* The store as a crash has left it, and what is known of it. */
static struct shared *save(void)
{
	size_t size = offsetof(struct shared, plan) + shared->used;
	struct shared *saved = malloc(size);

	if (!saved)
		cannot("memory");
	/* A crash may have left no folder. */
	shell("rm -rf %s; [ ! -e %s ] || cp -a %s %s", saved_dir, store_dir, store_dir, saved_dir);
	return memcpy(saved, shared, size);
}

static void put_back(const struct shared *saved)
{
	shell("rm -rf %s; [ ! -e %s ] || cp -a %s %s", store_dir, saved_dir, saved_dir, store_dir);
	memcpy(shared, saved, offsetof(struct shared, plan) + saved->used);
}

/* A crash at each call of the recovery from a crash at @point. What the recovery left must do, too. */
static int walk_recovery(uint64_t seed, uint64_t point)
{
	struct shared *saved;
	int status, ret = 0;
	char where[64];

	begin_anew();
	if (run_child(seed, TURNS, point, false) != CRASHED)
		return 75;
	saved = save();
	for (uint64_t call = 1; !ret; call++) {
		put_back(saved);
		status = run_child(seed + call, 0, call, false);
		if (status == 0 && call > 1)
			break; /* the recovery has fewer calls */
		counts.walked++;
		if (status == CRASHED)
			status = run_child(seed + call, 8, 0, false);
		snprintf(where, sizeof(where), "at call %" PRIu64 " of the recovery", call);
		if (status)
			ret = violation(seed, point, where, status);
	}
	free(saved);
	return ret;
}

static int walk_recoveries(uint64_t recoveries, uint64_t seed)
{
	uint64_t calls = recoveries ? measure(seed) : 0;
	int ret = 0;

	for (uint64_t i = 1; i <= recoveries && !ret; i++)
		ret = walk_recovery(seed, 1 + calls * i / (recoveries + 1));
	return ret;
}

/* ----------------------------------------------------------------- main -- */

static void prepare(const char *program)
{
	char *slash;

	if (!realpath(program, self))
		cannot(program);
	strcpy(library, self);
	slash = strrchr(library, '/');
	snprintf(slash + 1, sizeof(library) - (slash + 1 - library), "rmem-lossy.so");
	shared_fd = memfd_create("shared", 0);
	if (access(library, R_OK) || shared_fd < 0 || ftruncate(shared_fd, sizeof(*shared)))
		cannot(library);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	if (shared == MAP_FAILED)
		cannot("memory");
	/* The folder is in memory, since no real disk need be waited for. */
	if (!mkdtemp(folder) && !mkdtemp(strcpy(folder, "/tmp/rmem-crash.XXXXXX")))
		cannot(folder);
	snprintf(store_dir, sizeof(store_dir), "%s/store", folder);
	snprintf(saved_dir, sizeof(saved_dir), "%s.saved", folder);
}

int main(int argc, char **argv)
{
	uint64_t points = 200, recoveries = 2, seed = 1;
	int ret;

	if (argc == 7 && !strcmp(argv[1], "--child"))
		return child(argv + 2);
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 < argc && !strcmp(argv[i], "--points"))
			points = strtoull(argv[i + 1], NULL, 10);
		else if (i + 1 < argc && !strcmp(argv[i], "--recoveries"))
			recoveries = strtoull(argv[i + 1], NULL, 10);
		else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 10);
		else
			return fprintf(stderr, "usage: rmem-crash [--points N] [--recoveries N] [--seed S]\n"), 2;
	}
	prepare("/proc/self/exe");
	ret = try_points(points, seed) ?: try_groups(seed) ?: walk_recoveries(recoveries, seed) ?: damage_run(shared, folder, seed);
	printf("rmem-crash: %" PRIu64 " crash points, %" PRIu64 " of them in a recovery and %" PRIu64 " in a checkpoint; "
	       "%" PRIu64 " crashes in a recovery after a crash; %" PRIu64 " failures of the disk\n", counts.points,
	       counts.recovery, counts.checkpoint, counts.again, counts.failures);
	printf("rmem-crash: %" PRIu64 " crashes, one at each call of %" PRIu64 " recoveries\n", counts.walked, recoveries);
	return finish(ret);
}
