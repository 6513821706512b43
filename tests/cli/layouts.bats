#!/usr/bin/env bats
# Every layout trains the same model: layouts against one rank, schedules, ZeRO, recomputation, reproducible
# sums, memory as planned, dying ranks.
#
# By default only a selection of the layouts runs; DT_SLOW=1 runs all.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    cat "$DT_SRC/LICENSE" >text.txt # a text that never changes: the bounds of this file depend on it
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    # odd vocabularies, a number of layers that no pipeline divides evenly, two key/value heads under four
    # heads
    jq -n '{model_type: "gpt2", vocab_size: 263, n_embd: 48, n_layer: 5, n_head: 4, n_positions: 64}' >gpt2.json
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: false}' >llama.json
    jq -n '{model_type: "qwen3", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: true}' >qwen3.json
    jq -n '{model_type: "gemma3_text", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, sliding_window: 7, sliding_window_pattern: 3,
        query_pre_attn_scalar: 24, rope_theta: 10000, rope_local_base_freq: 1000, hidden_activation: "gelu_pytorch_tanh"}' >gemma3.json
    jq -n '{model_type: "gemma2", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, sliding_window: 7,
        query_pre_attn_scalar: 24, attn_logit_softcapping: 0.5, final_logit_softcapping: 3}' >gemma2.json
    jq -n '{model_type: "olmo2", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000}' >olmo2.json
    jq -n '{model_type: "olmo3", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, sliding_window: 7,
        rope_theta: 10000, rope_scaling: {rope_type: "yarn", factor: 4, original_max_position_embeddings: 16}}' >olmo3.json
    jq -n '{model_type: "smollm3", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, no_rope_layer_interval: 2,
        rope_theta: 10000}' >smollm3.json
    jq -n '{model_type: "glm4", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12, max_position_embeddings: 64}' >glm4.json
    jq -n '{model_type: "glm4_moe", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 4,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12, max_position_embeddings: 64, use_qk_norm: true,
        n_routed_experts: 8, num_experts_per_tok: 3, moe_intermediate_size: 24, attention_bias: true}' >glm4_moe.json
    jq -n '{model_type: "minimax_m2", vocab_size: 261, hidden_size: 48, intermediate_size: 24, num_hidden_layers: 4,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12, rotary_dim: 6, max_position_embeddings: 64,
        bos_token_id: null, eos_token_id: null, num_local_experts: 8, num_experts_per_tok: 3}' >minimax_m2.json
    jq -n '{model_type: "gpt_oss", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 5, head_dim: 16,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, sliding_window: 7, num_local_experts: 8,
        num_experts_per_tok: 2, rope_theta: 10000, rope_scaling: {rope_type: "yarn", factor: 4, truncate: false,
        original_max_position_embeddings: 16}}' >gptoss.json
    jq -n '{model_type: "granite", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, embedding_multiplier: 12,
        attention_multiplier: 0.125, residual_multiplier: 0.22, logits_scaling: 3}' >granite.json
    jq -n '{model_type: "phi3", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, original_max_position_embeddings: 16,
        partial_rotary_factor: 0.5, tie_word_embeddings: true,
        rope_scaling: {type: "longrope", short_factor: [1, 1.1, 1.5], long_factor: [1.2, 2, 4]}}' >phi4.json
    # attention and MLP beside each other; one behind the other
    local parallel
    for parallel in true false; do
        jq -n --argjson parallel $parallel '{model_type: "gpt_neox", vocab_size: 261, hidden_size: 48, intermediate_size: 90,
            num_hidden_layers: 5, num_attention_heads: 4, max_position_embeddings: 64, rotary_pct: 0.5,
            use_parallel_residual: $parallel}' >neox-$parallel.json
    done
    jq -n '{model_type: "granitemoeshared", vocab_size: 261, hidden_size: 48, intermediate_size: 24, num_hidden_layers: 4,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, num_local_experts: 8,
        num_experts_per_tok: 3, shared_intermediate_size: 40, embedding_multiplier: 12, attention_multiplier: 0.125,
        residual_multiplier: 0.22, logits_scaling: 3}' >granitemoe.json
    # attention and MLP read one norm; the same with windows in two of three layers, and no positions in the third
    jq -n '{model_type: "cohere", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, logit_scale: 0.25}' >cohere.json
    jq '. + {model_type: "cohere2", sliding_window: 7, sliding_window_pattern: 3}' cohere.json >cohere2.json
    jq -n '{model_type: "starcoder2", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, sliding_window: 7}' >starcoder2.json
    # two of eight experts per token
    jq -n '{model_type: "mixtral", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, num_local_experts: 8,
        num_experts_per_tok: 2, sliding_window: null, rms_norm_eps: 1e-5, rope_theta: 10000}' >mixtral.json
    # latent attention; one dense layer, then layers with three of eight experts and a shared expert
    jq -n '{model_type: "deepseek_v3", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 4,
        num_attention_heads: 4, max_position_embeddings: 64, kv_lora_rank: 16, q_lora_rank: 24, qk_nope_head_dim: 10,
        qk_rope_head_dim: 6, v_head_dim: 12, n_routed_experts: 8, n_shared_experts: 1, num_experts_per_tok: 3,
        moe_intermediate_size: 24, first_k_dense_replace: 1, n_group: 4, topk_group: 2, norm_topk_prob: true,
        routed_scaling_factor: 2.5, rms_norm_eps: 1e-5, rope_theta: 10000}' >deepseek.json
}

setup() {
    in_folder
    common=(--data d.h5 --seq 32 --microbatch 1 --global-batch 8 --lr 1e-3 --warmup 5 --precision fp32 --no-mfu
        --threads 1 --comm-timeout 120)
}

# verify MODEL LAYOUTS OPTION...: the layouts agree with dp1 within the default bounds. Runs 6 steps of the
# first layout, which covers most, and of those marked '+'; with DT_SLOW=1 20 steps of all.
verify() {
    local model=$1 layouts=$2
    shift 2
    slow || layouts=$(tr , '\n' <<<"$layouts" | sed -n '1p; /^+/p' | paste -sd,)
    dt-train verify --layouts "dp1,${layouts//+/}" --model "$model" "${common[@]}" --steps "$(few 6 20)" "$@" >&2
}

metric() { # FILE KEY: value of the last step
    jq -s "map(select(.loss)) | .[-1].$2" "$1"
}

@test "GPT-2: layouts agree with one rank" {
    verify gpt2.json dp4.z3,tp4,pp4,+dp2.tp2.pp2.s1.z1,tp2.s1,dp2.pp2.z2
}

