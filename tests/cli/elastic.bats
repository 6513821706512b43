#!/usr/bin/env bats
# A run that loses ranks and goes on in the remaining processes trains what an undisturbed one trains: with
# --reproducible the parameters are the same to the bit for any set of ranks. The global batch of 10 is
# divisible by 1, 2 and 5 ranks only.
bats_require_minimum_version 1.5.0
load slow

setup_file() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=/bin/false
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    cat "$DT_SRC/LICENSE" "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision fp32 --reproducible --global-batch 10 \
        --microbatch 1 --steps 40 --save plain --metrics plain.jsonl
}

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    rm -rf run lost whole events.jsonl m.jsonl lost.jsonl err
    train=(dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision fp32 --reproducible
        --global-batch 10 --microbatch 1 --save run --save-every 15 --comm-timeout 60 --metrics m.jsonl --elastic dp)
    export TMPDIR=$BATS_TEST_TMPDIR
}

teardown() {
    # shellcheck disable=SC2046 # processes, one a word
    [ -z "$pid" ] || kill -KILL $(pgrep -P "$pid") "$pid" 2>/dev/null || true
}

events() { # the events "ranks" in the metrics
    jq -c "select(.event == \"ranks\") | [.step, .from, .to]" m.jsonl
}

each_step_once() {
    [ "$(jq 'select(.loss) | .step' m.jsonl)" == "$(seq 40)" ] || return 1
    diff <(jq -c 'select(.loss) | [.step, .loss]' plain.jsonl) <(jq -c 'select(.loss) | [.step, .loss]' m.jsonl)
}

more_lines_than() { [ "$(wc -l <m.jsonl)" -gt "$1" ]; }

@test "ranks die and stand still, rank 0 too: the others go on, to the same bits" {
    timeout 120 mpirun --enable-recovery -np 4 "${train[@]}" --steps 40 --layout dp4 --inject kill:rank=0,step=10 \
        --inject stop:rank=2,step=16 --inject kill:rank=1,step=26 2>err
    grep -q "rank 0 (process [0-9]*) has died: the run continues on 3 ranks instead of 4 after step 9 " err
    grep -q "rank 1 (process [0-9]*) makes no progress: the run continues on 2 ranks instead of 3 after step 15 " err
    [ "$(events)" == $'[9,4,3]\n[15,3,2]\n[25,2,1]' ]
    each_step_once
    dt-shard-ckpt diff plain/step-00000040 run/step-00000040
    # the checkpoint of the step before the stop is complete; no partial one is left
    dt-shard-ckpt verify run
    [ -z "$(find run -name '*.tmp')" ]
}

@test "rank 0 is lost after its part of the update: the next rank 0 writes the line of that step, under the same name" {
    timeout 120 mpirun --enable-recovery -np 4 "${train[@]}" --steps 40 --layout dp4 --inject kill-update:rank=0,step=10 \
        --inject kill-update:rank=1,step=26 2>err
    [ "$(events)" == $'[10,4,3]\n[26,3,2]' ]
    each_step_once
    jq -se '(map(.run_id) | unique | length == 1) and all(.[] | select(.loss); .step_s < 60)' m.jsonl
}

@test "without --reproducible: the same as a run on the smaller layout from that step, to the bit" {
    local fast=("${train[@]/--reproducible/--no-mfu}")

    timeout 120 mpirun --enable-recovery -np 3 "${fast[@]}" --steps 30 --layout dp3 --inject kill:rank=1,step=16 2>err
    cp -r run/step-00000015 from
    mv m.jsonl lost.jsonl
    rm -rf run
    timeout 120 mpirun --enable-recovery -np 2 "${fast[@]}" --steps 30 --layout dp2 --resume from 2>err
    diff <(jq -c 'select(.loss and .step > 15) | [.step, .loss, .grad_norm]' lost.jsonl) \
        <(jq -c 'select(.loss) | [.step, .loss, .grad_norm]' m.jsonl)
}

# zero_loses ZERO PRECISION RANKS FAULT...: a run that loses ranks has the parameters of a run on RANKS ranks
# until the last step before the loss, and on the remaining ranks from there.
zero_loses() {
    local layout=z$1 ranks=$3 after left
    local zero=(dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision "$2" --global-batch 12
        --microbatch 1 --steps 9 --save-every 1 --keep 20 --comm-timeout 60)

    shift 3
    timeout 120 mpirun -np "$ranks" "${zero[@]}" --layout "dp$ranks.$layout" --save whole --metrics m.jsonl
    timeout 120 mpirun --enable-recovery -np "$ranks" "${zero[@]}" --layout "dp$ranks.$layout" --elastic dp --peer-copy 1 \
        --save lost --metrics lost.jsonl "$@" 2>err
    read -r left after < <(sed -n 's/.*: the run continues on \([0-9]*\) ranks* instead of [0-9]* after step \([0-9]*\) .*/\1 \2/p' err)
    rm m.jsonl
    timeout 120 mpirun -np "$left" "${zero[@]}" --layout "dp$left.$layout" --resume "whole/step-0000000$after" --save run \
        --metrics m.jsonl
    diff <(jq -c "select(.loss and .step > $after) | [.step, .loss, .grad_norm]" lost.jsonl) \
        <(jq -c 'select(.loss) | [.step, .loss, .grad_norm]' m.jsonl)
    [ "$(jq 'select(.loss) | .step' lost.jsonl)" == "$(seq 9)" ]
    dt-shard-ckpt diff lost/step-00000009 run/step-00000009
}

