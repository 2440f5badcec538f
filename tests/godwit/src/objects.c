// SPDX-License-Identifier: MIT
/*
 * objects [--address ADDRESS] [--unmapped] [--unmapped-late] [--protected] [--stray-events] [--stray-ring]
 *         [--mad FILE] [--daemon] [--rings-only] [--no-ah] [--passed] PROGRESS
 *
 * Makes objects of every kind, with holes in their handles, and an address handle on a second device if there is one. Prints for
 * each object a word and what verbs gave it. Then it says "ready", sends numbered messages from one QP to another, checks each,
 * and writes their number into the file PROGRESS, until SIGTERM. Then it destroys everything and says "done".
 *
 *   --address ADDRESS  its IPv4 address (any, if not given)
 *   --unmapped      the memory of a region is unmapped
 *   --unmapped-late the memory is unmapped when a move has made its folder for images; this is said with the host's name.
 *                   The region is deregistered when the folder is gone
 *   --protected     the memory of a region can't be written any more
 *   --stray-events  an event file is open whose context is closed
 *   --stray-ring    a ring is mapped of a context that is closed
 *   --mad FILE      FILE is opened, too
 *   --daemon        a process that is no child any more holds all that this process holds
 *   --rings-only    with --daemon: that process has closed all files, and still has the rings mapped
 *   --passed        a context was sent through a socket, and is closed; nobody has received it
 *   --no-ah         it has no address handles any more
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define MUST(cond) ((cond) ? (void)0 : DIE("line %d: not so: %s: %m", __LINE__, #cond))

enum { PDS = 4, MRS = 3, MWS = 4, AHS = 3, QPS = 8, SIZE = 16384 };
static struct ibv_context *ctx, *ctx2;
static struct ibv_comp_channel *channel;
static struct ibv_pd *pd[PDS], *pd2;
static struct ibv_mr *mr[MRS];
static struct ibv_mw *mw[MWS];
static struct ibv_cq *cq[2];
static struct ibv_srq *srq;
static struct ibv_ah *ah[AHS], *ah2;
static struct ibv_qp *qp[QPS];
static union ibv_gid gid, gid2, group = { .raw = { 0xff, 0x0e, [15] = 9 } };
static int gid_index;
static char *memory;
static volatile sig_atomic_t stop;

static bool late;

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

/* NULL: there is none of this name. */
static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *opened = NULL;

	MUST(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			MUST((opened = ibv_open_device(list[i])));
	ibv_free_device_list(list);
	return opened;
}

static void find_gid(struct ibv_context *c, const char *address)
{
	union ibv_gid wanted = { .raw = { [10] = 0xff, [11] = 0xff } };
	struct ibv_gid_entry entry;

	MUST(!address || inet_pton(AF_INET, address, wanted.raw + 12) == 1);

	for (gid_index = 0; !ibv_query_gid_ex(c, 1, gid_index, &entry, 0); gid_index++) {
		gid = entry.gid;
		if (!memcmp(gid.raw, wanted.raw, address ? 16 : 12))
			return;
	}
	DIE("no such IPv4 GID");
}

/* -------------------------------------------------------------- objects -- */

static struct ibv_ah_attr path(void)
{
	return (struct ibv_ah_attr){ .is_global = 1, .port_num = 1,
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } };
}

static void lead(struct ibv_qp *q, uint32_t peer, enum ibv_qp_state last)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .qkey = 7, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .min_rnr_timer = 12,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .ah_attr = path(),
	};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	init |= q->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (q->qp_type != IBV_QPT_UD)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (q->qp_type == IBV_QPT_RC) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	for (a.qp_state = IBV_QPS_INIT; a.qp_state <= last && a.qp_state <= IBV_QPS_RTS; a.qp_state++)
		MUST(!ibv_modify_qp(q, &a, a.qp_state == IBV_QPS_INIT ? init :
				    a.qp_state == IBV_QPS_RTR ? rtr : rts));
	a.qp_state = last;
	if (last > IBV_QPS_RTS)
		MUST(!ibv_modify_qp(q, &a, IBV_QP_STATE));
}

