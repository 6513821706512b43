#!/usr/bin/env bats
# Disaggregated prefill behind a router: answers are those of a single server, also if servers are lost, and
# nothing is held for clients that have disconnected.

bats_require_minimum_version 1.5.0
load server

setup_file() {
    make_stories
}

setup() {
    several_servers
    start --role prefill
    p1=$url pid_p1=$server
    start --role prefill
    p2=$url pid_p2=$server
    both=(--prefill "$p1" --prefill "$p2/" --prefill-min 32 --prefill-timeout 300)
    start --role decode "${both[@]}"
    d1=$url pid_d1=$server
    start --role decode "${both[@]}"
    d2=$url
    jq -n --arg p1 "$p1" --arg p2 "$p2" --arg d1 "$d1" --arg d2 "$d2" '{servers: ([$p1, $p2, $d1, $d2] | map({url: .})),
        prefill_min_tokens: 16, health_interval_s: 0.1, health_fall: 1, health_timeout_s: 60, retries: 5}' >conf
    await dt-route --port 0 --config conf
    servers+=("$server")
    until_true has_roles decode decode prefill prefill
}

teardown() {
    kill_servers
}

# until_true COMMAND...: waits up to two minutes until it succeeds
until_true() {
    for _ in $(seq 1200); do
        "$@" && return
        sleep 0.1
    done
    echo "never: $*"
    return 1
}

# has_roles ROLE...: true if these are the roles of the servers that are up, sorted
has_roles() {
    [ "$(curl -s "$url/route/servers" | jq -r '[.servers[] | select(.up) | .role] | sort | join(" ")')" = "$*" ]
}

