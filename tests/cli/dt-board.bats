#!/usr/bin/env bats
# dt-board: the files it reads, its JSON answers, and its page in a browser.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    mkdir mine other
    mpirun -np 2 dt-train --model gpt2-tiny --data d.h5 --seq 32 --global-batch 4 --microbatch 1 --layout pp2 --threads 1 \
        --no-mfu --steps 12 --metrics mine/m.jsonl --details 2 --trace mine/t.json --eval-data d.h5 --eval-every 4 \
        --eval-tokens 64
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --global-batch 4 --threads 1 --no-mfu --steps 9 --metrics other/n.jsonl
    echo '{"time":1790000000.5,"event":"rollback","step":4,"why":"a test"}' >mine/events.jsonl
    echo 'no metrics' >mine/notes.txt
}

setup() {
    in_folder
    board=
}

teardown() {
    tmux -L board-$$ kill-server 2>/dev/null || true
    [ -z "$board" ] || { kill "$board" && wait "$board"; } || true
}

runs_say() { # FILTER: jq filter over the list of runs
    curl -s "${url}api/runs" | jq -e "$1" >/dev/null
}

start() {
    rm -f url
    dt-board --port 0 "$@" >url 2>log &
    board=$!
    for _ in $(seq 600); do
        grep -q '^http' url && break
        kill -0 "$board" || { cat log; return 1; }
        sleep 0.05
    done
    url=$(cat url)
    url=${url%%\?*}
}

@test "runs, curves, ranks, events and a pipeline step as JSON; appended lines arrive by themselves" {
    start mine other
    curl -s "${url}api/runs" >r
    jq -e '(.runs | length) == 2 and (.runs | map(.newest.step)) == [12, 9] and (.runs | map(.bad)) == [0, 0] and
        (.runs[0].categories | map(.bytes) | add) == .runs[0].newest.peak_bytes and .runs[0].details == 6 and
        (.runs[0].events | map(.event)) == ["rollback"] and .runs[1].events == []' r
    # at the step's highest point the plan equals the peak by category; gaps between buffers count as
    # workspace
    jq -e '.runs[0] | .categories as $c | (.memory_over_step.bytes | to_entries) as $b |
        ([$b[].value] | transpose | map(add)) as $sum | ($sum | index($sum | max)) as $at |
        .memory_over_step.phase[0] == "forward" and .memory_over_step.phase[-1] == "step" and
        all($c[] | select(.name != "workspace"); .name as $n | .bytes == ($b[] | select(.key == $n) | .value[$at]))' r
    # with as many points as steps the curve equals the file
    curl -s "${url}api/series?keys=loss,lr&points=4000&run=0" >s
    jq -n --slurpfile s s --slurpfile m mine/m.jsonl '
        ($m | map(select(.loss))) as $m | $s[0].runs[0] as $r | ($r.series | keys) == ["loss", "lr"] and
        [range($r.x | length) | select($r.series.loss[.] != null)] as $i |
        ($i | length) == 12 and all(range(12); $r.x[$i[.]] == $m[.].step and
            ($r.series.loss[$i[.]] / $m[.].loss - 1 | fabs) < 1e-5)' | grep -x true
    # with fewer points: means over equal ranges of steps
    curl -s "${url}api/series?keys=loss&points=3&run=1&from=1&to=9" >s
    jq -n --slurpfile s s --slurpfile m other/n.jsonl '($m | map(.loss)) as $l | $s[0].runs[0] | .x == [3, 6, 9] and
        ([.series.loss, [$l[0:3], $l[3:6], $l[6:9] | add / 3]] | transpose | all(.[]; (.[0] / .[1] - 1 | fabs) < 1e-5))' |
        grep -x true
    curl -s "${url}api/details?run=0&section=data_s" | jq -e '(.lines | map(.step)) == [2, 4, 6, 8, 10, 12] and
        all(.lines[]; (.ranks | length) == 2 and (.units | length) == 4)'
    curl -s "${url}api/timeline?run=0" | jq -e '.step == 11 and ([.spans[] | select(.[1] == "F") | .[0]] | sort) ==
        [0, 0, 0, 0, 1, 1, 1, 1] and all(.spans[]; .[2] >= 0 and .[2] + .[3] <= $us + 2)' --argjson us \
        "$(curl -s "${url}api/timeline?run=0" | jq .us)"
    before=$(jq .version r)
    timeout 300 curl -sN "${url}events" >ev 3>&- &
    listens=$!
    until_true test -s ev
    echo '{"run_id":"x","step":10,"loss":2.5}' >>other/n.jsonl
    newer() { grep '^data: ' ev | grep -qvx "data: $before"; }
    until_true newer
    kill "$listens"
    wait "$listens" || true
    until_true runs_say '.runs[1].newest | .step == 10 and .loss == 2.5'
    # a run that was rolled back: its file is truncated and grows again
    head -5 other/n.jsonl >"cut"
    cat cut >other/n.jsonl
    until_true runs_say '.runs[1].newest.step == 5'
    # a run that starts meanwhile, and invalid lines
    { cat cut; echo '{"step": 6, "loss"'; echo 'x'; echo '[1]'; } >other/z.jsonl
    until_true runs_say '(.runs | length) == 3 and .runs[2].bad == 3 and .runs[2].newest.step == 5'
    rm other/z.jsonl
}

