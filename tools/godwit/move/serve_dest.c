// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit agent: what ssh runs at the destination. Its two processes; its loop; and its connection to the source. If the
 * connection breaks, a second agent (--attach) hands over a new one, through a socket in STATE_DIR.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "agent.h"
#include "host.h"
#include "text.h"

/* How often the driver is asked whether all peers have answered. */
#define RESUME_POLL_MS	1
/* A source that is connected is heard out before files are removed: podman is slow to begin, and the source may hold a process. */
#define SILENT_MS	2000

static volatile sig_atomic_t told_to_end;

static void on_term(int sig)
{
	told_to_end = sig;
}

/* ---------------------------------------------------------- connections -- */

static int listen_for_attach(struct agent *a)
{
	struct sockaddr_un sun;

	if (mkdir(STATE_DIR, 0700) && errno != EEXIST)
		return fault("%s: %s", STATE_DIR, strerror(errno));
	if (state_address(a->id, ".sock", &sun))
		return -1;
	unlink(sun.sun_path);	/* we have the lock: if the socket is there, its owner was killed */
	a->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (a->listener < 0 || bind(a->listener, (struct sockaddr *)&sun, sizeof(sun)) ||
	    listen(a->listener, 4))
		return fault("move %s: %s", a->id, strerror(errno));
	return 0;
}

static void accept_attach(struct agent *a)
{
	int sk = accept_root(a->listener, NULL), fd[2];

	if (sk < 0)
		return;
	/* These are stdin and stdout of the ssh connection that attaches. */
	if (fds_receive(sk, fd, 2, 0)) {
		close(sk);
		return;
	}
	agent_drop_connection(a);
	a->wire = (struct wire){ .in = fd[0], .out = fd[1] };
	a->attached = sk;
}

static int serve(struct agent *a);

/*
 * Nobody listens. If the agent and its keeper were killed, we go on in their place. If somebody else does that now, we can't
 * tell how the move will end.
 */
static int stand_in(struct agent *a)
{
	struct wire wire = { STDIN_FILENO, STDOUT_FILENO };

	fault_clear();
	a->lock = state_lock(a->id);
	if (a->lock < 0) {
		wire_send(&wire, json_pack("{s:s, s:s}", "failed", fault_text(), "boot", host_boot_id()));
		return EXIT_LOST;
	}
	if (agent_load(a) == 0) {
		agent_take_over(a);
		return serve(a);
	}
	/* A copy that was let go is written down until the source knows. If nothing is written down, nothing was let go. */
	if (state_exists(a->id)) {
		fault("move %s: what is written down of it there can't be read", a->id);
		wire_send(&wire, json_pack("{s:s, s:s}", "failed", fault_text(), "boot", host_boot_id()));
		return EXIT_LOST;
	}
	fault("move %s: it is not under way there", a->id);
	wire_send(&wire, json_pack("{s:s, s:b, s:b, s:s}", "failed", fault_text(), "gone", 1, "undone", 1, "boot",
				   host_boot_id()));
	return EXIT_LOST;
}

static int attach(struct agent *a)
{
	int fd[2] = { STDIN_FILENO, STDOUT_FILENO };
	int sk = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un sun;
	char byte;

	if (state_address(a->id, ".sock", &sun) || sk < 0 || connect(sk, (struct sockaddr *)&sun, sizeof(sun)) ||
	    fds_send(sk, fd, 2)) {
		close_fd(&sk);
		return stand_in(a);
	}
	/* The agent has our descriptors now. It closes the socket when it needs us no more. */
	while (read(sk, &byte, 1) < 0 && errno == EINTR)
		;
	return EXIT_OK;
}

/* ----------------------------------------------------------------- loop -- */

static void lost_connection(struct agent *a)
{
	fault_clear();
	agent_drop_connection(a);
	switch (a->stage) {
	case STAGE_READY:	/* only the source knows what becomes of the copy: its tasks stay frozen until we are told */
	case STAGE_COMMITTED:
		break;
	case STAGE_RUNNING:
	case STAGE_LOST:
		agent_linger(a);
		break;
	default:
		agent_undo_copy(a);
		if (a->stage != STAGE_REMOVING)
			agent_enter_stage(a, STAGE_END);
	}
}

static void hear(struct agent *a)
{
	static char data[256 * 1024];
	size_t length = sizeof(data);
	json_t *message, *answer = NULL;
	const char *op;

	if (wire_receive(&a->wire, &message, data, &length, -1)) {
		lost_connection(a);
		return;
	}
	fault_clear();
	if (!message) {
		if (a->stage == STAGE_PREPARED && incoming_data(&a->incoming, data, length))
			agent_failed(a);
		return;
	}
	op = json_string_value(json_object_get(message, "op"));
	if (agent_answer(a, op ? op : "", message, &answer))
		agent_failed(a);
	else if (answer)
		agent_tell(a, answer);
	if (a->stage == STAGE_IDLE)
		agent_linger(a);
	json_decref(message);
}

static void plugin_connects(struct agent *a)
{
	int ret = agent_plugin_connects(a);

	if (ret > 0)
		agent_plugin_died(a);
	else if (ret)
		agent_failed(a);
}

static int poll_timeout(const struct agent *a)
{
	int64_t left;

	if (a->stage == STAGE_REMOVING)
		return a->wire.in < 0 ? 0 : SILENT_MS;
	if (a->stage == STAGE_COMMITTED)
		return RESUME_POLL_MS;
	/* Without podman, the copy waits for as long as it takes. */
	if (a->stage == STAGE_READY && !a->container)
		return -1;
	left = (a->deadline - now_ns()) / 1000000;
	return left > 0 ? left : 0;
}

