# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests whose program does everything to the driver that it can. After ../lib.sh.
# shellcheck disable=SC2154 # lib.sh sets some

nothing_left() {
	on h1 rdma resource show | grep 'pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 ' >/dev/null
}

# Everything that the program left has gone with it, and the device works.
still_works() {
	expect 60 nothing_left
	start h1 ib_send_bw -d rxe0 -n 100
	wait_for 60 listening h1 18515
	on h1 timeout "$(seconds 120)" ib_send_bw -d rxe0 -n 100 h1 || broken "ib_send_bw: exit $?"
	wait "$job"
}
