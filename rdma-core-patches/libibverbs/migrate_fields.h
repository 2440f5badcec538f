/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The fields of each record of rdma/rxe_migrate.h, in its structure's order.
 * All code that reads, shows or saves records takes the fields from here:
 *
 *	F(record, member, name, unit, place)
 *
 * member is a member of struct rxe_migr_rec_<record>. name is its name outside:
 * the word of rdma(8), if that has one. unit: enum ibv_record_unit. place: MAIN
 * if a person looks for it first, else MORE, or LATER if an old image may lack
 * it.
 *
 * ibv_record_kind(3) gives the same as a table.
 */
#ifndef INFINIBAND_MIGRATE_FIELDS_H
#define INFINIBAND_MIGRATE_FIELDS_H

#define IBV_FIELDS_context(F)						\
	F(context, abi_version, abi_version, NUMBER, MORE)		\
	F(context, num_objects, num_objects, NUMBER, MAIN)		\
	F(context, device, device, TEXT, MAIN)				\
	F(context, stop_ns, stop_ns, NUMBER, MORE)			\
	F(context, active_mtu, active_mtu, NUMBER, LATER)

#define IBV_FIELDS_event_file(F)					\
	F(event_file, is_default, is_default, NUMBER, MAIN)

#define IBV_FIELDS_pd(F)

#define IBV_FIELDS_mr(F)						\
	F(mr, pd, pd, NUMBER, MAIN)					\
	F(mr, key, key, HEX, MAIN)					\
	F(mr, start, start, HEX, MAIN)					\
	F(mr, length, length, NUMBER, MAIN)				\
	F(mr, iova, iova, HEX, MAIN)					\
	F(mr, access, access, HEX, MORE)

#define IBV_FIELDS_cq(F)						\
	F(cq, user_handle, user_handle, HEX, MORE)			\
	F(cq, ring_offset, ring_offset, HEX, MORE)			\
	F(cq, cqe, cqe, NUMBER, MAIN)					\
	F(cq, comp_channel, comp_channel, HANDLE, MAIN)			\
	F(cq, comp_vector, comp_vector, NUMBER, MORE)			\
	F(cq, async_file, async_file, HANDLE, MORE)			\
	F(cq, comp_events, comp_events, NUMBER, MORE)			\
	F(cq, async_events, async_events, NUMBER, MORE)			\
	F(cq, notify, notify, NUMBER, MAIN)

#define IBV_FIELDS_srq(F)						\
	F(srq, user_handle, user_handle, HEX, MORE)			\
	F(srq, ring_offset, ring_offset, HEX, MORE)			\
	F(srq, pd, pd, NUMBER, MAIN)					\
	F(srq, srq_num, srqn, NUMBER, MAIN)				\
	F(srq, max_wr, max_wr, NUMBER, MAIN)				\
	F(srq, max_sge, max_sge, NUMBER, MORE)				\
	F(srq, limit, limit, NUMBER, MORE)				\
	F(srq, async_file, async_file, HANDLE, MORE)			\
	F(srq, async_events, async_events, NUMBER, MORE)		\
	F(srq, error, error, NUMBER, MORE)

