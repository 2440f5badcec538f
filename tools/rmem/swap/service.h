/* SPDX-License-Identifier: MIT */
/*
 * What the files service*.c share.
 */
#ifndef RMEMSWAP_SERVICE_H
#define RMEMSWAP_SERVICE_H

#include <event2/event.h>

#include "rmemswap.h"

/* ------------------------------------------------------------------ service_donors.c */

/* Take over the donors that the kernel has, and start the others. */
void begin_donors(void);
/* Start the donors of the settings that do not run. Call it with service.lock. */
void start_donors(void);
void on_wake(evutil_socket_t fd, short what, void *arg);
void on_look(evutil_socket_t fd, short what, void *arg);
void on_events(evutil_socket_t fd, short what, void *arg);
/* Takes over the descriptor of a connection, and gets the line that the operator sent on it. */
void service_asked(int fd, char *line);

/* ------------------------------------------------------------------ service_end.c */

void on_end(evutil_socket_t fd, short what, void *arg);
void on_child(evutil_socket_t fd, short what, void *arg);
void on_progress(evutil_socket_t fd, short what, void *arg);
/* From now on SIGQUIT ends the process, and everything in the kernel stays. Returns 0, or -1 after a message. */
int await_quit(void);

#endif
