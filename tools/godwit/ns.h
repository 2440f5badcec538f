/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Network namespaces of this host. A process enters another namespace to ask or change something there, and must come back: until
 * then all its questions go to that namespace.
 */
#ifndef GODWIT_NS_H
#define GODWIT_NS_H

#include <stdbool.h>
#include <stdint.h>

int ns_open(const char *path);		/* -1 with errno: ENOTTY if it is no network namespace */
int ns_ours(void);			/* the one that this process is in; -1 with fault() */
bool ns_same(int a, int b);
int ns_enter(int ns);			/* -1 with fault() */
void ns_come_back(int ours);
/*
 * The kernel's number of the namespace that we are in: no other one gets it until the next boot. (An inode's is soon reused.) -1
 * with errno.
 */
int ns_cookie(uint64_t *cookie);
/*
 * Call is_it in each namespace besides ours that has a name in /run/netns or a process, until it returns true. Gives that
 * namespace, open, and in *path, to be freed, the path by which it was found. -1: it is none of them.
 */
int ns_find(int ours, bool (*is_it)(void *arg), void *arg, char **path);

#endif /* GODWIT_NS_H */
