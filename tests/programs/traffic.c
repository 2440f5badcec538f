// SPDX-License-Identifier: MIT
/*
 * traffic: an integrity test of RC queue pairs that uses public verbs only. See traffic.h for its parts.
 *
 * Each end sends numbered messages. Both ends compute the kind, the size and every byte of each message from a seed. Each end
 * also sends READs and atomics with known results. Each message must arrive exactly once, in order and unchanged. Otherwise the
 * end prints what it expected and what it saw, and ends with 1.
 */
#include "traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

unsigned role;
struct worker workers[MAX_CONTEXTS];
struct qp *qps;
struct side here, there;
uint8_t *common;
size_t common_size, lib_size, buf_size;
_Atomic bool *go, *halt;
unsigned created, destroyed;
bool is_child;

const char *const phase_name[] = { "idle", "silent", "run", "drain", "reckon", "fin", "bye", "done" };

static _Atomic unsigned kick, working;
static _Atomic unsigned kick_seen[MAX_CONTEXTS];

/* ------------------------------------------------------------- workers -- */

static void mark(struct qp *q)
{
	struct worker *w = q->w;
	uint64_t now = w->clk.now;

	if (q->last && now - q->last > q->longest)
		q->longest = now - q->last;
	if (w->last && now - w->last > w->longest)
		w->longest = now - w->last;
	q->last = w->last = now;
}

static int poll_cq(struct worker *w, struct ibv_cq *cq, void (*done)(struct worker *, const struct ibv_wc *))
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(cq, 16, wc);

	if (n < 0)
		violation(NULL, "ibv_poll_cq", 0, "expected completions, saw %d", n);
	if (n)
		now_ns(&w->clk);
	for (int i = 0; i < n; i++) {
		done(w, &wc[i]);
		if (!is_child)
			mark(&qps[WR_QP(wc[i].wr_id)]);
	}
	return n;
}

static int poll_cqs(struct worker *w)
{
	return poll_cq(w, w->scq, send_done) + poll_cq(w, w->rcq, recv_done);
}

