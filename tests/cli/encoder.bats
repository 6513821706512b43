#!/usr/bin/env bats
# Encoders: trained on masked tokens, alike on every layout and after a resume; files of transformers.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    export RUN="--data d.h5 --seq 64 --microbatch 2 --global-batch 8 --lr 3e-3 --precision fp32 --progress off --threads 1 --no-mfu"
    export MODEL="--model bert-tiny"
    # shellcheck disable=SC2086
    dt-train $MODEL $RUN --steps 8 --save one --metrics one.jsonl 2>/dev/null
}

setup() { in_folder; }

# The loss and the gradient norm of the last step of a file of metrics, near those of one rank.
like_one() { # FILE
    jq -se --slurpfile one <(tail -n 1 one.jsonl) 'last as $a | $one[0] as $b |
        (($a.loss - $b.loss) | fabs) < 1e-5 * $b.loss and (($a.grad_norm - $b.grad_norm) | fabs) < 1e-4 * $b.grad_norm' "$1"
}

@test "every layout trains the same encoder" {
    for l in "2 tp2.s1" "4 dp2.tp2.z2" "4 tp4" "2 dp2.z3"; do
        # shellcheck disable=SC2086
        set -- $l
        # shellcheck disable=SC2086
        mpirun -np "$1" dt-train $MODEL $RUN --steps 8 --layout "$2" --metrics "$2.jsonl" 2>/dev/null
        like_one "$2.jsonl"
    done
    for r in selective full every:2; do
        # shellcheck disable=SC2086
        dt-train $MODEL $RUN --steps 8 --recompute "$r" --metrics "$r.jsonl" 2>/dev/null
        like_one "$r.jsonl"
    done
}

@test "a resumed run masks the same tokens" {
    # shellcheck disable=SC2086
    dt-train $MODEL $RUN --steps 8 --stop-at 3 --save two 2>/dev/null
    dt-train --resume two --metrics two.jsonl --progress off 2>/dev/null
    [ "$(tail -n 1 two.jsonl | jq .loss)" = "$(tail -n 1 one.jsonl | jq .loss)" ]
}

@test "15 % of each sample are targets, and the memory is as planned" {
    # shellcheck disable=SC2086
    dt-train $MODEL $RUN --steps 1 --eval-data d.h5 --eval-tokens 256 --metrics eval.jsonl 2>/dev/null
    [ "$(jq -s last.eval_tokens eval.jsonl)" = 40 ] # 4 samples, round(0.15 x 64) targets each
    jq -se 'last.eval_loss | . > 5 and . < 7' eval.jsonl
    dt-memest --check one.jsonl bert-tiny --train --seq 64 --microbatch 2 --precision fp32 --threads 1
    # so it is with another share
    # shellcheck disable=SC2086
    dt-train $MODEL $RUN --steps 1 --mask-share 40% --metrics more.jsonl 2>/dev/null
    dt-memest --check more.jsonl bert-tiny --train --seq 64 --microbatch 2 --precision fp32 --threads 1 --mask-share 40%
    run dt-memest --check more.jsonl bert-tiny --train --seq 64 --microbatch 2 --precision fp32 --threads 1
    [ "$status" -eq 3 ]
    [[ "$output" == *"largest difference: scratch"* ]]
    run dt-memest gpt2-tiny --train --seq 64 --mask-share 40%
    [ "$status" -ne 0 ]
    [[ "$output" == *"--mask-share is for encoders, which 'gpt2-tiny' is not"* ]]
    [[ "$(dt-plan bert-base-uncased --gpus 1 --gpu H100 --seq 512 --mask-share 40% --emit args)" == *"--mask-share 0.4"* ]]
    run dt-plan gpt2-tiny --gpus 1 --mask-share 40%
    [[ "$output" == *"--mask-share is for encoders, which 'gpt2-tiny' is not"* ]]
    # MFU counts the head for 10 and 26 masked tokens of 64, forward and twice backward; 258 tokens, width 64
    for share in "15% 10" "40% 26"; do
        dt-train --model bert-tiny --seq 64 --microbatch 2 --mask-share "${share% *}" --print-program --json |
            jq -e --argjson n "${share#* }" '[.nodes[] | select(.op == "loss").model_flops] == [3 * 2 * (2 * $n) * 258 * 64]'
    done
}

@test "transformers' folders: written, and read to the same tensors" {
    dt-shard-ckpt convert one/latest hf --to safetensors 2>/dev/null
    [ "$(jq -r '.architectures[0], .model_type, .max_position_embeddings' hf/config.json | xargs)" = "BertForMaskedLM bert 128" ]
    dt-shard-ckpt convert hf back 2>/dev/null
    dt-shard-ckpt convert back hf2 --to safetensors
    cmp hf/model.safetensors hf2/model.safetensors
    # shellcheck disable=SC2086
    dt-train $RUN --model hf --mask-token 257 --steps 1 --metrics from.jsonl 2>/dev/null
    jq -se --slurpfile one one.jsonl 'last.loss < $one[0].loss - 1' from.jsonl
    run dt-train --model hf --data d.h5 --seq 64 --steps 1
    [ "$status" -eq 2 ] || [ "$status" -eq 1 ]
    [[ "$output" == *"which token takes the place of those to be predicted"*"--mask-token ID"* ]]
}

@test "the mask token is that of the tokenizer beside the weights, else of the data's" {
    train() { # MODEL DATA
        # shellcheck disable=SC2086
        dt-train --model "$1" $RUN --data "$2" --steps 1 --metrics m.jsonl 2>/dev/null
    }
    dt-dataset build --tokenizer "$DT_SRC/tests/data/tokenizer/wp-uncased.json" --out words.h5 text.txt
    dt-train --model bert-tiny --vocab 701 --data words.h5 --seq 64 --microbatch 2 \
        --steps 1 --precision fp32 --threads 1 --no-mfu --progress off --metrics m.jsonl --save words 2>/dev/null
    jq -e '.run.model.mask_token == 4' m.jsonl
    dt-shard-ckpt convert words/latest wordhf --to safetensors 2>/dev/null
    dt-shard-ckpt convert one/latest hf3 --to safetensors 2>/dev/null
    cp wordhf/tokenizer.json hf3 # weights for bytes, whose data names no such token
    train hf3 d.h5
    jq -e '.run.model.mask_token == 4' m.jsonl
    train wordhf words.h5
    jq -e '.run.model.mask_token == 4' m.jsonl
}

@test "what an encoder cannot do is refused in one line" {
    refused() { # WORDS OPTION...
        local words=$1
        shift
        # shellcheck disable=SC2086
        # shellcheck disable=SC2086
        run mpirun -np 2 dt-train $MODEL $RUN --steps 1 "$@"
        [ "$status" -ne 0 ]
        [[ "$output" == *"'bert-tiny' is an encoder, which cannot be trained with $words"* ]]
    }
    refused "a pipeline (pp)" --layout pp2
    refused "context parallelism (cp)" --layout cp2
    refused "--documents apart" --documents apart
    run dt-train --model bge-small-en-v1.5 --data d.h5 --seq 64 --steps 1
    [[ "$output" == *"has no head that predicts masked tokens"* ]]
    run dt-train --model gpt2-tiny --data d.h5 --seq 64 --steps 1 --mask-share 10%
    [[ "$output" == *"--mask-share is for encoders, which 'gpt2-tiny' is not"* ]]
    run dt-eval ppl one/latest --text text.txt
    [ "$status" -ne 0 ]
    [[ "$output" == *"is an encoder: it predicts no next token"* ]]
}
# SPDX-License-Identifier: Apache-2.0
