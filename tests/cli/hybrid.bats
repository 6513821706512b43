#!/usr/bin/env bats
# Models with Mamba-2 in some layers and attention in others: trained alike on every layout and after a resume,
# memory as planned, folders of transformers, and what is refused.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
    export RUN="--data d.h5 --seq 160 --microbatch 2 --global-batch 8 --lr 3e-3 --precision fp32 --progress off --threads 1 --no-mfu"
    jq -n '{vocab_size: 257, hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2,
        mamba_n_heads: 8, mamba_d_state: 12, bos_token_id: null, eos_token_id: 256}' >sizes.json
    # experts and a shared one, two groups, Granite's factors
    jq '. + {model_type: "granitemoehybrid", intermediate_size: 32, shared_intermediate_size: 48, num_local_experts: 8,
        num_experts_per_tok: 2, layer_types: ["mamba", "attention", "mamba", "mamba"], mamba_n_groups: 2,
        position_embedding_type: "nope", embedding_multiplier: 3, attention_multiplier: 0.2, residual_multiplier: 0.4,
        logits_scaling: 1.75, tie_word_embeddings: true}' sizes.json >moe.json
    # half of each attention head rotated
    jq '. + {model_type: "bamba", intermediate_size: 96, attn_layer_indices: [2]}' sizes.json >bamba.json
    # shellcheck disable=SC2086
    dt-train --model hybrid-tiny $RUN --steps 8 --save one --metrics one.jsonl 2>/dev/null
}

setup() { in_folder; }

verify() { # MODEL LAYOUTS OPTION...
    local model=$1 layouts=$2
    shift 2
    slow || layouts=$(tr , '\n' <<<"$layouts" | sed -n '1p; /^+/p' | paste -sd,)
    dt-train verify --layouts "dp1,${layouts//+/}" --model "$model" --data d.h5 --seq 160 --microbatch 1 --global-batch 4 \
        --lr 1e-3 --warmup 5 --precision fp32 --no-mfu --threads 1 --steps "$(few 4 12)" "$@" >&2
}

@test "an MLP behind each mixer: layouts agree with one rank" {
    verify hybrid-tiny tp4.s1,+dp2.z3,tp2,dp2.tp2.z2,pp3,pp2.v2,+tp2.pp2.s1,dp4.z1
}

@test "experts behind each mixer: layouts agree with one rank" {
    verify moe.json ep2.tp2.z1,+dp2.ep2.z3,tp2,pp2,+tp2.pp2,tp2.s1
}

@test "Bamba: layouts agree with one rank" {
    verify bamba.json tp2.pp2,dp2.z2,tp2.s1
}

@test "recomputation gives the same numbers" {
    for r in selective full every:2; do
        # shellcheck disable=SC2086
        dt-train --model hybrid-tiny $RUN --steps 8 --recompute "$r" --metrics "$r.jsonl" 2>/dev/null
        [ "$(tail -n 1 "$r.jsonl" | jq .loss,.grad_norm)" = "$(tail -n 1 one.jsonl | jq .loss,.grad_norm)" ]
    done
}

@test "a model learns, and a resumed run goes on as if it had not stopped" {
    jq -se '.[-1].loss < .[0].loss - 1' one.jsonl
    # shellcheck disable=SC2086
    dt-train --model hybrid-tiny $RUN --steps 8 --stop-at 3 --save two 2>/dev/null
    dt-train --resume two --metrics two.jsonl --progress off 2>/dev/null
    [ "$(tail -n 1 two.jsonl | jq .loss)" = "$(tail -n 1 one.jsonl | jq .loss)" ]
}

@test "memory is as planned, to the byte" {
    check() { # RANKS MODEL OPTION...
        mpirun -np "$1" dt-train --model "$2" --data d.h5 --seq 160 --microbatch 2 --steps 2 --threads 1 --no-mfu "${@:3}" \
            --metrics m.jsonl 2>/dev/null
        dt-memest --check m.jsonl "$2" --train --seq 160 --microbatch 2 --threads 1 "${@:3}"
    }
    check 1 hybrid-tiny --precision bf16 --recompute selective
    check 2 moe.json --precision bf16 --layout tp2.s1
    check 2 moe.json --precision fp32 --layout dp2.z3 --recompute full
    check 2 bamba.json --precision fp32 --layout pp2
}

@test "folders of transformers: written, and read to the same tensors" {
    # shellcheck disable=SC2086
    for m in moe bamba; do
        dt-train --model $m.json $RUN --steps 1 --save $m 2>/dev/null
        dt-shard-ckpt convert $m/latest hf-$m --to safetensors 2>/dev/null
        dt-shard-ckpt convert hf-$m back-$m 2>/dev/null
        dt-shard-ckpt convert back-$m again-$m --to safetensors 2>/dev/null
        cmp hf-$m/model.safetensors again-$m/model.safetensors
        dt-train $RUN --model $m/latest --init weights --steps 1 --metrics $m.jsonl 2>/dev/null
        mpirun -np 2 dt-train $RUN --model hf-$m --layout tp2 --steps 1 --metrics tp.jsonl 2>/dev/null
        jq -se --slurpfile one $m.jsonl '(last.loss - $one[0].loss) | fabs < 1e-6' tp.jsonl
    done
    [ "$(jq -c '.architectures[0], .layer_types, .mamba_n_groups, .position_embedding_type' hf-moe/config.json | xargs)" = \
        "GraniteMoeHybridForCausalLM [mamba,attention,mamba,mamba] 2 nope" ]
    [ "$(jq -c '.architectures[0], .attn_layer_indices' hf-bamba/config.json | xargs)" = "BambaForCausalLM [2]" ]
}

@test "dt-plan ranks layouts" {
    dt-plan granite-4.0-h-350m --gpus 4 --gpu cpu --gpu-mem 8GiB --json >p.json 2>/dev/null
    jq -e '.plans | length > 3' p.json
}

@test "what is not done is refused in one line" {
    refused() { # STATUS WORDS COMMAND...
        local status_wanted=$1 words=$2
        shift 2
        run --separate-stderr "$@"
        [ "$status" -eq "$status_wanted" ] || { echo "$status: $stderr" >&2; return 1; }
        [[ $stderr == *"$words"* ]] || { echo "$stderr" >&2; return 1; }
        [ "${#stderr_lines[@]}" -eq 1 ]
    }
    # shellcheck disable=SC2086
    refused 2 "'hybrid-tiny' has layers of Mamba-2, which are not trained with --lora" dt-train --model hybrid-tiny $RUN --lora 4
    # shellcheck disable=SC2086
    refused 2 "'hybrid-tiny' has layers of Mamba-2, which are not trained on GPUs" dt-train --model hybrid-tiny $RUN --device cuda
    refused 1 "which are not trained with context parallelism (cp)" dt-memest hybrid-tiny --layout cp2 --account dt
    refused 1 "layers of Mamba-2, which other accounts than dt do not know" dt-memest hybrid-tiny --account megatron
    refused 1 "'hybrid-tiny' has layers of Mamba-2 beside attention, which are not served" dt-serve one/latest --port 0
    refused 1 "writing family 'granitemoehybrid' as GGUF is not supported" dt-shard-ckpt convert --tokenizer none one/latest x.gguf
}
# SPDX-License-Identifier: Apache-2.0
