/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rxe_migr

#if !defined(RXE_MIGR_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define RXE_MIGR_TRACE_H

#include <linux/tracepoint.h>

#define rxe_migr_state_names			\
	{ RXE_MIGR_QP_RUNNING,	"RUNNING" },	\
	{ RXE_MIGR_QP_PAUSED,	"PAUSED" },	\
	{ RXE_MIGR_QP_RESUMING,	"RESUMING" },	\
	{ RXE_MIGR_QP_STOPPED,	"STOPPED" }

#define rxe_migr_opcode_names				\
	{ RXE_MIGR_OPCODE_STOP,		"STOP" },	\
	{ RXE_MIGR_OPCODE_STOP_ACK,	"STOP_ACK" },	\
	{ RXE_MIGR_OPCODE_RESUME,	"RESUME" },	\
	{ RXE_MIGR_OPCODE_RESUME_ACK,	"RESUME_ACK" },	\
	{ RXE_MIGR_OPCODE_NAK_STOPPED,	"NAK_STOPPED" },	\
	{ RXE_MIGR_OPCODE_MOVED,	"MOVED" }

TRACE_EVENT(rxe_migr_state,
	TP_PROTO(u32 qpn, u32 epoch, u8 from, u8 to),
	TP_ARGS(qpn, epoch, from, to),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, epoch)
		__field(u8, from)
		__field(u8, to)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->epoch = epoch;
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("qpn=%u epoch=%u %s -> %s", __entry->qpn, __entry->epoch,
		  __print_symbolic(__entry->from, rxe_migr_state_names),
		  __print_symbolic(__entry->to, rxe_migr_state_names))
);

DECLARE_EVENT_CLASS(rxe_migr_packet,
	TP_PROTO(u32 qpn, u8 opcode, u32 epoch, u32 psn),
	TP_ARGS(qpn, opcode, epoch, psn),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u8, opcode)
		__field(u32, epoch)
		__field(u32, psn)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->opcode = opcode;
		__entry->epoch = epoch;
		__entry->psn = psn;
	),
	TP_printk("qpn=%u %s epoch=%u psn=%u", __entry->qpn,
		  __print_symbolic(__entry->opcode, rxe_migr_opcode_names),
		  __entry->epoch, __entry->psn)
);

DEFINE_EVENT(rxe_migr_packet, rxe_migr_send,
	TP_PROTO(u32 qpn, u8 opcode, u32 epoch, u32 psn),
	TP_ARGS(qpn, opcode, epoch, psn));

DEFINE_EVENT(rxe_migr_packet, rxe_migr_rcv,
	TP_PROTO(u32 qpn, u8 opcode, u32 epoch, u32 psn),
	TP_ARGS(qpn, opcode, epoch, psn));

DEFINE_EVENT(rxe_migr_packet, rxe_migr_refuse,
	TP_PROTO(u32 qpn, u8 opcode, u32 epoch, u32 psn),
	TP_ARGS(qpn, opcode, epoch, psn));

#endif /* RXE_MIGR_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rxe_migr_trace
#include <trace/define_trace.h>
