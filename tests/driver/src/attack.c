// SPDX-License-Identifier: MIT
/*
 * attack [OPTION...] forge | noise | replay | stop | resume | each: sends packets of the migration protocol to another host's
 * queue pair, as its own host and as that queue pair's peer, from the interface eth0.
 *
 * forge sends packets that must be refused and counted, noise sends packets that must be dropped as any noise is, and replay
 * sends recorded packets of the peer, as they are and as its own. stop and resume are sent with the key and as the peer, and must
 * be believed. "each" sends one packet of each opcode; nothing is wrong with it, except that it is not signed without --key.
 * Prints "sent=N" and, for replay, "accepted=N": packets that are answered again, or make no difference. With --udp it needs no
 * capability: its packets come from a UDP socket, and from its own host.
 *
 * attack record FILE: writes packets from other hosts into the file, until it is killed.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>

#include "../../programs/dumps.h"
#include "migr.h"
#include "../../programs/random.h"

static struct {
	migr_key key;
	bool has_key, udp;
	uint8_t mac[6];			/* to whom */
	const char *to, *as, *own;	/* addresses: the target's, its peer's, ours */
	uint32_t qpn, peer_qpn;
	uint32_t rq_psn, sq_psn;	/* that the target began with */
	uint32_t other_qpn;		/* of another queue pair there */
	uint32_t epoch, peer_epoch;	/* the target's own, and the last that it accepted of its peer */
	const char *file;
} o;

static unsigned sent, accepted;

static void shoot(const struct frame *f)
{
	wire_send_frame(f);
	sent++;
	usleep(300);	/* no queue must overflow */
}

static struct frame frame_of(const struct rxe_migr_hdr *hdr, const char *from)
{
	struct packet p = {
		.opcode = hdr->opcode, .qpn = be32toh(hdr->dest_qpn), .psn = be32toh(hdr->psn), .len = sizeof(*hdr),
		.from = inet_addr(from), .to = inet_addr(o.to),
	};

	memcpy(p.data, hdr, sizeof(*hdr));
	return wire_frame(&p);
}

/* A packet as the peer would send it next. A packet that moves the connection moves it to this host. */
static struct rxe_migr_hdr next_of(int opcode, const char *from)
{
	bool answer = opcode == RXE_MIGR_OPCODE_STOP_ACK || opcode == RXE_MIGR_OPCODE_RESUME_ACK;
	struct rxe_migr_hdr hdr = migr_hdr(opcode, o.qpn, answer ? o.epoch : o.peer_epoch + 1, below(1 << 24));
	union ibv_gid was = migr_gid(o.as), is = migr_gid(opcode == RXE_MIGR_OPCODE_MOVED ? o.own : from);

	hdr.src_qpn = htobe32(o.peer_qpn);
	hdr.rq_psn = htobe32(o.sq_psn);
	hdr.sq_psn = htobe32(o.rq_psn);
	memcpy(hdr.old_gid, &was, sizeof(was));
	memcpy(hdr.new_gid, &is, sizeof(is));
	return hdr;
}

enum forgery { NO_MAC, OTHER_KEY, OLD_EPOCH, FAR_EPOCH, SRC_QPN, DEST_QPN, RQ_PSN, SQ_PSN, FLIPPED_BIT, FORGERIES };

static void forge(int opcode, enum forgery how, const char *from)
{
	struct rxe_migr_hdr hdr = next_of(opcode, from);
	migr_key other_key = { 1 };
	struct frame f;

	switch (how) {
	case OLD_EPOCH: hdr.epoch = htobe32(be32toh(hdr.epoch) - 2); break;
	case FAR_EPOCH: hdr.epoch = htobe32(be32toh(hdr.epoch) + (1u << 31)); break;
	case SRC_QPN: hdr.src_qpn = htobe32(o.peer_qpn + 1 + below(1000)); break;
	case DEST_QPN: hdr.dest_qpn = htobe32(o.other_qpn); break;
	case RQ_PSN: hdr.rq_psn ^= htobe32(1 << below(24)); break;
	case SQ_PSN: hdr.sq_psn ^= htobe32(1 << below(24)); break;
	default: break;
	}
	migr_sign(&hdr, how == NO_MAC ? NULL : how == OTHER_KEY ? other_key : o.key);
	f = frame_of(&hdr, from);
	if (how == FLIPPED_BIT) {
		f.at[FRAME_DATA + below(sizeof(hdr))] ^= 1 << below(8);
		wire_seal(&f);
	}
	shoot(&f);
}

static void noise(int opcode, const char *from)
{
	struct rxe_migr_hdr hdr = next_of(opcode, from);
	struct frame good, f;

	migr_sign(&hdr, o.key);
	f = good = frame_of(&hdr, from);
	f.at[FRAME_DATA + below(sizeof(hdr))] ^= 1 << below(8);
	shoot(&f);		/* another ICRC */
	f = good;
	f.len -= 4 * (1 + below(sizeof(hdr) / 4 + 2));
	wire_seal(&f);
	shoot(&f);		/* cut */
}

