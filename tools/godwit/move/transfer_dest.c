// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * What comes from the source: addresses, files, images.
 */
#include <stdlib.h>
#include "agent.h"
#include "text.h"

int agent_take_addresses(struct agent *a, json_t *message, json_t **answer)
{
	(void)message;
	(void)answer;
	if (a->stage != STAGE_PREPARED)
		return fault("it is too late, or too early, for addresses");
	/* We save before we add addresses: to take away an address that is not there does no harm. */
	agent_set_adding(a, true);
	if (agent_save(a) || addresses_add(&a->addresses))
		return -1;
	agent_tell(a, json_pack("{s:b}", "added", 1));
	/* The images come meanwhile. */
	return addresses_wait_gids(&a->addresses, 5000);
}

/*
 * A file has no answer: the source sends on. The source hears of a failure when it next listens; what it has sent until then
 * is read and dropped.
 */
int agent_take_file(struct agent *a, json_t *message, json_t **answer)
{
	char *path, *name, *file;
	int ret;

	(void)answer;
	if (a->stage != STAGE_PREPARED)
		return 0;
	path = path_from_json(json_object_get(message, "path"));
	name = path_from_json(json_object_get(message, "name"));
	file = path ? agent_new_file(a, path) : images_path(a->images, name);
	ret = file ? incoming_begin(&a->incoming, file, message) : -1;
	free(file);
	free(name);
	free(path);
	return ret;
}

int agent_end_file(struct agent *a, json_t *message, json_t **answer)
{
	(void)answer;
	return a->stage == STAGE_PREPARED ? incoming_end(&a->incoming, message) : 0;
}

/* Like a file, it has no answer. */
int agent_compare_file(struct agent *a, json_t *message, json_t **answer)
{
	(void)answer;
	return a->stage == STAGE_PREPARED ? agent_compare(a, message) : 0;
}

int agent_end_files(struct agent *a, json_t *message, json_t **answer)
{
	(void)message;
	if (a->stage == STAGE_PREPARED)
		*answer = json_pack("{s:b}", "received", 1);
	return 0;
}
