// SPDX-License-Identifier: MIT
/* Packets of RoCEv2, made by hand: see wire.h. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "../../programs/dumps.h"
#include "wire.h"

enum {
	ETH = 14, IP = 20, IP6 = 40, UDP = 8, BTH = 12, ICRC = 4,
	ROCE_PORT = 4791, PROBE_PORT = 4790, SOURCE_PORT = 0xc000,
	MIGRATION = 0xc0,	/* opcodes from here on are the manufacturer's */
};

static int tap = -1, udp = -1;
static uint8_t near_mac[6];

/* -------------------------------------------------------------- headers -- */

struct cursor {
	uint8_t *at;
};

static void put(struct cursor *c, uint64_t value, int bytes)
{
	while (bytes--)
		*c->at++ = value >> 8 * bytes;
}

static uint64_t get(struct cursor *c, int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *c->at++;
	return value;
}

/* Reads or writes one field; the order of these calls is the order on the wire. */
typedef void field_fn(struct cursor *c, void *field, size_t size, int bytes);

static void put_field(struct cursor *c, void *field, size_t size, int bytes)
{
	uint64_t value = 0;

	memcpy(&value, field, size);	/* little-endian, as all hosts of this test */
	put(c, value, bytes);
}

static void get_field(struct cursor *c, void *field, size_t size, int bytes)
{
	uint64_t value = get(c, bytes);

	memcpy(field, &value, size);
}

#define FIELD(name, bytes) fn(c, &p->name, sizeof(p->name), bytes)

static void extended_headers(struct cursor *c, struct packet *p, field_fn *fn)
{
	int op = p->opcode & 0x1f;
	uint32_t msn = 0, zero = 0;

	if (p->opcode >= MIGRATION)
		return;
	if ((p->opcode & 0xe0) == UD) {
		FIELD(qkey, 4);
		fn(c, &zero, sizeof(zero), 1);
		FIELD(src_qpn, 3);
	}
	if (op == FLUSH)
		FIELD(flush, 4);
	if (op == WRITE_FIRST || op == WRITE_ONLY || op == WRITE_ONLY_IMM || op == READ || op == FLUSH ||
	    op == ATOMIC_WRITE) {
		FIELD(va, 8);
		FIELD(rkey, 4);
		FIELD(length, 4);
	}
	if (op == CMP_SWAP || op == FETCH_ADD) {
		FIELD(va, 8);
		FIELD(rkey, 4);
		FIELD(swap, 8);
		FIELD(compare, 8);
	}
	if (op >= READ_ANSWER_FIRST && op <= ATOMIC_ACK && op != READ_ANSWER_MIDDLE) {
		FIELD(syndrome, 1);
		fn(c, &msn, sizeof(msn), 3);
	}
	if (op == ATOMIC_ACK)
		FIELD(swap, 8);
	if (op == SEND_LAST_IMM || op == SEND_ONLY_IMM || op == WRITE_LAST_IMM || op == WRITE_ONLY_IMM)
		FIELD(imm, 4);
}

/* ------------------------------------------------------------- checksums -- */

