// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What the source says to the destination, and hears from it. While the copy is made, every failure ends in an abort. At the
 * end of the move the source asks again, over new connections.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "move.h"
#include "podman.h"

#define BYE_TRY_S	10
#define BYE_MS	100000	/* podman_give_policy() may take 90 s there: 25 + 20 + 15 + 30, if its first podman hangs and is killed */
/* How long another agent there may take to go on in the place of a killed one. */
#define BUSY_S	40

/* Wait for the destination's next word. It is a fault() if CRIU ends, a signal comes or our time is over. */
static int await(struct move *m)
{
	int ret = move_await(m, m->dest.wire.in, m->criu.pidfd);

	return ret == 1 ? fault(CRIU_WAS_KILLED) : ret;
}

int move_hear(struct move *m, const char *key)
{
	json_t *answer;
	int ret = 0;

	if (await(m) || wire_receive(&m->dest.wire, &answer, NULL, NULL, 1000))
		return -1;
	if (dest_understand(&m->dest, answer) || !json_object_get(answer, key))
		ret = fault("%s: godwit there talks no sense", m->host);
	json_decref(answer);
	return ret;
}

int move_say_why(struct move *m)
{
	char *lost;

	if (wire_ready(&m->dest.wire, 0)) {
		lost = xstrdup(fault_text());
		fault_clear();
		move_hear(m, "failed");
		fault("%s", lost);
		free(lost);
	}
	return -1;
}

int move_say(struct move *m, json_t *message)
{
	return wire_send(&m->dest.wire, message) ? move_say_why(m) : 0;
}

/*
 * Say it, and say it again over a new connection when the old one breaks. Meanwhile the destination keeps the tasks frozen,
 * or remembers that it let them go.
 */
json_t *move_insist(struct move *m, const char *op, json_t *(*hear)(struct move *m), int seconds)
{
	int64_t first = now_ns(), begin = first, patience = seconds * INT64_C(1000000000);
	bool connected = m->dest.wire.out >= 0;
	json_t *answer = NULL;

	for (int tries = 0;; tries++) {
		if (connected && wire_send(&m->dest.wire, json_pack("{s:s}", "op", op)) == 0)
			answer = hear(m);
		else if (json_object_get(m->dest.hello, "gone"))
			answer = json_incref(m->dest.hello);
		fault_clear();
		if (m->heard_ns > begin)
			begin = m->heard_ns;
		/* We connect anew in any case: if the agent was killed, the agent that we start undoes what was left. */
		if (answer || (tries && now_ns() > begin + patience))
			return answer;
		if (tries == 0)
			report_note("the connection to %s is lost: trying again", m->host);
		else
			poll(NULL, 0, 500);
		dest_close(&m->dest);
		connected = dest_connect(&m->dest, m->host, m->ssh, m->id, true) == 0;
		/* The host is there, and another agent goes on in the place of the killed one: wait for that. */
		if (!connected && json_object_get(m->dest.hello, "failed") && now_ns() < first + BUSY_S * INT64_C(1000000000))
			m->heard_ns = now_ns();
	}
}

bool move_is_undone(const struct move *m, json_t *answer)
{
	const char *boot = json_string_value(json_object_get(answer, "boot"));

	return json_is_true(json_object_get(answer, "undone")) && boot && !strcmp(boot, m->shared->boot);
}

static json_t *ask_bye(struct move *m)
{
	return dest_ask(&m->dest, json_pack("{s:s, s:b}", "op", "bye", "leave_images", m->leave_images), BYE_MS);
}

/* If the agent was killed, the agent that we start tidies up. */
static json_t *ask_bye_anew(struct move *m)
{
	json_t *answer;

	dest_close(&m->dest);
	fault_clear();
	m->dest.until = now_ns() + BYE_TRY_S * INT64_C(1000000000);
	answer = dest_connect(&m->dest, m->host, m->ssh, m->id, true) ? NULL : ask_bye(m);
	m->dest.until = 0;
	return answer;
}

/* If the destination was started anew, it knows nothing of the move, and podman there has started nothing. */
static void warn_of_policy(struct move *m)
{
	const char *policy = container_fact(m->container.facts, "restart");
	char *line;

	if (!*policy || m->dry_run)
		return;
	line = xasprintf("%s: the container may lack its restart policy there: there: godwit settle %s commit; or, if %s was started "
			 "anew: podman update --restart=%s %s; podman start %s", m->host, m->id, m->host, policy,
			 m->container.name, m->container.name);
	report_warn(&m->report, line);
	free(line);
}

void move_take_warnings(struct move *m, json_t *answer)
{
	json_t *text;
	size_t i;

	json_array_foreach(json_object_get(answer, "warnings"), i, text) {
		char *line = xasprintf("%s: %s", m->host, json_string_value(text));

		report_warn(&m->report, line);
		free(line);
	}
}

void move_say_bye(struct move *m)
{
	json_t *answer = m->dest.wire.out < 0 ? NULL : ask_bye(m) ?: ask_bye_anew(m);

	move_take_warnings(m, answer);
	if (!answer) {
		report_fault(&m->report);
		warn_of_policy(m);
	}
	json_decref(answer);
	dest_close(&m->dest);
}
