#!/bin/bash
# A rank that never arrives, is stopped, dies ...: the job ends soon, and the message says who and where.
# Usage: watchdog.sh MPIRUN VICTIM
set -u
# shellcheck source=tests/mpi/own_shm.sh
. "$(dirname "$0")/own_shm.sh"
mpirun=$1 victim=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
failed=0

# expect NAME STATUS SECONDS RANKS MODE TIMEOUT [NODE_RANKS] -- PATTERN ...
expect()
{
	local name=$1 want=$2 most=$3 np=$4 start=$SECONDS status args=()
	shift 4
	while [ "$1" != -- ]; do
		args+=("$1")
		shift
	done
	shift
	timeout 150 "$mpirun" -np "$np" "$victim" "${args[@]}" >"$out" 2>&1
	status=$?
	if [ "$want" = 0 ] && [ $status -ne 0 ] || [ "$want" != 0 ] && { [ $status -eq 0 ] || [ $status -eq 124 ]; }; then
		echo "not ok - $name: status $status, want $want"
		failed=1
	fi
	if [ $((SECONDS - start)) -gt "$most" ]; then
		echo "not ok - $name: took $((SECONDS - start)) s, want at most $most"
		failed=1
	fi
	for p in "$@"; do
		if ! grep -Eq "$p" "$out"; then
			echo "not ok - $name: no line matches: $p"
			sed 's/^/  | /' "$out"
			failed=1
		fi
	done
	echo "done - $name, status $status, $((SECONDS - start)) s"
}

# These two only sleep: beside the others, with a timeout that a busy machine does not exceed by itself.
apart()
{
	out=$(mktemp) || exit 1
	trap 'rm -f "$out"' EXIT
	expect "$@"
	exit "$failed"
}
(apart 'slow computing is no alarm' 0 100 2 slow 4 --) &
slow=$!
(apart 'a suspended job is not late' 0 100 3 suspend 4 --) &
suspended=$!

op="all-reduce 'grads bucket 3' of group dp"
expect absent 1 55 3 absent 2 -- "victim: rank [02]: $op: rank 1 has not arrived after [0-9.]+ s" \
	'rank 1: process [0-9]+ is running, outside any operation, has entered 3 of 4'
expect stopped 1 55 3 stop 2 -- "$op: rank 1 has not arrived" 'rank 1: process [0-9]+ is stopped'
expect killed 1 55 3 kill 2 -- "$op: rank 1 died" 'rank 1: died \(process [0-9]+ is gone\)'
expect 'killed amid registered buffers' 1 55 3 kill-registered 2 -- "$op: rank 1 died"
expect 'killed when its memory is offered' 1 55 2 kill-offered 2 -- 'victim: rank 0: rank 1 died \(process [0-9]+ is gone\)'
expect 'left without a word' 1 55 3 exit 4 -- "$op: rank 1 died"
expect 'absent on another machine' 1 55 4 absent 2 2 -- "$op: rank 1 has not arrived after"
expect 'stopped on another machine' 1 55 4 stop 2 2 -- 'rank [23]: .*rank 1 has not arrived|rank 0: .*rank 1 has not arrived' \
	'rank 1: process [0-9]+ is stopped'
expect 'message that never comes' 1 55 2 receive 2 -- "receive 'activations' from rank 1 in group dp: not completed"
expect 'start-up' 1 55 2 start 1 -- 'start-up \(MPI_Init\): not all ranks have come after [0-9.]+ s'
wait "$slow" || failed=1
wait "$suspended" || failed=1

# Nothing of ours has a name anywhere, however a process ends.
left=$(left_in_shm)
if [ -n "$left" ]; then
	echo "not ok - left in /dev/shm: $left"
	failed=1
fi
exit $failed
# SPDX-License-Identifier: Apache-2.0
