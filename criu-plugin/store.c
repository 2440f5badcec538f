// SPDX-License-Identifier: GPL-2.0
/*
 * File descriptors that CRIU and every task of a restore can get, whatever
 * namespaces they are in. They are messages in the queue of a socket that is
 * connected to itself. To get one, its message is read and stays in the queue.
 * CRIU's own fdstore works like that, and holds our socket. But the fdstore
 * lives as long as CRIU, which may wait for the tasks to end, and a context
 * must end with its processes. So the descriptors lie in a socket of ours,
 * which is emptied when all is restored.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "restore.h"

static struct {
	sem_t	lock;		/* the socket, and its peek offset */
	int	id;		/* of the socket in CRIU's store; -1: none yet */
	int	count;
} *store;

int store_init(void)
{
	store = share(sizeof(*store));
	if (!store)
		return -1;
	store->id = -1;
	return make_lock(&store->lock);
}

/* A socket that is connected to itself; the kernel chooses its name. */
static int new_socket(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	socklen_t length = sizeof(sa_family_t);
	int sock, size = INT_MAX / 2;

	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -1;
	if (bind(sock, (void *)&addr, length))
		goto close;
	length = sizeof(addr);
	if (getsockname(sock, (void *)&addr, &length) ||
	    connect(sock, (void *)&addr, length))
		goto close;
	setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	return sock;
close:
	close(sock);
	return -1;
}

/* Lock the store and get its socket. close_socket() ends both. */
static int open_socket(void)
{
	int sock;

	if (take_lock(&store->lock, "the store of descriptors is stuck"))
		return -1;
	if (store->id >= 0) {
		sock = fdstore_get(store->id);
	} else {
		sock = new_socket();
		if (sock >= 0)
			store->id = fdstore_add(sock);
		if (store->id < 0 && sock >= 0) {
			close(sock);
			sock = -1;
		}
	}
	if (sock < 0) {
		fail("the store of descriptors cannot be opened: %m");
		leave_lock(&store->lock);
	}
	return sock;
}

static void close_socket(int sock)
{
	close(sock);
	leave_lock(&store->lock);
}

union room {
	struct cmsghdr	hdr;
	char		data[CMSG_SPACE(sizeof(int))];
};

static int receive(int sock, int flags)
{
	union room room;
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &room, .msg_controllen = sizeof(room),
	};
	const struct cmsghdr *cmsg;
	int fd;

	if (recvmsg(sock, &msg, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
		return -1;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (!cmsg || cmsg->cmsg_type != SCM_RIGHTS) {
		errno = EBADMSG;
		return -1;
	}
	memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	return fd;
}

static int send_fd(int sock, int fd)
{
	union room room = {};
	struct iovec iov = { .iov_base = "", .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &room, .msg_controllen = sizeof(room),
	};

	room.hdr = (struct cmsghdr){
		.cmsg_len = CMSG_LEN(sizeof(fd)),
		.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
	};
	memcpy(CMSG_DATA(&room.hdr), &fd, sizeof(fd));
	return sendmsg(sock, &msg, MSG_DONTWAIT) == 1 ? 0 : -1;
}

int store_put(int fd)
{
	int sock = open_socket(), number = -1;

	if (sock < 0)
		return -1;
	if (send_fd(sock, fd))
		fail("a descriptor cannot be stored: %m");
	else
		number = store->count++;
	close_socket(sock);
	return number;
}

int store_get(int number)
{
	int sock = open_socket(), fd;

	if (sock < 0)
		return -1;
	/* Each message is one byte, so the offset counts messages. */
	if (setsockopt(sock, SOL_SOCKET, SO_PEEK_OFF, &number, sizeof(number)))
		fd = -1;
	else
		fd = receive(sock, MSG_PEEK);
	if (fd < 0)
		fail("a descriptor cannot be had from the store: %m");
	close_socket(sock);
	return fd;
}

void store_drain(void)
{
	int sock, fd;

	/* Without RDMA there is no store. */
	if (!store || store->id < 0)
		return;
	sock = open_socket();
	if (sock < 0)
		return;
	while ((fd = receive(sock, 0)) >= 0)
		close(fd);
	close_socket(sock);
}
