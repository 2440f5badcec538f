# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests in which a move fails. After move.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, integrity.sh uses one

own_ssh="ssh -o BatchMode=yes"
along=(--address "$extra") # what goes along

# ride FROM TO RULES [OPTION...]: moves $pid while RULES are applied (programs/tap.c)
ride() {
	echo "== $1 to $2${about:+ ($about)}: $3"
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" bash -c 'rm -f /lab/rules*; printf "%b\n" "$1" >/lab/rules' bash "$3"
	migrate "$1" "$pid" "$2" "${along[@]}" --ssh "$build/tests/tap /lab/rules $own_ssh" "${@:4}"
	if grep '^tap: failed' "$work/migrate"; then inconclusive "the fault was not injected"; fi
}
ride_home() { ride h1 h2 "$@"; }

# power_off HOST: the host loses its power as soon as a guest runs /lab/ask, which then waits. (in the background)
power_off() {
	printf 'touch /lab/off; until [ -e /lab/off.done ]; do sleep 0.1; done\n' >"$share/ask"
	wait_for 240 test -e "$share/off"
	"$lab_tool" kill --name "$lab_default" "$1"
	touch "$share/off.done"
}

# ride_off HOST RULE: moves $pid to h2, and HOST loses its power where RULE runs a script, /lab/ask
ride_off() {
	local off share own_ssh
	share=$("$lab_tool" share --name "$lab_default")
	# With these options the source soon knows that h2 is off.
	own_ssh="ssh -o BatchMode=yes -o ControlPath=none -o ConnectTimeout=$(seconds 5)"
	own_ssh+=" -o ServerAliveInterval=$(seconds 2) -o ServerAliveCountMax=5"
	power_off "$1" &
	off=$!
	ride_home "$2"
	wait $off
	[ "$1" != h1 ] || [ "$status" = 255 ] || inconclusive "exit $status before h1 was off"
}

# holds HOST CMD...: the machine holds the guest once somebody runs /lab/hang, until CMD has ended (in the background)
holds() {
	local guest
	wait_for 240 test -e "$share/hangs"
	guest=$(cat "$(dirname "$share")/$1.pid")
	# shellcheck disable=SC2064 # the value of now
	trap "kill -CONT $guest; rm \"$share/hangs\"" EXIT
	kill -STOP "$guest"
	touch "$share/hung"
	"${@:2}"
}

# hangs HOST RULES CMD...: moves $pid to h2, and HOST hangs from when RULES run /lab/hang, which then waits, until CMD has ended. (A
# host that runs it itself hangs there.)
hangs() {
	local share person
	share=$("$lab_tool" share --name "$lab_default")
	printf 'touch /lab/hangs; until [ -e /lab/hung ]; do sleep 0.1; done\n' >"$share/hang"
	rm -f "$share/hung"
	holds "$1" "${@:3}" &
	person=$!
	ride_home "$2"
	wait $person
}

# damaged FILE CMD [OPTION...]: moves $pid. CMD is run in the directory of the images at h2, after FILE was received, checked and
# closed, and before criu is told to read it.
damaged() {
	ride_home "to\\t\"op\":\"restore\"\\tssh h2 'cd /var/lib/godwit/* && until [ -e $1 ] && ! ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q $1\$; do sleep 0.1; done; $2' </dev/null" "${@:3}"
}

# settle HOST WORD: settles the only move there
settle() {
	local id
	id=$(on "$1" godwit status | sed -n 's/^move \([^ ]*\) .*/\1/p')
	on "$1" godwit settle "$id" "$2"
}

# stopped HOST: the two queue pairs of $pid are stopped there, and those of h3 wait for them
stopped() {
	if runs "$1"; then broken "it runs at $1"; fi
	in_state "$1" STOPPED
	in_state h3 PAUSED
}
in_state() { # in_state HOST STATE: both queue pairs there are
	local qps
	qps=$(on "$1" godwit status)
	[ "$(grep -c "state $2" <<<"$qps")" = 2 ] || broken "$1: not $2: $qps"
}

# A rule of nft that counts packets to queue pairs of h3. said_nothing HOST TABLE...: these tables have counted none
counts="ip daddr 10.77.0.3 udp dport 4791 counter"
said_nothing() {
	local table
	table=$(on "$1" nft list table "${@:2}")
	[[ $table = *"counter packets 0 "* ]] || broken "what is held at $1 says something: $table"
}

# runs HOST: $pid runs there, and is not stopped (a condition for wait_for)
runs() {
	on "$1" sh -c "grep -q 'State:.*[RSD] (' /proc/$pid/status"
}

# goes_on [wait_for]: the traffic of integrity.sh goes on. wait_for: it has only just begun
# shellcheck disable=SC2120 # tests do
goes_on() {
	local before
	before=$(packets h3)
	"${1:-expect}" 60 flows
	unbroken
}

# at_home REGEX [CODE]: nothing was moved, and one line says why; nothing is left at h2; the process is at h1, and goes_on
at_home() {
	stayed "${2:-3}" "$1"
	on h1 ip -br addr show eth0 | grep "$extra" >/dev/null
	if on h2 ip -br addr show eth0 | grep "$extra" >/dev/null; then broken "h2 has the address"; fi
	expect 60 ended h2 "$pid"
	expect 60 quiet h2
	expect 60 quiet h1 # the watchdog of a killed CRIU ends when it has seen that all goes on
	goes_on
}

# quiet HOST: nothing of a move is left there (a condition for wait_for)
quiet() {
	on "$1" sh -c "$list_left" >"$work/left-$1.out" && [ ! -s "$work/left-$1.out" ]
}
