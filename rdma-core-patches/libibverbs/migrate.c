// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Contexts: open, attach, stop, dump, ask. For a restore: migrate_restore.c. */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "migrate_cmd.h"

#define SYSFS_CLASS "/sys/class/infiniband_verbs"

/* ------------------------------------------------------------ checkpoint -- */

static int dump(struct ibv_context *ctx, int *count, void *buf, size_t length,
		uint32_t flags)
{
	struct rxe_migr_buf in = {
		.addr = (uintptr_t)buf,
		.length = buf ? length : 0,
		.flags = flags,
	};
	struct rxe_migr_dump resp = {};
	uint64_t result;
	size_t rest;
	int ret;

	ret = migr_driver(ctx, RXE_METHOD_MIGR_DUMP, &in, sizeof(in), &resp,
			  sizeof(resp));
	if (ret && ret != ENOSPC)
		return ret;
	if (!ret && resp.length < length) {	/* zeros end it: see is_rest() */
		rest = length - resp.length;
		memset((char *)buf + resp.length, 0,
		       rest < sizeof(struct rxe_migr_rec) ?
		       rest : sizeof(struct rxe_migr_rec));
	}
	result = ret ? resp.length : resp.count;
	if (result > INT_MAX)
		return EOVERFLOW;
	*count = result;
	return ret;
}

int ibv_dump_context(struct ibv_context *ctx, int *count, void *buf,
		     size_t length)
{
	return dump(ctx, count, buf, length, RXE_MIGR_DUMP_STOP);
}

int ibv_inspect_context(struct ibv_context *ctx, int *count, void *buf,
			size_t length)
{
	return dump(ctx, count, buf, length, 0);
}

int ibv_abort_context(struct ibv_context *ctx)
{
	return migr_driver(ctx, RXE_METHOD_MIGR_ABORT, NULL, 0, NULL, 0);
}

int ibv_abort_older_dump(struct ibv_context *ctx, uint64_t since)
{
	struct migr_cmd cmd;

	migr_start(&cmd, RXE_OBJECT_MIGR, RXE_METHOD_MIGR_ABORT);
	migr_in64(&cmd, RXE_ATTR_MIGR_IN, since);
	/* a driver that does not know the attribute lets the context go on */
	cmd.hdr.attrs[0].flags = 0;
	return migr_run(ctx, &cmd);
}

/* Is this the end of a dump: no bytes, or the zeros that dump() writes? */
static int is_rest(const char *at, size_t length)
{
	static const struct rxe_migr_rec none;

	return !memcmp(at, &none, length < sizeof(none) ? length : sizeof(none));
}

const struct rxe_migr_rec *ibv_next_record(const void *buf, size_t length,
					   const struct rxe_migr_rec *rec)
{
	const char *at = buf;

	/* rec was returned before, so it ends within the dump. */
	if (rec)
		at = (const char *)rec + le32toh(rec->length);
	length -= at - (const char *)buf;
	errno = 0;
	if (is_rest(at, length))
		return NULL;
	rec = (const void *)at;
	if (length < sizeof(*rec) || le32toh(rec->length) < sizeof(*rec) ||
	    le32toh(rec->length) > length) {
		errno = EBADMSG;
		return NULL;
	}
	return rec;
}

/* --------------------------------------------------------------- queries -- */

int ibv_query_migration(struct ibv_context *ctx, struct rxe_migr_query *query)
{
	return migr_driver(ctx, RXE_METHOD_MIGR_QUERY, NULL, 0, query,
			   sizeof(*query));
}

static int query_and(struct ibv_context *ctx, uint32_t flags,
		     struct rxe_migr_query *query)
{
	return migr_driver(ctx, RXE_METHOD_MIGR_QUERY, &flags, sizeof(flags),
			   query, sizeof(*query));
}

int ibv_ask_peers(struct ibv_context *ctx, struct rxe_migr_query *query)
{
	return query_and(ctx, RXE_MIGR_QUERY_ASK, query);
}

