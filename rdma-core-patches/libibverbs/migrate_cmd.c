// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "migrate_cmd.h"
#include <rdma/ib_user_ioctl_verbs.h>

void migr_start(struct migr_cmd *cmd, uint16_t object, uint16_t method)
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->hdr.length = sizeof(cmd->hdr);
	cmd->hdr.object_id = object;
	cmd->hdr.method_id = method;
	cmd->hdr.driver_id = RDMA_DRIVER_RXE;
}

static struct ib_uverbs_attr *add(struct migr_cmd *cmd, uint16_t id,
				  uint16_t len)
{
	struct ib_uverbs_attr *attr = &cmd->hdr.attrs[cmd->hdr.num_attrs];

	assert(cmd->hdr.num_attrs < MIGR_MAX_ATTRS);
	cmd->hdr.num_attrs++;
	cmd->hdr.length += sizeof(*attr);
	attr->attr_id = id;
	attr->len = len;
	attr->flags = UVERBS_ATTR_F_MANDATORY;
	return attr;
}

void migr_in(struct migr_cmd *cmd, uint16_t id, const void *data, uint16_t len)
{
	struct ib_uverbs_attr *attr = add(cmd, id, len);

	if (len <= sizeof(attr->data))
		memcpy(&attr->data, data, len);
	else
		attr->data = (uintptr_t)data;
}

void migr_out(struct migr_cmd *cmd, uint16_t id, void *data, uint16_t len)
{
	add(cmd, id, len)->data = (uintptr_t)data;
}

void migr_in32(struct migr_cmd *cmd, uint16_t id, uint32_t value)
{
	migr_in(cmd, id, &value, sizeof(value));
}

void migr_in64(struct migr_cmd *cmd, uint16_t id, uint64_t value)
{
	migr_in(cmd, id, &value, sizeof(value));
}

void migr_object(struct migr_cmd *cmd, uint16_t id, int64_t value)
{
	add(cmd, id, 0)->data_s64 = value;
}

int64_t migr_new_object(const struct migr_cmd *cmd)
{
	return cmd->hdr.attrs[0].data_s64;
}

int migr_run(const struct ibv_context *ctx, struct migr_cmd *cmd)
{
	if (!ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &cmd->hdr))
		return 0;
	/* The driver does not know the method: it is rxe, but can't migrate. */
	return errno == EPROTONOSUPPORT ? EOPNOTSUPP : errno;
}

int migr_write(const struct ibv_context *ctx, uint32_t command,
	       struct migr_data req, struct migr_data resp,
	       struct migr_data uhw)
{
	struct migr_cmd cmd;

	migr_start(&cmd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	migr_in64(&cmd, UVERBS_ATTR_WRITE_CMD, command);
	migr_in(&cmd, UVERBS_ATTR_CORE_IN, req.data, req.length);
	if (resp.data)
		migr_out(&cmd, UVERBS_ATTR_CORE_OUT, resp.data, resp.length);
	if (uhw.data)
		migr_out(&cmd, UVERBS_ATTR_UHW_OUT, uhw.data, uhw.length);
	return migr_run(ctx, &cmd);
}

static int run_private(const struct ibv_context *ctx, struct migr_cmd *cmd,
		       const void *in, uint16_t in_len, void *resp,
		       uint16_t resp_len)
{
	if (in)
		migr_in(cmd, RXE_ATTR_MIGR_IN, in, in_len);
	if (resp)
		migr_out(cmd, RXE_ATTR_MIGR_RESP, resp, resp_len);
	return migr_run(ctx, cmd);
}

int migr_driver(const struct ibv_context *ctx, uint16_t method,
		const void *in, uint16_t in_len, void *resp, uint16_t resp_len)
{
	struct migr_cmd cmd;

	migr_start(&cmd, RXE_OBJECT_MIGR, method);
	return run_private(ctx, &cmd, in, in_len, resp, resp_len);
}

int migr_device(const struct ibv_context *ctx, uint16_t method,
		const void *in, uint16_t in_len, void *resp, uint16_t resp_len)
{
	struct migr_cmd cmd;

	migr_start(&cmd, RXE_OBJECT_MIGR_DEVICE, method);
	return run_private(ctx, &cmd, in, in_len, resp, resp_len);
}

int migr_cm(const struct ibv_context *ctx, uint16_t method,
	    const void *in, uint16_t in_len, void *resp, uint16_t resp_len)
{
	struct migr_cmd cmd;

	migr_start(&cmd, RXE_OBJECT_MIGR_CM, method);
	return run_private(ctx, &cmd, in, in_len, resp, resp_len);
}

int migr_hint(const struct ibv_context *ctx, struct rxe_migr_hint hint)
{
	return migr_driver(ctx, RXE_METHOD_MIGR_HINT, &hint, sizeof(hint), NULL,
			   0);
}

/*
 * The driver rounds a size that it is asked for up to a power of two less one.
 * It may report a size that is more than it lets anybody ask for. Half of that
 * size, rounded up, gives the same ring.
 */
uint32_t migr_ring_request(uint32_t entries)
{
	return entries & (entries + 1) ? entries : entries - entries / 2;
}

/* ------------------------------------------------------------------ GIDs -- */

/* As many as an attribute holds: more than any rxe device has. */
#define MAX_GIDS ((int)(UINT16_MAX / sizeof(struct ibv_gid_entry)))

static int read_gids(const struct ibv_context *ctx, int *count,
		     struct ibv_gid_entry *entries, int max)
{
	struct migr_cmd cmd;
	uint64_t n;
	int ret;

	if (max < 0)
		return EINVAL;
	if (max > MAX_GIDS)
		max = MAX_GIDS;
	migr_start(&cmd, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE);
	migr_in64(&cmd, UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE,
		  sizeof(*entries));
	migr_out(&cmd, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entries,
		 max * sizeof(*entries));
	migr_out(&cmd, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &n,
		 sizeof(n));
	ret = migr_run(ctx, &cmd);
	if (!ret)
		*count = n;
	return ret;
}

int ibv_query_device_gids(struct ibv_context *ctx, int *count,
			  struct ibv_gid_entry *entries, int max)
{
	return read_gids(ctx, count, entries, max);
}

const uint8_t *migr_choose_gid(const union ibv_gid *gid,
			       const uint8_t *recorded)
{
	static const union ibv_gid zero;

	return memcmp(gid, &zero, sizeof(zero)) ? gid->raw : recorded;
}

int migr_find_gid(const struct ibv_context *ctx, uint8_t port,
		  const union ibv_gid *gid, const uint8_t *recorded,
		  uint8_t *index)
{
	const uint8_t *wanted = migr_choose_gid(gid, recorded);
	struct ibv_gid_entry *table;
	int i, count, ret;

	table = malloc(MAX_GIDS * sizeof(*table));
	if (!table)
		return ENOMEM;
	ret = read_gids(ctx, &count, table, MAX_GIDS);
	if (ret)
		goto out;

	ret = ENODEV;
	for (i = 0; i < count; i++) {
		if (table[i].port_num != port || table[i].gid_index > UINT8_MAX ||
		    table[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(table[i].gid.raw, wanted, sizeof(table[i].gid.raw)))
			continue;
		*index = table[i].gid_index;
		ret = 0;
		break;
	}
out:
	free(table);
	return ret;
}
