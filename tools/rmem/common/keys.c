// SPDX-License-Identifier: MIT
/* Keys of clients, and the MACs by which both ends of a handshake prove that they know one. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common.h"
#include "why.h"

#define DIGITS (2 * RMEM_KEY_SIZE)
#define LABEL_SIZE 16

_Static_assert(RMEM_KEY_SIZE == crypto_auth_KEYBYTES && RMEM_MAC_SIZE == crypto_auth_BYTES, "crypto_auth");
_Static_assert(sizeof(RMEM_LABEL_CLIENT) == LABEL_SIZE + 1 && sizeof(RMEM_LABEL_DONOR) == LABEL_SIZE + 1, "wire");

static int parse_key(const char *path, const char *text, size_t size, uint8_t key[RMEM_KEY_SIZE], char **why)
{
	size_t got = 0;

	if (size == DIGITS + 1 && text[DIGITS] == '\n')
		size--;
	if (size != DIGITS || sodium_hex2bin(key, RMEM_KEY_SIZE, text, size, NULL, &got, NULL) || got != RMEM_KEY_SIZE)
		return rmem_why(why, "%s: it holds no key: one line of %d hexadecimal digits", path, DIGITS);
	return 0;
}

/* A key that others can read is refused. */
static int check_file(const char *path, int fd, char **why)
{
	struct stat st;

	if (fstat(fd, &st))
		return rmem_why(why, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return rmem_why(why, "%s: it is not a file: name a file with a key", path);
	if (st.st_uid && st.st_uid != geteuid())
		return rmem_why(why, "%s: another user owns it: chown it to yourself", path);
	if (st.st_mode & 077)
		return rmem_why(why, "%s: others may read it: chmod 600, and make a new key", path);
	return 0;
}

int rmem_key_read(const char *path, uint8_t key[RMEM_KEY_SIZE], char **why)
{
	char text[DIGITS + 2];
	ssize_t size = 0;
	int ret = -1;
	/* O_NONBLOCK: the open of a FIFO must not wait before it is refused. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0)
		return rmem_why(why, "%s: %s", path, strerror(errno));
	if (check_file(path, fd, why))
		goto close;
	size = read(fd, text, sizeof(text));
	if (size < 0)
		ret = rmem_why(why, "%s: %s", path, strerror(errno));
	else
		ret = parse_key(path, text, size, key, why);
	sodium_memzero(text, sizeof(text));
close:
	close(fd);
	if (ret)
		sodium_memzero(key, RMEM_KEY_SIZE);
	return ret;
}

/* crypto_auth() is HMAC-SHA512-256; only this form of it takes its input in pieces. */
static void mac_start(crypto_auth_hmacsha512256_state *state, const uint8_t key[RMEM_KEY_SIZE], const char *label,
		      const struct rmem_hello *hello, const struct rmem_challenge *challenge)
{
	crypto_auth_hmacsha512256_init(state, key, RMEM_KEY_SIZE);
	crypto_auth_hmacsha512256_update(state, (const uint8_t *)label, LABEL_SIZE);
	crypto_auth_hmacsha512256_update(state, (const uint8_t *)hello, sizeof(*hello));
	crypto_auth_hmacsha512256_update(state, (const uint8_t *)challenge, sizeof(*challenge));
}

static void mac_end(crypto_auth_hmacsha512256_state *state, uint8_t mac[RMEM_MAC_SIZE])
{
	crypto_auth_hmacsha512256_final(state, mac);
	sodium_memzero(state, sizeof(*state));
}

void rmem_mac_client(uint8_t mac[RMEM_MAC_SIZE], const uint8_t key[RMEM_KEY_SIZE], const struct rmem_hello *hello,
		     const struct rmem_challenge *challenge, const struct rmem_qp *qp)
{
	crypto_auth_hmacsha512256_state state;

	mac_start(&state, key, RMEM_LABEL_CLIENT, hello, challenge);
	crypto_auth_hmacsha512256_update(&state, (const uint8_t *)qp, sizeof(*qp));
	mac_end(&state, mac);
}

void rmem_mac_donor(uint8_t mac[RMEM_MAC_SIZE], const uint8_t key[RMEM_KEY_SIZE], const struct rmem_hello *hello,
		    const struct rmem_challenge *challenge, const struct rmem_proof *proof, const struct rmem_welcome *welcome)
{
	crypto_auth_hmacsha512256_state state;

	mac_start(&state, key, RMEM_LABEL_DONOR, hello, challenge);
	crypto_auth_hmacsha512256_update(&state, (const uint8_t *)proof, sizeof(*proof));
	crypto_auth_hmacsha512256_update(&state, (const uint8_t *)welcome, offsetof(struct rmem_welcome, mac));
	mac_end(&state, mac);
}

bool rmem_mac_equal(const uint8_t a[RMEM_MAC_SIZE], const uint8_t b[RMEM_MAC_SIZE])
{
	return sodium_memcmp(a, b, RMEM_MAC_SIZE) == 0;
}

void rmem_random(void *buf, size_t size)
{
	if (sodium_init() < 0)
		abort();
	randombytes_buf(buf, size);
}

bool rmem_name_good(const char name[RMEM_NAME_SIZE])
{
	static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = strnlen(name, RMEM_NAME_SIZE);

	return len && len < RMEM_NAME_SIZE && strspn(name, good) == len;
}
