// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What the source says to the destination, and hears from it, while CRIU waits here.
 */
#include <stdlib.h>
#include "move.h"

/* Wait for the destination's next word. That CRIU ends, a signal comes or our time ends is a fault. */
static int await(struct move *m)
{
	int ret = move_await(m, m->peer.wire.in, m->criu.pidfd);

	return ret == 1 ? fault("criu was killed, or ended, in the middle") : ret;
}

/* The destination's next word, which is to have this key. */
int move_hear(struct move *m, const char *key)
{
	json_t *answer;
	int ret = 0;

	if (await(m) || wire_receive(&m->peer.wire, &answer, NULL, NULL, 1000))
		return -1;
	if (peer_understand(&m->peer, answer) || !json_object_get(answer, key))
		ret = fault("%s: godwit there talks no sense", m->host);
	json_decref(answer);
	return ret;
}

/* The connection takes no more: did the destination say why it went away? */
int move_say_why(struct move *m)
{
	char *lost;

	if (wire_ready(&m->peer.wire, 0)) {
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
	return wire_send(&m->peer.wire, message) ? move_say_why(m) : 0;
}
