# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# For tests that move a rank of an MPI job. After ../move.sh.
# shellcheck disable=SC2034,SC2154 # lib.sh and move.sh set some, tests use others
#
# All ranks except the last are at h3, under prterun. The last rank is at h1, under a daemon of its own, prted. These two move
# together, and with them h1's address, by which the job knows them. godwit uses other addresses: host k is also 10.78.0.k.
job_address=10.77.0.1

job_hosts_up() {
	local k
	cluster_up "$@"
	# Emulated hosts may take longer for a whole daemon than peers wait by default.
	for k in 1 2 3; do
		on h$k sh -c "cd /sys/module/rdma_rxe/parameters; echo $(seconds 200) | tee pause_timeout >tombstone_lease"
	done
	for k in 1 2; do on h$k ip addr add 10.78.0.$k/24 dev eth0; done
	quick_ssh h1 10.78.0.2
	quick_ssh h2 10.78.0.1
	on h3 mkdir /lab/session
}

# UCX as docs/MPI.md says, with as few buffers as possible, since emulated hosts copy them slowly.
# shellcheck disable=SC2054 # a comma of UCX's
ucx=(UCX_TLS=rc_verbs,ud_verbs:aux,self UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=1 UCX_UD_VERBS_ETH_DGID_CHECK=n
	UCX_FENCE_MODE=weak)
ucx+=(UCX_{RC,UD}_VERBS_{RX,TX}_QUEUE_LEN=128 UCX_{RC,UD}_VERBS_{RX,TX}_BUFS_GROW=128)

# job RANKS OPTION... CMD...: like run(); the last rank is at h1
job() {
	local n=$1 s settings=()
	shift
	for s in "${ucx[@]}"; do settings+=(-x "$s"); done
	run h3 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PMIX_MCA_gds=hash \
		mpirun --leave-session-attached --prtemca prte_tmpdir_base /lab/session \
		--mca plm_rsh_agent "$top/tests/mpi/agent" --mca pml ucx --mca osc ucx --mca btl self \
		--mca mpi_yield_when_idle 1 "${settings[@]}" --host "h3:$((n - 1)),h1:1" --map-by slot -n "$n" "$@"
}

# rank_moves FROM TO: moves it; the devices of both hosts must show that it works there
rank_moves() {
	rank_goes "$1" "$2"
	rank_works "$2"
}
rank_goes() {
	local daemon
	daemon=$(on "$1" pgrep -x prted) || was_over
	arrived=$(packets "$2")
	migrate "$1" "$daemon" "10.78.0.${2#h}" --address $job_address --limit "$(seconds 180)"
	[[ ! $closing =~ "ended by itself"|"No such process" ]] || was_over
	moved
	nothing_left "$1"
}
rank_works() { expect 120 receives "$1"; }
receives() { [ "$(packets "$1")" -gt $((arrived + 100)) ]; } # more than a move brings (a condition for wait_for)

# was_over: the job ended before it could be moved. Has it ended well?
was_over() {
	if comes_true 60 seen "$out" '^exit 0$'; then inconclusive "the job was over before it was moved"; fi
	broken "the rank has ended before it was moved"
}

# A rank that waits for ever says nothing, so the reader of a failure gets its rings and stacks, too.
state() {
	local h
	hosts_state
	for h in h1 h2 h3; do
		# shellcheck disable=SC2016 # expanded in the guest
		on $h sh -c 'for p in $(rdma resource show qp | sed -n "s/.* pid \([0-9]*\) .*/\1/p" | sort -u); do
			echo "== $0: rank $p"
			timeout 60 godwit dump $p
			timeout 100 gdb --batch -p $p -ex "thread apply all backtrace 16" 2>&1 | grep -v "^\[New\|^warning"
		done' $h
	done
}
