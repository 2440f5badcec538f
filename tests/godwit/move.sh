# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move a process from h1 to h2 while h3 is its peer. After ../lib.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh sets some, tests use others

extra=10.77.0.101 # an address of h1 that moves along

# The hosts of a lab, three if the test does not say, and a key that all share. Each host counts its processes from another
# number on: what moves finds its own free. Peers wait for longer than a move may take (migrate()). $first_number: if it is
# set, the devices of all hosts begin with it, and otherwise each somewhere.
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

# With the extra address at h1, and h1's TCP to h3 from that.
hosts_up() {
	cluster_up "$@"
	on h1 ip addr add $extra/24 dev eth0
	on h1 ip route add 10.77.0.3 dev eth0 src $extra
}

# quick_ssh [FROM [TO]]: between h1 and h2, or those, one ssh connection is opened for good (a new one takes its
# seconds on a busy guest), and what a move needs is read from disk before.
quick_ssh() {
	# shellcheck disable=SC2016 # expanded in the guest
	on "${1:-h1}" sh -c 'printf "ControlMaster auto\nControlPersist yes\nControlPath /run/ssh-%%h\n" >>/root/.ssh/config
		godwit check && ssh "$0" godwit check' "${2:-h2}"
}

# run HOST CMD...: leave it running there, the child of a shell that says "exit N" when it has ended, wherever
# that is; sets $pid, the shell's, and $out, the file with all that both say.
run_by=() # a command that runs both
run() {
	local host=$1
	shift
	# shellcheck disable=SC2016 # expanded in the guest
	pid=$(bg "$host" "${run_by[@]}" sh -c '"$@" </dev/null 2>&1; echo exit $?' sh "$@")
	out=/lab/bg/$host-$pid.out
}

# pair ROLE PORT SERVER CLIENT: run a server, that listens at this port, and its client, with the server's
# address behind; both are words. The one that is ROLE is to move, so it is at h1, the other at h3. Sets
# $mover, its process, and $outs, the server's and the client's output.
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

# For whoever reads why a test failed.
state() {
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

# packets HOST: that its device has received
packets() { on "$1" cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts; }

# ends_well OUT...: it does, within some minutes
ends_well() {
	local o bad="error|fail|couldn't"
	for o; do
		expect 300 seen "$o" '^exit '
		if seen "$o" '^exit 75$'; then inconclusive "exit 75: $o"; fi
		if ! on h3 grep -q '^exit 0$' "$o" || on h3 sh -c "grep -v 'errors=0' $o | grep -iE \"$bad\""; then
			# (one line; all of it comes with the state)
			broken "$(on h3 sh -c "grep -iE \"$bad|^exit\" $o" | paste -s -d '|')"
		fi
	done
}

# perftest_reports OUT: what it has measured
perftest_reports() {
	on h3 grep -A 1 '#bytes' "$1" | tail -n 1 | grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]+' || broken "no report: $(on h3 cat "$1")"
}

# migrate HOST PID TO [OPTION...]: sets $status, and $closing, the last line that godwit said
migrate() {
	local host=$1 p=$2 to=$3
	shift 3
	status=0
	spend move on "$host" timeout "$(seconds 240)" godwit migrate "$p" --to "$to" --verbose --limit "$(seconds 45)" "$@" \
		>"$work/migrate" 2>&1 || status=$?
	cat "$work/migrate"
	# (what it says and how it ends come by two ways, in any order; who is killed says nothing)
	closing=$(grep '^godwit: ' "$work/migrate" | grep -v '^godwit: warning' | tail -n 1) || true
	[ "$status" != 124 ] || broken "the move did not end within $(seconds 240) s"
	[ "$status" != 255 ] || all_live || inconclusive "a lab died during a move"
}

# when_frozen CMD...: in the background ($!), as soon as the next move says that its process is frozen
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

moved() { # the last one was, without a warning
	[ "$status" = 0 ] || broken "exit $status: $closing"
	[[ $closing = "godwit: moved "*" blackout "*" ms"* ]] || broken "no closing line: $closing"
}

# not_over OUT: of a program that ends by itself, and its output: it had not ended before it could be moved. Call it before moved.
not_over() {
	[[ $closing =~ "ended by itself"|"No such process" ]] || return 0
	if comes_true 10 seen "$1" '^exit 0$'; then inconclusive "it was over before it was moved"; fi
}

# stayed CODE REGEX: it was not moved, godwit ended so, and its last line holds this
stayed() {
	[ "$status" = "$1" ] || broken "exit $status, not $1: $closing"
	[[ $closing =~ $2 ]] || broken "it says: $closing"
	[ "$(grep -c '^godwit: .* was not moved' "$work/migrate")" = 1 ] || broken "not one line"
}

# of the last move
blackout_ms() { sed -n 's/.*blackout \([0-9]*\) ms.*/\1/p' <<<"$closing"; }

# The address is at h1 again, for the next one.
address_back() {
	on h2 ip addr del $extra/24 dev eth0
	on h1 ip addr add $extra/24 dev eth0
	on h1 ip route add 10.77.0.3 dev eth0 src $extra
	on h3 ip neigh flush to $extra
}

# nothing_left HOST...: of a move, or of RDMA objects
nothing_left() {
	local h
	for h; do expect 60 is_bare "$h"; done
}
is_bare() { # (a condition for wait_for; what is left there is shown when the test fails)
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -c "$list_left"'
		objects=$(rdma resource show)
		case $objects in *"pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0"*) ;; *) echo "$objects" ;; esac' >"$work/left-$1.out" &&
		[ ! -s "$work/left-$1.out" ]
}
# In a guest: names what is left of a move.
# shellcheck disable=SC2016 # expanded there
list_left='ls /var/lib/godwit /run/godwit 2>/dev/null | grep -v "^$\|:$"; nft list tables; pgrep -l "criu|godwit"; true'

# untouched HOST...: no queue pair there was ever stopped or paused, and no move knows of it
untouched() {
	local h
	for h; do
		on "$h" sh -c 'cat /sys/class/infiniband/rxe*/ports/1/hw_counters/sent_stop \
			/sys/class/infiniband/rxe*/ports/1/hw_counters/migr_pauses; godwit status' >"$work/touched"
		if grep -vx 0 "$work/touched"; then broken "$h: something was stopped"; fi
	done
}

# sends HOST: an RC QP there is ready to send (a condition for wait_for)
sends() {
	on "$1" sh -c "rdma -j resource show qp | jq -e 'any(.[]; .type == \"RC\" and .state == \"RTS\")'"
}

# gid_index HOST ADDRESS: which GID of rxe0 this IPv4 address is
gid_index() {
	local a b c d gid
	IFS=. read -r a b c d <<<"$2"
	gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d")
	on "$1" grep -l -r -x "$gid" /sys/class/infiniband/rxe0/ports/1/gids | sed 's/.*\///'
}
