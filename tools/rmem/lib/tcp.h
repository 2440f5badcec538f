/* SPDX-License-Identifier: MIT */
/* A TCP connection to a donor. @deadline is one of now_ms(). 0 or a descriptor, or -errno and a line. */
#ifndef RMEM_TCP_H
#define RMEM_TCP_H

#include "internal.h"

int tcp_dial(const char *host, const char *service, int64_t deadline);
int tcp_send(const char *host, int fd, const void *data, size_t size, int64_t deadline);
int tcp_receive(const char *host, int fd, void *data, size_t size, int64_t deadline);

#endif
