# dt-memest: numbers, verdicts, JSON, and every wrong input.
# shellcheck disable=SC2016 # jq has its own $

setup() {
	memest="$DT_BIN/dt-memest"
	cd "$BATS_TEST_TMPDIR" || exit
	unset LC_ALL LANG
}

# one clear line on stderr, nothing on stdout, this status
refused() {
	local status_wanted=$1 text=$2
	shift 2
	local rc=0
	"$memest" "$@" >out 2>err </dev/null || rc=$?
	echo "status $rc, stderr: $(cat err)"
	[ "$rc" -eq "$status_wanted" ]
	[ ! -s out ]
	grep -v "^Try 'dt-memest --help'" err >lines
	[ "$(wc -l <lines)" -eq 1 ]
	grep -qF -- "$text" lines
}

json() {
	"$memest" --json "$@" | jq -e "$filter" >/dev/null
}

@test "the verdict is the exit status" {
	run "$memest" llama-2-7b --train --optimizer adamw --layout dp8.z3 --gpu-mem 80GiB
	[ "$status" -eq 0 ]
	[[ "$output" == *"fits 80.00 GiB"* ]]
	run "$memest" llama-2-7b --train --optimizer adamw --layout dp8 --gpu-mem 80GiB
	[ "$status" -eq 3 ]
	[[ "$output" == *"does not fit 80.00 GiB"* ]]
	run "$memest" llama-2-7b
	[ "$status" -eq 0 ]
}

@test "the margin counts" {
	peak=$("$memest" --json gpt2-124m | jq .peak_bytes)
	"$memest" gpt2-124m --gpu-mem "$peak" --margin 0
	run "$memest" gpt2-124m --gpu-mem $((peak - 1)) --margin 0
	[ "$status" -eq 3 ]
	run "$memest" gpt2-124m --gpu-mem "$peak" --margin 1
	[ "$status" -eq 3 ]
}

@test "JSON: categories and phases add up, keys carry their unit" {
	for model in gpt2-124m llama-3-8b qwen2.5-0.5b; do
		for layout in dp1 tp2 pp2 dp4.z2 dp2.tp2.pp2.z3; do
			filter='.schema == 1 and (.peak_bytes == ([.categories[].bytes] | add))
				and .phase_bytes[.peak_phase] == .peak_bytes
				and ([.phase_bytes[]] | max) == .peak_bytes
				and ([.categories[].share] | add | (. > 0.999999 and . < 1.000001))
				and ([.ranks[].peak_bytes] | max) == .peak_bytes
				and ([.ranks[].ranks] | add) == .world
				and .ranks[.worst_stage].peak_bytes == .peak_bytes'
			json $model --layout $layout
		done
	done
}

@test "JSON: buffers live in the peak phase add up to the peak" {
	filter='{forward:0, loss:1, backward:2, step:3} as $n | .peak_phase as $p | .peak_bytes ==
		([.buffers[] | select($n[.first_phase] <= $n[$p] and $n[.last_phase] >= $n[$p]) | .bytes] | add)'
	json --buffers gpt2-124m
	json --buffers gpt2-124m --recompute full
	json --buffers llama-2-7b --layout dp8.z3
}

@test "published parameter counts" {
	[ "$("$memest" --json gpt2-1558m | jq .params)" = 1557611200 ]
	[ "$("$memest" --json llama-2-70b | jq .params)" = 68976648192 ]
	[ "$("$memest" --json mistral-7b | jq .params)" = 7241732096 ]
}

@test "mixed precision with Adam is 2 + 4 + 4 + 8 bytes a parameter here" {
	filter='[.categories[] | select(.name | IN("weights", "master", "gradients", "optimizer")) | .bytes] | add
		== 18 * 124439808'
	json gpt2-124m
	filter='[.categories[] | select(.name | IN("weights", "master", "gradients", "optimizer")) | .bytes] | add
		== 16 * 124439808'
	json gpt2-124m --precision fp32
	filter='[.categories[].name] | contains(["optimizer"]) | not'
	json gpt2-124m --optimizer sgd
}

@test "recomputation saves, longer sequences cost" {
	none=$("$memest" --json llama-2-7b | jq .peak_bytes)
	selective=$("$memest" --json llama-2-7b --recompute selective | jq .peak_bytes)
	full=$("$memest" --json llama-2-7b --recompute full | jq .peak_bytes)
	short=$("$memest" --json llama-2-7b --seq 1024 | jq .peak_bytes)
	[ "$full" -lt "$selective" ]
	[ "$selective" -lt "$none" ]
	[ "$short" -lt "$none" ]
}

