/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * For the files that check, make, keep quiet and remove a network namespace (netns.h): its JSON, and the way into it.
 */
#ifndef GODWIT_NETNS_OPEN_H
#define GODWIT_NETNS_OPEN_H

#include "netns.h"

#define NETNS_TABLE	"godwit"	/* of nftables, in the namespace: while it is there, nothing passes */

/* The JSON, once it is known to make sense. The strings belong to it. */
struct netns {
	const char *path, *name;
	char *at;			/* the path by which it was found: another one, if that name does not lead to it any more */
	struct iface *iface;
	json_t **routes, **neighbours;	/* of each interface */
	json_t *sysctls, *changed;	/* of the namespace, by their paths in /proc/sys/net; or NULL */
	json_t *before;			/* all that it had, if it stays when all is undone; or NULL */
	size_t n;
	int ns, ours;
};

static inline const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* netns_open.c: the namespace need not be there. Call netns_close() in every case. */
int netns_open(struct netns *n, json_t *json);
void netns_close(struct netns *n);
/*
 * From now on netns_open() of this JSON finds this namespace, and no other one of its name; also if it loses the name, as long as
 * it has a process or another name. -1 with fault().
 */
int netns_note(struct netns *n, json_t *json);
bool netns_is_named(const struct netns *n);	/* does its name lead to it? */
/* Call work in the namespace. -1 with fault(): there is none, or it can't be entered. */
int netns_inside(struct netns *n, int (*work)(struct netns *n, void *arg), void *arg);
int netns_open_inside(json_t *json, int (*work)(struct netns *n, void *arg));

/* netns_sysctl.c: are they names in /proc/sys/net? */
bool netns_sysctl_names(json_t *sysctls);
/* Does this kernel have those that are changed? Adds strings to problems. The namespace need not be there. */
void netns_check_sysctls(const struct netns *n, json_t *problems);
/* Call these in the namespace: the first before anything is made, the others once its interfaces are made, and are not up yet. */
int inside_collect_sysctls(struct netns *n, void *arg);
int inside_set_sysctls(struct netns *n, void *arg);
void inside_reset_sysctls(const struct netns *n);

/* netns_quiet.c, for netns_inside(). If set is not NULL, the kernel may ask the neighbours from now on. */
int inside_keep_quiet(struct netns *n, void *arg);
int inside_end_quiet(struct netns *n, void *set);
int inside_unlock_tcp(struct netns *n, void *arg);
/* Call this in the namespace. state: as in ip-neighbour(8). */
int netns_set_neighbours(const struct netns *n, const char *state);

#endif /* GODWIT_NETNS_OPEN_H */
