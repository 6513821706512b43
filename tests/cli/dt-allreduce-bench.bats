#!/usr/bin/env bats
# dt-allreduce-bench: columns, bandwidth formulas, JSON, exit statuses.

setup() {
	bench="$DT_BIN/dt-allreduce-bench"
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
	export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_vader_single_copy_mechanism=none
	cd "$BATS_TEST_TMPDIR" || return 1
	# A cache size of its own: with the real one of a large machine every run would fill a large buffer.
	printf '#!/bin/sh\nexec "%s" --cache-size 2M "$@"\n' "$bench" >small
	chmod +x small
	small=$PWD/small
}

ranks() {
	command -v mpirun >/dev/null || skip "no mpirun"
	mpirun -np "$@" 2>err
}

@test "help leads with two examples, version is one line" {
	run "$bench" --help
	[ "$status" -eq 0 ]
	[ "$(grep -c '^  mpirun -np' <<<"$output")" -ge 2 ]
	run "$bench" --version
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 1 ]
}

@test "one rank works, without mpirun" {
	run "$small" -b 1K -e 16K -n 2 -w 1
	[ "$status" -eq 0 ]
	grep -q '^# Out of bounds values : 0 OK$' <<<"$output"
	grep -q '^# Avg bus bandwidth    : 0$' <<<"$output"
}

@test "columns are those of nccl-tests, 13 a row" {
	ranks 2 "$small" -b 8 -e 2K -f 16 -n 3 -w 1 -d bfloat16 -o max >out
	[ "$(grep -cv '^#' out)" -eq 3 ]
	[ "$(grep -v '^#' out | awk '{print NF}' | sort -u)" = 13 ]
	[ "$(grep -v '^#' out | awk 'NR == 2 {print $1, $2, $3, $4, $5, $9, $13}')" = "128 64 bfloat16 max -1 0 0" ]
}

@test "bandwidths follow the published formulas, for each collective" {
	ranks 3 "$small" --collective all -b 960 -e 9600 -f 10 -n 3 -w 1 --json >out.json
	run jq -e '.ranks as $n | .results | length > 20 and all(
	    (.size_bytes / .time_s / 1e9) as $alg |
	    {"all-reduce": (2 * ($n - 1) / $n), "all-gather": (($n - 1) / $n), "reduce-scatter": (($n - 1) / $n),
	     "all-to-all": (($n - 1) / $n), "gather": (($n - 1) / $n), "scatter": (($n - 1) / $n), "reduce": 1, "broadcast": 1, "send-recv": 1,
	     "barrier": 0}[.collective] as $f |
	    ((.algbw_gbs - $alg) | fabs) <= 1e-9 * $alg and ((.busbw_gbs - $alg * $f) | fabs) <= 1e-9 * $alg)' out.json
	[ "$status" -eq 0 ]
	jq -e 'all(.results[]; .wrong == 0)' out.json
	jq -e 'all(.results[] | select(.collective | IN("all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"));
	    .size_bytes == .count * 4 * 3)' out.json
	jq -e 'all(.results[] | select(.collective | IN("all-reduce", "broadcast", "reduce", "send-recv"));
	    .size_bytes == .count * 4)' out.json
	jq -e 'all(.results[]; .min_s <= .p50_s and .p50_s <= .p99_s and .min_s <= .mean_s and .mean_s <= .p99_s * 1.0001)' out.json
	jq -e '((.avg_busbw_gbs - ([.results[] | select(.collective != "barrier") | .busbw_gbs] | add / length)) | fabs) < 1e-9' out.json
}

@test "JSON is one object with schema 1 and fitted links" {
	ranks 2 "$small" --json -b 1K -e 1K -n 2 >out.json
	jq -es 'length == 1 and (.[0] | .schema == 1 and .out_of_bounds == 0 and .copy_gbs > 0)' out.json
	jq -e '.links | length == 1 and .[0].class == "shm" and .[0].latency_s >= 0 and .[0].bandwidth_gbs > 0' out.json
	"$small" --json -b 1K -e 1K -n 2 >one.json
	jq -e '.ranks == 1 and .links == [] and .transport == "self"' one.json
}

