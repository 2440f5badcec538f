/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * What rmemswap and rmem_swap.ko say to each other, by the generic netlink family "rmem_swap". All requests need CAP_NET_ADMIN in
 * the initial namespaces; DEV_ADD, DEV_DEL and DONOR_* also need CAP_SYS_ADMIN. (configfs does not fit: a request has several
 * values that belong together, an answer names a queue pair, and rmemswap waits for events.)
 *
 * A device is made over a disk and has no donor at first: all goes to the disk. A donor is connected in two steps, since user
 * space has the keys and names, and does the handshake with rmemd (rmem/wire.h):
 *
 *	DEV_ADD		/dev/NAME
 *	DONOR_ADD	the kernel makes a queue pair in INIT with its receives posted, and answers with QPN, PSN, GID and MTU
 *	 (user space)	rmem_hello, rmem_challenge, rmem_proof with these; rmem_welcome
 *	DONOR_CONNECT	the donor's QPN, PSN, GID and MTU: the queue pair goes to RTS, and slabs are placed there
 *	 ...		EVENT: donor lost; user space begins with DONOR_ADD again when the donor answers
 *	DONOR_DEL	its slabs are unmapped (once the disk has all pages), freed at the donor; the queue pair is destroyed
 *	DEV_DEL		EBUSY while somebody has the device open, for example swap; rmemswap runs swapoff first. Its donors leave
 *
 * DONOR_DEL and DEV_DEL wait for the disk. If the task is killed meanwhile, it gets no answer. The donor is up again then, or the
 * device and its donors stay. The request can be made again.
 *
 * Sizes are bytes. A request that fails has an extended acknowledgment that names the attribute or says why.
 */
#ifndef RMEM_SWAP_H
#define RMEM_SWAP_H

#define RMEM_SWAP_FAMILY "rmem_swap"
#define RMEM_SWAP_VERSION 1
#define RMEM_SWAP_GROUP "events"
#define RMEM_SWAP_NAME_SIZE 32	/* of a device, with the 0 */
#define RMEM_SWAP_DONOR_SIZE 64 /* of a donor's name, which user space chooses, with the 0 */

enum rmem_swap_cmd {
	RMEM_SWAP_UNSPEC,
	/* DEV, DISK; SIZE (default: the disk's), SLAB, HOT, BUFFERS */
	RMEM_SWAP_DEV_ADD,
	/*
	 * DEV; FORCE. EIO: donors alone have some of the device's pages, since the disk fails to write these, or such a donor does
	 * not answer. The device and these donors stay. With FORCE these pages are lost: for data that nobody wants any more.
	 */
	RMEM_SWAP_DEV_DEL,
	RMEM_SWAP_DEV_SET,	 /* DEV; HOT */
	/*
	 * DEV, DONOR, IBDEV, IBPORT, GID_INDEX; answer: QPN, PSN, GID, MTU. EBUSY: the device has a donor of this name, which is
	 * lost, and whose connection is still being ended: try again.
	 */
	RMEM_SWAP_DONOR_ADD,
	/* DEV, DONOR, QPN, PSN, GID, MTU, TXN; answered when the donor is up, and has freed what it had of this client before */
	RMEM_SWAP_DONOR_CONNECT,
	/*
	 * DEV, DONOR; answered when all slabs of the donor are unmapped. EIO: the donor stays, since it has pages that the disk
	 * fails to write. ETIMEDOUT: the donor has such pages and does not answer; it is up again as soon as it answers.
	 */
	RMEM_SWAP_DONOR_DEL,
	/*
	 * A dump of all devices, or of DEV alone. For each device come: one message without DONOR and SLAB_INDEX; one message for
	 * each of its donors, with DONOR and without SLAB_INDEX; one message for each of its slabs that is mapped, or whose HEAT
	 * is at least 1000, with SLAB_INDEX, HEAT, PAGES, and DONOR if the slab is mapped.
	 */
	RMEM_SWAP_STATUS,
	RMEM_SWAP_EVENT, /* to the group: DEV, WHAT, DONOR unless it is an event of the disk, REASON or SLAB_INDEX if any */
	__RMEM_SWAP_CMD_MAX,
};
#define RMEM_SWAP_CMD_MAX (__RMEM_SWAP_CMD_MAX - 1)

