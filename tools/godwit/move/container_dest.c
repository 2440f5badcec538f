// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * A container at the destination, where podman restores it from the archive.
 *
 * podman starts a runtime, the runtime starts CRIU, and CRIU's plugin asks us at a socket in STATE_DIR before anything runs. The
 * plugin finds the socket in its environment, which comes from podman. (It does not come by CONTAINERS_CONF_OVERRIDE: the
 * container's monitor would keep that, and the `podman container cleanup` that it runs at the end would not find the file.)
 * When a restore is called off, podman ends by itself, but keeps the container that it made, without tasks.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "agent.h"
#include "netns.h"
#include "podman.h"
#include "text.h"

#define MESSAGES	"restore.err"	/* what podman says, in the folder of images */
/*
 * podman gives a restore up 240 s after it began, also if the restore waits for the commit, and ends what has come of it.
 * So what is not committed is undone before that.
 */
#define PODMAN_WAITS_S	200
/* How long podman may take to end when its restore is called off; and then the processes that it left. */
#define PODMAN_MS	20000
#define REST_MS		5000
#define LATE_MS		10000	/* how much later than CRIU podman may end */
/* For how long, and how often, we try to remove a network namespace. */
#define NETNS_TRY_MS	2000
#define NETNS_STEP_MS	50

int container_check_id(json_t *container)
{
	const char *name = container_fact(container, "name"), *id = container_fact(container, "id");
	int is = podman_exists("container", id);

	return is > 0 ? fault("container %s: it is there already, as %.12s: podman rm %.12s, there", name, id, id) : is;
}

/* -------------------------------------------------------------- restore -- */

static int listen_for_plugin(struct agent *a)
{
	struct sockaddr_un sun;

	if (state_address(a->id, ".commit", &sun))
		return -1;
	unlink(sun.sun_path);
	a->commit_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (a->commit_listener < 0 || bind(a->commit_listener, (struct sockaddr *)&sun, sizeof(sun)) ||
	    chmod(sun.sun_path, 0600) || listen(a->commit_listener, 4))
		return fault("%s can't be listened at: %s", sun.sun_path, strerror(errno));
	return 0;
}

static void listen_no_more(struct agent *a)
{
	char *path = state_path(a->id, ".commit");

	close_fd(&a->commit_listener);
	unlink(path);
	free(path);
}

static void set_environment(const struct agent *a)
{
	char *path = state_path(a->id, ".commit");

	setenv("GODWIT_BEGIN_SOCK", path, 1);
	setenv("GODWIT_COMMIT_SOCK", path, 1);
	/* The reason for this value is in agent_start_criu(). */
	setenv("GODWIT_COMMIT_TIMEOUT", "1000000", 1);
	unsetenv("GODWIT_COMMIT_FD");
	free(path);
}

static void exec_podman(const struct agent *a, const char *const argv[])
{
	char *messages = xasprintf("%s/" MESSAGES, a->images);

	stand_alone(messages);
	set_environment(a);
	if (agent_fill_volumes(a))
		dprintf(STDERR_FILENO, "Error: %s\n", fault_text());
	else if (criu_lay_down())
		dprintf(STDERR_FILENO, "it can't be started without groups and keys, which the container would get\n");
	else
		execvp(argv[0], (char *const *)argv);
	_exit(127);
}

/* a->criu is podman, which starts CRIU. */
static int start_podman(struct agent *a)
{
	char *archive = xasprintf("%s/archive.tar", a->images);
	const char *const argv[] = {
		"podman", "--runtime", container_fact(a->container, "runtime"), "container", "restore", "--tcp-established",
		"--file-locks", "--ignore-volumes", "--import", archive, NULL,
	};

	a->criu.pid = fork();
	if (a->criu.pid == 0)
		exec_podman(a, argv);
	a->criu.pidfd = a->criu.pid < 0 ? -1 : pidfd_open(a->criu.pid, 0);
	free(archive);
	if (a->criu.pidfd < 0)
		return fault("podman can't be started: %s", strerror(errno));
	a->criu_id = proc_identify(a->criu.pid);
	return agent_save(a);
}

int agent_restore_container(struct agent *a)
{
	if (listen_for_plugin(a) || container_check_id(a->container))
		return -1;
	/* From now on, what podman has of this container is ours to remove. */
	json_object_set_new(a->container, "begun", json_true());
	return agent_save(a) ?: start_podman(a);
}

/* Wait until it has ended. -1: it still runs. */
static int wait_for(const struct proc_id *id, int timeout_ms)
{
	struct pollfd p = { .fd = proc_is_there(id) ? pidfd_open(id->pid, 0) : -1, .events = POLLIN };
	int n = p.fd < 0 ? 1 : poll(&p, 1, timeout_ms);

	close_fd(&p.fd);
	return n > 0 ? 0 : -1;
}

/* Send the plugin's socket to the keeper. It stays open there, even if the keeper never receives it. */
static int give_keeper(struct agent *a, int sk)
{
	int ret;

	if (a->plugin_sk < 0)
		return 0;
	ret = fds_send(a->plugin_sk, &sk, 1);
	close_fd(&a->plugin_sk);
	return !ret ? 0 : fault("the keeper can't be told of the CRIU plugin: %s", strerror(errno));
}

void agent_inherit_plugin(struct agent *a)
{
	int sk = -1;

	if (a->commit_sk >= 0)
		fds_receive(a->commit_sk, &sk, 1, MSG_DONTWAIT);
	close_fd(&a->commit_sk);
	a->commit_sk = sk;
}

/* CRIU has begun, and waits until its plugin hears from us. (It may have ended, too.) */
static int meet_plugin(struct agent *a, pid_t pid)
{
	close_fd(&a->plugin_pidfd);
	a->plugin_pidfd = pidfd_open(pid, 0);
	a->plugin_id = proc_identify(pid);
	return agent_save(a) ?: a->plugin_pidfd < 0 ? 1 : agent_lay_netns(a, pid);
}

/* Everything is restored, and the plugin will ask. */
static int take_plugin(struct agent *a, int sk)
{
	int failed = give_keeper(a, sk);

	close_fd(&a->commit_sk);
	a->commit_sk = sk;
	listen_no_more(a);
	return failed || agent_save(a) ? -1 : 0;
}

int agent_plugin_connects(struct agent *a)
{
	pid_t pid;
	int sk = accept_root(a->commit_listener, &pid), ret = 0;

	if (sk < 0)
		return 0;
	fault_clear();
	if (a->stage == STAGE_RESTORING && a->plugin_pidfd >= 0 && pid == a->plugin_id.pid)
		return take_plugin(a, sk);
	if (a->stage == STAGE_RESTORING)
		ret = meet_plugin(a, pid);
	close(sk);
	return ret;
}

static void with_netns(struct agent *a, int (*work)(json_t *netns))
{
	json_t *netns = json_object_get(a->container, "netns");

	if (netns && work(netns))
		agent_warn(a, fault_text());
	fault_clear();
}

void agent_take_container_down(struct agent *a)
{
	if (json_object_get(a->container, "network") && json_object_get(a->container, "has_netns"))
		with_netns(a, netns_take_down);
}

bool agent_podman_ends(struct agent *a)
{
	if (a->stage < STAGE_COMMITTED)
		agent_take_container_down(a);
	close_fd(&a->plugin_pidfd);
	if (wait_for(&a->criu_id, LATE_MS) == 0)
		return true;
	proc_kill_tree(&a->criu_id);
	proc_kill_descendants();
	return false;
}

/* -------------------------------------------------------- restored, run -- */

/* For how many seconds it has run. */
static int64_t age(const struct proc_id *id)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec - (int64_t)(id->start / sysconf(_SC_CLK_TCK));
}