@test "every element type and reduction is right, on both transports" {
	# test_comm tests all of them
	for t in bf16:avg:registered f16:min:plain u8:sum:registered i64:max:plain; do
		IFS=: read -r type op buffers <<<"$t"
		ranks 2 "$small" -d "$type" -o "$op" --buffers "$buffers" -b 600001 -e 600001 -n 1 -w 0 >out
		grep -q '^# Out of bounds values : 0 OK' out
	done
	ranks 2 "$small" --transport mpi -d bf16 -o avg -b 70000 -n 1 -w 0 -e 70000 >out
	grep -q 'transport mpi' out
	grep -q '^# Out of bounds values : 0 OK' out
}

@test "comparison with MPI, arrival times, compression: figures are consistent" {
	ranks 2 "$small" --json --compare --skew --compress top-k --compress-keep 0.1 -b 64K -e 64K -n 4 -w 1 >out.json
	jq -e 'all(.results[]; .registered and .mpi_time_s > 0 and .wrong == 0 and
	    ((.speedup - .mpi_time_s / .time_s) | fabs) < 1e-9 * .speedup)' out.json
	jq -e '.skew | length == 2 and all(.[]; .mean_s >= 0 and .mean_s <= .max_s) and
	    ([.[].last_fraction] | add) <= 1.0000001' out.json
	jq -e '.compression | length == 1 and (.[0] | .method == "top-k" and .size_bytes == 65536 and
	    .wire_bytes == 1639 * 8 and .plain_wire_bytes == 65536 and .codec_s <= .time_s and
	    ((.break_even_gbs - (.plain_wire_bytes - .wire_bytes) / .codec_s / 1e9) | fabs) < 1e-9)' out.json
	ranks 2 "$small" --compare --buffers plain -b 64K -e 64K -n 2 -w 1 >out
	[ "$(grep -v '^#' out | awk "{print NF}")" = 19 ]
}

@test "after SIGINT the output is still one JSON object" {
	"$small" --json -b 1K -e 1K -n 1000000 --collective all >out.json &
	pid=$!
	# wait until SIGINT and SIGTERM are blocked (bits 1 and 14 of the mask), since only then they are
	# handled
	for _ in $(seq 600); do
		sleep 0.1
		mask=$(awk '$1 == "SigBlk:" {print $2}' "/proc/$pid/status" 2>/dev/null) || break
		((0x${mask:-0} & 0x4002)) && break
	done
	kill -INT "$pid"
	wait "$pid" && status=0 || status=$?
	[ "$status" -eq 1 ]
	jq -es 'length == 1 and .[0].interrupted' out.json
	"$small" --json -b 1K -e 1K -n 1 | jq -e '.interrupted == false and .results[0].dtype == "fp32"'
}

@test "every algorithm in one run, predicted and measured" {
	ranks 2 "$small" --json --explain -a all -b 64K -e 64K -n 2 -w 1 >out.json
	jq -e '[.results[].algorithm] | unique == ["direct", "double-tree", "doubling", "mpi", "naive", "ps", "rabenseifner",
	    "ring", "tree", "two-level"]' out.json
	jq -e 'all(.results[]; .wrong == 0 and (.predicted_s == null) == (.algorithm | IN("direct", "mpi")))' out.json
}

@test "the fastest call's time is at most the reported time, which is at most the mean" {
	ranks 3 "$small" --json -b 64 -e 64K -f 4 -n 40 -w 2 --collective all >out.json
	jq -e 'all(.results[]; .min_s <= .time_s and .time_s <= .mean_s * 1.000001)' out.json
}

@test "one table of sizes by algorithms, the fastest one marked, in 80 columns" {
	ranks 2 "$small" -a all -b 64 -e 64K -f 32 -n 3 -w 1 >out
	[ "$(grep -v '^#' out | awk '{print $1 $2}' | xargs)" = "64B 2KiB 64KiB" ]
	[ "$(grep -v '^#' out | awk '{print NF}' | sort -u)" = 12 ] # size and its unit, ten algorithms
	[ "$(grep -v '^#' out | grep -c '[0-9]\*')" -eq 3 ]
	# the mark is at the smallest number
	awk '!/^#/ {least = 1e99; for (i = 3; i <= NF; i++) {v = $i + 0; if (v < least) least = v; if ($i ~ /\*/) mark = v}
	    if (mark != least) bad = 1} END {exit bad}' out
	awk 'length($0) > 80 {bad = 1} END {exit bad}' out
	grep -q '^# *size direct *mpi *naive *ps *ring *ling *seifn. *tree *tree *level$' out
	# output that needs more columns: one table per algorithm
	ranks 2 "$small" -a all --stats -b 1K -e 1K -n 2 >out
	[ "$(grep -c '^# algorithm ' out)" -eq 10 ]
	ranks 2 "$small" -a all --explain --collective broadcast -b 1K -e 1K -n 2 >out
	grep -q '^  # model  *-  *-  *[0-9.]' out
}

