/* SPDX-License-Identifier: MIT */
/* How functions of this folder say what went wrong. */
#ifndef RMEM_WHY_H
#define RMEM_WHY_H

/* Stores a line, which the caller frees, or NULL without memory. @why may be NULL. Returns -1. */
int rmem_why(char **why, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
