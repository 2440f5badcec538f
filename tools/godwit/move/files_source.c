// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * Files that stay where they are, at the source. The destination's file of the same name must have the same content. For a
 * file that the process may write to, the content counts that it has when the process is frozen.
 */
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "content.h"
#include "move.h"
#include "text.h"

/* A file system's clock ticks. A write in the same tick as our look does not change the file's times. */
#define TICK_NS	INT64_C(1000000000)
/* So long before time is up, the child says which file is too large for it. */
#define SAY_NS	INT64_C(200000000)
#define LINE_SIZE	4200	/* of a fault() */

void move_path(struct paths *paths, const char *path)
{
	GROW(paths->path, paths->n);
	paths->path[paths->n++] = xstrdup(path);
}

bool paths_list(const struct paths *paths, const char *path)
{
	for (size_t i = 0; i < paths->n; i++)
		if (!strcmp(paths->path[i], path))
			return true;
	return false;
}

/* Is it one of these files, or in one of these folders? */
bool paths_cover(const struct paths *paths, const char *path)
{
	for (size_t i = 0; i < paths->n; i++)
		if (path_below(path, paths->path[i]))
			return true;
	return false;
}

/* ------------------------------------------------------- what was asked -- */

/* Replace each path by the name that the kernel gives it, and list each once. */
static void resolve(struct move *m, struct paths *paths, const char *option, bool folders)
{
	struct paths found = { 0 };

	for (size_t i = 0; i < paths->n; i++) {
		char *path = paths->path[i];
		char *real = path[0] == '/' ? realpath(path, NULL) : NULL;
		struct stat st;

		if (path[0] != '/')
			plan_problem(&m->plan, "file %s: %s takes a path that begins with /", path, option);
		else if (!real || stat(real, &st))
			plan_problem(&m->plan, "file %s: %s: give %s a file that is here", path, strerror(errno), option);
		else if (!S_ISREG(st.st_mode) && !(folders && S_ISDIR(st.st_mode)))
			plan_problem(&m->plan, "file %s: it is no regular file: %s can't take it", path, option);
		else if (!paths_list(&found, real))
			move_path(&found, real);
		free(real);
		free(path);
	}
	free(paths->path);
	*paths = found;
}

/* A process with a lease is told when somebody opens the file, and has to give the lease up. */
static bool is_leased(const struct move *m, const char *path)
{
	json_t *name = path_json(path), *leased;
	bool found = false;
	size_t i;

	json_array_foreach(m->plan.leased, i, leased)
		found |= json_equal(leased, name);
	json_decref(name);
	return found;
}

/* The destination has it open before the copied file comes. */
static bool is_outside(const struct move *m, const char *path)
{
	json_t *name = path_json(path), *file;
	bool found = false;
	const char *key;

	json_object_foreach(m->plan.outside, key, file)
		found |= json_equal(file, name);
	json_decref(name);
	return found;
}

void files_asked(struct move *m)
{
	resolve(m, &m->copy, "--copy", false);
	resolve(m, &m->share, "--shared", true);
	for (size_t i = 0; i < m->copy.n; i++) {
		if (paths_cover(&m->share, m->copy.path[i]))
			plan_problem(&m->plan, "file %s: give one of --copy and --shared", m->copy.path[i]);
		if (is_outside(m, m->copy.path[i]))
			plan_problem(&m->plan, "file %s: it was opened outside of the process's mount namespace, and can't be "
				     "copied: put it there yourself", m->copy.path[i]);
		if (mntns_binds(&m->plan.mntns, m->copy.path[i]))
			plan_problem(&m->plan, "file %s: it is mounted in the process's mount namespace, which would keep the file "
				     "that a copied file replaces: put it there yourself", m->copy.path[i]);
		if (is_leased(m, m->copy.path[i]))
			plan_problem(&m->plan, "file %s: the process has a lease on it, which ends when it is copied: end the "
				     "lease, or put it on storage that both share, and give --shared", m->copy.path[i]);
	}
}

/* --------------------------------------------------- before anything stops -- */

