#!/usr/bin/env bats
# Mamba-2: trained alike on every layout and after a resume, documents apart, memory as planned, folders of
# transformers, and what is refused.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
    export RUN="--data d.h5 --seq 160 --microbatch 2 --global-batch 8 --lr 3e-3 --precision fp32 --progress off --threads 1 --no-mfu"
    export MODEL="--model mamba2-tiny"
    # two groups, which tp cuts, each with a norm of its own; other sizes than the preset's
    jq -n '{model_type: "mamba2", vocab_size: 261, hidden_size: 48, num_hidden_layers: 3, num_heads: 8, head_dim: 12, expand: 2,
        n_groups: 2, state_size: 10, conv_kernel: 3}' >groups.json
    # shellcheck disable=SC2086
    dt-train $MODEL $RUN --steps 8 --save one --metrics one.jsonl 2>/dev/null
}

setup() { in_folder; }

verify() { # MODEL LAYOUTS OPTION...
    local model=$1 layouts=$2
    shift 2
    slow || layouts=$(tr , '\n' <<<"$layouts" | sed -n '1p; /^+/p' | paste -sd,)
    dt-train verify --layouts "dp1,${layouts//+/}" --model "$model" --data d.h5 --seq 160 --microbatch 1 --global-batch 4 \
        --lr 1e-3 --warmup 5 --precision fp32 --no-mfu --threads 1 --steps "$(few 4 12)" "$@" >&2
}

@test "one group, which ranks share: layouts agree with one rank" {
    verify mamba2-tiny tp4.s1,+dp2.z3,tp2,dp2.tp2.z2,pp3,+tp2.pp2.s1
}

@test "groups that ranks divide: layouts agree with one rank" {
    verify groups.json dp2.tp2.s1,tp2,pp2.v1,dp4.z1
}

@test "recomputation gives the same numbers" {
    for r in selective full every:2 auto:4MiB; do
        # shellcheck disable=SC2086
        dt-train $MODEL $RUN --steps 8 --recompute "$r" --metrics "$r.jsonl" 2>/dev/null
        [ "$(tail -n 1 "$r.jsonl" | jq .loss,.grad_norm)" = "$(tail -n 1 one.jsonl | jq .loss,.grad_norm)" ]
    done
}

@test "a model learns, and a resumed run goes on as if it had not stopped" {
    jq -se '.[-1].loss < .[0].loss - 1' one.jsonl
    # shellcheck disable=SC2086
    dt-train $MODEL $RUN --steps 8 --stop-at 3 --save two 2>/dev/null
    dt-train --resume two --metrics two.jsonl --progress off 2>/dev/null
    [ "$(tail -n 1 two.jsonl | jq .loss)" = "$(tail -n 1 one.jsonl | jq .loss)" ]
}

@test "memory is as planned, to the byte" {
    check() { # RANKS OPTION...
        mpirun -np "$1" dt-train $MODEL --data d.h5 --seq 160 --microbatch 2 --steps 2 --threads 1 --no-mfu "${@:2}" \
            --metrics m.jsonl 2>/dev/null
        dt-memest --check m.jsonl mamba2-tiny --train --seq 160 --microbatch 2 --threads 1 "${@:2}"
    }
    check 1 --precision fp32
    check 1 --precision bf16 --recompute selective
    check 2 --precision bf16 --layout tp2.s1
    check 2 --precision fp32 --layout dp2.z3
}

@test "documents of a packed sample do not influence one another" {
    # the same three documents, in two orders: the mean loss over all their targets is the same
    printf '%s\n' "the first of three documents" "another one, which is second" "and the third of them all" >abc.txt
    printf '%s\n' "and the third of them all" "another one, which is second" "the first of three documents" >cba.txt
    for f in abc cba; do
        cat "$f.txt" <(echo end) >"$f-end.txt"
        dt-dataset build --separator $'\n' --pack documents -o "$f.h5" "$f-end.txt" >/dev/null
        for d in apart joined; do
            # shellcheck disable=SC2086
            dt-train $MODEL --data "$f.h5" --seq 84 --microbatch 1 --precision fp32 --threads 1 --no-mfu --steps 1 --warmup 0 \
                --documents $d --metrics "$f-$d.jsonl" >/dev/null 2>&1
        done
    done
    same() { jq -en --slurpfile a "abc-$1.jsonl" --slurpfile b "cba-$1.jsonl" "(\$a[0].loss - \$b[0].loss) | fabs $2" >&2; }
    same apart '< 2e-6'
    same joined '> 1e-5'
}

