#!/bin/bash
# NCCL that fails or hangs: the job ends, and the message says where and on which rank.
# Usage: faults.sh MPIRUN TEST_NCCL
set -u
mpirun=$1 test=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
failed=0

# expect NAME FAULT -- PATTERN ...
expect() {
	local name=$1 fault=$2 status
	shift 3
	DT_FAKE_NCCL=$fault timeout 120 "$mpirun" -np 3 "$test" nccl short >"$out" 2>&1
	status=$?
	if [ $status -eq 0 ] || [ $status -eq 124 ]; then
		echo "not ok - $name: status $status"
		failed=1
	fi
	for p in "$@"; do
		grep -Eq "$p" "$out" && continue
		echo "not ok - $name: no line matches: $p"
		sed 's/^/  | /' "$out"
		failed=1
	done
	echo "done - $name, status $status"
}

expect 'a call that fails' 'error 1 5' -- 'of group dp on rank 1: NCCL: unhandled system error'
expect 'an error that comes later' 'async 2 6' -- 'of group dp on rank 2: NCCL: remote process exited'
expect 'nothing ever comes' 'hang 1 7' -- "of group dp: (every rank has arrived, but it has not completed|rank)" 'fake NCCL: aborted'

DT_FAKE_NCCL_VERSION=20900 timeout 300 "$mpirun" -np 2 "$test" staged 'older than 2.10' >"$out" 2>&1 || {
	echo "not ok - an old library"
	cat "$out"
	failed=1
}
DT_EMULATED_CARDS=1 timeout 300 "$mpirun" -np 2 "$test" staged 'several ranks share a GPU' >"$out" 2>&1 || {
	echo "not ok - one card"
	cat "$out"
	failed=1
}
exit $failed
# SPDX-License-Identifier: Apache-2.0
