#!/bin/bash
# A rank is killed or stopped somewhere in the middle of every operation: the job ends within the timeout and a
# message names the rank, and nothing is left in /dev/shm. A few of each kind; with DT_SLOW=1 all by all.
# Usage: watchdog_ops.sh MPIRUN VICTIM
set -u
# shellcheck source=tests/mpi/own_shm.sh
. "$(dirname "$0")/own_shm.sh"
mpirun=$1 victim=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
failed=0 cases=0

# amid HOW RANKS NODE_RANKS OPERATION [WORD ...]; the limit leaves room for a loaded machine to start and end a job
amid()
{
	local how=$1 np=$2 name="$*" status
	shift 2
	timeout 150 "$mpirun" -np "$np" "$victim" "$how-amid" 2 "$@" >"$out" 2>&1
	status=$?
	cases=$((cases + 1))
	if [ $status -eq 0 ] || [ $status -eq 124 ]; then
		echo "not ok - $name: status $status"
		failed=1
	fi
	# The first line says which operation; rank 1 is named there as dead or late, or below it as stopped. A message
	# may be between two others, one of which waits for rank 1.
	if ! grep -Eq "victim: rank [0-9]+: [a-z-]+ 'victim' (of|(to|from) rank [0-9]+ in) group dp: " "$out" ||
		! grep -Eq 'rank 1 died|rank 1 has not arrived|rank 1: died|rank 1: process [0-9]+ is stopped' "$out"; then
		echo "not ok - $name: rank 1 is not named"
		sed 's/^/  | /' "$out"
		failed=1
	fi
}

ops='all-reduce reduce-scatter all-gather broadcast all-to-all all-to-allv reduce gather scatter barrier send-recv'
if [ "${DT_SLOW:-0}" = 1 ]; then
	for op in $ops; do
		for how in kill stop; do
			amid $how 3 0 "$op"
			amid $how 2 0 "$op" registered
			amid $how 4 2 "$op"
			amid $how 3 0 "$op" mpi
			for a in naive ps ring doubling rabenseifner tree double-tree; do
				case $op in all-reduce | reduce | broadcast | all-gather | reduce-scatter) amid $how 3 0 "$op" $a ;; esac
			done
		done
	done
	amid kill 4 2 all-reduce two-level
	amid stop 4 2 all-reduce two-level
else
	for op in $ops; do
		amid kill 3 0 "$op"
	done
	amid stop 2 0 all-reduce registered
	amid stop 3 0 all-gather
	amid stop 2 0 send-recv
	amid kill 2 0 reduce-scatter registered
	amid stop 4 2 all-reduce two-level
fi

left=$(left_in_shm)
if [ -n "$left" ]; then
	echo "not ok - left in /dev/shm: $left"
	failed=1
fi
echo "$cases ways to lose a rank"
exit $failed
# SPDX-License-Identifier: Apache-2.0
