#!/usr/bin/env bats
# --grad-comm, compressed gradients: lossless modes equal the plain run, lossy ones learn, checkpoints keep
# the residuals, invalid combinations are refused.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
}

setup() {
    in_folder
    opts=(--model gpt2-tiny --data d.h5 --seq 32 --microbatch 1 --global-batch 4 --precision fp32 --no-mfu --threads 1
        --comm-timeout 120 --schedule constant --lr 3e-3)
}

near() { # FILE FILE BOUND: relative differences of the losses of all steps are below BOUND
    jq -es --slurpfile b "$2" '[., $b] | map(map(.loss)) | transpose | length > 3 and
        all((.[0] - .[1]) / .[0] | fabs < '"$3"')' "$1"
}

@test "a mode that drops nothing equals the plain run, and the lossy ones learn as much" {
    local how
    train 2 fp32.jsonl --steps 24
    train 2 all.jsonl --steps 24 --grad-comm topk:100%
    near fp32.jsonl all.jsonl 1e-5
    train 2 ranks.jsonl --steps 24 --grad-comm powersgd:4096
    near fp32.jsonl ranks.jsonl 1e-5
    train 2 int8.jsonl --steps 24 --grad-comm int8
    near fp32.jsonl int8.jsonl 5e-3
    run near fp32.jsonl int8.jsonl 1e-7
    [ "$status" -ne 0 ]
    train 2 powersgd.jsonl --steps 24 --grad-comm powersgd:4
    near fp32.jsonl powersgd.jsonl 3e-2
    for how in onebit topk:0.1; do
        train 2 some.jsonl --steps 24 --grad-comm $how
        jq -es --slurpfile b fp32.jsonl '.[-1].loss < 1.25 * $b[-1].loss and .[0].loss == $b[0].loss' some.jsonl
    done
    grep -q -e "--grad-comm int8: .* per step and rank instead of .*; what a step does not send is added to the gradients of the next" int8.jsonl.err
    # a single rank sends nothing
    train 1 one.jsonl --steps 2 --grad-comm int8
    grep -q "one data-parallel rank sends no gradients" one.jsonl.err
}

@test "auto measures the modes and says which it chose" {
    train 2 auto.jsonl --steps 2 --grad-comm auto
    grep -q -E -e '--grad-comm auto: all-reduce of .* of gradients: fp32 .* ms, bf16 .* ms \(faster on links below .* GB/s\), int8 .*, powersgd:4 .*; using (fp32|bf16|int8|powersgd:4)' auto.jsonl.err
    [ "$(jq -s length auto.jsonl)" -eq 2 ]
}

@test "a spike that is skipped leaves nothing behind in what is not sent yet" {
    for how in topk:1% powersgd:1; do
        train 2 s.jsonl --steps 40 --lr 1e-3 --grad-comm $how --on-spike skip --spike-window 16 \
            --inject spike:rank=all,step=30,factor=1000
        [ "$(jq -r 'select(.skipped) | .step' s.jsonl)" = 30 ]
        jq -es 'map(.grad_norm) | .[29] > 100 * .[28] and (.[30:] | max) < 20 * .[28]' s.jsonl
    done
}

@test "a run resumes as if it had not stopped, and on other ranks with the residuals" {
    takes_long
    local how plain=(--steps 6 --save-every 3)
    for how in int8 powersgd:2 topk:0.05; do
        rm -rf a b
        train 2 a.jsonl "${plain[@]}" --grad-comm $how --save a
        train 2 b.jsonl "${plain[@]}" --grad-comm $how --save b --save-async
        dt-shard-ckpt diff a/step-00000003 b/step-00000003
        rm -r b/step-00000006 b/latest
        train 2 b.jsonl "${plain[@]}" --grad-comm $how --save b --resume auto
        dt-shard-ckpt diff a/step-00000006 b/step-00000006
        dt-shard-ckpt ls --json b | jq -e '[.tensors[].name] | any(startswith("error0/")) and any(startswith("error1/"))'
    done
    dt-shard-ckpt verify a
    # resume on another number of ranks, in fp16 with a dynamic loss scale
    opts+=(--precision fp16 --loss-scale dynamic:1e9)
    rm -rf a
    train 2 a.jsonl --steps 4 --grad-comm int8 --save a
    jq -es 'any(.skipped) and (last.loss | isfinite)' a.jsonl
    train 4 c.jsonl --steps 6 --grad-comm int8 --save a --resume auto
    jq -es 'last | .step == 6 and (.loss | isfinite)' c.jsonl
    [ "$(dt-shard-ckpt ls --json a | jq '[.tensors[].name | select(startswith("error3/"))] | length > 3')" = true ]
}

