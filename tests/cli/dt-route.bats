#!/usr/bin/env bats
# dt-route in front of mock servers with controlled behaviour (route-mock.py), and in front of dt-serve.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    "$DT_HELP/make-model" m
}

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_TEST_TMPDIR" || return 1
    pids=()
}

teardown() {
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
}

# until_true COMMAND...: waits up to a minute until it succeeds
until_true() {
    for _ in $(seq 1200); do
        "$@" && return
        sleep 0.05
    done
    echo "never: $*"
    cat log* 2>/dev/null
    return 1
}

# mock NAME [OPTION...]: starts a mock server; variable NAME is its address, pid_NAME its process
mock() {
    local name=$1
    shift
    : >"url-$name"
    /usr/bin/python3 "$DT_SRC/tests/cli/route-mock.py" --name "$name" "$@" >"url-$name" 3>&- &
    pids+=($!)
    printf -v "pid_$name" %s $!
    until_true test -s "url-$name"
    printf -v "$name" %s "$(cat "url-$name")"
}

ups() {
    [ "$(curl -s "${auth[@]}" "$url/route/servers" | jq '[.servers[] | select(.up)] | length')" = "$1" ]
}

# route N OPTION...: starts a router, by the command $under if it is set, and waits until it sees N servers; sets $url
# and $router
route() {
    local n=$1
    shift
    : >url
    "${under[@]}" dt-route --port 0 "$@" >url 2>>log 3>&- &
    router=$!
    pids+=("$router")
    until_true test -s url
    url=$(tail -n 1 url)
    until_true ups "$n"
}

# ask [CURL-OPTION...]: requests a completion; $body replaces the default body
ask() {
    curl -s -m 20 -H 'Content-Type: application/json' -d "${body:-{\"model\":\"m\",\"prompt\":\"hello\"\}}" "$@" "$url/v1/completions"
}

set_mock() {
    curl -s -o /dev/null -d "$2" "$1/mock"
}

got() {
    curl -s "$1/mock" | jq -r "$2"
}

# said SERVER FILTER WANTED, shows METRIC WANTED: conditions for until_true
said() {
    [ "$(got "$1" "$2")" = "$3" ]
}

shows() {
    [ "$(metric "$1")" = "$2" ]
}

metric() {
    curl -s "${auth[@]}" "$url/metrics" | awk -v n="dt_route_$1" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

denies() {
    ! "$@"
}

@test "answers and streams pass unchanged; request ids are created, kept, returned; trace context passes on" {
    mock a
    route 1 "$a"
    [ "$(ask | jq -c '[.server, .model, .usage.completion_tokens]')" = '["a","m",3]' ]
    body='{"model":"m","prompt":"hello","stream":true}'
    ask -N >routed
    curl -sN -d "$body" "$a/v1/completions" >direct
    cmp routed direct
    ask -D headers -o /dev/null -H 'X-Request-Id: my-id' -H 'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' \
        -H 'tracestate: x=1' -H 'Connection: X-Secret' -H 'X-Secret: no'
    grep -q '^X-Request-Id: my-id' headers
    [ "$(got "$a" '.headers."x-request-id"')" = my-id ]
    [ "$(got "$a" .headers.traceparent)" = 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 ]
    [ "$(got "$a" .headers.tracestate)" = x=1 ]
    [ "$(got "$a" '.headers."x-secret"')" = null ]
    # a long token, as of an identity provider, passes whole
    token=$(printf '%04000d' 7)
    ask -o /dev/null -H "Authorization: Bearer $token" -H 'X-Next: 1'
    [ "$(got "$a" .headers.authorization)" = "Bearer $token" ]
    [ "$(got "$a" '.headers."x-next"')" = 1 ]
    ask -o /dev/null -H 'x-api-key: anthropic'
    [ "$(got "$a" '.headers."x-api-key"')" = anthropic ]
    ask -D headers -o /dev/null
    [ "$(sed -n 's/^X-Request-Id: \(req-[0-9a-f]*\).*/\1/p' headers)" = "$(got "$a" '.headers."x-request-id"')" ]
    [ "$(body='{"model":"none","prompt":"x"}' ask | jq -c '[.error.code, .error.param]')" = '["model_not_found","model"]' ]
    # errors in the format of Anthropic's API for its clients
    messages() { curl -s -m 20 -d "{\"model\":\"$1\",\"stream\":true,\"max_tokens\":5,\"messages\":[]}" "$url/v1/messages"; }
    [ "$(messages none | jq -c '[.type, .error.type]')" = '["error","not_found_error"]' ]
    set_mock "$a" '{"tokens": 9, "die_after": 2}'
    messages m >broken
    set_mock "$a" '{"tokens": 3, "die_after": null}'
    [ "$(grep -A1 '^event: error' broken | sed -n 's/^data: //p' | jq -c '[.type, .error.type]')" = '["error","api_error"]' ]
    [ "$(curl -s "$url/v1/models" | jq -c '[.data[].id]')" = '["m"]' ]
    unset body
    [ "$(ask -0 | jq -r .server)" = a ]
}

@test "policies: round robin, least loaded, cache and hash by prompt, sessions stay on a server" {
    mock a
    mock b
    mock c
    long=$(printf 'x%.0s' $(seq 3000))
    for policy in round least two cache hash; do
        route 3 --policy "$policy" "$a" "$b" "$c"
        for i in $(seq 12); do ask; done | jq -r .server | sort | uniq -c | awk '{ print $1 }' >counts
        case $policy in
        round) [ "$(sort -u counts)" = 4 ] ;;
        # a short prompt: ties go to the server that served least
        least | two | cache) [ "$(wc -l <counts)" -ge 2 ] ;;
        esac
        if [ "$policy" = cache ] || [ "$policy" = hash ]; then
            for k in 1 2 3; do
                body="{\"model\":\"m\",\"prompt\":\"$k$long\"}"
                n=$(for i in $(seq 5); do ask; done | jq -r .server | sort -u | wc -l)
                [ "$n" = 1 ]
            done
            unset body
        fi
        n=$(for i in $(seq 8); do ask -H 'X-Session-Id: someone'; done | jq -r .server | sort -u | wc -l)
        [ "$n" = 1 ]
        [ "$(for i in $(seq 30); do ask -H "X-Session-Id: s$i"; done | jq -r .server | sort -u | wc -l)" = 3 ]
        kill "$router"
        wait "$router"
    done
}

@test "load counts from the choice of the server to the last byte: slow prompts of 32K bytes spread out" {
    mock a
    mock b
    route 2 --policy least "$a" "$b"
    set_mock "$a" '{"hold": true, "tokens": 1}'
    set_mock "$b" '{"hold": true, "tokens": 1}'
    body="{\"model\":\"m\",\"prompt\":\"$(printf 'x%.0s' $(seq 32768))\"}"
    for i in $(seq 10); do
        ask -m 300 >/dev/null &
        sent+=($!)
    done
    until_true said "$a" .running 5
    until_true said "$b" .running 5
    set_mock "$a" '{"hold": false}'
    set_mock "$b" '{"hold": false}'
    wait "${sent[@]}"
    [ "$(got "$a" .most)" = 5 ]
    [ "$(got "$b" .most)" = 5 ]
    until_true shows server_running 0
}

