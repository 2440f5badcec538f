/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The kinds of RDMA files, and the names of their devices.
 */
#ifndef COMMON_RDMA_FILE_H
#define COMMON_RDMA_FILE_H

#include <stdbool.h>
#include <sys/types.h>

enum file_kind {
	FILE_NOT_RDMA,
	FILE_UVERBS,		/* a context, maybe; or its device is gone, and another one may have the number by now */
	FILE_EVENTS,		/* a completion channel or asynchronous event file */
	FILE_RDMA_CM,
	FILE_OTHER_RDMA,	/* umad, issm, ... */
};

#define NODE_LEN	32
#define VERBS_CLASS	"/sys/class/infiniband_verbs"
#define RDMA_CLASS	"/sys/class/infiniband"
#define NODES		"/dev/infiniband"
#define RDMA_CM		NODES "/rdma_cm"
#define RDMA_CM_NUMBER	"/sys/class/misc/rdma_cm/dev"	/* "MAJOR:MINOR" */
/* What /proc/PID/fd says of an event file, which belongs to no device. */
#define EVENT_FILE	"anon_inode:[infinibandevent]"

/*
 * The kind of a character device, told by its number, since a container may
 * give it any name. node gets the host's name, "uverbs0", if it is RDMA's.
 */
enum file_kind device_kind(dev_t rdev, char node[NODE_LEN]);

/*
 * The name, "rxe0", of the device behind a node, "uverbs0"; "" if sysfs gives
 * none. -1 and errno: sysfs has no such node.
 */
int device_name(const char *node, char name[64]);

/*
 * Call each for every device that has a node, of any driver and in any network
 * namespace: "uverbs0", "rxe0". Stop when each gives other than 0, and give that.
 */
int each_node(int (*each)(const char *node, const char *device, void *arg), void *arg);

/* Is there a node of the device "rxe0", in any network namespace? node gets its name, unless it is NULL. */
bool device_node(const char *device, char node[NODE_LEN]);

/*
 * Do network namespaces share their devices (rdma system)? If not, nobody here can
 * open a device of another namespace. Only its node shows here, with the device's name.
 */
bool rdma_is_shared(void);

#endif /* COMMON_RDMA_FILE_H */
