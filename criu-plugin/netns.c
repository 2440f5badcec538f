// SPDX-License-Identifier: GPL-2.0
/* The network namespace of a process: opened, entered, and left again. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin.h"

int open_other_netns(pid_t pid, int *ns)
{
	struct stat own, its;
	char path[32];
	int fd;

	*ns = -1;
	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &its) || stat("/proc/self/ns/net", &own)) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	if (own.st_dev == its.st_dev && own.st_ino == its.st_ino)
		close(fd);
	else
		*ns = fd;
	return 0;
}

int enter_netns(pid_t pid, int *own)
{
	int ns, ret;

	*own = -1;
	if (open_other_netns(pid, &ns))
		return fail("process %d: its network namespace cannot be opened: %m",
			    pid);
	if (ns < 0)
		return 0;
	*own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	ret = *own < 0 ? -1 : setns(ns, CLONE_NEWNET);
	if (ret) {
		fail("process %d: its network namespace cannot be entered: %m",
		     pid);
		if (*own >= 0)
			close(*own);
		*own = -1;
	}
	close(ns);
	return ret;
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
