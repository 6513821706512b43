#!/usr/bin/env bats
# nanoGPT's recipe for characters, end to end: tinyshakespeare, 4 layers, 4 heads, hidden size 128, context
# 64, batch 12, AdamW (0.9, 0.99), learning rate 1e-3 to 1e-4. The loss on held-out text is compared with a
# published one.
#
# bench/train/peer_nanochar.py trains the same in PyTorch: 1.894 over the whole held-out text, 1.905 with
# nanoGPT's own random windows and no biases (PyTorch 2.15, seed 0). The published figure is an estimate from
# 20 batches.
#
# By default a short run; the whole recipe, 2000 steps or about a minute and a half on one core, needs
# DT_SLOW=1. Data: tinyshakespeare/input.txt under $DT_TEST_DATA (default ../shared/data beside the checkout).
load slow

setup_file() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    PATH=$DT_BIN:$PATH
    text=${DT_TEST_DATA:-$DT_SRC/../shared/data}/tinyshakespeare/input.txt
    cd "$BATS_FILE_TMPDIR" || return 1
    [ -r "$text" ] || echo "needs $text (set DT_TEST_DATA)" >missing
    for tool in dt-tokenize dt-dataset dt-train; do
        [ -x "$DT_BIN/$tool" ] || echo "needs $tool" >missing
    done
    [ ! -e missing ] || return 0 # setup skips the test with this reason
    dt-tokenize train --chars --out chars.json "$text"
    dt-dataset build --tokenizer chars.json --split 10 --out train.h5 --out-eval eval.h5 "$text"
    jq -n --argjson vocab "$(dt-dataset info --json train.h5 | jq .vocab)" '{model_type: "gpt2", n_layer: 4, n_head: 4,
        n_embd: 128, n_positions: 64, vocab_size: $vocab, activation_function: "gelu_new", layer_norm_epsilon: 1e-5,
        tie_word_embeddings: true}' >config.json
}

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    [ ! -e missing ] || skip "$(cat missing)"
    recipe=(--model config.json --data train.h5 --eval-data eval.h5 --seq 64 --microbatch 12 --optimizer adamw
        --lr 1e-3 --min-lr 1e-4 --schedule cosine --warmup 100 --beta1 0.9 --beta2 0.99 --weight-decay 0.1 --clip 1
        --precision fp32 --threads 1 --no-mfu --metrics -)
}

final_eval() {
    jq -s 'map(select(.eval_loss != null)) | .[-1].eval_loss' "$1"
}

between() { # NAME VALUE LOW HIGH
    echo "$1: $2, expected between $3 and $4" >&2
    jq -en "$2 > $3 and $2 < $4" >/dev/null
}

@test "the data are nanoGPT's: 65 characters, the first 90% for training and the last 10% for validation" {
    [ "$(dt-dataset info --json train.h5 | jq -c '[.vocab, .tokens]')" = "[65,1003854]" ]
    [ "$(dt-dataset info --json eval.h5 | jq -c '[.vocab, .tokens]')" = "[65,111540]" ]
    [ "$(dt-dataset cat --first 0 --count 14 train.h5)" = "First Citizen:" ]
}

@test "250 steps: starts at the entropy of 65 characters, beats a bigram model on held-out text" {
    dt-train "${recipe[@]}" --steps 250 --eval-tokens 20000 >short.jsonl
    # ln 65 = 4.174: the loss of small random weights
    between "first loss" "$(jq -s '.[0].loss' short.jsonl)" 4.0 4.4
    # the best bigram model has a loss of 2.48 on this text
    between "evaluation loss" "$(final_eval short.jsonl)" 2.0 2.48
}

@test "2000 steps: PyTorch's loss with nanoGPT's learning rate, below the published 1.88 with a better one" {
    slow || skip "the whole recipe takes minutes: set DT_SLOW=1"
    dt-train "${recipe[@]}" --steps 2000 >whole.jsonl
    between "evaluation loss at 1e-3" "$(final_eval whole.jsonl)" 1.80 1.94
    dt-train "${recipe[@]}" --lr 3e-3 --min-lr 3e-4 --steps 2000 >better.jsonl
    between "evaluation loss at 3e-3" "$(final_eval better.jsonl)" 1.60 1.88
}
# SPDX-License-Identifier: Apache-2.0
