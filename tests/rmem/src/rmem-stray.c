// SPDX-License-Identifier: MIT
/*
 * rmem-stray --host HOST --client NAME --key FILE --other NAME --other-key FILE [OPTION...]
 *
 * Tries wrong handshakes, random messages, and accesses to the memory of another client (--other). Exit status 0: all were
 * refused, and the other client's memory is unchanged. Otherwise 1 and one line. All regions of both clients are freed.
 *
 *	--port PORT	--seed N
 *	--messages N	so many, over good connections (1000)
 *	--garbage N	so many TCP connections (100)
 *	--patience SECONDS	for each answer (10)
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../programs/random.h"
#include "../../programs/stray.h"

enum { TAG = 1, SIZE = 16 << 10, HALF_OPEN = 16 };

struct options options = { .port = RMEM_PORT, .messages = 1000, .garbage = 100, .patience = 10 };
static uint64_t misdeeds;

void fail(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "rmem-stray: failed: ");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	exit(1);
}

/* ------------------------------------------------------------------ handshakes */

static struct link recorded;

static void other_version(struct link *l)
{
	l->hello.version = htole32(RMEM_VERSION + 1);
}

static void other_magic(struct link *l)
{
	l->hello.magic ^= htole32(1);
}

static void endless_name(struct link *l)
{
	memset(l->hello.client, 'a', sizeof(l->hello.client));
}

static void path_name(struct link *l)
{
	memcpy(l->hello.client, "../../client", 13);
}

static void hello_again(struct link *l)
{
	l->hello = recorded.hello;
}

static void proof_again(struct link *l)
{
	l->proof = recorded.proof;
}

static void changed_qp(struct link *l)
{
	l->proof.qp.psn ^= htole32(1);
}

static void changed_mac(struct link *l)
{
	l->proof.mac[RMEM_MAC_SIZE - 1] ^= 1;
}

/* Its MAC is right: what a client that knows the key may send, too. */
static void wild_qp(struct link *l)
{
	uint32_t *word = (uint32_t *)&l->proof.qp;

	word[below(sizeof(l->proof.qp) / 4)] = edge_of(32);
	l->proof.qp.mtu = htole32(edge_of(32));
}

static void must_not(const char *what, int status, int expected)
{
	misdeeds++;
	if (status == RMEM_OK)
		fail("%s is welcome", what);
	if (expected && status != expected)
		fail("%s: status %d, not %d", what, status, expected);
}

static void handshakes(void)
{
	static const struct {
		const char *what;
		struct spoil spoil;
		int expected; /* 0: any refusal */
	} spoilt[] = {
		{ "another version", { .hello = other_version }, RMEM_BAD_VERSION },
		{ "another protocol", { .hello = other_magic }, 0 },
		{ "an endless name", { .hello = endless_name }, 0 },
		{ "a name that is a path", { .hello = path_name }, 0 },
		{ "a changed queue pair", { .proof = changed_qp }, RMEM_DENIED },
		{ "a changed MAC", { .proof = changed_mac }, RMEM_DENIED },
		{ "a proof that was used before", { .hello = hello_again, .proof = proof_again }, RMEM_DENIED },
	};
	struct who unknown = { .name = "nobody" }, other_key = options.client;
	unsigned int i;
	struct link l;

	link_open(&recorded, &options.client);
	other_key.key[0] ^= 1;
	must_not("a wrong key", link_shake(&l, &other_key, NULL), RMEM_DENIED);
	must_not("an unknown name", link_shake(&l, &unknown, NULL), RMEM_DENIED);
	for (i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++)
		must_not(spoilt[i].what, link_shake(&l, &options.client, &spoilt[i].spoil), spoilt[i].expected);
	/* None of them has ended the connection of the client whose name they used. */
	link_ask(&recorded, RMEM_PING, NULL, 0);
	link_close(&recorded);
	/* Some of these are good ones, and come up. */
	for (i = 0; i < 16; i++) {
		if (link_shake(&l, &options.client, &(struct spoil){ .qp = wild_qp }) == RMEM_OK)
			link_close(&l);
	}
	link_open(&l, &options.client);
	link_close(&l);
}

