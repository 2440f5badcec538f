/* SPDX-License-Identifier: MIT */
/*
 * TCP to a donor, until @deadline, a time of rmem_now_ms(). rmem_dial() returns a descriptor, and the others return 0. On failure
 * all return -errno and *@why, which the caller frees.
 */
#ifndef RMEM_DIAL_H
#define RMEM_DIAL_H

#include <stddef.h>
#include <stdint.h>

/* Looking up @host has limits of its own (resolv.conf(5)): the deadline is put off by the time that takes. */
int rmem_dial(const char *host, const char *service, int64_t *deadline, char **why);
int rmem_tcp_send(const char *host, int fd, const void *data, size_t size, int64_t deadline, char **why);
int rmem_tcp_receive(const char *host, int fd, void *data, size_t size, int64_t deadline, char **why);

#endif
