#!/usr/bin/env bats
# dt-serve --device on emulated GPUs gives the CPU's answers, for every cache, weight format and layout.
load ranks

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    "$DT_HELP/make-model" m
    for i in 0 1 2 3 4 5; do
        jq -nc --argjson i "$i" '{prompt: ("Prompt: " + ("tell me more. " * ($i % 3)) + "\($i)"), max_tokens: (3 + $i * 2),
            temperature: (if $i == 4 then 1 else 0 end), seed: $i, ignore_eos: true}'
    done >prompts.jsonl
    jq -nc '{custom_id: "three", method: "POST", url: "/v1/completions",
        body: {prompt: "Once upon a time there was", max_tokens: 6, n: 3, temperature: 1, seed: 7, ignore_eos: true}}' >>prompts.jsonl
}

setup() {
    PATH=$DT_BIN:$DT_HELP:$PATH
    export DT_EMULATED_QUEUES=${DT_EMULATED_QUEUES:-late} # kernels/cuda/emulate/queue.h
    cd "$BATS_FILE_TMPDIR" || return 1
    prompts=prompts.jsonl
    common=(--batch m --precision fp32 --threads 1 --max-num-seqs 4 --max-num-batched-tokens 16 --max-model-len 64 --block-size 4)
}

# told: keeps of each answer what does not depend on the time; fails on an error
told() {
    jq -c 'if .error then error("\(.error)") else {custom_id, index, text, body: (.response.body | del(.id?, .created?))} end'
}

# same OPTION...: the GPU's answers to $prompts equal the CPU's
same() {
    dt-serve "${common[@]}" "$@" <"$prompts" 2>/dev/null | told >cpu.txt
    dt-serve-emulated --device cuda "${common[@]}" "$@" <"$prompts" 2>log | told >card.txt
    [ "$(wc -l <cpu.txt)" -ge 7 ]
    diff cpu.txt card.txt
}

# over RANKS LAYOUT OPTION...: the answers of RANKS ranks on DT_EMULATED_CARDS GPUs equal those of one CPU
# process: texts exactly, numbers up to the last digits, because sums over ranks have another order
over() {
    dt-serve "${common[@]}" "${@:3}" <"$prompts" 2>/dev/null | told | sort >cpu.txt
    mpirun -np "$1" dt-serve-emulated --device cuda "${common[@]}" --layout "$2" --comm-timeout 300 "${@:3}" <"$prompts" 2>log | told |
        sort >card.txt || { cat log; return 1; }
    [ "$(wc -l <card.txt)" -ge 6 ]
    diff <(jq -c 'walk(if type == "number" then 0 else . end)' cpu.txt) <(jq -c 'walk(if type == "number" then 0 else . end)' card.txt)
    jq -en --slurpfile a cpu.txt --slurpfile b card.txt '[$a | .. | numbers] as $a | [$b | .. | numbers] as $b |
        ($a | length) == ($b | length) and ([range($a | length) | $a[.] - $b[.] | fabs] | max) < 1e-4'
}

# all_same: same for each item of `some`, a model and options
all_same() {
    local run
    for run in "${some[@]}"; do
        read -ra run <<<"$run"
        common[1]=${run[0]}
        same "${run[@]:1}"
    done
}

need_emulation() {
    command -v dt-serve-emulated >/dev/null || skip "no C++ compiler, no emulated card"
}

@test "invalid device names, and a GPU that does not exist" {
    run dt-serve "${common[@]}" --device gpu
    [ "$status" -eq 2 ]
    [[ $output == *"no such device: 'gpu' (auto, cpu, cuda or cuda:N)"* ]]
    run dt-serve "${common[@]}" --device cuda:1000
    [ "$status" -eq 1 ]
    [[ $output == "dt-serve: cannot open device 'cuda:1000': "* ]]
    [ ! -e /dev/nvidiactl ] || skip "there is a card here"
    [ "$(echo '{"prompt": "a", "max_tokens": 1}' | dt-serve "${common[@]}" --device auto | jq -r .error)" = null ]
}

@test "prefix cache, several choices per prompt and sampling: the CPU's tokens" {
    need_emulation
    same
    same --no-prefix-caching
}

@test "an int8 KV cache, and speculative decoding: the CPU's tokens" {
    takes_long
    need_emulation
    same --kv-cache-dtype int8
    same --draft-model m
}

