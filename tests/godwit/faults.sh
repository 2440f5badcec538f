# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests in which a move fails. After move.sh.
# shellcheck disable=SC2154 # lib.sh and move.sh set some

# broken RULES: a move of $pid during which this happens (src/tap.c)
broken() {
	echo "== $1"
	# shellcheck disable=SC2016 # expanded in the guest
	on h1 bash -c 'rm -f /lab/rules*; printf "%b\n" "$1" >/lab/rules' bash "$1"
	migrate h1 "$pid" h2 --address "$extra" --ssh "$build/tests/tap /lab/rules ssh -o BatchMode=yes"
}

# at_home REGEX [CODE]: nothing was moved, one line says why; h2 has nothing; what moves is at h1, and goes_on
at_home() {
	stayed "${2:-3}" "$1"
	on h1 ip -br addr show eth0 | grep "$extra" >/dev/null
	if on h2 ip -br addr show eth0 | grep "$extra" >/dev/null; then fail "h2 has the address"; fi
	wait_for 20 ended h2 "$pid"
	wait_for 20 quiet h2
	wait_for 20 quiet h1 # (the guard of a killed CRIU ends when it has seen that all goes on)
	goes_on
}

# quiet HOST: nothing of a move is there (a condition for wait_for)
quiet() {
	[ -z "$(on "$1" sh -c 'ls /var/lib/godwit /run/godwit 2>/dev/null | grep -v :
		nft list tables; pgrep -l "criu|godwit"')" ]
}
