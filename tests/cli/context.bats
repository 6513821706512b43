#!/usr/bin/env bats
# Context parallelism: every scheme trains what one rank trains, combined with every other axis.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
    dt-dataset build --tokenizer byte --pack documents --separator $'\n' --out docs.h5 text.txt
    tiny_models
    jq '.num_key_value_heads = 1' llama.json >one-kv.json
    jq '.model_type = "mistral" | .sliding_window = 7' llama.json >window.json
    jq -n '{model_type: "gemma2", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 3, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, sliding_window: 7,
        query_pre_attn_scalar: 24, attn_logit_softcapping: 0.5, final_logit_softcapping: 3}' >gemma2.json
    jq -n '{model_type: "qwen3", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 3, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: true}' >qwen3.json
}

setup() {
    in_folder
    run_of=(--microbatch 2 --global-batch 4 --lr 1e-3 --warmup 0 --precision fp32 --no-mfu --threads 1 --comm-timeout 120)
    common=(--data d.h5 --seq 24 "${run_of[@]}")
}

# verify MODEL LAYOUTS OPTION...: loss, gradient norm and every gradient of the first steps agree with one
# rank
verify() {
    local model=$1 layouts=$2
    shift 2
    dt-train verify --layouts "dp1,$(every 3 "$layouts")" --model "$model" "${run_of[@]}" --steps 3 "$@" >&2
}

@test "gather, ring and Ulysses agree with one rank: GQA, windows, caps, norms of heads, learned positions" {
    local how run
    for how in gather ring ulysses; do
        verify llama.json cp2,cp4 --data d.h5 --seq 24 --cp-comm $how
    done
    one_of 2 window.json:gather gpt2.json:gather gpt2.json:ring window.json:ring window.json:ulysses gpt2.json:ulysses
    for run in "${some[@]}"; do
        verify "${run%:*}" cp2 --data d.h5 --seq 36 --cp-comm "${run#*:}" # chunks of 9 tokens
    done
    verify gemma2.json cp2 --data d.h5 --seq 28 --cp-comm ring
    verify qwen3.json cp2 --data d.h5 --seq 28 --cp-comm gather
    verify qwen3.json cp2 --data d.h5 --seq 28 --cp-comm ulysses
}

@test "a number of ranks that is no power of two, one key/value head, chunks of one token" {
    verify llama.json cp3 --data d.h5 --seq 30 --cp-comm gather
    verify llama.json cp3 --data d.h5 --seq 6 --cp-comm ring --seed 2
    verify one-kv.json cp2,cp4 --data d.h5 --seq 8 --cp-comm ulysses
    verify one-kv.json cp4 --data d.h5 --seq 8 --cp-comm ring
}

@test "with tp, s1, dp, pp, ZeRO and recomputation" {
    verify llama.json dp2.cp2.z1,tp2.cp2.s1,pp2.cp2 --data d.h5 --seq 24
    verify llama.json dp2.cp2.z3,tp2.cp2 --data d.h5 --seq 24 --cp-comm ring
    verify llama.json cp2.z2,tp2.cp2 --data d.h5 --seq 24 --cp-comm ulysses
    verify llama.json cp2 --data d.h5 --seq 24 --cp-comm gather --recompute full
    verify llama.json cp2 --data d.h5 --seq 24 --cp-comm ring --recompute selective
    verify llama.json cp2.z3 --data d.h5 --seq 24 --cp-comm ulysses --recompute full
}

@test "eight ranks; experts over the ranks that cut sequences" {
    jq '.model_type = "mixtral" | .num_local_experts = 4 | .num_experts_per_tok = 2' llama.json >mixture.json
    verify llama.json dp2.tp2.cp2.s1.z3,tp2.pp2.cp2 --data d.h5 --seq 24
    verify mixture.json cp2,cp2.ep2 --data d.h5 --seq 24
}