@test "retries: on another server before the first byte, never after it; Retry-After is obeyed; a budget" {
    mock a
    mock b
    route 2 --policy round "$a" "$b"
    set_mock "$a" '{"status": 503, "retry_after": 600}'
    for i in $(seq 6); do [ "$(ask | jq -r .server)" = b ]; done
    [ "$(got "$a" .requests)" = 1 ] # not asked again before Retry-After
    kill "$router"
    wait "$router"
    route 2 --policy round "$a" "$b"
    set_mock "$a" '{"retry_after": 1}'
    ask >/dev/null
    ask >/dev/null
    [ "$(got "$a" .requests)" = 2 ]
    more() { # it is asked again afterwards
        ask >/dev/null
        [ "$(got "$a" .requests)" -gt 2 ]
    }
    until_true more
    set_mock "$a" '{"status": 200, "die_after": 0}'
    kill "$router"
    wait "$router"
    route 2 --policy round "$a" "$b"
    for i in $(seq 4); do [ "$(ask | jq -r .server)" = b ]; done
    set_mock "$b" '{"die_after": 2}'
    set_mock "$a" '{"die_after": 2}'
    body='{"model":"m","prompt":"x","stream":true}' ask -N >out
    [ "$(grep -c '"choices"' out)" = 2 ]
    [ "$(grep -c '"code":"server_lost"' out)" = 1 ]
    denies grep -q DONE out
    # every attempt fails: the client gets the server's own error in the end, and retries do not multiply
    kill "$router"
    wait "$router"
    echo "{\"servers\": [{\"url\": \"$a\"}, {\"url\": \"$b\"}], \"retry_backoff_s\": 0.01, \"circuit_failures\": 100000}" >conf
    set_mock "$a" '{"status": 500, "die_after": null}'
    set_mock "$b" '{"status": 500, "die_after": null}'
    route 2 --config conf
    before=$(($(got "$a" .requests) + $(got "$b" .requests)))
    for i in $(seq 100); do ask -w '%{stderr}%{http_code}\n'; done >out 2>codes
    [ "$(sort codes | uniq -c | tr -d '\n ')" = 100500 ]
    [ "$(jq -r .error.message out | sort | uniq -c | xargs)" = "100 as wanted" ]
    after=$(($(got "$a" .requests) + $(got "$b" .requests)))
    [ $((after - before)) -le 125 ] # the retry budget is a tenth of the requests, and ten at the start
    [ "$(metric retries_denied_total)" -gt 50 ]
}

@test "streams: an error follows the last whole event; events whose lines end with CR LF are not held back" {
    mock a
    route 1 --books books "$a"
    local head='HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n'
    body='{"model":"m","prompt":"x","stream":true}'
    # the server is lost within its second event
    for rest in 'Content-Length: 999\r\n\r\n' 'Transfer-Encoding: chunked\r\n\r\n16\r\n'; do
        set_mock "$a" "{\"raw\": \"$head${rest}data: {\\\"a\\\":1}\\n\\ndata: {\\r\\n\"}"
        ask -N >out
        [ "$(sed -n 1p out)" = 'data: {"a":1}' ]
        sed -n 's/^data: //p' out | jq -e -s '(.[1].error.code == "server_lost") and length == 2'
    done
    # an event without choices whose usage is null is the server's own, such as a filter's verdict
    set_mock "$a" "{\"raw\": \"$head\\r\\ndata: {\\\"choices\\\":[],\\\"usage\\\":null}\\n\\ndata: {\\\"choices\\\":[],\\\"usage\\\":{}}\\n\\n\"}"
    [ "$(ask -N)" = 'data: {"choices":[],"usage":null}' ]
    # CR LF: the first event arrives while the server still sends; the usage that the router asked for is removed
    set_mock "$a" "{\"raw\": \"${head}\\r\\ndata: {\\\"choices\\\":[1]}\\r\\n\\r\\ndata: {\\\"choices\\\":[],\\\"usage\\\":{\\\"prompt_tokens\\\":7,\\\"completion_tokens\\\":1}}\\r\\n\\r\\n\", \"raw_endless\": true}"
    curl -sN -m 300 --limit-rate 2k -d "$body" "$url/v1/completions" >out 3>&- & # slow: the rest has no end
    pids+=($!)
    until_true grep -q choices out
    denies grep -q usage out
    kill -KILL "${pids[-1]}"
    booked() { tail -n 1 books | jq -e '.status == 499'; }
    until_true booked
}

@test "an answer that ends early is not whole for a client of HTTP/1.0, for which the end of the connection ends it" {
    mock a
    echo "{\"servers\": [{\"url\": \"$a\"}], \"retries\": 0, \"circuit_failures\": 100000}" >conf
    route 1 --config conf
    set_mock "$a" '{"die_after": 2}'
    body='{"model":"m","prompt":"x","stream":true}'
    [ "$(ask -0 -N | sed -n 's/^data: //p' | jq -r '.choices[0].text // .error.code')" = $'a0 \na1 \nserver_lost' ]
    /usr/bin/python3 -c 'import json; print(json.dumps({"raw":
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" + "x" * (3 << 20)}))' >long
    set_mock "$a" @long
    body='{"model":"m","prompt":"x"}'
    run ask -0 -o out
    [ "$status" -ne 0 ]
    run ask -o out
    [ "$status" -ne 0 ]
}

@test "a client that reads slowly gets all of its answer, also if the connection closes or the router stops" {
    mock a
    route 1 "$a"
    set_mock "$a" '{"tokens": 8000000}'
    for way in stays closes stops; do
        /usr/bin/python3 - "${url##*:}" "$way" "$router" <<'END'
import os, re, signal, socket, sys, time, urllib.request
port, way, router = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.connect(("127.0.0.1", port))
body = b'{"model":"m","prompt":"x"}'
s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s"
          % (b"" if way == "stays" else b"Connection: close\r\n", len(body), body))
data = b""
while b"\r\n\r\n" not in data:
    data += s.recv(65536)
head, _, data = data.partition(b"\r\n\r\n")
size = int(re.search(rb"Content-Length: (\d+)", head)[1])
n = len(data)
running, look = True, size // 2
while n < size:
    if running and n > look:  # the router has everything; the client pauses longer than it lingers
        look = n + 65536
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        running = re.search(r"^dt_route_running (\d+)", text, re.M)[1] != "0"
        if running:
            time.sleep(0.02)  # the server may be slower than this client
        else:
            if way == "stops":
                os.kill(router, signal.SIGTERM)
            time.sleep(8 if way == "stops" else 3)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # the rest quickly
    got = s.recv(65536)
    if not got:
        break
    n += len(got)
if running:
    sys.exit(f"{way}: the router did not read ahead of its client")
sys.exit(f"{way}: {n} of {size} bytes" if n < size else 0)
END
    done
    wait "$router"
}

@test "a server that is killed under load costs no client its answer; it comes back" {
    mock a
    mock b
    route 2 --policy least "$a" "$b"
    set_mock "$a" '{"delay": 0.05}'
    set_mock "$b" '{"delay": 0.05}'
    for i in $(seq 8); do
        { # until the kill, then ten more
            until [ -e killed ]; do ask -o /dev/null -w '%{http_code}\n'; done
            for k in $(seq 10); do ask -o /dev/null -w '%{http_code}\n'; done
        } >"codes-$i" &
        loads+=($!)
    done
    some() { [ "$(got "$a" .requests)" -ge 20 ] && [ "$(got "$a" .running)" -ge 1 ]; }
    until_true some || { touch killed; return 1; }
    kill -KILL "$pid_a"
    touch killed
    wait "${loads[@]}"
    [ "$(sort -u codes-*)" = 200 ]
    [ "$(cat codes-* | wc -l)" -ge 100 ]
    until_true ups 1
    mock a --port "${a##*:}"
    until_true ups 2
}

@test "circuit breaker: a server with errors is left alone, then tried with one request" {
    mock a
    mock b
    echo "{\"servers\": [{\"url\": \"$a\"}, {\"url\": \"$b\"}], \"policy\": \"round\", \"circuit_failures\": 3, \"circuit_open_s\": 600,
        \"circuit_successes\": 2, \"retry_budget\": 1}" >conf
    route 2 --config conf
    set_mock "$a" '{"status": 500}'
    for i in $(seq 20); do [ "$(ask | jq -r .server)" = b ]; done
    [ "$(got "$a" .requests)" = 3 ]
    [ "$(curl -s "$url/route/servers" | jq -r '.servers[0].circuit')" = open ]
    set_mock "$a" '{"status": 200}'
    sed -i 's/"circuit_open_s": 600/"circuit_open_s": 0.1/' conf
    kill -HUP "$router"
    closes() {
        ask >/dev/null
        [ "$(curl -s "$url/route/servers" | jq -r '.servers[0].circuit')" = closed ]
    }
    until_true closes
}

