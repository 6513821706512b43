#!/usr/bin/env bats
# Parameter servers: any number of them, in memory shared by ranks and by messages. tests/mpi/servers.sh tests
# them on several hosts, sync.bats the modes themselves.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
}

setup() {
    in_folder
    opts=(--model gpt2-tiny --data d.h5 --seq 32 --microbatch 1 --precision fp32 --no-mfu --threads 1 --comm-timeout 120
        --schedule constant)
    momentum=(--optimizer momentum --lr 0.05 --clip 0)
}

same() { # FILE FILE: losses of all steps agree to 1e-6
    jq -es --slurpfile b "$2" '[., $b] | map(map(select(.loss).loss)) | transpose | length > 5 and
        all((.[0] - .[1]) / .[0] | . < 1e-6 and . > -1e-6)' "$1"
}

@test "ssp:0 equals the synchronous run with any number of servers, in shared memory and by messages" {
    train 4 all.jsonl --layout dp4.z1 --global-batch 4 --steps 8 "${momentum[@]}"
    local each k by
    one_of 2 "0 memory" "0 messages" "1 messages" "1 memory" "2 auto --transport mpi" "0 auto --transport mpi" "3 memory" \
        "1 auto --transport mpi" "2 messages" "2 memory" "3 auto --transport mpi" "3 messages"
    for each in "${some[@]}"; do
        read -r k by <<<"$each"
        # shellcheck disable=SC2086 # options
        train 4 ssp.jsonl --layout dp4.z1 --global-batch 4 --steps 8 "${momentum[@]}" --sync ssp:0 --servers "$k" --server-comm $by
        same all.jsonl ssp.jsonl
        jq -es 'length == 8 and all(.staleness_max == 0) and .[-1].tokens == 8 * 4 * 32' ssp.jsonl
        case $k in
        0) grep -q "4 of 4 data-parallel ranks serve a share of the weights by .*: 0 1 2 3$" ssp.jsonl.err ;;
        1) grep -q "1 of 4 data-parallel ranks serves a share of the weights by .*: 0$" ssp.jsonl.err ;;
        2) grep -q "2 of 4 data-parallel ranks serve a share of the weights by .*: 0 2$" ssp.jsonl.err ;;
        3) grep -q "3 of 4 data-parallel ranks serve a share of the weights by .*: 0 1 2$" ssp.jsonl.err ;;
        esac
        case $by in
        memory) grep -q "by shared memory: " ssp.jsonl.err ;;
        *) grep -q "by messages: " ssp.jsonl.err ;;
        esac
    done
}

@test "a checkpoint equals the synchronous run's, and resumes with other servers; evaluations in between" {
    # two ranks: the sum of two gradients does not depend on the order
    local plain=(--layout dp2.z1 --global-batch 2 --steps 12 --save-every 6 --eval-data d.h5 --eval-every 4 --eval-tokens 96
        "${momentum[@]}")
    train 2 all.jsonl "${plain[@]}" --save all
    train 2 a.jsonl "${plain[@]}" --save a --sync ssp:0 --servers 1 --server-comm messages
    dt-shard-ckpt diff --tolerance 1e-5 all/step-00000006 a/step-00000006
    dt-shard-ckpt diff --tolerance 1e-5 all/step-00000012 a/step-00000012
    jq -es --slurpfile b all.jsonl '[., $b] | map(map(.eval_loss // empty)) | transpose | length >= 3 and
        all((.[0] - .[1]) / .[0] | . < 1e-6 and . > -1e-6)' a.jsonl
    rm -r a/step-00000012 a/latest
    train 2 b.jsonl "${plain[@]}" --save a --resume auto --save-async --sync ssp:0 --servers 2
    dt-shard-ckpt diff --tolerance 1e-5 all/step-00000012 a/step-00000012
}

@test "memory is what dt-memest says, to the byte" {
    local asynchronous="async --precision bf16" each k by how
    one_of 3 "2 memory $asynchronous" "0 memory $asynchronous" "1 memory $asynchronous" "1 messages $asynchronous" \
        "2 messages $asynchronous" "0 messages $asynchronous" "2 messages ssp:3" "1 messages ssp:3" "0 messages ssp:3" "0 memory ssp:3" \
        "1 memory ssp:3" "2 memory ssp:3"
    for each in "${some[@]}"; do
        read -r k by how <<<"$each"
        # shellcheck disable=SC2206 # options
        local of=(--layout dp3.z1 --seq 32 --microbatch 1 --global-batch 3 --precision fp32 --sync $how --servers "$k"
            --server-comm "$by")
        peak=$(dt-memest gpt2-tiny --vocab 257 "${of[@]}" --threads 1 --json | jq .peak_bytes)
        train 3 fits.jsonl "${of[@]}" --steps 12 --mem-limit "${peak}B"
        dt-memest gpt2-tiny --vocab 257 "${of[@]}" --check fits.jsonl
        run train 3 over.jsonl "${of[@]}" --steps 2 --mem-limit $((peak - 1))B
        [ "$status" -ne 0 ]
        grep -q "the plan needs $peak bytes" over.jsonl.err
    done
}

