// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * godwit key: the cluster's key. KEY_FILE has it as a line of 64 hexadecimal digits. During a rotation a second line has a key
 * that is accepted, too: after `add` the new key, after `rotate` the old one. The driver has the same keys, and forgets them
 * when it is unloaded (key load). A key is never on a command line, and never printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "host.h"
#include "rdma.h"

#define KEY_DIR		"/etc/godwit"
#define KEY_LOCK	"/run/godwit-key.lock"	/* always empty, and stays */
#define KEY_DIGITS	(2 * RXE_MIGR_KEY_LEN)

struct keys {
	uint8_t key[2][RXE_MIGR_KEY_LEN];	/* the key in force, and one that is accepted, too */
	int n;
};

/* ---------------------------------------------------------------- files -- */

static int key_dir = -1;

/*
 * Take a lock: until this command ends, no other one reads or writes the key file, or tells the driver what is in it. (udev may
 * start a `key load` at any time.) Read a new key before that, since a person may take long to type it. Only root can open the
 * file of the lock: whoever can open a file can lock it, and keep the lock. Without the folder there is no key file either.
 */
static int begin(void)
{
	int lock = open(KEY_LOCK, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	if (lock < 0 || flock(lock, LOCK_EX))
		return fault("%s: it can't be locked: %s", KEY_LOCK, strerror(errno));
	key_dir = open(KEY_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (key_dir < 0 && errno != ENOENT)
		return fault("%s: it can't be opened: %s", KEY_DIR, strerror(errno));
	return 0;
}

static bool parse_line(const char *line, uint8_t key[RXE_MIGR_KEY_LEN])
{
	if (strlen(line) != KEY_DIGITS || strspn(line, "0123456789abcdefABCDEF") != KEY_DIGITS)
		return false;
	for (int i = 0; i < RXE_MIGR_KEY_LEN; i++)
		sscanf(line + 2 * i, "%2hhx", &key[i]);
	return true;
}

static int parse(FILE *f, const char *name, struct keys *keys)
{
	char line[KEY_DIGITS + 8];

	keys->n = 0;
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\r\n")] = '\0';
		if (!line[0])
			continue;
		if (keys->n == 2 || !parse_line(line, keys->key[keys->n]))
			return fault("%s: it holds no key: a line of %d hexadecimal digits", name, KEY_DIGITS);
		keys->n++;
	}
	explicit_bzero(line, sizeof(line));
	return keys->n ? 0 : fault("%s: it is empty", name);
}

/* -1 with fault(), also if others can read the file. */
static int read_keys(const char *name, struct keys *keys)
{
	FILE *f = strcmp(name, "-") ? fopen(name, "re") : stdin;
	struct stat st;
	int ret;

	if (!f || fstat(fileno(f), &st))
		return fault("%s: %s", name, strerror(errno));
	if (f != stdin && (st.st_mode & 077))
		ret = fault("%s: others may read it: chmod 600, and make a new key, since they may have read this one", name);
	else
		ret = parse(f, f == stdin ? "stdin" : name, keys);
	if (f != stdin)
		fclose(f);
	return ret;
}

static int write_keys(const char *path, const struct keys *keys)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int ret = 0;

	if (fd < 0 || fchmod(fd, 0600))
		ret = -1;
	for (int n = 0; !ret && n < keys->n; n++) {
		for (int i = 0; i < RXE_MIGR_KEY_LEN; i++)
			if (dprintf(fd, "%02x", keys->key[n][i]) < 0)
				ret = -1;
		if (dprintf(fd, "\n") < 0)
			ret = -1;
	}
	if (fd >= 0 && (fsync(fd) || close(fd)))
		ret = -1;
	if (!ret)
		return 0;
	fault("%s: %s", path, strerror(errno));
	if (fd >= 0)
		unlink(path);
	return -1;
}

/* The key file is whole at any time. A file that has the new file's name already is not ours: it is removed, not written to. */
static int store(const struct keys *keys)
{
	if (unlink(KEY_FILE ".new") && errno != ENOENT)
		return fault("%s: %s", KEY_FILE ".new", strerror(errno));
	if (write_keys(KEY_FILE ".new", keys))
		return -1;
	if (rename(KEY_FILE ".new", KEY_FILE) || fsync(key_dir))
		return fault("%s: %s", KEY_FILE, strerror(errno));
	return 0;
}

/* --------------------------------------------------------------- driver -- */

static int tell_device(const char *device, void *arg)
{
	struct ibv_context *ctx = rdma_open(device);
	const struct rxe_migr_key *request = arg;
	int ret;

	if (!ctx)
		return -1;
	ret = ibv_migration_key(ctx, request, NULL);
	ibv_close_device(ctx);
	if (ret == EOPNOTSUPP && request->op == RXE_MIGR_KEY_CLEAR)
		return 1;	/* Debian's own driver has no key */
	/* All devices of this host have the same key, so the first device is enough. */
	if (!ret)
		return 1;
	return fault("device %s: its driver does not take the key: %s%s", device, strerror(ret),
		     ret == EOPNOTSUPP ? ": " LOAD_OURS : "");
}

/* The driver keeps the key as long as it is loaded, also without a device. */
static int no_device(unsigned int op)
{
	if (op != RXE_MIGR_KEY_CLEAR)
		return fault("there is no rxe device here yet: add one, then godwit key load");
	if (access("/sys/module/rdma_rxe", F_OK))
		return 0;
	return fault("there is no rxe device here, so the driver keeps the key: add one, or unload rdma_rxe, then godwit key clear");
}

