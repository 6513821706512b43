#!/usr/bin/env bats
# dt-shard-ckpt convert, quantize, avg: against formats written and read by convert.py (numpy alone), and real
# models.
bats_require_minimum_version 1.5.0
load slow

setup() {
	S=$DT_BIN/dt-shard-ckpt
	T=$BATS_TEST_TMPDIR
	DATA=${DT_TEST_DATA:-$DT_SRC/../shared/data}
}

# py COMMAND...: runs a command of convert.py, in one process per test, because importing numpy takes longer
# than the commands. Not usable in a subshell, which does not inherit the pipes to that process.
py() {
	local IFS=$'\t' line
	if [ -z "$PYTHON_PID" ]; then
		coproc PYTHON { exec /usr/bin/python3 "$DT_SRC/tests/cli/convert.py" serve 2>&1 3>&-; }
	fi
	echo "$*" >&"${PYTHON[1]}"
	while read -r line <&"${PYTHON[0]}"; do
		case $line in
		status\ *) return "${line#status }" ;;
		*) echo "$line" ;;
		esac
	done
	return 1
}

need_numpy() {
	/usr/bin/python3 -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("numpy"))' || skip "python3-numpy is not installed"
}

# quiet COMMAND...: prints its output only if it fails
quiet() {
	"$@" >"$T/out" 2>&1 || { echo "$*"; cat "$T/out"; return 1; }
}

@test "safetensors to a checkpoint and back is bit-equal, for every family and type" {
	need_numpy
	for f in gpt2 llama mistral qwen2 qwen3 gemma3_text mixtral qwen3_moe deepseek_v2 deepseek_v3; do
		for d in F32 BF16 F16; do
			[ $d = BF16 ] || [ $f = gpt2 ] || slow || continue
			quiet py make $f $d "$T/$f$d" $((RANDOM % 2 * 2 + 1))
			# shellcheck disable=SC2046
			quiet "$S" convert $([ $d = F16 ] && echo --compress) "$T/$f$d" "$T/$f$d-dt"
			quiet "$S" verify "$T/$f$d-dt"
			quiet "$S" convert --to safetensors "$T/$f$d-dt" "$T/$f$d-hf"
			quiet py same "$T/$f$d" "$T/$f$d-hf"
		done
	done
}

@test "GGUF of every family is what its readers expect, and is read back bit-equal" {
	need_numpy
	for f in gpt2 llama mistral qwen2 qwen3 gemma3_text mixtral qwen3_moe deepseek_v2 deepseek_v3; do
		quiet py make $f BF16 "$T/$f"
		# Mistral is recognized by the key of its sliding window
		# which llama.cpp ignores
		for t in f32 bf16 f16 q8_0 q4_0; do
			[[ $t != *16 ]] || [ $f = llama ] || slow || continue
			[ $t != q4_0 ] || [[ $f =~ llama|gpt2|deepseek_v3 ]] || slow || continue
			quiet "$S" convert --type $t "$T/$f" "$T/$f-$t.gguf"
			[ $f != mistral ] || grep "ignore the sliding window of [0-9]* tokens" "$T/out"
			[ $f != llama ] || [ "$(grep -c "sliding window" "$T/out")" -eq 0 ]
			quiet py gguf "$T/$f" "$T/$f-$t.gguf" $t
		done
		quiet "$S" convert --to safetensors --type bf16 "$T/$f-f32.gguf" "$T/$f-back"
		quiet py same "$T/$f" "$T/$f-back"
		# quantizing its own values again changes nothing
		quiet "$S" convert "$T/$f-q8_0.gguf" "$T/$f-dt"
		quiet "$S" convert "$T/$f-q8_0.gguf" "$T/$f-copy.gguf"
		cmp "$T/$f-copy.gguf" "$T/$f-q8_0.gguf"
		quiet "$S" quantize --type q8_0 "$T/$f-dt" "$T/$f-again.gguf"
		cmp "$T/$f-again.gguf" "$T/$f-q8_0.gguf"
	done
}

