#!/usr/bin/env bats
# Adapters (LoRA): the first loss equals the base's, every layout trains the same adapters, memory plans are
# exact, runs resume.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
    tiny_models
    jq -n '{model_type: "qwen3", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 4, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: true}' >qwen3.json
    # q, k and v of a head after those of another in one tensor
    jq -n '{model_type: "gpt_neox", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 3,
        num_attention_heads: 4, max_position_embeddings: 64, rotary_pct: 0.5}' >neox.json
}

setup() {
    in_folder
    common=(--data d.h5 --seq 32 --microbatch 1 --global-batch 8 --lr 1e-3 --warmup 5 --precision fp32 --no-mfu
        --threads 1 --comm-timeout 120)
}

losses() { # OPTION...: the losses of a run
    dt-train "${common[@]}" --metrics - "$@" 2>/dev/null | jq -c 'select(.loss) | .loss'
}

@test "the first loss is the base's, to the bit" {
    for model in gpt2 llama qwen3; do
        for precision in fp32 bf16; do
            [ "$(losses --model $model.json --steps 1 --precision $precision)" = \
                "$(losses --model $model.json --steps 1 --precision $precision --lora 4)" ]
        done
    done
}

@test "layouts train the same adapters" {
    dt-train verify --layouts "dp1,$(every 4 tp4.s1,dp2.z3,pp2,dp2.tp2.pp2.z2)" --model llama.json "${common[@]}" --steps "$(few 5 10)" --lora 4 >&2
    dt-train verify --layouts "dp1,$(every 3 pp2.v2,dp2.z1,tp2.s1)" --model qwen3.json "${common[@]}" --steps "$(few 5 10)" --lora 3 \
        --lora-targets qv --lora-kind rslora --recompute full >&2
    dt-train verify --layouts dp1,pp2 --pipeline zb-h1 --model qwen3.json "${common[@]}" --steps "$(few 5 10)" --lora 3 >&2
    dt-train verify --layouts "dp1,$(every 2 dp2,tp2)" --reproducible --model gpt2.json "${common[@]}" --steps "$(few 5 10)" --lora 3 \
        --lora-targets '.*\.mlp\..*' >&2
}

@test "dropout is the same on every layout and under recomputation" {
    drop=(--steps 5 --lora 4 --lr 1e-2 --lora-dropout 0.2)
    dt-train verify --layouts "dp1,$(every 5 tp2.s1,dp2.z3,pp2,cp2,dp2.tp2)" --model llama.json "${common[@]}" "${drop[@]}" >&2
    dt-train verify --layouts dp1,pp2 --pipeline zb-h1 --model qwen3.json "${common[@]}" "${drop[@]}" >&2
    losses --model qwen3.json "${drop[@]}" >kept
    for how in '--recompute full' '--recompute selective'; do
        # shellcheck disable=SC2086 # words
        losses --model qwen3.json "${drop[@]}" $how | cmp kept -
    done
    losses --model qwen3.json --steps 5 --lora 4 --lr 1e-2 >without
    [ "$(head -1 without)" = "$(head -1 kept)" ] # an adapter whose B is 0 adds nothing
    jq -en "$(tail -1 without) - $(tail -1 kept) | fabs > 1e-4"
    losses --model qwen3.json "${drop[@]}" --steps 3 --save dropped >halves
    losses --model qwen3.json "${drop[@]}" --save dropped --resume auto >>halves
    cmp kept halves
    mpirun -np 2 dt-train --model qwen3.json "${common[@]}" --steps 1 --lora 4 --lora-dropout 0.1 --layout tp2 --metrics m.jsonl
    dt-memest qwen3.json --precision fp32 --seq 32 --microbatch 1 --global-batch 8 --lora 4 --lora-dropout 0.1 --layout tp2 --check m.jsonl
    train_refused 2 "lora-dropout" --model qwen3.json --steps 1 --lora 4 --lora-dropout 1
    train_refused 2 "requires --lora" --model qwen3.json --steps 1 --lora-dropout 0.1
}

