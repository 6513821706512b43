#!/usr/bin/env bats
# Fine-tuning of a part of a model: --freeze, resize-vocab.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
    tiny_models
    jq -n '{model_type: "mixtral", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        num_local_experts: 4, num_experts_per_tok: 2, rope_theta: 10000, tie_word_embeddings: false}' >mixtral.json
}

setup() {
    in_folder
    common=(--data d.h5 --seq 32 --microbatch 1 --global-batch 8 --lr 1e-3 --warmup 5 --precision fp32 --no-mfu
        --threads 1 --comm-timeout 120)
}

tensors() { # CHECKPOINT PREFIX: tensor names, without the prefix
    dt-shard-ckpt ls "$1" --json | jq -r --arg p "$2/" '.tensors[].name | select(startswith($p)) | ltrimstr($p)'
}

alike() { # PREFIX: names of tensors that are bit-equal in the checkpoints a and b
    dt-shard-ckpt diff a b --json | jq -r --arg p "$1/" '.tensors[] | select(.equal and (.name | startswith($p))) | .name | ltrimstr($p)'
}

@test "--freeze: trained tensors keep their gradients; frozen ones do not change and have no state" {
    local model re rest
    while read -r model re; do
        dt-train --model $model.json "${common[@]}" --steps 1 --save a --overwrite --save-grads >/dev/null
        dt-train --model $model.json "${common[@]}" --steps 1 --save b --overwrite --save-grads --freeze "$re" >/dev/null
        rest=$(tensors b model | grep -vxE "$re")
        [ "$(tensors b model)" = "$(tensors a model)" ]
        [ "$(tensors b grad)" = "$rest" ]
        [ "$(tensors b m)" = "$rest" ]
        [ "$(alike grad)" = "$rest" ]
        dt-train --model $model.json "${common[@]}" --steps 1 --lr 0 --weight-decay 0 --save a --overwrite >/dev/null
        [ "$(alike model | sort)" = "$(tensors b model | grep -xE "$re" | sort)" ]
    done <<'END'
llama embed.*|layers\.[01]\..*
gpt2 .*weight
gpt2 embed\.weight|.*norm\.bias
mixtral .*experts.*|layers\.0\.mlp\.router\.weight
END
}

@test "--freeze: layouts train the same, and the plan is exact" {
    dt-train verify --layouts "dp1,$(every 2 tp2,dp2.z1,dp2.z3,pp2)" --model llama.json "${common[@]}" --steps 5 --freeze 'embed.*|layers\.[01]\..*' >&2
    for layout in dp1 dp2.z2; do
        mpirun -np "$([ $layout = dp1 ] && echo 1 || echo 2)" dt-train --model llama.json --save c --save-async --overwrite \
            "${common[@]}" --steps 2 --freeze 'layers\.[01]\..*' --layout $layout --metrics m.jsonl >/dev/null
        dt-memest llama.json --precision fp32 --seq 32 --microbatch 1 --global-batch 8 --freeze 'layers\.[01]\..*' --layout $layout \
            --save-async --check m.jsonl
    done
    states='[.categories[] | select(.name == "gradients" or .name == "optimizer") | .bytes] | add'
    jq -en "$(dt-memest llama-3-8b --freeze 'layers.*' --json | jq "$states") < 0.2 * $(dt-memest llama-3-8b --json | jq "$states")"
}

@test "--freeze: a run resumes, on another layout and in 16 bits" {
    for precision in fp32 bf16; do
        args=(--model llama.json "${common[@]}" --precision "$precision" --freeze 'embed.*|layers\.0\..*')
        dt-train "${args[@]}" --steps 4 --metrics whole.jsonl >/dev/null
        dt-train "${args[@]}" --steps 2 --save run --overwrite --metrics half.jsonl >/dev/null
        dt-train "${args[@]}" --steps 4 --save run --resume auto --metrics half.jsonl >/dev/null
        [ "$(jq '.loss // empty' whole.jsonl)" = "$(jq '.loss // empty' half.jsonl)" ]
    done
    dt-train "${args[@]}" --steps 2 --save run --overwrite >/dev/null
    mpirun -np 2 dt-train "${args[@]}" --steps 4 --layout dp2.z2 --save run --resume auto --metrics two.jsonl >/dev/null
    jq -en "($(jq -s '[.[].loss // empty][-1]' two.jsonl) - $(jq -s '[.[].loss // empty][-1]' whole.jsonl)) | fabs < 1e-3"
    run -1 dt-train "${args[@]}" --freeze 'layers\.0\..*' --steps 6 --save run --resume auto
    [[ $output == *freeze* ]]
}

