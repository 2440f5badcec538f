# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that run traffic between two hosts. After ../lib.sh.
# shellcheck disable=SC2154 # lib.sh sets them

# What rests of a dead peer or a busy machine is not what these tests look for: time-outs are long.
# shellcheck disable=SC2034 # for tests
patient="--timeout 18 --retry-cnt 7"

# traffic SERVER-OPTIONS CLIENT-OPTIONS: h2 is the server; both must end exact, and leave nothing.
traffic() {
	local server
	# shellcheck disable=SC2086 # options are words
	start h2 timeout -k 5 300 "$build/tests/traffic" $1
	server=$job
	echo "traffic $1 | $2"
	# shellcheck disable=SC2086
	on h1 timeout -k 5 300 "$build/tests/traffic" $2 h2 | tee "$work/client"
	wait "$server" || fail "the server: $(tail -n 1 "$work/$server.out")"
	grep -q '^result=exact' "$work/client"
	grep '^result=exact' "$work/$server.out"
	nothing_left h1
	nothing_left h2
}

nothing_left() {
	local left
	left=$(on "$1" rdma resource show)
	[[ $left == *"pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0"* ]] || fail "$1 has objects left: $left"
}
