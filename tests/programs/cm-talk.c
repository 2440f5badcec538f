// SPDX-License-Identifier: MIT
/*
 * cm-talk [--deaf FILE] [--keep FILE] server ADDRESS COUNT PROGRESS GO
 * cm-talk [--deaf FILE] [--keep FILE] client ADDRESS COUNT PROGRESS GO
 *
 * Makes COUNT connections by librdmacm over one event channel. On each the client sends numbered messages, one after another, and
 * the server sends each back. Both check them, and the client writes into PROGRESS how many rounds over all connections are done.
 * When there is a file GO, the client says so in its next message on each connection. It disconnects those with an even number
 * itself, and the server disconnects the others. Each end must be told once that its connection has ended: ids are destroyed when
 * no event came for a second. Then the client connects once more, to the address in GO, and ends this connection. PROGRESS has
 * "done" if all this went well.
 *
 *   --deaf FILE	while there is this file, no event is read; says "unread" in PROGRESS when one waits
 *   --keep FILE	while there is this file, an end that is told that its connection has ended acknowledges that only,
 *			says "keeps" in PROGRESS, and reads no other event; it answers when the file is gone
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define MUST(cond) ((cond) ? (void)0 : DIE("line %d: not so: %s: %m", __LINE__, #cond))

enum { PORT = 7471, TIMEOUT = 60000, MAX = 64, DEPTH = 4, LAST = 1 << 30 };

struct message {
	uint32_t number, conn, fill[62];
};

struct conn {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct message in[DEPTH], out;
	uint32_t number;	/* of the next message */
	unsigned posted;	/* receives so far; the number also says which buffer is next */
	bool known, last, leaves, told, over, destroyed;
};

static struct rdma_event_channel *channel;
static struct conn conns[MAX + 1];	/* the last one is made after all others have ended */
static int count, open_conns;
static bool server;
static bool unread;			/* an event waits to be read, and PROGRESS says so */
static const char *progress, *go, *deaf, *keep;
static struct rdma_cm_event *kept;
static struct sockaddr_in address = { .sin_family = AF_INET };

/* Writes into PROGRESS so that a reader finds the text whole. */
static void say(const char *format, unsigned long n)
{
	char path[256];
	FILE *file;

	MUST(snprintf(path, sizeof(path), "%s.new", progress) < (int)sizeof(path));
	file = fopen(path, "w");
	MUST(file && fprintf(file, format, n) >= 0 && !fclose(file));
	MUST(!rename(path, progress));
}

/* ------------------------------------------------------------------ messages -- */

static void post_recv(struct conn *c)
{
	struct message *in = &c->in[c->posted++ % DEPTH];

	MUST(!rdma_post_recv(c->id, in, in, sizeof(*in), c->mr));
}

static void send_message(struct conn *c, uint32_t number)
{
	c->out.number = number;
	c->out.conn = c - conns;
	for (unsigned i = 0; i < 62; i++)
		c->out.fill[i] = number * 61 + i;
	MUST(!rdma_post_send(c->id, NULL, &c->out, sizeof(c->out), c->mr, 0));
}

static void check(const struct conn *c, const struct message *m)
{
	if ((m->number & ~LAST) != c->number)
		DIE("connection %td: message %u where %u was to come", c - conns, m->number & ~LAST, c->number);
	for (unsigned i = 0; i < 62; i++)
		if (m->fill[i] != m->number * 61 + i)
			DIE("connection %td: message %u: word %u is wrong", c - conns, m->number, i);
}

static void disconnect(struct conn *c)
{
	MUST(!rdma_disconnect(c->id));
	c->told = true;
}

/*
 * A message may come before the word that the connection is established. A CM that has not had that word tells nobody of an
 * rdma_disconnect(), which returns 0 all the same.
 */
static void leave(struct conn *c)
{
	if (c->known && c->leaves)
		disconnect(c);
}

static void got(struct conn *c, const struct message *m)
{
	check(c, m);
	c->last = m->number & LAST;
	if (server) {
		send_message(c, m->number);
		post_recv(c);
	} else if (!c->last) {
		post_recv(c);
		send_message(c, (c->number + 1) | (access(go, F_OK) ? 0 : LAST));
	}
	c->number++;
	c->leaves = c->last && server != !(m->conn % 2);
	leave(c);
}

static bool poll_conn(struct conn *c)
{
	struct ibv_wc wc;
	int n;

	n = ibv_poll_cq(c->id->recv_cq, 1, &wc);
	MUST(n >= 0);
	if (n && wc.status && !c->last)
		DIE("connection %td: receive: %s", c - conns, ibv_wc_status_str(wc.status));
	if (n && !wc.status)
		got(c, (const void *)(uintptr_t)wc.wr_id);
	if (ibv_poll_cq(c->id->send_cq, 1, &wc) == 1 && wc.status && !c->last)
		DIE("connection %td: send: %s", c - conns, ibv_wc_status_str(wc.status));
	return n;
}

/* --------------------------------------------------------------- connections -- */

static void set_up(struct conn *c, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	c->id = id;
	id->context = c;
	MUST(!rdma_create_qp(id, NULL, &attr));
	c->mr = rdma_reg_msgs(id, c, sizeof(*c));
	MUST(c->mr);
	for (int i = 0; i < DEPTH; i++)
		post_recv(c);
	open_conns++;
}

