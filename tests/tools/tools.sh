# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move other people's benchmarks. After ../move.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, tests use others

# Programs that poll must give way to the driver's worker: hosts have one CPU, and a polling program takes all the rest of it.
polls=(chrt --idle 0)

in_flow() { [ "$(packets "$1")" -gt $(($2 + $3)) ]; } # in_flow HOST BEFORE N (a condition for wait_for)

# flows HOST N: its device receives N more packets
flows() { wait_for 120 in_flow "$1" "$(packets "$1")" "$2"; }

# stop_peer NAME: stops the process of this name at h3
stop_peer() { on h3 pkill -STOP -x "$1" || inconclusive "it was over before it was moved"; }

# paced: h1 and h3 each send at most 400 packets a second from now on, until paced_no_more
paced() {
	local h
	for h in h1 h3; do
		on $h tc qdisc add dev eth0 root netem slot 10ms packets 4 limit 10000
	done
}

paced_no_more() {
	local h
	for h in h1 h3; do on $h tc qdisc del dev eth0 root; done
}

# moves_on PEER [OPTION...]: moves $mover, with these options, in the middle of its work, and the work goes on. A run may end
# while godwit still looks at it. So hosts are paced() from before the run until the process is frozen. If PEER is not "-", the
# process of this name at h3 is stopped by a signal instead, from when the run flows until the move is done. ($outs: the output of
# both ends)
moves_on() {
	local release before o
	flows h1 60
	before=$(packets h2)
	if [ "$1" != - ]; then
		stop_peer "$1"
		paced_no_more
	else
		when_frozen paced_no_more
		release=$!
	fi
	migrate h1 "$mover" h2 "${@:2}"
	for o in $outs; do not_over "$o"; done
	moved
	if [ "$1" != - ]; then on h3 pkill -CONT -x "$1"; else wait "$release"; fi
	nothing_left h1
	expect 120 in_flow h2 "$before" 20
}