@test "latency in the columns of OSU's benchmark" {
	ranks 2 "$small" --latency -b 8 -e 512 -f 8 -n 5 >out
	[ "$(grep -v '^#' out | awk '{print NF}' | sort -u)" = 5 ]
	[ "$(grep -v '^#' out | awk '{print $1}' | xargs)" = "8 64 512" ]
	grep -q '^# Size *Avg Latency(us)' out
	awk '!/^#/ && !($3 <= $2 && $2 <= $4) {bad = 1} END {exit bad}' out
}

@test "an algorithm is chosen, predicted and named" {
	ranks 3 "$small" --json --collective all -a ring --explain -b 6000 -e 6000 -n 2 -w 1 >out.json
	jq -e '[.results[].collective] | unique == ["all-gather", "all-reduce", "broadcast", "reduce", "reduce-scatter"]' out.json
	jq -e 'all(.results[]; .algorithm == "ring" and .predicted_s > 0 and .wrong == 0)' out.json
	ranks 2 "$small" --explain -b 1K -e 1K -n 2 >out
	grep -q '^# naive .* us, .*two-level .* us, chosen: direct$' out
}

@test "simulated networks match closed forms, without ranks" {
	run "$bench" --json --simulate flat,ranks=64,net_us=2,net_gbs=10,reduce_gbs=100 -b 640000 -e 640000
	[ "$status" -eq 0 ]
	jq -e '.schema == 1 and .ranks == 64 and ([.results[].algorithm] | length == 8)' <<<"$output"
	jq -e '.results[] | select(.algorithm == "ring") |
	    (126 * 2e-6 + 126 / 64 * 640000 / 10e9 + 63 / 64 * 640000 / 100e9) as $want |
	    ((.time_s - $want) | fabs) < 1e-6 * $want' <<<"$output"
	# ranks that are not whole machines: all but two-level
	for ranks in 4 12; do
		run "$bench" --json --simulate flat:$ranks -b 640000 -e 640000
		[ "$status" -eq 0 ]
		jq -e --argjson p $ranks '([.results[].algorithm] | length == 7 and all(. != "two-level")) and .ranks == $p' <<<"$output"
	done
	run "$bench" --simulate flat:12 -b 1M -e 1M -a two-level
	[ "$status" -eq 1 ]
	[[ $output == *"two-level needs equally many ranks on every machine"* ]]
	run "$bench" --simulate torus:4096 -b 1M -e 1M -a two-level
	[ "$status" -eq 0 ]
	[ "$(grep -cv '^#' <<<"$output")" -eq 1 ]
}

# Messages between machines: 4 rounds instead of 14; bytes: 2 (n - 1) / n of the buffer for n machines instead
# of 2 (p - 1) / p for p ranks.
@test "simulated two-level against the ring: latency for small sizes, bytes for large ones" {
	run "$bench" --json -b 1K -e 1G -f 1e6 \
		--simulate fat-tree,ranks=8,node=2,net_us=1000,net_gbs=0.125,shm_us=0.01,shm_gbs=1e4,hop_us=0,reduce_gbs=1e4
	[ "$status" -eq 0 ]
	jq -e '[.results[] | select(.algorithm == "ring").time_s] as $ring |
	    [.results[] | select(.algorithm == "two-level").time_s] as $two | ($ring | length) == 2 and
	    ($ring[0] / $two[0] / (14 / 4) - 1 | fabs) < 0.01 and ($ring[1] / $two[1] / (7 / 6) - 1 | fabs) < 0.01' \
		<<<"$output"
}