#define IBV_FIELDS_qp(F)						\
	F(qp, user_handle, user_handle, HEX, MORE)			\
	F(qp, sq_offset, sq_offset, HEX, MORE)				\
	F(qp, rq_offset, rq_offset, HEX, MORE)				\
	F(qp, pd, pd, NUMBER, MORE)					\
	F(qp, send_cq, send_cq, NUMBER, MORE)				\
	F(qp, recv_cq, recv_cq, NUMBER, MORE)				\
	F(qp, srq, srq, HANDLE, MORE)					\
	F(qp, async_file, async_file, HANDLE, MORE)			\
	F(qp, async_events, async_events, NUMBER, MORE)			\
	F(qp, qpn, lqpn, NUMBER, MAIN)					\
	F(qp, qp_type, qp_type, QP_TYPE, MAIN)				\
	F(qp, qp_state, qp_state, QP_STATE, MAIN)			\
	F(qp, sq_sig_all, sq_sig_all, NUMBER, MORE)			\
	F(qp, owes_last_wqe, owes_last_wqe, NUMBER, LATER)		\
	F(qp, max_send_wr, max_send_wr, NUMBER, MORE)			\
	F(qp, max_recv_wr, max_recv_wr, NUMBER, MORE)			\
	F(qp, max_inline, max_inline, NUMBER, MORE)			\
	F(qp, max_send_sge, max_send_sge, NUMBER, MORE)			\
	F(qp, max_recv_sge, max_recv_sge, NUMBER, MORE)			\
	F(qp, access_flags, access_flags, HEX, MORE)			\
	F(qp, qkey, qkey, HEX, MORE)					\
	F(qp, dest_qpn, rqpn, NUMBER, MAIN)				\
	F(qp, rq_psn, rq_psn, NUMBER, MORE)				\
	F(qp, sq_psn, sq_psn, NUMBER, MORE)				\
	F(qp, pkey_index, pkey_index, NUMBER, MORE)			\
	F(qp, src_port, src_port, NUMBER, MORE)				\
	F(qp, path_mtu, path_mtu, NUMBER, MORE)				\
	F(qp, port_num, port_num, NUMBER, MORE)				\
	F(qp, timeout, timeout, NUMBER, MORE)				\
	F(qp, retry_cnt, retry_cnt, NUMBER, MORE)			\
	F(qp, rnr_retry, rnr_retry, NUMBER, MORE)			\
	F(qp, min_rnr_timer, min_rnr_timer, NUMBER, MORE)		\
	F(qp, max_rd_atomic, max_rd_atomic, NUMBER, MORE)		\
	F(qp, max_dest_rd_atomic, max_dest_rd_atomic, NUMBER, MORE)	\
	F(qp, sq_draining, sq_draining, NUMBER, MORE)			\
	F(qp, en_sqd_async_notify, en_sqd_async_notify, NUMBER, MORE)	\
	F(qp, hop_limit, hop_limit, NUMBER, MORE)			\
	F(qp, traffic_class, traffic_class, NUMBER, MORE)		\
	F(qp, flow_label, flow_label, NUMBER, MORE)			\
	F(qp, sgid, sgid, GID, MAIN)					\
	F(qp, dgid, dgid, GID, MAIN)					\
	F(qp, req_psn, req_psn, NUMBER, MAIN)				\
	F(qp, req_wqe_index, req_wqe_index, NUMBER, MORE)		\
	F(qp, req_noack_pkts, req_noack_pkts, NUMBER, MORE)		\
	F(qp, req_opcode, req_opcode, NUMBER, MORE)			\
	F(qp, req_rd_atomic, req_rd_atomic, NUMBER, MORE)		\
	F(qp, comp_psn, comp_psn, NUMBER, MORE)				\
	F(qp, comp_opcode, comp_opcode, NUMBER, MORE)			\
	F(qp, comp_retry_cnt, comp_retry_cnt, NUMBER, MORE)		\
	F(qp, comp_rnr_retry, comp_rnr_retry, NUMBER, MORE)		\
	F(qp, resp_msn, resp_msn, NUMBER, MORE)				\
	F(qp, resp_psn, resp_psn, NUMBER, MAIN)				\
	F(qp, resp_ack_psn, resp_ack_psn, NUMBER, MORE)			\
	F(qp, resp_opcode, resp_opcode, NUMBER, MORE)			\
	F(qp, resp_status, resp_status, NUMBER, MORE)			\
	F(qp, flags, flags, HEX, MORE)					\
	F(qp, resp_va, resp_va, HEX, MORE)				\
	F(qp, resp_offset, resp_offset, NUMBER, MORE)			\
	F(qp, resp_resid, resp_resid, NUMBER, MORE)			\
	F(qp, resp_rkey, resp_rkey, HEX, MORE)				\
	F(qp, resp_length, resp_length, NUMBER, MORE)			\
	F(qp, res_head, res_head, NUMBER, MORE)				\
	F(qp, num_res, num_res, NUMBER, MORE)				\
	F(qp, recv_resid, recv_resid, NUMBER, MORE)			\
	F(qp, recv_cur_sge, recv_cur_sge, NUMBER, MORE)			\
	F(qp, recv_sge_offset, recv_sge_offset, NUMBER, MORE)		\
	F(qp, ssn, ssn, NUMBER, MORE)					\
	F(qp, epoch, epoch, NUMBER, MAIN)				\
	F(qp, peer_epoch, peer_epoch, NUMBER, MORE)			\
	F(qp, old_gid, old_gid, GID, LATER)

