// SPDX-License-Identifier: Linux-OpenIB OR MIT
/* How each program begins with its standard files, and ends its output. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "standard.h"

void open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= STDIN_FILENO && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int end_output(const char *program, int code, int lost)
{
	static bool said;

	errno = EIO;	/* if the error was before */
	if (said || (!fflush(stdout) && !ferror(stdout)))
		return code;
	said = true;
	fprintf(stderr, "%s: output: %s\n", program, strerror(errno));
	return code ?: lost;
}
