# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For runs of hours, in rounds (soak/run, fuzz). $folder/log has a line for each round: the time, the driver, and WORD=NUMBER...
# So a run that is stopped continues after the last round. Runs at the top of the checkout.

# rounds_in FOLDER: begins or continues a run there. All rounds of its log must be of this driver, unless MIX=1.
rounds_in() {
	folder=$1
	log=$folder/log
	driver=$(git describe --always --dirty 2>/dev/null || echo unknown)
	mkdir -p "$folder"
	touch "$log"
	if [ "${MIX:-}" != 1 ] && grep -v " driver=$driver " "$log" >/dev/null; then
		echo "$log has rounds of other drivers than $driver: MIX=1 goes on with it, else it is to be removed" >&2
		exit 1
	fi
	trap 'exit 130' INT TERM
}

sum() { awk -v word="$1" '{ for (i = 1; i <= NF; i++) if (split($i, a, "=") == 2 && a[1] == word) n += a[2] } END { print n + 0 }' "$log"; }

# round SEED CMD...: runs the command, with its output in $said. If it fails, the run ends and the output is kept. As in
# tests/check, an inconclusive round (75) is repeated with twice the patience, at most twice.
round() {
	local seed=$1 try status patience=${CHECK_PATIENCE:-100}
	said=$folder/round.$seed
	shift
	for try in 0 1 2; do
		status=0
		CHECK_PATIENCE=$((patience << try)) "$@" >"$said" 2>&1 || status=$?
		[ $status = 75 ] || break
		echo "round $seed: $(grep -m 1 '^inconclusive: ' "$said")" >&2
	done
	if [ $status != 0 ]; then
		tail -n 30 "$said"
		echo "round $seed failed: all of it is in $said; ${LAB_OPTIONS:+LAB_OPTIONS=$LAB_OPTIONS }$* repeats it" >&2
		exit 1
	fi
}

done_with() { # done_with WORD=NUMBER...: writes the line of a round to the log
	echo "$(date -u +%FT%TZ) driver=$driver $*" | tee -a "$log"
	rm "$said"
}
