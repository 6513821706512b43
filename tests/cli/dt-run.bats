#!/usr/bin/env bats
# Jobs that are killed, stopped, asked to end or moved train what an undisturbed job trains. With
# --reproducible the parameters are the same to the bit for any dp, so all jobs are compared with one
# uninterrupted run.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=/bin/false
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision fp32 --reproducible --global-batch 12 \
        --steps 70 --save plain --metrics plain.jsonl
}

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    rm -rf run events.jsonl
    train=(dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision fp32 --reproducible
        --global-batch 12 --microbatch 1 --steps 70 --save run --save-every 10 --comm-timeout 60 --metrics m.jsonl)
    # Ranks are slowed down so that the target of a fault still exists when this shell is late. Since that
    # costs time, starts without a fault run at full speed.
    slow=(--inject 'slow:rank=0,seconds=0.1')
    twice=("${slow[@]}" --inject 'slow:rank=0,seconds=0.1,start=2')
    export TMPDIR=$BATS_TEST_TMPDIR
}

event() { # FILTER: jq filter over all events
    jq -se "$1" events.jsonl >/dev/null || { echo "not so: $1"; cat events.jsonl; return 1; }
}

wait_for() { # EVENT [COUNT]: waits at most two minutes for COUNT events
    local n
    for _ in $(seq 1200); do
        n=$(grep -c "\"event\":\"$1\"" events.jsonl 2>/dev/null) || true # no file yet: no event
        [ "${n:-0}" -lt "${2:-1}" ] || return 0
        sleep 0.1
    done
    echo "no event $1"
    cat events.jsonl
    return 1
}

same_as_plain() {
    dt-shard-ckpt diff plain/step-00000070 run/step-00000070 || return 1
    # each step counts once, the times of goodput's parts add up to the wall time, none is negative
    event 'map(select(.event == "books"))[-1] | .steps <= 70 and .other_s > -0.1 and
        (([.steps_s, .start_up_s, .data_s, .save_s, .restore_s, .redone_s, .recovery_s, .other_s] | add) - .wall_s |
            fabs < 0.1)' || return 1
    [ -z "$(find "$TMPDIR" -name 'dt-run.*')" ]
}

gone() { # PID: waits up to 30 s for its end; a zombie counts as ended
    for _ in $(seq 300); do
        case $(ps -o stat= -p "$1") in '' | Z*) return 0 ;; esac
        sleep 0.1
    done
    ps -p "$1"
    return 1
}

# job: sets $mpirun and ${ranks[@]} to the pids of the newest start
job() {
    mapfile -t ranks < <(jq -s 'map(select(.event == "training"))[-1].ranks | sort_by(.rank)[].pid' events.jsonl)
    mpirun=$(ps -o ppid= -p "${ranks[0]}" | tr -d ' ')
}

@test "jobs that cannot be supervised are refused" {
    run -2 --separate-stderr dt-run -- mpirun -np 2 true
    [[ $stderr == *"runs neither dt-train nor dt-serve"* ]]
    run -2 --separate-stderr dt-run -- dt-train --model gpt2-tiny --data d.h5
    [[ $stderr == *"needs --save"* ]]
    run -2 --separate-stderr dt-run -- dt-train --model gpt2-tiny --save run --resume elsewhere
    [[ $stderr == *"dt-run needs --resume auto"* ]]
    run -2 --separate-stderr dt-run -- dt-train --model gpt2-tiny --data d.h5 --save run --overwrite
    [[ $stderr == *"with --overwrite every restart would begin at step 0"* ]]
    run -2 --separate-stderr dt-run --ranks 3:2 -- dt-train --save run
    run -2 --separate-stderr dt-run --ranks 2 -- mpirun dt-train --save run
    [[ $stderr == *"must begin with dt-train"* ]]
    run -2 --separate-stderr dt-run --discover true -- dt-train --save run
    run -2 --separate-stderr dt-run --replace -- dt-train --model gpt2-tiny --data d.h5 --save run
    [[ $stderr == *"--replace needs --elastic of dt-train"* ]]
    run -75 --separate-stderr dt-run --kill-file /dev/null -- dt-train --model gpt2-tiny --data d.h5 --save run
    [[ $stderr == *"the file of --kill-file exists: not starting the job"* ]]
    run -2 --separate-stderr dt-run
    [[ $stderr == *"a command is missing"* ]]
    run -2 --separate-stderr dt-run mpirun -np 2 dt-train --model gpt2-tiny --data d.h5 --save run
    [[ $stderr == "dt-run: the command must follow --: "* ]]
    run -1 --separate-stderr dt-run --prometheus missing/page -- dt-train --model gpt2-tiny --data d.h5 --save run
    [[ $stderr == "dt-run: cannot write 'missing/page': No such file or directory" ]]
    run -1 --separate-stderr dt-run -- /nonexistent/dt-train --save run
    [[ $stderr == *"cannot start '/nonexistent/dt-train'"* ]]
}