/* Sends what anybody may send, of any length, and then closes the connection, or stays silent. */
static void garbage(void)
{
	int held[HALF_OPEN] = { 0 }, fd;
	struct linger reset = { .l_onoff = 1 };
	struct link l;
	uint64_t n, i;
	union {
		struct rmem_hello hello;
		uint8_t bytes[300];
	} sent;

	for (n = 0; n < options.garbage; n++) {
		fd = tcp_open();
		if (fd < 0)
			continue;
		for (i = 0; i < sizeof(sent); i++)
			sent.bytes[i] = below(256);
		if (below(2))
			sent.hello = (struct rmem_hello){ .magic = htole32(RMEM_MAGIC), .version = htole32(edge_of(32)) };
		if (send(fd, &sent, below(sizeof(sent)), MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
			fail("send: %s", strerror(errno));
		if (below(2))
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		i = n % HALF_OPEN;
		if (held[i])
			close(held[i]);
		held[i] = fd;
		if (n % 50 == 0) {
			link_open(&l, &options.client);
			link_close(&l);
		}
	}
	link_open(&l, &options.client);
	link_close(&l);
	for (i = 0; i < HALF_OPEN; i++)
		if (held[i])
			close(held[i]);
}

/* ------------------------------------------------------------------ another's memory */

static struct link other;
static struct rmem_wire_region others; /* region */

static void other_begin(void)
{
	unsigned int i;

	link_open(&other, &options.other);
	others = link_alloc(&other, TAG, SIZE);
	for (i = 0; i < SIZE; i++)
		other.data[i] = i * 7 + i / 256;
	if (link_reach(&other, IBV_WR_RDMA_WRITE, le64toh(others.addr), le32toh(others.rkey), SIZE))
		fail("a client can't write its own memory");
}

/* The other client's memory has not changed, and its connection is still the first one. */
static void other_end(void)
{
	struct rmem_wire_region now;
	unsigned int i;

	now = link_alloc(&other, TAG, SIZE);
	if (memcmp(&now, &others, sizeof(now)))
		fail("the other client's region has changed");
	memset(other.data, 0, SIZE);
	if (link_reach(&other, IBV_WR_RDMA_READ, le64toh(others.addr), le32toh(others.rkey), SIZE))
		fail("the other client can't read its own memory");
	for (i = 0; i < SIZE; i++)
		if (other.data[i] != (uint8_t)(i * 7 + i / 256))
			fail("the other client's memory has changed at %u", i);
	link_free_all(&other);
	link_close(&other);
}

/* @key: NULL: the key of the client's own region */
static void must_not_reach(const char *what, uint64_t addr, const uint32_t *key, uint32_t len)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_ATOMIC_CMP_AND_SWP };
	struct rmem_wire_region own;
	struct link l;
	unsigned int i;

	for (i = 0; i < 4; i++) {
		/* An error ends a connection, and the next one has other keys. */
		link_open(&l, &options.client);
		own = link_alloc(&l, TAG, SIZE);
		memset(l.data, 0xee, len);
		misdeeds++;
		/* The address of an atomic must be a multiple of 8. So take the next multiple, which is out of range, too. */
		if (!link_reach(&l, opcodes[i], i < 2 ? addr : (addr + 7) & ~7ULL, key ? *key : le32toh(own.rkey), i < 2 ? len : 8))
			fail("operation %u of %s succeeds", i, what);
		link_close(&l);
	}
}

/* An access that must work, since otherwise refusals show nothing. Returns the address. */
static uint64_t own_address(void)
{
	struct rmem_wire_region own;
	struct link l;

	link_open(&l, &options.client);
	own = link_alloc(&l, TAG, SIZE);
	l.data[0] = 1;
	if (link_reach(&l, IBV_WR_RDMA_WRITE, le64toh(own.addr), le32toh(own.rkey), SIZE))
		fail("a client can't write its own memory");
	link_close(&l);
	return le64toh(own.addr);
}