static uint16_t ip_checksum(const uint8_t *header)
{
	uint32_t sum = 0;

	for (int i = 0; i < IP; i += 2)
		sum += header[i] << 8 | header[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static uint32_t crc32(uint32_t crc, const uint8_t *at, size_t len)
{
	while (len--) {
		crc ^= *at++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

/* Covers what lies between Ethernet and the ICRC itself. Fields that routers change count as ones, and so does the missing LRH. */
static uint32_t icrc(const uint8_t *ip, size_t len)
{
	enum { TOS = 1, TTL = 8, CHECKSUM = 10, FLOW = 1, HOPS = 7, UDP_CHECKSUM = 6, RESERVED = UDP + 4 };
	static const uint8_t ones[8] = { 255, 255, 255, 255, 255, 255, 255, 255 };
	bool ipv6 = ip[0] >> 4 == 6;
	size_t udp = ipv6 ? IP6 : IP, headers = udp + UDP + BTH;
	uint8_t head[IP6 + UDP + BTH];
	uint32_t crc;

	memcpy(head, ip, headers);
	if (ipv6) {
		head[0] |= 0xf;
		memset(head + FLOW, 255, 3);
		head[HOPS] = 255;
	} else {
		head[TOS] = head[TTL] = 255;
		memset(head + CHECKSUM, 255, 2);
	}
	memset(head + udp + UDP_CHECKSUM, 255, 2);
	head[udp + RESERVED] = 255;
	crc = crc32(crc32(crc32(~0u, ones, sizeof(ones)), head, headers), ip + headers, len - headers);
	/* A FLUSH has no payload. rxe has no place for one, and counts the whole packet once more in its place. */
	if (ip[udp + UDP] == FLUSH)
		crc = crc32(crc, ip + udp + UDP, len - udp - UDP);
	return ~crc;
}

/* --------------------------------------------------------------- packets -- */

void wire_seal(struct frame *f)
{
	uint8_t *ip = f->at + ETH, *udp = ip + IP;
	size_t len = f->len - ETH;
	struct cursor c = { ip + 2 };
	uint32_t check;

	put(&c, len, 2);
	memset(ip + 10, 0, 2);
	c.at = ip + 10;
	put(&c, ip_checksum(ip), 2);
	c.at = udp + 4;
	put(&c, len - IP, 2);
	if (len < IP + UDP + BTH + ICRC)
		return;
	check = icrc(ip, len - ICRC);
	memcpy(ip + len - ICRC, &check, ICRC);
}

struct frame wire_frame(const struct packet *packet)
{
	static const uint8_t far_mac[] = { 0x02, 0, 0, 0, 0x88, 2 };
	struct packet p = *packet;
	struct frame f = {};
	uint8_t *ip = f.at + ETH, *udp = ip + IP, *bth = udp + UDP;
	uint32_t to = p.to ?: inet_addr(NEAR), from = p.from ?: inet_addr(FAR), pad = -p.len & 3;
	struct cursor c = { bth };
	struct ifreq ifr;

	put(&c, p.opcode, 1);
	put(&c, 0x40 | pad << 4, 1);	/* rxe looks at nothing but pad */
	put(&c, 0xffff, 2);
	put(&c, p.qpn, 4);
	put(&c, (uint64_t)p.ack << 31 | p.psn, 4);
	extended_headers(&c, &p, put_field);
	memcpy(c.at, p.data, p.len);
	f.len = c.at + p.len + pad + ICRC - f.at;

	c.at = f.at;
	if (IN_MULTICAST(ntohl(to))) {
		put(&c, 0x01005e, 3);
		put(&c, ntohl(to) & 0x7fffff, 3);
	} else {
		if (!near_mac[0] && !near_mac[5]) {
			CHECK(!ioctl(tap, TUNGETIFF, &ifr));
			CHECK(!ioctl(tap, SIOCGIFHWADDR, &ifr));
			memcpy(near_mac, ifr.ifr_hwaddr.sa_data, sizeof(near_mac));
		}
		memcpy(c.at, near_mac, sizeof(near_mac));
		c.at += sizeof(near_mac);
	}
	memcpy(c.at, far_mac, sizeof(far_mac));
	c.at += sizeof(far_mac);
	put(&c, 0x0800, 2);

	put(&c, 0x4500, 2);
	c.at = ip + 4;
	put(&c, 0x00004000, 4);
	put(&c, 64 << 8 | IPPROTO_UDP, 2);
	c.at = ip + 12;
	put(&c, ntohl(from), 4);
	put(&c, ntohl(to), 4);

	put(&c, SOURCE_PORT, 2);
	put(&c, ROCE_PORT, 2);

	wire_seal(&f);
	return f;
}

struct frame wire_frame_ipv6(const struct packet *packet, bool sized)
{
	static const uint8_t headers[ETH + IP6] = {
		0x33, 0x33, [5] = 1, 0x02, [10] = 0x88, 2, 0x86, 0xdd,
		[ETH] = 0x60, [ETH + 6] = IPPROTO_UDP, 64,
		0xfe, 0x80, [ETH + 23] = 2,		/* fe80::2 */
		0xff, 0x02, [ETH + IP6 - 1] = 1,	/* ff02::1 */
	};
	struct frame f = wire_frame(packet);
	size_t len = f.len - ETH - IP;
	struct cursor c = { f.at + ETH + 4 };
	uint32_t check;

	memmove(f.at + sizeof(headers), f.at + ETH + IP, len);
	memcpy(f.at, headers, sizeof(headers));
	f.len = sizeof(headers) + len;
	put(&c, len, 2);
	if (!sized)
		memset(f.at + sizeof(headers) + 4, 0, 2);
	check = icrc(f.at + ETH, f.len - ETH - ICRC);
	memcpy(f.at + f.len - ICRC, &check, ICRC);
	return f;
}

/*
 * The ICRC covers the IP header. For a socket that is not connected, and packets that are not fragmented, the kernel makes the
 * same header as wire_frame().
 */
static void send_by_udp(const struct frame *f)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(ROCE_PORT) };
	ssize_t len = f->len - FRAME_BTH;

	memcpy(&to.sin_addr, f->at + FRAME_IP + 16, sizeof(to.sin_addr));
	CHECK(sendto(udp, f->at + FRAME_BTH, len, 0, (void *)&to, sizeof(to)) == len);
}

void wire_by_udp(const char *from)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(SOURCE_PORT), .sin_addr.s_addr = inet_addr(from) };
	int whole = IP_PMTUDISC_DO;

	udp = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(udp >= 0 && !setsockopt(udp, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole)));
	CHECK(!bind(udp, (void *)&own, sizeof(own)));
	near_mac[0] = 2;	/* not used: the kernel makes the Ethernet header */
}

