# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move a process from h1 to h2 while h3 is its peer. After ../lib.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh sets some, tests use others

extra=10.77.0.101 # an address of h1 that moves along

# Boots the hosts of a lab, three if the test does not say, and gives all the same key. Each host begins its process numbers at
# another place, so that a moving process finds its own number free. Peers wait for longer than a move may take (migrate()). If
# $first_number is set, the devices of all hosts begin with it. Otherwise each begins at random.
first_number=
cluster_up() {
	lab_up "$@"
	on h1 godwit key generate /lab/key
	local k
	for ((k = 1; k <= lab_size; k++)); do
		[ -z "$first_number" ] || reload h$k "first_number=$first_number"
		on h$k sh -c "godwit key set /lab/key && echo $((k * 8000)) >/proc/sys/kernel/ns_last_pid &&
			echo $(seconds 60) >/sys/module/rdma_rxe/parameters/pause_timeout"
	done
}

# h1 has the extra address, and uses it for TCP to h3.
hosts_up() {
	cluster_up "$@"
	on h1 ip addr add $extra/24 dev eth0
	on h1 ip route add 10.77.0.3 dev eth0 src $extra
}

# quick_ssh [FROM [TO]]: opens one ssh connection between h1 and h2, or these hosts, for the whole test, since a new one takes
# seconds on a busy guest. It also reads from disk what a move needs.
quick_ssh() {
	# shellcheck disable=SC2016 # expanded in the guest
	on "${1:-h1}" sh -c 'printf "ControlMaster auto\nControlPersist yes\nControlPath /run/ssh-%%h\n" >>/root/.ssh/config
		godwit check && ssh "$0" godwit check' "${2:-h2}"
}

# run HOST CMD...: starts CMD there and leaves it running, as the child of a shell that says "exit N" when CMD has ended, wherever
# that is. Sets $pid, the shell's process, and $out, the file with the output of both.
run_by=() # words before that shell's own, for example setpriv and its options
run() {
	local host=$1
	shift
	# shellcheck disable=SC2016 # expanded in the guest
	pid=$(bg "$host" "${run_by[@]}" sh -c '"$@" </dev/null 2>&1; echo exit $?' sh "$@")
	out=/lab/bg/$host-$pid.out
}

# pair ROLE PORT SERVER CLIENT: runs the command SERVER, which listens at PORT, and the command CLIENT with the server's address
# added. ROLE (server or client) is the end that is to move: it is at h1, and the other end is at h3. Sets $mover, the moving
# process, and $outs, the output of server and client.
pair() {
	local server=h3 client=h1 address=h3 process
	[ "$1" = client ] || { server=h1 client=h3 address=$extra; }
	# shellcheck disable=SC2086 # words
	run $server $3
	process=$pid outs=$out
	wait_for 60 listening $server "$2"
	# shellcheck disable=SC2086
	run $client $4 $address
	mover=$pid outs+=" $out"
	[ "$1" = client ] || mover=$process
}

# For the reader of a failure.
state() { hosts_state; }
hosts_state() {
	local h
	on h3 sh -c 'tail -n 30 /lab/bg/*.out'
	for h in h1 h2 h3; do
		on $h sh -c "echo == $h; godwit status; rdma resource show qp; rdma statistic; ip -br addr; dmesg | tail -n 5"
	done
}

# tcp_goes_on [wait_for]: the numbers of tcp_count (src/tcp_count.c) go on coming to h3
tcp_goes_on() {
	local before
	before=$(tcp_received)
	"${1:-expect}" 60 tcp_received_more
}
tcp_received() { on h3 ss -Htni sport = :7000 | sed -n 's/.*bytes_received:\([0-9]*\).*/\1/p'; }
tcp_received_more() { [ "$(tcp_received | grep .)" -gt "${before:-0}" ]; } # (a condition for wait_for)

# packets HOST: how many packets its device has received
packets() { on "$1" cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts; }

# packets_come HOST [N]: N packets more come there
packets_come() {
	local before
	before=$(packets "$1")
	wait_for 120 have_come "$1" "${2:-1000}"
}
have_come() { [ "$(packets "$1")" -gt $((before + $2)) ]; } # (a condition for wait_for)

# ends_well OUT...: the programs with this output end with 0 and report no error, within some minutes
ends_well() {
	local o bad="error|fail|couldn't"
	for o; do
		expect 300 seen "$o" '^exit '
		if seen "$o" '^exit 75$'; then inconclusive "exit 75: $o"; fi
		if ! on h3 grep -q '^exit 0$' "$o" || on h3 sh -c "grep -v 'errors=0' $o | grep -iE \"$bad\""; then
			# one line; state prints the rest
			broken "$(on h3 sh -c "grep -iE \"$bad|^exit\" $o" | paste -s -d '|')"
		fi
	done
}

# perftest_reports OUT: perftest has printed its measurement
perftest_reports() {
	on h3 grep -A 1 '#bytes' "$1" | tail -n 1 | grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]+' || broken "no report: $(on h3 cat "$1")"
}

