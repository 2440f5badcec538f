// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The contexts that a process tree holds: found, read from the driver, and kept, asked or let go while they move.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "rdma.h"

struct ibv_context *context_attach(const struct context *context)
{
	int fd = proc_get_fd(context->pid, context->fd);
	struct ibv_context *ctx = fd < 0 ? NULL : ibv_attach_context(fd);

	if (!ctx && fd >= 0)
		close(fd);
	return ctx;
}

bool context_is_gone(pid_t pid, int fd)
{
	struct ibv_context *ctx = context_attach(&(struct context){ .pid = pid, .fd = fd });
	struct rxe_migr_query query;
	bool gone = ctx && ibv_query_migration(ctx, &query) == EIO;

	ibv_detach_context(ctx);
	return gone;
}

static int add_context(const struct proc_fd *fd, void *arg)
{
	struct contexts *list = arg;
	struct context *c;
	char device[64];

	if (!S_ISCHR(fd->st.st_mode) || rdma_node(fd->st.st_rdev, device) != FILE_UVERBS)
		return 0;
	for (size_t i = 0; i < list->n; i++)
		if (holders_have(&list->context[i].holders, fd)) {
			holders_add(&list->context[i].holders, fd);
			return 0;
		}
	if (context_is_gone(fd->pid, fd->fd))
		return 0;
	GROW(list->context, list->n);
	c = &list->context[list->n];
	*c = (struct context){ .pid = fd->pid, .fd = fd->fd, .st = fd->st, .slot = list->n++, .own_fd = -1 };
	strcpy(c->device, device);
	holders_add(&c->holders, fd);
	return 0;
}

int contexts_find(const struct tree *tree, struct contexts *list)
{
	*list = (struct contexts){ 0 };
	return proc_each_fd(tree, add_context, list);
}

void contexts_free(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		free(list->context[i].dump);
		free(list->context[i].qp);
		free(list->context[i].holders.holder);
		free(list->context[i].cm_gid);
		close_fd(&list->context[i].own_fd);
	}
	free(list->context);
	*list = (struct contexts){ 0 };
}

int contexts_keep_open(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];

		c->own_fd = proc_get_fd(c->pid, c->fd);
		if (c->own_fd < 0)
			return fault("process %d, descriptor %d: its context can't be kept open: %s", c->pid, c->fd,
				     strerror(errno));
	}
	return 0;
}

static int inspect(struct context *c, struct ibv_context *ctx)
{
	int size = 0, count, ret;

	ret = ibv_query_migration(ctx, &c->query);
	if (ret)
		return ret;
	c->ours = true;
	/* The process runs, so the dump may grow between two calls. */
	for (int tries = 0; tries < 10; tries++) {
		count = size;
		ret = ibv_inspect_context(ctx, &count, c->dump, size);
		if (ret != ENOSPC)
			break;
		size = count + 4096;
		c->dump = xrealloc(c->dump, size);
	}
	c->length = ret ? 0 : size;
	return ret;
}

/* The length of a dump is that of its records, not that of the buffer. */
static void trim(struct context *c)
{
	const struct rxe_migr_rec *rec;
	size_t used = 0;

	ibv_for_each_record(rec, c->dump, c->length)
		used += le32toh(rec->length);
	c->length = used;
}

static int by_number(const void *a, const void *b)
{
	const struct rxe_migr_rec_qp *const *x = a, *const *y = b;
	uint32_t m = le32toh((*x)->qpn), n = le32toh((*y)->qpn);

	return (m > n) - (m < n);
}

static void sort_qps(struct context *c)
{
	const struct rxe_migr_rec *rec;

	ibv_for_each_record(rec, c->dump, c->length) {
		if (le16toh(rec->type) != RXE_MIGR_REC_QP)
			continue;
		GROW(c->qp, c->qps);
		c->qp[c->qps++] = (const void *)rec;
	}
	if (c->qps)
		qsort(c->qp, c->qps, sizeof(*c->qp), by_number);
}

const struct rxe_migr_rec_qp *context_qp(const struct context *c, uint32_t qpn)
{
	const struct rxe_migr_rec_qp key = { .qpn = htole32(qpn) }, *wanted = &key;
	const struct rxe_migr_rec_qp **found = c->qps ? bsearch(&wanted, c->qp, c->qps, sizeof(*c->qp), by_number) : NULL;

	return found ? *found : NULL;
}

