#!/usr/bin/env bats
# Adapters with whole modules (PEFT's modules_to_save) beside a base: the merged model's tokens, in a batch
# with other adapters and with the base, over ranks, and with the planned bytes.

bats_require_minimum_version 1.5.0
load server

setup_file() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    python3 -c '
import random
random.seed(1)
words = ["alpha", "bravo", "charlie", "delta"]
open("base.txt", "w").write("".join("The %s " % random.choice(words) for _ in range(4000)))
for w in words:
    open(w + ".txt", "w").write(("The %s " % w) * 800)'
    for t in base bravo charlie delta; do
        dt-dataset build --tokenizer byte --out $t.h5 $t.txt
    done
    same='vocab_size: 261, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 3, num_attention_heads: 4,
        num_key_value_heads: 2, max_position_embeddings: 128, rms_norm_eps: 1e-5, rope_theta: 10000'
    jq -n "{model_type: \"llama\", tie_word_embeddings: false, $same}" >llama.json
    jq -n "{model_type: \"qwen3\", head_dim: 16, tie_word_embeddings: true, $same}" >qwen3.json
    jq -n '{model_type: "gpt2", vocab_size: 261, n_embd: 64, n_layer: 3, n_head: 4, n_positions: 128}' >gpt2.json
    common=(--seq 64 --microbatch 8 --global-batch 8 --precision fp32 --no-mfu --threads 1 --lr 1e-2)
    ends='embed|head|.*norm'
    products='embed|.*norm|pos|.*attn\.[qkv]|layers\.1\.mlp\..*'
    for model in llama qwen3 gpt2; do
        dt-train --model $model.json --data base.h5 "${common[@]}" --warmup 5 --steps 60 --save $model
        dt-train --model $model --data bravo.h5 "${common[@]}" --warmup 2 --steps 8 --lora 4 --lora-modules-to-save "$ends" --save $model-ends
        dt-train --model $model --data charlie.h5 "${common[@]}" --warmup 2 --steps 8 --lora 4 --lora-modules-to-save "$products" \
            --save $model-products
        dt-train --model $model --data delta.h5 "${common[@]}" --warmup 2 --steps 8 --lora 4 --save $model-low
        for a in ends products low; do
            dt-shard-ckpt lora-merge --to dt $model $model-$a $model-merged-$a
        done
    done
    # whole for q but not for k and v, which dt-train refuses and peft allows; the others have low-rank
    # adapters
    dt-shard-ckpt lora-convert llama llama-low part-low
    dt-shard-ckpt lora-convert llama llama-products part-whole
    mkdir part
    python3 - <<-'E'
		import json, struct
		def read(folder):
		    d = open(folder + "/adapter_model.safetensors", "rb").read()
		    n = struct.unpack("<Q", d[:8])[0]
		    head = json.loads(d[8 : 8 + n])
		    head.pop("__metadata__", None)
		    return {k: (v, d[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]]) for k, v in head.items()}
		low, whole = read("part-low"), read("part-whole")
		q = "self_attn.q_proj.weight"
		t = {k: v for k, v in low.items() if "q_proj" not in k}
		t.update({k: v for k, v in whole.items() if k.endswith(q)})
		assert len(t) > 30 and sum(k.endswith(q) for k in t) == 3
		at, head, data = 0, {}, b""
		for k, (v, d) in sorted(t.items()):
		    head[k] = dict(v, data_offsets=[at, at + len(d)])
		    at += len(d)
		    data += d
		head = json.dumps(head).encode()
		open("part/adapter_model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + data)
		c = json.load(open("part-low/adapter_config.json"))
		c["modules_to_save"] = ["self_attn.q_proj"]
		json.dump(c, open("part/adapter_config.json", "w"))
		E
    dt-shard-ckpt lora-merge --to dt llama part llama-merged-part
}

setup() {
    in_server_folder
    PATH=$DT_HELP:$PATH
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=/bin/false
}

many=5 # prompts per model

