# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# For tests: `. "$(dirname "$0")/../lib.sh"`. A test ends with 0 when its last line is reached, and its
# labs' kernel logs are clean. Every command that fails ends it.
set -Eeuo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck disable=SC2034 # for tests: where built things are, here and in guests
build=$top/build
lab_tool=$top/tests/vm/lab
lab_default=$(basename "$(dirname "$(realpath "$0")")")-$(basename "$0")
labs=()
work=$(mktemp -d)
exec {said}>&1

fail() {
	local lines=("${BASH_LINENO[@]:0:${#BASH_LINENO[@]}-1}")
	echo "fail: $* (${about:+$about, }lines ${lines[*]})" >&2
	exit 1
}

# A command that ends the test says so too.
trap '[ "$BASHPID" != $$ ] || echo "fail: exit $?: $BASH_COMMAND (${about:+$about, }lines $LINENO ${BASH_LINENO[*]})" >&2' ERR

# $about, if set, is said with whatever fails: the seed, say, that makes it fail again.

# The machine itself need not have it.
jq() { "$top/tests/vm/in-tree" jq "$@"; }

# busy: prints what else the machine does, nothing if it is idle: before a test says how long something may take there
busy() {
	local l load
	read -r load _ </proc/loadavg
	awk -v load="$load" 'BEGIN { if (load >= 0.5) print "the machine was not idle: load average " load }'
	for l in "${XDG_RUNTIME_DIR:-/tmp}/godwit-lab-$UID"/*/lock; do
		[ ! -e "$l" ] || flock -n "$l" true || echo "the machine was not idle: the lab $(basename "${l%/lock}") was up"
	done
}

skip() {
	echo "skip: $*"
	exit 77
}

# wait_for SECONDS CMD...: try it again until it succeeds; fail when it did not within this time, as guests have it.
slow=1 # how much faster the machine's passes: lab up's --slow
[ -z "${LAB_OPTIONS:-}" ] || slow=10
wait_for() {
	local end=$((SECONDS + $1 * slow)) pause=1
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "did not come true in time: $*"
		sleep 0.$pause # (a look costs an emulated guest its time)
		[ $pause = 3 ] || pause=$((pause + 1))
	done
}

# seen FILE GREP-ARG...: this file of the guests' /lab has such a line (a condition for wait_for that asks no guest)
seen() {
	grep -q "${@:2}" "$("$lab_tool" share --name "${lab:-$lab_default}")${1#/lab}"
}

# lab_up [OPTION...]: boot a lab that ends with this test. More than one: --name NAME and lab=NAME. All labs
# have $LAB_OPTIONS: make check-debug sets them.
lab_up() {
	local name=$lab_default i
	for ((i = 1; i < $#; i++)); do
		case ${!i} in
		--name) i=$((i + 1)) && name=${!i} ;;
		--slow) i=$((i + 1)) && slow=$((slow * ${!i})) ;;
		esac
	done
	labs+=("$name")
	# shellcheck disable=SC2086 # words
	"$lab_tool" up --name "$name" --owner $$ ${LAB_OPTIONS:-} "$@"
}

lab_down() { # lab_down [NAME]: its kernel logs must be clean
	local name=${1:-$lab_default} l rest=()
	for l in "${labs[@]}"; do [ "$l" = "$name" ] || rest+=("$l"); done
	labs=("${rest[@]}")
	"$lab_tool" down --name "$name"
}

# on HOST CMD...: run it there. $lab names the lab, if it is not this test's only one.
on() {
	local host=$1
	shift
	"$lab_tool" exec --name "${lab:-$lab_default}" "$host" -- "$@"
}

# bg HOST CMD...: leave it running there, detached, in a session of its own; prints its process id.
# Its output is in /lab/bg/HOST-PID.out and .err, in every guest.
bg() {
	local host=$1
	shift
	"$lab_tool" exec --name "${lab:-$lab_default}" --bg "$host" -- "$@"
}

# start HOST CMD...: run it there, and go on here. Sets $job: `wait $job` gives its exit status; its
# output is in $work/$job.out and .err once it says something.
start() {
	local host=$1
	shift
	# (opened here: a job may take its time to begin, and its number is known only then)
	local out err
	exec {out}>"$work/new" {err}>"$work/new.err"
	on "$host" sh -c 'echo; exec "$@"' sh "$@" 1>&"$out" 2>&"$err" &
	job=$!
	exec {out}>&- {err}>&-
	mv "$work/new" "$work/$job.out"
	mv "$work/new.err" "$work/$job.err"
	# The guest has it when it has said the empty line.
	wait_for 60 test -s "$work/$job.out"
}

# listening HOST PORT: somebody does (a condition for wait_for)
listening() {
	on "$1" sh -c "ss -Htln 'sport = :$2' | grep -q ."
}

# ended HOST PID: it has (a condition for wait_for)
ended() {
	on "$1" sh -c "! kill -0 $2 2>/dev/null"
}

clean_up() {
	local status=$? l
	trap - EXIT
	# (a signal may come in a function whose output goes into one of the files that are shown here)
	exec 1>&"$said"
	if [ $status != 0 ] && [ $status != 77 ]; then
		for l in "$work"/*.out "$work"/*.err; do
			[ -s "$l" ] && sed "s/^/${l##*/}: /" "$l"
		done
		# what else a test wants its reader to see
		! declare -F state >/dev/null || state || true
	fi
	for l in "${labs[@]}"; do
		"$lab_tool" down --name "$l" || status=1
	done
	rm -rf "$work"
	exit $status
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
