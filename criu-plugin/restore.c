// SPDX-License-Identifier: GPL-2.0
/* Open files, as the tasks of a restore ask for them. rings.c does mappings. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "plugin.h"

int restore_init(void)
{
	/*
	 * CRIU refuses an image whose plugins are not there. The other way
	 * round, one that was made without RDMA is none of our business.
	 */
	if (check_and_remove_inventory_plugin &&
	    !check_and_remove_inventory_plugin(CR_PLUGIN_DESC.name,
					       strlen(CR_PLUGIN_DESC.name)))
		return 0;
	if (!in_image_dir(INVENTORY)) {
		/* CRIU before 4.1 did not say which plugins it used. */
		if (in_image_dir("rdma-0.img"))
			return fail("%s is missing: take the checkpoint again",
				    INVENTORY);
		info("no %s: nothing to restore", INVENTORY);
		return 0;
	}
	if (error_share() || check_criu() || load_config() || load_images())
		return -1;
	return share_contexts() || share_cm_files() ? -1 : 0;
}

static const RdmaFileEntry *find_file(uint32_t id)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	size_t i;

	for (i = 0; i < inventory->n_files; i++)
		if (inventory->files[i]->id == id)
			return inventory->files[i];
	return NULL;
}

/* CRIU takes over what is returned, and gives it its number. */
int restore_file(int id)
{
	const RdmaFileEntry *file;
	int fd;

	if (!saved.inventory)
		return -ENOTSUP;
	file = find_file(id);
	if (!file)
		return restore_cm_file(id);
	if (make_context(file->context))
		return -1;
	if (file->type == RXE_MIGR_REC_CONTEXT)
		fd = open_made_context(file->context);
	else
		fd = open_made_file(find_event_file(&saved.contexts[file->context],
						    file->type, file->handle));
	if (fd >= 0 && fcntl(fd, F_SETFL, file->flags)) {
		fail("the flags of a file cannot be set: %m");
		close(fd);
		fd = -1;
	}
	return fd;
}
