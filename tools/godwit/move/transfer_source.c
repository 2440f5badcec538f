// SPDX-License-Identifier: Linux-OpenIB OR MIT
/*
 * The source sends what the process has: its addresses, copied files, the images.
 */
#include "move.h"

struct progress {
	struct move *m;
	uint64_t whole;
	bool stopped;	/* on_progress() stopped it, with fault() */
};

/* Stop when time is up, or when the destination says something: while files come to it, it says nothing but what failed. */
static int on_progress(void *arg, uint64_t bytes)
{
	struct progress *p = arg;

	report_progress(bytes, p->whole);
	move_renew(p->m);
	p->stopped = true;
	if (wire_ready(&p->m->dest.wire, 0)) {
		move_hear(p->m, "failed");
		return fault("%s: godwit there talks no sense", p->m->host);
	}
	if (now_ns() > p->m->deadline)
		return fault("it took longer than %d s: give --limit", p->m->limit_ms / 1000);
	p->stopped = false;
	return 0;
}

static int send_files(struct move *m, struct progress *p)
{
	int ret = 0;

	wire_cork();
	for (size_t i = 0; !ret && i < m->copy.n; i++)
		ret = images_send_file(&m->dest.wire, m->copy.path[i], on_progress, p);
	ret = ret ?: images_send(&m->dest.wire, m->images, on_progress, p, &m->report.bytes);
	ret = ret ?: files_compare(m);
	return wire_uncork(&m->dest.wire) ?: ret;
}

int move_transfer(struct move *m)
{
	struct progress p = { .m = m };

	if ((m->container.name && container_archive(m)) || (m->plan.mntns.own && mounts_save(m)))
		return -1;
	p.whole = images_size(m->images);
	report_step("transfer", "%.1f MiB to %s", p.whole / 1048576.0, m->host);
	if (m->addresses.n && (move_say(m, json_pack("{s:s}", "op", "addresses")) || move_hear(m, "added")))
		return -1;
	if (send_files(m, &p))
		return p.stopped ? -1 : move_say_why(m);
	return move_say(m, json_pack("{s:s}", "op", "files-end"));
}