@test "Llama with fewer key/value heads than ranks: layouts agree with one rank" {
    verify llama.json tp4.s1,dp2.z1,tp4.z3,+pp2.v2,dp2.tp2.z3,dp2.tp2.pp2.z2
}

@test "OLMo 2 and Gemma 2: layouts agree with one rank, and the memory plan is exact" {
    verify gemma2.json tp2.pp2.s1,dp2.tp2.pp2.z2,tp4.s1
    # norms over all of q and all of k, whose heads tp cuts; at a rate of 1e-3 gradients jump and amplify any
    # rounding
    verify olmo2.json tp4.s1,dp2.z3,+pp2.v2,dp2.pp2.z2,dp2.tp2.z3,tp2 --lr 3e-4
    verify olmo2.json pp2,tp2 --pipeline zb-h1 --recompute selective --lr 3e-4
    verify olmo2.json tp2.s1 --recompute full --lr 3e-4
    local model
    for model in gemma2.json olmo2.json; do
        dt-train --model $model "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
        dt-memest $model --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
    done
}

@test "OLMo 3 and SmolLM3: layouts agree with one rank, and the memory plan is exact" {
    local model
    for model in olmo3.json smollm3.json; do
        verify $model tp2.pp2.s1,dp2.z3,pp2.cp2,tp2 --lr 3e-4
        verify $model pp2,tp2 --pipeline zb-h1 --recompute selective --lr 3e-4
        dt-train --model $model "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
        dt-memest $model --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
    done
}

@test "GLM-4, GLM-4.5, MiniMax-M2: layouts agree with one rank, and the memory plan is exact" {
    local model
    verify glm4.json tp2.pp2.s1,dp2.z3,pp2.cp2
    verify glm4_moe.json tp2.pp2,ep2.tp2.z1,pp2.cp2
    verify minimax_m2.json tp2.ep2,pp2.cp2
    for model in glm4.json glm4_moe.json minimax_m2.json; do
        dt-train --model $model "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
        dt-memest $model --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
    done
}

@test "Granite: layouts agree with one rank, and the memory plan is exact" {
    local scheme
    verify granite.json tp2.pp2.s1,dp2.z3,tp4,dp2.tp2.pp2.z2,pp2.v2
    for scheme in gather ring ulysses; do
        verify granite.json cp2,tp2.cp2 --cp-comm $scheme
    done
    verify granite.json pp2,tp2 --pipeline zb-h1 --recompute selective
    verify granite.json tp2.s1 --recompute full
    dt-train --model granite.json "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
    dt-memest granite.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
}

@test "GraniteMoE: layouts agree with one rank, and the memory plan is exact" {
    verify granitemoe.json tp2.pp2,ep2.tp2.z1,pp2.cp2,dp2.ep2.z3
    dt-train --model granitemoe.json "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
    dt-memest granitemoe.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
}

@test "Phi-4-mini: layouts agree with one rank, and the memory plan is exact" {
    verify phi4.json tp2.pp2.s1,dp2.z3,tp4,pp2.cp2
    verify phi4.json pp2,tp2 --pipeline zb-h1 --recompute selective
    dt-train --model phi4.json "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
    dt-memest phi4.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
}

@test "GPT-NeoX: layouts agree with one rank, and the memory plan is exact" {
    local scheme model
    verify neox-true.json tp2.pp2.s1,+tp4,dp2.z3,dp2.tp2.pp2.z2,pp2.v2,tp2
    verify neox-false.json tp2.pp2.s1,dp2.z3,pp2.cp2
    for scheme in gather ring ulysses; do
        verify neox-true.json cp2,tp2.cp2 --cp-comm $scheme
    done
    verify neox-true.json pp2,tp2 --pipeline zb-h1 --recompute selective
    verify neox-true.json tp2.s1 --recompute full
    for model in neox-true.json neox-false.json; do
        dt-train --model $model "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
        dt-memest $model --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
    done
}

@test "Cohere: layouts agree with one rank, and the memory plan is exact" {
    local scheme model
    verify cohere.json tp2.pp2.s1,+tp4,dp2.z3,dp2.tp2.pp2.z2,pp2.v2,tp2
    verify cohere2.json tp2.pp2.s1,dp2.z3,pp2.cp2
    for scheme in gather ring ulysses; do
        verify cohere.json cp2,tp2.cp2 --cp-comm $scheme
    done
    verify cohere.json pp2,tp2 --pipeline zb-h1 --recompute selective
    verify cohere.json tp2.s1 --recompute full
    for model in cohere.json cohere2.json; do
        dt-train --model $model "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
        dt-memest $model --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
    done
}

@test "StarCoder2: layouts agree with one rank, and the memory plan is exact" {
    verify starcoder2.json tp2.pp2.s1,dp2.z3,tp4,pp2.cp2
    verify starcoder2.json pp2,tp2 --pipeline zb-h1 --recompute selective
    dt-train --model starcoder2.json "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
    dt-memest starcoder2.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
}

@test "gpt-oss: layouts agree with one rank, and the memory plan is exact" {
    local scheme
    verify gptoss.json tp2.pp2.s1,dp2.ep2.z3,tp2.ep2.dp2,dp2.pp2.z2,tp2 --lr 3e-4
    for scheme in gather ring ulysses; do
        verify gptoss.json cp2,tp2.cp2 --cp-comm $scheme --lr 3e-4
    done
    verify gptoss.json pp2,tp2 --pipeline zb-h1 --recompute selective --lr 3e-4
    dt-train --model gptoss.json "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
    dt-memest gptoss.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
}

@test "Qwen3 and Gemma 3: layouts agree with one rank, and the memory plan is exact" {
    local model
    for model in qwen3.json gemma3.json; do
        verify $model tp2.pp2.s1,dp2.tp2.pp2.z2,dp2.z3,tp4.s1,tp2
        verify $model pp2,tp2 --pipeline zb-h1 --recompute selective
        dt-train --model $model "${common[@]}" --steps 2 --recompute full --metrics m.jsonl >/dev/null
        dt-memest $model --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute full --check m.jsonl
    done
}

