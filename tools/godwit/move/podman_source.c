// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * podman at the source. podman checkpoints the container, and takes it for left running, which is true if the move fails.
 * Our CRIU keeps the tasks frozen from the dump until the move has ended. Then podman is told to stop and to remove the
 * container, so that podman does not start it here again.
 */
#include <errno.h>
#include <fcntl.h>
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
#include <unistd.h>
#include "move.h"
#include "rpc.pb-c.h"
#include "state.h"
#include "text.h"

#define ARCHIVE		"archive.tar"
#define MESSAGES	"podman.err"	/* images_send() leaves this name out */
#define END_MS		10000
#define KILL_MS		30000

static const char *container_id(const struct container *c)
{
	return json_string_value(json_object_get(c->facts, "id"));
}

/* ----------------------------------------------------- where it finds criu -- */

static int link_criu(const char *folder)
{
	char self[4096], *name = xasprintf("%s/criu", folder);
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int ret;

	self[n < 0 ? 0 : n] = '\0';
	ret = n < 0 || symlink(self, name) || access(name, X_OK) ? fault("%s can't be made: %s", name, strerror(errno)) : 0;
	free(name);
	return ret;
}

static int listen_there(struct container *c)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int n = snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/" RELAY_SOCKET, c->bin);

	c->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (n >= (int)sizeof(sun.sun_path) || c->listener < 0 ||
	    bind(c->listener, (struct sockaddr *)&sun, sizeof(sun)) || listen(c->listener, 4))
		return fault("%s/" RELAY_SOCKET " can't be listened at: %s", c->bin, strerror(errno));
	return 0;
}

static void remove_bin(struct container *c)
{
	static const char *const names[] = { "criu", RELAY_SOCKET };

	for (size_t i = 0; c->bin && i < 2; i++) {
		char *path = xasprintf("%s/%s", c->bin, names[i]);

		unlink(path);
		free(path);
	}
	if (c->bin)
		rmdir(c->bin);
	free(c->bin);
	c->bin = NULL;
}

static int make_bin(struct move *m)
{
	struct container *c = &m->container;

	c->bin = state_path(m->id, ".bin");
	if (mkdir(c->bin, 0700) && errno != EEXIST)
		return fault("%s can't be made: %s", c->bin, strerror(errno));
	return link_criu(c->bin) ?: listen_there(c);
}

/* ------------------------------------------------------------ the programs -- */

static void exec_podman(const char *const argv[], const char *bin, const char *messages)
{
	char *path = xasprintf("%s:%s", bin ?: "", getenv("PATH") ?: "/usr/sbin:/usr/bin:/sbin:/bin");

	stand_alone(messages);
	if (bin)
		setenv("PATH", path, 1);
	execvp(argv[0], (char *const *)argv);
	_exit(127);
}

static int start(struct move *m, const char *const argv[], const char *messages)
{
	struct container *c = &m->container;
	pid_t pid = fork();

	if (pid == 0)
		exec_podman(argv, c->bin, messages);
	m->shared->podman = pid;
	c->status = -1;
	c->pidfd = pid < 0 ? -1 : pidfd_open(pid, 0);
	return c->pidfd < 0 ? fault("podman can't be started: %s", strerror(errno)) : 0;
}

/*
 * The runtime of a podman that was killed lives on. Once our criu is gone, it would find the system's, and have that dump the
 * container. Before podman is waited for, its process group can't be anybody else's.
 */
static void end_its_runtime(pid_t podman)
{
	siginfo_t info = { 0 };

	if (waitid(P_PID, podman, &info, WEXITED | WNOWAIT) == 0 && info.si_code != CLD_EXITED)
		kill(-podman, SIGKILL);
}

/* Has podman ended? Then c->status is that of waitpid(), or -1 if nobody knows it. */
static bool has_ended(struct move *m, int timeout_ms)
{
	struct container *c = &m->container;
	struct pollfd p = { .fd = c->pidfd, .events = POLLIN };

	if (c->pidfd < 0)
		return true;
	while (poll(&p, 1, timeout_ms) < 0 && errno == EINTR)
		;
	if (!(p.revents & POLLIN))
		return false;
	end_its_runtime(m->shared->podman);
	if (waitpid(m->shared->podman, &c->status, 0) < 0)
		c->status = -1;
	close_fd(&c->pidfd);
	m->shared->podman = -1;
	return true;
}

/* End podman with its runtime, which is in its session. In the keeper, this is the podman of the killed worker. */
static void end_podman(struct move *m)
{
	if (m->container.pidfd < 0 && m->shared->podman > 0)
		m->container.pidfd = pidfd_open(m->shared->podman, 0);
	if (has_ended(m, END_MS))
		return;
	kill(-m->shared->podman, SIGTERM);
	if (has_ended(m, END_MS))
		return;
	kill(-m->shared->podman, SIGKILL);
	has_ended(m, -1);
}

/* The last line that the program has said. Free it. */
static char *last_words(struct move *m)
{
	char *path = xasprintf("%s/" MESSAGES, m->images), *text = read_file(path);
	char *line = xstrdup(text_why(text));

	free(text);
	free(path);
	return line;
}