lines() { # MODEL...: greedy prompts for each
    jq -nc --argjson many $many 'range(1; $many + 1) as $i | $ARGS.positional[] |
        {model: ., prompt: ("The " + ("alpha The " * ($i % 3) // "")), max_tokens: (8 + $i), temperature: 0}' --args "$@"
}

# merged MODEL OPTION...: texts of the base and of the merged models, each served alone, in the order of
# `lines`. Results are cached for later tests.
merged() {
    local model=$1 a dir said files=()
    shift
    for a in base "${names[@]}"; do
        dir=$model-merged-$a
        [ "$a" = base ] && dir=$model
        said="said-$model-$a-$many-${*// /}"
        [ -e "$said" ] || lines "$a" | jq -c 'del(.model)' | dt-serve --batch "$dir" --threads 1 "$@" 2>log | jq .text >"$said.new"
        [ -e "$said" ] || mv "$said.new" "$said"
        [ "$(wc -l <"$said")" -eq $many ]
        files+=("$said")
    done
    paste -d'\n' "${files[@]}"
}

# served MODEL OPTION...: the same from one server with the base and all adapters
served() {
    local model=$1 a adapters=()
    shift
    for a in "${names[@]}"; do
        dir=$model-$a
        [ "$a" = part ] && dir=part
        adapters+=(--lora "$a=$dir")
    done
    lines base "${names[@]}" | "${ranks[@]}" "${serve[@]}" --batch "$model" --threads 1 --served-model-name base "${adapters[@]}" "$@" 2>log | jq .text
}

names=(ends low products)
ranks=()
serve=(dt-serve)

@test "greedy tokens are the merged model's, in a batch with other adapters and the base" {
    for model in llama qwen3 gpt2; do
        merged $model --precision fp32 >want
        [ "$(sort -u want | wc -l)" -gt 6 ]
        case $model in
        llama) one_of 2 1 64 2 ;;
        qwen3) one_of 3 64 1 2 ;;
        gpt2) one_of 3 2 64 1 ;;
        esac
        for places in "${some[@]}"; do
            served $model --precision fp32 --max-loras "$places" --max-num-seqs 12 | cmp want -
        done
        # the composition of the batch changes nothing
        [ $model != llama ] && ! slow || served $model --precision fp32 --max-num-seqs 1 | cmp want -
    done
}

@test "a fused projection with both low-rank and fully trained parts: the merged model's tokens" {
    names=(part low ends)
    merged llama --precision fp32 >want
    cmp said-llama-base-* said-llama-part-* && return 1
    served llama --precision fp32 --max-num-seqs 12 | cmp want -
}

@test "over a quantized base and in bf16, whole modules have the precision that the merged model would have" {
    names=(ends products)
    for how in '--precision bf16' '--weights q8_0 --precision fp32'; do
        # shellcheck disable=SC2086 # words
        merged llama $how >want
        # shellcheck disable=SC2086 # words
        served llama $how --max-num-seqs 12 | cmp want -
    done
}

@test "on an emulated GPU, with parts of fused projections, and quantized: the merged model's tokens" {
    takes_long
    command -v dt-serve-emulated >/dev/null || skip "no C++ compiler, no emulated card"
    serve=(dt-serve-emulated --device cuda)
    many=$(few 2 5) # an emulated GPU is slow
    for model in $(few "qwen3 gpt2" "llama qwen3 gpt2"); do
        merged "$model" --precision fp32 >want
        served "$model" --precision fp32 --max-num-seqs 12 | cmp want -
    done
    ! slow || served gpt2 --precision fp32 --max-num-seqs 12 --max-loras 1 | cmp want -
    names=(part low products)
    for how in '--precision fp32' '--weights q8_0 --precision fp32'; do
        # shellcheck disable=SC2086 # words
        merged llama $how >want
        # shellcheck disable=SC2086 # words
        served llama $how --max-num-seqs 12 | cmp want -
    done
}

