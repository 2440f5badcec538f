/* SPDX-License-Identifier: MIT */
/*
 * rmemswap: the part of rmem_swap.ko in user space (rmem/swap.h). The kernel goes on without it. A donor that is lost costs no
 * page, but it is not connected again while no rmemswap runs.
 *
 * The service has an event loop in its first thread (service*.c), and a thread for each donor (donor.c), so that a donor that does
 * not answer delays no other. service.lock protects the data that both use.
 */
#ifndef RMEMSWAP_H
#define RMEMSWAP_H

#include <jansson.h>
#include <netlink/netlink.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <rmem/swap.h>
#include <rmem/wire.h>

#include "../common/common.h"
#include "../service/say.h"

#define CONF_PATH "/etc/rmemswap.conf"
#define SOCKET_PATH "/run/rmemswap/rmemswap.sock"

/* Exit codes, as rmemswap(8) promises them. */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2, /* the command line, rmemswap.conf */
	EXIT_LEFT = 3,	/* run: SIGQUIT; the devices stay as they are */
};

/* ------------------------------------------------------------------ conf.c */

struct conf_device {
	char name[RMEM_SWAP_NAME_SIZE];
	char *disk;
	uint64_t size, slab; /* 0: the kernel's default */
	uint32_t hot, buffers;
	uint32_t priority;
	bool has_hot, block, discard;
	bool made, taken; /* by this process: made anew, or taken over as it was */
	bool bad;	  /* it could not be made or taken over */
	bool off;	  /* swapped off, since this process was told to end */
	int line;
	struct conf_device *next;
};

struct conf_donor {
	char name[RMEM_SWAP_DONOR_SIZE];
	char client[RMEM_NAME_SIZE];
	char *host, *port, *rdma;
	char *device;
	uint8_t key[RMEM_KEY_SIZE];
	bool has_key;
	int line;
	struct conf_donor *next;
};

struct conf {
	struct conf_device *devices;
	struct conf_donor *donors;
};

/* Returns 0, or -1 after a message. Call conf_free() also after a failure. */
int conf_read(struct conf *conf, const char *path);
void conf_free(struct conf *conf);
struct conf_device *conf_device(const struct conf *conf, const char *name);
void conf_device_drop(struct conf_device **at); /* the one that *@at names */
struct conf_donor *conf_donor(const struct conf *conf, const char *name);
struct conf_donor *conf_donor_copy(const struct conf_donor *from);
bool conf_donor_same(const struct conf_donor *a, const struct conf_donor *b);
void conf_donor_free(struct conf_donor *donor);

/* ------------------------------------------------------------------ kernel.c */

/* A socket to the module; for one thread. */
struct kernel {
	struct nl_sock *sk;
	int family;
	char why[256]; /* of the last request that failed: one line */
};

/* The attributes of one message, by number. */
typedef void kernel_message(struct nlattr **attrs, void *arg);

/* Returns 0, or -1 after a message. */
int kernel_open(struct kernel *k);
void kernel_close(struct kernel *k);

/* These return 0 or -errno and k->why. */
int kernel_dev_add(struct kernel *k, const struct conf_device *device);
int kernel_dev_del(struct kernel *k, const struct conf_device *device);
int kernel_dev_set_hot(struct kernel *k, const char *device, uint32_t hot);
/* @qp: what to tell the donor. */
int kernel_donor_add(struct kernel *k, const char *device, const char *donor, const struct rmem_port *port, struct rmem_qp *qp);
int kernel_donor_connect(struct kernel *k, const char *device, const char *donor, const struct rmem_welcome *welcome);
int kernel_donor_del(struct kernel *k, const char *device, const char *donor);
int kernel_status(struct kernel *k, kernel_message *each, void *arg);

/* Events: the descriptor is readable when there are some. kernel_events() takes them; -ENOBUFS: some are lost. */
int kernel_listen(struct kernel *k);
int kernel_events(struct kernel *k, kernel_message *each, void *arg);

const char *attr_text(struct nlattr **attrs, int number); /* NULL: none */
uint64_t attr_number(struct nlattr **attrs, int number);  /* 0: none; u32 or u64 */

/* ------------------------------------------------------------------ area.c */

#define SWAPOFF_PATIENCE_MS 60000 /* how long a swapoff may bring no page back */

/* From /proc/swaps, in bytes. False: nothing is swapped to it. */
bool area_used(const char *device, uint64_t *used);
/* mkswap, if the device may be overwritten, and swapon, unless it is on. Returns 0, or -1 after a message. */
int area_on(const struct conf_device *device);
/*
 * Returns 0 if the data at @path may be overwritten for the device @name, because there is none, or it is swap. Otherwise returns
 * -1 after a message.
 */