const char *context_state(const struct context *c)
{
	static const char *const states[] = { "running", "stopped", "restoring", "resuming" };

	return c->ours && c->query.state < sizeof(states) / sizeof(states[0]) ? states[c->query.state] : "unknown";
}

int contexts_inspect(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = context_attach(c);
		int ret = ctx ? inspect(c, ctx) : errno;

		if (ctx)
			ibv_detach_context(ctx);
		if (ret && c->ours)
			return fault("process %d, descriptor %d: the driver does not show its RDMA objects: %s",
				     c->pid, c->fd, strerror(ret));
		if (ret == EPERM || ret == EACCES)
			return fault("process %d: not permitted: godwit needs CAP_SYS_ADMIN", c->pid);
		if (c->ours) {
			trim(c);
			sort_qps(c);
		}
	}
	return 0;
}

int contexts_query(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = context_attach(c);
		int ret = ctx ? ibv_query_migration(ctx, &c->query) : errno;

		if (ctx)
			ibv_detach_context(ctx);
		if (ret)
			return fault("process %d, descriptor %d: the driver does not tell its state: %s",
				     c->pid, c->fd, strerror(ret));
	}
	return 0;
}

int64_t contexts_peers_wait(const struct contexts *list)
{
	int64_t until = INT64_MAX;

	for (size_t i = 0; i < list->n; i++)
		if (list->context[i].query.wait_ns < (uint64_t)until)
			until = list->context[i].query.wait_ns;
	return until;
}

const struct context *contexts_silent(const struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->context[i].query.num_silent)
			return &list->context[i];
	return NULL;
}

void contexts_renew(struct contexts *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = context_attach(c);

		if (!ctx || ibv_renew_stop(ctx, &c->query))
			c->query.wait_ns = UINT64_MAX;
		if (ctx)
			ibv_detach_context(ctx);
	}
}

#define ASK_FIRST_MS	10
#define ASK_MOST_MS	500
#define ASK_ALL_MS	2500
#define ASK_LOOK_MS	10

/*
 * How many queue pairs have peers that did not answer. ask: ask those peers (again). A context whose peers can't be asked
 * counts as one: they may have answered long ago, with a key that they no longer have.
 */
static size_t not_answered(struct contexts *list, bool ask)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = c->ours ? context_attach(c) : NULL;
		int ret = -1;

		if (ctx && ask)
			ret = (c->asked ? ibv_ask_peers : ibv_ask_peers_anew)(ctx, &c->query);
		else if (ctx && c->asked)
			ret = ibv_query_migration(ctx, &c->query);
		if (ret == 0) {
			n += c->query.num_unknown;
			c->asked |= ask;
		} else if (c->ours) {
			n++;
		}
		if (ctx)
			ibv_detach_context(ctx);
	}
	return n;
}

/* A host takes its time if many queue pairs ask it. The same question again would only double that. */
static int ask_again_ms(int wait, size_t left)
{
	int least = left < ASK_MOST_MS - ASK_FIRST_MS ? ASK_FIRST_MS + (int)left : ASK_MOST_MS;

	return least > wait ? least : wait;
}

void contexts_ask_peers(struct contexts *list)
{
	size_t left = not_answered(list, true);
	int64_t asked = now_ns(), end = asked + ASK_ALL_MS * INT64_C(1000000);
	int wait = ASK_FIRST_MS;

	while (left && now_ns() < end) {
		poll(NULL, 0, ASK_LOOK_MS);
		left = not_answered(list, false);
		if (now_ns() - asked < ask_again_ms(wait, left) * INT64_C(1000000))
			continue;
		left = not_answered(list, true);
		asked = now_ns();
		wait *= 2;
	}
}

int contexts_abort(struct contexts *list)
{
	int failures = 0;

	for (size_t i = 0; i < list->n; i++) {
		struct context *c = &list->context[i];
		struct ibv_context *ctx = context_attach(c);
		int ret = 0;

		c->ours = ctx && ibv_query_migration(ctx, &c->query) == 0;
		if (c->ours && c->query.state == RXE_MIGR_CTX_STOPPED)
			ret = ibv_abort_context(ctx);
		/* The CRIU plugin tries the same, and may have been faster. */
		if (ret && ibv_query_migration(ctx, &c->query) == 0 &&
		    c->query.state == RXE_MIGR_CTX_STOPPED) {
			fault("process %d, descriptor %d: its connections can't be set going again: %s",
			      c->pid, c->fd, strerror(ret));
			failures++;
		}
		if (ctx)
			ibv_detach_context(ctx);
	}
	return failures ? -1 : 0;
}
