// SPDX-License-Identifier: MIT
/* Handles what a client's queue pair has completed: sends, and requests as far as there is room for their answers. */
#include <errno.h>
#include <string.h>

#include "rmemd.h"

static void received(struct client *c, const struct ibv_wc *wc)
{
	unsigned int at = (c->first_waiting + c->n_waiting) % RMEM_SLOTS;

	if (wc->opcode != IBV_WC_RECV || wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) {
		donor.counters.bad_messages++;
		client_close(c, LOG_WARNING, "bad message: it is no plain SEND");
		return;
	}
	c->waiting[at].slot = wc->wr_id;
	c->waiting[at].size = wc->byte_len;
	c->n_waiting++;
}

static void sent(struct client *c, uint64_t wr_id)
{
	c->in_flight--;
	if (wr_id == WR_SEND + CLIENT_NOTICE) {
		c->notice_busy = false;
		evict_next(c);
	} else if (wr_id != WR_PROBE) {
		c->free_sends[c->n_free++] = wr_id - WR_SEND;
	}
}

static void completed(struct client *c, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		client_close(c, LOG_INFO, "the connection broke: %s", ibv_wc_status_str(wc->status));
		return;
	}
	c->heard = now_ms();
	if (wc->wr_id < RMEM_SLOTS)
		received(c, wc);
	else
		sent(c, wc->wr_id);
}

/* If much was logged or registered in this turn, the turn must end. Then serve() comes back to the requests that wait. */
static bool may_handle(const struct client *c)
{
	return !c->dead && c->n_waiting && c->n_free && !store_crowded(donor.store) && !request_crowded();
}

static void handle_waiting(struct client *c)
{
	while (may_handle(c)) {
		uint8_t receive = c->waiting[c->first_waiting].slot, send = c->free_sends[c->n_free - 1];
		uint32_t size = c->waiting[c->first_waiting].size;

		size = request_handle(c, (struct rmem_msg *)receive_buffer(c, receive), size,
				      (struct rmem_msg *)send_buffer(c, send));
		/* A request that is good may still end the connection, for example if a notice that it lets go can't be sent. */
		if (!size || c->dead)
			return;
		c->requests++;
		c->first_waiting = (c->first_waiting + 1) % RMEM_SLOTS;
		c->n_waiting--;
		c->n_free--;
		c->replies[c->n_replies++] = (struct reply){ .send = send, .receive = receive, .size = size };
	}
}

bool client_resume(struct client *c)
{
	bool waits = may_handle(c);

	handle_waiting(c);
	return waits;
}

/* Arms first, then empties the queue: a completion after the last look makes an event. */
void client_completions(struct client *c)
{
	struct ibv_wc wc;
	int n = 0;

	if (c->dead)
		return;
	if (ibv_req_notify_cq(c->cq, 0)) {
		client_close(c, LOG_ERR, "its completion queue can't be armed: %s", strerror(errno));
		return;
	}
	while (!c->dead && (n = ibv_poll_cq(c->cq, 1, &wc)) > 0)
		completed(c, &wc);
	if (!c->dead && n < 0)
		client_close(c, LOG_ERR, "its completion queue can't be read");
	handle_waiting(c);
}
