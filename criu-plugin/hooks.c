// SPDX-License-Identifier: GPL-2.0
/*
 * Table of contents: what CRIU calls, in its order.
 *
 *	dump	init
 *		PAUSE_DEVICES		each task, before it is frozen
 *		CHECKPOINT_DEVICES	each task, all are frozen, no page is read
 *		HANDLE_DEVICE_VMA	mappings of devices
 *		DUMP_EXT_FILE		files that CRIU does not know
 *		exit			before the tasks are killed or let go
 *
 *	restore	init			no task is there
 *		RESTORE_EXT_FILE	in the task
 *		UPDATE_VMA_MAP		in the task
 *		RESUME_DEVICES_LATE	in CRIU; each task, its memory is back
 *		exit
 *
 * A hook that returns -ENOTSUP leaves it to the next plugin.
 */
#include <errno.h>
#include <unistd.h>

#include "dump.h"
#include "restore.h"

static int stage;

static int init(int now)
{
	int ret = 0;

	stage = now;
	unlinkat(criu_get_image_dir(), "rdma-error", 0);
	if (stage == CR_PLUGIN_STAGE__RESTORE)
		ret = tell_begin() ?: restore_init();
	/* CRIU does not call exit() when this fails. */
	if (ret)
		error_report();
	return ret;
}

static void fini(int now, int ret)
{
	if (now == CR_PLUGIN_STAGE__DUMP)
		dump_end(ret);
	if (ret)
		error_report();
}

CR_PLUGIN_REGISTER("rdma_plugin", init, fini)

static int pause_devices(int pid)
{
	int ret;

	if (stage != CR_PLUGIN_STAGE__PRE_DUMP)
		return look_ahead(pid);
	ret = refuse_predump(pid);
	/* CRIU does not call exit() in this stage. */
	if (ret != -ENOTSUP)
		error_report();
	return ret;
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__PAUSE_DEVICES, pause_devices)

static int checkpoint_devices(int pid)
{
	return stage == CR_PLUGIN_STAGE__DUMP ? checkpoint(pid) : -ENOTSUP;
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__CHECKPOINT_DEVICES, checkpoint_devices)

static int handle_device_vma(int fd, const struct stat *st)
{
	(void)fd;	/* CRIU opened it anew: it is not the task's context */
	return stage == CR_PLUGIN_STAGE__DUMP ? accept_mapping(st) : -ENOTSUP;
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__HANDLE_DEVICE_VMA, handle_device_vma)

static int dump_ext_file(int fd, int id)
{
	return stage == CR_PLUGIN_STAGE__DUMP ? dump_file(fd, id) : -ENOTSUP;
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__DUMP_EXT_FILE, dump_ext_file)

static int restore_ext_file(int id)
{
	return restore_file(id);
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__RESTORE_EXT_FILE, restore_ext_file)

static int update_vma_map(const char *path, const uint64_t addr,
			  const uint64_t old_pgoff, uint64_t *new_pgoff,
			  int *plugin_fd)
{
	(void)path;	/* as the source's container named it */
	return restore_mapping(addr, old_pgoff, new_pgoff, plugin_fd);
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__UPDATE_VMA_MAP, update_vma_map)

static int resume_devices_late(int pid)
{
	int ret = resume_late(pid);

	/* CRIU goes on as if nothing had happened. */
	if (ret && ret != -ENOTSUP)
		error_report();
	return ret;
}
CR_PLUGIN_REGISTER_HOOK(CR_PLUGIN_HOOK__RESUME_DEVICES_LATE, resume_devices_late)
