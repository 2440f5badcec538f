# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move a running perftest. After move.sh.
# shellcheck disable=SC2154 # lib.sh and move.sh set some

in_flow() { [ "$(packets h1)" -gt $((before + 50)) ]; } # (a condition for wait_for)

# perftest_moves ROLE TOOL OPTION...: ROLE, client or server, is at h1 and moves to h2; the other is at h3
perftest_moves() {
	local role=$1 tool="$2 -d rxe0 ${*:3}" before mover outs
	echo "$*"
	before=$(packets h1)
	pair "$role" 18515 "$tool" "$tool"
	wait_for 60 in_flow
	migrate h1 "$mover" h2 --address "$extra"
	moved
	# shellcheck disable=SC2086 # two
	ends_well $outs
	on h3 grep -A1 '#bytes' "${outs##* }"
	nothing_left h1 h2 h3
	address_back
}
