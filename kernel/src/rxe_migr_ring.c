// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Rings of queue pairs, CQs and SRQs: their elements, and indices. */

#include <linux/unaligned.h>
#include "rxe_migr_loc.h"

u64 rxe_migr_ring_offset(const struct rxe_queue *q)
{
	return q && q->ip ? q->ip->info.offset : 0;
}

/* ------------------------------------------------------------------ dump -- */

/*
 * Pack an element as struct rxe_migr_rec_ring has it, without words that are zero.
 * The application may write to the element meanwhile, so each word is read once.
 */
static void *rxe_migr_pack_elem(void *to, const u64 *from, size_t words)
{
	size_t i, n;
	void *mask;
	u64 word, bits;

	for (; words; words -= n, from += n) {
		n = min_t(size_t, words, RXE_MIGR_RING_WORDS);
		mask = to;
		to += sizeof(u64);
		bits = 0;
		for (i = 0; i < n; i++) {
			word = READ_ONCE(from[i]);
			if (!word)
				continue;
			bits |= BIT_ULL(i);
			memcpy(to, &word, sizeof(word));
			to += sizeof(word);
		}
		put_unaligned_le64(bits, mask);
	}

	return to;
}

/*
 * The application may be filling an element behind the producer index, so all
 * elements of a send or receive ring are dumped. The driver fills a CQ: there only
 * the elements in use are dumped.
 */
void rxe_migr_dump_ring(struct rxe_queue *q, u32 handle, u32 which,
			struct rxe_migr_sink *sink)
{
	struct rxe_migr_rec_ring *rec;
	u32 first = 0, count, i;
	size_t words, most;
	void *to;

	if (!q)
		return;

	words = ((size_t)1 << q->log2_elem_size) / sizeof(u64);
	count = q->index_mask + 1;
	if (which == RXE_MIGR_RING_CQ) {
		first = READ_ONCE(q->buf->consumer_index) & q->index_mask;
		count = (q->index - first) & q->index_mask;
	}

	rec = rxe_migr_put(sink, RXE_MIGR_REC_RING, handle, sizeof(*rec));
	most = count * (words + DIV_ROUND_UP(words, RXE_MIGR_RING_WORDS)) *
	       sizeof(u64);
	if (!rec || most > sink->size - sink->length) {
		sink->length += most;
		return;
	}

	rec->which = cpu_to_le32(which);
	rec->log2_elem_size = cpu_to_le32(q->log2_elem_size);
	rec->index_mask = cpu_to_le32(q->index_mask);
	rec->producer = cpu_to_le32(READ_ONCE(q->buf->producer_index));
	rec->consumer = cpu_to_le32(READ_ONCE(q->buf->consumer_index));
	rec->index = cpu_to_le32(q->index);
	rec->first = cpu_to_le32(first);
	rec->count = cpu_to_le32(count);
	to = rec->data;
	for (i = 0; i < count; i++)
		to = rxe_migr_pack_elem(to, queue_addr_from_index(q, first + i),
					words);
	sink->length += to - (void *)rec->data;
	rec->hdr.length = cpu_to_le32(to - (void *)rec);
}

/* ---------------------------------------------------------------- refill -- */

/* Returns where the next element of the record begins, or NULL for a bad one. */
static const void *rxe_migr_unpack_elem(u64 *to, size_t words,
					const void *from, const void *end)
{
	size_t i, n;
	u64 bits;

	for (; words; words -= n, to += n) {
		n = min_t(size_t, words, RXE_MIGR_RING_WORDS);
		if (end - from < sizeof(bits))
			return NULL;
		bits = get_unaligned_le64(from);
		from += sizeof(bits);
		if (fls64(bits) > n ||
		    end - from < hweight64(bits) * sizeof(*to))
			return NULL;
		for (i = 0; i < n; i++) {
			to[i] = 0;
			if (!(bits & BIT_ULL(i)))
				continue;
			memcpy(&to[i], from, sizeof(*to));
			from += sizeof(*to);
		}
	}

	return from;
}

int rxe_migr_refill_queue(struct rxe_queue *q,
			  const struct rxe_migr_rec_ring *rec, size_t length)
{
	u32 first = le32_to_cpu(rec->first), count = le32_to_cpu(rec->count);
	u32 index = le32_to_cpu(rec->index), i;
	const void *from = rec->data, *end = (const void *)rec + length;
	size_t words;

	if (!q || !q->ip)
		return -EINVAL;

	words = ((size_t)1 << q->log2_elem_size) / sizeof(u64);
	if (le32_to_cpu(rec->log2_elem_size) != q->log2_elem_size ||
	    le32_to_cpu(rec->index_mask) != q->index_mask ||
	    first > q->index_mask || index > q->index_mask ||
	    count > q->index_mask + 1)
		return -EINVAL;

	for (i = 0; i < count; i++) {
		from = rxe_migr_unpack_elem(queue_addr_from_index(q, first + i),
					    words, from, end);
		if (!from)
			return -EINVAL;
	}
	if (from != end)
		return -EINVAL;

	/* the client may have left any value in its own index */
	q->index = index;
	if (q->type == QUEUE_TYPE_TO_CLIENT) {
		q->buf->producer_index = index;
		q->buf->consumer_index = le32_to_cpu(rec->consumer);
	} else {
		q->buf->producer_index = le32_to_cpu(rec->producer);
		q->buf->consumer_index = index;
	}

	return 0;
}
