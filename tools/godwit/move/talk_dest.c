// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What the agent says to the source, as long as there is a connection.
 */
#include "agent.h"

void agent_drop_connection(struct agent *a)
{
	close_fd(&a->wire.in);
	close_fd(&a->wire.out);
	close_fd(&a->attached);
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