/* 0 and 1 talk to each other; the others: a UD, a UC, and RC in states other than RTS */
static void make_qps(void)
{
	static const enum ibv_qp_state states[QPS] = {
		IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPS_RTS,
		IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_ERR,
	};
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.send_cq = cq[0], .recv_cq = cq[0], .sq_sig_all = 1,
	};

	for (int i = 0; i < QPS; i++) {
		init.qp_type = i == 2 ? IBV_QPT_UD : i == 3 ? IBV_QPT_UC : IBV_QPT_RC;
		init.srq = i == 3 ? srq : NULL;
		qp[i] = ibv_create_qp(pd[1], &init);
		MUST(qp[i]);
		init.send_cq = init.recv_cq = cq[1];
	}
	for (int i = 0; i < QPS; i++)
		if (states[i] > IBV_QPS_RESET)
			lead(qp[i], qp[i ? i < 2 ? 0 : i : 1]->qp_num, states[i]);
	MUST(!ibv_attach_mcast(qp[2], &group, 0));
}

static void make(const char *address)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_ah_attr to;
	int i;

	ctx2 = open_device("rxe1");
	if (ctx2) {
		find_gid(ctx2, NULL);
		gid2 = gid;
		gid2.raw[15] = 99;	/* a neighbour */
		to = path();
		to.grh.dgid = gid2;
		MUST((pd2 = ibv_alloc_pd(ctx2)) && (ah2 = ibv_create_ah(pd2, &to)));
	}
	ctx = open_device("rxe0");
	MUST(ctx);
	find_gid(ctx, address);
	memory = mmap(NULL, MRS * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED);
	channel = ibv_create_comp_channel(ctx);
	MUST(channel);
	for (i = 0; i < PDS; i++)
		MUST((pd[i] = ibv_alloc_pd(ctx)));
	MUST((cq[0] = ibv_create_cq(ctx, 20, NULL, channel, 0)));
	MUST((cq[1] = ibv_create_cq(ctx, 20, NULL, NULL, 0)));
	MUST((srq = ibv_create_srq(pd[1], &srq_init)));
	for (i = 0; i < MRS; i++)
		MUST((mr[i] = ibv_reg_mr(pd[1], memory + i * SIZE, SIZE, IBV_ACCESS_LOCAL_WRITE |
					 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND)));
	for (i = 0; i < MWS; i++)
		MUST((mw[i] = ibv_alloc_mw(pd[1], i % 2 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1)));
	to = path();
	for (i = 0; i < AHS; i++)
		MUST((ah[i] = ibv_create_ah(pd[1], &to)));
	make_qps();
	/* holes */
	MUST(!ibv_dealloc_pd(pd[2]) && !ibv_dealloc_mw(mw[0]) && !ibv_destroy_ah(ah[1]));
	pd[2] = NULL;
	mw[0] = NULL;
	ah[1] = NULL;
}

