#!/usr/bin/env bats
# Preference losses (DPO and others): the reference, the gradient, layouts, and resumed runs.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    jq -n '{model_type: "llama", vocab_size: 617, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 512, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: false}' >llama.json
    printf '%s\n' '{"prompt": "What is 2+2?", "chosen": "4", "rejected": "five, I think"}' \
        '{"chosen": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there"}], "rejected": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Go away."}]}' \
        '{"prompt": [{"role": "user", "content": "Sing"}], "chosen": [{"role": "assistant", "content": "la la"}], "rejected": [{"role": "assistant", "content": "no"}]}' \
        '{"prompt": "A colour?", "chosen": "red", "rejected": "Monday, or Tuesday"}' >p.jsonl
    pack 160 p.h5 <p.jsonl
}

pack() { # SEQ OUT: packs the preferences on standard input
    dt-dataset chat -t "$DT_SRC/tests/data/tokenizer/chat.json" --chat-template chatml --preferences --seq "$1" --json -o "$2" - >"$2.json"
}

setup() {
    in_folder
    common=(--model llama.json --data p.h5 --seq 160 --microbatch 1 --precision fp32 --no-mfu --threads 1
        --comm-timeout 120 --warmup 0 --schedule constant --metrics m.jsonl)
    plain=(--optimizer sgd --weight-decay 0 --clip 0)
}

train() { # RANKS OPTION...
    local ranks=$1
    shift
    mpirun -np "$ranks" dt-train "${common[@]}" "$@" >/dev/null </dev/null
}

line() { # NUMBER KEY: value in the NUMBERth step
    jq -s "map(select(.loss)) | .[$1].$2" m.jsonl
}

close() { # A B TOLERANCE
    jq -en "(($1) - ($2)) | fabs < $3" >/dev/null || { echo "$1 and $2 differ by more than $3" >&2; return 1; }
}

@test "a pair's two answers lie side by side, and both are targets" {
    [ "$(jq -c '[.train.examples, .train.samples]' p.h5.json)" = '[4,2]' ]
    dt-dataset info --json p.h5 | jq -e '.preferences and .documents == 8'
    [[ "$(h5dump -d document_kinds p.h5)" == *"(0): 1, 2, 1, 2, "* ]]
    local line
    for line in '{"prompt": "x", "chosen": "a"}' '{"prompt": "x", "chosen": "a", "rejected": "a"}' \
        '{"chosen": [{"role": "user", "content": "x"}], "rejected": [{"role": "user", "content": "y"}]}' '{"prompt": "x", "completion": "a"}'; do
        run -1 pack 64 bad.h5 <<<"$line"
        [[ "$output" == *"standard input:1"* ]]
    done
}

@test "the first loss of dpo is ln 2, with adapters and with saved reference log-probabilities" {
    train 1 --objective dpo --reference ref.h5 --steps 1 --global-batch 2
    close "$(line 0 loss)" '(2 | log)' 1e-9
    [ "$(line 0 pairs)" = 4 ]
    train 1 --objective dpo --lora 4 --steps 1 --global-batch 2
    close "$(line 0 loss)" '(2 | log)' 1e-9
    close "$(line 0 rewards_margin)" 0 1e-9
}

@test "a step along the gradient lowers each loss by what the gradient predicts" {
    local o lr
    for o in 'dpo --reference r.h5' 'ipo --reference r.h5 --beta 1' 'hinge --reference r.h5' simpo orpo 'dpo --lora 4'; do
        [[ $o == *lora* ]] && lr=1e-2 || lr=1e-4 # only B has a gradient at first, a small one
        # shellcheck disable=SC2086 # words
        train 1 "${plain[@]}" --objective $o --steps 3 --global-batch 2 --lr $lr
        for i in 0 1; do
            close "($(line $((i + 1)) loss) - $(line $i loss)) / ($lr * $(line $i grad_norm) * $(line $i grad_norm))" -1 0.02
        done
    done
}

