#!/usr/bin/env bats
# dt-doctor: each planted fault is named and no other; healthy runs give no output; runs of dt-train.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
}

setup() {
    in_folder
    run=(--model gpt2-tiny --data d.h5 --seq 32 --global-batch 4 --microbatch 1 --threads 1 --precision fp32 --no-mfu)
}

names() {
    dt-doctor --json "$1" | jq -r .finding | sort | tr '\n' ' ' | sed 's/ $//'
}

@test "planted faults are named, each with its evidence and no other; healthy runs give no output" {
    wrong=0 faults=0 healthy=0
    while read -r name want; do
        python3 "$BATS_TEST_DIRNAME/planted.py" "$name" p.jsonl
        got=$(names p.jsonl)
        [ "$want" = - ] && want= && healthy=$((healthy + 1))
        [ -z "$want" ] || faults=$((faults + 1))
        [ "$got" = "$want" ] || { echo "$name: '$got', not '$want'"; wrong=1; }
    done < <(python3 "$BATS_TEST_DIRNAME/planted.py")
    [ "$wrong" -eq 0 ]
    [ "$faults" -ge 20 ]
    [ "$healthy" -ge 5 ]
}

@test "every loss is null" {
    for i in $(seq 12); do echo "{\"run_id\":\"a\",\"step\":$i,\"loss\":null,\"grad_norm\":null,\"step_s\":0.1,\"compute_s\":0.1}"; done >null.jsonl
    [ "$(names null.jsonl)" = not-finite ]
    dt-doctor null.jsonl | grep -F 'not finite in 12 steps, the first is step 1'
}

@test "runs of dt-train: a rank that sleeps, a NaN, a learning rate far too high, another batch on resume" {
    takes_long
    mpirun -np 3 dt-train "${run[@]}" --global-batch 6 --layout dp3 --steps 12 --details 4 --metrics slow.jsonl \
        --inject slow:rank=1,step=1,steps=12,seconds=0.4
    names slow.jsonl | grep -w straggler
    dt-doctor slow.jsonl | grep -F 'rank 1 has the longest compute time'
    dt-train "${run[@]}" --steps 20 --nan-skips 2 --inject nan:step=9 --metrics nan.jsonl
    names nan.jsonl | grep -w not-finite
    dt-doctor nan.jsonl | grep -F 'the first is step 9'
    dt-train "${run[@]}" --steps 120 --lr 3 --clip 0 --schedule constant --warmup 20 --metrics high.jsonl
    names high.jsonl | grep -E 'diverges|not-finite|gradient-spikes'
    dt-train "${run[@]}" --steps 40 --save s --save-every 20 --metrics again.jsonl
    rm -rf s/step-00000040
    head -20 again.jsonl >m && mv m again.jsonl
    dt-train "${run[@]}" --global-batch 8 --steps 40 --save s --resume s/step-00000020 --accept-change global-batch \
        --metrics again.jsonl
    names again.jsonl | grep -w batch-changed
    dt-doctor again.jsonl | grep -F 'a step had 128 tokens until step 20, then 256'
    # no finding about the loss of a healthy run; findings about time depend on the machine
    dt-train "${run[@]}" --steps 120 --lr 1e-3 --metrics good.jsonl
    run -1 grep -E 'not-finite|overflow|diverges|learns-nothing|repeated|overfits|batch|rate|missing|memory' <(names good.jsonl)
}

