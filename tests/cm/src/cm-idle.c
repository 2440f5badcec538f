// SPDX-License-Identifier: MIT
/*
 * cm-idle [--thread] [--fork] [--dup] ADDRESS PROGRESS GO
 *
 * Opens two files of librdmacm: one that does not block, in an epoll set, and one that blocks. Says "ready" in the file PROGRESS,
 * and waits until there is a file GO. Then one of them listens at ADDRESS, and the other connects to it and disconnects. Each
 * step must be reported by its event. Says "done" if all were.
 *
 *   --thread  a second thread is there before, and listens
 *   --fork    a child has inherited the file: it sees the first event, too
 *   --dup     the file is in the epoll set by a second number
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define MUST(cond) ((cond) ? (void)0 : DIE("line %d: not so: %s: %m", __LINE__, #cond))

enum { PORT = 7471, TIMEOUT = 60000 };

static struct rdma_event_channel *sleeps, *polls;
static int epoll, number;	/* number: the descriptor by which polls is in the epoll set */
static pid_t child;
static const char *go;
static struct sockaddr_in address = { .sin_family = AF_INET };
static pthread_barrier_t listens;

static void wait_until_moved(void)
{
	while (access(go, F_OK))
		usleep(10000);
}

/* Takes the next event of a channel, which must be of this type; returns its id. */
static struct rdma_cm_id *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct epoll_event ready;
	struct rdma_cm_id *id;

	if (channel == polls) {
		MUST(epoll_wait(epoll, &ready, 1, TIMEOUT) == 1);
		MUST(ready.data.fd == number);
	}
	MUST(!rdma_get_cm_event(channel, &event));
	if (event->event != type)
		DIE("%s in place of %s", rdma_event_str(event->event), rdma_event_str(type));
	id = event->id;
	MUST(!rdma_ack_cm_event(event));
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	MUST(!rdma_create_qp(id, NULL, &attr));
}

static void end(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(id));
}

static void *serve(void *arg)
{
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *listener, *id;
	struct rdma_cm_event *event;
	struct epoll_event ready;
	int status;

	wait_until_moved();
	MUST(!epoll_wait(epoll, &ready, 1, 0));
	MUST(rdma_get_cm_event(polls, &event));	/* it does not block */
	MUST(!rdma_create_id(polls, &listener, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(listener, (struct sockaddr *)&address));
	MUST(!rdma_listen(listener, 1));
	pthread_barrier_wait(&listens);
	if (child)
		MUST(waitpid(child, &status, 0) == child && !status);
	id = next(polls, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(id);
	MUST(!rdma_accept(id, &param));
	MUST(next(polls, RDMA_CM_EVENT_ESTABLISHED) == id);
	MUST(next(polls, RDMA_CM_EVENT_DISCONNECTED) == id);
	rdma_disconnect(id);
	end(id);
	MUST(!rdma_destroy_id(listener));
	return arg;
}

static void use(void)
{
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(sleeps, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, TIMEOUT));
	MUST(next(sleeps, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	MUST(!rdma_resolve_route(id, TIMEOUT));
	MUST(next(sleeps, RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
	make_qp(id);
	MUST(!rdma_connect(id, &param));
	MUST(next(sleeps, RDMA_CM_EVENT_ESTABLISHED) == id);
	MUST(!rdma_disconnect(id));
	MUST(next(sleeps, RDMA_CM_EVENT_DISCONNECTED) == id);
	end(id);
}

static void open_files(bool twice)
{
	struct epoll_event in = { .events = EPOLLIN };

	sleeps = rdma_create_event_channel();
	polls = rdma_create_event_channel();
	MUST(sleeps && polls);
	MUST(!fcntl(polls->fd, F_SETFL, fcntl(polls->fd, F_GETFL) | O_NONBLOCK));
	number = twice ? dup(polls->fd) : polls->fd;
	epoll = epoll_create1(0);
	MUST(number >= 0 && epoll >= 0);
	in.data.fd = number;
	MUST(!epoll_ctl(epoll, EPOLL_CTL_ADD, number, &in));
}

/* A restore interrupts a sleep. */
static void see_event(void)
{
	struct pollfd pfd = { .fd = polls->fd, .events = POLLIN };
	int ret;

	while ((ret = poll(&pfd, 1, -1)) < 0 && errno == EINTR)
		;
	_exit(ret == 1 ? 0 : 1);
}

static void say(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	MUST(file && fputs(text, file) >= 0 && !fclose(file));
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "thread", no_argument, NULL, 't' }, { "fork", no_argument, NULL, 'f' },
		{ "dup", no_argument, NULL, 'd' }, { 0 },
	};
	bool thread = false, forks = false, twice = false;
	pthread_t server;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 't': thread = true; break;
		case 'f': forks = true; break;
		case 'd': twice = true; break;
		default: return 2;
		}
	if (argc - optind != 3 || inet_pton(AF_INET, argv[optind], &address.sin_addr) != 1)
		DIE("usage: idle [--thread] [--fork] [--dup] ADDRESS PROGRESS GO");
	address.sin_port = htons(PORT);
	go = argv[optind + 2];
	pthread_barrier_init(&listens, NULL, 2);

	open_files(twice);
	child = forks ? fork() : 0;
	MUST(child >= 0);
	if (forks && !child)
		see_event();
	if (thread)
		MUST(!pthread_create(&server, NULL, serve, NULL));
	say(argv[optind + 1], "ready\n");
	wait_until_moved();
	if (!thread)
		MUST(!pthread_create(&server, NULL, serve, NULL));
	pthread_barrier_wait(&listens);
	use();
	MUST(!pthread_join(server, NULL));
	rdma_destroy_event_channel(polls);
	rdma_destroy_event_channel(sleeps);
	say(argv[optind + 1], "done\n");
	return 0;
}