@test "a killed rank: the job resumes from its newest checkpoint, to the same bits" {
    dt-run --events events.jsonl --ranks 3 -- "${train[@]}" "${slow[@]}" 2>err &
    pid=$!
    wait_for saved
    job
    kill -KILL "${ranks[2]}"
    wait $pid
    same_as_plain
    event 'map(select(.event == "rank-lost"))[0].rank == 2'
    event 'map(select(.event == "start")) | length == 2 and .[1].checkpoint >= 10'
    event 'map(select(.event == "books"))[0] | .steps == 70 and .recovery_s > 0 and .goodput > 0 and .goodput < 1'
    grep -q "rank 2 (process ${ranks[2]}) has died" err
}

@test "a killed mpirun and a stopped rank, with a launcher given on the command line" {
    takes_long
    dt-run --events events.jsonl --heartbeat-timeout 2 -- mpirun -np 2 "${train[@]}" "${twice[@]}" --layout dp2 2>err &
    pid=$!
    wait_for saved
    job
    kill -KILL "$mpirun"
    wait_for training 2
    job
    kill -STOP "${ranks[1]}"
    wait $pid
    same_as_plain
    event 'map(select(.event == "rank-lost")) | any(.rank == 1 and (.what | test("has sent no heartbeat for")))'
}

@test "more and fewer hosts: another dp, the same bits" {
    echo localhost:1 >hosts
    dt-run --events events.jsonl --ranks 1:4 --discover 'cat hosts' --discover-every 0.3 -- "${train[@]}" "${twice[@]}" 2>err &
    pid=$!
    wait_for saved
    echo "localhost slots=4 # all of them" >hosts
    wait_for training 2
    echo localhost:2 >hosts
    wait $pid
    same_as_plain
    event '[.[] | select(.event == "start") | .layout] == ["dp1", "dp4", "dp2"]'
    event '[.[] | select(.event == "end") | .status] == [75, 75, 0]'
    event 'map(select(.event == "books"))[0] | .steps == 70 and .steps_redone == 0'
}

@test "signals at any moment of a step change no bit" {
    local steps=40 last=step-00000040
    ! slow || steps=60 last=step-00000060
    rm -f m.jsonl
    OMP_NUM_THREADS=2 "${train[@]}" --threads 2 --steps $steps --save-every $steps 2>err &
    pid=$!
    for _ in $(seq 1200); do [ ! -s m.jsonl ] || break; sleep 0.05; done
    n=0
    while kill -USR2 $pid 2>/dev/null; do n=$((n + 1)); done
    wait $pid
    echo "$n signals"
    [ "$n" -ge 200 ]
    OMP_NUM_THREADS=2 "${train[@]}" --threads 2 --steps $steps --save-every $steps --save undisturbed
    dt-shard-ckpt diff undisturbed/$last run/$last
}

