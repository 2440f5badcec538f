# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move one end of the integrity program. After move.sh.
# shellcheck disable=SC2154 # lib.sh and move.sh set some
#
# The retry budget: two time-outs. Only a peer that knows of the move lives through a blackout that is longer.
# This is the smallest that the driver keeps. Emulated guests on a busy machine stand still for longer, with no move at
# all: they are slow (lab up --slow), or get 0.54 s.
budget="--timeout 8 --retry-cnt 1 --rnr-retry 1"
budget_ms=8
fit_budget() { # after hosts_up
	[ "$slow" = 1 ] && on h1 grep 'QEMU TCG' /proc/cpuinfo >/dev/null || return 0
	budget=${budget/timeout 8/timeout 16}
	budget_ms=537
}

flows() { [ "$(packets h3)" -gt $((before + 200)) ]; } # (a condition for wait_for)

# traffic_moves ROLE SERVER-OPTIONS CLIENT-OPTIONS [CHECK]: ROLE, client or server, is at h1 and moves to h2
traffic_moves() {
	local before mover outs
	before=$(packets h3)
	pair "$1" 18600 "$build/tests/traffic $2" "$build/tests/traffic $budget $3"
	wait_for 60 flows
	[ -z "${4:-}" ] || "$4"
	migrate h1 "$mover" h2 --address "$extra"
	go_on "$outs"
}

# It was moved for longer than the budget, and goes on; then it ends well at both ends.
go_on() {
	local before
	moved
	[ "$(blackout_ms)" -gt $budget_ms ] || fail "too fast to tell"
	before=$(packets h3)
	wait_for 60 flows
	on h3 pkill -INT -x traffic
	exact "$1"
	gap "$1"
	nothing_left h1 h2 h3
	address_back
}

# exact OUTS
exact() {
	local o
	# shellcheck disable=SC2086 # words
	ends_well $1
	for o in $1; do
		on h3 grep '^result=exact' "$o" || fail "$(on h3 cat "$o")"
	done
}

# gap OUTS: the blackout of the closing line is the longest time in which h3's end saw nothing
gap() {
	local o blackout
	blackout=$(blackout_ms)
	for o in $1; do
		[[ $o == */h3-* ]] || continue
		on h3 cat "$o" | awk -v blackout="$blackout" -F 'longest_gap_ms=' 'NF > 1 {
			off = $2 - blackout
			printf "blackout %d ms, gap at h3 %d ms\n", blackout, $2
			exit off * off > (100 + blackout / 10) ^ 2 }' || fail "blackout and gap differ"
	done
}

equal() { # at h1 all QPs have the numbers of their peers
	on h1 sh -c "rdma -j resource show qp | jq -e '[.[] | select(.type == \"RC\")] | length == 16 and all(.lqpn == .rqpn)'"
}