@test "Llama 3.1's RoPE scaling is read back from GGUF for any original context; others are refused" {
	need_numpy
	quiet py make llama F32 "$T/llama"
	cp -r "$T/llama" "$T/other"
	scaled() { # FACTOR ORIGINAL THETA LOW
		jq ".rope_theta = $3 | .rope_scaling.factor = $1 | .rope_scaling.original_max_position_embeddings = $2 |
			.rope_scaling.low_freq_factor = $4 | .max_position_embeddings = $1 * $2" "$T/llama/config.json" >"$T/other/config.json"
		rm -rf "$T/back" "$T/x.gguf"
	}
	for scaling in '2 128' '8 16' '3 50' '32 8192'; do
		# shellcheck disable=SC2086 # words
		scaled $scaling 10000 1
		quiet "$S" convert "$T/other" "$T/x.gguf"
		quiet "$S" convert --to safetensors "$T/x.gguf" "$T/back"
		quiet py same "$T/other" "$T/back"
	done
	scaled 8 64 10000 2
	run "$S" convert "$T/other" "$T/x.gguf"
	[ "$status" -eq 1 ]
	[[ $output == *"a GGUF file of architecture 'llama' cannot represent this model: "*rope_freqs* ]]
	[ ! -e "$T/x.gguf" ]
}

@test "folders in AutoGPTQ's and AutoAWQ's form are what numpy packs, and are read back as the same blocks" {
	need_numpy
	for f in llama qwen2 qwen3 gemma3_text mixtral qwen3_moe deepseek_v3; do
		[[ $f =~ llama|gemma3_text|deepseek_v3 ]] || slow || continue
		quiet py make $f BF16 "$T/$f"
		quiet "$S" convert "$T/$f" "$T/$f-dt"
		quiet "$S" quantize --to gptq --type q4_0 "$T/$f-dt" "$T/$f-gptq"
		quiet py packed "$T/$f" "$T/$f-gptq" gptq q4_0
		quiet "$S" quantize --to awq --type q4_0 "$T/$f" "$T/$f-awq"
		quiet py packed "$T/$f" "$T/$f-awq" awq q4_0
		quiet "$S" convert --to gptq --type q8_0 --max-file-size 20KiB "$T/$f" "$T/$f-gptq8"
		quiet py packed "$T/$f" "$T/$f-gptq8" gptq q8_0
		[ -e "$T/$f-gptq8/model.safetensors.index.json" ]
		# values are equal to the bit; blocks stay the same blocks through every conversion
		quiet "$S" diff "$T/$f-gptq" "$T/$f-awq"
		quiet "$S" convert "$T/$f-gptq" "$T/$f-1.gguf"
		quiet "$S" convert --to gptq --type q4_0 "$T/$f-1.gguf" "$T/$f-again"
		cmp "$T/$f-gptq/model.safetensors" "$T/$f-again/model.safetensors"
		cmp "$T/$f-gptq/config.json" "$T/$f-again/config.json"
	done
	run "$S" diff "$T/llama-1.gguf" "$T/llama"
	[ "$status" -eq 3 ]
}

@test "packed folders: what they cannot hold is refused before anything is written" {
	need_numpy
	for f in llama gpt2; do quiet py make $f BF16 "$T/$f"; done
	refuse() { # STATUS TEXT ARGUMENT...
		run "$S" "${@:3}" "$T/no"
		[ "$status" -eq "$1" ]
		[[ $output == *"$2"* ]]
		[ ! -e "$T/no" ]
	}
	refuse 2 '--to gptq needs --type q4_0 or q8_0' quantize --to gptq --type q4_k "$T/llama"
	refuse 2 '--to gptq needs --type q4_0 or q8_0' convert --to gptq "$T/llama"
	refuse 2 '--to awq needs --type q4_0' quantize --to awq --type q8_0 "$T/llama"
	refuse 2 'quantize can only write --to gguf, gptq or awq' quantize --to dt --type q4_0 "$T/llama"
	refuse 1 'it stores matrices transposed' quantize --to gptq --type q4_0 "$T/gpt2"
	[ -z "$(find "$T" -name "*tmp*")" ]
}

