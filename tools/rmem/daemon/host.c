// SPDX-License-Identifier: MIT
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "host.h"

#define CGROUPS "/sys/fs/cgroup"

/* Reads the number of the line that begins with @name and @between. -1: there is none. */
static int read_named(const char *path, const char *name, const char *between, uint64_t *number)
{
	char line[256], format[16];
	unsigned long long n;
	FILE *f = fopen(path, "re");
	int ret = -1;

	snprintf(format, sizeof(format), "%s%%llu", between);
	while (ret && f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)) && sscanf(line + strlen(name), format, &n) == 1)
			ret = 0;
	if (f)
		fclose(f);
	if (!ret)
		*number = n;
	return ret;
}

static int meminfo(const char *name, uint64_t *number)
{
	return read_named("/proc/meminfo", name, ": ", number);
}

uint64_t host_meminfo(const char *name)
{
	uint64_t n;

	return meminfo(name, &n) ? 0 : n;
}

/* ------------------------------------------------------------------ cgroups */

static int cgroup_number(const char *cgroup, const char *file, const char *name, uint64_t *number)
{
	char path[PATH_MAX];

	return (size_t)snprintf(path, sizeof(path), CGROUPS "%s/%s", cgroup, file) >= sizeof(path) ? -1 :
	       read_named(path, name, " ", number);
}

/* How many bytes the cgroup has left. UINT64_MAX: it has no limit. */
static uint64_t cgroup_left(const char *cgroup)
{
	static const char *const caches[] = { "inactive_file", "active_file", "slab_reclaimable" };
	uint64_t max, current;

	if (cgroup_number(cgroup, "memory.max", "", &max) || cgroup_number(cgroup, "memory.current", "", &current))
		return UINT64_MAX;
	for (unsigned int i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
		uint64_t cache = 0;

		cgroup_number(cgroup, "memory.stat", caches[i], &cache);
		current -= cache < current ? cache : current;
	}
	return max > current ? max - current : 0;
}

/* The place of this process in the cgroup file system. -1: it is in none, or the place is not known. */
static int own_cgroup(char *cgroup, size_t size)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	int ret = -1;

	while (ret && f && fgets(cgroup, size, f)) {
		if (strncmp(cgroup, "0::/", 4) || !strchr(cgroup, '\n'))
			continue;
		memmove(cgroup, cgroup + 3, strlen(cgroup + 3) + 1);
		*strchr(cgroup, '\n') = '\0';
		ret = 0;
	}
	if (f)
		fclose(f);
	return ret;
}

/* Each cgroup around the process's own may have a limit, too. */
int host_available(uint64_t *available)
{
	char cgroup[PATH_MAX];
	uint64_t left;

	*available = 0;
	if (meminfo("MemAvailable", &left))
		return -1;
	*available = left << 10;
	if (own_cgroup(cgroup, sizeof(cgroup)))
		return 0;
	for (;;) {
		char *slash = strrchr(cgroup, '/');

		left = cgroup_left(cgroup);
		if (left < *available)
			*available = left;
		if (!slash)
			return 0;
		*slash = '\0';
	}
}
