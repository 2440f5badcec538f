/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Is this host able to take part in moves? Each check gives 0, or -1 with fault().
 */
#ifndef GODWIT_HOST_H
#define GODWIT_HOST_H

#include <stdint.h>
#include "godwit.h"
#include "reasons.h"

int host_check_criu(void);
int host_check_nft(void);
int host_check_plugin(void);
int host_check_device(const char *device);	/* our driver, of a version that we understand */
int host_check_root(void);
/* The driver has the cluster's key, or is told to do without. fingerprints: see rdma_key_fingerprints(). */
int host_check_key(uint64_t fingerprints[2]);
bool host_allows_unsigned(void);

#define KEY_FILE	"/etc/godwit/key"
/* What the operator is to do if there is no key. */
#define KEY_HOW		"godwit key generate FILE, and godwit key set FILE here, at the destination and at all peers' hosts" OR_NO_KEY

const char *host_boot_id(void);
int host_pause_timeout(void);	/* seconds that this host's driver waits for a peer; 0: for ever */
int host_pause_max(void);	/* the same for a peer that asks it to wait on; at least host_pause_timeout() */
/* What a container runtime says of itself, "crun version 1.21"; NULL: it does not run. Free it. */
char *host_runtime_version(const char *runtime);
const char *host_plugin_path(void);

#endif /* GODWIT_HOST_H */
