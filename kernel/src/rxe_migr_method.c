// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* What all uverbs methods share: who may call them, and how a list is answered. */

#include <rdma/uverbs_ioctl.h>
#include "rxe_migr_loc.h"

/* The context of the ioctl, if the caller may checkpoint and restore */
struct rxe_ucontext *rxe_migr_caller(struct uverbs_attr_bundle *attrs)
{
	struct ib_ucontext *ibuc;

	if (!checkpoint_restore_ns_capable(&init_user_ns))
		return ERR_PTR(-EPERM);

	ibuc = ib_uverbs_get_ucontext_file(attrs->ufile);
	if (IS_ERR(ibuc))
		return ERR_CAST(ibuc);

	return to_ruc(ibuc);
}

/* Answer with a list of count elements. The caller gave room for max of them. */
int rxe_migr_answer_list(struct uverbs_attr_bundle *attrs, u64 addr,
			 const void *list, size_t size, u32 count,
			 unsigned int max)
{
	struct rxe_migr_dump resp = { .count = count, .length = count * size };
	int err = count > max ? -ENOSPC : 0, err2;

	if (!err && count &&
	    copy_to_user(u64_to_user_ptr(addr), list, resp.length))
		return -EFAULT;

	err2 = uverbs_copy_to_struct_or_zero(attrs, RXE_ATTR_MIGR_RESP, &resp,
					     sizeof(resp));

	return err ?: err2;
}