@test "diff and ls know every format: rotary order and Gemma's norms are converted, and this is said" {
	need_numpy
	for f in llama gemma3_text qwen3; do
		quiet py make $f BF16 "$T/$f"
		quiet "$S" convert "$T/$f" "$T/$f-dt"
		quiet "$S" convert "$T/$f-dt" "$T/$f.gguf"
		quiet "$S" convert "$T/$f.gguf" "$T/$f-back"
		for other in "$T/$f" "$T/$f.gguf" "$T/$f-back"; do
			run "$S" diff "$T/$f-dt" "$other"
			echo "$output"
			[ "$status" -eq 0 ]
			[[ ${lines[0]} == "equal: "* ]]
		done
		case $f in
		llama) [[ $output == *"4 tensors of B were converted to the rotary order of A (A: half, B: adjacent)"* ]] ;;
		gemma3_text) [[ $output == *"norms of B were converted to the convention of A (B stores them larger by 1)"* ]] ;;
		qwen3) [ "${#lines[@]}" -eq 1 ] ;;
		esac
		[ "$("$S" diff --json "$T/$f.gguf" "$T/$f" | jq .equal)" = true ]
		[ "$("$S" ls --json "$T/$f.gguf" | jq -c '[.tensors[] | [.name, .shape]] | sort')" = \
			"$("$S" ls --json "$T/$f-dt" | jq -c '[.tensors[] | [.name, .shape]] | sort')" ]
		[ "$("$S" cat norm.weight "$T/$f")" = "$("$S" cat norm.weight "$T/$f-dt")" ]
	done
	# differences are found behind another order of rows, and small differences of blocks are measured
	quiet "$S" convert --type q8_0 "$T/llama" "$T/q8.gguf"
	run "$S" diff "$T/llama" "$T/q8.gguf"
	[ "$status" -eq 3 ]
	[[ $output == *"model/layers.{0..1}.attn.q.weight x 2"* ]]
	run "$S" diff --tolerance 0.01 "$T/llama" "$T/q8.gguf"
	[ "$status" -eq 0 ]
	run "$S" diff "$T/llama" "$T/qwen3"
	[ "$status" -eq 3 ]
	[[ $output == *"only in B"* ]]
}

@test "a device, a FIFO and a link to a missing file are not written over" {
	need_numpy
	quiet py make llama BF16 "$T/m"
	mkfifo "$T/fifo"
	ln -s missing "$T/link"
	mkdir "$T/root"
	ln -s missing "$T/root/step-00000000"
	for to in safetensors gguf; do
		for node in fifo link; do
			run "$S" convert --to $to "$T/m" "$T/$node"
			[ "$status" -eq 1 ]
			[[ "$output" == *"cannot write '$T/$node': File exists"* ]]
		done
	done
	run "$S" convert "$T/m" "$T/root"
	[ "$status" -eq 1 ]
	[[ "$output" == *"File exists"* ]]
	[ -p "$T/fifo" ]
	[ -L "$T/link" ]
	[ -L "$T/root/step-00000000" ]
}

