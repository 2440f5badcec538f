/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
#ifndef COMMON_STANDARD_H
#define COMMON_STANDARD_H

/*
 * Call this first in main(). Of the descriptors 0, 1 and 2 those that are closed become /dev/null. Else the first file that the
 * program opens would be one of them, and get what the program says.
 */
void open_standard(void);

/* Was all of the standard output written? If not, say so, and give lost in place of 0. The first call that fails says it. */
int end_output(const char *program, int code, int lost);

#endif /* COMMON_STANDARD_H */
