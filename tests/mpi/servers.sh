#!/bin/bash
# Parameter servers of ranks on machines that share no memory: two of two ranks on this one (slownet.sh). What auto takes,
# ssp:0 equal to the synchronous run, every part of async once, and a server that is killed named. Exits 77 with a reason
# where machines cannot be made.
# Usage: servers.sh SLOWLINK TOOLS TEXT
set -u
slowlink=$1 tools=$2 text=$3 failed=0
slownet_dir='' slownet_hosts='' slownet_pid='' slownet_why=''
# shellcheck source=tests/mpi/slownet.sh
. "$(dirname "$0")/slownet.sh"
trap slownet_down EXIT
trap 'exit 1' INT TERM
command -v jq >/dev/null || { echo 'skipped: no jq'; exit 77; }
slownet_up "$slowlink" 2 2 1e9 200 || { echo "skipped: $slownet_why"; exit 77; }
export OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1
"$tools/dt-dataset" build --tokenizer byte --out "$slownet_dir/d.h5" "$text" 2>"$slownet_dir/err" ||
	{ cat "$slownet_dir/err"; exit 1; }

# train NAME OPTION...: four ranks on both machines; the metrics are in NAME.jsonl, what is said in NAME.err
train()
{
	slownet_run timeout 100 mpirun -np 4 -host "$slownet_hosts" "$tools/dt-train" --model gpt2-tiny --data "$slownet_dir/d.h5" \
		--seq 32 --microbatch 1 --global-batch 4 --precision fp32 --no-mfu --threads 1 --schedule constant --layout dp4.z1 \
		--metrics "$slownet_dir/$1.jsonl" "${@:2}" 2>"$slownet_dir/$1.err"
	wait "$slownet_pid"
}

check() # NAME COMMAND...
{
	"${@:2}" && { echo "ok - $1"; return; }
	echo "not ok - $1"
	cat "$slownet_dir"/*.err
	failed=1
}

same() # names: losses of all steps agree to 1e-6
{
	jq -es --slurpfile b "$slownet_dir/$2.jsonl" '[., $b] | map(map(select(.loss).loss)) | transpose | length > 5 and
		all((.[0] - .[1]) / .[0] | . < 1e-6 and . > -1e-6)' "$slownet_dir/$1.jsonl" >"$slownet_dir/said"
}

plain=(--steps 8 --optimizer momentum --lr 0.05 --clip 0)
check 'the synchronous run' train all "${plain[@]}"
for k in 0 2; do
	check "ssp:0 with --servers $k" train "ssp$k" "${plain[@]}" --sync ssp:0 --servers "$k"
	check "ssp:0 with --servers $k is the synchronous run" same all "ssp$k"
done
check 'servers are on both machines' grep -q '2 of 4 data-parallel ranks serve a share of the weights by messages: 0 2' "$slownet_dir/ssp2.err"
check 'async' train async --steps 30 --lr 1e-3 --sync async --servers 2
every() { jq -es 'map(select(.loss))[-1] | .step == 30 and .tokens == 30 * 4 * 32' "$slownet_dir/async.jsonl" >"$slownet_dir/said"; }
check 'async gives every part once' every
# Open MPI 4.1's mpirun now and then crashes in its own show_help as a job ends, and what ranks have said is lost with it.
killed()
{
	for _ in 1 2 3; do
		! train killed --steps 100000 --lr 1e-3 --sync ssp:1 --servers 2 --comm-timeout 5 --inject kill:rank=2,step=5 || return 1
		grep -qE 'ORTE_ERROR_LOG: .*show_help|libopen-rte.*pmix_server_log_fn' "$slownet_dir/killed.err" || return 0
	done
}
check 'a server that is killed ends the run' killed
check 'it is named' grep -qE "rank 2 (is at step 4|has|died)|(from|to) rank 2 in group data|process rank 2" "$slownet_dir/killed.err"
exit $failed
# SPDX-License-Identifier: Apache-2.0
