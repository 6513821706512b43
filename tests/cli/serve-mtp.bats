#!/usr/bin/env bats
# dt-serve --mtp: the model's module for a further token drafts. Answers have the bytes of those without it,
# however prompts are cut and whatever runs beside them; on text that can be foreseen its drafts are accepted.

bats_require_minimum_version 1.5.0
load server

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    PATH=$DT_BIN:$PATH
    jq -n '{model_type: "deepseek_v3", vocab_size: 257, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 2,
        num_attention_heads: 2, max_position_embeddings: 256, kv_lora_rank: 16, q_lora_rank: 24, qk_nope_head_dim: 10,
        qk_rope_head_dim: 6, v_head_dim: 12, n_routed_experts: 4, n_shared_experts: 1, num_experts_per_tok: 2,
        moe_intermediate_size: 24, first_k_dense_replace: 1, n_group: 1, topk_group: 1, rms_norm_eps: 1e-5,
        rope_theta: 10000}' >latent.json
    jq -n '{model_type: "glm4_moe", vocab_size: 257, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 1,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, max_position_embeddings: 256, use_qk_norm: true,
        n_routed_experts: 4, num_experts_per_tok: 2, n_shared_experts: 1, moe_intermediate_size: 32, attention_bias: true,
        first_k_dense_replace: 1, norm_topk_prob: true, routed_scaling_factor: 1.5, n_group: 1, topk_group: 1,
        rms_norm_eps: 1e-5, partial_rotary_factor: 0.5, rope_theta: 10000}' >heads.json
    # pairs of a letter drawn at random and the same in upper case; and the alphabet again and again
    awk 'BEGIN { srand(1); for (i = 0; i < 8192; i++) printf "%s", rand() < 0.5 ? "aA" : "bB" }' >pairs.txt
    for _ in $(seq 400); do printf 'abcdefghijklmnopqrstuvwxyz'; done >alphabet.txt
    for model in latent,pairs,60 heads,pairs,60 latent,alphabet,100; do
        IFS=, read -r model text steps <<<"$model"
        [ -f $text.h5 ] || dt-dataset build --tokenizer byte --out $text.h5 $text.txt
        dt-train --model $model.json --data $text.h5 --seq 64 --microbatch 4 --global-batch 4 --lr 1e-2 --warmup 5 --precision fp32 \
            --no-mfu --threads 1 --steps "$steps" --mtp-layers 1 --mtp-loss-weight 1 --save $model-$text --metrics m.jsonl >/dev/null
    done
    for i in $(seq 0 79); do # prompts of 1 to 160 bytes; many begin alike
        jq -nc --argjson i "$i" '{prompt: ("aAbBbBaAaAbBaAbBaA" * 10)[$i % 5:$i % 5 + 1 + $i * 2], max_tokens: (5 + $i % 40), seed: $i,
            temperature: (if $i % 2 == 0 then 0 else 1 end), ignore_eos: ($i % 3 > 0)}
            + (if $i % 4 == 1 then {top_p: 0.9, presence_penalty: 0.5, frequency_penalty: 0.25} else {} end)
            + (if $i % 7 == 2 then {stop: ["Ab", "BbB"]} else {} end) + (if $i % 9 == 4 then {logprobs: 2} else {} end)
            + (if $i % 11 == 5 then {mirostat: 2} else {} end)
            + (if $i % 13 == 6 then {guided_regex: "([aA]|bB)+x"} else {} end)'
    done >prompts.jsonl
}

setup() {
    in_server_folder
    common=(--threads 1 --max-num-seqs 8)
}

# start MODEL OPTION...: a server on a free port; sets $server (process) and $url
start() {
    await dt-serve "$1" "${common[@]}" --precision fp32 --port 0 "${@:2}"
}

