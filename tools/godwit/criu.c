// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "criu.h"
#include "mntns.h"
#include "rpc.pb-c.h"

#define MESSAGE_MAX	65536

/* How exec_criu() ends. */
#define EXIT_MNTNS	125
#define EXIT_BARE	126
#define EXIT_NO_CRIU	127

/*
 * A restored task keeps of CRIU what CRIU does not restore. CRIU calls no setgroups() for a task without supplementary
 * groups, and knows nothing of keyrings. So CRIU itself gets no groups, and an empty session keyring.
 */
int criu_lay_down(void)
{
	if (setgroups(0, NULL))
		return -1;
	return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS ? -1 : 0;
}

static void exec_criu(const struct criu *criu, int sk, int inherit)
{
	char fd_text[16];
	int null = open("/dev/null", O_RDWR);
	int log = criu->images < 0 ? -1 : openat(criu->images, "criu.err", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/*
	 * A session of its own, so that ^C at a terminal reaches godwit alone. A CRIU that restores is not favoured: its tasks
	 * would keep the favour.
	 */
	if (inherit < 0)
		go_first();
	else
		setsid();
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(log >= 0 ? log : null, STDERR_FILENO);
	if (criu_lay_down())
		_exit(EXIT_BARE);
	if (criu->mntns >= 0 && setns(criu->mntns, CLONE_NEWNS))
		_exit(EXIT_MNTNS);
	for (size_t i = 0; i < criu->files; i++)
		fcntl(criu->file[i].fd, F_SETFD, 0);
	fcntl(sk, F_SETFD, 0);
	if (inherit >= 0) {
		fcntl(inherit, F_SETFD, 0);
		/* If we die, the tasks that it has frozen are to stay frozen. */
		prctl(PR_SET_PDEATHSIG, SIGSTOP);
	}
	/*
	 * CRIU's name for: follow a task's system calls instead of setting a breakpoint. For the first breakpoint of a host the
	 * kernel patches its scheduler, and waits for all CPUs, while the process is frozen. Where a virtual machine has no
	 * debug registers that work, CRIU would wait for the breakpoint for ever.
	 */
	setenv("CRIU_FAULT", "130", 0);
	snprintf(fd_text, sizeof(fd_text), "%d", sk);
	execlp("criu", "criu", "swrk", fd_text, NULL);
	_exit(EXIT_NO_CRIU);
}

int criu_start(struct criu *criu, const char *images, int inherit)
{
	int sk[2];

	if (images)
		criu->images = open(images, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (images && criu->images < 0)
		return fault("%s: %s", images, strerror(errno));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		return fault("criu: socketpair: %s", strerror(errno));
	criu->sk = sk[0];
	criu->pid = fork();
	if (criu->pid == 0)
		exec_criu(criu, sk[1], inherit);
	close(sk[1]);
	criu->pidfd = criu->pid < 0 ? -1 : pidfd_open(criu->pid, 0);
	if (criu->pidfd < 0)
		return fault("criu: %s", strerror(errno));
	fcntl(criu->pidfd, F_SETFD, FD_CLOEXEC);
	return 0;
}

static enum criu_event died(struct criu *criu)
{
	if (criu_wait(criu, 10000))
		fault("criu closed its socket, but runs on");
	else if (WIFSIGNALED(criu->status))
		fault("criu was killed by signal %d", WTERMSIG(criu->status));
	else if (WEXITSTATUS(criu->status) == EXIT_NO_CRIU)
		fault(criu->mntns < 0 ? "criu is not installed" : "criu can't be started in the mount namespace of the process");
	else if (WEXITSTATUS(criu->status) == EXIT_MNTNS)
		fault("criu can't enter the mount namespace of the process: give root CAP_SYS_ADMIN and CAP_SYS_CHROOT");
	else if (WEXITSTATUS(criu->status) == EXIT_BARE)
		fault("criu can't be started without groups and keys, which the copy would get: give root CAP_SETGID, and "
		      "room for a keyring");
	else
		fault("criu ended with status %d", WEXITSTATUS(criu->status));
	return CRIU_DIED;
}

int criu_request(struct criu *criu, const CriuReq *req)
{
	size_t length = criu_req__get_packed_size(req);
	uint8_t *buf = xcalloc(1, length);
	ssize_t n;

	criu_req__pack(req, buf);
	n = send(criu->sk, buf, length, MSG_NOSIGNAL);
	free(buf);
	if (n == (ssize_t)length)
		return 0;
	if (errno == EPIPE || errno == ECONNRESET)
		died(criu);
	else
		fault("criu does not listen: %s", strerror(errno));
	return -1;
}

static void common_options(CriuOpts *opts, const struct criu *criu, const struct criu_options *options)
{
	/* CRIU gets the folder by a descriptor, because CRIU would take a path for a symbolic link. */
	opts->images_dir_fd = criu->images;
	opts->log_file = (char *)options->log;
	opts->has_log_level = true;
	opts->log_level = 4;
	opts->has_tcp_established = true;
	opts->tcp_established = true;
	opts->has_shell_job = true;
	opts->shell_job = options->shell_job;
	/* always: /proc/locks does not tell who owns an inherited lock, or a lock of an open file description */
	opts->has_file_locks = true;
	opts->file_locks = true;
	opts->has_notify_scripts = true;
	opts->notify_scripts = true;
	/* the cgroups of one host mean nothing on another */
	opts->has_manage_cgroups_mode = true;
	opts->manage_cgroups_mode = CRIU_CG_MODE__IGNORE;
}

int criu_give_file(struct criu *criu, const char *key, const char *path)
{
	int fd = mntns_open(AT_FDCWD, path);

	if (fd < 0)
		return fault("file %s: it was opened outside of the process's mount namespace, and can't be opened there: %s: "
			     "make it there", path, mntns_error());
	GROW(criu->file, criu->files);
	criu->file[criu->files++] = (struct criu_file){ xstrdup(key), xstrdup(path), fd };
	return 0;
}

int criu_look_at_files(const struct criu *criu)
{
	struct stat open, now;

	for (size_t i = 0; i < criu->files; i++)
		if (fstat(criu->file[i].fd, &open) || stat(criu->file[i].path, &now) || !same_file(&open, &now))
			return fault("file %s: another has taken its place during the move: try again", criu->file[i].path);
	return 0;
}

/* CRIU's names of files; the array is to be freed. */
static char **names_of(json_t *external, size_t *n)
{
	char **names = xcalloc(json_object_size(external) + 1, sizeof(*names));
	const char *name;
	json_t *path;

	*n = 0;
	json_object_foreach(external, name, path)
		names[(*n)++] = (char *)name;
	return names;
}

int criu_dump(struct criu *criu, const struct criu_options *options)
{
	CriuOpts opts = CRIU_OPTS__INIT;
	CriuReq req = CRIU_REQ__INIT;
	int ret;

	common_options(&opts, criu, options);
	opts.has_pid = true;
	opts.pid = options->pid;
	opts.has_network_lock = true;
	opts.network_lock = CRIU_NETWORK_LOCK_METHOD__NFTABLES;
	/* files without a name go along, however large; most are shared memory in /dev/shm */
	opts.has_ghost_limit = true;
	opts.ghost_limit = UINT32_MAX;
	opts.external = names_of(options->external, &opts.n_external);
	req.type = CRIU_REQ_TYPE__DUMP;
	req.opts = &opts;
	ret = criu_request(criu, &req);
	free(opts.external);
	return ret;
}

int criu_restore(struct criu *criu, const struct criu_options *options)
{
	InheritFd *file = xcalloc(criu->files + 1, sizeof(*file)), **files = xcalloc(criu->files + 1, sizeof(*files));
	CriuOpts opts = CRIU_OPTS__INIT;
	CriuReq req = CRIU_REQ__INIT;
	int ret;

	common_options(&opts, criu, options);
	for (size_t i = 0; i < criu->files; i++) {
		inherit_fd__init(&file[i]);
		file[i].key = criu->file[i].key;
		file[i].fd = criu->file[i].fd;
		files[i] = &file[i];
	}
	opts.inherit_fd = files;
	opts.n_inherit_fd = criu->files;
	req.type = CRIU_REQ_TYPE__RESTORE;
	req.opts = &opts;
	ret = criu_request(criu, &req);
	free(file);
	free(files);
	return ret;
}

/* The text of a message of CRIU: "(00.123456) Error (criu/x.c:12): text" */
static const char *bare(const char *message)
{
	const char *p = strstr(message, "Error (");

	p = p ? strstr(p, "): ") : NULL;
	return p ? p + 3 : message;
}

static enum criu_event understand(const CriuResp *resp, char script[64], pid_t *pid)
{
	if (resp->type == CRIU_REQ_TYPE__NOTIFY && resp->notify) {
		snprintf(script, 64, "%s", resp->notify->script ? resp->notify->script : "");
		if (pid && resp->notify->has_pid)
			*pid = resp->notify->pid;
		return CRIU_NOTIFY;
	}
	if (resp->success)
		return CRIU_DONE;
	if (resp->cr_errmsg)
		fault("%s", bare(resp->cr_errmsg));
	else if (resp->has_cr_errno)
		fault("criu: %s", strerror(resp->cr_errno));
	return CRIU_FAILED;
}

enum criu_event criu_next(struct criu *criu, char script[64], pid_t *pid)
{
	static uint8_t buf[MESSAGE_MAX];
	enum criu_event event;
	CriuResp *resp;
	ssize_t n;

	do
		n = recv(criu->sk, buf, sizeof(buf), 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return died(criu);
	resp = criu_resp__unpack(NULL, n, buf);
	if (!resp) {
		fault("criu says what we don't understand");
		return CRIU_FAILED;
	}
	event = understand(resp, script, pid);
	criu_resp__free_unpacked(resp, NULL);
	return event;
}

int criu_answer(struct criu *criu, bool ok)
{
	CriuReq req = CRIU_REQ__INIT;

	req.type = CRIU_REQ_TYPE__NOTIFY;
	req.has_notify_success = true;
	req.notify_success = ok;
	return criu_request(criu, &req);
}

int criu_wait(struct criu *criu, int timeout_ms)
{
	struct pollfd p = { .fd = criu->pidfd, .events = POLLIN };

	if (criu->pid <= 0)
		return 0;
	while (poll(&p, 1, timeout_ms) < 0 && errno == EINTR)
		;
	if (!(p.revents & POLLIN))
		return -1;
	waitpid(criu->pid, &criu->status, 0);
	criu->pid = -1;
	return 0;
}

void criu_close(struct criu *criu)
{
	close_fd(&criu->sk);
	close_fd(&criu->pidfd);
	close_fd(&criu->images);
	close_fd(&criu->mntns);
	for (size_t i = 0; i < criu->files; i++) {
		close_fd(&criu->file[i].fd);
		free(criu->file[i].key);
		free(criu->file[i].path);
	}
	free(criu->file);
	criu->file = NULL;
	criu->files = 0;
}

int criu_version(void)
{
	const char *const argv[] = { "criu", "--version", NULL };
	int major = 0, minor = 0, sub = 0;
	char *text = NULL, *at;

	if (run(argv, NULL, &text) == 0 && text && (at = strstr(text, "Version: ")))
		sscanf(at, "Version: %d.%d.%d", &major, &minor, &sub);
	free(text);
	return major * 10000 + minor * 100 + sub;
}

int criu_probe(void)
{
	CriuFeatures features = CRIU_FEATURES__INIT;
	CriuReq req = CRIU_REQ__INIT;
	struct criu criu = CRIU_INIT;
	enum criu_event event = CRIU_FAILED;
	char script[64];

	features.has_mem_track = features.mem_track = true;
	req.type = CRIU_REQ_TYPE__FEATURE_CHECK;
	req.features = &features;
	if (criu_start(&criu, NULL, -1) == 0 && criu_request(&criu, &req) == 0)
		event = criu_next(&criu, script, NULL);
	criu_close(&criu);
	if (criu.pid > 0)
		waitpid(criu.pid, NULL, 0);
	return event == CRIU_DONE ? 0 : fault("criu: it does not work here: run criu check to see why");
}
