#!/usr/bin/env bats
# Models with Mamba-2 in some layers and attention in others: trained alike on every layout and after a resume,
# memory as planned, folders of transformers, served with blocks and states, and what is refused.

bats_require_minimum_version 1.5.0
load ranks
load server

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
    # weights so large that answers vary
    jq '. + {initializer_range: 0.1, shared_intermediate_size: 64, residual_multiplier: 1, logits_scaling: 1, tie_word_embeddings: false}' moe.json >wild.json
    # half of each attention head rotated
    jq '. + {model_type: "bamba", intermediate_size: 96, attn_layer_indices: [2]}' sizes.json >bamba.json
    # shellcheck disable=SC2086
    dt-train --model hybrid-tiny $RUN --steps 8 --save one --metrics one.jsonl 2>/dev/null
    # shellcheck disable=SC2086
    dt-train --model wild.json $RUN --steps 1 --lr 0 --save wild >/dev/null 2>&1
}

setup() {
    in_folder
    server=
}

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

@test "greedy tokens are those of passes over the whole text, in fp32 and bf16" {
    for precision in fp32 bf16; do
        for prompt in "a" "The quick brown fox" "$(printf 'long %.0s' $(seq 30))"; do
            "$DT_HELP/greedy" wild/latest $precision 60 "$prompt" |
                jq -c 'map(if . < 128 then [.] | implode else . end)' >want
            jq -nc --arg p "$prompt" '{prompt: $p, max_tokens: 60, temperature: 0, logprobs: 0, ignore_eos: true}' |
                dt-serve --batch wild/latest --threads 1 --precision $precision --block-size 4 --max-num-seqs 4 \
                    --max-num-batched-tokens 7 2>/dev/null >answer
            jq -c '.logprobs.tokens | map(if startswith("bytes:") then ltrimstr("bytes:\\x") | explode |
                map(. - (if . > 96 then 87 else 48 end)) | .[0] * 16 + .[1] else . end)' answer >got
            cmp want got
            [ "$(jq 'unique | length' got)" -gt 10 ]
        done
    done
}

@test "answers have the same bits alone, together, in chunks, in few slots and blocks" {
    for i in $(seq 12); do
        jq -n --arg p "$(tail -c +$((i * 37)) text.txt | head -c $((150 + i * 11)))" \
            '{prompt: $p, max_tokens: 120, temperature: 0, ignore_eos: true, logprobs: 0}' -c
    done >asks.jsonl
    answers() {
        dt-serve --batch wild/latest --precision fp32 --threads 2 "$@" <asks.jsonl 2>err | jq -c '[.index, .text, .logprobs]'
    }
    answers --max-num-seqs 1 >alone
    [ "$(wc -l <alone)" -eq 12 ]
    answers | cmp - alone
    grep -q "of KV cache for 131072 tokens, .* of states for 64 sequences" err
    answers --max-num-seqs 4 --max-num-batched-tokens 7 | cmp - alone
    # half of the memory is for states; not even two longest sequences fit in the other half
    answers --max-model-len 410 --kv-cache-mem 360KiB | cmp - alone
    grep -q "188.0 KiB of KV cache for 752 tokens, 169.3 KiB of states for 7 sequences" err
    run dt-serve --batch wild/latest --precision fp32 --max-model-len 410 --kv-cache-mem 100KiB <asks.jsonl
    [ "$status" -eq 1 ]
    [[ $output == *"too small for one sequence of 410 tokens, which takes 128.2 KiB"* ]]
}

@test "choices of one prompt begin with copies of its states, also of a preempted one" {
    head -n 6 asks.jsonl >few.jsonl
    dt-serve --batch wild/latest --precision fp32 --threads 2 <few.jsonl 2>/dev/null | jq -c .logprobs.token_logprobs >alone
    await dt-serve wild/latest --precision fp32 --threads 2 --max-model-len 410 --max-num-seqs 6 --kv-cache-mem 420KiB --port 0
    local asks=()
    for i in $(seq 6); do
        sed -n "${i}p" few.jsonl | jq -c '. + {n: 2}' |
            curl -sf "$url/v1/completions" -H 'content-type: application/json' -d @- >"two-$i" &
        asks+=($!)
    done
    wait "${asks[@]}"
    curl -sf "$url/metrics" >metrics.txt
    for i in $(seq 6); do
        [ "$(jq '.choices | length' "two-$i")" -eq 2 ]
        [ "$(jq -c '.choices[].logprobs.token_logprobs' "two-$i" | sort -u)" = "$(sed -n "${i}p" alone)" ]
    done
    awk '/^dt_serve_num_preemptions_total/ { n = $2 } END { exit !(n > 0) }' metrics.txt
}