@test "the loss does not depend on layout, microbatch and packing" {
    local how
    train 1 --objective orpo --steps 3 --global-batch 2 --lr 1e-2
    local loss norm
    loss=$(line 2 loss) norm=$(line 2 grad_norm)
    for how in '1 --microbatch 2' '2 --layout dp2' '2 --layout tp2' '2 --layout dp2.z3'; do
        # shellcheck disable=SC2086 # words
        train $how --objective orpo --steps 3 --global-batch 2 --lr 1e-2
        close "$(line 2 loss)" "$loss" 1e-5
        close "$(line 2 grad_norm)" "$norm" 1e-4
    done
    for how in '1' '2 --layout dp2' '2 --layout tp2'; do
        # shellcheck disable=SC2086 # words
        train $how --objective dpo --lora 4 --steps 3 --global-batch 2 --lr 1e-2
        [ "$how" != 1 ] || loss=$(line 2 loss)
        close "$(line 2 loss)" "$loss" 1e-5
        # shellcheck disable=SC2086 # words
        train $how --objective dpo --reference r.h5 --steps 3 --global-batch 2 --lr 1e-2
        [ "$how" != 1 ] || norm=$(line 2 loss)
        close "$(line 2 loss)" "$norm" 1e-5
    done
    # the microbatch that --check-replicas computes in addition is not counted
    local what='.pairs, .logps_chosen, .rewards_margin, .loss'
    train 2 --objective dpo --lora 4 --layout dp2 --steps 2 --global-batch 2 --lr 1e-2
    jq -s "map(select(.loss) | $what)" m.jsonl >unchecked
    train 2 --objective dpo --lora 4 --layout dp2 --steps 2 --global-batch 2 --lr 1e-2 --check-replicas 1
    diff unchecked <(jq -s "map(select(.loss) | $what)" m.jsonl)
    pack 320 one.h5 <p.jsonl
    train 1 --objective orpo --data one.h5 --seq 320 --steps 1 --global-batch 1
    close "$(line 0 loss)" "$(train 1 --objective orpo --steps 1 --global-batch 2 && line 0 loss)" 1e-6
}

@test "--extremes is about the model that learns, not about its reference" {
    train 1 --objective dpo --lora 4 --steps 2 --global-batch 2 --lr 3e-2 --details 1 --extremes
    # both steps have the same pairs, and the first step made the activations smaller than the reference's
    jq -se 'map(.details.units // empty | map(.activation_max)) | .[1][0] < .[0][0] and .[1][1] < .[0][1]' m.jsonl
}

@test "a resumed run has the reference that it started with" {
    train 1 --objective dpo --reference k.h5 --steps 6 --global-batch 2 --lr 1e-2
    local whole
    whole=$(line 5 loss)
    train 1 --objective dpo --reference k.h5 --steps 3 --global-batch 2 --lr 1e-2 --save run
    train 1 --objective dpo --reference k.h5 --steps 6 --global-batch 2 --lr 1e-2 --save run --resume auto
    close "$(jq -s 'map(select(.loss)) | .[-1].loss' m.jsonl)" "$whole" 1e-6
    rm k.h5
    run -1 dt-train "${common[@]}" --objective dpo --reference k.h5 --steps 7 --global-batch 2 --save run --resume auto
    [[ "$output" == *"k.h5"* ]]
    dt-dataset chat -t "$DT_SRC/tests/data/tokenizer/chat.json" --chat-template chatml --preferences --seq 160 -o q.h5 - <<<'{"prompt": "x", "chosen": "a", "rejected": "b"}' >/dev/null
    train 1 --objective dpo --reference k.h5 --steps 1 --global-batch 1 --data q.h5
    run -1 dt-train "${common[@]}" --objective dpo --reference k.h5 --steps 7 --global-batch 2 --save run --resume auto
    [[ "$output" == *"was not made from data set"* ]]
}