@test "a mixture of experts: layouts agree with one rank, both router losses counted, memory plan exact" {
    verify mixtral.json dp2.tp2.z3,dp2.tp2.pp2.s1.z2,dp2.z1,tp4.s1,tp2,pp2.v2 --router-z-loss 0.01 --balance-loss 0.1
    verify mixtral.json pp2,tp2 --pipeline zb-h1 --recompute selective
    verify mixtral.json tp2.s1,dp2.z3 --recompute full --balance-over microbatch
    local over
    for over in none selective full every:2; do
        dt-train --model mixtral.json "${common[@]}" --steps 2 --recompute $over --metrics m.jsonl >/dev/null
        dt-memest mixtral.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute $over --check m.jsonl
    done
    # every choice is counted once, also under recomputation: tokens x choices per layer
    [ "$(metric m.jsonl 'expert_counts | map(add) | unique | tostring')" = '"[512]"' ]
    run ! mpirun -np 2 dt-train --model mixtral.json "${common[@]}" --layout dp2 --capacity-factor -1 --steps 1
    run ! mpirun -np 3 dt-train --model mixtral.json "${common[@]}" --layout tp3 --steps 1
    run ! mpirun -np 2 dt-train --model llama.json "${common[@]}" --layout dp2.ep2 --steps 1
    [[ "$output" == *"ep2, but 'llama' has no experts"* ]]
}

@test "latent attention: layouts agree with one rank, and the memory plan is exact" {
    verify deepseek.json tp2.pp2.s1,dp2.tp2.pp2.s1.z2,dp2.z3,tp4.s1,+dp2.ep2,pp2,tp2
    verify deepseek.json tp2.s1,pp2 --pipeline zb-h1 --recompute selective
    local over
    for over in none full; do
        dt-train --model deepseek.json "${common[@]}" --steps 2 --recompute $over --metrics m.jsonl >/dev/null
        dt-memest deepseek.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --recompute $over --check m.jsonl
    done
}

@test "a module for a further token: layouts agree with one rank, and the memory plan is exact" {
    jq '. + {tie_word_embeddings: true}' glm4_moe.json >tied.json
    verify deepseek.json tp2.pp2.s1,dp2.pp2.ep2.z2,+dp2.ep2.z3,dp2.tp2.pp2.s1.z2,dp4.ep2.z3,tp4.s1,pp2.v2 --mtp-layers 1
    # at a rate of 1e-3 the choice of an expert can depend on a rounding
    verify tied.json dp2.pp2.z2,+pp2.cp2,dp2.z3,pp2.tp2.s1 --mtp-layers 1 --lr 3e-4
    verify deepseek.json tp2,pp2 --pipeline zb-h1 --recompute selective --mtp-layers 1
    verify tied.json cp2,tp2.cp2.s1 --cp-comm ring --recompute full --mtp-layers 1 --lr 3e-4
    local over on
    for over in none selective full; do
        dt-train --model deepseek.json "${common[@]}" --steps 2 --mtp-layers 1 --recompute $over --metrics m.jsonl >/dev/null
        dt-memest deepseek.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 \
            --mtp-layers 1 --recompute $over --check m.jsonl
    done
    while read -r over on; do
        mpirun -np 2 dt-train --model tied.json "${common[@]}" --layout "$on" --steps 2 --mtp-layers 1 --metrics m.jsonl >/dev/null
        dt-memest tied.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate "$over" --layout "$on" \
            --mtp-layers 1 --check m.jsonl
    done <<<$'8 pp2\n4 dp2.ep2.z3\n8 cp2'
    # the same sums whatever the layout
    dt-train --model tied.json "${common[@]}" --steps 3 --mtp-layers 1 --reproducible --metrics one.jsonl >/dev/null
    mpirun -np 2 dt-train --model tied.json "${common[@]}" --layout pp2 --steps 3 --mtp-layers 1 --reproducible --metrics two.jsonl >/dev/null
    for on in loss mtp_loss grad_norm; do
        [ "$(metric one.jsonl $on)" = "$(metric two.jsonl $on)" ]
    done
}

@test "experts over ep: layouts agree with one rank, memory as planned, checkpoints reshard" {
    verify mixtral.json dp2.tp2.ep2.s1,dp2.ep2,dp4.ep4,cp2.ep2,+dp4.ep2,dp2.pp2.ep2 --router-z-loss 0.01 --balance-loss 0.1
    verify mixtral.json dp2.pp2.ep2,dp2.tp2.ep2 --pipeline zb-h1 --recompute selective
    ! slow || verify mixtral.json dp2.ep2,dp4.ep4 --recompute full --balance-over microbatch
    # dp1 divides the batch differently, so its balance loss counts choices over other parts; --balance-over
    # batch does not depend on that
    dt-train verify --layouts dp2,dp2.ep2 --balance-over batch --model mixtral.json "${common[@]}" --steps "$(few 6 20)" >&2
    verify mixtral.json dp2.ep2 --reproducible
    mpirun -np 2 dt-train --model mixtral.json "${common[@]}" --layout dp2.ep2 --steps 3 --metrics m.jsonl --save ep >/dev/null
    dt-memest mixtral.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 4 --layout dp2.ep2 --check m.jsonl
    local layout still=(--lr 0 --min-lr 0 --weight-decay 0 --accept-change lr --accept-change min-lr --accept-change weight-decay)
    for layout in $(few dp4.ep4 "dp4.ep4 dp1"); do
        rm -rf other
        mpirun -np "${layout:2:1}" dt-train --model mixtral.json "${common[@]}" "${still[@]}" --layout "$layout" --steps 4 \
            --resume ep/step-00000003 --save other >/dev/null
        dt-shard-ckpt diff ep/step-00000003 other/step-00000004 >diff.txt || true
        run ! grep -q 'model/' diff.txt
    done
    run ! mpirun -np 3 dt-train --model mixtral.json "${common[@]}" --layout dp3.ep3 --global-batch 6 --steps 1
    [[ "$output" == *"ep3 does not divide the 8 experts"* ]]
}