static int tell(unsigned int op, const uint8_t *key)
{
	struct rxe_migr_key request = { .op = op };
	int ret;

	if (key)
		memcpy(request.key, key, sizeof(request.key));
	ret = rdma_each_device(tell_device, &request);
	explicit_bzero(&request, sizeof(request));
	if (ret == 0)
		return no_device(op);
	return ret < 0 ? -1 : 0;
}

/* The driver has a key at any time, and accepts what it accepted before until it has both. */
static int load(const struct keys *keys)
{
	if (tell(RXE_MIGR_KEY_SET, keys->key[0]))
		return -1;
	return keys->n == 2 ? tell(RXE_MIGR_KEY_ADD, keys->key[1]) : tell(RXE_MIGR_KEY_DROP_OLD, NULL);
}

/* ------------------------------------------------------------- commands -- */

static int key_set(const char *file)
{
	struct keys keys;

	if (read_keys(file, &keys))
		return -1;
	if (mkdir(KEY_DIR, 0755) && errno != EEXIST)
		return fault("%s: %s", KEY_DIR, strerror(errno));
	keys.n = 1;
	return begin() ?: store(&keys) ?: load(&keys);
}

static int key_generate(const char *file)
{
	struct keys keys = { .n = 1 };

	if (!strcmp(file, "-"))
		return fault("say which file the new key is to be written to");
	if (getrandom(keys.key[0], RXE_MIGR_KEY_LEN, 0) != RXE_MIGR_KEY_LEN)
		return fault("no random numbers: %s", strerror(errno));
	return write_keys(file, &keys);
}

static int key_show(const char *file)
{
	uint64_t fingerprints[2];

	(void)file;
	if (rdma_key_fingerprints(fingerprints))
		return -1;
	if (fingerprints[0])
		printf("%016llx\n", (unsigned long long)fingerprints[0]);
	else
		printf("none\n");
	if (fingerprints[1])
		printf("%016llx is accepted, too\n", (unsigned long long)fingerprints[1]);
	return 0;
}

static bool is_key(const struct keys *keys, int n, const struct keys *new)
{
	return n < keys->n && !memcmp(keys->key[n], new->key[0], RXE_MIGR_KEY_LEN);
}

/* There is no third key: a host that signs with one that is dropped would be refused. */
static int check_third(const struct keys *keys, const struct keys *new)
{
	if (keys->n == 2 && !is_key(keys, 0, new) && !is_key(keys, 1, new))
		return fault("another key is accepted here already: when no host signs with it: godwit key drop-old");
	return 0;
}

static int key_add(const char *file)
{
	struct keys new, keys;

	if (read_keys(file, &new) || begin() || read_keys(KEY_FILE, &keys))
		return -1;
	if (is_key(&keys, 0, &new))
		return fault("this key is in force here already");
	if (check_third(&keys, &new))
		return -1;
	memcpy(keys.key[1], new.key[0], RXE_MIGR_KEY_LEN);
	keys.n = 2;
	return store(&keys) ?: load(&keys);
}

static int key_rotate(const char *file)
{
	struct keys new, old;

	if (read_keys(file, &new) || begin() || read_keys(KEY_FILE, &old))
		return -1;
	if (check_third(&old, &new))
		return -1;
	if (is_key(&old, 0, &new))
		return load(&old);
	memcpy(new.key[1], old.key[0], RXE_MIGR_KEY_LEN);
	new.n = 2;
	return store(&new) ?: load(&new);
}

static int key_drop_old(const char *file)
{
	struct keys keys;

	(void)file;
	if (begin() || read_keys(KEY_FILE, &keys))
		return -1;
	keys.n = 1;
	return store(&keys) ?: load(&keys);
}

static int key_clear(const char *file)
{
	(void)file;
	if (begin() || tell(RXE_MIGR_KEY_CLEAR, NULL))
		return -1;
	if ((unlink(KEY_FILE) && errno != ENOENT) || (key_dir >= 0 && fsync(key_dir)))
		return fault("%s: %s", KEY_FILE, strerror(errno));
	return 0;
}

static int key_load(const char *file)
{
	struct keys keys;

	(void)file;
	return begin() ?: read_keys(KEY_FILE, &keys) ?: load(&keys);
}

/* There are no options, so what looks like one is not meant as the name of a file. */
static void check_arguments(int argc, char **argv, bool takes_file)
{
	int most = 2 + takes_file;

	if (argc > most)
		wrong_usage("key %s: '%s': that is one argument too many", argv[1], argv[most]);
	if (argc > 2 && argv[2][0] == '-' && argv[2][1])
		wrong_usage("key %s: '%s': it has no options; if this is a file: ./%s", argv[1], argv[2], argv[2]);
}

int cmd_key(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*function)(const char *file);
		bool takes_file;
	} commands[] = {
		{ "set", key_set, true }, { "generate", key_generate, true }, { "show", key_show, false },
		{ "add", key_add, true }, { "rotate", key_rotate, true }, { "drop-old", key_drop_old, false },
		{ "clear", key_clear, false }, { "load", key_load, false },
	};

	if (argc < 2)
		wrong_usage("say key set, generate, show, add, rotate, drop-old, clear or load");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		check_arguments(argc, argv, commands[i].takes_file);
		if (host_check_root() || commands[i].function(argc > 2 ? argv[2] : "-"))
			return failed(EXIT_REFUSED);
		return EXIT_OK;
	}
	wrong_usage("key %s: there is no such command", argv[1]);
}