int ibv_ask_peers_anew(struct ibv_context *ctx, struct rxe_migr_query *query)
{
	return query_and(ctx, RXE_MIGR_QUERY_ASK_ANEW, query);
}

int ibv_renew_stop(struct ibv_context *ctx, struct rxe_migr_query *query)
{
	return query_and(ctx, RXE_MIGR_QUERY_RENEW, query);
}

int ibv_query_event_fd(struct ibv_context *ctx, int fd,
		       struct rxe_migr_event_fd *event_fd)
{
	int32_t in = fd;

	return migr_driver(ctx, RXE_METHOD_MIGR_EVENT_FD, &in, sizeof(in),
			   event_fd, sizeof(*event_fd));
}

/* List what the whole device has of a kind. Each entry has size bytes. */
static int query_device(struct ibv_context *ctx, uint16_t method, int *count,
			void *entries, size_t size, int max)
{
	struct rxe_migr_buf in = {
		.addr = (uintptr_t)entries,
		.length = entries && max > 0 ? max * size : 0,
	};
	struct rxe_migr_dump resp = {};
	int ret;

	ret = migr_device(ctx, method, &in, sizeof(in), &resp, sizeof(resp));
	if (ret && ret != ENOSPC)
		return ret;
	*count = resp.length / size;
	return ret;
}

int ibv_query_device_migration(struct ibv_context *ctx, int *count,
			       struct rxe_migr_status *status, int max)
{
	return query_device(ctx, RXE_METHOD_MIGR_STATUS, count, status,
			    sizeof(*status), max);
}

int ibv_query_device_calls(struct ibv_context *ctx, int *count,
			   struct rxe_migr_call *calls, int max)
{
	return query_device(ctx, RXE_METHOD_MIGR_CALLS, count, calls,
			    sizeof(*calls), max);
}

int ibv_query_taken(struct ibv_context *ctx, uint32_t type, uint32_t number)
{
	const struct rxe_migr_hint in = {
		.type = type, .index = number, .key = number,
	};

	return migr_device(ctx, RXE_METHOD_MIGR_TAKEN, &in, sizeof(in), NULL, 0);
}

int ibv_migration_key(struct ibv_context *ctx, const struct rxe_migr_key *key,
		      uint64_t *fingerprint)
{
	return migr_device(ctx, RXE_METHOD_MIGR_KEY, key, sizeof(*key),
			   fingerprint, sizeof(*fingerprint));
}

/* --------------------------------------------------------------- rdma_cm -- */

int ibv_query_cm_ids(struct ibv_context *ctx, int fd, uint32_t flags,
		     int *count, struct rxe_migr_cm_id *ids, int max)
{
	struct rxe_migr_cm_list in = {
		.fd = fd,
		.flags = flags,
		.addr = (uintptr_t)ids,
		.length = ids && max > 0 ? max * sizeof(*ids) : 0,
	};
	struct rxe_migr_dump resp = {};
	int ret;

	ret = migr_cm(ctx, RXE_METHOD_MIGR_CM_LIST, &in, sizeof(in), &resp,
		      sizeof(resp));
	if (!ret || ret == ENOSPC)
		*count = resp.count;
	return ret;
}

static sa_family_t cm_family(const struct rxe_migr_cm_id *id)
{
	sa_family_t family;

	memcpy(&family, id->src_addr, sizeof(family));
	return family;
}