@test "metrics of dt-rl: an update counts as a step" {
    dt-rl train --env cartpole --actors 1 --frames 4k --every 2 --json >rl.jsonl
    start rl.jsonl
    curl -s "${url}api/runs" | jq -es --slurpfile m rl.jsonl '.[0].runs[0] | .newest.step == $m[-1].update and .bad == 0 and
        (.keys | index("entropy") and index("score_mean"))'
    curl -s "${url}api/series?keys=frames&points=4000" | jq -e --slurpfile m rl.jsonl \
        '.runs[0] | .x == ($m | map(.update)) and .series.frames == ($m | map(.frames))'
}

@test "access control: host names of this machine only, GET only, with --key its owner only" {
    start mine
    code() { curl -s -o /dev/null -w '%{http_code}' "$@"; }
    [ "$(code "$url")" -eq 200 ]
    for host in evil.example localhost.evil.example 127.evil.example 127.0.0.1.evil.example '[::1].evil.example' \
        'localhost:80x' ''; do
        [ "$(code -H "Host: $host" "${url}api/runs")" -eq 403 ] || { echo "$host"; return 1; }
    done
    for host in localhost LOCALHOST:8 127.0.0.1 127.1.2.3:80 '[::1]' '[::1]:80' board.localhost; do
        [ "$(code -H "Host: $host" "${url}api/runs")" -eq 200 ] || { echo "$host"; return 1; }
    done
    [ "$(code -d x=1 "${url}api/runs")" -eq 405 ]
    [ "$(code "${url}nowhere")" -eq 404 ]
    [ "$(code "${url}api/series?points=4000&from=-1e308&to=1e308&run=63&keys=,,loss")" -eq 200 ]
    curl -s "$url" >page
    run -1 grep -E '(src|href)=.?(https?:)?//' page
    kill "$board"
    wait "$board"
    start --key secret mine
    [ "$(code "${url}api/runs")" -eq 401 ]
    [ "$(code "${url}api/runs?key=secres")" -eq 401 ]
    [ "$(code "${url}api/runs?key=secret")" -eq 200 ]
    [ "$(code "${url}health")" -eq 200 ]
    kill "$board"
    wait "$board"
    start --key 'a&b c+%41é' mine
    [ "$(code "$(cat url)")" -eq 200 ] # the printed address
    [ "$(code "${url}api/runs?key=a")" -eq 401 ]
    run -2 dt-board --key '' mine
    # the address that is listened on decides, not how --host is spelt: 0 is 0.0.0.0, 2130706433 is 127.0.0.1
    for host in 0.0.0.0 0 ::ffff:0.0.0.0; do
        run -2 dt-board --port 0 --host "$host" mine
        [[ ${lines[0]} == *"--host $host "*"needs --key"* ]]
    done
    for host in 2130706433 0x7f.1 ::ffff:127.0.0.1; do
        kill "$board"
        wait "$board"
        start --host "$host" mine
        [ "$(code "${url}api/runs")" -eq 200 ]
    done
    run -2 dt-board
    mkdir -p empty
    run -1 dt-board empty
    [[ ${lines[0]} == "dt-board: no metrics of dt-train or dt-rl in 'empty'; "* ]]
    run -1 dt-board /nowhere
}

