#!/bin/bash
# Algorithms x collectives x types x operations x sizes (0, 1, odd, not divisible, large) x 1 to 8 ranks, in place and
# out of place, blocking and not, registered and not: test_comm compares every element with its exact value and the
# bits of all ranks with each other. Takes a quarter of an hour; scripts/check runs a part of it (see meson.build).
#
# All of it would take hours. What can go wrong is in how two of these meet (a size and a number of ranks, a type and an
# operation, an algorithm and a transport), so every pair of them is here: each run has every pair of type, size and
# operation in a quarter of their products, another quarter for each number of ranks; and an algorithm goes by way of
# shared memory for every second number of ranks and by MPI for the others. With DT_CROSS=all nothing is left out;
# DT_CROSS_RANKS="3 4" does some numbers of ranks only.
#
# Refused, and shown to be: two-level where machines do not hold equal runs of ranks (7 ranks by 2), and direct
# between machines. Collectives an algorithm has no step list for go as they would without one.
# Usage: cross.sh MPIRUN TEST_COMM
set -u
mpirun=$1 test=$2
[ "${DT_SLOW:-0}" = 1 ] || { echo 'skipped: takes many minutes, set DT_SLOW=1'; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
all=$([ "${DT_CROSS:-pairs}" = all ] && echo 1 || echo 0)
failed=0 runs=0

# run RANKS [WORD ...]: the part goes with the number of ranks, and with the run, so that four of them are all
run()
{
	local np=$1 out part=()
	shift
	[ "$all" = 1 ] || part=("part=$(((np + runs) % 4))")
	runs=$((runs + 1))
	if ! out=$(timeout 600 "$mpirun" -np "$np" "$test" whole "${part[@]}" "$@" 2>&1); then
		printf 'not ok - %s ranks, %s\n%s\n' "$np" "$* ${part[*]}" "$out"
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

for np in ${DT_CROSS_RANKS:-1 2 3 4 5 6 7 8}; do
	run "$np"
	run "$np" registered
	run "$np" mpi
	i=0
	for a in direct naive ps ring doubling rabenseifner tree double-tree; do
		i=$((i + 1))
		if [ "$all" = 1 ] || [ $(((np + i) % 2)) = 0 ]; then
			run "$np" alg=$a
		fi
		# by MPI there is no direct
		if [ $a != direct ] && { [ "$all" = 1 ] || [ $(((np + i) % 2)) = 1 ]; }; then
			run "$np" alg=$a mpi
		fi
	done
	for node in 2 3 4; do
		if [ $((np % node)) = 0 ] && [ "$np" -gt $node ]; then
			run "$np" node=$node alg=two-level
			run "$np" node=$node alg=ring registered
		elif [ "$np" -gt $node ]; then
			refused "$np" node=$node alg=two-level
			run "$np" node=$node
		fi
	done
done
refused 4 node=2 alg=direct
echo "$runs runs"
exit $failed
# SPDX-License-Identifier: Apache-2.0
