#!/usr/bin/env bats
# Document masking in a packed sample: no document influences another, and the loss equals that of each
# document alone.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 3,
        num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: false}' >llama.json
    jq -n '{model_type: "gpt2", vocab_size: 263, n_embd: 48, n_layer: 3, n_head: 4, n_positions: 64}' >gpt2.json
    jq '.model_type = "mistral" | .sliding_window = 7' llama.json >window.json
}

setup() {
    in_folder
    common=(--lr 1e-3 --warmup 0 --precision fp32 --no-mfu --threads 1 --steps 1 --comm-timeout 120)
}

# NAME DOCUMENT...: a data set of these texts, one document each; the last one only ends the last sample
build() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$name.txt"
    dt-dataset build --separator $'\n' --pack documents -o "$name.h5" "$name.txt" >/dev/null
}

first_loss() { # DATA RANKS OPTION...: loss of the first step
    local data=$1 ranks=$2
    shift 2
    mpirun -np "$ranks" dt-train --data "$data" "${common[@]}" "$@" --metrics m.jsonl >/dev/null
    jq -s 'map(select(.loss)) | .[0].loss' m.jsonl
}

close() { # A B TOLERANCE
    jq -en "(($1) - ($2)) | fabs < $3" >/dev/null || { echo "$1 and $2 differ by more than $3" >&2; return 1; }
}

apart() { # A B TOLERANCE
    jq -en "(($1) - ($2)) | fabs > $3" >/dev/null || { echo "$1 and $2 are within $3" >&2; return 1; }
}

# The losses of masked documents add up: the difference that a change of document 1 makes in the sum does not
# depend on document 2.
probe() { # RANKS OPTION...: sets $first and $second, that difference with two versions of document 2
    local ranks=$1 ac bc ad bd
    shift
    ac=$(first_loss ac.h5 "$ranks" --seq 48 --microbatch 1 --global-batch 1 "$@")
    bc=$(first_loss bc.h5 "$ranks" --seq 48 --microbatch 1 --global-batch 1 "$@")
    ad=$(first_loss ad.h5 "$ranks" --seq 48 --microbatch 1 --global-batch 1 "$@")
    bd=$(first_loss bd.h5 "$ranks" --seq 48 --microbatch 1 --global-batch 1 "$@")
    first=$(jq -n "($ac) - ($bc)") second=$(jq -n "($ad) - ($bd)")
    apart "$first" 0 1e-5 # the change has an effect
}

documents() { # a and b differ in one token of document 1; c and d are two versions of document 2
    build ac 'the quick brown fox jump' 'over lazy dogs sleeping' 'x'
    build bc 'the quick brown fox jZmp' 'over lazy dogs sleeping' 'x'
    build ad 'the quick brown fox jump' 'XYZW QRST ABCD 12345678' 'x'
    build bd 'the quick brown fox jZmp' 'XYZW QRST ABCD 12345678' 'x'
}

@test "a data set records where documents begin, in one file and in several shards" {
    build ac 'the quick' 'over lazy dogs' 'x'
    run -0 dt-dataset info ac.h5
    [[ "$output" == *"3, kept apart"* ]]
    [ "$(dt-dataset info --json ac.h5 | jq -r .pack)" = documents ]
    [[ "$(h5dump -d document_starts ac.h5)" == *"(0): 0, 10, 25"* ]]
    dt-dataset build --separator $'\n' --pack documents --shards 3 -o s.h5 ac.txt
    [[ "$(h5dump -d document_starts s.h5)" == *"(0): 0, 10, 25"* ]]
    dt-dataset build --separator $'\n' -o stream.h5 ac.txt
    [ "$(dt-dataset info --json stream.h5 | jq -r .pack)" = stream ]
    run -1 dt-train --data stream.h5 --model llama.json --documents apart --seq 8 "${common[@]}"
    [[ "$output" == *"does not say where documents begin"* ]]
}

@test "a token of document 1 changes nothing in document 2" {
    documents
    local model
    for model in llama.json gpt2.json window.json; do
        probe 1 --model $model
        close "$first" "$second" 3e-7
        probe 1 --model $model --documents joined # without masking the probe detects an influence
        apart "$first" "$second" 3e-6
    done
}

@test "a token of document 1 changes nothing in document 2, cut over cp 2 and 4" {
    takes_long
    documents
    local run
    one_of 2 "4 ring" "2 ring" "2 gather" "4 gather" "4 ulysses" "2 ulysses"
    for run in "${some[@]}"; do
        probe "${run% *}" --model llama.json --layout "cp${run% *}" --cp-comm "${run#* }"
        close "$first" "$second" 3e-7
    done
    probe 2 --model llama.json --layout cp2 --documents joined
    apart "$first" "$second" 3e-6
}

@test "packed, loss and gradient are the sums of those of each document alone" {
    build four 'abcdefg' 'hijklmn' 'opqrstu' 'vwxyz01' 'x'
    local model packed alone norm
    for model in llama.json gpt2.json window.json; do
        packed=$(first_loss four.h5 1 --model $model --seq 32 --microbatch 1 --global-batch 1)
        norm=$(jq -s 'map(select(.loss)) | .[0].grad_norm' m.jsonl)
        alone=$(first_loss four.h5 1 --model $model --seq 8 --microbatch 2 --global-batch 4)
        close "$packed" "$alone" 1e-6
        close "$norm" "$(jq -s 'map(select(.loss)) | .[0].grad_norm' m.jsonl)" 1e-5
        close "$(first_loss four.h5 2 --model $model --seq 8 --microbatch 1 --global-batch 4)" "$alone" 1e-6
        close "$(first_loss four.h5 2 --model $model --seq 32 --microbatch 1 --global-batch 2 --layout pp2)" "$alone" 1e-6
        apart "$(first_loss four.h5 1 --model $model --seq 32 --microbatch 1 --global-batch 1 --documents joined)" "$alone" 1e-5
    done
}

@test "evaluation counts only valid targets; the memory plan with document masks is exact" {
    build four 'abcdefg' 'hijklmn' 'opqrstu' 'vwxyz01' 'x'
    dt-train --model llama.json --data four.h5 --eval-data four.h5 --seq 32 --microbatch 1 --global-batch 1 "${common[@]}" --metrics e.jsonl
    [ "$(jq -s 'map(select(.eval_loss)) | .[0].eval_tokens' e.jsonl)" = 28 ]
    dt-memest llama.json --train --precision fp32 --optimizer adamw --seq 32 --microbatch 1 --documents apart --check e.jsonl
}
# SPDX-License-Identifier: Apache-2.0
