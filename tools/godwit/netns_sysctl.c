// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The settings of a network namespace in /proc/sys/net. /proc shows those of the namespace that a process is in.
 *
 * A namespace begins with settings of the kernel and of its host, so all of them go along. Those that somebody has changed must
 * be what they were. The others may fail: the destination may lack a module that the source has.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "netns_open.h"
#include "text.h"

#define FOLDER		"/proc/sys/net"
#define PASSES		3	/* to set one may change others: ip_forward changes those of all interfaces */

/*
 * Such a secret makes IPv6 addresses. As long as there is none, it can't be read (EIO), and an interface can't take the mode 2 of
 * addr_gen_mode, which needs it.
 */
static bool is_secret(const char *name)
{
	const char *last = strrchr(name, '/');

	return last && !strcmp(last, "/stable_secret");
}

/* NULL: it can't be read. */
static json_t *get(const char *name)
{
	char *path = xasprintf(FOLDER "/%s", name), *text = read_file(path);
	json_t *value;

	if (text)
		text[strcspn(text, "\n")] = '\0';
	value = text ? json_string(text) : NULL;
	free(text);
	free(path);
	return value;
}

/* Gives an errno. The line has an end, so that something is written also if the value is empty. */
static int set(const char *name, json_t *value)
{
	char *path = xasprintf(FOLDER "/%s", name), *text = xasprintf("%s\n", json_string_value(value));
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
	int ret = n == (ssize_t)strlen(text) ? 0 : n < 0 ? errno : EINVAL;

	close_fd(&fd);
	free(text);
	free(path);
	return ret;
}

/* ------------------------------------------------------------- describe -- */

/*
 * The MTU of an interface is described with the interface. The other two are the same as those with _ms, and the kernel logs a
 * warning when somebody uses them.
 */
static bool is_left_out(const char *name)
{
	static const char *const list[] = { "/mtu", "/base_reachable_time", "/retrans_time" };
	const char *last = strrchr(name, '/') ?: name;

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
		if (!strcmp(last, list[i]))
			return true;
	return false;
}

static void collect_one(json_t *all, const char *name)
{
	char *path = xasprintf(FOLDER "/%s", name);
	struct stat st;
	json_t *value;

	if (!is_left_out(name) && stat(path, &st) == 0 && st.st_mode & S_IWUSR) {
		value = get(name);
		if (value)
			json_object_set_new(all, name, value);
	}
	free(path);
}

