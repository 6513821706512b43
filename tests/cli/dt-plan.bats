# dt-plan: plans that fit and run, agreement with dt-memest, JSON, and every invalid input.

load slow

setup() {
	plan="$DT_BIN/dt-plan"
	memest="$DT_BIN/dt-memest"
	cd "$BATS_TEST_TMPDIR" || exit
	unset LC_ALL LANG
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
	export OMPI_MCA_hwloc_base_binding_policy=none
}

# refused STATUS TEXT ARGUMENT...: one line on stderr with TEXT, nothing on stdout, this status
refused() {
	local status_wanted=$1 text=$2
	shift 2
	local rc=0
	"$plan" "$@" >out 2>err </dev/null || rc=$?
	echo "status $rc, stderr: $(cat err)"
	[ "$rc" -eq "$status_wanted" ]
	[ ! -s out ]
	grep -v "^Try 'dt-plan --help'" err >lines
	[ "$(wc -l <lines)" -eq 1 ]
	grep -qF -- "$text" lines
}

@test "different devices: the faster ones compute more microbatches; the printed command runs" {
	both() { "$plan" --json --top 1 --precision bf16 --microbatch 1 --global-batch 4096 "$@" gpt2-124m; }
	# kinds that are the same device count as one kind
	both --gpu H100:8,H100:8 --compare dp16.z1 >same.json
	both --gpu H100 --gpus 16 --compare dp16.z1 >plain.json
	jq -en --slurpfile a same.json --slurpfile b plain.json '($a[0].compared | has("shares") | not) and
		($a[0].compared.step_s / $b[0].compared.step_s - 1 | fabs < 1e-12) and ($a[0].compared.mfu / $b[0].compared.mfu - 1 | fabs < 1e-12)'
	# with many microbatches rates add up: half the ranks of each kind
	both --gpu A100 --gpus 16 --compare dp16.z1 >slow.json
	both --gpu H100:8,A100:8 --compare dp16.z1 >mixed.json
	jq -en --slurpfile h plain.json --slurpfile a slow.json --slurpfile m mixed.json '
		[$h[0], $a[0], $m[0]] | map(.compared.tokens_per_s) | (.[2] / ((.[0] + .[1]) / 2) - 1) | fabs < 0.02'
	jq -e '.compared.shares | split(",") | map(tonumber) | length == 16 and add == 4096 and .[0] > 1.5 * .[8] and .[0] - .[7] <= 1' mixed.json
	jq -e '.cluster.kinds == [{device: "H100", gpus: 8}, {device: "A100", gpus: 8}]' mixed.json
	# tensor-parallel ranks wait for the slowest in every microbatch
	both --gpu A100 --gpus 16 --compare dp8.tp2 >slow.json
	both --gpu H100:8,A100:8 --compare dp8.tp2 >mixed.json
	jq -en --slurpfile a slow.json --slurpfile m mixed.json '$m[0].compared.step_s >= $a[0].compared.step_s and ($m[0].compared | has("shares") | not)'
	# a cluster description is written and read back
	"$plan" --gpu H100:2,A100:2 --emit cluster >cluster.json
	both --gpu H100:2,A100:2 | jq .plans >one
	both --cluster cluster.json | jq .plans >two
	cmp one two
	jq '.kinds[0].gpus = 3' cluster.json >wrong.json
	refused 1 "'kinds' are 5 devices, 'gpus' is 4" --cluster wrong.json gpt2-124m
	# the trainer accepts the list of shares
	"$DT_BIN/dt-dataset" build --tokenizer byte --out d.h5 "$BATS_TEST_FILENAME" 2>log
	args=$("$plan" --gpu H100:1,L4:1 --vocab 257 --seq 128 --microbatch 1 --global-batch 16 --compare dp2 gpt2-mini --emit args)
	[[ $args == *"--shares "* ]]
	# shellcheck disable=SC2086
	mpirun -np 2 "$DT_BIN/dt-train" --data d.h5 $args --steps 2 --threads 1 --no-mfu >m.jsonl 2>log
	[ "$(jq -sc '.[0].shares' m.jsonl)" = "[${args##*--shares }]" ]
	refused 2 "is not a device and a number" --gpu H100:8,A100 gpt2-124m
	refused 2 "no device is called" --gpu H100:8,Z9:2 gpt2-124m
	refused 2 "'cpu' cannot be part of a mixed cluster" --gpu cpu:2,A100:2 gpt2-124m
	refused 2 "are 16 devices, not 4" --gpu H100:8,A100:8 --gpus 4 gpt2-124m
	refused 2 "not with --serve" --gpu H100:8,A100:8 --serve gpt2-124m
	refused 1 "are for text models" --serve --tpot 0.1 resnet-18
	refused 1 "in fp32 or bf16" --serve --weights q8_0 resnet-18
	refused 1 "no adapters" --serve --max-loras 2 resnet-18
}

@test "interleaved pipelines do not keep the same mesh without interleaving out" {
	"$plan" --json --gpus 64 --gpu H100 --top 5 mixtral-8x7b >p.json
	"$plan" --json --gpus 64 --gpu H100 --compare dp8.pp8.z1 mixtral-8x7b >c.json
	jq -en --slurpfile p p.json --slurpfile c c.json '$c[0].compared.step_s < $p[0].plans[4].step_s and
		any($p[0].plans[]; .layout == "dp8.pp8.z1") and
		([$p[0].plans[].layout | gsub("[.](z|v|s)[0-9]+"; "")] | group_by(.) | all(length <= 2))'
}

