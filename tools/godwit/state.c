// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <glob.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "state.h"

char *state_path(const char *id, const char *suffix)
{
	return xasprintf(STATE_DIR "/%s%s", id, suffix);
}

/* (a name in the abstract vanishes with the last descriptor) */
int state_lock(const char *id)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int n = snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1, "godwit/%s", id);
	int fd;

	if (strchr(id, '/') || n >= (int)sizeof(sun.sun_path) - 1)
		return fault("move %s: it can't have such a name", id);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&sun, offsetof(struct sockaddr_un, sun_path) + 1 + n) == 0)
		return fd;
	fault("move %s: %s", id, errno == EADDRINUSE ? "it is under way here already" : strerror(errno));
	close_fd(&fd);
	return -1;
}

int state_save(const char *id, json_t *state)
{
	char *path = state_path(id, ".json"), *new = state_path(id, ".new");
	int ret = -1;

	if (!state)
		fault("move %s: its state can't be put into words", id);
	else if ((mkdir(STATE_DIR, 0700) && errno != EEXIST) || json_dump_file(state, new, JSON_COMPACT) ||
		 rename(new, path))
		fault("%s can't be written: %s", path, strerror(errno));
	else
		ret = 0;
	json_decref(state);
	free(path);
	free(new);
	return ret;
}

json_t *state_load(const char *id)
{
	char *path = state_path(id, ".json");
	json_t *state = json_load_file(path, 0, NULL);

	free(path);
	return state;
}

json_t *state_all(void)
{
	json_t *array = json_array(), *state;
	glob_t found;

	if (glob(STATE_DIR "/*.json", 0, NULL, &found))
		return array;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		state = json_load_file(found.gl_pathv[i], 0, NULL);
		if (json_object_get(state, "id") && json_object_get(state, "stage"))
			json_array_append_new(array, state);
		else
			json_decref(state);
	}
	globfree(&found);
	return array;
}

void state_remove(const char *id)
{
	char *path = state_path(id, ".json");

	unlink(path);
	free(path);
}