@test "--dora: magnitudes start as the row norms of the base, and every layout trains the same" {
    takes_long
    local model layout
    dora=(--steps 4 --lora 3 --lr 1e-2 --dora)
    for model in gpt2 llama; do
        [ "$(losses --model $model.json --steps 1 --precision bf16)" = \
            "$(losses --model $model.json --steps 1 --precision bf16 --lora 3 --dora)" ]
    done
    dt-train verify --layouts "dp1,$(every 3 tp2.s1,dp2.z3,pp2)" --model gpt2.json "${common[@]}" "${dora[@]}" >&2
    dt-train verify --layouts "dp1,$(every 2 tp4,dp2.tp2)" --model llama.json "${common[@]}" "${dora[@]}" --recompute full --lora-targets '.*[vo]|.*down' >&2
    losses --model llama.json "${dora[@]}" --save magnitudes >straight
    [ "$(head -1 straight)" != "$(tail -1 straight)" ]
    losses --model llama.json "${dora[@]}" --steps 2 --save run-d >halves
    losses --model llama.json "${dora[@]}" --save run-d --resume auto >>halves
    cmp straight halves
    [ "$(losses --model llama.json --steps 4 --lora 3 --lr 1e-2 | tail -1)" != "$(tail -1 straight)" ]
    run -0 dt-shard-ckpt ls magnitudes
    [[ $output == *lora_m* ]]
    for layout in dp1 tp2; do
        mpirun -np "${layout: -1}" dt-train --model llama.json "${common[@]}" --steps 1 --lora 4 --dora --layout $layout --metrics m.jsonl
        dt-memest llama.json --precision fp32 --seq 32 --microbatch 1 --global-batch 8 --lora 4 --dora --layout $layout --check m.jsonl
    done
    train_refused 2 "requires --lora" --model llama.json --steps 1 --dora
}

@test "the memory plan is exact, and less than half of full training's" {
    for layout in dp1 tp2 dp2.z3 pp2; do
        mpirun -np "$([ $layout = dp1 ] && echo 1 || echo 2)" dt-train --model qwen3.json \
            "${common[@]}" --steps 2 --lora 4 --layout $layout --metrics m.jsonl
        dt-memest qwen3.json --precision fp32 --seq 32 --microbatch 1 --global-batch 8 --lora 4 --layout $layout --check m.jsonl
    done
    states='[.categories[] | select(.name == "gradients" or .name == "optimizer") | .bytes] | add'
    jq -en "$(dt-memest llama-3-8b --lora 16 --json | jq "$states") < 0.01 * $(dt-memest llama-3-8b --json | jq "$states")"
}

@test "gradients of frozen weights are not computed: two thirds of the flops" {
    flops() { dt-train --model llama-3-8b --seq 128 --microbatch 1 --print-program --json "$@" | jq '[.nodes[].model_flops] | add'; }
    jq -en "$(flops --lora 8) / $(flops) | . > 0.6 and . < 0.72"
    dt-train --model llama.json --lora 8 --lora-targets qv --seq 64 --print-program --json >program
    jq -e '[.nodes[].op] | map(select(. == "dw")) | length == 3' program # only for A of each layer's adapters
    jq -e '[.nodes[].op] | any(. == "embed_b" or . == "colsum") | not' program
}

@test "a run resumes with its adapters, on another layout too; not on another base" {
    losses --model qwen3.json --steps 6 --lora 4 >straight
    losses --model qwen3.json --steps 3 --lora 4 --save run >halves
    losses --model qwen3.json --steps 6 --save run --resume auto >>halves
    cmp straight halves
    run -0 dt-shard-ckpt ls run
    [[ $output == *lora_a* && $output != *embed* ]]
    dt-shard-ckpt verify run
    mpirun -np 2 dt-train --model qwen3.json "${common[@]}" --steps 7 --save run --resume auto --layout tp2
    train_refused 1 "another base" --model qwen3.json --steps 8 --save run --resume auto --seed 2 --accept-change seed
    dt-train --model qwen3.json "${common[@]}" --steps 1 --save trained >/dev/null
    train_refused 1 "--init random: their base was drawn at random" --model trained --steps 8 --save run --resume auto
    train_refused 1 "--lora is 5" --model qwen3.json --steps 8 --save run --resume auto --lora 5
    # commands that need a whole model say that this checkpoint holds only adapters, and of which base
    alone="contains only adapters, not the model they were trained on"
    train_refused 1 "$alone" --model run --steps 8
    train_refused 1 "$alone" --steps 8 --save run --resume auto
    train_refused 1 "--resume needs --model too: they were trained on 'qwen3.json'" \
        --steps 8 --save run --resume auto
    echo text >t.txt
    run -1 dt-eval ppl --text t.txt run
    [[ $output == *"$alone; they were trained on 'qwen3.json'; 'dt-shard-ckpt lora-merge'"* ]]
}