@test "plans fit, are sorted, and use every device" {
	for args in "--gpus 8 --gpu H100 llama-2-7b" "--gpus 64 --gpu H100 llama-2-70b" "--gpus 16 mixtral-8x7b"; do
		# shellcheck disable=SC2086
		"$plan" --json $args >p.json
		jq -e '(.plans | length) >= 3 and ([.plans[].fits] | all)
			and ([.plans[].step_s] | . == sort) and ([.plans[].mfu] | all(. > 0.05 and . < 0.95))
			and .schema == 1' p.json
		gpus=$(jq .cluster.gpus p.json)
		jq -r '.plans[].layout' p.json | while read -r layout; do
			[ "$("$memest" --json --account generic "$(jq -r .model p.json)" --layout "$layout" --accumulate 64 |
				jq .world)" = "$gpus" ]
		done
	done
}

@test "a plan's memory is dt-memest's estimate" {
	"$plan" --json --gpus 8 --gpu H100 --global-batch 64 llama-2-7b >p.json
	for i in 0 1 2; do
		jq -r ".plans[$i] | \"\\(.layout) \\(.microbatch) \\(.accumulation) \\(.recompute) \\(.peak_bytes)\"" p.json >line
		read -r layout mb acc recompute bytes <line
		estimated=$("$memest" --json --account dt llama-2-7b --layout "$layout" --microbatch "$mb" --accumulate "$acc" \
			--recompute "$recompute" | jq .peak_bytes)
		echo "$layout: $bytes, dt-memest $estimated"
		[ "$estimated" = "$bytes" ]
	done
}

@test "nothing fits: status 3; a layout given with --compare is judged" {
	run "$plan" --gpus 8 --gpu T4 llama-3-70b
	[ "$status" -eq 3 ]
	[[ "$output" == *"nothing fits"* ]]
	run "$plan" --gpus 8 --gpu H100 --compare dp8 llama-2-7b
	[ "$status" -eq 3 ]
	echo "$output" | grep -E '^\? +dp8 .*does not fit'
	run "$plan" --gpus 8 --gpu H100 --compare dp8.z3 llama-2-7b
	[ "$status" -eq 0 ]
	echo "$output" | grep -E '^\? +dp8.z3 '
	refused 3 "nothing fits" --gpus 8 --gpu T4 --emit args llama-3-70b
}

@test "a device with the memory that dt-memest says is enough: with adapters, frozen layers, offloading, no masters" {
	local none=(--seq 512 --recompute none) plan_options
	for options in "" --no-master "--optimizer sgd --no-master" "--lora 8" "--lora 8 --lora-targets qv" "--lora 8 --lora-base nf4" \
		"--freeze .*mlp.*" "--offload optimizer" "--offload all" "--offload activations" "--optimizer adafactor" \
		"--account book" "--account deepspeed --optimizer sgd" "--precision fp32 --account deepspeed"; do
		read -ra plan_options <<<"$options"
		bytes=$("$memest" --json llama-2-7b "${none[@]}" "${plan_options[@]}" | jq .peak_bytes)
		"$plan" --gpus 1 --gpu H100 --margin 0 --gpu-mem "$bytes" --global-batch 2 --microbatch 1 --json llama-2-7b "${none[@]}" \
			"${plan_options[@]}" >p.json || { echo "$options"; return 1; }
		[ "$(jq '.plans[0].peak_bytes' p.json)" = "$bytes" ]
		refused 3 "nothing fits" --gpus 1 --gpu H100 --margin 0 --gpu-mem $((bytes - 1)) --global-batch 2 --microbatch 1 --emit args \
			llama-2-7b "${none[@]}" "${plan_options[@]}"
	done
}

@test "--gpu cpu --gpu-mem: what one rank may take, however many cores and ranks the machine has" {
	for ranks in 1 2 3; do
		bytes=$("$memest" --json --account dt gpt2-mini --layout "dp$ranks" --seq 64 --recompute none | jq .peak_bytes)
		asked=(--margin 0 --global-batch "$ranks" --microbatch 1 --recompute none --seq 64 gpt2-mini --compare "dp$ranks" --json)
		[ "$("$plan" --gpu cpu --gpus "$ranks" --gpu-mem "$bytes" "${asked[@]}" | jq .compared.fits)" = true ]
		run "$plan" --gpu cpu --gpus "$ranks" --gpu-mem $((bytes - 1)) "${asked[@]}"
		[ "$status" -eq 3 ]
		[ "$(jq .compared.fits <<<"$output")" = false ]
		"$plan" --gpu cpu --gpus "$ranks" --gpu-mem "$bytes" --emit cluster >c.json
		[ "$("$plan" --cluster c.json "${asked[@]}" | jq .compared.fits)" = true ]
	done
}

@test "layers that --freeze and --lora-targets select are each planned as they are trained" {
	of() { "$plan" --gpus 1 --gpu H100 --gpu-mem 1TiB --compare dp1 --microbatch 1 --recompute none --seq 1024 --json llama-2-7b "$@"; }
	# Of 32 equal layers one is frozen: backward leaves out its weight gradients, a sixth of its products.
	of | jq .compared.time.matmul_s >all
	for layer in 0 1 17 31; do
		of --freeze "layers\.$layer\..*" | jq -e --argjson all "$(cat all)" '.compared.time.matmul_s / $all - 1 + 1 / 96 | fabs < 1e-3'
	done
	# Backward goes down to the lowest trained parameter: forward, and both passes of the layers above.
	of --freeze 'embed.*|layers\.(.|1.|2[0-3])\..*' | jq -e --argjson all "$(cat all)" '.compared.time.matmul_s / $all - 1 / 3 - 1 / 6 | fabs < 2e-3'
	of --lora 8 --lora-targets 'layers\.(.|1.|2[0-3])\..*' | jq .compared.time.matmul_s >low
	of --lora 8 --lora-targets 'layers\.(24|25|26|27|28|29|3.)\..*' | jq -e --argjson low "$(cat low)" '.compared.time.matmul_s < 0.7 * $low'
	"$plan" --gpus 2 --gpu H100 --lora 8 --lora-targets 'layers\.31\..*' --emit args llama-2-7b >args
	[ "$(of --reproducible --microbatch 1 | jq .plans[0].peak_bytes)" = "$(of --reproducible --microbatch 2 | jq .plans[0].peak_bytes)" ]
}