/* fault(): the last line that podman or its runtime has said. Gives -1. */
static int why(struct move *m, const char *what)
{
	char *line = last_words(m);

	fault("container %s: podman can't %s it: %s", m->container.name, what, line);
	free(line);
	return -1;
}

/* ----------------------------------------------------------------- the dump -- */

/* Open the folder that the runtime has open as descriptor `number`. *path: its path. -1 with fault(). */
static int open_theirs(struct container *c, int number, char **path)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	char *link, name[4096];
	ssize_t n;
	int fd;

	if (getsockopt(c->runtime, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return fault("the runtime of the container can't be asked who it is: %s", strerror(errno));
	link = xasprintf("/proc/%d/fd/%d", cred.pid, number);
	n = readlink(link, name, sizeof(name) - 1);
	fd = open(link, O_PATH | O_DIRECTORY | O_CLOEXEC);
	name[n < 0 ? 0 : n] = '\0';
	free(link);
	if (n < 0 || fd < 0)
		return fault("container %s: its runtime has no folder %d: %s: was the runtime killed?", c->name, number,
			     strerror(errno));
	free(*path);
	*path = xstrdup(name);
	return fd;
}

/* Ask CRIU for what the runtime asks, but so that the tasks stay frozen at the end and CRIU waits for our answer. */
static int ask_as_theirs(struct move *m, CriuOpts *opts, CriuReq *req)
{
	struct container *c = &m->container;
	int ret;

	/* runc always names such a file. If the file is not there, CRIU ignores it. */
	if (opts->config_file && access(opts->config_file, F_OK) == 0)
		return fault("%s: it sets options of CRIU, which godwit can't use in a move: take this file away for the move",
			     opts->config_file);
	if (opts->pid != m->process.pid)
		return fault("container %s: it was started anew: move it again", c->name);
	m->criu.images = open_theirs(c, opts->images_dir_fd, &c->dump);
	if (m->criu.images < 0)
		return -1;
	if (opts->has_work_dir_fd)
		c->work_fd = open_theirs(c, opts->work_dir_fd, &c->work);
	else
		c->work = xstrdup(c->dump);
	if (!c->work)
		return -1;
	opts->images_dir_fd = m->criu.images;
	opts->work_dir_fd = c->work_fd;
	opts->has_leave_running = opts->leave_running = false;
	opts->has_notify_scripts = opts->notify_scripts = true;
	opts->has_network_lock = true;
	opts->network_lock = CRIU_NETWORK_LOCK_METHOD__NFTABLES;
	opts->has_ghost_limit = true;
	opts->ghost_limit = UINT32_MAX;
	if (container_netns(m))
		opts->network_lock = CRIU_NETWORK_LOCK_METHOD__SKIP;
	/* If we are killed, our keeper or a person goes on, and must find the folders. */
	if (move_save(m))
		return -1;
	ret = criu_start(&m->criu, NULL, -1);
	m->shared->criu = m->criu.pid;
	return ret ?: criu_request(&m->criu, req);
}

static int hear_runtime(struct move *m)
{
	static uint8_t buf[65536];
	ssize_t n = recv(m->container.runtime, buf, sizeof(buf), 0);
	CriuReq *req = n > 0 ? criu_req__unpack(NULL, n, buf) : NULL;
	int ret;

	if (!req || !req->opts)
		ret = fault("container %s: its runtime asks for what criu does not know", m->container.name);
	else
		ret = ask_as_theirs(m, req->opts, req);
	if (req)
		criu_req__free_unpacked(req, NULL);
	return ret;
}

/* relay_source.c, in the place of criu, sends us the socket of its runtime. */
static int accept_relay(struct move *m)
{
	struct container *c = &m->container;

	c->relay = accept_root(c->listener, NULL);
	return c->relay < 0 || fds_receive(c->relay, &c->runtime, 1, 0) ?
		fault("container %s: its runtime could not be heard", c->name) : 0;
}

int container_dump(struct move *m)
{
	struct container *c = &m->container;
	char *archive = xasprintf("%s/" ARCHIVE, m->images), *messages = xasprintf("%s/" MESSAGES, m->images);
	const char *const argv[] = {
		"podman", "container", "checkpoint", "--leave-running", "--tcp-established", "--file-locks", "--compress", "none",
		"--ignore-rootfs", "--ignore-volumes", "--export", archive, container_id(c), NULL,
	};
	int ret = make_bin(m) ?: start(m, argv, messages);

	free(messages);
	free(archive);
	if (ret)
		return -1;
	ret = move_await(m, c->listener, c->pidfd);
	if (ret == 1)
		return why(m, "checkpoint");
	return ret ?: accept_relay(m) ?: hear_runtime(m);
}

/* ------------------------------------------------------------- its archive -- */

/* What criu says when it is done. */
static void tell_runtime(struct container *c, bool success)
{
	CriuDumpResp dump = CRIU_DUMP_RESP__INIT;
	CriuResp resp = CRIU_RESP__INIT;
	uint8_t buf[64];
	size_t length;

	resp.type = CRIU_REQ_TYPE__DUMP;
	resp.success = success;
	resp.dump = &dump;
	length = criu_resp__pack(&resp, buf);
	if (c->runtime >= 0)
		send(c->runtime, buf, length, MSG_NOSIGNAL);
	if (c->relay >= 0 && success)
		send(c->relay, "0", 1, MSG_NOSIGNAL);
	close_fd(&c->runtime);
	close_fd(&c->relay);
}

/* Wait for podman, or what start() has started in its place. */
static int await_end(struct move *m)
{
	int ret = move_await(m, m->container.pidfd, m->criu.pidfd);

	if (ret)
		return ret < 0 ? -1 : fault(CRIU_WAS_KILLED);
	has_ended(m, -1);
	return 0;
}

/*
 * podman's archive of a volume lacks its owner and mode, and podman would leave it here if the move fails. So podman ignores the
 * volumes, and tar writes them beside its archive, with a list of each. volumes_dest.c reads that.
 */
static int save_volume(struct move *m, json_t *volume)
{
	const char *name = json_string_value(json_object_get(volume, "volume"));
	char *source = path_from_json(json_object_get(volume, "source")), *file = xasprintf("%s/volume-%s.tar", m->images, name);
	char *list = xasprintf("%s.list", file), *messages = xasprintf("%s/" MESSAGES, m->images), *line;
	const char *const argv[] = {
		"tar", "--create", "--verbose", "--verbose", "--full-time", "--utc", "--index-file", list, "--force-local",
		"--file", file, "--directory", source, "--numeric-owner", "--acls", "--xattrs", "--xattrs-include=*", "--sparse",
		"--sort=name", ".", NULL,
	};
	int ret = start(m, argv, messages) ?: await_end(m);

	if (!ret && m->container.status) {
		line = last_words(m);
		ret = fault("volume %s: tar can't read it: %s", name, line);
		free(line);
	}
	free(messages);
	free(list);
	free(file);
	free(source);
	return ret;
}

static int save_volumes(struct move *m)
{
	json_t *list = json_object_get(m->container.facts, "volumes"), *volume;
	int ret = 0;
	size_t i;

	json_array_foreach(list, i, volume)
		if (!ret && json_object_get(volume, "volume"))
			ret = save_volume(m, volume);
	return ret;
}

static int add_rootfs(struct move *m)
{
	char *archive = xasprintf("%s/" ARCHIVE, m->images);
	int ret = container_archive_rootfs(m, archive);

	free(archive);
	return ret;
}

int container_archive(struct move *m)
{
	struct container *c = &m->container;

	report_step("archive", "by podman");
	tell_runtime(c, true);
	if (await_end(m))
		return -1;
	if (c->status)
		return why(m, "make an archive of");
	return add_rootfs(m) ?: save_volumes(m);
}

void container_dump_end(struct move *m)
{
	struct container *c = &m->container;

	if (!c->name)
		return;
	close_fd(&c->listener);
	tell_runtime(c, false);
	end_podman(m);
	close_fd(&c->work_fd);
	if (!c->bin)
		c->bin = state_path(m->id, ".bin");
	remove_bin(c);
}

void container_forget_dump(struct move *m)
{
	static const char *const names[] = { "devshm-checkpoint.tar", "network.status" };
	struct container *c = &m->container;

	if (c->dump)
		images_remove(c->dump);
	for (size_t i = 0; c->work && i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = xasprintf("%s/%s", c->work, names[i]);

		unlink(path);
		free(path);
	}
	free(c->dump);
	free(c->work);
	c->dump = c->work = NULL;
	fault_clear();
}

/* ------------------------------------------------------------------ its end -- */

/* podman kills the first process of the container, and the kernel kills all others with it. */
static bool is_killed(struct move *m)
{
	struct tree first = { .task = m->plan.tree.task, .n = m->plan.tree.n ? 1 : 0 };

	return tree_alive(&first) == 0;
}

/*
 * From now on podman knows that the container is not to run here, however it ends. podman waits for that end, which comes
 * only when CRIU lets the killed tasks go.
 */
int container_stop(struct move *m)
{
	struct container *c = &m->container;
	const char *const argv[] = { "podman", "stop", "--ignore", "--time", "0", container_id(c), NULL };
	int64_t end = now_ns() + KILL_MS * INT64_C(1000000);

	container_dump_end(m);
	if (start(m, argv, NULL))
		return -1;
	while (!is_killed(m)) {
		if (!has_ended(m, 10) && now_ns() < end)
			continue;
		end_podman(m);
		return fault("container %s: podman does not end it here, where it is held: see why (podman stop %s), then godwit "
			     "settle %s commit", c->name, c->name, m->id);
	}
	return 0;
}

int container_remove(struct move *m)
{
	struct container *c = &m->container;
	const char *const argv[] = { "podman", "rm", "--force", "--ignore", "--time", "0", container_id(c), NULL };

	if (!has_ended(m, KILL_MS))
		end_podman(m);
	if (start(m, argv, NULL))
		return -1;
	if (has_ended(m, KILL_MS) && c->status == 0)
		return 0;
	end_podman(m);
	return fault("container %s: it has ended here, but podman could not remove it: podman rm --force %s", c->name, c->name);
}
