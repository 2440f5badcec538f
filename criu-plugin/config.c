// SPDX-License-Identifier: GPL-2.0
/*
 * The administrator's settings: godwit-criu.conf(5). Container runtimes pass no
 * environment to CRIU, so the settings are in a file. A user who starts CRIU
 * directly can override them in the environment.
 *
 * The file is read only for processes with RDMA, so that a mistake in it stops
 * no others. It is not read in moves of godwit, which has looked at both hosts
 * and sets everything itself.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin.h"

/* ----------------------------------------------------------------- values -- */

static bool is_name(const char *text)
{
	return *text && !strpbrk(text, "/= \t");
}

static bool is_gid(const char *text)
{
	uint8_t raw[16];

	return inet_pton(AF_INET6, text, raw) == 1;
}

/* "old=new,old=new", each of which is good */
static bool is_map(const char *value, bool (*good)(const char *))
{
	char *copy = strdup(value), *rest = copy, *old, *new;
	bool ok = copy && *copy;

	while (ok && (new = strsep(&rest, ","))) {
		old = strsep(&new, "=");
		ok = new && good(old) && good(new);
	}
	free(copy);
	return ok;
}

static bool is_device_map(const char *value)
{
	return is_map(value, is_name);
}

static bool is_sgid_map(const char *value)
{
	return is_map(value, is_gid);
}

static bool is_late(const char *value)
{
	return !strcmp(value, "warn") || !strcmp(value, "refuse");
}

static const struct {
	const char *name;
	const char *variable;
	bool	(*good)(const char *value);
	const char *form;
} settings[] = {
	[DEVICE_MAP] = {
		"device_map", "GODWIT_DEVICE_MAP", is_device_map,
		"names of devices, old=new,old=new",
	},
	[SGID_MAP] = {
		"sgid_map", "GODWIT_SGID_MAP", is_sgid_map,
		"GIDs as IPv6 addresses, old=new,old=new",
	},
	[LATE] = { "late", "GODWIT_LATE", is_late, "warn or refuse" },
};

static char *values[ARRAY_SIZE(settings)];	/* from the file */

const char *setting(enum setting which)
{
	return getenv(settings[which].variable) ?: values[which];
}

bool refuses_late(void)
{
	const char *value = setting(LATE);

	return value && !strcmp(value, "refuse");
}

/* ------------------------------------------------------------------- lines -- */

static char *trim(char *text)
{
	char *end;

	text += strspn(text, " \t");
	for (end = text + strlen(text); end > text && isspace((unsigned char)end[-1]); end--)
		;
	*end = '\0';
	return text;
}

static int read_setting(const char *name, const char *value, int line)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(settings); i++)
		if (!strcmp(settings[i].name, name))
			break;
	if (i == ARRAY_SIZE(settings))
		return fail(CONFIG_FILE ", line %d: there is no setting '%s'", line,
			    name);
	if (values[i])
		return fail(CONFIG_FILE ", line %d: %s was set before", line, name);
	if (!settings[i].good(value))
		return fail(CONFIG_FILE ", line %d: '%s' is no value of %s: %s", line,
			    value, name, settings[i].form);
	values[i] = strdup(value);
	return values[i] ? 0 : fail("no memory");
}

static int read_line(char *text, size_t length, int line)
{
	char *value, *name;

	if (strlen(text) != length)
		return fail(CONFIG_FILE ", line %d: a byte of it is zero", line);
	text[strcspn(text, "#")] = '\0';
	value = text;
	name = trim(strsep(&value, "="));
	if (!value && !*name)
		return 0;
	if (!value)
		return fail(CONFIG_FILE ", line %d: '%s' is not 'name = value'", line,
			    name);
	return read_setting(name, trim(value), line);
}

static int read_lines(FILE *file)
{
	char *text = NULL;
	int ret = 0, line = 0;
	size_t size = 0;
	ssize_t length;

	while (!ret && (length = getline(&text, &size, file)) >= 0)
		ret = read_line(text, length, ++line);
	if (!ret && ferror(file))
		ret = fail(CONFIG_FILE " cannot be read: %m");
	free(text);
	return ret;
}

/* Whoever can write the file decides in which network a connection goes on. */
static int check_owner(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail(CONFIG_FILE " cannot be read: %m");
	if (!S_ISREG(st.st_mode))
		return fail(CONFIG_FILE " is no regular file");
	if (st.st_uid)
		return fail(CONFIG_FILE " is user %u's and not root's: it is not believed",
			    st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return fail(CONFIG_FILE " can be written by others than root (mode %o): it is not believed",
			    st.st_mode & 07777);
	return 0;
}

int load_config(void)
{
	static bool done;
	FILE *file;
	int fd, ret;

	if (!is_late(getenv("GODWIT_LATE") ?: "warn"))
		return fail("GODWIT_LATE is neither warn nor refuse");
	if (done || commit_is_asked() || getenv("GODWIT_HOLDS"))
		return 0;
	/* Without O_NONBLOCK, a FIFO of this name would keep us waiting. */
	fd = open(CONFIG_FILE, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno != ENOENT)
		return fail(CONFIG_FILE " cannot be read: %m");
	if (fd >= 0) {
		file = fdopen(fd, "r");
		if (!file) {
			close(fd);
			return fail("no memory");
		}
		ret = check_owner(fd) || read_lines(file) ? -1 : 0;
		fclose(file);
		if (ret)
			return -1;
	}
	done = true;
	return 0;
}
