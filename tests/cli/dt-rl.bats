#!/usr/bin/env bats
# dt-rl: any number of actors gives the same numbers; environments in an external program; actors that are
# killed; checkpoints; invalid input.
bats_require_minimum_version 1.5.0
load slow

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_TEST_TMPDIR" || return 1
}

teardown() {
    [ -z "${pid:-}" ] || kill -9 "$pid" 2>/dev/null || true
}

await() { # COMMAND...: must succeed within a minute, while dt-rl runs
    for _ in $(seq 1200); do
        "$@" >/dev/null 2>&1 && return 0
        kill -0 "$pid" || return 1
        sleep 0.05
    done
    return 1
}

refused() { # STATUS TEXT ARGUMENT...: stderr contains TEXT
    run --separate-stderr -"$1" timeout 60 dt-rl "${@:3}"
    [[ $stderr == *"$2"* ]] || { echo "not '$2' but: $stderr"; return 1; }
}

@test "the same numbers with one actor and with four; a checkpoint is saved and plays" {
    for n in 1 4; do
        timeout 60 dt-rl train --env cartpole --actors $n --envs 8 --frames 8k --every 10 --json --save kept$n >$n.jsonl
        jq -c 'del(.elapsed_s)' $n.jsonl >$n.txt
    done
    [ "$(wc -l <1.txt)" -gt 3 ]
    cmp 1.txt 4.txt
    dt-shard-ckpt diff kept1 kept4
    [ "$(dt-rl play --env cartpole --episodes 4 --json kept1)" = "$(dt-rl play --env cartpole --episodes 4 --json kept4)" ]
    refused 1 "the policy has 4 observations and 2 actions" play --env grid:3 kept1
}

@test "an external program's environments are learned; a target score that is not reached is exit status 3" {
    timeout 60 dt-rl train --env-command "$DT_SRC/tests/cli/corridor.py" --envs 4 --frames 100k --until 0.8 >lines
    run -3 timeout 60 dt-rl train --env cartpole --frames 1k --until 475
    refused 1 "ended 8 times without a result; last reason: the environment" \
        train --env-command 'read -r x; echo "{\"agents\":1,\"observation\":1,\"actions\":2}";
                             read -r x; echo "{\"observations\":[[0]]}"; exit 1'
}

@test "the two-step game: independent values and their sum (VDN) settle for 7, a mixture (QMIX) finds 8" {
    for how in dqn:7 vdn:7 qmix:8; do
        timeout 120 dt-rl train --algorithm "${how%:*}" --env twostep --epsilon 1 --frames 16k --actors 1 --save kept --overwrite
        dt-rl play --env twostep --episodes 4 --json kept | jq -e ".score_mean == ${how#*:}"
    done
}

@test "prioritized replay solves a grid, with its oldest steps discarded" {
    timeout 120 dt-rl train --algorithm dqn --env grid:4 --frames 400k --until 0.9
    timeout 120 dt-rl train --algorithm dqn --env grid:4 --frames 6k --every 50 --replay 2k --json >lines
    jq -es 'all(.[]; .replay <= 2000 and .value_mean != null and .entropy == null) and (.[-1].replay == 2000)' lines
    refused 2 "--warm-up is larger than --replay" train --algorithm dqn --env cartpole --replay 500
}

@test "a resumed run equals an uninterrupted one, to the bit; a checkpoint that does not fit is refused" {
    for how in a2c:3 a3c:1; do
        train=(timeout 60 dt-rl train --algorithm "${how%:*}" --actors "${how#*:}" --env cartpole --envs 6 --every 10 --json)
        rm -rf whole half rest
        "${train[@]}" --frames 9600 --save whole >whole.jsonl
        "${train[@]}" --frames 4800 --save half >half.jsonl
        "${train[@]}" --frames 9600 --save rest --resume half >rest.jsonl
        dt-shard-ckpt diff whole rest
        cat half.jsonl rest.jsonl | jq -c 'del(.elapsed_s)' >two
        jq -c 'del(.elapsed_s)' whole.jsonl | cmp - two
    done
    refused 1 "a policy, not Q-values" train --algorithm dqn --env cartpole --resume half
    refused 1 "of this shape" train --env grid:3 --resume half
    refused 1 "another --optimizer than rmsprop" train --env cartpole --optimizer rmsprop --resume half
    refused 1 "nowhere" train --env cartpole --resume nowhere
}

