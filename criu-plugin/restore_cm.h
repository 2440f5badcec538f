/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ids of librdmacm, for two files: restore_cm_id.c decides what becomes of an
 * id, and restore_cm_command.c gives the kernel its commands.
 */
#ifndef RDMA_RESTORE_CM_H
#define RDMA_RESTORE_CM_H

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include "restore.h"

union address {
	struct sockaddr	sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct __kernel_sockaddr_storage kernel;
};

size_t address_size(const union address *a);	/* 0: unknown family */

/* These two return 0 or errno. */
int cm_create_id(int fd, const RdmaCmIdEntry *id, uint32_t *number);
int cm_destroy_id(int fd, uint32_t number);

int cm_set_options(int fd, const RdmaCmIdEntry *id);
int cm_bind(int fd, const RdmaCmIdEntry *id, const union address *at);
int cm_listen(int fd, const RdmaCmIdEntry *id);
int cm_resolve_addr(int fd, const RdmaCmIdEntry *id, const union address *src,
		    const union address *dst);
int cm_resolve_route(int fd, const RdmaCmIdEntry *id);

/* The driver answers this REQ in the peer's place. It knows the REQ by the cookie. */
int cm_connect(int fd, const RdmaCmIdEntry *id, const uint8_t cookie[8]);

#endif /* RDMA_RESTORE_CM_H */