#define IBV_FIELDS_resp_res(F)						\
	F(resp_res, index, index, NUMBER, MAIN)				\
	F(resp_res, type, resp_res_type, NUMBER, MAIN)			\
	F(resp_res, replay, replay, NUMBER, MORE)			\
	F(resp_res, state, state, NUMBER, MORE)				\
	F(resp_res, flush_type, flush_type, NUMBER, MORE)		\
	F(resp_res, flush_level, flush_level, NUMBER, MORE)		\
	F(resp_res, first_psn, first_psn, NUMBER, MAIN)			\
	F(resp_res, last_psn, last_psn, NUMBER, MAIN)			\
	F(resp_res, cur_psn, cur_psn, NUMBER, MORE)			\
	F(resp_res, rkey, rkey, HEX, MORE)				\
	F(resp_res, length, length, NUMBER, MORE)			\
	F(resp_res, resid, resid, NUMBER, MORE)				\
	F(resp_res, va, va, HEX, MORE)					\
	F(resp_res, va_org, va_org, HEX, MORE)

#define IBV_FIELDS_recv_wqe(F)						\
	F(recv_wqe, wr_id, wr_id, NUMBER, MAIN)				\
	F(recv_wqe, length, length, NUMBER, MAIN)			\
	F(recv_wqe, num_sge, num_sge, NUMBER, MORE)

#define IBV_FIELDS_alt_av(F)						\
	F(alt_av, sgid, sgid, GID, MAIN)				\
	F(alt_av, dgid, dgid, GID, MAIN)				\
	F(alt_av, flow_label, flow_label, NUMBER, MORE)			\
	F(alt_av, hop_limit, hop_limit, NUMBER, MORE)			\
	F(alt_av, traffic_class, traffic_class, NUMBER, MORE)		\
	F(alt_av, port_num, port_num, NUMBER, MORE)			\
	F(alt_av, timeout, timeout, NUMBER, MORE)			\
	F(alt_av, pkey_index, pkey_index, NUMBER, MORE)

#define IBV_FIELDS_ring(F)						\
	F(ring, which, which, NUMBER, MAIN)				\
	F(ring, log2_elem_size, log2_elem_size, NUMBER, MORE)		\
	F(ring, index_mask, index_mask, NUMBER, MORE)			\
	F(ring, producer, producer, NUMBER, MAIN)			\
	F(ring, consumer, consumer, NUMBER, MAIN)			\
	F(ring, index, index, NUMBER, MAIN)				\
	F(ring, first, first, NUMBER, MORE)				\
	F(ring, count, count, NUMBER, MAIN)

#define IBV_FIELDS_event(F)						\
	F(event, file, file, NUMBER, MORE)				\
	F(event, object, object, NUMBER, MAIN)				\
	F(event, event, event, NUMBER, MAIN)

#define IBV_FIELDS_ah(F)						\
	F(ah, user_handle, user_handle, HEX, MORE)			\
	F(ah, pd, pd, NUMBER, MORE)					\
	F(ah, ah_num, ahn, NUMBER, MAIN)				\
	F(ah, sgid, sgid, GID, MORE)					\
	F(ah, dgid, dgid, GID, MAIN)					\
	F(ah, flow_label, flow_label, NUMBER, MORE)			\
	F(ah, hop_limit, hop_limit, NUMBER, MORE)			\
	F(ah, traffic_class, traffic_class, NUMBER, MORE)		\
	F(ah, port_num, port_num, NUMBER, MORE)				\
	F(ah, dmac, dmac, HEX, LATER)

#define IBV_FIELDS_mcast(F)						\
	F(mcast, mgid, mgid, GID, MAIN)					\
	F(mcast, mlid, mlid, NUMBER, MORE)

#define IBV_FIELDS_mw(F)						\
	F(mw, addr, addr, HEX, MORE)					\
	F(mw, length, length, NUMBER, MORE)				\
	F(mw, pd, pd, NUMBER, MORE)					\
	F(mw, rkey, rkey, HEX, MAIN)					\
	F(mw, mr, mr, HANDLE, MORE)					\
	F(mw, qp, qp, HANDLE, MORE)					\
	F(mw, access, access, HEX, MORE)				\
	F(mw, type, mw_type, NUMBER, MAIN)				\
	F(mw, state, state, NUMBER, MORE)

#define IBV_FIELDS_mr_owner(F)						\
	F(mr_owner, pid, pid, NUMBER, MAIN)

#define IBV_FIELDS_other(F)						\
	F(other, object_id, object_id, NUMBER, MAIN)

#endif /* INFINIBAND_MIGRATE_FIELDS_H */
