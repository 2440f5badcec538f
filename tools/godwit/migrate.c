// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit migrate. Two processes: the worker makes the move. The keeper waits for the worker and, if the worker is killed,
 * brings the move to its end.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "gids.h"
#include "host.h"
#include "images.h"
#include "move/move.h"
#include "state.h"
#include "text.h"

#define PODMAN_MS	25000

static pid_t worker;

static void pass_on(int sig)
{
	if (worker > 0)
		kill(worker, sig);
}

static int conclude(struct move *m, int code)
{
	if (code == EXIT_OK && m->dry_run)
		return report_could(&m->report, m->json);
	if (code == EXIT_OK)
		return report_moved(&m->report, m->json);
	return report_failed(code, &m->report, m->json);
}

static int work(struct move *m)
{
	sigset_t set = block_signals();

	go_first();	/* in a session of our own, so that a signal to a process group hits worker or keeper, not both */
	m->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return conclude(m, move_transact(m));
}

/* CRIU is a child of the keeper now, unless the worker had seen its end. */
static void adopt_criu(struct move *m)
{
	siginfo_t info;

	m->criu.pid = m->shared->criu;
	if (m->criu.pid > 0 && waitid(P_PID, m->criu.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
		m->criu.pidfd = pidfd_open(m->criu.pid, 0);
	if (m->criu.pidfd < 0)
		m->criu.pid = -1;
}

/* The worker's podman may still be about to take the restart policy away: wait until it has ended. */
static void give_policy_back(struct move *m)
{
	if (json_object_get(m->container.facts, "policy_taken"))
		reap_children(PODMAN_MS);
	if (container_give_policy_back(m))
		report_fault(&m->report);
}

/* The worker was killed. CRIU finds its socket closed, and ends or undoes what it was doing. */
static int recover(struct move *m, int status)
{
	json_t *state = state_load(m->id);

	/* Tasks that have ended since leave the tree. Nothing is to be done for them. */
	tree_refresh(&m->plan.tree, m->process.pid);
	if (state) {
		move_remember_stopped(m, state);
		move_remember_container(m, state);
	}
	json_decref(state);
	fault_clear();
	if (m->shared->stage == MOVE_RUNNING)
		give_policy_back(m);
	fault("godwit itself was killed by signal %d", WTERMSIG(status));
	if (m->shared->stage >= MOVE_MOVED)
		return conclude(m, m->shared->stage == MOVE_MOVED ? EXIT_OK : EXIT_STAYED);
	if (m->shared->stage == MOVE_RUNNING) {
		addresses_end_quiet(&m->addresses, m->id);
		state_remove(m->id);
		return conclude(m, EXIT_REFUSED);
	}
	m->images = xasprintf("%s/%s", m->images_base, m->id);
	addresses_check_source(&m->addresses);	/* finds their interfaces */
	adopt_criu(m);
	if (m->shared->stage >= MOVE_DECIDED)
		fault_clear();
	return conclude(m, move_end(m));
}

static int keep(struct move *m)
{
	int status;

	m->lock = state_lock(m->id);
	if (m->lock < 0)
		return failed(EXIT_REFUSED);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	worker = fork();
	if (worker == 0)
		return work(m);
	prctl(PR_SET_NAME, "godwit-keeper");	/* a kill by name hits worker or keeper, not both */
	signal(SIGINT, pass_on);
	signal(SIGHUP, pass_on);
	signal(SIGTERM, pass_on);
	while (waitpid(worker, &status, 0) < 0 && errno == EINTR)
		;
	worker = -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : recover(m, status);
}

void move_make_id(struct move *m)
{
	char host[64] = "";
	uint32_t random;

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = now_ns();
	snprintf(m->id, sizeof(m->id), "%.32s-%d-%08x", host, m->process.pid, random);
}

int move_gid(struct move *m, const char *text)
{
	if (!m->gids_asked)
		m->gids_asked = json_object();
	return gids_parse(m->gids_asked, text);
}

void move_check_usage(const struct move *m)
{
	/* ssh would take it for an option. */
	if (m->host && m->host[0] == '-')
		wrong_usage("--to %s: the name of a host does not begin with -", m->host);
	if (m->images_base[0] != '/')
		wrong_usage("--images %s: give a path that begins with /", m->images_base);
}

/* What is moved, and do the options fit that? */
static void check_usage(struct move *m, int argc, char **argv)
{
	if (!m->container.name)
		m->process.pid = parse_pid(only_argument(argc, argv, optind, "process: give its PID, or --container NAME"));
	else if (optind < argc)
		wrong_usage("'%s': give a PID or --container, not both", argv[optind]);
	if (!m->host)
		wrong_usage("say where to: --to HOST");
	if (m->container.name && (m->copy.n || m->devices_asked || m->gids_asked))
		wrong_usage("--copy, --device and --gid are for a PID, not for --container");
	if (!m->container.name && (m->container.parent || m->volumes.n))
		wrong_usage("--parent and --copy-volume are for --container");
}

const struct option migrate_options[] = {
	{ "address", required_argument, NULL, 'a' },
	{ "container", required_argument, NULL, 'C' },
	{ "copy", required_argument, NULL, 'c' },
	{ "copy-volume", required_argument, NULL, 'V' },
	{ "device", required_argument, NULL, 'd' },
	{ "dry-run", no_argument, NULL, 'n' },
	{ "gid", required_argument, NULL, 'g' },
	{ "images", required_argument, NULL, 'i' },
	{ "json", no_argument, NULL, 'j' },
	{ "leave-images", no_argument, NULL, 'l' },
	{ "limit", required_argument, NULL, 'L' },
	{ "parent", required_argument, NULL, 'p' },
	{ "shared", required_argument, NULL, 'S' },
	{ "ssh", required_argument, NULL, 's' },
	{ "to", required_argument, NULL, 't' },
	{ "verbose", no_argument, NULL, 'v' },
	{ }
};

static void parse(struct move *m, int argc, char **argv, bool *verbose)
{
	int c;

	while ((c = getopt_long(argc, argv, "t:a:v", migrate_options, NULL)) != -1)
		switch (c) {
		case 't': m->host = parse_text(optarg); break;
		case 'a':
			if (address_parse(&m->addresses, optarg))
				exit(failed(EXIT_USAGE));
			break;
		case 'c': move_path(&m->copy, optarg); break;
		case 'C': m->container.name = parse_text(optarg); break;
		case 'n': m->dry_run = true; break;
		case 'p': m->container.parent = parse_text(optarg); break;
		case 'V': move_path(&m->volumes, parse_text(optarg)); break;
		case 'd':
			if (move_device(m, optarg))
				exit(failed(EXIT_USAGE));
			break;
		case 'g':
			if (move_gid(m, optarg))
				exit(failed(EXIT_USAGE));
			break;
		case 'i': m->images_base = parse_text(optarg); break;
		case 'j': m->json = true; break;
		case 'l': m->leave_images = true; break;
		case 'L': m->limit_ms = parse_seconds(optarg) * 1000; break;
		case 's': m->ssh = parse_text(optarg); break;
		case 'S': move_path(&m->share, optarg); break;
		case 'v': *verbose = true; break;
		default: usage();
		}
	move_check_usage(m);
	check_usage(m, argc, argv);
}

static int find(struct move *m)
{
	if (host_check_root() || (m->container.name && container_find(m)))
		return -1;
	/* The keeper must know which processes it looks after. */
	return tree_collect(&m->plan.tree, m->process.pid);
}

int cmd_migrate(int argc, char **argv)
{
	struct move m = MOVE_INIT;
	bool verbose = false;

	m.report.warnings = json_array();
	parse(&m, argc, argv, &verbose);
	m.report.host = m.host;
	m.report.pid = m.process.pid;
	m.report.container = m.container.name;
	report_start(verbose, m.json);
	m.shared = mmap(NULL, sizeof(*m.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (m.shared == MAP_FAILED) {
		fault("no memory");
		return failed(EXIT_REFUSED);
	}
	if (find(&m))
		return conclude(&m, EXIT_REFUSED);
	m.report.pid = m.process.pid;
	move_make_id(&m);
	return keep(&m);
}