@test "invalid combinations are refused" {
    train_refused 2 "no linear" --model qwen3.json --steps 1 --lora 4 --lora-targets q_proj
    train_refused 2 "not a regular expression" --model qwen3.json --steps 1 --lora 4 --lora-targets '('
    train_refused 2 "alpha" --model qwen3.json --steps 1 --lora 4 --lora-alpha 0
    train_refused 2 "lora" --model qwen3.json --steps 1 --lora 0
    train_refused 2 "--lora-alpha requires --lora" --model qwen3.json --steps 1 --lora-alpha 8
    train_refused 2 "--lora-targets requires --lora" --model qwen3.json --steps 1 --lora-targets qv
    train_refused 2 "--lora-kind requires --lora" --model qwen3.json --steps 1 --lora-kind rslora
    train_refused 2 "lora-kind" --model qwen3.json --steps 1 --lora 4 --lora-kind pissa
}

golden=$BATS_TEST_DIRNAME/../data/lora # written by peft: golden_lora.py

merge() { # BASE ADAPTER DST OPTION...
    dt-shard-ckpt lora-merge --to safetensors "$@"
}

@test "an adapter of peft's is merged as peft merges it, and survives conversion to every format" {
    merge "$golden/base" "$golden/adapter" merged
    dt-shard-ckpt diff --tolerance 1e-6 merged "$golden/merged"
    dt-shard-ckpt lora-convert "$golden/base" "$golden/adapter" a.gguf
    dt-shard-ckpt lora-convert "$golden/base" "$golden/adapter" a
    merge "$golden/base" a.gguf from-gguf
    merge "$golden/base" a from-peft
    cmp merged/model.safetensors from-gguf/model.safetensors
    cmp merged/model.safetensors from-peft/model.safetensors
    # a full disk leaves nothing behind, and is named as the reason
    run -1 bash -c 'ulimit -f 1; dt-shard-ckpt lora-convert "$1" "$2" b' - "$golden/base" "$golden/adapter"
    [[ $output == *"cannot write 'b"*"File too large" ]]
    [ "$(echo b*)" = 'b*' ]
    # adapters with ranks and alphas per module, scaled by the square root of the rank (rsLoRA)
    merge "$golden/base" "$golden/rs" rs
    dt-shard-ckpt lora-convert "$golden/base" "$golden/rs" rs-a
    jq -e '.rank_pattern["model.layers.0.mlp.down_proj"] == 2' rs-a/adapter_config.json
    merge "$golden/base" rs-a rs-again
    cmp rs/model.safetensors rs-again/model.safetensors
    dt-shard-ckpt lora-convert "$golden/base" "$golden/rs" rs.gguf
    merge "$golden/base" rs.gguf rs-gguf
    dt-shard-ckpt diff --tolerance 1e-6 rs rs-gguf
    # in a GGUF base the rows of rotary heads have another order
    dt-shard-ckpt convert "$golden/base" base.gguf
    merge base.gguf "$golden/adapter" turned
    dt-shard-ckpt diff --tolerance 1e-6 merged turned
}

