// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The cluster's key, and the code that authenticates our packets with it. */

#include <crypto/blake2s.h>
#include <crypto/utils.h>
#include "rxe_migr_loc.h"

static bool allow_unsigned;
module_param(allow_unsigned, bool, 0644);
MODULE_PARM_DESC(allow_unsigned,
	"without a key: send, and believe, unsigned packets of the migration protocol (N)");

/*
 * There are two keys while the hosts change their key, one after the other. Packets are
 * signed with the first key, and accepted with either. The second one is the new key
 * until this host changes, and then the old key.
 */
static DEFINE_SPINLOCK(key_lock);
static u8 keys[2][RXE_MIGR_KEY_LEN];
static unsigned int num_keys;

static void rxe_migr_mac(u8 *mac, const struct rxe_migr_hdr *hdr, const u8 *key)
{
	blake2s(mac, (const u8 *)hdr, key, RXE_MIGR_MAC_LEN,
		offsetof(struct rxe_migr_hdr, mac), RXE_MIGR_KEY_LEN);
}

bool rxe_migr_have_key(void)
{
	return READ_ONCE(num_keys) > 0;
}

/*
 * Does this host take part in the protocol? RoCE packets are UDP from any port, so any
 * program of any host can send them. Without a key nobody can tell who sent one, and
 * the administrator must say that everybody is trusted.
 */
bool rxe_migr_speaks(void)
{
	return rxe_migr_have_key() || READ_ONCE(allow_unsigned);
}

/* False: the packet must not be sent. */
bool rxe_migr_sign(struct rxe_migr_hdr *hdr)
{
	unsigned long flags;
	bool ok;

	memset(hdr->mac, 0, sizeof(hdr->mac));

	spin_lock_irqsave(&key_lock, flags);
	ok = rxe_migr_speaks();
	if (num_keys)
		rxe_migr_mac(hdr->mac, hdr, keys[0]);
	spin_unlock_irqrestore(&key_lock, flags);

	return ok;
}

/*
 * Is the packet believed? *authentic: it was signed with a key. Callers pass that on,
 * and do not ask again: keys may change before the packet is acted upon.
 */
bool rxe_migr_verify(const struct rxe_migr_hdr *hdr, bool *authentic)
{
	u8 mac[RXE_MIGR_MAC_LEN];
	unsigned long flags;
	unsigned int i;
	bool ok;

	*authentic = false;
	spin_lock_irqsave(&key_lock, flags);
	for (i = 0; i < num_keys; i++) {
		rxe_migr_mac(mac, hdr, keys[i]);
		*authentic |= !crypto_memneq(mac, hdr->mac, sizeof(mac));
	}
	ok = *authentic || (!num_keys && READ_ONCE(allow_unsigned));
	spin_unlock_irqrestore(&key_lock, flags);

	return ok;
}

static u64 rxe_migr_fingerprint(unsigned int i)
{
	static const u8 label[] = "rxe_migr key fingerprint";
	__le64 print = 0;

	if (i < num_keys)
		blake2s((u8 *)&print, label, keys[i], sizeof(print),
			sizeof(label), RXE_MIGR_KEY_LEN);

	return le64_to_cpu(print);
}

int rxe_migr_key_op(const struct rxe_migr_key *key, u64 *fingerprint)
{
	unsigned long flags;
	int err = 0;

	if (key->reserved)
		return -EINVAL;

	spin_lock_irqsave(&key_lock, flags);
	switch (key->op) {
	case RXE_MIGR_KEY_QUERY:
	case RXE_MIGR_KEY_QUERY_OLD:
		break;
	case RXE_MIGR_KEY_SET:
		if (num_keys && !memcmp(keys[0], key->key, sizeof(keys[0])))
			break;
		if (num_keys)
			memcpy(keys[1], keys[0], sizeof(keys[1]));
		memcpy(keys[0], key->key, sizeof(keys[0]));
		WRITE_ONCE(num_keys, min(num_keys + 1, 2U));
		break;
	case RXE_MIGR_KEY_ADD:
		if (!num_keys) {
			err = -EINVAL;
			break;
		}
		memcpy(keys[1], key->key, sizeof(keys[1]));
		WRITE_ONCE(num_keys, 2);
		break;
	case RXE_MIGR_KEY_CLEAR:
		memzero_explicit(keys, sizeof(keys));
		WRITE_ONCE(num_keys, 0);
		break;
	case RXE_MIGR_KEY_DROP_OLD:
		memzero_explicit(keys[1], sizeof(keys[1]));
		WRITE_ONCE(num_keys, min(num_keys, 1U));
		break;
	default:
		err = -EINVAL;
	}
	*fingerprint = rxe_migr_fingerprint(key->op == RXE_MIGR_KEY_QUERY_OLD);
	spin_unlock_irqrestore(&key_lock, flags);

	return err;
}
