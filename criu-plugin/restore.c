// SPDX-License-Identifier: GPL-2.0
/* The open files and mappings that the tasks of a restore ask for. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "restore.h"

int restore_init(void)
{
	/*
	 * CRIU refuses an image if a plugin that it was made with is missing.
	 * An image that was made without RDMA is none of our business.
	 */
	if (check_and_remove_inventory_plugin &&
	    !check_and_remove_inventory_plugin(CR_PLUGIN_DESC.name,
					       strlen(CR_PLUGIN_DESC.name)))
		return 0;
	if (!in_image_dir(INVENTORY)) {
		if (images_name_plugins() || in_image_dir("rdma-0.img"))
			return fail("%s is missing, though the process had RDMA: copy all images, or take the checkpoint again",
				    INVENTORY);
		info("no %s: nothing to restore", INVENTORY);
		return 0;
	}
	if (error_share() || check_criu() || check_order() || load_config() || load_images() ||
	    check_cm_ids() || check_time())
		return -1;
	return share_contexts() || share_cm_files() ? -1 : 0;
}

/* -------------------------------------------------------------------- files -- */

static const RdmaFileEntry *find_file(uint32_t id)
{
	const RdmaInventoryEntry *inventory = saved.inventory;
	size_t i;

	for (i = 0; i < inventory->n_files; i++)
		if (inventory->files[i]->id == id)
			return inventory->files[i];
	return NULL;
}

/* CRIU takes over the returned descriptor, and gives it the task's number. */
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

/* ----------------------------------------------------------------- mappings -- */

/*
 * CRIU 4.1 gives each mapping of a device a file of its own. So it uses each
 * descriptor that it gets here for one mapping, and then closes it. (If another
 * version did not, descriptors would stay open; restore_finish.c counts them.)
 */
int restore_mapping(uint64_t start, uint64_t pgoff, uint64_t *new_pgoff,
		    int *fd)
{
	const struct saved_ring *ring;
	const RdmaVmaEntry *vma;

	if (!saved.inventory)
		return -ENOTSUP;
	vma = find_vma(start, pgoff);
	if (!vma)
		return -ENOTSUP;
	ring = find_ring(vma);
	if (!ring)
		return fail("%s: no ring is known of the mapping at 0x%llx",
			    INVENTORY, (unsigned long long)start);
	if (make_context(vma->context))
		return -1;
	*fd = open_made_context(vma->context);
	if (*fd < 0)
		return -1;
	*new_pgoff = made_ring(ring);
	return 1;
}