@test "value methods resume with their mixer, and say that the replay buffer is empty" {
    train=(timeout 60 dt-rl train --env twostep --epsilon 1 --actors 1 --json)
    "${train[@]}" --algorithm qmix --frames 12k --save kept >first
    run --separate-stderr "${train[@]}" --algorithm qmix --frames 16k --resume kept --save more
    [[ $status -eq 0 && $stderr == *"checkpoints hold no replay buffer"* ]]
    jq -es '.[0].update > 1000 and .[0].frames > 12000 and .[0].loss < 0.1' <<<"$output"
    dt-rl play --env twostep --episodes 2 --json more | jq -e '.score_mean == 8'
    "${train[@]}" --algorithm vdn --frames 4k --save sum >first
    refused 1 "no tensor mixer/" train --algorithm qmix --env twostep --resume sum
}

@test "resume auto starts anew in an empty folder, continues the newest checkpoint, and skips a damaged one" {
    train=(timeout 60 dt-rl train -a qmix --env twostep --actors 1 --every 1000 --save kept --resume auto)
    run --separate-stderr -0 "${train[@]}" --frames 2k --save-every 50
    [ -z "$stderr" ]
    steps=(kept/step-*)
    [ ${#steps[@]} -gt 2 ]
    newest=${steps[-1]}
    # nothing is left to do: the counts are those of the checkpoint
    run --separate-stderr -3 "${train[@]}" --frames 2k --until 100
    [[ $stderr == "dt-rl: resumed from '$newest' at update $((10#${newest#*-})); checkpoints hold no replay buffer: "* ]]
    [[ $stderr == *"mean score of the last 100 episodes after 2048 steps: "* && $stderr != *": 0.00,"* ]]
    printf '\377\377\377\377' | dd of="$newest/shard-00000.h5" bs=1 seek=$(($(stat -c %s "$newest/shard-00000.h5") / 2)) conv=notrunc status=none
    run -3 dt-shard-ckpt verify "$newest"
    run --separate-stderr -0 "${train[@]}" --frames 4k
    older=${steps[-2]}
    [[ $stderr == *"is damaged, using that of update $((10#${older#*-})): "*"resumed from '$older' at update "* ]]
    dt-shard-ckpt verify kept
    refused 2 "--resume auto needs --save" train --env cartpole --resume auto
    refused 2 "end before the first update" train -a dqn --env cartpole --frames 500 --save other --resume auto
    run --separate-stderr -1 timeout 60 dt-rl train -a dqn --env cartpole --resume nowhere
    [ "$stderr" = "dt-rl: cannot open 'nowhere': No such file or directory" ]
}

@test "a2c has the same numbers when an actor is killed" {
    train=(dt-rl train --env cartpole --frames 100k --every 10 --json)
    timeout 60 "${train[@]}" --save calm >calm.jsonl
    timeout 60 "${train[@]}" --save hurt >hurt.jsonl 3>&- &
    pid=$!
    await grep '"update": *20,' hurt.jsonl || true # it may have finished by now
    kill -9 "$(pgrep -P "$(pgrep -P "$pid" | head -1)" | head -1)" || true
    wait $pid
    pid=
    dt-shard-ckpt diff calm hurt
}

@test "a2c, a3c, impala and dqn continue after an actor is killed, until a signal ends them cleanly" {
    for how in a2c a3c impala dqn; do
        dt-rl train --algorithm $how --env cartpole --frames 1000G --every 20 --json --save $how >$how.jsonl 3>&- &
        pid=$!
        await grep '"update": *40,' $how.jsonl
        kill -9 "$(pgrep -P "$pid" | head -1)"
        await grep '"restarts": *[1-9]' $how.jsonl
        kill "$pid"
        status=0
        wait $pid || status=$?
        pid=
        [ $status -eq 75 ]
        dt-shard-ckpt verify $how
    done
}

@test "bad input is refused by name" {
    refused 2 "give --env NAME or --env-command" train
    refused 2 "env" train --env cartpole --env-command true
    refused 2 "--envs 5 is not a multiple of --actors 2" train --env cartpole --envs 5 --actors 2
    refused 2 "known are cartpole" train --env pole
    refused 2 "needs a size" train --env grid
    refused 2 "option '--env': 'grid:1'" train --env grid:1
    for widths in 8-x 64- ''; do
        refused 2 "option '--hidden': '$widths' is not a list of layer widths" train --env cartpole --hidden "$widths"
    done
    refused 1 "nowhere" play --env cartpole nowhere
}

@test "an option of other algorithms is refused by its name" {
    refused 2 "'--epsilon' is an option of dqn, vdn and qmix, not of a2c" train --env cartpole --epsilon 0.9
    refused 2 "'--replay' is" train --env cartpole -a impala --replay 10
    refused 2 "'--gae-lambda' is an option of a2c, a3c and impala, not of dqn" \
        train --env cartpole -a dqn --gae-lambda 0.1
    refused 2 "'--mixer-width' is an option of qmix, not of vdn" train --env twostep -a vdn --mixer-width 7
}

@test "agents with equal observations act differently by their index, which a checkpoint keeps" {
    cat >pair.py <<'END'
import json, sys
n = 0
for line in sys.stdin: # the reward is 1 where the first agent takes action 2 and the second one action 1
    m = json.loads(line)
    if "open" in m:
        n = m["open"]["envs"]
        r = {"agents": 2, "observation": 1, "actions": 3}
    elif "reset" in m:
        r = {"observations": [[0]] * (2 * len(m["reset"]))}
    else:
        a = m["step"]
        r = {"observations": [[0]] * (2 * n), "terminated": [True] * n,
             "rewards": [int(a[2 * i:2 * i + 2] == [2, 1]) for i in range(n)]}
    print(json.dumps(r), flush=True)
END
    pair=(--env-command "python3 pair.py")
    timeout 120 dt-rl train -a vdn "${pair[@]}" --epsilon 1 --actors 1 --frames 6k --save with
    dt-rl play "${pair[@]}" --episodes 4 --json with | jq -e '.score_mean == 1'
    timeout 120 dt-rl train -a vdn "${pair[@]}" --epsilon 1 --actors 1 --frames 2k --no-agent-id --save without
    dt-rl play "${pair[@]}" --episodes 4 --json without | jq -e '.score_mean == 0'
    timeout 60 dt-rl train -a vdn "${pair[@]}" --actors 1 --frames 4k --resume without --save without
    refused 1 "' was trained without --agent-id" \
        train -a vdn "${pair[@]}" --actors 1 --frames 6k --resume without --agent-id
}

@test "a number of frames that ends before learning starts is refused" {
    refused 2 "--frames 500 end before the first update: the replay buffer needs 1000 steps (--warm-up)" \
        train -a dqn --env cartpole --frames 500 --save kept
    refused 2 "--replay-ratio" train -a dqn --env cartpole --frames 2k --replay-ratio 0.01
    [ ! -e kept ]
    timeout 60 dt-rl train -a dqn --env cartpole --frames 2k --save kept
    refused 1 "the replay buffer starts empty and needs" train -a dqn --env cartpole --frames 2500 --resume kept
}

@test "if metrics cannot be written, the parameters are saved nevertheless" {
    train=(timeout 60 dt-rl train --env cartpole --frames 1000G --every 10)
    run -1 bash -c '"${@:1}" 2>err >/dev/full' - "${train[@]}" --save full
    [[ $(<err) == "dt-rl: cannot write to standard output: No space left on device" ]]
    dt-shard-ckpt verify full
    run -1 bash -c 'set -o pipefail; "$@" 2>err | head -2 >lines' - "${train[@]}" --save pipe
    [ ! -s err ]
    dt-shard-ckpt verify pipe
}

@test "periodic checkpoints; a folder belongs to one run" {
    train=(dt-rl train --env cartpole --every 1000)
    "${train[@]}" --frames 5k --save kept --save-every 8
    [ -d kept/step-00000008 ] && [ -d kept/step-00000016 ] && [ -d kept/step-00000020 ]
    refused 1 "'kept' holds the checkpoints of another run, the newest 'kept/step-00000020'; --resume auto continues" \
        train --env cartpole --frames 3k --save kept
    "${train[@]}" --frames 6k --save kept --resume kept
    [ -d kept/step-00000024 ]
    "${train[@]}" --frames 3k --save other
    refused 1 "another run" train --env cartpole --frames 8k --save kept --resume other
    "${train[@]}" --frames 3k --save kept --overwrite
    [ "$(echo kept/step-*)" = kept/step-00000012 ]
    : >afile
    refused 1 afile train --env cartpole --frames 1000G --save afile
    refused 2 "--save" train --env cartpole --save-every 3
    "${train[@]}" --frames 1000G --save busy >lines 3>&- &
    pid=$!
    await grep update lines
    refused 1 "another job is saving into 'busy'" train --env cartpole --frames 3k --save busy
    kill "$pid"
    wait $pid || true
    pid=
}

@test "a hangup ends it cleanly, unless nohup ignores it" {
    env --default-signal=HUP dt-rl train --env cartpole --frames 1000G --save kept >lines 2>log 3>&- &
    pid=$!
    await grep update lines
    kill -HUP "$pid"
    status=0
    wait $pid || status=$?
    [ $status -eq 75 ]
    dt-shard-ckpt verify kept
    [ "$(cat log)" = "dt-rl: stopped by a signal after update $(basename kept/step-* | sed 's/step-0*//'), checkpoint saved" ]
    nohup dt-rl train --env cartpole --frames 1000G --every 1 >endless 3>&- 2>log &
    pid=$!
    await grep update endless
    kill -HUP "$pid"
    await grep -E '^update [0-9]{3}' endless
    kill "$pid"
    status=0
    wait $pid || status=$?
    pid=
    [ $status -eq 1 ]
    grep -q 'nothing saved: no --save' log
    dt-rl play --env cartpole --episodes 1000000000 kept 2>log 3>&- &
    pid=$!
    # before exec the shell's own handlers are there
    catches_term() { [ "$(cat "/proc/$pid/comm")" = dt-rl ] && (( 0x$(awk '/SigCgt/ { print $2 }' "/proc/$pid/status") & 0x4000 )); }
    await catches_term
    kill "$pid"
    status=0
    wait $pid || status=$?
    pid=
    [ $status -eq 1 ]
    [ "$(cat log)" = "dt-rl: stopped by a signal before all episodes were over" ]
}

@test "the first restart of an actor is reported with its reason, the others are counted" {
    cat >crash.sh <<'END'
read -r x; echo '{"agents":1,"observation":1,"actions":2}'
read -r x; echo '{"observations":[[0]]}'
for _ in $(seq 40); do
    read -r x || exit 0
    echo '{"observations":[[0]],"rewards":[0],"terminated":[false]}'
done
END
    run --separate-stderr -0 timeout 60 dt-rl train --env-command 'sh crash.sh' --envs 2 --frames 512
    [[ $stderr == "dt-rl: actor "[01]" was restarted: the environment 'sh crash.sh' has ended"*"
dt-rl: "*" restarts of actors; last reason: the environment 'sh crash.sh' has ended" ]]
    [ "$(wc -l <<<"$stderr")" -eq 2 ]
}

@test "CartPole is solved by each algorithm with two actors, three seeds" {
    slow || skip "minutes: DT_SLOW=1"
    for how in a2c a3c impala dqn; do
        for seed in 1 2 3; do
            timeout 300 dt-rl train --algorithm $how --env cartpole --until 475 --frames 5M --seed $seed
        done
    done
}
# SPDX-License-Identifier: Apache-2.0