@test "numbers in requests are checked, and steps may have any size" {
    local bad
    for step in 1e300 1e300 -1e308 1.7e308 5; do
        printf '{"run_id": "a", "step": %s, "loss": 2}\n' $step
    done >huge.jsonl
    start mine huge.jsonl
    for bad in points=0 points=-1 points=4001 points=2.5 points=x points= from=x from=1e999 to=nan to=3x run=-1 run=64 run=x; do
        for of in series details timeline runs; do
            [ "$(curl -s -o said -w '%{http_code}' "${url}api/$of?$bad")" -eq 400 ] || { echo "$of $bad"; return 1; }
            grep -q "^'${bad%%=*}' is not a" said
        done
    done
    grep -qx "'run' is not a whole number from 0 to 63" said
    # the range of all steps is no double; a range may be the smallest number there is
    curl -s "${url}api/series?keys=loss&run=1&points=4" | jq -e '.runs[0] | .series.loss == [2, 2] and .x == [1e300, 1.7e308]'
    curl -s "${url}api/series?keys=loss&run=1&points=4&from=-1e308" | jq -e '.runs[0] | .x == [-1e308, 5, 1.7e308]'
    curl -s "${url}api/series?keys=loss&run=0&points=4&from=1&to=5e-324" | jq -e '.runs[0].x == []'
    curl -s "${url}api/series?keys=loss&run=1&points=4&from=5&to=5" | jq -e '.runs[0].x == [5]'
}

@test "few open files allowed: further clients are turned away, without busy waiting" {
    dt-board() {
        ulimit -n 40
        exec "$DT_BIN/dt-board" "$@"
    }
    start mine
    unset -f dt-board
    ticks() { awk '{ print $14 + $15 }' "/proc/$board/stat"; }
    /usr/bin/python3 -c 'import socket, sys, time
s = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(60)]
print("there", flush=True)
time.sleep(300)' "$(echo "$url" | grep -o '[0-9]*/$' | tr -d /)" >idle 3>&- &
    idle=$!
    until_true test -s idle
    before=$(ticks)
    sleep 2
    [ "$(($(ticks) - before))" -lt 100 ] # of 200 ticks
    kill "$idle"
    wait "$idle" || true
    answers() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$url")" = 200 ]; }
    until_true answers
}

