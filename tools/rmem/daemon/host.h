/* SPDX-License-Identifier: MIT */
/* The memory of the host. */
#ifndef RMEMD_HOST_H
#define RMEMD_HOST_H

#include <stdint.h>

/* A number of /proc/meminfo; 0 if it can't be read. */
uint64_t host_meminfo(const char *name);
/*
 * The number of bytes that this process can still get: those that are left at the host or in one of its memory cgroups, whichever
 * is less. Both count what their caches would give back. -1: it can't be read, and is 0.
 */
int host_available(uint64_t *available);

#endif
