// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * One process, as /proc shows it: what it is, and what it has open and mapped.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "proc.h"
#include "text.h"

/* Field 3 and on of /proc/PID/stat; the second, the name, may hold anything. */
static char *stat_fields(pid_t pid, char **text)
{
	char *path = xasprintf("/proc/%d/stat", pid);
	char *end;

	*text = read_file(path);
	free(path);
	end = *text ? strrchr(*text, ')') : NULL;
	return end && end[1] ? end + 2 : NULL;
}

uint64_t proc_status(pid_t pid, const char *name, int base)
{
	char *path = xasprintf("/proc/%d/status", pid), *key = xasprintf("\n%s:", name);
	char *text = read_file(path), *line = text ? strstr(text, key) : NULL;
	uint64_t value = line ? strtoull(line + strlen(key), NULL, base) : 0;

	free(text);
	free(key);
	free(path);
	return value;
}

char *proc_name(pid_t pid)
{
	char *path = xasprintf("/proc/%d/comm", pid);
	char *name = read_file(path), *clean;
	size_t len = name ? strlen(name) : 0;

	free(path);
	if (!len)
		return xstrdup("?");
	name[len - 1] = '\0';	/* the newline at the end is not part of the name; any other one is */
	clean = text_clean(name);
	free(name);
	return clean;
}

char proc_state(pid_t pid)
{
	char *text, *field = stat_fields(pid, &text);
	char state = field ? *field : 0;

	free(text);
	return state;
}

pid_t proc_sid(pid_t pid)
{
	char *text, *field = stat_fields(pid, &text);
	int sid = 0;

	if (!field || sscanf(field, "%*c %*d %*d %d", &sid) != 1)
		sid = 0;
	free(text);
	return sid;
}

pid_t proc_parent(pid_t pid)
{
	char *text, *field = stat_fields(pid, &text);
	int parent = 0;

	if (!field || sscanf(field, "%*c %d", &parent) != 1)
		parent = 0;
	free(text);
	return parent;
}

char *proc_cgroup(pid_t pid)
{
	char *path = xasprintf("/proc/%d/cgroup", pid), *text = read_file(path);
	char *line = text && !strncmp(text, "0::/", 4) ? text : text ? strstr(text, "\n0::/") : NULL, *cgroup = NULL;

	if (line) {
		line = strchr(line, '/');
		cgroup = xasprintf("%.*s", (int)strcspn(line, "\n"), line);
	}
	free(text);
	free(path);
	return cgroup;
}

struct proc_id proc_identify(pid_t pid)
{
	struct proc_id id = { .pid = pid };
	char *text, *field = stat_fields(pid, &text);

	if (!field || sscanf(field, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			     &id.start) != 1)
		id.start = 0;
	free(text);
	return id;
}

bool proc_is_there(const struct proc_id *id)
{
	return id->pid > 0 && id->start && proc_identify(id->pid).start == id->start;
}
/* Is a file of its /proc folder another than ours? false, if that can't be told. */
static bool differs(pid_t pid, const char *name)
{
	struct stat ours, its;
	char *own = xasprintf("/proc/self/%s", name), *path = xasprintf("/proc/%d/%s", pid, name);
	bool differ = stat(own, &ours) == 0 && stat(path, &its) == 0 && !same_file(&ours, &its);

	free(own);
	free(path);
	return differ;
}

char *proc_fdinfo(const struct proc_fd *fd)
{
	char *path = xasprintf("/proc/%d/fdinfo/%d", fd->pid, fd->fd);
	char *text = read_file(path);

	free(path);
	return text;
}

bool proc_is_ours(pid_t pid)
{
	char *path = xasprintf("/proc/%d/exe", pid);
	bool known = access(path, F_OK) == 0;

	free(path);
	return known && !differs(pid, "exe");
}

/*
 * The exit code, the last field of stat, names the signal that kills a process as soon as the signal is sent, however long the
 * threads take to notice.
 */
bool proc_is_killed(pid_t pid)
{
	char *text, *field = stat_fields(pid, &text);
	const char *code = field ? strrchr(field, ' ') : NULL;
	bool killed = !code || (atoi(code) & 0x7f) == SIGKILL;

	free(text);
	return killed;
}

/* ------------------------------------------------- threads and children -- */

struct pids {
	pid_t *pid;
	size_t n;
};

static int add_pid(pid_t pid, void *arg)
{
	struct pids *p = arg;

	GROW(p->pid, p->n);
	p->pid[p->n++] = pid;
	return 0;
}

size_t proc_threads(pid_t pid, pid_t **tids)
{
	struct pids p = { 0 };

	proc_each_thread(pid, add_pid, &p);
	*tids = p.pid;
	return p.n;
}

size_t proc_children(pid_t pid, pid_t **children)
{
	struct pids p = { 0 };

	proc_each_child(pid, add_pid, &p);
	*children = p.pid;
	return p.n;
}

/* ---------------------------------------------------------- descriptors -- */

/* whole: fd->st has all of the file, from its server if need be. */
static int each_fd_of(pid_t pid, bool whole, int (*each)(const struct proc_fd *, void *), void *arg)
{
	char *path = xasprintf("/proc/%d/fd", pid);
	DIR *dir = opendir(path);
	struct dirent *de;
	int ret = 0;

	free(path);
	while (!ret && dir && (de = readdir(dir))) {
		struct proc_fd fd = { .pid = pid, .fd = atoi(de->d_name) };
		struct stat link_st;
		char link[4096];
		ssize_t len;

		if (!isdigit(de->d_name[0]))
			continue;
		len = readlinkat(dirfd(dir), de->d_name, link, sizeof(link) - 1);
		if (len < 0 || fstatat(dirfd(dir), de->d_name, &link_st, AT_SYMLINK_NOFOLLOW) ||
		    (whole ? fstatat(dirfd(dir), de->d_name, &fd.st, 0) : stat_identity(dirfd(dir), de->d_name, &fd.st)))
			continue;
		link[len] = '\0';
		fd.link = link;
		fd.writable = link_st.st_mode & S_IWUSR;
		ret = each(&fd, arg);
	}
	if (dir)
		closedir(dir);
	return ret;
}

int proc_each_fd(const struct tree *tree, int (*each)(const struct proc_fd *, void *), void *arg)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < tree->n; i++)
		ret = each_fd_of(tree->task[i].pid, true, each, arg);
	return ret;
}

struct fd_walk {
	int (*each)(const struct proc_fd *, void *);
	void *arg;
};

static int walk_fds(pid_t pid, void *arg)
{
	struct fd_walk *walk = arg;

	return each_fd_of(pid, false, walk->each, walk->arg);
}

int proc_each_fd_of_all(int (*each)(const struct proc_fd *, void *), void *arg)
{
	return proc_each(walk_fds, &(struct fd_walk){ each, arg });
}

/* ------------------------------------------------------------- mappings -- */

int proc_each_map(pid_t pid, int (*each)(const struct proc_map *, void *), void *arg)
{
	char *path = xasprintf("/proc/%d/maps", pid);
	char *text = read_file(path), *line, *save;
	int ret = 0;

	free(path);
	for (line = text ? strtok_r(text, "\n", &save) : NULL; !ret && line; line = strtok_r(NULL, "\n", &save)) {
		struct proc_map map;

		if (!proc_map_parse(pid, line, &map))
			continue;
		ret = each(&map, arg);
	}
	free(text);
	return ret;
}
