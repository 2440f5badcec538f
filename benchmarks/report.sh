# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For benchmarks whose last report lies in docs/benchmarks. After tests/lib.sh; of what is measured when this is read.
# shellcheck disable=SC2154 # lib.sh sets $top, and each benchmark $report
commit=$(git -C "$top" describe --always 2>/dev/null) || commit=unknown
# (other benchmarks' reports are not measured)
changes=$(git -C "$top" status --porcelain -- . ':!docs/benchmarks' 2>&1) || true
[ -z "$changes" ] || commit+=", changed"

# publish: what report() says, on stdout and in $report, but there only if a commit has what was measured
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

# said WORD...: a measurement of $round, for $raw; not yet in round 0, when everything is done for the first time
said() {
	echo "$round $*"
	[ "$round" = 0 ] || echo "$round $*" >>"$raw"
}
