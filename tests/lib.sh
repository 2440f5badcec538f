# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# For tests: `. "$(dirname "$0")/../lib.sh"`. docs/TESTING.md says how to write one. It ends with
#    0  held: its last line is reached, and its labs' kernel logs are clean
#    1  broken: an oracle said no. Every command that fails and is not asked about is one.
#   75  inconclusive: what the test needed before it could ask its question did not come about
#   77  skipped
set -Eeuo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck disable=SC2034 # for tests: where built things are, here and in guests
build=$top/build
lab_tool=$top/tests/vm/lab
# (without a test's name behind its number: the path of a lab's sockets has little room)
lab_default=$(realpath "$0" | sed -E 's|.*/([^/]*)/([^/]*)$|\1-\2|; s/([0-9]{3})-.*/\1/')-$$
labs=()
work=$(mktemp -d)
exec {said}>&1 {told}>&2

verdict() { # verdict STATUS WORD TEXT: a line that tests/check reads
	local lines=("${BASH_LINENO[@]:1:${#BASH_LINENO[@]}-2}")
	# (whatever the command's output goes to that is asked about)
	echo "$2: $3 (${about:+$about, }lines ${lines[*]})" >&"$told"
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

# A command that fails, and ends the test, says so too. 75: a program that could not ask its question. (124: timeout's, whose
# limits are wide: what they end is stuck.)
failed() { # failed STATUS COMMAND LINES
	local word=broken status=1
	if [ "$1" = 75 ] || ! all_live || { [ "$1" = 255 ] && dies; }; then word=inconclusive status=75; fi
	echo "$word: exit $1: $2 (${about:+$about, }lines $3)" >&"$told"
	exit $status
}
ended_with=0
trap 'ended_with=$?; [ "$BASHPID" != $$ ] || failed $ended_with "$BASH_COMMAND" "$LINENO ${BASH_LINENO[*]}"' ERR

# $about, if set, is said with whatever fails: the seed, say, that makes it fail again.

# The machine itself need not have it.
jq() { "$top/tests/vm/in-tree" jq "$@"; }

# In make check a test takes its shortest form that can still fail for the right reason: `if short; then ...`.
short() { [ "${CHECK_SUITE:-all}" = gate ]; }

# How patient a test is, in percent: the runner says how slow the machine is, and more when it repeats a test.
patience=${CHECK_PATIENCE:-100}
seconds() { echo $((($1 * patience + 99) / 100)); } # seconds N: as this machine has them; for timeout(1), and options of programs

# What a test's time goes to, in milliseconds. (That of subshells is lost.)
declare -A spent=([boot]=0 [wait]=0 [move]=0)
now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
# (names of their own: what is run here may be a function that uses its test's)
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

# comes_true SECONDS CMD...: try it again until it succeeds; 1 when it did not within this time, as guests have it.
slow=1 # how much faster the machine's passes: lab up's --slow
[ -z "${LAB_OPTIONS:-}" ] || slow=10
comes_true() {
	local wait_end=$((SECONDS + $(seconds "$1") * slow)) wait_pause=1
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $wait_end ] || return 1
		sleep 0.$wait_pause # (a look costs an emulated guest its time)
		[ $wait_pause = 3 ] || wait_pause=$((wait_pause + 1))
	done
}

# wait_for SECONDS CMD...: what a test needs before it can ask its question.
wait_for() {
	spend wait comes_true "$@" || inconclusive "did not come about within $(seconds "$1") s: ${*:2}"
}

# expect SECONDS CMD...: what the product promises. The limit is a wide one, which no slowness of a machine explains.
expect() {
	spend wait comes_true "$@" || broken "not true within $(seconds "$1") s: ${*:2}"
}

# seen FILE GREP-ARG...: this file of the guests' /lab has such a line (a condition for wait_for that asks no guest)
seen() {
	grep -q "${@:2}" "$("$lab_tool" share --name "${lab:-$lab_default}")${1#/lab}"
}

# lab_up [OPTION...]: boot a lab that ends with this test. More than one: --name NAME and lab=NAME. All labs
# have $LAB_OPTIONS: make check-debug sets them.
#
# A test's line "# Lab: HOSTS [OPTION...]" says what its lab is; what lab_up is given is more. Without that the lab is up
# already if the runner has had a test of the kind: what a test leaves there is looked for when it ends, and the next has it.
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

# dies: a lab does, whose guest could not be asked. (Its sockets go before the lock that says that it lives.)
dies() {
	local i
	for ((i = 0; i < 20; i++)); do
		all_live || return 0
		sleep 0.1
	done
	return 1
}
all_live() { # the labs of this test are; a guest that the test has killed is not missed
	local l
	for l in "${labs[@]}" $shared; do "$lab_tool" live --name "$l" || return 1; done
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

# reload HOST [PARAMETER...]: the module is loaded anew there, with these, and rxe0 is another. The key and other parameters go,
# but $trust, by which a key is not needed.
trust=allow_unsigned=Y
reload() {
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -ec 'top=$0
		for w in $(cat /proc/cmdline); do case $w in lab_module=*) module=${w#*=} ;; esac; done
		rmmod rdma_rxe
		insmod "$top/$module" "$@"
		rdma link add rxe0 type rxe netdev eth0' "$top" $trust "${@:2}"
}

# listening HOST PORT: somebody does (a condition for wait_for)
listening() {
	on "$1" sh -c "ss -Htln 'sport = :$2' | grep -q ."
}

# ended HOST PID: it has (a condition for wait_for)
ended() {
	on "$1" sh -c "! kill -0 $2 2>/dev/null"
}

# tidy_up NAME: what it says of a lab that is left to the next test
tidy_up() {
	"$lab_tool" tidy --name "$1" && return
	if [ $? = 75 ]; then status=75; else left=1; fi
}

clean_up() {
	local status=$? l left=0
	trap - EXIT ERR
	trap '' INT TERM
	set +e
	# (a signal may come in a function whose output goes into one of the files that are shown here)
	exec 1>&"$said" 2>&"$told"
	if [ $status != 0 ] && [ $status != 77 ]; then
		for l in "$work"/*.out "$work"/*.err; do
			[ -s "$l" ] && sed "s/^/${l##*/}: /" "$l"
		done
		# what else a test wants its reader to see
		! declare -F state >/dev/null || state
	elif ! all_live; then
		# (what a guest did not answer may have passed for an answer)
		echo "inconclusive: a lab has died" >&2
		status=75
	fi
	[ $status != 0 ] || [ -z "$shared" ] || tidy_up "$shared"
	# The next one gets it as it was, or another.
	[ -z "$shared" ] || [ $status$left = 00 ] || labs+=("$shared")
	# A kernel log that is not clean is an oracle, whatever the test says. (A lab that did not come up is not there.)
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