@test "asked to end by a signal, a file and a command: 75, and the same command resumes" {
    dt-run --events events.jsonl --save-file save.now -- mpirun -np 2 "${train[@]}" "${slow[@]}" 2>err &
    pid=$!
    wait_for training
    touch save.now
    for _ in $(seq 1200); do [ -e save.now ] || break; sleep 0.05; done
    [ ! -e save.now ]
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    [ "$status" -eq 75 ]
    event '[.[] | select(.event == "ask-save")] | length == 1'
    touch stop.now
    run -75 dt-run --kill-file stop.now -- mpirun -np 2 "${train[@]}"
    rm stop.now
    run -75 dt-run --events events.jsonl --notice 'test -e run/step-00000020' --notice-every 0.1 -- mpirun -np 2 "${train[@]}" "${slow[@]}"
    event '[.[] | select(.event == "notice")] | length == 1'
    dt-run --events events.jsonl -- mpirun -np 2 "${train[@]}"
    dt-shard-ckpt diff plain/step-00000070 run/step-00000070
}

@test "a mirror: checkpoints are uploaded and checked; a run without its folder resumes from there" {
    local short=("${train[@]/70/10}" --save-every 5)
    local get='[ ! -e store/%n ] || cp -r store/%n %s'
    local other='if [ %n = latest ]; then cp -r store/latest %s; else cp -r store/step-00000010 %s; fi'
    rm -rf store kept m.jsonl
    mkdir store
    dt-run --events events.jsonl --mirror 'rm -rf store/%n && cp -r %s store/%n' --mirror-get "$get" --ranks 1 -- "${short[@]}" 2>err
    event 'map(select(.event == "mirrored"))[-1].mirror_step == 10 and (map(select(.event == "fetched")) | length == 0)'
    [ "$(cat store/latest/latest)" == step-00000010 ]
    dt-shard-ckpt verify store/step-00000010
    [ ! -e run.mirror ]
    mv run kept
    short=("${train[@]/70/15}" --save-every 5)
    # the mirror returns another checkpoint than the one uploaded
    dt-run --events events.jsonl --mirror 'true %s' --mirror-get "$other" --ranks 1 -- "${short[@]}" 2>err
    grep -q "downloaded 'step-00000010' from the mirror" err
    grep -q -- "--mirror: checking step 15 failed" err
    dt-train "${short[@]:1}" --save plain15 --resume kept --metrics -
    dt-shard-ckpt diff plain15/step-00000015 run/step-00000015
    event 'map(select(.event == "mirror-failed"))[-1] | .mirror_step == 15 and .at == "checking"'
    # failures of the mirror do not end the job, unless it cannot say which checkpoints it has
    rm -rf run plain15
    run -1 --separate-stderr dt-run --mirror 'true %s' --mirror-get 'exit 5 # %s' --ranks 1 -- "${short[@]}"
    [[ $stderr == *"--mirror-get failed (exit status 5): cannot tell whether the mirror has a checkpoint"* ]]
    [ ! -e run ]
    dt-run --events events.jsonl --mirror 'exit 7 # %s' --mirror-get 'true %s' --ranks 1 -- "${short[@]}" 2>err
    event 'map(select(.event == "mirror-failed"))[-1] | .mirror_step == 15 and .at == "sending" and .status == 7'
    run -2 --separate-stderr dt-run --mirror true -- "${short[@]}"
    [[ $stderr == *"--mirror and --mirror-get need each other"* ]]
    # a command that is not told the folder is found before the first start
    run -2 --separate-stderr dt-run --mirror 'cp -r run store/%n' --mirror-get "$get" -- "${short[@]}"
    [[ $stderr == *"--mirror has no %s, the path of the folder to upload"* ]]
    run -2 --separate-stderr dt-run --mirror 'cp -r %s store/%n' --mirror-get 'cp -r store/%n run' -- "${short[@]}"
    [[ $stderr == *"--mirror-get has no %s, the path of the folder to create"* ]]
}

