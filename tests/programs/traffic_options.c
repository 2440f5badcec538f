// SPDX-License-Identifier: MIT
/* The command line. */
#include "traffic.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape shape = {
	.qps = 1, .depth = 16, .max_size = 65536, .ops = DEFAULT_OPS, .fence = 12, .rnr_gap = 2000,
	.timeout = 8, .retry_cnt = 1, .rnr_retry = 1, .rnr_timer = 12, .rd_atomic = 8,
};
struct options opt = { .port = "18600", .stall = 90, .contexts = 1 };

static const char usage[] =
"usage: traffic [OPTION...]         server: waits for one client\n"
"       traffic [OPTION...] SERVER  client\n"
"Both say \"ready\" when they are connected, and a line with the result in the end.\n"
"Exit: 0 all exact, 1 not (one line says what), 2 no progress, 3 could not begin.\n"
"\n"
"The client's hold for both:\n"
"  --qps N            queue pairs (1)\n"
"  --depth N          work requests outstanding per queue pair (16)\n"
"  --window N         receives posted per queue pair (= depth)\n"
"  --size MAX         bytes of the largest messages (64K)\n"
"  --ops LIST         of send,imm,inv,write,wimm,echo,read,wread,fadd,count,cas,awrite,flush;\n"
"                     default (all but the last two), all; -NAME takes one out\n"
"  --messages N       per queue pair and direction\n"
"  --seconds N        without these two: until SIGTERM or SIGINT to one of them\n"
"  --rate N           operations per second and queue pair\n"
"  --seed N\n"
"  --fence PERCENT    of the messages (12)\n"
"  --rnr              receive queues short, now and then empty; --rnr-retry 6 --retry-cnt 3 --rnr-timer 22\n"
"  --rnr-gap US       for that long at most (2000)\n"
"  --uc               queue pairs of UC: send,imm,write,wimm\n"
"  --timeout N --retry-cnt N --rnr-retry N --rnr-timer N   (8, 1, 1, 12)\n"
"  --rd-atomic N      READs and atomics outstanding (8)\n"
"  --mtu BYTES        (the port's)\n"
"Each end's own:\n"
"  -d DEVICE          (the first)\n"
"  -g GID             index, or IPv4 or IPv6 address (the first IPv4)\n"
"  --port N           TCP (18600)\n"
"  --event            sleep in ibv_get_cq_event() instead of polling\n"
"  --idle             say nothing until SIGUSR1, or the peer's first message\n"
"  --go-file FILE     with --idle: or until this file is there\n"
"  --rtr-only         never send before the peer has ended: stay in RTR\n"
"  --contexts N       each with a thread, and its own share of the queue pairs (1)\n"
"  --fork             a forked child has the receives of every other queue pair\n"
"  --srq              one shared receive queue for the queue pairs of a context, with a limit\n"
"  --holes            ten of each kind of object, every other destroyed\n"
"  --stall SECONDS    without progress: print the state, exit 2 (90: no move takes so long)\n"
"  --json\n"
"SIGUSR1 prints the progress.\n";

enum { DEPTH = 256, WINDOW, SIZE, OPS, QPS, MESSAGES, SECS, RATE, SEED, FENCE, RNR, RNR_GAP, UC, TIMEOUT, RETRY,
       RNR_RETRY, RNR_TIMER, RD_ATOMIC, MTU, PORT, EVENT, IDLE, GO_FILE, RTR_ONLY, CONTEXTS, FORK, HOLES_, SRQ, STALL,
       JSON, HELP };

static const struct option options[] = {
	{ "qps", 1, 0, QPS }, { "depth", 1, 0, DEPTH }, { "window", 1, 0, WINDOW }, { "size", 1, 0, SIZE },
	{ "ops", 1, 0, OPS }, { "messages", 1, 0, MESSAGES }, { "seconds", 1, 0, SECS }, { "rate", 1, 0, RATE },
	{ "seed", 1, 0, SEED }, { "fence", 1, 0, FENCE }, { "rnr", 0, 0, RNR }, { "rnr-gap", 1, 0, RNR_GAP }, { "uc", 0, 0, UC },
	{ "timeout", 1, 0, TIMEOUT }, { "retry-cnt", 1, 0, RETRY }, { "rnr-retry", 1, 0, RNR_RETRY },
	{ "rnr-timer", 1, 0, RNR_TIMER }, { "rd-atomic", 1, 0, RD_ATOMIC }, { "mtu", 1, 0, MTU },
	{ "port", 1, 0, PORT }, { "event", 0, 0, EVENT }, { "idle", 0, 0, IDLE }, { "go-file", 1, 0, GO_FILE },
	{ "rtr-only", 0, 0, RTR_ONLY }, { "contexts", 1, 0, CONTEXTS }, { "fork", 0, 0, FORK },
	{ "holes", 0, 0, HOLES_ }, { "srq", 0, 0, SRQ }, { "stall", 1, 0, STALL }, { "json", 0, 0, JSON }, { "help", 0, 0, HELP },
	{ 0 }
};

