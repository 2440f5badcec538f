// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Address handles, and whom they name. */

#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include "rxe_migr_loc.h"

void rxe_migr_dump_ah(struct ib_uobject *uobj, struct rxe_migr_sink *sink)
{
	struct rxe_ah *ah = to_rah(uobj->object);
	const struct rxe_av *av = &ah->av;
	struct rxe_migr_rec_ah *rec;
	union ib_gid sgid;

	/* an old provider does not know ah_num: its requests hold the address */
	if (!ah->ah_num) {
		rxe_migr_dump_other(uobj, sink);
		return;
	}

	rec = rxe_migr_put(sink, RXE_MIGR_REC_AH, uobj->id, sizeof(*rec));
	if (!rec)
		return;

	rec->user_handle = cpu_to_le64(uobj->user_handle);
	rec->pd = cpu_to_le32(ah->ibah.pd->uobject->id);
	rec->ah_num = cpu_to_le32(ah->ah_num);
	rxe_migr_sgid(av, &sgid);
	memcpy(rec->sgid, sgid.raw, sizeof(rec->sgid));
	memcpy(rec->dgid, av->grh.dgid.raw, sizeof(rec->dgid));
	rec->flow_label = cpu_to_le32(av->grh.flow_label);
	rec->hop_limit = av->grh.hop_limit;
	rec->traffic_class = av->grh.traffic_class;
	rec->port_num = av->port_num;
	memcpy(rec->dmac, av->dmac, sizeof(rec->dmac));
}

/*
 * The verb that creates an AH resolves its destination on the wire, but the
 * destination may have ended long ago. So a restore creates the AH with this host as
 * its destination, and this function sets the true one. IP finds the route; rxe uses
 * the MAC address only to recognize destinations on this very device.
 */
int rxe_migr_refill_ah(struct ib_uverbs_file *ufile,
		       const struct rxe_migr_rec *hdr, size_t length)
{
	struct ib_uobject *uobj = rxe_migr_uobj(ufile, le32_to_cpu(hdr->handle),
						UVERBS_OBJECT_AH);
	const struct rxe_migr_rec_ah *rec = (const void *)hdr;
	const struct ib_gid_attr *local;
	union ib_gid dgid, sgid;
	struct rxe_dev *rxe;
	struct rxe_ah *ah;

	if (length < sizeof(*rec) || !uobj)
		return -EINVAL;

	ah = to_rah(uobj->object);
	rxe = to_rdev(ah->ibah.device);
	memcpy(sgid.raw, rec->sgid, sizeof(sgid.raw));
	memcpy(dgid.raw, rec->dgid, sizeof(dgid.raw));
	if (le32_to_cpu(rec->ah_num) != ah->ah_num)
		return -EINVAL;

	/* the verb took the hop limit of the route to this host */
	ah->av.grh.hop_limit = rec->hop_limit;

	/* the destination was the AH's own host, which is this host now */
	if (!memcmp(&dgid, &sgid, sizeof(dgid)))
		return 0;

	memcpy(ah->av.grh.dgid.raw, dgid.raw, sizeof(dgid.raw));
	rdma_gid2ip((struct sockaddr *)&ah->av.dgid_addr, &dgid);
	local = rdma_find_gid(&rxe->ib_dev, &dgid, IB_GID_TYPE_ROCE_UDP_ENCAP,
			      NULL);
	if (!IS_ERR(local))	/* dmac is this device's already */
		rdma_put_gid_attr(local);
	else if (ether_addr_equal(rec->dmac, ah->av.dmac))
		eth_zero_addr(ah->av.dmac);
	else
		memcpy(ah->av.dmac, rec->dmac, sizeof(ah->av.dmac));

	return 0;
}
