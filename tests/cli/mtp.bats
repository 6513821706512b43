#!/usr/bin/env bats
# The module that predicts a token more than the model does (dt-train --mtp-layers): what it is given and what it
# learns, what it cannot be combined with, and checkpoints of it.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    jq -n '{model_type: "deepseek_v3", vocab_size: 257, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 1,
        num_attention_heads: 2, max_position_embeddings: 64, kv_lora_rank: 16, q_lora_rank: 24, qk_nope_head_dim: 10,
        qk_rope_head_dim: 6, v_head_dim: 12, n_routed_experts: 4, n_shared_experts: 1, num_experts_per_tok: 2,
        moe_intermediate_size: 24, first_k_dense_replace: 1, n_group: 1, topk_group: 1, rms_norm_eps: 1e-5,
        rope_theta: 10000}' >one.json
    # pairs of a letter drawn at random and the same in upper case
    awk 'BEGIN { srand(1); for (i = 0; i < 8192; i++) printf "%s", rand() < 0.5 ? "aA" : "bB" }' >pairs.txt
    dt-dataset build --tokenizer byte --out pairs.h5 pairs.txt
}

setup() {
    in_folder
    common=(--model one.json --data pairs.h5 --seq 32 --microbatch 2 --global-batch 4 --lr 1e-2 --warmup 5
        --precision fp32 --no-mfu --threads 1 --steps 4 --comm-timeout 120)
}

# header FILE: the names of the tensors in a safetensors file
header() {
    local n
    n=$(od -An -t u8 -N 8 "$1")
    head -c $((n + 8)) "$1" | tail -c +9 | jq -r 'keys[] | select(. != "__metadata__")'
}

