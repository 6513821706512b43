#!/usr/bin/env bats
# The programs and scripts of bench/: help within 80 columns, wrong arguments, a folder that holds no build, a
# missing peer. What they measure is no test.
bats_require_minimum_version 1.5.0
# shellcheck disable=SC2154 # stderr: set by run --separate-stderr

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    bench=$DT_SRC/bench
    programs=$DT_BIN/../bench
    : >data.h5
    mkdir nothing
}

# one_line STATUS TEXT COMMAND...: this status, nothing on stdout, one line on stderr that contains TEXT
one_line() {
    run --separate-stderr timeout 100 "${@:3}" </dev/null
    [ "$status" -eq "$1" ] || { echo "status $status: $stderr"; return 1; }
    [ -z "$output" ] && [[ $stderr == *"$2"* && $stderr != *$'\n'* ]] || { echo "'$output', '$stderr'"; return 1; }
}

scripts() {
    (cd "$bench" && grep -rlE '^#!/(usr/)?bin/(env )?bash' .)
}

# what --help prints has no brackets that are divided between lines
whole_brackets() {
    awk '{ if (gsub(/\[/, "[") != gsub(/\]/, "]")) { print; bad = 1 } } END { exit bad }'
}

@test "--help of every script: stdout, status 0, at most 80 columns" {
    [ "$(scripts | wc -l)" -ge 19 ]
    for each in $(scripts) surviving; do
        echo "$each"
        run --separate-stderr -0 timeout 100 "$bench/$each" --help </dev/null
        [ -z "$stderr" ]
        [ "${#lines[@]}" -ge 5 ]
        [[ $output == *"${each##*/} "* ]] # how it is called
        [ "$(awk 'length($0) > most { most = length($0) } END { print most }' <<<"$output")" -le 80 ]
        [[ $output != *"set -"* && $output != *shellcheck* ]]
        whole_brackets <<<"$output"
    done
}

@test "scripts refuse wrong arguments, by one line" {
    for each in farlink stream sync watching scaling offload qlora lora same-numbers; do
        one_line 2 "$each: missing arguments; try" "$bench/$each"
    done
    one_line 2 "apart: missing arguments; try" "$bench/apart" model
    one_line 2 "apart: wrong option; try" "$bench/apart" -x model trace
    one_line 2 "serve: missing arguments; try" "$bench/serve"
    one_line 2 "serve: wrong option; try" "$bench/serve" -t
    for each in farlink stream sync watching scaling offload qlora; do
        one_line 2 "$each: unknown option '--nonsense'; try" "$bench/$each" "$DT_BIN/.." data.h5 --nonsense
    done
    one_line 2 "lora: unknown option '--nonsense'; try" "$bench/lora" "$DT_BIN/.." --nonsense
    one_line 2 "offload: '--rounds' needs a value; try" "$bench/offload" "$DT_BIN/.." data.h5 --rounds
    one_line 2 "offload: --rounds 'x' is not a positive number; try" "$bench/offload" "$DT_BIN/.." data.h5 --rounds x
    for each in "sync --steps" "sync --ranks" "stream --rounds" "watching --rounds" "farlink --nodes" "scaling --batch" "qlora --steps"; do
        one_line 2 "${each% *}: ${each#* } 'x' is not a positive number; try" "$bench/${each% *}" "$DT_BIN/.." data.h5 "${each#* }" x
    done
    one_line 2 "lora: --rounds '0' is not a positive number; try" "$bench/lora" "$DT_BIN/.." --rounds 0
    one_line 2 "layouts: --rounds '0' is not a positive number; try" "$bench/layouts" --rounds 0
    one_line 2 "plan: --seconds 'x' is not a positive number; try" "$bench/plan" --out out --seconds x
    one_line 2 "serve: -t 'x' is not a positive number; try" "$bench/serve" -t x data.h5
    one_line 2 "serve: -c: there is no case 'two'; try" "$bench/serve" -c one,two data.h5
    one_line 2 "apart: -n 'x' is not a positive number; try" "$bench/apart" -n x data.h5 data.h5
    run -2 "$bench/surviving" "$DT_BIN/.." data.h5 --kills 0
    [[ $output == *"--kills must be above 0" ]]
    one_line 2 "same-numbers: no run has options that match 'nothing'; try" "$bench/same-numbers" "$DT_BIN/.." "$DT_BIN/.." nothing
    for each in ckpt layouts plan images/cifar10 images/run train/comm train/run; do
        one_line 2 "unknown argument '--nonsense'" "$bench/$each" --nonsense
    done
}

@test "scripts name the folder that holds no build, and the file that is missing" {
    for each in farlink stream sync watching scaling offload qlora; do
        one_line 1 "$each: there is no 'nowhere'" "$bench/$each" nowhere data.h5
        one_line 1 "$each: there is no '--nonsense'" "$bench/$each" --nonsense data.h5
        one_line 1 "$each: no tools/dt-train in 'nothing': give the folder where dt was built" "$bench/$each" nothing data.h5
        one_line 1 "$each: there is no 'none.h5'" "$bench/$each" "$DT_BIN/.." none.h5
    done
    one_line 1 "lora: no tools/dt-train in 'nothing'" "$bench/lora" nothing
    one_line 1 "apart: no tools/dt-serve in 'nothing'" "$bench/apart" -b nothing model trace
    one_line 1 "apart: there is no 'model'" "$bench/apart" -b "$DT_BIN/.." model trace
    one_line 1 "surviving: there is no 'nothing/tools/dt-run'" "$bench/surviving" nothing data.h5
    one_line 1 "surviving: there is no 'none.h5'" "$bench/surviving" "$DT_BIN/.." none.h5
    one_line 2 "same-numbers: no tools/dt-train in 'nothing'" "$bench/same-numbers" nothing nothing
    one_line 1 "two-level.sh: no tools/dt-allreduce-bench in 'nothing'" bash "$bench/two-level.sh" nothing
}