# migrate HOST PID TO [OPTION...]: sets $status, and $closing, the last line that godwit printed
migrate() {
	local host=$1 p=$2 to=$3
	shift 3
	status=0
	spend move on "$host" timeout "$(seconds 240)" godwit migrate "$p" --to "$to" --verbose --limit "$(seconds 45)" "$@" \
		>"$work/migrate" 2>&1 || status=$?
	cat "$work/migrate"
	# The output and the exit status arrive by two ways, in any order. A killed godwit prints nothing.
	closing=$(grep '^godwit: ' "$work/migrate" | grep -v '^godwit: warning' | tail -n 1) || true
	[ "$status" != 124 ] || broken "the move did not end within $(seconds 240) s"
	[ "$status" != 255 ] || all_live || inconclusive "a lab died during a move"
}

# when_frozen CMD...: runs CMD in the background ($!), as soon as the next move says that its process is frozen
when_frozen() {
	rm -f "$work/migrate"
	{
		until grep -q '^ *freeze ' "$work/migrate" 2>/dev/null; do
			kill -0 $$ || exit
			sleep 0.1
		done
		"$@"
	} &
}

moved() { # the last move succeeded, without a warning
	[ "$status" = 0 ] || broken "exit $status: $closing"
	[[ $closing = "godwit: moved "*" blackout "*" ms"* ]] || broken "no closing line: $closing"
}

# not_over OUT: OUT is the output of a program that ends by itself; it had not ended before it could be moved. Call it before
# moved.
not_over() {
	[[ $closing =~ "ended by itself"|"No such process" ]] || return 0
	if comes_true 10 seen "$1" '^exit 0$'; then inconclusive "it was over before it was moved"; fi
}

# stayed CODE REGEX: the process was not moved, godwit ended with CODE, and its last line holds REGEX
stayed() {
	[ "$status" = "$1" ] || broken "exit $status, not $1: $closing"
	[[ $closing =~ $2 ]] || broken "it says: $closing"
	[ "$(grep -c '^godwit: .* was not moved' "$work/migrate")" = 1 ] || broken "not one line"
}

# numbers of the last move
blackout_ms() { sed -n 's/.*blackout \([0-9]*\) ms.*/\1/p' <<<"$closing"; }

# The address is at h1 again, for the next move.
address_back() {
	on h2 ip addr del $extra/24 dev eth0
	on h1 ip addr add $extra/24 dev eth0
	on h1 ip route add 10.77.0.3 dev eth0 src $extra
	on h3 ip neigh flush to $extra
}

# nothing_left HOST...: nothing of a move is left there, and no RDMA object
nothing_left() {
	local h
	for h; do expect 60 is_bare "$h"; done
}
is_bare() { # a condition for wait_for; a failing test shows what is left there
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -c "$list_left"'
		objects=$(rdma resource show)
		case $objects in *"pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0"*) ;; *) echo "$objects" ;; esac' >"$work/left-$1.out" &&
		[ ! -s "$work/left-$1.out" ]
}
# In a guest: prints what is left of a move.
# shellcheck disable=SC2016 # expanded there
list_left='ls /var/lib/godwit /run/godwit 2>/dev/null | grep -v "^$\|:$"; nft list tables; pgrep -l "criu|godwit"; true'

# untouched HOST...: no queue pair there was ever stopped or paused, and there is no record of a move
untouched() {
	local h
	for h; do
		on "$h" sh -c 'cat /sys/class/infiniband/rxe*/ports/1/hw_counters/sent_stop \
			/sys/class/infiniband/rxe*/ports/1/hw_counters/migr_pauses; godwit status' >"$work/touched"
		if grep -vx 0 "$work/touched"; then broken "$h: something was stopped"; fi
	done
}

# stops: prints how often queue pairs of h1 and h2 were ever stopped or paused
stops() {
	local h
	for h in h1 h2; do
		on $h sh -c 'cd /sys/class/infiniband && grep . rxe*/ports/1/hw_counters/sent_stop rxe*/ports/1/hw_counters/migr_pauses'
	done
}
# stays TEXT PID [OPTION...]: the move of this process is refused, and nothing is stopped
stays() {
	local text=$1 p=$2
	shift 2
	stops >"$work/stops"
	migrate h1 "$p" h2 "$@"
	stayed 2 "$text"
	stops | diff "$work/stops" - || broken "something was stopped"
}

# sends HOST: an RC QP there is ready to send (a condition for wait_for)
sends() {
	on "$1" sh -c "rdma -j resource show qp | jq -e 'any(.[]; .type == \"RC\" and .state == \"RTS\")'"
}

# gid_index HOST ADDRESS: the index of this IPv4 address among the GIDs of rxe0
gid_index() {
	local a b c d gid
	IFS=. read -r a b c d <<<"$2"
	gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d")
	on "$1" grep -l -r -x "$gid" /sys/class/infiniband/rxe0/ports/1/gids | sed 's/.*\///'
}