@test "what dt-train cannot run yet is estimated by formula, and says so" {
	for layout in dp2 dp2.z1 pp2 cp2 tp2.s1; do
		rc=0
		"$memest" --account dt gpt2-124m --layout $layout >/dev/null 2>&1 || rc=$?
		used=$("$memest" --json gpt2-124m --layout $layout | jq -r .account)
		exact=$("$memest" --json gpt2-124m --layout $layout | jq '[.categories[].exact] | all')
		echo "$layout: --account dt exits $rc, auto uses $used"
		if [ $rc -eq 0 ]; then
			[ "$used" = dt ]
			[ "$exact" = true ]
			continue
		fi
		[ "$used" = generic ]
		[ "$exact" = false ]
		"$memest" gpt2-124m --layout $layout | grep -F "dt-train cannot run this yet"
		refused 1 "does not take account of" --account dt gpt2-124m --layout $layout
	done
	[ "$("$memest" --json gpt2-124m --layout dp2 | jq -r .account)" = dt ]
}

@test "ZeRO paper, figure 1: 16, 4 + 12/N, 2 + 14/N, 16/N bytes a parameter" {
	states() {
		"$memest" --json --account generic llama-2-7b --seq 1 --layout "$1" --buffers |
			jq '[.buffers[] | select(.category | IN("weights", "master", "gradients", "optimizer"))
				| select(.name != "gathered units") | .bytes] | add / 6738415616'
	}
	[ "$(states dp64)" = 16 ]
	[ "$(states dp64.z1)" = 4.1875 ]
	[ "$(states dp64.z2)" = 2.21875 ]
	[ "$(states dp64.z3)" = 0.25 ]
}

@test "a pipeline shows every stage, the worst marked" {
	run "$memest" llama-2-7b --layout dp2.tp2.pp4 --gpu-mem 80GiB
	[ "$status" -eq 0 ]
	echo "$output" | grep -E '^ +0 +0-3 +0-7 .*worst$'
	echo "$output" | grep -E '^ +3 +12-15 +24-31 '
	[ "$(echo "$output" | grep -c worst)" -eq 1 ]
}

@test "in a pipeline microbatches in flight cost, and the order of work decides how many" {
	peak() { "$memest" --json llama-2-7b --layout pp4 --account generic "$@" | jq .peak_bytes; }
	[ "$(peak --accumulate 1)" -lt "$(peak --accumulate 4)" ]
	[ "$(peak --accumulate 4)" -eq "$(peak --accumulate 16)" ] # 1F1B: as many as stages
	[ "$(peak --accumulate 16)" -lt "$(peak --accumulate 16 --pipeline gpipe)" ]
	run "$memest" llama-2-7b --layout pp4.v2 --accumulate 8
	[ "$status" -eq 0 ]
	[[ "$output" == *" 0-3,16-19 "* ]]
	[ "$("$memest" llama-2-7b --layout pp4 --pipeline interleaved:2 --accumulate 8)" = "$output" ]
}

@test "serving: weights and a cache of whole blocks" {
	filter='.mode == "serve" and (.categories[] | select(.name == "kv-cache") | .bytes) == 8 * 112 * 131072'
	json --serve llama-3-8b --max-seqs 8 --max-len 100
	filter='(.categories[] | select(.name == "kv-cache") | .bytes) == 8 * 100 * 131072'
	json --serve llama-3-8b --max-seqs 8 --max-len 100 --block-size 1
	filter='(.categories[] | select(.name == "kv-cache") | .bytes) == 8 * 112 * 131072 / 4'
	json --serve llama-3-8b --max-seqs 8 --max-len 100 --layout tp4
	filter='(.categories[] | select(.name == "kv-cache") | .bytes) == 8 * 112 * 131072 * 2'
	json --serve llama-3-8b --max-seqs 8 --max-len 100 --kv-precision fp32
	filter='(.categories[] | select(.name == "weights") | .bytes / 1073741824 | (. > 4.575 and . < 4.585))'
	json --serve llama-3-8b --precision q4_k_m
	run "$memest" --serve llama-2-70b --gpu-mem 80GiB
	[ "$status" -eq 3 ]
}

@test "solving finds the edge" {
	for what in batch seq; do
		n=$("$memest" --json gpt2-124m --solve $what --gpu-mem 8GiB --seq 256 | jq .solve.value)
		option=$([ $what = batch ] && echo microbatch || echo seq)
		[ "$n" -gt 1 ]
		if [ $what = seq ]; then
			[ "$n" -eq 1024 ] # the model's positions end first
			continue
		fi
		"$memest" gpt2-124m --seq 256 "--$option" "$n" --gpu-mem 8GiB
		run "$memest" gpt2-124m --seq 256 "--$option" $((n + 1)) --gpu-mem 8GiB
		[ "$status" -eq 3 ]
	done
	n=$("$memest" --json llama-3-8b --serve --solve seq --gpu-mem 80GiB --max-seqs 3 | jq .solve.value)
	"$memest" --serve llama-3-8b --max-seqs 3 --max-len "$n" --gpu-mem 80GiB
	run "$memest" --serve llama-3-8b --max-seqs 3 --max-len $((n + 1)) --gpu-mem 80GiB
	[ "$status" -eq 3 ]
	layout=$("$memest" --json llama-2-7b --solve gpus --gpu-mem 80GiB | jq -r .layout)
	world=$("$memest" --json llama-2-7b --solve gpus --gpu-mem 80GiB | jq .world)
	"$memest" llama-2-7b --layout "$layout" --gpu-mem 80GiB
	[ "$world" -gt 1 ]
	for half in dp1 dp$((world / 2)).z3 tp$((world / 2)) pp$((world / 2)); do
		run "$memest" llama-2-7b --layout $half --gpu-mem 80GiB
		[ "$status" -eq 3 ]
	done
}

