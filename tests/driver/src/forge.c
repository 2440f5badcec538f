// SPDX-License-Identifier: MIT
/*
 * forge [SUBJECT [PACKET]]: packets of the migration protocol that are not what they claim to be: changed in each field and each
 * bit, cut at each length, sent from elsewhere, or sent again.
 *
 * The sender sits on the wire and can send as anybody. It has the key where a missing MAC would hide what else is wrong. Each
 * packet is sent in every state of a queue pair, and to a tombstone. Only one thing is wrong with it each time: the right form is
 * accepted, and is sent last. A refused packet is counted, changes nothing and is not answered. A packet that is cut or has a
 * wrong ICRC is no packet of the protocol, and is not counted.
 */
#include <arpa/inet.h>

#include "../../programs/dumps.h"
#include "migr.h"
#include "../../programs/random.h"

#define THIRD "10.88.0.3"	/* where the peer moves to */
#define FOURTH "10.88.0.4"	/* where it never was */
#define NEAR_TOO "10.88.0.9"	/* an address of rxe0 that the queue pair has not got */

static const migr_key key = { 1, 2, 3 }, other_key = { 1, 2, 4 };

static struct ibv_context *ctx;
static struct ibv_qp *bystander;
static unsigned long sent, counted;

/* -------------------------------------------------------------- subjects -- */

enum state { RUNNING, PAUSED, RESUMING, STOPPED, TOMB, STATES };
static const char *const state_names[] = { "running", "paused", "resuming", "stopped", "tombstone" };

/* The peer's last accepted epoch, and the epoch of its next stop. */
enum { PEER_EPOCH = 2, NEXT_EPOCH };

static struct {
	enum state state;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;	/* NULL: a tombstone */
	uint32_t qpn;
	uint32_t epoch;		/* its own */
	uint32_t psn;		/* next, in both directions */
	uint8_t memory[4096];
} s;

static struct frame seen[64];	/* what was accepted of the peer so far: to be sent again */
static unsigned num_seen;

static void say(struct rxe_migr_hdr hdr, const char *from)
{
	struct frame f;

	migr_sign(&hdr, key);
	f = migr_frame(&hdr, from);
	wire_send_frame(&f);
	CHECK(num_seen < sizeof(seen) / sizeof(seen[0]));
	seen[num_seen++] = f;
}

/* The PSN of what was last received in order. Only RESUME_ACK is asked for it. */
static uint32_t psn_of(int opcode)
{
	return opcode == RXE_MIGR_OPCODE_RESUME_ACK ? (s.psn - 1) & 0xffffff : 0;
}

static void say_plain(int opcode, uint32_t epoch)
{
	say(migr_hdr(opcode, s.qpn, epoch, psn_of(opcode)), NULL);
}

static struct rxe_migr_hdr answered(int opcode, uint32_t epoch)
{
	struct rxe_migr_hdr hdr = migr_expect(opcode, key);

	CHECK(be32toh(hdr.src_qpn) == s.qpn && be32toh(hdr.epoch) == epoch);
	return hdr;
}

/* Takes the repetitions that were sent before the answer came. */
static void drain(void)
{
	struct packet p;

	while (wire_any(&p, 1))
		;
}

/* No packet is on its way. */
static void quiet(void)
{
	struct packet p;

	while (wire_any(&p, 1))
		if (!migr_is_call(p.opcode))
			DIE("opcode %#x is sent", p.opcode);
}

static void stop_it(void)
{
	struct rxe_migr_hdr ack;

	migr_stop(s.ctx);
	ack = migr_hdr(RXE_MIGR_OPCODE_STOP_ACK, s.qpn, s.epoch + 1, 0);
	ack.renewal = answered(RXE_MIGR_OPCODE_STOP, ++s.epoch).renewal;
	say(ack, NULL);
	drain();
}

