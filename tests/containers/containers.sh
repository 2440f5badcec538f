# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests with containers of podman's. After ../lib.sh, and ../move.sh if they move.
# shellcheck disable=SC2034,SC2120,SC2154 # lib.sh and move.sh set some, tests use others, or pass arguments

# podman_at HOST ARGUMENT...: runs podman there; a wide limit ends a podman that is stuck
podman_at() { on "$1" timeout "$(seconds 120)" podman "${@:2}"; }

restore_failed() { # restore_failed HOST
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -c 'tail -n 20 $(find /var/lib/containers -name restore.log)'
	broken "it was not restored"
}

# starts HOST: how often podman there has started the container web, or started it again.
starts() {
	podman_at "$1" events --stream=false --since 24h --filter event=start --filter event=restart --format '{{.Name}}' | grep -c web || true
}

# answered HOST: all peers of the four connections that have moved there have answered (a condition for wait_for)
answered() { on "$1" godwit status | grep -x '4 of 4 peers answered'; }

# ---- docs/CONTAINERS.md: a container in a network namespace with a device, both of its own ----

# printed BLOCK: the commands that the page has under this name
printed() {
	local script
	script=$(sed -n "/^\`\`\`sh $1\$/,/^\`\`\`\$/p" "$top/docs/CONTAINERS.md" | sed '/^```/d')
	[ -n "$script" ] || broken "docs/CONTAINERS.md has no $1"
	echo "$script"
}
# as_printed HOST BLOCK [SED-ARGUMENT...]: runs them there, changed by sed
as_printed() {
	local script
	script=$(printed "$2")
	script=$(sed -e 's|/shared/|/lab/|' "${@:3}" <<<"$script")
	on "$1" timeout "$(seconds 240)" sh -exc "$script"
}

# prepared HOST: it can run containers, and has their image, with traffic and cm-talk
prepared() {
	local files
	files=$("$lab_tool" share --name "$lab_default")/root.tar
	# An emulated guest would need ten seconds and more to make these files.
	# shellcheck disable=SC2016 # expanded in the tree
	[ -e "$files" ] || "$top/tests/vm/in-tree" sh -ec 'root=$(mktemp -d)
		"$0/tests/containers/root" "$root" "$0"/build/tests/traffic "$0"/build/tests/cm-talk
		tar -C "$root" -c .; rm -r "$root"' "$top" >"$files"
	on "$1" "$top/tests/containers/prepare" /lab/root.tar
}

# contained_hosts [LAB-OPTION...]: boots hosts that can run containers, with traffic and cm-talk in the image, and makes the namespace at h1 and
# h3. If the hosts have disks, podman at h1 and h2 has its containers there.
peer_at=(-e 's/10\.78\.0\.1/10.78.0.3/' -e 's/:01 /:03 /')
contained_hosts() {
	local h
	# The lab belongs to one test, since containers leave more in a kernel than modules and files.
	cluster_up --hosts 3 "$@"
	for h in h1 h2 h3; do on $h modprobe -a macvlan ipvlan veth bridge 8021q; done
	[[ $* != *--disk* ]] || { disk_for_podman h1 && disk_for_podman h2; }
	# h1 makes the image that the others take, which takes long.
	prepared h1 &
	as_printed h3 namespace "${peer_at[@]}"
	as_printed h1 namespace
	wait $!
	prepared h2 &
	prepared h3
	wait $!
}

without_namespaces() { # without_namespaces HOST...: and their devices
	local h
	for h; do
		on "$h" ip netns del web
		wait_for 60 without_device "$h"
	done
}
without_device() { on "$1" sh -c '! rdma link show | grep -q rxe1/'; }

# A bridge, br5, for veths. Its way out is a VLAN.
vlan_at() { on "$1" sh -c 'ip link add link eth0 name eth0.5 type vlan id 5 && ip link set eth0.5 up'; }
bridge_at() { on "$1" sh -c 'ip link add br5 type bridge && ip link set eth0.5 master br5 && ip link set br5 up'; }
on_bridge=(-e 's|--parent eth0|--parent br5 --type veth|') # for as_printed HOST namespace

disk_for_podman() {
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -ec 'disk=/dev/disk/by-id/virtio-lab
		blkid $disk || mkfs.ext4 -q $disk
		mkdir -p /var/lib/containers; mount $disk /var/lib/containers'
}