@test "a mirror keeps as many checkpoints as the run, and remembers across runs which it has" {
    takes_long
    local short=("${train[@]/70/45}" --save-every 5) get='[ ! -e store/%n ] || cp -r store/%n %s'
    # the first command to remove step 5 fails; removing what is missing succeeds
    local drop='echo %n >>dropped; [ %n != step-00000005 ] || [ -e failed ] || { touch failed; exit 9; }; rm -rf store/%n'
    rm -rf store failed dropped m.jsonl
    mkdir store
    mirror=(dt-run --events events.jsonl --mirror 'rm -rf store/%n && cp -r %s store/%n' --mirror-get "$get"
        --mirror-remove "$drop" --ranks 1 --)
    for at in 5 10 15 20; do
        "${mirror[@]}" "${short[@]}" --stop-at $at --keep 2 --keep-every 15 2>>err
    done
    event '[.[] | select(.event == "mirror-failed") | [.mirror_step, .at, .status]] == [[5, "removing", 9]]'
    event '[.[] | select(.event == "mirror-removed") | .mirror_step] == [5, 10]'
    grep -q -- "--mirror: removing step 5 failed (exit status 9); the run continues" err
    [ "$(ls store)" == $'latest\nstep-00000015\nstep-00000020' ]
    [ "$(cat dropped)" == $'step-00000005\nstep-00000005\nstep-00000010' ]
    # several removals in one run
    "${mirror[@]}" "${short[@]}" "${slow[@]/0.1/0.2}" --stop-at 40 --keep 1 2>err
    [ "$(ls store)" == $'latest\nstep-00000040' ]
    # a run that downloads: one uploaded checkpoint was incomplete, another is kept permanently by the run
    jq -c '.torn += [37] | .whole += [36]' store/latest/mirrored.json >list
    mv list store/latest/mirrored.json
    cp -r store/step-00000040 store/step-00000036
    cp -r store/step-00000040 store/step-00000037
    rm -rf run
    "${mirror[@]}" "${short[@]}" --keep 1 --keep-every 12 2>err
    event 'map(select(.event == "fetched")) | length == 1'
    [ "$(ls store)" == $'latest\nstep-00000036\nstep-00000045' ]
    [ "$(cat store/latest/latest)" == step-00000045 ]
    dt-shard-ckpt verify store/step-00000045
    # dt-run is killed while it uploads: the next one removes the incomplete checkpoint
    rm -rf run store
    mkdir store
    rm -f events.jsonl
    send='rm -rf store/%n; mkdir store/%n; if [ %n = step-00000005 ]; then touch store/%n/half sending; exec sleep 600; fi; cp -r %s/. store/%n'
    dt-run --events events.jsonl --mirror "$send" --mirror-get "$get" --mirror-remove "$drop" --ranks 1 -- "${short[@]}" \
        "${slow[@]}" --keep 1 2>err &
    pid=$!
    for _ in $(seq 1200); do [ ! -e sending ] || break; sleep 0.1; done
    kill -KILL $pid
    wait $pid || true
    [ "$(ls store)" == step-00000005 ]
    [ -e run.mirror/send/step-00000005 ]
    "${mirror[@]}" "${short[@]}" --keep 1 2>err
    [ "$(ls store)" == $'latest\nstep-00000045' ]
    event 'map(select(.event == "mirror-removed"))[0].mirror_step == 5'
    [ ! -e run.mirror ]
    run -2 --separate-stderr "${mirror[@]}" "${train[@]}"
    [[ $stderr == *"--mirror-remove needs --keep of dt-train"* ]]
    run -2 --separate-stderr dt-run --mirror-remove 'rm -rf store/%n' -- "${short[@]}"
    [[ $stderr == *"--mirror-remove"*"--mirror"* ]]
    run -2 --separate-stderr dt-run --mirror 'true %s' --mirror-get 'true %s' --mirror-remove 'rm -rf store' -- "${short[@]}"
    [[ $stderr == *"--mirror-remove has no %n"* ]]
}

@test "dt-run itself is killed: the job saves and ends, the next dt-run resumes" {
    dt-run --events events.jsonl -- mpirun -np 2 "${train[@]}" "${slow[@]}" 2>err &
    pid=$!
    wait_for saved
    job
    kill -KILL $pid
    wait $pid || true
    dt-run --events events.jsonl -- mpirun -np 2 "${train[@]}" 2>err
    same_as_plain
    gone "$mpirun"
}

