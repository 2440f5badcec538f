# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests of remote memory. After ../lib.sh and ../move.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, tests use others

settings="headroom = 16M" # of [donor]
declare -A quota=()       # of clients

# clients_are NAME...: makes a key for each, and names all in rmemd.conf on all hosts. (Not in /lab: its files may belong to
# another user, whose keys are refused.)
clients_are() {
	local name k
	share=$("$lab_tool" share --name "$lab_default")
	{
		printf '[donor]\n%s\n' "$settings"
		for name; do
			printf '[client %s]\nkey = /root/%s.key\n' "$name" "$name"
			[ -z "${quota[$name]:-}" ] || echo "quota = ${quota[$name]}"
		done
	} >"$share/rmemd.conf"
	for name; do { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' && echo; } >"$share/$name.key"; done
	for ((k = 1; k <= lab_size; k++)); do
		on h$k sh -c 'umask 077 && mkdir -p /run/rmemd && cp /lab/rmemd.conf /lab/*.key /root/'
	done
}

# shellcheck disable=SC2016 # expanded in the guest
made_first='rmemd=$1 && until [ "$1" = --persist ]; do shift; done
	[ -e "$2/index.json" ] || "$rmemd" --init --config /root/rmemd.conf --persist "$2"'
# donor HOST [OPTION...]: makes its folder if it has none, and runs rmemd there, which listens. Sets $donor, the process of its shell (run), and $donor_out.
donor() {
	case " ${*:2} " in *" --persist "*) on "$1" sh -c "$made_first" sh "$build/rmemd" "${@:2}" ;; esac
	run "$1" "$build/rmemd" --config /root/rmemd.conf "${@:2}"
	donor=$pid donor_out=$out
	"${need:-wait_for}" 60 listening "$1" 7471
}

# donor_gets SIGNAL HOST
donor_gets() { on "$2" pkill "-$1" -P "$donor"; }

# restarted HOST SIGNAL [OPTION...]: sends the donor there the signal, and starts it again
restarted() {
	donor_gets "$2" "$1"
	expect 60 seen "$donor_out" '^exit '
	[ "$2" != TERM ] || finished "$donor_out" 0
	need=expect donor "$1" "${@:3}"
}

