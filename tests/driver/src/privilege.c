// SPDX-License-Identifier: MIT
/*
 * privilege container: tries to dump a context and to restore one, with the rights that a container has by default, and with all
 * capabilities in a user namespace of its own. Nothing may be told or done.
 *
 * privilege dumps: with the right to restore, takes a dump into which the identities of another process were put. The restore
 * fails, or reaches nothing of that process.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../../programs/dumps.h"

enum { SECRET = 0x5ec2e7 };

static struct ibv_context *victim;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp[2];
static struct ibv_mr *mr;
static uint32_t memory[4096] __attribute__((aligned(4096)));

static struct ibv_qp *new_qp(struct ibv_pd *in, struct ibv_cq *c)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = c, .recv_cq = c,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *q = ibv_create_qp(in, &init);

	CHECK(q);
	return q;
}

static void connect_to(struct ibv_qp *from, uint32_t to)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = to, .max_rd_atomic = 4, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 4 } },
	};

	lead(from, a, IBV_QPS_RTS);
}

/* A process with a connection and memory of its own. Here it is this process, with another context. */
static void make_victim(void)
{
	victim = open_device();
	find_gid(victim, NULL);
	CHECK((pd = ibv_alloc_pd(victim)) && (cq = ibv_create_cq(victim, 16, NULL, NULL, 0)));
	memory[0] = SECRET;
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			       IBV_ACCESS_REMOTE_WRITE)));
	for (int i = 0; i < 2; i++)
		qp[i] = new_qp(pd, cq);
	for (int i = 0; i < 2; i++)
		connect_to(qp[i], qp[!i]->qp_num);
}

/* It reads its own memory through its own connection. */
static void victim_works(void)
{
	struct ibv_sge sge = { (uintptr_t)(memory + 1024), 4, mr->lkey };
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge,
					.num_sge = 1, .wr.rdma = { (uintptr_t)memory, mr->rkey } };
	struct ibv_wc wc;
	int n;

	memory[1024] = 0;
	IS(0, ibv_post_send(qp[0], &wr, &bad));
	for (int i = 0; !(n = ibv_poll_cq(cq, 1, &wc)); i++) {
		CHECK(i < 60000);
		usleep(1000);
	}
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS && memory[1024] == SECRET && memory[0] == SECRET);
}

/* -------------------------------------------------------------- container -- */

/* What docker leaves a container: CAP_CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, ... */
static const int docker[] = {
	CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP,
	CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_SYS_CHROOT, CAP_MKNOD, CAP_AUDIT_WRITE, CAP_SETFCAP,
};

static void be_a_container(void)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = {};

	for (unsigned i = 0; i < sizeof(docker) / sizeof(docker[0]); i++)
		caps[docker[i] / 32].effective |= 1u << docker[i] % 32;
	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		if (!(caps[cap / 32].effective & 1u << cap % 32))
			CHECK(!prctl(PR_CAPBSET_DROP, cap, 0, 0, 0));
	for (int i = 0; i < 2; i++)
		caps[i].permitted = caps[i].inheritable = caps[i].effective;
	CHECK(!syscall(SYS_capset, &hdr, caps));
}

static struct dump genuine;

/* Each call gives EPERM, on its own context and on another process's context that it was given. */
static void is_refused(struct ibv_context *ctx)
{
	struct rxe_migr_key key = { .op = RXE_MIGR_KEY_QUERY };
	struct rxe_migr_status status[8];
	struct rxe_migr_call calls[8];
	struct rxe_migr_cm_device device = { 0 };
	struct rxe_migr_query query;
	uint64_t fingerprint;
	char buf[65536];
	int count;

	IS(EPERM, ibv_query_migration(ctx, &query));
	IS(EPERM, ibv_ask_peers(ctx, &query));
	IS(EPERM, ibv_ask_peers_anew(ctx, &query));
	IS(EPERM, ibv_renew_stop(ctx, &query));
	IS(EPERM, ibv_cm_device(ctx, 0, &device, NULL));
	IS(EPERM, ibv_cm_device(ctx, 0, NULL, &device));
	IS(EPERM, ibv_inspect_context(ctx, &count, buf, sizeof(buf)));
	IS(EPERM, ibv_dump_context(ctx, &count, NULL, 0));
	IS(EPERM, ibv_dump_context(ctx, &count, buf, sizeof(buf)));
	IS(EPERM, ibv_abort_context(ctx));
	IS(EPERM, ibv_query_device_migration(ctx, &count, status, 8));
	IS(EPERM, ibv_query_device_calls(ctx, &count, calls, 8));
	IS(EPERM, ibv_query_taken(ctx, RXE_MIGR_HINT_QP, 17));
	IS(EPERM, ibv_migration_key(ctx, &key, &fingerprint));
	key.op = RXE_MIGR_KEY_SET;
	IS(EPERM, ibv_migration_key(ctx, &key, NULL));
	IS(EPERM, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, genuine.buf, genuine.size));
}