@test "latent attention, whose values are narrower or wider than keys; bytes as planned" {
    takes_long
    jq -n '{model_type: "deepseek_v3", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 2,
        num_attention_heads: 4, max_position_embeddings: 64, kv_lora_rank: 16, q_lora_rank: 24, qk_nope_head_dim: 10,
        qk_rope_head_dim: 6, v_head_dim: 12, n_routed_experts: 4, n_shared_experts: 1, num_experts_per_tok: 2,
        moe_intermediate_size: 24, first_k_dense_replace: 1, n_group: 1, topk_group: 1, norm_topk_prob: true,
        routed_scaling_factor: 2.5, rms_norm_eps: 1e-5, rope_theta: 10000}' >latent.json
    jq '.v_head_dim = 20' latent.json >wide.json
    local how
    for how in gather ring ulysses; do
        verify wide.json cp2 --data docs.h5 --seq 24 --cp-comm $how --recompute full
        mpirun -np 2 dt-train --model latent.json "${common[@]}" --layout cp2 --cp-comm $how --steps 2 --metrics latent.jsonl >&2
        dt-memest latent.json --train --layout cp2 --cp-comm $how --precision fp32 --optimizer adamw --seq 24 --microbatch 2 \
            --accumulate 2 --check latent.jsonl
    done
    verify latent.json cp2 --data d.h5 --seq 24 --cp-comm ring
    verify latent.json cp4,tp2.cp2.s1,pp2.cp2,dp2.cp2.z2,cp2.ep2 --data d.h5 --seq 24
}

@test "documents masked from each other, at every cut" {
    local how
    for how in gather ring ulysses; do
        verify llama.json cp2,cp4 --data docs.h5 --seq 24 --cp-comm $how
    done
    verify window.json dp2.cp2.z2 --data docs.h5 --seq 24 --cp-comm ring
    verify gpt2.json pp2.cp2 --data docs.h5 --seq 24 --cp-comm ulysses
}