int agent_limit_container(struct agent *a)
{
	int64_t left = PODMAN_WAITS_S - age(&a->plugin_id);

	if (left <= 0)
		return fault("container %s: its restore took too long: podman gives it up after 240 s",
			     container_fact(a->container, "name"));
	a->deadline = now_ns() + left * INT64_C(1000000000);
	return 0;
}

/* fault(): the last line of podman that begins with "Error: ", or else its last line. */
static void explain_by_podman(struct agent *a)
{
	char *path = xasprintf("%s/" MESSAGES, a->images), *text = read_file(path) ?: xstrdup("");
	char *line, *last = NULL, *save;

	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (!strncmp(line, "Error: ", 7) || !last || strncmp(last, "Error: ", 7))
			last = line;
	if (last && !strncmp(last, "Error: ", 7))
		last += 7;
	fault("container %s: podman can't restore it: %s", container_fact(a->container, "name"), last ?: "it does not say why");
	free(text);
	free(path);
}

/* fault(): what CRIU or its plugin say in CRIU's log, or else what podman says. */
static void explain(struct agent *a)
{
	const char *const argv[] = {
		"podman", "container", "inspect", "--format", "{{.StaticDir}}", container_fact(a->container, "id"), NULL,
	};
	char *text = NULL, *images;

	explain_by_podman(a);
	if (run(argv, NULL, &text) == 0 && text) {
		images = xasprintf("%s/checkpoint", text_last_line(text));
		images_explain(images, "../restore.log");
		free(images);
	}
	free(text);
}