@test "ZeRO: the next rank holds a copy of a lost rank's states, to the bit" {
    takes_long
    zero_loses 1 fp32 3 --inject kill:rank=2,step=6
}

@test "ZeRO: a rank dies during the update, when some ranks have updated and others have not" {
    zero_loses 3 bf16 4 --inject kill-update:rank=1,step=5 --inject late:rank=0,step=5 --inject late:rank=2,step=5
}

@test "a stopped rank that is continued learns that it was excluded, and exits" {
    timeout 120 mpirun --enable-recovery -np 3 "${train[@]}" --steps 100000 --layout dp3 --inject stop:rank=0,step=10 2>err &
    pid=$!
    until_true grep -q "makes no progress: the run continues on 2 ranks" err
    stopped=$(sed -n 's/.*rank 0 (process \([0-9]*\)) makes no progress.*/\1/p' err)
    [ "$(ps -o state= -p "$stopped")" == T ]
    kill -CONT "$stopped"
    until_true grep -q "the other ranks continued without this one" err
    so_far=$(wc -l <m.jsonl)
    until_true more_lines_than "$so_far"
    kill -USR1 "$(pgrep -P $pid mpirun)"
    wait $pid
    pid=
    grep -q "stopped by a signal after step [0-9]*, checkpoint saved" err
}

@test "ranks that compute when another rank is lost stop before the end of the step" {
    takes_long
    # 2000 microbatches per rank; rank 1 dies at the beginning of its second step
    timeout 300 mpirun --enable-recovery -np 2 "${train[@]}" --global-batch 4000 --steps 2 --layout dp2 \
        --inject kill:rank=1,step=2 2>err
    [ "$(events)" == '[1,2,1]' ]
    jq -se 'map(select(.event == "ranks"))[0].computed | . < 1000' m.jsonl
}

@test "under dt-run the loss of one rank is no restart, the loss of all is one" {
    timeout 120 dt-run --events events.jsonl --ranks 4 -- "${train[@]}" --steps 40 --inject kill:rank=0,step=18,start=1 2>err
    [ "$(jq -c 'select(.event == "start") | .start' events.jsonl)" == 1 ]
    jq -se 'map(select(.event == "rank-lost")) | length == 1 and .[0].rank == 0' events.jsonl
    jq -se 'map(select(.event == "ranks"))[0] | .from == 4 and .to == 3 and .epoch == 2' events.jsonl
    jq -se 'map(select(.event == "books"))[0] | .steps == 40 and .other_s > -0.1' events.jsonl
    dt-shard-ckpt diff plain/step-00000040 run/step-00000040
    rm -rf run events.jsonl m.jsonl
    timeout 120 dt-run --events events.jsonl --ranks 2 -- "${train[@]}" --steps 40 --inject kill:rank=0,step=18,start=1 \
        --inject kill:rank=1,step=22,start=1 2>err
    [ "$(jq -c 'select(.event == "start") | .start' events.jsonl)" == $'1\n2' ]
    dt-shard-ckpt diff plain/step-00000040 run/step-00000040
    # dt-run sees the ranks' exit status, although mpirun returns 0
    run -93 timeout 120 dt-run --ranks 2 --tries 1 -- "${train[@]}" --steps 50 --metrics /nonexistent/m.jsonl
}

# True if two ranks have died and there are three again.
replaced() {
    jq -se 'map(select(.event == "ranks")) | (map(select(.why | test("has died"))) | length >= 2) and last.to == 3' \
        m.jsonl >/dev/null 2>&1
}