@test "--freeze: invalid combinations are refused" {
    train_refused 2 "matches no parameter of 'llama'" --model llama.json --freeze 'layers'
    train_refused 2 "matches every parameter" --model llama.json --freeze '.*'
    train_refused 2 "is not a regular expression" --model llama.json --freeze '('
    train_refused 2 "parts of one matrix product" --model llama.json --freeze '.*attn\.q\.weight'
    train_refused 2 "cannot be combined with --lora" --model llama.json --freeze 'embed.*' --lora 4
    run -1 dt-memest llama-3-8b --account generic --freeze 'embed.*'
    [[ $output == *"--freeze needs --account dt"* ]]
}
rows() { # CHECKPOINT TENSOR COLUMNS FIRST: the rows of a matrix from row FIRST on, one per line
    dt-shard-ckpt cat "$2" "$1" | tr -s ' \n' '\n' | awk -v c="$3" -v f="$4" 'NF { i++; if (i > c * f) printf "%s%s", $1, i % c ? " " : "\n" }'
}

@test "resize-vocab: new rows are the mean of the others, and nothing else changes" {
    jq -n '{model_type: "qwen3", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: true}' >qwen3.json
    local model name
    for model in llama qwen3; do
        rm -rf v grown
        dt-train --model $model.json "${common[@]}" --steps 2 --save v >/dev/null
        dt-shard-ckpt resize-vocab --vocab 270 v grown
        dt-shard-ckpt verify grown
        dt-shard-ckpt diff v grown --weights --json >diff.json || true
        for name in embed.weight $([ $model = qwen3 ] || echo head.weight); do
            jq -e --arg n "model/$name" '.tensors | map(select(.equal | not).name) | index($n)' diff.json
            [ "$(rows grown model/$name 48 0 | head -261)" = "$(rows v model/$name 48 0)" ]
            [ "$(rows grown model/$name 48 261 | wc -l)" = 9 ]
            paste -d' ' <(rows v model/$name 48 0 | awk '{ for (i = 1; i <= 48; i++) s[i] += $i } END { for (i = 1; i <= 48; i++) printf "%.9g ", s[i] / NR; print "" }') \
                <(rows grown model/$name 48 261 | sort -u) | awk '{ for (i = 1; i <= 48; i++) { d = $i - $(i + 48); if (d > 1e-8 || d < -1e-8) exit 1 } exit NF != 96 }'
        done
        jq -e --arg model $model '[.tensors[] | select(.equal | not)] | length == (if $model == "qwen3" then 1 else 2 end)' diff.json
        dt-train --model grown "${common[@]}" --steps 1 --save more --overwrite >/dev/null
        dt-shard-ckpt resize-vocab --vocab 300 --to safetensors more more-hf
        jq -e '.vocab_size == 300' more-hf/config.json
        rm -rf more more-hf
    done
    run -1 dt-shard-ckpt resize-vocab --vocab 261 v no
    [[ $output == *"must be larger"* ]]
    run -1 dt-shard-ckpt resize-vocab --vocab 300 --tokenizer "$DT_SRC/tests/data/tokenizer/chat.json" v no
    [[ $output == *"the tokenizer has 617 tokens"* ]]
    run -2 dt-shard-ckpt resize-vocab v no
    [ ! -e no ]
}

@test "weights and a data set of different tokenizers: a line says so, and only then" {
    local k
    for k in a b; do
        dt-tokenize train --vocab 300 --out $k.json <(if [ $k = a ]; then cat text.txt; else tr a-y b-z <text.txt; fi)
        dt-dataset build --tokenizer $k.json --out $k.h5 text.txt
    done
    jq '.vocab_size = 300' llama.json >small.json
    rm -rf own
    dt-train "${common[@]}" --model small.json --data a.h5 --steps 1 --save own >/dev/null
    run --separate-stderr -0 dt-train "${common[@]}" --model own --data a.h5 --steps 1
    [[ $stderr == *"starts from the weights of 'own'"* ]]
    [[ $stderr != *"tokenizer"* ]]
    run --separate-stderr -0 dt-train "${common[@]}" --model own --data b.h5 --steps 1
    [[ $stderr == *"the tokenizer of the data is not that of 'own': they differ first at token "* ]]
    # other weights, no claim
    run --separate-stderr -0 dt-train "${common[@]}" --model own --init random --data b.h5 --steps 1
    [[ $stderr != *"the tokenizer of the data"* ]]
}
# SPDX-License-Identifier: Apache-2.0