static void tell(void)
{
	static const char *const types[] = { [IBV_QPT_RC] = "RC", [IBV_QPT_UC] = "UC", [IBV_QPT_UD] = "UD" };
	static const char *const states[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
	char text[INET6_ADDRSTRLEN];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int i;

	printf("context %d:%d\n", getpid(), ctx->cmd_fd);
	printf("async_file %d:%d\n", getpid(), ctx->async_fd);
	printf("comp_channel %d:%d\n", getpid(), channel->fd);
	for (i = 0; i < PDS; i++)
		if (pd[i])
			printf("pd %u\n", pd[i]->handle);
	for (i = 0; i < MRS; i++)
		printf("mr %u pd %u key 0x%x start 0x%lx length %zu\n", mr[i]->handle, mr[i]->pd->handle, mr[i]->lkey,
		       (unsigned long)mr[i]->addr, mr[i]->length);
	for (i = 0; i < MWS; i++)
		if (mw[i])
			printf("mw %u pd %u key 0x%x mw_type %d\n", mw[i]->handle, mw[i]->pd->handle, mw[i]->rkey,
			       mw[i]->type);
	for (i = 0; i < 2; i++)
		printf("cq %u cqe %d channel %s\n", cq[i]->handle, cq[i]->cqe, cq[i]->channel ? "1" : "none");
	printf("srq %u pd %u\n", srq->handle, srq->pd->handle);
	for (i = 0; i < AHS; i++)
		if (ah[i])
			printf("ah %u pd %u dgid %s\n", ah[i]->handle, ah[i]->pd->handle,
			       inet_ntop(AF_INET6, gid.raw, text, sizeof(text)));
	for (i = 0; i < QPS; i++) {
		MUST(!ibv_query_qp(qp[i], &attr, IBV_QP_STATE, &init));
		printf("qp %u lqpn %u type %s state %s pd %u cqs %u %u\n", qp[i]->handle, qp[i]->qp_num,
		       types[qp[i]->qp_type], states[attr.qp_state], qp[i]->pd->handle, qp[i]->send_cq->handle,
		       qp[i]->recv_cq->handle);
	}
	printf("mcast qp %u mgid %s\n", qp[2]->handle, inet_ntop(AF_INET6, group.raw, text, sizeof(text)));
	if (!ctx2)
		return;
	printf("context %d:%d\n", getpid(), ctx2->cmd_fd);
	printf("async_file %d:%d\n", getpid(), ctx2->async_fd);
	printf("pd %u\nah %u pd %u dgid %s\n", pd2->handle, ah2->handle, pd2->handle,
	       inet_ntop(AF_INET6, gid2.raw, text, sizeof(text)));
}

static void destroy_ahs(void)
{
	for (int i = 0; i < AHS; i++) {
		MUST(!ah[i] || !ibv_destroy_ah(ah[i]));
		ah[i] = NULL;
	}
}

static void destroy(void)
{
	int i;

	MUST(!ibv_detach_mcast(qp[2], &group, 0));
	for (i = 0; i < QPS; i++)
		MUST(!ibv_destroy_qp(qp[i]));
	destroy_ahs();
	for (i = 0; i < MWS; i++)
		MUST(!mw[i] || !ibv_dealloc_mw(mw[i]));
	for (i = 0; i < MRS; i++)
		MUST(!mr[i] || !ibv_dereg_mr(mr[i]));
	MUST(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq[0]) && !ibv_destroy_cq(cq[1]));
	MUST(!ibv_destroy_comp_channel(channel));
	for (i = 0; i < PDS; i++)
		MUST(!pd[i] || !ibv_dealloc_pd(pd[i]));
	MUST(!ibv_close_device(ctx));
	if (ctx2)
		MUST(!ibv_destroy_ah(ah2) && !ibv_dealloc_pd(pd2) && !ibv_close_device(ctx2));
}

/* ---------------------------------------------------- what cannot be moved -- */

static void leave_events(void)
{
	struct ibv_context *other = open_device("rxe0");
	struct ibv_comp_channel *c = ibv_create_comp_channel(other);

	MUST(c && dup(c->fd) >= 0);
	MUST(!ibv_destroy_comp_channel(c) && !ibv_close_device(other));
}

static void leave_ring(void)
{
	struct ibv_context *other = open_device("rxe0");

	MUST(ibv_create_cq(other, 10, NULL, NULL, 0));
	MUST(!close(other->cmd_fd) && !close(other->async_fd));
}

static void leave_passed(void)
{
	struct ibv_context *other = open_device("rxe0");
	union {
		struct cmsghdr hdr;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .hdr = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov = { "", 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control),
	};
	int socks[2];

	MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	memcpy(CMSG_DATA(&control.hdr), &other->cmd_fd, sizeof(int));
	MUST(sendmsg(socks[0], &msg, 0) == 1);
	MUST(!close(other->cmd_fd) && !close(other->async_fd));
}

/* Its parent ends at once, so it is no descendant of this process. */
static void leave_daemon(bool rings_only)
{
	pid_t child = fork();
	int status;

	MUST(child >= 0);
	if (child) {
		MUST(waitpid(child, &status, 0) == child && !status);
		return;
	}
	child = fork();
	MUST(child >= 0);
	if (child) {
		printf("daemon %d\n", child);
		fflush(stdout);
		_exit(0);
	}
	signal(SIGTERM, SIG_DFL);
	setsid();
	if (rings_only)
		for (int fd = 0; fd < 256; fd++)
			close(fd);
	for (;;)
		pause();
}

/* -------------------------------------------------------------- traffic -- */