/* podman was killed. Before CRIU began, nobody but podman knows what podman has made. */
static void warn_of_rest(struct agent *a)
{
	const char *network = container_fact(json_object_get(a->container, "network"), "name");
	char *text = xasprintf("network %s: podman was killed while it restored container %s: a namespace of podman's may stay (ip netns "
			       "list shows it, ip netns delete removes it), and podman may keep the container's address there, until the "
			       "network is made again, or this host boots", network, container_fact(a->container, "name"));

	if (*network && !a->plugin_id.pid)
		agent_warn(a, text);
	free(text);
}

enum criu_event agent_podman_event(struct agent *a)
{
	criu_wait(&a->criu, -1);
	if (WIFEXITED(a->criu.status) && WEXITSTATUS(a->criu.status) == 0)
		return CRIU_DONE;
	if (WIFSIGNALED(a->criu.status)) {
		warn_of_rest(a);
		fault("podman was killed by signal %d", WTERMSIG(a->criu.status));
		return CRIU_DIED;
	}
	explain(a);
	return CRIU_FAILED;
}

void agent_await_plugin(struct agent *a)
{
	struct pollfd p = { .fd = a->commit_sk, .events = POLLIN };

	if (a->commit_sk >= 0 && poll(&p, 1, CRIU_END_MS) != 1)
		proc_kill_tree(&a->plugin_id);
}

void agent_await_criu(struct agent *a)
{
	if (wait_for(&a->plugin_id, CRIU_END_MS))
		proc_kill_tree(&a->plugin_id);
	wait_for(&a->criu_id, CRIU_END_MS);
}

void agent_announce_container(struct agent *a)
{
	with_netns(a, netns_announce);
}

void agent_end_container_quiet(struct agent *a)
{
	json_t *netns = json_object_get(a->container, "netns");

	with_netns(a, netns_end_quiet);
	with_netns(a, netns_announce);
	if (netns && netns_check_name(netns, a->root))
		agent_warn(a, fault_text());
	fault_clear();
}

void agent_keep_container_quiet(struct agent *a)
{
	with_netns(a, netns_keep_quiet);
}

/*
 * The archive has no restart policy (policy_source.c). From now on the source lets nothing run, so podman here may start it again.
 * A source that has not heard that it runs here may yet let it run there, if a person takes this host for dead: so not before.
 */
void agent_give_policy(struct agent *a)
{
	podman_path();
	/* agent_set_stage() makes us ignore SIGCHLD, and then we could not wait for podman. */
	signal(SIGCHLD, SIG_DFL);
	if (podman_give_policy(a->container))
		agent_warn(a, fault_text());
	signal(SIGCHLD, SIG_IGN);
	fault_clear();
}

/* ----------------------------------------------------------------- undo -- */

