# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move a running perftest. After move.sh.
# shellcheck disable=SC2154 # lib.sh and move.sh set some

packets() { on h1 cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts; }
in_flow() { [ "$(packets)" -gt $((before + 50)) ]; } # (a condition for wait_for)

# perftest_moves ROLE TOOL OPTION...: ROLE, client or server, is at h1 and moves to h2; the other is at h3
perftest_moves() {
	local role=$1 tool=$2 outs before
	before=$(packets)
	shift 2
	echo "$role: $tool $*"
	if [ "$role" = client ]; then
		run h3 "$tool" -d rxe0 "$@"
		outs=$out
		wait_for 60 listening h3 18515
		run h1 "$tool" -d rxe0 "$@" h3
		wait_for 60 in_flow
		migrate h1 "$pid" h2 --address "$extra"
	else
		run h1 "$tool" -d rxe0 "$@"
		local mover=$pid
		outs=$out
		wait_for 60 listening h1 18515
		run h3 "$tool" -d rxe0 "$@" "$extra"
		wait_for 60 in_flow
		migrate h1 "$mover" h2 --address "$extra"
	fi
	moved
	# shellcheck disable=SC2086 # two
	ends_well $outs $out
	on h3 grep -A1 '#bytes' "$out"
	nothing_left h1 h2 h3
	address_back
}
