# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Debian's systemd in a guest, as process 1 of its own namespaces, for tests with units. After lib.sh. (A guest can also boot with
# systemd as its process 1, by lab_systemd=1, as in containers/018. That takes longer, and the guest ends with systemd.)
# shellcheck disable=SC2154 # lib.sh sets top, lab_tool and lab_default

declare -A nest=() nested=() # by host: the process with whose end all ends, and systemd

# nest_at HOST UNIT LOG-TARGET: systemd starts there. First $share/before is run in its namespaces.
nest_at() {
	nest[$1]=$(bg "$1" "$top/tests/vm/guest/nest" "$2" "$3" /lab/before)
	wait_for 60 on "$1" pgrep -P "${nest[$1]}" -x systemd
	nested[$1]=$(on "$1" pgrep -P "${nest[$1]}" -x systemd)
}
in_nest() { on "$1" nsenter --target "${nested[$1]}" --mount --pid --cgroup --uts "${@:2}"; } # in_nest HOST CMD...
end_nest() { # end_nest HOST
	on "$1" sh -c "kill -KILL ${nest[$1]}"
	expect 60 ended "$1" "${nest[$1]}"
	expect 60 on "$1" find /sys/fs/cgroup/nest -depth -type d -delete
	unset "nest[$1]"
}
