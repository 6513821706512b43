#!/usr/bin/env bats
# dt-run sweep: trials from a grid and at random, successive halving, interruption and resumption.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
    dt-dataset build --tokenizer byte --out e.h5 "$DT_SRC/LICENSE"
    jq -n '{model_type: "llama", vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
        num_attention_heads: 2, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000}' >m.json
}

setup() {
    in_folder
    rm -rf sweep
    command=(dt-train --model m.json --data d.h5 --seq 32 --no-mfu --precision fp32 --reproducible --threads 1)
}

@test "halving: the best trial continues to the result that it would have alone" {
    dt-run sweep --grid lr=1e-4,1e-2,1e-3 --grid warmup=0,3 --halve 3 --first 5 -- \
        "${command[@]}" --eval-data e.h5 --eval-tokens 2000 --steps 30 >table
    jq -se '.[0].axes == ["lr=1e-4,1e-2,1e-3", "warmup=0,3"] and ([.[1:][] | .steps] | sort) == [5, 5, 5, 5, 5, 5, 15, 15, 30]
        and all(.[1:][]; .status == 0)' sweep/sweep.jsonl
    # trials with the smallest values of a rung continue
    jq -se '[.[1:][]] | map(select(.rung == 0)) as $r | ($r | sort_by(.value)[:2] | map(.trial) | sort) ==
        (map(select(.rung == 1) | .trial) | sort)' sweep/sweep.jsonl
    best=$(awk 'NR == 2 { print $1 }' table)
    read -r lr warmup < <(jq -r --argjson t "${best#00}" 'select(.trial == $t and .rung == 2) | "\(.options.lr) \(.options.warmup)"' \
        sweep/sweep.jsonl)
    "${command[@]}" --eval-data e.h5 --eval-tokens 2000 --steps 30 --lr "$lr" --warmup "$warmup" --save alone --metrics m.jsonl
    dt-shard-ckpt diff alone "sweep/$best"
    jq -se --slurpfile s sweep/sweep.jsonl '(map(.eval_loss // empty) | last) == ($s | map(select(.rung == 2)) | .[0].value)' m.jsonl
    # nothing is run again
    dt-run sweep --grid lr=1e-4,1e-2,1e-3 --grid warmup=0,3 --halve 3 --first 5 -- \
        "${command[@]}" --eval-data e.h5 --eval-tokens 2000 --steps 30 | cmp - table
}

@test "asked to end: exit status 75; the same command continues, and prints the same table" {
    takes_long
    sweep=(dt-run sweep --random lr=1e-3:1e-2:log --random warmup=0:9:int --samples 3 --jobs 2 --last 4 -- mpirun -np 1
        "${command[@]}" --steps 20 --inject "slow:rank=0,seconds=0.05,start=0")
    "${sweep[@]}" >want
    rm -rf sweep
    "${sweep[@]}" >half 3>&- &
    until [ -s sweep/001/metrics.jsonl ]; do
        sleep 0.05
    done
    kill -TERM $!
    status=0
    wait $! || status=$?
    [ "$status" -eq 75 ]
    grep -E '^ *001 .* [1-9][0-9]* +[0-9.]+ so far' half
    "${sweep[@]}" >got
    diff <(awk '{ NF--; print }' want) <(awk '{ NF--; print }' got) # except the time
    [ "$(jq -s 'map(.trial // empty) | sort == unique' sweep/sweep.jsonl)" = true ]
}

