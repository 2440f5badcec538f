// SPDX-License-Identifier: MIT
/* Code that the tests of dumps share: see dumps.h. */
#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "dumps.h"

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;

	CHECK(ctx);
	ibv_free_device_list(list);
	return ctx;
}

union ibv_gid gid;
int gid_index;

void find_gid(struct ibv_context *ctx, const char *address)
{
	union ibv_gid wanted = { .raw = { [10] = 0xff, [11] = 0xff } };
	struct ibv_gid_entry entry;

	CHECK(!address || inet_pton(AF_INET, address, wanted.raw + 12) == 1);
	for (gid_index = 0; !ibv_query_gid_ex(ctx, 1, gid_index, &entry, 0); gid_index++) {
		gid = entry.gid;
		if (!memcmp(gid.raw, wanted.raw, address ? sizeof(gid) : 12))
			return;
	}
	DIE("no such IPv4 GID");
}

void lead(struct ibv_qp *qp, struct ibv_qp_attr a, enum ibv_qp_state last)
{
	enum { PATH = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN };
	static const int masks[][IBV_QPS_ERR + 1] = {
		[IBV_QPT_RC] = {
			[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			[IBV_QPS_RTR] = PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			[IBV_QPS_RTS] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					IBV_QP_MAX_QP_RD_ATOMIC,
		},
		[IBV_QPT_UC] = {
			[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			[IBV_QPS_RTR] = PATH,
			[IBV_QPS_RTS] = IBV_QP_SQ_PSN,
		},
		[IBV_QPT_UD] = {
			[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
			[IBV_QPS_RTS] = IBV_QP_SQ_PSN,
		},
	};
	const int *mask = masks[qp->qp_type];

	for (int s = IBV_QPS_INIT; s <= (int)last; s++) {
		if (s == IBV_QPS_SQE || (s == IBV_QPS_SQD && last != IBV_QPS_SQD))
			continue;
		a.qp_state = s;
		IS(0, ibv_modify_qp(qp, &a, mask[s] | IBV_QP_STATE));
	}
}

/* ------------------------------------------------------------ contexts -- */

static pid_t owner;

struct ibv_context *start_owner(own_fn *own)
{
	struct ibv_context *ctx;
	int to_us[2], cmd_fd, pidfd;

	CHECK(!pipe(to_us));
	owner = fork();
	if (!owner) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to_us[0]);
		own(to_us[1]);
	}
	close(to_us[1]);
	CHECK(read(to_us[0], &cmd_fd, sizeof(cmd_fd)) == sizeof(cmd_fd));
	pidfd = syscall(SYS_pidfd_open, owner, 0);
	cmd_fd = syscall(SYS_pidfd_getfd, pidfd, cmd_fd, 0);
	CHECK(cmd_fd >= 0);
	close(pidfd);
	CHECK((ctx = ibv_attach_context(cmd_fd)));
	return ctx;
}

void end_owner(struct ibv_context *ctx)
{
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	ibv_detach_context(ctx);
}

uint32_t state_of(struct ibv_context *ctx)
{
	struct rxe_migr_query query;

	IS(0, ibv_query_migration(ctx, &query));
	CHECK(query.abi_version == RXE_MIGR_ABI_VERSION);
	return query.state;
}

void await_peers(struct ibv_context *ctx)
{
	struct rxe_migr_status qp[100];
	struct rxe_migr_query query;
	int count;

	for (int i = 0; i < 6000; i++) {
		IS(0, ibv_query_migration(ctx, &query));
		if (!query.num_resuming)
			return;
		usleep(10000);
	}
	IS(0, ibv_query_device_migration(ctx, &count, qp, 100));
	for (int i = 0; i < count; i++)
		fprintf(stderr, "QP %u, peer %u: state %u, tombstone %u\n", qp[i].qpn, qp[i].dest_qpn, qp[i].state,
			qp[i].tombstone);
	DIE("%u of %u peers do not answer, %u have failed", query.num_resuming, query.num_qp, query.num_failed);
}

/* --------------------------------------------------------------- dumps -- */

struct dump take(struct ibv_context *ctx, dump_fn *fn)
{
	struct dump d = {};
	int ret;

	while ((ret = fn(ctx, &d.count, d.buf, d.size)) == ENOSPC) {
		CHECK(d.count > (int)d.size);
		d.size = d.count;
		d.buf = realloc(d.buf, d.size);
		memset(d.buf, 0xaa, d.size);
	}
	IS(0, ret);
	return d;
}

const struct rxe_migr_rec *next(const struct dump *d, const struct rxe_migr_rec *rec)
{
	return ibv_next_record(d->buf, d->size, rec);
}

uint16_t type_of(const struct rxe_migr_rec *rec)
{
	return le16toh(rec->type);
}

const struct rxe_migr_rec *first_of(const struct dump *d, int type)
{
	const struct rxe_migr_rec *rec = NULL;

	while ((rec = next(d, rec)) && type_of(rec) != type)
		;
	CHECK(rec);
	return rec;
}


/* ------------------------------------------------------------- restore -- */

struct ibv_restored *create(struct ibv_context *ctx, const struct rxe_migr_rec *rec, int channel,
			    const union ibv_gid *sgid)
{
	struct ibv_restore_args args = {
		.record = rec, .record_length = le32toh(rec->length), .comp_channel_fd = channel, .async_fd = -1,
	};
	void *object = NULL;
	int ret;

	if (sgid)
		args.sgid = *sgid;
	ret = ibv_restore_object(ctx, &object, type_of(rec), IBV_RESTORE_CREATE, &args, sizeof(args));

	if (ret)
		DIE("record type %u, handle %u: %s", type_of(rec), le32toh(rec->handle), strerror(ret));
	return object;
}

int destroy_recorded(struct ibv_context *ctx, const struct rxe_migr_rec *rec)
{
	struct ibv_restored *restored = calloc(1, sizeof(*restored));
	void *object = restored;

	restored->type = type_of(rec);
	restored->handle = le32toh(rec->handle);
	restored->fd = -1;
	return ibv_restore_object(ctx, &object, restored->type, IBV_RESTORE_DESTROY, NULL, 0);
}

struct ibv_context *restore(const struct dump *d, const union ibv_gid *sgid)
{
	static const uint16_t order[] = {
		RXE_MIGR_REC_CQ, RXE_MIGR_REC_SRQ, RXE_MIGR_REC_AH, RXE_MIGR_REC_QP, RXE_MIGR_REC_MW,
		RXE_MIGR_REC_MR,
	};
	struct ibv_context *ctx = ibv_open_restore_context("rxe0", 7);
	const struct rxe_migr_rec *rec, *pd[HANDLES] = {};
	void *place[HANDLES] = {};
	int channel = -1;
	uint32_t h;

	if (!ctx)
		DIE("open: %s", strerror(errno));
	for (rec = NULL; (rec = next(d, rec));) {
		CHECK(type_of(rec) != RXE_MIGR_REC_OTHER);
		if (type_of(rec) == RXE_MIGR_REC_ASYNC_FILE)
			create(ctx, rec, -1, NULL);
		if (type_of(rec) == RXE_MIGR_REC_COMP_CHANNEL)
			channel = create(ctx, rec, -1, NULL)->fd;
		if (type_of(rec) == RXE_MIGR_REC_PD)
			pd[le32toh(rec->handle)] = rec;
	}
	for (h = 0; h < HANDLES; h++)
		if (pd[h])
			create(ctx, pd[h], -1, NULL);
		else
			IS(0, ibv_restore_object(ctx, &place[h], 0, IBV_RESTORE_PLACEHOLDER, NULL, 0));
	for (unsigned int i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		for (rec = NULL; (rec = next(d, rec));) {
			if (type_of(rec) != order[i])
				continue;
			IS(0, ibv_restore_object(ctx, &place[le32toh(rec->handle)], 0, IBV_RESTORE_DESTROY, NULL, 0));
			create(ctx, rec, channel, sgid);
		}
	for (rec = NULL; (rec = next(d, rec));)
		if (type_of(rec) == RXE_MIGR_REC_MCAST)
			create(ctx, rec, -1, NULL);
	for (h = 0; h < HANDLES; h++)
		if (place[h])
			IS(0, ibv_restore_object(ctx, &place[h], 0, IBV_RESTORE_DESTROY, NULL, 0));
	IS(0, ibv_restore_object(ctx, NULL, 0, IBV_RESTORE_REFILL, d->buf, d->size));
	return ctx;
}

/* Clears a record's ring offsets: two dumps may differ in them. */
static void forget(struct rxe_migr_rec *rec)
{
	struct rxe_migr_rec_cq *cq = (void *)rec;
	struct rxe_migr_rec_srq *srq = (void *)rec;
	struct rxe_migr_rec_qp *qp = (void *)rec;

	if (type_of(rec) == RXE_MIGR_REC_CQ)
		cq->ring_offset = 0;
	if (type_of(rec) == RXE_MIGR_REC_SRQ)
		srq->ring_offset = 0;
	if (type_of(rec) == RXE_MIGR_REC_QP)
		qp->sq_offset = qp->rq_offset = 0;
}

static struct rxe_migr_rec *find(const struct dump *d, const struct rxe_migr_rec *like)
{
	const struct rxe_migr_rec_ring *a = (const void *)like;
	const struct rxe_migr_rec *rec = NULL;

	while ((rec = next(d, rec)))
		if (rec->type == like->type && rec->handle == like->handle &&
		    (type_of(rec) != RXE_MIGR_REC_RING || ((const struct rxe_migr_rec_ring *)rec)->which == a->which))
			return (struct rxe_migr_rec *)rec;
	return NULL;
}

int compare(const struct dump *a, const struct dump *b)
{
	const struct rxe_migr_rec *rec = NULL;
	int different = 0;

	while ((rec = next(a, rec))) {
		struct rxe_migr_rec *other = find(b, rec);
		uint32_t i = 0, length = le32toh(rec->length);

		if (type_of(rec) == RXE_MIGR_REC_CONTEXT || type_of(rec) == RXE_MIGR_REC_MR_OWNER)
			continue;
		if (!other || le32toh(other->length) != length) {
			fprintf(stderr, "type %u, handle %u: %s\n", type_of(rec), le32toh(rec->handle),
				other ? "another length" : "missing");
			different++;
			continue;
		}
		forget((struct rxe_migr_rec *)rec);
		forget(other);
		for (i = 0; i < length; i++)
			if (((const char *)rec)[i] != ((char *)other)[i])
				break;
		if (i == length)
			continue;
		fprintf(stderr, "type %u, handle %u: differs from byte %u\n", type_of(rec), le32toh(rec->handle), i);
		different++;
	}
	return different;
}
