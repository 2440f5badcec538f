// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "content.h"
#include "proc.h"
#include "text.h"

/* ------------------------------------------------------------- the tree -- */

struct children {
	pid_t *pid;
	size_t n;
};

static int add_child(pid_t pid, void *arg)
{
	struct children *c = arg;

	GROW(c->pid, c->n);
	c->pid[c->n++] = pid;
	return 0;
}

size_t proc_children(pid_t pid, pid_t **children)
{
	struct children c = { 0 };

	proc_each_child(pid, add_child, &c);
	*children = c.pid;
	return c.n;
}

static int tree_add(struct tree *tree, pid_t pid)
{
	pid_t *children;
	size_t i, n;
	int pidfd = pidfd_open(pid, 0);

	if (pidfd < 0)
		return fault("process %d: %s", pid, strerror(errno));
	GROW(tree->task, tree->n);
	tree->task[tree->n++] = (struct task){
		.pid = pid, .pidfd = pidfd, .was_stopped = proc_state(pid) == 'T',
	};
	n = proc_children(pid, &children);
	for (i = 0; i < n; i++)
		if (tree_add(tree, children[i]))
			break;
	free(children);
	return i < n ? -1 : 0;
}

int tree_collect(struct tree *tree, pid_t root)
{
	*tree = (struct tree){ 0 };
	if (tree_add(tree, root) == 0)
		return 0;
	tree_free(tree);
	return -1;
}

int tree_refresh(struct tree *tree, pid_t root)
{
	struct tree now;

	if (tree_collect(&now, root))
		return -1;
	for (size_t i = 0; i < now.n; i++) {
		/* (one that is traced does not look stopped) */
		for (size_t j = 0; j < tree->n; j++)
			if (tree->task[j].pid == now.task[i].pid)
				now.task[i].was_stopped = tree->task[j].was_stopped;
	}
	tree_free(tree);
	*tree = now;
	return 0;
}

void tree_see_stopped(struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		tree->task[i].was_stopped = proc_state(tree->task[i].pid) == 'T';
}

void tree_free(struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		close(tree->task[i].pidfd);
	free(tree->task);
	*tree = (struct tree){ 0 };
}

bool tree_has(const struct tree *tree, pid_t pid)
{
	for (size_t i = 0; i < tree->n; i++)
		if (tree->task[i].pid == pid)
			return true;
	return false;
}

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

