#!/usr/bin/env bats
# Checkpoints of dt-train: asynchronous saves, retention, failing disks. fault.so makes system calls fail.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
}

setup() {
    in_folder
    common=(--model gpt2-tiny --data d.h5 --seq 32 --precision fp32 --lr 1e-3 --warmup 5 --no-mfu --threads 1
        --comm-timeout 60 --microbatch 1)
}

# faulty CALL:N[+]:ERRNO COMMAND...
faulty() {
    local fault=$1
    shift
    LD_PRELOAD=$DT_HELP/fault.so DT_FAULT=$fault "$@"
}

curve() {
    jq -c '[.step, .loss, .grad_norm]' "$1"
}

@test "--save-grads: the gradients before the update, without the loss scale, and the plan has room" {
    rm -rf plain other
    opts=("${common[@]}" --steps 1 --save-grads --overwrite)
    dt-train "${opts[@]}" --optimizer sgd --save plain >plain.jsonl
    for more in "--optimizer lamb" "--optimizer muon --save-async" "--optimizer adafactor" "--loss-scale 1024"; do
        # shellcheck disable=SC2086
        dt-train "${opts[@]}" $more --save other >other.jsonl
        dt-shard-ckpt diff plain other --json | jq -e '[.tensors[] | select(.name | startswith("grad/")) | .equal] |
            length > 20 and all'
        # shellcheck disable=SC2086
        [ "${more%% *}" = --loss-scale ] ||
            dt-memest gpt2-tiny --account dt --seq 32 --precision fp32 --microbatch 1 --save-grads $more --check other.jsonl
    done
    opts+=(--global-batch 4 --optimizer lamb)
    dt-train "${opts[@]}" --save plain >/dev/null
    mpirun -np 2 dt-train "${opts[@]}" --layout dp2.z2 --save other >/dev/null
    # gradients of a key's bias are rounding errors
    dt-shard-ckpt diff plain other --tolerance 1e-4 --json | jq -e '[.tensors[] |
        select(.name | startswith("grad/")) | .equal or (.name | endswith("k.bias"))] | length > 20 and all'
}

@test "an asynchronous checkpoint equals the synchronous one, bit by bit, and does not change training" {
    rm -rf sync async
    for layout in dp1:1 dp2.z1:2 dp2.z3:2 tp2:2; do
        opts=("${common[@]}" --steps 9 --save-every 3 --layout "${layout%:*}" --global-batch 2)
        rm -rf sync async
        mpirun -np "${layout#*:}" dt-train "${opts[@]}" --save sync >sync.jsonl
        mpirun -np "${layout#*:}" dt-train "${opts[@]}" --save async --save-async >async.jsonl
        diff <(curve sync.jsonl) <(curve async.jsonl)
        dt-shard-ckpt verify sync/step-* async/step-*
        for step in 3 6 9; do
            dt-shard-ckpt diff sync/step-0000000$step async/step-0000000$step
            [ "$(jq -c .data sync/step-0000000$step/manifest.json)" = "$(jq -c .data async/step-0000000$step/manifest.json)" ]
        done
        [ "$(ls async)" = "$(ls sync)" ]
    done
}

@test "the snapshot is in the memory plan" {
    a=$(dt-train "${common[@]}" --steps 1 --save s1 | jq .peak_bytes)
    b=$(dt-train "${common[@]}" --steps 1 --save s2 --save-async | jq .peak_bytes)
    params=$(dt-shard-ckpt ls --json s1 | jq '[.tensors[] | select(.name | startswith("model/")) | .bytes] | add')
    # parameters and two AdamW states, and a few elements for rounding
    [ $((b - a)) -ge $((3 * params)) ]
    [ $((b - a)) -lt $((3 * params + 4096)) ]
}

@test "--keep with --keep-every" {
    rm -rf run
    dt-train "${common[@]}" --steps 9 --save run --save-every 1 --keep 2 --keep-every 3 --save-async >/dev/null
    [ "$(ls run | tr '\n' ' ')" = "latest step-00000003 step-00000006 step-00000008 step-00000009 " ]
    run dt-train "${common[@]}" --steps 9 --save run --keep-every 3
    [ "$status" -eq 2 ]
}

