// SPDX-License-Identifier: MIT
/* Generic netlink: requests to the module, the module's answers, and its events. */
#include <errno.h>
#include <linux/netlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "rmemswap.h"

#define SOL_NETLINK_LEVEL 270 /* SOL_NETLINK */

static struct nla_policy policy[RMEM_SWAP_A_MAX + 1] = {
	[RMEM_SWAP_A_DEV] = { .type = NLA_STRING },
	[RMEM_SWAP_A_DONOR] = { .type = NLA_STRING },
	[RMEM_SWAP_A_DISK] = { .type = NLA_STRING },
	[RMEM_SWAP_A_REASON] = { .type = NLA_STRING },
	[RMEM_SWAP_A_GID] = { .type = NLA_UNSPEC, .minlen = 16, .maxlen = 16 },
};

const char *attr_text(struct nlattr **attrs, int number)
{
	const char *text = attrs[number] ? nla_data(attrs[number]) : NULL;

	return text && memchr(text, 0, nla_len(attrs[number])) ? text : NULL;
}

uint64_t attr_number(struct nlattr **attrs, int number)
{
	const struct nlattr *attr = attrs[number];

	if (!attr)
		return 0;
	if (nla_len(attr) == sizeof(uint64_t))
		return nla_get_u64(attr);
	return nla_len(attr) == sizeof(uint32_t) ? nla_get_u32(attr) : 0;
}

/* ------------------------------------------------------------------ one request */

struct call {
	struct kernel *kernel;
	kernel_message *each;
	void *arg;
	int result;
	bool done;
};

static int on_valid(struct nl_msg *msg, void *arg)
{
	struct nlattr *attrs[RMEM_SWAP_A_MAX + 1];
	struct call *call = arg;

	if (genlmsg_parse(nlmsg_hdr(msg), 0, attrs, RMEM_SWAP_A_MAX, policy) >= 0 && call->each)
		call->each(attrs, call->arg);
	return NL_OK;
}

static int on_done(struct nl_msg *msg, void *arg)
{
	struct call *call = arg;

	(void)msg;
	call->done = true;
	return NL_STOP;
}

/* The module gives a reason in words (NETLINK_EXT_ACK), which comes after the error. */
static int on_error(struct sockaddr_nl *from, struct nlmsgerr *error, void *arg)
{
	const struct nlmsghdr *header = (struct nlmsghdr *)((char *)error - NLMSG_HDRLEN);
	int offset = sizeof(*error), left = header->nlmsg_len - NLMSG_HDRLEN - offset;
	struct call *call = arg;
	struct nlattr *words;

	(void)from;
	call->result = error->error;
	call->done = true;
	snprintf(call->kernel->why, sizeof(call->kernel->why), "%s", strerror(-error->error));
	if (!(header->nlmsg_flags & NLM_F_ACK_TLVS) || left <= 0)
		return NL_STOP;
	words = nla_find((struct nlattr *)((char *)error + offset), left, NLMSGERR_ATTR_MSG);
	if (words && nla_len(words) > 0)
		snprintf(call->kernel->why, sizeof(call->kernel->why), "%.*s", nla_len(words), (char *)nla_data(words));
	return NL_STOP;
}

static int receive(struct kernel *k, struct call *call)
{
	struct nl_cb *cb = nl_cb_alloc(NL_CB_CUSTOM);
	int ret = 0;

	if (!cb)
		return -ENOMEM;
	nl_cb_set(cb, NL_CB_VALID, NL_CB_CUSTOM, on_valid, call);
	nl_cb_set(cb, NL_CB_FINISH, NL_CB_CUSTOM, on_done, call);
	nl_cb_set(cb, NL_CB_ACK, NL_CB_CUSTOM, on_done, call);
	nl_cb_err(cb, NL_CB_CUSTOM, on_error, call);
	while (!call->done && ret >= 0)
		ret = nl_recvmsgs(k->sk, cb);
	nl_cb_put(cb);
	if (call->done)
		return call->result;
	snprintf(k->why, sizeof(k->why), "netlink: %s", nl_geterror(ret));
	return -EIO;
}

static struct nl_msg *request(struct kernel *k, uint8_t command, int flags, const char *device, const char *donor)
{
	struct nl_msg *msg = nlmsg_alloc();

