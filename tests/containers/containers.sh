# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests with containers of podman's. After ../lib.sh.

# podman_at HOST ARGUMENT...: (what is stuck ends by a wide limit)
podman_at() { on "$1" timeout "$(seconds 120)" podman "${@:2}"; }

restore_failed() { # restore_failed HOST
	# shellcheck disable=SC2016 # expanded in the guest
	on "$1" sh -c 'tail -n 20 $(find /var/lib/containers -name restore.log)'
	broken "it was not restored"
}