static void reach(void)
{
	uint64_t mine = own_address(), theirs = le64toh(others.addr);
	uint32_t key = le32toh(others.rkey), i;

	must_not_reach("another's key and address", theirs, &key, 64);
	must_not_reach("another's key and an own address", mine, &key, 64);
	/* An address belongs to one client, so both clients may have the same one. */
	if (theirs + 64 <= mine || theirs >= mine + SIZE)
		must_not_reach("an own key and another's address", theirs, NULL, 64);
	for (i = 0; i < 4; i++) {
		key = rnd();
		must_not_reach("a random key", theirs, &key, 64);
	}
	must_not_reach("a range that crosses the end", mine + SIZE - 4, NULL, 8);
	must_not_reach("a range before the begin", mine - 8, NULL, 8);
	must_not_reach("a range that wraps", UINT64_MAX - 3, NULL, 8);
}

/* A key ends with its region, and a connection with the next of its name. */
static void ended(void)
{
	struct rmem_wire_region own;
	struct link l, next;

	link_open(&l, &options.client);
	own = link_alloc(&l, TAG, SIZE);
	link_free_all(&l);
	misdeeds++;
	if (!link_reach(&l, IBV_WR_RDMA_READ, le64toh(own.addr), le32toh(own.rkey), 64))
		fail("a region that was freed can be read");
	link_close(&l);

	link_open(&l, &options.client);
	own = link_alloc(&l, TAG, SIZE);
	link_open(&next, &options.client);
	misdeeds++;
	if (!link_reach(&l, IBV_WR_RDMA_WRITE, le64toh(own.addr), le32toh(own.rkey), 64))
		fail("a connection writes whose name has another");
	link_close(&l);
	link_close(&next);
}

/* ------------------------------------------------------------------ main */

static void usage(void)
{
	fprintf(stderr, "usage: rmem-stray --host HOST --client NAME --key FILE --other NAME --other-key FILE\n"
			"	[--port PORT] [--seed N] [--messages N] [--garbage N] [--patience SECONDS]\n");
	exit(2);
}

static void read_key(struct who *who, const char *path)
{
	char *why = NULL;

	if (rmem_key_read(path, who->key, &why))
		fail("%s", why ? why : path);
}

static void take_options(int argc, char **argv)
{
	static const struct option known[] = {
		{ "host", 1, NULL, 'h' }, { "port", 1, NULL, 'p' }, { "client", 1, NULL, 'c' }, { "key", 1, NULL, 'k' },
		{ "other", 1, NULL, 'o' }, { "other-key", 1, NULL, 'O' }, { "seed", 1, NULL, 's' },
		{ "messages", 1, NULL, 'm' }, { "garbage", 1, NULL, 'g' }, { "patience", 1, NULL, 'P' }, { 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'h': options.host = optarg; break;
		case 'p': options.port = optarg; break;
		case 'c': options.client.name = optarg; break;
		case 'k': read_key(&options.client, optarg); break;
		case 'o': options.other.name = optarg; break;
		case 'O': read_key(&options.other, optarg); break;
		case 's': options.seed = strtoull(optarg, NULL, 0); break;
		case 'm': options.messages = strtoull(optarg, NULL, 0); break;
		case 'g': options.garbage = strtoull(optarg, NULL, 0); break;
		case 'P': options.patience = strtoul(optarg, NULL, 0); break;
		default: usage();
		}
	}
	if (optind != argc || !options.host || !options.client.name || !options.other.name)
		usage();
}

int main(int argc, char **argv)
{
	struct link l;

	take_options(argc, argv);
	rng = options.seed;
	/* An earlier run may have left some regions. */
	link_open(&l, &options.client);
	link_free_all(&l);
	link_close(&l);
	other_begin();
	handshakes();
	garbage();
	reach();
	ended();
	messages();
	other_end();
	link_open(&l, &options.client);
	link_free_all(&l);
	link_close(&l);
	printf("rmem-stray: %llu messages, %llu connections, %llu other misdeeds: nothing was allowed\n",
	       (unsigned long long)options.messages, (unsigned long long)connections, (unsigned long long)misdeeds);
	return 0;
}
