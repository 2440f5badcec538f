# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests of remote swap: h3 swaps to a device with donors at other hosts. After ../lib.sh, ../move.sh, ../rmem/rmem.sh.
# shellcheck disable=SC2034,SC2154 # those set some, tests use others

disk=/dev/disk/by-id/virtio-lab
swapper=h3
use=swap
size=256M slab=8M hot=2 discard=no
swap_module=$build/kernel/rmem_swap.ko
[[ ${LAB_OPTIONS:-} != *--debug-kernel* ]] || swap_module=$build/kernel-debug/rmem_swap.ko
declare -A donor_at=() donor_is=() # by name: the address that h3 connects to; the donor's process there, and its output

# lends NAME HOST [ADDRESS [OPTION...]]: runs rmemd there, as the donor of this name
lends() {
	donor "$2" "${@:4}"
	donor_at[$1]=${3:-10.77.0.${2#h}}
	donor_is[$1]="$donor $donor_out"
}

# kill_donor NAME HOST
kill_donor() { on "$2" pkill -KILL -P "${donor_is[$1]% *}"; }

# back NAME HOST [OPTION...]: starts it again, at the same address
back() { need=expect lends "$1" "$2" "${donor_at[$1]}" "${@:3}"; }

# end_donors HOST...: ends all donors there by SIGTERM; they end with 0
end_donors() {
	local h o
	for h; do on "$h" pkill -TERM rmemd || true; done
	for o in "${donor_is[@]}"; do
		o=${o#* }
		if seen "$o" '^exit 137$'; then continue; fi
		finished "$o" 0
	done
}

# settings_of_swap NAME...: writes rmemswap.conf at h3, with these donors, each of which knows the client "swap"
settings_of_swap() {
	local name
	{
		printf '[device rswap0]\ndisk = %s\nuse = %s\nsize = %s\nslab = %s\nhot = %s\n' "$disk" "$use" "$size" "$slab" "$hot"
		echo "discard = $discard"
		for name; do
			printf '[donor %s]\nhost = %s\nclient = swap\nkey = /root/swap.key\n' "$name" "${donor_at[$name]}"
		done
	} >"$share/rmemswap.conf"
	on $swapper cp /lab/rmemswap.conf /root/
}

# warm_up SLABS [OPTION...]: writes to the block device by fio until so many slabs are at donors
warm_up() {
	until at_least slabs "$1"; do
		on $swapper fio --name=warm --filename=/dev/rswap0 --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 \
			--zero_buffers --time_based --runtime=3 --minimal "${@:2}" >"$work/warm.out" 2>&1
	done
}

# warm_begins NAME...: the same, but each slab is at a donor before anything is swapped. (The device is first a plain block
# device. rmemswap leaves it there at SIGQUIT, and the next rmemswap takes it over.)
warm_begins() {
	local slabs=$((${size%M} / ${slab%M}))
	use=block
	swap_begins "$@"
	warm_up $slabs
	tell QUIT "$swap_out"
	finished "$swap_out" 3
	use=swap
	swap_begins "$@"
	seen "$swap_out" 'device rswap0: .* is taken over$' || broken "the device was not taken over: $(cat "$(here "$swap_out")")"
	at_least slabs $slabs || broken "the slabs were not taken over"
}

# all_remote: each page that is read comes from a donor (a condition)
all_remote() {
	before in_disk
	before in_remote
	comes_true 5 false || true
	more in_remote && [ "$(value in_disk)" = "${remembered[in_disk]}" ]
}

# look_for_stalls DONOR: watches whether page I/O waits for this donor, from the freeze of the next move until its end. waited: it
# did wait, as it must in a move that takes its time.
look_for_stalls() {
	rm -f "$work/over" "$work/stalled"
	when_frozen see_stalls "$1"
	looks=$!
}
see_stalls() {
	until [ -e "$work/over" ]; do
		kill -0 $$ || exit
		if at_least stalled 1 "$1" 2>/dev/null; then touch "$work/stalled"; fi
		sleep 0.1
	done
}
waited() {
	touch "$work/over"
	wait "$looks"
	[ -e "$work/stalled" ] || [ "$(blackout_ms)" -lt 4000 ] || broken "no page I/O waited for the donor that moved"
}

# swap_begins NAME...: loads the module and runs rmemswap at h3; these donors are connected
swap_begins() {
	local name
	settings_of_swap "$@"
	# A random page is no sign that its neighbours are wanted next.
	on $swapper sh -c "[ -e /sys/module/rmem_swap ] || { wipefs -q -a $disk; insmod $swap_module; }
		echo 0 >/proc/sys/vm/page-cluster"
	run $swapper "$build/rmemswap" run --config /root/rmemswap.conf
	swap_out=$out
	wait_for 60 seen "$swap_out" 'ready$\|^exit '
	for name; do "${need:-wait_for}" 60 donor_state "$name" up; done
}

# disk_is WORDS: from now on $disk is a device of device-mapper with this target, in which DISK stands for the disk itself. The
# target may be changed while the device is used. (No udev runs there.)
real=$disk
disk_is() {
	# shellcheck disable=SC2016 # expanded in the guest
	on $swapper sh -ec 'export DM_DISABLE_UDEV=1; d=$(realpath "$0"); table="0 $(blockdev --getsz "$d") $(echo "$1" | sed "s,DISK,$d,g")"
		if [ -e /dev/mapper/lab-disk ]; then
			dmsetup suspend --noflush lab-disk
			dmsetup load lab-disk --table "$table"
			dmsetup resume lab-disk
		else
			modprobe -a dm-mod dm-flakey dm-delay
			dmsetup create lab-disk --table "$table"
		fi' "$real" "$1"
	disk=/dev/mapper/lab-disk
}
disk_ends() { on $swapper env DM_DISABLE_UDEV=1 dmsetup remove lab-disk; }

# swap_ends: ends rmemswap by SIGTERM; nothing stays of the device and the module. swap_is_over: rmemswap got it already
swap_ends() {
	tell TERM "$swap_out"
	swap_is_over
}
swap_is_over() {
	finished "$swap_out" 0
	[ -z "$(on $swapper sed 1d /proc/swaps)" ] || broken "it swaps still"
	on $swapper rmmod rmem_swap
	if on $swapper test -e /dev/rswap0; then broken "a device is left"; fi
}

status() { on $swapper "$build/rmemswap" status --json >"$work/swap.json"; }

# value NAME [DONOR]: a value of rmemswap status, which must have it; nothing if there is no such donor
value() {
	local of='.devices[0]'
	[ $# = 1 ] || of="(.devices[0].donors[] | select(.donor == \"$2\"))"
	status && jq -r "$of | .$1 // error(\"there is no $1\")" "$work/swap.json"
}

# at_least NAME N [DONOR] (a condition for wait_for)
at_least() { [ "$(value "$1" "${@:3}")" -ge "$2" ]; }
donor_state() { [ "$(value state "$1")" = "$2" ]; } # NAME STATE
# cold: no slab had page I/O in the last period (a condition). With a weight of 100 heat is of that period alone; with the default it
# takes half a minute to be gone.
cold() { status && jq -e 'all(.devices[0].hottest[]?; .heat == 0)' "$work/swap.json"; }
# more NAME [DONOR]: the value is more than before had remembered (a condition)
declare -A remembered=()
before() { remembered[$*]=$(value "$@"); }
more() { [ "$(value "$@")" -gt "${remembered[$*]}" ]; }
more_of() { local n && for n; do if more "$n"; then return 0; fi; done && false; } # NAME...: one of these is more
# unchanged NAME [DONOR]
unchanged() {
	local now
	now=$(value "$@")
	[ "$now" = "${remembered[$*]}" ] || broken "$*: ${remembered[$*]} became $now: $(jq -c . "$work/swap.json")"
}

# watch_donor NAME, undisturbed NAME: since then its connection is the same, and it has its slabs and requests
watch_donor() { for n in qpn lost requeued unmaps; do before $n "$1"; done; }
undisturbed() { for n in qpn lost requeued unmaps; do unchanged $n "$1"; done; }

# fill LIMIT MIB [OPTION...]: swap-pages at h3 fills MIB of memory, of which it may have LIMIT MiB at a time (max: no limit), and
# returns when all is filled. Sets $out.
fill() {
	local most=$1
	[ "$most" = max ] || most+=M
	# shellcheck disable=SC2016 # expanded in the guest
	run $swapper sh -c 'cd /sys/fs/cgroup && echo +memory >cgroup.subtree_control && mkdir -p swap && cd swap &&
		echo "$0" >memory.max && echo 0 >cgroup.procs && exec "$@"' "$most" "$build/tests/swap-pages" --mib "$2" "${@:3}"
	wait_for 240 seen "$out" '^swap-pages: .* are filled$\|^exit '
}

# pages_exact OUT...: each is told to end; all pages were as written
pages_exact() { all_end '^swap-pages: .* all as written$' "$@"; }

# in_time OUT [SECONDS]: no operation of this load, which has ended, took longer than that: 15 s. (A silent donor is given up after
# some 2 s.)
in_time() {
	local ms most=${2:-15}
	ms=$(sed -n 's/^swap-pages: .* the longest took \([0-9]*\) ms, .*/\1/p' "$(here "$1")")
	[ "$ms" -le "$(seconds "$most")000" ] || broken "an operation took $ms ms"
}

# For the reader of a failure (in place of the one of rmem.sh).
state() {
	local k
	tail -n 20 "$share"/bg/*.out
	for ((k = 1; k <= lab_size; k++)); do
		on h$k sh -c "echo == h$k; timeout 10 $build/rmemctl status; timeout 10 $build/rmemswap status --slabs; cat /proc/swaps
			godwit status; rdma resource show qp; ip -br addr; free -m; dmesg | tail -n 8"
	done
}