@test "a base in blocks of 256: the plan is exact, layouts agree, the loss is within 1% of the fp32 one" {
    jq '.hidden_size = 256 | .intermediate_size = 512 | .num_hidden_layers = 2' qwen3.json >wide.json
    wide=("${common[@]}" --model wide.json --lora 4 --lora-base q4_k --lora-targets qv)
    dt-train "${wide[@]}" --steps 2 --metrics q4k
    dt-memest wide.json --precision fp32 --seq 32 --microbatch 1 --global-batch 8 --lora 4 --lora-targets qv --lora-base q4_k --check q4k
    dt-train verify --layouts dp1,pp2 "${wide[@]}" --steps 3 >&2
    losses --model wide.json --steps 2 --lora 4 --lora-targets qv >plain
    jq -s 'map(select(.loss)) | .[-1].loss' q4k >blocks
    jq -en "$(tail -1 plain) / $(cat blocks) | . > 0.99 and . < 1.01"
    ! cmp -s <(tail -1 plain) blocks || return 1
    train_refused 2 "whole blocks of 256" --model llama.json --steps 1 --lora 4 --lora-base q4_k
}

@test "a base in blocks: the plan is exact, layouts agree, the loss is within 1% of the 16-bit one" {
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 64, intermediate_size: 256, num_hidden_layers: 3, head_dim: 32,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: true}' >q.json
    losses --model q.json --steps 5 --lora 4 --precision bf16 >plain
    one_of 3 nf4 iq4_nl q4_0 q8_0 q5_0
    for base in "${some[@]}"; do
        dt-train "${common[@]}" --model q.json --steps 5 --lora 4 --lora-base "$base" --precision bf16 --metrics "$base"
        dt-memest q.json --seq 32 --microbatch 1 --global-batch 8 --lora 4 --lora-base "$base" --check "$base"
        jq -s 'map(select(.loss)) | .[-1].loss' "$base" >blocks
        jq -en "$(tail -1 plain) / $(cat blocks) | . > 0.99 and . < 1.01"
        dt-train verify --layouts "dp1,$(every 3 tp2,dp2.z2,pp2)" --model q.json "${common[@]}" --steps 5 --lora 4 --lora-base "$base" >&2
    done
    [ "$(jq -s '.[-1].peak_bytes' nf4)" -lt "$(jq -s '.[-1].peak_bytes' q8_0)" ]
    losses --model q.json --steps 6 --lora 4 --lora-base nf4 >straight
    losses --model q.json --steps 3 --lora 4 --lora-base nf4 --save packed >halves
    losses --model q.json --steps 6 --save packed --resume auto >>halves
    cmp straight halves
    # 70 B parameters in 4 bits with adapters fit into 48 GB
    dt-memest llama-2-70b --lora 16 --lora-base nf4 --seq 512 --recompute full --gpu-mem 48GB --margin 0
    train_refused 2 z3 --model q.json --steps 1 --lora 4 --lora-base nf4 --layout dp1.z3
    train_refused 2 "whole blocks" --model qwen3.json --steps 1 --lora 4 --lora-base nf4
    train_refused 2 "requires --lora" --model q.json --steps 1 --lora-base nf4
}

@test "the update's buffers overlap those of unpacked weights: what is computed next does not change" {
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 4,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 10000}' >deep.json
    local plain=(--model deep.json --steps 4 --lora 4 --lora-base q8_0 --lr 1e-2)
    losses "${plain[@]}" >here
    losses "${plain[@]}" --offload optimizer --offload-to disk:. >away
    diff here away
    # muon's workspace too; a pipeline has other buffers there
    dt-train verify --layouts dp1,pp2 "${common[@]}" "${plain[@]}" --optimizer muon >&2
}

@test "blocks of a file in the same format are taken as the base's, to the bit, not rounded again" {
    jq '.hidden_size = 256 | .intermediate_size = 512 | .num_hidden_layers = 2 | .head_dim = 64' qwen3.json >wide.json
    losses --model wide.json --steps 1 --save in-full >/dev/null
    local format
    for format in q4_k iq4_nl q2_k $(few "" "q4_0 q4_1 q5_0 q5_1 q3_k q5_k q6_k q8_0 mxfp4 iq4_xs"); do
        dt-shard-ckpt quantize --type "$format" in-full "in-$format.gguf" >/dev/null
        losses --model "in-$format.gguf" --steps 2 --lora 4 >unpacked
        losses --model "in-$format.gguf" --steps 2 --lora 4 --lora-base "$format" | cmp unpacked -
    done
    # tp cuts some matrices by columns and others by rows
    dt-train verify --layouts dp1,tp2 --model in-iq4_nl.gguf "${common[@]}" --steps 3 --lora 4 --lora-base iq4_nl >&2
}