@test "preferences are learned, and evaluated too" {
    train 1 --objective dpo --lora 8 --steps 30 --global-batch 2 --lr 1e-2 --eval-data p.h5
    jq -s -e 'map(select(.loss)) | .[-1].rewards_accuracy == 1 and .[-1].loss < 0.4' m.jsonl
    jq -s -e 'map(select(.eval_loss)) | .[0].eval_loss < 0.4 and .[0].eval_tokens == 4' m.jsonl
}

labelled() { # one desirable and one undesirable answer
    printf '%s\n' '{"prompt": "What is 2+2?", "completion": "4", "label": false}' \
        '{"prompt": "A colour?", "completion": "Monday", "label": true}'
}

@test "kto: labelled answers, each with a mismatched answer for the KL estimate" {
    labelled | pack 160 one.h5
    [ "$(jq -c '[.train.examples, .train.samples]' one.h5.json)" = '[2,1]' ]
    dt-dataset info --json one.h5 | jq -e '.labelled and .documents == 4'
    [[ "$(h5dump -d document_kinds one.h5)" == *"(0): 1, 3, 2, 3, "* ]]
    # the first loss is 1 - sigma(0); later ones follow from the run's own metrics
    train 1 "${plain[@]}" --objective kto --reference k.h5 --data one.h5 --steps 3 --global-batch 1 --lr 1e-2 --save run --save-every 1 --overwrite
    close "$(line 0 loss)" 0.5 1e-9
    local z r
    z=$(line 2 kl) r="1 / (1 + ((($(line 2 rewards_chosen)) - 0.1 * $z) | exp))"
    close "$(line 2 loss)" "($r + 1 / (1 + ((0.1 * $z - ($(line 2 rewards_rejected))) | exp))) / 2" 1e-9
    jq -en "$z > 0.01"
    for i in 0 1; do
        close "($(line $((i + 1)) loss) - $(line $i loss)) / (1e-2 * $(line $i grad_norm) * $(line $i grad_norm))" -1 0.05
    done
    # one of either label, each with its weight
    train 1 "${plain[@]}" --objective kto --reference k.h5 --data one.h5 --steps 1 --global-batch 1 --desirable-weight 2 --undesirable-weight 0.5
    close "$(line 0 loss)" 0.625 1e-9
    # the KL estimate z from the log-probabilities of the same answers in a set of pairs
    printf '%s\n' '{"prompt": "What is 2+2?", "chosen": "Monday", "rejected": "x"}' '{"prompt": "A colour?", "chosen": "4", "rejected": "x"}' | pack 160 other.h5
    local p=()
    for model in "--model llama.json" "--model run/step-00000002"; do
        # shellcheck disable=SC2086 # words
        train 1 --objective orpo --data other.h5 --steps 1 --global-batch 1 --lr 0 --metrics o.jsonl $model
        p+=("$(jq -s 'map(select(.loss))[0].logps_chosen' o.jsonl)")
    done
    close "$z" "${p[1]} - (${p[0]})" 1e-4
}

@test "kto: the loss does not depend on layout and microbatch; a run resumes" {
    takes_long
    { labelled; printf '%s\n' '{"prompt": "Sing", "completion": "la", "label": true}' '{"prompt": "Hello", "completion": "Go away", "label": false}' \
        '{"prompt": "Name a bird", "completion": "A crow", "label": true}'; } | pack 80 l.h5
    local how loss
    for how in '1' '1 --microbatch 2' '2 --layout dp2' '2 --layout tp2'; do
        # shellcheck disable=SC2086 # words
        train $how --objective kto --lora 4 --data l.h5 --seq 80 --steps 3 --global-batch 4 --lr 1e-2
        [ "$how" != 1 ] || loss=$(line 2 loss)
        close "$(line 2 loss)" "$loss" 1e-5
    done
    train 1 --objective kto --reference q.h5 --data l.h5 --seq 80 --steps 4 --global-batch 4 --lr 1e-2
    loss=$(line 3 loss)
    train 1 --objective kto --reference q.h5 --data l.h5 --seq 80 --steps 2 --global-batch 4 --lr 1e-2 --save run --overwrite
    train 1 --objective kto --reference q.h5 --data l.h5 --seq 80 --steps 4 --global-batch 4 --lr 1e-2 --save run --resume auto
    close "$(jq -s 'map(select(.loss)) | .[-1].loss' m.jsonl)" "$loss" 1e-6
}

