// SPDX-License-Identifier: MIT
/*
 * stopctl [--times N] [--hold MS] [--gap MS] [--seed N] [--freeze] PID: stops the RDMA contexts of a running process as a
 * checkpoint does, and lets them go on in place, at random moments and for random times.
 *
 * With --restore no process is named, and it only begins a restore of nothing. --hold and --gap are the longest times stopped and
 * between stops. With --freeze the process itself is stopped meanwhile, too. Prints one line: times=N, and the longest and mean
 * time from the stop to the last peer's answer. It also ends with 0 when the process has ended, if it was stopped once before.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/migrate.h>

#define DIE(...) (fprintf(stderr, "stopctl: " __VA_ARGS__), fputc('\n', stderr), exit(1))

enum { MAX_CONTEXTS = 16 };

static struct ibv_context *contexts[MAX_CONTEXTS];
static unsigned num_contexts;
static void *buf;
static int size;
static uint64_t rng = 1;

static unsigned below(unsigned n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return n ? (rng >> 33) % n : 0;
}

static void pause_us(unsigned us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static void attach(int pid)
{
	int pidfd = syscall(SYS_pidfd_open, pid, 0);
	char dir[64], path[400], target[256];
	struct dirent *e;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", pid);
	d = opendir(dir);
	if (!d || pidfd < 0)
		DIE("process %d: %s", pid, strerror(errno));
	while ((e = readdir(d))) {
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		if (n <= 0)
			continue;
		target[n] = 0;
		if (strncmp(target, "/dev/infiniband/uverbs", 22) || num_contexts == MAX_CONTEXTS)
			continue;
		fd = syscall(SYS_pidfd_getfd, pidfd, atoi(e->d_name), 0);
		if (fd < 0)
			DIE("descriptor %s of %d: %s", e->d_name, pid, strerror(errno));
		contexts[num_contexts] = ibv_attach_context(fd);
		if (!contexts[num_contexts])
			DIE("descriptor %s of %d: %s", e->d_name, pid, strerror(errno));
		num_contexts++;
	}
	closedir(d);
	close(pidfd);
	if (!num_contexts)
		DIE("process %d has no RDMA context", pid);
}

static void stop(struct ibv_context *ctx)
{
	int count = 0, ret;

	while ((ret = ibv_dump_context(ctx, &count, buf, size)) == ENOSPC) {
		size = 2 * count;
		buf = realloc(buf, size);
	}
	if (ret)
		DIE("ibv_dump_context: %s", strerror(ret));
}

/* Waits until all peers have answered; returns the nanoseconds since the stop. */
static uint64_t await(struct ibv_context *ctx)
{
	struct rxe_migr_query q;
	int ret;

	for (unsigned i = 0; i < 90000; i++) {
		ret = ibv_query_migration(ctx, &q);
		if (ret)
			DIE("ibv_query_migration: %s", strerror(ret));
		if (q.state == RXE_MIGR_CTX_RUNNING)
			return q.resume_ns > q.stop_ns ? q.resume_ns - q.stop_ns : 0;
		pause_us(1000);
	}
	DIE("%u of %u peers have not answered in 90 s; %u queue pairs have failed", q.num_resuming, q.num_qp,
	    q.num_failed);
}

static int begin_restore(void)
{
	if (!ibv_open_restore_context("rxe0", 7))
		DIE("ibv_open_restore_context: %s", strerror(errno));
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "times", 1, 0, 't' }, { "hold", 1, 0, 'h' }, { "gap", 1, 0, 'g' }, { "seed", 1, 0, 's' },
		{ "freeze", 0, 0, 'f' }, { "restore", 0, 0, 'r' }, { 0 }
	};
	unsigned times = 10, hold = 50, gap = 50, done, i;
	uint64_t longest = 0, sum = 0, ns;
	bool freeze = false;
	int c, pid;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'f')
			freeze = true;
		else if (c == 'r')
			return begin_restore();
		else if (c == 't')
			times = atoi(optarg);
		else if (c == 'h')
			hold = atoi(optarg);
		else if (c == 'g')
			gap = atoi(optarg);
		else if (c == 's')
			rng = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	if (optind + 1 != argc)
		return 2;
	pid = atoi(argv[optind]);
	attach(pid);
	for (done = 0; done < times && !kill(pid, 0); done++) {
		pause_us(below(1000 * gap + 1));
		if (freeze)
			kill(pid, SIGSTOP);
		for (i = 0; i < num_contexts; i++)
			stop(contexts[i]);
		pause_us(below(1000 * hold + 1));
		for (i = 0; i < num_contexts; i++) {
			int ret = ibv_abort_context(contexts[i]);

			if (ret)
				DIE("ibv_abort_context: %s", strerror(ret));
		}
		if (freeze)
			kill(pid, SIGCONT);
		for (i = 0; i < num_contexts; i++) {
			ns = await(contexts[i]);
			sum += ns;
			longest = ns > longest ? ns : longest;
		}
	}
	printf("times=%u longest_ms=%.3f mean_ms=%.3f\n", done, longest / 1e6, done ? sum / 1e6 / done / num_contexts : 0);
	return done == 0;
}