@test "trained adapters are merged, and exported as peft's" {
    losses --model llama.json --steps 2 --save base-run --lr 1e-2
    losses --model base-run --steps 5 --lora 4 --save tuned --eval-data d.h5 --lr 1e-2 >tuned.jsonl
    dt-shard-ckpt lora-merge base-run tuned merged-run
    [ "$(losses --model merged-run --steps 1 --lr 0)" != "$(losses --model base-run --steps 1 --lr 0)" ]
    dt-shard-ckpt lora-convert base-run tuned tuned-peft
    dt-shard-ckpt lora-merge --to dt base-run tuned-peft merged-peft
    dt-shard-ckpt diff --weights merged-run merged-peft
    run dt-shard-ckpt lora-merge --to dt merged-run tuned other
    [ "$status" -eq 1 ]
    [[ $output == *"other weights"* ]]
    dt-shard-ckpt lora-merge --any-base --to dt merged-run tuned other
    run dt-shard-ckpt lora-merge --to dt "$golden/base" tuned-peft wrong
    [ "$status" -eq 1 ]
}

@test "an adapter of the fused q, k and v is converted with its one A, not with three" {
    losses --model gpt2.json --steps 1 --save base-qkv >/dev/null
    losses --model base-qkv --steps 3 --lora 4 --save tuned-qkv --lr 1e-2 >/dev/null
    dt-shard-ckpt lora-convert base-qkv tuned-qkv one # q, k and v each had an A
    jq -e '(.rank_pattern["transformer.h.0.attn.c_attn"] // .r) == 12' one/adapter_config.json
    dt-shard-ckpt lora-convert base-qkv one two
    cmp one/adapter_model.safetensors two/adapter_model.safetensors
    cmp one/adapter_config.json two/adapter_config.json
    dt-shard-ckpt lora-convert base-qkv one three.gguf
    dt-shard-ckpt lora-merge --to dt base-qkv three.gguf merged-3
    dt-shard-ckpt lora-merge --to dt base-qkv tuned-qkv merged-1
    dt-shard-ckpt diff --weights --tolerance 1e-6 merged-1 merged-3
}

@test "DoRA magnitudes are merged, exported as peft's and read back; other formats are refused" {
    losses --model llama.json --steps 2 --save base-d --lr 1e-2
    dt-train --model base-d "${common[@]}" --steps 4 --lora 4 --dora --save tuned-d --eval-data d.h5 --lr 1e-2 --metrics tuned.jsonl >/dev/null
    dt-shard-ckpt lora-merge --to dt base-d tuned-d merged-d
    dt-train --model merged-d "${common[@]}" --steps 1 --eval-data d.h5 --lr 0 --metrics merged.jsonl >/dev/null
    eval_loss='map(.eval_loss // empty) | last'
    jq -en "$(jq -s "$eval_loss" tuned.jsonl) - $(jq -s "$eval_loss" merged.jsonl) | fabs < 1e-5"
    dt-shard-ckpt lora-convert base-d tuned-d peft-d
    jq -e '.use_dora' peft-d/adapter_config.json
    dt-shard-ckpt lora-merge --to dt base-d peft-d merged-peft-d
    dt-shard-ckpt diff --weights --tolerance 1e-6 merged-d merged-peft-d
    merge "$golden/base" "$golden/dora" dora
    dt-shard-ckpt lora-convert "$golden/base" "$golden/dora" dora-a
    merge "$golden/base" dora-a dora-again
    cmp dora/model.safetensors dora-again/model.safetensors
    dt-shard-ckpt convert "$golden/base" base-d.gguf
    merge base-d.gguf "$golden/dora" turned-d
    dt-shard-ckpt diff --tolerance 1e-6 dora turned-d
    run -1 dt-shard-ckpt lora-convert "$golden/base" "$golden/dora" dora.gguf
    [[ $output == *"cannot hold DoRA magnitudes"* && ! -e dora.gguf ]]
    mkdir bad-d
    cp "$golden/dora/adapter_model.safetensors" bad-d
    jq '.use_dora = false' "$golden/dora/adapter_config.json" >bad-d/adapter_config.json
    run -1 dt-shard-ckpt lora-merge "$golden/base" bad-d no-d
    [[ $output == *"use_dora is not set"* && ! -e no-d ]]
}

