# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move a running perftest. After move.sh.
# shellcheck disable=SC2154 # lib.sh and move.sh set some

in_flow() { [ "$(packets h1)" -gt $((before + 50)) ]; } # (a condition for wait_for)

# held_now_and_then PROCESS: the one that it runs, at h3, goes on for a tenth of the time only, until the other end is frozen:
# else a run may be over before godwit has looked at it. The connection itself is not slowed down.
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
# (With perftest's own time-out, 14, an emulated guest that stands still for half a second is given up.)
perftest_moves() {
	local role=$1 tool="$2 -d rxe0 -u 17 ${*:3}" before there mover outs o holder at_h3
	echo "$*"
	before=$(packets h1)
	pair "$role" 18515 "$tool" "$tool"
	wait_for 60 in_flow
	there=$(packets h2)
	at_h3=${outs##*/h3-}
	held_now_and_then "${at_h3%%.*}"
	# shellcheck disable=SC2086 # perhaps none
	migrate h1 "$mover" h2 --address "$extra" ${leave:-}
	moved
	[ -z "${leave:-}" ] || cut_messages
	wait $!
	wait_for 20 ended h3 "$holder"
	# shellcheck disable=SC2086 # two
	ends_well $outs
	[ "$(packets h2)" -gt $((there + 50)) ] || fail "it was over before it was moved"
	# (of SENDs both ends have a report, of all else the client)
	for o in $outs; do
		[[ $2 = ib_send_* ]] || [ "$o" = "${outs##* }" ] || continue
		perftest_reports "$o"
	done
	nothing_left h1 h2 h3
	address_back
}
