# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests of what comes after an RNR NAK: traffic with receive queues that hold 1 to 4 entries and are
# empty for up to 2 ms. After ../lib.sh. `NNN --stock` counts on Debian's own module how many runs fail,
# and passes whatever it sees.
# shellcheck disable=SC2154 # lib.sh sets them
stock=${1:-}

once() { # once OPTIONS: one run; what it says is in $work/h1 and $work/$job.out
	local stall=20
	[ -z "$stock" ] || stall=5
	start h2 timeout -k 5 60 "$build/tests/traffic" --stall $stall
	# shellcheck disable=SC2086 # options are words
	if on h1 timeout -k 5 60 "$build/tests/traffic" --stall $stall --rnr --rnr-timer 24 --timeout 17 $1 h2 >"$work/h1" 2>&1
	then wait "$job"; else wait "$job" || false; fi
}

ten_runs() { # ten_runs OPTIONS
	local i broken=0
	for i in {1..10}; do
		once "$1 --seed $i" && continue
		broken=$((broken + 1))
		grep -h '^stalled\|^violation' "$work/h1" "$work/$job.out" | head -n 1
		[ -z "$stock" ] || rm "$work/$job".*
	done
	echo "$broken of 10 runs failed"
	[ -z "$stock" ] || exit 0
	[ $broken = 0 ] || fail "see above"
	for i in h1 h2; do
		[ "$(on $i cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_rnr_err)" -gt 50 ] ||
			fail "$i saw too few RNR NAKs to tell"
	done
}
