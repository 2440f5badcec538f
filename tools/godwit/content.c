// SPDX-License-Identifier: Linux-OpenIB OR MIT
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <openssl/evp.h>
#include "content.h"

#define PIECE	(256 * 1024)

/* Does the kernel make the content up at each read, from the state of the host? */
static bool is_made_up(int fd)
{
	struct statfs st;

	return fstatfs(fd, &st) == 0 && (st.f_type == PROC_SUPER_MAGIC || st.f_type == SYSFS_MAGIC);
}

static int digest_data(EVP_MD_CTX *ctx, int fd, const char *path, uint64_t size, int64_t deadline)
{
	static char piece[PIECE];
	uint64_t left = size;

	while (left) {
		ssize_t n = read(fd, piece, left < PIECE ? left : PIECE);

		if (n < 0)
			return fault("file %s: it can't be read: %s", path, strerror(errno));
		if (n == 0)
			break;
		if (!EVP_DigestUpdate(ctx, piece, n))
			return fault("file %s: libcrypto fails", path);
		if (deadline && now_ns() > deadline)
			return fault("file %s: there is not the time to compare its %llu MiB: give --copy or --limit, or, "
				     "if it is on storage that both share, --shared", path, (unsigned long long)size >> 20);
		left -= n;
	}
	return 0;
}

int content_digest(const char *path, uint64_t size, int64_t deadline, char text[DIGEST_TEXT])
{
	int fd = size ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	unsigned char digest[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	int ret = 0;

	if (size && fd < 0)
		ret = fault("file %s: it can't be read: %s", path, strerror(errno));
	else if (!ctx || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL))
		ret = fault("file %s: libcrypto fails", path);
	else if (size && !is_made_up(fd))
		ret = digest_data(ctx, fd, path, size, deadline);
	if (!ret && !EVP_DigestFinal_ex(ctx, digest, NULL))
		ret = fault("file %s: libcrypto fails", path);
	for (int i = 0; !ret && i < DIGEST_TEXT / 2; i++)
		sprintf(text + 2 * i, "%02x", digest[i]);
	EVP_MD_CTX_free(ctx);
	close_fd(&fd);
	return ret;
}

void content_warm_up(void)
{
	char digest[DIGEST_TEXT];

	content_digest("/dev/null", 0, 0, digest);
}

int64_t content_time(const struct timespec *t)
{
	return t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}

int content_differs(const char *path, bool writable)
{
	return fault("file %s: it has other data there than here: %s", path, content_advice(writable));
}

const char *content_advice(bool writable)
{
	return writable ? "put it on storage that both share, or give --copy" : "install the same there, or give --copy, or, if each host keeps its own, --shared";
}