stall=90 # seconds after which traffic gives up
program= # what runs in place of traffic, and listens at this port
port=18600
# contained HOST RUNTIME WITH ARGUMENT...: runs traffic in a container there; WITH has more words for podman run
contained() {
	as_printed "$1" run -e "s|^podman run|podman --runtime $2 run $3|" \
		-e "s|\$IMAGE \$COMMAND|localhost/rdma ${program:-traffic --stall $(seconds "$stall")} ${*:4}|"
}
pauses() { on h3 cat /sys/class/infiniband/rxe1/ports/1/hw_counters/migr_pauses; }
# packets_inside [HOST]: how many packets its device has received
packets_inside() { on "${1:-h3}" cat /sys/class/infiniband/rxe1/ports/1/hw_counters/rcvd_pkts; }
flows_inside() { [ "$(packets_inside "$@")" -gt $((before + 200)) ]; } # (a condition for wait_for)
goes_on_inside() { # goes_on_inside [HOST]
	local before
	before=$(packets_inside "$@")
	expect 60 flows_inside "$@"
}

# talk RUNTIME [WITH [server]]: the container web at h1 talks to one at h3, and is the client if nothing else is said. WITH has more
# words for podman run at h1. A test may choose other options.
client_options="--qps 4 --size 16K --timeout 17 --retry-cnt 1 --rnr-retry 1" server_options=
talk() {
	local before server=h3 client=h1 to=10.78.0.3
	local -A words=([h1]=${2:-})
	if [ "${3:-}" = server ]; then server=h1 client=h3 to=10.78.0.1; fi
	# shellcheck disable=SC2086 # words
	contained $server "$1" "${words[$server]:-}" $server_options
	# shellcheck disable=SC2016 # expanded in the guest
	wait_for 60 on $server ip netns exec web sh -c 'ss -Htln "sport = :$0" | grep -q .' "$port"
	before=$(packets_inside)
	# shellcheck disable=SC2086
	contained $client "$1" "${words[$client]:-}" $client_options $to
	wait_for 60 flows_inside
}

# exact_inside TOLD OTHER: both ends, at these hosts, have got each message once. The first end is told to end. podman forgets
# both.
exact_inside() {
	podman_at "$1" kill --signal INT web
	ends_exact "$2" &
	ends_exact "$1"
	wait $!
}
ends_exact() {
	[ "$(podman_at "$1" wait web)" = 0 ] || broken "$(podman_at "$1" logs web)"
	podman_at "$1" logs web | grep '^result=exact' || broken "$(podman_at "$1" logs web)"
	podman_at "$1" rm web
}