@test "over ranks each holds its part" {
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    many=$(few 2 5)
    for model in llama qwen3 gpt2; do
        merged $model --precision fp32 >want
        case $model in
        llama) one_of 2 tp2 tp2.pp2 dp2 pp2 ;;
        qwen3) one_of 4 pp2 tp2.pp2 dp2 tp2 ;;
        gpt2) one_of 4 tp2.pp2 tp2 pp2 dp2 ;;
        esac
        for layout in "${some[@]}"; do
            ranks=(mpirun -np 2)
            [ $layout = tp2.pp2 ] && ranks=(mpirun -np 4)
            [ $layout = pp2 ] && places=1 || places=64
            served $model --precision fp32 --layout $layout --max-loras $places --max-num-seqs 12 | cmp want -
        done
    done
    names=(part low)
    merged llama --precision fp32 >want
    ranks=(mpirun -np 2)
    served llama --precision fp32 --layout tp2 --max-num-seqs 12 | cmp want -
}

metric() {
    curl -s "$url/metrics" | awk -v n="dt_serve_$1" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

@test "the base's answers do not change; bytes in memory are as estimated" {
    lines base | jq -c 'del(.model)' | dt-serve --batch llama --threads 1 2>log | jq -r .text >want
    lines base | dt-serve --batch llama --threads 1 --served-model-name base --lora ends=llama-ends 2>log | jq -r .text | cmp want -
    bytes='.categories[] | select(.name == "adapters").bytes'
    for model in llama gpt2; do
        for a in ends products; do
            [ $a = ends ] && modules='embed|head|.*norm' || modules='embed|.*norm|pos|.*attn\.[qkv]|layers\.1\.mlp\..*'
            [ $a = ends ] && one_of 2 'fp32 f32 fp32' 'bf16 bf16 bf16' 'fp32 q8_0 q8_0' || one_of 3 'bf16 bf16 bf16' 'fp32 q8_0 q8_0' 'fp32 f32 fp32'
            for how in "${some[@]}"; do
                read -r precision weights plan <<<"$how"
                await dt-serve $model --threads 1 --precision "$precision" --weights "$weights" --port 0 --lora a=$model-$a --max-loras 1
                [ "$(metric lora_memory_bytes)" = "$(dt-memest $model --serve --activations "$precision" --precision "$plan" \
                    --max-loras 1 --max-lora-rank 4 --lora-modules-to-save "$modules" --json | jq "$bytes")" ]
                kill -TERM "$server"
                wait "$server"
                server=
            done
        done
    done
    command -v mpirun >/dev/null || return 0
    await mpirun -np 2 dt-serve llama --threads 1 --precision fp32 --layout tp2 --port 0 --lora a=llama-ends --max-loras 1
    [ "$(metric lora_memory_bytes)" = "$(dt-memest llama --serve --precision fp32 --max-loras 1 --max-lora-rank 4 --layout tp2 \
        --lora-modules-to-save 'embed|head|.*norm' --json | jq "$bytes")" ]
    run -2 dt-memest llama --serve --lora-modules-to-save embed
    [[ $output == *"--max-loras"* ]]
}

@test "unsupported whole modules are refused by name" {
    jq -n '{model_type: "qwen3_moe", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 1,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12, max_position_embeddings: 64, num_experts: 4, num_experts_per_tok: 2,
        moe_intermediate_size: 24, rms_norm_eps: 1e-5, rope_theta: 10000}' >mixture.json
    train=(dt-train --data base.h5 --seq 32 --microbatch 2 --steps 1 --precision fp32 --no-mfu --threads 1)
    "${train[@]}" --model mixture.json --save mixture >/dev/null
    "${train[@]}" --model mixture --lora 2 --lora-targets attention --lora-modules-to-save '.*router' --save with >/dev/null
    run -1 --separate-stderr timeout 60 dt-serve --batch mixture --threads 1 --lora x=with </dev/null
    [[ $stderr == *"'layers.0.mlp.router.weight' is a fully trained module, which cannot be served"* ]]
}
# SPDX-License-Identifier: Apache-2.0
