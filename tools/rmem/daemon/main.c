// SPDX-License-Identifier: MIT
/* rmemd: the donor of remote memory. */
#include <getopt.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "rmemd.h"
#include "standard.h"

#define CONF_PATH "/etc/rmemd.conf"

struct arguments {
	const char *conf, *persist, *listen, *device;
	bool init;
};

static void usage(FILE *to)
{
	fprintf(to,
		"usage: rmemd [OPTIONS]\n\n"
		"  --config FILE          the settings; " CONF_PATH "\n"
		"  --persist DIR          keep regions over a restart\n"
		"  --init                 make that directory, and end\n"
		"  --listen ADDRESS:PORT  where clients connect to\n"
		"  --device NAME          the RDMA device\n"
		"  --version, --help\n\n"
		"See rmemd(8).\n");
}

/* Returns an exit code, or -1 to go on. */
static int parse_arguments(int argc, char **argv, struct arguments *arguments)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' }, { "persist", required_argument, NULL, 'p' },
		{ "listen", required_argument, NULL, 'l' }, { "device", required_argument, NULL, 'd' },
		{ "init", no_argument, NULL, 'i' },
		{ "version", no_argument, NULL, 'V' },	    { "help", no_argument, NULL, 'h' },
		{ }
	};
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'c': arguments->conf = optarg; break;
		case 'p': arguments->persist = optarg; break;
		case 'l': arguments->listen = optarg; break;
		case 'd': arguments->device = optarg; break;
		case 'i': arguments->init = true; break;
		case 'V': printf("rmemd %s\n", RMEM_PROGRAM_VERSION); return end_output(say_as, EXIT_OK, EXIT_FAILED);
		case 'h': usage(stdout); return end_output(say_as, EXIT_OK, EXIT_FAILED);
		default: return EXIT_USAGE;
		}
	}
	if (optind == argc)
		return -1;
	fault("'%s': there are only options: rmemd --help", argv[optind]);
	return EXIT_USAGE;
}

static void override(char **setting, const char *argument)
{
	if (!argument)
		return;
	free(*setting);
	*setting = xstrdup(argument);
}

static int read_settings(const struct arguments *arguments)
{
	donor.conf_path = arguments->conf;
	if (conf_read(&donor.conf, arguments->conf))
		return -1;
	override(&donor.conf.persist, arguments->persist);
	override(&donor.conf.device, arguments->device);
	return arguments->listen ? conf_listen(&donor.conf, arguments->listen) : 0;
}

static int open_store(bool create)
{
	const struct conf *conf = &donor.conf;
	const struct store_options options = {
		.dir = conf->persist, .create = create, .huge = conf->huge, .memory = conf->memory, .headroom = conf->headroom,
		.region_gone = client_region_gone,
	};
	char *why = NULL;

	donor.store = store_open(&options, &why);
	if (donor.store)
		return 0;
	fault("%s", why ? why : "the store can't be opened");
	free(why);
	return -1;
}

/* This is no error: the device may come later, as a device of rxe does at boot. */
static void warn_of_device(void)
{
	char path[128];

	if (!donor.conf.device)
		return;
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", donor.conf.device);
	if (access(path, F_OK))
		say(LOG_WARNING, "device %s: it is not there yet: no client can connect until it is", donor.conf.device);
}

/* Only --init makes a folder. Otherwise rmemd would make a new donor whenever the folder is not mounted. */
static int init(void)
{
	if (!donor.conf.persist) {
		fault("--init: there is no directory to make: name it with --persist, or in %s", donor.conf_path);
		return EXIT_USAGE;
	}
	if (open_store(true))
		return EXIT_FAILED;
	store_close(donor.store);
	return EXIT_OK;
}

static int run(void)
{
	if (open_store(false))
		return EXIT_FAILED;
	warn_of_device();
	if (serve_open()) {
		serve_end(EXIT_FAILED);
	} else {
		sd_notify(0, "READY=1");
		say(LOG_INFO, "listening at %s port %s%s%s", donor.conf.listen, donor.conf.port,
		    donor.conf.persist ? ", regions persist in " : "", donor.conf.persist ? donor.conf.persist : "");
		serve();
		sd_notify(0, "STOPPING=1");
	}
	serve_close();
	store_close(donor.store);
	return donor.exit_code;
}

int main(int argc, char **argv)
{
	struct arguments arguments = { .conf = CONF_PATH };
	int code;

	open_standard();
	say_as = "rmemd";
	code = parse_arguments(argc, argv, &arguments);
	if (code >= 0)
		return code;
	if (sodium_init() < 0)
		return EXIT_FAILED;
	rmem_random(donor.start, sizeof(donor.start));
	donor.started = now_ms();
	code = read_settings(&arguments) ? EXIT_USAGE : arguments.init ? init() : run();
	conf_free(&donor.conf);
	return code;
}
