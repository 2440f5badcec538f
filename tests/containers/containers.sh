# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests with containers of podman's. After ../lib.sh, and ../godwit/move.sh if they move.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, tests use others

# podman_at HOST ARGUMENT...: runs podman there; a podman that is stuck ends by a wide limit
podman_at() { on "$1" timeout "$(seconds 120)" podman "${@:2}"; }

restore_failed() { # restore_failed HOST
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -c 'tail -n 20 $(find /var/lib/containers -name restore.log)'
	broken "it was not restored"
}

# answered HOST: all peers of the four connections that have moved there have answered (a condition for wait_for)
answered() { on "$1" godwit status | grep -x '4 of 4 peers answered'; }

# ---- docs/CONTAINERS.md: a container in a network namespace with a device, both of its own ----

# as_printed HOST BLOCK [SED-ARGUMENT...]: runs there the commands that the page has under this name, changed by sed
as_printed() {
	local script
	script=$(sed -n "/^\`\`\`sh $2\$/,/^\`\`\`\$/p" "$top/docs/CONTAINERS.md" | sed -e '/^```/d' -e 's|/shared/|/lab/|' "${@:3}")
	[ -n "$script" ] || broken "docs/CONTAINERS.md has no $2"
	on "$1" timeout "$(seconds 240)" sh -exc "$script"
}

# contained_hosts: boots hosts that can run containers, with traffic in the image, and makes the namespace at h1 and h3
peer_at=(-e 's/10\.78\.0\.1/10.78.0.3/' -e 's/:01 /:03 /')
contained_hosts() {
	local h
	# The lab belongs to one test, since containers leave more in a kernel than modules and files.
	cluster_up --hosts 3
	for h in h1 h2 h3; do
		on $h modprobe macvlan
		on $h "$top/tests/containers/prepare" "$build/tests/traffic"
	done
	as_printed h1 namespace
	as_printed h3 namespace "${peer_at[@]}"
}

stall=90 # seconds after which traffic gives up
# contained HOST RUNTIME WITH ARGUMENT...: runs traffic in a container there; WITH has more words for podman run
contained() {
	as_printed "$1" run -e "s|^podman run|podman --runtime $2 run $3|" \
		-e "s|IMAGE COMMAND|localhost/rdma traffic --stall $(seconds "$stall") ${*:4}|"
}
packets_inside() { on h3 cat /sys/class/infiniband/rxe1/ports/1/hw_counters/rcvd_pkts; }
flows_inside() { [ "$(packets_inside)" -gt $((before + 200)) ]; } # (a condition for wait_for)
goes_on_inside() {
	local before
	before=$(packets_inside)
	expect 60 flows_inside
}

# talk RUNTIME [WITH]: the container web at h1 talks to one at h3; a test may choose other options
client_options="--qps 4 --size 16K --timeout 16 --retry-cnt 1 --rnr-retry 1" server_options=
talk() {
	local before
	# shellcheck disable=SC2086 # words
	contained h3 "$1" "" $server_options
	wait_for 60 on h3 ip netns exec web sh -c 'ss -Htln "sport = :18600" | grep -q .'
	before=$(packets_inside)
	# shellcheck disable=SC2086
	contained h1 "$1" "${2:-}" $client_options 10.78.0.3
	wait_for 60 flows_inside
}

# exact_inside TOLD OTHER: both ends, at these hosts, have got each message once. The first end is told to end. podman forgets
# both.
exact_inside() {
	local h
	podman_at "$1" kill --signal INT web
	for h; do
		[ "$(podman_at "$h" wait web)" = 0 ] || broken "$(podman_at "$h" logs web)"
		podman_at "$h" logs web | grep '^result=exact' || broken "$(podman_at "$h" logs web)"
		podman_at "$h" rm web
	done
}

# For the reader of a failure (in place of the one of move.sh).
state() {
	local h
	on h3 sh -c 'tail -n 30 /lab/bg/*.out'
	for h in h1 h2 h3; do
		on $h sh -c "echo == $h; podman ps --all; podman logs --tail 20 web; ip netns; godwit status; rdma link
			rdma resource show qp; dmesg | tail -n 5
			find /var/lib/containers \\( -name dump.log -o -name restore.log \\) -exec tail -n 20 {} +"
	done
}