@test "Gemma 3: the text half of a multimodal model; what a GGUF implies is not contradicted" {
	need_numpy
	quiet py make gemma3_text BF16 "$T/1-a"
	quiet py make gemma3 BF16 "$T/2-a" 3
	quiet "$S" convert "$T/1-a" "$T/1-dt"
	quiet "$S" convert "$T/2-a" "$T/2-dt"
	quiet "$S" diff "$T/1-dt" "$T/2-dt"
	# norms with weight w and with weight 1 + w are not confused
	quiet "$S" convert "$T/1-a" "$T/x.gguf"
	quiet "$S" convert "$T/x.gguf" "$T/3-dt"
	jq -e '.model.norm_plus_one == true' "$T/1-dt/latest/manifest.json"
	jq -e '.model | has("norm_plus_one") | not' "$T/3-dt/latest/manifest.json"
	run "$S" avg --to dt "$T/1-dt" "$T/3-dt" "$T/m"
	[ "$status" -eq 1 ]
	[[ $output == *"not the same model"* ]]
	# an attention scale that GGUF's readers would not derive
	jq '.query_pre_attn_scalar = 24' "$T/1-a/config.json" >"$T/c" && cp "$T/c" "$T/1-a/config.json"
	run "$S" convert "$T/1-a" "$T/y.gguf"
	[ "$status" -eq 1 ]
	[[ $output == *"cannot represent this model"* ]]
	[ ! -e "$T/y.gguf" ]
	quiet "$S" convert "$T/1-a" "$T/4-dt"
	quiet "$S" convert --to safetensors "$T/4-dt" "$T/4-hf"
	quiet py same "$T/1-a" "$T/4-hf"
}

@test "Mixtral: an expert that is missing, or of another type, is named" {
	need_numpy
	quiet py make mixtral F32 "$T/a" 2
	quiet py make mixtral F16 "$T/b" 2
	cp "$T/b/part-1.safetensors" "$T/a/part-1.safetensors"
	run "$S" convert "$T/a" "$T/dt"
	[ "$status" -eq 1 ]
	[[ $output == *"experts."*" is f16, that of expert 0 is f32"* ]] || [[ $output == *"experts."*" is f32, that of expert 0 is f16"* ]]
	jq '.num_local_experts = 4' "$T/b/config.json" >"$T/c" && cp "$T/c" "$T/b/config.json"
	run "$S" convert "$T/b" "$T/dt"
	[ "$status" -eq 1 ]
	[[ $output == *"block_sparse_moe"* ]]
	[ ! -e "$T/dt" ]
}

@test "a module that predicts a further token is left out; layers beyond the configuration's are refused" {
	need_numpy
	quiet py make qwen3_moe F32 "$T/a"
	cp -r "$T/a" "$T/b"
	cp -r "$T/a" "$T/c"
	quiet py further "$T/b"
	quiet "$S" convert "$T/b" "$T/dt"
	quiet "$S" diff "$T/a" "$T/dt"
	quiet py further "$T/c" eh_proj
	run "$S" convert "$T/c" "$T/none"
	[ "$status" -eq 1 ]
	[[ $output == *"tensor 'layers.2."*"' is not part of a qwen3_moe model" ]]
	[ ! -e "$T/none" ]
}

@test "llm.c's files round trip, in both types" {
	need_numpy
	for d in F32 BF16; do
		quiet py make gpt2 $d "$T/$d"
		quiet "$S" convert --to llmc "$T/$d" "$T/$d.bin"
		quiet py llmc "$T/$d" "$T/$d.bin"
		quiet "$S" convert "$T/$d.bin" "$T/$d-dt"
		quiet "$S" convert --to llmc "$T/$d-dt" "$T/$d-2.bin"
		cmp "$T/$d.bin" "$T/$d-2.bin"
	done
	quiet py make llama F32 "$T/llama"
	run "$S" convert --to llmc "$T/llama" "$T/x.bin"
	[ "$status" -eq 1 ]
	[[ $output == *"cannot represent this model"* ]]
	[ ! -e "$T/x.bin" ]
}

