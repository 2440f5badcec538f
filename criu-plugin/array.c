// SPDX-License-Identifier: GPL-2.0
/* Arrays that grow. */
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

/* Append a zeroed element to an array, and return it; or NULL. */
void *append(void *array, size_t size, size_t count)
{
	void **base = array;
	char *more = *base;

	/* The array doubles. So its size is the next power of two. */
	if (!(count & (count - 1)))
		more = realloc(*base, (count ? 2 * count : 1) * size);
	if (!more) {
		fail("no memory");
		return NULL;
	}
	*base = more;
	return memset(more + count * size, 0, size);
}

/* The same for protobuf's arrays, of pointers: a new message, or NULL. */
void *append_message(void *array, size_t *count,
		     const ProtobufCMessageDescriptor *descriptor)
{
	void **slot, *msg = malloc(descriptor->sizeof_message);

	slot = append(array, sizeof(*slot), *count);
	if (!slot || !msg) {
		free(msg);
		return NULL;
	}
	descriptor->message_init(msg);
	*slot = msg;
	++*count;
	return msg;
}