static void make(enum state state)
{
	memset(&s, 0, sizeof(s));
	num_seen = 0;
	s.ctx = open_device();
	CHECK((s.pd = ibv_alloc_pd(s.ctx)) && (s.cq = ibv_create_cq(s.ctx, 64, NULL, NULL, 0)));
	CHECK((s.mr = ibv_reg_mr(s.pd, s.memory, sizeof(s.memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	s.qp = wire_qp(s.pd, IBV_QPT_RC, s.cq, NULL, 4);
	s.qpn = s.qp->qp_num;

	/* a past: both have been stopped */
	for (uint32_t e = 1; e <= PEER_EPOCH; e++) {
		say_plain(RXE_MIGR_OPCODE_STOP, e);
		answered(RXE_MIGR_OPCODE_STOP_ACK, e);
		say_plain(RXE_MIGR_OPCODE_NAK_STOPPED, e);
		say_plain(RXE_MIGR_OPCODE_RESUME, e);
		answered(RXE_MIGR_OPCODE_RESUME_ACK, e);
	}
	stop_it();
	IS(0, ibv_abort_context(s.ctx));
	answered(RXE_MIGR_OPCODE_RESUME, s.epoch);
	say_plain(RXE_MIGR_OPCODE_RESUME_ACK, s.epoch);
	drain();

	if (state == PAUSED) {
		say_plain(RXE_MIGR_OPCODE_STOP, NEXT_EPOCH);
		answered(RXE_MIGR_OPCODE_STOP_ACK, NEXT_EPOCH);
	}
	if (state == STOPPED || state == RESUMING || state == TOMB)
		stop_it();
	if (state == RESUMING) {
		IS(0, ibv_abort_context(s.ctx));
		answered(RXE_MIGR_OPCODE_RESUME, s.epoch);
	}
	if (state == TOMB) {
		IS(0, ibv_destroy_qp(s.qp));
		s.qp = NULL;
	}
	s.state = state;
	quiet();
}

static void unmake(void)
{
	if (s.qp)
		IS(0, ibv_destroy_qp(s.qp));
	IS(0, ibv_dereg_mr(s.mr));
	IS(0, ibv_destroy_cq(s.cq));
	IS(0, ibv_dealloc_pd(s.pd));
	IS(0, ibv_close_device(s.ctx));
	drain();
}

/* Work of both sides is done, and right. */
static void exchange(void)
{
	struct ibv_sge sge = { (uintptr_t)s.memory, 64, s.mr->lkey };
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	struct packet p = { .opcode = WRITE_ONLY, .qpn = s.qpn, .psn = s.psn, .ack = true, .rkey = s.mr->rkey,
			    .va = (uintptr_t)s.memory + 1024, .length = 64, .len = 64 };

	for (int i = 0; i < 64; i++)
		s.memory[i] = p.data[i] = rnd();
	wire_send(&p);
	CHECK(wire_expect(ACK, s.psn).syndrome == ACKED);
	CHECK(!memcmp(s.memory + 1024, p.data, 64));
	IS(0, ibv_post_send(s.qp, &wr, &bad));
	p = wire_expect(SEND_ONLY, s.psn);
	CHECK(p.len == 64 && !memcmp(p.data, s.memory, 64));
	p = (struct packet){ .opcode = ACK, .qpn = s.qpn, .psn = s.psn, .syndrome = ACKED };
	wire_send(&p);
	CHECK(wire_completion(s.cq).status == IBV_WC_SUCCESS);
	s.psn++;
}

/* --------------------------------------------------------------- packets -- */

enum kind { STOP, STOP_ACK, RESUME, RESUME_ACK, NAK_STOPPED, MOVED, RESUME_ELSEWHERE, KINDS };
static const char *const kind_names[] = {
	"STOP", "STOP_ACK", "RESUME", "RESUME_ACK", "NAK_STOPPED", "MOVED", "RESUME from elsewhere",
};

static int opcode_of(enum kind k)
{
	return k == RESUME_ELSEWHERE ? RXE_MIGR_OPCODE_RESUME : RXE_MIGR_OPCODE_STOP + k;
}

static void set_gid(uint8_t *to, const char *address)
{
	union ibv_gid g = migr_gid(address);

	memcpy(to, &g, sizeof(g));
}

/* From where it comes. */
static const char *origin(enum kind k)
{
	return k == RESUME_ELSEWHERE || (k == MOVED && s.state == TOMB) ? THIRD : FAR;
}

/* A packet that is accepted in this state; not signed. A tombstone accepts only STOP, RESUME and MOVED. */
static struct rxe_migr_hdr good(enum kind k)
{
	struct rxe_migr_hdr hdr = migr_hdr(opcode_of(k), s.qpn, NEXT_EPOCH, psn_of(opcode_of(k)));

	if (k == STOP_ACK || k == RESUME_ACK)
		hdr.epoch = htobe32(s.epoch);
	if (k == MOVED || k == RESUME_ELSEWHERE)
		set_gid(hdr.new_gid, THIRD);
	if (k == MOVED && s.state == TOMB) {
		hdr.src_qpn = hdr.dest_qpn;
		hdr.psn = htobe32(FAR_QPN);
		hdr.epoch = htobe32(s.epoch);
		set_gid(hdr.old_gid, NEAR);
	}
	return hdr;
}

static bool is_good(enum kind k)
{
	return s.state != TOMB || k == STOP || k == RESUME || k == MOVED || k == RESUME_ELSEWHERE;
}

/* The opcode of its answer; 0: none. */
static int answer_to(enum kind k)
{
	bool stopped = s.state == STOPPED || s.state == TOMB;

	switch (k) {
	case STOP: return RXE_MIGR_OPCODE_STOP_ACK;
	case RESUME: return stopped ? RXE_MIGR_OPCODE_NAK_STOPPED : RXE_MIGR_OPCODE_RESUME_ACK;
	case RESUME_ELSEWHERE: return s.state == TOMB ? 0 : stopped ? RXE_MIGR_OPCODE_NAK_STOPPED : RXE_MIGR_OPCODE_RESUME_ACK;
	case MOVED: return stopped ? 0 : s.state == RESUMING ? RXE_MIGR_OPCODE_RESUME : RXE_MIGR_OPCODE_RESUME_ACK;
	default: return 0;
	}
}

/* ------------------------------------------------------ what must not change -- */

struct snapshot {
	struct rxe_migr_rec_qp rec;
	struct rxe_migr_status st;
	struct migr_counts counts;
	uint32_t silent;	/* peers */
};

static struct snapshot snapshot(void)
{
	struct rxe_migr_query query;
	struct snapshot x = {};

	if (s.qp)
		x.rec = migr_record(s.qp);
	if (migr_status(ctx, s.qpn, s.state == TOMB, &x.st))
		x.st.deadline_ms = 0;
	migr_counters(&x.counts);
	x.counts.sent_stop = x.counts.sent_resume = 0;	/* see migr_is_call() */
	IS(0, ibv_query_migration(s.ctx, &query));
	x.silent = query.num_silent;
	return x;
}

/* So many packets were refused since before, and nothing else happened. */
static void unchanged(struct snapshot *before, uint64_t refused, const char *what)
{
	struct snapshot after = snapshot();

	before->counts.migr_refused += refused;
	if (after.counts.migr_refused != before->counts.migr_refused)
		DIE("%s: %lld more are refused than ought to be", what,
		    (long long)(after.counts.migr_refused - before->counts.migr_refused));
	for (unsigned i = 0; i < sizeof(after.counts) / 8; i++)
		if (((uint64_t *)&after.counts)[i] != ((uint64_t *)&before->counts)[i])
			DIE("%s: counter %u of struct migr_counts changes", what, i);
	if (memcmp(&after.rec, &before->rec, sizeof(after.rec)) || memcmp(&after.st, &before->st, sizeof(after.st)))
		DIE("%s: the queue pair has changed", what);
	if (after.silent != before->silent)
		DIE("%s: %u peers are silent, and were %u", what, after.silent, before->silent);
	quiet();
	counted += refused;
}

static const char *about(enum kind k, const char *what)
{
	static char text[200];

	snprintf(text, sizeof(text), "%s, %s, %s", state_names[s.state], kind_names[k], what);
	return text;
}

static void shoot(const struct frame *f)
{
	wire_send_frame(f);
	sent++;
}

/* ------------------------------------------------------------- forgeries -- */

enum forgery {
	NO_MAC, RANDOM_MAC, OTHER_KEY, NO_VERSION, OLD_VERSION, NEXT_VERSION, OTHER_OPCODE, FLAGS, SRC_QPN,
	DEST_QPN, BTH_QPN, RQ_PSN, SQ_PSN,
	OLD_EPOCH, OLDEST_EPOCH, FAR_EPOCH, BTH_PSN, UNSENT_PSN, LOST_PSN, PKEY, NEW_GID, OLD_GID, FROM, FROM_SIGNED, TO, FORGERIES
};
static const char *const forgery_names[] = {
	"no MAC", "random MAC", "MAC of another key", "version 0", "version 1", "version 3",
	"another opcode in the header", "flags", "src_qpn", "dest_qpn", "QPN of the BTH", "rq_psn", "sq_psn", "old epoch", "oldest epoch", "epoch half the numbers ahead",
	"PSN of the BTH", "a PSN that was not sent", "a PSN before what was acknowledged", "P_Key", "new_gid", "old_gid", "from elsewhere", "from elsewhere, and says so",
	"to another address of the host",
};

static void put_address(struct frame *f, int at, const char *address)
{
	in_addr_t a = inet_addr(address);

	memcpy(f->at + FRAME_IP + at, &a, sizeof(a));
}

/* Would this forgery leave the packet right, or change what nobody looks at? */
static bool is_harmless(enum kind k, enum forgery how)
{
	bool any_epoch = s.state == TOMB && (k == STOP || k == RESUME || k == RESUME_ELSEWHERE);

	switch (how) {
	case OLD_EPOCH:
		/* A RESUME in place that comes again is answered again. */
		return k == RESUME || any_epoch;
	case OLDEST_EPOCH:
	case FAR_EPOCH:
		return any_epoch;
	case UNSENT_PSN:
	case LOST_PSN:
		/* the answer that is waited for tells old copies from new */
		return k != RESUME_ACK || s.state != RESUMING;
	case OLD_GID:
		return k != MOVED && k != RESUME_ELSEWHERE;
	case FROM_SIGNED:
		/* a sender with the key may move a connection */
		return k == RESUME || (s.state == TOMB && k == RESUME_ELSEWHERE);
	default:
		return false;
	}
}

static void forge_header(enum kind k, enum forgery how, struct rxe_migr_hdr *hdr)
{
	bool answer = k == STOP_ACK || k == RESUME_ACK;
	uint32_t epoch = be32toh(hdr->epoch);

	switch (how) {
	case NO_VERSION: hdr->version = 0; break;
	case OLD_VERSION: hdr->version = 1; break;
	case NEXT_VERSION: hdr->version = 3; break;
	case FLAGS: hdr->flags |= htobe16((k == STOP_ACK ? 16 : 8) << below(12)); break;	/* 8 is GONE */
	case RQ_PSN: hdr->rq_psn = htobe32(1u << below(32)); break;
	case SQ_PSN: hdr->sq_psn = htobe32(1u << below(32)); break;
	case SRC_QPN: hdr->src_qpn = htobe32(be32toh(hdr->src_qpn) + 1); break;
	/* a tombstone has one */
	case OLD_EPOCH: hdr->epoch = htobe32(answer || s.state == TOMB ? epoch - 1 : PEER_EPOCH); break;
	case OLDEST_EPOCH: hdr->epoch = htobe32(0); break;
	case FAR_EPOCH: hdr->epoch = htobe32(PEER_EPOCH + (1u << 31) + 1); break;
	case UNSENT_PSN: hdr->psn = htobe32(s.psn & 0xffffff); break;
	case LOST_PSN: hdr->psn = htobe32((s.psn - 2) & 0xffffff); break;
	case NEW_GID:
		if (k == MOVED && s.state != TOMB)
			memset(hdr->new_gid, 0x20, sizeof(hdr->new_gid));	/* an address of IPv6 */
		else
			set_gid(hdr->new_gid, FOURTH);
		break;
	case OLD_GID: set_gid(hdr->old_gid, FOURTH); break;
	case FROM_SIGNED:
		if (k == MOVED || k == RESUME_ELSEWHERE)
			set_gid(hdr->old_gid, FOURTH);
		set_gid(hdr->new_gid, k == MOVED && s.state != TOMB ? THIRD : FOURTH);
		break;
	default:
		break;
	}
}

static void forge(enum kind k, enum forgery how, struct frame *f)
{
	enum { SRC = 12, DST = 16 };
	struct rxe_migr_hdr hdr = good(k);
	uint8_t *bth = f->at + FRAME_BTH;

	forge_header(k, how, &hdr);
	migr_sign(&hdr, how == NO_MAC ? NULL : how == OTHER_KEY ? other_key : key);
	if (how == RANDOM_MAC)
		for (unsigned i = 0; i < sizeof(hdr.mac); i++)
			hdr.mac[i] = rnd();
	*f = migr_frame(&hdr, origin(k));
	switch (how) {
	case OTHER_OPCODE:	/* the BTH stays that of the good one */
		hdr.opcode = hdr.opcode == RXE_MIGR_OPCODE_MOVED ? RXE_MIGR_OPCODE_STOP : hdr.opcode + 1;
		migr_sign(&hdr, key);
		memcpy(f->at + FRAME_DATA, &hdr, sizeof(hdr));
		break;
	case DEST_QPN:
		hdr.dest_qpn = htobe32(bystander->qp_num);
		migr_sign(&hdr, key);
		memcpy(f->at + FRAME_DATA, &hdr, sizeof(hdr));
		break;
	case OLD_VERSION: f->len -= sizeof(hdr) - RXE_MIGR_HDR_LEN_MIN; break;
	case BTH_QPN: bth[7] = bystander->qp_num; bth[6] = bystander->qp_num >> 8; break;
	case BTH_PSN: bth[11]++; break;
	case PKEY: bth[2] = 0x12; break;
	case FROM: case FROM_SIGNED: put_address(f, SRC, FOURTH); break;
	case TO: put_address(f, DST, NEAR_TOO); break;
	default: break;
	}
	wire_seal(f);
}

static void forgeries(enum kind k)
{
	struct snapshot before = snapshot();
	struct frame f;

	for (enum forgery how = 0; how < FORGERIES; how++) {
		if (is_harmless(k, how))
			continue;
		forge(k, how, &f);
		shoot(&f);
		unchanged(&before, 1, about(k, forgery_names[how]));
	}
	/* without the key, as anybody and as the sender itself */
	for (int i = 0; i < 2; i++) {
		struct rxe_migr_hdr hdr = good(k);

		if (i)
			set_gid(hdr.new_gid, FOURTH);
		hdr.epoch = htobe32(be32toh(hdr.epoch) + below(1000));
		f = migr_frame(&hdr, i ? FOURTH : origin(k));
		shoot(&f);
		unchanged(&before, 1, about(k, "without the key"));
	}
}

/* Bits of the BTH that mean nothing here: SE, M, full membership, 8 reserved bits, and AckReq with 7 reserved bits. */
static const uint8_t meaningless[FRAME_DATA - FRAME_BTH] = { 0, 0xc0, 0x80, 0, 0xff, 0, 0, 0, 0xff };

/* If this bit is changed and the ICRC is right, is it still a packet of the protocol? */
static bool reaches(const struct frame *f, int byte)
{
	uint8_t opcode = f->at[FRAME_BTH];

	return opcode >= RXE_MIGR_OPCODE_STOP && opcode <= RXE_MIGR_OPCODE_MOVED && byte != FRAME_BTH + 1;
}

static void flips(enum kind k)
{
	struct snapshot before = snapshot();
	struct rxe_migr_hdr hdr = good(k);
	struct frame whole, f;
	uint64_t refused = 0;

	migr_sign(&hdr, key);
	whole = migr_frame(&hdr, origin(k));
	for (unsigned i = FRAME_BTH; i < whole.len; i++)
		for (int bit = 1; bit < 256; bit <<= 1) {
			if (i < FRAME_DATA && meaningless[i - FRAME_BTH] & bit)
				continue;
			f = whole;
			f.at[i] ^= bit;
			shoot(&f);
			if (i >= whole.len - FRAME_ICRC)
				continue;
			wire_seal(&f);
			shoot(&f);
			refused += reaches(&f, i);
		}
	unchanged(&before, refused, about(k, "a bit"));
}

/* Cut at any length, as by a fault, or with lengths and checksums that fit. */
static void cuts(enum kind k)
{
	struct snapshot before = snapshot();
	struct rxe_migr_hdr hdr = good(k);
	struct frame whole, f;

	migr_sign(&hdr, key);
	whole = migr_frame(&hdr, origin(k));
	for (unsigned len = FRAME_IP; len < whole.len; len++) {
		f = whole;
		f.len = len;
		shoot(&f);
		if (len < FRAME_BTH)
			continue;
		wire_seal(&f);
		shoot(&f);
	}
	unchanged(&before, 0, about(k, "cut"));
}

/* The packet without a fault is accepted. */
static void control(enum kind k)
{
	uint64_t refused = migr_counter("migr_refused");
	struct rxe_migr_hdr hdr = good(k);
	int answer = is_good(k) ? answer_to(k) : 0;

	say(hdr, origin(k));
	if (answer)
		migr_expect(answer, key);
	if (migr_counter("migr_refused") != refused + !is_good(k))
		DIE("%s, %s: the good one is %s", state_names[s.state], kind_names[k], is_good(k) ? "refused" : "not refused");
}

static void forged(enum state state, enum kind k)
{
	make(state);
	forgeries(k);
	flips(k);
	cuts(k);
	if (state == RUNNING)
		exchange();
	control(k);
	if ((state == PAUSED || state == RUNNING) && k == RESUME)
		exchange();
	unmake();
}

/* --------------------------------------------------------------- replays -- */

static void again(const struct frame *f, uint64_t refused, int answer, const char *what)
{
	struct snapshot before = snapshot();
	struct migr_counts *c = &before.counts;

	shoot(f);
	if (answer)
		migr_expect(answer, key);
	switch (f->at[FRAME_BTH] * !refused) {
	case RXE_MIGR_OPCODE_RESUME: c->rcvd_resume++; break;
	case RXE_MIGR_OPCODE_STOP: c->rcvd_stop++; break;
	case RXE_MIGR_OPCODE_NAK_STOPPED: c->rcvd_nak_stopped++; break;
	}
	c->sent_nak_stopped += answer == RXE_MIGR_OPCODE_NAK_STOPPED;
	unchanged(&before, refused, what);
}

static struct frame *last_of(int opcode)
{
	for (unsigned i = num_seen; i--;)
		if (seen[i].at[FRAME_BTH] == opcode)
			return &seen[i];
	DIE("opcode %#x was never sent", opcode);
}

/* A damaged ordinary request, or one for another kind of queue pair, is not answered with NAK_STOPPED. */
static void damaged(void)
{
	struct packet p = { .opcode = SEND_ONLY, .qpn = s.qpn, .psn = s.psn, .ack = true, .len = 8 };
	struct snapshot before = snapshot();
	struct frame whole = wire_frame(&p), f;

	for (int i = 0; i < 5; i++) {
		f = whole;
		switch (i) {
		case 0: f.at[f.len - 1] ^= 1; break;
		case 1: f.at[FRAME_BTH] |= UC; break;
		case 2: f.at[FRAME_BTH + 2] = 0x12; break;
		case 3: put_address(&f, 12, FOURTH); break;
		case 4: put_address(&f, 16, NEAR_TOO); break;
		}
		if (i)
			wire_seal(&f);
		shoot(&f);
		unchanged(&before, 0, "a damaged request");
	}
	shoot(&whole);
	answered(RXE_MIGR_OPCODE_NAK_STOPPED, s.epoch);
}

/* Sends all packets again that were genuine once, in this state. */
static void replayed(enum state state)
{
	struct frame *last[RXE_MIGR_OPCODE_MOVED + 1] = {};
	char what[200];

	make(state);
	for (int op = RXE_MIGR_OPCODE_STOP; op <= RXE_MIGR_OPCODE_NAK_STOPPED; op++)
		last[op] = last_of(op);
	for (unsigned i = 0; i < num_seen; i++) {
		int op = seen[i].at[FRAME_BTH], answer = 0;
		bool refused = true;

		snprintf(what, sizeof(what), "%s, number %u of the past again", state_names[state], i);
		if (&seen[i] == last[op]) {
			/* the latest RESUME is answered again, as is the STOP of this pause */
			if (op == RXE_MIGR_OPCODE_RESUME) {
				refused = false;
				answer = state == STOPPED || state == TOMB ? RXE_MIGR_OPCODE_NAK_STOPPED :
									 RXE_MIGR_OPCODE_RESUME_ACK;
			} else if (op == RXE_MIGR_OPCODE_STOP && state == PAUSED) {
				refused = false;
				answer = RXE_MIGR_OPCODE_STOP_ACK;
			} else if (op == RXE_MIGR_OPCODE_STOP_ACK && state != TOMB) {
				refused = false;	/* an answer of this stop, which does not end the stop sooner */
			} else if (op == RXE_MIGR_OPCODE_RESUME_ACK && (state == RUNNING || state == PAUSED)) {
				refused = false;	/* an answer to a RESUME that is no longer owed */
			}
		} else if (op == RXE_MIGR_OPCODE_RESUME && state == TOMB) {
			/* a tombstone answers each question of the peer */
			refused = false;
			answer = RXE_MIGR_OPCODE_NAK_STOPPED;
		}
		if (op == RXE_MIGR_OPCODE_STOP && state == TOMB)
			answer = RXE_MIGR_OPCODE_STOP_ACK;
		if (state == TOMB && (op == RXE_MIGR_OPCODE_STOP || op == RXE_MIGR_OPCODE_RESUME)) {
			uint64_t before = migr_counter("migr_refused");

			shoot(&seen[i]);
			migr_expect(answer, key);
			CHECK(migr_counter("migr_refused") == before);
			continue;
		}
		again(&seen[i], refused, answer, what);
	}
	if (state == RUNNING)
		exchange();
	if (state == STOPPED || state == TOMB)
		damaged();
	unmake();
}

/* A queue pair's own packets, sent back to it, are refused. */
static void reflected(void)
{
	struct snapshot before;
	struct packet p;
	struct frame f;

	make(RUNNING);
	migr_stop(s.ctx);
	for (int i = 0; i < 2; i++) {
		do
			CHECK(wire_any(&p, PATIENCE * 1000));
		while (p.opcode != (i ? RXE_MIGR_OPCODE_RESUME : RXE_MIGR_OPCODE_STOP));
		if (i)
			say_plain(RXE_MIGR_OPCODE_RESUME_ACK, s.epoch + 1);
		else
			say_plain(RXE_MIGR_OPCODE_STOP_ACK, s.epoch + 1);
		drain();
		before = snapshot();
		p.opcode = i ? RXE_MIGR_OPCODE_RESUME : RXE_MIGR_OPCODE_STOP;
		p.qpn = s.qpn;
		p.to = p.from = 0;
		f = wire_frame(&p);
		shoot(&f);
		unchanged(&before, 1, "its own");
		if (!i)
			IS(0, ibv_abort_context(s.ctx));
	}
	unmake();
}

/* The peer of a stopped queue pair is asked anew. Only what it says after that answers the question. */
static void asked_anew(void)
{
	static const enum kind kinds[] = { STOP_ACK, RESUME };
	struct rxe_migr_query query;
	struct frame late;
	uint16_t renewal;

	make(STOPPED);
	renewal = be16toh(good(STOP_ACK).renewal);
	for (int i = 0; i < 2; i++) {
		struct rxe_migr_hdr hdr = good(kinds[i]);

		IS(0, ibv_renew_stop(s.ctx, &query));
		CHECK(snapshot().silent == 1);
		hdr.renewal = htobe16(renewal);
		migr_sign(&hdr, key);
		late = migr_frame(&hdr, NULL);
		again(&late, 0, answer_to(kinds[i]), "a late answer");

		hdr.renewal = htobe16(++renewal);
		say(hdr, NULL);
		if (answer_to(kinds[i]))
			migr_expect(answer_to(kinds[i]), key);
		CHECK(snapshot().silent == 0);
	}
	unmake();
}

/* All packets of one connection are refused by another connection with the same numbers and addresses. */
static void refuses_the_past(const char *what)
{
	for (unsigned i = 0; i < num_seen; i++)
		again(&seen[i], 1, 0, what);
}

/* The next packet of ours, whatever it is */
static struct rxe_migr_hdr next_of_ours(void)
{
	struct rxe_migr_hdr hdr;
	struct packet p;

	do
		CHECK(wire_any(&p, PATIENCE * 1000));
	while (p.opcode < RXE_MIGR_OPCODE_STOP);
	memcpy(&hdr, p.data, sizeof(hdr));
	return hdr;
}

/* A connection ends, and another one has its numbers and addresses, but other first PSNs. */
static void connected_anew(void)
{
	enum { RQ = 0x123456, SQ = 0x654321 };
	struct rxe_migr_hdr hdr;
	unsigned past;

	make(PAUSED);
	past = num_seen;
	IS(0, ibv_modify_qp(s.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	wire_lead_from(s.qp, 4, RQ, SQ, IBV_QPS_RTR);
	refuses_the_past("RTR");

	/* a peer that has not reached RTS either names only one PSN, which nobody here can check */
	hdr = migr_hdr(RXE_MIGR_OPCODE_STOP, s.qpn, 1, 0);
	hdr.flags = 0;
	say(hdr, NULL);
	hdr = next_of_ours();
	CHECK(hdr.opcode == RXE_MIGR_OPCODE_STOP_ACK && !hdr.flags && be32toh(hdr.rq_psn) == RQ && !hdr.sq_psn);

	IS(0, ibv_modify_qp(s.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	wire_lead_from(s.qp, 4, RQ, SQ, IBV_QPS_RTS);
	num_seen = past;
	refuses_the_past("RTS");

	/* from a peer in RTR, with the right PSN and with that of the connection before; from a peer in RTS */
	for (int i = 0; i < 3; i++) {
		struct snapshot before = snapshot();

		hdr = migr_hdr(RXE_MIGR_OPCODE_STOP, s.qpn, 1 + i, 0);
		hdr.rq_psn = htobe32(i == 1 ? 0 : SQ);
		hdr.sq_psn = htobe32(i == 2 ? RQ : 0);
		hdr.flags = htobe16(i == 2 ? RXE_MIGR_FLAG_SQ_PSN : 0);
		say(hdr, NULL);
		if (i == 1) {
			unchanged(&before, 1, "of the one before, without sq_psn");
			continue;
		}
		hdr = migr_expect(RXE_MIGR_OPCODE_STOP_ACK, key);
		CHECK(be32toh(hdr.rq_psn) == RQ && be32toh(hdr.sq_psn) == SQ);
	}

	/* with the PSNs of the first connection, its old packets are believed: so only the PSNs were in the way */
	IS(0, ibv_modify_qp(s.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	wire_lead(s.qp, 4);
	wire_send_frame(&seen[0]);
	migr_expect(RXE_MIGR_OPCODE_STOP_ACK, key);
	unmake();
}

/* Without a key anybody on the wire can stop a connection, but nobody can move it. */
static void no_key(void)
{
	static const enum kind moves[] = { RESUME_ELSEWHERE, MOVED };
	struct rxe_migr_hdr hdr;
	struct snapshot before;
	struct frame f;

	for (int tomb = 0; tomb < 2; tomb++) {
		make(tomb ? TOMB : RUNNING);
		migr_set_key(ctx, NULL);
		before = snapshot();
		for (int i = 0; i < 2; i++)
			for (int with = 0; with < 2; with++) {
				hdr = good(moves[i]);
				migr_sign(&hdr, with ? key : NULL);
				f = migr_frame(&hdr, origin(moves[i]));
				shoot(&f);
				unchanged(&before, 1, kind_names[moves[i]]);
			}
		if (!tomb) {
			hdr = good(STOP);
			f = migr_frame(&hdr, NULL);
			wire_send_frame(&f);
			migr_expect(RXE_MIGR_OPCODE_STOP_ACK, NULL);
			hdr = good(RESUME);
			f = migr_frame(&hdr, NULL);
			wire_send_frame(&f);
			migr_expect(RXE_MIGR_OPCODE_RESUME_ACK, NULL);
			exchange();
		}
		migr_set_key(ctx, key);
		unmake();
	}
}

int main(int argc, char **argv)
{
	struct ibv_pd *pd;
	struct ibv_cq *cq;

	ctx = wire_open();
	CHECK((pd = ibv_alloc_pd(ctx)) && (cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
	bystander = wire_qp(pd, IBV_QPT_RC, cq, NULL, 4);
	migr_set_key(ctx, key);
	for (enum state state = 0; state < STATES; state++) {
		if (argc > 1 && strcmp(argv[1], state_names[state]))
			continue;
		for (enum kind k = 0; k < KINDS; k++)
			if (argc < 3 || !strcmp(argv[2], kind_names[k]))
				forged(state, k);
		replayed(state);
		printf("%s: %lu packets so far, %lu counted\n", state_names[state], sent, counted);
		fflush(stdout);
	}
	reflected();
	asked_anew();
	connected_anew();
	no_key();
	printf("%lu packets, %lu counted\n", sent, counted);
	return 0;
}
