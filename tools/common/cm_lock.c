// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cm_lock.h"

/* Only root can open the folder, so nobody else can have the lock. */
int cm_lock(int wait_ms)
{
	int fd, err;

	if (mkdir(CM_LOCK, 0700) && errno != EEXIST && errno != EROFS)
		return -1;
	fd = open(CM_LOCK, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	for (int ms = 0; flock(fd, LOCK_EX | LOCK_NB); ms += CM_LOCK_STEP_MS) {
		err = errno == EWOULDBLOCK ? ETIMEDOUT : errno;
		if (err == ETIMEDOUT && ms < wait_ms) {
			usleep(CM_LOCK_STEP_MS * 1000);
			continue;
		}
		close(fd);
		errno = err;
		return -1;
	}
	return fd;
}
