// SPDX-License-Identifier: MIT
/*
 * What each message must be. Both ends compute it from the seed, the sender, the QP and the number of the message. So the
 * receiver knows every byte before it comes, and trusts nothing that it receives.
 */
#include "traffic.h"

#include <stdio.h>
#include <string.h>

const char *const op_name[NUM_OPS] = {
	"send", "imm", "inv", "write", "wimm", "echo",
	"read", "wread", "fadd", "count", "cas", "awrite", "flush",
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* A random number that depends on nothing but its arguments and the seed. */
uint64_t draw(unsigned sender, unsigned qp, uint64_t no, unsigned salt)
{
	uint64_t stream = mix(shape.seed + ((uint64_t)sender << 32 | qp << 8 | salt) * 0x9e3779b97f4a7c15ull);

	return mix(stream + (no + 1) * 0xd1342543de82ef95ull);
}

/* Many are small, some of the largest size; multi-packet ones are common. */
uint32_t plan_size(uint64_t r)
{
	uint32_t p = r % 100, size = 1u << 31;

	r = mix(r);
	if (p < 10)
		size = 1 + r % 8;
	else if (p < 40)
		size = 1 + r % 256;
	else if (p < 65)
		size = 1 + r % 4096;
	else if (p < 95)
		size = 1 + (mix(r) & ((2u << (r % (32 - __builtin_clz(shape.max_size)))) - 1));
	return size < shape.max_size ? size : shape.max_size;
}

struct plan plan_message(unsigned sender, unsigned qp, uint64_t seq)
{
	uint64_t r = draw(sender, qp, seq, SALT_PLAN), s = mix(r);
	uint32_t ops = shape.ops & MESSAGE_OPS;
	struct plan p = { 0 };
	unsigned k;

	if (sender == role ? there.no_mw : here.no_mw)
		ops &= ~(1u << OP_INV);
	k = r % __builtin_popcount(ops);
	for (p.op = 0; !(ops >> p.op & 1) || k--; p.op++)
		;
	r >>= 8;
	p.len = plan_size(s);
	p.wlen = plan_size(mix(s + 1));
	if (p.op == OP_INV && p.wlen > MW_SIZE)
		p.wlen = 1 + p.wlen % MW_SIZE;
	if ((p.op == OP_WRITE || p.op == OP_INV) && p.len > 4096)
		p.len = 1 + p.len % 4096;	/* the write is the long one */
	if ((p.op == OP_IMM || p.op == OP_WIMM) && r % 32 == 0)
		p.len = 0;
	r >>= 8;
	p.imm = (uint32_t)(seq * 0x9e3779b1u) & 0x7fffffffu;
	p.fence = p.op == OP_ECHO || r % 100 < shape.fence;
	p.use_inline = p.op != OP_ECHO && (r >> 8) % 2;
	p.unsignaled = (r >> 9) % 4 == 0;
	p.off = p.op == OP_ECHO ? mix(r) % (lib_size - p.len) : 0;
	return p;
}

/* Two in five buffers are scattered. */
struct cut plan_cut(uint64_t r, uint32_t len)
{
	struct cut c = { .n = 1, .at = { 0, len } };

	if (r % 5 < 3 || len < MAX_SGE)
		return c;
	r >>= 8;
	c.n = 2 + r % 2;
	c.at[1] = 1 + (r >> 8) % (len - 2);
	c.at[2] = c.n == 2 ? len : c.at[1] + 1 + (r >> 32) % (len - c.at[1] - 1);
	c.at[3] = len;
	return c;
}

/*
 * The data of a message: a first word that people can read, then words that differ from those of every other message and every
 * other place. Room: len + 16 bytes.
 */
const uint8_t *pattern(uint64_t *room, unsigned sender, unsigned qp, uint64_t no, unsigned kind, uint32_t off,
		       uint32_t len)
{
	uint64_t base = draw(sender, qp, no, kind), first = off / 8, n = (off % 8 + len + 7) / 8;

	for (uint64_t i = 0; i < n; i++)
		room[i] = base + (first + i) * 0x9e3779b97f4a7c15ull;
	if (first == 0 && n)
		room[0] = (uint64_t)(sender << 2 | kind) << 56 | (uint64_t)qp << 48 | (no & 0xffffffffffffull);
	return (uint8_t *)room + off % 8;
}

/* Part k of a buffer lies where it would lie in one piece, and k gaps further. */
static void copy(uint8_t *buf, const struct cut *cut, uint8_t *data, uint32_t off, uint32_t len, bool out)
{
	for (unsigned k = 0; k < cut->n; k++) {
		uint32_t from = off > cut->at[k] ? off : cut->at[k];
		uint32_t to = off + len;

		if (k + 1 < cut->n && to > cut->at[k + 1])
			to = cut->at[k + 1];
		if (from >= to)
			continue;
		if (out)
			memcpy(data + (from - off), buf + from + k * SGE_GAP, to - from);
		else
			memcpy(buf + from + k * SGE_GAP, data + (from - off), to - from);
	}
}

void scatter(uint8_t *buf, const struct cut *cut, const void *data, uint32_t off, uint32_t len)
{
	copy(buf, cut, (uint8_t *)data, off, len, false);
}

void gather(const uint8_t *buf, const struct cut *cut, void *data, uint32_t off, uint32_t len)
{
	copy((uint8_t *)buf, cut, data, off, len, true);
}

unsigned make_sges(struct ibv_sge *sge, uint8_t *buf, const struct cut *cut, uint32_t len, uint32_t lkey)
{
	unsigned n = 0;

	for (unsigned k = 0; k < cut->n && cut->at[k] < len; k++) {
		uint32_t end = k + 1 < cut->n && cut->at[k + 1] < len ? cut->at[k + 1] : len;

		sge[n].addr = (uintptr_t)buf + cut->at[k] + k * SGE_GAP;
		sge[n].length = end - cut->at[k];
		sge[n++].lkey = lkey;
	}
	return n;
}

static void hex(char *out, const uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sprintf(out + 2 * i, "%02x", p[i]);
}

void check_data(const struct qp *q, const char *what, uint64_t seq, const uint8_t *buf, const struct cut *cut,
		const uint8_t *want, uint32_t len)
{
	for (unsigned k = 0; k < cut->n && cut->at[k] < len; k++) {
		uint32_t from = cut->at[k], end = k + 1 < cut->n && cut->at[k + 1] < len ? cut->at[k + 1] : len;
		const uint8_t *have = buf + from + k * SGE_GAP;
		char w[40] = "", h[40] = "";
		uint32_t n, bad, i;

		if (!memcmp(have, want + from, end - from))
			continue;
		for (i = 0; have[i] == want[from + i]; i++)
			;
		for (bad = i, n = i; n < end - from; n++)
			if (have[n] != want[from + n])
				bad = n;
		n = end - from - i < 16 ? end - from - i : 16;
		hex(w, want + from + i, n);
		hex(h, have + i, n);
		violation(q, what, seq, "byte %u of %u: expected %s, saw %s (last wrong byte: %u)", from + i, len,
			  w, h, from + bad);
	}
}
