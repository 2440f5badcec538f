# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move other people's benchmarks. After ../godwit/move.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, tests use others

# Programs that poll give way to the driver's worker: hosts have one CPU, and what polls takes what is left of it.
polls=(chrt --idle 0)

in_flow() { [ "$(packets "$flow_at")" -gt $((before + $1)) ]; } # (a condition for wait_for)

# flows HOST N: its device receives N packets more
flows() {
	local flow_at=$1 before
	before=$(packets "$1")
	wait_for 120 in_flow "$2"
}

# moves_on PEER [OPTION...]: $mover moves, with these options, in the middle of what it does, and what it does goes on. How long
# godwit looks at it before nobody knows, and a run may be over by then. So it is held. If PEER is not "-", the process
# of this name at h3 is, until the move is done; else h3 hears nothing of RDMA until godwit has looked. (It is not kept
# from sending: of a packet that it may not send rxe, upstream's too, makes an error of the queue pair.)
moves_on() {
	local release
	flows h1 60
	rm -f "$work/migrate"
	if [ "$1" != - ]; then
		on h3 pkill -STOP -x "$1"
	else
		on h3 nft 'add table inet held; add chain inet held in { type filter hook input priority 0; };
			add rule inet held in udp dport 4791 drop'
		{
			until grep -q '^ *check ' "$work/migrate" 2>/dev/null; do
				kill -0 $$ || exit
				sleep 0.1
			done
			on h3 nft delete table inet held
		} &
		release=$!
	fi
	migrate h1 "$mover" h2 "${@:2}"
	moved
	if [ "$1" != - ]; then on h3 pkill -CONT -x "$1"; else wait "$release"; fi
	nothing_left h1
	flows h2 20
}