@test "circuit breaker: a trial without a verdict, of a client that leaves or put off by the server, is repeated" {
    mock a
    echo "{\"servers\": [{\"url\": \"$a\"}], \"circuit_failures\": 1, \"circuit_open_s\": 0.1, \"circuit_successes\": 1,
        \"queue_timeout_s\": 20, \"retry_budget\": 1}" >conf
    route 1 --config conf
    circuit() { [ "$(curl -s "$url/route/servers" | jq -r '.servers[0].circuit')" = "$1" ]; }
    requests() { [ "$(got "$a" .requests)" -ge "$1" ]; }
    set_mock "$a" '{"status": 500}'
    ask -m 0.3 >/dev/null || circuit open || circuit half-open
    set_mock "$a" '{"status": 200, "hold": true}'
    n=$(got "$a" .requests)
    curl -s -d '{"model":"m","prompt":"x"}' "$url/v1/completions" >/dev/null 3>&- & # not in a subshell: it is killed
    pids+=($!)
    until_true requests $((n + 1))
    circuit half-open
    kill -KILL "${pids[-1]}"
    until_true said "$a" .running 0
    set_mock "$a" '{"status": 429, "times": 3, "hold": false}'
    [ "$(ask | jq -r .server)" = a ]
    requests $((n + 5))
    circuit closed
}

@test "health: a server with a failing /health leaves after some probes, and comes back" {
    mock a
    mock b
    echo "{\"servers\": [{\"url\": \"$a\"}, {\"url\": \"$b\"}], \"health_interval_s\": 0.1, \"health_fall\": 2}" >conf
    route 2 --config conf
    set_mock "$a" '{"health": 500}'
    until_true ups 1
    for i in 1 2 3; do [ "$(ask | jq -r .server)" = b ]; done
    set_mock "$a" '{"health": 200, "hints": true}'
    until_true ups 2
    set_mock "$a" '{"health": 500}'
    set_mock "$b" '{"health": 500}'
    until_true ups 0
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/health")" = 503 ]
}

@test "drain and undrain: running requests continue, no new ones arrive" {
    mock a
    mock b
    route 2 --policy least "$a" "$b"
    set_mock "$a" '{"hold": true, "tokens": 5}'
    set_mock "$b" '{"hold": true, "tokens": 5}'
    body='{"model":"m","prompt":"x","stream":true}'
    ask -N >s1 &
    one=$!
    ask -N >s2 &
    two=$!
    until_true said "$a" .running 1
    until_true said "$b" .running 1
    curl -s -X POST "$url/route/drain?server=$a" | jq -e '.drained and .running == 1'
    before=$(got "$a" .requests)
    unset body
    set_mock "$b" '{"hold": false}'
    for i in 1 2 3 4; do [ "$(ask | jq -r .server)" = b ]; done
    set_mock "$a" '{"hold": false}'
    wait $one $two
    grep -q DONE s1 && grep -q DONE s2
    [ "$(got "$a" .requests)" = "$before" ]
    curl -s -X POST "$url/route/undrain?server=$a" | jq -e '.drained == false'
    for i in $(seq 12); do ask; done | jq -r .server | sort -u | wc -l | grep -qx 2
    [ "$(curl -s -X POST -o /dev/null -w '%{http_code}' "$url/route/drain?server=http://nowhere")" = 404 ]
}

@test "the request of a client that disconnects is cancelled at the server" {
    mock a
    route 1 "$a"
    set_mock "$a" '{"gap": 0.1, "tokens": 100000}'
    leaves() { # BODY: sends a request, disconnects after it has reached the server
        local n=$(($(got "$a" .requests) + 1))
        curl -sN -m 300 -d "$1" "$url/v1/completions" >/dev/null 3>&- &
        pids+=($!)
        until_true said "$a" .requests $n
        kill -KILL "${pids[-1]}"
    }
    leaves '{"model":"m","prompt":"x","stream":true}'
    until_true said "$a" .cancelled 1
    set_mock "$a" '{"hold": true}'
    leaves '{"model":"m","prompt":"x"}'
    until_true said "$a" .cancelled 2
    until_true shows cancelled_total 2
    until_true shows server_running 0
}

@test "model names: unknown while a server does not list its models; refused at once if the configuration lists them" {
    mock a
    set_mock "$a" '{"models": 500}'
    echo "{\"servers\": [{\"url\": \"$a\"}], \"health_interval_s\": 0.2}" >conf
    route 1 --config conf
    until_true grep -q 'does not list its models (status 500)' log
    ask -m 60 >answer 3>&- &
    held=$!
    until_true shows queue_depth 1
    set_mock "$a" '{"models": 200}'
    wait "$held"
    [ "$(jq -r .server answer)" = a ]
    [ "$(grep -c 'does not list its models' log)" = 1 ]
    kill "$router"
    echo "{\"servers\": [{\"url\": \"$a\", \"models\": [\"m\"]}]}" >conf
    route 1 --config conf
    [ "$(body='{"prompt":"x","model":"other"}' ask -m 5 -o out -w '%{http_code}')" = 404 ]
    grep -q model_not_found out
}

@test "model names: an alias, weights that are sticky by session, a shadow whose answers nobody sees" {
    mock a --models old
    mock b --models new
    mock c --models shade
    echo "{\"servers\": [{\"url\": \"$a\"}, {\"url\": \"$b\"}, {\"url\": \"$c\"}], \"models\": {\"plain\": \"old\",
        \"chat\": {\"to\": [{\"model\": \"old\", \"weight\": 3}, {\"model\": \"new\", \"weight\": 1}], \"shadow\": \"shade\"}}}" >conf
    route 3 --config conf
    [ "$(body='{"prompt":"x","model":"plain"}' ask | jq -c '[.server, .model]')" = '["a","old"]' ]
    body='{"prompt":"x","model": "chat"}'
    for i in $(seq 80); do
        first=$(ask -H "X-Session-Id: $i" | jq -r .model)
        [ "$i" -gt 5 ] || for k in 1 2 3; do [ "$(ask -H "X-Session-Id: $i" | jq -r .model)" = "$first" ]; done
        echo "$first"
    done >models
    n=$(grep -c new models)
    [ "$n" -ge 8 ] && [ "$n" -le 34 ] # a quarter of 80
    until_true said "$c" .requests 95
    [ "$(got "$c" .body.model)" = shade ]
    ask -o /dev/null -H 'Authorization: Bearer mine' -H 'X-Session-Id: 1'
    until_true said "$c" .requests 96
    [ "$(got "$c" .headers.authorization)" = 'Bearer mine' ]
    until_true shows shadow_total 96
    kill -KILL "$pid_c" # a lost copy is no answer: neither an error nor a time
    ask -o /dev/null
    until_true shows running 0
    shows request_errors_total 0
    shows request_seconds_count 98
    shows ttft_seconds_count 98
    [ "$(curl -s "$url/v1/models" | jq -c '[.data[].id] | sort')" = '["chat","new","old","plain","shade"]' ]
    [ "$(for name in chat sh%61de none; do curl -s "$url/v1/models/$name" | jq -c '.id // .error.code'; done | tr '\n' ' ')" = \
        '"chat" "shade" "model_not_found" ' ]
}

@test "API keys: limits in requests and tokens, headers, accounts for billing, keys are never written out" {
    mock a --key upstream-secret
    printf 'sk-one tenant=red requests-per-minute=3\nsk-two tenant=blue tokens-per-minute=1000\nsk-admin admin=yes\n' >keys
    echo "{\"servers\": [{\"url\": \"$a\", \"key\": \"upstream-secret\", \"models\": [\"m\"]}]}" >conf
    auth=(-H 'Authorization: Bearer sk-admin')
    route 1 --config conf --api-key-file keys --books books
    [ "$(ask -o /dev/null -w '%{http_code}')" = 401 ]
    [ "$(ask -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer sk-on')" = 401 ]
    [[ "$(ask)" == *"this router requires an API key: "* ]]
    [[ "$(ask -H 'X-Api-Key: sk-on')" == *"this router does not know this API key"* ]]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/health")" = 200 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/metrics")" = 401 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H 'X-Api-Key: sk-one' "$url/metrics")" = 403 ]
    for i in 1 2 3; do [ "$(ask -o /dev/null -D headers -w '%{http_code}' -H 'Authorization: Bearer sk-one')" = 200 ]; done
    grep -q '^X-RateLimit-Limit-Requests: 3' headers
    grep -q '^X-RateLimit-Remaining-Requests: 0' headers
    [ "$(ask -o out -D headers -w '%{http_code}' -H 'Authorization: Bearer sk-one')" = 429 ]
    grep -qi '^Retry-After: [1-9]' headers
    [ "$(jq -r .error.code out)" = rate_limit_exceeded ]
    # a stream without stream_options: the router requests usage from the server and removes it from the
    # answer
    body='{"model":"m","prompt":"hello there","stream":true}' ask -N -H 'Authorization: Bearer sk-two' >out
    [ "$(got "$a" '.body.stream_options.include_usage')" = null ] || true
    denies grep -q usage out
    grep -q DONE out
    body='{"model":"m","prompt":"hello there","stream":true,"stream_options":{"include_usage":true}}' ask -N -H 'Authorization: Bearer sk-two' >out
    grep -q '"usage"' out
    booked() { [ "$(wc -l <books)" -ge 6 ]; }
    until_true booked
    jq -se 'group_by(.tenant) | map({(.[0].tenant): [length, (map(.prompt_tokens) | add), (map(.completion_tokens) | add)]}) | add
        == {"red": [4, 15, 9], "blue": [2, 22, 6]}' books
    denies jq -e 'select(.estimated)' books
    body="{\"model\":\"m\",\"prompt\":\"x\",\"max_tokens\":900}"
    ask -o /dev/null -H 'Authorization: Bearer sk-two'
    ask -o /dev/null -D headers -H 'Authorization: Bearer sk-two'
    grep -q '^X-RateLimit-Limit-Tokens: 1000' headers
    denies grep -r -e sk-one -e sk-two -e sk-admin -e upstream-secret books log
}

