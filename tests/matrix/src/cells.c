// SPDX-License-Identifier: MIT
/* The combinations. */
#include "matrix.h"
#include "../../programs/random.h"

#define AS_NAME(kind, name) name,
static const char *const states[] = { STATES(AS_NAME) }, *const types[] = { TYPES(AS_NAME) },
	*const queues[] = { RECEIVES(AS_NAME) }, *const cqs[] = { CQS(AS_NAME) },
	*const events[] = { EVENTS(AS_NAME) }, *const notifies[] = { NOTIFIES(AS_NAME) }, *const channels[] = { CHANNELS(AS_NAME) },
	*const memory[] = { MEMORY(AS_NAME) }, *const windows[] = { WINDOWS(AS_NAME) },
	*const apis[] = { APIS(AS_NAME) }, *const groups[] = { GROUPS(AS_NAME) },
	*const asyncs[] = { ASYNCS(AS_NAME) };

/* Kinds are dealt like cards: each comes once before any comes again. */
struct deck {
	int left;
	uint8_t order[NUM_STATES + NUM_MEMORY];
};

static int deal(struct deck *d, int kinds)
{
	int i, j, card;

	if (!d->left) {
		for (i = 0; i < kinds; i++)
			d->order[i] = i;
		for (i = kinds - 1; i > 0; i--) {
			j = below(i + 1);
			card = d->order[i];
			d->order[i] = d->order[j];
			d->order[j] = card;
		}
		d->left = kinds;
	}
	return d->order[--d->left];
}

/* These states are about acknowledgments. */
static bool only_rc(enum state state)
{
	return state == SQD_BUSY || (state >= RNR && state <= OVERFLOW);
}

/* What is under way in this state */
static enum op op_in(enum state state, enum window window)
{
	static struct deck of_ours, of_theirs;

	switch (state) {
	case READ_HALF:
	case READ_LOST_IN: return READ;
	case ATOMIC_LOST: return FADD + deal(&of_ours, FLUSH + 1 - FADD);
	case ATOMIC_LOST_IN: return FADD + deal(&of_theirs, FLUSH + 1 - FADD);
	case SEND_HALF: return window == MW2 ? SEND_INV : below(2) ? SEND : SEND_IMM;
	default: return (enum op[]){ SEND, SEND_IMM, WRITE_IMM }[below(3)];
	}
}

/* Is a request of the mover done or flushed during the move, at a time that nobody knows? */
static bool completes_itself(enum state state)
{
	return state == SQD_BUSY || (state >= ERR && state <= ATOMIC_LOST) || state == FLOW;
}

/* Can messages come to it before the move? */
bool receives(const struct cell *c)
{
	return c->state >= RTR;
}

/* Does its CQ have more than one message when it is resized? (Except for RC nobody knows when they have come.) */
bool holds(const struct cell *c)
{
	return c->cqs == CQ_RESIZED && c->type == RC && receives(c);
}

/* Is a request posted in SQD? In half of SQD_BUSY, behind the request that is under way. */
bool behind(const struct cell *c)
{
	return c->state == SQD_BEHIND || (c->state == SQD_BUSY && c->id % 2);
}

/* Does its peer only write into its memory during the move? */
bool flows_in(const struct cell *c)
{
	return c->type != UD && ((c->state >= RTR && c->state <= SQD_BUSY) ||
				 (c->state >= RNR && c->state <= ATOMIC_LOST) || c->state == FLOW);
}

/* Which asynchronous event is there, apart from that of an SRQ's limit? */
enum raised { NOTHING = -1, DRAINED, LAST_WQE, CQ_ERROR, NUM_RAISED };

static enum raised raised(const struct cell *c)
{
	switch (c->state) {
	case SQD:
	case SQD_BEHIND: return DRAINED;
	case ERR:
	case ERR_UNPOLLED: return c->receive != RQ ? LAST_WQE : NOTHING;
	case OVERFLOW: return CQ_ERROR;
	default: return NOTHING;
	}
}

static void make_cell(struct cell *c, int id)
{
	static struct deck of_states, of_types[NUM_STATES], of_receives[NUM_STATES], of_cqs, of_events, of_notifies, of_channels,
		of_memory[2], of_windows[NUM_STATES], of_apis, of_groups, of_asyncs[NUM_RAISED];

	*c = (struct cell){ .id = id };
	c->state = deal(&of_states, NUM_STATES);
	c->type = only_rc(c->state) ? RC : deal(&of_types[c->state], NUM_TYPES);
	/* The specification gives UC no SRQ. Of seven half received messages, three are from an RQ. */
	if (c->type != UC)
		c->receive = deal(&of_receives[c->state], NUM_RECEIVES + 2 * (c->state == SEND_HALF));
	if (c->receive >= NUM_RECEIVES)
		c->receive = RQ;
	c->cqs = deal(&of_cqs, NUM_CQS);
	c->event = deal(&of_events, NUM_EVENTS);
	c->notify = deal(&of_notifies, NUM_NOTIFIES);
	c->channel = deal(&of_channels, NUM_CHANNELS);
	if (c->type != UD)
		c->memory = deal(&of_memory[flows_in(c)], NUM_MEMORY);
	if (c->type == RC)
		c->window = deal(&of_windows[c->state], NUM_WINDOWS);
	if (c->type == RC && behind(c))
		c->window = MW2;	/* to be invalidated there */
	c->api = deal(&of_apis, NUM_APIS);
	if (c->type == UD)
		c->group = deal(&of_groups, NUM_GROUPS);
	c->op = op_in(c->state, c->window);
	if (!can(c, c->op))
		c->api = WR;

	/* No message can have come or gone. */
	if (c->state == RESET || c->state == INIT) {
		if (c->event > EV_ARMED)
			c->event = EV_ARMED;
		if (c->receive > SRQ_ARMED)
			c->receive = SRQ_ARMED;
	}
	if (c->state == RTR && c->notify == NT_SEND && c->event > EV_ARMED)
		c->event = EV_ARMED;
	/* Requests bind windows. A queue pair that begins anew gets none. */
	if (c->state <= RTR || c->state == ERR || c->state == ERR_UNPOLLED || c->state == OVERFLOW)
		c->window = NO_MW;
	/* Such a cell receives everything into its full CQ. */
	if (c->state == OVERFLOW) {
		c->receive = RQ;
		c->cqs = CQ_PLAIN;
		c->event = EV_NONE;
	}
	if (raised(c) != NOTHING)
		c->async = AS_UNREAD + deal(&of_asyncs[raised(c)], NUM_ASYNCS - AS_UNREAD);
	/* Unread events can come only after those that are read. */
	if (c->async == AS_UNACKED && c->event == EV_FIRED)
		c->event = EV_UNACKED;
	if (c->async == AS_UNACKED && c->receive == SRQ_FIRED)
		c->receive = SRQ_UNACKED;
	if (c->notify == NT_SEND && c->event == EV_ARMED && completes_itself(c->state))
		c->event = c->async == AS_UNACKED || c->id % 2 ? EV_UNACKED : EV_FIRED;
}

