# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # $top and $work are lib.sh's
#
# Sourced by tests that run rdma-core's own suite on two sides, and compare. lib.sh comes before it. The test defines
#
#   on_side SIDE CMD...	runs a command on that side
#
# The guests' /usr/share/doc/rdma-core/tests has the suite. Some of its tests crash Python, so one module of it runs at a time.
# Tests for other hardware are left out.

suite_py=$top/tests/verbs/src/suite.py

# suite SIDE [MODULE...]: runs these modules, or all; the results go to $work/SIDE.out
suite() {
	# shellcheck disable=SC2016 # expanded in the guest
	on_side "$1" bash -c '
		rm -rf /tmp/suite && mkdir /tmp/suite && cp -r /usr/share/doc/rdma-core/tests /tmp/suite && cd /tmp/suite
		gunzip -q tests/*.gz
		[ $# -gt 2 ] || for t in tests/test_*.py; do
			t=$(basename "$t" .py)
			case $t in *mlx5* | *efa* | *irdma* | *cuda*) continue ;; esac
			set -- "$@" "$t"
		done
		for t in "${@:3}"; do
			SECONDS=0
			timeout "$2" python3 "$1" /tmp/suite "$t" || echo "$t: $?" >&2
			echo "$t took $SECONDS s" >&2
		done' bash "$suite_py" "$(seconds 300)" "${@:2}" >"$work/$1.out" 2>"$work/$1.err" || true
}

passed() { # passed SIDE: the tests that passed there
	awk '$2 == "ok" { print $1 }' "$work/$1.out" | sort
}

again() { # again SIDE MODULE TEST: runs a test ten more times, and prints how often it passed
	local i
	for ((i = 0; i < 10; i++)); do
		on_side "$1" timeout "$(seconds 300)" python3 "$suite_py" /tmp/suite "$2" "$3" 2>>"$work/again.$1.err" || true
	done | grep -c ' ok$' || true
}

# compare BASE SIDE LEAST: each test that passed on side BASE, at least LEAST of them, must pass on the other side. Some tests pass
# now and then, on any rxe. They run ten more times on both sides, and a test that fails again must have failed on BASE as well.
# (test_resize_cq posts, and shrinks the CQ at once. It expects to be refused, but is not if no more than one completion is there
# yet, and the other completions overflow the CQ.)
compare() {
	local base=$1 side=$2 module t on_side on_base lost=()
	[ "$(passed "$base" | wc -l)" -ge "$3" ] || inconclusive "$base: the suite does not run: $(passed "$base" | wc -l) pass"
	comm -23 <(passed "$base") <(passed "$side") >"$work/differ"
	grep ' took ' "$work/$side.err"
	echo "passed: $(passed "$base" | wc -l) on $base, $(passed "$side" | wc -l) on $side"
	while IFS=. read -r _ module t; do
		again "$base" "$module" "$t" >"$work/again.$base" </dev/null &
		on_side=$(again "$side" "$module" "$t" </dev/null)
		wait $!
		on_base=$(cat "$work/again.$base")
		echo "$module.$t: passed $on_side times of 10 on $side, and $on_base on $base"
		[ "$on_side" = 10 ] || { [ "$on_side" -gt 0 ] && [ "$on_base" -lt 10 ]; } || lost+=("$module.$t")
	done <"$work/differ"
	[ ${#lost[@]} = 0 ] || broken "these pass on $base, not on $side: ${lost[*]}"
}