# look_at_donor HOST: sets donor_now: how many descriptors rmemd has, and its memory in kB: what is pinned for the device, its own,
# and that of regions. (The last two are summed page by page, since the counters behind VmRSS may be 200 kB off.)
look_at_donor() {
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -c 'cd "/proc/$(pgrep -P "$0")" && ls fd | wc -l && cat status smaps_rollup |
		sed -n "s/^\(VmPin\|Pss_Anon\|Pss_Shmem\):[^0-9]*\([0-9]*\) kB$/\2/p"' "$donor" >"$work/donor.out"
	mapfile -t donor_now <"$work/donor.out"
	[ ${#donor_now[@]} = 4 ]
}
# remember_donor HOST: after a first client, which makes rmemd open the device. donor_as_before HOST: it has no more than then (a
# condition for wait_for). malloc keeps some of the memory that is free: up to 900 kB in a model of 100000 messages of rmem-stray,
# so 2 MiB are allowed. The short form of rmem/002 still finds buffers of connections that stay behind, 260 kB each, and its full
# form also 20 bytes of each message.
donor_keeps=2048
remember_donor() {
	look_at_donor "$1"
	donor_before=("${donor_now[@]}")
}
donor_as_before() {
	look_at_donor "$1" && [ "${donor_now[0]}" = "${donor_before[0]}" ] && [ "${donor_now[1]}" -le "${donor_before[1]}" ] &&
		[ "${donor_now[2]}" -le $((donor_before[2] + donor_keeps)) ] && [ "${donor_now[3]}" -le "${donor_before[3]}" ]
}

# load HOST NAME [OPTION...]: runs rmem-load there as this client, connected to the donor at $at. Sets $pid and $out.
load() {
	run "$1" "$build/tests/rmem-load" --host "$at" --client "$2" --key "/root/$2.key" \
		--timeout "$(seconds 120)000" "${@:3}"
	# before that line a signal would end rmem-load
	"${need:-wait_for}" 60 seen "$out" '^rmem-load: connected\|^exit '
}

# rmem_says OPTION...: the output of rmem-says at h1, without an input, connected to the donor at h2
rmem_says() { on h1 "$build/tests/rmem-says" --host h2 "$@" </dev/null 2>&1 || true; }

# speaker HOST NAME [OPTION...]: runs rmem-says there as this client, connected to the donor at $at
declare -A speaks=() speaks_at=() asked=()
speaker() {
	# shellcheck disable=SC2016 # expanded in the guest
	run "$1" sh -c 'rm -f "/run/$0" && mkfifo "/run/$0" && exec "$@" <>"/run/$0"' "$2" \
		"$build/tests/rmem-says" --host "$at" --client "$2" --key "/root/$2.key" "${@:3}"
	speaks[$2]=$out speaks_at[$2]=$1 asked[$2]=0
	"${need:-wait_for}" 60 seen "$out" '^rmem-says: connected\|^exit '
}

# ask NAME COMMAND: the client does this. answers NAME REGEX: the last command has this result
ask() {
	asked[$1]=$((asked[$1] + 1))
	on "${speaks_at[$1]}" sh -c "echo '${*:2}' >/run/$1"
}
answers() {
	expect 120 seen "${speaks[$1]}" "^${asked[$1]} "
	seen "${speaks[$1]}" "^${asked[$1]} .*: $2\$" ||
		broken "$1: $(grep -A 1 "^${asked[$1]} " "$(here "${speaks[$1]}")" | paste -s -d ' '), not $2"
}
asks() { # asks NAME COMMAND REGEX: both
	ask "$1" "$2"
	answers "$1" "$3"
}

# here FILE: the path on the machine of a file in the guests' /lab
here() { echo "$share${1#/lab}"; }

# tell SIGNAL OUT: sends it to the program that run has started and that has this output
tell() {
	local of=${2##*/}
	of=${of%.out}
	on "${of%-*}" pkill "-$1" -P "${of#*-}"
}

# operations OUT: how many a load had done at its last report
operations() {
	local n
	n=$(sed -n 's/^[a-z-]*: \([0-9]*\) operations so far$/\1/p' "$(here "$1")" | tail -n 1)
	echo "${n:-0}"
}

# did OUT N: the load has done N operations, and goes on (a condition for wait_for, which ends when the load has ended)
did() {
	if seen "$1" '^exit '; then broken "a load has ended: $(tail -n 3 "$(here "$1")" | paste -s -d '|')"; fi
	tell USR1 "$1" && [ "$(operations "$1")" -ge "$2" ]
}

# reports OUT: how many reports a load has made. has_reported OUT N: N or more (a condition; broken when the load has ended)
reports() { grep -c '^[a-z-]*: [0-9]* operations so far$' "$(here "$1")"; }
has_reported() {
	if seen "$1" '^exit '; then broken "a load has ended: $(tail -n 3 "$(here "$1")" | paste -s -d '|')"; fi
	[ "$(reports "$1")" -ge "$2" ]
}

# serves OUT...: each of these loads does more operations than it has done by now
serves() {
	local o before lines
	for o; do
		lines=$(reports "$o") || true
		tell USR1 "$o" || true
		"${need:-expect}" 120 has_reported "$o" $((lines + 1))
		before=$(operations "$o")
		"${need:-expect}" 120 did "$o" $((before + 30))
	done
}

# finished OUT STATUS: it ends within some minutes, with this status
finished() {
	expect 300 seen "$1" '^exit '
	seen "$1" "^exit $2\$" || broken "not exit $2: $(tail -n 3 "$(here "$1")" | paste -s -d '|')"
}

# all_end LINE OUT...: each program with this output is told to end, and ends with such a line
all_end() {
	local o
	for o in "${@:2}"; do tell TERM "$o" || true; done
	for o in "${@:2}"; do
		finished "$o" 0
		grep "$1" "$(here "$o")" || broken "no last line: $o"
	done
}
# all_exact OUT...: each load is told to end. All bytes were right, and each transaction took place once
all_exact() {
	local o
	all_end ' commits, .* all as the model says$' "$@"
	for o; do if grep -q ' 0 commits, ' "$(here "$o")"; then inconclusive "nothing was committed"; fi; done
}

# available HOST: bytes of memory that the host has left, as the kernel says
available() { echo $(($(on "$1" sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo) * 1024)); }
# hog HOST BYTES: takes so much of the host's memory, until hog_ends HOST
hog() { on "$1" sh -c "mkdir /root/hog && mount -t tmpfs -o size=90% hog /root/hog && fallocate -l $2 /root/hog/file"; }
hog_ends() { on "$1" sh -c 'umount /root/hog && rmdir /root/hog'; }

# donor_ends HOST: by SIGTERM, with 0
donor_ends() {
	donor_gets TERM "$1"
	finished "$donor_out" 0
}

# For the reader of a failure (in place of the one of move.sh).
state() {
	local k
	tail -n 20 "$share"/bg/*.out
	for ((k = 1; k <= lab_size; k++)); do
		on h$k sh -c "echo == h$k; timeout 10 $build/rmemctl status; godwit status
			rdma resource show qp; ip -br addr; dmesg | tail -n 5"
	done
}
