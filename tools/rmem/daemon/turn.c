// SPDX-License-Identifier: MIT
/* What the other files need of the event loop in serve.c: rmemd's state, events, a sync within a turn, and the loop's end. */
#include <errno.h>
#include <unistd.h>

#include "rmemd.h"

struct donor donor;

struct event *event_or_die(evutil_socket_t fd, short what, event_callback_fn function, void *arg)
{
	struct event *event = event_new(donor.base, fd, what, function, arg);

	if (event)
		return event;
	say(LOG_CRIT, "memory: there is none left");
	_exit(EXIT_FAILED);
}

bool accept_must_wait(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS;
}

void serve_sync_unchanged(void)
{
	char *why = NULL;

	donor.changed = false;
	if (store_sync(donor.store, &why) == RMEM_OK)
		return;
	say(LOG_CRIT, "%s: nothing is answered any more", why ? why : "the log failed");
	_exit(EXIT_FAILED);
}

void serve_sync(void)
{
	if (donor.changed)
		serve_sync_unchanged();
}

void serve_end(int code)
{
	if (code > donor.exit_code)
		donor.exit_code = code;
	donor.ended = true;
}