static void await(struct ibv_cq *q, uint64_t n)
{
	struct ibv_wc wc;
	int got;

	while (!(got = ibv_poll_cq(q, 1, &wc)))
		sched_yield();
	if (got != 1 || wc.status != IBV_WC_SUCCESS || wc.wr_id != n)
		DIE("message %llu: %d completions, status %s", (unsigned long long)n, got,
		    ibv_wc_status_str(wc.status));
}

static void send_one(uint64_t n)
{
	struct ibv_sge from = { (uintptr_t)memory, 5000, mr[0]->lkey };
	struct ibv_sge to = { (uintptr_t)memory + SIZE, 5000, mr[1]->lkey };
	struct ibv_recv_wr recv = { .wr_id = n, .sg_list = &to, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = n, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	int i;

	for (i = 0; i < 5000; i++)
		memory[i] = n + i * 31;
	memset(memory + SIZE, 0, 5000);
	MUST(!ibv_post_recv(qp[1], &recv, &bad_recv));
	MUST(!ibv_post_send(qp[0], &send, &bad_send));
	await(cq[0], n);
	await(cq[1], n);
	for (i = 0; i < 5000; i++)
		if (memory[SIZE + i] != (char)(n + i * 31))
			DIE("message %llu: byte %d is wrong", (unsigned long long)n, i);
}

/* The folder does not exist before the first move. */
static bool has_images(void)
{
	struct dirent *de;
	bool has = false;
	DIR *dir;

	dir = opendir("/var/lib/godwit");
	while (dir && (de = readdir(dir)))
		has |= de->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return has;
}

static void unmap_late(void)
{
	static bool unmapped;
	char host[64];

	if (has_images() == unmapped)
		return;
	if (!unmapped) {
		MUST(!munmap(memory + 2 * SIZE, SIZE) && !gethostname(host, sizeof(host)));
		printf("unmapped at %s\n", host);
		fflush(stdout);
		unmapped = true;
		return;
	}
	MUST(!ibv_dereg_mr(mr[2]));
	mr[2] = NULL;
	late = false;
}

static void run(const char *progress)
{
	int fd = open(progress, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	char line[32];

	MUST(fd >= 0);
	for (uint64_t n = 0; !stop; n++) {
		if (late)
			unmap_late();
		send_one(n);
		snprintf(line, sizeof(line), "%llu\n", (unsigned long long)n);
		MUST(pwrite(fd, line, strlen(line), 0) > 0);
		usleep(2000);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "unmapped", no_argument, NULL, 'u' }, { "unmapped-late", no_argument, NULL, 'l' }, { "stray-events", no_argument, NULL, 'e' },
		{ "stray-ring", no_argument, NULL, 'r' }, { "mad", required_argument, NULL, 'm' },
		{ "daemon", no_argument, NULL, 'd' }, { "rings-only", no_argument, NULL, 'o' },
		{ "no-ah", no_argument, NULL, 'a' }, { "passed", no_argument, NULL, 'p' },
		{ "protected", no_argument, NULL, 'P' }, {},
	};
	struct sigaction term = { .sa_handler = on_term };
	const char *address = NULL;
	int opt;

	sigaction(SIGTERM, &term, NULL);
	if (argc > 2 && !strcmp(argv[1], "--address")) {
		address = argv[2];
		argc -= 2;
		argv += 2;
	}
	make(address);
	tell();
	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0)
		switch (opt) {
		case 'l': late = true; break;
		case 'u': MUST(!munmap(memory + 2 * SIZE, SIZE)); break;
		case 'P': MUST(!mprotect(memory + 2 * SIZE, SIZE, PROT_READ)); break;
		case 'e': leave_events(); break;
		case 'r': leave_ring(); break;
		case 'm': MUST(open(optarg, O_RDWR) >= 0); break;
		case 'd': leave_daemon(false); break;
		case 'o': leave_daemon(true); break;
		case 'a': destroy_ahs(); break;
		case 'p': leave_passed(); break;
		default: return 2;
		}
	MUST(optind == argc - 1);
	puts("ready");
	fflush(stdout);
	run(argv[optind]);
	destroy();
	puts("done");
	return 0;
}
