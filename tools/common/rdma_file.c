// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "rdma_file.h"

static enum file_kind kind_of(const char *class, const char *node)
{
	if (!strcmp(class, "infiniband_verbs"))
		return FILE_UVERBS;
	if (!strcmp(class, "infiniband_mad"))
		return FILE_OTHER_RDMA;
	if (!strcmp(class, "misc") && !strcmp(node, "rdma_cm"))
		return FILE_RDMA_CM;
	return FILE_NOT_RDMA;
}

/* A host's first devices of verbs have these numbers. The numbers of further ones differ from boot to boot. */
enum { UVERBS_MAJOR = 231, UVERBS_MINOR = 192, UVERBS_FIXED = 32 };

/* A device that sysfs does not have (any more). A process may still have its file open. */
static enum file_kind kind_of_gone(dev_t rdev, char node[NODE_LEN])
{
	if (major(rdev) != UVERBS_MAJOR || minor(rdev) - UVERBS_MINOR >= UVERBS_FIXED)
		return FILE_NOT_RDMA;
	snprintf(node, NODE_LEN, "uverbs%u", minor(rdev) - UVERBS_MINOR);
	return FILE_UVERBS;
}

/* For the number of a device sysfs has a link to ../../devices/.../CLASS/NODE. */
enum file_kind device_kind(dev_t rdev, char node[NODE_LEN])
{
	char path[64], link[PATH_MAX], *name, *class;
	enum file_kind kind;
	ssize_t len;

	node[0] = '\0';
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u", major(rdev), minor(rdev));
	len = readlink(path, link, sizeof(link) - 1);
	if (len < 0)
		return kind_of_gone(rdev, node);
	link[len] = '\0';
	name = strrchr(link, '/');
	if (!name)
		return FILE_NOT_RDMA;
	*name++ = '\0';
	class = strrchr(link, '/');
	if (!class || strlen(name) >= NODE_LEN)
		return FILE_NOT_RDMA;
	kind = kind_of(class + 1, name);
	if (kind != FILE_NOT_RDMA)
		strcpy(node, name);
	return kind;
}

int device_name(const char *node, char name[64])
{
	char path[sizeof(VERBS_CLASS "//ibdev") + NAME_MAX];
	FILE *file;

	name[0] = '\0';
	/* A node is the name of an entry of a folder, so it is not longer than NAME_MAX. */
	snprintf(path, sizeof(path), VERBS_CLASS "/%.*s/ibdev", NAME_MAX, node);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (!fgets(name, 64, file))
		name[0] = '\0';
	fclose(file);
	name[strcspn(name, "\n")] = '\0';
	return 0;
}

int each_node(int (*each)(const char *node, const char *device, void *arg), void *arg)
{
	DIR *dir = opendir(VERBS_CLASS);
	struct dirent *de;
	char name[64];
	int ret = 0;

	/* A device that vanishes meanwhile is skipped. */
	while (!ret && dir && (de = readdir(dir)))
		if (!device_name(de->d_name, name) && *name)
			ret = each(de->d_name, name, arg);
	if (dir)
		closedir(dir);
	return ret;
}

struct node_search {
	const char *device;
	char *node;
};

static int is_node_of(const char *node, const char *device, void *arg)
{
	struct node_search *s = arg;

	if (strcmp(device, s->device) || strlen(node) >= NODE_LEN)
		return 0;
	if (s->node)
		strcpy(s->node, node);
	return 1;
}

bool device_node(const char *device, char node[NODE_LEN])
{
	return each_node(is_node_of, &(struct node_search){ device, node });
}

bool rdma_is_shared(void)
{
	FILE *file = fopen("/sys/module/ib_core/parameters/netns_mode", "re");
	bool shared = !file || fgetc(file) != 'N';

	if (file)
		fclose(file);
	return shared;
}