# metric URL NAME: a metric of dt-serve
metric() {
    curl -s -m 60 "$1/metrics" | awk -v n="dt_serve_$2{" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

# named URL: how often the router sent this server a prompt to compute, or a request
named() {
    curl -s "$url/metrics" | awk -v s="server=\"$1\"" 'index($1, "dt_route_server_requests_total{") && index($1, s) { print $2 }'
}

was_named() {
    [ "$(named "$1")" -gt 0 ]
}

# ask_at_once: sends all prompts through the router, six at a time; checks the texts, in any order
ask_at_once() {
    xargs -P 6 -d '\n' -I BODY curl -s -m 100 -H 'Content-Type: application/json' -d BODY "$url/v1/completions" <prompts.jsonl |
        jq -c '.choices[0].text' | sort >texts.sorted
    sort wanted | cmp - texts.sorted
}

# is_empty URL: true if the server has no request, running or waiting, and all KV blocks are free
is_empty() {
    curl -s -m 60 "$1/slots" | jq -e '.running + .waiting == 0 and .free_blocks == .blocks' >/dev/null
}

@test "the router chooses a prefill server for each prompt; roles change while it runs" {
    ask_at_once
    [ "$(($(named "$p1") + $(named "$p2")))" -eq 24 ]
    [ "$(($(named "$d1") + $(named "$d2")))" -eq 24 ]
    [ "$(metric "$p1" prefill_blocks_sent_total)" -gt 0 ] && [ "$(metric "$p2" prefill_blocks_sent_total)" -gt 0 ]
    [ "$(($(metric "$d1" remote_prefill_failures_total) + $(metric "$d2" remote_prefill_failures_total)))" -eq 0 ]
    # a drained prefill server gets no more prompts, although both decode servers know it and would use it
    curl -s -X POST "$url/route/drain?server=$p2" | jq -e .drained
    sent=$(metric "$p2" prefill_blocks_sent_total)
    for i in 1 2 3 4 5 6; do
        jq -nc --argjson i "$i" '{prompt: ("Another \($i): " + "and so it went. " * 9), max_tokens: 2}' |
            curl -s -m 100 -d @- "$url/v1/completions" | jq -e '.usage.completion_tokens == 2'
    done
    [ "$(metric "$p2" prefill_blocks_sent_total)" -eq "$sent" ]
    curl -s "$url/metrics" >metrics
    grep -q "^dt_route_server_prefills{server=\"$p1\"} 1" metrics
    grep -q "^dt_route_servers_up 2" metrics # counts decode servers only
    # a decode server becomes a prefill server, and the other way round
    curl -s -X POST "$url/route/undrain?server=$p2" | jq -e '.drained | not'
    curl -s -m 60 -d '{"role": "decode"}' "$p1/v1/role" | jq -e '.role == "decode"'
    curl -s -m 60 -d '{"role": "prefill"}' "$d1/v1/role" | jq -e '.role == "prefill"'
    until_true has_roles decode decode prefill prefill
    before=$(named "$p1")
    ask_at_once
    [ "$(named "$p1")" -gt "$before" ] && [ "$(metric "$p1" request_success_total)" -gt 0 ]
    # a short prompt is computed by the decode server itself
    before=$(($(named "$p2") + $(named "$d1")))
    curl -s -m 100 -d '{"prompt": "Hi", "max_tokens": 2}' "$url/v1/completions" | jq -e '.usage.completion_tokens == 2'
    [ "$(($(named "$p2") + $(named "$d1")))" -eq "$before" ]
    # a prefill server named by the client is ignored
    jq -nc '{prompt: ("Yet another: " + "and so it went. " * 9), max_tokens: 2, kv_prefill: "http://127.0.0.1:9"}' |
        curl -s -m 100 -d @- "$d2/v1/completions" | jq -e '.usage.completion_tokens == 2'
    curl -s -m 100 -d '{"prompt": "x", "kv_prefill": 7}' "$d2/v1/completions" | jq -e '.error.code == "kv_prefill"'
    # no prefill server is named to a route that computes nothing, and would refuse the name
    for path in /tokenize /v1/score; do
        jq -nc '("on and on. " * 40) as $t | {prompt: $t, text_1: $t, text_2: [$t]}' |
            jq -c "if \"$path\" == \"/tokenize\" then {prompt} else {text_1, text_2} end" >body
        curl -s -X POST "$url$path" -H 'Content-Type: application/json' -d @body >answer
        jq -e 'has("count") or .error.param != "kv_prefill" and .error.param != "kv_marks"' answer
    done
}

@test "servers of each role are killed under load: every request is answered, with the same text" {
    takes_long
    ask_at_once &
    asking=$!
    until_true was_named "$p1"
    kill -KILL "$pid_p1"
    wait "$asking"
    until_true has_roles decode decode prefill
    ask_at_once &
    asking=$!
    sleep 0.3
    kill -KILL "$pid_d1"
    wait "$asking"
    until_true has_roles decode prefill
    kill -KILL "$pid_p2"
    until_true has_roles decode
    ask_at_once # prompts are computed by the decode server itself
    until_true is_empty "$d2"
}

@test "nothing is held for requests whose clients disconnected a second ago" {
    n=200
    ! slow || n=10000
    cat >load.py <<'PY'
import http.client, json, random, sys, threading, urllib.parse
where, n = urllib.parse.urlsplit(sys.argv[1]), int(sys.argv[2])
mutex, at, wrong = threading.Lock(), [0], []
def run(seed):
    try:
        ask(seed)
    except Exception as e:
        wrong.append(repr(e))
def ask(seed):
    rng = random.Random(seed)
    while True:
        with mutex:
            if at[0] == n:
                return
            at[0] += 1
            i = at[0]
        c = http.client.HTTPConnection(where.hostname, where.port, timeout=300)
        body = {"prompt": f"Story {i % 50}: " + "it goes on and on. " * rng.randint(1, 12), "max_tokens": 8, "ignore_eos": True, "stream": True}
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        if rng.random() < 0.3:  # disconnects at once, or during the answer
            if rng.random() < 0.5:
                c.getresponse().read(rng.randint(1, 300))
            c.close()
            continue
        text = c.getresponse().read().decode()
        c.close()
        if "[DONE]" not in text or "error" in text:
            wrong.append(text[-300:])
threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(wrong), wrong[:2])
sys.exit(len(wrong) > 0)
PY
    python3 load.py "$url" "$n"
    [ "$(metric "$d1" remote_prefill_requests_total)" -gt 0 ]
    # servers free what they held; this may take long on a busy machine
    for u in "$p1" "$p2" "$d1" "$d2"; do
        until_true is_empty "$u"
    done
    [ "$(curl -s "$url/route/servers" | jq '[.servers[].running] | add')" -eq 0 ]
}
# SPDX-License-Identifier: Apache-2.0
