/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
#ifndef COMMON_STANDARD_H
#define COMMON_STANDARD_H

#include <fcntl.h>
#include <unistd.h>

/*
 * Call this first in main(). Of the descriptors 0, 1 and 2 those that are closed become /dev/null. Else the first file that the
 * program opens would be one of them, and get what the program says.
 */
static inline void open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= STDIN_FILENO && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

#endif /* COMMON_STANDARD_H */