@test "frozen layers: a later stage may need most, and its memory is the plan's" {
	asked=(--account dt --vocab 1000 --freeze 'embed.*|layers\.[0-9]\..*' --seq 256 --recompute none --json llama-2-7b)
	"$plan" --gpus 8 --gpu H100 --gpu-mem 1TiB --global-batch 8 --microbatch 1 --compare pp8 "${asked[@]}" >p.json
	[ "$(jq .compared.peak_bytes p.json)" = "$("$memest" --layout pp8 --microbatch 1 --accumulate 8 "${asked[@]}" | jq .peak_bytes)" ]
}

@test "time of an update: what is read and written of each parameter" {
	# An H100's 80% of 3.35 TB/s; AdamW reads and writes both moments, reads gradients, reads and writes what it
	# updates, and beside masters it writes the 16-bit weights.
	updates() { # BYTES OPTION...
		"$plan" --gpus 1 --gpu H100 --gpu-mem 1TiB --compare dp1 --json llama-2-7b "${@:2}" | jq -e --argjson bytes "$1" '
			.compared.time.optimizer_s * 0.8 * 3.35e12 / 6738415616 / $bytes - 1 | fabs < 1e-6'
	}
	updates 30 --precision bf16
	updates 24 --precision bf16 --no-master
	updates 28 --precision fp32
	updates 12 --precision fp32 --optimizer sgd
}

@test "faster links and faster devices make faster plans" {
	step() { "$plan" --json "$@" | jq '.plans[0].step_s'; }
	jq -en "$(step --gpu A100 --gpus 8 llama-2-7b) > $(step --gpu H100 --gpus 8 llama-2-7b)"
	jq -en "$(step --gpus 64 --nic-bandwidth 1 llama-2-7b) > 1.05 * $(step --gpus 64 --nic-bandwidth 100 llama-2-7b)"
	jq -en "$(step --gpus 256 --oversubscription 32 --leaf 2 llama-2-7b) > $(step --gpus 256 llama-2-7b)"
}

@test "measured links are used" {
	echo '{"links": [{"class": "shm", "latency_s": 1e-6, "bandwidth_gbs": 1.5}]}' >links.json
	"$plan" --json --links links.json --gpus 8 --gpu A100 llama-2-7b |
		jq -e '.cluster.levels[0].bandwidth_bytes_per_s == 1.5e9'
	"$plan" --json --links - --gpus 8 llama-2-7b <links.json | jq -e '.cluster.levels[0].latency_s == 1e-6'
}

@test "a cluster file: another file or a misspelt key is refused" {
	"$plan" --emit cluster --gpu H100 --gpus 64 | jq -c '.gpu_per_node = 4' >misspelt.json
	refused 1 "unknown key 'gpu_per_node'; did you mean 'gpus_per_node'" --cluster misspelt.json llama-2-7b
	echo '{"program": "dt-allreduce-bench", "links": []}' >links.json
	refused 1 "unknown key 'program'" --cluster links.json llama-2-7b
}

@test "a cluster description survives being written and read" {
	"$plan" --emit cluster --gpu H100 --gpus 64 --topology dragonfly --oversubscription 4 --leaf 4 >c.json
	"$plan" --emit cluster --cluster c.json >d.json
	cmp c.json d.json
	jq -e '.levels | length == 3' c.json
	[ "$("$plan" --json --cluster c.json llama-2-7b | jq -c .plans)" = "$("$plan" --json --gpu H100 --gpus 64 \
		--topology dragonfly --oversubscription 4 --leaf 4 llama-2-7b | jq -c .plans)" ]
}

@test "calibration recovers the constants behind measured runs" {
	# Step times of an imaginary machine: predicted with other constants, which calibration must then
	# find.
	"$plan" --emit cluster --gpu cpu --gpus 2 | jq -c '.cores_per_node = 2 | .matmul_efficiency = 0.31 |
		.memory_efficiency = 1.2 | .op_s = 3e-5' >true.json
	for run in gpt2-tiny:dp1:4:64 gpt2-mini:dp1:4:256 gpt2-mini:dp1:1:128 llama-tiny:dp2:4:128 gpt2-nano-char:dp1:8:64 \
		gpt2-mini:dp2:8:256 gpt2-124m:dp1:1:256 gpt2-mini:tp2:2:256; do
		IFS=: read -r model layout mb seq <<<"$run"
		jq -cn --arg m "$model" --arg l "$layout" --argjson b "$mb" --argjson s "$seq" \
			'{model: $m, layout: $l, microbatch: $b, seq: $s, step_s: 1}'
	done >runs.jsonl
	"$plan" --cluster true.json --validate runs.jsonl --json | jq -c '.ratios[]' >ratios
	paste -d' ' ratios runs.jsonl | while read -r ratio line; do
		jq -c ".step_s = $ratio" <<<"$line"
	done >measured.jsonl
	"$plan" --cluster true.json --validate measured.jsonl --json | jq -e '.mean_error < 1e-9'
	"$plan" --gpu cpu --gpus 2 --emit cluster | jq -c '.cores_per_node = 2' >start.json
	before=$("$plan" --cluster start.json --validate measured.jsonl --json | jq .mean_error)
	"$plan" --cluster start.json --calibrate measured.jsonl --emit cluster >fitted.json
	after=$("$plan" --cluster fitted.json --validate measured.jsonl --json | jq .mean_error)
	echo "mean error $before, calibrated $after"
	jq -en "$before > 0.2 and $after < 0.02"
}

