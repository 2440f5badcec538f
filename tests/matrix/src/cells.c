// SPDX-License-Identifier: MIT
/* Which combinations there are. */
#include "matrix.h"
#include "../../driver/src/random.h"

#define AS_NAME(kind, name) name,
static const char *const states[] = { STATES(AS_NAME) }, *const types[] = { TYPES(AS_NAME) },
	*const receives[] = { RECEIVES(AS_NAME) }, *const cqs[] = { CQS(AS_NAME) },
	*const events[] = { EVENTS(AS_NAME) }, *const channels[] = { CHANNELS(AS_NAME) },
	*const memory[] = { MEMORY(AS_NAME) }, *const windows[] = { WINDOWS(AS_NAME) },
	*const apis[] = { APIS(AS_NAME) }, *const groups[] = { GROUPS(AS_NAME) },
	*const asyncs[] = { ASYNCS(AS_NAME) };

/* Kinds are dealt like cards: each comes once before one comes again. */
struct deck {
	int kinds, left;
	uint8_t order[NUM_STATES + NUM_MEMORY];
};

static int deal(struct deck *d)
{
	int i, j, card;

	if (!d->left) {
		for (i = 0; i < d->kinds; i++)
			d->order[i] = i;
		for (i = d->kinds - 1; i > 0; i--) {
			j = below(i + 1);
			card = d->order[i];
			d->order[i] = d->order[j];
			d->order[j] = card;
		}
		d->left = d->kinds;
	}
	return d->order[--d->left];
}

/* These are about acknowledgments. */
static bool only_rc(enum state state)
{
	return state == SQD_BUSY || state == RNR || state == RETRY || state == READ_HALF || state == ATOMIC_LOST ||
	       state == FLOW || state == OVERFLOW;
}

static void make_cell(struct cell *c, int id)
{
	static struct deck of_states = { .kinds = NUM_STATES }, of_types = { .kinds = NUM_TYPES }, of_receives = { .kinds = NUM_RECEIVES },
		of_cqs = { .kinds = NUM_CQS }, of_events = { .kinds = NUM_EVENTS }, of_channels = { .kinds = NUM_CHANNELS },
		of_memory = { .kinds = NUM_MEMORY }, of_windows = { .kinds = NUM_WINDOWS }, of_apis = { .kinds = NUM_APIS },
		of_groups = { .kinds = NUM_GROUPS };
	static int told;

	*c = (struct cell){ .id = id };
	c->state = deal(&of_states);
	c->type = only_rc(c->state) ? RC : deal(&of_types);
	if (c->type != UC)	/* (the specification gives UC no SRQ) */
		c->receive = deal(&of_receives);
	c->cqs = deal(&of_cqs);
	c->event = deal(&of_events);
	c->channel = deal(&of_channels);
	if (c->type != UD)
		c->memory = deal(&of_memory);
	if (c->type == RC)
		c->window = deal(&of_windows);
	c->api = deal(&of_apis);
	if (c->type == UD)
		c->group = deal(&of_groups);
	c->op = (enum op[]){ SEND, SEND_IMM, WRITE_IMM }[below(3)];

	/* Nothing can have come. */
	if (c->state == RESET || c->state == INIT) {
		if (c->event > EV_ARMED)
			c->event = EV_ARMED;
		if (c->receive > SRQ_ARMED)
			c->receive = SRQ_ARMED;
	}
	/* Windows are bound by requests, and not for a queue pair that begins anew. */
	if (c->state <= RTR || c->state == ERR || c->state == ERR_UNPOLLED || c->state == OVERFLOW)
		c->window = NO_MW;
	/* All that this one receives, it receives into its full CQ. */
	if (c->state == OVERFLOW) {
		c->receive = RQ;
		c->cqs = CQ_PLAIN;
		c->event = EV_NONE;
	}
	if (c->state == SQD || c->state == OVERFLOW || ((c->state == ERR || c->state == ERR_UNPOLLED) && c->receive != RQ))
		c->async = AS_UNREAD;
	/* What is not to be read can come only after what is. */
	if (c->async && c->event != EV_FIRED && c->receive != SRQ_FIRED && told++ % 3)
		c->async = AS_UNACKED;
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

	snprintf(name, sizeof(name), "cell %d (%s %s %s %s %s %s %s %s %s %s %s)", c->id, types[c->type],
		 states[c->state], receives[c->receive], cqs[c->cqs], events[c->event], channels[c->channel],
		 memory[c->memory], windows[c->window], apis[c->api], groups[c->group], asyncs[c->async]);
	return name;
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

#define COUNT(field, names) do {							\
	int counts[NUM(names)] = { 0 }, n;						\
	for (n = 0; n < total; n++)							\
		counts[us.cells[n].field]++;						\
	if (say_counts(names, NUM(names), counts) < 3)					\
		DIE("one of them comes less than three times");				\
} while (0)

void count_kinds(uint64_t seed, int total)
{
	make_cells(seed, total, 0, total);
	COUNT(state, states);
	COUNT(type, types);
	COUNT(receive, receives);
	COUNT(cqs, cqs);
	COUNT(event, events);
	COUNT(channel, channels);
	COUNT(memory, memory);
	COUNT(window, windows);
	COUNT(api, apis);
	COUNT(group, groups);
	COUNT(async, asyncs);
}
