# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests of what follows an RNR NAK: traffic with receive queues that hold 1 to 4 entries and are empty for up to 2 ms. After
# ../lib.sh. `NNN --stock` counts how many runs fail on Debian's own module, and passes in any case.
# shellcheck disable=SC2154 # lib.sh sets them
stock=${1:-}

once() { # once OPTIONS: one run; its output is in $work/h1 and $work/$job.out
	local stall=60 client=0 server=0 program
	[ -z "$stock" ] || stall=5
	program=(timeout -k 60 "$(seconds 180)" "$build/tests/traffic" --stall "$(seconds $stall)")
	start h2 "${program[@]}"
	# shellcheck disable=SC2086 # options are words
	on h1 "${program[@]}" --rnr --rnr-timer 24 --timeout 18 $1 h2 >"$work/h1" 2>&1 || client=$?
	wait "$job" || server=$?
	if [ $client = 124 ] || [ $server = 124 ]; then broken "a run was not done within $(seconds 180) s"; fi
	[ $client = 0 ] && [ $server = 0 ]
}

rnr_naks() { on "$1" cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_rnr_err; }

ten_runs() { # ten_runs OPTIONS: in the gate three
	local i h runs=10 bad=0
	local -A before
	! short || runs=3
	for h in h1 h2; do before[$h]=$(rnr_naks $h); done
	for ((i = 1; i <= runs; i++)); do
		once "$1 --seed $i" && continue
		bad=$((bad + 1))
		grep -h '^stalled\|^violation' "$work/h1" "$work/$job.out" | head -n 1 || true
		[ -z "$stock" ] || rm "$work/$job".*
	done
	echo "$bad of $runs runs failed"
	[ -z "$stock" ] || exit 0
	[ $bad = 0 ] || broken "$bad of $runs runs failed"
	for h in h1 h2; do
		[ $(($(rnr_naks $h) - before[$h])) -gt $((5 * runs)) ] || inconclusive "$h saw too few RNR NAKs to tell"
	done
}
