#!/usr/bin/env bats
# --ema, the moving average of the weights: its values, and that it is evaluated, saved and converted, on
# every layout.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
}

setup() {
    in_folder
    opts=(--model gpt2-tiny --data d.h5 --eval-data d.h5 --eval-tokens 512 --seq 32 --microbatch 1 --global-batch 4
        --no-mfu --threads 1 --comm-timeout 120 --schedule constant --lr 3e-3)
}

losses() { # FILE KEY: the values of all steps or evaluations
    jq -c "select(.$2) | .$2" "$1" | tr '\n' ' '
}

near() { # FILE FILE BOUND: relative differences of evaluation losses are below BOUND
    jq -es --slurpfile b "$2" '[., $b] | map(map(select(.eval_loss).eval_loss)) | transpose | length > 0 and
        all((.[0] - .[1]) / .[0] | fabs < '"$3"')' "$1"
}

@test "the average follows its formula over the weights after every step, and is what evaluation uses" {
    local plain=(--precision fp32 --steps 5 --eval-every 2 --save-every 1)
    train 1 plain.jsonl "${plain[@]}" --save plain
    train 1 ema.jsonl "${plain[@]}" --save ema --ema 0.3
    [ "$(losses plain.jsonl loss)" = "$(losses ema.jsonl loss)" ]
    [ "$(losses plain.jsonl eval_loss)" != "$(losses ema.jsonl eval_loss)" ]
    jq -es 'map(select(.eval_loss)) | length == 3 and all(.ema)' ema.jsonl
    # the weights of the final norm start at 1; the decay of step t is min(0.3, (1 + t) / (10 + t))
    for s in 1 2 3 4 5; do
        dt-shard-ckpt cat --raw model/norm.weight ema/step-0000000$s >w.$s
        dt-shard-ckpt cat --raw ema/norm.weight ema/step-0000000$s >a.$s
    done
    python3 - <<'EOF'
import array
def read(name):
    x = array.array('f')
    x.frombytes(open(name, 'rb').read())
    return x
a = [1.0] * len(read('w.1'))
for t in range(5):
    d = min(0.3, (1 + t) / (10 + t))
    a = [d * x + (1 - d) * y for x, y in zip(a, read(f'w.{t + 1}'))]
    assert len(a) > 8 and max(abs(x - y) for x, y in zip(a, read(f'a.{t + 1}'))) < 1e-6, t
assert max(abs(x - y) for x, y in zip(a, read('w.5'))) > 1e-5
EOF
    # with a decay near 0 the average equals the weights
    train 1 none.jsonl "${plain[@]}" --save none --ema 1e-12
    near plain.jsonl none.jsonl 1e-6
}

@test "the average is converted to a model of its own" {
    local ran
    train 1 one.jsonl --precision fp32 --steps 4 --save one --ema 0.5
    dt-shard-ckpt convert --from ema --to dt one averaged
    dt-shard-ckpt cat --raw ema/layers.1.mlp.up.weight one >want
    dt-shard-ckpt cat --raw model/layers.1.mlp.up.weight averaged | cmp - want
    # this model's loss is the one that the run's evaluation printed
    opts=(--model averaged --data d.h5 --eval-data d.h5 --eval-tokens 512 --seq 32 --microbatch 1 --no-mfu --threads 1)
    train 1 again.jsonl --precision fp32 --steps 1 --lr 0 --weight-decay 0
    near one.jsonl again.jsonl 1e-6
    ran=0
    dt-shard-ckpt convert --from ema --to ema one other 2>err || ran=$?
    [ "$ran" -eq 2 ]
    # a checkpoint without an average
    train 1 plain.jsonl --precision fp32 --steps 1 --save without
    run -1 dt-shard-ckpt convert --from ema --to dt without nothing
    [[ "$output" == *"has no averaged weights (--ema)"* ]]
}

@test "every layout has the same average, and resumes as if it had not stopped" {
    local plain=(--steps 4 --ema 0.9 --eval-every 2 --precision bf16 --clip 1) l
    train 1 whole.jsonl "${plain[@]}" --save whole --save-every 2
    for l in dp2.z1 dp2.z3 tp2 pp2; do
        train 2 "$l.jsonl" "${plain[@]}" --layout $l --save "$l" --save-every 2
        near whole.jsonl "$l.jsonl" 2e-3
    done
    # saved asynchronously, and resumed on another layout
    train 1 half.jsonl "${plain[@]}" --save half --save-every 2 --save-async
    dt-shard-ckpt diff whole half
    rm -r half/step-00000004 half/latest
    train 1 half.jsonl "${plain[@]}" --save half --resume auto
    dt-shard-ckpt diff whole half
    rm -r dp2.z3/step-00000004 dp2.z3/latest
    train 2 rest.jsonl "${plain[@]}" --layout dp2.z1 --save dp2.z3 --resume auto
    # exceptions are biases of keys: their gradient is exactly zero, so they hold only rounding errors
    run dt-shard-ckpt diff dp2.z1 dp2.z3 --tolerance 1e-2 --json
    jq -e '[.tensors[] | select(.equal | not) | .name | select(endswith("attn.k.bias") | not)] == []' <<<"$output"
    # a checkpoint without an average: it starts from the weights if --accept-change allows it
    train 1 m.jsonl "${plain[@]}" --save begun --ema 0 --steps 2
    run -1 train 1 n.jsonl "${plain[@]}" --save begun --resume auto
    [[ "$output" == *"--ema is 0.9, in the checkpoint it was 0"* ]]
    train 1 n.jsonl "${plain[@]}" --save begun --resume auto --accept-change ema
    grep -q "has no averaged weights" n.jsonl.err
}

@test "the average is in the memory plan; incompatible options are refused by name" {
    local n
    n=$(dt-memest gpt2-124m --train --optimizer sgd --seq 32 --layout dp4.z1 --account dt --json | jq .params)
    jq -n -e --slurpfile a <(dt-memest gpt2-124m --train --seq 32 --layout dp4.z1 --account dt --json) \
        --slurpfile b <(dt-memest gpt2-124m --train --seq 32 --layout dp4.z1 --account dt --json --ema 0.99) '
        ($b[0].peak_bytes - $a[0].peak_bytes) as $more | $more > '"$n"' - 4096 and $more < '"$n"' + 4096'
    run -2 dt-train "${opts[@]}" --ema 0.9 --no-master --steps 1
    [[ "$output" == *"--ema cannot be combined with --no-master"* ]]
    run -2 mpirun -np 2 dt-train "${opts[@]}" --ema 0.9 --sync local:2 --steps 1
    [[ "$output" == *"--ema cannot be combined with --sync"* ]]
    run -2 dt-train "${opts[@]}" --ema 1 --steps 1
    [[ "$output" == *"--ema"* ]]
}
# SPDX-License-Identifier: Apache-2.0