@test "a crash loop ends with 93; exit status 3 and usage errors are not retried" {
    printf '#!/bin/sh\necho "start $DT_RUN_TEST" >>starts\nexit ${STATUS:-1}\n' >dt-train-fake
    chmod +x dt-train-fake
    rm -f starts
    run -93 dt-run --events events.jsonl -- ./dt-train-fake --save run
    [ "$(wc -l <starts)" -eq 3 ]
    event 'map(select(.event == "crash-loop"))[0].starts == 3'
    run -93 dt-run --tries 1 -- ./dt-train-fake --save run
    [ "$(wc -l <starts)" -eq 4 ]
    STATUS=3 run -3 dt-run -- ./dt-train-fake --save run
    run -2 dt-run -- mpirun --quiet -np 2 "${train[@]}" --layout dp3
    [ "$(wc -l <starts)" -eq 5 ]
}

@test "a hang: no step within --step-timeout, then the job is restarted" {
    printf '#!/bin/sh\n[ ! -e hung ] || exit 0\ntouch hung\nexec sleep 1000\n' >dt-train-fake
    chmod +x dt-train-fake
    rm -f hung
    dt-run --events events.jsonl --step-timeout 1 -- ./dt-train-fake --save run
    event '[.[] | select(.event == "stalled")] | length == 1'
}

@test "a host is lost, with rank 0 on it: the others go on without it" {
    # Hosts are imitated: the agent below starts processes under another host name. Losing a host means
    # killing all processes with its name.
    unshare --uts true 2>/dev/null || skip "needs unshare --uts"
    cat >agent <<-'END'
	#!/bin/bash
	host=$1
	shift
	[ ! -e "$AGENT/lost-$host" ] || exit 1
	echo $$ >"$AGENT/pid-$host"
	exec unshare --uts --pid --fork --kill-child --mount-proc bash -c "hostname $host; $*"
	END
    chmod +x agent
    rm -f lost-* pid-*
    printf 'machine-a:2\nmachine-b:2\n' >hosts
    export AGENT=$PWD
    export OMPI_MCA_plm_rsh_agent=$PWD/agent OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
    timeout 300 dt-run --events events.jsonl --ranks 2:4 --discover 'cat hosts' -- "${train[@]}" "${slow[@]}" 2>err &
    pid=$!
    wait_for saved || { cat err; return 1; }
    touch lost-machine-a
    kill -KILL "$(cat pid-machine-a)"
    wait $pid || { cat err; return 1; }
    dt-shard-ckpt diff plain/step-00000070 run/step-00000070
    event '[.[] | select(.event == "host-out") | .host] == ["machine-a"]'
    event '[.[] | select(.event == "start") | .ranks] == [4, 2]'
}
@test "the flight recorder names the missing rank after a rank was killed" {
    run mpirun --quiet -np 3 "${train[@]}" --flight-recorder flight --inject kill:rank=1,step=30
    [ "$status" -ne 0 ]
    run -3 dt-run explain flight.*
    [[ $output == *"of 3 ranks, collective "*": 2 ranks wait in it"*"rank 1 (process "*") is behind: its last is "* ]]
    run -2 dt-run explain
    run -1 dt-run explain d.h5
}