static void replay(void)
{
	int fd = open(o.file, O_RDONLY);
	in_addr_t own = inet_addr(o.own);
	struct frame f;

	CHECK(fd >= 0);
	while (read(fd, &f, sizeof(f)) == sizeof(f)) {
		struct rxe_migr_hdr hdr;
		uint32_t epoch;

		memcpy(&hdr, f.at + FRAME_DATA, sizeof(hdr));
		if (be32toh(hdr.dest_qpn) != o.qpn)
			continue;
		epoch = be32toh(hdr.epoch);
		printf("recorded: opcode %#x, epoch %u\n", hdr.opcode, epoch);
		shoot(&f);
		accepted += hdr.opcode == RXE_MIGR_OPCODE_RESUME ? epoch == o.peer_epoch :
			    hdr.opcode == RXE_MIGR_OPCODE_STOP_ACK || hdr.opcode == RXE_MIGR_OPCODE_RESUME_ACK ?
			    epoch == o.epoch : 0;
		memcpy(f.at + FRAME_IP + 12, &own, sizeof(own));
		wire_seal(&f);
		shoot(&f);
	}
	close(fd);
}

static void record(const char *file)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	struct frame f = {};

	CHECK(fd >= 0);
	puts("records");
	fflush(stdout);
	for (;;)
		if (wire_frame_of_ours(&f))
			CHECK(write(fd, &f, sizeof(f)) == sizeof(f));
}

static void read_key(const char *file)
{
	FILE *f = fopen(file, "r");

	CHECK(f);
	for (unsigned i = 0; i < sizeof(o.key); i++)
		CHECK(fscanf(f, "%2hhx", &o.key[i]) == 1);
	fclose(f);
	o.has_key = true;
}

/* Sends a packet as the peer, with nothing wrong in it. */
static void say(int opcode)
{
	struct rxe_migr_hdr hdr = next_of(opcode, o.as);
	struct frame f;

	migr_sign(&hdr, o.has_key ? o.key : NULL);
	f = frame_of(&hdr, o.as);
	shoot(&f);
}

static void attack(bool by_noise)
{
	for (int times = 0; times < 10; times++)
		for (int opcode = RXE_MIGR_OPCODE_STOP; opcode <= RXE_MIGR_OPCODE_MOVED; opcode++)
			for (int own = 0; own < 2; own++) {
				if (by_noise)
					noise(opcode, own ? o.own : o.as);
				else
					for (enum forgery how = 0; how < FORGERIES; how++)
						forge(opcode, how, own ? o.own : o.as);
			}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "key", 1, 0, 'k' }, { "mac", 1, 0, 'm' }, { "to", 1, 0, 't' }, { "as", 1, 0, 'a' }, { "own", 1, 0, 'o' },
		{ "qpn", 1, 0, 'q' }, { "peer-qpn", 1, 0, 'p' }, { "other-qpn", 1, 0, 'r' }, { "epoch", 1, 0, 'e' },
		{ "peer-epoch", 1, 0, 'f' }, { "rq-psn", 1, 0, 'R' }, { "sq-psn", 1, 0, 'S' }, { "file", 1, 0, 'F' },
		{ "udp", 0, 0, 'u' }, { 0 }
	};
	const char *what;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'k': read_key(optarg); break;
		case 'm': CHECK(sscanf(optarg, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &o.mac[0], &o.mac[1], &o.mac[2], &o.mac[3],
				       &o.mac[4], &o.mac[5]) == 6); break;
		case 't': o.to = optarg; break;
		case 'a': o.as = optarg; break;
		case 'o': o.own = optarg; break;
		case 'q': o.qpn = atoi(optarg); break;
		case 'p': o.peer_qpn = atoi(optarg); break;
		case 'r': o.other_qpn = atoi(optarg); break;
		case 'e': o.epoch = atoi(optarg); break;
		case 'f': o.peer_epoch = atoi(optarg); break;
		case 'R': o.rq_psn = atoi(optarg); break;
		case 'S': o.sq_psn = atoi(optarg); break;
		case 'F': o.file = optarg; break;
		case 'u': o.udp = true; break;
		default: return 2;
		}
	CHECK(optind + 1 == argc);
	what = argv[optind];
	rng = time(NULL);
	printf("seed %llu\n", (unsigned long long)rng);
	if (o.udp)
		wire_by_udp(o.own);
	else
		wire_on("eth0", o.mac);
	if (!strcmp(what, "record"))
		record(o.file);
	else if (!strcmp(what, "replay"))
		replay();
	else if (!strcmp(what, "stop"))
		say(RXE_MIGR_OPCODE_STOP);
	else if (!strcmp(what, "resume"))
		say(RXE_MIGR_OPCODE_RESUME);
	else if (!strcmp(what, "each"))
		for (int opcode = RXE_MIGR_OPCODE_STOP; opcode <= RXE_MIGR_OPCODE_MOVED; opcode++)
			say(opcode);
	else
		attack(what[0] == 'n');
	printf("sent=%u accepted=%u\n", sent, accepted);
	return 0;
}