@test "mixes of formats: named as by llama-quantize, only for GGUF files, and as large as dt-memest says" {
    local PATH="$DT_BIN:$PATH"
    cd "$T"
    jq -n '{model_type: "llama", vocab_size: 257, hidden_size: 256, intermediate_size: 512, num_hidden_layers: 9,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}' >mix.json
    head -c 2000 "$DT_SRC/LICENSE" >mix.txt
    dt-dataset build --tokenizer byte --out mix.h5 mix.txt 2>/dev/null
    dt-train --model mix.json --data mix.h5 --seq 16 --microbatch 1 --steps 1 --threads 1 --no-mfu --save mix --metrics /dev/null 2>/dev/null
    dt-shard-ckpt quantize --type q4_k_m mix mix.gguf 2>/dev/null
    # llama-quantize: values of the first eighth, the last one and every third layer between; the tied embedding
    dt-shard-ckpt ls --json mix.gguf >ls.json
    jq -e '[.tensors[] | select(.dtype == "q6_k") | .name | capture("(?<l>[0-9]+).attn.v").l | tonumber] == [0, 3, 6, 7, 8]' ls.json
    jq -e '[.tensors[] | select(.dtype == "q6_k" and (.name | test("embed"))) ] | length == 1' ls.json
    dt-memest --serve mix.gguf --json >file.json
    dt-memest --serve mix.json --precision q4_k_m --json >said.json
    jq -en --slurpfile a file.json --slurpfile b said.json '[$a[0], $b[0] | .categories[] | select(.name == "weights").bytes] | .[0] == .[1]'
    run -2 dt-shard-ckpt quantize --type q4_k_m --to gptq mix packed
    [[ $output == *"only GGUF files have mixes"* ]]
    run -2 dt-shard-ckpt quantize --type q4_k_m --calibrate mix.txt mix other.gguf
    [[ $output == *"not to a mix"* ]]
    run dt-shard-ckpt convert --type q4_k_m --to safetensors mix folder
    [ "$status" -ne 0 ]
    [ ! -e folder ]
}

@test "a split GGUF equals its parts together; a missing, foreign or repeated part is named" {
	need_numpy
	for f in qwen2 mixtral; do
		quiet py make $f BF16 "$T/$f"
		quiet "$S" convert --type q8_0 "$T/$f" "$T/$f.gguf"
		for n in 2 3 5; do
			quiet py split "$T/$f.gguf" "$T/$f" $n
			first=$T/$f-00001-of-0000$n.gguf
			rm -f "$T/again.gguf"
			quiet "$S" convert "$first" "$T/again.gguf"
			cmp "$T/again.gguf" "$T/$f.gguf"
		done
	done
	p=$T/qwen2
	run "$S" convert --to dt "$p-00002-of-00003.gguf" "$T/x"
	[ "$status" -eq 3 ]
	[[ $output == *"is part 2 of 3, not 1 of 3"*"give the first part"* ]]
	cp "$p-00001-of-00003.gguf" "$T/other.gguf"
	run "$S" convert --to dt "$T/other.gguf" "$T/x"
	[ "$status" -eq 1 ]
	[[ $output == *"its name does not end in '-00001-of-00003.gguf'"* ]]
	cp "$p-00003-of-00003.gguf" "$T/keep"
	cp "$p-00002-of-00003.gguf" "$p-00003-of-00003.gguf"
	run "$S" convert --to dt "$p-00001-of-00003.gguf" "$T/x"
	[ "$status" -eq 3 ]
	[[ $output == *"is part 2 of 3, not 3 of 3"* ]]
	rm "$p-00003-of-00003.gguf"
	run "$S" convert --to dt "$p-00001-of-00003.gguf" "$T/x"
	[ "$status" -eq 1 ]
	[[ $output == *"00003-of-00003.gguf"*"No such file"* ]]
	head -c 2000 "$T/keep" >"$p-00003-of-00003.gguf"
	run "$S" convert --to dt "$p-00001-of-00003.gguf" "$T/x"
	[ "$status" -eq 3 ]
	[ ! -e "$T/x" ]
}

@test "several safetensors files: written with an index, read back, damaged ones refused" {
	need_numpy
	quiet py make llama F32 "$T/a" 3
	quiet "$S" convert --to safetensors --max-file-size 100KB "$T/a" "$T/b"
	[ "$(ls "$T/b"/model-0*-of-0*.safetensors | wc -l)" -gt 2 ]
	quiet py same "$T/a" "$T/b"
	f=$(ls "$T/b"/model-00002-of-*.safetensors)
	truncate -s -1 "$f"
	run "$S" convert "$T/b" "$T/c"
	[ "$status" -eq 3 ]
	[[ $output == *"model-00002-of-"* ]]
	[ ! -e "$T/c" ]
	rm "$f"
	run "$S" convert "$T/b" "$T/c"
	[ "$status" -eq 1 ]
	[[ $output == *"No such file"* ]]
}

