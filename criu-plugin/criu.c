// SPDX-License-Identifier: GPL-2.0
/*
 * Is this CRIU 4.1? The version of CRIU's plugin interface does not tell: it is
 * still 0.2.0 in CRIU 4.2, which initializes plugins at another time, and in
 * later ones, which call RESTORE_EXT_FILE with one more argument. But CRIU
 * exports its table of hooks, which 4.2 made longer. A CRIU before 4.1 lacks
 * functions that came with 4.1.
 *
 * This is checked only for processes with RDMA. For all others the plugin does
 * nothing that could disturb another CRIU.
 *
 * What else CRIU does not tell its plugins is here, too.
 */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "plugin.h"

/* CRIU refuses a plugin with more hooks than CRIU has, for all processes. */
_Static_assert(CR_PLUGIN_HOOK__MAX == 12, "this plugin is for CRIU 4.1");

/* CRIU's cr_plugin_ctl: a list of plugins, and one for each hook. */
struct list {
	void	*next, *prev;
};

static size_t size_of(const char *symbol)
{
	const ElfW(Sym) *sym = NULL;
	void *at = dlsym(RTLD_DEFAULT, symbol);
	Dl_info info;

	if (!at || !dladdr1(at, &info, (void **)&sym, RTLD_DL_SYMENT) || !sym)
		return 0;
	return sym->st_size;
}

int check_criu(void)
{
	size_t lists = size_of("cr_plugin_ctl") / sizeof(struct list);
	size_t hooks = lists ? lists - 1 : 0;

	if (!add_inventory_plugin || !check_and_remove_inventory_plugin ||
	    !fdstore_add || !fdstore_get)
		return fail("this CRIU is not 4.1, for which Godwit's plugin is: it lacks functions that came with 4.1");
	if (hooks != CR_PLUGIN_HOOK__MAX)
		return fail("this CRIU is not 4.1, for which Godwit's plugin is: it has %zu hooks for plugins, and 4.1 has %d",
			    hooks, CR_PLUGIN_HOOK__MAX);
	return 0;
}

/* The name of the image streamer's socket, in the image directory */
#define STREAMER "streamer-capture.sock"

static bool is_streamer(int fd)
{
	struct sockaddr_un peer = {};
	socklen_t size = sizeof(peer) - 1;	/* so that the path ends */
	const char *name;

	if (getpeername(fd, (void *)&peer, &size) || peer.sun_family != AF_UNIX)
		return false;
	name = strrchr(peer.sun_path, '/');
	return !strcmp(name ? name + 1 : peer.sun_path, STREAMER);
}

/*
 * CRIU exports its options, but only its source says where in them this one is.
 * With --stream CRIU has connected to the streamer before it loads plugins.
 */
bool criu_streams(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *de;
	bool found = false;

	while (dir && !found && (de = readdir(dir)))
		if (isdigit(de->d_name[0]))
			found = is_streamer(atoi(de->d_name));
	if (dir)
		closedir(dir);
	return found;
}

/*
 * An image of CRIU before 4.1 names no plugins, and CRIU then says of every
 * name that it is there.
 */
bool images_name_plugins(void)
{
	static const char none[] = "a plugin that is not there";

	return check_and_remove_inventory_plugin &&
	       !check_and_remove_inventory_plugin(none, strlen(none));
}

#define CUDA	"cuda_plugin.so"

static int find_cuda(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = strrchr(info->dlpi_name, '/');

	(void)size;
	if (!name || strcmp(name + 1, CUDA))
		return 0;
	*(const char **)arg = info->dlpi_name;
	return 1;
}

/*
 * When CRIU has loaded the CUDA plugin, this plugin has switched itself off if the
 * images have nothing of CUDA, or if no GPU can be used here. It then answers
 * nothing.
 */
static bool cuda_answers(const char *path)
{
	void *cuda = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
	const bool *off = cuda ? dlsym(cuda, "plugin_disabled") : NULL;
	bool answers = !off || !*off;

	if (cuda)
		dlclose(cuda);
	return answers;
}

/*
 * The CUDA plugin answers RESUME_DEVICES_LATE for each process of a tree with CUDA,
 * so the plugins behind it are not asked. CRIU loads plugins one after the other,
 * and only those before ours are loaded now.
 */
int check_order(void)
{
	const char *path;

	if (!dl_iterate_phdr(find_cuda, &path) || !cuda_answers(path))
		return 0;
	return fail("CRIU has loaded " CUDA " before rdma_plugin.so, and would not ask the latter to let the connections of a tree with CUDA go on: change their order in CRIU's plugin folder, which ls -U shows");
}