metric() {
    curl -s "$url/metrics" | awk -v n="dt_serve_$1" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

@test "--mtp changes no byte: many streams, prompts in parts, a cache that is too small, 1 to 3 draft tokens" {
    local m p how mem # room for one long sequence and a little
    for m in latent-pairs heads-pairs; do
        for p in fp32 bf16; do
            mem=$([ $p = fp32 ] && echo 80KiB || echo 40KiB)
            dt-serve --batch $m "${common[@]}" --precision $p --no-prefix-caching <prompts.jsonl >plain.jsonl
            one_of 2 "" "--speculate 3" "--speculate 2 --max-num-batched-tokens 9" "--max-num-batched-tokens 8 --block-size 1" \
                "--no-prefix-caching --max-num-seqs 1" "--speculate 3 --kv-cache-mem $mem --max-model-len 250" "--speculate 2 --block-size 3" \
                "--speculate 3 --kv-host 1MiB --kv-read always --kv-cache-mem $mem --max-model-len 250"
            for how in "${some[@]}"; do
                # shellcheck disable=SC2086 # several words
                dt-serve --batch $m "${common[@]}" --precision $p --mtp $how <prompts.jsonl >mtp.jsonl
                cmp plain.jsonl mtp.jsonl
            done
        done
    done
}

@test "n choices of a prompt, and embeddings beside them, are as without --mtp" {
    local body='{"prompt": "aAbBbBaAaAbBaAbB", "max_tokens": 30, "seed": 3, "ignore_eos": true, "n": 4}' how
    for how in "" --mtp "--mtp --speculate 3"; do
        # shellcheck disable=SC2086 # several words
        start latent-pairs --block-size 8 $how
        for _ in 1 2; do # the second time the prompt is cached
            curl -s "$url/v1/completions" -H 'Content-Type: application/json' -d "$body" | jq -c '[.choices[].text]'
            curl -s "$url/v1/embeddings" -H 'Content-Type: application/json' -d '{"input": "aAbBbB"}' | jq -c .data
        done >"answers${how// /}"
        teardown
    done
    grep -q aA answers
    cmp answers answers--mtp
    cmp answers answers--mtp--speculate3
}

# Which draft tokens are made depends on times that are measured; whether they are accepted does not.
@test "drafts of text that can be foreseen are accepted, of random text half of them or fewer" {
    local body drafted accepted
    start latent-alphabet --mtp --speculate 2
    for i in 1 2 3 4; do
        body=$(jq -nc --arg p "$(head -c $((26 + i)) alphabet.txt)" '{prompt: $p, max_tokens: 200, temperature: 0, ignore_eos: true}')
        curl -s "$url/v1/completions" -H 'Content-Type: application/json' -d "$body" | jq -r '.choices[0].text'
    done >answers
    [ "$(head -n 1 answers)" = "$(tail -c +28 alphabet.txt | head -c 200)" ]
    drafted=$(metric spec_decode_num_draft_tokens_total) accepted=$(metric spec_decode_num_accepted_tokens_total)
    [ "$drafted" -ge 20 ]
    [ $((accepted * 100)) -ge $((drafted * 95)) ]
    teardown
    start latent-pairs --mtp
    for i in $(seq 8); do # a letter follows from the one before, or is drawn: then half of the guesses are right
        body=$(jq -nc --argjson i "$i" '{prompt: "aAbBbBaA", max_tokens: 200, temperature: 1, seed: $i, ignore_eos: true}')
        curl -s "$url/v1/completions" -H 'Content-Type: application/json' -d "$body" | jq -r '.choices[0].text'
    done >answers
    drafted=$(metric spec_decode_num_draft_tokens_total) accepted=$(metric spec_decode_num_accepted_tokens_total)
    [ "$drafted" -ge 40 ]
    [ $((accepted * 100)) -ge $((drafted * 50)) ]
}

@test "Hugging Face folders and GGUF files with the module are served with --mtp; quantised ones too" {
    local f
    dt-shard-ckpt convert --to safetensors heads-pairs/latest folder
    dt-shard-ckpt convert --to gguf heads-pairs/latest model.gguf
    head -n 20 prompts.jsonl >some.jsonl
    for f in folder model.gguf "folder --weights q8_0"; do
        # shellcheck disable=SC2086 # several words
        dt-serve --batch $f "${common[@]}" --tokenizer byte --precision fp32 <some.jsonl >plain.jsonl
        # shellcheck disable=SC2086
        dt-serve --batch $f "${common[@]}" --tokenizer byte --precision fp32 --mtp --speculate 2 <some.jsonl >mtp.jsonl
        cmp plain.jsonl mtp.jsonl
    done
}

@test "--kv-cache-mem includes the module's cache, and dt_serve_memory_bytes its memory" {
    local with without
    start latent-pairs --kv-cache-mem 300KiB
    without=$(metric 'memory_bytes{model_name="latent-pairs",category="weights"}')
    [ "$(metric 'memory_bytes{model_name="latent-pairs",category="kv-cache"}')" -le $((300 * 1024)) ]
    teardown
    start latent-pairs --kv-cache-mem 300KiB --mtp
    with=$(metric 'memory_bytes{model_name="latent-pairs",category="weights"}')
    [ "$(metric 'memory_bytes{model_name="latent-pairs",category="kv-cache"}')" -le $((300 * 1024)) ]
    # its own weights, and copies of the embedding and the head
    [ $((with - without)) -ge $(((32 * 64 + 2 * 257 * 32) * 4)) ]
}

@test "--mtp is refused without a module, and where the module cannot draft" {
    "$DT_HELP/make-model" m
    run -1 dt-serve m --port 0 --mtp
    [[ "$output" == *"'m' has no module for a further token"* ]]
    run -2 dt-serve latent-pairs --port 0 --mtp --draft-model m
    [[ "$output" == *"--draft-model cannot be combined with --mtp"* ]]
    run -2 dt-serve latent-pairs --port 0 --mtp --role both
    [[ "$output" == *"--mtp"* && "$output" == *"--role"* ]]
    run -1 mpirun -np 2 dt-serve latent-pairs --port 0 --mtp --comm-timeout 60
    [[ "$output" == *"--mtp cannot be combined with several ranks"* ]]
}
# SPDX-License-Identifier: Apache-2.0