@test "convert: usage, existing files are not overwritten, what the format cannot hold is refused" {
	need_numpy
	quiet py make qwen3 F32 "$T/a"
	run "$S" convert --type q8_0 "$T/a" "$T/b"
	[ "$status" -eq 2 ]
	quiet "$S" convert "$T/a" "$T/b"
	run "$S" convert "$T/b" "$T/c"
	[ "$status" -eq 2 ]
	[[ $output == *"--to"* ]]
	run "$S" quantize --type f16 "$T/b" "$T/c.gguf"
	[ "$status" -eq 2 ]
	run "$S" convert "$T/a" "$T/b"
	[ "$status" -eq 1 ]
	[[ $output == *"File exists"* ]]
	run "$S" convert --to llama2c "$T/a" "$T/c.bin"
	[ "$status" -eq 1 ]
	quiet py make llama F32 "$T/llama"
	jq 'del(.rope_scaling)' "$T/llama/config.json" >"$T/config" && cp "$T/config" "$T/llama/config.json"
	quiet "$S" convert --to llama2c "$T/llama" "$T/llama.bin"
	jq '.model_type = "smollm3" | .no_rope_layer_interval = 2' "$T/config" >"$T/llama/config.json" # a layer without positions
	run "$S" convert --to llama2c "$T/llama" "$T/c.bin"
	[ "$status" -eq 1 ]
	[[ $output == *"the format of llama2.c cannot represent this model"* ]]
	run "$S" convert "$T/nothing" "$T/c"
	[ "$status" -eq 1 ]
	head -c 3000 /dev/urandom >"$T/noise"
	run "$S" convert "$T/noise" "$T/c"
	[ "$status" -eq 1 ]
	[[ $output == *"neither a checkpoint"* ]]
	quiet "$S" convert --type f16 "$T/a" "$T/c.gguf"
	run "$S" convert "$T/a" "$T/c.gguf"
	[ "$status" -eq 1 ]
	[ -z "$(find "$T" -name "*tmp*")" ]
	# options that the format of DST does not read
	for bad in "--compress --to safetensors" "--step 3 --to gguf" "--max-file-size 1MB --to dt" "--max-file-size 1MB"; do
		# shellcheck disable=SC2086 # words
		run -2 "$S" convert $bad "$T/a" "$T/no"
		[[ $output == *"${bad%% *} has no effect: it is for "* ]]
	done
	run -2 "$S" avg --step 3 "$T/a" "$T/a" "$T/no.gguf"
	run -2 "$S" sparsify --sparsity 50% --compress --to gguf "$T/a" "$T/no"
	run -2 "$S" quantize --type q8_0 --seq 8 "$T/a" "$T/no.gguf"
	[[ $output == *"--seq requires --text"* ]]
	# an explicit step number
	run "$S" convert --step 12 "$T/a" "$T/d"
	[[ $output == *"$T/d/step-00000012" ]]
}