const char *ibv_cm_id_refusal(const struct rxe_migr_cm_id *id)
{
	if (id->flags & RXE_MIGR_CM_CLOSED)
		return "its device was removed: destroy it";
	if (id->flags & RXE_MIGR_CM_MULTICAST)
		return "it has joined a multicast group by rdma_join_multicast(), which cannot be moved: leave it";
	switch (id->state) {
	case RXE_MIGR_CM_BUSY:
		return "it is just being connected, disconnected or resolved: " IBV_TRY_AGAIN;
	case RXE_MIGR_CM_DATAGRAM:
		return "connections of UD made by librdmacm cannot be moved: destroy it";
	case RXE_MIGR_CM_FOREIGN:
		return "its device has not Godwit's driver";
	case RXE_MIGR_CM_STRAY:
		return "it is connected, but its queue pair is destroyed: disconnect it";
	case RXE_MIGR_CM_STAND_IN:
		return "it was connected with the number of a queue pair that is not connected itself, as UCX does it, which cannot be moved: disconnect it";
	}
	if (id->state > RXE_MIGR_CM_STAND_IN)
		return "its driver knows a state that is not known here";
	/* An id that has ended is not bound again. */
	if (cm_family(id) == AF_IB && id->state != RXE_MIGR_CM_ENDED)
		return "it has an address of InfiniBand (AF_IB), which cannot be moved: bind or connect it by an IP address";
	if (id->flags & RXE_MIGR_CM_REQUESTED)
		return "a connection is asked for that the process has not read of yet: " IBV_TRY_AGAIN;
	return NULL;
}

int ibv_expect_cm_connect(struct ibv_context *ctx,
			  const struct rxe_migr_cm_connect *connect)
{
	return migr_cm(ctx, RXE_METHOD_MIGR_CM_CONNECT, connect,
		       sizeof(*connect), NULL, 0);
}

int ibv_refill_cm_id(struct ibv_context *ctx, int fd, uint32_t id,
		     uint32_t events_reported)
{
	struct rxe_migr_cm_refill in = {
		.fd = fd, .id = id, .events_reported = events_reported,
	};

	return migr_cm(ctx, RXE_METHOD_MIGR_CM_REFILL, &in, sizeof(in), NULL, 0);
}

int ibv_query_cm_events(struct ibv_context *ctx, int fd, int *count,
			struct rxe_migr_cm_event *events, int max)
{
	struct rxe_migr_cm_list in = {
		.fd = fd,
		.addr = (uintptr_t)events,
		.length = events && max > 0 ? max * sizeof(*events) : 0,
	};
	struct rxe_migr_dump resp = {};
	int ret;

	ret = migr_cm(ctx, RXE_METHOD_MIGR_CM_EVENTS, &in, sizeof(in), &resp,
		      sizeof(resp));
	if (!ret || ret == ENOSPC)
		*count = resp.count;
	return ret;
}

int ibv_report_cm_event(struct ibv_context *ctx, int fd,
			const struct rxe_migr_cm_event *event)
{
	struct rxe_migr_cm_report in = { .fd = fd, .event = *event };

	return migr_cm(ctx, RXE_METHOD_MIGR_CM_REPORT, &in, sizeof(in), NULL, 0);
}

int ibv_cm_device(struct ibv_context *ctx, int fd,
		  struct rxe_migr_cm_device *known,
		  const struct rxe_migr_cm_device *set)
{
	struct rxe_migr_cm_device in = { .fd = fd };

	if (set) {
		in.flags = RXE_MIGR_CM_DEVICE_SET;
		in.index = set->index;
		memcpy(in.guid, set->guid, sizeof(in.guid));
	}
	return migr_cm(ctx, RXE_METHOD_MIGR_CM_DEVICE, &in, sizeof(in), known,
		       known ? sizeof(*known) : 0);
}

int ibv_adopt_cm_file(struct ibv_context *ctx, int fd, int pid)
{
	struct rxe_migr_cm_adopt in = { .fd = fd, .pid = pid };

	return migr_cm(ctx, RXE_METHOD_MIGR_CM_ADOPT, &in, sizeof(in), NULL, 0);
}

/* -------------------------------------------------------------- contexts -- */

struct ibv_context *ibv_attach_context(int cmd_fd)
{
	struct ibv_context *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->cmd_fd = cmd_fd;
	ctx->async_fd = -1;
	return ctx;
}

void ibv_detach_context(struct ibv_context *ctx)
{
	if (!ctx)
		return;
	if (ctx->async_fd >= 0)
		close(ctx->async_fd);
	if (ctx->cmd_fd >= 0)
		close(ctx->cmd_fd);
	free(ctx);
}