@test "nothing fits: no solution, status 3" {
	run "$memest" llama-2-7b --solve batch --gpu-mem 1GiB
	[ "$status" -eq 3 ]
	[[ "$output" == *"no batch, however small, fits"* ]]
	[ "$("$memest" --json llama-2-7b --solve seq --gpu-mem 1GiB | jq .solve.solved)" = false ]
}

@test "explain says what a category holds" {
	run "$memest" --explain activations gpt2-124m
	[ "$status" -eq 0 ]
	[[ "$output" == *"keeps for backward"* ]]
	[[ "$output" == *"layers.N.qkv"* ]]
	[[ "$output" != *"d.logits"* ]]
	run "$memest" --explain kv-cache --serve gpt2-124m
	[[ "$output" == *"whole blocks"* ]]
}

@test "a config.json on standard input, as a file, in a folder" {
	cat >config.json <<-END
		{"model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 172,
		 "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
		 "max_position_embeddings": 128}
	END
	# 2 V h + L (2 h d (a + g) + 3 h f + 2 h) + h
	want=$((2 * 1000 * 64 + 3 * (2 * 64 * 16 * 6 + 3 * 64 * 172 + 2 * 64) + 64))
	[ "$("$memest" --json config.json | jq .params)" = $want ]
	[ "$("$memest" --json . | jq .params)" = $want ]
	[ "$("$memest" --json - <config.json | jq .params)" = $want ]
	sed 's/"llama"/"mixtral"/' config.json >moe.json
	refused 1 "architecture 'mixtral' is not supported; known: gpt2" moe.json
	head -c 100 config.json >cut.json
	refused 1 "cut.json" cut.json
	sed 's/64/-64/' config.json >negative.json
	refused 1 "'hidden_size' is out of range" negative.json
	mkdir empty
	refused 1 "neither a config.json nor a checkpoint" empty
}

@test "wrong input: one line and the right status" {
	refused 2 "a model is missing"
	refused 2 "one model at a time" gpt2-124m gpt2-355m
	refused 1 "no preset, file or folder is called 'gpt9'" gpt9
	refused 1 "No such file" ./gpt9
	refused 2 "unknown axis 'xx2'" gpt2-124m --layout xx2
	refused 2 "'dp' is given twice" gpt2-124m --layout dp2.dp2
	refused 2 "out of range" gpt2-124m --layout dp0
	refused 1 "tp5 does not divide the 12 heads" gpt2-124m --layout tp5
	refused 1 "more stages than the 12 layers" gpt2-124m --layout pp13
	refused 1 "has no experts" gpt2-124m --layout dp2.ep2
	refused 2 "is not one of" gpt2-124m --precision int3
	refused 2 "block formats goes with --serve" gpt2-124m --precision q4_0
	refused 2 "is not one of" gpt2-124m --optimizer lion
	refused 2 "is not one of" gpt2-124m --recompute some
	refused 2 "--pipeline" gpt2-124m --pipeline fast
	refused 2 "out of range" gpt2-124m --microbatch 0
	refused 2 "out of range" gpt2-124m --microbatch -1
	refused 2 "not a whole number" gpt2-124m --seq 1k
	refused 1 "exceeds" gpt2-124m --seq 1025
	refused 1 "too large" gpt2-124m --microbatch 16777216
	refused 2 "is not a size" gpt2-124m --gpu-mem lots
	refused 2 "unknown unit" gpt2-124m --gpu-mem 80QB
	refused 2 "out of range" gpt2-124m --margin 100
	refused 2 "exclude each other" gpt2-124m --train --serve
	refused 2 "go with --train" gpt2-124m --serve --microbatch 4
	refused 2 "goes with --serve" gpt2-124m --max-seqs 4
	refused 2 "--solve needs --gpu-mem" gpt2-124m --solve batch
	refused 2 "is not one of" gpt2-124m --solve all --gpu-mem 1GiB
	refused 2 "no category is called 'foo'" gpt2-124m --explain foo
	refused 2 "exclude each other" gpt2-124m --explain weights --json
	refused 2 "unknown or ambiguous option" gpt2-124m --frobnicate
	refused 1 "over tp and dp only" gpt2-124m --serve --layout pp2
	refused 2 "--list takes no model" gpt2-124m --list
	refused 1 "line 1" - # standard input is empty
}

