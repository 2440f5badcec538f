// SPDX-License-Identifier: GPL-2.0
/* The network namespace of a process: opened, entered, and left again. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "plugin.h"

/* Is this descriptor of our own network namespace? -1 with errno: it cannot be told. */
static int is_own(int fd)
{
	struct stat own, its;

	if (fstat(fd, &its) || stat("/proc/self/ns/net", &own))
		return -1;
	return own.st_dev == its.st_dev && own.st_ino == its.st_ino;
}

int open_other_netns(pid_t pid, int *ns)
{
	char path[32];
	int fd, own;

	*ns = -1;
	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	own = is_own(fd);
	if (own)
		close(fd);
	else
		*ns = fd;
	return own < 0 ? -1 : 0;
}

/* Enter ns, and close it. If it is -1, there is nothing to enter. */
static int enter(int ns, int *own)
{
	int ret;

	*own = -1;
	if (ns < 0)
		return 0;
	*own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	ret = *own < 0 ? -1 : setns(ns, CLONE_NEWNET);
	if (ret && *own >= 0) {
		close(*own);
		*own = -1;
	}
	close(ns);
	return ret;
}

int enter_netns(pid_t pid, int *own)
{
	int ns;

	*own = -1;
	if (open_other_netns(pid, &ns))
		return fail("process %d: its network namespace cannot be opened: %m",
			    pid);
	return enter(ns, own) ? fail("process %d: its network namespace cannot be entered: %m",
				     pid) : 0;
}

/*
 * Is this descriptor the one that the runtime has given CRIU? The kernel tells whether
 * it is a network namespace. Its link in /proc/self/fd shows only a path if the runtime
 * has opened the namespace by a path below /run/netns.
 */
static bool is_given(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == NSFS_MAGIC &&
	       ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNET && !is_own(fd);
}

int enter_given_netns(int *own)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *de;
	int ns = -1;

	while (dir && ns < 0 && (de = readdir(dir)))
		if (de->d_name[0] != '.' && is_given(atoi(de->d_name)))
			ns = fcntl(atoi(de->d_name), F_DUPFD_CLOEXEC, 0);
	if (dir)
		closedir(dir);
	return enter(ns, own) ? fail("the network namespace of the tasks cannot be entered: %m") : 0;
}

int leave_netns(int own)
{
	int ret;

	if (own < 0)
		return 0;
	ret = setns(own, CLONE_NEWNET);
	if (ret)
		fail("CRIU cannot come back to its own network namespace: %m");
	close(own);
	return ret;
}