@test "resume under another layout: cp2, then one rank, equals one rank alone" {
    mpirun -np 2 dt-train --model llama.json "${common[@]}" --layout cp2 --steps 2 --save a >/dev/null
    dt-train --model llama.json "${common[@]}" --layout dp1 --steps 4 --save a --resume a/step-00000002 --metrics a.jsonl >/dev/null
    dt-shard-ckpt reshard a/step-00000002 r --layout dp1
    dt-train --model llama.json "${common[@]}" --steps 4 --save b --resume r --metrics b.jsonl >/dev/null
    dt-shard-ckpt diff a/step-00000004 b/step-00000004
    mpirun -np 4 dt-train --model llama.json "${common[@]}" --layout cp4 --cp-comm ring --steps 4 --save c --resume a/step-00000002 --metrics c.jsonl >/dev/null
    jq -en --slurpfile a a.jsonl --slurpfile c c.jsonl '($a | map(.loss // empty) | last) as $x |
        ($c | map(.loss // empty) | last) as $y | ($x - $y) | fabs < 1e-5'
}

@test "the memory plan is exact, and message sizes follow the formulas" {
    local how
    for how in gather ring ulysses; do
        mpirun -np 2 dt-train --model llama.json "${common[@]}" --layout cp2 --cp-comm $how --steps 1 --metrics $how.jsonl >/dev/null
        dt-memest llama.json --train --precision fp32 --optimizer adamw --seq 24 --microbatch 2 --accumulate 2 --layout cp2 \
            --cp-comm $how --check $how.jsonl
    done
    # 2 sequences of 24 tokens, 2 kv heads of 12, 4 bytes: keys and values are 2 s g d e = 9216 bytes; their
    # f32 gradients are as large
    program() {
        dt-train --print-program --json --model llama.json "${common[@]}" --layout cp2 --cp-comm "$1"
    }
    sum() { # SCHEME LIST: bytes of the messages of layer 1 in one list of nodes
        program "$1" | jq "[.nodes[] | select(.unit == \"1\" and .list == \"$2\" and .message) | .message_bytes] | add"
    }
    [ "$(sum gather forward)" = 9216 ]
    [ "$(sum gather backward)" = 18432 ]
    [ "$(sum ring forward)" = 9216 ]
    [ "$(sum ring backward)" = 18432 ]
    [ "$(sum ulysses forward)" = $((48 / 2 * 12 * (4 + 2 * 2 + 4) * 4)) ] # t d (2a + 2g) e
    [ "$(sum ulysses backward)" = $((48 / 2 * 12 * (4 + 2 * 2 + 4) * 4)) ]
}

@test "four ranks get equal shares of attention, counted in pairs of query and key" {
    pairs() { # MODEL SCHEME: the largest rank's share relative to an equal share, and the sum
        local rank
        for rank in 0 1 2 3; do
            dt-train --print-program --json --rank $rank --model "$1" "${run_of[@]}" --data d.h5 --seq 32 --layout cp4 --cp-comm "$2"
        done | jq -s '[.[] | [.nodes[] | select((.op | IN("attention", "ring_attention")) and .list == "forward") | .flops] | add] |
            {most: (max * 4 / add), all: add}'
    }
    one() {
        dt-train --print-program --json --model "$1" "${run_of[@]}" --data d.h5 --seq 32 |
            jq '[.nodes[] | select(.op == "attention" and .list == "forward") | .flops] | add'
    }
    local how model
    for how in gather ring ulysses; do
        for model in llama.json window.json; do
            pairs $model $how >got
            jq -e --argjson one "$(one $model)" '(.all - $one | fabs) < 1e-9 * $one' got
            # the first tokens see less than a whole window
            [ $model = window.json ] || jq -e '.most <= 1.1' got
        done
    done
}

@test "a sequence longer than the model's positions needs RoPE scaling" {
    local kind
    run -2 --separate-stderr dt-train --model llama.json --data d.h5 --seq 96 --steps 1 "${run_of[@]}"
    [[ "$stderr" == *"sequence length 96 exceeds the 64 positions of 'llama'"*"--rope-scaling yarn:2"* ]]
    one_of 3 yarn ntk dynamic llama3 linear
    for kind in "${some[@]}"; do
        dt-train --model llama.json --data d.h5 --seq 96 --steps 2 "${run_of[@]}" --rope-scaling "$kind:2" --save "s-$kind" --metrics s.jsonl
        # the checkpoint records the scaling; it is trained further on one rank and on two
        dt-train --data d.h5 --seq 96 --steps 3 "${run_of[@]}" --resume "s-$kind/step-00000002" --metrics one.jsonl
        mpirun -np 2 dt-train --model "s-$kind/step-00000002" --data d.h5 --seq 96 --steps 1 "${run_of[@]}" --layout cp2 --metrics cp.jsonl
        dt-train --model "s-$kind/step-00000002" --data d.h5 --seq 96 --steps 1 "${run_of[@]}" --metrics alone.jsonl
        jq -en --slurpfile a cp.jsonl --slurpfile b alone.jsonl '($a | map(.loss // empty) | last) as $x |
            ($b | map(.loss // empty) | last) as $y | ($x - $y) | fabs < 1e-6'
        dt-shard-ckpt convert --to safetensors "s-$kind/step-00000002" "hf-$kind"
        dt-train --model "hf-$kind" --data d.h5 --seq 96 --steps 1 "${run_of[@]}" --metrics hf.jsonl
        jq -en --slurpfile a hf.jsonl --slurpfile b alone.jsonl '($a | map(.loss // empty) | last) as $x |
            ($b | map(.loss // empty) | last) as $y | ($x - $y) | fabs < 1e-6'
    done
    # evaluation at that length: the window's loss is the trainer's (dynamic scaling depends on the length, 95
    # or 96)
    head -c 96 text.txt >one.txt
    dt-dataset build --tokenizer byte --out one.h5 one.txt
    for kind in "${some[@]}"; do
        dt-train --model "s-$kind/step-00000002" --data one.h5 --seq 95 --microbatch 1 --steps 1 --precision fp32 --no-mfu \
            --threads 1 --metrics one.jsonl
        dt-eval ppl --text one.txt --seq 96 --precision fp32 --threads 1 --json "s-$kind" >ppl.json
        jq -en --slurpfile a one.jsonl --slurpfile b ppl.json '($a | map(.loss // empty) | last) - $b[0].nll | fabs < 1e-5'
    done
    run -2 dt-eval ppl --text one.txt --seq 200 --precision fp32 --threads 1 "s-${some[0]}"
    [[ "$output" == *"exceeds the 128 positions of"* ]]
    run -2 dt-train --model s-yarn/step-00000002 --data d.h5 --seq 96 --steps 1 "${run_of[@]}" --rope-scaling linear:2
    [[ "$output" == *"scaled already (yarn:2)"* ]]
    run -2 dt-train --model gpt2.json --data d.h5 --seq 24 --steps 1 "${run_of[@]}" --rope-scaling yarn:2
    [[ "$output" == *"has no rotary positions"* ]]
}

@test "what context parallelism cannot cut is refused by name, before anything is allocated" {
    refused() { # TEXT RANKS OPTION...
        local text=$1 ranks=$2
        shift 2
        run -2 --separate-stderr mpirun -np "$ranks" dt-train "${run_of[@]}" --data d.h5 --steps 1 "$@"
        [[ "$stderr" == *"$text"* ]] || { echo "$stderr" >&2; return 1; }
    }
    refused "cuts a sequence into 4 equal chunks, but 30 tokens are not a multiple" 2 --model llama.json --seq 30 --layout cp2
    [[ "$stderr" == *"the nearest lengths are 28 and 32"* ]]
    refused "cp3 does not divide the 4 heads" 3 --model llama.json --seq 30 --layout cp3 --cp-comm ulysses
}
# SPDX-License-Identifier: Apache-2.0
