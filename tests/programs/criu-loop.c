// SPDX-License-Identifier: MIT
/*
 * criu-loop [--contexts N] [--devices] [--unused] [--later FILE] [--holes] [--fork] [--grandchild] [--pass] [--thread]
 *      [--events] [--gib] [--rest MS] [--read-only] [--protected] PROGRESS
 *
 * Sends numbered messages from one QP to another of the same context, checks each, and writes their number into the file
 * PROGRESS, until SIGTERM. Then it destroys every object and says "done: N". It ends with 1 as soon as anything is wrong.
 *
 *   --contexts N  in N contexts of one device, by turns
 *   --devices     ... of all devices, by turns
 *   --unused      opens each device once more and does nothing with it
 *   --later FILE  has its devices open and nothing else, and says 0, until there is this file
 *   --holes       creates ten of each kind and destroys every other before
 *   --fork        a child receives, through what its parent has opened before
 *   --grandchild  ... a child of its child does
 *   --pass        a child does it all, in memory that its parent has mapped, too, and passes its contexts
 *                 to the parent, which asks them for their objects now and then
 *   --thread      all is sent and received by a second thread
 *   --events      waits for completions in ibv_get_cq_event()
 *   --gib         the second QP's buffer is the end of a region of 1 GiB, each of whose pages has its number in it;
 *                 some are read by the first QP after each message, and more at the end
 *   --rest MS     sleeps for so long after each message
 *   --read-only   each context has one more region, of memory that can only be read
 *   --protected   ... of memory that could be written when it was registered for writes, and can only be read since
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define MUST(cond) ((cond) ? (void)0 : DIE("line %d: not so: %s: %m", __LINE__, #cond))

enum { SIZE = 65536, DEPTH = 4, KINDS = 10, GIB = 1 << 30, PAGE = 4096 };

struct side {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *region;
	size_t size;
	char *buf;	/* its last SIZE bytes */
};

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct side side[2];
};

static bool events, devices, gib, read_only, protects;
static int rest_ms;
static char *pool;	/* of --pass: memory for buffers, mapped before the fork */
static volatile sig_atomic_t stop;
static bool receives;	/* the child of --fork */
static union ibv_gid gid;
static int gid_index;

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

/* ------------------------------------------------------------------ objects -- */

static void find_gid(struct ibv_context *ctx)
{
	struct ibv_gid_entry entry;

	for (gid_index = 0; !ibv_query_gid_ex(ctx, 1, gid_index, &entry, 0); gid_index++) {
		gid = entry.gid;
		if (entry.gid.raw[10] == 0xff && entry.gid.raw[11] == 0xff)
			return;
	}
	DIE("no IPv4 GID");
}