@test "weights in blocks, and keys and values in int8" {
    jq -r .prompt asks.jsonl >asked.txt
    nll() { dt-eval ppl wild/latest --text asked.txt --seq 160 --precision fp32 --json "$@" | jq .nll; }
    jq -en --argjson a "$(nll)" --argjson b "$(nll --weights q8_0)" '$a != $b and ($a - $b | fabs) < 0.05 * $a' >&2
    answers() { head -n 3 asks.jsonl | dt-serve --batch wild/latest --precision fp32 --threads 1 --kv-cache-dtype int8 "$@" 2>err | jq -c '[.index, .text, .logprobs]'; }
    answers --max-num-seqs 1 >alone-int8
    [ "$(wc -l <alone-int8)" -eq 3 ]
    answers --max-num-seqs 3 --max-num-batched-tokens 7 | cmp - alone-int8
}

@test "a server's perplexity is the loss of evaluation in training, and its memory as estimated" {
    head -c 3201 text.txt >held.txt
    dt-dataset build --tokenizer byte --out held.h5 held.txt
    # shellcheck disable=SC2086
    dt-train $RUN --model one/latest --init weights --steps 1 --lr 0 --eval-data held.h5 --eval-tokens 3200 --metrics held.jsonl 2>/dev/null
    dt-eval ppl one/latest --text held.txt --seq 160 --precision fp32 --json >ppl.json
    jq -se --slurpfile p ppl.json '(last.eval_loss - $p[0].nll) | fabs < 2e-3' held.jsonl >&2
    await dt-serve one/latest --precision fp32 --threads 1 --max-model-len 200 --max-num-seqs 3 --port 0
    curl -sf "$url/metrics" >metrics.txt
    dt-memest one/latest --serve --precision fp32 --threads 1 --max-len 200 --max-seqs 3 --max-tokens 512 --check metrics.txt
}

@test "dt-plan ranks layouts" {
    dt-plan granite-4.0-h-350m --gpus 4 --gpu cpu --gpu-mem 8GiB --json >p.json 2>/dev/null
    jq -e '.plans | length > 3' p.json
}

@test "what is not done is refused in one line" {
    # shellcheck disable=SC2086
    dt-train --model llama-tiny $RUN --seq 128 --steps 1 --save plain >/dev/null 2>&1
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
    refused 1 "which are not trained with context parallelism (cp)" dt-memest hybrid-tiny --layout cp2 --account dt
    refused 1 "layers of Mamba-2, which other accounts than dt do not know" dt-memest hybrid-tiny --account megatron
    refused 1 "which are not served over several ranks" dt-memest one/latest --serve --layout tp2
    refused 1 "which are not served with adapters" dt-memest one/latest --serve --max-loras 2
    refused 1 "servers of it are not planned" dt-plan hybrid-tiny --serve --gpu cpu
    refused 1 "which are not served with drafts" dt-serve one/latest --port 0 --speculate 2
    refused 1 "'one/latest' has layers of Mamba-2, which cannot draft" dt-serve plain/latest --port 0 --draft-model one/latest
    refused 1 "which are not served with --kv-host and --kv-disk" dt-serve one/latest --port 0 --kv-host 1MiB
    refused 1 "which are not served with adapters" dt-serve one/latest --port 0 --lora a=one/latest
    refused 1 "which are not served with --role" dt-serve one/latest --port 0 --role prefill
    run --separate-stderr mpirun -np 2 dt-serve one/latest --port 0
    [ "$status" -ne 0 ]
    [[ $stderr == *"'hybrid-tiny' has layers of Mamba-2, which are not served over several ranks"* ]]
    refused 1 "writing family 'granitemoehybrid' as GGUF is not supported" dt-shard-ckpt convert --tokenizer none one/latest x.gguf
}
# SPDX-License-Identifier: Apache-2.0