static void drop_copied(const struct move *m, json_t *list)
{
	for (size_t i = json_array_size(list); i-- > 0;) {
		char *path = path_from_json(json_object_get(json_array_get(list, i), "path"));

		if (path && paths_list(&m->copy, path))
			json_array_remove(list, i);
		free(path);
	}
}

void files_drop_copied(struct move *m)
{
	struct proc_files *files = &m->plan.files;
	size_t kept = 0;

	/* A copied file is another file, which nobody has locked there. */
	drop_copied(m, m->plan.watches);
	drop_copied(m, m->plan.locks);
	for (size_t i = 0; i < files->n; i++)
		if (paths_list(&m->copy, files->file[i].path))
			free(files->file[i].path);
		else
			files->file[kept++] = files->file[i];
	proc_files_keep(files, kept);
}

void files_ask(struct move *m, json_t *question)
{
	json_t *copies = json_array(), *file;
	struct stat st;
	size_t i;

	content_warm_up();
	/* The question lists files in the order of the plan. */
	json_array_foreach(json_object_get(question, "files"), i, file)
		if (paths_cover(&m->share, m->plan.files.file[i].path))
			json_object_set_new(file, "shared", json_true());
	for (i = 0; i < m->copy.n; i++)
		if (stat(m->copy.path[i], &st) == 0)
			json_array_append_new(copies, json_pack("{s:o, s:I}", "path", path_json(m->copy.path[i]),
								"size", (json_int_t)st.st_size));
	json_object_set_new(question, "copies", copies);
}

static int digest_here(const struct move *m, const struct proc_file *file, int64_t deadline, char digest[DIGEST_TEXT])
{
	if (file->size && is_leased(m, file->path))
		return fault("file %s: the process has a lease on it, which ends when what it holds is read: end the lease, or "
			     "put it on storage that both share, and give --shared", file->path);
	return content_digest(file->path, file->size, deadline, digest);
}

/*
 * theirs: the digest of the destination's file of this name. NULL: size and time were enough for the destination. If the
 * process writes to the file, two looks at different times prove nothing: the file is compared again in the freeze.
 */
static int judge(const struct move *m, struct proc_file *file, const char *theirs)
{
	const struct proc_files *files = &m->plan.files;
	char ours[DIGEST_TEXT];
	bool same;

	file->settled = !file->writable || files->looked - file->ctime > TICK_NS;
	if (!theirs)
		return 0;
	if (digest_here(m, file, 0, ours))
		return -1;
	same = !strcmp(ours, theirs);
	if (same || (file->writable && (file->mapped || proc_file_changed(file)))) {
		file->settled &= same;
		return 0;
	}
	return content_differs(file->path, file->writable);
}

void files_judge(struct move *m, json_t *digests, json_t *problems)
{
	struct proc_files *files = &m->plan.files;

	for (size_t i = 0; i < files->n; i++) {
		json_t *name = path_json(files->file[i].path);
		const char *theirs = json_string_value(json_object_get(digests, json_string_value(name)));

		if (judge(m, &files->file[i], theirs))
			json_array_append_new(problems, json_string(fault_text()));
		fault_clear();
		json_decref(name);
	}
}

uint64_t files_size(const struct move *m)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < m->plan.files.n; i++)
		sum += m->plan.files.file[i].size;
	return sum;
}

/* ------------------------------------------------- shared file systems -- */

/* syncfs() tells of errors since the file was opened, and of older ones that nobody has been told of. */
static int sync_at(const struct move *m, const char *mount)
{
	char *path = xasprintf("/proc/%d/root%s", (int)m->process.pid, mount);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret = fd >= 0 && syncfs(fd) ? fault("%s: what was written there can't be written back: %s", mount, strerror(errno)) : 0;

	close_fd(&fd);
	free(path);
	return ret;
}

static bool is_shared(const char *type)
{
	static const char *const types[] = {
		"nfs", "cifs", "smb3", "9p", "ceph", "fuse", "gfs2", "ocfs2", "lustre", "afs", "gpfs",
		"beegfs", "orangefs", "virtiofs", "wekafs",
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strncmp(type, types[i], strlen(types[i])))
			return true;
	return false;
}