static uint64_t number(const char *s, uint64_t min, uint64_t max)
{
	char *end;
	uint64_t n = strtoull(s, &end, 0);

	if (*end == 'K' || *end == 'k')
		n <<= 10, end++;
	else if (*end == 'M' || *end == 'm')
		n <<= 20, end++;
	if (end == s || *end || n < min || n > max)
		unusable("%s is not a number from %lu to %lu", s, min, max);
	return n;
}

static uint32_t ops(char *list)
{
	uint32_t mask = 0;

	for (char *s = strtok(list, ","); s; s = strtok(NULL, ",")) {
		bool out = *s == '-';
		unsigned i;

		if (!strcmp(s, "default")) {
			mask |= DEFAULT_OPS;
			continue;
		}
		if (!strcmp(s, "all")) {
			mask |= (1u << NUM_OPS) - 1;
			continue;
		}
		for (i = 0; i < NUM_OPS && strcmp(s + out, op_name[i]); i++)
			;
		if (i == NUM_OPS)
			unusable("unknown operation %s", s);
		mask = out ? mask & ~(1u << i) : mask | 1u << i;
	}
	return mask;
}

static uint32_t mtu(const char *s)
{
	uint64_t bytes = number(s, 256, 4096);

	for (uint32_t m = IBV_MTU_256; m <= IBV_MTU_4096; m++)
		if (128u << m == bytes)
			return m;
	unusable("%s is no MTU", s);
}

static void take(int c)
{
	switch (c) {
	case 'd': opt.device = optarg; break;
	case 'g': opt.gid = optarg; break;
	case QPS: shape.qps = number(optarg, 1, MAX_QPS); break;
	case DEPTH: shape.depth = number(optarg, 4, 1024); break;
	case WINDOW: shape.window = number(optarg, 4, 1024); break;
	case SIZE: shape.max_size = number(optarg, 1, 16 << 20); break;
	case OPS: shape.ops = ops(optarg); break;
	case MESSAGES: shape.messages = number(optarg, 1, 1ull << 40); break;
	case SECS: shape.seconds = number(optarg, 1, 1 << 20); break;
	case RATE: shape.rate = number(optarg, 1, 1 << 20); break;
	case SEED: shape.seed = number(optarg, 0, ~0ull); break;
	case FENCE: shape.fence = number(optarg, 0, 100); break;
	case RNR:
		shape.rnr = 1;
		shape.rnr_retry = 6;
		shape.retry_cnt = 3;
		shape.rnr_timer = 22;
		break;
	case RNR_GAP: shape.rnr_gap = number(optarg, 0, 1000000); break;
	case UC: shape.uc = 1; break;
	case TIMEOUT: shape.timeout = number(optarg, 0, 31); break;
	case RETRY: shape.retry_cnt = number(optarg, 0, 7); break;
	case RNR_RETRY: shape.rnr_retry = number(optarg, 0, 7); break;
	case RNR_TIMER: shape.rnr_timer = number(optarg, 0, 31); break;
	case RD_ATOMIC: shape.rd_atomic = number(optarg, 1, 128); break;
	case MTU: shape.mtu = mtu(optarg); break;
	case PORT: opt.port = optarg; break;
	case EVENT: opt.event = true; break;
	case IDLE: opt.idle = true; break;
	case GO_FILE: opt.go_file = optarg; break;
	case RTR_ONLY: opt.rtr_only = true; break;
	case CONTEXTS: opt.contexts = number(optarg, 1, MAX_CONTEXTS); break;
	case FORK: opt.fork = true; break;
	case HOLES_: opt.holes = true; break;
	case SRQ: opt.srq = true; break;
	case STALL: opt.stall = number(optarg, 1, 100000); break;
	case JSON: opt.json = true; break;
	case HELP: fputs(usage, stdout); exit(0);
	default: fputs(usage, stderr); exit(UNUSABLE);
	}
}

void parse_options(int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "d:g:", options, NULL)) != -1)
		take(c);
	if (optind < argc)
		opt.peer = argv[optind++];
	if (optind < argc || (opt.fork && (opt.holes || opt.rtr_only || opt.srq)))
		take('?');
	if (shape.uc) {
		shape.ops &= UC_OPS;
		shape.fence = 0;
		if (!shape.ops || shape.rnr)
			take('?');
	}
	if (!shape.window)
		shape.window = shape.depth;
}