/* Tell the plugin by a shutdown: the keeper has the socket, too, so that a close would not reach the plugin. */
static void call_off(struct agent *a)
{
	listen_no_more(a);
	if (a->commit_sk >= 0)
		shutdown(a->commit_sk, SHUT_RDWR);
	close_fd(&a->commit_sk);
}

/* What podman has unpacked may fill its storage. Then podman can't write down that the container goes. */
static void make_room(const char *id)
{
	const char *const argv[] = {
		"timeout", "--kill-after=5", "10", "podman", "container", "inspect", "--format", "{{.StaticDir}}", id, NULL,
	};
	char *text = NULL, *images;

	if (run(argv, NULL, &text) == 0 && text && *text == '/') {
		images = xasprintf("%s/checkpoint", text_last_line(text));
		images_remove(images);
		free(images);
	}
	free(text);
	fault_clear();
}

static void remove_from_podman(struct agent *a)
{
	const char *id = container_fact(a->container, "id"), *runtime = container_fact(a->container, "runtime");
	const char *const delete[] = { "timeout", "--kill-after=5", "20", runtime, "delete", "--force", id, NULL };
	const char *const rm[] = {
		"timeout", "--kill-after=5", "30", "podman", "rm", "--force", "--ignore", "--time", "0", id, NULL,
	};
	int ret;

	/* If podman can't tell whether the container exists, podman may have made it. */
	if (podman_exists("container", id) == 0)
		return;
	fault_clear();
	/* If a restore was killed, podman does not know which of its tasks still run, but the runtime does. */
	run(delete, NULL, NULL);
	ret = run(rm, NULL, NULL);
	if (ret == TIMED_OUT || ret < 0) { /* more room does not help a podman that hangs */
		fault("container %s: podman can't remove it: it does not answer", container_fact(a->container, "name"));
	} else if (ret) {
		make_room(id);
		ret = run_or_fault(rm, "container %s: podman can't remove it", container_fact(a->container, "name"));
	}
	if (ret)
		agent_warn(a, fault_text());
	fault_clear();
}

static void undo_podman(struct agent *a)
{
	/* As long as tar fills the volumes, podman has not begun, and nothing needs to end by itself. */
	bool begun = !proc_is_ours(a->criu_id.pid);

	agent_take_container_down(a);
	if (!begun || wait_for(&a->criu_id, PODMAN_MS)) {
		proc_kill_tree(&a->criu_id);
		if (begun)
			warn_of_rest(a);
	}
	remove_from_podman(a);
	/* podman, the container's monitor that podman left, and the cleanup that the monitor started */
	reap_children(REST_MS);
	a->criu.pid = -1;
	proc_kill_tree(&a->plugin_id);
	proc_kill_tree(&a->root_id);
	proc_kill_descendants();
	/* podman may have made the container after the first try to remove it, before podman was killed. */
	remove_from_podman(a);
}

void agent_undo_container(struct agent *a)
{
	fault_clear();
	podman_path();
	call_off(a);
	close_fd(&a->plugin_pidfd);
	if (json_object_get(a->container, "begun"))
		undo_podman(a);
	json_object_del(a->container, "begun");
	a->plugin_id = (struct proc_id){ 0 };
}

/*
 * A program may have the device open for a moment, such as the `godwit key load` that udev starts for a new device. A new move may
 * make the namespace again, so it is written down at once that it is not ours any more.
 */
int agent_undo_netns(struct agent *a, bool polite)
{
	json_t *netns = json_object_get(a->container, "netns");
	int64_t end = now_ns() + NETNS_TRY_MS * INT64_C(1000000);

	if (!json_object_get(a->container, "has_netns"))
		return 0;
	fault_clear();
	while (netns_remove(netns) && now_ns() < end) {
		fault_clear();
		if (agent_is_called(a, NETNS_STEP_MS) && polite)
			return 1;
	}
	if (!fault_is_set() && json_object_get(a->container, "network"))
		netns_wait_gone(netns);
	if (fault_is_set())
		agent_warn(a, fault_text());
	fault_clear();
	json_object_del(a->container, "has_netns");
	agent_save(a);
	return 0;
}