static void collect(json_t *all, const char *folder)
{
	char *path = xasprintf(FOLDER "/%s", folder), *name;
	DIR *d = opendir(path);
	struct dirent *de;

	while (d && (de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		name = xasprintf("%s%s%s", folder, *folder ? "/" : "", de->d_name);
		if (de->d_type == DT_DIR)
			collect(all, name);
		else
			collect_one(all, name);
		free(name);
	}
	if (d)
		closedir(d);
	free(path);
}

/* The same sysctl of another interface, or of "default". NULL: it is not one of an interface. Free it. */
static char *name_for(const char *other, const char *name)
{
	const char *folder = strstr(name, "/conf/") ?: strstr(name, "/neigh/");
	const char *ifname = folder ? strchr(folder + 1, '/') + 1 : NULL, *rest = ifname ? strchr(ifname, '/') : NULL;

	return rest ? xasprintf("%.*s%s%s", (int)(ifname - name), name, other, rest) : NULL;
}

/* An interface begins with the settings of "default" or, where there is none, as lo did. */
static json_t *as_begun(json_t *fresh, const char *name)
{
	char *of_default = name_for("default", name), *of_lo = name_for("lo", name);
	json_t *value = json_object_get(fresh, name);

	if (of_default && !value)
		value = json_object_get(fresh, of_default) ?: json_object_get(fresh, of_lo);
	free(of_default);
	free(of_lo);
	return value;
}

int netns_sysctls(json_t *netns, int ns)
{
	json_t *all = json_object(), *fresh = json_object(), *changed = json_object(), *value, *begun;
	const char *name;
	void *tmp;
	int ret = 0;

	collect(all, "");
	if (unshare(CLONE_NEWNET))
		ret = fault("network namespace: none can be made to compare with: %s", strerror(errno));
	collect(fresh, "");
	ret = ns_enter(ns) ?: ret;
	json_object_foreach_safe(all, tmp, name, value) {
		begun = as_begun(fresh, name);
		if (begun ? json_equal(begun, value) : !is_secret(name))
			continue;
		json_object_set(changed, name, value);
		json_object_del(all, name);
	}
	json_decref(fresh);
	json_object_set_new(netns, "sysctls", all);
	json_object_set_new(netns, "changed", changed);
	return ret;
}

int inside_collect_sysctls(struct netns *n, void *arg)
{
	(void)arg;
	collect(n->before, "");
	return 0;
}

void netns_drop_sysctls(json_t *netns)
{
	json_object_del(netns, "sysctls");
	json_object_del(netns, "changed");
}

void netns_forget_sysctls(json_t *netns)
{
	netns_drop_sysctls(netns);
	json_object_del(netns, "before");
}

/* ------------------------------------------------------------------ set -- */

bool netns_sysctl_names(json_t *sysctls)
{
	const char *name;
	json_t *value;

	json_object_foreach(sysctls, name, value)
		if (!json_is_string(value) || *name == '/' || !strncmp(name, "../", 3) || strstr(name, "/../"))
			return false;
	return true;
}

/* Gives how many were not as they should be. */
static int set_all(json_t *sysctls)
{
	const char *name;
	json_t *value;
	int n = 0;

	json_object_foreach(sysctls, name, value) {
		json_t *is = get(name);

		if (is ? !json_equal(is, value) : is_secret(name)) {
			n++;
			set(name, value);
		}
		json_decref(is);
	}
	return n;
}

/* What only root may read, such as a secret or a key, is not told. */
static bool may_be_told(const char *name)
{
	char *path = xasprintf(FOLDER "/%s", name);
	struct stat st;
	bool may = stat(path, &st) == 0 && st.st_mode & S_IROTH;

	free(path);
	return may;
}

static int check(const struct netns *n, const char *name, json_t *value)
{
	json_t *is = get(name);
	int error = json_equal(is, value) ? 0 : set(name, value);
	bool same;

	json_decref(is);
	is = get(name);
	same = json_equal(is, value);
	json_decref(is);
	return same ? 0 : fault("network namespace %s: sysctl net/%s: it is '%.100s' here, and can't be set to that there: %s", n->path,
				name, may_be_told(name) ? json_string_value(value) : "...",
				error ? strerror(error) : "it becomes another");
}

static bool can_be_set(const char *name)
{
	char *path = xasprintf(FOLDER "/%s", name);
	bool can = access(path, W_OK) == 0;

	free(path);
	return can;
}

/* In a namespace that has lo alone: other interfaces will have what "default" has or, where there is none, lo. */
static bool is_known(const char *name)
{
	char *of_default = name_for("default", name), *of_lo = name_for("lo", name);
	bool known = can_be_set(name) || (of_default && (can_be_set(of_default) || can_be_set(of_lo)));

	free(of_default);
	free(of_lo);
	return known;
}

void netns_check_sysctls(const struct netns *n, json_t *problems)
{
	const char *name;
	json_t *value;

	if (unshare(CLONE_NEWNET)) {
		problem(problems, "network namespace: none can be made there: %s", strerror(errno));
		return;
	}
	json_object_foreach(n->changed, name, value)
		if (!is_known(name))
			problem(problems, "network namespace %s: sysctl net/%s: it is changed here, and the kernel there does not "
				"have it: load the module there that has it", n->path, name);
	ns_come_back(n->ours);
}

int inside_set_sysctls(struct netns *n, void *arg)
{
	const char *name;
	json_t *value;

	(void)arg;
	for (int pass = 0; pass < PASSES; pass++)
		if (set_all(n->sysctls) + set_all(n->changed) == 0)
			break;
	json_object_foreach(n->changed, name, value)
		if (check(n, name, value))
			return -1;
	return 0;
}

void inside_reset_sysctls(const struct netns *n)
{
	for (int pass = 0; n->before && pass < PASSES; pass++)
		if (set_all(n->before) == 0)
			break;
}
