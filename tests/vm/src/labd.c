// SPDX-License-Identifier: MIT
/*
 * One lab: starts its guests, is the wire between them, and passes commands to their agents.
 *
 *	labd N [OWNER]		in the lab's state folder
 *
 * Guest k is started by ./hk.sh, with the descriptors of its network card and its agent's port in
 * $NET and $PORT. Commands come in on ./hk.sock (see frame.h). Each event is a line on stdout:
 * "ready k SECONDS", "gone k". The lab ends when every guest is gone, on SIGTERM, or when process OWNER is gone. Before "ready"
 * was printed for all guests, it also ends when stdin ends. On SIGUSR1 it starts guests again that are gone. Guests die with
 * labd.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame.h"

#define GUESTS_MAX 16
#define CLIENTS_MAX 256
#define MACS_MAX 256
#define QUEUE_MAX 256	/* packets that wait for a slow guest, for some 30 ms; more are lost, as on a real switch */
#define BURST 64	/* packets taken from one guest before the others have their turn */

/* Bytes on their way to a descriptor that may be slow. */
struct outbuf {
	char *p;
	size_t start, end, size;
};

struct packet {
	struct packet *next;
	size_t len;
	char data[];
};

struct guest {
	pid_t pid;	/* 0: gone */
	bool ready;
	int net, port, listener;
	struct outbuf out;	/* to the agent */
	char *in;		/* from the agent */
	size_t in_len;
	struct packet *head, **tail;
	unsigned int queued;
};

struct client {
	int fd;		/* -1: a free slot */
	int guest;
	uint32_t id;	/* 0: no command yet */
	struct outbuf out;
	char *in;
	size_t in_len;
	bool done;	/* close once all is written */
};

static struct guest guests[GUESTS_MAX];
static struct client clients[CLIENTS_MAX];
static struct { unsigned char mac[6]; int guest; } macs[MACS_MAX];
static int nguests, nmacs;
static uint32_t next_id = 1;

#define IN_SIZE (sizeof(struct frame) + FRAME_MAX)