@test "modules trained in full beside adapters: layouts, plan, merging, peft's folder and back" {
    takes_long
    saved=(--lora 4 --lora-modules-to-save 'embed|head|.*norm' --lr 1e-2)
    dt-train verify --layouts "dp1,$(every 4 dp2.tp2.z2,tp2.s1,dp2.z3,pp2)" --model llama.json "${common[@]}" "${saved[@]}" --steps 5 >&2
    dt-train verify --layouts "dp1,$(every 2 tp2,pp2)" --model gpt2.json "${common[@]}" --lora 3 --lora-modules-to-save 'pos|.*norm|.*mlp\.down' --lr 1e-2 --steps 5 >&2
    for model in llama gpt2 qwen3 neox; do
        case $model in gpt2 | neox) modules='embed|.*norm|.*attn\.[qkv]|layers\.1\.mlp\.down' ;; *) modules='embed|head|.*norm' ;; esac
        losses --model $model.json --steps 2 --save b-$model --lr 1e-2
        dt-train --model b-$model "${common[@]}" --steps 4 --lora 4 --lora-modules-to-save "$modules" --save t-$model \
            --eval-data d.h5 --lr 1e-2 --metrics t-$model.jsonl >/dev/null
        dt-memest $model.json --precision fp32 --seq 32 --microbatch 1 --global-batch 8 --lora 4 \
            --lora-modules-to-save "$modules" --check t-$model.jsonl
        dt-shard-ckpt lora-merge --to dt b-$model t-$model m-$model
        dt-train --model m-$model "${common[@]}" --steps 1 --eval-data d.h5 --lr 0 --metrics m-$model.jsonl >/dev/null
        last='map(.eval_loss // empty) | last'
        jq -en "$(jq -s "$last" t-$model.jsonl) - $(jq -s "$last" m-$model.jsonl) | fabs < 1e-5"
        dt-shard-ckpt lora-convert b-$model t-$model p-$model
        dt-shard-ckpt lora-merge --to dt b-$model p-$model mp-$model
        dt-shard-ckpt diff --weights m-$model mp-$model
        dt-shard-ckpt convert --tokenizer none b-$model b-$model.gguf
        dt-shard-ckpt lora-merge --to dt --any-base b-$model.gguf p-$model mg-$model
        dt-shard-ckpt diff --weights --tolerance 1e-6 m-$model mg-$model
    done
    jq -e '.modules_to_save | index("lm_head") and index("model.embed_tokens") and index("model.layers.2.input_layernorm")' p-llama/adapter_config.json
    jq -e '.modules_to_save | index("transformer.h.0.attn.c_attn")' p-gpt2/adapter_config.json
    jq -e .ensure_weight_tying p-qwen3/adapter_config.json
    run -1 dt-shard-ckpt lora-convert b-llama t-llama p.gguf
    [[ $output == *modules_to_save* && ! -e p.gguf ]]
    # a run resumes from its checkpoint
    losses --model b-llama --steps 4 "${saved[@]}" >straight
    losses --model b-llama --steps 2 "${saved[@]}" --save in-halves >half
    losses --model b-llama --steps 4 "${saved[@]}" --save in-halves --resume auto >>half
    cmp straight half
    # test_infer_adapter compares the merge with peft's; here the adapter passes through each format
    merge "$golden/base" "$golden/saved" saved
    dt-shard-ckpt lora-convert "$golden/base" "$golden/saved" saved-a
    merge "$golden/base" saved-a saved-again
    cmp saved/model.safetensors saved-again/model.safetensors
    # invalid combinations
    train_refused 2 "requires --lora" --model llama.json --steps 1 --lora-modules-to-save embed
    train_refused 2 "matches no module" --model llama.json --steps 1 --lora 4 --lora-modules-to-save lm_head
    train_refused 2 "parts of one matrix product" --model llama.json --steps 1 --lora 4 --lora-modules-to-save '.*attn\.q'
    mkdir half-tied
    cp p-qwen3/adapter_config.json half-tied
    python3 - p-qwen3/adapter_model.safetensors half-tied/adapter_model.safetensors <<-'E'
		import json, struct, sys
		d = open(sys.argv[1], "rb").read()
		n = struct.unpack("<Q", d[:8])[0]
		head = json.loads(d[8 : 8 + n])
		k = "base_model.model.lm_head.weight"
		at = 8 + n + head[k]["data_offsets"][0]
		open(sys.argv[2], "wb").write(d[:at] + struct.pack("<f", 3.5) + d[at + 4 :])
		E
    run -1 dt-shard-ckpt lora-merge --to dt b-qwen3 half-tied no
    [[ $output == *"different weights for head and embedding"* && ! -e no ]]
}

