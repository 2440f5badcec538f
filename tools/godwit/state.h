/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What either end writes down of a move: for `godwit status`, for a person who settles the move, and for the process that
 * goes on when a godwit was killed.
 */
#ifndef GODWIT_STATE_H
#define GODWIT_STATE_H

#include <jansson.h>
#include "godwit.h"

#define STATE_DIR	"/run/godwit"
#define LOCK_FILE	"/run/godwit.lock"	/* a byte for each move; the file is always empty, and stays */

/* STATE_DIR/ID and the suffix; to be freed. */
char *state_path(const char *id, const char *suffix);
/* The same path as a socket address. -1 with fault(). */
struct sockaddr_un;
int state_address(const char *id, const char *suffix, struct sockaddr_un *sun);

/*
 * Take the lock of a move, which says that somebody works on it: this process and its children. -1 with fault(): others have
 * it. The lock ends with the last of its processes, or with close().
 */
int state_lock(const char *id);

int state_save(const char *id, json_t *state);	/* takes state over; whole or not at all */
json_t *state_load(const char *id);		/* or NULL */
bool state_exists(const char *id);		/* perhaps it can't be read */
/*
 * An array of all moves to and from this host that are not over. -1 with fault(): one can't be read, and nothing may be moved
 * before a person has looked at it.
 */
int state_all(json_t **all);
void state_remove(const char *id);

#endif /* GODWIT_STATE_H */
