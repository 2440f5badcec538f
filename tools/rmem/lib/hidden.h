/* SPDX-License-Identifier: MIT */
/* Calls for librvm only. They are not installed, and may change in each version. */
#ifndef RMEM_HIDDEN_H
#define RMEM_HIDDEN_H

#include "rmem.h"

/* A number that changes whenever a connection breaks or is made. */
unsigned int rmem_connection(struct rmem *r);

/*
 * rmem_txn_go(), if the connection is still the one that had this number. Otherwise -EREMCHG, and nothing was sent. Another
 * thread may have connected again since, to a donor that has restarted, or after another process had this client's name.
 */
int rmem_txn_go_on(struct rmem *r, unsigned int connection);

#endif
