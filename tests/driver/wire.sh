# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests whose program is the peer itself, packet by packet: see src/wire.h. After ../lib.sh.
# shellcheck disable=SC2154 # lib.sh sets some

# wire_up [LAB-OPTION...]: boots one guest (the test says "# Lab: 1"), whose rxe0 lies on wire0, an interface of a program
wire_up() {
	lab_up "$@"
	on h1 sh -ec 'rdma link delete rxe0
		modprobe tun
		ip tuntap add wire0 mode tap
		ip link set wire0 mtu 9000 up
		ip addr add 10.88.0.1/24 dev wire0
		ip neigh replace 10.88.0.2 lladdr 02:00:00:00:88:02 nud permanent dev wire0
		rdma link add rxe0 type rxe netdev wire0'
}
