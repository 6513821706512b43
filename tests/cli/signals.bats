#!/usr/bin/env bats
# dt-run and signals: repeated signals, and jobs that are killed. Most jobs are scripts that record each
# signal.
bats_require_minimum_version 1.5.0
load ranks

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_TEST_TMPDIR" || return 1
    export TMPDIR=$BATS_TEST_TMPDIR
    cat >dt-train-fake <<'END'
#!/bin/bash
# exits with status 75, $ENDS seconds after the first SIGUSR1 (a request to end), or never
trap 'echo USR1 >>heard; asked=${asked:-$SECONDS}' USR1
for s in INT TERM HUP; do trap "echo $s >>heard" $s; done
echo $$ >pid
until [ "$ENDS" != never ] && [ -n "$asked" ] && [ $((SECONDS - asked)) -ge "$ENDS" ]; do sleep 0.1; done
exit 75
END
    chmod +x dt-train-fake
}

# begin SECONDS OPTION...: starts dt-run in a session of its own, as $pid, with a job that ends SECONDS after
# it is asked to; waits until the job handles signals
begin() {
    ENDS=$1 setsid env --default-signal=INT,TERM,HUP dt-run --events events.jsonl "${@:2}" -- ./dt-train-fake --save run 2>err &
    pid=$!
    until_true test -s pid
}

# ended STATUS HEARD: checks that dt-run ends with STATUS, that the job recorded the signals HEARD, and that
# no process of the job is left
ended() {
    local status=0
    wait "$pid" || status=$?
    [ "$status" -eq "$1" ] || { echo "status $status"; cat err events.jsonl; return 1; }
    [ "$(cat heard 2>/dev/null)" = "$2" ] || { echo "heard $(cat heard)"; return 1; }
    if kill -0 "$(cat pid)" 2>/dev/null; then echo "the job is still there"; return 1; fi
    [ -z "$(find . -name 'dt-run.*')" ]
}

event() { # FILTER: checks that this jq filter over the array of all events is true
    jq -se "$1" events.jsonl >/dev/null || { echo "not so: $1"; cat events.jsonl; return 1; }
}

@test "SIGINT from the terminal reaches only dt-run, which asks the job once to end: status 75" {
    begin 1
    kill -INT -- "-$pid"
    ended 75 USR1
    event 'map(select(.event == "ask-end")) | length == 1 and .[0].reason == "Interrupt"'
    event 'map(select(.event == "end"))[0].status == 75'
}

@test "two signals from one timeout(1) count as one, even two different ones" {
    ENDS=2 run -75 timeout --preserve-status 1 dt-run --events events.jsonl -- ./dt-train-fake --save run
    [ "$(cat heard)" = USR1 ]
    [[ $output != *"second signal"* ]]
    rm heard pid
    begin 2
    kill -TERM "$pid"
    sleep 0.3
    kill -HUP "$pid"
    ended 75 USR1
    [ "$(grep -c "second signal" err)" -eq 0 ]
}

@test "two signals count as one even if the job was asked before to end, because its hosts changed" {
    on_ranks
    cd "$BATS_TEST_TMPDIR" || return 1
    licence_set
    echo localhost:1 >hosts
    dt-run --events events.jsonl --ranks 1:2 --discover 'cat hosts' --discover-every 0.2 -- dt-train --model gpt2-tiny \
        --data d.h5 --seq 32 --no-mfu --threads 1 --steps 50 --save run --metrics m.jsonl \
        --inject slow:rank=0,seconds=4 2>err &
    pid=$!
    until_true grep -qs '"event":"training"' events.jsonl
    echo localhost:2 >hosts
    until_true grep -q '"event":"ask-end"' events.jsonl
    sleep 1.2
    kill -TERM "$pid"
    sleep 0.2
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 75 ] || { cat err; return 1; }
    event '[.[] | select(.event == "ask-end")] | length == 2'
    [ "$(grep -c "second signal" err)" -eq 0 ]
}

@test "another signal more than a second later kills the job: status 1" {
    begin never
    kill -TERM "$pid"
    until_true test -s heard
    sleep 1.2
    kill -INT "$pid"
    ended 1 USR1
    grep -q "second signal: the job is killed" err
    event 'map(select(.event == "end"))[0].status == 137'
}

@test "a job that does not end within --grace is killed: status 75, so the same command resumes" {
    begin never --grace 0.5
    kill -TERM "$pid"
    ended 75 USR1
    event 'map(select(.event == "overdue")) | length == 1'
    event 'map(select(.event == "end"))[0].status == 137'
}

@test "the status of a job ended by a signal is 128 plus its number, and it is restarted" {
    printf '#!/bin/sh\necho >>starts\nkill -s $SIGNAL $$\n' >dt-train-fake
    SIGNAL=KILL run -93 dt-run --events events.jsonl --tries 2 -- ./dt-train-fake --save run
    [[ $output == *"start 1 exited with status 137 "* ]]
    [ "$(wc -l <starts)" -eq 2 ]
    event '[.[] | select(.event == "end").status] == [137, 137]'
    SIGNAL=TERM run -93 dt-run --events terminated.jsonl --tries 1 -- ./dt-train-fake --save run
    jq -se 'map(select(.event == "end"))[0].status == 143' terminated.jsonl
}
# SPDX-License-Identifier: Apache-2.0
