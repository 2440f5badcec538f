/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Stock CRIU, run as `criu swrk` and talked to by its RPC: it asks at each step ("pre-dump", "post-dump",
 * ...) and does nothing more until it is answered. A refused post-dump makes it undo the dump.
 */
#ifndef GODWIT_CRIU_H
#define GODWIT_CRIU_H

#include "godwit.h"

struct criu {
	pid_t pid;
	int pidfd;
	int sk;
	int images;		/* the folder; CRIU finds it as /proc/us/fd/N */
	int status;	/* as of waitpid(), once it is gone */
};

#define CRIU_INIT { .pid = -1, .pidfd = -1, .sk = -1, .images = -1 }

struct criu_options {
	const char *log;	/* a file name in the folder of images */
	pid_t pid;		/* dump */
	bool shell_job;
};

enum criu_event {
	CRIU_NOTIFY,		/* it waits for criu_answer() */
	CRIU_DONE,
	CRIU_FAILED,		/* with fault() */
	CRIU_DIED,		/* killed, or ended without a word; with fault() */
};

/*
 * Start it; what it is to do comes then, so that it is up when it counts. images: a folder; its logs go there,
 * too; NULL: none. inherit: a descriptor that it shall have, or -1.
 */
int criu_start(struct criu *criu, const char *images, int inherit);
int criu_dump(struct criu *criu, const struct criu_options *options);
int criu_restore(struct criu *criu, const struct criu_options *options);
/* What somebody else asks of it: its folders are descriptors of ours. */
typedef struct CriuReq CriuReq;
int criu_request(struct criu *criu, const CriuReq *req);

/* What it says next; blocks. script: the step's name on CRIU_NOTIFY. pid: that of a restored root. */
enum criu_event criu_next(struct criu *criu, char script[64], pid_t *pid);
int criu_answer(struct criu *criu, bool ok);

/* In who is about to become it, or a program that starts it: 0, or -1 with errno. */
int criu_lay_down(void);

/* How long it may take to tidy up. */
#define CRIU_END_MS	15000

/* Wait until it is gone; -1 when it still runs then. */
int criu_wait(struct criu *criu, int timeout_ms);
void criu_close(struct criu *criu);

/* major * 10000 + minor * 100 + sublevel, 0 when there is none. */
int criu_version(void);
/* Let it find out what this kernel can do, which it keeps in a file: the first time takes it long. */
int criu_probe(void);

#endif /* GODWIT_CRIU_H */