@test "outputs that cannot be written are one line before the model is read; files in a missing --save folder can" {
    touch file
    for save in /dev/null file file/a; do
        run -1 dt-train "${common[@]}" --steps 1 --save $save
        [[ ${#lines[@]} -eq 1 && $output == "dt-train: cannot write into '$save': "* ]]
    done
    [[ $output == *": Not a directory" ]]
    # names that begin like --save are not in it
    run -1 dt-train "${common[@]}" --steps 1 --save out --metrics out-missing/m.jsonl
    [[ $output == "dt-train: cannot write 'out-missing/m.jsonl': No such file or directory" ]]
    run -1 dt-train "${common[@]}" --steps 1 --save out --metrics out/missing/m.jsonl
    [[ $output == "dt-train: cannot write 'out/missing/m.jsonl': No such file or directory" ]]
    run -1 dt-train "${common[@]}" --steps 1 --save out --metrics ./out
    [[ $output == "dt-train: cannot write './out': it is the folder of --save" ]]
    [ ! -e out ]
    dt-train "${common[@]}" --steps 1 --save a/out --metrics "$PWD/a/./out/m.jsonl" --trace ./a/out/t.json
    [[ -s a/out/m.jsonl && -s a/out/t.json ]]
    mkdir a/out/folder
    run -1 dt-train "${common[@]}" --steps 1 --save a/out --overwrite --metrics a/out/folder
    [[ $output == "dt-train: cannot write 'a/out/folder': it is a folder" ]]
}

@test "an asynchronous checkpoint holds one step: router biases move before the update" {
    rm -rf sync async
    jq -n '{model_type: "deepseek_v3", vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
        num_attention_heads: 2, num_key_value_heads: 2, kv_lora_rank: 8, q_lora_rank: 12, qk_nope_head_dim: 8,
        qk_rope_head_dim: 4, v_head_dim: 8, n_routed_experts: 8, n_shared_experts: 1, num_experts_per_tok: 2,
        moe_intermediate_size: 16, first_k_dense_replace: 1, n_group: 2, topk_group: 1, norm_topk_prob: true,
        max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 10000}' >deepseek.json
    opts=("${common[@]}" --model deepseek.json --steps 2 --save-every 1 --router-bias-rate 0.01)
    dt-train "${opts[@]}" --save sync >/dev/null
    faulty pwrite:1:slow dt-train "${opts[@]}" --save async --save-async >/dev/null
    dt-shard-ckpt verify async/step-*
    dt-shard-ckpt diff sync/step-00000001 async/step-00000001
}

@test "reshard and merge: states that have another shape than their parameter stay whole, and runs resume" {
    for more in "--optimizer adafactor" "--grad-comm powersgd:2"; do
        rm -rf run two one
        # shellcheck disable=SC2086
        mpirun -np 2 dt-train "${common[@]}" $more --layout dp2 --steps 2 --stop-at 1 --save run >/dev/null
        dt-shard-ckpt reshard --layout dp2.z1 run two
        dt-shard-ckpt merge two one
        dt-shard-ckpt diff run two
        dt-shard-ckpt diff run one
        mpirun -np 2 dt-train --layout dp2 --resume run --no-mfu --threads 1 --steps 2 >a.jsonl
        mpirun -np 2 dt-train --layout dp2 --resume one --no-mfu --threads 1 --steps 2 >b.jsonl
        diff <(curve a.jsonl) <(curve b.jsonl)
    done
}

@test "a checkpoint that cannot be written: --save-errors continue goes on, stop ends the run, nothing is lost" {
    for async in "" --save-async; do
        for fault in fsync:3:5 pwrite:9:28 fallocate:2:28 rename:3:5; do
            rm -rf run
            # shellcheck disable=SC2086
            faulty $fault dt-train "${common[@]}" --steps 8 --save run --save-every 2 --save-errors continue $async \
                >m.jsonl 2>err || { echo "$fault $async"; cat err; return 1; }
            [ "$(grep -c 'is not saved, training goes on' err)" -eq 1 ]
            [ "$(wc -l <m.jsonl)" -eq 8 ]
            dt-shard-ckpt verify run/step-* >/dev/null
            [ "$(ls -d run/step-* | wc -l)" -eq 3 ]
            [ -z "$(find run -name "*tmp*")" ]
            rm -rf run
            dt-train "${common[@]}" --steps 2 --save run >/dev/null
            status=0
            # shellcheck disable=SC2086
            faulty $fault dt-train "${common[@]}" --steps 8 --save run --save-every 2 --resume auto $async \
                >m.jsonl 2>err || status=$?
            [ "$status" -eq 1 ]
            [ "$(wc -l <err)" -ge 1 ]
            grep -q "step-000000" err
            dt-shard-ckpt verify run >/dev/null
            [ -d run/step-00000002 ]
            [ -z "$(find run -name "*tmp*")" ]
        done
    done
}

@test "one rank's disk fails: all ranks end alike, and the rank is named" {
    rm -rf run
    cat >one.sh <<'SH'
#!/bin/sh
# the second rank alone has the fault
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export DT_FAULT=fsync:1:5
exec "$@"
SH
    chmod +x one.sh
    LD_PRELOAD=$DT_HELP/fault.so mpirun -np 2 ./one.sh dt-train "${common[@]}" --layout dp2 --steps 6 --save run --save-every 2 \
        --save-errors continue --save-async >m.jsonl 2>err
    grep -q "rank 1.*step 2 is not saved, training goes on.*Input/output error" err
    [ "$(grep -c 'not saved' err)" -eq 1 ]
    [ "$(wc -l <m.jsonl)" -eq 6 ]
    dt-shard-ckpt verify run/step-00000004 run/step-00000006
    [ ! -e run/step-00000002 ]
}

@test "if the last checkpoint fails the run ends with 1, whatever --save-errors says" {
    rm -rf run
    run faulty fsync:1+:28 dt-train "${common[@]}" --steps 4 --save run --save-every 2 --save-errors continue --metrics m.jsonl
    [ "$status" -eq 1 ]
    [[ $output == *"No space left"* ]]
    [ -z "$(ls run)" ]
}

@test "metrics that cannot be written: a run with --save ends with 1 after a checkpoint, the file intact" {
    local at
    rm -rf run m.jsonl
    dt-train "${common[@]}" --steps 2 --save run --metrics m.jsonl
    # leave space for about two lines below the file size limit
    yes '{"filler":1}' | head -n $(((4096 * 1024 - $(stat -c %s m.jsonl) - 1500) / 13)) >>m.jsonl
    run bash -c 'ulimit -f 4096; exec "$@"' _ dt-train "${common[@]}" --steps 50 --save run --resume auto --metrics m.jsonl
    [ "$status" -eq 1 ]
    [[ $output == *"File too large"* ]]
    at=$(dt-shard-ckpt ls --json run | jq .step)
    [ "$at" -gt 2 ] && [ "$at" -lt 50 ]
    [ "$(tail -n 1 m.jsonl | jq 'has("loss")')" = true ]
    [ -z "$(tail -c 1 m.jsonl | tr -d '\n')" ]

    rm -rf run fifo
    mkfifo fifo
    head -n 1 fifo >/dev/null &
    run mpirun -np 2 dt-train "${common[@]}" --layout dp2 --global-batch 2 --steps 100000 --save run --metrics fifo
    [ "$status" -eq 1 ]
    [[ $output == *"Broken pipe"* ]]
    dt-shard-ckpt verify run
    # without --save it ends at once
    run -1 bash -o pipefail -c '"$@" --steps 100000 | head -n 1 >/dev/null' _ dt-train "${common[@]}"
}

@test "metrics to a FIFO wait for a reader; SIGTERM ends the wait with status 1" {
    rm -rf fifo
    mkfifo fifo
    run -1 timeout --preserve-status -k 20 2 dt-train "${common[@]}" --steps 2 --metrics fifo
    [[ $output == *"cannot write 'fifo': a signal came before a program read this FIFO"* ]]
    dt-train "${common[@]}" --steps 2 --metrics fifo 2>err &
    sleep 0.5
    [ "$(timeout 20 jq -s length fifo)" -eq 2 ]
    wait $!
}

@test "a full pipe that nobody reads: SIGTERM ends the run with status 1, after a checkpoint with --save" {
    rm -rf fifo run
    mkfifo fifo
    (exec 7<fifo; sleep 60) &
    holder=$!
    dt-train "${common[@]}" --steps 100000 --save run --metrics fifo --progress log 2>err &
    pid=$!
    for _ in $(seq 300); do # until it waits in poll and its CPU time stands still
        sleep 0.2
        now=$(awk '{print $14 + $15}' "/proc/$pid/stat")
        [ "$now" = "${before:-}" ] && break
        before=$now
    done
    kill -TERM $pid
    wait $pid && status=0 || status=$?
    kill $holder
    [ "$status" -eq 1 ]
    grep -F "a signal came, and the program that reads this pipe does not read" err
    dt-shard-ckpt verify run
}

@test "a Prometheus page that cannot be updated is reported once and does not end the run" {
    rm -rf page m.jsonl
    mkdir page
    dt-train "${common[@]}" --steps 3000 --prometheus page/x --metrics m.jsonl 2>err &
    until [ -s m.jsonl ]; do sleep 0.01; done
    rm -rf page
    wait $!
    [ "$(grep -c "page is not updated" err)" -eq 1 ]
}

@test "kill -9 during an asynchronous save: resume finds a complete checkpoint" {
    rm -rf run
    dt-train "${common[@]}" --steps 2 --save run >/dev/null
    before=2
    for _ in $(seq 10); do
        rm -f m.jsonl
        dt-train "${common[@]}" --steps 100000 --save run --save-every 2 --keep 3 --save-async --resume auto >m.jsonl 2>err &
        pid=$!
        until [ -s m.jsonl ] || ! kill -0 $pid; do sleep 0.05; done
        sleep "0.$((RANDOM % 6))"
        kill -KILL $pid
        wait $pid || true
        dt-shard-ckpt verify run >/dev/null
        at=$(dt-shard-ckpt ls --json run | jq .step)
        [ "$at" -ge "$before" ]
        before=$at
    done
    [ "$before" -gt 2 ]
}
# SPDX-License-Identifier: Apache-2.0