@test "dt-train runs the emitted arguments" {
	seq 1 2000 >text
	"$DT_BIN/dt-dataset" build --tokenizer byte --out data.h5 text
	for model in gpt2-tiny llama-tiny; do
		args=$("$plan" --gpus 2 --gpu cpu --seq 64 --global-batch 8 --emit args $model)
		echo "$args"
		# shellcheck disable=SC2086
		mpirun -np 2 "$DT_BIN/dt-train" $args --data data.h5 --steps 1 --threads 1 --no-mfu --metrics m.json
		[ "$("$plan" --gpus 2 --gpu cpu --threads 1 --seq 64 --global-batch 8 --json $model | jq '.plans[0].peak_bytes')" = \
			"$(jq -s '.[0].peak_bytes' m.json)" ]
	done
}

@test "fp8 linears: faster for large matrices; in the emitted arguments; refused without such linears" {
	ratio=99
	for model in llama-2-7b gpt2-1558m; do
		"$plan" --gpus 8 --gpu H100 --compare dp8.z3 --microbatch 4 --recompute selective --json $model >a.json
		"$plan" --gpus 8 --gpu H100 --compare dp8.z3 --microbatch 4 --recompute selective --json $model --fp8 >b.json
		before=$ratio
		ratio=$(jq -n --slurpfile a a.json --slurpfile b b.json '$a[0].compared.step_s / $b[0].compared.step_s')
		echo "$model: $ratio times as fast"
		# for narrow matrices conversion to 8 bits takes longer than it saves
		jq -en "$ratio < $before and $ratio < 2 and $ratio > (if $before == 99 then 1.2 else 0.7 end)"
		# the plan includes the memory for it
		[ "$(jq .compared.peak_bytes b.json)" = "$("$memest" --train --fp8 $model --layout dp8.z3 --microbatch 4 \
			--recompute selective --accumulate "$(jq .compared.accumulation b.json)" --seq "$(jq .seq_tokens b.json)" \
			--json | jq .peak_bytes)" ]
	done
	"$plan" --gpus 8 --gpu H100 --fp8 --emit args llama-2-7b | grep -q -- ' --fp8'
	refused 2 "'A100' has no 8-bit float products" --gpus 8 --gpu A100 --fp8 llama-2-7b
	"$plan" --gpus 8 --gpu H100 --emit cluster | jq -e '.peak_fp8_flops == 1979e12'
}

@test "rooflines: 312 TFLOP/s over 2.039 TB/s is 153 FLOP/B, and decode is bound by memory" {
	"$plan" roofline --json llama-2-7b | jq -e '(.ridge_flops_per_byte | . > 152.9 and . < 153.1)
		and (.phases[] | select(.phase == "decode, 1 sequence") | .bound == "memory" and .flops_per_byte < 2)
		and (.phases[] | select(.phase == "prefill") | .bound == "compute")'
}

@test "rooflines and plans of classifiers speak of images; a sample has at most the model's length" {
	"$plan" roofline --json resnet-18 | jq -e '[.phases[].phase] ==
		["train", "classify, 1 image", "classify, 32 images", "classify, 256 images"]'
	# 1.8 G multiply-adds an image (He et al. 2015, table 1), three times in training
	"$plan" roofline --json resnet-18 | jq -e '(.phases[1].flops | . > 3.6e9 and . < 3.7e9)
		and .phases[3].flops == 256 * .phases[1].flops and (.phases[0].flops / .phases[1].flops | . > 2.9 and . <= 3)'
	run -0 "$plan" --gpus 2 --tokens 1M --price 2 resnet-18
	[[ $output == *"global batch 32 images, account"*"images/day"*"a million images cost "*" images"*"1.00 M images take"* && $output != *token* ]]
	[[ $("$plan" roofline --microbatch 4 resnet-18) == *"trained on 4 images of 224 x 224 pixels"* ]]
	refused 1 "--seq is for text models" roofline --seq 100 resnet-18
	refused 1 "exceeds the model's 1024 positions" roofline --seq 2000 gpt2-124m
}

@test "plans of classifiers: convolutions are products" {
	"$plan" --gpus 1 --gpu H100 --microbatch 64 --global-batch 64 --json resnet-50 |
		jq -e '.plans[0] | .time.matmul_s > 0.002 and .time.matmul_s < .step_s'
}

@test "handbooks' errors: a ridge of 0.156 FLOP/B is 1000 times too low, 14 days for 7B on 1T tokens 22 times" {
	# 312 TFLOP/s over 2 TB/s is 156 FLOP/B; the handbook divides 312 by 2,000
	[[ $("$plan" roofline --gpu A100 llama-2-7b) == *"print 0.156 for A100: 312 TFLOP/s over 2 TB/s is 156, a thousand times that"* ]]
	[[ $("$plan" roofline --gpu cpu llama-2-7b) != *handbooks* ]]
	jq -en '312e12 / 2e12 / 0.156 | . > 999.9 and . < 1000.1'
	# 6 flops per parameter and token are 4.2e22 flops: 14 days of 8 A100 at their peak are 3.0e21, a
	# fourteenth. At the fraction of the peak that training reaches it takes 22 times two weeks.
	jq -en '6 * 7e9 * 1e12 / (8 * 312e12 * 14 * 86400) | . > 13.9 and . < 14'
	run "$plan" --gpus 8 --gpu A100 llama-2-7b --tokens 1T
	days=$(sed -n 's/.*about \([0-9]*\) days.*/\1/p' <<<"$output" | head -1)
	[ "$days" -gt $((14 * 20)) ]
	[ "$days" -lt $((14 * 26)) ]
}

