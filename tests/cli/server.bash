# Helpers for tests that start a server. Use: `load server`, in_server_folder in setup, await wherever a
# server starts.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the files that load this

load slow

in_server_folder() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    server=
}

# await COMMAND...: starts it in the background and waits for its first line; sets $server (pid) and $url
# (that line).
await() {
    : >url
    "$@" >url 2>log 3>&- &
    server=$!
    until [ -s url ]; do # without a time limit, for busy machines; ends with an error if the server exits
        kill -0 "$server" || { cat log; return 1; }
        sleep 0.05
    done
    url=$(cat url)
}

teardown() {
    [ -n "$server" ] || return 0
    for pid in $(ps -o pid= --ppid "$server") "$server"; do # children first: if $server is mpirun, its ranks
        kill -KILL "$pid" 2>/dev/null || true
    done
    wait "$server" 2>/dev/null || true
}

# Several servers. make_stories in setup_file writes model m, the requests prompts.jsonl and the texts with
# which one server answers them, wanted. several_servers belongs into setup, kill_servers into teardown; start
# starts a server.

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

# start OPTION...: starts a server on a free port; sets $server (pid) and $url; its log is log.$server.
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
