# What test files that run a server share: `load server`; in_server_folder in setup, await wherever one is started.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the files that load this

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
# SPDX-License-Identifier: Apache-2.0
