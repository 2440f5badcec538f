// SPDX-License-Identifier: GPL-2.0
/*
 * The first task that needs a context makes it, with all objects but memory
 * regions, whose memory is not there yet. The context's descriptors go into the
 * store. What other tasks must know lies in memory that all share.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "restore.h"

enum state { NOT_MADE, MADE, FAILED };

struct shared_context {
	sem_t		lock;
	enum state	state;
	int		number;		/* in the store */
};

static struct shared {
	uint64_t	session;
	struct shared_context *contexts;
	int		*files;		/* numbers in the store, by slot */
	uint64_t	*rings;		/* for mmap(), by slot */
} shared;

int share_contexts(void)
{
	uint32_t i;

	while (!shared.session)
		if (getrandom(&shared.session, sizeof(shared.session), 0) < 0)
			return fail("no random numbers: %m");
	shared.contexts = share(saved.num_contexts * sizeof(*shared.contexts));
	if (!shared.contexts)
		return -1;
	shared.files = share(saved.num_files * sizeof(*shared.files));
	if (!shared.files)
		return -1;
	shared.rings = share(saved.num_rings * sizeof(*shared.rings));
	if (!shared.rings)
		return -1;
	for (i = 0; i < saved.num_contexts; i++)
		if (make_lock(&shared.contexts[i].lock))
			return -1;
	return store_init();
}

/* ------------------------------------------------------------------ making -- */

int creating_failed(const struct saved_context *c,
		    const struct rxe_migr_rec *rec, int err)
{
	const char *device = c->here->name;
	char name[IBV_RECORD_NAME_LEN];

	ibv_record_name(rec, name, sizeof(name));
	switch (err) {
	case EEXIST:
		return fail("%s: %s is taken on this host: end its owner, or restore elsewhere",
			    device, name);
	case ENODEV:
		return fail("%s: %s: its source GID is none of this host's", device,
			    name);
	case EBUSY:
		return fail("%s: %s did not get its handle %u", device, name,
			    le32toh(rec->handle));
	case EPERM:
		return fail("%s: %s cannot be restored: " NO_CAPABILITY,
			    device, name);
	case ENOMEM:
		if (le16toh(rec->type) == RXE_MIGR_REC_MR)
			return fail("%s: %s cannot be pinned: give the process a higher RLIMIT_MEMLOCK, or CRIU CAP_IPC_LOCK, or this host memory",
				    device, name);
		/* fallthrough */
	default:
		return fail("%s: %s cannot be restored: %s", device, name,
			    strerror(err));
	}
}

/* A context that is being made. */
struct making {
	const struct saved_context *c;
	struct ibv_context *ctx;
	int		*fds;		/* of its event files */
	void		**object;		/* objects by handle */
};

static int event_fd(const struct making *m, uint32_t type, uint32_t handle)
{
	const struct saved_file *file = find_event_file(m->c, type, le32toh(handle));

	/* The first asynchronous file comes with the context. */
	if (!file || file->rec->is_default)
		return -1;
	return m->fds[file - m->c->files];
}

static void set_event_fds(const struct making *m, const struct rxe_migr_rec *rec,
			  struct ibv_restore_args *args)
{
	const struct rxe_migr_rec_cq *cq = (const void *)rec;
	const struct rxe_migr_rec_srq *srq = (const void *)rec;
	const struct rxe_migr_rec_qp *qp = (const void *)rec;

	args->comp_channel_fd = -1;
	args->async_fd = -1;
	switch (le16toh(rec->type)) {
	case RXE_MIGR_REC_CQ:
		args->comp_channel_fd = event_fd(m, RXE_MIGR_REC_COMP_CHANNEL,
						 cq->comp_channel);
		args->async_fd = event_fd(m, RXE_MIGR_REC_ASYNC_FILE, cq->async_file);
		break;
	case RXE_MIGR_REC_SRQ:
		args->async_fd = event_fd(m, RXE_MIGR_REC_ASYNC_FILE, srq->async_file);
		break;
	case RXE_MIGR_REC_QP:
		args->async_fd = event_fd(m, RXE_MIGR_REC_ASYNC_FILE, qp->async_file);
		break;
	}
}

static int create(const struct making *m, const struct rxe_migr_rec *rec,
		  const union ibv_gid *sgid, void **object)
{
	struct ibv_restore_args args = {
		.record = rec,
		.record_length = le32toh(rec->length),
	};
	int ret;

	if (sgid)
		args.sgid = *sgid;
	set_event_fds(m, rec, &args);
	ret = ibv_restore_object(m->ctx, object, le16toh(rec->type),
				 IBV_RESTORE_CREATE, &args, sizeof(args));
	return ret ? creating_failed(m->c, rec, ret) : 0;
}

/* Event files have no handle; their ordinals come from the order of creation. */
static int make_files(struct making *m)
{
	struct ibv_restored *restored;
	void *object;
	uint32_t i;

	for (i = 0; i < m->c->num_files; i++) {
		if (create(m, &m->c->files[i].rec->hdr, NULL, &object))
			return -1;
		restored = object;
		m->fds[i] = restored->fd;
		restored->fd = -1;
		free(restored);
	}
	return 0;
}