@test "accounts: lines stay whole when two routers append, and after the disk was full; lost ones are counted" {
    mock a
    route 1 --books books "$a"
    urls=$url
    route 1 --books books "$a"
    urls="$urls $url"
    # lines longer than a buffer of stdio, from both at once; nobody has a model of that name
    # shellcheck disable=SC2086 # words
    /usr/bin/python3 - $urls <<'END'
import http.client, sys, threading
def ask(url, k):
    c = http.client.HTTPConnection(url.split("/")[2])
    for i in range(40):
        c.request("POST", "/v1/completions", '{"model": "%s"}' % (3000 * "y"), {"X-Request-Id": f"{url[-5:]}-{k}-{i}"})
        assert c.getresponse().read()
threads = [threading.Thread(target=ask, args=(u, k)) for u in sys.argv[1:] for k in range(2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
END
    booked() { [ "$(wc -l <books)" -ge 160 ]; }
    until_true booked
    [ "$(jq -s 'map(.id) | unique | length' books)" = 160 ]
    # a file that may have 1024 bytes, until the limit is lifted
    printf '#!/bin/bash\nulimit -S -f 1\ntrap "" XFSZ\nexec dt-route "$@"\n' >limited
    chmod +x limited
    : >url
    ./limited --port 0 --books small "$a" >url 2> >(exec cat >>said 3>&-) 3>&- &
    router=$!
    pids+=("$router")
    until_true test -s url
    url=$(cat url)
    until_true ups 1
    for i in $(seq 8); do ask -o /dev/null; done
    some() { [ "$(metric books_errors_total)" -ge 1 ]; }
    until_true some
    grep -q "cannot write 'small': File too large; requests are not recorded" said
    counted() { [ "$(($(grep -c '^{.*}$' small) + $(metric books_errors_total)))" = 8 ]; }
    until_true counted
    # the part of a line that had room is blank: every reader of JSON Lines still reads the file
    [ "$(stat -c %s small)" = 1024 ]
    [ "$(jq -s length small)" = "$(wc -l <small)" ]
    lost=$(metric books_errors_total)
    prlimit --pid "$router" --fsize=unlimited
    ask -o /dev/null
    until_true grep -q "requests are recorded in 'small' again" said
    [ "$(jq -s length small)" = $((9 - lost)) ]
    [ "$(tail -n 1 small | sed 's/^ *//' | jq .status)" = 200 ]
    run -1 dt-route --port 0 --books /nowhere/books "$a"
    [ "$output" = "dt-route: cannot write '/nowhere/books': No such file or directory" ]
}

@test "accounts: null is unset, estimates count the prompt, more than a whole quota is refused for good" {
    mock a
    printf 'B1 tenant=B tokens-per-minute=60\nC1 tenant=C\nADM admin=yes\n' >keys
    auth=(-H 'Authorization: Bearer ADM')
    route 1 --api-key-file keys --books books "$a"
    pad=$(printf 'x%.0s' $(seq 5000))
    booked() { [ "$(wc -l <books)" = "$1" ]; }
    n=0
    for options in '' ',"stream_options":null' ',"stream_options":{}' ",\"stream_options\":{\"pad\":\"$pad\"}"; do
        body="{\"model\":null,\"prompt\":\"hello\",\"stream\":true$options}" ask -N -H 'Authorization: Bearer C1' >out
        grep -q DONE out
        denies grep -q usage out
        [ "$(got "$a" '.body.stream_options.include_usage')" = true ]
        [ "$(got "$a" '.body.model')" = null ]
        until_true booked $((n += 1))
    done
    jq -se 'map([.estimated, .prompt_tokens, .model]) | unique == [[false, 5, null]]' books
    # no usage in the answer: estimated as one token per four bytes of the prompt, without the rest of the
    # body
    set_mock "$a" '{"raw": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"}'
    body="{\"prompt\":\"abcdefgh\",\"user\":\"$pad\"}" ask -H 'Authorization: Bearer C1' -o /dev/null
    until_true booked 5
    tail -n 1 books | jq -e '.estimated and .prompt_tokens == 2'
    set_mock "$a" '{"raw": null}'
    # a request that can never pass is refused for good, and takes nothing from the quota
    body='{"prompt":"x","max_tokens":5000}'
    [ "$(ask -H 'Authorization: Bearer B1' -o out -w '%{http_code}')" = 400 ]
    jq -e '.error.code == "request_over_quota" and (.error.message | test("5001 tokens.*whole quota of 60"))' out
    body='{"prompt":"x","max_tokens":10,"n":9}'
    [ "$(ask -H 'Authorization: Bearer B1' -o /dev/null -w '%{http_code}')" = 400 ]
    body='{"prompt":"x","max_tokens":10}'
    [ "$(ask -H 'Authorization: Bearer B1' -o /dev/null -w '%{http_code}')" = 200 ]
}

@test "the router's own routes take a query, an empty body, and every spelling of a server's URL" {
    mock a
    route 1 "$a"
    for path in '/health?x=1' '/v1/models?limit=20' '/v1/models/m?x' '/metrics?a=b' '/route/servers?x=1'; do
        [ "$(curl -s -o /dev/null -w '%{http_code}' "$url$path")" = 200 ]
        [ "$(curl -s -o /dev/null -w '%{http_code}' -X GET -H 'Content-Length: 0' "$url$path")" = 200 ]
    done
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/completions?x=1")" = 405 ]
    for given in "$a" "$a/" "$a/v1" "${a#http://}" "${a#http://}/v1"; do
        curl -s -X POST "$url/route/drain?server=$given" | jq -e .drained
        curl -s -X POST -G --data-urlencode "server=$given" "$url/route/undrain" | jq -e '.drained == false'
    done
    for query in '' '?' '?server' '?server=' "?x=$a" "?server=${a}0" "?server=$a/v2" "?server=%00" '?server=http://'; do
        [ "$(curl -s -X POST -o /dev/null -w '%{http_code}' "$url/route/drain$query")" = 404 ]
    done
    curl -s -X POST "$url/route/drain?x=1&server=$a" | jq -e .drained
}

@test "GET on a path for POST only is 405, an unknown path 404" {
    mock a
    route 1 "$a"
    [ "$(curl -s -o out -D head -w '%{http_code}' "$url/v1/completions")" = 405 ]
    grep -qi '^Allow: POST' head
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/nowhere")" = 404 ]
}

@test "routes of one server's state are not forwarded to any server, whatever the method" {
    mock a
    route 1 "$a"
    for path in /v1/batches /v1/batches/b/cancel /v1/files /v1/load_lora_adapter /v1/unload_lora_adapter /v1/role; do
        out=$(curl -s -w '\n%{http_code}' -d '{}' "$url$path")
        [ "${out##*$'\n'}" = 404 ]
        jq -e '.error.message | test("state of one server")' <<<"${out%$'\n'*}"
    done
    for path in '/v1/files?limit=3' /v1/batches/b /slots; do
        curl -s "$url$path" | jq -e '.error.message | test("state of one server")'
    done
    # servers decode escapes; for some of them an escaped zero ends the path
    for path in /v1/%6Coad_lora_adapter /v1%2ffiles /slots%2F0 /v1/role%00 /%73lots; do
        curl -s -d '{}' "$url$path" | jq -e '.error.message | test("state of one server")'
    done
    [ "$(got "$a" .requests)" = 0 ]
    [ "$(curl -s "$url/route/servers" | jq '[.servers[].served] | add // 0')" = 0 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -d '{"prompt": "x", "max_tokens": 1}' "$url/v1/completions")" = 200 ]
}

