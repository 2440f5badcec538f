// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The files of devices that a container has open. Its device cgroup comes along: does that let the container open the files that
 * the devices have here?
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "agent.h"
#include "host.h"
#include "netns_open.h"
#include "podman.h"

/* The number of a device's file, as "231:192"; or "". Free it. */
static char *number_of_node(const char *device)
{
	char *number = NULL;
	glob_t found;

	if (glob(VERBS_CLASS "/uverbs*", 0, NULL, &found))
		return xstrdup("");
	for (size_t i = 0; !number && i < found.gl_pathc; i++) {
		char *name_path = xasprintf("%s/ibdev", found.gl_pathv[i]), *path = xasprintf("%s/dev", found.gl_pathv[i]);
		char *name = read_file(name_path);

		if (name && strcspn(name, "\n") == strlen(device) && !strncmp(name, device, strlen(device)))
			number = read_file(path);
		free(name);
		free(name_path);
		free(path);
	}
	globfree(&found);
	if (number)
		number[strcspn(number, "\n")] = '\0';
	return number ?: xstrdup("");
}

static bool is_of_librdmacm(json_t *node)
{
	return !json_object_get(node, "device");
}

static bool may_open(json_t *node, unsigned int minor)
{
	json_t *allowed;
	size_t i;

	json_array_foreach(json_object_get(node, "minors"), i, allowed)
		if (json_integer_value(allowed) < 0 || json_integer_value(allowed) == minor)
			return true;
	return false;
}

int agent_check_node(json_t *node)
{
	const char *device = is_of_librdmacm(node) ? "rdma_cm" : container_fact(node, "device");
	unsigned int major = json_integer_value(json_object_get(node, "major"));
	unsigned int minor = json_integer_value(json_object_get(node, "minor")), major_here = 0, minor_here = 0;
	char *number = is_of_librdmacm(node) ? read_file(RDMA_CM_NUMBER) : number_of_node(device);
	int ret = 0;

	if (!number || sscanf(number, "%u:%u", &major_here, &minor_here) != 2)
		ret = fault("device %s: there is none there", device);
	else if (major != major_here || (minor != minor_here && !may_open(node, minor_here)))
		ret = fault("device %s: its file is %u:%u here and %u:%u there, and the container may open no other: run it "
			    "with --device-cgroup-rule 'c %u:* rwm'", device, major, minor, major_here, minor_here, major_here);
	free(number);
	if (!ret && !is_of_librdmacm(node))
		ret = host_check_device(device);
	return ret;
}

static int check_nodes(struct netns *n, void *nodes)
{
	json_t *node;
	size_t i;

	(void)n;
	json_array_foreach(nodes, i, node)
		if (agent_check_node(node))
			return -1;
	return 0;
}

/* A device that belongs to the container may be seen in its network namespace only. */
int agent_check_nodes(struct agent *a)
{
	json_t *netns = json_object_get(a->container, "netns"), *nodes = json_object_get(a->container, "nodes");
	struct netns n;
	int ret;

	if (!netns)
		return check_nodes(NULL, nodes);
	ret = netns_open(&n, netns) ?: netns_inside(&n, check_nodes, nodes);
	netns_close(&n);
	return ret;
}
