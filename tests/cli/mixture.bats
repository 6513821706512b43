# Mixtures of data sets, --data A.h5:0.7,B.h5:0.3, and reading ahead
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out a.h5 "$DT_SRC/LICENSE"
    dt-dataset build --tokenizer byte --shards 3 --out b.h5 text.txt
}

setup() {
    in_folder
    common=(--model llama-tiny --data "a.h5:0.7,b.h5:0.3" --seq 32 --precision fp32 --lr 1e-3 --no-mfu --threads 1
        --global-batch 4 --comm-timeout 60)
}

losses() {
    jq -s 'map(select(.loss) | .loss)' "$1"
}

@test "a mixture trains the same on any layout, and resumes to the bit" {
    dt-train "${common[@]}" --microbatch 2 --steps 20 >one 2>said
    grep -q "data set 'a.h5': 70% of the samples" said
    mpirun -np 2 dt-train "${common[@]}" --microbatch 1 --steps 20 >two
    jq -en --argjson a "$(losses one)" --argjson b "$(losses two)" \
        '[range(20) | (($a[.] - $b[.]) / $a[.]) | fabs] | max < 1e-5'
    dt-train "${common[@]}" --microbatch 2 --steps 20 --save run --save-every 9 >/dev/null
    jq -e '.data.cursors == [56, 24]' run/latest/manifest.json # of 80 samples
    rm -rf run/step-00000018 run/step-00000020 run/latest
    dt-train "${common[@]}" --microbatch 2 --steps 20 --resume auto --save run >rest
    [ "$(losses one | jq -c '.[9:]')" = "$(losses rest | jq -c .)" ]
}

@test "another mixture is refused on resume unless accepted" {
    dt-train "${common[@]}" --steps 2 --save other >/dev/null
    run dt-train "${common[@]}" --data a.h5:0.6,b.h5:0.4 --steps 4 --resume other
    [ "$status" -eq 1 ]
    [[ "$output" == *"another mixture of data sets"* ]]
    dt-train "${common[@]}" --data a.h5:7,b.h5:3 --steps 3 --resume other >/dev/null
    dt-train "${common[@]}" --data a.h5:0.6,b.h5:0.4 --steps 3 --resume other --accept-change data >/dev/null
}

@test "bad mixtures give one line, and no data set is overwritten" {
    run -1 dt-train "${common[@]}" --data a.h5:0.7,none.h5 --steps 1
    [ "$(grep -c dt-train: <<<"$output")" -eq 1 ]
    for bad in a.h5:0,b.h5 a.h5:-1,b.h5 a.h5,,b.h5; do # an error in the option's value, not in a file
        run -2 dt-train "${common[@]}" --data "$bad" --steps 1
        [ "$(grep -c dt-train: <<<"$output")" -eq 1 ]
        [[ $output == *"--data: "* ]]
    done
    run dt-train "${common[@]}" --steps 1 --metrics b.h5
    [ "$status" -eq 1 ]
    [[ "$output" == *"would overwrite"* ]]
    dt-dataset info --verify b.h5
}

@test "samples from a slow disk are the same" {
    # prints data_s for information; times do not decide a test
    dt-train "${common[@]}" --microbatch 4 --steps 8 >quick
    DT_SLOW_READ_MS=5 LD_PRELOAD="$DT_HELP/slow-read.so" dt-train "${common[@]}" --microbatch 4 --steps 8 >slow
    [ "$(losses quick)" = "$(losses slow)" ]
    jq -c '{step_s, data_s}' slow >&2
}
# SPDX-License-Identifier: Apache-2.0