@test "overlapping the experts' all-to-all with the shared expert changes no bit; memory as planned" {
    takes_long
    both() { # RANKS LAYOUT MODEL OPTION...: trains overlapped, and one after the other
        local ranks=$1 layout=$2 model=$3 how
        shift 3
        for how in beside turn; do
            [ $how = beside ] || set -- "$@" --no-expert-overlap
            mpirun -np "$ranks" dt-train --model "$model" "${common[@]}" --layout "$layout" --steps 4 --metrics $how.jsonl \
                "$@" >/dev/null
            jq -es 'map(select(.loss)) | length == 4 and all(.expert_exchange_s >= 0 and
                .expert_exchange_s <= .comm_tensor_s)' $how.jsonl
        done
        [ "$(jq -c 'select(.loss) | [.loss, .grad_norm]' beside.jsonl)" = "$(jq -c 'select(.loss) | [.loss, .grad_norm]' turn.jsonl)" ]
    }
    local run how also=()
    one_of 3 "2 dp2.ep2 deepseek.json --recompute full --find-nan" "2 dp2.ep2 deepseek.json" \
        "4 dp2.tp2.ep2.s1 deepseek.json --recompute selective" "4 dp2.pp2.ep2.z2 deepseek.json" \
        "4 dp2.pp2.ep2 mixtral.json --pipeline zb-h1" "4 dp4.ep4.z3 mixtral.json"
    for run in "${some[@]}"; do
        # shellcheck disable=SC2086 # words
        both $run
    done
    for how in beside turn; do
        [ $how = beside ] || also=(--no-expert-overlap)
        mpirun -np 2 dt-train --model deepseek.json "${common[@]}" --layout dp2.ep2 --steps 1 --metrics m.jsonl "${also[@]}" >/dev/null
        dt-memest deepseek.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 4 --layout dp2.ep2 \
            "${also[@]}" --check m.jsonl
    done
    dt-train --print-program --json --model deepseek.json "${common[@]}" --layout dp2.ep2 >program.json
    # the shared expert is computed between the start of an exchange and its wait
    jq -e '[.nodes[] | select(.list == "forward" and .unit == "1") | .op + " " + .name] |
        index("exchange expert_up") as $a | index("linear shared_up") as $b | index("exchange_wait expert_up") as $c |
        index("exchange combine") as $d | index("linear shared_down") as $e | index("exchange_wait combine") as $f |
        $a < $b and $b < $c and $d < $e and $e < $f' program.json
}

@test "overlapping the gathers and scatters of s1 with products changes no bit; memory as planned" {
    takes_long
    # restricts oneDNN to products whose results do not depend on the number of rows
    export ONEDNN_MAX_CPU_ISA=SSE41
    both() { # RANKS LAYOUT MODEL OPTION...: trains overlapped, and one after the other
        local ranks=$1 layout=$2 model=$3 how
        shift 3
        for how in on off; do
            mpirun -np "$ranks" dt-train --model "$model" "${common[@]}" --layout "$layout" --steps 3 --metrics $how.jsonl \
                --stream-overlap $how "$@" >/dev/null
            jq -es 'map(select(.loss)) | length == 3 and all(.stream_s > 0 and .stream_s <= .comm_tensor_s)' $how.jsonl
        done
        [ "$(jq -c 'select(.loss) | [.loss, .grad_norm]' on.jsonl)" = "$(jq -c 'select(.loss) | [.loss, .grad_norm]' off.jsonl)" ]
    }
    local run how
    one_of 3 "2 tp2.s1 gpt2.json --recompute full --precision bf16" "2 tp2.s1 llama.json --find-nan" \
        "4 dp2.tp2.s1 gpt2.json" "4 tp2.pp2.s1 llama.json --pipeline zb-h1" \
        "4 dp2.tp2.ep2.s1 deepseek.json" "4 tp4.s1 llama.json --recompute selective"
    for run in "${some[@]}"; do
        # shellcheck disable=SC2086 # words
        both $run
    done
    unset ONEDNN_MAX_CPU_ISA
    for how in on off; do
        mpirun -np 2 dt-train --model llama.json "${common[@]}" --layout tp2.s1 --steps 1 --metrics m.jsonl --stream-overlap $how >/dev/null
        dt-memest llama.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --layout tp2.s1 \
            --stream-overlap $how --check m.jsonl
        verify llama.json tp2.s1,tp4.s1 --stream-overlap $how
    done
    dt-train --print-program --json --model llama.json "${common[@]}" --layout tp2.s1 >program.json
    jq -e '[.nodes[] | select(.unit == "1" and (.op == "enter" or .op == "leave"))] | length == 10 and all(.beside)' program.json
    run --separate-stderr dt-train --model llama.json "${common[@]}" --layout tp2.s1 --stream-overlap sometimes
    [ "$status" -eq 2 ]
    [[ "$stderr" == *stream-overlap* ]]
}

@test "message sizes of experts follow the formula: a row per choice, out and back, forward and backward" {
    local model layers used
    for model in mixtral.json deepseek.json; do
        [ $model = mixtral.json ] && layers=5 used=2 || layers=3 used=3
        # 32 tokens of 48 elements of 4 bytes; (ep - 1) / ep of them leave the rank
        dt-train --print-program --json --model $model "${common[@]}" --layout dp2.ep2 >program.json
        jq -e --argjson each $((32 * used * 48 * 4)) --argjson layers $layers '[.nodes[] | select(.message == "all-to-all")] |
            (map(.message_bytes) | unique) == [$each] and
            (map(select(.list == "forward")) | length) == 2 * $layers and length == 4 * $layers' program.json
    done
}

@test "experts over ep with ZeRO: one rank's numbers, memory as planned, checkpoints reshard" {
    takes_long
    verify mixtral.json dp4.ep2.z3,dp2.ep2.z1,dp2.tp2.ep2.s1.z3,+cp2.ep2.z1,dp4.ep2.z2,dp4.ep4.z3 --router-z-loss 0.01 --balance-loss 0.1
    verify deepseek.json dp2.pp2.ep2.z2,dp4.ep2.z3
    mpirun -np 4 dt-train --model mixtral.json "${common[@]}" --layout dp4.ep2.z3 --steps 3 --metrics m.jsonl --save shared >/dev/null
    dt-memest mixtral.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 2 --layout dp4.ep2.z3 --check m.jsonl
    local still=(--lr 0 --min-lr 0 --weight-decay 0 --accept-change lr --accept-change min-lr --accept-change weight-decay)
    for layout in $(few dp2.ep2.z1 "dp2.ep2.z1 dp1"); do
        rm -rf other
        mpirun -np "${layout:2:1}" dt-train --model mixtral.json "${common[@]}" "${still[@]}" --layout "$layout" --steps 4 \
            --resume shared/step-00000003 --save other >/dev/null
        dt-shard-ckpt diff shared/step-00000003 other/step-00000004 >diff.txt || true
        run ! grep -q 'model/' diff.txt
    done
    # resharded without training: every expert is written by the ranks that would hold it
    rm -rf cut back
    dt-shard-ckpt reshard --layout dp2.cp2.tp2.ep4.z1 shared cut
    dt-shard-ckpt verify cut
    dt-shard-ckpt reshard --layout dp2.pp2.ep2 cut back
    dt-shard-ckpt diff --tolerance 0 shared back
}