	if (!msg)
		return NULL;
	if (genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, k->family, 0, flags, command, RMEM_SWAP_VERSION) &&
	    (!device || !nla_put_string(msg, RMEM_SWAP_A_DEV, device)) &&
	    (!donor || !nla_put_string(msg, RMEM_SWAP_A_DONOR, donor)))
		return msg;
	nlmsg_free(msg);
	return NULL;
}

/* @msg is NULL if it could not be made; it is freed. @bad: something did not fit into it. */
static int call_kernel(struct kernel *k, struct nl_msg *msg, int bad, kernel_message *each, void *arg)
{
	struct call call = { .kernel = k, .each = each, .arg = arg };
	int ret;

	if (!msg || bad) {
		nlmsg_free(msg);
		snprintf(k->why, sizeof(k->why), "there is no memory");
		return -ENOMEM;
	}
	ret = nl_send_auto(k->sk, msg);
	nlmsg_free(msg);
	if (ret >= 0)
		return receive(k, &call);
	snprintf(k->why, sizeof(k->why), "netlink: %s", nl_geterror(ret));
	return -EIO;
}

/* ------------------------------------------------------------------ the requests */

int kernel_dev_add(struct kernel *k, const struct conf_device *device)
{
	struct nl_msg *msg = request(k, RMEM_SWAP_DEV_ADD, NLM_F_ACK, device->name, NULL);
	int bad = 0;

	if (msg) {
		bad = nla_put_string(msg, RMEM_SWAP_A_DISK, device->disk);
		if (device->size)
			bad |= nla_put_u64(msg, RMEM_SWAP_A_SIZE, device->size);
		if (device->slab)
			bad |= nla_put_u64(msg, RMEM_SWAP_A_SLAB, device->slab);
		if (device->has_hot)
			bad |= nla_put_u32(msg, RMEM_SWAP_A_HOT, device->hot);
		if (device->buffers)
			bad |= nla_put_u32(msg, RMEM_SWAP_A_BUFFERS, device->buffers);
	}
	return call_kernel(k, msg, bad, NULL, NULL);
}

/* Nobody wants the data of a device for swap that is not swapped to any more: FORCE. */
int kernel_dev_del(struct kernel *k, const struct conf_device *device)
{
	struct nl_msg *msg = request(k, RMEM_SWAP_DEV_DEL, NLM_F_ACK, device->name, NULL);

	return call_kernel(k, msg, msg && !device->block ? nla_put_flag(msg, RMEM_SWAP_A_FORCE) : 0, NULL, NULL);
}

int kernel_dev_set_hot(struct kernel *k, const char *device, uint32_t hot)
{
	struct nl_msg *msg = request(k, RMEM_SWAP_DEV_SET, NLM_F_ACK, device, NULL);

	return call_kernel(k, msg, msg ? nla_put_u32(msg, RMEM_SWAP_A_HOT, hot) : 0, NULL, NULL);
}

static void take_qp(struct nlattr **attrs, void *arg)
{
	struct rmem_qp *qp = arg;

	if (!attrs[RMEM_SWAP_A_GID] || !attrs[RMEM_SWAP_A_QPN])
		return;
	memcpy(qp->gid, nla_data(attrs[RMEM_SWAP_A_GID]), sizeof(qp->gid));
	qp->qpn = htole32(attr_number(attrs, RMEM_SWAP_A_QPN));
	qp->psn = htole32(attr_number(attrs, RMEM_SWAP_A_PSN));
	qp->mtu = htole32(attr_number(attrs, RMEM_SWAP_A_MTU));
}

int kernel_donor_add(struct kernel *k, const char *device, const char *donor, const struct rmem_port *port, struct rmem_qp *qp)
{
	struct nl_msg *msg = request(k, RMEM_SWAP_DONOR_ADD, NLM_F_ACK, device, donor);
	int ret, bad = 0;

	memset(qp, 0, sizeof(*qp));
	if (msg) {
		bad = nla_put_string(msg, RMEM_SWAP_A_IBDEV, ibv_get_device_name(port->context->device));
		bad |= nla_put_u32(msg, RMEM_SWAP_A_IBPORT, port->num);
		bad |= nla_put_u32(msg, RMEM_SWAP_A_GID_INDEX, port->gid_index);
	}
	ret = call_kernel(k, msg, bad, take_qp, qp);
	if (ret || qp->qpn)
		return ret;
	snprintf(k->why, sizeof(k->why), "rmem_swap names no queue pair: use the same version of rmemswap and rmem_swap");
	return -EPROTO;
}