static struct ibv_context *open_device(int n)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *ctx;

	MUST(list && count > 0);
	ctx = ibv_open_device(list[devices ? n % count : 0]);
	MUST(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static uint64_t *tag(const struct side *s, size_t page)
{
	return (uint64_t *)(s->region + page * PAGE);
}

static size_t tagged(const struct side *s)
{
	return (s->size - SIZE) / PAGE;
}

/* A QP and the objects that it was created with, destroyed in reverse order. */
static void create(struct ibv_context *ctx, struct ibv_pd *pd, struct side *s, size_t size)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = gib ? IBV_ACCESS_REMOTE_READ : 0 };
	size_t page;

	s->size = size;
	if (pool) {
		s->region = pool;
		pool += SIZE;
	} else {
		s->region = mmap(NULL, size, PROT_READ | PROT_WRITE, (size == SIZE ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS,
				 -1, 0);
	}
	MUST(s->region != MAP_FAILED);
	s->buf = s->region + size - SIZE;
	for (page = 0; page < tagged(s); page++)
		*tag(s, page) = page;
	s->mr = ibv_reg_mr(pd, s->region, size, IBV_ACCESS_LOCAL_WRITE | (gib ? IBV_ACCESS_REMOTE_READ : 0));
	MUST(s->mr);
	if (events) {
		s->channel = ibv_create_comp_channel(ctx);
		MUST(s->channel);
	}
	s->cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, s->channel, 0);
	MUST(s->cq && (!events || !ibv_req_notify_cq(s->cq, 0)));
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(pd, &init);
	MUST(s->qp);
	MUST(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void destroy(struct side *s)
{
	MUST(!ibv_destroy_qp(s->qp));
	MUST(!ibv_destroy_cq(s->cq));
	MUST(!s->channel || !ibv_destroy_comp_channel(s->channel));
	MUST(!ibv_dereg_mr(s->mr));
	munmap(s->region, s->size);
}

static void join(struct side *s, const struct side *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
		.min_rnr_timer = 12, .timeout = 10, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = gib, .max_dest_rd_atomic = gib,
		.ah_attr = { .is_global = 1, .port_num = 1,
			.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } },
	};

	MUST(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* The region ends with its context. */
static void register_read_only(struct ibv_pd *pd)
{
	int access = protects ? IBV_ACCESS_LOCAL_WRITE : 0;
	void *memory = mmap(NULL, SIZE, PROT_READ | (protects ? PROT_WRITE : 0), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(memory != MAP_FAILED && ibv_reg_mr(pd, memory, SIZE, access));
	MUST(!mprotect(memory, SIZE, PROT_READ));
}

static void open_pair(struct pair *p, int n, bool holes)
{
	struct side spare[KINDS];
	struct ibv_pd *pds[KINDS];
	int i;

	if (!p->ctx)
		p->ctx = open_device(n);
	find_gid(p->ctx);
	for (i = 0; holes && i < KINDS; i++) {
		pds[i] = ibv_alloc_pd(p->ctx);
		MUST(pds[i]);
	}
	p->pd = ibv_alloc_pd(p->ctx);
	MUST(p->pd);
	for (i = 0; holes && i < KINDS; i++) {
		memset(&spare[i], 0, sizeof(spare[i]));
		create(p->ctx, p->pd, &spare[i], SIZE);
	}
	/* The second QP gets a lower handle than the objects that it uses. */
	create(p->ctx, p->pd, &p->side[0], SIZE);
	for (i = 0; holes && i < KINDS; i += 2) {
		destroy(&spare[i]);
		MUST(!ibv_dealloc_pd(pds[i]));
	}
	create(p->ctx, p->pd, &p->side[1], gib ? GIB : SIZE);
	join(&p->side[0], &p->side[1]);
	join(&p->side[1], &p->side[0]);
	if (read_only || protects)
		register_read_only(p->pd);
}

static void close_pair(struct pair *p)
{
	destroy(&p->side[0]);
	destroy(&p->side[1]);
	/* With --holes and --read-only the other objects still hold it. */
	if (ibv_dealloc_pd(p->pd))
		MUST(errno == EBUSY);
	MUST(!ibv_close_device(p->ctx));
}

/* ------------------------------------------------------------------ traffic -- */

static void wait_for(struct side *s, enum ibv_wc_opcode opcode, uint64_t wr_id)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int n;

	while (!(n = ibv_poll_cq(s->cq, 1, &wc))) {
		if (stop && receives)
			exit(0);	/* nobody sends any more */
		if (!events)
			continue;
		while (ibv_get_cq_event(s->channel, &cq, &context))
			MUST(errno == EINTR);
		MUST(cq == s->cq);
		ibv_ack_cq_events(cq, 1);
		MUST(!ibv_req_notify_cq(cq, 0));
	}
	MUST(n == 1);
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode || wc.wr_id != wr_id)
		DIE("completion %llu: status %s, opcode %d; %llu is due", (unsigned long long)wc.wr_id,
		    ibv_wc_status_str(wc.status), wc.opcode, (unsigned long long)wr_id);
}

static uint32_t length_of(uint64_t n)
{
	return 1 + n * 7919 % (SIZE - 1);	/* several packets, mostly */
}