static void wait_for_event(struct worker *w)
{
	struct pollfd p = { .fd = w->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *ctx;

	if (ibv_req_notify_cq(w->scq, 0) || ibv_req_notify_cq(w->rcq, 0))
		violation(NULL, "ibv_req_notify_cq", 0, "expected 0, saw an error");
	if (poll_cqs(w))
		return;
	/* No event tells when this end's own pauses are over, so it does not sleep for an event. */
	if ((shape.rnr || shape.rate || shape.uc || opt.fork) && poll(&p, 1, 1) <= 0)
		return;
	if (ibv_get_cq_event(w->channel, &cq, &ctx)) {
		if (errno != EINTR)
			violation(NULL, "ibv_get_cq_event", 0, "expected an event, saw %s", strerror(errno));
		return;
	}
	if (ctx != w || (cq != w->scq && cq != w->rcq))
		violation(NULL, "ibv_get_cq_event", 0, "expected a CQ of ours, saw %p", (void *)cq);
	/* Some are always left for later: libibverbs counts them. */
	if (cq == w->scq && ++w->unacked_scq == 16) {
		ibv_ack_cq_events(cq, 10);
		w->unacked_scq = 6;
	}
	if (cq == w->rcq && ++w->unacked_rcq == 16) {
		ibv_ack_cq_events(cq, 10);
		w->unacked_rcq = 6;
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	bool busy = true, done = false;

	while (!done) {
		kick_seen[w->idx] = kick;
		now_ns(&w->clk);
		done = true;
		busy = false;
		for (unsigned i = w->idx; i < shape.qps; i += opt.contexts) {
			struct qp *q = &qps[i];

			if (shape.rnr && !q->in_child && !q->bye_seen)
				post_receives(q);
			pump(q);
			done = done && q->phase == PH_DONE;
			busy = busy || q->posted != q->completed || (q->phase != PH_IDLE && q->phase != PH_SILENT);
		}
		if (poll_cqs(w))
			done = false;
		else if (done)
			break;
		else if (opt.event)
			wait_for_event(w);
		else if (busy && !shape.rate)
			sched_yield();
		else
			usleep(1000);	/* a paced end need not keep a CPU busy */
	}
	working--;
	return NULL;
}

/*
 * A forked child can't ring rxe's doorbell, since ib_uverbs takes write() only from the process that opened the file. Receives
 * need no doorbell, so the child does those of every other QP.
 */
static _Noreturn void be_child(void)
{
	bool done = false;

	is_child = true;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!done) {
		done = true;
		for (unsigned i = 0; i < opt.contexts; i++) {
			now_ns(&workers[i].clk);
			if (!poll_cq(&workers[i], workers[i].child_rcq, recv_done))
				sched_yield();
		}
		for (unsigned i = 0; i < shape.qps; i++) {
			if (!qps[i].in_child)
				continue;
			if (shape.rnr && !qps[i].bye_seen)
				post_receives(&qps[i]);
			done = done && (role == SERVER ? qps[i].bye_seen : qps[i].fin_seen);
		}
	}
	_exit(EXACT);
}

/* ---------------------------------------------------------------- main -- */

static struct clk main_clk;
static int64_t start;		/* when work began */
static pid_t child;

static void progress(void)
{
	uint64_t sent = 0, received = 0;

	for (unsigned i = 0; i < shape.qps; i++) {
		sent += qps[i].seq;
		received += qps[i].rseq;
	}
	fprintf(stderr, "traffic: sent %" PRIu64 ", received %" PRIu64 "\n", sent, received);
}

static void watch(void)
{
	for (unsigned i = 0; i < shape.qps; i++) {
		struct qp *q = &qps[i];
		uint64_t count = q->seq + q->opno + q->rseq + q->phase + q->processed;
		bool waits = q->phase != PH_DONE && (*halt || (q->phase != PH_IDLE && q->phase != PH_SILENT));

		if (count != q->watched || !waits || !q->watched_at) {
			q->watched = count;
			q->watched_at = main_clk.now;
		} else if (main_clk.now - q->watched_at > opt.stall * 1000000000ll) {
			printf("stalled: qp %u (0x%x) has not got on for %u s\n", i, q->here.qpn, opt.stall);
			fflush(stdout);
			print_state();
			_exit(STALLED);
		}
	}
}

static void reap(void)
{
	int status;

	if (!child || waitpid(child, &status, WNOHANG) != child)
		return;
	child = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : VIOLATION);
}

static void tick(const sigset_t *signals)
{
	struct timespec t = { .tv_nsec = 50000000 };
	int sig = sigtimedwait(signals, NULL, &t);

	now_ns(&main_clk);
	if (sig == SIGUSR1 && *go)
		progress();
	if (!*go && (sig == SIGUSR1 || (opt.go_file && !access(opt.go_file, F_OK)))) {
		*go = true;
		kick++;
	}
	if (*go && !start)
		start = main_clk.now;
	if (sig == SIGTERM || sig == SIGINT ||
	    (shape.seconds && start && main_clk.now - start > shape.seconds * 1000000000ll)) {
		if (!*halt)
			kick++;
		*halt = *go = true;
	}
	for (unsigned i = 0; i < opt.contexts; i++)
		if (kick_seen[i] != kick)
			pthread_kill(workers[i].thread, SIGUSR2);
	reap();
	check_async();
	watch();
}

/* How many operations of each kind there were. */
static void result_ops(void)
{
	const char *sep = opt.json ? ", \"ops\": {" : " ops=";

	for (unsigned op = 0; op < NUM_OPS; op++) {
		uint64_t n = 0;

		for (unsigned i = 0; i < shape.qps; i++)
			n += qps[i].ops[op];
		if (!(shape.ops & 1u << op))
			continue;
		printf(opt.json ? "%s\"%s\": %" PRIu64 : "%s%s:%" PRIu64, sep, op_name[op], n);
		sep = opt.json ? ", " : ",";
	}
	if (opt.json)
		printf("}");
}

