#!/usr/bin/env bats
# dt-allreduce-bench: columns, the arithmetic of its bandwidths, JSON, exit statuses.

setup() {
	bench="$DT_BIN/dt-allreduce-bench"
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
	export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_vader_single_copy_mechanism=none
	cd "$BATS_TEST_TMPDIR" || return 1
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
	run "$bench" -b 1K -e 16K -n 2 -w 1
	[ "$status" -eq 0 ]
	grep -q '^# Out of bounds values : 0 OK$' <<<"$output"
	grep -q '^# Avg bus bandwidth    : 0$' <<<"$output"
}

@test "columns are those of nccl-tests, 13 a row" {
	ranks 2 "$bench" -b 8 -e 2K -f 16 -n 3 -w 1 -d bfloat16 -o max >out
	[ "$(grep -cv '^#' out)" -eq 3 ]
	[ "$(grep -v '^#' out | awk '{print NF}' | sort -u)" = 13 ]
	[ "$(grep -v '^#' out | awk 'NR == 2 {print $1, $2, $3, $4, $5, $9, $13}')" = "128 64 bfloat16 max -1 0 0" ]
}

@test "bandwidths follow the published formulas, for each collective" {
	ranks 3 "$bench" --collective all -b 960 -e 9600 -f 10 -n 3 -w 1 --json >out.json
	run jq -e '.ranks as $n | .results | length > 20 and all(
	    (.size_bytes / .time_s / 1e9) as $alg |
	    {"all-reduce": (2 * ($n - 1) / $n), "all-gather": (($n - 1) / $n), "reduce-scatter": (($n - 1) / $n),
	     "all-to-all": (($n - 1) / $n), "broadcast": 1, "send-recv": 1, "barrier": 0}[.collective] as $f |
	    ((.algbw_gbs - $alg) | fabs) <= 1e-9 * $alg and ((.busbw_gbs - $alg * $f) | fabs) <= 1e-9 * $alg)' out.json
	[ "$status" -eq 0 ]
	jq -e 'all(.results[]; .wrong == 0)' out.json
	jq -e 'all(.results[] | select(.collective | IN("all-gather", "reduce-scatter", "all-to-all"));
	    .size_bytes == .count * 4 * 3)' out.json
	jq -e 'all(.results[] | select(.collective | IN("all-reduce", "broadcast", "send-recv"));
	    .size_bytes == .count * 4)' out.json
	jq -e 'all(.results[]; .min_s <= .p50_s and .p50_s <= .p99_s and .min_s <= .mean_s and .mean_s <= .p99_s * 1.0001)' out.json
	jq -e '((.avg_busbw_gbs - ([.results[] | select(.collective != "barrier") | .busbw_gbs] | add / length)) | fabs) < 1e-9' out.json
}

@test "JSON is one object with schema 1 and fitted links" {
	ranks 2 "$bench" --json -b 1K -e 1K -n 2 >out.json
	jq -es 'length == 1 and (.[0] | .schema == 1 and .out_of_bounds == 0 and .copy_gbs > 0)' out.json
	jq -e '.links | length == 1 and .[0].class == "shm" and .[0].latency_s >= 0 and .[0].bandwidth_gbs > 0' out.json
	"$bench" --json -b 1K -e 1K -n 2 >one.json
	jq -e '.ranks == 1 and .links == [] and .transport == "self"' one.json
}

@test "every type and op is right, on both transports" {
	for t in f32 bf16 f16 f64 i32 i64 u8 u16 i8; do
		op=$(case $t in f32) echo sum ;; bf16) echo avg ;; f16) echo min ;; *) echo sum ;; esac)
		ranks 3 "$bench" -d "$t" -o "$op" -b 600001 -e 600001 -n 1 -w 0 >out
		grep -q '^# Out of bounds values : 0 OK' out
	done
	for t in bf16 i64; do
		ranks 2 "$bench" --transport mpi -d "$t" -o avg -b 70000 -n 1 -w 0 -e 70000 >out
		grep -q 'transport mpi' out
		grep -q '^# Out of bounds values : 0 OK' out
	done
}

@test "cold buffers, steps and no check" {
	ranks 2 "$bench" --cold -b 1K -e 3K -i 1K -c 0 -n 3 >out
	[ "$(grep -v '^#' out | awk '{print $1}' | xargs)" = "1024 2048 3072" ]
	[ "$(grep -v '^#' out | awk '{print $9}' | sort -u)" = "N/A" ]
}

@test "below the floor is exit 3" {
	run "$bench" -b 1K -e 1K -n 2 --min-busbw 1
	[ "$status" -eq 3 ]
	command -v mpirun >/dev/null || skip "no mpirun"
	run mpirun -np 2 "$bench" -b 1K -e 1K -n 2 --min-busbw 1e6
	[ "$status" -eq 3 ]
	run mpirun -np 2 "$bench" -b 64K -e 64K -n 2 --min-busbw 1e-6
	[ "$status" -eq 0 ]
}

@test "bad options are one line each and exit 2, said by one rank" {
	for bad in "-d float8" "-b 4K -e 1K" "-c 2" "-o prod" "--collective gossip" "-n 0" "-i 0" "-i 8 -f 2" "-f 1" \
		"-b 0" "-b 1 -e 1G -i 1" "--root -1" "extra" "--root 1"; do
		# shellcheck disable=SC2086
		run "$bench" $bad
		[ "$status" -eq 2 ]
		[ "${#lines[@]}" -eq 2 ]
		[[ "${lines[0]}" == dt-allreduce-bench:* ]]
		[[ "${lines[1]}" == Try* ]]
	done
	command -v mpirun >/dev/null || skip "no mpirun"
	run mpirun -np 3 "$bench" -d float8
	[ "$status" -eq 2 ]
	[ "$(grep -c "unknown type 'float8'" <<<"$output")" -eq 1 ]
}

@test "a full disk is a failure, a closed pipe is quiet" {
	[ -w /dev/full ] || skip "no /dev/full"
	for how in "" --json --help; do
		# shellcheck disable=SC2086
		run bash -c '"$0" $1 -b 1K -e 1K -n 1 >/dev/full' "$bench" "$how"
		[ "$status" -eq 1 ]
		[ "${#lines[@]}" -eq 1 ]
	done
	run bash -c '("$0" -b 1K -e 4M -f 1.05 -n 1; echo "$?" >st) | head -n 1' "$bench"
	[ "${#lines[@]}" -eq 1 ]
	[ "$(cat st)" -ne 0 ]
}

@test "an mpirun of another MPI is named" {
	PMI_SIZE=2 PMI_RANK=0 run "$bench" -b 1K -e 1K
	[ "$status" -eq 1 ]
	grep -q 'started 2 processes (PMI_SIZE), but MPI sees 1' <<<"$output"
}