@test "pickles of PyTorch are refused by name, in both formats, as files, in folders and behind an index" {
	cd "$T"
	mkdir zip old both
	echo '{"model_type": "llama"}' | tee zip/config.json >old/config.json
	# what torch.save writes: a zip archive without compression, or a pickle that begins with a number
	/usr/bin/python3 -c 'import zipfile
with zipfile.ZipFile("zip/pytorch_model.bin", "w") as z:
    z.writestr("pytorch_model/data.pkl", b"\x80\x02}q\x00.")'
	printf '\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e\x80\x02' >old/model.pt
	echo '{"weight_map": {"lm_head.weight": "model.pt"}}' >old/pytorch_model.bin.index.json
	cp old/config.json old/model.pt both
	: >both/a.safetensors
	for each in zip zip/pytorch_model.bin old old/model.pt old/pytorch_model.bin.index.json; do
		run -1 "$S" convert "$each" out
		[[ $output == "dt-shard-ckpt: '${each%%/*}/"*"' is a pickle of PyTorch, which is not read: save the model as safetensors" ]]
		[ ! -e out ]
	done
	run -3 "$S" convert both out # a folder with safetensors is read as such
	[[ $output == *"'both/a.safetensors' is"* ]]
	rm old/model.pt
	run -1 "$S" convert old out
	[[ $output == *"folder 'old' holds no .safetensors file" ]]
}

@test "a full disk leaves nothing behind" {
	need_numpy
	quiet py make llama F32 "$T/a"
	for to in gguf safetensors llama2c dt; do
		run bash -c 'ulimit -f 100; trap "" XFSZ; "$0" convert --to "$1" "$2" "$3"' "$S" $to "$T/a" "$T/x"
		[ "$status" -eq 1 ]
		echo "$to: $output"
		[[ $output == *"File too large"* ]] || [[ $output == *"cannot represent"* ]]
		[[ $to == dt || $to == llama2c ]] || [[ $output == *"cannot write '$T/x"* ]]
		[ -z "$(find "$T" -maxdepth 1 -name 'x*' -not -name x)" ]
		[ ! -e "$T/x" ]
	done
	mkdir "$T/x" # an existing folder stays
	run bash -c 'ulimit -f 100; trap "" XFSZ; "$0" convert --to dt --step 1 "$1" "$2"' "$S" "$T/a" "$T/x"
	[ "$status" -eq 1 ]
	[ -d "$T/x" ] && [ -z "$(ls "$T/x")" ]
}

@test "avg is the mean, and refuses other models" {
	need_numpy
	quiet py make llama F32 "$T/1"
	quiet py make llama F32 "$T/2"
	quiet py make qwen2 F32 "$T/3"
	quiet "$S" avg --to safetensors "$T/1" "$T/2" "$T/m"
	quiet py mean "$T/1" "$T/2" "$T/m"
	run "$S" avg --to dt "$T/1" "$T/3" "$T/n"
	[ "$status" -eq 1 ]
	[[ $output == *"not the same model"* ]]
}

@test "stories260K is the same in each format" {
	[ -f "$DATA/stories260K/stories260K.bin" ] || skip "no stories260K in $DATA"
	need_numpy
	B=$DATA/stories260K
	quiet "$S" convert --tokenizer "$B/tok512.bin" "$B/stories260K.bin" "$T/dt"
	quiet "$S" convert --to llama2c "$T/dt" "$T/2.bin"
	cmp -n 1040156 "$T/2.bin" "$B/stories260K.bin" # all but the rotary tables
	quiet "$S" convert --to safetensors "$T/dt" "$T/hf"
	quiet "$S" convert "$T/hf" "$T/hf-dt"
	quiet "$S" convert "$T/hf" "$T/x.gguf"
	quiet "$S" convert "$T/x.gguf" "$T/gguf-dt"
	jq -e '.model.rope_pairing == "half"' "$T/hf-dt/latest/manifest.json"
	jq -e '.model.rope_pairing == "adjacent"' "$T/gguf-dt/latest/manifest.json"
	# scores (llama2.c) and merges (GGUF) give the same tokenizer
	tokenizer() { jq -S '.tokenizer.text | fromjson | [.model, .normalizer, .decoder]' "$1/latest/manifest.json"; }
	diff <(tokenizer "$T/dt") <(tokenizer "$T/gguf-dt")
	for d in dt hf-dt gguf-dt; do
		OMP_NUM_THREADS=1 "$DT_HELP/greedy" "$T/$d" f32 120 $'\001' |
			/usr/bin/python3 "$DT_SRC/tests/cli/convert.py" text "$B/tok512.bin" >"$T/$d.txt"
		[ "$(head -c 300 "$T/$d.txt")" = "$(head -c 300 "$B/greedy.txt")" ]
	done
	cmp "$T/dt.txt" "$T/hf-dt.txt"
	cmp "$T/dt.txt" "$T/gguf-dt.txt"
}