enum rmem_swap_what {
	RMEM_SWAP_DONOR_UP = 1,	  /* connected, and slabs can be placed there */
	RMEM_SWAP_DONOR_LOST = 2, /* its slabs are unmapped; what was under way goes to the disk */
	RMEM_SWAP_DONOR_GONE = 3, /* by DONOR_DEL or DEV_DEL; also if it was lost while it was leaving */
	RMEM_SWAP_EVICTED = 4,	  /* the donor took one slab back */
	RMEM_SWAP_DISK_ERROR = 5, /* the disk failed to write pages (told once a second at most), or a slab's pages are lost */
};

enum rmem_swap_donor_state {
	RMEM_SWAP_NEW = 1,  /* since DONOR_ADD */
	RMEM_SWAP_UP = 2,
	RMEM_SWAP_DOWN = 3, /* lost: DONOR_ADD again */
	RMEM_SWAP_LEAVING = 4,
};

enum rmem_swap_attr {
	RMEM_SWAP_A_UNSPEC,
	RMEM_SWAP_A_PAD,
	RMEM_SWAP_A_DEV,	/* string */
	RMEM_SWAP_A_DONOR,	/* string */
	RMEM_SWAP_A_DISK,	/* string: path of a block device, opened for this device alone */
	RMEM_SWAP_A_SIZE,	/* u64 */
	RMEM_SWAP_A_SLAB,	/* u64: size of a slab, a power of two from 1 MiB to 1 GiB; default 1 GiB */
	RMEM_SWAP_A_HOT,	/* u32: page I/Os per second above which a slab is mapped; default 20 */
	RMEM_SWAP_A_BUFFERS,	/* u32: how many written pages may wait for the disk before writes wait, too; default 4096 */
	RMEM_SWAP_A_IBDEV,	/* string */
	RMEM_SWAP_A_IBPORT,	/* u32 */
	RMEM_SWAP_A_GID_INDEX,	/* u32 */
	RMEM_SWAP_A_QPN,	/* u32 */
	RMEM_SWAP_A_PSN,	/* u32 */
	RMEM_SWAP_A_MTU,	/* u32: enum ib_mtu */
	RMEM_SWAP_A_GID,	/* 16 bytes */
	RMEM_SWAP_A_STATE,	/* u32: enum rmem_swap_donor_state */
	RMEM_SWAP_A_WHAT,	/* u32: enum rmem_swap_what */
	RMEM_SWAP_A_REASON,	/* string */
	RMEM_SWAP_A_SLAB_INDEX, /* u32 */
	RMEM_SWAP_A_HEAT,	/* u64: of a slab: page I/Os in 1000 seconds, an average that favours the last ones */
	RMEM_SWAP_A_PAGES,	/* u64: of a slab, or of all slabs of a donor: pages that the donor has */
	RMEM_SWAP_A_SLABS,	/* u32: of a donor, or a device: slabs that are mapped */
	RMEM_SWAP_A_ROOM,	/* u64: of a donor: bytes that it has left, as it last said */
	RMEM_SWAP_A_STALLED,	/* u32: of a donor: page I/Os under way for more than a second, as while the donor moves */
	RMEM_SWAP_A_TXN,	/* u64: last_txn of the donor's rmem_welcome */
	/* u64: counters of a device since it was made; OUT_ and IN_ count pages. A donor has those with a *, too. */
	RMEM_SWAP_A_OUT_REMOTE, /* * written to a donor (and to the disk) */
	RMEM_SWAP_A_OUT_DISK,	/* written to the disk alone */
	RMEM_SWAP_A_IN_REMOTE,	/* * read from a donor */
	RMEM_SWAP_A_IN_DISK,
	RMEM_SWAP_A_IN_BUFFER,	/* read from a page that waited for the disk */
	RMEM_SWAP_A_MAPS,	/* * slabs that were placed */
	RMEM_SWAP_A_UNMAPS,	/* * */
	RMEM_SWAP_A_EVICTIONS,	/* * */
	RMEM_SWAP_A_LOST,	/* * times that a donor was lost */
	RMEM_SWAP_A_REQUEUED,	/* * page I/Os that went to the disk because a donor was lost */
	RMEM_SWAP_A_DISCARDED,
	RMEM_SWAP_A_WAITING,	/* u32: pages that wait for the disk now */
	RMEM_SWAP_A_DISK_ERRORS, /* u64: page writes that the disk failed */
	RMEM_SWAP_A_BAD,	/* u64: pages that the disk does not have since such a failure */
	RMEM_SWAP_A_FORCE,	/* flag */
	__RMEM_SWAP_A_MAX,
};
#define RMEM_SWAP_A_MAX (__RMEM_SWAP_A_MAX - 1)

#endif
