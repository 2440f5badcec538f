# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # $build and $work are lib.sh's
#
# For the tests of the CRIU plugin, after lib.sh: criu-loop or traffic runs in guest h1, and CRIU dumps and restores it. Images
# and logs are in /tmp/img there.

within=() # start_loop: a command that runs criu-loop

# start_loop ARGS...: leaves criu-loop running; sets $pid
start_loop() {
	on h1 rm -f /tmp/progress
	# shellcheck disable=SC2016 # expanded in the guest
	pid=$(bg h1 sh -c 'exec "$@" /tmp/progress >/tmp/out 2>&1 </dev/null' \
		sh "${within[@]}" "$build/tests/criu-loop" "$@")
	wait_for 120 on h1 test -s /tmp/progress
	goes_on
}

# criu-loop sends and receives.
goes_on() {
	local progress
	progress=$(on h1 cat /tmp/progress)
	expect 60 went_on
}
went_on() { [ "$(on h1 cat /tmp/progress)" -ge $((progress + 20)) ]; } # (a condition for expect)

# For the reader of a failure.
state() {
	on h1 sh -c "grep -E '^(State|TracerPid|SigPnd|ShdPnd)' /proc/$pid/status; ps axfo pid,stat,wchan:20,args | grep -v ' \['
		tail -n 5 /tmp/out; godwit status; rdma resource show qp; rdma statistic
		tail -n 20 /tmp/img/dump.log; dmesg | tail -n 5"
}

# criu-loop does not send and receive. A stopped task would not either, so all its queue pairs must be stopped.
stands_still() {
	# shellcheck disable=SC2016
	on h1 bash -c 'n=$(cat /tmp/progress); sleep 1; [ "$(cat /tmp/progress)" = "$n" ]' || broken "loop goes on"
	# shellcheck disable=SC2016
	on h1 sh -c '[ "$(godwit status | grep -c STOPPED)" = "$(rdma resource show qp | grep -c criu-loop)" ]' ||
		broken "its contexts go on"
}

# criu-loop ends well, with all its objects destroyed, and leaves nothing.
end_loop() {
	on h1 kill "$pid"
	expect 120 on h1 grep '^done: ' /tmp/out
	nothing_left
}

# run NAME OPTIONS: leaves traffic running, with its output in /tmp/NAME; sets $pid
run() {
	# shellcheck disable=SC2016,SC2086 # expanded in the guest; words
	pid=$(bg h1 sh -c 'exec "$@" >/tmp/'"$1"' 2>&1 </dev/null' sh "$build/tests/traffic" --stall 100000 $2)
}
sent() { on h1 cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }
more() { [ "$(sent)" -gt $((before + 1000)) ]; } # (a condition for expect, after before=$(sent))

nothing_left() {
	expect 60 on h1 sh -c '! pgrep "criu-loop|traffic|godwit-watchdog" && rdma resource | grep "cq 1 qp 1 .* mr 0 ctx 0"'
}

dump() { # dump [OPTION...]
	on h1 sh -c 'rm -rf /tmp/img && mkdir /tmp/img'
	spend move on h1 criu dump -t "$pid" -D /tmp/img -o dump.log -v4 --timeout "$(seconds 60)" "$@"
}

# why_not dump|restore: the one line that says why it failed
why_not() {
	on h1 sh -c "grep Error /tmp/img/$1.log || tail -n 5 /tmp/img/$1.log" | paste -s -d '|'
}

environment=() # of restore, NAME=VALUE

restore() { # restore [OPTION...]
	spend move on h1 env "${environment[@]}" criu restore -d -D /tmp/img -o restore.log -v4 "$@"
}

# says WHAT TEXT: the plugin's one line about a failed dump or restore holds this text, and is the last line of CRIU's log
says() {
	on h1 cat /tmp/img/rdma-error >"$work/says" || broken "$1: no line"
	if [ "$(wc -l <"$work/says")" != 1 ] || ! grep -q -- "$2" "$work/says"; then
		broken "$1: $(cat "$work/says")"
	fi
	# shellcheck disable=SC2016 # expanded in the guest
	on h1 sh -c 'tail -n 1 "$(ls -t /tmp/img/*.log | head -n 1)"' >"$work/last"
	grep -qF "Error (rdma): $(cat "$work/says")" "$work/last" || broken "$1: CRIU's log ends with $(cat "$work/last")"
}
