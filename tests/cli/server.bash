# What test files that run a server share: `load server`; in_server_folder in setup, await wherever one is started.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the files that load this

load slow

in_server_folder() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    server=
}

# await COMMAND...: runs it behind; sets $server (process) and $url, its first line
await() {
    : >url
    "$@" >url 2>log 3>&- &
    server=$!
    until [ -s url ]; do # however long a busy machine takes; a server that died is seen
        kill -0 "$server" || { cat log; return 1; }
        sleep 0.05
    done
    url=$(cat url)
}

teardown() {
    [ -n "$server" ] || return 0
    for pid in $(ps -o pid= --ppid "$server") "$server"; do # its ranks first, where it is mpirun
        kill -KILL "$pid" 2>/dev/null || true
    done
    wait "$server" 2>/dev/null || true
}

# Several servers and what is asked of them: make_stories in setup_file writes model m, prompts.jsonl and what one
# server answers, wanted; several_servers in setup, start wherever one is started, kill_servers in teardown.

make_stories() {
    cd "$BATS_FILE_TMPDIR" || return 1
    "$DT_HELP/make-model" m
    for i in $(seq 0 23); do
        jq -nc --argjson i "$i" '{prompt: ("Story \($i % 8) of many: " + ("it goes on and on, \($i) times. " * ($i % 7 + 3))),
            max_tokens: 16, seed: $i, temperature: (if $i % 2 == 0 then 0 else 1 end), ignore_eos: true}'
    done >prompts.jsonl
    "$DT_BIN/dt-serve" --batch m --precision fp32 --threads 1 <prompts.jsonl 2>/dev/null | jq -c .text >wanted
}

several_servers() {
    in_server_folder
    servers=()
    common=(--precision fp32 --threads 1 --max-num-seqs 4 --max-model-len 400)
}

# start OPTION...: a server on a free port; sets $server (process) and $url; its log is log.$server
start() {
    await dt-serve m "${common[@]}" --port 0 "$@"
    servers+=("$server")
    cp log "log.$server"
}

kill_servers() {
    for pid in "${servers[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}
# SPDX-License-Identifier: Apache-2.0