int kernel_donor_connect(struct kernel *k, const char *device, const char *donor, const struct rmem_welcome *welcome)
{
	struct nl_msg *msg = request(k, RMEM_SWAP_DONOR_CONNECT, NLM_F_ACK, device, donor);
	const struct rmem_qp *qp = &welcome->qp;
	int bad = 0;

	if (msg) {
		bad = nla_put(msg, RMEM_SWAP_A_GID, sizeof(qp->gid), qp->gid);
		bad |= nla_put_u32(msg, RMEM_SWAP_A_QPN, le32toh(qp->qpn));
		bad |= nla_put_u32(msg, RMEM_SWAP_A_PSN, le32toh(qp->psn));
		bad |= nla_put_u32(msg, RMEM_SWAP_A_MTU, le32toh(qp->mtu));
		bad |= nla_put_u64(msg, RMEM_SWAP_A_TXN, le64toh(welcome->last_txn));
	}
	return call_kernel(k, msg, bad, NULL, NULL);
}

int kernel_donor_del(struct kernel *k, const char *device, const char *donor)
{
	return call_kernel(k, request(k, RMEM_SWAP_DONOR_DEL, NLM_F_ACK, device, donor), 0, NULL, NULL);
}

int kernel_status(struct kernel *k, kernel_message *each, void *arg)
{
	return call_kernel(k, request(k, RMEM_SWAP_STATUS, NLM_F_DUMP, NULL, NULL), 0, each, arg);
}

/* ------------------------------------------------------------------ events */

static int no_check(struct nl_msg *msg, void *arg)
{
	(void)msg, (void)arg;
	return NL_OK;
}

int kernel_listen(struct kernel *k)
{
	int ret = genl_ctrl_resolve_grp(k->sk, RMEM_SWAP_FAMILY, RMEM_SWAP_GROUP);

	if (ret >= 0)
		ret = nl_socket_add_membership(k->sk, ret);
	if (ret < 0)
		return fault("rmem_swap: its events can't be had: %s", nl_geterror(ret));
	nl_socket_set_nonblocking(k->sk);
	return 0;
}

int kernel_events(struct kernel *k, kernel_message *each, void *arg)
{
	struct call call = { .kernel = k, .each = each, .arg = arg };
	struct nl_cb *cb = nl_cb_alloc(NL_CB_CUSTOM);
	int ret = 0;

	if (!cb)
		return -ENOMEM;
	nl_cb_set(cb, NL_CB_VALID, NL_CB_CUSTOM, on_valid, &call);
	nl_cb_set(cb, NL_CB_SEQ_CHECK, NL_CB_CUSTOM, no_check, NULL);
	while (ret >= 0) {
		errno = 0;
		ret = nl_recvmsgs(k->sk, cb);
	}
	nl_cb_put(cb);
	return errno == ENOBUFS || ret == -NLE_NOMEM ? -ENOBUFS : 0;
}

/* ------------------------------------------------------------------ the socket */

int kernel_open(struct kernel *k)
{
	int on = 1, ret = -NLE_NOMEM;

	memset(k, 0, sizeof(*k));
	k->sk = nl_socket_alloc();
	if (k->sk)
		ret = genl_connect(k->sk);
	if (ret >= 0)
		ret = k->family = genl_ctrl_resolve(k->sk, RMEM_SWAP_FAMILY);
	if (ret >= 0) {
		setsockopt(nl_socket_get_fd(k->sk), SOL_NETLINK_LEVEL, NETLINK_EXT_ACK, &on, sizeof(on));
		setsockopt(nl_socket_get_fd(k->sk), SOL_NETLINK_LEVEL, NETLINK_CAP_ACK, &on, sizeof(on));
		return 0;
	}
	kernel_close(k);
	if (ret == -NLE_OBJ_NOTFOUND)
		return fault("rmem_swap: the module is not loaded: modprobe rmem_swap");
	return fault("rmem_swap: %s", nl_geterror(ret));
}

void kernel_close(struct kernel *k)
{
	if (k->sk)
		nl_socket_free(k->sk);
	k->sk = NULL;
}