@test "mixtures of experts, Mixtral's and Qwen3's: the CPU's tokens, with plain and with quantized weights" {
    need_emulation
    local of='"vocab_size": 260, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu"'
    echo "{\"model_type\": \"mixtral\", \"intermediate_size\": 64, \"num_local_experts\": 5, \"num_experts_per_tok\": 2, $of}" >mixtral.json
    echo "{\"model_type\": \"qwen3_moe\", \"intermediate_size\": 64, \"moe_intermediate_size\": 32, \"num_experts\": 12,
        \"num_experts_per_tok\": 4, \"norm_topk_prob\": false, \"head_dim\": 8, $of}" >qwen3moe.json
    make-model mixtral mixtral.json 260
    make-model qwen3moe qwen3moe.json 260
    one_of 2 "mixtral --weights q8_0" mixtral qwen3moe "qwen3moe --weights q8_0"
    all_same
}

@test "latent attention, DeepSeek-V2's and V3's, with the compressed cache on the GPU: the CPU's tokens" {
    takes_long
    need_emulation
    local of='"vocab_size": 260, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "intermediate_size": 48, "kv_lora_rank": 16,
        "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12, "moe_intermediate_size": 24, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 3, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2'
    echo "{\"model_type\": \"deepseek_v2\", $of, \"q_lora_rank\": null, \"topk_method\": \"group_limited_greedy\", \"norm_topk_prob\": false,
        \"routed_scaling_factor\": 1.5}" >deepseek2.json
    echo "{\"model_type\": \"deepseek_v3\", $of, \"q_lora_rank\": 24, \"norm_topk_prob\": true,
        \"routed_scaling_factor\": 2.5}" >deepseek3.json
    make-model deepseek2 deepseek2.json 260
    make-model deepseek3 deepseek3.json 260
    # prompts in chunks of at most 16 tokens; decode-only steps are recorded as graphs
    one_of 2 "deepseek2 --kv-cache-dtype int8" deepseek2 deepseek3 "deepseek3 --kv-cache-dtype int8"
    all_same
}

@test "Mamba-2, whose states are on the GPU: the CPU's tokens, with plain and with quantized weights" {
    need_emulation
    echo '{"model_type": "mamba2", "vocab_size": 260, "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16,
        "expand": 2, "n_groups": 2, "state_size": 10, "conv_kernel": 3}' >mamba2.json
    make-model mamba2 mamba2.json 260
    # beside attention, with rotary positions, and with an MLP behind each mixer
    echo '{"model_type": "granitemoehybrid", "vocab_size": 260, "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "num_local_experts": 0,
        "shared_intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "position_embedding_type": "rope",
        "layer_types": ["mamba", "attention", "mamba"], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_expand": 2,
        "mamba_n_groups": 2, "mamba_d_state": 10, "mamba_d_conv": 3}' >hybrid.json
    make-model hybrid hybrid.json 260
    # prompts in chunks of at most 16 tokens; decode-only steps are recorded as graphs
    one_of 1 mamba2 "mamba2 --weights q8_0" hybrid
    all_same
}

@test "adapters, with magnitudes too, beside their base: the CPU's tokens, in recorded steps" {
    need_emulation
    echo '{"model_type": "qwen2", "vocab_size": 257, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
        "hidden_act": "silu"}' >qwen2.json
    dt-dataset build --tokenizer byte --out lora.h5 "$DT_SRC/LICENSE"
    local learn=(--data lora.h5 --seq 32 --microbatch 4 --lr 3e-2 --no-mfu --threads 1 --precision fp32)
    dt-train --model qwen2.json "${learn[@]}" --steps 15 --save base >/dev/null
    dt-train --model base --data lora.h5 "${learn[@]:2}" --steps 6 --lora 3 --save plain >/dev/null
    dt-train --model base --data lora.h5 "${learn[@]:2}" --steps 6 --lora 5 --dora --lora-targets '.*[qo]|.*down' --save dora >/dev/null
    jq -c --slurpfile n <(printf '"base" "plain" "dora"') 'if .body then .body.model = "dora" else .model = $n[.max_tokens % 3] end' prompts.jsonl >named
    [ "$(jq -r '.model // .body.model' named | sort -u | wc -l)" -eq 3 ]
    common[1]=base
    common+=(--served-model-name base --lora plain=plain --lora dora=dora)
    prompts=named
    same
    [ "$(jq -rs 'map(.text) | unique | length' card.txt)" -ge 6 ]
    same --weights q8_0
    # over ranks: each holds the part of an adapter that belongs to its part of the weights; row norms need
    # all ranks
    on_ranks
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=4
    one_of 4 "4 tp2.pp2" "2 tp2" "2 pp2" "2 dp2"
    for run in "${some[@]}"; do
        read -ra run <<<"$run"
        over "${run[@]}"
    done
}

