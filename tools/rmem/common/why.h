/* SPDX-License-Identifier: MIT */
/* How functions of this folder say what went wrong. */
#ifndef RMEM_WHY_H
#define RMEM_WHY_H

/* Stores a line in *@why, which the caller frees; NULL if there is no memory. @why may be NULL. Returns -1. */
int rmem_why(char **why, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