@test "help leads with two examples, and they run" {
	run "$memest" --help
	[ "$status" -eq 0 ]
	[ "${lines[1]}" = "Examples:" ]
	PATH="$DT_BIN:$PATH"
	"$memest" --help | sed -n '/^Examples:/,/^Usage:/{s/^  //p}' >examples
	[ "$(wc -l <examples)" -ge 2 ]
	while read -r line; do
		bash -c "set -o pipefail; $line"
	done <examples
}

@test "the list names every model" {
	"$memest" --list | tail -n +2 | while read -r model _; do
		"$memest" "$model" >/dev/null
	done
	"$memest" --list | grep -E '^gpt2-124m +gpt2 +124.4 M'
}

@test "bars on request, none in a pipe" {
	run "$memest" gpt2-124m
	[[ "$output" != *"#"* ]]
	LC_ALL=C run "$memest" gpt2-124m --bars
	[[ "$output" == *"###"* ]]
	LC_ALL=C.UTF-8 run "$memest" gpt2-124m --bars
	[[ "$output" == *"█"* ]]
}

@test "a full disk is an error, a broken pipe is quiet" {
	[ -e /dev/full ] || skip "no /dev/full"
	rc=0
	"$memest" gpt2-124m >/dev/full 2>err || rc=$?
	[ "$rc" -eq 1 ]
	[ "$(wc -l <err)" -eq 1 ]
	rc=0
	"$memest" --json gpt2-124m >/dev/full 2>err || rc=$?
	[ "$rc" -eq 1 ]
	[ "$(wc -l <err)" -eq 1 ]
	"$memest" --buffers gpt2-124m 2>err | true
	[ ! -s err ]
}

dataset() {
	for tool in dt-dataset dt-train; do
		[ -x "$DT_BIN/$tool" ] || skip "$tool is not built"
	done
	seq 1 2000 >text
	"$DT_BIN/dt-dataset" build --tokenizer byte --out data.h5 text
}

@test "the peak is what dt-train allocates" {
	dataset
	while read -r model args; do
		# shellcheck disable=SC2086
		"$DT_BIN/dt-train" --model $model $args --data data.h5 --steps 1 --threads 1 --no-mfu --metrics m.json
		# shellcheck disable=SC2086
		estimated=$("$memest" --json $model $args | jq .peak_bytes)
		allocated=$(jq -s '.[0].peak_bytes' m.json)
		echo "$model $args: estimated $estimated, allocated $allocated"
		[ "$estimated" = "$allocated" ]
	done <<-END
		gpt2-tiny --seq 128 --microbatch 8
		gpt2-tiny --seq 64 --microbatch 3 --recompute selective --optimizer momentum
		llama-tiny --seq 100 --microbatch 5 --recompute full --precision fp32
		llama-tiny --seq 128 --microbatch 1 --optimizer sgd
	END
}

@test "a checkpoint is a model, and serving it takes what dt-serve says" {
	dataset
	[ -x "$DT_BIN/dt-serve" ] || skip "dt-serve is not built"
	"$DT_BIN/dt-train" --model llama-tiny --seq 64 --data data.h5 --steps 1 --threads 1 --no-mfu --save run >log
	filter='.model == "llama-tiny" and .params == 169280'
	json run
	echo '{"prompt": "1", "max_tokens": 1}' |
		"$DT_BIN/dt-serve" --batch run --max-num-seqs 4 --max-model-len 128 --max-num-batched-tokens 512 \
			--threads 1 >out 2>log
	"$memest" run --serve --max-seqs 4 --max-len 128 --max-tokens 512 >estimate
	cat log estimate
	bytes() { sed -n "s/^$1 *\\([0-9.]* [KM]iB\\) .*/\\1/p" estimate; }
	grep -F "$(bytes weights) of weights, $(bytes kv-cache) of KV cache" log
	# what weights are laid out as differs from processor to processor: workspace is only bounded
	have=$(sed -n 's/.* tokens, \([0-9.]*\) \([KM]\)iB of workspace$/\1\2/p' log | numfmt --from=iec)
	most=$(bytes workspace | tr -d ' B' | numfmt --from=iec-i)
	[ -n "$have" ] && [ "$have" -le $((most * 3 / 2)) ] && [ "$have" -ge $((most / 2)) ]
}

@test "no MPI, no device library is linked" {
	run ldd "$memest"
	[[ "$output" == *"libjansson"* ]]
	[[ "$output" != *"libmpi"* ]]
	[[ "$output" != *"dnnl"* ]]
	[[ "$output" != *"hdf5"* ]]
}
