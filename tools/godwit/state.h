/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What is written down of a move, at either end: for `godwit status`, for who settles it by hand, and for who
 * goes on when a godwit was killed.
 */
#ifndef GODWIT_STATE_H
#define GODWIT_STATE_H

#include <jansson.h>
#include "godwit.h"

#define STATE_DIR	"/run/godwit"

/* STATE_DIR/ID and this; to be freed. */
char *state_path(const char *id, const char *suffix);
/* The same as an address. -1 with fault(). */
struct sockaddr_un;
int state_address(const char *id, const char *suffix, struct sockaddr_un *sun);

/*
 * Who sees to a move: this process, its children, or nobody. -1 with fault(): others do. It ends with the last of
 * them, however that ends; or with close().
 */
int state_lock(const char *id);

int state_save(const char *id, json_t *state);	/* takes state over; whole or not at all */
json_t *state_load(const char *id);		/* or NULL */
/*
 * An array of all moves to and from this host that are not over. -1 with fault(): it is not all, as one can't be read;
 * nothing may be moved before somebody has seen to that.
 */
int state_all(json_t **all);
void state_remove(const char *id);

#endif /* GODWIT_STATE_H */
