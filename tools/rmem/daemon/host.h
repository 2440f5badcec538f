/* SPDX-License-Identifier: MIT */
/* The memory of the host. */
#ifndef RMEMD_HOST_H
#define RMEMD_HOST_H

#include <stdint.h>

/* A number of /proc/meminfo; 0 if it can't be read. */
uint64_t host_meminfo(const char *name);
/*
 * Stores how many bytes this process can still get: the least of what the host and the process's memory cgroups have left.
 * What their caches would give back counts as left. Returns 0, or -1 if it can't be read; then 0 is stored.
 */
int host_available(uint64_t *available);

#endif