/* Of all cells that the seed gives, those from first on. */
void make_cells(uint64_t seed, int total, int first, int count)
{
	struct cell c;
	int i;

	us.cells = calloc(count, sizeof(*us.cells));
	MUST(us.cells);
	us.count = count;
	rng = seed;
	for (i = 0; i < total; i++) {
		make_cell(&c, i);
		if (i >= first && i < first + count)
			us.cells[i - first] = c;
	}
}

const char *cell_name(const struct cell *c)
{
	static char name[256];

	snprintf(name, sizeof(name), "cell %d (%s %s %s %s %s %s %s %s %s %s %s %s)", c->id, types[c->type],
		 states[c->state], queues[c->receive], cqs[c->cqs], events[c->event], notifies[c->notify], channels[c->channel],
		 memory[c->memory], windows[c->window], apis[c->api], groups[c->group], asyncs[c->async]);
	return name;
}

/* Can the cell's memory be read from a file, too? */
bool in_file(const struct cell *c)
{
	return c->memory == MEMFD || c->memory == SHARED_FILE || c->memory == UNLINKED;
}

static int say_counts(const char *const names[], int kinds, const int counts[])
{
	int i, least = counts[0];

	for (i = 0; i < kinds; i++) {
		printf("%s %d%s", names[i], counts[i], i < kinds - 1 ? ", " : "\n");
		least = counts[i] < least ? counts[i] : least;
	}
	return least;
}

/* How often each kind must come at least */
static int least_wanted;

/* Counts the kinds of a field, only in cells for which "of" is true: in other cells the field means something else. */
#define COUNT_IF(of, field, names) do {							\
	int counts[NUM(names)] = { 0 };							\
	EACH(c)										\
		if (of)									\
			counts[c->field]++;						\
	if (say_counts(names, NUM(names), counts) < least_wanted) {			\
		fprintf(stderr, "one of them comes less than %d times\n", least_wanted);	\
		exit(75);	/* the seed's fault */					\
	}										\
} while (0)
#define COUNT(field, names) COUNT_IF(true, field, names)

/* Counts the kinds of requests, of either end, whose answer is lost (of a READ's answer: the last packet). */
static void count_lost(void)
{
	static const char *const names[] = {
		"READ lost", "FETCH_ADD lost", "CMP_SWAP lost", "ATOMIC_WRITE lost", "FLUSH lost"
	};

	COUNT_IF(c->state >= READ_HALF && c->state <= ATOMIC_LOST_IN, op - READ, names);
}

void count_kinds(uint64_t seed, int total, int least)
{
	static const char *const read[] = { "not read", "read and not acknowledged" };
	static const char *const half[] = { "half received from an RQ", "from an SRQ" };
	static const char *const invalidations[] = { "LOCAL_INV in SQD", "SEND_INV half received" };
	enum raised raised_by;

	least_wanted = least;
	make_cells(seed, total, 0, total);
	COUNT(state, states);
	COUNT(type, types);
	COUNT(receive, queues);
	COUNT_IF(c->cqs != CQ_RESIZED || holds(c), cqs, cqs);
	COUNT(event, events);
	COUNT_IF(c->event != EV_NONE, channel, channels);
	COUNT_IF(c->type != UD, memory, memory);
	COUNT(window, windows);
	puts("written to all the time:");
	COUNT_IF(flows_in(c), memory, memory);
	COUNT_IF(flows_in(c), window, windows);
	COUNT(api, apis);
	COUNT_IF(c->type == UD, group, groups);
	puts("events of:");
	COUNT_IF(c->event == EV_ARMED, notify, notifies);
	COUNT_IF(c->event == EV_FIRED, notify, notifies);
	COUNT_IF(c->event == EV_UNACKED, notify, notifies);
	puts("send queue drained, last WQE reached, CQ error, SRQ limit:");
	for (raised_by = DRAINED; raised_by < NUM_RAISED; raised_by++)
		COUNT_IF(raised(c) == raised_by, async == AS_UNACKED, read);
	COUNT_IF(c->receive >= SRQ_FIRED, receive == SRQ_UNACKED, read);
	count_lost();
	COUNT_IF(c->state == SEND_HALF, receive != RQ, half);
	COUNT_IF(c->window == MW2 && (behind(c) || c->op == SEND_INV), op == SEND_INV, invalidations);
}
