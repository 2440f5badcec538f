// SPDX-License-Identifier: MIT
/* The swap area on a device. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rmemswap.h"

extern char **environ;

static void path_of(const char *device, char path[RMEM_SWAP_NAME_SIZE + 8])
{
	snprintf(path, RMEM_SWAP_NAME_SIZE + 8, "/dev/%s", device);
}

bool area_used(const char *device, uint64_t *used)
{
	char line[512], name[256], path[RMEM_SWAP_NAME_SIZE + 8];
	FILE *swaps = fopen("/proc/swaps", "re");
	bool found = false;
	uint64_t kib;

	path_of(device, path);
	while (swaps && !found && fgets(line, sizeof(line), swaps))
		found = sscanf(line, "%255s %*s %*u %" SCNu64, name, &kib) == 2 && !strcmp(name, path);
	if (swaps)
		fclose(swaps);
	*used = found ? kib * 1024 : 0;
	return found;
}

/* Runs a program to its end: its exit code, and the first of its output; or -1. */
static int run(char *const *words, char *output, size_t size)
{
	posix_spawn_file_actions_t files;
	int ends[2], status = -1, error;
	ssize_t n;
	pid_t pid;

	*output = 0;
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
	error = posix_spawnp(&pid, words[0], &files, NULL, words, environ);
	posix_spawn_file_actions_destroy(&files);
	close(ends[1]);
	n = error ? 0 : read(ends[0], output, size - 1);
	output[n > 0 ? n : 0] = 0;
	output[strcspn(output, "\n")] = 0;
	close(ends[0]); /* (a few lines fit into the pipe) */
	if (error || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)) {
		fault("%s: %s", words[0], error ? strerror(error) : "it did not end well");
		return -1;
	}
	return WEXITSTATUS(status);
}

int area_is_free(const struct conf_device *device)
{
	char *const words[] = { "blkid", "-p", "-o", "value", "-s", "TYPE", device->disk, NULL };
	char type[64];

	/* (it exits with 2 when it finds nothing) */
	if (device->block || run(words, type, sizeof(type)) != 0 || !*type || !strcmp(type, "swap"))
		return 0;
	return fault("device %s: its disk %s holds %s: name another disk, or empty this one: wipefs -a %s", device->name,
		     device->disk, type, device->disk);
}

int area_on(const struct conf_device *device)
{
	char path[RMEM_SWAP_NAME_SIZE + 8], output[256];
	char *const words[] = { "mkswap", path, NULL };
	uint64_t used;

	path_of(device->name, path);
	if (area_used(device->name, &used))
		return 0;
	if (run(words, output, sizeof(output)))
		return fault("device %s: mkswap %s failed", device->name, path);
	if (!swapon(path, SWAP_FLAG_PREFER | device->priority))
		return 0;
	return fault("device %s: swapon %s: %s", device->name, path, strerror(errno));
}

pid_t area_off(const char *device)
{
	char path[RMEM_SWAP_NAME_SIZE + 8];
	sigset_t all, before;
	pid_t pid;

	path_of(device, path);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid = fork();
	if (pid)
		sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return fault("device %s: swapoff: %s", device, strerror(errno));
	if (pid)
		return pid;
	/* A signal would end the swapoff, and its handler is not for us. It brings pages in, so it may have others written. */
	prctl(PR_SET_IO_FLUSHER, 0, 0, 0, 0);
	_exit(swapoff(path) ? errno : 0);
}
