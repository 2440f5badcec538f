# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# Sourced by tests: `. "$(dirname "$0")/../lib.sh"`. docs/TESTING.md says how to write a test. A test ends with
#    0  passed: the last line is reached, and the kernel logs of its labs are clean
#    1  broken: an oracle said no. A command that fails outside of a condition is such an oracle.
#   75  inconclusive: something that the test needs before it can ask its question did not happen
#   77  skipped
set -Eeuo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck disable=SC2034 # for tests: where built things are, here and in guests
build=$top/build
lab_tool=$top/tests/vm/lab
# A test's name after its number is left out, since the path of a lab's sockets must be short.
lab_default=$(realpath "$0" | sed -E 's|.*/([^/]*)/([^/]*)$|\1-\2|; s/([0-9]{3})-.*/\1/')-$$
labs=()
work=$(mktemp -d)
# The verdict goes to these descriptors, wherever the output of a command goes. (Their names are long, since tests have variables
# of their own.)
exec {test_stdout}>&1 {test_stderr}>&2

verdict() { # verdict STATUS WORD TEXT: a line that tests/check reads
	local lines=("${BASH_LINENO[@]:1:${#BASH_LINENO[@]}-2}")
	# The verdict goes to the test's own stderr, wherever the output of the failed command goes.
	echo "$2: $3 (${about:+$about, }lines ${lines[*]})" >&"$test_stderr"
	exit "$1"
}
broken() {
	all_live || inconclusive "a lab has died: $*"
	verdict 1 broken "$*"
}
inconclusive() { verdict 75 inconclusive "$*"; }
skip() {
	echo "skip: $*"
	exit 77
}

# A command that fails, and so ends the test, is reported, too. A program that could not ask its question exits with 75. Status
# 124 comes from timeout(1): its limits are wide, so the command was stuck.
failed() { # failed STATUS COMMAND LINES
	local word=broken status=1
	if [ "$1" = 75 ] || ! all_live || { [ "$1" = 255 ] && dies; }; then word=inconclusive status=75; fi
	echo "$word: exit $1: $2 (${about:+$about, }lines $3)" >&"$test_stderr"
	exit $status
}
ended_with=0
trap 'ended_with=$?; [ "$BASHPID" != $$ ] || failed $ended_with "$BASH_COMMAND" "$LINENO ${BASH_LINENO[*]}"' ERR

# $about, if set, is printed with every failure: for example the seed that makes it fail again.

# The machine itself may have no jq.
jq() { "$top/tests/vm/in-tree" jq "$@"; }

# In make check a test takes its shortest form that can still fail for the right reason: `if short; then ...`.
short() { [ "${CHECK_SUITE:-all}" = gate ]; }

# How patient a test is, in percent. The runner sets it from the speed of the machine, and raises it when it repeats a test.
patience=${CHECK_PATIENCE:-100}
seconds() { echo $((($1 * patience + 99) / 100)); } # seconds N: N scaled for this machine; for timeout(1), and limits of programs

# How a test spends its time, in milliseconds. Time spent in subshells is not counted.
declare -A spent=([boot]=0 [wait]=0 [move]=0)
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
# The names are unusual on purpose: the command may be a function that uses variables of its test.
spend() { # spend KIND CMD...
	local spent_on=$1 spent_ms spent_status=0
	spent_ms=-$(now_ms)
	shift
	"$@" || spent_status=$?
	spent_ms=$((spent_ms + $(now_ms)))
	spent[$spent_on]=$((spent[$spent_on] + spent_ms))
	[ $spent_ms -lt 5000 ] || echo "time: $((spent_ms / 1000)) s for $*" >&2
	return $spent_status
}

# comes_true SECONDS CMD...: repeats the command until it succeeds; fails if it has not succeeded after so many seconds of guest
# time.
slow=1 # how much faster the machine's time passes than the guests': lab up's --slow
[ -z "${LAB_OPTIONS:-}" ] || slow=10
comes_true() {
	local wait_end=$((SECONDS + $(seconds "$1") * slow)) wait_pause=1
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $wait_end ] || return 1
		sleep 0.$wait_pause # each try costs an emulated guest time
		[ $wait_pause = 3 ] || wait_pause=$((wait_pause + 1))
	done
}

# wait_for SECONDS CMD...: waits for something that a test needs before it can ask its question.
wait_for() {
	spend wait comes_true "$@" || inconclusive "did not come about within $(seconds "$1") s: ${*:2}"
}

# expect SECONDS CMD...: waits for something that the product promises. The limit is wide, so that no slow machine explains a
# failure.
expect() {
	spend wait comes_true "$@" || broken "not true within $(seconds "$1") s: ${*:2}"
}

# seen FILE GREP-ARG...: this file in the guests' /lab has a matching line. A condition for wait_for that asks no guest.
seen() {
	grep -q "${@:2}" "$("$lab_tool" share --name "${lab:-$lab_default}")${1#/lab}"
}