@test "priorities and shares: when servers are full, requests wait in the right order" {
    mock a
    printf 'k-low tenant=low\nk-high tenant=high priority=5\nk-admin admin=yes\n' >keys
    echo "{\"servers\": [{\"url\": \"$a\", \"max_running\": 1}]}" >conf
    auth=(-H 'Authorization: Bearer k-admin')
    route 1 --config conf --api-key-file keys
    set_mock "$a" '{"hold": true}'
    send() { body="{\"model\":\"m\",\"prompt\":\"$2\"}" ask -m 300 -o /dev/null -H "Authorization: Bearer $1" & sent+=($!); until_true waiting "$3"; }
    waiting() { [ "$(metric queue_depth)/$(metric server_running)" = "$1/1" ]; }
    send k-low first 0
    send k-low low1 1
    send k-low low2 2
    send k-high high1 3
    send k-high high2 4
    set_mock "$a" '{"hold": false}'
    wait "${sent[@]}"
    [ "$(got "$a" '.prompts | join(" ")')" = "first high1 high2 low1 low2" ]
    [ "$(got "$a" .most)" = 1 ]
    echo "{\"servers\": [{\"url\": \"$a\", \"max_running\": 1}], \"queue\": 1, \"queue_timeout_s\": 0.1}" >conf
    kill -HUP "$router"
    until_true grep -q 'reloaded the configuration' log
    sent=()
    set_mock "$a" '{"hold": true}'
    ended() { [ "$(cat codes-* 2>/dev/null | wc -l)" = "$1" ]; }
    for i in 1 2 3 4; do
        ask -m 300 -w '%{http_code}\n' -o /dev/null -H 'Authorization: Bearer k-low' >"codes-$i" & sent+=($!)
    done
    until_true ended 3
    set_mock "$a" '{"hold": false}'
    wait "${sent[@]}"
    [ "$(cat codes-* | sort | uniq -c | xargs)" = "1 200 3 503" ]
}

@test "scaling: a request waits while a command starts a server, load adds more, idle servers are stopped" {
    mock a # the test starts and stops a server by changing its /health
    mock b
    set_mock "$a" '{"health": 503}'
    set_mock "$b" '{"health": 503}'
    cat >scale.sh <<'END'
echo "$DT_SCALE_WANTED up=$DT_SCALE_UP start=$DT_SCALE_START stop=$DT_SCALE_STOP" >>scaled
for u in $DT_SCALE_START; do curl -s -o /dev/null -d '{"health": 200}' "$u/mock"; done
for u in $DT_SCALE_STOP; do curl -s -o /dev/null -d '{"health": 503}' "$u/mock"; done
END
    echo "{\"servers\": [{\"url\": \"$a\"}, {\"url\": \"$b\"}], \"on_scale\": \"sh scale.sh\", \"scale_min\": 0, \"scale_requests\": 2,
        \"scale_up_after_s\": 0, \"scale_down_after_s\": 0.2, \"scale_zero_after_s\": 0.5, \"health_interval_s\": 0.05, \"health_timeout_s\": 60, \"health_fall\": 1}" >conf
    route 0 --config conf
    curl -s "$url/health" | jq -e '.status == "asleep"'
    [ ! -e scaled ]
    [ "$(ask -m 100 | jq .usage.completion_tokens)" = 3 ] # held until a server was there
    one=$(sed -n '1s/^1 up=0 start=\([^ ]*\) stop=$/\1/p' scaled)
    [ -n "$one" ]
    until_true shows servers_wanted 0
    until_true ups 0 # and stopped when no requests came
    grep -q "^0 up=1 start= stop=$one$" scaled
    for i in 1 2 3 4 5; do ask -m 100 -o /dev/null -w '%{http_code}\n' >"codes-$i" & sent+=($!); done
    wait "${sent[@]}"
    [ "$(cat codes-* | sort | uniq -c | xargs)" = "5 200" ]
    until_true ups 0
    [ "$(metric scale_errors_total)" = 0 ]
}

@test "DNS names: every address is a server while it is listed; requests wait for the first one" {
    mock a
    export FAKE_NAMES=$PWD/names
    : >names
    echo "{\"servers\": [{\"url\": \"http://pods.test:${a##*:}\", \"each\": true, \"max_running\": 3}], \"resolve_s\": 0.05}" >conf
    LD_PRELOAD="$DT_HELP/fake-names.so" dt-route check conf | grep -q '0 servers'
    run -3 --separate-stderr dt-route check <(sed 's/"each": true/"each": false/' conf)
    export LD_PRELOAD=$DT_HELP/fake-names.so
    route 0 --config conf
    unset LD_PRELOAD
    curl -s "$url/health" | jq -e '.status == "asleep"'
    ask -m 300 >answer &
    held=$!
    until_true shows queue_depth 1
    curl -s "$url/route/servers" | jq -e '.servers == []'
    until_true shows servers_wanted 1
    echo 127.0.0.1 >names.new && mv names.new names
    wait $held
    [ "$(jq -r .server answer)" = a ]
    [ "$(curl -s "$url/route/servers" | jq -r '.servers[0].url')" = "$a" ]
    : >names.new && mv names.new names
    until_true ups 0
}

@test "DNS names: a server that moves to another address gets no more requests at the old one, also not on open connections" {
    mock a
    mock b --host 127.0.0.2 --port "${a##*:}"
    export FAKE_NAMES=$PWD/names
    echo 127.0.0.1 >names
    echo "{\"servers\": [{\"url\": \"http://pods.test:${a##*:}\"}], \"resolve_s\": 0.05}" >conf
    export LD_PRELOAD=$DT_HELP/fake-names.so
    route 1 --config conf
    unset LD_PRELOAD
    [ "$(ask | jq -r .server)" = a ]
    set_mock "$a" '{"hold": true}'
    ask -m 60 >held 3>&- &
    held=$!
    until_true said "$a" .running 1
    echo 127.0.0.2 >names.new && mv names.new names
    until_true grep -q 'has another address' log
    [ "$(ask | jq -r .server)" = b ]
    set_mock "$a" '{"hold": false}'
    wait "$held"
    [ "$(jq -r .server held)" = a ]
    for _ in 1 2 3; do [ "$(ask | jq -r .server)" = b ]; done
}

@test "contrib: the Kubernetes objects use options, routes and metrics that exist" {
    /usr/bin/python3 -c 'import yaml' || skip "no PyYAML"
    mock a
    route 1 "$a"
    dt-serve --describe-options >serve.json
    dt-route --describe-options >route-options.json
    ask >answer
    curl -s "$url/metrics" >metrics
    python3 "$BATS_TEST_DIRNAME/prom-check.py" metrics dt_route_ >page
    curl -s "$url/route/servers" >servers.json
    /usr/bin/python3 "$DT_SRC/tests/cli/kubernetes-check.py" "$DT_SRC/contrib/kubernetes" serve.json route-options.json metrics servers.json >kinds
    jq -e 'index("ScaledObject") and index("HorizontalPodAutoscaler") and index("ServingRuntime")' kinds
    dt-route check route.json | grep -q '1 server'
}

