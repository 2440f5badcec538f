# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests with the program objects, which has objects of every kind and uses them. After ../lib.sh and move.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, tests use others

# goes_on HOST [wait_for]: the program there sends and receives
goes_on() {
	local before
	before=$(on "$1" cat /lab/progress)
	"${2:-expect}" 60 more_came "$1"
}
more_came() { [ "$(on "$1" cat /lab/progress)" -gt $((before + 20)) ]; } # (a condition for wait_for)
objects() { # objects [OPTION...]: starts the program that has objects of every kind
	on h1 rm -f /lab/progress
	run h1 "$build/tests/objects" --address "$extra" "$@" /lab/progress
	wait_for 60 on h1 grep -qx ready "$out"
	wait_for 60 on h1 test -s /lab/progress
	goes_on h1 wait_for
}
check() { # check HOST [OPTION...]: runs godwit check of $pid; output in $work/check
	local host=$1
	shift
	status=0
	on "$host" godwit check "$pid" --json "$@" >"$work/check" || status=$?
}
# The program's own report, and the output of check, as the same lines.
of_check() {
	jq -r '.process.objects[] | .object + " " + (
		if .object == "context" or .object == "async_file" or .object == "comp_channel" then .descriptors
		elif .object == "pd" then "\(.handle)"
		elif .object == "mr" then "\(.handle) pd \(.pd) key \(.key) start \(.start) length \(.length)"
		elif .object == "mw" then "\(.handle) pd \(.pd) key \(.rkey) mw_type \(.mw_type)"
		elif .object == "cq" then "\(.handle) cqe \(.cqe) channel \(.comp_channel // "none")"
		elif .object == "srq" then "\(.handle) pd \(.pd)"
		elif .object == "ah" then "\(.handle) pd \(.pd) dgid \(.dgid)"
		elif .object == "qp" then "\(.handle) lqpn \(.lqpn) type \(.type) state \(.state) pd \(.pd) cqs \(.send_cq) \(.recv_cq)"
		elif .object == "mcast" then "qp \(.qp) mgid \(.mgid)"
		else "?" end)' "$work/check" | sort
}
as_made() {
	on h1 sh -c "sed '/^ready/q' $out | grep -v ready" | sort >"$work/made"
	of_check >"$work/checked"
	diff "$work/made" "$work/checked" || broken "check lists other objects than were made"
}
end() {
	on "$1" pkill -TERM -x objects
	expect 60 seen "$out" '^exit '
	seen "$out" '^exit 0$' || broken "$(on h1 cat "$out")"
	on "$1" rdma -j resource | jq -e 'all(.[]; .qp == 1 and .mr == 0 and .ctx == 0 and .srq == 0)'
}
