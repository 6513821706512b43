#!/usr/bin/env bats
# dt-rollout: the same samples in any batch and with a server, rewards by an external program, bad input.
bats_require_minimum_version 1.5.0

setup_file() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    dt-rollout prompts copy:2 --count 4000 --seed 9 | jq -c '{text: (.prompt + .completion)}' >copy.jsonl
    dt-dataset build --tokenizer byte --pack documents --out d.h5 copy.jsonl
    dt-train --model llama-tiny --data d.h5 --seq 64 --microbatch 16 --steps 20 --lr 3e-3 --threads 1 --no-mfu \
        --save run --precision fp32
}

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    common=(--threads 1 --precision fp32 --max-tokens 6)
}

refused() { # STATUS TEXT ARGUMENT...: stderr contains TEXT
    run --separate-stderr -"$1" timeout 60 dt-rollout "${@:3}"
    [[ $stderr == *"$2"* ]] || { echo "not '$2' but: $stderr"; return 1; }
}

teardown() {
    [ -z "${hostile-}" ] || kill "$hostile" 2>/dev/null || true
}

@test "a rollout is a function of the seed and its number, not of the batch" {
    dt-rollout sample "${common[@]}" --task copy:2 --count 70 --group 4 run >all.jsonl
    [ "$(wc -l <all.jsonl)" -eq 70 ]
    dt-rollout sample "${common[@]}" --task copy:2 --first 65 --count 2 --group 4 run >two.jsonl
    cmp <(sed -n '66,67p' all.jsonl) two.jsonl
    dt-rollout sample "${common[@]}" --task copy:2 --first 65 --count 2 --group 2 run | jq -c .answers >few.jsonl
    cmp <(jq -c '.answers[:2]' two.jsonl) few.jsonl
    dt-rollout sample "${common[@]}" --task copy:2 --count 2 --group 4 --seed 5 run >other.jsonl
    [ "$(jq -c .answers other.jsonl)" != "$(head -2 all.jsonl | jq -c .answers)" ]
    jq -es 'all(.[]; .step == 20 and .temperature == 1 and (.answers | length) == 4 and
        all(.answers[]; (.ids | length) == (.logprobs | length) and all(.logprobs[]; . <= 0)))' all.jsonl
    # the reward is that of the text
    jq -es 'all(.[]; .prompt as $p | all(.answers[]; .reward == if .text + ">" == $p then 1 else 0 end))' all.jsonl
}

@test "huge rewards are printed in a few digits" {
    dt-rollout sample "${common[@]}" --task copy:2 --count 2 --group 2 run >few.jsonl
    dt-rollout score few.jsonl --reward 'while read -r _; do echo 1e150; done' 2>said.txt >/dev/null
    grep -q 'reward 1e+150, std ' said.txt
    [ "$(wc -c <said.txt)" -lt 250 ]
}

@test "a server gives the same rollouts" {
    dt-rollout sample "${common[@]}" --task copy:2 --count 12 --group 4 run | jq -c 'del(.step, .weights)' >here.jsonl
    dt-serve --precision fp32 --threads 1 --port 0 --api-key k run >url 2>serve.log 3>&- &
    server=$!
    until [ -s url ] || ! kill -0 $server; do sleep 0.1; done
    status=0
    dt-rollout sample --max-tokens 6 --task copy:2 --count 12 --group 4 --parallel 3 --api-key k "$(cat url)" \
        >there.jsonl || status=$?
    dt-rollout sample --task copy:2 --api-key wrong "$(cat url)" >none.jsonl 2>wrong.txt && status=9
    kill $server
    wait $server || true
    [ "$status" -eq 0 ]
    cmp <(jq -cS . here.jsonl) <(jq -cS . there.jsonl)
    grep -q 401 wrong.txt
}

@test "a server that still loads its model is asked again" {
    python3 "$DT_SRC/tests/cli/serve-loading.py" >at 3>&- &
    server=$!
    until [ -s at ] || ! kill -0 $server; do sleep 0.1; done
    refused 1 "lists no model" sample --task copy:2 "$(cat at)"
    kill $server 2>/dev/null || true
}