@test "servers: more requests need more replicas, a tighter TPOT never fewer devices" {
	devices() { "$plan" --serve --json --requests "$(few 500 4000)" "$@" llama-3-8b | jq '.plans[0] | .tp * .replicas'; }
	[ "$(devices --rate "$(few 30 100)")" -gt "$(devices --rate 1)" ]
	[ "$(devices --rate "$(few 30 100)" --tpot 0.02)" -ge "$(devices --rate "$(few 30 100)" --tpot 0.1)" ]
	run "$plan" --serve --gpu T4 llama-3-70b
	[ "$status" -eq 3 ]
	"$plan" --serve --gpu L4 --weights q4_k_m --json llama-3-8b | jq -e '.plans[0].meets'
	sequences() { "$plan" --serve --gpu L4 --tpot 0.2 --json "$@" llama-3-8b | jq '.plans[0].sequences'; }
	# the KV cache limits the number of sequences
	[ "$(sequences --kv-precision int8)" -gt "$(sequences)" ]
	[ "$(sequences --kv-precision bf16)" -eq "$(sequences)" ]
}

@test "servers: P99 of a simulated trace, at its own rate or --rate, with shared prefixes found" {
	for i in {0..39}; do # four prompts of two blocks each, one second apart
		echo "{\"timestamp\": $((i * 1000)), \"input_length\": 1024, \"output_length\": 20, \"hash_ids\": [$((i % 4)), 9]}"
	done >trace.jsonl
	asked=("$plan" --serve --gpu H100 --json llama-3-8b --trace trace.jsonl)
	"${asked[@]}" >a.json
	jq -e '.rate_per_s == 1 and (.plans[0] | .meets and .replicas == 1 and .blocks * 16 > 1044 and (.simulated |
		.requests == 40 and .prompt_tokens == 40960 and .output_tokens == 800 and
		.prefix_hit_tokens == 36 * 1008 and .ttft_p50_s <= .ttft_p99_s and .ttft_p99_s < 1 and .refused == 0))' a.json
	"${asked[@]}" >b.json
	cmp a.json b.json
	"${asked[@]}" --rate 50 --requests 10 |
		jq -e '.rate_per_s == 50 and (.plans[0].simulated | .requests == 10 and .duration_s < 2)'
	"$plan" --serve --gpu H100 --rate 60 --ttft 0.3 --tpot 0.02 --requests 500 --json llama-3-8b | jq -e '.plans[0] |
		.replicas > 1 and .apart.prefill * 2 + .apart.decode == .replicas and .apart.prefill_layout == "cp2" and
		.apart.simulated.prompts_moved == 500'
	run "$plan" --serve --gpu H100 --rate 60 --ttft 0.3 --tpot 0.02 --requests 500 llama-3-8b
	[[ $output == *"Disaggregated prefill on the same number of devices:"*" x cp2 for prefill, "*" x tp1 for decode"* ]]
	"$plan" --serve --gpu H100 --rate 2 --prompt-len 32000 --output-len 400 --ttft 0.7 --tpot 0.012 --requests 100 \
		--max-num-batched-tokens 4096 --json llama-3.1-8b >long.json # only prefill servers use cp
	jq -e '.plans[0].apart | (.prefill_layout | test("^tp2[.]cp")) and .decode_layout == "tp2" and .meets' long.json
	"$plan" --serve --gpu L4 --gpus-per-node 1 --rate 0.1 --tpot 1 --ttft 5 --requests 20 --json llama-2-13b |
		jq -e '.plans[0] | .pp == 2 and .meets'
	"$plan" --serve --gpu H100 --rate 0.5 --prompt-len 32000 --ttft 1 --requests 40 --max-num-batched-tokens 4096 --json \
		llama-3.1-8b | jq -e '[.plans[] | select(.cp > 1)] | length > 3 and any(.meets)'
	refused 2 "--prompt-len cannot be combined with --trace" --serve --trace trace.jsonl --prompt-len 5 gpt2-124m
	refused 1 "No such file" --serve --trace none.jsonl gpt2-124m
	refused 2 "--trace requires --serve" --trace trace.jsonl gpt2-124m
}

@test "servers on a processor: --threads counts the scratch memory that dt-memest counts" {
	asked=("$plan" --serve --gpu cpu --gpus 4 --rate 0.1 --tpot 1 --ttft 20 --prompt-len 500 --output-len 100 --requests 50 --json)
	for threads in 1 4; do
		"${asked[@]}" --threads $threads gpt2-124m >with.json
		"$memest" --json --serve --precision bf16 --max-seqs "$(jq '.plans[0].sequences' with.json)" --max-len 600 \
			--max-tokens 2048 --threads $threads gpt2-124m >estimate.json
		jq -e '.categories[] | select(.name == "scratch") | .bytes > 0' estimate.json
		[ "$(jq '.plans[0].peak_bytes' with.json)" = "$(jq .peak_bytes estimate.json)" ]
	done
	refused 1 "a server of images is not counted" --serve --threads 2 resnet-18
}

@test "servers of image models: memory is dt-memest's, more ranks for a higher rate, cost per image" {
	asked=("$plan" --serve --gpu H100 --ttft 0.05 --price 2)
	"${asked[@]}" --rate 5000 --json resnet-50 >a.json
	jq -e '.plans[0] | .meets and .simulated.requests == 4000 and .simulated.latency_p99_s <= 0.05 and
		.simulated.latency_p50_s <= .simulated.latency_p99_s and
		(.cost_per_million_images / (2 * .ranks / (.images_per_s * 3600) * 1e6) - 1 | fabs < 1e-9) and
		.cost_per_million_images_at_rate >= .cost_per_million_images' a.json
	for batch in 1 32; do
		planned=$(jq "[.plans[] | select(.image_batch == $batch and .split == \"requests\")][0]" a.json)
		"$memest" --serve --json --max-seqs $batch --precision bf16 --layout "dp$(jq .ranks <<<"$planned")" resnet-50 |
			jq -e --argjson want "$(jq .peak_bytes <<<"$planned")" '.peak_bytes == $want'
	done
	ranks() { "${asked[@]}" --json "$@" resnet-50 | jq '.plans[0].ranks'; }
	[ "$(ranks --rate 100000)" -gt "$(ranks --rate 1000)" ]
	run "${asked[@]}" --rate 5000 resnet-50
	[[ $output == *"5000 images/s of 224 x 224 pixels"*"split "*"requests "*"a million images"* ]]
	run "${asked[@]}" --ttft 0.0001 resnet-50
	[ "$status" -eq 3 ]
}

