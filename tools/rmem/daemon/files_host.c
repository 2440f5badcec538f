// SPDX-License-Identifier: MIT
/*
 * The host whose rmemd uses the folder. The lock on the folder does not reach other hosts that share it, and a donor moves between
 * such hosts. So a symbolic link in the folder, which is made at once and whole, has the name of the host. It stays when rmemd is
 * killed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "files_internal.h"

#define HOST "host"
#define HOST_NEW "host.new"

int host_take(struct store *store)
{
	char other[sizeof(store->host)] = "";
	struct utsname is;

	uname(&is);
	strcpy(store->host, is.nodename);
	if (!symlinkat(store->host, store->dir, HOST))
		return fsync(store->dir) ? folder_fault(store, HOST) : 0;
	if (errno != EEXIST || readlinkat(store->dir, HOST, other, sizeof(other) - 1) < 0)
		return folder_fault(store, HOST);
	return strcmp(other, store->host) ? store_fault(&store->why, "%s/%s: rmemd at host %s uses this folder, or has not ended in "
		"order: start it there, or remove this file if it runs there no more", store->path, HOST, other) : 0;
}

/* For after a move: the host that the donor has left may start another rmemd, which must find the folder taken. */
int host_follow(struct store *store)
{
	struct utsname is;

	uname(&is);
	if (!strcmp(store->host, is.nodename))
		return 0;
	if (files_check(store))
		return -1;
	strcpy(store->host, is.nodename);
	unlinkat(store->dir, HOST_NEW, 0);
	return symlinkat(store->host, store->dir, HOST_NEW) || renameat(store->dir, HOST_NEW, store->dir, HOST) ||
	       fsync(store->dir) ? folder_fault(store, HOST) : 0;
}

void host_leave(struct store *store)
{
	unlinkat(store->dir, HOST, 0);
}