# flip_byte FILE TENSOR: changes the first byte of a tensor in a safetensors file
flip_byte() {
    local n at
    n=$(od -An -t u8 -N 8 "$1")
    at=$((8 + n + $(head -c $((n + 8)) "$1" | tail -c +9 | jq --arg t "$2" '.[$t].data_offsets[0]')))
    printf '\125' | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

# near FILE KEY: the value of the last line that has it is ln 2 / 2
near() {
    jq -es "map(select(.$2 != null)) | .[-1].$2 | . > 0.33 and . < 0.37" "$1"
}

# Half of the tokens follow from the one before, the others are drawn: the entropy of a token is ln 2 / 2. A module
# that did not see token t + 1 could not know a copy that is token t + 2: its loss would be ln 2; one that was asked
# for token t + 1 would have a loss of 0.
@test "the module sees the next token, and predicts the one behind it" {
    local layout ranks
    while read -r ranks layout; do
        mpirun -np "$ranks" dt-train "${common[@]}" --microbatch 4 --global-batch 8 --steps 150 --mtp-layers 1 --mtp-loss-weight 1 \
            --layout "$layout" --eval-data pairs.h5 --eval-every 150 --metrics m.jsonl >/dev/null
        near m.jsonl loss
        near m.jsonl mtp_loss
        near m.jsonl eval_loss
        near m.jsonl eval_mtp_loss
    done <<<$'1 dp1\n2 cp2'
}

@test "nothing is predicted across the border of a document" {
    local n
    # documents of two and of three tokens, the last of which ends it
    for ((n = 0; n < 300; n++)); do printf 'a|b|c|'; done >two.txt
    for ((n = 0; n < 300; n++)); do printf 'ab|cb|'; done >three.txt
    for n in two three; do
        dt-dataset build --tokenizer byte --separator '|' --pack documents --out $n.h5 $n.txt
        dt-train "${common[@]}" --data $n.h5 --steps 1 --lr 0 --mtp-layers 1 --metrics $n.jsonl >/dev/null
    done
    jq -e '.mtp_loss == 0 and .loss > 1' two.jsonl
    # one target of the module for two of the model
    jq -e '.mtp_loss / .loss | . > 0.4 and . < 0.6' three.jsonl
    dt-train "${common[@]}" --data two.h5 --documents joined --steps 1 --lr 0 --mtp-layers 1 --metrics two.jsonl >/dev/null
    jq -e '.mtp_loss / .loss > 0.9' two.jsonl
}

@test "the weight of the module's loss scales its gradients, and 0 leaves the model's alone" {
    local w
    for w in 0 0.5 1; do
        dt-train "${common[@]}" --steps 1 --clip 0 --balance-loss 0 --mtp-layers 1 --mtp-loss-weight $w --metrics $w.jsonl >/dev/null
    done
    dt-train "${common[@]}" --steps 1 --clip 0 --balance-loss 0 --metrics none.jsonl >/dev/null
    [ "$(jq -c '[.loss, .grad_norm]' none.jsonl)" = "$(jq -c '[.loss, .grad_norm]' 0.jsonl)" ]
    [ "$(jq .loss none.jsonl)" = "$(jq .loss 1.jsonl)" ]
    jq -es '.[0].mtp_loss == .[1].mtp_loss and .[0].grad_norm < .[1].grad_norm' 0.5.jsonl 1.jsonl
    jq -e '.mtp_loss == null' none.jsonl
}

@test "a resumed run goes on with the module, and a run or server without it leaves it out" {
    rm -rf run
    dt-train "${common[@]}" --mtp-layers 1 --save run --save-every 2 --metrics a.jsonl >/dev/null
    dt-train --resume run/step-00000002 --data pairs.h5 --steps 4 --no-mfu --threads 1 --metrics b.jsonl >/dev/null
    [ "$(tail -n 1 a.jsonl | jq -c '[.loss, .mtp_loss, .grad_norm]')" = "$(tail -n 1 b.jsonl | jq -c '[.loss, .mtp_loss, .grad_norm]')" ]
    dt-shard-ckpt ls --json run/latest | grep -q mtp.proj.weight
    dt-train "${common[@]}" --model run/latest --steps 1 --lr 0 --metrics c.jsonl >/dev/null
    jq -e '.mtp_loss == null' c.jsonl
    dt-memest run/latest --serve >with.txt
    dt-memest one.json --serve >without.txt
    [ "$(grep -i weights with.txt)" = "$(grep -i weights without.txt)" ]
    echo '{"prompt": "aA", "max_tokens": 2}' | dt-serve --batch run/latest --precision fp32 --threads 1 | jq -e .text
}

@test "--fp8 computes the module as it does layers, and the memory plan is exact" {
    jq '.moe_intermediate_size = 32 | .kv_lora_rank = 32 | .q_lora_rank = 32 | .v_head_dim = 16' one.json >eight.json
    local over
    for over in none full; do
        dt-train "${common[@]}" --model eight.json --mtp-layers 1 --fp8 --precision bf16 --recompute $over --metrics $over.jsonl >/dev/null 2>$over.err
        grep -q 'in 8 bits: .*proj' $over.err
        dt-memest eight.json --train --optimizer adamw --fp8 --seq 32 --microbatch 2 --accumulate 2 --mtp-layers 1 --recompute $over \
            --check $over.jsonl
    done
    dt-train "${common[@]}" --model eight.json --mtp-layers 1 --precision bf16 --metrics plain.jsonl >/dev/null
    [ "$(jq -s '.[-1] | [.loss, .mtp_loss]' none.jsonl)" = "$(jq -s '.[-1] | [.loss, .mtp_loss]' full.jsonl)" ]
    jq -es '.[-1].mtp_loss != .[-2].mtp_loss' <(tail -n 1 none.jsonl) <(tail -n 1 plain.jsonl)
    jq -es '(.[0].mtp_loss - .[1].mtp_loss) / .[1].mtp_loss | . < 0.01 and . > -0.01' <(tail -n 1 none.jsonl) <(tail -n 1 plain.jsonl)
}

# same_losses FILE: a run from its weights, with and without the module, has the losses of run/latest
same_losses() {
    local f
    for f in run/latest "$1"; do
        dt-train "${common[@]}" --model $f --steps 1 --lr 0 --mtp-layers 1 --metrics ${f//\//-}.jsonl >/dev/null
        dt-train "${common[@]}" --model $f --steps 1 --lr 0 --metrics ${f//\//-}.plain.jsonl >/dev/null
    done
    [ "$(jq -c '[.loss, .mtp_loss]' run-latest.jsonl)" = "$(jq -c '[.loss, .mtp_loss]' "${1//\//-}.jsonl")" ]
    [ "$(jq -c '[.loss, .mtp_loss]' run-latest.plain.jsonl)" = "$(jq -c '[.loss, .mtp_loss]' "${1//\//-}.plain.jsonl")" ]
    jq -e '.mtp_loss == null' "${1//\//-}.plain.jsonl"
}

@test "Hugging Face folders and GGUF files hold the module under its published names" {
    local model layer
    jq -n '{model_type: "glm4_moe", vocab_size: 257, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, max_position_embeddings: 64, use_qk_norm: true,
        n_routed_experts: 4, num_experts_per_tok: 2, n_shared_experts: 1, moe_intermediate_size: 24, attention_bias: true,
        first_k_dense_replace: 1, norm_topk_prob: true, routed_scaling_factor: 1.5, n_group: 1, topk_group: 1,
        partial_rotary_factor: 0.5}' >glm.json
    for model in one glm; do
        layer=$([ $model = one ] && echo 1 || echo 2)
        rm -rf run hf dt g.gguf from-gguf
        dt-train "${common[@]}" --model $model.json --mtp-layers 1 --save run >/dev/null
        dt-shard-ckpt convert --to safetensors run/latest hf
        jq -e ".num_hidden_layers == $layer and .num_nextn_predict_layers == 1" hf/config.json
        header hf/model.safetensors >names
        for name in enorm hnorm eh_proj embed_tokens shared_head.norm shared_head.head input_layernorm post_attention_layernorm \
            self_attn.o_proj mlp.gate mlp.experts.3.down_proj mlp.shared_experts.up_proj; do
            grep -qx "model.layers.$layer.$name.weight" names
        done
        [ "$(grep -c "model.layers.$((layer + 1))" names)" -eq 0 ]
        dt-shard-ckpt convert --to dt hf dt
        dt-shard-ckpt diff dt hf
        dt-shard-ckpt convert --to gguf hf g.gguf
        dt-shard-ckpt ls --json g.gguf | grep -q mtp.proj.weight
        for name in enorm hnorm eh_proj shared_head_norm; do
            grep -aq "blk.$layer.nextn.$name.weight" g.gguf
        done
        dt-shard-ckpt convert --to dt g.gguf from-gguf
        dt-shard-ckpt diff dt from-gguf
        same_losses hf
        same_losses from-gguf
        echo '{"prompt": "aA", "max_tokens": 2}' | dt-serve --batch hf --tokenizer byte --precision fp32 --threads 1 | jq -e .text
    done
    # an embedding of its own
    flip_byte hf/model.safetensors "model.layers.2.embed_tokens.weight"
    run ! dt-train "${common[@]}" --model hf --mtp-layers 1 --steps 1
    [[ $output == *"tensor 'layers.2.embed_tokens.weight' differs from 'embed_tokens.weight'"* ]]
    dt-train "${common[@]}" --model hf --steps 1 >/dev/null
    # files without the module: it is initialised, which is said
    rm -rf plain
    dt-train "${common[@]}" --save plain >/dev/null
    run --separate-stderr dt-train "${common[@]}" --model plain/latest --mtp-layers 1 --steps 1
    [ "$status" -eq 0 ]
    [[ $stderr == *"has no module for a further token: it is initialised at random"* ]]
}

@test "models and options that have no module are refused in one line" {
    jq -n '{model_type: "llama", vocab_size: 257, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 1,
        num_attention_heads: 2, max_position_embeddings: 64}' >llama.json
    train_refused 2 "'llama' is of family 'llama', which has no modules for further tokens" --model llama.json --mtp-layers 1
    train_refused 2 "--mtp-layers cannot be combined with --lora" --mtp-layers 1 --lora 4
    train_refused 2 "--mtp-layers cannot be combined with --teacher" --mtp-layers 1 --teacher none.h5
    train_refused 2 "'2' is out of range (0 to 1)" --mtp-layers 2
    train_refused 2 "--mtp-loss-weight" --mtp-loss-weight 0.1
}
# SPDX-License-Identifier: Apache-2.0
