// SPDX-License-Identifier: MIT
/*
 * LD_PRELOADed by a qperf server: makes an id of librdmacm listen as soon as it is bound. Debian's qperf (0.4.11) tells its
 * client the port before it listens there, and a quick client is rejected. qperf's own commit 118a571 mends that.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <rdma/rdma_cma.h>

static void *next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int (*bind_addr)(struct rdma_cm_id *, struct sockaddr *) = next(__func__);
	int (*listen)(struct rdma_cm_id *, int) = next("rdma_listen");
	int err = bind_addr(id, addr);

	return err ? err : listen(id, 0);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id, (void)backlog;
	return 0;
}
