// SPDX-License-Identifier: MIT
/*
 * big_read: READs 2 GiB, the most that one request may ask for, from a region of that size into another.
 *
 * Each region is the same 2 MiB, mapped 1024 times.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (perror("big_read: " #what), exit(1)))

static const size_t part = 2ul << 20, size = 2ul << 30;

static uint8_t *region(void)
{
	int fd = memfd_create("big_read", 0);
	uint8_t *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(fd >= 0 && at != MAP_FAILED && !ftruncate(fd, part));
	for (size_t pos = 0; pos < size; pos += part)
		CHECK(mmap(at + pos, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at + pos);
	return at;
}

static void connect_qp(struct ibv_qp *qp, uint32_t to, union ibv_gid gid, int gid_index)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_4096, .dest_qp_num = to,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ, .max_dest_rd_atomic = 1, .max_rd_atomic = 1, .timeout = 18,
		.retry_cnt = 3, .rnr_retry = 3, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 4 } },
	};

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	uint8_t *from = region(), *to = region();
	struct ibv_mr *from_mr, *to_mr;
	struct ibv_qp *qp[2];
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_wc wc;
	int index = 0, n;

	CHECK(ctx);
	while (!ibv_query_gid(ctx, 1, index, &gid) && gid.raw[10] != 0xff)
		index++;
	CHECK(pd = ibv_alloc_pd(ctx));
	CHECK(init.send_cq = init.recv_cq = ibv_create_cq(ctx, 4, NULL, NULL, 0));
	CHECK(from_mr = ibv_reg_mr(pd, from, size, IBV_ACCESS_REMOTE_READ));
	CHECK(to_mr = ibv_reg_mr(pd, to, size, IBV_ACCESS_LOCAL_WRITE));
	for (n = 0; n < 2; n++)
		CHECK(qp[n] = ibv_create_qp(pd, &init));
	for (n = 0; n < 2; n++)
		connect_qp(qp[n], qp[!n]->qp_num, gid, index);
	for (size_t i = 0; i < part; i++)
		from[i] = i * 31 >> 3;

	struct ibv_sge sge = { (uintptr_t)to, size, to_mr->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
					.send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = (uintptr_t)from;
	wr.wr.rdma.rkey = from_mr->rkey;
	CHECK(!ibv_post_send(qp[0], &wr, &bad));
	while (!(n = ibv_poll_cq(init.send_cq, 1, &wc)))
		usleep(10000);
	if (n < 0 || wc.status || memcmp(from, to, part)) {
		fprintf(stderr, "big_read: %s\n", n < 0 ? "poll" : wc.status ? ibv_wc_status_str(wc.status) : "other data");
		return 1;
	}
	printf("%u bytes read\n", wc.byte_len);
	return 0;
}