# left_at HOST: prints what is there of the container: itself, its processes, namespaces, devices of any namespace, ends of veths
left_at() {
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -c 'podman ps --all --noheading || echo "a podman that fails"; pgrep -l "traffic|httpd|ib_send_bw"
		ls /run/netns 2>/dev/null; rdma link | grep -v "rxe0/"; cat /sys/class/infiniband_verbs/*/ibdev | grep -v "^rxe0$"
		[ ! -e /sys/class/net/br5 ] || ls /sys/class/net/br5/brif | grep -v "^eth0"; true'
}
nothing_at() { # nothing_at HOST
	local left
	left=$(left_at "$1")
	[ -z "$left" ] || broken "at $1 there is $left"
}

# goes_by_archive FROM TO RUNTIME: the container and its namespace go, by the printed commands
goes_by_archive() {
	as_printed "$1" checkpoint
	as_printed "$2" namespace
	as_printed "$2" restore -e "s/^podman/podman --runtime $3/" || restore_failed "$2"
	goes_on_inside
	[ "$(podman_at "$2" ps --format '{{.Names}}')" = web ] || broken "podman: $(podman_at "$2" ps -a)"
}

# ---- what podman says during a move ----

# look_at_podman HOST: what podman there says of the only container, until the move is over, and once more: lines FROM UNTIL [STATE]
look_at_podman() {
	local from over=
	on "$1" ln -sf /usr/bin/podman /run/asks # by this name no test kills it
	until [ "$over" ]; do
		kill -0 $$ || exit
		[ ! -e "$work/over" ] || over=1
		from=$(now_ms)
		on "$1" /run/asks ps --all --format '{{.State}}' >"$work/state-$1" || true
		echo "$from $(now_ms) $(cat "$work/state-$1")"
		sleep 1 # podman keeps an emulated guest busy
	done >"$work/podman-$1"
}
# while_podman_is_asked CMD...: runs CMD, and both ends are looked at meanwhile
while_podman_is_asked() {
	local h looks=()
	rm -f "$work/over"
	for h in h1 h2; do look_at_podman $h & looks+=($!); done
	"$@"
	touch "$work/over"
	wait "${looks[@]}"
}
podman_is_wrong() { broken "podman: $1: $(paste -s -d '|' "$work/podman-h1") and $(paste -s -d '|' "$work/podman-h2")"; }

# podman_was_right FROM TO: podman had it running at FROM, and then not again; at TO from some moment on; at no moment at neither;
# not for long at both: docs/CONTAINERS.md says a second, and an emulated guest is ten times slower.
podman_was_right() {
	awk -v most="$(seconds 10)" 'NR == FNR { if ($3 == "running" && left) { print "it runs at the source again"; exit bad = 1 }
			if ($3 != "running" && !left) left = $2
			if ($3 == "running") last = $1
			next }
		$3 == "running" { if (!came) came = $2; next }
		came { print "it does not run any more at the destination"; exit bad = 1 }
		left && $1 > left { print "it runs nowhere"; exit bad = 1 }
		END { if (!bad && !(left && came)) { print "nobody has seen it leave and come"; exit 75 }
			if (bad) exit bad
			if (last > came) print "it runs at both ends, for " (last - came) " ms"
			exit (last - came > most * 1000) }' \
		"$work/podman-$1" "$work/podman-$2" >"$work/podman.out" && { cat "$work/podman.out"; return; }
	[ $? = 1 ] || inconclusive "podman: $(cat "$work/podman.out")"
	podman_is_wrong "$(cat "$work/podman.out")"
}
# podman_was_steady: podman had it running at h1 all the time, and never at h2
podman_was_steady() {
	if grep -v ' running$' "$work/podman-h1"; then podman_is_wrong "it did not run at h1"; fi
	if grep ' running$' "$work/podman-h2"; then podman_is_wrong "it ran at h2"; fi
}

# ---- for moves that don't take place: with ../faults.sh, after contained_hosts ----

# patient_traffic: sets things up for traffic that outlives many moves
patient_traffic() {
	local h
	# Peers wait for longer than their 60 s, since podman takes its time to undo things on a slow machine.
	for h in h1 h2 h3; do on $h sh -c "echo $(seconds 200) >/sys/module/rdma_rxe/parameters/pause_timeout"; done
	stall=240
	# The ends sleep between their messages, since otherwise all else takes twice as long. No end gives up because a guest stands
	# still.
	server_options=--event
	client_options="--event --rate 50 --qps 4 --size 16K --timeout 18 --retry-cnt 7 --rnr-retry 7"
	quick_ssh
	pid=--container=web
	# For the guests: kills the first process that pgrep $1 $2 finds, once pgrep $3 $4 finds one.
	share=$("$lab_tool" share --name "$lab_default")
	cat >"$share/strike" <<'END'
{ until pgrep "$3" "$4" && pgrep "$1" "$2"; do sleep 0.05; done; pkill -9 -o "$1" "$2"; } </dev/null >/dev/null 2>&1 &
END
}

# Everything that a move touches, as it is at HOST, also which processes the containers have. podman takes a second to start, so
# it is asked for these only, and the rest is read from its folders. A test may have those listed again that pass a filter.
listed=
look() {
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -c 'ip -o link; ip -o addr; rdma link
		cd /var/lib/containers/storage; ls -A /dev/infiniband /var/tmp overlay overlay-images volumes
		find /run/netns /run/crun /run/runc -mindepth 1 -maxdepth 1 2>/dev/null
		podman ps --all --format "{{.ID}} {{.Names}} {{.State}} {{.Pid}} {{.StartedAt}} {{.Restarts}}"
		[ -z "$1" ] || podman ps --all $1 --format "{{.Names}}"
		ip netns exec web nft list tables; ip -n web -o addr' sh "$listed" 2>&1 || true
}
# before_it [HOST...]: records what must not change from now on, at both hosts if none is named. Call it after a change.
before_it() {
	local h
	[ $# != 0 ] || set -- h1 h2
	for h; do look "$h" >"$work/before-$h"; done
}
# unchanged: h1 and h2 are as recorded, and the traffic goes on
unchanged() {
	for h in h1 h2; do expect 60 quiet $h; done
	expect 60 both_look_the_same
	goes_on_inside
}
both_look_the_same() { # (a condition for wait_for)
	look h1 >"$work/now-h1" &
	look h2 >"$work/now-h2"
	wait $!
	diff "$work/before-h1" "$work/now-h1" >"$work/changed-h1.out" && diff "$work/before-h2" "$work/now-h2" >"$work/changed-h2.out"
}

# fails REGEX RULES [OPTION...]: the move fails after the freeze, and podman never says anything else
fails() {
	while_podman_is_asked ride_home "${@:2}"
	stayed 3 "$1"
	podman_was_steady
	unchanged
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