@test "scaling: a command that fails; the deadline of waiting requests; without a command only a metric" {
    mock a
    set_mock "$a" '{"health": 503}'
    echo "{\"servers\": [{\"url\": \"$a\"}], \"on_scale\": \"echo no; exit 4\", \"scale_min\": 0, \"scale_hold_s\": 0.3}" >conf
    under=(env --ignore-signal=CHLD) # as some parents leave it; the command's exit status must still arrive
    route 0 --config conf
    under=()
    ask -m 100 -o out -w '%{http_code}' | grep -qx 503
    [ "$(jq -r .error.code out)" = no_server ]
    until_true grep -q 'on_scale failed with exit status 4' log
    runs_again() { [ "$(metric scale_commands_total)" -gt 1 ]; }
    until_true runs_again
    [ "$(cat url)" = "$url" ] # the command does not write to the router's standard output
    kill "$router"
    wait "$router"
    set_mock "$a" '{"health": 200}'
    echo "{\"servers\": [{\"url\": \"$a\"}], \"scale_requests\": 1, \"scale_up_after_s\": 0}" >conf
    route 1 --config conf
    until_true shows servers_wanted 1
    set_mock "$a" '{"hold": true}'
    for i in 1 2 3; do ask -m 300 -o /dev/null & sent+=($!); done
    until_true shows servers_wanted 3
    [ "$(metric load_per_server)" = 3 ]
    set_mock "$a" '{"hold": false}'
    wait "${sent[@]}"
    echo "{\"servers\": [{\"url\": \"$a\"}], \"scale_min\": 3, \"scale_max\": 2}" >wrong
    run -3 --separate-stderr dt-route check wrong
    [[ $stderr == *"'scale_min' exceeds 'scale_max', which is 2"* ]]
    echo "{\"servers\": [{\"url\": \"$a\"}], \"scale_max\": 2, \"on_scale\": \"true\"}" >wrong
    run -3 --separate-stderr dt-route check wrong
    [[ $stderr == *"'scale_max' is 2, but on_scale has only 1 configured server"* ]]
}

@test "hedging: a second server is asked after a delay, if configured, and the first answer counts" {
    mock a
    mock b
    echo "{\"servers\": [{\"url\": \"$a\"}, {\"url\": \"$b\"}], \"policy\": \"round\", \"hedge_s\": 0.2}" >conf
    route 2 --config conf
    set_mock "$a" '{"hold": true}' # it never answers
    for i in 1 2 3 4; do [ "$(ask -m 300 | jq -r .server)" = b ]; done
    [ "$(metric hedges_total)" -ge 1 ]
    until_true shows server_running 0
}

@test "configuration: checked by name, reloaded without dropping a stream, an invalid one changes nothing" {
    mock a
    mock b
    echo "{\"servers\": [{\"url\": \"$a\"}]}" >conf
    dt-route check conf | grep -q '1 server'
    while IFS='|' read -r text why; do
        echo "$text" >wrong
        run -3 --separate-stderr dt-route check wrong
        [[ $stderr == *"$why"* ]] || { echo "$text: $stderr"; return 1; }
    done <<'END'
{"server": []}|unknown key 'server'; did you mean 'servers'
{"servers": [{"url": "http://127.0.0.1:1"}], "books": "/nowhere/books"}|cannot write '/nowhere/books'
{"servers": [{"url": "http://127.0.0.1:1", "key": "a\u0001"}]}|'key' contains a control character
{"servers": [{"url": "ftp://x"}]}|is not http://HOST:PORT
{"servers": [{"url": "http://x:y"}]}|'http://x:y' has no port from 1 to 65535 after ':'
{"servers": [{"url": "127.0.0.1:65616"}]}|'http://127.0.0.1:65616' has no port from 1 to 65535
{"servers": [{"url": "http://127.0.0.1:1/path"}]}|has a path
{"servers": [{"url": "http://127.0.0.1:1"}, {"url": "127.0.0.1:1/v1"}]}|configured twice
{"servers": [{"url": "http://127.0.0.1:1", "weight": 0}]}|'weight' is not between
{"servers": []}|no server is configured
{"servers": [{"url": "http://127.0.0.1:1"}], "retries": 1.5}|not a whole number
{"servers": [{"url": "http://127.0.0.1:1"}], "policy": "best"}|not one of cache
{"servers": [{"url": "http://127.0.0.1:1"}], "models": {"x": {"to": []}}}|'to' is missing or empty
{"servers": [{"url": "http://127.0.0.1:1"}], "api_key_file": "missing"}|missing
[1]|not an object
END
    run -2 dt-route check
    run -2 dt-route
    run -2 dt-route --port 0 https://127.0.0.1:1
    run -2 dt-route --port 0 127.0.0.1:65616
    run -2 dt-route --port 0 --api-key "" 127.0.0.1:1
    route 1 --config conf
    set_mock "$a" '{"hold": true, "tokens": 8}'
    body='{"model":"m","prompt":"x","stream":true}' ask -m 300 -N >stream &
    stream=$!
    until_true said "$a" .running 1
    echo "{\"servers\": [{\"url\": \"$b\"}]}" >conf
    kill -HUP "$router"
    is_in() { curl -s "$url/route/servers" | jq -e --arg u "$1" '.servers | any(.url == $u and .up)'; }
    until_true is_in "$b" # a is being removed, but its stream continues
    [ "$(ask | jq -r .server)" = b ]
    echo '{"servers": 5}' >conf
    kill -HUP "$router"
    until_true grep -q 'keeping the old configuration' log
    [ "$(ask | jq -r .server)" = b ]
    set_mock "$a" '{"hold": false}'
    wait $stream
    grep -q DONE stream
}

@test "a restart drops nothing: the socket is handed over, running streams end in the old process" {
    mock a
    route 1 "$a"
    set_mock "$a" '{"gap": 0.2, "tokens": 8}'
    body='{"model":"m","prompt":"x","stream":true}' ask -m 300 -N >stream &
    stream=$!
    until_true test -s stream
    for k in 1 2 3; do
        for i in $(seq 60); do ask -o /dev/null -w '%{http_code}\n'; done >"codes-$k" &
        loads+=($!)
    done
    kill -USR2 "$router"
    wait "${loads[@]}" $stream
    grep -q DONE stream
    [ "$(cat codes-* | sort | uniq -c | awk '{ print $1, $2 }')" = "180 200" ]
    wait "$router" # the old process has ended, with status 0
    heir=$(sed -n 's/.*process \([0-9]*\) takes over.*/\1/p' log)
    pids+=("$heir")
    [ "$(ask | jq -r .server)" = a ]
    kill "$heir"
    until_true denies kill -0 "$heir"
    # a port in use
    run -1 dt-route --port "${a##*:}" "$a"
    [[ $output == *"cannot listen"* ]]
}

@test "hostile clients: smuggling, huge headers, slow ones, ones that do not read; others are served" {
    mock a
    echo "{\"servers\": [{\"url\": \"$a\"}], \"head_timeout_s\": 1, \"body_timeout_s\": 1, \"circuit_failures\": 100000}" >conf
    route 1 --config conf
    /usr/bin/python3 "$DT_SRC/tests/cli/route-hostile.py" "$url"
    [ "$(awk '/VmHWM/ { print $2 }' "/proc/$router/status")" -lt 200000 ] # KiB
}

@test "hostile servers: wrong lengths, broken chunks, endless heads and bodies, unrequested answers" {
    mock a
    echo "{\"servers\": [{\"url\": \"$a\"}], \"retries\": 1, \"retry_backoff_s\": 0.01, \"circuit_failures\": 100000, \"request_timeout_s\": 3}" >conf
    route 1 --config conf
    while IFS='|' read -r raw want; do
        set_mock "$a" "{\"raw\": \"$raw\"}"
        got=$(ask -o out -w '%{http_code}' || true)
        [ "$got" = "$want" ] || { echo "$raw: $got"; cat out; return 1; }
    done <<'END'
HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort|502
HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlonger than two|200
HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}|502
HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n|502
HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n|502
HTTP/1.1 200 OK\nContent-Length: 2\n\n{}|502
HTTP/1.1 999999 OK\r\n\r\n|502
garbage|502
HTTP/1.1 200 OK\r\nX: a\u0000b\r\nContent-Length: 2\r\n\r\n{}|502
HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}|200
HTTP/1.0 200 OK\r\n\r\nto the end|200
HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nHTTP/|204
END
    # what follows a head without a body would be the next answer for the client
    ask -i >out
    denies grep -qi -e '^Content-Length' -e '^HTTP/$' out
    set_mock "$a" "{\"raw\": \"HTTP/1.1 200 OK\\r\\nX: \", \"raw_endless\": true}"
    [ "$(ask -o out -w '%{http_code}')" = 502 ]
    # an endless body to a client that reads it: ended by request_timeout_s, in bounded memory
    set_mock "$a" "{\"raw\": \"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n\", \"raw_endless\": true}"
    ask -m 300 -N -o /dev/null || [ $? -ne 28 ]
    [ "$(awk '/VmHWM/ { print $2 }' "/proc/$router/status")" -lt 100000 ]
    set_mock "$a" '{"raw": null, "raw_endless": false}'
    until_true ups 1
    [ "$(ask | jq -r .server)" = a ]
    until_true shows running 0
    until_true shows held_bytes 0
}