@test "kto: invalid combinations are refused" {
    local l
    for l in '{"prompt": "x", "completion": "a", "label": true}' '{"prompt": "x", "completion": "a", "label": 1}' '{"completion": "a", "label": true}'; do
        run -1 pack 64 bad.h5 <<<"$l"
        [[ "$output" == *"label"* ]]
    done
    run -1 pack 64 bad.h5 < <(labelled; echo '{"prompt": "x", "chosen": "a", "rejected": "b"}')
    [[ "$output" == *"standard input:3"*"the same dataset"* ]]
    labelled | pack 160 one.h5
    run -1 dt-train "${common[@]}" --steps 1 --objective kto --lora 4
    [[ "$output" == *"kto needs answers with a label, which 'p.h5' does not hold"* ]]
    run -1 dt-train "${common[@]}" --steps 1 --objective dpo --lora 4 --data one.h5
    [[ "$output" == *"dpo needs pairs, which 'one.h5' does not hold"* ]]
    run -2 dt-train "${common[@]}" --steps 1 --objective kto --data one.h5
    [[ "$output" == *"needs a reference"* ]]
    run -2 dt-train "${common[@]}" --steps 1 --objective dpo --lora 4 --desirable-weight 2
    [[ "$output" == *"--desirable-weight requires --objective kto, not dpo"* ]]
}

@test "what does not go together is refused" {
    dt-dataset build -t "$DT_SRC/tests/data/tokenizer/chat.json" -o text.h5 "$DT_SRC/tests/data/tokenizer/corpus.txt" >/dev/null
    run -1 dt-train "${common[@]}" --steps 1
    [[ "$output" == *"holds pairs of answers"* ]]
    run -1 dt-train "${common[@]}" --steps 1 --data text.h5,p.h5
    [[ "$output" == *"'text.h5' holds text and 'p.h5' pairs of answers: they cannot be mixed"* ]]
    run -1 dt-train "${common[@]}" --steps 1 --objective orpo --data p.h5,text.h5
    [[ "$output" == *"they cannot be mixed"* ]]
    run -1 dt-train "${common[@]}" --steps 1 --objective dpo --data p.h5,p.h5 --reference ref.h5
    [[ "$output" == *"--reference is for one data set"* ]]
    dt-train "${common[@]}" --steps 2 --objective dpo --data p.h5,p.h5 --lora 4
    cp p.h5 before.h5
    run -1 dt-train "${common[@]}" --steps 1 --objective dpo --reference p.h5
    [[ "$output" == *"--reference would overwrite the input 'p.h5'"* ]]
    cmp p.h5 before.h5
    # a resumed run has the reference of its checkpoint
    dt-train "${common[@]}" --steps 1 --objective dpo --reference own.h5 --save kept
    dt-train --steps 2 --save kept --resume auto --no-mfu --threads 1
    run -1 dt-train "${common[@]}" --steps 1 --objective orpo --data text.h5
    [[ "$output" == *"dt-dataset chat --preferences"* ]]
    run -2 dt-train "${common[@]}" --steps 1 --objective dpo
    [[ "$output" == *"needs a reference"* ]]
    run -2 dt-train "${common[@]}" --steps 1 --objective simpo --reference r.h5
    [[ "$output" == *"--reference cannot be combined with --objective"* ]]
    run -2 dt-train "${common[@]}" --steps 1 --reference r.h5
    run -2 mpirun -np 2 dt-train "${common[@]}" --steps 1 --objective orpo --layout pp2
    [[ "$output" == *"cannot be combined with pp and cp"* ]]
}
# SPDX-License-Identifier: Apache-2.0