static void post_recv(struct side *to, uint64_t n)
{
	struct ibv_sge sge = { (uintptr_t)to->buf, SIZE, to->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = n, .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(to->buf, 0, SIZE);
	MUST(!ibv_post_recv(to->qp, &wr, &bad));
}

static void send_message(struct side *from, uint64_t n)
{
	struct ibv_sge sge = { (uintptr_t)from->buf, length_of(n), from->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = n, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	uint32_t i;

	for (i = 0; i < length_of(n); i++)
		from->buf[i] = n + i * 31;
	MUST(!ibv_post_send(from->qp, &wr, &bad));
	wait_for(from, IBV_WC_SEND, n);
}

static void check(struct side *to, uint64_t n)
{
	uint32_t i;

	wait_for(to, IBV_WC_RECV, n);
	for (i = 0; i < length_of(n); i++)
		if (to->buf[i] != (char)(n + i * 31))
			DIE("message %llu: byte %u is wrong", (unsigned long long)n, i);
}

static void read_tag(struct pair *p, size_t page)
{
	struct side *from = &p->side[1], *to = &p->side[0];
	struct ibv_sge sge = { (uintptr_t)to->buf, sizeof(uint64_t), to->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = page, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.wr.rdma = { (uintptr_t)tag(from, page), from->mr->rkey } }, *bad;

	MUST(!ibv_post_send(to->qp, &wr, &bad));
	wait_for(to, IBV_WC_RDMA_READ, page);
	if (*(uint64_t *)to->buf != page)
		DIE("page %zu holds %llu", page, *(unsigned long long *)to->buf);
}

/* The CPU checks all pages, and the device some. */
static void check_tags(struct pair *p)
{
	size_t page, step = 61;

	for (page = 0; page < tagged(&p->side[1]); page++)
		if (*tag(&p->side[1], page) != page)
			DIE("page %zu holds something else", page);
	for (page = 0; page < tagged(&p->side[1]); page += step)
		read_tag(p, page);
}

static int open_progress(const char *progress)
{
	int fd = open(progress, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	MUST(fd >= 0);
	return fd;
}

static void report(int fd, uint64_t n)
{
	char line[32];

	snprintf(line, sizeof(line), "%llu\n", (unsigned long long)n);
	MUST(pwrite(fd, line, strlen(line), 0) > 0);
}

static struct {
	struct pair *pairs;
	int count;
	const char *progress;
	uint64_t done;
} job;

/* Both ways, in turn. */
static void *run(void *arg)
{
	int fd = open_progress(job.progress);
	uint64_t n;

	for (n = 0; !stop; n++) {
		struct pair *p = &job.pairs[n / 2 % job.count];

		post_recv(&p->side[!(n & 1)], n);
		send_message(&p->side[n & 1], n);
		check(&p->side[!(n & 1)], n);
		if (gib)
			read_tag(p, n * 7919 % tagged(&p->side[1]));
		report(fd, n);
		if (rest_ms)
			usleep(rest_ms * 1000);
	}
	for (int i = 0; gib && i < job.count; i++)
		check_tags(&job.pairs[i]);
	job.done = n;
	return arg;
}

/*
 * One way: the kernel lets only the process that has opened a context post sends on it. The child says
 * the number of each message that it is ready for.
 */
static void receive(int pipe)
{
	int fd = open_progress(job.progress);
	uint64_t n;

	receives = true;
	for (n = 0;; n++) {
		struct side *to = &job.pairs[n % job.count].side[1];

		post_recv(to, n);
		if (write(pipe, &n, sizeof(n)) != sizeof(n))
			break;
		check(to, n);
		report(fd, n);
	}
	exit(0);
}

/* The process between the two has everything open, and does nothing with it. */
static void stand_between(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		MUST(errno == EINTR && !kill(child, SIGTERM));
	exit(status ? 1 : 0);
}

static void run_forked(bool twice)
{
	int pipes[2], status;
	uint64_t n = 0;
	pid_t child;

	signal(SIGPIPE, SIG_IGN);
	MUST(!pipe(pipes));
	child = fork();
	MUST(child >= 0);
	if (!child) {
		close(pipes[0]);
		child = twice ? fork() : 0;
		MUST(child >= 0);
		if (child) {
			close(pipes[1]);
			stand_between(child);
		}
		receive(pipes[1]);
	}
	close(pipes[1]);
	while (!stop) {
		if (read(pipes[0], &n, sizeof(n)) != sizeof(n)) {
			MUST(stop);
			break;
		}
		send_message(&job.pairs[n % job.count].side[0], n);
	}
	close(pipes[0]);
	/* The child may wait for a message that it has asked for too late. */
	MUST(!kill(child, SIGTERM));
	MUST(waitpid(child, &status, 0) == child && !status);
	job.done = n;
}

/* ----------------------------------------------------------------- passing -- */

union room {
	struct cmsghdr	hdr;
	char		data[CMSG_SPACE(sizeof(int))];
};

static void pass(int sock, int fd)
{
	union room room = { .hdr = { CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov = { "", 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room),
	};

	memcpy(CMSG_DATA(&room.hdr), &fd, sizeof(fd));
	MUST(sendmsg(sock, &msg, 0) == 1);
}

static int take(int sock)
{
	union room room;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room),
	};
	int fd;

	MUST(recvmsg(sock, &msg, 0) == 1 && room.hdr.cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(&room.hdr), sizeof(fd));
	return fd;
}

/* The number of QPs of a context, which the kernel tells any process that has it open. */
static uint32_t count_qps(int fd)
{
	uint32_t handles[64], total = 0;
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[3];
	} cmd = {
		.hdr = { .length = sizeof(cmd), .object_id = UVERBS_OBJECT_DEVICE,
			 .method_id = UVERBS_METHOD_INFO_HANDLES, .num_attrs = 3, .driver_id = RDMA_DRIVER_RXE },
		.attrs = {
			{ .attr_id = UVERBS_ATTR_INFO_OBJECT_ID, .len = 8, .flags = UVERBS_ATTR_F_MANDATORY,
			  .data = UVERBS_OBJECT_QP },
			{ .attr_id = UVERBS_ATTR_INFO_TOTAL_HANDLES, .len = sizeof(total),
			  .flags = UVERBS_ATTR_F_MANDATORY, .data = (uintptr_t)&total },
			{ .attr_id = UVERBS_ATTR_INFO_HANDLES_LIST, .len = sizeof(handles),
			  .flags = UVERBS_ATTR_F_MANDATORY, .data = (uintptr_t)handles },
		},
	};

	MUST(!ioctl(fd, RDMA_VERBS_IOCTL, &cmd));
	return total;
}

static void hold(const int *fds)
{
	int i;

	while (!stop) {
		for (i = 0; i < job.count; i++)
			MUST(count_qps(fds[i]) == 2);
		usleep(50000);
	}
}

static void run_passed(void)
{
	int socks[2], *fds = calloc(job.count, sizeof(*fds)), status, i;
	char *base;
	pid_t child;

	base = pool = mmap(NULL, job.count * 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(fds && pool != MAP_FAILED && !socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	memset(pool, 0x5a, job.count * 2 * SIZE);
	child = fork();
	MUST(child >= 0);
	for (i = 0; i < job.count; i++) {
		if (child) {
			fds[i] = take(socks[0]);
			continue;
		}
		open_pair(&job.pairs[i], i, false);
		pass(socks[1], job.pairs[i].ctx->cmd_fd);
	}
	close(socks[0]);
	close(socks[1]);
	if (!child) {
		run(NULL);
		for (i = 0; i < job.count; i++)
			close_pair(&job.pairs[i]);
		printf("child: %llu\n", (unsigned long long)job.done);
		exit(0);
	}
	hold(fds);
	MUST(!kill(child, SIGTERM));
	MUST(waitpid(child, &status, 0) == child && !status);
	for (i = 0; i < job.count * 2 * SIZE; i++)
		MUST(base[i] == 0x5a);
	for (i = 0; i < job.count; i++)
		close(fds[i]);
}

static void wait_for_file(const char *path)
{
	int i;

	for (i = 0; i < job.count; i++)
		job.pairs[i].ctx = open_device(i);
	report(open_progress(job.progress), 0);
	while (access(path, F_OK))
		usleep(10000);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "contexts", required_argument, NULL, 'c' }, { "holes", no_argument, NULL, 'h' },
		{ "fork", no_argument, NULL, 'f' }, { "grandchild", no_argument, NULL, 'F' },
		{ "later", required_argument, NULL, 'l' }, { "thread", no_argument, NULL, 't' },
		{ "events", no_argument, NULL, 'e' }, { "devices", no_argument, NULL, 'd' },
		{ "unused", no_argument, NULL, 'u' }, { "pass", no_argument, NULL, 'p' }, { "gib", no_argument, NULL, 'g' },
		{ "rest", required_argument, NULL, 'r' }, { "read-only", no_argument, NULL, 'R' },
		{ "protected", no_argument, NULL, 'P' }, {},
	};
	struct sigaction term = { .sa_handler = on_term };
	bool holes = false, forks = false, twice = false, threads = false, unused = false, passes = false;
	const char *later = NULL;
	pthread_t thread;
	int opt, i;

	job.count = 1;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		job.count = opt == 'c' ? atoi(optarg) : job.count;
		holes |= opt == 'h';
		forks |= opt == 'f' || opt == 'F';
		twice |= opt == 'F';
		later = opt == 'l' ? optarg : later;
		threads |= opt == 't';
		events |= opt == 'e';
		devices |= opt == 'd';
		unused |= opt == 'u';
		passes |= opt == 'p';
		gib |= opt == 'g';
		read_only |= opt == 'R';
		protects |= opt == 'P';
		rest_ms = opt == 'r' ? atoi(optarg) : rest_ms;
	}
	MUST(optind == argc - 1 && !(forks && events) && !(passes && (forks || holes || threads)) && !(gib && (forks || passes)));
	job.progress = argv[optind];
	sigaction(SIGTERM, &term, NULL);
	job.pairs = calloc(job.count, sizeof(*job.pairs));
	for (i = 0; unused && i < (devices ? job.count : 1); i++)
		open_device(i);
	if (later)
		wait_for_file(later);
	for (i = 0; !passes && i < job.count; i++)
		open_pair(&job.pairs[i], i, holes);
	if (forks) {
		run_forked(twice);
	} else if (passes) {
		run_passed();
	} else if (threads) {
		MUST(!pthread_create(&thread, NULL, run, NULL));
		MUST(!pthread_join(thread, NULL));
	} else {
		run(NULL);
	}
	for (i = 0; !passes && i < job.count; i++)
		close_pair(&job.pairs[i]);
	printf("done: %llu\n", (unsigned long long)job.done);
	return 0;
}