@test "dt-plan's prediction of the run and of changes to it, on named devices" {
    mpirun -np 2 dt-train "${run[@]}" --layout pp2 --global-batch 2 --steps 1 --metrics one.jsonl
    python3 "$BATS_TEST_DIRNAME/planted.py" few-microbatches p.jsonl
    jq -c --slurpfile one one.jsonl 'if .step == 1 then .run = $one[0].run else . end' p.jsonl >r.jsonl
    run -3 dt-doctor --gpu H100 --json r.jsonl
    jq -es 'length == 1' <<<"$output"
    jq .plan <<<"$output" >plan.json
    plan=(--gpu H100 --gpus 2 --seq 32 --precision fp32 --recompute none --json)
    jq -e --argjson t "$(dt-plan "${plan[@]}" --global-batch 2 --microbatch 1 --compare pp2 gpt2-tiny | jq .compared.step_s)" \
        '.step_s == $t' plan.json
    # the suggestion of twice the batch has dt-plan's time per sample
    jq -e --argjson t "$(dt-plan "${plan[@]}" --global-batch 4 --microbatch 1 --compare pp2 gpt2-tiny | jq .compared.step_s)" \
        '. as $p | .changes[] | select(.args == "--global-batch 4") | .step_s == $t and
         ((.gain - (1 - $t / 2 / $p.step_s)) | fabs) < 1e-9' plan.json
    jq -e --arg best "$(dt-plan "${plan[@]:0:8}" --json --global-batch 2 --top 1 gpt2-tiny | jq -r .plans[0].layout)" \
        '[.changes[] | select(.args | startswith("--layout " + $best + " "))] | length == 1' plan.json
    jq -e '[.changes[].gain] | . == (sort | reverse)' plan.json
    dt-doctor --gpu H100 r.jsonl | grep -E '% less time per sample, .* s per step: --global-batch 4$'
    # GPUs of unknown type
    jq -c 'if .run then .run.device = "cuda" else . end' r.jsonl >cards.jsonl
    dt-doctor cards.jsonl | grep -F -e 'give --gpu or --cluster to predict'
    # run records that are invalid or describe an impossible run give one line
    for wrong in '5' '{}' '{"ranks": 2, "device": "cpu"}' '{"ranks": -1}' '{"ranks": 2, "device": "cpu", "options": {"layout": "dp9"}}'; do
        jq -c --argjson wrong "$wrong" 'if .run then .run = $wrong else . end' r.jsonl >w.jsonl
        run -3 dt-doctor w.jsonl
        [[ $output == *pipeline-bubble* ]]
    done
    run -2 dt-doctor --gpu nothing r.jsonl
}

@test "exit status, wrong usage, and the options it suggests exist" {
    python3 "$BATS_TEST_DIRNAME/planted.py" healthy h.jsonl
    python3 "$BATS_TEST_DIRNAME/planted.py" slow-data f.jsonl
    run -0 dt-doctor h.jsonl
    [[ $output == "h.jsonl: nothing found in 300 lines" ]]
    head -20 h.jsonl >few.jsonl
    run -0 dt-doctor few.jsonl
    [[ $output == "few.jsonl: nothing found in 20 lines, too few to judge losses" ]]
    head -1 h.jsonl >one.jsonl
    run -0 dt-doctor one.jsonl
    [[ $output == "one.jsonl: nothing found in 1 line, too few to judge times and losses" ]]
    jq -c 'del(.step_s)' h.jsonl >other.jsonl
    run -0 dt-doctor other.jsonl
    [[ $output == "other.jsonl: not examined: "* ]]
    run -3 dt-doctor h.jsonl f.jsonl
    [[ $output == *"f.jsonl: data-bound: "*"% of the step time is spent waiting for samples"*"try: "* ]]
    run -0 --separate-stderr dt-doctor --json h.jsonl
    [ -z "$output" ]
    # a file whose beginning was cut off
    tail -n 200 h.jsonl | sed '1s/.*"step":/"step":/' >cut.jsonl
    run -0 dt-doctor cut.jsonl
    [[ $output == "cut.jsonl: nothing found in "* ]]
    run -2 dt-doctor
    run -1 dt-doctor /nowhere
    { dt-train --help; dt-run --help; dt-dataset build --help; dt-dataset --help; } >helps
    for option in $(grep -oE -- '--[a-z][a-z-]+' "$DT_SRC/libcommon/board/doctor.c" | sort -u); do
        grep -qE -- "$option( |,|\$|\[)|--\[no-\]${option#--}" helps || { echo "no program has $option"; return 1; }
    done
    for name in $(dt-doctor --json f.jsonl | jq -r .finding); do
        man "$DT_SRC/man/dt-doctor.1" 2>/dev/null | grep -qw "$name" || grep -q "It Cm $name" "$DT_SRC/man/dt-doctor.1"
    done
}
# SPDX-License-Identifier: Apache-2.0
