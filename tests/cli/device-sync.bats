#!/usr/bin/env bats
# Ranks with one emulated GPU each under --sync backup, ssp, async and hogwild, which do not wait for each
# other, and under --elastic dp, where ranks come and go; compared with ranks on the CPU.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    command -v "$DT_HELP/dt-train-emulated" >/dev/null || skip "no C++ compiler, no emulated card"
    on_ranks
    licence_set
    # half of gpt2-tiny's layers and width: a step of the emulation takes 40% of the time
    jq -n '{model_type: "gpt2", vocab_size: 257, n_embd: 32, n_layer: 1, n_head: 2, n_positions: 16}' >small.json
}

setup() {
    in_folder
    PATH=$DT_HELP:$PATH
    rm -rf run cpu card whole half m.jsonl err events.jsonl
    export DT_EMULATED_QUEUES=${DT_EMULATED_QUEUES:-mixed} DT_EMULATED_CARDS=3 LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR
    export OMPI_MCA_plm_rsh_agent=/bin/false TMPDIR=$BATS_TEST_TMPDIR
    opts=(--model small.json --data d.h5 --seq 16 --microbatch 1 --precision fp32 --no-mfu --threads 1 --comm-timeout 120
        --schedule constant)
    momentum=(--optimizer momentum --lr 0.05 --clip 0)
    recovery=()
    export until_s=120
    pid=
}

teardown() {
    # shellcheck disable=SC2046 # processes, one a word
    [ -z "$pid" ] || kill -KILL $(pgrep -P "$pid") "$pid" 2>/dev/null || true
}

# on_cards RANKS METRICS OPTION...: as train, with one emulated GPU per rank
on_cards() {
    mpirun "${recovery[@]}" -np "$1" dt-train-emulated --device cuda "${opts[@]}" --metrics "$2" "${@:3}" 2>"$2.err" ||
        { cat "$2.err"; return 1; }
}

agrees() { # FILE FILE: losses of all steps agree to 1e-4
    jq -es --slurpfile b "$2" '[., $b] | map(map(select(.loss).loss)) | (.[0] | length) == (.[1] | length) and (.[0] | length) > 2 and
        (transpose | all((.[0] - .[1]) / .[0] | . < 1e-4 and . > -1e-4))' "$1"
}

events() { # FILE: the events "ranks" in the metrics
    jq -c "select(.event == \"ranks\") | [.step, .from, .to]" "$1"
}

# plan OPTION...: planned bytes of a run with these options on GPUs
plan() {
    LD_LIBRARY_PATH=$DT_HELP FAKE_CUDA_FREE=100000000000 dt-memest small.json --seq 16 --microbatch 1 --precision fp32 \
        --device cuda --json "$@"
}

@test "backup: the CPU's losses; a rank that sleeps is dropped, and its GPU computes the next step" {
    local plain=(--layout dp2 --global-batch 4 --steps 6)
    for queue in $(few mixed "late mixed"); do
        export DT_EMULATED_QUEUES=$queue
        train 2 cpu.jsonl "${plain[@]}" --sync backup:0
        on_cards 2 card.jsonl "${plain[@]}" --sync backup:0
        agrees cpu.jsonl card.jsonl
        train 2 cpu.jsonl "${plain[@]}" --sync backup:1 --inject slow:rank=1,seconds=600
        on_cards 2 card.jsonl "${plain[@]}" --sync backup:1 --inject slow:rank=1,seconds=600 --save run --save-every 3
        agrees cpu.jsonl card.jsonl
        jq -es 'all(.dropped_ranks == 1 and .dropped_samples == 2)' card.jsonl
        rm -r run/step-00000006 run/latest
        on_cards 2 rest.jsonl "${plain[@]}" --sync backup:1 --inject slow:rank=1,seconds=600 --save run --resume auto
        tail -n 3 card.jsonl | jq -c '[.step, .loss]' >a
        jq -c '[.step, .loss]' rest.jsonl | diff a -
        rm -r run rest.jsonl
    done
}