@test "a rank that is corrupted a second time leaves; after the first time it is repaired" {
    timeout 120 mpirun --enable-recovery -np 4 "${train[@]}" --steps 40 --layout dp4 --check-replicas 5 \
        --inject flip:rank=1,step=10,bit=20,element=777 --inject flip:rank=2,step=15,bit=20,element=777 \
        --inject flip:rank=1,step=25,bit=20,element=777 2>err
    grep -q "step 10: weights of 'embed' are corrupt on rank 1: copied from rank 0" err
    grep -q "step 15: weights of 'embed' are corrupt on rank 2: copied from rank 0" err
    grep -q "step 25: corrupt for the second time: this rank (process [0-9]*) leaves the run" err
    grep -Eq "rank 1 \(process [0-9]+\) has (left|died): the run continues on 3 ranks instead of 4 after step 25 " err
    [ "$(events)" == '[25,4,3]' ]
    [ "$(jq 'select(.loss) | .step' m.jsonl)" == "$(seq 40)" ]
}

@test "dt-run --replace: new processes receive the state; the run equals an undisturbed one" {
    local status=0

    # the run is ended once all lost ranks are replaced
    timeout 300 dt-run --replace --events events.jsonl --ranks 3 -- "${train[@]}" --steps 100000 \
        --inject kill:rank=1,step=4 --inject kill:rank=0,step=20 --inject slow:rank=2,seconds=0.05 2>err &
    pid=$!
    until_true replaced
    kill -TERM "$(pgrep -P $pid dt-run)"
    wait $pid || status=$?
    pid=
    [ $status == 75 ]
    [ "$(jq -c 'select(.event == "start") | .start' events.jsonl)" == 1 ]
    jq -se 'map(select(.event == "replacement")) | length >= 2' events.jsonl
    jq -se 'map(select(.event == "books"))[0] | .steps_redone == 0 and .other_s > -0.1' events.jsonl
    last=$(jq -s 'map(select(.loss) | .step) | max' m.jsonl)
    [ "$(jq 'select(.loss) | .step' m.jsonl)" == "$(seq "$last")" ]
    mv m.jsonl lost.jsonl
    mv run lost
    "${train[@]}" --steps 100000 --stop-at "$last" --save-every "$last"
    diff <(jq -c 'select(.loss) | [.step, .loss]' m.jsonl) <(jq -c 'select(.loss) | [.step, .loss]' lost.jsonl)
    dt-shard-ckpt diff lost/step-*"$last" run/step-*"$last"
}

@test "ZeRO: a new process receives a share of the states; the run equals one on that many ranks from there" {
    slow || skip "trains slowly, for a process to join in time: DT_SLOW=1"
    local zero=(dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision fp32 --global-batch 12
        --microbatch 1 --steps 30 --save-every 1 --keep 40 --comm-timeout 60)

    timeout 120 dt-run --replace --ranks 2 -- "${zero[@]}" --layout dp2.z1 --elastic dp --peer-copy 1 --save lost \
        --metrics lost.jsonl --inject kill:rank=1,step=5 --inject slow:rank=0,seconds=0.3 2>err
    from=$(jq -s 'map(select(.event == "ranks")) | last | select(.to == 2) | .step' lost.jsonl)
    timeout 120 mpirun -np 2 "${zero[@]}" --layout dp2.z1 --resume "lost/step-$(printf %08d "$from")" --save run --metrics m.jsonl
    diff <(jq -c "select(.loss and .step > $from) | [.step, .loss, .grad_norm]" lost.jsonl) \
        <(jq -c 'select(.loss) | [.step, .loss, .grad_norm]' m.jsonl)
    dt-shard-ckpt diff lost/step-00000030 run/step-00000030
}

@test "a slow rank is ended, and the others go on" {
    slow || skip "trains slowly for half a minute: DT_SLOW=1"
    timeout 300 dt-run --events events.jsonl --ranks 3 --evict-slow 0.5 --heartbeat-timeout 20 -- "${train[@]}" --steps 200 \
        --inject slow:rank=1,seconds=0.2 2>err
    jq -se 'map(select(.event == "evicted"))[0].rank == 1' events.jsonl
    [ "$(jq -c 'select(.event == "start") | .start' events.jsonl)" == 1 ]
    jq -se 'map(select(.event == "ranks"))[0] | .from == 3 and .to == 2' events.jsonl
    [ "$(jq 'select(.loss) | .step' m.jsonl)" == "$(seq 200)" ]
}

@test "incompatible options are refused" {
    run -2 --separate-stderr timeout 60 mpirun -np 2 "${train[@]}" --steps 2
    [[ $stderr == *"--elastic needs dt-run or mpirun --enable-recovery"* ]]
    run -2 --separate-stderr "${train[@]}" --steps 2 --transport mpi
    [[ $stderr == *"--elastic cannot be combined with --transport mpi"* ]]
    run -2 --separate-stderr "${train[@]}" --steps 2 --trace t.json
    [[ $stderr == *"--elastic dp cannot be combined with --trace"* ]]
    run -2 --separate-stderr dt-train --elastic tp --model gpt2-tiny --data d.h5
    [[ $stderr == *"elastic"* ]]
}
# SPDX-License-Identifier: Apache-2.0
