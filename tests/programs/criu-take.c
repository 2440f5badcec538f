// SPDX-License-Identifier: MIT
/*
 * criu-take DEVICE qp NUMBER | mr KEY: takes this QP number, or memory region key, with the verbs extension, as a restore would.
 * Says "taken" and sleeps.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/migrate.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

static struct ibv_context *ctx;
static char memory[4096];

static void create(const void *record)
{
	const struct rxe_migr_rec *rec = record;
	struct ibv_restore_args args = {
		.record = rec, .record_length = le32toh(rec->length), .comp_channel_fd = -1, .async_fd = -1,
	};
	void *object;
	int ret;

	ret = ibv_restore_object(ctx, &object, le16toh(rec->type), IBV_RESTORE_CREATE, &args, sizeof(args));
	if (ret)
		DIE("object of type %u: %s", le16toh(rec->type), strerror(ret));
}

#define HEADER(TYPE, record, number) \
	{ htole16(RXE_MIGR_REC_##TYPE), 0, htole32(sizeof(record)), htole32(number) }

int main(int argc, char **argv)
{
	uint32_t number;

	if (argc != 4)
		DIE("usage: take DEVICE qp NUMBER | mr KEY");
	number = strtoul(argv[3], NULL, 0);
	ctx = ibv_open_restore_context(argv[1], 1);
	if (!ctx)
		DIE("%s: %m", argv[1]);
	create(&(struct rxe_migr_rec_pd){ HEADER(PD, struct rxe_migr_rec_pd, 0) });
	create(&(struct rxe_migr_rec_cq){
		HEADER(CQ, struct rxe_migr_rec_cq, 1), .cqe = htole32(1),
		.comp_channel = RXE_MIGR_NO_HANDLE, .async_file = RXE_MIGR_NO_HANDLE,
	});
	if (!strcmp(argv[2], "qp"))
		create(&(struct rxe_migr_rec_qp){
			HEADER(QP, struct rxe_migr_rec_qp, 2), .send_cq = htole32(1), .recv_cq = htole32(1),
			.srq = RXE_MIGR_NO_HANDLE, .async_file = RXE_MIGR_NO_HANDLE, .qpn = htole32(number),
			.qp_type = IBV_QPT_RC, .max_send_wr = htole32(1), .max_recv_wr = htole32(1),
			.max_send_sge = htole16(1), .max_recv_sge = htole16(1),
		});
	else
		create(&(struct rxe_migr_rec_mr){
			HEADER(MR, struct rxe_migr_rec_mr, 2), .key = htole32(number),
			.start = htole64((uintptr_t)memory), .iova = htole64((uintptr_t)memory),
			.length = htole64(sizeof(memory)),
		});
	puts("taken");
	fflush(stdout);
	pause();
	return 0;
}