@test "what scripts print around their tables fits a terminal of 80 columns" {
    long=$(cd "$bench" && scripts | xargs awk '/^[ \t]*echo "[^"]*"( \\)?$/ {
            gsub(/^[ \t]*echo "|"( \\)?$/, ""); if (length > 80) print FILENAME ": " $0 }
        /<<.?END/ { here = 1; next }
        /^END$/ { here = 0 }
        here && length > 80 { print FILENAME ": " $0 }')
    [ -z "$long" ] || { echo "$long"; return 1; }
}

@test "surviving: its job ends with it" {
    seq 20000 >text
    "$DT_BIN/dt-dataset" build --out text.h5 text
    "$bench/surviving" "$DT_BIN/.." text.h5 --ranks 1 --step 0.1 >out 2>&1 3>&- &
    self=$!
    for _ in $(seq 600); do
        job=$(cat "/proc/$self/task/$self/children")
        [ -n "$job" ] && grep -qs loss "/proc/${job% }/cwd/m.jsonl" && break
        sleep 0.1
    done
    [ -n "$job" ]
    kill -TERM "$self"
    wait "$self" && status=0 || status=$?
    [ "$status" = 143 ]
    run -1 kill -0 "$job"
}

@test "images/cifar10: its training and its folder end with it" {
    mkdir -p tmp
    python3 -c 'import sys; sys.stdout.buffer.write(bytes(i * 7 % 10 if k == 0 else (i + k) % 251 for i in range(300) for k in range(3073)))' >c.bin
    TMPDIR=$PWD/tmp DT_BIN=$DT_BIN "$DT_SRC/bench/images/cifar10" --train c.bin --test c.bin --threads 1 >out 2>log 3>&- &
    pid=$!
    until compgen -G 'tmp/*/run.jsonl' >/dev/null || ! kill -0 $pid; do sleep 0.1; done
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    [ $status -eq 143 ] || { cat log; return 1; }
    [ -z "$(ls tmp)" ]
}

@test "numbers of scripts have a point in every locale" {
    # shellcheck disable=SC2016 # for the inner shell
    [ "$(LC_ALL=de_DE.UTF-8 LC_NUMERIC=de_DE.UTF-8 bash -c '. "$DT_SRC/bench/arguments.bash"; printf %.1f 2.5; awk "BEGIN { printf \" %.1f\", 2.5 }"' 2>/dev/null)" = '2.5 2.5' ]
}

@test "peers in Python: help without the peer, 77 if it is missing" {
    mkdir hide
    for each in torch tokenizers; do
        echo 'raise ImportError("hidden by the test")' >hide/$each.py
    done
    for each in ckpt_torch.py device_torch.py optim_torch.py tokenize.py route/trace.py route/restart.py; do
        run --separate-stderr -0 python3 "$bench/$each" --help
        [[ $output == *"${each##*/} "* ]] && [ -z "$stderr" ]
        [ $each = device_torch.py ] || run --separate-stderr -2 python3 "$bench/$each"
    done
    export PYTHONPATH=$PWD/hide
    for each in ckpt_torch.py device_torch.py optim_torch.py tokenize.py train/peer_nanochar.py train/peer_torch.py images/peer_torch.py; do
        one_line 77 "${each##*/}: hidden by the test" python3 "$bench/$each" a b c
    done
    one_line 1 "restart.py: there is no program 'nowhere'" python3 "$bench/route/restart.py" nowhere
}

@test "programs refuse wrong arguments, by one line" {
    for each in kernels ckpt offload-bars infer masks route-latency route-simulate; do
        [ $each = kernels ] || one_line 2 "usage: $each " "$programs/$each" ||
            one_line 2 "| $each " "$programs/$each"
        one_line 2 "usage: " "$programs/$each" -1 -1 -1
    done
    one_line 2 "kernels: the number of threads is not 'nowhere'" "$programs/kernels" nowhere
    one_line 1 "ckpt: cannot begin in 'nowhere': No such file or directory" "$programs/ckpt" nowhere 1
    one_line 1 "offload-bars: cannot write into 'nowhere': No such file or directory" "$programs/offload-bars" nowhere
    one_line 1 "infer: cannot open 'nowhere'" "$programs/infer" nowhere
    one_line 1 "masks: cannot open 'nowhere'" "$programs/masks" nowhere
    one_line 1 "route-latency: there is no program 'nowhere'" "$programs/route-latency" nowhere 1 10
    one_line 1 "route-simulate: no trace on standard input" "$programs/route-simulate" 4 20000 0.02 24000
}
# SPDX-License-Identifier: Apache-2.0