static void die(const char *what)
{
	fprintf(stderr, "labd: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int nice_of_guests;

/* ---- the wire ---- */

static int *find_mac(const char *mac)
{
	for (int i = 0; i < nmacs; i++)
		if (!memcmp(macs[i].mac, mac, 6))
			return &macs[i].guest;
	return NULL;
}

static void learn(const char *mac, int g)
{
	int *known = find_mac(mac);

	if (known) {
		*known = g;
	} else if (nmacs < MACS_MAX) {
		memcpy(macs[nmacs].mac, mac, 6);
		macs[nmacs++].guest = g;
	}
}

static void transmit(struct guest *g, const char *data, size_t len)
{
	struct packet *p;

	if (!g->pid)
		return;
	if (!g->head && send(g->net, data, len, 0) >= 0)
		return;
	if (g->queued == QUEUE_MAX)
		return;
	p = malloc(sizeof(*p) + len);
	if (!p)
		return;
	p->next = NULL;
	p->len = len;
	memcpy(p->data, data, len);
	*g->tail = p;
	g->tail = &p->next;
	g->queued++;
}

static void transmit_queued(struct guest *g)
{
	while (g->head) {
		struct packet *p = g->head;

		if (send(g->net, p->data, p->len, 0) < 0 && (errno == EAGAIN || errno == ENOBUFS))
			return;
		g->head = p->next;
		if (!g->head)
			g->tail = &g->head;
		g->queued--;
		free(p);
	}
}

static void switch_packets(int from)
{
	static char buf[1 << 17];

	for (int i = 0; i < BURST; i++) {
		ssize_t len = recv(guests[from].net, buf, sizeof(buf), 0);
		int *to;

		if (len < 12)
			return;
		learn(buf + 6, from);
		to = buf[0] & 1 ? NULL : find_mac(buf);
		for (int g = 0; g < nguests; g++)
			if (g != from && (!to || g == *to))
				transmit(&guests[g], buf, len);
	}
}

/* ---- commands ---- */

static void append(struct outbuf *o, const void *p, size_t len)
{
	size_t have = o->end - o->start;

	if (o->start > have) {
		memmove(o->p, o->p + o->start, have);
		o->start = 0;
		o->end = have;
	}
	if (o->end + len > o->size) {
		o->size = 2 * (o->end + len);
		o->p = realloc(o->p, o->size);
		if (!o->p)
			die("memory");
	}
	if (len)
		memcpy(o->p + o->end, p, len);
	o->end += len;
}

static bool pending(const struct outbuf *o)
{
	return o->end > o->start;
}

/* Returns false when the other side is gone. */
static bool flush(struct outbuf *o, int fd)
{
	while (pending(o)) {
		ssize_t n = send(fd, o->p + o->start, o->end - o->start, MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		o->start += n;
	}
	o->start = o->end = 0;
	return true;
}

static void send_frame(struct outbuf *o, uint32_t id, uint32_t type, const void *p, uint32_t len)
{
	struct frame f = { .id = id, .type = type, .len = len };

	append(o, &f, sizeof(f));
	append(o, p, len);
}

static void drop_client(struct client *c)
{
	if (c->id && !c->done && guests[c->guest].pid)
		send_frame(&guests[c->guest].out, c->id, F_HANGUP, NULL, 0);
	close(c->fd);
	free(c->in);
	free(c->out.p);
	*c = (struct client){ .fd = -1 };
}

static void accept_client(int g)
{
	int fd = accept4(guests[g].listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	for (struct client *c = clients; c < clients + CLIENTS_MAX; c++)
		if (c->fd < 0) {
			*c = (struct client){ .fd = fd, .guest = g, .in = malloc(IN_SIZE) };
			return;
		}
	close(fd);
}

/*
 * Reads available bytes and returns the next whole frame, or NULL. The caller takes the frame out of the buffer with take().
 * *gone tells the end of the stream.
 */
static struct frame *next_frame(int fd, char *in, size_t *have, bool *gone)
{
	struct frame *f = (struct frame *)in;

	for (;;) {
		ssize_t n;

		if (*have >= sizeof(*f) && f->len > FRAME_MAX) {
			*gone = true;
			return NULL;
		}
		if (*have >= sizeof(*f) && *have >= sizeof(*f) + f->len)
			return f;
		n = recv(fd, in + *have, IN_SIZE - *have, 0);
		if (n <= 0) {
			*gone = n == 0 || (errno != EAGAIN && errno != EINTR);
			return NULL;
		}
		*have += n;
	}
}

static void take(char *in, size_t *have)
{
	size_t len = sizeof(struct frame) + ((struct frame *)in)->len;

	*have -= len;
	memmove(in, in + len, *have);
}

static void read_client(struct client *c)
{
	struct frame *f;
	bool gone = false;

	f = next_frame(c->fd, c->in, &c->in_len, &gone);
	if (gone) {
		drop_client(c);
	} else if (f) {
		if (f->type == F_EXEC && !c->id) {
			c->id = next_id++;
			send_frame(&guests[c->guest].out, c->id, F_EXEC, f + 1, f->len);
		}
		take(c->in, &c->in_len);
	}
}

static void event(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	fflush(stdout);
}

static void read_agent(int k)
{
	struct guest *g = &guests[k];
	struct frame *f;
	bool gone = false;

	/* Only a few frames at a time: the wire must not wait for a command with much output. */
	for (int i = 0; i < 16; i++) {
		f = next_frame(g->port, g->in, &g->in_len, &gone);
		if (!f)
			break;
		if (f->type == F_HELLO) {
			g->ready = true;
			event("ready %d %.*s\n", k + 1, (int)f->len, (char *)(f + 1));
		}
		for (struct client *c = clients; c < clients + CLIENTS_MAX; c++)
			if (f->type != F_HELLO && c->fd >= 0 && c->id == f->id && c->guest == k) {
				append(&c->out, f, sizeof(*f) + f->len);
				c->done = f->type == F_EXIT;
			}
		take(g->in, &g->in_len);
	}
	if (gone) {
		close(g->port);
		g->port = -1;
	}
}

/* ---- life and death ---- */

static int listen_at(int k)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "h%d.sock", k + 1);
	unlink(addr.sun_path);
	if (s < 0 || bind(s, (struct sockaddr *)&addr, sizeof(addr)) || listen(s, 64))
		die(addr.sun_path);
	return s;
}

static int pair(int type, int *ours)
{
	int s[2], size = 1 << 22;

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, s))
		die("socketpair");
	for (int i = 0; i < 2; i++)	/* more than the system's limit takes root; less is slower */
		if (setsockopt(s[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
			setsockopt(s[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	fcntl(s[0], F_SETFL, O_NONBLOCK);
	*ours = s[0];
	return s[1];
}

static void start_guest(int k)
{
	struct guest *g = &guests[k];

	*g = (struct guest){ .tail = &g->head };
	int net = pair(SOCK_DGRAM, &g->net);
	int port = pair(SOCK_STREAM, &g->port);
	pid_t us = getpid();
	char s[16], script[32];
	sigset_t none;

	g->listener = listen_at(k);
	g->in = malloc(IN_SIZE);
	g->pid = fork();
	if (g->pid < 0 || !g->in)
		die("fork");
	if (!g->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != us)
			_exit(1);
		setpriority(PRIO_PROCESS, 0, nice_of_guests);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		signal(SIGPIPE, SIG_DFL);
		net = dup(net);		/* a copy without close-on-exec */
		port = dup(port);
		snprintf(s, sizeof(s), "%d", net);
		setenv("NET", s, 1);
		snprintf(s, sizeof(s), "%d", port);
		setenv("PORT", s, 1);
		snprintf(script, sizeof(script), "./h%d.sh", k + 1);
		execl("/bin/sh", "sh", script, NULL);
		_exit(127);
	}
	close(net);
	close(port);
}

static void guest_gone(int k)
{
	struct guest *g = &guests[k];
	char path[16];

	/* The agent's last output is still in the socket. */
	if (g->port >= 0)
		read_agent(k);
	g->pid = 0;
	snprintf(path, sizeof(path), "h%d.sock", k + 1);
	unlink(path);
	close(g->listener);	/* a client that waits to be let in is told, too */
	for (struct client *c = clients; c < clients + CLIENTS_MAX; c++)
		if (c->fd >= 0 && c->guest == k) {
			flush(&c->out, c->fd);
			drop_client(c);
		}
	event("gone %d\n", k + 1);
	close(g->net);
	if (g->port >= 0)
		close(g->port);
	g->net = g->port = -1;
	free(g->in);
	free(g->out.p);
	while (g->head) {
		struct packet *p = g->head;

		g->head = p->next;
		free(p);
	}
}

static void reap(void)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int k = 0; k < nguests; k++)
			if (guests[k].pid == pid) {
				if (WIFSIGNALED(status))
					fprintf(stderr, "labd: h%d: QEMU died of signal %d\n", k + 1, WTERMSIG(status));
				else
					fprintf(stderr, "labd: h%d: QEMU exited with %d\n", k + 1, WEXITSTATUS(status));
				guest_gone(k);
			}
}

static void end_lab(void)
{
	for (int k = 0; k < nguests; k++)
		if (guests[k].pid)
			kill(guests[k].pid, SIGKILL);
	while (wait(NULL) > 0)
		;
	exit(0);
}

/* ---- the loop ---- */

enum { P_SIGNAL, P_OWNER, P_STDIN, P_GUESTS };
enum { G_NET, G_PORT, G_LISTENER, G_NUM };

static bool were_all_ready(void)
{
	static bool were;
	bool ready = true;

	for (int k = 0; k < nguests; k++)
		ready &= guests[k].ready;
	were |= ready;
	return were;
}

static bool all_gone(void)
{
	for (int k = 0; k < nguests; k++)
		if (guests[k].pid)
			return false;
	return true;
}

static struct pollfd in_out(int fd, bool out)
{
	return (struct pollfd){ .fd = fd, .events = POLLIN | (out ? POLLOUT : 0) };
}

static void take_signals(int signals)
{
	struct signalfd_siginfo si;
	bool again = false;

	while (read(signals, &si, sizeof(si)) > 0)
		if (si.ssi_signo == SIGUSR1)
			again = true;
		else if (si.ssi_signo != SIGCHLD)
			end_lab();
	reap();
	for (int k = 0; again && k < nguests; k++)
		if (!guests[k].pid)
			start_guest(k);
}

static void step(int signals, int owner)
{
	static struct pollfd p[P_GUESTS + GUESTS_MAX * G_NUM + CLIENTS_MAX];
	struct pollfd *pc = p + P_GUESTS + nguests * G_NUM;

	p[P_SIGNAL] = in_out(signals, false);
	p[P_OWNER] = in_out(owner, false);
	p[P_STDIN] = in_out(were_all_ready() ? -1 : 0, false);
	for (int k = 0; k < nguests; k++) {
		struct guest *g = &guests[k];
		struct pollfd *pg = p + P_GUESTS + k * G_NUM;

		pg[G_NET] = in_out(g->pid ? g->net : -1, g->head);
		pg[G_PORT] = in_out(g->pid ? g->port : -1, pending(&g->out));
		pg[G_LISTENER] = in_out(g->pid && g->ready ? g->listener : -1, false);
	}
	for (int i = 0; i < CLIENTS_MAX; i++)
		pc[i] = in_out(clients[i].fd, pending(&clients[i].out));
	if (poll(p, pc + CLIENTS_MAX - p, -1) < 0)
		return;

	if (p[P_OWNER].revents || p[P_STDIN].revents)
		end_lab();
	for (int k = 0; k < nguests; k++) {
		struct guest *g = &guests[k];
		struct pollfd *pg = p + P_GUESTS + k * G_NUM;

		if (pg[G_NET].revents & POLLOUT)
			transmit_queued(g);
		if (pg[G_NET].revents & POLLIN)
			switch_packets(k);
		if (pg[G_PORT].revents & (POLLIN | POLLHUP))
			read_agent(k);
		if (pg[G_LISTENER].revents)
			accept_client(k);
	}
	for (int i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &clients[i];

		if (c->fd >= 0 && c->fd == pc[i].fd && (pc[i].revents & (POLLIN | POLLHUP | POLLERR)))
			read_client(c);
		if (c->fd >= 0 && (!flush(&c->out, c->fd) || (c->done && !pending(&c->out))))
			drop_client(c);
	}
	for (int k = 0; k < nguests; k++)
		if (guests[k].port >= 0)
			flush(&guests[k].out, guests[k].port);
	if (p[P_SIGNAL].revents)
		take_signals(signals);
}

int main(int argc, char **argv)
{
	sigset_t set;
	int signals, owner = -1;

	/*
	 * A guest's packets wait in a socket that has room for ten (net.unix.max_dgram_qlen), and are lost when it is full. On a
	 * machine that is busy with guests this process should run first, if it may, since UC does not send lost packets again.
	 */
	nice_of_guests = getpriority(PRIO_PROCESS, 0);
	setpriority(PRIO_PROCESS, 0, nice_of_guests - 10);
	nguests = argc > 1 ? atoi(argv[1]) : 0;
	if (nguests < 1 || nguests > GUESTS_MAX) {
		fprintf(stderr, "usage: labd N [OWNER], N at most %d\n", GUESTS_MAX);
		return 2;
	}
	if (argc > 2) {
		owner = syscall(SYS_pidfd_open, atoi(argv[2]), 0);
		if (owner < 0)
			die("owner");
		fcntl(owner, F_SETFD, FD_CLOEXEC);
	}
	for (int i = 0; i < CLIENTS_MAX; i++)
		clients[i].fd = -1;
	signal(SIGPIPE, SIG_IGN);	/* nobody need listen to our events for ever */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	for (int k = 0; k < nguests; k++)
		start_guest(k);
	while (!all_gone())
		step(signals, owner);
	return 0;
}
