// SPDX-License-Identifier: GPL-2.0
/*
 * Files of librdmacm: their ids, their unread events, and the GUIDs and indices
 * by which their processes know devices. restore_cm.c makes these files again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dump.h"

#define CM_TRIES	100	/* to read ids and events that do not change meanwhile */

struct cm_file {
	int	fd;		/* ours */
	pid_t	pid;		/* the first task that has it open */
};

static struct {
	struct ibv_context *ctx;	/* of any device, to call the driver */
	struct cm_file	*files;		/* in the order of kcmp(2) */
	uint32_t	num_files;
	bool		has_ids;	/* at least one of them has */
} cm;

/*
 * The place of an open file in cm.files, or where it belongs there. *is_there: it
 * is one of them. (An rsocket has a file of its own, so there may be thousands.)
 */
static uint32_t cm_place(int fd, bool *is_there)
{
	uint32_t from = 0, to = cm.num_files, middle;
	int order;

	*is_there = false;
	while (from < to && !*is_there) {
		middle = from + (to - from) / 2;
		order = proc_order_files(getpid(), cm.files[middle].fd, getpid(), fd);
		*is_there = !order;
		if (order < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return to;
}

/* Read a file's ids, which the caller frees. Returns their number, or -1. */
static int list_ids(pid_t pid, int fd, uint32_t flags,
		    struct rxe_migr_cm_id **ids)
{
	int count = 0, room, ret;

	*ids = NULL;
	if (!cm.ctx)
		cm.ctx = open_any_device();
	if (!cm.ctx && errno == ENOKEY)
		return fail(NO_KEY);
	if (!cm.ctx)
		return fail("process %d has " RDMA_CM " open: no device here has Godwit's driver, which could tell whether it has connections",
			    pid);
	do {
		room = count;
		free(*ids);
		*ids = calloc(room + 1, sizeof(**ids));
		if (!*ids)
			return fail("no memory");
		ret = ibv_query_cm_ids(cm.ctx, fd, flags, &count, *ids, room);
	} while (ret == ENOSPC);
	return ret ? fail("process %d, " RDMA_CM ": the driver does not tell its ids: %s",
			  pid, strerror(ret)) : count;
}

static int check_ids(pid_t pid, const struct rxe_migr_cm_id *ids, int count)
{
	const char *why;
	int i;

	for (i = 0; i < count; i++) {
		why = ibv_cm_id_refusal(&ids[i]);
		if (why)
			return fail("process %d, id %u of librdmacm: %s", pid,
				    ids[i].id, why);
	}
	return 0;
}

/* The tasks are frozen, so the file gets no more ids. */
int look_at_cm(pid_t pid, int fd)
{
	struct rxe_migr_cm_id *ids;
	struct cm_file *file;
	int mine, count;
	uint32_t place;
	bool is_there;

	mine = proc_get_fd(pid, fd);
	if (mine < 0)
		return fail("file %d of process %d cannot be opened: %m", fd, pid);
	place = cm_place(mine, &is_there);
	if (is_there) {
		close(mine);
		return 0;
	}
	count = list_ids(pid, mine, 0, &ids);
	file = append(&cm.files, sizeof(*file), cm.num_files);
	if (count < 0 || !file || check_ids(pid, ids, count)) {
		free(ids);
		close(mine);
		return -1;
	}
	free(ids);
	file = &cm.files[place];
	memmove(file + 1, file, (cm.num_files - place) * sizeof(*file));
	file->fd = mine;
	file->pid = pid;
	cm.num_files++;
	cm.has_ids |= count > 0;
	return 0;
}

/* The tasks are frozen, so no file gets its first id any more. */
void note_needs(RdmaInventoryEntry *inventory)
{
	static char *needs[] = { NEEDS_RDMA_CM, NEEDS_CM_ID };

	inventory->needs = needs;
	inventory->n_needs = !cm.num_files ? 0 : 1 + cm.has_ids;
}

static bool is_connected(uint32_t state)
{
	return state == RXE_MIGR_CM_CONNECTED || state == RXE_MIGR_CM_LEFT;
}

static int save_connection(RdmaCmIdEntry *entry, const struct rxe_migr_cm_id *id)
{
	int context = find_qp_context(id->device, id->qp_num);

	if (context < 0)
		return fail("id %u of librdmacm: " WHY_QP_ELSEWHERE, id->id, id->qp_num);
	entry->has_context = entry->has_qp_num = true;
	entry->context = context;
	entry->qp_num = id->qp_num;
	entry->has_comm_id = entry->has_remote_comm_id = true;
	entry->comm_id = id->comm_id;
	entry->remote_comm_id = id->remote_comm_id;
	return 0;
}

static int save_bytes(ProtobufCBinaryData *to, const void *from, size_t length)
{
	to->data = malloc(length);
	if (!to->data)
		return fail("no memory");
	memcpy(to->data, from, length);
	to->len = length;
	return 0;
}

static int save_id(RdmaCmFileEntry *file, const struct rxe_migr_cm_id *id)
{
	RdmaCmIdEntry *entry;

	entry = append_message(&file->ids, &file->n_ids,
			       &rdma_cm_id_entry__descriptor);
	if (!entry)
		return -1;
	entry->id = id->id;
	entry->flags = id->flags;
	entry->uid = id->uid;
	entry->state = id->state;
	entry->ps = id->ps;
	entry->qp_type = id->qp_type;
	entry->events_reported = id->events_reported;
	entry->backlog = id->backlog;
	entry->tos = id->tos;
	entry->ack_timeout = id->ack_timeout;
	if (id->device[0]) {
		entry->device = strndup(id->device, sizeof(id->device));
		if (!entry->device)
			return fail("no memory");
	}
	if (save_bytes(&entry->src_addr, id->src_addr, sizeof(id->src_addr)) ||
	    save_bytes(&entry->dst_addr, id->dst_addr, sizeof(id->dst_addr)))
		return -1;
	return is_connected(id->state) ? save_connection(entry, id) : 0;
}

/* Read a file's unread events, which the caller frees. Returns their number, or -1. */
static int list_events(const struct cm_file *file,
		       struct rxe_migr_cm_event **events)
{
	int ret, count = 0, room;

	*events = NULL;
	do {
		room = count;
		free(*events);
		*events = calloc(room + 1, sizeof(**events));
		if (!*events)
			return fail("no memory");
		ret = ibv_query_cm_events(cm.ctx, file->fd, &count, *events,
					  room);
	} while (ret == ENOSPC);
	return ret ? fail("process %d, " RDMA_CM ": the driver does not tell its events: %s",
			  file->pid, strerror(ret)) : count;
}

struct cm_look {
	struct rxe_migr_cm_id *ids;
	struct rxe_migr_cm_event *events;
	int num_ids, num_events;
};

/* 1: they have; 0: they have not; or -1. */
static int ids_changed(const struct cm_look *look, const struct cm_file *file)
{
	struct rxe_migr_cm_id *ids;
	int count = list_ids(file->pid, file->fd, RXE_MIGR_CM_LIST_STOP, &ids);
	int ret = count < 0 ? -1 : count != look->num_ids ||
		  memcmp(ids, look->ids, count * sizeof(*ids));

	free(ids);
	return ret;
}

/*
 * All queue pairs are stopped; from now on their CM connections are silent. What the
 * peer said before may still be on its way through the CM, so ids and events count only
 * if the ids were the same before and after the events.
 */
static int look_at_file(const struct cm_file *file, struct cm_look *look)
{
	int tries = CM_TRIES, ret;

	do {
		free(look->ids);
		free(look->events);
		look->events = NULL;
		look->num_ids = list_ids(file->pid, file->fd,
					 RXE_MIGR_CM_LIST_STOP, &look->ids);
		if (look->num_ids < 0 ||
		    check_ids(file->pid, look->ids, look->num_ids))
			return -1;
		look->num_events = list_events(file, &look->events);
		if (look->num_events < 0)
			return -1;
		ret = ids_changed(look, file);
		if (ret <= 0)
			return ret;
	} while (--tries);
	return fail("process %d, " RDMA_CM ": its ids change while the process is frozen",
		    file->pid);
}

static int save_event(RdmaCmFileEntry *entry,
		      const struct rxe_migr_cm_event *event)
{
	ProtobufCBinaryData *slot;

	slot = append(&entry->events, sizeof(*slot), entry->n_events);
	if (!slot || save_bytes(slot, event, sizeof(*event)))
		return -1;
	entry->n_events++;
	return 0;
}

static int save_ids_and_events(const struct cm_file *file,
			       RdmaCmFileEntry *entry)
{
	struct cm_look look = { 0 };
	int i, ret = look_at_file(file, &look);

	for (i = 0; !ret && i < look.num_ids; i++)
		ret = save_id(entry, &look.ids[i]);
	for (i = 0; !ret && i < look.num_events; i++)
		ret = save_event(entry, &look.events[i]);
	free(look.ids);
	free(look.events);
	return ret;
}

static bool has_device(const RdmaCmFileEntry *entry, const char *device)
{
	size_t i;

	for (i = 0; i < entry->n_devices; i++)
		if (!strcmp(entry->devices[i]->device, device))
			return true;
	return false;
}

/*
 * The process may have moved before, and then knows its devices by values of
 * another host. The driver knows these values.
 */
static int save_devices(const struct cm_file *file, RdmaCmFileEntry *entry)
{
	struct rxe_migr_cm_device known;
	RdmaCmDeviceEntry *device;
	struct ibv_context *ctx;
	const char *name;
	uint32_t n;
	int ret;

	for (n = 0; (ctx = dumped_context(n, &name)); n++) {
		if (has_device(entry, name))
			continue;
		ret = ibv_cm_device(ctx, file->fd, &known, NULL);
		if (ret)
			return fail("%s: the driver does not tell by what GUID it is known: %s",
				    name, strerror(ret));
		device = append_message(&entry->devices, &entry->n_devices,
					&rdma_cm_device_entry__descriptor);
		if (!device || save_bytes(&device->guid, known.guid,
					  sizeof(known.guid)))
			return -1;
		device->device = strdup(name);
		if (!device->device)
			return fail("no memory");
		device->index = known.index;
	}
	return 0;
}

int dump_cm_file(int fd, int id, RdmaCmFileEntry *entry)
{
	const struct cm_file *file;
	bool is_there;
	int flags;

	file = &cm.files[cm_place(fd, &is_there)];
	if (!is_there)
		return fail(RDMA_CM ": a file turned up after all were looked at");
	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return fail("the flags of a file cannot be read: %m");
	entry->id = id;
	entry->flags = flags;
	entry->pid = inner_pid(file->pid);
	return save_devices(file, entry) || save_ids_and_events(file, entry) ?
		-1 : 0;
}

void end_cm(void)
{
	uint32_t i;

	for (i = 0; i < cm.num_files; i++)
		close(cm.files[i].fd);
	cm.num_files = 0;
	ibv_detach_context(cm.ctx);
	cm.ctx = NULL;
}