@test "a GGUF vocabulary encodes to the ids of its own tokenizer" {
	[ -f "$DATA/tokenizers/ggml-vocab-gpt-2.gguf" ] || skip "no tokenizers in $DATA"
	need_numpy
	quiet py make gpt2 F32 "$T/a"
	quiet "$S" convert --tokenizer "$DATA/tokenizers/ggml-vocab-gpt-2.gguf" "$T/a" "$T/dt"
	jq -r .tokenizer.text "$T/dt/latest/manifest.json" >"$T/tok.json"
	jq -e '.tokenizer.hash | length == 16' "$T/dt/latest/manifest.json"
	[ "$(printf 'Hello world, 123' | "$DT_BIN/dt-tokenize" encode -t "$T/tok.json")" = "15496 995 11 17031" ]
	perl -0777 -pe 's/(tokenizer\.ggml\.pre.{12})falcon/$1falcxn/s' "$DATA/tokenizers/ggml-vocab-falcon.gguf" >"$T/v.gguf"
	run "$S" convert --tokenizer "$T/v.gguf" "$T/a" "$T/b"
	[ "$status" -eq 1 ]
	[[ $output == *"falcxn"* ]]
	run "$S" convert --tokenizer none "$T/a" "$T/b"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 1 ]
}

@test "PyPI's safetensors and gguf read the written files" {
	[ -n "$DT_PEERS_PYTHON" ] || skip "DT_PEERS_PYTHON names no Python with the packages gguf and safetensors"
	for f in gpt2 llama qwen2 gemma3_text mixtral qwen3_moe; do
		quiet py make $f F32 "$T/$f"
		quiet "$S" convert "$T/$f" "$T/$f-dt"
		quiet "$S" convert --to safetensors "$T/$f-dt" "$T/$f-hf"
		quiet "$S" convert --type q8_0 "$T/$f-dt" "$T/$f-q8_0.gguf"
		quiet "$S" convert --type q4_0 "$T/$f-dt" "$T/$f-q4_0.gguf"
		quiet "$DT_PEERS_PYTHON" "$DT_SRC/tests/cli/convert.py" peers "$T/$f" "$T/$f-hf" "$T/$f-q8_0.gguf" "$T/$f-q4_0.gguf"
	done
}

@test "GPTQModel and transformers load packed folders and compute with the values stored there" {
	[ -n "$DT_PEERS_PYTHON" ] || skip "DT_PEERS_PYTHON names no Python with the packages transformers, optimum and gptqmodel"
	"$DT_PEERS_PYTHON" -c 'import gptqmodel, optimum, transformers' 2>/dev/null || skip "no gptqmodel, optimum or transformers"
	for f in llama qwen3; do
		quiet py make $f BF16 "$T/$f"
		for to in gptq awq; do
			quiet "$S" quantize --to $to --type q4_0 "$T/$f" "$T/$f-$to"
			quiet "$S" convert --to safetensors --type f32 "$T/$f-$to" "$T/$f-$to-dense"
			quiet "$DT_PEERS_PYTHON" "$DT_SRC/tests/cli/convert.py" peers_packed "$T/$f-$to" "$T/$f-$to-dense" 1e-3
		done
		quiet "$S" quantize --to gptq --type q8_0 "$T/$f" "$T/$f-8"
		quiet "$S" convert --to safetensors --type f32 "$T/$f-8" "$T/$f-8-dense"
		quiet "$DT_PEERS_PYTHON" "$DT_SRC/tests/cli/convert.py" peers_packed "$T/$f-8" "$T/$f-8-dense" 1e-2
	done
}
# SPDX-License-Identifier: Apache-2.0
