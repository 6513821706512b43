#!/usr/bin/env bats
# dt-train --qat: the weights that a run computes with are those of a quantised file of its checkpoint, on
# every layout.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    common
    dt-train "${opts[@]}" --model gpt2-tiny --precision fp32 --lr 3e-3 --steps 600 --save base --metrics base.jsonl
}

common() {
    opts=(--data d.h5 --eval-data d.h5 --eval-tokens 8192 --seq 64 --microbatch 2 --global-batch 4 --no-mfu --threads 1
        --schedule constant --comm-timeout 120)
}

setup() {
    in_folder
    common
}

evaluated() { # METRICS: loss of the last evaluation
    jq -s 'map(select(.eval_loss)) | .[-1].eval_loss' "$1"
}

of_file() { # MODEL: loss that dt-train evaluates with the model's weights
    dt-train "${opts[@]}" --model "$1" --precision fp32 --optimizer sgd --lr 1e-12 --steps 1 --metrics of.jsonl
    evaluated of.jsonl
}

close_to() { # A B BOUND, relative
    echo "$1 and $2"
    jq -en --argjson a "$1" --argjson b "$2" --argjson d "$3" '(($a - $b) / $a | fabs) < $d'
}

@test "a quantised file has the loss that the run evaluated; quantising after plain training costs more" {
    for f in none q8_0 q4_0 mxfp4; do
        dt-train "${opts[@]}" --model base/latest --precision fp32 --lr 5e-4 --steps 100 --qat $f --save run.$f \
            --metrics run.$f.jsonl
        [ $f = none ] || dt-shard-ckpt quantize --type $f run.$f/latest run.$f.gguf
        [ $f = none ] || close_to "$(evaluated run.$f.jsonl)" "$(of_file run.$f.gguf)" 1e-7
    done
    # a checkpoint holds the masters, not the quantised weights that were computed with
    run ! close_to "$(evaluated run.q4_0.jsonl)" "$(of_file run.q4_0/latest)" 1e-5
    dt-shard-ckpt quantize --type q4_0 run.none/latest after.gguf
    echo "plain $(evaluated run.none.jsonl), rounded after $(of_file after.gguf), before $(evaluated run.q4_0.jsonl)"
    jq -en --argjson after "$(of_file after.gguf)" --argjson qat "$(evaluated run.q4_0.jsonl)" '$qat < $after'
}

@test "formats with blocks of 256, experts and tied embeddings" {
    takes_long
    cat >wide.json <<'EOF'
{"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1,
 "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
 "vocab_size": 257, "tie_word_embeddings": true}
EOF
    for f in q4_k q6_k; do
        dt-train "${opts[@]}" --model wide.json --precision fp32 --lr 1e-3 --steps 4 --qat $f --save wide.$f \
            --metrics wide.jsonl
        dt-shard-ckpt quantize --type $f wide.$f/latest wide.$f.gguf
        close_to "$(evaluated wide.jsonl)" "$(of_file wide.$f.gguf)" 1e-7
    done
}

@test "quantization-aware training on every layout has the losses of one rank" {
    takes_long
    local numbers=(--model gpt2-tiny --precision fp32 --lr 1e-3 --steps 4 --microbatch 1 --qat q4_0)
    train 1 one.jsonl "${numbers[@]}"
    for l in dp2 dp2.z1 dp2.z2 dp2.z3 tp2 pp2 cp2; do
        train 2 two.jsonl "${numbers[@]}" --layout $l
        echo "$l: $(jq -c 'select(.loss).loss' two.jsonl | tr '\n' ' ')"
        jq -es --slurpfile b one.jsonl '[., $b] | map(map(select(.loss).loss)) | transpose | length == 4 and
            all((.[0] - .[1]) / .[0] | fabs < 1e-5)' two.jsonl
    done
    train 1 none.jsonl "${numbers[@]}" --qat none
    run ! cmp -s <(jq .loss one.jsonl) <(jq .loss none.jsonl)
}

@test "a resumed run equals an uninterrupted one, and memory is as planned" {
    local numbers=(--model gpt2-tiny --lr 1e-3 --steps 6 --qat q8_0)
    for p in fp32 bf16; do
        train 1 whole.jsonl "${numbers[@]}" --precision $p --save whole.$p --save-every 3
        train 1 rest.jsonl "${numbers[@]}" --precision $p --save rest.$p --resume whole.$p/step-00000003
        dt-shard-ckpt diff whole.$p/latest rest.$p/latest
        dt-memest gpt2-tiny --train --seq 64 --microbatch 2 --global-batch 4 --precision $p --qat q8_0 --threads 1 --json >plan.json
        [ "$(jq -s 'map(select(.loss))[0].peak_bytes' whole.jsonl)" = "$(jq .peak_bytes plan.json)" ]
    done
    run dt-train "${opts[@]}" --model gpt2-tiny --lr 1e-3 --steps 7 --resume whole.bf16/latest --qat none
    echo "$status $output"
    [ "$status" -eq 1 ]
    [[ $output == *"--qat"* ]]
}

@test "incompatible options are refused by name" {
    for with in --fp8 --no-master "--lora 4" "--offload optimizer --offload-to disk:."; do
        # shellcheck disable=SC2086 # words
        run dt-train "${opts[@]}" --model gpt2-tiny --steps 1 --qat q4_0 $with
        [ "$status" -ne 0 ]
        [[ $output == *"--qat cannot be combined with "* ]]
    done
    run mpirun -np 4 dt-train "${opts[@]}" --model gpt2-tiny --steps 1 --qat q4_0 --layout tp4
    echo "$output"
    [ "$status" -ne 0 ]
    [[ $output == *"--qat: tp4 cuts rows of 'layers.0.attn.o.weight' to "*", not a multiple of the block size 32"* ]]
    run dt-train "${opts[@]}" --model gpt2-tiny --steps 1 --qat q7_k
    [ "$status" -eq 2 ]
}
# SPDX-License-Identifier: Apache-2.0