@test "after a merge into blocks the loss is measured and reported" {
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1,
        num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: false}' >wide.json
    losses --model wide.json --steps 1 --save wide
    losses --model wide --steps 5 --lora 2 --save wide-tuned
    run dt-shard-ckpt lora-merge --tokenizer none --type q4_0 wide wide-tuned wide.gguf
    [ "$status" -eq 0 ]
    [[ $output == *"rounding error of "*"times the adapter's update"* ]]
}

@test "adapters that cannot be applied are refused by name" {
    no() { # TEXT: merging the folder "bad" is refused with this text
        run dt-shard-ckpt lora-merge "$golden/base" bad out
        [ "$status" -ne 0 ] && [[ $output == *"$1"* ]] && [ ! -e out ] || { echo "$output" >&2; return 1; }
    }
    again() { rm -rf bad && cp -r "$golden/adapter" bad && chmod -R u+w bad; }
    set_key() { again && jq ".$1" "$golden/adapter/adapter_config.json" >bad/adapter_config.json; }
    rename() { again && python3 - "$1" "$2" <<-'E'
		import sys
		p = "bad/adapter_model.safetensors"
		d = open(p, "rb").read()
		assert sys.argv[1].encode() in d
		open(p, "wb").write(d.replace(sys.argv[1].encode(), sys.argv[2].encode(), 1))
		E
    }
    set_key 'r = 4' && no "rank 3, but adapter_config.json says 4"
    set_key 'use_dora = true' && no use_dora
    set_key 'bias = "all"' && no bias
    set_key 'modules_to_save = ["lm_head"]' && no "modules_to_save names 'lm_head'"
    set_key 'some_new_key = 1' && no some_new_key
    set_key 'init_lora_weights = "pissa"' && no pissa
    set_key 'peft_type = "IA3"' && no IA3
    rename layers.0.self_attn.q_proj.lora_B layers.7.self_attn.q_proj.lora_B && no "layers.0.self_attn.q_proj' has no B"
    rename layers.0.self_attn.q_proj.lora_B.weight layers.0.self_attn.q_proj.lora_C.weight && no lora_C
    rename 1.mlp.up_proj 7.mlp.up_proj && no "mlp.up_proj"
    again && head -c 3000 "$golden/adapter/adapter_model.safetensors" >bad/adapter_model.safetensors && no adapter_model
    again && rm bad/adapter_model.safetensors && no adapter_model
    rm -rf bad && mkdir bad && no "adapter_config.json"
    again
    run dt-shard-ckpt lora-merge "$golden/base" nowhere out
    [ "$status" -eq 1 ]
    run dt-shard-ckpt lora-merge llama.json "$golden/adapter" out
    [ "$status" -eq 1 ]
    run dt-shard-ckpt lora-convert "$golden/base" "$golden/adapter" bad
    [ "$status" -eq 1 ]
    [[ $output == *"already exists"* ]]
}
# SPDX-License-Identifier: Apache-2.0