static struct rdma_conn_param *params(void)
{
	static struct rdma_conn_param param;

	param = (struct rdma_conn_param){ .retry_count = 7, .rnr_retry_count = 7 };
	return &param;
}

static bool there_is(const char *path)
{
	return path && !access(path, F_OK);
}

static void end(struct conn *c)
{
	if (c->over)
		DIE("connection %td: it has ended again", c - conns);
	if (!c->told)
		disconnect(c);
	c->over = true;
	open_conns--;
}

static void let_go(void)
{
	struct conn *c = kept->id->context;

	MUST(!rdma_ack_cm_event(kept));
	kept = NULL;
	end(c);
}

static void next_event(void)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	struct conn *c;

	MUST(!rdma_get_cm_event(channel, &event));
	type = event->event;
	id = event->id;
	c = id->context;
	if (type == RDMA_CM_EVENT_DISCONNECTED && there_is(keep)) {
		kept = event;
		say("keeps\n", 0);
		return;
	}
	MUST(!rdma_ack_cm_event(event));
	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		for (c = conns; c->id; c++)
			;
		set_up(c, id);
		MUST(!rdma_accept(id, params()));
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		c->known = true;
		leave(c);
		if (!server)
			send_message(c, 0);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		end(c);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		DIE("%s", rdma_event_str(type));
	}
}

static bool event_waits(int ms)
{
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };

	return poll(&pfd, 1, ms) > 0;
}

static void expect(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	MUST(!rdma_get_cm_event(channel, &event));
	if (event->id != id || event->event != type)
		DIE("%s, status %d, in place of %s", rdma_event_str(event->event), event->status, rdma_event_str(type));
	MUST(!rdma_ack_cm_event(event));
}

static void connect_to(struct conn *c)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(channel, &id, c, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, TIMEOUT));
	expect(id, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(id, TIMEOUT));
	expect(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	set_up(c, id);
	MUST(!rdma_connect(id, params()));
	expect(id, RDMA_CM_EVENT_ESTABLISHED);
	c->known = true;
	send_message(c, 0);
}

/* An event that came twice would have come by now. */
static void destroy_all(void)
{
	struct conn *c;

	while (event_waits(1000))
		next_event();
	for (c = conns; c <= &conns[count]; c++) {
		if (!c->over || c->destroyed)
			continue;
		rdma_destroy_qp(c->id);
		MUST(!rdma_dereg_mr(c->mr));
		MUST(!rdma_destroy_id(c->id));
		c->destroyed = true;
	}
}

static void look_at_events(bool busy)
{
	if (kept && !there_is(keep))
		let_go();
	if (!event_waits(busy ? 0 : 1))
		return;
	if (!kept && !there_is(deaf)) {
		next_event();
		return;
	}
	if (!kept && !unread) {
		say("unread\n", 0);
		unread = true;
	}
	usleep(1000);
}

/* Works until all connections have ended. */
static void serve(void)
{
	unsigned long rounds = 0;
	bool busy;
	int i;

	while (open_conns || (server && !conns[count].over)) {
		busy = false;
		for (i = 0; i <= count; i++)
			if (conns[i].id && !conns[i].over && !conns[i].told)
				busy |= poll_conn(&conns[i]);
		if (!server && !unread && conns[0].number > rounds && !conns[0].last)
			say("%lu\n", rounds = conns[0].number);
		look_at_events(busy);
	}
	destroy_all();
}

/* The file may exist for a while before its contents are written. */
static void read_address(void)
{
	char text[64] = "";
	FILE *file;

	while (!strchr(text, '\n')) {
		usleep(10000);
		file = fopen(go, "r");
		MUST(file && (fgets(text, sizeof(text), file) || feof(file)));
		fclose(file);
	}
	text[strcspn(text, "\n")] = '\0';
	MUST(inet_pton(AF_INET, text, &address.sin_addr) == 1);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "deaf", required_argument, NULL, 'd' }, { "keep", required_argument, NULL, 'k' }, { 0 },
	};
	struct rdma_cm_id *listener = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "+", options, NULL)) != -1)
		if (c == 'd')
			deaf = optarg;
		else if (c == 'k')
			keep = optarg;
		else
			return 2;
	argv += optind;
	if (argc - optind != 5 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
		DIE("usage: talk [--deaf FILE] [--keep FILE] server|client ADDRESS COUNT PROGRESS GO");
	server = !strcmp(argv[0], "server");
	count = atoi(argv[2]);
	MUST(count > 0 && count <= MAX);
	progress = argv[3];
	go = argv[4];
	address.sin_port = htons(PORT);
	channel = rdma_create_event_channel();
	MUST(channel);

	if (server) {
		MUST(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
		MUST(!rdma_bind_addr(listener, (struct sockaddr *)&address));
		MUST(!rdma_listen(listener, MAX));
		say("ready\n", 0);
	}
	for (int i = 0; !server && i < count; i++)
		connect_to(&conns[i]);
	serve();
	if (!server) {
		read_address();
		connect_to(&conns[count]);
		serve();
	} else {
		MUST(!rdma_destroy_id(listener));
	}
	rdma_destroy_event_channel(channel);
	say("done\n", 0);
	return 0;
}
