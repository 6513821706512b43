#!/usr/bin/env bats
# Disaggregated prefill: one server computes the prompt, another answers. Answers are those of a single server
# to the bit, whichever of the two is lost.

bats_require_minimum_version 1.5.0
load server

setup_file() {
    make_stories
}

setup() {
    several_servers
}

# with_ranks MPIRUN: its processes are killed after the test
with_ranks() {
    local pid
    servers+=("$1")
    while read -r pid; do
        servers+=("$pid")
    done < <(ps -o pid= --ppid "$1")
}

teardown() {
    kill_servers
}

# metric URL NAME: a metric of dt-serve
metric() {
    curl -s -m 60 "$1/metrics" | awk -v n="dt_serve_$2{" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

# ask URL: sends every prompt, one at a time; prints the texts
ask() {
    while read -r body; do
        curl -s -m 100 -H 'Content-Type: application/json' -d "$body" "$1/v1/completions"
    done <prompts.jsonl | jq -c '.choices[0].text' >texts
    cmp wanted texts
}

# ask_at_once URL: sends all of them, eight at a time; prints the texts sorted
ask_at_once() {
    xargs -P 8 -d '\n' -I BODY curl -s -m 100 -H 'Content-Type: application/json' -d BODY "$1/v1/completions" <prompts.jsonl |
        jq -c '.choices[0].text' | sort >texts.sorted
    sort wanted | cmp - texts.sorted
}

# await_empty URL: waits until the server holds no request and no block
await_empty() {
    for _ in $(seq 600); do
        curl -s -m 60 "$1/slots" | jq -e '.running + .waiting == 0 and .free_blocks == .blocks' >/dev/null && return 0
        sleep 0.1
    done
    return 1
}

@test "answers are those of a single server, through shared memory, and with roles changed" {
    start --role prefill
    prefill=$url
    start --role decode --prefill "$prefill/" --prefill-min 32 --prefill-timeout 300
    ask "$url"
    [ "$(metric "$url" remote_prefill_requests_total)" -ge 8 ]
    [ "$(metric "$url" remote_prefill_failures_total)" -eq 0 ]
    # if processes may read each other's memory, all blocks were transferred that way
    if python3 -c 'import os, subprocess, sys
f = os.memfd_create("x")
sys.exit(subprocess.call(["sh", "-c", f": <>/proc/{os.getpid()}/fd/{f}"]))' 2>/dev/null; then
        [ "$(metric "$url" remote_prefill_blocks_total)" -eq "$(metric "$url" remote_prefill_shared_blocks_total)" ]
    fi
    [ "$(metric "$url" remote_prefill_blocks_total)" -le "$(metric "$prefill" prefill_blocks_sent_total)" ]
    await_empty "$prefill"
    await_empty "$url"
    # after the change of roles the former prefill server answers, and computes no prompts for others
    [ "$(curl -s -m 60 -o out -w '%{http_code}' -d '{"prompt": "x"}' "$prefill/v1/completions")" = 503 ]
    jq -e '.error.code == "role"' out
    curl -s -m 60 -d '{"role": "decode"}' "$prefill/v1/role" | jq -e '.role == "decode"'
    ask_at_once "$prefill"
    ask_at_once "$url"
}

@test "a killed server: the decode server computes the prompts itself, and nothing is held for the lost one" {
    start --role prefill
    prefill=$url
    start --role both --prefill "$prefill" --prefill-min 32 --prefill-timeout 300
    decode=$url
    gone=$server
    start --role decode --prefill "$decode" --prefill "$prefill" --prefill-min 32 --prefill-timeout 300
    ask_at_once "$decode"
    ask_at_once "$url" &
    asking=$!
    kill -KILL "$gone"
    wait "$asking"
    await_empty "$prefill"
    kill -KILL "${servers[0]}"
    ask_at_once "$url"
    await_empty "$url"
}

@test "the two servers' layouts may differ: prompts of two ranks for one process, and of one for two" {
    takes_long
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=/bin/false
    for layout in tp2 pp2; do
        await mpirun -np 2 dt-serve m "${common[@]}" --port 0 --layout $layout --role both
        ranks=$server
        with_ranks "$ranks"
        prefill=$url
        start --role both --prefill "$prefill" --prefill-min 32 --prefill-timeout 300
        ask "$url"
        [ "$(metric "$url" remote_prefill_blocks_total)" -ge 16 ]
        [ "$(metric "$url" remote_prefill_failures_total)" -eq 0 ]
        one=$url
        single=$server
        await mpirun -np 2 dt-serve m "${common[@]}" --port 0 --layout $layout --role decode --prefill "$one" \
            --prefill-min 32 --prefill-timeout 300
        with_ranks "$server"
        ask "$url"
        [ "$(metric "$url" remote_prefill_blocks_total)" -ge 16 ]
        kill -USR1 "$server" "$ranks"
        kill "$single"
        wait "$server" "$ranks" "$single" || true
        servers=()
    done
}

@test "servers with other weights, and incompatible options, are refused" {
    "$DT_HELP/make-model" other llama-tiny 261
    await dt-serve other "${common[@]}" --port 0 --role prefill
    servers+=("$server")
    prefill=$url
    start --role decode --prefill "$prefill" --prefill-min 32 --prefill-timeout 300
    ask "$url"
    [ "$(metric "$url" remote_prefill_blocks_total)" -eq 0 ]
    grep -q "does not compute prompts for this server: 409, the KV caches differ" log
    local wanted
    refused() {
        run -2 --separate-stderr dt-serve m "$@"
        # shellcheck disable=SC2154 # set by run
        [[ $stderr == *"$wanted"* ]]
    }
    wanted="requires --role" refused --prefill http://127.0.0.1:1
    wanted="needs --role" refused --role prefill --prefill http://127.0.0.1:1
    wanted="cannot be combined with --batch" refused --role both --batch
    wanted="cannot be combined with --no-prefix-caching" refused --role decode --no-prefix-caching
    wanted="cannot be combined with --trace" refused --role decode --prefill http://127.0.0.1:1 --trace t
    run -1 --separate-stderr dt-serve m "${common[@]}" --port 0 --role decode --prefill 127.0.0.1:1
    [[ $stderr == *"is not the URL of a server"* ]]
}
# SPDX-License-Identifier: Apache-2.0
