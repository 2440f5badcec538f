/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * The host's lock of numbers and ports of librdmacm. The kernel gives an id the lowest free number. Whoever wants a certain
 * number, or to know whether it is free, takes all free ones below for a moment. A restore and a check, or two of them, would
 * find numbers and ports taken that are free a moment later.
 */
#ifndef COMMON_CM_LOCK_H
#define COMMON_CM_LOCK_H

#define CM_LOCK		"/run/godwit"	/* the folder; it is made if it is not there */
#define CM_LOCK_STEP_MS	10		/* how often those who wait look whether it is free */

/*
 * Take the lock. A descriptor holds it until close(); so does a child that is forked meanwhile. -1 with errno: ETIMEDOUT: others
 * have had it for wait_ms; or it can't be had here.
 */
int cm_lock(int wait_ms);

#endif /* COMMON_CM_LOCK_H */
