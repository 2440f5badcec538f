// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The mount namespace of the process, at the source: CRIU runs in it, and it must stay what it was when the destination made
 * another one like it. The files in its own tmpfs go along as images.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "move.h"

int mounts_enter(struct move *m)
{
	char *path = xasprintf("/proc/%d/ns/mnt", m->process.pid);
	struct stat st;

	m->criu.mntns = open(path, O_RDONLY | O_CLOEXEC);
	free(path);
	if (m->criu.mntns < 0 || fstat(m->criu.mntns, &st))
		return fault("process %d: its mount namespace can't be had: %s", m->process.pid, strerror(errno));
	return st.st_ino == m->plan.mntns.id ? 0 :
	       fault("process %d: it is in another mount namespace now: try again", m->process.pid);
}

int mounts_compare(struct move *m)
{
	json_t *problems = json_array();
	struct mntns now;
	int ret = mntns_read(m->process.pid, &now, problems);

	if (!ret && json_array_size(problems))
		ret = fault("%s", json_string_value(json_array_get(problems, 0)));
	else if (!ret && (now.id != m->plan.mntns.id || !json_equal(now.differences, m->plan.mntns.differences)))
		ret = fault("process %d: mounts in its namespace, or this host's, have changed during the move: try again",
			    m->process.pid);
	mntns_free(&now);
	json_decref(problems);
	return ret;
}

static int save(struct move *m, const void *arg, int sk)
{
	(void)arg;
	if (mntns_save(m->process.pid, m->plan.mntns.differences, m->images))
		return -1;
	slow_say(sk, "");
	return 0;
}

int mounts_save(struct move *m)
{
	struct slow slow;
	int ret = slow_start(&slow, m, save, NULL) ?: slow_hear(&slow, m, NULL, 0);

	slow_end(&slow);
	return ret;
}
