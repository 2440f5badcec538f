/* SPDX-License-Identifier: MIT */
/* What librvm alone may call: not installed, and another one in each version. */
#ifndef RMEM_HIDDEN_H
#define RMEM_HIDDEN_H

#include "rmem.h"

/* A number that is another one whenever a connection has broken or was made. */
unsigned int rmem_connection(struct rmem *r);

/*
 * rmem_txn_go(), if the connection is still the one that had this number; else -EREMCHG, and nothing was sent. Another
 * thread may have connected anew since, to a donor that has restarted, or after another process had this client's name.
 */
int rmem_txn_go_on(struct rmem *r, unsigned int connection);

#endif