@test "upcycle: a dense model becomes a mixture of experts with the same first forward pass" {
    local loss other
    dt-train --model qwen3.json "${common[@]}" --steps 4 --save dense >/dev/null
    dt-shard-ckpt upcycle --experts 4 --top-k 2 dense up
    dt-shard-ckpt verify up
    loss=$(dt-train --model dense "${common[@]}" --lr 0 --min-lr 0 --steps 1 --metrics - 2>/dev/null | jq .loss)
    other=$(dt-train --model up "${common[@]}" --lr 0 --min-lr 0 --steps 1 --metrics - 2>/dev/null | jq .loss)
    jq -en --argjson a "$loss" --argjson b "$other" '($a - $b | fabs) < 1e-6 * $a and $a < 5.6'
    # written with transformers' names, and read back
    dt-shard-ckpt upcycle --experts 4 --top-k 2 --to safetensors dense up-hf
    other=$(dt-train --model up-hf "${common[@]}" --lr 0 --min-lr 0 --steps 1 --metrics - 2>/dev/null | jq .loss)
    jq -en --argjson a "$loss" --argjson b "$other" '($a - $b | fabs) < 1e-6 * $a'
    run ! dt-shard-ckpt upcycle --experts 2 --top-k 3 dense no
    [[ "$output" == *"--top-k 3 is more than the 2 experts"* ]]
    run -2 dt-shard-ckpt upcycle dense no
    run ! dt-shard-ckpt upcycle --experts 4 --top-k 2 up no
    [[ "$output" == *"only llama, mistral and qwen3"* ]]
    [ ! -e no ]
}

@test "an expert drops tokens beyond its capacity, and its memory is less" {
    local all few
    dt-train --model mixtral.json "${common[@]}" --steps 2 --capacity-factor 1 --metrics m.jsonl >/dev/null
    jq -es 'map(select(.loss)) | all(.expert_dropped > 0.01 and .expert_dropped < 0.6)' m.jsonl
    dt-memest mixtral.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate 8 --capacity-factor 1 --check m.jsonl
    dt-train --model mixtral.json "${common[@]}" --steps 2 --capacity-factor 8 --metrics n.jsonl >/dev/null
    dt-train --model mixtral.json "${common[@]}" --steps 2 --metrics o.jsonl >/dev/null
    # a capacity above all tokens drops none
    [ "$(metric n.jsonl expert_dropped)" = "$(metric o.jsonl expert_dropped)" ]
    [ "$(metric n.jsonl loss)" = "$(metric o.jsonl loss)" ]
    all=$(dt-memest mixtral.json --train --seq 32 --layout dp2.ep2 --json | jq .peak_bytes)
    few=$(dt-memest mixtral.json --train --seq 32 --layout dp2.ep2 --capacity-factor 1 --json | jq .peak_bytes)
    [ "$few" -lt "$all" ]
}

