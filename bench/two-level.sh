#!/bin/bash
# Times all-reduce algorithms between machines that are simulated on this one (tests/mpi/slownet.sh): by default four machines
# of two ranks, with 1 Gbit/s and 1 ms between them. Times every algorithm and the MPI library's own choice in one run per size,
# and compares with predictions from message costs that are fitted in the same run. Needs root, iproute2, a TUN device and Open
# MPI; exits 77 with a reason if it cannot run.
# Environment: NODES, RANKS (per machine), RATE (bits per second), DELAY (us), CALLS (per size).
# Usage: two-level.sh BUILD-FOLDER [SIZE ...]      default sizes 64K 1M 4M
set -u
# shellcheck source=bench/arguments.bash
. "$(dirname "$0")/arguments.bash"
arguments 1 "$@"
bin=$(built "$1" dt-allreduce-bench) || exit 1
shift
sizes=("${@:-1M}") calls=${CALLS:-5} nodes=${NODES:-4} ranks=${RANKS:-2} rate=${RATE:-1e9} delay=${DELAY:-1000}
[ "${1:-}" ] || sizes=(64K 1M 4M)
slownet_dir='' slownet_hosts='' slownet_pid='' slownet_why=''
# shellcheck source=tests/mpi/slownet.sh
. "$(dirname "$0")/../tests/mpi/slownet.sh"
command -v jq >/dev/null || { echo 'skipped: jq is missing' >&2; exit 77; }
trap slownet_down EXIT
trap 'exit 1' INT TERM
slownet_up "$bin/tests/mpi/slowlink" "$nodes" "$ranks" "$rate" "$delay" || { echo "skipped: $slownet_why" >&2; exit 77; }
export OMPI_MCA_mpi_yield_when_idle=1 # there are more ranks than cores, which Open MPI cannot see across simulated machines

table='
    .results | map(select(.in_place)) as $r | ($r | map({(.algorithm): .p50_s}) | add) as $t |
    ($r[] | [.algorithm, .size_bytes, (.p50_s * 1e5 | round / 1e5), ((.predicted_s // 0) * 1e5 | round / 1e5),
        (if .predicted_s then "\(100 * (.predicted_s / .p50_s - 1) | round) %" else "-" end)] | @tsv),
    "# two-level is \($t.ring / $t["two-level"] * 100 | round / 100) times as fast as the ring, \($t.mpi / $t["two-level"]
        * 100 | round / 100) times as Open MPI\u0027s choice; predictions off by at most \($r | map(select(.predicted_s) |
        .predicted_s / .p50_s - 1 | fabs) | max * 100 | round) %"'

cd "$slownet_dir" || exit 1
echo "# $nodes machines of $ranks ranks, $rate bit/s and $delay us between them"
printf 'algorithm\tsize_bytes\tmeasured_s\tpredicted_s\toff\n' | expand -t 16
for s in "${sizes[@]}"; do
	slownet_run timeout 300 mpirun -np $((nodes * ranks)) -host "$slownet_hosts" "$bin/tools/dt-allreduce-bench" --json \
		--explain -a all -b "$s" -e "$s" -n "$calls" -w 1 >out.json 2>err
	wait $slownet_pid || {
		cat err why >&2
		exit 1
	}
	jq -r '"# --simulate " + .topology' out.json
	jq -r "$table" out.json | expand -t 16
done
# SPDX-License-Identifier: Apache-2.0