# answers OPTION...: answers with log-probabilities, to the last digit
answers() {
    dt-serve-emulated --device cuda "${common[@]}" "$@" <scored.jsonl 2>log | jq -c '{id, text, logprobs, error}'
}

@test "--batch-invariant: answers on a GPU are the same to the bit, alone and beside others" {
    takes_long
    need_emulation
    jq -c 'select(.prompt) | . + {logprobs: 2}' prompts.jsonl >scored.jsonl
    answers --precision bf16 --batch-invariant --max-num-seqs 1 --max-num-batched-tokens 64 >alone.txt
    answers --precision bf16 --batch-invariant --max-num-seqs 8 --max-num-batched-tokens 40 >together.txt
    [ "$(grep -c '"error":null' alone.txt)" -ge 6 ]
    diff alone.txt together.txt
}

@test "weights in blocks: the CPU's tokens" {
    need_emulation
    echo '{"model_type": "llama", "vocab_size": 257, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
        "hidden_act": "silu"}' >config.json
    dt-dataset build --tokenizer byte --out d.h5 "$DT_SRC/LICENSE"
    dt-train --model config.json --data d.h5 --seq 32 --microbatch 4 --steps 20 --lr 1e-2 --no-mfu --save run --threads 1 >/dev/null
    common[1]=run/latest
    same --weights q8_0
    same --weights q4_0
}

# many: prompts, several choices, scores, embeddings and a grammar
many() {
    prompts=many.jsonl
    {
        cat prompts.jsonl
        jq -nc '{custom_id: "scores", method: "POST", url: "/v1/completions", body: {prompt: "Once upon", max_tokens: 5, logprobs: 2,
            echo: true, seed: 3, ignore_eos: true, frequency_penalty: 0.5}}'
        jq -nc '{custom_id: "states", method: "POST", url: "/v1/embeddings", body: {input: ["one one one", "two"]}}'
        jq -nc '{custom_id: "grammar", method: "POST", url: "/v1/completions", body: {prompt: "{{{", seed: 5, max_tokens: 20,
            response_format: {type: "json_schema", json_schema: {name: "n", schema: {type: "object", properties: {a: {type: "integer"},
            b: {enum: ["x", "yz"]}}, required: ["a", "b"]}}}}}'
    } >many.jsonl
}

@test "over ranks with a GPU each, every layout: the answers of one CPU process" {
    need_emulation
    on_ranks
    many
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=4
    local of='"vocab_size": 260, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "intermediate_size": 64'
    echo "{\"model_type\": \"llama\", $of}" >llama.json
    echo "{\"model_type\": \"mixtral\", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, $of}" >experts.json
    make-model llama llama.json 260
    make-model experts experts.json 260
    one_of 4 "llama 4 tp2.pp2 --max-num-seqs 8" "llama 2 pp2" "llama 2 tp2 --draft-model llama" "experts 4 dp2.pp2.ep2" \
        "experts 2 dp2.ep2" "experts 2 tp2" "experts 2 cp2.ep2" "llama 2 tp2 --speculate 3" "llama 2 cp2 --kv-cache-dtype int8" "llama 2 dp2"
    for run in "${some[@]}"; do
        echo "$run"
        read -ra run <<<"$run"
        common[1]=${run[0]}
        over "${run[@]:1}"
        ! grep -q 'host memory' log || return 1
    done
    # ranks that share a GPU say so
    common[1]=llama
    DT_EMULATED_CARDS=1 over 2 tp2
    [ "$(grep -c 'copied through host memory, which is slow: several ranks share a GPU' log)" -eq 1 ]
}

@test "a rank with a GPU stops: the server names it, and ends" {
    takes_long
    need_emulation
    on_ranks
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2
    local server url rank
    mpirun -np 2 dt-serve-emulated m --device cuda --precision fp32 --threads 1 --comm-timeout 3 --port 0 2>log &
    server=$!
    for _ in $(seq 300); do
        url=$(sed -n 's/.*serving .* on //p' log)
        [ -z "$url" ] || break
        sleep 0.1
    done
    curl -sf -m 60 -H 'Content-Type: application/json' -d '{"prompt": "a", "max_tokens": 2}' "$url/v1/completions" >/dev/null
    rank=$(for pid in $(ps -o pid= --ppid "$server"); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx OMPI_COMM_WORLD_RANK=1 && echo "$pid"
    done)
    kill -STOP "$rank"
    curl -s -m 60 -H 'Content-Type: application/json' -d '{"prompt": "a", "max_tokens": 9}' "$url/v1/completions" >/dev/null || true
    ! wait "$server" || return 1
    cat log
    grep -q "rank 1: process $rank is stopped" log
}
# SPDX-License-Identifier: Apache-2.0