/*
 * The kernel gives out the lowest free handle. But objects can't be made by
 * rising handle: a QP may have a lower handle than its CQ, which it needs. So
 * placeholders take all handles first. Then one handle after the other is freed
 * for its object, and is the only free one.
 */
static int take_handles(struct making *m)
{
	struct ibv_restored *restored;
	uint32_t i;
	int ret;

	for (i = 0; i < m->c->num_handles; i++) {
		ret = ibv_restore_object(m->ctx, &m->object[i], 0,
					 IBV_RESTORE_PLACEHOLDER, NULL, 0);
		if (ret)
			return fail("%s: handle %u cannot be taken: %s",
				    m->c->here->name, i, strerror(ret));
		restored = m->object[i];
		if (restored->handle != i)
			return fail("%s: handle %u was given out in place of %u",
				    m->c->here->name, restored->handle, i);
	}
	return 0;
}

static int make_object(struct making *m, const struct saved_object *o)
{
	uint32_t handle = le32toh(o->rec->handle);
	int ret;

	ret = ibv_restore_object(m->ctx, &m->object[handle], 0, IBV_RESTORE_DESTROY,
				 NULL, 0);
	if (ret)
		return fail("%s: handle %u cannot be freed: %s", m->c->here->name,
			    handle, strerror(ret));
	return create(m, o->rec, &o->sgid, &m->object[handle]);
}

static int make_objects(struct making *m)
{
	/* An object needs only objects of the types before its own. */
	static const unsigned int order[] = {
		RXE_MIGR_REC_PD, RXE_MIGR_REC_CQ, RXE_MIGR_REC_SRQ,
		RXE_MIGR_REC_AH, RXE_MIGR_REC_QP, RXE_MIGR_REC_MW,
	};
	const struct saved_context *c = m->c;
	uint32_t i, j;

	for (i = 0; i < ARRAY_SIZE(order); i++)
		for (j = 0; j < c->num_objects; j++)
			if (le16toh(c->objects[j].rec->type) == order[i] &&
			    make_object(m, &c->objects[j]))
				return -1;
	return 0;
}

static int join_groups(const struct making *m)
{
	const struct records *records = &m->c->records;
	void *object;
	uint32_t i;

	for (i = 0; i < records->count; i++) {
		if (le16toh(records->rec[i]->type) != RXE_MIGR_REC_MCAST)
			continue;
		if (create(m, records->rec[i], NULL, &object))
			return -1;
		free(object);
	}
	return 0;
}

static int publish(struct making *m, struct shared_context *sc)
{
	const struct ibv_restored *restored;
	const struct saved_ring *ring;
	uint32_t i;
	int number;

	/* Each mapping gets this descriptor, and the kernel counts messages up to it: so it comes first. */
	sc->number = store_put(m->ctx->cmd_fd);
	if (sc->number < 0)
		return -1;
	for (i = 0; i < m->c->num_rings; i++) {
		ring = &m->c->rings[i];
		restored = m->object[ring->ring.handle];
		shared.rings[ring->slot] =
			restored->offset[ring->ring.which == RXE_MIGR_RING_RQ];
	}
	for (i = 0; i < m->c->num_files; i++) {
		number = store_put(m->fds[i]);
		if (number < 0)
			return -1;
		shared.files[m->c->files[i].slot] = number;
	}
	return 0;
}

static int make(const struct saved_context *c, struct shared_context *sc)
{
	struct making m = { .c = c };
	int ret = -1;
	uint32_t i;

	m.fds = malloc((c->num_files + 1) * sizeof(*m.fds));
	m.object = calloc(c->num_handles + 1, sizeof(*m.object));
	if (!m.fds || !m.object) {
		fail("no memory");
		goto free;
	}
	for (i = 0; i < c->num_files; i++)
		m.fds[i] = -1;
	m.ctx = open_context_file(c->here->name, &c->node, shared.session);
	if (!m.ctx)
		goto free;
	if (!make_files(&m) && !take_handles(&m) && !make_objects(&m) &&
	    !join_groups(&m))
		ret = publish(&m, sc);

	for (i = 0; i < c->num_handles; i++)
		free(m.object[i]);
	for (i = 0; i < c->num_files; i++)
		if (m.fds[i] >= 0)
			close(m.fds[i]);
	ibv_detach_context(m.ctx);
free:
	free(m.object);
	free(m.fds);
	return ret;
}

int make_context(uint32_t n)
{
	struct shared_context *sc = &shared.contexts[n];
	int ret;

	if (take_lock(&sc->lock, "another task does not get done with a context"))
		return -1;
	if (sc->state == NOT_MADE)
		sc->state = make(&saved.contexts[n], sc) ? FAILED : MADE;
	ret = sc->state == MADE ? 0 : -1;
	leave_lock(&sc->lock);
	return ret;
}

/* ------------------------------------------------------------------- using -- */

bool is_made(uint32_t n)
{
	return shared.contexts[n].state == MADE;
}

int open_made_context(uint32_t n)
{
	return store_get(shared.contexts[n].number);
}

int open_made_file(const struct saved_file *file)
{
	return store_get(shared.files[file->slot]);
}

uint64_t made_ring(const struct saved_ring *ring)
{
	return shared.rings[ring->slot];
}