@test "ssp:0 with GPUs is the synchronous run on CPUs, in memory and by messages; it resumes" {
    local plain=(--layout dp2.z1 --global-batch 4 --steps 6 --save-every 3 --eval-data d.h5 --eval-every 2 --eval-tokens 48 "${momentum[@]}")
    local each k by queue
    train 2 cpu.jsonl "${plain[@]}" --save cpu
    one_of 3 "0 messages late" "1 memory mixed" "0 memory late" "1 messages mixed" "0 memory mixed" "1 messages late"
    for each in "${some[@]}"; do
        echo "$each"
        rm -rf card
        read -r k by queue <<<"$each"
        export DT_EMULATED_QUEUES=$queue
        on_cards 2 card.jsonl "${plain[@]}" --sync ssp:0 --servers "$k" --server-comm "$by" --save card
        agrees cpu.jsonl card.jsonl
        jq -es --slurpfile b cpu.jsonl '[., $b] | map(map(.eval_loss // empty)) | transpose | length >= 3 and
            all((.[0] - .[1]) / .[0] | . < 1e-4 and . > -1e-4)' card.jsonl
        rm -r card/step-00000006 card/latest
        rm -f rest.jsonl
        on_cards 2 rest.jsonl "${plain[@]}" --sync ssp:0 --servers 2 --save card --resume auto
        agrees <(jq -c 'select(.step > 3)' cpu.jsonl) <(jq -c 'select(.step > 3)' rest.jsonl)
    done
}

@test "a late gradient of a GPU is compensated as the CPU's, in shared memory and by messages" {
    # all samples are equal, so that it does not matter who takes which; rank 1 contributes one gradient,
    # after the others
    yes a | head -c 4000 | tr -d '\n' >alike.txt
    dt-dataset build --tokenizer byte --out alike.h5 alike.txt
    local by late=(--model gpt2-tiny --data alike.h5 --eval-data alike.h5 --eval-tokens 64 --layout dp2.z1 --global-batch 2 --steps 4 "${momentum[@]}"
        --lr 0.005 --sync async --inject "slow:rank=1,seconds=8,start=0")
    last() { jq -s 'map(.eval_loss // empty)[-1]' "$1"; }
    near() { jq -en --argjson a "$(last "$1")" --argjson b "$(last "$2")" --argjson x "$3" '($a - $b) / $a | fabs < $x'; }
    train 2 cpu.jsonl "${late[@]}" --delay-compensation 2
    for by in $(few messages "messages memory"); do
        on_cards 2 card.jsonl "${late[@]}" --server-comm "$by" --delay-compensation 2
        jq -es 'map(.staleness_max // 0) | max == 7' card.jsonl
        near cpu.jsonl card.jsonl 1e-5
    done
    on_cards 2 plain.jsonl "${late[@]}"
    ! near plain.jsonl card.jsonl 1e-4 || false
}

@test "async and hogwild with GPUs: every sample is trained on once, and the loss falls" {
    local each
    one_of 2 "async --server-comm messages --servers 1 --precision bf16" "async --staleness-rate" "hogwild" "async --server-comm messages" "ssp:2"
    for each in "${some[@]}"; do
        echo "$each"
        # shellcheck disable=SC2086 # options
        on_cards 2 as.jsonl --layout dp2.z1 --global-batch 4 --steps 30 --lr 1e-2 --sync $each
        jq -es 'map(select(.loss)) | .[-1].step == 30 and .[-1].tokens == 30 * 4 * 16 and (.[-3:] | map(.loss) | add / 3) < .[0].loss - 0.5' \
            as.jsonl
    done
}

@test "a rank with a GPU that is killed or stands still ends a run of parameter servers with its name" {
    local each how rank more
    opts+=(--comm-timeout 4 --layout dp2.z1 --global-batch 2 --steps 2000)
    one_of 2 "stop 1 ssp:1 --server-comm messages" "kill 1 async --server-comm messages" "kill 0 ssp:1" "stop 0 async --server-comm messages"
    for each in "${some[@]}"; do
        read -r how rank more <<<"$each"
        # shellcheck disable=SC2086 # options
        run ! timeout 120 mpirun -np 2 dt-train-emulated --device cuda "${opts[@]}" --sync $more --inject "$how:rank=$rank,step=6"
        echo "$each: $output"
        case $how in
        kill) [[ $output == *"rank $rank died"* || $output == *"rank $rank is at step "* || $output == *"process rank $rank with"* ]] ;;
        stop) [[ $output == *"rank $rank: process "*" is stopped"* ]] ;;
        esac
    done
}

