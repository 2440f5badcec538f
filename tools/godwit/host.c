// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "criu.h"
#include "host.h"
#include "rdma.h"

#define CRIU_MIN	40101

int host_check_criu(void)
{
	int version = criu_version();

	if (!version)
		return fault("criu: it is not installed: apt-get install criu");
	if (version < CRIU_MIN)
		return fault("criu: version %d.%d.%d is too old: it takes %d.%d.%d", version / 10000,
			     version / 100 % 100, version % 100, CRIU_MIN / 10000, CRIU_MIN / 100 % 100,
			     CRIU_MIN % 100);
	return criu_probe();
}

int host_check_nft(void)
{
	const char *const argv[] = { "nft", "list", "tables", NULL };
	char *output = NULL;
	int ret = run(argv, NULL, &output);

	if (ret == 127)
		fault("nft: it is not installed: apt-get install nftables");
	else if (ret)
		fault("nft: it does not work: %s", output ?: "");
	free(output);
	return ret ? -1 : 0;
}

char *host_runtime_version(const char *runtime)
{
	const char *const argv[] = { runtime, "--version", NULL };
	char *text = NULL;

	if (run(argv, NULL, &text) || !text) {
		free(text);
		return NULL;
	}
	text[strcspn(text, "\n")] = '\0';
	return text;
}

const char *host_plugin_path(void)
{
	const char *dir = getenv("CRIU_LIBS_DIR");
	static char path[4096];

	snprintf(path, sizeof(path), "%s/rdma_plugin.so", dir ?: "/usr/lib/criu");
	return path;
}

int host_check_plugin(void)
{
	return access(host_plugin_path(), R_OK) ?
		fault("CRIU plugin %s: %s: install it", host_plugin_path(), strerror(errno)) : 0;
}

int host_check_device(const char *device)
{
	struct ibv_context *ctx = rdma_open(device);
	struct rxe_migr_query query;
	int ret;

	if (!ctx)
		return -1;
	ret = ibv_query_migration(ctx, &query);
	ibv_close_device(ctx);
	if (ret == EPERM)
		return fault("device %s: not permitted: CAP_SYS_ADMIN is needed", device);
	if (ret)
		return fault("device %s: its driver does not know how to move: " LOAD_OURS, device);
	if (query.abi_version != RXE_MIGR_ABI_VERSION)
		return fault("device %s: its driver speaks version %u, godwit %u: install both from one "
			     "release", device, query.abi_version, RXE_MIGR_ABI_VERSION);
	return 0;
}

int host_check_root(void)
{
	return geteuid() ? fault("godwit must run as root for this") : 0;
}

static char *parameter(const char *name)
{
	char *path = xasprintf("/sys/module/rdma_rxe/parameters/%s", name), *text = read_file(path);

	free(path);
	return text;
}

bool host_allows_unsigned(void)
{
	char *text = parameter("allow_unsigned");
	bool allows = text && text[0] == 'Y';

	free(text);
	return allows;
}

int host_check_key(uint64_t fingerprints[2])
{
	if (rdma_key_fingerprints(fingerprints))
		return -1;
	if (fingerprints[0] || host_allows_unsigned())
		return 0;
	if (access(KEY_FILE, F_OK) == 0)
		return fault("key: this host's driver has none: godwit key load");
	return fault("key: this host has none: " KEY_HOW);
}

static int seconds_of(const char *name)
{
	char *text = parameter(name);
	unsigned long seconds = text ? strtoul(text, NULL, 10) : 0;

	free(text);
	return seconds < INT_MAX ? (int)seconds : INT_MAX;
}

int host_pause_timeout(void)
{
	return seconds_of("pause_timeout");
}

int host_pause_max(void)
{
	int timeout = host_pause_timeout(), most = seconds_of("pause_max");

	return !timeout || timeout > most ? timeout : most;
}

const char *host_boot_id(void)
{
	static char *id;

	if (!id)
		id = read_file("/proc/sys/kernel/random/boot_id");
	if (id)
		id[strcspn(id, "\n")] = '\0';
	return id ?: "";
}