@test "--emit args: an option that has its default is left out, however it is written" {
	[[ $("$plan" --gpus 4 --emit args gpt2-124m) != *"--router-bias-rate"* ]]
	args=$("$plan" --gpus 2048 --gpu H200 --emit args --compare dp2048.ep64.z1 --router-bias-rate 2e-3 deepseek-v3)
	[[ $args == *"--router-bias-rate 0.002"* ]]
	[[ $("$plan" --gpus 4 --emit args --clip 1.0 --capacity-factor 0.0 gpt2-124m) != *"--c"* ]]
}

@test "invalid input: one line and the right status" {
	refused 2 "a model is missing"
	refused 2 "a model is missing" roofline
	refused 2 "one model at a time" gpt2-124m gpt2-355m
	refused 1 "no preset, file or folder" gpt9
	refused 2 "no device is called 'H900'; did you mean 'H100'?" --gpu H900 gpt2-124m
	refused 2 "write 24GiB or 24GB" --gpu-mem 24 gpt2-124m
	refused 2 "'400Gb': unknown unit" --nic-bandwidth 400Gb gpt2-124m
	refused 2 "not whole nodes" --gpus 12 gpt2-124m
	refused 2 "out of range" --gpus 0 gpt2-124m
	refused 2 "out of range" --gpus -3 gpt2-124m
	refused 2 "topology 'single'" --gpus 16 --topology single gpt2-124m
	refused 2 "is not one of" --topology star gpt2-124m
	refused 2 "--pipeline" --pipeline fast gpt2-124m
	refused 2 "has 4 ranks, not 8" --compare dp4 gpt2-124m
	refused 2 "unknown axis" --compare xx4 gpt2-124m
	refused 2 "--json cannot be combined with --emit" --json --emit args gpt2-124m
	refused 2 "--ops needs --gpu cpu" --ops nothing.json gpt2-124m
	refused 2 "--offload-to host is for GPUs" --gpu cpu --gpus 1 --offload optimizer gpt2-124m
	refused 2 "--data requires --emit" --data d.h5 gpt2-124m
	refused 2 "--lora-targets requires --lora" --lora-targets qv gpt2-124m
	refused 2 "--outer-delay requires --sync" --outer-delay 1 gpt2-124m
	refused 2 "--peer-copy requires --elastic" --peer-copy 1 gpt2-124m
	# what only training plans depend on
	for word in "--compare dp8" "--optimizer sgd" "--global-batch 8" "--precision fp32" --no-master --fp8 "--recompute none" \
		"--account generic" "--lora 8" "--offload optimizer" "--emit args" "--emit cluster" "--top 2" --explain "--validate x"; do
		# shellcheck disable=SC2086
		refused 2 "${word% *} cannot be combined with --serve" --serve $word gpt2-124m
		[ "$word" = "--validate x" ] || # shellcheck disable=SC2086
			refused 2 "${word% *} cannot be combined with roofline" roofline $word gpt2-124m
	done
	refused 2 "--serve cannot be combined with roofline" roofline --serve gpt2-124m
	"$plan" roofline --seq 100 --microbatch 2 gpt2-124m
	for word in "--rate 2" "--prompt-len 9" "--output-len 9" "--ttft 1" "--tpot 1" "--weights bf16" "--kv-precision int8"; do
		# shellcheck disable=SC2086
		refused 2 "${word% *} requires --serve" $word gpt2-124m # every such option is refused
	done
	refused 2 "--tokens cannot be combined with --serve" --serve --tokens 1B gpt2-124m
	refused 2 "--mtbf cannot be combined with --serve" --serve --mtbf 10 gpt2-124m
	refused 1 "context length of 'gpt2-124m' is 1024" --serve --prompt-len 2000 gpt2-124m
	refused 1 "4097 tokens, but the context length of 'llama-2-7b' is 4096" --serve --prompt-len 4096 --output-len 1 llama-2-7b
	: >empty
	refused 1 "empty" --links empty gpt2-124m
	refused 1 "no measured runs" --validate empty
	refused 1 "No such file" --cluster nothing.json gpt2-124m
	echo '{"links": []}' >none.json
	refused 1 "no measured link" --links none.json gpt2-124m
	echo '{"levels": []}' >bad.json
	refused 1 "'levels' is a list" --cluster bad.json gpt2-124m
	echo '{"peak_flops": -1}' >bad.json
	refused 1 "'peak_flops' is out of range" --cluster bad.json gpt2-124m
	echo '{"model": "gpt2-tiny", "step_s": 0}' >bad.json
	refused 1 "line 1" --validate bad.json
	echo '{"model": "gpt2-tiny", "step_s": 1}' >one.json
	refused 1 "too few" --calibrate one.json gpt2-124m
	refused 1 "global batch of 1" --gpus 1024 --global-batch 1 --compare dp1024 gpt2-124m
}

@test "neither MPI nor a device library is linked" {
	run ldd "$plan"
	[[ "$output" == *"libjansson"* ]]
	[[ "$output" != *"libmpi"* ]]
	[[ "$output" != *"dnnl"* ]]
}

