/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Stock CRIU, run as `criu swrk`, to which we talk by its RPC. CRIU asks at each step ("pre-dump", "post-dump", ...) and does
 * nothing more until it is answered. If post-dump is refused, CRIU undoes the dump.
 */
#ifndef GODWIT_CRIU_H
#define GODWIT_CRIU_H

#include "godwit.h"

struct criu {
	pid_t pid;
	int pidfd;
	int sk;
	int images;		/* the folder, which CRIU opens as /proc/PID/fd/N of ours */
	int status;		/* as of waitpid(), once it has ended */
	/* set before it starts, and closed by criu_close(): */
	int mntns;		/* a mount namespace in which it is to run, or -1 */
	struct criu_file {
		char *key;	/* CRIU's name of a file that it takes from us */
		char *path;
		int fd;
	} *file;
	size_t files;
};

#define CRIU_WAS_KILLED "criu was killed, or ended, in the middle"
#define CRIU_INIT { .pid = -1, .pidfd = -1, .sk = -1, .images = -1, .mntns = -1 }

struct criu_options {
	const char *log;	/* a file name in the folder of images */
	pid_t pid;		/* dump */
	bool shell_job;
	json_t *external;	/* dump: keys of this object are CRIU's names of files that it is not to look for; or NULL */
};

enum criu_event {
	CRIU_NOTIFY,		/* it waits for criu_answer() */
	CRIU_DONE,
	CRIU_FAILED,		/* with fault() */
	CRIU_DIED,		/* it was killed, or ended without a word; with fault() */
};

/*
 * Start it. It is told what to do later, so that it is up when time counts. images: the folder of its images and logs; NULL:
 * none. inherit: a descriptor that it is to have; -1: none, and it restores nothing, so it may go_first().
 */
int criu_start(struct criu *criu, const char *images, int inherit);
/* Have CRIU take the file at path on this host for the file that CRIU calls key. -1 with fault(). */
int criu_give_file(struct criu *criu, const char *key, const char *path);
/* Are the files that CRIU takes from us still those at their paths? -1 with fault(). */
int criu_look_at_files(const struct criu *criu);
int criu_dump(struct criu *criu, const struct criu_options *options);
int criu_restore(struct criu *criu, const struct criu_options *options);
/* Send CRIU a request that somebody else has put together. The folders in req are descriptors of ours. */
typedef struct CriuReq CriuReq;
int criu_request(struct criu *criu, const CriuReq *req);

/* What it says next; this blocks. script: with CRIU_NOTIFY, the name of the step. pid: of the restored root; or NULL. */
enum criu_event criu_next(struct criu *criu, char script[64], pid_t *pid);
int criu_answer(struct criu *criu, bool ok);

/*
 * In a process that is about to become CRIU, or a program that starts it: put away groups and keys, which restored tasks
 * would keep. 0, or -1 with errno.
 */
int criu_lay_down(void);

/* How long it may take to tidy up. */
#define CRIU_END_MS	15000

/* Wait until it has ended; -1: it still runs. */
int criu_wait(struct criu *criu, int timeout_ms);
void criu_close(struct criu *criu);

/* major * 10000 + minor * 100 + sublevel, 0 when there is none. */
int criu_version(void);
/* Have it find out what this kernel can do. It keeps that in a file; the first time takes long. */
int criu_probe(void);

#endif /* GODWIT_CRIU_H */