static bool gone(const struct task *task, int timeout_ms)
{
	struct pollfd p = { .fd = task->pidfd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

/*
 * What kills a process is its exit code from the moment in which it was sent, however long its threads take to notice:
 * the last field of its stat.
 */
static bool is_killed(pid_t pid)
{
	char *text, *field = stat_fields(pid, &text);
	const char *code = field ? strrchr(field, ' ') : NULL;
	bool killed = !code || (atoi(code) & 0x7f) == SIGKILL;

	free(text);
	return killed;
}

size_t tree_alive(const struct tree *tree)
{
	size_t i, n = 0;

	for (i = 0; i < tree->n; i++)
		n += !gone(&tree->task[i], 0) && !is_killed(tree->task[i].pid);
	return n;
}

int tree_wait_gone(const struct tree *tree, int timeout_ms)
{
	int64_t end = now_ns() + timeout_ms * INT64_C(1000000);

	for (size_t i = 0; i < tree->n; i++) {
		int64_t left = (end - now_ns()) / 1000000;

		if (!gone(&tree->task[i], left > 0 ? left : 0))
			return -1;
	}
	return 0;
}

static uint64_t status_value(pid_t pid, const char *key)
{
	char *path = xasprintf("/proc/%d/status", pid);
	char *text = read_file(path);
	char *line = text ? strstr(text, key) : NULL;
	uint64_t value = line ? strtoull(line + strlen(key), NULL, 10) : 0;

	free(text);
	free(path);
	return value;
}

/* What is mapped of a file by MAP_SHARED, which is saved once, however often it is mapped. */
struct extent {
	char file[64];	/* device and inode, as maps gives them */
	uint64_t length, end;
};

static int compare_extents(const void *a, const void *b)
{
	return strcmp(((const struct extent *)a)->file, ((const struct extent *)b)->file);
}

static uint64_t shared_extents(const struct tree *tree)
{
	struct extent *all = NULL;
	size_t n = 0, room = 0;
	uint64_t sum = 0;

	for (size_t i = 0; i < tree->n; i++) {
		char *path = xasprintf("/proc/%d/maps", tree->task[i].pid);
		char *text = read_file(path), *line, *at = NULL;

		free(path);
		for (line = text ? strtok_r(text, "\n", &at) : NULL; line; line = strtok_r(NULL, "\n", &at)) {
			char *rest, device[16], mode[8];
			uint64_t start = strtoull(line, &rest, 16), end = strtoull(rest + 1, &rest, 16), offset, inode;

			if (sscanf(rest, "%7s %" SCNx64 " %15s %" SCNu64, mode, &offset, device, &inode) != 4 ||
			    mode[3] != 's')
				continue;
			if (n == room)
				all = xrealloc(all, (room = room ? 2 * room : 64) * sizeof(*all));
			snprintf(all[n].file, sizeof(all[n].file), "%s %" PRIu64, device, inode);
			all[n].length = end - start;
			all[n++].end = offset + end - start;
		}
		free(text);
	}
	if (n)
		qsort(all, n, sizeof(*all), compare_extents);
	for (size_t i = 0, next; i < n; i = next) {
		struct extent file = all[i];

		for (next = i + 1; next < n && !compare_extents(&file, &all[next]); next++) {
			file.length += all[next].length;
			file.end = all[next].end > file.end ? all[next].end : file.end;
		}
		/* (offsets into devices say nothing) */
		sum += file.length < file.end ? file.length : file.end;
	}
	free(all);
	return sum;
}

uint64_t tree_memory(const struct tree *tree)
{
	uint64_t sum = 0, shared = 0, extents = shared_extents(tree);

	for (size_t i = 0; i < tree->n; i++) {
		pid_t pid = tree->task[i].pid;

		sum += 1024 * (status_value(pid, "\nRssAnon:") + status_value(pid, "\nRssFile:") +
			       status_value(pid, "\nHugetlbPages:") + status_value(pid, "\nVmSwap:"));
		shared += 1024 * status_value(pid, "\nRssShmem:");
	}
	return sum + (shared < extents ? shared : extents);
}

size_t tree_threads(const struct tree *tree, pid_t **tids)
{
	size_t i, n = 0;

	*tids = NULL;
	for (i = 0; i < tree->n; i++) {
		char *path = xasprintf("/proc/%d/task", tree->task[i].pid);
		DIR *dir = opendir(path);
		struct dirent *de;

		free(path);
		while (dir && (de = readdir(dir))) {
			if (!isdigit(de->d_name[0]))
				continue;
			GROW(*tids, n);
			(*tids)[n++] = atoi(de->d_name);
		}
		if (dir)
			closedir(dir);
	}
	return n;
}

void tree_hold(const struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++) {
		struct tree one = { .task = &tree->task[i], .n = 1 };
		pid_t *tids;
		size_t n = tree_threads(&one, &tids);

		for (size_t j = 0; j < n; j++)
			syscall(SYS_tgkill, tree->task[i].pid, tids[j], SIGSTOP);
		free(tids);
	}
}

void tree_release(const struct tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		if (!tree->task[i].was_stopped)
			pidfd_send_signal(tree->task[i].pidfd, SIGCONT, NULL, 0);
}

static void kill_below(pid_t pid)
{
	pid_t *children;
	size_t n = proc_children(pid, &children);

	for (size_t i = 0; i < n; i++) {
		kill_below(children[i]);
		kill(children[i], SIGKILL);
	}
	free(children);
}

void proc_kill_descendants(void)
{
	/* (one may have forked while we looked: go on until we are told that there are none) */
	do
		kill_below(getpid());
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
}

/* ---------------------------------------------------------- one process -- */

char *proc_name(pid_t pid)
{
	char *path = xasprintf("/proc/%d/comm", pid);
	char *name = read_file(path), *clean;
	size_t len = name ? strlen(name) : 0;

	free(path);
	if (!len)
		return xstrdup("?");
	name[len - 1] = '\0';	/* (a line; what else it has is the name's) */
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

#define KILL_MS	10000

void proc_kill_tree(const struct proc_id *id)
{
	struct tree tree;

	if (!proc_is_there(id) || tree_collect(&tree, id->pid))
		return;
	for (size_t i = tree.n; i-- > 0;)
		pidfd_send_signal(tree.task[i].pidfd, SIGKILL, NULL, 0);
	tree_wait_gone(&tree, KILL_MS);
	tree_free(&tree);
}

/* Is a file of its /proc folder another than ours? false, if that can't be told. */
static bool differs(pid_t pid, const char *name)
{
	struct stat ours, its;
	char *own = xasprintf("/proc/self/%s", name), *path = xasprintf("/proc/%d/%s", pid, name);
	bool differ = stat(own, &ours) == 0 && stat(path, &its) == 0 &&
		      (ours.st_ino != its.st_ino || ours.st_dev != its.st_dev);

	free(own);
	free(path);
	return differ;
}

uint64_t proc_ns(pid_t pid, const char *kind)
{
	char *path = xasprintf("/proc/%d/ns/%s", pid, kind);
	struct stat st;
	uint64_t ns = stat(path, &st) ? 0 : st.st_ino;

	free(path);
	return ns;
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

/* ---------------------------------------------------------- descriptors -- */

static int each_fd_of(pid_t pid, int (*each)(const struct proc_fd *, void *), void *arg)
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
		if (len < 0 || fstatat(dirfd(dir), de->d_name, &fd.st, 0) ||
		    fstatat(dirfd(dir), de->d_name, &link_st, AT_SYMLINK_NOFOLLOW))
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
		ret = each_fd_of(tree->task[i].pid, each, arg);
	return ret;
}

int proc_each(int (*each)(pid_t pid, void *arg), void *arg)
{
	DIR *dir = opendir("/proc");
	struct dirent *de;
	int ret = 0;

	while (!ret && dir && (de = readdir(dir)))
		if (isdigit(de->d_name[0]))
			ret = each(atoi(de->d_name), arg);
	if (dir)
		closedir(dir);
	return ret;
}

struct fd_walk {
	int (*each)(const struct proc_fd *, void *);
	void *arg;
};

static int walk_fds(pid_t pid, void *arg)
{
	struct fd_walk *walk = arg;

	return each_fd_of(pid, walk->each, walk->arg);
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

/* Could it be written to? A shared mapping that can't be now may have been made by who could, and may be again. */
static bool map_writable(const struct proc_map *map)
{
	char *path = xasprintf("/proc/%d/map_files/%" PRIx64 "-%" PRIx64, map->pid, map->start, map->end);
	struct stat st;
	bool writable = lstat(path, &st) || st.st_mode & S_IWUSR;

	free(path);
	return writable;
}

/* ---------------------------------------------------------------- files -- */

static void file_look(struct proc_file *file, const struct stat *st)
{
	file->size = st->st_size;
	file->mode = st->st_mode;
	file->mtime = content_time(&st->st_mtim);
	file->ctime = content_time(&st->st_ctim);
}

static void files_add(struct proc_files *files, const char *path, const struct stat *st,
		      bool mapped, bool writable)
{
	size_t len = strlen(path);

	if (path[0] != '/' || !S_ISREG(st->st_mode))
		return;
	/* (CRIU carries unlinked files along; they have no links, whatever they are called) */
	if (st->st_nlink == 0 || (len > 10 && !strcmp(path + len - 10, " (deleted)")))
		return;
	for (size_t i = 0; i < files->n; i++)
		if (!strcmp(files->file[i].path, path)) {
			files->file[i].mapped |= mapped;
			files->file[i].writable |= writable;
			return;
		}
	GROW(files->file, files->n);
	files->file[files->n] = (struct proc_file){
		.path = xstrdup(path), .dev = st->st_dev, .ino = st->st_ino, .mapped = mapped, .writable = writable,
	};
	file_look(&files->file[files->n++], st);
}

static int files_add_fd(const struct proc_fd *fd, void *arg)
{
	/* (memfds and shared memory are CRIU's to carry) */
	if (strncmp(fd->link, "/memfd:", 7) && strncmp(fd->link, "/SYSV", 5))
		files_add(arg, fd->link, &fd->st, false, fd->writable);
	return 0;
}

static int files_add_map(const struct proc_map *map, void *arg)
{
	struct stat st;

	if (map->path && map->path[0] == '/' && !stat(map->path, &st) && st.st_ino == map->inode)
		files_add(arg, map->path, &st, true, map->shared && map_writable(map));
	return 0;
}

static int64_t today(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return content_time(&now);
}

int proc_files(const struct tree *tree, struct proc_files *files)
{
	*files = (struct proc_files){ .looked = today() };
	for (size_t i = 0; i < tree->n; i++)
		proc_each_map(tree->task[i].pid, files_add_map, files);
	return proc_each_fd(tree, files_add_fd, files);
}

bool proc_files_refresh(struct proc_files *files)
{
	bool changed = false;
	size_t kept = 0;

	files->looked = today();
	for (size_t i = 0; i < files->n; i++) {
		struct proc_file file = files->file[i];
		struct stat st;

		if (stat(file.path, &st) || st.st_dev != file.dev || st.st_ino != file.ino) {
			free(file.path);
			changed = true;
			continue;
		}
		changed |= (uint64_t)st.st_size != file.size || st.st_mode != file.mode;
		file_look(&file, &st);
		files->file[kept++] = file;
	}
	files->n = kept;
	return changed;
}

bool proc_file_changed(const struct proc_file *file)
{
	struct stat st;

	return stat(file->path, &st) || st.st_dev != file->dev || st.st_ino != file->ino ||
	       content_time(&st.st_ctim) != file->ctime;
}

void proc_files_free(struct proc_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		free(files->file[i].path);
	free(files->file);
	*files = (struct proc_files){ 0 };
}

/* ------------------------------------------------------------------ TCP -- */

struct tcp_walk {
	int (*each)(const struct proc_tcp *, void *);
	void *arg;
	pid_t pid;		/* whose tables these are */
	char *table[2];		/* /proc/PID/net/tcp, tcp6 */
};

static bool parse_address(const char *hex, struct in6_addr *addr)
{
	uint32_t word[4];

	*addr = in6addr_any;
	if (strlen(hex) == 8 && sscanf(hex, "%8x", &word[0]) == 1) {
		addr->s6_addr[10] = addr->s6_addr[11] = 0xff;
		memcpy(&addr->s6_addr[12], &word[0], 4);
		return true;
	}
	if (sscanf(hex, "%8x%8x%8x%8x", &word[0], &word[1], &word[2], &word[3]) != 4)
		return false;
	memcpy(addr, word, sizeof(*addr));
	return true;
}

static bool parse_tcp(const char *text, unsigned long wanted, struct proc_tcp *tcp)
{
	char line[256], local[33], remote[33];
	unsigned int lport, rport, state;
	unsigned long inode;

	/* (sscanf() first measures all that follows) */
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	if (sscanf(line, " %*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*s %*s %*s %*s %*s %lu",
		   local, &lport, remote, &rport, &state, &inode) != 6 || inode != wanted)
		return false;
	tcp->state = state;
	tcp->local_port = lport;
	tcp->remote_port = rport;
	return parse_address(local, &tcp->local) && parse_address(remote, &tcp->remote);
}

static void tcp_tables(struct tcp_walk *walk, pid_t pid)
{
	static const char *const names[] = { "tcp", "tcp6" };

	if (walk->pid == pid)
		return;
	walk->pid = pid;
	for (int i = 0; i < 2; i++) {
		char *path = xasprintf("/proc/%d/net/%s", pid, names[i]);

		free(walk->table[i]);
		walk->table[i] = read_file(path);
		free(path);
	}
}

static int tcp_each_fd(const struct proc_fd *fd, void *arg)
{
	struct tcp_walk *walk = arg;
	unsigned long inode;
	int ret = 0;

	if (sscanf(fd->link, "socket:[%lu]", &inode) != 1)
		return 0;
	tcp_tables(walk, fd->pid);
	for (int i = 0; !ret && i < 2; i++) {
		char *line = walk->table[i];

		while (!ret && line && (line = strchr(line, '\n')) && *++line) {
			struct proc_tcp tcp = { .pid = fd->pid, .fd = fd->fd };

			if (parse_tcp(line, inode, &tcp))
				ret = walk->each(&tcp, walk->arg);
		}
	}
	return ret;
}

int proc_each_tcp(const struct tree *tree, int (*each)(const struct proc_tcp *, void *), void *arg)
{
	struct tcp_walk walk = { .each = each, .arg = arg };
	int ret = proc_each_fd(tree, tcp_each_fd, &walk);

	free(walk.table[0]);
	free(walk.table[1]);
	return ret;
}