@test "--emit gives the complete command that starts the plan" {
	run "$plan" --gpus 64 --gpu H100 llama-2-70b --emit command
	[[ $output == "mpirun -np 64 --map-by ppr:8:node dt-train --data corpus.h5 --device cuda --model llama-2-70b "* ]]
	run "$plan" --gpus 16 --gpu H100 llama-2-7b --emit srun --data here.h5
	[[ $output == "srun --nodes 2 --ntasks 16 --ntasks-per-node 8 dt-train --data here.h5 "* ]]
	run "$plan" --gpus 1 --gpu cpu gpt2-tiny --vocab 300 --seq 64 --emit command
	[[ $output == "dt-train --data corpus.h5 --model gpt2-tiny --vocab 300 --layout dp1 "* ]]
	run "$plan" --gpus 64 --gpu H100 llama-2-70b --tokens 2e12
	[[ $output =~ "take about "[0-9]+" days" ]]
	days=$(grep -o 'about [0-9]*' <<<"$output")
	[[ $days == *[1-9]0 || ${#days} -le 8 ]] # two significant digits
}

@test "the printed command is one that a shell and the trainer take: quoted words, lost ranks, threads" {
	"$DT_BIN/dt-dataset" build --tokenizer byte --out "a corpus.h5" "$BATS_TEST_FILENAME" 2>log
	plan_it() { "$plan" --gpu cpu --gpus 2 --seq 32 --global-batch 4 --vocab 257 --emit command "$@" llama-tiny; }
	run_it() { PATH="$DT_BIN:$PATH" sh -c "$1 --steps 1 --no-mfu" 2>log; }
	command=$(plan_it --data "a corpus.h5" --freeze 'layers\.(0|1)\..*' --threads 1)
	[[ $command == *" --data 'a corpus.h5' "* && $command == *" --freeze 'layers\.(0|1)\..*' "* && $command == *" --threads 1" ]]
	[ "$(run_it "$command" | jq .step)" = 1 ]
	# arguments for \$(...) have no quotes
	[[ $("$plan" --gpus 1 --emit args --freeze 'layers\.(0|1)\..*' gpt2-tiny) == *" --freeze layers\.(0|1)\..* "* ]]
	command=$(plan_it --data "a corpus.h5" --elastic dp)
	[[ $command == "mpirun --enable-recovery -np 2 "* ]]
	[ "$(run_it "$command" | jq .step)" = 1 ]
	# what only the ranks of one machine can do
	refused 2 "--elastic dp needs all ranks on one machine" --gpus 16 --elastic dp gpt2-124m
	refused 2 "--sync hogwild needs all ranks on one machine" --gpus 16 --sync hogwild gpt2-124m
	refused 2 "--server-comm memory needs all ranks on one machine" --gpus 16 --sync async --server-comm memory gpt2-124m
	"$plan" --gpus 16 --sync async gpt2-124m >/dev/null
	# ranks that re-form after a loss need more than a step
	reform=$("$memest" --json llama-tiny --layout dp4 --elastic dp --seq 8 | jq .reform_bytes)
	fits() { "$plan" --gpu cpu --gpus 4 --seq 8 --global-batch 4 --elastic dp --margin 0 --gpu-mem "$1" --compare dp4 -b 1 llama-tiny --json | jq .compared.fits; }
	[ "$(fits "$reform")" = true ]
	[ "$(fits $((reform - 4096)))" = false ]
}

@test "--here describes the machine and what it suffices for; tp across machines is reported" {
	run "$plan" --here
	[ "$status" -eq 0 ]
	[[ $output == *"memory     "*"GPUs       "*"largest model known by name"*"served in q4_0"* ]]
	[ "$("$plan" --here --json | jq '.machine.threads')" -eq "$(getconf _NPROCESSORS_ONLN)" ]
	"$plan" --here --json | jq -e '.fits | length == 5 and (.[0].peak_bytes >= .[1].peak_bytes or .[0].model != .[1].model)'
	run "$plan" --here gpt2-tiny --seq 64
	[[ $output == *" x cpu"* ]]
	run "$plan" --gpus 16 --gpu H100 --compare tp16 llama-2-70b
	[[ $output == *"tp16 spans machines of 8 devices: every layer waits"* ]]
}

@test "ep and cp: every divisor of devices and experts, not only powers of two" {
	jq -nc '{model_type: "mixtral", vocab_size: 256, hidden_size: 96, intermediate_size: 96, num_hidden_layers: 1,
		num_attention_heads: 5, num_key_value_heads: 5, head_dim: 16, max_position_embeddings: 24576,
		num_local_experts: 6, num_experts_per_tok: 2, sliding_window: null}' >six.json
	"$plan" --gpu H100 --gpus 12 --gpus-per-node 12 --seq 24576 --global-batch 12 --top 100 --json six.json >plans.json
	sizes() { jq -c --arg axis "$1" '[.plans[].layout | capture($axis + "(?<n>[0-9]+)").n | tonumber] | unique' plans.json; }
	[ "$(sizes cp)" = '[2,3,4,6]' ] # shorter parts than 4096 tokens are not tried
	[ "$(sizes ep)" = '[2,3,6]' ]
}

@test "--serve: machines of any size, every size of tp that divides one" {
	"$plan" --serve --gpus-per-node 6 --prompt-len 512 --json gpt2-124m | jq -e '[.plans[].tp] | sort == [1, 2, 3, 6]'
	"$plan" --serve --gpu H100 --rope-scaling yarn:4 --prompt-len 10000 llama-2-7b
}

@test "--serve: memory is dt-memest's, also of a stage in the middle, which has more layers" {
	"$plan" --serve --gpu L4 --rate 0.5 --requests 20 --ttft 5 --tpot 1 --json mixtral-8x7b >plans.json
	jq -e 'any(.plans[]; .pp > 2 and .fits)' plans.json
	while read -r ep tp pp sequences bytes; do
		[ "$("$memest" --serve --json --layout "dp$ep.tp$tp.pp$pp.ep$ep" --max-seqs "$sequences" --max-len 1280 mixtral-8x7b |
			jq .peak_bytes)" = "$bytes" ]
	done < <(jq -r '.plans[] | "\(.ep) \(.tp) \(.pp) \(.sequences) \(.peak_bytes)"' plans.json)
}

@test "--serve: answers of one token have no time per output token" {
	one() { "$plan" --serve --gpu T4 --gpus 1 --prompt-len 8 --tpot 0.001 --json "$@" llama-2-7b; }
	one --output-len 1 | jq -e '.plans[0] | .meets and .replicas == 1 and .sequences > 1'
	run one --output-len 2
	[ "$status" -eq 3 ]
	[[ $output == *"a single sequence exceeds the TPOT limit"* ]]
	run one --output-len 1 --ttft 0.01
	[ "$status" -eq 3 ]
	[[ $output == *"prefill alone exceeds the TTFT limit"* ]]
}

@test "--serve takes the number of devices that exist" {
	run "$plan" --serve --gpus 2 --gpu H100 llama-3-70b
	[ "$status" -eq 0 ]
	[[ ${lines[2]} == tp2* && $output == *"needs 4 devices, there are 2"* ]]
	run "$plan" --serve --gpus 2 --gpu H100 --rate 50 --requests 500 llama-3-70b
	[ "$status" -eq 3 ]
	[[ $output == *"the rate needs "*" devices, there are 2"* ]]
	"$plan" --serve --gpu H100 --rate 50 --requests 500 llama-3-70b
}

@test "--spot: the cost with interrupted devices; energy if the power is known" {
	asked=("$plan" --gpus 16 --gpu H100 --tokens 1B --price 2 llama-3-8b)
	"${asked[@]}" --mtbf 500 --restart-time 300 --checkpoint-every 600 --spot 60% --json | jq -e '
		(.device_hours * 3600 / 16 / .run_s - 1 | fabs < 1e-9) and (.cost / .device_hours - 2 | fabs < 1e-9) and
		(.energy_kwh_at_most / .device_hours - 0.7 | fabs < 1e-9) and .checkpoint.every_s == 600 and
		(.spot.run_s * (1 - .checkpoint.lost) / .run_s - 1 | fabs < 1e-9) and
		(.spot.cost / .spot.device_hours - 0.8 | fabs < 1e-9) and .checkpoint.lost > 0'
	"$plan" --gpus 16 --gpu H100 --price 2 --json llama-3-8b | jq -e '(.plans | length > 1) and (.plans | all(
		(.cost_per_million_tokens * .tokens_per_s * 3600 / 1e6 - 32 | fabs < 1e-9) and
		(.cost_per_million_tokens * .tokens_per_price_unit / 1e6 - 1 | fabs < 1e-9) and
		(.energy_kwh_per_million_tokens_at_most * .tokens_per_s * 3.6 - 700 * 16 | fabs < 1e-6)))'
	run "$plan" --gpus 16 --gpu H100 --price 2 llama-3-8b
	[[ $output == *"a million tokens cost 0."*" at 2 a device hour; a price of 1 trains "*" tokens"* ]]
	run "$plan" --gpus 16 --gpu H100 llama-3-8b
	[[ $output != *"a million tokens"* ]]
	run "${asked[@]}" --mtbf 500 --spot 60%
	[[ $output == *"kWh at 700 W a device"*"loses the least"*"at a price 60% lower"*"saves 5"* ]]
	run "$plan" --gpus 8 --price 2 --tokens 1T --mtbf 10 --spot 60% llama-3-8b
	[[ $output == *"with these interruptions: 4"[0-9][0-9]" days, "* ]] # in days, not 9723h47m
	run "${asked[@]}" --mtbf 0.1 --restart-time 600 --spot 1%
	[[ $output == *"exceeds full price by"* ]]
	for word in "--save-time 100" "--restart-time 100" "--checkpoint-every 100"; do
		# shellcheck disable=SC2086
		refused 2 "${word% *} requires --mtbf" $word gpt2-124m
	done
	run "${asked[@]}" --spot 60%
	[ "$status" -eq 2 ]
	run "$plan" --gpus 16 --gpu H100 --mtbf 500 --spot 60% llama-3-8b
	[ "$status" -eq 2 ]
	[[ $output == *"--spot needs --tokens and --price"* ]]
	"$plan" --serve --gpu H100 --json llama-3-8b | jq -e '.plans[0] |
		.energy_kwh_per_million_tokens_at_most * .tokens_per_s * 3.6 - 700 * .tp | fabs < 1e-6'
}

@test "--serve --price: the cost of a million output tokens" {
	"$plan" --serve --gpu H100 --price 2 --rate 1 --output-len 256 --json llama-3-8b |
		jq -e '.plans[] | (.cost_per_million_tokens * .tokens_per_s * 3600 / 1e6 - 2 * .tp | fabs < 1e-9) and
		       (.cost_per_million_tokens_at_rate * 256 * 3600 / 1e6 - 2 * .tp * .replicas | fabs < 1e-9)'
	run "$plan" --serve --gpu H100 --price 2 llama-3-8b
	[[ $output == *"a million"*"at the requested rate"* ]]
	run "$plan" --serve --gpu H100 llama-3-8b
	[[ $output != *"a million"* ]]
	# a terminal of 80 columns shows all columns, in two tables
	script -qec "stty cols 80; '$plan' --serve --gpu H100 --rate 100 --requests 400 --price 2.5 llama-3-70b" /dev/null \
		</dev/null | tr -d '\r' >wide
	awk 'length > 80 { print; bad = 1 } END { exit bad }' wide
	[ "$(grep -c '^tp4 ' wide)" -eq 2 ]
	grep -q '^layout .*a million  at the rate  note$' wide
}
# SPDX-License-Identifier: Apache-2.0