@test "memory with GPUs is what dt-memest says, to the byte; what parameter servers hold is in host memory" {
    local each of n peak
    recovery=(--enable-recovery)
    n=$(plan --layout dp2.z1 | jq .params)
    one_of 2 "dp2.z1 --sync async --server-comm messages" "dp2.z1 --sync ssp:1 --server-comm memory" "dp2 --elastic dp" "dp2 --sync backup:1"
    for each in "${some[@]}"; do
        echo "$each"
        # shellcheck disable=SC2206 # options
        of=(--layout $each --global-batch 2)
        plan "${of[@]}" >said.json
        peak=$(jq .peak_bytes said.json)
        on_cards 2 fits.jsonl "${of[@]}" --steps 1 --mem-limit "${peak}B"
        run on_cards 2 over.jsonl "${of[@]}" --steps 1 --mem-limit $((peak - 1))B
        [ ! -s over.jsonl ]
        grep -q "the plan needs $peak bytes" over.jsonl.err
        # host bytes per parameter. Servers: half of the master weights and of two states (2 each), the GPU's
        # gradients and weights (4 each); with messages one received and one sent (2 each), in shared memory
        # two sums of half the parameters. elastic: weights and two states that are carried over.
        case $each in
        *ssp*) each=$((2 + 2 + 2 + 4 + 4 + 4)) ;;
        *async*) each=$((2 + 2 + 2 + 2 + 2 + 4 + 4)) ;;
        *elastic*) each=$((4 + 4 + 4)) ;;
        *) each=0 ;;
        esac
        jq -e --argjson n "$n" --argjson each "$each" '.host_bytes - $each * $n | fabs < 12288' said.json
    done
}

@test "a rank with a GPU dies, one stands still: the others go on, with the CPU's losses" {
    local each queue
    recovery=(--enable-recovery)
    one_of 2 "dp3 --inject kill:rank=0,step=3 --inject stop:rank=2,step=6" \
        "dp3.z1 --peer-copy 1 --inject stop:rank=0,step=4" \
        "dp3.z3 --peer-copy 1 --inject kill-update:rank=1,step=5 --inject late:rank=0,step=5 --inject late:rank=2,step=5" \
        "dp3.z2 --peer-copy 1 --inject kill:rank=2,step=4"
    for each in "${some[@]}"; do
        for queue in $(few mixed "late mixed"); do
            echo "$each $queue"
            export DT_EMULATED_QUEUES=$queue
            # shellcheck disable=SC2086 # options
            {
                mpirun --enable-recovery -np 3 dt-train "${opts[@]}" --elastic dp --global-batch 6 --steps 9 --metrics cpu.jsonl --layout $each 2>err
                on_cards 3 card.jsonl --elastic dp --global-batch 6 --steps 9 --layout $each --save run --save-every 4
            }
            agrees cpu.jsonl card.jsonl
            [ "$(jq 'select(.loss) | .step' card.jsonl)" == "$(seq 9)" ]
            diff <(events cpu.jsonl) <(events card.jsonl)
            dt-shard-ckpt verify run
            # the GPUs communicated directly (NCCL), and did so again after the failure
            grep -q "fake NCCL: aborted" card.jsonl.err
            ! grep -q "through host memory" card.jsonl.err || false
            rm -rf run cpu.jsonl card.jsonl
        done
    done
    # and through host memory, if ranks share a GPU
    export DT_EMULATED_CARDS=1
    mpirun --enable-recovery -np 3 dt-train "${opts[@]}" --elastic dp --global-batch 6 --steps 5 --metrics cpu.jsonl --inject kill:rank=1,step=3 2>err
    on_cards 3 card.jsonl --elastic dp --global-batch 6 --steps 5 --inject kill:rank=1,step=3
    agrees cpu.jsonl card.jsonl
    grep -q "through host memory, which is slow: several ranks share a GPU" card.jsonl.err
}

# True if two ranks have died and there are three again.
replaced() {
    jq -se 'map(select(.event == "ranks")) | (map(select(.why | test("has died"))) | length >= 2) and last.to == 3' \
        m.jsonl >/dev/null 2>&1
}

@test "a new process takes a GPU and the state from the others, and the losses are the CPU run's" {
    takes_long
    local each last status
    for each in "dp3" "dp3.z1 --peer-copy 1"; do
        status=0
        rm -rf run m.jsonl
        # shellcheck disable=SC2086 # options
        timeout 300 dt-run --replace --ranks 3 -- dt-train-emulated --device cuda "${opts[@]}" --elastic dp --global-batch 6 --steps 100000 \
            --metrics m.jsonl --save run --save-every 100000 --layout $each --inject kill:rank=1,step=4 --inject kill:rank=0,step=20 \
            --inject slow:rank=2,seconds=0.05 2>err &
        pid=$!
        until_true replaced
        kill -TERM "$(pgrep -P $pid dt-run)"
        wait $pid || status=$?
        pid=
        [ $status == 75 ]
        last=$(jq -s 'map(select(.loss) | .step) | max' m.jsonl)
        dt-train "${opts[@]}" --global-batch 6 --steps 100000 --stop-at "$last" --metrics cpu.jsonl 2>err2
        agrees cpu.jsonl m.jsonl
        ! grep -q "through host memory" err || false
        rm cpu.jsonl
    done
}
# SPDX-License-Identifier: Apache-2.0
