#!/bin/bash
# Every algorithm x collective x type x operation x size (0, 1, odd, not divisible, large) x 1 to 8 ranks, in place and
# out of place, blocking and not, registered and not: test_comm compares every element with its exact value and the
# bits of all ranks with each other. Takes many minutes; scripts/check runs a part of it (see meson.build).
#
# Refused, and shown to be: two-level where machines do not hold equal runs of ranks (7 ranks by 2), and direct
# between machines. Collectives an algorithm has no step list for go as they would without one.
# Usage: cross.sh MPIRUN TEST_COMM
set -u
mpirun=$1 test=$2
[ "${DT_SLOW:-0}" = 1 ] || { echo 'skipped: takes many minutes, set DT_SLOW=1'; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
failed=0 runs=0

run()
{
	local np=$1 out
	shift
	runs=$((runs + 1))
	if ! out=$(timeout 600 "$mpirun" -np "$np" "$test" whole "$@" 2>&1); then
		printf 'not ok - %s ranks, %s\n%s\n' "$np" "$*" "$out"
		failed=1
	fi
}

refused()
{
	local np=$1 out
	shift
	runs=$((runs + 1))
	if out=$(timeout 100 "$mpirun" -np "$np" "$test" "$@" 2>&1) || ! grep -q 'algorithm' <<<"$out"; then
		printf 'not ok - %s ranks, %s: not refused\n%s\n' "$np" "$*" "$out"
		failed=1
	fi
}

for np in 1 2 3 4 5 6 7 8; do
	run $np
	run $np registered
	run $np mpi
	for a in direct naive ps ring doubling rabenseifner tree double-tree; do
		run $np alg=$a
		run $np alg=$a mpi
	done
	for node in 2 3 4; do
		if [ $((np % node)) = 0 ] && [ $np -gt $node ]; then
			run $np node=$node alg=two-level
			run $np node=$node alg=ring registered
		elif [ $np -gt $node ]; then
			refused $np node=$node alg=two-level
			run $np node=$node
		fi
	done
done
refused 4 node=2 alg=direct
echo "$runs runs"
exit $failed