@test "max_memory_bytes counts what slow clients have not read: no more is read for them, new requests are refused" {
    mock a
    echo "{\"servers\": [{\"url\": \"$a\"}], \"max_memory_bytes\": 1048576}" >conf
    route 1 --config conf
    /usr/bin/python3 - "$url" <<'END'
import json, re, socket, sys, time, urllib.error, urllib.request
url = sys.argv[1]
body = b'{"model":"m","prompt":"flood","stream":true}'
def held():
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    return float(re.search(r"^dt_route_held_bytes (\S+)", text, re.M)[1])
def ask(body):
    try:
        return urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body)).status
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)["error"]["message"]
slow = []
for _ in range(20): # admitted together: each may hold a piece, none 512 KiB
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
    slow.append(s)
for s in slow:
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
until, most = time.monotonic() + 60, 0
while most <= 1 << 20 and time.monotonic() < until:
    most = max(most, held())
    time.sleep(0.05)
time.sleep(1)
most = max(most, held())
if not 1 << 20 < most < 5 << 20:
    sys.exit(f"{most} bytes are held for 20 clients that do not read")
refused = ask(b'{"model":"m","prompt":"x"}')
if refused[0] != 503 or "max_memory_bytes" not in refused[1]:
    sys.exit(f"a request meanwhile: {refused}")
n, want = 0, 768 * (65536 + 8)
while got := slow[0].recv(1 << 20): # one of them reads on
    n += len(got)
    if n > want:
        break
for s in slow:
    s.close()
while held() and time.monotonic() < until + 60:
    time.sleep(0.05)
if n < want or held() or ask(b'{"model":"m","prompt":"x"}') != 200:
    sys.exit(f"{n} of {want} bytes came; then {held()} bytes are held")
END
}

@test "a stalled answer ends after between_bytes_timeout_s; a steady one and a client that pauses do not" {
    mock a
    echo "{\"servers\": [{\"url\": \"$a\"}], \"retries\": 0, \"circuit_failures\": 100000, \"between_bytes_timeout_s\": 1.2, \"request_timeout_s\": 4}" >conf
    route 1 --config conf
    body='{"model":"m","prompt":"hello","stream":true}'
    set_mock "$a" '{"tokens": 7, "gap": 0.25}'
    ask -N >steady
    [ "$(grep -c DONE steady)" = 1 ]
    set_mock "$a" '{"gap": 30}'
    ask -N >stalled
    [ "$(sed -n 's/^data: //p' stalled | jq -r '.choices[0].text // .error.message')" = "a0 
the connection to the server failed: the answer stalled for between_bytes_timeout_s" ]
    shows broken_total 1
    until_true said "$a" .running 0
    # within an answer that is not streamed
    set_mock "$a" '{"raw": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "raw_stalls": true}'
    body='{"model":"m","prompt":"hello"}'
    [ "$(ask -o out -w '%{http_code}')" = 502 ]
    grep -q between_bytes_timeout_s out
    set_mock "$a" '{"raw": null, "raw_stalls": false}'
    body='{"model":"m","prompt":"flood","stream":true}'
    [ "$(ask -m 100 -N | { sleep 5; wc -c; })" = "$((768 * (65536 + 8)))" ]
}

@test "100,000 keys: looked up fast, reloaded fast, none of them written out" {
    mock a
    awk 'BEGIN { for (i = 0; i < 100000; i++) print "sk-" i * 7919 " tenant=t" i; print "sk-admin admin=yes" }' >keys
    auth=(-H 'Authorization: Bearer sk-admin')
    route 1 --api-key-file keys "$a"
    [ "$(ask -H 'Authorization: Bearer sk-791892081' | jq -r .server)" = a ]
    [ "$(ask -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer sk-791892082')" = 401 ]
    sed -i '$d' keys
    echo 'sk-new admin=yes' >>keys
    kill -HUP "$router"
    until_true grep -q 'reloaded the configuration' log
    [ "$(ask -H 'Authorization: Bearer sk-new' | jq -r .server)" = a ]
    [ "$(ask -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer sk-admin')" = 401 ]
    denies grep -q sk- log
}

@test "a configuration is applied completely or not at all: all servers replaced; too many places needed" {
    mock a
    mock b
    # nothing listens on ports 1 to 600
    conf_of() { # FIRST LAST KEYS [URL]
        seq "$1" "$2" | jq -cs --arg keys "$3" --arg url "${4-}" '{servers: [([$url] | map(select(. != "")))[],
            (.[] | "http://127.0.0.1:\(.)")] | map({url: .}), api_key_file: $keys, first_byte_timeout_s: 300}'
    }
    as() { auth=(-H "Authorization: Bearer $1"); }
    is() { [ "$(ask -o /dev/null -w '%{http_code}' "${auth[@]}")" = "$1" ]; }
    awk 'BEGIN { for (i = 0; i < 100000; i++) print "sk-" i " tenant=t" i; print "sk-admin admin=yes" }' >many
    echo 'sk-one admin=yes' >one
    conf_of 1 199 many "$a" >conf
    as sk-99999
    as sk-admin
    route 1 --config conf
    is 200
    # 200 servers and 100,000 keys become 200 other servers and one key
    conf_of 301 499 one "$b" >conf
    kill -HUP "$router"
    until_true grep -q 'reloaded the configuration: 200 servers' log
    as sk-99999
    is 401
    as sk-one
    until_true ups 1
    [ "$(ask "${auth[@]}" | jq -r .server)" = b ]
    # a server that is leaving still answers, and all 256 places are requested
    set_mock "$b" '{"hold": true}'
    ask "${auth[@]}" -m 300 >held &
    held=$!
    until_true said "$b" .running 1
    conf_of 1 255 many "$a" >conf
    kill -HUP "$router"
    until_true grep -q 'names 256 servers, but 1 of the 256 places are held .*send SIGHUP again' log
    grep -q 'keeping the old configuration' log
    [ "$(curl -s "${auth[@]}" "$url/route/servers" | jq '[.servers[] | select(.leaving)] | length')" = 0 ]
    as sk-99999
    is 401
    set_mock "$b" '{"hold": false}'
    wait "$held"
    [ "$(jq -r .server held)" = b ]
    kill -HUP "$router"
    until_true grep -q 'reloaded the configuration: 256 servers' log
    is 200
}

@test "no file descriptor left: reported once, clients and requests wait, no server counts as failed" {
    mock a
    dt-route() {
        ulimit -n 40
        exec "$DT_BIN/dt-route" "$@"
    }
    ticks() { awk '{ print $14 + $15 }' "/proc/$router/stat"; }
    echo "{\"servers\": [{\"url\": \"$a\"}], \"max_connections\": 100, \"head_timeout_s\": 300, \"health_interval_s\": 0.1}" >conf
    route 1 --config conf
    grep -q 'the limit of open files is 40, but max_connections 100 may need 250: raise the limit' log
    # one client asks while 60 others hold every descriptor; they disconnect once the file "go" exists
    /usr/bin/python3 -c 'import os, socket, sys, time
def until(f):
    while not f():
        time.sleep(0.05)
def connect():
    return socket.create_connection(("127.0.0.1", int(sys.argv[1])))
body = b"{\"model\": \"m\", \"prompt\": \"x\"}"
asks = connect()
others = [connect() for _ in range(60)]
until(lambda: "accepting no connections" in open("log").read())
asks.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
open("asked", "w").close()
until(lambda: os.path.exists("go"))
for s in others:
    s.close()
print(asks.recv(65536).decode().splitlines()[0], flush=True)' "${url##*:}" >answer 3>&- &
    clients=$!
    pids+=("$clients")
    until_true test -e asked
    before=$(ticks)
    sleep 2
    [ "$(($(ticks) - before))" -lt 100 ] # of 200 ticks: it does not spin
    [ "$(grep -c 'accepting no connections for now' log)" = 1 ]
    touch go
    wait "$clients"
    grep -q '^HTTP/1.1 200 ' answer
    [ "$(ask | jq -r .server)" = a ]
    denies grep -q ' is down' log
}

@test "the soft limit of open files is raised to the hard limit" {
    mock a
    ulimit -Sn 40
    route 1 "$a"
    [ "$(awk '/Max open files/ { print $4 }' "/proc/$router/limits")" = "$(ulimit -Hn)" ]
}

