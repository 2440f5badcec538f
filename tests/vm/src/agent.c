// SPDX-License-Identifier: MIT
/*
 * Process 1 of a lab guest once it is set up: runs the commands that come over a virtio-serial port
 * and reaps whatever is left to it. agent PORT
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame.h"

#define CMDS_MAX 256

struct cmd {
	uint32_t id;
	pid_t pid;	/* 0: a free slot */
	int out[2];	/* our ends of its stdout and stderr; -1 once at the end */
};

static struct cmd cmds[CMDS_MAX];
static int port;

static void die(const char *what)
{
	perror(what);
	exit(1);	/* process 1: the kernel panics, the lab sees the guest end */
}

/*
 * With the first breakpoint that CRIU sets, the kernel patches its scheduler (the static key perf_sched_events), and again some
 * time after the last. An emulated CPU was seen to die of it: see ../lab. An event of ours, which counts nothing, keeps the key on.
 */
static void keep_patched(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_DUMMY };

	if (syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC) < 0)
		die("perf_event_open");
}

static void start_cpus(void)
{
	glob_t cpus;

	if (glob("/sys/devices/system/cpu/cpu*/online", 0, NULL, &cpus))
		return;
	for (size_t i = 0; i < cpus.gl_pathc; i++) {
		int fd = open(cpus.gl_pathv[i], O_WRONLY | O_CLOEXEC);

		if (fd < 0 || write(fd, "1", 1) != 1)
			die(cpus.gl_pathv[i]);
		close(fd);
	}
	globfree(&cpus);
}

static void put(const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(port, p, len);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd w = { .fd = port, .events = POLLOUT };

			poll(&w, 1, -1);
		} else if (n < 0 && errno != EINTR) {
			die("agent: write");
		} else if (n > 0) {
			p += n;
			len -= n;
		}
	}
}

static void send_frame(uint32_t id, uint32_t type, const void *buf, uint32_t len)
{
	struct frame f = { .id = id, .type = type, .len = len };

	put(&f, sizeof(f));
	put(buf, len);
}

static void run_child(char *args, size_t len)
{
	char *argv[4096];
	size_t n = 0;
	sigset_t none;

	for (char *p = args; p < args + len && n < 4095; p += strlen(p) + 1)
		argv[n++] = p;
	argv[n] = NULL;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(argv[0], argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static void start(uint32_t id, char *args, size_t len)
{
	struct cmd *c = cmds;
	int out[2], err[2], null;

	while (c < cmds + CMDS_MAX && c->pid)
		c++;
	if (c == cmds + CMDS_MAX || !len || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
		static const char msg[] = "agent: no room for one more command\n";
		int32_t status = 125;

		send_frame(id, F_ERR, msg, sizeof(msg) - 1);
		send_frame(id, F_EXIT, &status, sizeof(status));
		return;
	}
	c->id = id;
	c->pid = fork();
	if (!c->pid) {
		setsid();
		null = open("/dev/null", O_RDWR);
		dup2(null, 0);
		dup2(out[1], 1);
		dup2(err[1], 2);
		close(null);
		run_child(args, len);
	}
	close(out[1]);
	close(err[1]);
	c->out[0] = out[0];
	c->out[1] = err[0];
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
}

/* Sends the available bytes on. Returns false when there are no more for now. */
static int forward(struct cmd *c, int which)
{
	static char buf[65536];
	ssize_t n = read(c->out[which], buf, sizeof(buf));

	if (n > 0) {
		send_frame(c->id, which ? F_ERR : F_OUT, buf, n);
		return 1;
	}
	if (n == 0) {
		close(c->out[which]);
		c->out[which] = -1;
	}
	return 0;
}

/* A command is over when its process has ended, though something that it left behind may hold its stdout. */
static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct cmd *c = cmds;
		int32_t code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

		while (c < cmds + CMDS_MAX && c->pid != pid)
			c++;
		if (c == cmds + CMDS_MAX)
			continue;
		for (int i = 0; i < 2; i++) {
			while (c->out[i] >= 0 && forward(c, i))
				;
			if (c->out[i] >= 0)
				close(c->out[i]);
		}
		send_frame(c->id, F_EXIT, &code, sizeof(code));
		c->pid = 0;
	}
}

static void handle(const struct frame *f, char *data)
{
	switch (f->type) {
	case F_EXEC:
		start(f->id, data, f->len);
		break;
	case F_HANGUP:
		for (struct cmd *c = cmds; c < cmds + CMDS_MAX; c++)
			if (c->pid && c->id == f->id)
				kill(-c->pid, SIGTERM);
		break;
	}
}

static void receive(void)
{
	static char buf[sizeof(struct frame) + FRAME_MAX + 1];
	static size_t have;
	struct frame f;
	ssize_t n = read(port, buf + have, sizeof(buf) - 1 - have);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		die("agent: read");
	have += n;
	while (have >= sizeof(f)) {
		memcpy(&f, buf, sizeof(f));
		if (f.len > FRAME_MAX)
			die("agent: frame too long");
		if (have < sizeof(f) + f.len)
			break;
		handle(&f, buf + sizeof(f));
		have -= sizeof(f) + f.len;
		memmove(buf, buf + sizeof(f) + f.len, have);
	}
}

/*
 * KASAN keeps freed memory until there is an allocation that may sleep. Where only packets come and go there is none, and in the
 * end all memory is freed memory that KASAN keeps. Opening a file makes such an allocation, and each of them gives back a
 * megabyte or more.
 */
static int idle_ms(void)
{
	return access("/sys/kernel/debug/kmemleak", F_OK) ? -1 : 10;
}

static void empty_quarantine(void)
{
	int fd = open("/proc/uptime", O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	int ready, idle = idle_ms(); /* a debug kernel has kmemleak, too */
	struct pollfd p[2 + 2 * CMDS_MAX];
	struct { struct cmd *c; int which; } who[2 * CMDS_MAX];
	char uptime[64] = "";
	sigset_t chld;
	FILE *f;

	if (argc != 2)
		die("agent");
	keep_patched();
	start_cpus();
	port = open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (port < 0)
		die(argv[1]);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	p[0] = (struct pollfd){ .fd = port, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = signalfd(-1, &chld, SFD_NONBLOCK | SFD_CLOEXEC), .events = POLLIN };

	f = fopen("/proc/uptime", "re");
	if (f && fscanf(f, "%63s", uptime) == 1)
		fclose(f);
	send_frame(0, F_HELLO, uptime, strlen(uptime));

	for (;;) {
		nfds_t n = 0;

		for (struct cmd *c = cmds; c < cmds + CMDS_MAX; c++)
			for (int i = 0; c->pid && i < 2; i++)
				if (c->out[i] >= 0) {
					who[n].c = c;
					who[n].which = i;
					p[2 + n++] = (struct pollfd){ .fd = c->out[i], .events = POLLIN };
				}
		ready = poll(p, 2 + n, idle);
		if (ready == 0)
			empty_quarantine();
		if (ready <= 0)
			continue;
		for (nfds_t i = 0; i < n; i++)
			if (p[2 + i].revents)
				forward(who[i].c, who[i].which);
		if (p[1].revents) {
			struct signalfd_siginfo si;

			while (read(p[1].fd, &si, sizeof(si)) > 0)
				;
			reap();
		}
		if (p[0].revents)
			receive();
	}
}
