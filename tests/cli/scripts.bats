# scripts/: the package list, how scripts/check counts tests, and the quickstarts from end to end.
bats_require_minimum_version 1.5.0
load slow

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
}

@test "deps: lists each package once, and refuses words it does not know" {
    run "$DT_SRC/scripts/deps" list build
    [ "$status" -eq 0 ]
    [[ $output == *libhdf5-dev* && $output != *bats* ]]
    run "$DT_SRC/scripts/deps" list
    [[ $output == *libhdf5-dev* && $output == *bats* ]]
    [ "$(printf '%s\n' "$output" | sort | uniq -d)" = "" ]
    run "$DT_SRC/scripts/deps" nosuch
    [ "$status" -eq 2 ]
    run "$DT_SRC/scripts/deps" list nosuch
    [ "$status" -eq 2 ]
}

@test "deps: prints nothing when nothing is missing, otherwise the names" {
    mkdir bin
    printf '#!/bin/sh\necho installed\n' >bin/dpkg-query
    chmod +x bin/dpkg-query
    PATH=$PWD/bin:$PATH run "$DT_SRC/scripts/deps" missing
    [ "$status" -eq 0 ]
    [ "$output" = "" ]
    PATH=$PWD/bin:$PATH run "$DT_SRC/scripts/deps" install
    [ "$status" -eq 0 ]
    [ "$output" = "" ]
    # shellcheck disable=SC2016 # for the script
    printf '#!/bin/sh\ncase $* in *libhdf5-dev*) exit 1 ;; esac\necho installed\n' >bin/dpkg-query
    PATH=$PWD/bin:$PATH run "$DT_SRC/scripts/deps" missing
    [ "$status" -eq 1 ]
    [ "$output" = libhdf5-dev ]
}

# fake_build: a meson that leaves the given test log, and a ninja that does nothing
fake_build() {
    mkdir -p bin build/meson-logs
    cat >log.json
    printf '#!/bin/sh\n[ "$1" != test ] || cp "%s/log.json" "%s/build/meson-logs/testlog.json"\n' "$PWD" "$PWD" >bin/meson
    printf '#!/bin/sh\n' >bin/ninja
    chmod +x bin/meson bin/ninja
}

check() {
    PATH=$PWD/bin:$PATH run --separate-stderr "$DT_SRC/scripts/check" --no-install -C build
}

@test "check: each point of a TAP test counts, other tests count as one" {
    fake_build <<'END'
{"name": "a", "result": "OK", "stdout": "[  OK ] x"}
{"name": "b", "result": "SKIP", "stdout": ""}
{"name": "c", "result": "OK", "stdout": "1..3\nok 1 x\nok 2 y # skip no z\nok 3 z\n"}
END
    check
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "3 passed, 0 failed, 2 skipped" ]
}

@test "check: failures are named, and make it fail" {
    fake_build <<'END'
{"name": "a", "result": "TIMEOUT", "stdout": ""}
{"name": "c", "result": "FAIL", "stdout": "1..2\nok 1 x\nnot ok 2 the name\n# why\n"}
{"name": "d", "result": "ERROR", "stdout": "1..1\nok 1 then it crashed\n"}
END
    check
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "2 passed, 3 failed, 0 skipped" ]
    [[ $stderr == *"c: not ok 2 the name"*"# why"* ]]
}

@test "check: a failed test with blanks in its name is repeated by that name" {
    fake_build <<'END'
{"name": "dt:mpi / a b", "result": "FAIL", "stdout": ""}
END
    cat >bin/meson <<'END'
#!/bin/sh
[ "$1" = test ] || exit 0
printf '%s\n' "$@" >>calls
cp log.json build/meson-logs/testlog.json
END
    sed -i "2s|^|cd '$PWD'; |" bin/meson
    check
    [ "$status" -eq 1 ]
    grep -qx 'a b' calls
}

