# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move a running perftest. After move.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, tests use others

# Options for a run that goes on until its client is told to end. Only a client that posts all work itself can be told: one of
# READ, WRITE or atomics. perftest has no such run with events (-e). With a margin (-f) of 0 one signal ends it.
till_told="-D 100000 -f 0"

in_flow() { [ "$(packets "$1")" -gt $(($2 + 50)) ]; } # in_flow HOST BEFORE (a condition for wait_for)

# held_now_and_then PROCESS: the perftest that it runs at h3 goes on for a tenth of the time only, until the other end is frozen.
# Otherwise a run may end before godwit has looked at it. The connection itself is not slowed down.
held_now_and_then() {
	local frozen
	frozen=$("$lab_tool" share --name "$lab_default")/frozen
	rm -f "$frozen"
	# shellcheck disable=SC2016 # expanded in the guest
	holder=$(bg h3 sh -c 'exec perl -e "
		until (-e q(/lab/frozen)) {
			kill STOP => \$ARGV[0]; select undef, undef, undef, .45;
			kill CONT => \$ARGV[0]; select undef, undef, undef, .05;
		}" "$(pgrep -P "$0")"' "$1")
	when_frozen touch "$frozen"
}

# perftest_moves ROLE TOOL OPTION...: ROLE, client or server, is at h1 and moves to h2; the other is at h3
# With perftest's own time-out, 14, a connection fails when an emulated guest stands still for half a second.
perftest_moves() {
	local role=$1 tool="$2 -d rxe0 -u 17 ${*:3}" before there mover outs o holder at_h3 mover_out
	echo "$*"
	before=$(packets h1)
	pair "$role" 18515 "$tool" "$tool"
	wait_for 60 in_flow h1 "$before"
	there=$(packets h2)
	at_h3=${outs##*/h3-}
	at_h3=${at_h3%%.*}
	held_now_and_then "$at_h3"
	# shellcheck disable=SC2086 # perhaps none
	migrate h1 "$mover" h2 --address "$extra" ${leave:-}
	mover_out=${outs##* }
	[ "$role" = client ] || mover_out=${outs%% *}
	not_over "$mover_out"
	moved
	[ -z "${leave:-}" ] || cut_messages
	wait $!
	wait_for 60 ended h3 "$holder"
	if [[ " $* " = *" $till_told "* ]]; then
		expect 60 in_flow h2 "$there"
		# SIGALRM ends the time of -D.
		if [ "$role" = client ]; then on h2 pkill -ALRM -P "$mover"; else on h3 pkill -ALRM -P "$at_h3"; fi
	fi
	# shellcheck disable=SC2086 # two
	ends_well $outs
	# for SENDs both ends have a report, for all else the client
	for o in $outs; do
		[[ $2 = ib_send_* ]] || [ "$o" = "${outs##* }" ] || continue
		perftest_reports "$o"
	done
	nothing_left h1 h2 h3
	in_flow h2 "$there" || inconclusive "it was over before it was moved"
	address_back
}