int area_is_free(const char *name, const char *path);
/*
 * Runs swapoff in a process of its own: when memory is short, the kernel first kills a process that runs swapoff. The exit code
 * of that process is 0 or an errno. Returns -1 after a message.
 */
pid_t area_off(const char *device);

/* ------------------------------------------------------------------ device.c */

/*
 * Each device is made, or taken over, and swapped to. If one fails, those that were made are removed, and this returns -1 after a
 * message. But a device that was taken over may be swapped to, and needs its donors. If there is such a device, this returns 0, and
 * only the devices that failed are left out of service.conf.
 */
int devices_make(struct kernel *k);

/* ------------------------------------------------------------------ donor.c */

enum donor_state {
	DONOR_WAITS,  /* until the next attempt */
	DONOR_UP,
	DONOR_AWAY,   /* drained: until the settings are read again */
	DONOR_ENDED,  /* its thread is over */
};

struct donor {
	struct conf_donor *conf;
	char device[RMEM_SWAP_NAME_SIZE];
	pthread_t thread;
	pthread_cond_t changed;
	struct kernel kernel;  /* used by its thread only */
	enum donor_state state;
	bool known;	       /* the kernel has it, or may have it; used by its thread only */
	bool own;	       /* the kernel has it with these settings: we connected it, or took it over */
	bool half;	       /* it has a queue pair that is not connected; used by its thread only */
	uint64_t told;	       /* its state, as the kernel says; used by its thread only */
	bool lost;	       /* since the last attempt began */
	bool listed;	       /* the kernel has just listed it; used by the first thread only */
	bool leave, end;       /* what its thread is to do: take the donor out of the kernel; end */
	int left;	       /* what the kernel answered when it was to leave: 0 or -errno */
	bool answered;	       /* the kernel has answered since it was last asked to leave */
	char why[256];	       /* why it is not up, or could not leave */
	int64_t since;	       /* when it became UP, ms */
	int64_t next;	       /* when it is tried again, ms */
	unsigned int pause_ms; /* how long it waits after the next failure, or when it is lost */
	int asker;	       /* the connection of an operator who waits until it has left; -1: none */
	struct donor *next_donor;
};

/*
 * Call all of these with service.lock. @taken: the kernel has the donor, and it is taken over. @up: it is connected. Returns NULL
 * after a message.
 */
struct donor *donor_start(const struct conf_donor *conf, const char *device, bool taken, bool up);
void donor_up(struct donor *d);
void donor_lost(struct donor *d);
void donor_leave(struct donor *d); /* the kernel is to remove the donor */
void donor_end(struct donor *d); /* its thread ends, after donor_leave() if that was called; otherwise the kernel keeps the donor */
void donor_again(struct donor *d);
void donor_free(struct donor *d); /* its thread has ended */

/* ------------------------------------------------------------------ service.c */

struct event_base;

struct service {
	pthread_mutex_t lock;
	struct conf conf;
	const char *conf_path;
	struct donor *donors;
	int wake; /* an eventfd: the state of a donor has changed */
	/* The first thread's: */
	struct event_base *base;
	struct kernel requests, events;
	bool ending; /* one device after the other is swapped off */
	int exit_code;
};

extern struct service service;

int service_run(const char *conf_path, const char *socket_path);

/* ------------------------------------------------------------------ memory.c */

int lock_memory(void);
/* For a thread that may run while memory is short: its system calls do not wait for writes to a disk. */
void spare_memory(void);
/* A thread that takes no signal, with a small stack. Returns 0 or an errno. */
int start_thread(pthread_t *thread, void *(*run)(void *), void *arg);

/* control.c: the operator's socket. Returns 0, or -1 after a message. */
int control_open(const char *path);
void control_close(void);
void control_forget(void); /* only removes its name; for any thread of a process that ends at once */
void control_answer(int fd, const char *error); /* NULL: done. Closes it. */
/* @asked takes over the descriptor of a connection, and gets the line that the operator sent on it. */
void control_listen(struct event_base *base, void (*asked)(int fd, char *line));

/* ------------------------------------------------------------------ commands; they return an exit code */

int status_command(bool json, bool slabs);
int top_command(unsigned int interval, unsigned int count, bool json);
int drain_command(const char *donor, const char *socket_path, bool json);
/* Everything that the kernel tells, as rmemswap status --json prints it. Returns NULL after a message. */
json_t *status_json(struct kernel *k);

#endif
