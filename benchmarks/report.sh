# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For benchmarks whose last report lies in docs/benchmarks. After tests/lib.sh. $commit and $changes describe the tree at the
# moment when this file is read.
# shellcheck disable=SC2154 # lib.sh sets $top, and each benchmark $report
commit=$(git -C "$top" describe --always 2>/dev/null) || commit=unknown
# A change in the reports does not change what is measured.
changes=$(git -C "$top" status --porcelain -- . ':!docs/benchmarks' 2>&1) || true
[ -z "$changes" ] || commit+=", changed"

# publish: prints what report() says, and writes it to $report if a commit has what was measured
publish() {
	report >"$work/report"
	cat "$work/report"
	if [ "$changes" ]; then
		printf '%s is not written: no commit has what was measured:\n%s\n' "${report#"$top/"}" "$changes"
	else
		mkdir -p "${report%/*}"
		cp "$work/report" "$report"
	fi
}

# said WORD...: prints a measurement of $round, and adds it to $raw. Round 0 is not added, since everything is done for the first
# time in it.
said() {
	echo "$round $*"
	[ "$round" = 0 ] || echo "$round $*" >>"$raw"
}