static void container(void)
{
	genuine = take(victim, ibv_inspect_context);
	for (int own_namespaces = 0; own_namespaces < 2; own_namespaces++) {
		pid_t pid = fork();
		int status;

		if (!pid) {
			if (own_namespaces)	/* where it has all capabilities */
				CHECK(!unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID));
			else
				be_a_container();
			is_refused(victim);
			is_refused(open_device());
			CHECK(!ibv_open_restore_context("rxe0", 7) && errno == EPERM);
			exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(!status);
	}
	victim_works();
}

/* ------------------------------------------------------------------ dumps -- */

/* The result of a restore of this record in a new context that has only what the record asks for. */
static int attempt(struct dump *d, int type, size_t at, uint32_t value, bool refill)
{
	struct ibv_context *ctx = ibv_open_restore_context("rxe0", 7);
	struct rxe_migr_rec *rec, *found = NULL;
	int ret = 0;
	void *object;

	CHECK(ctx);
	for (rec = NULL; (rec = (void *)next(d, rec));)
		if (type_of(rec) == type)
			found = rec;
	CHECK(found);
	memcpy((char *)found + at, &value, sizeof(value));
	/* Each object was made after those that it needs. */
	for (uint32_t handle = 0; handle < HANDLES && !ret; handle++)
		for (rec = NULL; (rec = (void *)next(d, rec)) && !ret;) {
			struct ibv_restore_args args = {
				.record = rec, .record_length = le32toh(rec->length), .comp_channel_fd = -1, .async_fd = -1,
			};

			object = NULL;
			if (le32toh(rec->handle) == handle &&
			    (type_of(rec) == RXE_MIGR_REC_PD || type_of(rec) == RXE_MIGR_REC_CQ ||
			     type_of(rec) == RXE_MIGR_REC_QP || type_of(rec) == RXE_MIGR_REC_MR))
				ret = ibv_restore_object(ctx, &object, type_of(rec), IBV_RESTORE_CREATE, &args, sizeof(args));
		}
	if (!ret && refill)
		ret = ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, d->buf, d->size);
	close(ctx->cmd_fd);	/* all of it goes with its file */
	return ret;
}

#define AT(rec, field) offsetof(struct rxe_migr_rec_##rec, field)

static void dumps(void)
{
	static uint32_t buffer[1024] __attribute__((aligned(4096)));
	struct ibv_context *mine = open_device();
	struct ibv_pd *own = ibv_alloc_pd(mine);
	struct ibv_cq *c = ibv_create_cq(mine, 16, NULL, NULL, 0);
	struct ibv_mr *region = own ? ibv_reg_mr(own, buffer, sizeof(buffer), IBV_ACCESS_REMOTE_READ) : NULL;
	struct ibv_qp *q;
	struct dump d;
	uint32_t key, n;

	CHECK(own && c && region);
	q = new_qp(own, c);
	connect_to(q, qp[0]->qp_num);
	d = take(mine, ibv_inspect_context);
	key = region->rkey;
	n = q->qp_num;
	IS(0, ibv_destroy_qp(q));
	IS(0, ibv_dereg_mr(region));

	/* numbers of another process, or of nobody */
	IS(EEXIST, attempt(&d, RXE_MIGR_REC_QP, AT(qp, qpn), htole32(qp[0]->qp_num), true));
	IS(0, attempt(&d, RXE_MIGR_REC_QP, AT(qp, qpn), htole32(n), true));
	IS(EEXIST, attempt(&d, RXE_MIGR_REC_MR, AT(mr, key), htole32(mr->rkey), true));
	IS(0, attempt(&d, RXE_MIGR_REC_MR, AT(mr, key), htole32(key), true));

	/* handles that only the files of others have */
	for (uint32_t h = 8; h < 4096; h += h / 2)
		CHECK(attempt(&d, RXE_MIGR_REC_QP, AT(qp, pd), htole32(h), true));
	victim_works();
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	make_victim();
	if (!strcmp(argv[1], "container"))
		container();
	else
		dumps();
	return 0;
}
