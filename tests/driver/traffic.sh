# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that run traffic between two hosts. After ../lib.sh.
# shellcheck disable=SC2154 # lib.sh sets them

# These tests do not look for what a dead peer or a busy machine causes, so time-outs are long.
# shellcheck disable=SC2034 # for tests
patient="--timeout 18 --retry-cnt 7"

# The program. It ends with 2 if there is no progress. The limit is for a machine that is too slow.
program=(timeout -k 60 "$(seconds 300)" "$build/tests/traffic" --stall "$(seconds 90)")

# traffic SERVER-OPTIONS CLIENT-OPTIONS: h2 is the server; both must end exact, and leave nothing.
traffic() {
	local server
	# shellcheck disable=SC2086 # options are words
	start h2 "${program[@]}" $1
	server=$job
	echo "traffic $1 | $2"
	# shellcheck disable=SC2086
	on h1 "${program[@]}" $2 h2 | tee "$work/client"
	grep -q '^result=exact' "$work/client"
	ends_exact "$server" "the server"
	nothing_left h1
	nothing_left h2
}

# ends_exact JOB WHO: this end of the traffic ends, and all data was exact. $excuse names a function that may end the test if not.
excuse=
ends_exact() {
	local status=0
	wait "$1" || status=$?
	[ $status != 124 ] || broken "$2 was not done within $(seconds 300) s"
	[ $status != 255 ] || all_live || inconclusive "a lab died"
	[ $status = 0 ] || ${excuse:-true}
	[ $status = 0 ] || broken "$2: exit $status: $(tail -n 1 "$work/$1.out")"
	grep '^result=exact' "$work/$1.out"
}

nothing_left() { # nothing_left HOST: no RDMA objects of programs
	expect 60 is_bare "$1"
}
is_bare() { # (a condition for expect; a test that fails shows the file)
	on "$1" rdma resource show >"$work/objects-$1.out"
	grep -q "pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0" "$work/objects-$1.out"
}
