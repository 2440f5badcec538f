# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests with containers of podman's. After ../lib.sh.

# podman_at HOST ARGUMENT...: (what is stuck ends by a wide limit)
podman_at() { on "$1" timeout "$(seconds 120)" podman "${@:2}"; }

# checkpoint HOST: the container mover, into an archive; podman there knows it no more
checkpoint() {
	podman_at "$1" container checkpoint --tcp-established --compress none --export /lab/archive.tar mover
	podman_at "$1" rm mover
}

# restored HOST RUNTIME: from that
restored() {
	podman_at "$1" --runtime "$2" container restore --tcp-established --import /lab/archive.tar || {
		on "$1" sh -c 'tail -n 20 $(find /var/lib/containers /run/containers -name restore.log)'
		broken "it was not restored"
	}
	[ "$(podman_at "$1" ps --format '{{.Names}}')" = mover ] || broken "podman at $1: $(podman_at "$1" ps -a)"
}
