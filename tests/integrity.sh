# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move one end of the integrity program. After move.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, tests use others

# The program. It ends after this time without progress.
traffic=("$build/tests/traffic" --stall "$(seconds 90)")

# The retry budget: two time-outs. Only a peer that knows of the move survives a longer blackout. This time-out is the smallest
# that the driver keeps. Emulated guests on a busy machine stand still for longer than that even without a move. So tests use slow
# guests (lab up --slow), or a budget of 0.54 s.
budget="--timeout 8 --retry-cnt 1 --rnr-retry 1"
budget_ms=8
fit_budget() { # after hosts_up
	[ "$slow" = 1 ] && on h1 grep 'QEMU TCG' /proc/cpuinfo >/dev/null || return 0
	budget=${budget/timeout 8/timeout 16}
	budget_ms=537
}

# For tests that ask something else: no guest stands still for so long.
ample_budget() {
	budget="--timeout 18 --retry-cnt 6 --rnr-retry 6"
	budget_ms=0
}

# broken_off: an end has found a fault. After that nothing flows, however long one waits.
broken_off() {
	on h3 sh -c 'grep -H "^violation" /lab/bg/*.out'
}
unbroken() { # no end has found a fault
	local fault
	if fault=$(broken_off); then broken "the traffic broke off: $fault"; fi
}
flows() { [ "$(packets h3)" -gt $((before + 200)) ] || broken_off; } # (a condition for wait_for; call unbroken after it)

# traffic_moves ROLE SERVER-OPTIONS CLIENT-OPTIONS [CHECK]: ROLE, client or server, is at h1 and moves to h2
traffic_moves() {
	local before mover outs
	before=$(packets h3)
	pair "$1" 18600 "${traffic[*]} $2" "${traffic[*]} $budget $3"
	wait_for 60 flows
	unbroken
	[ -z "${4:-}" ] || "$4"
	# shellcheck disable=SC2086 # perhaps none
	migrate h1 "$mover" h2 --address "$extra" ${leave:-}
	moved
	[ -z "${leave:-}" ] || cut_messages
	go_on "$outs"
}

# cut_messages: works with leave=--leave-images. Counts the queue pairs whose packets were on their way when they moved, in
# $unanswered, and those that had sent or received only a part of a message, in $half_sent and $half_received.
unanswered=0 half_sent=0 half_received=0
cut_messages() {
	local n
	n=$(on h2 sh -c 'godwit show --json /var/lib/godwit/*' | jq -r '
		def cut: . == (0, 1, 6, 7);
		[.. | objects | select(has("req_opcode"))] |
		"\(map(select(.req_psn != .comp_psn)) | length) \(map(select(.req_opcode | cut)) | length) \(map(select(.resp_opcode | cut)) | length)"')
	read -r -a n <<<"$n"
	unanswered=$((unanswered + n[0])) half_sent=$((half_sent + n[1])) half_received=$((half_received + n[2]))
	on h1 rm -rf /var/lib/godwit
	on h2 rm -rf /var/lib/godwit
}

# The blackout was longer than the retry budget, and the process goes on. Then both ends end well.
go_on() {
	local before
	moved
	if grep "without this protocol" "$work/migrate"; then broken "its peers have ours"; fi
	before=$(packets h3)
	expect 60 flows
	unbroken
	on h3 pkill -INT -x traffic
	exact "$1"
	nothing_left h1 h2 h3
	gap "$1"
	[ "$(blackout_ms)" -gt $budget_ms ] || inconclusive "too fast to tell: the peer retries for $budget_ms ms"
	address_back
}

# exact OUTS
exact() {
	local o
	# shellcheck disable=SC2086 # words
	ends_well $1
	for o in $1; do
		on h3 grep '^result=exact' "$o" | tee -a "$work/results" || broken "$(on h3 cat "$o")"
	done
}

# gap OUTS: the longest time without a message at h3 is the blackout in the closing line, to a tenth and the time that an emulated
# guest may stand still. If it is less, the line is wrong. If it is more, h3 may have stood still at another time.
gap() {
	local o blackout gap still=100 may
	blackout=$(blackout_ms)
	[ "$slow" = 1 ] || still=$((6 * patience / slow))
	[ $still -ge 15 ] || still=15
	may=$((still + blackout / 10))
	for o in $1; do
		[[ $o == */h3-* ]] || continue
		gap=$(on h3 sed -n 's/.* longest_gap_ms=\([0-9]*\).*/\1/p' "$o")
		echo "blackout $blackout ms, gap at h3 $gap ms"
		[ $((gap + may)) -ge "$blackout" ] || broken "a blackout of $blackout ms, but h3 saw a gap of $gap ms"
		[ "$gap" -le $((blackout + may)) ] || inconclusive "a blackout of $blackout ms, but h3 saw a gap of $gap ms"
	done
}

declare -A at # for the functions below: the host of each end's process
they_received() { local h; for h in "${at[@]}"; do packets "$h"; done | awk '{ n += $1 } END { print n }'; }
more_came() { [ "$(they_received)" -gt $((before + 400)) ] || broken_off; } # (a condition for wait_for)
flow_on() { # flow_on [SECONDS [wait_for]]: both ends receive more. wait_for: the traffic has only just begun
	local before
	before=$(they_received)
	"${2:-expect}" "${1:-60}" more_came
	unbroken
}

equal() { # all QPs at h1 have the same numbers as their peers
	on h1 sh -c "rdma -j resource show qp | jq -e '[.[] | select(.type == \"RC\")] | length == 16 and all(.lqpn == .rqpn)'"
}