@test "every composition of up to eight ranks agrees with one rank" {
    slow || skip "takes minutes: DT_SLOW=1"
    local all='' dp tp pp z s n=0
    for dp in 1 2 4 8; do for tp in 1 2 4; do for pp in 1 2 4; do
        [ $((dp * tp * pp)) -le 8 ] || continue
        for z in 0 1 2 3; do
            [ $z -eq 0 ] || [ $dp -gt 1 ] || continue
            [ $z -lt 3 ] || [ $pp -eq 1 ] || continue
            for s in 0 1; do
                [ $s -eq 0 ] || [ $tp -gt 1 ] || continue
                [ $((dp * tp * pp)) -gt 1 ] || continue
                all=$all,dp$dp.tp$tp.pp$pp.z$z.s$s
                n=$((n + 1))
            done
        done
    done; done; done
    all=${all//.s0/}
    echo "$n layouts" >&2
    [ $n -ge 24 ]
    verify gpt2.json "${all#,}"
    verify llama.json "${all#,}"
}

# Compositions with cp or ep; the cp schemes take turns.
@test "every composition with cp or ep of up to eight ranks agrees with one rank" {
    slow || skip "takes minutes: DT_SLOW=1"
    local lists=('' '' '') how=(gather ring ulysses) dp tp pp cp ep z s k n=0
    for dp in 1 2 4 8; do for tp in 1 2 4; do for pp in 1 2; do for cp in 1 2 4; do
        [ $((dp * tp * pp * cp)) -le 8 ] || continue
        for ep in 1 2 4 8; do
            [ $((cp * ep)) -gt 1 ] && [ $((dp * cp % ep)) -eq 0 ] || continue
            for z in 0 1 2 3; do
                [ $z -lt 3 ] || [ $pp -eq 1 ] || continue
                s=
                [ $tp -eq 1 ] || [ $((n % 2)) -eq 0 ] || s=.s1
                k=$((n % 3))
                [ $((tp * cp)) -le 4 ] || k=$((n % 2)) # Ulysses divides the 4 heads
                lists[k]+=,dp$dp.tp$tp.pp$pp.cp$cp.ep$ep.z$z$s
                n=$((n + 1))
            done
        done
    done; done; done; done
    echo "$n layouts" >&2
    [ $n -ge 100 ]
    for s in 0 1 2; do
        verify mixtral.json "${lists[s]#,}" --steps 3 --cp-comm ${how[s]} --router-z-loss 0.01 --balance-loss 0.1
    done
}

@test "optimizers of whole tensors: layouts agree with one rank, also with a tied embedding on two stages" {
    local steps o
    steps=(--steps "$(few 4 8)") # a mistake shows after one step
    verify qwen3.json tp2.pp2,dp2.pp2.z1,tp4.s1,tp2,dp2.z2 "${steps[@]}" --optimizer muon
    verify qwen3.json tp2.pp2,dp2.pp2.z1,tp4.s1,tp2,+dp2.z2 "${steps[@]}" --optimizer adafactor
    verify qwen3.json dp2.pp2.z1,tp2.pp2,tp4.s1,tp2,dp2.z2 "${steps[@]}" --optimizer lamb
    verify qwen3.json tp2,tp2.pp2,dp2.pp2.z1,tp4.s1,dp2.z2 "${steps[@]}" --optimizer lars
    # a mixture of which no expert is trained
    verify mixtral.json dp2.ep2.z2,tp2.ep2,pp2.ep2.z1,tp2.s1 "${steps[@]}" --optimizer muon --lora 4
    verify mixtral.json tp2.ep2,dp2.ep2.z2,pp2.ep2.z1,ep2.z3 "${steps[@]}" --optimizer adafactor --freeze '.*experts.*'
    for o in "muon" "adafactor --lora 4 --lora-modules-to-save .*experts.*"; do
        # shellcheck disable=SC2086 # words
        run -2 dt-train --model mixtral.json "${common[@]}" --steps 2 --optimizer $o
        [[ $output == *"does not train experts such as 'layers.0.mlp.experts.gate.weight'"* ]]
    done
}

@test "--lora: router biases stay those of the base, or it is refused" {
    dt-train --model deepseek.json "${common[@]}" --steps 3 --router-bias-rate 0.05 --save base >/dev/null
    run -2 dt-train --model base "${common[@]}" --steps 1 --lora 4
    [[ $output == *"--router-bias-rate changes the router biases of 'deepseek', which adapters do not store"* ]]
    [[ $output == *"with --router-bias-rate 0 they stay those of the base"* ]]
    lora=(--lora 4 --lr 1e-2 --router-bias-rate 0)
    verify base tp2.ep2,dp2.ep2.z2 "${lora[@]}" --steps 6 # after more of this rate, gradients amplify any rounding
    dt-train --model base "${common[@]}" "${lora[@]}" --steps 3 --save tuned --eval-data d.h5 --eval-tokens 640 \
        --metrics tuned.jsonl >/dev/null
    dt-shard-ckpt lora-merge --to dt base tuned merged
    dt-train --model merged "${common[@]}" --steps 1 --lr 0 --router-bias-rate 0 --eval-data d.h5 --eval-tokens 640 \
        --metrics merged.jsonl >/dev/null
    jq -es '(map(.eval_loss // empty) | length == 2) and (map(.eval_loss // empty) | .[0] - .[1] | fabs < 1e-5)' \
        <(jq -s 'map(select(.eval_loss))[-1]' tuned.jsonl) <(jq -s 'map(select(.eval_loss))[-1]' merged.jsonl)
}

@test "bf16 on other layouts: losses within 1%" {
    dt-train verify --layouts "dp1,$(few tp2.pp2.s1,dp2.z2 tp2.pp2.s1,dp2.z2,tp2.s1,dp2.tp2.pp2)" --model llama.json "${common[@]}" --steps "$(few 6 20)" \
        --precision bf16 --tensor-bound 1 >&2
}

@test "every schedule trains the same model, with recomputation or without" {
    local name
    for name in gpipe 1f1b interleaved:2; do
        verify llama.json pp2,dp2.pp2 --pipeline $name
    done
    verify llama.json dp2.pp2,pp2 --pipeline zb-h1
    verify gpt2.json pp2.tp2.s1 --pipeline zb-h1 --recompute selective
    verify gpt2.json dp2.z3,pp2.tp2.s1 --recompute every:2
}

@test "auto:SIZE recomputes what is necessary to fit, prints it, and changes no number" {
    local none full want
    one=("${common[@]}" --model gpt2.json --seq 64 --microbatch 4 --global-batch 4 --steps 4 --layout tp2.s1)
    mpirun -np 2 dt-train "${one[@]}" >none.jsonl
    mpirun -np 2 dt-train "${one[@]}" --recompute full >full.jsonl
    none=$(metric none.jsonl peak_bytes)
    full=$(metric full.jsonl peak_bytes)
    [ "$full" -lt "$none" ]
    for want in $(few "" "$none") $(((none + full) / 2)) $full; do
        mpirun -np 2 dt-train "${one[@]}" --recompute auto:${want}B >auto.jsonl 2>err
        grep -q -e "--recompute auto recomputes: " err
        [ "$(metric auto.jsonl peak_bytes)" -le "$want" ]
        diff <(jq -c '[.loss, .grad_norm]' none.jsonl) <(jq -c '[.loss, .grad_norm]' auto.jsonl)
        dt-memest gpt2.json --train --precision fp32 --optimizer adamw --seq 64 --microbatch 4 --layout tp2.s1 \
            --recompute auto:${want}B --check auto.jsonl
    done
    run -3 mpirun -np 2 dt-train "${one[@]}" --recompute auto:100KiB
    [[ $output == *"at least"* ]]
}

@test "a schedule from a file: a printed one runs, an incomplete or deadlocked one is refused" {
    takes_long
    dt-train --schedule-table --layout pp2 --microbatch 1 --global-batch 4 --pipeline 1f1b >table 2>idle
    [ "$(cat table)" = "F0 F1 B0 F2 B1 F3 B2 B3
F0 B0 F1 B1 F2 B2 F3 B3" ]
    grep -q "idle 20.0%" idle # (2 - 1) / (4 + 2 - 1)
    four=("${common[@]}" --model gpt2.json --global-batch 4 --steps 5 --layout pp2)
    mpirun -np 2 dt-train "${four[@]}" >named.jsonl
    mpirun -np 2 dt-train "${four[@]}" --schedule-file table >read.jsonl
    diff <(jq -c '[.loss, .grad_norm]' named.jsonl) <(jq -c '[.loss, .grad_norm]' read.jsonl)
    printf 'F3 F2 F1 F0 B3 B2 B1 B0\nF3 F2 B3 B2 F1 F0 B1 B0\n' >backwards
    mpirun -np 2 dt-train "${four[@]}" --schedule-file backwards >backwards.jsonl
    jq -en --slurpfile a named.jsonl --slurpfile b backwards.jsonl '[range(5) | ($a[.].loss - $b[.].loss) | fabs] | max < 1e-5'
    printf 'F0 B0 F1 B1\nF1 B1 F0 B0\n' >dead
    run ! mpirun -np 2 dt-train --model gpt2.json "${common[@]}" --global-batch 2 --layout pp2 --schedule-file dead
    [[ $output == *"deadlock"* ]]
    printf 'F0 B0 F1\nF1 B1 F0 B0\n' >short
    run ! mpirun -np 2 dt-train --model gpt2.json "${common[@]}" --global-batch 2 --layout pp2 --schedule-file short
    [[ $output == *"3 actions, not 4"* ]]
}

@test "--reproducible: dp, pp and accumulation change no bit of losses, norms and parameters" {
    local model layout n
    for model in gpt2.json llama.json; do
        rm -rf repro && mkdir repro
        # two of these layouts at most, or all of them
        case $model in gpt2.json) one_of 4 4:dp2.pp2 2:dp2 4:dp4 2:pp2 ;; *) one_of 2 4:dp4 4:dp2.pp2 2:pp2 2:dp2 ;; esac
        for layout in 1:dp1 "${some[@]}"; do
            n=${layout%:*} layout=${layout#*:}
            mpirun -np "$n" dt-train --model $model "${common[@]}" --steps 6 --reproducible --layout $layout \
                --save repro/$layout >repro/$layout.jsonl
        done
        dt-train --model $model "${common[@]}" --microbatch 4 --steps 6 --reproducible --save repro/acc2 >repro/acc2.jsonl
        for layout in "${some[@]#*:}" acc2; do
            diff <(jq -c '[.loss, .grad_norm]' repro/dp1.jsonl) <(jq -c '[.loss, .grad_norm]' repro/$layout.jsonl)
            dt-shard-ckpt diff --tolerance 0 repro/dp1 repro/$layout
        done
    done
    # the reproducible sum differs from the plain one
    dt-train --model gpt2.json "${common[@]}" --steps 6 >plain.jsonl
    run ! dt-train --model gpt2.json "${common[@]}" --reproducible --layout dp1.z1 --steps 1
}

@test "bf16 gradient messages are close, a power-of-2 loss scale is exact" {
    takes_long
    dt-train verify --layouts "dp1,$(few dp2.z1,dp2.z3 dp2,dp2.z1,dp2.z2,dp2.z3)" --model gpt2.json "${common[@]}" --steps 10 \
        --grad-comm bf16 --loss-bound 1e-2 --tensor-bound 5e-2 >&2
    dt-train --model gpt2.json "${common[@]}" --steps 5 >one.jsonl
    dt-train --model gpt2.json "${common[@]}" --steps 5 --loss-scale 4096 >scaled.jsonl
    diff <(jq -c '[.loss, .grad_norm]' one.jsonl) <(jq -c '[.loss, .grad_norm]' scaled.jsonl)
    dt-train --model gpt2.json "${common[@]}" --steps 5 --loss-scale dynamic >dynamic.jsonl
    diff <(jq -c '[.loss, .grad_norm]' one.jsonl) <(jq -c '[.loss, .grad_norm]' dynamic.jsonl)
    jq -es 'map(.loss_scale == 65536) | all' dynamic.jsonl
    run ! dt-train --model gpt2.json "${common[@]}" --loss-scale nonsense
}

@test "fp16 follows fp32; an overflow halves the scale and skips the update, on every rank" {
    local layout n
    dt-train --model llama.json "${common[@]}" --steps 20 >fp32.jsonl
    one_of 3 4:dp2.tp2.s1.z2 1:dp1 4:dp2.pp2
    for layout in "${some[@]}"; do
        n=${layout%:*}
        mpirun -np "$n" dt-train --model llama.json "${common[@]}" --steps 20 --precision fp16 --layout "${layout#*:}" >fp16.jsonl
        jq -en --slurpfile a fp32.jsonl --slurpfile b fp16.jsonl '[range(20) | ($a[.].loss - $b[.].loss) / $a[.].loss | fabs] | max < 0.01'
        mpirun -np "$n" dt-train --model llama.json "${common[@]}" --steps 20 --precision fp16 --layout "${layout#*:}" \
            --loss-scale dynamic:1e10 >over.jsonl
        jq -c '[.loss_scale, .skipped, .grad_norm]' over.jsonl >&2
        jq -es '(map(select(.skipped)) | length > 2) and .[0].loss_scale == 1e10 and .[0].grad_norm == null and
            .[1].loss_scale == 5e9 and .[-1].skipped == null and .[-1].loss < .[0].loss' over.jsonl
    done
    # a checkpoint keeps the scale and its age
    rm -rf scaled
    dt-train --model llama.json "${common[@]}" --steps 8 --schedule constant --precision fp16 --loss-scale dynamic:1e10 >whole.jsonl
    dt-train --model llama.json "${common[@]}" --steps 5 --schedule constant --precision fp16 --loss-scale dynamic:1e10 --save scaled >/dev/null
    dt-train --model llama.json "${common[@]}" --steps 8 --schedule constant --precision fp16 --loss-scale dynamic:1e10 --save scaled \
        --resume auto >rest.jsonl
    diff <(tail -n 3 whole.jsonl | jq -c '[.loss, .loss_scale, .skipped]') <(jq -c '[.loss, .loss_scale, .skipped]' rest.jsonl)
}

@test "a checkpoint of any layout resumes under any other" {
    local from to pair
    dt-train --model llama.json "${common[@]}" --steps 8 --schedule constant >whole.jsonl
    one_of 2 2:tp2.s1/4:dp2.pp2.z1 4:dp2.tp2.z2/1:dp1 4:dp4.z3/2:pp2.v2
    for pair in "${some[@]}"; do
        from=${pair%/*} to=${pair#*/}
        rm -rf move
        mpirun -np "${from%:*}" dt-train --model llama.json "${common[@]}" --steps 4 --schedule constant \
            --layout "${from#*:}" --save move >a.jsonl
        mpirun -np "${to%:*}" dt-train --model llama.json "${common[@]}" --steps 8 --schedule constant \
            --layout "${to#*:}" --save move --resume auto >b.jsonl
        jq -en --slurpfile w whole.jsonl --slurpfile b b.jsonl \
            '[range(4) | ($w[. + 4].loss - $b[.].loss) / $w[. + 4].loss | fabs] | max < 1e-5'
    done
}

@test "memory: every rank allocates what is planned, over layouts, ZeRO, schedules and recomputation" {
    local layout n extra runs run
    readarray -t runs <<'RUNS'
1 dp1 --recompute selective
1 dp1
1 dp1 --recompute full
4 dp4.z3
2 tp2.s1
1 dp1 --recompute every:2
2 pp2 --pipeline zb-h1
2 pp2 --pipeline gpipe
2 dp2.z1
4 dp2.pp2.z2
2 pp2 --pipeline 1f1b
2 dp2.z2
2 dp2.z1 --precision bf16 --no-master
1 dp1 --precision bf16 --no-master
2 dp2.z2 --grad-comm bf16
2 dp2 --save-async
2 dp2 --grad-comm bf16
2 tp2
RUNS
    one_of 3 "${runs[@]}"
    for run in "${some[@]}"; do
        read -r n layout extra <<<"$run"
        # shellcheck disable=SC2086 # words
        mpirun -np "$n" dt-train --model llama.json "${common[@]}" --steps 1 --layout "$layout" $extra --save kept --overwrite >m.jsonl
        dp=$(sed -n 's/.*dp\([0-9]*\).*/\1/p' <<<"$layout")
        dp=${dp:-1}
        # shellcheck disable=SC2086 # words
        dt-memest llama.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --accumulate $((8 / dp)) --layout "$layout" \
            $extra --threads 1 --json >plan.json
        echo "$layout $extra: $(metric m.jsonl peak_bytes), planned $(jq .peak_bytes plan.json)" >&2
        [ "$(metric m.jsonl peak_bytes)" = "$(jq .peak_bytes plan.json)" ]
    done
}

@test "without master weights: the losses follow a run with them, copies stay equal, resume is exact" {
    local opts
    opts=(--model gpt2.json "${common[@]}" --precision bf16 --steps 20 --schedule constant)
    dt-train "${opts[@]}" >master.jsonl
    dt-train "${opts[@]}" --no-master >one.jsonl
    mpirun -np 2 dt-train "${opts[@]}" --no-master --layout dp2 >dp2.jsonl
    mpirun -np 2 dt-train "${opts[@]}" --no-master --layout dp2.z1 >z1.jsonl
    agree() { jq -en --slurpfile a "$1" --slurpfile b "$2" '[range(20) | ($a[.].loss - $b[.].loss) / $a[.].loss | fabs] | max < 0.01'; }
    agree master.jsonl one.jsonl
    agree master.jsonl dp2.jsonl
    run ! diff <(jq .loss master.jsonl) <(jq .loss one.jsonl) # rounding has an effect
    diff <(jq .loss dp2.jsonl) <(jq .loss z1.jsonl)
    rm -rf rounded
    dt-train "${opts[@]}" --no-master --steps 12 --save rounded >/dev/null
    dt-train "${opts[@]}" --no-master --save rounded --resume auto >rest.jsonl
    diff <(tail -n 8 one.jsonl | jq -c '[.loss, .grad_norm]') <(jq -c '[.loss, .grad_norm]' rest.jsonl)
    dt-shard-ckpt ls --json rounded | jq -e '[.tensors[] | select(.name | startswith("model/")) | .dtype == "bf16"] | all'
    # what tensor-parallel ranks share is rounded alike: a checkpoint, which has one copy, continues the run
    opts=(--model gpt2.json "${common[@]}" --precision bf16 --steps 4 --schedule constant --no-master --layout tp2)
    mpirun -np 2 dt-train "${opts[@]}" >tp2.jsonl
    mpirun -np 2 dt-train "${opts[@]}" --stop-at 2 --save shared >/dev/null
    mpirun -np 2 dt-train "${opts[@]}" --save shared --resume auto >rest.jsonl
    diff <(tail -n 2 tp2.jsonl | jq -c '[.loss, .grad_norm]') <(jq -c '[.loss, .grad_norm]' rest.jsonl)
    opts=(--model gpt2.json "${common[@]}" --precision bf16 --steps 20 --schedule constant)
    run ! dt-train "${opts[@]}" --no-master --precision fp16
}

@test "memory: the process is as large as planned, within 5% and 64 MiB for libraries" {
    takes_long
    local n layout extra run
    one_of 3 "1 dp1" "1 dp1 --recompute full" "2 tp2.s1" "2 dp2.z3" "2 dp2.z2"
    for run in "${some[@]}"; do
        read -r n layout extra <<<"$run"
        # shellcheck disable=SC2086 # words
        mpirun -np "$n" dt-train --model gpt2-mini --data d.h5 --seq 128 --microbatch 16 --global-batch $((16 * n)) --steps 1 \
            --threads 1 --no-mfu --layout "$layout" $extra >m.jsonl
        echo "$layout $extra: resident $(metric m.jsonl rss_bytes), planned $(metric m.jsonl peak_bytes)" >&2
        jq -es '.[-1] | .rss_bytes > 0.95 * .peak_bytes and .rss_bytes < 1.05 * .peak_bytes + 67108864' m.jsonl
    done
}

@test "z3 on four ranks holds a quarter of the states, and trains what does not fit on one rank" {
    local limit states
    mpirun -np 4 dt-train --model gpt2.json "${common[@]}" --steps 1 --layout dp4.z3 >z3.jsonl
    states=$(dt-memest gpt2.json --train --precision fp32 --seq 32 --layout dp4.z3 --json |
        jq '[.categories[] | select(.name | test("weights|gradients|optimizer")) | .bytes] | add')
    whole=$(dt-memest gpt2.json --train --precision fp32 --seq 32 --layout dp1 --json |
        jq '[.categories[] | select(.name | test("weights|gradients|optimizer")) | .bytes] | add')
    jq -en "$states * 4 / $whole | . > 0.999 and . < 1.01"
    limit=$(($(metric z3.jsonl peak_bytes) + 4096))
    status=0
    dt-train --model gpt2.json "${common[@]}" --steps 1 --mem-limit $limit >/dev/null 2>err || status=$?
    [ $status -eq 3 ]
    mpirun -np 4 dt-train --model gpt2.json "${common[@]}" --steps 2 --layout dp4.z3 --mem-limit $limit >z3.jsonl
    [ "$(wc -l <z3.jsonl)" -eq 2 ]
}

@test "a rank that dies or stands still ends the job and is named, whatever it was about to send" {
    local layout n pid victim
    while read -r n layout word; do
        rm -f m.jsonl
        timeout -s KILL 200 mpirun -np "$n" dt-train --model gpt2.json "${common[@]}" --comm-timeout 3 --steps 1000000 --layout "$layout" \
            >m.jsonl 2>err &
        pid=$!
        until [ -s m.jsonl ] || ! kill -0 $pid; do sleep 0.05; done
        victim=$(pgrep -P "$(pgrep -P $pid)" | tail -n 1)
        kill -STOP "$victim"
        # the job ends although the stopped rank does not react: mpirun kills what is left
        status=0
        for _ in $(seq 1200); do
            grep -q "have not arrived\|has not arrived\|waits for\|after 3 s" err && break
            sleep 0.1
        done
        kill -CONT "$victim" 2>/dev/null || true
        wait $pid || status=$?
        echo "$layout: status $status: $(cat err)" >&2
        [ $status -ne 0 ]
        grep -q "$word" err
    done <<'RUNS'
2 dp2 grad\|loss\|agreement
2 tp2 output\|input\|loss\|embedding\|agreement
2 pp2 activation\|loss\|agreement
2 dp2.z3 weights\|gradients\|loss\|agreement
RUNS
}
# SPDX-License-Identifier: Apache-2.0
