#!/usr/bin/env bats
# Benefit of a mixture of experts: a byte-level model of OLMoE's architecture with 8 experts, of which each
# token uses 2, against a dense model with the same number of active parameters (one expert of twice the
# width), on the same bytes of books for 2,000 steps.
#
# Takes about ten minutes on one core: DT_SLOW=1. Data: books/books-train.txt.xz under $DT_TEST_DATA (default
# ../shared/data beside the checkout). Measured loss on the last 64 KiB of the books: 1.591 with experts,
# 1.636 without; in the last 100 steps the rarest expert had 0.89 of an equal share of the choices.
load slow

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    text=${DT_TEST_DATA:-$DT_SRC/../shared/data}/books/books-train.txt.xz
    slow || skip "takes ten minutes: DT_SLOW=1"
    [ -r "$text" ] || skip "needs $text (set DT_TEST_DATA)"
    command -v xz >/dev/null || skip "xz is not installed"
}

shape() { # EXPERTS USED WIDTH: config.json of the model; WIDTH of one expert
    jq -n --argjson e "$1" --argjson k "$2" --argjson f "$3" '{model_type: "olmoe", vocab_size: 257, hidden_size: 96,
        intermediate_size: $f, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 4,
        max_position_embeddings: 128, num_experts: $e, num_experts_per_tok: $k, norm_topk_prob: false,
        rms_norm_eps: 1e-5, rope_theta: 10000, tie_word_embeddings: false}'
}

final() {
    jq -s 'map(.eval_loss // empty) | last' "$1"
}

@test "8 experts, 2 per token, are better than the dense model of equal active size, and all are used" {
    xz -dc "$text" | head -c 20000000 >train.txt
    xz -dc "$text" | tail -c 1000000 >eval.txt
    dt-dataset build --tokenizer byte --out train.h5 train.txt
    dt-dataset build --tokenizer byte --out eval.h5 eval.txt
    recipe=(--data train.h5 --eval-data eval.h5 --eval-every 1000 --eval-tokens 65536 --seq 128 --microbatch 8
        --global-batch 8 --lr 2e-3 --warmup 100 --steps 2000 --precision fp32 --threads 1 --no-mfu)
    shape 8 2 128 >experts.json
    shape 1 1 256 >dense.json
    dt-train --model experts.json "${recipe[@]}" --balance-loss 0.01 --router-z-loss 0.001 --metrics experts.jsonl >/dev/null
    dt-train --model dense.json "${recipe[@]}" --metrics dense.jsonl >/dev/null
    echo "experts $(final experts.jsonl), dense $(final dense.jsonl)" >&3
    jq -en --argjson a "$(final experts.jsonl)" --argjson b "$(final dense.jsonl)" '$a < $b - 0.01'
    # in the last 100 steps every expert of every layer has at least a tenth of an equal share of the choices
    jq -es 'map(select(.step > 1900) | .expert_counts // empty) | length == 100 and
        (transpose | all(.[]; transpose | map(add) | min > 0.1 * add / length))' experts.jsonl
}
# SPDX-License-Identifier: Apache-2.0
