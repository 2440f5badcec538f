/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * What the threads of a tree may do, as /proc says on this host: user and groups, capabilities, no_new_privs, seccomp,
 * the label of the security module, limits. Both ends of a move read them while all tasks are frozen, and compare.
 */
#ifndef GODWIT_CREDS_H
#define GODWIT_CREDS_H

#include <jansson.h>
#include "proc.h"

/*
 * The credentials of each thread that has not ended. NULL with fault().
 * {"kinds": [{NAME: VALUE, ...}, ...], "threads": {INNER-TID: [index of its kind, PID, TID], ...}}
 * Threads are known by their numbers in their own namespace, which a move keeps.
 */
json_t *creds_collect(const struct tree *tree);
/* At the destination: has each thread there what it has at the source? -1 with fault() for the first that has not. */
int creds_compare(json_t *source, json_t *there);

#endif /* GODWIT_CREDS_H */
