/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Counters of the migration protocol, as `rdma statistic` shows them. */
#ifndef RXE_MIGR_COUNTERS_H
#define RXE_MIGR_COUNTERS_H

#define RXE_MIGR_COUNTERS		\
	RXE_CNT_SENT_STOP,		\
	RXE_CNT_RCVD_STOP,		\
	RXE_CNT_SENT_NAK_STOPPED,	\
	RXE_CNT_RCVD_NAK_STOPPED,	\
	RXE_CNT_SENT_RESUME,		\
	RXE_CNT_RCVD_RESUME,		\
	RXE_CNT_SENT_MOVED,		\
	RXE_CNT_RCVD_MOVED,		\
	RXE_CNT_MIGR_PAUSES,		\
	RXE_CNT_MIGR_RESUMES,		\
	RXE_CNT_MIGR_REFUSED,

#define RXE_MIGR_COUNTER_DESCS						\
	[RXE_CNT_SENT_STOP].name	   =  "sent_stop",		\
	[RXE_CNT_RCVD_STOP].name	   =  "rcvd_stop",		\
	[RXE_CNT_SENT_NAK_STOPPED].name	   =  "sent_nak_stopped",	\
	[RXE_CNT_RCVD_NAK_STOPPED].name	   =  "rcvd_nak_stopped",	\
	[RXE_CNT_SENT_RESUME].name	   =  "sent_resume",		\
	[RXE_CNT_RCVD_RESUME].name	   =  "rcvd_resume",		\
	[RXE_CNT_SENT_MOVED].name	   =  "sent_moved",		\
	[RXE_CNT_RCVD_MOVED].name	   =  "rcvd_moved",		\
	[RXE_CNT_MIGR_PAUSES].name	   =  "migr_pauses",		\
	[RXE_CNT_MIGR_RESUMES].name	   =  "migr_resumes",		\
	[RXE_CNT_MIGR_REFUSED].name	   =  "migr_refused",

#endif /* RXE_MIGR_COUNTERS_H */