/* The first line of a uverbs device's file in sysfs; false: there is none. */
static int read_attr(const char *uverbs, const char *name, char *line, int size)
{
	char path[PATH_MAX];
	FILE *file;
	int ok;

	if (snprintf(path, sizeof(path), SYSFS_CLASS "/%s/%s", uverbs, name) >=
	    (int)sizeof(path))
		return 0;
	file = fopen(path, "re");
	if (!file)
		return 0;
	ok = !!fgets(line, size, file);
	fclose(file);
	if (ok)
		line[strcspn(line, "\n")] = '\0';
	return ok;
}

/* Open device file uverbsN, if its number is the one in sysfs; -1 and errno. */
static int open_uverbs(const char *uverbs)
{
	unsigned int major, minor;
	char path[PATH_MAX], dev[32];
	struct stat st;
	int fd;

	if (snprintf(path, sizeof(path), "/dev/infiniband/%s", uverbs) >=
		    (int)sizeof(path) ||
	    !read_attr(uverbs, "dev", dev, sizeof(dev)) ||
	    sscanf(dev, "%u:%u", &major, &minor) != 2) {
		errno = ENODEV;
		return -1;
	}
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || !S_ISCHR(st.st_mode) ||
	    st.st_rdev != makedev(major, minor)) {
		close(fd);
		errno = ENODEV;
		return -1;
	}
	return fd;
}

static int open_device(const char *device)
{
	char ibdev[NAME_MAX + 1];
	struct dirent *entry;
	int fd = -1, saved;
	DIR *dir;

	dir = opendir(SYSFS_CLASS);
	if (!dir)
		return -1;
	while ((entry = readdir(dir)))
		if (read_attr(entry->d_name, "ibdev", ibdev, sizeof(ibdev)) &&
		    !strcmp(ibdev, device))
			break;
	if (entry)
		fd = open_uverbs(entry->d_name);
	else
		errno = ENODEV;
	saved = errno;
	closedir(dir);
	errno = saved;
	return fd;
}

static int get_context(struct ibv_context *ctx)
{
	uint32_t comp_vectors;
	struct migr_cmd cmd;
	int ret;

	migr_start(&cmd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	migr_out(&cmd, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &comp_vectors,
		 sizeof(comp_vectors));
	ret = migr_run(ctx, &cmd);
	if (ret)	/* EINVAL: the device is another driver's */
		return ret == EINVAL ? EOPNOTSUPP : ret;
	ctx->num_comp_vectors = comp_vectors;

	migr_start(&cmd, UVERBS_OBJECT_ASYNC_EVENT,
		   UVERBS_METHOD_ASYNC_EVENT_ALLOC);
	migr_object(&cmd, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0);
	ret = migr_run(ctx, &cmd);
	if (!ret)
		ctx->async_fd = migr_new_object(&cmd);
	return ret;
}

struct ibv_context *ibv_begin_restore_context(int cmd_fd, uint64_t session)
{
	struct rxe_migr_begin begin = { .session = session, .fd = cmd_fd };
	struct ibv_context *ctx;
	int ret;

	ctx = ibv_attach_context(cmd_fd);
	if (!ctx) {
		errno = ENOMEM;
		return NULL;
	}
	ret = get_context(ctx);
	if (!ret)
		ret = migr_driver(ctx, RXE_METHOD_MIGR_BEGIN, &begin,
				  sizeof(begin), NULL, 0);
	if (ret) {
		ctx->cmd_fd = -1;	/* it stays the caller's */
		ibv_detach_context(ctx);
		errno = ret;
		return NULL;
	}
	return ctx;
}

struct ibv_context *ibv_open_restore_context(const char *device,
					     uint64_t session)
{
	struct ibv_context *ctx;
	int fd, saved;

	fd = open_device(device);
	if (fd < 0)
		return NULL;
	ctx = ibv_begin_restore_context(fd, session);
	if (!ctx) {
		saved = errno;
		close(fd);
		errno = saved;
	}
	return ctx;
}