/* The source did not come back. What is written down stays: it may come later. */
static void over(struct agent *a)
{
	if (a->stage == STAGE_RUNNING) {
		agent_keep_files(a);
		images_remove(a->images);
	}
	agent_set_stage(a, STAGE_END);
}

static void remove_files(struct agent *a)
{
	if (!agent_remove_files(a, true) && a->wire.in < 0)
		agent_enter_stage(a, STAGE_END);
}

static void loop(struct agent *a)
{
	while (a->stage != STAGE_END) {
		/* agent_tell() closes wire.out if a message could not be sent: then that message reached nobody. */
		bool unheard = a->wire.in >= 0 && a->wire.out < 0;
		struct pollfd p[] = {
			{ .fd = a->wire.in, .events = POLLIN },
			{ .fd = a->listener, .events = POLLIN },
			{ .fd = a->container ? a->criu.pidfd : a->criu.sk, .events = a->criu_asks ? 0 : POLLIN },
			{ .fd = a->commit_sk, .events = POLLIN },
			{ .fd = a->commit_listener, .events = POLLIN },
			{ .fd = a->stage == STAGE_RESTORING ? a->plugin_pidfd : -1, .events = POLLIN },
		};
		int n = unheard ? 0 : poll(p, sizeof(p) / sizeof(*p), poll_timeout(a));

		if (unheard || (told_to_end && a->stage < STAGE_READY && a->stage != STAGE_REMOVING))
			lost_connection(a);
		else if (n == 0 && a->stage == STAGE_REMOVING)
			remove_files(a);
		else if (n == 0 && a->stage == STAGE_COMMITTED)
			agent_resumed(a);
		else if (n == 0 && a->stage >= STAGE_RUNNING)
			over(a);
		else if (n == 0 && a->stage == STAGE_IDLE)
			agent_enter_stage(a, STAGE_END);
		else if (n == 0 && fault("the source did not say commit in time"))
			agent_failed(a);
		if (n <= 0)
			continue;
		if (p[2].revents)
			agent_criu_event(a);
		else if (p[3].revents)
			agent_plugin_event(a);
		else if (p[4].revents)
			plugin_connects(a);
		else if (p[5].revents)
			agent_plugin_died(a);
		else if (p[0].revents)
			hear(a);
		else if (p[1].revents)
			accept_attach(a);
	}
}

/* The connection is stdin and stdout, unless it was lost already. Serve until the move is over. */
static int serve(struct agent *a)
{
	struct sigaction term = { .sa_handler = on_term };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char *path = state_path(a->id, ".sock");
	int ret = EXIT_OK;

	if (a->wire.in < 0 && a->wire.out < 0) {
		a->wire.in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
		a->wire.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	}
	/* The programs that we start must not keep the connection open. */
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	close(null);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	sigaction(SIGTERM, &term, NULL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	agent_linger(a);
	if (listen_for_attach(a)) {
		agent_failed(a);
		if (a->stage == STAGE_REMOVING)
			agent_undo(a);
		ret = EXIT_REFUSED;
	} else {
		loop(a);
	}
	unlink(path);
	free(path);
	return ret;
}

/* ssh ends now, and the source may connect again and ask while files are removed. */
static void remove_alone(struct agent *a)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	close_fd(&null);
	serve(a);
}

/*
 * The keeper. If the agent is killed, the kernel stops CRIU (PR_SET_PDEATHSIG), and the tasks stay frozen. The keeper has our
 * end of the plugin's socket, too, so the plugin does not notice, and a commit goes on.
 */
static int keep(struct agent *a, pid_t worker)
{
	char *path;
	int status;

	prctl(PR_SET_NAME, "godwit-keeper");	/* a kill by name hits agent or keeper, not both */
	close_fd(&a->plugin_sk);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	while (waitpid(worker, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	path = state_path(a->id, ".sock");
	unlink(path);
	free(path);
	/* When we end, ssh ends. Then the source connects again and asks. */
	if (agent_load(a) == 0)
		agent_take_over(a);
	if (a->stage == STAGE_REMOVING)
		remove_alone(a);
	return EXIT_LOST;
}

static int begin(struct agent *a)
{
	int sk[2];
	pid_t worker;

	a->lock = state_lock(a->id);
	if (a->lock < 0)
		return failed(EXIT_REFUSED);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sk)) {
		fault("socketpair: %s", strerror(errno));
		return failed(EXIT_REFUSED);
	}
	a->commit_sk = sk[0];
	a->plugin_sk = sk[1];
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	worker = fork();
	return worker ? keep(a, worker) : serve(a);
}

int cmd_agent(int argc, char **argv)
{
	static const struct option options[] = {
		{ "id", required_argument, NULL, 'i' },
		{ "attach", required_argument, NULL, 'a' },
		{ }
	};
	struct agent a = {
		.wire = { -1, -1 }, .attached = -1, .listener = -1, .lock = -1, .incoming = INCOMING_INIT,
		.criu = CRIU_INIT, .made = MNTNS_MADE_INIT, .commit_sk = -1, .plugin_sk = -1, .plugin_pidfd = -1,
		.commit_listener = -1,
		.copied = json_array(), .warnings = json_array(),
	};
	bool again = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c != 'i' && c != 'a')
			usage();
		again = c == 'a';
		a.id = optarg;
	}
	if (!a.id || optind != argc)
		usage();
	if (geteuid() != 0) {
		fault("agent: it must run as root");
		return failed(EXIT_REFUSED);
	}
	return again ? attach(&a) : begin(&a);
}