@test "folders of transformers: written, and read to the same tensors" {
    dt-shard-ckpt convert one/latest hf --to safetensors 2>/dev/null
    [ "$(jq -r '.architectures[0], .model_type, .num_heads, .expand' hf/config.json | xargs)" = "Mamba2ForCausalLM mamba2 8 2" ]
    dt-shard-ckpt convert hf back 2>/dev/null
    dt-shard-ckpt convert back hf2 --to safetensors 2>/dev/null
    cmp hf/model.safetensors hf2/model.safetensors
    # as older versions write them
    jq '.time_step_limit = [0, "Infinity"]' hf/config.json | sed 's/"Infinity"/Infinity/' >c.json
    mv c.json hf/config.json
    # shellcheck disable=SC2086
    dt-train $RUN --model hf --steps 1 --metrics from.jsonl 2>/dev/null
    jq -se --slurpfile one one.jsonl 'last.loss < $one[0].loss - 1' from.jsonl
    # shellcheck disable=SC2086
    mpirun -np 2 dt-train $RUN --model hf --layout tp2 --steps 1 --metrics tp.jsonl 2>/dev/null
    jq -se --slurpfile one from.jsonl '(last.loss - $one[0].loss) | fabs < 1e-5' tp.jsonl
}

@test "served answers are the same alone, together, in chunks and in few slots" {
    for p in "the" "Licensor" "$(head -c 300 text.txt)" "a b c d e"; do
        jq -n --arg p "$p" '{prompt: $p, max_tokens: 40, temperature: 0, ignore_eos: true}' -c
    done >asks.jsonl
    answers() { dt-serve --batch one/latest --precision fp32 --threads 2 "$@" 2>"$BATS_TEST_TMPDIR/err" | jq -c '[.index, .text]'; }
    answers <asks.jsonl >together
    grep -q "of states for 64 sequences" "$BATS_TEST_TMPDIR/err"
    [ "$(wc -l <together)" -eq 4 ]
    answers --max-num-seqs 1 <asks.jsonl | cmp - together
    answers --max-num-seqs 4 --max-num-batched-tokens 7 <asks.jsonl | cmp - together
    answers --max-model-len 400 --kv-cache-mem 64KiB <asks.jsonl | cmp - together # slots for one or two of them
}

@test "a server's perplexity is the loss of evaluation in training, and its memory as estimated" {
    head -c 3201 text.txt >held.txt
    dt-dataset build --tokenizer byte --out held.h5 held.txt
    # shellcheck disable=SC2086
    dt-train $RUN --model one/latest --init weights --steps 1 --lr 0 --eval-data held.h5 --eval-tokens 3200 --metrics held.jsonl 2>/dev/null
    dt-eval ppl one/latest --text held.txt --seq 160 --precision fp32 --json >ppl.json
    jq -se --slurpfile p ppl.json '(last.eval_loss - $p[0].nll) | fabs < 2e-3' held.jsonl >&2
    dt-serve one/latest --precision fp32 --threads 1 --max-model-len 200 --max-num-seqs 3 --port 0 >url 2>/dev/null &
    local server=$!
    for _ in $(seq 100); do [ -s url ] && break; sleep 0.1; done
    curl -sf "$(head -n 1 url)/metrics" >metrics.txt
    kill "$server"
    wait "$server" || true
    dt-memest one/latest --serve --precision fp32 --threads 1 --max-len 200 --max-seqs 3 --max-tokens 512 --check metrics.txt
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
    refused 2 "'mamba2-tiny' has layers of Mamba-2, which are not trained with --lora" dt-train $MODEL $RUN --lora 4
    # shellcheck disable=SC2086
    refused 1 "which are not trained with context parallelism (cp)" dt-memest mamba2-tiny --layout cp2 --account dt
    refused 1 "layers of Mamba-2, which other accounts than dt do not know" dt-memest mamba2-tiny --account megatron
    refused 1 "layers of Mamba-2, which other accounts than dt do not know" dt-memest mamba2-tiny --serve --account generic
    refused 1 "servers of it are not planned" dt-plan mamba2-tiny --serve --gpu cpu
    refused 1 "which are not served with drafts" dt-serve one/latest --port 0 --speculate 2
    refused 1 "which are not served with drafts" dt-serve one/latest --port 0 --draft-model one/latest
    refused 1 "which are not served with --kv-host and --kv-disk" dt-serve one/latest --port 0 --kv-host 1MiB
    refused 1 "which are not served with adapters" dt-serve one/latest --port 0 --lora a=one/latest
    refused 1 "which are not served with --role" dt-serve one/latest --port 0 --role prefill
    refused 1 "writing family 'mamba2' as GGUF is not supported" dt-shard-ckpt convert --tokenizer none one/latest x.gguf
    refused 1 "exporting 'ssm_conv' to ONNX is not supported" dt-shard-ckpt export one/latest x.onnx
    run --separate-stderr mpirun -np 4 dt-train --model groups.json --data d.h5 --seq 160 --layout tp4 --steps 1
    [ "$status" -eq 2 ]
    [[ $stderr == *"tp4 does not divide the 8 heads and 2 groups of the Mamba-2 of 'groups'"* ]]
}
# SPDX-License-Identifier: Apache-2.0
