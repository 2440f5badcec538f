// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
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

int state_address(const char *id, const char *suffix, struct sockaddr_un *sun)
{
	char *path = state_path(id, suffix);
	bool fits = strlen(path) < sizeof(sun->sun_path) && !strchr(id, '/');

	*sun = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (fits)
		strcpy(sun->sun_path, path);
	free(path);
	return fits ? 0 : fault("move %s: it can't have such a name", id);
}

/* Where the lock of this move is in the file of locks. Two IDs hardly ever have the same place. */
static off_t lock_place(const char *id)
{
	uint64_t hash = 14695981039346656037u;	/* FNV-1a */

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 1099511628211u;
	return hash >> 2;
}

/* A file of root's, so that nobody else can have the lock. It is freed with the last copy of the descriptor. */
int state_lock(const char *id)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = lock_place(id), .l_len = 1 };
	int fd;

	if (strchr(id, '/'))
		return fault("move %s: it can't have such a name", id);
	fd = open(LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fault("%s: %s", LOCK_FILE, strerror(errno));
	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return fd;
	fault("move %s: %s", id, errno == EAGAIN ? "it is under way here already" : strerror(errno));
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

/* An earlier godwit wrote "frozen" at the source in any case, and beside that how far the move was. */
static json_t *read_state(const char *path)
{
	json_t *state = json_load_file(path, 0, NULL);
	const char *stage = json_string_value(json_object_get(state, "stage"));

	if (stage && !strcmp(stage, "frozen") && json_is_true(json_object_get(state, "ran")))
		json_object_set_new(state, "stage", json_string("ran"));
	else if (stage && !strcmp(stage, "frozen") && json_is_true(json_object_get(state, "decided")))
		json_object_set_new(state, "stage", json_string("decided"));
	return state;
}

json_t *state_load(const char *id)
{
	char *path = state_path(id, ".json");
	json_t *state = read_state(path);

	free(path);
	return state;
}

bool state_exists(const char *id)
{
	char *path = state_path(id, ".json");
	bool exists = access(path, F_OK) == 0 || errno != ENOENT;

	free(path);
	return exists;
}

static int add_state(json_t *all, const char *path)
{
	json_t *state = read_state(path);

	if (json_string_value(json_object_get(state, "id")) && json_string_value(json_object_get(state, "stage")))
		return json_array_append_new(all, state);
	json_decref(state);
	/* The move may have ended since the file was found. */
	if (access(path, F_OK) && errno == ENOENT)
		return 0;
	return fault("%s: it tells of a move, and can't be read: clean up what that move left, and remove this file", path);
}

int state_all(json_t **all)
{
	glob_t found;
	int ret = glob(STATE_DIR "/*.json", 0, NULL, &found);

	*all = json_array();
	if (ret)
		return ret == GLOB_NOMATCH ? 0 : fault("%s can't be read", STATE_DIR);
	for (size_t i = 0; i < found.gl_pathc; i++)
		if (add_state(*all, found.gl_pathv[i]))
			ret = -1;
	globfree(&found);
	return ret;
}

void state_remove(const char *id)
{
	char *path = state_path(id, ".json");

	unlink(path);
	free(path);
}