@test "check: failed tests are repeated alone, at most three, and named" {
    fake_build <<'END'
{"name": "dt:cli / a", "result": "FAIL", "stdout": "1..2\nok 1 x\nnot ok 2 the name\n# why\n"}
{"name": "dt:unit / b", "result": "OK", "stdout": ""}
{"name": "dt:unit / a", "result": "FAIL", "stdout": ""}
END
    cat >again.json <<'END'
{"name": "dt:cli / a", "result": "OK", "stdout": "1..2\nok 1 x\nok 2 the name\n"}
{"name": "dt:unit / a", "result": "FAIL", "stdout": ""}
END
    cat >bin/meson <<'END'
#!/bin/sh
[ "$1" = test ] || exit 0
echo "$*" >>calls
cp log.json build/meson-logs/testlog.json
mv again.json log.json
END
    sed -i "2s|^|cd '$PWD'; |" bin/meson
    check
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "3 passed, 1 failed, 0 skipped" ]
    [[ $stderr == *"dt:cli / a: failed in parallel, passed alone: not ok 2 the name"*"# why"* ]]
    [[ $stderr == *"dt:unit / a: failed"* ]]
    [[ $(tail -1 calls) == *"--num-processes 1 a a" ]]
    for i in 1 2 3 4; do
        echo "{\"name\": \"dt:unit / $i\", \"result\": \"FAIL\", \"stdout\": \"\"}"
    done >log.json
    cp log.json again.json
    rm calls
    check
    [ "${lines[-1]}" = "0 passed, 4 failed, 0 skipped" ]
    [ "$(wc -l <calls)" -eq 1 ]
}

@test "check: no test run, or nothing built, is a failure" {
    fake_build </dev/null
    check
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "0 passed, 0 failed, 0 skipped" ]
    printf '#!/bin/sh\nexit 1\n' >bin/ninja
    check
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "0 passed, 1 failed, 0 skipped" ]
    run "$DT_SRC/scripts/check" --nosuch
    [ "$status" -eq 2 ]
}

@test "quickstart: help within 80 columns; a misspelt name makes no folder" {
    run "$DT_SRC/scripts/quickstart" --help
    [ "$status" -eq 0 ]
    for name in recovery rl adapters images 'Exit status'; do grep -qw "$name" <<<"$output"; done
    awk 'length($0) > 80 { bad = 1 } END { exit bad }' <<<"$output"
    run "$DT_SRC/scripts/quickstart" adapter
    [ "$status" -eq 2 ]
    [[ $output == *"no walkthrough 'adapter' (recovery, rl, adapters or images)"* ]]
    [ ! -e adapter ]
}

@test "quickstart: every step works" {
    for name in memest tokenize dataset train plot shard-ckpt serve; do
        [ -x "$DT_BIN/dt-$name" ] || skip "dt-$name is not built"
    done
    for name in curl jq; do
        command -v $name >/dev/null || skip "needs $name"
    done
    DT_QUICKSTART_BYTES=$(few 600000 6000000) DT_QUICKSTART_STEPS=4 run "$DT_SRC/scripts/quickstart" "$PWD/work"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"measured "*": +0.00%"*"It all worked"* ]]
    [ "$(jq -s length work/m.jsonl)" -ge 4 ]
    # A folder that is not empty is refused.
    run "$DT_SRC/scripts/quickstart" "$PWD/work"
    [ "$status" -eq 1 ]
}

@test "quickstart recovery: killed, moved to another layout, with the bits of an undisturbed run" {
    command -v jq >/dev/null || skip "needs jq"
    DT_QUICKSTART_STEPS=400 run "$DT_SRC/scripts/quickstart" recovery "$PWD/again"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"equal: "*" tensors"* ]]
}

@test "quickstart rl: every step works" {
    takes_long
    command -v jq >/dev/null || skip "needs jq"
    DT_QUICKSTART_SFT=20 DT_QUICKSTART_STEPS=2 run "$DT_SRC/scripts/quickstart" rl "$PWD/sorted"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"It all worked"* ]]
    [ "$(jq -s length sorted/rl.jsonl)" -eq 2 ]
}

@test "quickstart adapters: every step works" {
    for name in curl jq; do
        command -v $name >/dev/null || skip "needs $name"
    done
    DT_QUICKSTART_STEPS=4 DT_QUICKSTART_TUNE=2 run "$DT_SRC/scripts/quickstart" adapters "$PWD/manners"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *'["pirate","base"]'*"It all worked"* ]]
    [ -s manners/merged/model.safetensors ] && [ -s manners/pirate-peft/adapter_config.json ]
}

@test "quickstart images: every step works" {
    takes_long
    command -v jq >/dev/null || skip "needs jq"
    DT_QUICKSTART_IMAGES=40 DT_QUICKSTART_STEPS=4 run "$DT_SRC/scripts/quickstart" images "$PWD/shapes"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *"measured "*": +0.00%"*"It all worked"* ]]
    jq -se 'map(select(.top1)) | last | .eval_images == 400' shapes/m.jsonl
}
# SPDX-License-Identifier: Apache-2.0
