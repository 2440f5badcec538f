// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What the agent says to the source, as long as there is a connection.
 */
#include <poll.h>
#include "agent.h"

void agent_drop_connection(struct agent *a)
{
	close_fd(&a->wire.in);
	close_fd(&a->wire.out);
	close_fd(&a->attached);
}

bool agent_is_called(const struct agent *a, int timeout_ms)
{
	struct pollfd p[] = { { .fd = a->wire.in, .events = POLLIN }, { .fd = a->listener, .events = POLLIN } };

	return poll(p, 2, timeout_ms) > 0;
}

void agent_tell(struct agent *a, json_t *message)
{
	if (a->wire.out < 0) {
		json_decref(message);
		return;
	}
	/* The loop then drops the other half of the connection, and does what the stage asks for. */
	if (wire_send(&a->wire, message)) {
		fault_clear();
		close_fd(&a->wire.out);
	}
}