static void result(void)
{
	struct { const char *key; uint64_t value; } r[] = {
		{ "qps", shape.qps }, { "sent", 0 }, { "received", 0 }, { "bytes_sent", 0 }, { "bytes_received", 0 },
		{ "reads", 0 }, { "atomics", 0 }, { "windows", 0 }, { "fenced", 0 }, { "inlined", 0 },
		{ "objects", destroyed }, { "errors", 0 },
	};
	unsigned n = sizeof(r) / sizeof(r[0]), lost = 0;
	uint64_t longest = 0, longest_qp = 0;
	const char *sep = opt.json ? ", " : " ";

	for (unsigned i = 0; i < shape.qps; i++) {
		struct qp *q = &qps[i];

		r[1].value += q->seq;
		r[2].value += q->fin.messages;
		r[3].value += q->bytes_sent;
		r[4].value += q->bytes_received;
		r[5].value += q->reads;
		r[6].value += q->atomics;
		r[7].value += q->invs;
		r[8].value += q->fenced;
		r[9].value += q->inlined;
		lost += q->bye_lost;
		longest_qp = q->longest > longest_qp ? q->longest : longest_qp;
	}
	for (unsigned i = 0; i < opt.contexts; i++)
		longest = workers[i].longest > longest ? workers[i].longest : longest;
	printf(opt.json ? "{\"result\": \"exact\", \"role\": \"%s\"" : "result=exact role=%s",
	       role == CLIENT ? "client" : "server");
	for (unsigned i = 0; i < n; i++)
		printf(opt.json ? "%s\"%s\": %" PRIu64 : "%s%s=%" PRIu64, sep, r[i].key, r[i].value);
	result_ops();
	printf(opt.json ? "%s\"longest_gap_ms\": %.3f, \"longest_qp_gap_ms\": %.3f, \"seconds\": %.3f, \"lost_byes\": %u}\n" :
	       "%slongest_gap_ms=%.3f longest_qp_gap_ms=%.3f seconds=%.3f lost_byes=%u\n", sep, longest / 1e6,
	       longest_qp / 1e6, (main_clk.now - start) / 1e9, lost);
}

static void check_common(void)
{
	uint64_t want = 0, have;

	for (unsigned i = 0; i < shape.qps; i++)
		want += qps[i].fin.counts;
	memcpy(&have, common + lib_size, 8);
	if (have != want)
		violation(NULL, "common counter", 0, "expected %" PRIu64 ", the number of FETCH_ADDs, saw %" PRIu64, want,
			  have);
}

/* Zeroed memory; a child of --fork shares it. */
static void *shared_zeroes(size_t size)
{
	int share = opt.fork ? MAP_SHARED : MAP_PRIVATE;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, share | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		unusable("no memory: %s", strerror(errno));
	return p;
}

static void nothing(int sig)
{
	(void)sig;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = nothing };
	sigset_t signals;
	unsigned i;

	parse_options(argc, argv);
	role = opt.peer ? CLIENT : SERVER;
	qps = shared_zeroes(MAX_QPS * sizeof(*qps));
	go = shared_zeroes(sizeof(*go));
	halt = shared_zeroes(sizeof(*halt));
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	sigaction(SIGUSR2, &sa, NULL);	/* interrupts a blocked ibv_get_cq_event() */
	exchange();
	*go = !opt.idle;
	if (opt.fork) {
		fflush(NULL);
		child = fork();
		if (!child)
			be_child();
	}
	printf("ready\n");
	fflush(stdout);
	now_ns(&main_clk);
	working = opt.contexts;
	for (i = 0; i < opt.contexts; i++) {
		int ret = pthread_create(&workers[i].thread, NULL, work, &workers[i]);

		if (ret)
			unusable("no thread: %s", strerror(ret));
	}
	while (working || child)
		tick(&signals);
	for (i = 0; i < opt.contexts; i++)
		pthread_join(workers[i].thread, NULL);
	now_ns(&main_clk);
	check_common();
	if (role == SERVER)
		usleep(200000);	/* the acknowledge of the last BYE may yet be asked for again */
	tear_down();
	result();
	return EXACT;
}