@test "contrib/slurm: hosts that are down are left out, a preempted job is requeued" {
    mkdir -p fakes
    printf '#!/bin/sh\ncase $1 in show) printf "a\\nb\\nc\\n" ;; requeue) echo "$2" >>requeued ;; esac\n' >fakes/scontrol
    printf '#!/bin/sh\ncase $3 in b) echo "down*" ;; *) echo allocated ;; esac\n' >fakes/sinfo
    # a fake dt-run: lists the hosts, then exits with 75
    printf '#!/bin/sh\nprintf "%%s\\n" "$*" >called\nsh -c "$4" >listed\nexit ${STATUS:-75}\n' >fakes/dt-run
    chmod +x fakes/*
    rm -f requeued
    export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=3 SLURM_NTASKS_PER_NODE=2 SLURM_JOB_NODELIST='a,b,c'
    PATH=$PWD/fakes:$PATH run -75 bash "$DT_SRC/contrib/slurm/train.sbatch" --model gpt2-tiny
    [ "$(cat listed)" = $'a:2\nc:2' ]
    [ "$(cat requeued)" = 7 ]
    [[ $(cat called) == "--ranks 2:6 --discover "*" -- dt-train --model gpt2-tiny --save run-7 "* ]]
    # in a chain of array jobs the next job resumes; after exit status 0 nothing follows
    SLURM_ARRAY_JOB_ID=5 PATH=$PWD/fakes:$PATH run -75 bash "$DT_SRC/contrib/slurm/train.sbatch"
    [[ $(cat called) == *" --save run-5 "* ]]
    STATUS=0 PATH=$PWD/fakes:$PATH run -0 bash "$DT_SRC/contrib/slurm/train.sbatch"
    [ "$(wc -l <requeued)" -eq 1 ]
}

@test "systemd's protocol: ready, a watchdog message per step, stopping" {
    # a datagram socket like systemd's
    python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("notify.sock")
open("bound", "w").close()
while True:
    m = s.recv(100).decode()
    print(m, flush=True)
    if m == "STOPPING=1":
        break' >notified &
    until [ -e bound ] || ! kill -0 $!; do sleep 0.1; done
    NOTIFY_SOCKET=$PWD/notify.sock dt-run -- "${train[@]}" --steps 20 2>err
    wait %1
    [ "$(head -1 notified)" = READY=1 ]
    grep -q WATCHDOG=1 notified # steps that are read together give one message
    rm -f notify.sock bound
}

@test "a slow rank is named, and its host left out on request" {
    unshare --uts true 2>/dev/null || skip "needs unshare --uts"
    # two imitated hosts of one rank each; the second takes 0.03 s longer per step, and is judged after 80
    # steps
    cat >agent <<-'END'
	#!/bin/bash
	host=$1
	shift
	exec unshare --uts bash -c "hostname $host; $*"
	END
    chmod +x agent
    printf 'machine-a:1\nmachine-b:1\n' >hosts
    local two=(--steps 120 --global-batch 2) # a step that is short compared with 0.03 s
    export OMPI_MCA_plm_rsh_agent=$PWD/agent OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
    timeout 400 dt-run --events events.jsonl --ranks 1:2 --discover 'cat hosts' --evict-slow 0.5 --heartbeat-timeout 20 \
        -- "${train[@]}" "${two[@]}" --save-every 30 --layout dp2 --inject slow:rank=1,seconds=0.03 2>err || { cat err; return 1; }
    event 'map(select(.event == "slow-rank"))[0] | .rank == 1 and .host == "machine-b" and .score < 0.5'
    event '[.[] | select(.event == "host-out") | .host] == ["machine-b"]'
    event '[.[] | select(.event == "start") | .layout] == ["dp2", "dp1"]'
    grep -q "rank 1 (process .* on 'machine-b') is slow" err
    "${train[@]}" "${two[@]}" --save alone --save-every 120
    dt-shard-ckpt diff alone/step-00000120 run/step-00000120
}

@test "random faults: ranks, mpirun and dt-run killed, ranks stopped, hosts changed, a full disk" {
    takes_long
    local steps=40
    ! slow || steps=800 # more than a hundred faults
    mkdir -p kills
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision fp32 --reproducible --global-batch 12 \
        --steps $steps --save kills/plain --metrics kills/plain.jsonl
    OMPI_MCA_plm_rsh_agent=/bin/false python3 "$DT_SRC/tests/cli/random-kills.py" "$DT_BIN" "$PWD/d.h5" kills $steps \
        "${DT_SEED:-$RANDOM}"
    [ -z "$(find "$TMPDIR" -name 'dt-run.*')" ]
}

@test "random faults in an elastic run, whose lost ranks are replaced" {
    slow || skip "a hundred faults take minutes: DT_SLOW=1"
    mkdir -p lost
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision fp32 --reproducible --global-batch 12 \
        --steps 800 --save lost/plain --metrics lost/plain.jsonl
    OMPI_MCA_plm_rsh_agent=/bin/false python3 "$DT_SRC/tests/cli/random-kills.py" "$DT_BIN" "$PWD/d.h5" lost 800 \
        "${DT_SEED:-$RANDOM}" elastic
    [ -z "$(find "$TMPDIR" -name 'dt-run.*')" ]
}

# SPDX-License-Identifier: Apache-2.0
