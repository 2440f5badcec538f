// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Has the destination room for the process, its images, and what podman unpacks of them?
 */
#include <stdlib.h>
#include <string.h>
#include <linux/capability.h>
#include "agent.h"
#include "huge.h"
#include "proc.h"
#include "text.h"

#define MIB(bytes)	((unsigned long long)(bytes) >> 20)
#define MORE	(1 << 20)	/* images are as large as the memory, and some hundred kilobytes more */

/* Without memory for the process the kernel would end some process, be it ours or another. */
static void check_space(json_t *list, const char *base, uint64_t images, uint64_t in_ram)
{
	uint64_t need = images + MORE, space = images_space(base), left = memory_free();
	bool in_memory = images_in_memory(base);

	if (space < need)
		problem(list, "disk: %s has room for %llu MiB, the process may need %llu: give --images",
			base, MIB(space), MIB(need));
	else if (left < in_ram + (in_memory ? images : 0))
		problem(list, "memory: %llu MiB are free there, and the process%s may need %llu: make room%s",
			MIB(left), in_memory ? " and its images" : "", MIB(in_ram + (in_memory ? images : 0)),
			in_memory ? ", or give --images" : ", or move it elsewhere");
}

/*
 * podman unpacks the archive into its own storage, and the volumes lie there, too. The image has a layer there. (podman info, which
 * tells the folder, takes long.)
 */
int agent_check_storage(json_t *message, char *layer)
{
	const char *base = json_string_value(json_object_get(message, "images")) ?: IMAGES_DIR;
	bool beside = images_beside(base, layer);
	uint64_t need = json_integer_value(json_object_get(message, "memory")) + MORE, space = images_space(layer);
	char *end = strstr(layer, "/overlay/");

	if (beside)
		need *= 2;
	if (space >= need)
		return 0;
	if (end)
		*end = '\0';
	return fault("disk: podman's storage, %s, has room for %llu MiB there, and the container%s may need %llu: make room", layer,
		     MIB(space), beside ? " with its images" : "", MIB(need));
}

static void check_huge(json_t *list, json_t *huge)
{
	const char *size;
	json_t *bytes;

	json_object_foreach(huge, size, bytes) {
		uint64_t page = strtoull(size, NULL, 10);
		uint64_t need = page ? json_integer_value(bytes) / page : 0, has = huge_free(page);

		if (has < need)
			problem(list, "huge pages of %llu KiB: the process has %llu, and %llu are free there: raise "
				HUGE_DIR "/nr_hugepages", (unsigned long long)page >> 10, (unsigned long long)need,
				(unsigned long long)has, (unsigned long long)page >> 10);
	}
}

static bool may_lock(void)
{
	char *text = read_file("/proc/self/status");
	char *line = text ? strstr(text, "\nCapEff:") : NULL;
	bool may = line && strtoull(line + 8, NULL, 16) & (1ULL << CAP_IPC_LOCK);

	free(text);
	return may;
}

/* CRIU pins the memory again, with the rights that we have. */
static void check_pinned(json_t *list, json_t *pinned)
{
	json_t *process;
	size_t i;

	if (may_lock())
		return;
	json_array_foreach(pinned, i, process)
		problem(list, "process %d: its memory regions, %lld KiB, can't be pinned there: its RLIMIT_MEMLOCK is %lld "
			"KiB: give it a higher one, or godwit there CAP_IPC_LOCK",
			(int)json_integer_value(json_object_get(process, "pid")),
			(long long)json_integer_value(json_object_get(process, "bytes")) >> 10,
			(long long)json_integer_value(json_object_get(process, "limit")) >> 10);
}

void agent_check_room(json_t *message, const char *base, json_t *list)
{
	check_space(list, base, json_integer_value(json_object_get(message, "memory")),
		    json_integer_value(json_object_get(message, "in_ram")));
	check_huge(list, json_object_get(message, "huge"));
	check_pinned(list, json_object_get(message, "pinned"));
}