@test "hostile servers: lost, late and unordered answers cost nothing; wrong ones are an error that says why" {
    python3 "$DT_SRC/tests/cli/rollout-hostile.py" >hostile 3>&- &
    hostile=$!
    until [ -s hostile ] || ! kill -0 $hostile; do sleep 0.1; done
    of() { http_proxy=http://127.0.0.1:1 timeout 60 dt-rollout sample --task copy:2 --count 6 --group 3 --parallel 4 "$(cat hostile)/$1"; }
    of plain >plain.jsonl
    jq -es 'length == 6 and all(.[]; .answers | map(.text) == ["a", "bb", "aaa"])' plain.jsonl
    for how in reversed cut drop busy pause; do
        of $how >there.jsonl
        cmp plain.jsonl there.jsonl
    done
    while read -r how said; do
        of "$how" >there.jsonl 2>said && return 1
        grep -q "$said" said || { cat said; return 1; }
    done <<'END'
twice no choice has the index 1
few returned 2 answers instead of 3
json v1/completions
moved answers 302
never answers 429
END
}

@test "a NUL in an answer does not end its text, here or from a server, and is no right answer" {
    "$DT_HELP/make-model" random
    dt-rollout sample --threads 1 --precision fp32 --max-tokens 3 --temperature 5 --task copy:2 --count 400 random |
        jq -c 'del(.step, .weights)' >here.jsonl
    jq -es '[.[].answers[] | select((.ids | all(.[]; . < 128)) and (.ids | index(0)))] | length > 0 and
        all(.[]; .text == (.ids | map(if . == 0 then 65533 else . end) | implode))' here.jsonl
    dt-serve --precision fp32 --threads 1 --port 0 random >url.nul 2>serve.log 3>&- &
    server=$!
    until [ -s url.nul ] || ! kill -0 $server; do sleep 0.1; done
    status=0
    dt-rollout sample --max-tokens 3 --temperature 5 --task copy:2 --count 400 "$(cat url.nul)" >there.jsonl || status=$?
    kill $server
    wait $server || true
    [ "$status" -eq 0 ]
    cmp <(jq -cS . here.jsonl) <(jq -cS 'del(.step, .weights)' there.jsonl)
    # of rollouts that are scored again
    jq -nc '{rollout: 1, prompt: "ab>", prompt_ids: [97], answers: [{ids: [97], text: "ab\u0000b"}, {ids: [97], text: "ab"}]}' >nul.jsonl
    [ "$(dt-rollout score --task copy:2 nul.jsonl | jq -c '[.answers[].reward]')" = '[0,1]' ]
}

@test "options that would have no effect, with or without a server, are refused" {
    for option in '--precision fp32' '--seq 9' '--tokenizer byte' '--any-base' '--device cpu' '--threads 1'; do
        # shellcheck disable=SC2086 # an option and its value
        refused 2 "${option%% *} cannot be combined with a server" sample --task copy:2 $option http://127.0.0.1:1
    done
    for option in '--model m' '--api-key k' '--parallel 2'; do
        # shellcheck disable=SC2086
        refused 2 "${option%% *} is for a server" sample --task copy:2 $option run
    done
}

@test "a reward program gets prompt, answer and item; each of its failures is reported and costs one answer" {
    echo '{"prompt": "ab>", "want": 7}' >p.jsonl
    dt-rollout sample "${common[@]}" --reward "jq -c --unbuffered '.item.want + (.prompt | length)'" run p.jsonl \
        >scored.jsonl
    jq -e 'all(.answers[]; .reward == 10)' scored.jsonl
    dt-rollout score --reward 'while read -r x; do echo rubbish; read -r x; echo 1; done' --reward-workers 1 \
        scored.jsonl --json >again.jsonl 2>sum.txt || true
    jq -e 'all(.answers[]; .reward == null and .reward_error == "its line is not a number" or .reward == 1)' again.jsonl
    dt-rollout score --task copy:2 scored.jsonl --json 2>sum.json >task.jsonl
    jq -e '.answers == 8 and .unscored == 0' sum.json
    dt-rollout score --task copy:2 <scored.jsonl - | cmp - task.jsonl
    refused 1 "failed 32 times" score --reward 'echo x' --reward-workers 9 <(cat scored.jsonl scored.jsonl scored.jsonl scored.jsonl scored.jsonl)
}

@test "a signal ends the reward command too, with what it has started" {
    dt-rollout prompts copy:2 --count 1 >p.jsonl
    dt-rollout sample "${common[@]}" --reward 'sleep 300 & echo $! >child; wait' --reward-workers 1 \
        --reward-timeout 300 run p.jsonl >out 2>log 3>&- &
    pid=$!
    for _ in $(seq 200); do [ -s child ] && break; sleep 0.05; done
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    [ $status -eq 143 ]
    for _ in $(seq 200); do [ -e "/proc/$(cat child)" ] || return 0; sleep 0.05; done
    return 1
}

@test "bad input: one line, and the right status" {
    refused 2 "give --reward" sample run
    refused 2 "not both" sample run --task sort:3 --reward cat
    refused 2 "unknown task 'sorted:3'; tasks are " sample run --task sorted:3
    refused 2 "needs a size" prompts countdown:99
    refused 2 "--first" sample run p.jsonl --task copy:2 --first 3
    refused 1 "missing" sample missing --task copy:2
    echo '{"question": "x"}' >bad.jsonl
    refused 1 "bad.jsonl:1" sample run bad.jsonl --reward cat
    : >empty.jsonl
    refused 1 "empty.jsonl: empty" score empty.jsonl --reward cat
    refused 1 "empty.jsonl: empty" sample run empty.jsonl --reward cat
    refused 1 "bad.jsonl:1: it is not a rollout" score bad.jsonl --reward cat
    printf '{"prompt": "%0200d"}\n' 1 >long.jsonl
    refused 1 "a length of 1000000 tokens exceeds" sample run --task copy:2 --seq 1000000
    refused 1 "no answer has a reward: 1 without" score --reward "echo x" <(jq -c '.answers |= .[:1]' scored.jsonl | head -1)
    refused 1 "no room for an answer" sample run long.jsonl --reward cat
    refused 1 "127.0.0.1:1" sample http://127.0.0.1:1 --task copy:2 --count 1
}
# SPDX-License-Identifier: Apache-2.0