@test "names in messages: truncated between characters; invalid UTF-8 is refused or replaced" {
    mock a
    route 1 "$a"
    body=$(printf '{"model":"m\377","prompt":"x"}')
    [ "$(ask -o out -w '%{http_code}')" = 400 ]
    [ "$(jq -r .error.message out)" = "'model' is not a string" ]
    body="{\"model\":\"$(printf 'aé%.0s' $(seq 150))\",\"prompt\":\"x\"}" # byte 200 is inside a character
    [ "$(ask -o out -w '%{http_code}')" = 404 ]
    jq -e '.error.message | startswith("no server has the model '"'"'aéaéaé")' out
    [ "$(curl -s -o out -w '%{http_code}' "$url/v1/models/x%ff")" = 404 ]
    [ "$(jq -r .error.message out)" = "no server has the model 'x�'" ]
}

@test "the prefix index follows servers' reports: stored, evicted, lost by a restart of router or server" {
    : >u-one
    dt-serve "$BATS_FILE_TMPDIR/m" --precision fp32 --threads 1 --port 0 --served-model-name tiny --max-model-len 400 --kv-cache-mem 320KiB >u-one 2>log-one 3>&- &
    pids+=($!)
    until_true test -s u-one
    one=$(cat u-one)
    route 1 "$one"
    until_true shows server_events 1
    long() { # a prompt of 360 bytes: one block of 256
        body=$(jq -n --arg p "$1$(printf 'hello world %.0s' $(seq 30))" '{model: "tiny", prompt: $p[:360], max_tokens: 1, temperature: 0}')
        ask
    }
    names() { curl -s "$one/kv/events" | jq -r '[.events[] | select(.type == "BlockStored").names[]] | sort | join(" ")'; }
    [ "$(long a | jq .usage.prompt_tokens_details.cached_tokens)" = 0 ]
    a=$(names)
    [ "${#a}" = 16 ]
    [ "$(long a | jq .usage.prompt_tokens_details.cached_tokens)" -gt 300 ]
    next=$(curl -s "$one/kv/events" | jq -r .next)
    long b >/dev/null # the cache has room for one prompt only
    b=$(names)
    [ "${#b}" = 16 ]
    [ "$a" != "$b" ]
    [ "$(curl -s "$one/kv/events?after=$next" | jq -c '[.cleared, ([.events[] | {(.type): .names[0]}] | add | .BlockRemoved, .BlockStored)]')" = "[false,\"$a\",\"$b\"]" ]
    until_true shows index_blocks 1
    [ "$(long a | jq .usage.prompt_tokens_details.cached_tokens)" -lt 300 ]
    kill "$router"
    wait "$router"
    route 1 "$one" # the new router knows the blocks at once
    until_true shows index_blocks 1
    [ "$(curl -s -o out -w '%{http_code}' "$one/kv/events?after=x")" = 400 ]
    for wrong in '{}' '{"share": 0.5, "names": "12"}' '{"share": 0.9, "names": "0123456789abcdef0123456789abcdef"}' '{"share": 1, "names": "0123456789ABCDEF"}'; do
        [ "$(curl -s -o out -w '%{http_code}' -d "{\"model\": \"tiny\", \"prompt\": \"x\", \"kv_marks\": $wrong}" "$one/v1/completions")" = 400 ]
        grep -q kv_marks out
    done
}

@test "routing by reported blocks finds nine tenths of what an oracle finds, and balances load" {
    # 40 users at random, each with a growing prompt, 8 shared prefixes, caches that hold a part of them
    awk 'BEGIN { s = 1; for (t = 0; t < 2000; t++) { s = s * 16807 % 2147483647; u = s % 40; n[u]++; printf "%.2f 64 %d 50", t * 0.05, (10 + n[u]) * 64
        for (i = 0; i < 10; i++) printf " %d", (u % 8) * 1000 + i
        for (i = 0; i < n[u]; i++) printf " %d", 100000 + u * 1000 + i
        print "" } }' >trace
    "$DT_BIN/../bench/route-simulate" 4 20000 0.02 24000 <trace >made
    mooncake=${DT_TEST_DATA:-$DT_SRC/../shared/data}/traces/mooncake_synthetic_trace.jsonl.gz
    if [ -e "$mooncake" ]; then
        /usr/bin/python3 "$DT_SRC/bench/route/trace.py" "$mooncake" >trace
        "$DT_BIN/../bench/route-simulate" 4 20000 0.02 1000000 <trace >real
        jq -se 'map({(.policy // "all"): .}) | add | .round.ttft_p50_s > 2 * .events.ttft_p50_s' real
    fi
    for f in made real; do
        [ -e "$f" ] || continue
        cat "$f"
        jq -se 'map({(.policy // "all"): .}) | add | .events.hit_rate >= 0.9 * .oracle.hit_rate and .events.max_over_mean_work < 1.3' "$f"
    done
}

@test "in front of dt-serve: bodies of routes that compute nothing pass unchanged; dt-loadgen asks /tokenize" {
    dt-serve "$BATS_FILE_TMPDIR/m" --precision fp32 --threads 1 --port 0 --served-model-name tiny >u-one 2>log-one 3>&- &
    pids+=($!)
    until_true test -s u-one
    route 1 "$(cat u-one)"
    long=$(printf 'once upon a time %.0s' {1..40})
    for path in /tokenize /apply-template /v1/messages/count_tokens /v1/score; do
        jq -nc --arg t "$long" '{prompt: $t, messages: [{role: "user", content: $t}], text_1: $t, text_2: [$t]}' >all
        case $path in
            /tokenize) jq -c '{prompt}' all ;;
            /v1/score) jq -c '{text_1, text_2}' all ;;
            *) jq -c '{messages}' all ;;
        esac >one
        curl -s -X POST "$(cat u-one)$path" -H 'Content-Type: application/json' -d @one >direct
        for _ in 1 2 3; do
            curl -s -X POST "$url$path" -H 'Content-Type: application/json' -d @one >routed
            cmp direct routed || { echo "$path: $(cat direct routed)"; return 1; }
        done
    done
    dt-loadgen --rate 50 --requests 8 --input 40 --output 4 --json "$url" | jq -e '.requests.ok == 8'
}

@test "in front of dt-serve: streams, token accounts, a rolling restart without an error" {
    for name in one two; do
        : >"u-$name"
        dt-serve "$BATS_FILE_TMPDIR/m" --precision fp32 --threads 1 --port 0 --served-model-name tiny >"u-$name" 2>"log-$name" 3>&- &
        pids+=($!)
        printf -v "serve_$name" %s $!
        until_true test -s "u-$name"
    done
    route 2 --books books "$(cat u-one)" "$(cat u-two)"
    body='{"model":"tiny","prompt":"once upon a time","max_tokens":5,"temperature":0}'
    [ "$(ask | jq .usage.completion_tokens)" -ge 1 ]
    for k in 1 2 3; do
        for i in $(seq 40); do ask -o /dev/null -w '%{http_code}\n'; done >"codes-$k" &
        loads+=($!)
    done
    answered() { [ "$(cat codes-* | wc -l)" -ge "$1" ]; }
    until_true answered 5
    for name in one two; do
        at=$(cat "u-$name")
        pid=serve_$name
        kill -TERM "${!pid}"
        wait "${!pid}"
        : >"u-$name"
        dt-serve "$BATS_FILE_TMPDIR/m" --precision fp32 --threads 1 --port "${at##*:}" --served-model-name tiny >"u-$name" 2>>"log-$name" 3>&- &
        pids+=($!)
        until_true test -s "u-$name"
        until_true curl -sf "$at/health" # the router may not have noticed that it was away
        until_true ups 2
    done
    wait "${loads[@]}"
    [ "$(cat codes-* | sort | uniq -c | awk '{ print $1, $2 }')" = "120 200" ]
    booked() { [ "$(jq -s 'map(select(.status == 200 and .estimated == false)) | length' books)" = "$1" ]; }
    until_true booked 121
}

@test "the context length of a model is the smallest that its servers report" {
    mock a --context 64
    mock b --context 32 --models m,x
    mock c
    route 3 "$a" "$b" "$c"
    [ "$(curl -s "$url/v1/models" | jq -c '.data | map({(.id): .max_model_len}) | add')" = '{"m":32,"x":32}' ]
    [ "$(curl -s "$url/v1/models/x" | jq .max_model_len)" = 32 ]
}
# SPDX-License-Identifier: Apache-2.0