@test "async by messages: idle ranks take the next part, every sample is used once, and the loss falls" {
    takes_long
    for how in "async" "async --staleness-rate --delay-compensation 0.04" "async --precision bf16 --servers 1"; do
        # shellcheck disable=SC2086 # options
        train 2 as.jsonl --layout dp2.z1 --global-batch 4 --steps 60 --lr 1e-3 --server-comm messages --sync $how \
            --inject slow:rank=1,seconds=0.03,start=0
        jq -es 'map(select(.loss)) | .[-1].step == 60 and .[-1].tokens == 60 * 4 * 32 and (map(.staleness_max) | max) > 1 and
            ([.[].step] | . == (. | unique))' as.jsonl
        jq -es 'map(select(.loss)) | (.[-5:] | map(.loss) | add / 5) < .[0].loss - 0.5' as.jsonl
    done
    train 2 ahead.jsonl --layout dp2.z1 --global-batch 2 --steps 30 --lr 1e-3 --server-comm messages --sync ssp:2 \
        --inject slow:rank=1,seconds=0.05,start=0
    jq -es 'length == 30 and all(.staleness_max <= 2) and any(.staleness_max == 2)' ahead.jsonl
}

@test "delay compensation of a late gradient is the same by messages" {
    takes_long
    # all samples are equal, so that it does not matter who takes which; rank 1 contributes one gradient,
    # after the others
    yes a | head -c 4000 | tr -d '\n' >alike.txt
    dt-dataset build --tokenizer byte --out alike.h5 alike.txt
    local late=(--data alike.h5 --eval-data alike.h5 --eval-tokens 64 --layout dp2.z1 --global-batch 2 --steps 4 "${momentum[@]}"
        --lr 0.005 --sync async --inject "slow:rank=1,seconds=4,start=0")
    train 2 m.jsonl "${late[@]}" --server-comm memory --delay-compensation 2
    train 2 n.jsonl "${late[@]}" --server-comm messages --delay-compensation 2
    train 2 o.jsonl "${late[@]}" --server-comm messages
    jq -es 'map(.staleness_max // 0) | max == 7' m.jsonl
    jq -es 'map(.staleness_max // 0) | max == 7' n.jsonl
    jq -es 'map(map(.eval_loss // empty)[-1]) | (.[0] - .[1]) / .[0] | fabs < 1e-5' <(jq -s . m.jsonl) <(jq -s . n.jsonl)
    jq -es 'map(map(.eval_loss // empty)[-1]) | (.[0] - .[1]) / .[0] | fabs > 1e-4' <(jq -s . n.jsonl) <(jq -s . o.jsonl)
}

@test "a signal ends a run with messages between two steps, with a complete checkpoint" {
    for sync in async ssp:1; do
        mpirun -np 3 dt-train "${opts[@]}" --layout dp3.z1 --global-batch 3 --steps 100000000 --sync "$sync" --servers 2 \
            --server-comm messages --save "$sync" --save-every 100000000 --metrics "$sync.jsonl" 2>"$sync.err" &
        pid=$!
        for _ in $(seq 1200); do [ ! -s "$sync.jsonl" ] || break; sleep 0.05; done
        kill -USR1 $pid
        wait $pid && return 1
        grep -q "stopped by a signal after step .*, checkpoint saved" "$sync.err"
        dt-shard-ckpt verify "$sync/$(cat "$sync/latest")"
        [ "$(jq -s 'map(select(.loss))[-1].tokens' "$sync.jsonl")" = $(($(jq -s 'map(select(.loss))[-1].step' "$sync.jsonl") * 3 * 32)) ]
    done
}

@test "a server or a worker that is killed or stands still ends the run with its name" {
    opts+=(--comm-timeout 2 --layout dp3.z1 --global-batch 3 --steps 2000 --servers 2 --server-comm messages)
    # rank 2 is no server; a step that it was about to report may be lost with it
    one_of 3 "kill 1 ssp:1" "kill 0 ssp:1" "stop 2 ssp:1" "kill 2 ssp:1" "stop 0 async" "stop 0 ssp:1" "stop 1 ssp:1" "stop 1 async" "stop 2 async"
    for each in "${some[@]}"; do
        read -r how rank sync <<<"$each"
        run ! timeout 60 mpirun -np 3 dt-train "${opts[@]}" --sync "$sync" --inject "$how:rank=$rank,step=20"
        echo "$each: $output"
        case $how in
        kill) [[ $output == *"rank $rank died"* || $output == *"rank $rank is at step 1"[89]* || $output == *"process rank $rank with"* ]] ;;
        stop) [[ $output == *"rank $rank: process "*" is stopped"* ]] ;;
        esac
    done
}

@test "unsupported combinations with servers are refused by name" {
    run -2 mpirun -np 2 dt-train "${opts[@]}" --layout dp2.z1 --steps 1 --sync async --servers 3
    [[ $output == *"--servers 3 exceeds the 2 data-parallel ranks"* ]]
    run -2 mpirun -np 2 dt-train "${opts[@]}" --layout dp2.z1 --steps 1 --sync hogwild --server-comm messages
    [[ $output == *"--sync hogwild needs shared memory on one machine"* ]]
    run -2 mpirun -np 2 dt-train "${opts[@]}" --layout dp2.z1 --steps 1 --sync hogwild --transport mpi
    [[ $output == *"--sync hogwild needs shared memory on one machine"* ]]
    run -2 mpirun -np 2 dt-train "${opts[@]}" --layout dp2 --steps 1 --servers 1
    [[ $output == *"--servers is for --sync ssp:STEPS, async and hogwild"* ]]
    run -2 mpirun -np 2 dt-train "${opts[@]}" --layout dp2 --steps 1 --server-comm memory
    [[ $output == *"--server-comm is for --sync ssp:STEPS, async and hogwild"* ]]
}
# SPDX-License-Identifier: Apache-2.0
