// SPDX-License-Identifier: MIT
/* Packets of the migration protocol, made by hand: see migr.h. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stddef.h>

#include "../../programs/dumps.h"
#include "migr.h"

/* ------------------------------------------------- BLAKE2s, RFC 7693 -- */

static const uint32_t iv[8] = {
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static const uint8_t sigma[10][16] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
	{ 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
	{ 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
	{ 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
	{ 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
	{ 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
	{ 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
	{ 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
	{ 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
};

static uint32_t turn(uint32_t x, int by)
{
	return x >> by | x << (32 - by);
}

static void mix(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y)
{
	v[a] += v[b] + x;
	v[d] = turn(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = turn(v[b] ^ v[c], 12);
	v[a] += v[b] + y;
	v[d] = turn(v[d] ^ v[a], 8);
	v[c] += v[d];
	v[b] = turn(v[b] ^ v[c], 7);
}

/* Hashes one block. bytes: how many were hashed in all, this block included. */
static void compress(uint32_t *h, const uint8_t *block, uint32_t bytes, bool last)
{
	uint32_t v[16], m[16];

	memcpy(m, block, sizeof(m));
	memcpy(v, h, 32);
	memcpy(v + 8, iv, 32);
	v[12] ^= bytes;
	v[14] ^= last ? ~0u : 0;
	for (int i = 0; i < 10; i++) {
		const uint8_t *s = sigma[i];

		for (int j = 0; j < 4; j++)
			mix(v, j, 4 + j, 8 + j, 12 + j, m[s[2 * j]], m[s[2 * j + 1]]);
		for (int j = 0; j < 4; j++)
			mix(v, j, 4 + (j + 1) % 4, 8 + (j + 2) % 4, 12 + (j + 3) % 4, m[s[8 + 2 * j]], m[s[9 + 2 * j]]);
	}
	for (int i = 0; i < 8; i++)
		h[i] ^= v[i] ^ v[i + 8];
}

void migr_sign(struct rxe_migr_hdr *hdr, const uint8_t *key)
{
	enum { COVERED = offsetof(struct rxe_migr_hdr, mac) };
	uint8_t block[2][64] = {};
	uint32_t h[8];

	_Static_assert(COVERED <= sizeof(block[1]), "one block");
	memset(hdr->mac, 0, sizeof(hdr->mac));
	if (!key)
		return;
	memcpy(h, iv, sizeof(h));
	h[0] ^= 0x01010000 ^ RXE_MIGR_KEY_LEN << 8 ^ RXE_MIGR_MAC_LEN;
	memcpy(block[0], key, RXE_MIGR_KEY_LEN);
	memcpy(block[1], hdr, COVERED);
	compress(h, block[0], 64, false);
	compress(h, block[1], 64 + COVERED, true);
	memcpy(hdr->mac, h, sizeof(hdr->mac));
}

/* --------------------------------------------------------------- packets -- */

union ibv_gid migr_gid(const char *address)
{
	union ibv_gid g = { .raw = { [10] = 0xff, [11] = 0xff } };

	CHECK(inet_pton(AF_INET, address, g.raw + 12) == 1);
	return g;
}

static uint16_t renewal;	/* of the STOP that came last */

struct rxe_migr_hdr migr_hdr(int opcode, uint32_t qpn, uint32_t epoch, uint32_t psn)
{
	union ibv_gid far = migr_gid(FAR);
	struct rxe_migr_hdr hdr = {
		.version = RXE_MIGR_WIRE_VERSION, .opcode = opcode, .src_qpn = htobe32(FAR_QPN), .dest_qpn = htobe32(qpn),
		.flags = htobe16(RXE_MIGR_FLAG_SQ_PSN), .epoch = htobe32(epoch), .psn = htobe32(psn),
	};

	memcpy(hdr.old_gid, &far, sizeof(far));
	memcpy(hdr.new_gid, &far, sizeof(far));
	if (opcode == RXE_MIGR_OPCODE_STOP_ACK) {
		hdr.renewal = htobe16(renewal);
		hdr.wait = htobe16(60);
	}
	return hdr;
}

struct frame migr_frame(const struct rxe_migr_hdr *hdr, const char *from)
{
	struct packet p = {
		.opcode = hdr->opcode, .qpn = be32toh(hdr->dest_qpn) & 0xffffff, .psn = be32toh(hdr->psn) & 0xffffff,
		.len = sizeof(*hdr), .from = from ? inet_addr(from) : 0,
	};

	memcpy(p.data, hdr, sizeof(*hdr));
	return wire_frame(&p);
}

bool migr_is_call(int opcode)
{
	return opcode == RXE_MIGR_OPCODE_STOP || opcode == RXE_MIGR_OPCODE_RESUME;
}

static struct rxe_migr_hdr any_of_ours(const uint8_t *key)
{
	struct rxe_migr_hdr hdr, check;
	struct packet p;
	int flags;

	do {
		if (!wire_any(&p, PATIENCE * 1000))
			DIE("no packet of the protocol comes");
	} while (p.opcode < RXE_MIGR_OPCODE_STOP);
	CHECK(p.len == sizeof(hdr));
	memcpy(&hdr, p.data, sizeof(hdr));
	check = hdr;
	migr_sign(&check, key);
	CHECK(hdr.version == 2 && hdr.opcode == p.opcode);
	flags = be16toh(hdr.flags) ^ RXE_MIGR_FLAG_SQ_PSN;
	CHECK(!flags || flags == (hdr.opcode == RXE_MIGR_OPCODE_RESUME ? RXE_MIGR_FLAG_HEARD :
				  hdr.opcode == RXE_MIGR_OPCODE_RESUME_ACK ? RXE_MIGR_FLAG_WAITS :
				  hdr.opcode == RXE_MIGR_OPCODE_STOP_ACK ? RXE_MIGR_FLAG_GONE : 0));
	CHECK(be32toh(hdr.dest_qpn) == p.qpn && p.qpn == FAR_QPN && be32toh(hdr.psn) == p.psn);
	CHECK(!memcmp(&check, &hdr, sizeof(hdr)));
	if (hdr.opcode == RXE_MIGR_OPCODE_STOP)
		renewal = be16toh(hdr.renewal);
	return hdr;
}

struct rxe_migr_hdr migr_expect(int opcode, const uint8_t *key)
{
	struct rxe_migr_hdr hdr;

	do
		hdr = any_of_ours(key);
	while (migr_is_call(hdr.opcode) && hdr.opcode != opcode);
	if (hdr.opcode != opcode)
		DIE("opcode %#x, epoch %u of QP %u, where opcode %#x ought to come", hdr.opcode, be32toh(hdr.epoch),
		    be32toh(hdr.src_qpn), opcode);
	return hdr;
}

/* ------------------------------------------------------------ the driver -- */

#define COUNTERS "/sys/class/infiniband/rxe0/ports/1/hw_counters/"

static uint64_t read_counter(const char *name)
{
	char path[200], text[32] = {};
	int fd;

	snprintf(path, sizeof(path), COUNTERS "%s", name);
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtoull(text, NULL, 10);
}

/* The kernel reads a counter anew only when its lifespan is over (set to 0 here), and not twice in one jiffy. */
static void read_anew(void)
{
	static bool fresh;
	int fd;

	if (!fresh) {
		fd = open(COUNTERS "lifespan", O_WRONLY);
		CHECK(fd >= 0 && write(fd, "0", 1) == 1);
		close(fd);
		fresh = true;
	}
	usleep(10000);
}

uint64_t migr_counter(const char *name)
{
	read_anew();
	return read_counter(name);
}

void migr_counters(struct migr_counts *c)
{
	read_anew();
#define READ(name) c->name = read_counter(#name)
	READ(sent_stop), READ(rcvd_stop), READ(sent_nak_stopped), READ(rcvd_nak_stopped), READ(sent_resume),
	READ(rcvd_resume), READ(sent_moved), READ(rcvd_moved), READ(migr_pauses), READ(migr_resumes), READ(migr_refused);
}

bool migr_status(struct ibv_context *ctx, uint32_t qpn, bool tombstone, struct rxe_migr_status *st)
{
	struct rxe_migr_status all[256];
	int count;

	IS(0, ibv_query_device_migration(ctx, &count, all, 256));
	for (int i = 0; i < count; i++)
		if (all[i].qpn == qpn && all[i].tombstone == tombstone) {
			*st = all[i];
			return true;
		}
	return false;
}

struct rxe_migr_rec_qp migr_record(struct ibv_qp *qp)
{
	struct dump d = take(qp->context, ibv_inspect_context);
	const struct rxe_migr_rec *rec = NULL;
	struct rxe_migr_rec_qp found;

	while ((rec = next(&d, rec)))
		if (type_of(rec) == RXE_MIGR_REC_QP && le32toh(rec->handle) == qp->handle)
			break;
	CHECK(rec);
	memcpy(&found, rec, sizeof(found));
	free(d.buf);
	return found;
}

void migr_stop(struct ibv_context *ctx)
{
	struct dump d = take(ctx, ibv_dump_context);

	free(d.buf);
}

void migr_set_key(struct ibv_context *ctx, const uint8_t *key)
{
	struct rxe_migr_key k = { .op = RXE_MIGR_KEY_CLEAR };

	IS(0, ibv_migration_key(ctx, &k, NULL));
	if (!key)
		return;
	k.op = RXE_MIGR_KEY_SET;
	memcpy(k.key, key, sizeof(k.key));
	IS(0, ibv_migration_key(ctx, &k, NULL));
}
