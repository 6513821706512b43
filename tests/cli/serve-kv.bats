#!/usr/bin/env bats
# KV blocks in host memory and on disk: answers are those of a server without, to the bit, whatever happened
# to the files; a restarted server finds most blocks and computes little again.

# shellcheck disable=SC2154 # stderr is set by run
bats_require_minimum_version 1.5.0
load server

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    "$DT_HELP/make-model" m
    for i in $(seq 0 35); do
        jq -nc --argjson i "$i" '{prompt: ("Story \($i % 12) of many: " + ("it goes on and on, \($i % 12) times. " * ($i % 7 + 4))),
            max_tokens: 16, seed: $i, temperature: (if $i % 2 == 0 then 0 else 1 end), ignore_eos: true, logprobs: 1}'
    done >prompts.jsonl
    "$DT_BIN/dt-serve" --batch m --precision fp32 --threads 1 <prompts.jsonl 2>/dev/null | jq -c '[.text, .logprobs]' >wanted
}

setup() {
    in_server_folder
    # room for four sequences: most prompts are evicted before they are repeated
    common=(--precision fp32 --threads 1 --max-num-seqs 4 --max-model-len 400 --kv-cache-mem 1200KiB)
}

# answers OPTION...: the answers equal those of a server without these options, to the bit
answers() {
    dt-serve --batch m "${common[@]}" "$@" <prompts.jsonl 2>log | jq -c '[.text, .logprobs]' | cmp - wanted
}

# start OPTION...: starts a server on a free port; sets $server (pid) and $url
start() {
    await dt-serve m "${common[@]}" --port 0 "$@"
}

stop() {
    kill "$server"
    wait "$server"
    server=
}

metric() {
    curl -s "$url/metrics" | awk -v n="dt_serve_$1{" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

# all: requests every prompt over HTTP, one at a time; prints the texts
all() {
    while read -r body; do
        jq -c 'del(.logprobs)' <<<"$body" | curl -s -m 100 -H 'Content-Type: application/json' -d @- "$url/v1/completions"
    done <prompts.jsonl | jq -r '.choices[0].text' >texts
    cmp <(jq -r '.[0]' wanted) texts
}

@test "answers are the same to the bit with host memory, with a folder and with both, then and after a restart" {
    answers
    answers --kv-host 4MiB --kv-read always
    answers --kv-disk disk:50MiB --kv-read always
    [ "$(find disk -name '*.kv' | wc -l)" -gt 50 ]
    answers --kv-disk disk:50MiB --kv-read always
    answers --kv-disk disk:50MiB --kv-host 200KiB
    answers --kv-disk disk:50MiB --kv-cache-dtype fp32 --block-size 8
    [ "$(find disk -mindepth 1 -maxdepth 1 | wc -l)" -eq 2 ]
    jq -e '.block_size == 16 or .block_size == 8' disk/*/about.json
    [ "$(stat -c %a disk/*/*/*.kv | sort -u)" = 600 ]
}

@test "after a restart, and in another server on the folder, prompts are found; other weights have others" {
    start --kv-disk again:50MiB --kv-read always
    all
    stop
    [ ! -s log ] || ! grep -q 'cannot use' log
    start --kv-disk again:50MiB --kv-read always
    first=$server
    all
    [ "$(metric kv_disk_blocks_read_total)" -gt 50 ]
    [ "$(metric external_prefix_cache_hits_total)" -gt 800 ]
    server=
    kill -KILL "$first"
    wait "$first" || true
    start --kv-disk again:50MiB --kv-read always
    all
    [ "$(metric kv_disk_failures_total)" -eq 0 ]
    stop
    "$DT_HELP/make-model" other llama-tiny 261
    dt-serve --batch other "${common[@]}" --kv-disk again:50MiB --kv-read always <prompts.jsonl 2>log | jq -r .text >got
    dt-serve --batch other "${common[@]}" <prompts.jsonl 2>log | jq -r .text | cmp - got
    [ "$(find again -mindepth 1 -maxdepth 1 | wc -l)" -eq 2 ]
}

@test "damaged, truncated or foreign files are named, and their blocks computed again" {
    answers --kv-disk bad:50MiB --kv-read always
    find bad -name '*.kv' | sort | awk 'NR % 3 == 0' | while read -r f; do printf x | dd of="$f" bs=1 seek=200 conv=notrunc status=none; done
    find bad -name '*.kv' | sort | awk 'NR % 3 == 1' | while read -r f; do truncate -s 100 "$f"; done
    find bad -name '*.kv' | sort | awk 'NR % 9 == 2' | while read -r f; do seq 1000 >"$f"; done
    answers --kv-disk bad:50MiB --kv-read always
    grep -q "cannot use .*; its tokens are computed again" log
    answers --kv-disk bad:50MiB --kv-read always
    # files that cannot grow, as on a full disk
    (trap '' XFSZ && ulimit -f 4 && answers --kv-disk full:50MiB --kv-read always)
    [ "$(grep -c 'cannot write .*no blocks are kept' log)" -eq 1 ]
    [ "$(find full -name '*.kv*' | wc -l)" -eq 0 ]
}

@test "invalid options are refused" {
    local wanted
    refused() {
        run -2 --separate-stderr dt-serve m "$@"
        [[ $stderr == *"$wanted"* ]]
    }
    wanted="a folder, a colon and a size" refused --kv-disk somewhere
    wanted="--kv-disk" refused --kv-disk somewhere:much
    wanted="cannot be combined with --no-prefix-caching" refused --kv-host 1GiB --no-prefix-caching
    wanted="cannot be combined with --trace" refused --kv-disk d:1GiB --trace t.jsonl
    wanted="requires --kv-host or --kv-disk" refused --kv-read always
    run -1 --separate-stderr dt-serve m "${common[@]}" --port 0 --kv-host 20
    [[ $stderr == *"are too small for two cache blocks"* ]]
    run -1 --separate-stderr dt-serve m "${common[@]}" --port 0 --kv-disk m/latest/manifest.json:1GiB
    [[ $stderr == *"manifest.json"* ]]
}
# SPDX-License-Identifier: Apache-2.0