void wire_send_frame(const struct frame *f)
{
	if (udp >= 0) {
		send_by_udp(f);
		return;
	}
	CHECK(write(tap, f->at, f->len) == (ssize_t)f->len);
}

void wire_send(const struct packet *p)
{
	struct frame f = wire_frame(p);

	wire_send_frame(&f);
}

/* Takes the next UDP packet that the kernel sends within this time into frame, Ethernet header and all. */
static bool next_udp(uint8_t *frame, size_t size, int ms)
{
	struct timespec now, end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += ms % 1000 * 1000000;
	for (;;) {
		struct pollfd p = { tap, POLLIN, 0 };
		ssize_t n;

		clock_gettime(CLOCK_MONOTONIC, &now);
		ms = (end.tv_sec - now.tv_sec) * 1000 + (end.tv_nsec - now.tv_nsec) / 1000000;
		if (poll(&p, 1, ms < 0 ? 0 : ms) <= 0)
			return false;
		n = read(tap, frame, size);
		CHECK(n > 0);
		if (n >= ETH + IP + UDP && frame[12] == 8 && frame[13] == 0 && frame[ETH + 9] == IPPROTO_UDP)
			return true;
	}
}

static int port_of(const uint8_t *frame)
{
	return frame[ETH + IP + 2] << 8 | frame[ETH + IP + 3];
}

/* Takes the headers of a packet apart. */
static struct packet packet_of(const uint8_t *frame)
{
	struct packet p = {};
	struct cursor c;
	size_t len, pad;
	uint32_t check;

	len = frame[ETH + 2] << 8 | frame[ETH + 3];
	p.ttl = frame[ETH + 8];
	memcpy(&p.from, frame + ETH + 12, 4);
	memcpy(&p.to, frame + ETH + 16, 4);
	memcpy(&check, frame + ETH + len - ICRC, ICRC);
	CHECK(check == icrc(frame + ETH, len - ICRC));

	c.at = (uint8_t *)frame + ETH + IP + UDP;
	p.opcode = get(&c, 1);
	pad = get(&c, 1) >> 4 & 3;
	get(&c, 2);
	p.qpn = get(&c, 4) & 0xffffff;
	p.psn = get(&c, 4);
	p.ack = p.psn >> 31;
	p.psn &= 0xffffff;
	extended_headers(&c, &p, get_field);
	p.len = frame + ETH + len - ICRC - pad - c.at;
	CHECK(p.len <= sizeof(p.data));
	memcpy(p.data, c.at, p.len);
	return p;
}

bool wire_any(struct packet *p, int ms)
{
	uint8_t frame[10000];

	do {
		if (!next_udp(frame, sizeof(frame), ms))
			return false;
	} while (port_of(frame) != ROCE_PORT);
	*p = packet_of(frame);
	return true;
}

struct packet wire_next(void)
{
	struct packet p;

	do {
		if (!wire_any(&p, PATIENCE * 1000))
			DIE("no packet in %u s", PATIENCE);
	} while (p.opcode >= MIGRATION);
	return p;
}

struct packet wire_expect(int opcode, uint32_t psn)
{
	struct packet p = wire_next();

