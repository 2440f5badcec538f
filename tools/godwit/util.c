// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "godwit.h"
#include "text.h"

#define REASON_MAX 1024

static char reason[REASON_MAX * 4];	/* at worst, each byte becomes \xHH */

int fault(const char *format, ...)
{
	char raw[REASON_MAX], *clean;
	va_list ap;

	if (reason[0])
		return -1;
	va_start(ap, format);
	vsnprintf(raw, sizeof(raw), format, ap);
	va_end(ap);
	for (char *c = raw; *c; c++)
		if (*c == '\n')
			*c = c[1] ? ' ' : '\0';
	clean = text_clean(raw);
	strcpy(reason, clean);
	free(clean);
	return -1;
}

const char *fault_text(void)
{
	return reason[0] ? reason : "no reason was given";
}

bool fault_is_set(void)
{
	return reason[0];
}

void fault_clear(void)
{
	reason[0] = '\0';
}

int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

#define FDS_MAX	2

int fds_send(int sk, const int *fd, size_t n)
{
	char byte = 'F', control[CMSG_SPACE(FDS_MAX * sizeof(*fd))] __attribute__((aligned(8))) = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(n * sizeof(*fd)),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(*fd));
	memcpy(CMSG_DATA(c), fd, n * sizeof(*fd));
	return sendmsg(sk, &msg, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

int fds_receive(int sk, int *fd, size_t n, int flags)
{
	char byte, control[CMSG_SPACE(FDS_MAX * sizeof(*fd))] __attribute__((aligned(8)));
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(n * sizeof(*fd)),
	};
	struct cmsghdr *c;

	if (recvmsg(sk, &msg, MSG_CMSG_CLOEXEC | flags) != 1)
		return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(n * sizeof(*fd)))
		return -1;
	memcpy(fd, CMSG_DATA(c), n * sizeof(*fd));
	return 0;
}

int accept_root(int listener, pid_t *pid)
{
	int sk = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct ucred cred = { .uid = -1 };
	socklen_t len = sizeof(cred);

	if (sk >= 0 && (getsockopt(sk, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.uid != 0))
		close_fd(&sk);
	if (pid)
		*pid = cred.pid;
	return sk;
}

static char *read_all(int fd)
{
	size_t used = 0, size = 4096;
	char *text = xrealloc(NULL, size);
	ssize_t n;

	while ((n = read(fd, text + used, size - used - 1)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			free(text);
			return NULL;
		}
		used += n;
		if (used + 1 == size)
			text = xrealloc(text, size *= 2);
	}
	text[used] = '\0';
	return text;
}

char *read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text;

	if (fd < 0)
		return NULL;
	text = read_all(fd);
	close(fd);
	return text;
}

static void run_child(const char *const argv[], int in, int out, bool errors)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	dup2(in >= 0 ? in : null, STDIN_FILENO);
	dup2(out >= 0 ? out : null, STDOUT_FILENO);
	dup2(out >= 0 && errors ? out : null, STDERR_FILENO);
	execvp(argv[0], (char *const *)argv);
	dprintf(STDERR_FILENO, "%s\n", strerror(errno));
	_exit(127);
}

/* A file in memory that holds text, to be read from its start. */
static int text_fd(const char *text)
{
	int fd = memfd_create("godwit", MFD_CLOEXEC);

	if (fd < 0 || dprintf(fd, "%s", text) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		close_fd(&fd);
	return fd;
}

static int run_with(const char *const argv[], const char *text, char **output, bool errors, int limit_ms)
{
	int in = text ? text_fd(text) : -1;
	int out[2] = { -1, -1 }, status = -1;
	pid_t pid;

	if (output && pipe2(out, O_CLOEXEC)) {
		close_fd(&in);
		return -1;
	}
	pid = fork();
	if (pid == 0)
		run_child(argv, in, out[1], errors);
	close_fd(&in);
	close_fd(&out[1]);
	if (output) {
		struct pollfd p = { .fd = out[0], .events = POLLIN };
		int n;

		while ((n = poll(&p, 1, limit_ms)) < 0 && errno == EINTR)
			;
		*output = n == 0 ? NULL : read_all(out[0]);
		close_fd(&out[0]);
		if (n == 0)
			return RUN_LATE;
	}
	if (pid < 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void stand_alone(const char *output)
{
	int null = open("/dev/null", O_RDWR);
	int out = output ? open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600) : null;
	sigset_t none;

	/* setsid() comes first: once signals end us, a ^C at the terminal must not reach us. */
	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
}

void go_first(void)
{
	int fd;

	setsid();
	fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;	/* no autogroups: sessions have no shares */
	/* This fails without CAP_SYS_NICE. Then the work takes longer. */
	(void)!write(fd, "-20", 3);
	close(fd);
}

int run(const char *const argv[], const char *text, char **output)
{
	return run_with(argv, text, output, true, -1);
}

int run_within(int limit_ms, const char *const argv[], char **output)
{
	return run_with(argv, NULL, output, true, limit_ms);
}

int run_or_fault(const char *const argv[], const char *format, ...)
{
	char what[REASON_MAX], *said = NULL;
	int ret = run(argv, NULL, &said);
	va_list ap;

	va_start(ap, format);
	vsnprintf(what, sizeof(what), format, ap);
	va_end(ap);
	if (ret)
		ret = fault("%s: %s", what, text_why(said));
	free(said);
	return ret;
}

void reap_children(int timeout_ms)
{
	int64_t end = now_ns() + timeout_ms * INT64_C(1000000);
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 || errno == EINTR) {
		if (now_ns() > end)
			return;
		if (pid == 0)
			poll(NULL, 0, 10);
	}
}

/* stderr is left out, because warnings are no JSON. */
json_t *run_json(const char *const argv[])
{
	char *text = NULL;
	json_t *json = run_with(argv, NULL, &text, false, -1) == 0 && text ? json_loads(text, 0, NULL) : NULL;

	free(text);
	return json;
}

sigset_t block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return set;
}