@test "by default as many trials at a time as the launcher's ranks leave room for, however it is told" {
    for ranks in "-np N" "--np N" "-n N" "-nN" "--n N" "--ntasks N" "--ntasks=N"; do
        rm -rf sweep
        # a launcher that starts nothing: the trials end without metrics
        # shellcheck disable=SC2086 # words
        run -1 --separate-stderr dt-run sweep --grid lr=1e-4,1e-2 -- true ${ranks//N/$(getconf _NPROCESSORS_ONLN)} "${command[@]}" --steps 2
        [[ $stderr == *"2 trials of 2 steps, 1 at a time"* ]] || { echo "$ranks: $stderr"; return 1; }
    done
}

@test "steps are those that the trial trained: of trials with unequal --steps, and of one that fails" {
    run --separate-stderr dt-run sweep --grid steps=2,4 --jobs 1 -- "${command[@]}"
    [ "$status" -eq 0 ]
    [[ $stderr == *"2 trials, 1 at a time"* ]]
    jq -se '[.[1:][] | .steps] == [2, 4]' sweep/sweep.jsonl
    [ "$(awk 'NR > 1 { print $2, $3 }' <<<"$output" | sort)" = $'2 2\n4 4' ]
    run -2 dt-run sweep --grid steps=2,4 --halve 2 --first 1 --dir halves -- "${command[@]}"
    [[ $output == *"--halve compares trials of equal steps: '--steps' cannot be swept"* ]]
    [ ! -e halves ]
    rm -rf sweep
    run -1 --separate-stderr dt-run sweep --grid lr=1e-3 -- "${command[@]}" --steps 9 --inject kill:rank=0,step=3
    jq -se '.[1] | .steps == 2 and .status != 0 and .value == null' sweep/sweep.jsonl
}

@test "an incomplete line that a kill left, the first or the last, is skipped" {
    sweep=(dt-run sweep --grid lr=1e-3 -- "${command[@]}" --steps 2)
    rm -rf sweep && mkdir sweep
    printf '{"schema": 1, "comm' >sweep/sweep.jsonl
    "${sweep[@]}" >want
    printf '{"trial": 1, "rung"' >>sweep/sweep.jsonl
    "${sweep[@]}" >got
    diff want got # the seconds, too: nothing ran again
    "${sweep[@]}" | diff want -
    [ "$(jq -R 'fromjson? | select(.status != null) | .trial' sweep/sweep.jsonl)" = 1 ]
}

@test "an invalid sweep is refused before anything runs, a wrong command at its first trial" {
    refused() { # MESSAGE ARGUMENT...
        run -2 dt-run sweep "${@:2}"
        [[ $output == *"$1"* ]] || { echo "$output"; return 1; }
    }
    refused "needs a dt-train command" --grid lr=1
    refused "nothing to vary" -- "${command[@]}"
    refused "--samples requires --random" --grid lr=1 --samples 3 -- "${command[@]}"
    refused "--sweep-seed requires --random" --grid lr=1 --sweep-seed 3 -- "${command[@]}"
    refused "no option '--nosuch'" --grid nosuch=1 -- "${command[@]}"
    refused "'x' is not a number" --grid lr=1e-3,x -- "${command[@]}"
    refused "the sweep sets '--save' itself" --grid save=x -- "${command[@]}"
    refused "the sweep sets '--save' itself" --grid lr=1 -- "${command[@]}" --save x
    refused "given twice" --grid lr=1 --random lr=1:2 -- "${command[@]}"
    refused "LOW must be above 0" --random lr=0:2:log -- "${command[@]}"
    refused "LOW:HIGH" --random lr=1,2 -- "${command[@]}"
    refused "LOW must be a number below HIGH" --random lr=2:1 -- "${command[@]}"
    refused "need each other" --grid lr=1 --halve 3 -- "${command[@]}"
    refused "must be less than --steps" --grid lr=1 --halve 3 --first 100 -- "${command[@]}"
    refused "neither dt-train nor dt-serve" --grid lr=1 -- sleep 1
    [ ! -e sweep ]
    refused "unknown option '--nosuch'" --grid lr=1e-3 -- "${command[@]}" --nosuch
    run -1 dt-run sweep --grid lr=1e-3 --dir failed -- "${command[@]}" --data nowhere.h5
    [[ $output == *"exit status 1, see failed/001/log"* ]]
    run -1 dt-run sweep --grid lr=1e-2 --dir failed -- "${command[@]}"
    [[ $output == *"another sweep"* ]] || { echo "$output"; return 1; }
}

@test "a sweep that fails waits for its other trials to save" {
    mkdir bin
    cat >bin/dt-train <<'E'
#!/bin/sh
if mkdir first 2>/dev/null; then
    until [ -e began ]; do sleep 0.1; done
    echo "dt-train: wrong" >&2
    exit 2
fi
trap 'sleep 1; touch saved; exit 75' USR1
touch began
while :; do sleep 0.1; done
E
    chmod +x bin/dt-train
    run -2 timeout 60 dt-run sweep --jobs 2 --grid lr=1e-3,1e-2 -- bin/dt-train "${command[@]:1}"
    [[ $output == *"dt-train: wrong"* ]] || { echo "$output"; return 1; }
    [ -e saved ]
}

@test "contrib: the Katib experiment uses options that exist, and finds the metrics" {
    python3 -c 'import yaml' || skip "no PyYAML"
    dt-train --describe-options >options.json
    "${command[@]}" --eval-data e.h5 --eval-tokens 1000 --eval-every 2 --steps 4 --metrics k.jsonl
    python3 "$BATS_TEST_DIRNAME/katib-check.py" "$DT_SRC/contrib/kubernetes/katib-experiment.yaml" options.json k.jsonl |
        jq -e '.eval_loss == 2 and .loss == 4'
}
# SPDX-License-Identifier: Apache-2.0