@test "dt-top: 80 columns, ASCII by locale, live in a terminal (tmux)" {
    for locale in C.UTF-8 C; do
        LC_ALL=$locale dt-top mine other >top
        [ "$(LC_ALL=$locale wc -L <top)" -le 80 ]
        grep -E "^step +$(jq -s 'map(.step) | max' mine/m.jsonl), loss $(jq -s 'map(select(.loss))[-1].loss' mine/m.jsonl | cut -c1-4)" top
        grep -E '^  compute +[0-9.]+%' top
        grep -E '^ranks +2; longest compute time: rank [01],' top
        grep -E '^event +step 4: rollback' top
    done
    run -1 env LC_ALL=C grep -P '[^\x00-\x7f]|\x1b' top
    # nothing is cut: in 40 columns, lines are broken, and only the bars are left out
    for width in 40 53 80; do
        LC_ALL=C COLUMNS=$width dt-top mine >top
        [ "$(wc -L <top)" -le "$width" ]
        tr -s ' \n' ' ' <top >words
        grep -E 'loss [0-9.]+, gradient norm [0-9.]+, lr [0-9.e-]+ ' words
        grep -E 'mean of the last [0-9]+ lines compute [0-9.]+% [0-9.e-]+ s ' words
        grep -E 'memory planned peak [0-9.]+ MiB \(largest rank\), resident [0-9.]+ MiB \(rank 0\) ' words
        grep -E '^loss {7}[^ ]+ [0-9.]+ \.\. [0-9.]+$' top
    done
    # the time shares over the newest lines equal the file's
    want=$(jq -s 'map(select(.step_s)) | 100 * (map(.compute_s) | add) / (map(.step_s) | add)' other/n.jsonl)
    dt-top other | awk -v want="$want" '$1 == "compute" { d = $2 - want; ok = d < 0.06 && d > -0.06 } END { exit !ok }'
    run -2 dt-top
    run -2 dt-top --every 0 mine
    run -1 dt-top /nowhere
    # numbers near and beyond the largest double
    for loss in 1.7e308 -1.7e308 1e400 Infinity NaN null 1 2; do
        printf '{"run_id": "a", "step": %d, "loss": %s, "step_s": 1}\n' $((++step)) "$loss"
    done >huge.jsonl
    LC_ALL=C COLUMNS=42 dt-top huge.jsonl >top
    grep -F 'loss       @_____== -1.7e+308 .. 1.7e+308' top || { cat top; false; }
    grep -x 'step       8, loss 2' top || { cat top; false; }
    dt-doctor huge.jsonl >said || [ $? = 3 ]
    grep -F 'is not finite in 4 steps' said || { cat said; false; }
    # what a run does not have is left out
    [ "$(grep -c -e 'gradient norm' -e 'lr ' -e speed top)" = 0 ]
    # runs beyond the 64 that are shown are counted
    mkdir many
    for i in $(seq 70); do printf '{"run_id": "%d", "step": 1, "loss": 1}\n' "$i" >many/$((i + 100)).jsonl; done
    dt-top many >top 2>said
    [ "$(grep -c '^run ' top)" = 64 ]
    grep -Fx 'dt-top: 6 more runs are not shown' said
    start many
    grep -Fx 'dt-board: 6 more runs are not shown' log
    command -v tmux >/dev/null || skip "tmux is not installed"
    tmux -u -L board-$$ -f /dev/null new-session -d -x 80 -y 24 "LC_ALL=C.UTF-8 dt-top --every 0.2 mine other"
    pane_has() { tmux -L board-$$ capture-pane -p >pane && grep -q "$1" pane; }
    until_true pane_has '^run 1 of 2'
    cat pane
    grep -E '^run +mine/m.jsonl' pane
    grep '^loss ' pane | grep -F █
    tmux -L board-$$ send-keys Tab
    until_true pane_has '^run 2 of 2'
    grep -E '^run +other/n.jsonl' pane
    tmux -L board-$$ send-keys q
    for _ in $(seq 600); do
        tmux -L board-$$ has-session 2>/dev/null || break
        sleep 0.1
    done
    run -1 tmux -L board-$$ has-session
    # Ctrl-Z gives the shell its terminal, fg shows the run again, another size is used at once
    tmux -u -L board-$$ -f /dev/null new-session -d -x 80 -y 24 "LC_ALL=C.UTF-8 PS1='shell> ' bash --norc"
    tmux -L board-$$ send-keys "dt-top --every 3600 mine" Enter
    until_true pane_has '^run 1 of 1'
    tmux -L board-$$ send-keys C-z
    until_true pane_has Stopped
    run -1 grep '^loss ' pane
    tmux -L board-$$ send-keys "stty -a | grep -c ' icanon .* echo ' >tty" Enter
    until_true test -s tty
    [ "$(cat tty)" = 1 ]
    tmux -L board-$$ send-keys fg Enter
    until_true pane_has '^run 1 of 1'
    tmux -L board-$$ resize-window -x 60 -y 24
    pane_is_narrow() { pane_has '^loss ' && [ "$(wc -L <pane)" -le 60 ] && [ "$(wc -L <pane)" -gt 40 ]; }
    until_true pane_is_narrow
    tmux -L board-$$ send-keys q exit Enter
    for _ in $(seq 600); do
        tmux -L board-$$ has-session 2>/dev/null || break
        sleep 0.1
    done
    # without a terminal as standard input, a fraction of a second is waited for, not computed through
    tmux -u -L board-$$ -f /dev/null new-session -d -x 40 -y 24 "bash -c 'echo \$\$ >pid; exec dt-top --every 0.2 mine </dev/null'"
    until_true pane_has '^run 1 of 1'
    sleep 2
    [ "$(awk '{ print $14 + $15 }' "/proc/$(cat pid)/stat")" -lt 100 ] # hundredths of a second
    kill "$(cat pid)"
}

@test "the page in a browser: curves, ranks, the pipeline, live updates, zoom, SVG export, on a phone" {
    command -v chromium >/dev/null || skip "chromium is not installed"
    start mine other
    timeout 400 python3 "$BATS_TEST_DIRNAME/board-page.py" "$url" mine/m.jsonl
}
# SPDX-License-Identifier: Apache-2.0
