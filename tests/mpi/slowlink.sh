#!/bin/bash
# The collectives between machines that share no memory: two of two ranks on this one (slownet.sh), quick links. Exits 77
# with a reason where machines cannot be made.
# Usage: slowlink.sh SLOWLINK TEST_COMM
set -u
slowlink=$1 test=$2 failed=0
slownet_dir='' slownet_hosts='' slownet_pid='' slownet_why=''
# shellcheck source=tests/mpi/slownet.sh
. "$(dirname "$0")/slownet.sh"
trap slownet_down EXIT
trap 'exit 1' INT TERM
slownet_up "$slowlink" 2 2 1e10 20 || { echo "skipped: $slownet_why"; exit 77; }
export OMPI_MCA_mpi_yield_when_idle=1
for args in alg=two-level 'alg=ring registered'; do
	# shellcheck disable=SC2086
	slownet_run timeout 150 mpirun -np 4 -host "$slownet_hosts" "$test" $args >"$slownet_dir/out" 2>&1
	if ! wait "$slownet_pid" || ! grep -q '4 ranks on 2 machines' "$slownet_dir/out"; then
		echo "not ok - $args"
		cat "$slownet_dir/out" "$slownet_dir/why"
		failed=1
	fi
done
exit $failed
# SPDX-License-Identifier: Apache-2.0