/* early: a socket at which errors are said, while all file systems are synced; or -1: the first error ends it, with fault(). */
static int sync_all(const struct move *m, int early)
{
	char *path = xasprintf("/proc/%d/mounts", (int)m->process.pid);
	FILE *f = setmntent(path, "re");
	struct mntent *e;
	int ret = 0;

	free(path);
	while (!ret && f && (e = getmntent(f))) {
		ret = is_shared(e->mnt_type) ? sync_at(m, e->mnt_dir) : 0;
		if (ret && early >= 0) {
			slow_say(early, fault_text());
			fault_clear();
			ret = 0;
		}
	}
	if (f)
		endmntent(f);
	return ret;
}

int move_sync(struct move *m)
{
	return sync_all(m, -1);
}

static int sync_early(struct move *m, const void *arg, int sk)
{
	(void)arg;
	sync_all(m, sk);
	slow_say(sk, "");
	return 0;
}

int files_sync_early(struct move *m, int limit_ms)
{
	char line[LINE_SIZE];
	struct slow slow;
	int ret = slow_start(&slow, m, sync_early, NULL);

	m->deadline = now_ns() + limit_ms * INT64_C(1000000);
	while (!ret) {
		ret = slow_hear(&slow, m, line, sizeof(line));
		if (ret || !*line)
			break;
		report_beforehand("%s (this may be old, and another program's data)", line);
	}
	slow_end(&slow);
	if (ret && now_ns() >= m->deadline) {
		fault_clear();
		fault("NFS, or another shared file system, could not be synced within %d s: see to it, or give --limit",
		      limit_ms / 1000);
	}
	return ret;
}

static int sync_files(struct move *m, const void *arg, int sk)
{
	(void)arg;
	if (move_sync(m))
		return -1;
	slow_say(sk, "");
	return 0;
}

int files_sync(struct move *m)
{
	struct slow slow;
	int ret;

	if (m->synced)
		return 0;
	ret = slow_start(&slow, m, sync_files, NULL) ?: slow_hear(&slow, m, NULL, 0);
	slow_end(&slow);
	m->synced = !ret;
	return ret;
}

/* ------------------------------------------------------- when it is frozen -- */

static bool is_settled(const struct proc_files *before, const struct proc_file *file)
{
	const struct proc_file *old = proc_files_find(before, file->path);

	return old && old->settled && old->dev == file->dev && old->ino == file->ino && old->ctime == file->ctime &&
	       old->size == file->size && !(file->writable && file->mapped);
}

static bool is_to_compare(const struct move *m, const struct proc_file *file)
{
	return !paths_list(&m->copy, file->path) && !paths_cover(&m->share, file->path) && !is_settled(&m->plan.files, file);
}

static int digest_all(struct move *m, const void *arg, int sk)
{
	const struct proc_files *files = arg;
	char digest[DIGEST_TEXT];

	if (move_sync(m))	/* so that the destination reads what was written */
		return -1;
	for (size_t i = 0; i < files->n; i++) {
		if (!is_to_compare(m, &files->file[i]))
			continue;
		if (digest_here(m, &files->file[i], m->deadline - SAY_NS, digest))
			return -1;
		slow_say(sk, digest);
	}
	return 0;
}

static int send_digest(struct move *m, struct slow *slow, const struct proc_file *file)
{
	char digest[DIGEST_TEXT];

	if (slow_hear(slow, m, digest, sizeof(digest)))
		return -1;
	m->synced = true;
	return wire_send(&m->dest.wire, json_pack("{s:s, s:o, s:I, s:i, s:b, s:s}", "op", "compare", "path",
						  path_json(file->path), "size", (json_int_t)file->size, "mode",
						  (int)file->mode, "writable", file->writable, "digest", digest));
}

int files_compare(struct move *m)
{
	struct slow slow = SLOW_INIT;
	struct proc_files now;
	int ret = proc_files(&m->plan.tree, &m->plan.mntns, &now);

	for (size_t i = 0; !ret && i < now.n; i++) {
		if (!is_to_compare(m, &now.file[i]))
			continue;
		if (slow.pid < 0)
			ret = slow_start(&slow, m, digest_all, &now);
		ret = ret ?: send_digest(m, &slow, &now.file[i]);
	}
	slow_end(&slow);
	proc_files_free(&now);
	return ret;
}
