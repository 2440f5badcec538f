// SPDX-License-Identifier: MIT
/*
 * cm-hold udp|mcast|stray|failed|busy|bound|ib|lent|apart|shared ADDRESS GO
 *
 * Makes ids of librdmacm at this address, of which godwit must say something, and says "ready". When there is a file GO, it
 * destroys them and says "done".
 *
 *   udp    two that are connected over UD
 *   mcast  one that has joined a multicast group
 *   stray  two that are connected, and the queue pair of one is destroyed
 *   failed two that are connected, and the queue pair of one has failed
 *   busy   one that asks for a connection, and one that has read of it and not answered
 *   bound  one that is bound; says "removed" when its device is
 *   ib     one that is bound to any address of InfiniBand, not to ADDRESS
 *   lent   two that are connected. The queue pair of one belongs to an outsider, a process that is no child of any process here.
 *          That queue pair is connected to itself
 *   apart  two that are connected, one of them with a queue pair that has no peer
 *   shared one that is bound. An outsider has its file open, too; says "outsider PID" before
 */
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define MUST(cond) ((cond) ? (void)0 : DIE("line %d: not so: %s: %m", __LINE__, #cond))

enum { TIMEOUT = 60000 };

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener, *client, *server, *spare;
static struct sockaddr_in address = { .sin_family = AF_INET };
static uint32_t lent;	/* number of a queue pair, or 0 */

/* Takes the next event, which must be of this type; returns its id. */
static struct rdma_cm_id *next(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	MUST(!rdma_get_cm_event(channel, &event));
	if (event->event != type)
		DIE("%s, status %d, in place of %s", rdma_event_str(event->event), event->status, rdma_event_str(type));
	id = event->id;
	MUST(!rdma_ack_cm_event(event));
	return id;
}

static void make_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = type,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	MUST(!rdma_create_qp(id, NULL, &attr));
}

static void bind_one(struct rdma_cm_id **id, enum rdma_port_space ps)
{
	MUST(!rdma_create_id(channel, id, NULL, ps));
	MUST(!rdma_bind_addr(*id, (struct sockaddr *)&address));
}

static void bind_ib(void)
{
	struct sockaddr_ib any = {
		.sib_family = AF_IB, .sib_sid = htobe64(RDMA_IB_IP_PS_TCP), .sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK),
	};

	MUST(!rdma_create_id(channel, &client, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(client, (struct sockaddr *)&any));
}

static void ask(enum rdma_port_space ps)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	enum ibv_qp_type type = ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;

	bind_one(&listener, ps);
	MUST(!rdma_listen(listener, 1));
	address.sin_port = rdma_get_src_port(listener);
	MUST(!rdma_create_id(channel, &client, NULL, ps));
	MUST(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&address, TIMEOUT));
	next(RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(client, TIMEOUT));
	next(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(client, type);
	MUST(!rdma_connect(client, &param));
	server = next(RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!lent)
		make_qp(server, type);
}

static void connect_both(enum rdma_port_space ps)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };

	ask(ps);
	param.qp_num = lent ? lent : server->qp->qp_num;
	MUST(!rdma_accept(server, &param));
	next(RDMA_CM_EVENT_ESTABLISHED);
	if (ps == RDMA_PS_TCP)	/* each end is told that it is established */
		next(RDMA_CM_EVENT_ESTABLISHED);
}

static void join_group(void)
{
	struct sockaddr_in group = { .sin_family = AF_INET };

	MUST(inet_pton(AF_INET, "239.1.2.3", &group.sin_addr) == 1);
	bind_one(&client, RDMA_PS_UDP);
	make_qp(client, IBV_QPT_UD);
	MUST(!rdma_join_multicast(client, (struct sockaddr *)&group, NULL));
	next(RDMA_CM_EVENT_MULTICAST_JOIN);
}

static void make(const char *kind)
{
	if (!strcmp(kind, "bound") || !strcmp(kind, "shared"))
		bind_one(&client, RDMA_PS_TCP);
	else if (!strcmp(kind, "ib"))
		bind_ib();
	else if (!strcmp(kind, "mcast"))
		join_group();
	else if (!strcmp(kind, "busy"))
		ask(RDMA_PS_TCP);
	else
		connect_both(strcmp(kind, "udp") ? RDMA_PS_TCP : RDMA_PS_UDP);
	if (!strcmp(kind, "stray"))
		rdma_destroy_qp(server);
	if (!strcmp(kind, "failed"))
		MUST(!ibv_modify_qp(server->qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
}

static void destroy(struct rdma_cm_id *id)
{
	if (id && id->qp)
		rdma_destroy_qp(id);
	MUST(!id || !rdma_destroy_id(id));
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

/* The index of the RoCE v2 GID of the address */
static int gid_index(struct ibv_context *ctx)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; !ibv_query_gid_ex(ctx, 1, i, &entry, 0); i++)
		if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(entry.gid.raw + 12, &address.sin_addr, 4))
			return i;
	DIE("the address has no GID");
}

static void connect_to_itself(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 1 },
	};

	attr.ah_attr.grh.sgid_index = gid_index(qp->context);
	MUST(!ibv_query_gid(qp->context, 1, attr.ah_attr.grh.sgid_index, &attr.ah_attr.grh.dgid));
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}

static uint32_t lend(void)
{
	channel = rdma_create_event_channel();
	MUST(channel);
	bind_one(&client, RDMA_PS_TCP);
	make_qp(client, IBV_QPT_RC);
	connect_to_itself(client->qp);
	return client->qp->qp_num;
}

static uint32_t share(void)
{
	return getpid();
}

/* Runs tell() in a process that is no child of any process here and ends when there is a file GO. Returns what tell() returns. */
static uint32_t outside(uint32_t (*tell)(void), const char *go)
{
	uint32_t told;
	int ends[2];
	pid_t child;

	MUST(!pipe(ends));
	child = fork();
	MUST(child >= 0);
	if (!child) {
		child = fork();
		MUST(child >= 0);
		if (child)
			_exit(0);
		told = tell();
		MUST(write(ends[1], &told, sizeof(told)) == sizeof(told));
		close(ends[0]);
		close(ends[1]);
		while (access(go, F_OK))
			usleep(10000);
		destroy(client);
		_exit(0);
	}
	close(ends[1]);
	MUST(waitpid(child, NULL, 0) == child);
	MUST(read(ends[0], &told, sizeof(told)) == sizeof(told));
	close(ends[0]);
	return told;
}

int main(int argc, char **argv)
{
	struct pollfd pfd = { .events = POLLIN };

	if (argc != 4 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1)
		DIE("usage: hold udp|mcast|stray|failed|busy|bound|ib|lent|apart|shared ADDRESS GO");
	if (!strcmp(argv[1], "lent"))
		lent = outside(lend, argv[3]);
	channel = rdma_create_event_channel();
	MUST(channel);
	if (!strcmp(argv[1], "shared"))
		printf("outsider %u\n", outside(share, argv[3]));
	if (!strcmp(argv[1], "apart")) {
		bind_one(&spare, RDMA_PS_TCP);
		make_qp(spare, IBV_QPT_RC);
		lent = spare->qp->qp_num;
	}
	make(argv[1]);
	say("ready");
	pfd.fd = channel->fd;
	while (access(argv[3], F_OK))
		if (!strcmp(argv[1], "bound") && poll(&pfd, 1, 10) > 0) {
			next(RDMA_CM_EVENT_DEVICE_REMOVAL);
			say("removed");
		} else {
			usleep(10000);
		}
	destroy(server);
	destroy(client);
	destroy(listener);
	rdma_destroy_event_channel(channel);
	say("done");
	return 0;
}