	if (p.opcode != opcode || p.psn != psn)
		DIE("opcode %#x, PSN %u, syndrome %#x, where opcode %#x, PSN %u ought to come", p.opcode, p.psn, p.syndrome,
		    opcode, psn);
	CHECK(p.qpn == FAR_QPN || p.opcode >= UD);
	return p;
}

/* ---------------------------------------------------------------- shared -- */

/* Waits until packets come here: the carrier is up at once, and the kernel reacts to it a while later. */
static void await_carrier(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PROBE_PORT), .sin_addr.s_addr = inet_addr(FAR) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	uint8_t frame[10000];

	for (int i = 0; i < PATIENCE * 10; i++) {
		CHECK(sendto(fd, "", 1, 0, (struct sockaddr *)&to, sizeof(to)) == 1);
		if (!next_udp(frame, sizeof(frame), 100) || port_of(frame) != PROBE_PORT)
			continue;
		close(fd);
		return;
	}
	DIE("nothing comes through the wire");
}

struct ibv_context *wire_open(void)
{
	struct ifreq ifr = { .ifr_name = "wire0", .ifr_flags = IFF_TAP | IFF_NO_PI };
	struct ibv_context *ctx = open_device();

	tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	CHECK(tap >= 0 && !ioctl(tap, TUNSETIFF, &ifr));
	find_gid(ctx, NEAR);
	await_carrier();
	return ctx;
}

void wire_on(const char *interface, const uint8_t mac[6])
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };
	struct ifreq ifr = {};

	strncpy(ifr.ifr_name, interface, sizeof(ifr.ifr_name) - 1);
	tap = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP));
	CHECK(tap >= 0 && !ioctl(tap, SIOCGIFINDEX, &ifr));
	at.sll_ifindex = ifr.ifr_ifindex;
	CHECK(!bind(tap, (struct sockaddr *)&at, sizeof(at)));
	memcpy(near_mac, mac, sizeof(near_mac));
}

bool wire_frame_of_ours(struct frame *f)
{
	ssize_t n = read(tap, f->at, sizeof(f->at));

	CHECK(n > 0);
	f->len = n;
	return n > FRAME_DATA && f->at[FRAME_IP + 9] == IPPROTO_UDP && port_of(f->at) == ROCE_PORT &&
	       f->at[FRAME_BTH] >= MIGRATION;
}

void wire_lead_from(struct ibv_qp *qp, int rd_atomic, uint32_t rq_psn, uint32_t sq_psn, enum ibv_qp_state last)
{
	struct ibv_qp_attr a = {
		.port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = FAR_QPN, .qkey = 7,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				   IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_MW_BIND,
		.max_rd_atomic = rd_atomic, .max_dest_rd_atomic = rd_atomic, .min_rnr_timer = 1,
		.timeout = 0 /* never */, .retry_cnt = 7, .rnr_retry = 7,
		.rq_psn = rq_psn, .sq_psn = sq_psn,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = gid_index, .hop_limit = 64 } },
	};

	a.ah_attr.grh.dgid = gid;
	CHECK(inet_pton(AF_INET, FAR, a.ah_attr.grh.dgid.raw + 12) == 1);
	lead(qp, a, last);
}

void wire_lead(struct ibv_qp *qp, int rd_atomic)
{
	wire_lead_from(qp, rd_atomic, 0, 0, IBV_QPS_RTS);
}

struct ibv_qp *wire_qp(struct ibv_pd *pd, enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_srq *srq,
		       int rd_atomic)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = type, .send_cq = cq, .recv_cq = cq, .srq = srq, .sq_sig_all = 1,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_qp *qp;

	if (type == IBV_QPT_RC) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_WRITE |
				      IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_BIND_MW |
				      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	}
	qp = ibv_create_qp_ex(pd->context, &init);
	CHECK(qp);
	wire_lead(qp, rd_atomic);
	return qp;
}

bool wire_completes(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	int n = 0;

	for (int i = 0; i < ms && !n; i++) {
		CHECK((n = ibv_poll_cq(cq, 1, wc)) >= 0);
		if (!n)
			usleep(1000);
	}
	return n;
}

struct ibv_wc wire_completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	if (!wire_completes(cq, &wc, PATIENCE * 1000))
		DIE("no completion in %u s", PATIENCE);
	return wc;
}