@test "cold buffers, steps, and no check" {
	ranks 2 "$small" --cold -b 1K -e 3K -i 1K -c 0 -n 3 >out
	[ "$(grep -v '^#' out | awk '{print $1}' | xargs)" = "1024 2048 3072" ]
	[ "$(grep -v '^#' out | awk '{print $9}' | sort -u)" = "N/A" ]
}

@test "a bandwidth below --min-busbw gives exit status 3" {
	run "$small" -b 1K -e 1K -n 2 --min-busbw 1
	[ "$status" -eq 3 ]
	command -v mpirun >/dev/null || skip "no mpirun"
	run mpirun -np 2 "$small" -b 1K -e 1K -n 2 --min-busbw 8000000Gb/s
	[ "$status" -eq 3 ]
	run mpirun -np 2 "$small" -b 64K -e 64K -n 2 --min-busbw 1e-6
	[ "$status" -eq 0 ]
}

@test "bad options are one line each and exit status 2, reported by one rank" {
	for bad in "-d float8" "-b 4K -e 1K" "-c 2" "-o prod" "--collective gossip" "-n 0" "-i 0" "-i 8 -f 2" "-f 1" \
		"-b 0" "-b 1 -e 1G -i 1" "--root -1" "extra" "--root 1" "-a gossip" "-a tree --collective all-gather" \
		"--simulate mesh" "--simulate flat:0" "--simulate rail,ranks=9" "--compress zip" "--compress-keep 2" \
		"--compress-keep 0.1" "--compress-rank 2" "--latency --stats"; do
		# shellcheck disable=SC2086
		run "$bench" $bad
		[ "$status" -eq 2 ]
		[ "${#lines[@]}" -eq 2 ]
		[[ "${lines[0]}" == dt-allreduce-bench:* ]]
		[[ "${lines[1]}" == Try* ]]
	done
	# three processes as under mpirun, which itself would end the others with the first one, perhaps
	# before that one has printed
	for rank in 0 1 2; do
		OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=$rank OMPI_APP_CTX_NUM_PROCS=3 run "$bench" -d float8
		[ "$status" -eq 2 ]
		[ "$(grep -c "unknown type 'float8'" <<<"$output")" -eq $((rank == 0)) ]
	done
}

@test "a full disk is a failure, a closed pipe is quiet" {
	[ -w /dev/full ] || skip "no /dev/full"
	for how in "" --json --help; do
		# shellcheck disable=SC2086
		run bash -c '"$0" $1 -b 1K -e 1K -n 1 >/dev/full' "$small" "$how"
		[ "$status" -eq 1 ]
		[ "${#lines[@]}" -eq 1 ]
	done
	run bash -c '("$0" -b 1K -e 4M -f 1.05 -n 1; echo "$?" >st) | head -n 1' "$small"
	[ "${#lines[@]}" -eq 1 ]
	[ "$(cat st)" -ne 0 ]
}

@test "an mpirun of another MPI is detected and named" {
	PMI_SIZE=2 PMI_RANK=0 run "$bench" -b 1K -e 1K
	[ "$status" -eq 1 ]
	grep -q 'started 2 processes (PMI_SIZE), but MPI sees 1' <<<"$output"
}
@test "options that a run would not read are refused" {
	for o in '--simulate rail:8 --stats' '--simulate rail:8 --collective send-recv' '--simulate rail:8 -a mpi' \
		'--compress int8 --collective broadcast' '--compress int8 -d bf16' '--compress int8 -a all' \
		'--latency --compare'; do
		# shellcheck disable=SC2086
		run "$bench" $o
		[ "$status" -eq 2 ] || { echo "$o: $output"; false; }
	done
}

@test "the line of a compressed all-reduce follows its row" {
	"$small" --compress int8 -b 64 -e 64 -n 1 >out
	[ "$(grep -n 'int8 of 64 B' out | cut -d: -f1)" = 7 ]
	grep -q 'sends 0 of 0 bytes; not faster on any link$' out
}

@test "simulated dragonfly: a group larger than the network is the whole network" {
	one() { ( ulimit -v 2000000; "$DT_BIN/dt-allreduce-bench" --json -b 1K -e 1M -f 32 --simulate "dragonfly,ranks=64,node=4,leaf=2,group=$1" | jq -c .results ); }
	[ "$(one 8)" = "$(one 16384)" ] # of 8 routers
}
# SPDX-License-Identifier: Apache-2.0