@test "residuals of a run with a loss scale fit a resumed run with another" {
    local scale
    rm -rf a
    train 2 a.jsonl --steps 4 --grad-comm topk:1% --precision fp16 --save a
    for scale in 1024 dynamic; do
        rm -rf b
        cp -r a b
        train 2 $scale.jsonl --steps 6 --grad-comm topk:1% --precision fp16 --loss-scale $scale --save b --resume auto
    done
    near_norms 1024.jsonl dynamic.jsonl
}

@test "what is not sent yet is dropped with a line if the resumed run does not compress" {
    rm -rf a
    train 2 a.jsonl --steps 2 --grad-comm int8 --save a
    mpirun -np 1 dt-train --no-mfu --threads 1 --steps 3 --resume a 2>log >b.jsonl
    [ "$(grep -c "had not sent at checkpoint .* are dropped" log)" -eq 1 ]
    mpirun -np 2 dt-train --no-mfu --threads 1 --steps 3 --grad-comm fp32 --resume a 2>log >b.jsonl
    [ "$(grep -c "had not sent at checkpoint .* are dropped" log)" -eq 1 ]
    mpirun -np 2 dt-train --no-mfu --threads 1 --steps 3 --resume a 2>log >b.jsonl
    ! grep "are dropped" log
}

near_norms() { # FILE FILE: relative differences of the gradient norms of two steps are below 1e-4
    jq -es --slurpfile b "$2" '[., $b] | map(map(.grad_norm)) | transpose | length == 2 and
        all((.[0] - .[1]) / .[0] | fabs < 1e-4)' "$1"
}

@test "powersgd trains both matrices of an adapter, of which one has no gradient in the first step" {
    rm -rf base a
    train 1 base.jsonl --steps 1 --save base
    opts+=(--model base --lora 16 --grad-comm powersgd:2)
    train 2 a.jsonl --steps 3 --save a
    # the factor of a matrix whose sums had ended would be zero
    h5dump -d /factor/layers.0.mlp.up.lora_a a/latest/index.h5 | sed -n 's/^ *([0-9,]*)://p' >factor.txt
    grep -q '[1-9]' factor.txt
}

@test "residuals and codes are in the memory plan; incompatible options are refused by name" {
    local with without
    # residuals of 4 bytes per element, and codes of all elements, twice
    without=$(dt-memest gpt2-124m --train --seq 32 --layout dp2 --account dt --json | jq .peak_bytes)
    with=$(dt-memest gpt2-124m --train --seq 32 --layout dp2 --account dt --json --grad-comm int8 | jq .peak_bytes)
    [ $((with - without)) -gt $((124439808 * 6)) ]
    [ $((with - without)) -lt $((124439808 * 9)) ]
    run -2 mpirun -np 2 dt-train "${opts[@]}" --layout dp2.z1 --steps 1 --grad-comm int8
    [[ "$output" == *"--grad-comm int8 cannot be combined with ZeRO"* ]]
    run -2 dt-train "${opts[@]}" --steps 1 --grad-comm onebit --sync local:2
    [[ "$output" == *"--grad-comm onebit cannot be combined with --sync"* ]]
    for how in int4 powersgd powersgd:0 topk: topk:0 topk:2 topk:x; do
        run -2 dt-train "${opts[@]}" --steps 1 --grad-comm $how
        [[ "$output" == *"--grad-comm '$how' is not one of fp32, bf16, int8"* ]]
    done
}
# SPDX-License-Identifier: Apache-2.0
