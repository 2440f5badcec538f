/* SPDX-License-Identifier: MIT */
/* What the host has of memory. */
#ifndef RMEMD_HOST_H
#define RMEMD_HOST_H

#include <stdint.h>

/* A number of /proc/meminfo; 0 if it can't be read. */
uint64_t host_meminfo(const char *name);
/*
 * Bytes that this process can still have: what the host has left, or one of its own memory cgroups, whichever is less. Both
 * count what their caches would give back. -1: it can't be read, and is 0.
 */
int host_available(uint64_t *available);

#endif