# lab_up [OPTION...]: boots a lab that ends with this test. For several labs: --name NAME, and lab=NAME to use it. All labs get
# $LAB_OPTIONS, which make check-debug sets.
#
# A test's line "# Lab: HOSTS [OPTION...]" says which lab it needs; options of lab_up are added. lab_up without options uses the
# lab that an earlier test of the kind has booted, if there is one. At the end of each test the lab is searched for what the test
# left.
shared=
lab_size=3 # hosts
# shellcheck disable=SC2034 # that is for tests
lab_up() {
	local name=$lab_default options=() i
	read -ra options < <(sed -n 's/^# Lab: /--hosts /p' "$0") || true
	[ $# != 0 ] || shared=${CHECK_LAB:-}
	options+=("$@")
	for ((i = 0; i < ${#options[@]}; i++)); do
		case ${options[i]} in
		--name) name=${options[++i]} ;;
		--hosts) lab_size=${options[++i]} ;;
		--slow)
			options[i + 1]=$(seconds "${options[i + 1]}")
			[ "${options[i + 1]}" -le 99 ] || options[i + 1]=99
			slow=$((slow * options[++i]))
			;;
		esac
	done
	if [ -n "$shared" ]; then
		lab_default=$shared
		! "$lab_tool" live --name "$shared" || return 0
		set -- --name "$shared" --owner "$CHECK_PID"
	else
		labs+=("$name")
		set -- --name "$name" --owner $$
	fi
	# shellcheck disable=SC2086 # words
	spend boot "$lab_tool" up "$@" ${LAB_OPTIONS:-} "${options[@]}" || inconclusive "the lab $name did not come up"
}

# dies: does a lab end just now? A guest could not be asked. (A lab's sockets go before the lock that says that the lab lives, so
# this waits for two seconds.)
dies() {
	local i
	for ((i = 0; i < 20; i++)); do
		all_live || return 0
		sleep 0.1
	done
	return 1
}
all_live() { # do all labs of this test live? A guest that the test has killed does not count
	local l
	for l in "${labs[@]}" $shared; do "$lab_tool" live --name "$l" || return 1; done
}

lab_down() { # lab_down [NAME]: takes the lab down; its kernel logs must be clean
	local name=${1:-$lab_default} l rest=()
	for l in "${labs[@]}"; do [ "$l" = "$name" ] || rest+=("$l"); done
	labs=("${rest[@]}")
	"$lab_tool" down --name "$name"
}

# on HOST CMD...: runs the command there. $lab names the lab, if the test has several.
on() {
	local host=$1
	shift
	"$lab_tool" exec --name "${lab:-$lab_default}" "$host" -- "$@"
}

# bg HOST CMD...: starts the command there in a session of its own, leaves it running, and prints its process id. Its output is in
# /lab/bg/HOST-PID.out and .err, in every guest.
bg() {
	local host=$1
	shift
	"$lab_tool" exec --name "${lab:-$lab_default}" --bg "$host" -- "$@"
}

# start HOST CMD...: starts the command there, and returns. Sets $job: `wait $job` gives the exit status. The output is in
# $work/$job.out and .err.
start() {
	local host=$1
	shift
	# The files are opened here: the job may begin late, and its number is known only after that.
	local out err
	exec {out}>"$work/new" {err}>"$work/new.err"
	on "$host" sh -c 'echo; exec "$@"' sh "$@" 1>&"$out" 2>&"$err" &
	job=$!
	exec {out}>&- {err}>&-
	mv "$work/new" "$work/$job.out"
	mv "$work/new.err" "$work/$job.err"
	# An empty line says that the guest has started the command.
	wait_for 60 test -s "$work/$job.out"
}

# reload HOST [PARAMETER...]: loads the module again there, with these parameters, and makes rxe0 again. The key and other
# parameters are forgotten, except $trust, which makes a key unnecessary.
trust=allow_unsigned=Y
reload() {
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -ec 'top=$0
		for w in $(cat /proc/cmdline); do case $w in lab_module=*) module=${w#*=} ;; esac; done
		rmmod rdma_rxe
		insmod "$top/$module" "$@"
		rdma link add rxe0 type rxe netdev eth0' "$top" $trust "${@:2}"
}

# listening HOST PORT: a program listens there (a condition for wait_for)
listening() {
	on "$1" sh -c "ss -Htln 'sport = :$2' | grep -q ."
}

# ended HOST PID: the process has ended (a condition for wait_for)
ended() {
	on "$1" sh -c "! kill -0 $2 2>/dev/null"
}

# tidy_up NAME: prepares a shared lab for the next test, and prints what this test has left there
tidy_up() {
	"$lab_tool" tidy --name "$1" && return
	if [ $? = 75 ]; then status=75; else left=1; fi
}

clean_up() {
	local status=$? l left=0
	trap - EXIT ERR
	trap '' INT TERM
	set +e
	# A signal may arrive in a function whose output goes into one of the files that are printed below.
	exec 1>&"$test_stdout" 2>&"$test_stderr"
	if [ $status != 0 ] && [ $status != 77 ]; then
		for l in "$work"/*.out "$work"/*.err; do
			[ -s "$l" ] && sed "s/^/${l##*/}: /" "$l"
		done
		# A test may define state, which prints what a reader of a failure needs.
		! declare -F state >/dev/null || state
	elif ! all_live; then
		# The missing answer of a dead guest may have looked like an answer.
		echo "inconclusive: a lab has died" >&2
		status=75
	fi
	[ $status != 0 ] || [ -z "$shared" ] || tidy_up "$shared"
	# The next test gets this lab only if it is tidy. Otherwise it gets another one.
	[ -z "$shared" ] || [ $status$left = 00 ] || labs+=("$shared")
	# A kernel log that is not clean breaks the test, whatever the test itself says. A lab that did not come up has no log.
	for l in "${labs[@]}"; do
		! "$lab_tool" share --name "$l" >/dev/null 2>&1 || "$lab_tool" down --name "$l" || left=1
	done
	if [ $left != 0 ]; then
		echo "broken: a kernel log is not clean, or something is left: see above" >&2
		status=1
	fi
	rm -rf "$work"
	local left_ms=$((SECONDS * 1000 - spent[boot] - spent[wait] - spent[move]))
	echo "time: booted $((spent[boot] / 1000)) s, waited $((spent[wait] / 1000)) s, moved $((spent[move] / 1000)) s, did and checked $((left_ms / 1000)) s"
	exit $status
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
