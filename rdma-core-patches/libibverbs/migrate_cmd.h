/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the files of this library share: uverbs commands, which are put together
 * on the stack, and GIDs. libibverbs has such commands, but keeps them to
 * itself, and ties the objects that it makes to structures of its own. The
 * objects that are restored here belong to another process.
 */
#ifndef INFINIBAND_MIGRATE_CMD_H
#define INFINIBAND_MIGRATE_CMD_H

#include <stdint.h>
#include <stddef.h>
#include <infiniband/migrate.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define MIGR_MAX_ATTRS 16

struct migr_cmd {
	union {
		struct ib_uverbs_ioctl_hdr hdr;
		char room[sizeof(struct ib_uverbs_ioctl_hdr) +
			  MIGR_MAX_ATTRS * sizeof(struct ib_uverbs_attr)];
	};
};

#pragma GCC visibility push(hidden)

void migr_start(struct migr_cmd *cmd, uint16_t object, uint16_t method);

/* data must live until migr_run(), unless it has at most 8 bytes. */
void migr_in(struct migr_cmd *cmd, uint16_t id, const void *data, uint16_t len);
void migr_in32(struct migr_cmd *cmd, uint16_t id, uint32_t value);
void migr_in64(struct migr_cmd *cmd, uint16_t id, uint64_t value);
void migr_out(struct migr_cmd *cmd, uint16_t id, void *data, uint16_t len);

/* A handle or a descriptor. For a new object value is ignored. */
void migr_object(struct migr_cmd *cmd, uint16_t id, int64_t value);

/* 0 or an errno value. */
int migr_run(const struct ibv_context *ctx, struct migr_cmd *cmd);

/* The handle of the new object that was the command's first attribute. */
int64_t migr_new_object(const struct migr_cmd *cmd);

struct migr_data {
	void	 *data;
	uint16_t  length;
};

/* A command that has no ioctl method of its own; uhw is the driver's answer. */
int migr_write(const struct ibv_context *ctx, uint32_t command,
	       struct migr_data req, struct migr_data resp,
	       struct migr_data uhw);

/* The driver's own methods, of the context, device or rdma_cm; in, resp may be NULL. */
int migr_driver(const struct ibv_context *ctx, uint16_t method,
		const void *in, uint16_t in_len, void *resp, uint16_t resp_len);
int migr_device(const struct ibv_context *ctx, uint16_t method,
		const void *in, uint16_t in_len, void *resp, uint16_t resp_len);
int migr_cm(const struct ibv_context *ctx, uint16_t method,
	    const void *in, uint16_t in_len, void *resp, uint16_t resp_len);

int migr_hint(const struct ibv_context *ctx, struct rxe_migr_hint hint);

/* Find gid, or recorded if gid is zero, in the device's table: its index. */
int migr_find_gid(const struct ibv_context *ctx, uint8_t port,
		  const union ibv_gid *gid, const uint8_t *recorded,
		  uint8_t *index);

/* gid, or recorded if gid is zero. */
const uint8_t *migr_choose_gid(const union ibv_gid *gid,
			       const uint8_t *recorded);

/* The size to ask for, to get a ring of the size that the driver reported. */
uint32_t migr_ring_request(uint32_t entries);

/* migrate_qp.c: a QP's functions for the table in migrate_restore.c */
typedef int migr_create_fn(struct ibv_context *ctx, const void *record,
			   const struct ibv_restore_args *args,
			   struct ibv_restored *restored);

migr_create_fn migr_create_qp;
migr_create_fn migr_modify_qp;	/* from RESET to the state of its record */

#pragma GCC visibility pop

#endif /* INFINIBAND_MIGRATE_CMD_H */
