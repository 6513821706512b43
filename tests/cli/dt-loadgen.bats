#!/usr/bin/env bats
# dt-loadgen: workloads have the stated distributions, its counts equal the server's, its times are those of a
# server with known delays, and different failures are told apart.

bats_require_minimum_version 1.5.0
load server

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    "$DT_HELP/make-model" m
}

setup() {
    in_server_folder
    traces=${DT_TEST_DATA:-$DT_SRC/../shared/data}/traces
}

start() {
    await dt-serve m --precision fp32 --threads 1 --port 0 --served-model-name tiny "$@"
}

metric() {
    curl -s "$url/metrics" | awk -v n="dt_serve_$1" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

@test "arrivals: exponential gaps, equal gaps, bursts and ramps have the requested rate" {
    dry() { dt-loadgen --dry-run -n 20000 "$@" | jq -c .at_s; }
    dry --rate 50 >poisson
    dry --rate 50 --arrival constant >constant
    dry --rate 50 --arrival burst --burst 10 >burst
    dry --rate 10 --ramp 30 >ramp
    run -2 dt-loadgen --dry-run --burst 4
    [[ "$output" == *"--burst needs --arrival burst"* ]]
    run -2 dt-loadgen --dry-run --think 2
    [[ "$output" == *"--think needs --concurrency or --turns"* ]]
    python3 - <<'PY'
def read(name):
    at = [float(x) for x in open(name)]
    assert at[0] == 0 and at == sorted(at), name
    return at, [b - a for a, b in zip(at, at[1:])]
at, gaps = read("poisson")
mean = sum(gaps) / len(gaps)
cv = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5 / mean
assert abs(mean * 50 - 1) < 0.03 and abs(cv - 1) < 0.03, (mean, cv)
below = sum(g < mean for g in gaps) / len(gaps)  # 1 - 1/e for an exponential distribution
assert abs(below - 0.632) < 0.015, below
at, gaps = read("constant")
assert all(abs(g - 0.02) < 1e-9 for g in gaps)
at, gaps = read("burst")
assert sum(g == 0 for g in gaps) == 20000 * 9 // 10
assert abs(at[-1] / (20000 / 50) - 1) < 0.05, at[-1]
at, gaps = read("ramp")  # 20000 = (10 + 30) / 2 T, so T = 1000 s; by T/2, 7500 requests have arrived
assert abs(at[-1] / 1000 - 1) < 0.03, at[-1]
half = sum(t < 500 for t in at)
assert abs(half / 7500 - 1) < 0.05, half
PY
    cmp poisson <(dry --rate 50)
    [ "$(dry --rate 50 --seed 1 | head -n 2 | tail -n 1)" != "$(sed -n 2p poisson)" ]
}

@test "lengths, prefixes and cancellations have the requested distributions" {
    dt-loadgen --dry-run -n 5000 --input 100 --output 40 --spread 0.5 --prefix 7 --prefixes 3 --cancel 0.3 --cancel-within 2 |
        jq -se 'def near(a; b): a > b * 0.97 and a < b * 1.03;
            (map(.input_tokens) | (min == 57) and (max == 157) and near(add / 5000; 107))
            and (map(.output_tokens) | (min == 20) and (max == 60) and near(add / 5000; 40))
            and (group_by(.prefix) | map(length) | length == 3 and min > 1500)
            and (map(.cancel_s // empty) | (length > 1400 and length < 1600) and max < 2 and near(add / length; 1))'
}

@test "traces: the published formats are read as jq and awk read them" {
    [ -d "$traces" ] || skip "needs $traces"
    for f in code conv; do
        dt-loadgen --dry-run --trace "$traces/AzureLLMInferenceTrace_$f.csv" |
            jq -rs '"\(length) \(map(.input_tokens) | add) \(map(.output_tokens) | add) \(.[-1].at_s * 1000 | round)"' >got
        python3 - "$traces/AzureLLMInferenceTrace_$f.csv" >want <<'PY'
import csv, datetime, sys
rows = [r for r in csv.DictReader(open(sys.argv[1])) if int(r["GeneratedTokens"])]
at = [datetime.datetime.fromisoformat(r["TIMESTAMP"][:26]).timestamp() for r in rows]
print(len(rows), sum(int(r["ContextTokens"]) for r in rows), sum(int(r["GeneratedTokens"]) for r in rows),
      round((max(at) - min(at)) * 1000))
PY
        diff want got
    done
    dt-loadgen --dry-run --trace "$traces/mooncake_synthetic_trace.jsonl.gz" --speed 2 |
        jq -s '[length, (map(.input_tokens) | add), (map(.blocks) | add), .[-1].at_s]' -c >got
    zcat "$traces/mooncake_synthetic_trace.jsonl.gz" |
        jq -s 'map(select(.output_length > 0)) | [length, (map(.input_length) | add), (map(.hash_ids | length) | add), .[-1].timestamp / 2000]' -c >want
    diff want got
}

@test "traces: BurstGPT's columns; errors in a file are named with their line" {
    printf 'Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,x\n45,GPT-4,1087,0,1087,x\n46,GPT-4,0,0,0,x\n118,GPT-4,417,276,693,x\n' >burst.csv
    dt-loadgen --dry-run --trace burst.csv --scale 0.5 --clip 100 |
        jq -se 'map([.at_s, .input_tokens, .output_tokens]) == [[0, 100, 9], [113, 100, 100]]'
    { printf '\xef\xbb\xbf'; cat burst.csv; } >marked.csv # as spreadsheets write it
    cmp <(dt-loadgen --dry-run --trace burst.csv) <(dt-loadgen --dry-run --trace marked.csv)
    mkdir -p folder
    run -1 dt-loadgen --dry-run --trace folder
    [[ "$output" == *"cannot read 'folder': Is a directory" ]]
    printf '{"timestamp": 1e308, "input_length": 3, "output_length": 3}\n' >bad.jsonl
    run -1 dt-loadgen --dry-run --speed 1e-6 --trace bad.jsonl
    [[ "$output" == *"line 1: a time or a length is out of range"* ]]
    printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,4,5\nyesterday,4,5\n' >bad.csv
    run -1 dt-loadgen --dry-run --trace bad.csv
    [[ "$output" == *"line 3: the time cannot be read"* ]]
    printf '{"timestamp": 0, "input_length": 3}\n' >bad.jsonl
    run -1 dt-loadgen --dry-run --trace bad.jsonl
    [[ "$output" == *"line 1"*"output_length"* ]]
    echo 'a,b' >bad.csv
    run -1 dt-loadgen --dry-run --trace bad.csv
    [[ "$output" == *"no columns"* ]]
    gzip -c burst.csv | head -c 40 >cut.gz
    run -1 dt-loadgen --dry-run --trace cut.gz
    run -1 dt-loadgen --dry-run --trace missing
    printf 'Timestamp,ContextTokens,GeneratedTokens\n0,9,9\n\0\n1,9,9\n' >nul.csv # not one request of two
    run -1 dt-loadgen --dry-run --trace nul.csv
    [[ $output == *"'nul.csv' is not a text"* ]]
    for bad in "--trace burst.csv --rate 3" "--concurrency 3 --rate 3" "--turns 2" "--storm 1" "ftp://x" "a b" \
        "--speed 2" "--scale 2" "--clip 9" "--prefixes 2" "--cancel-within 1"; do
        # shellcheck disable=SC2086 # words
        run -2 dt-loadgen $bad
    done
}

@test "against dt-serve: every request answered in full, token counts are the server's" {
    start
    dt-loadgen "$url" --rate 200 -n 60 --input 40 --output 12 --spread 0.5 --json --requests-out each.jsonl >report
    dt-loadgen --dry-run --rate 200 -n 60 --input 40 --output 12 --spread 0.5 >plan
    jq -e '.schema == 1 and .model == "tiny" and .requests.ok == 60 and .errors == []' report
    [ "$(jq -c '[.input_tokens, .output_tokens]' report)" = "[$(metric prompt_tokens_total),$(metric generation_tokens_total)]" ]
    diff <(jq -c '[.index, .input_tokens, .output_tokens]' plan) <(jq -c '[.index, .input_tokens, .output_tokens]' each.jsonl)
    python3 - <<'PY'
import json, statistics
report, each = json.load(open("report")), [json.loads(l) for l in open("each.jsonl")]
for key in "ttft_s", "e2e_s", "tpot_s":
    v = [r[key] for r in each if key in r]
    q = statistics.quantiles(v, n=100, method="inclusive")
    got = report[key]
    for name, want in ("p50", q[49]), ("p90", q[89]), ("p99", q[98]), ("mean", statistics.fmean(v)), ("max", max(v)):
        assert abs(got[name] - want) < 1e-9, (key, name, got[name], want)
    assert got["count"] == len(v)
assert all(r["ttft_s"] <= r["e2e_s"] and r["sent_s"] >= r["due_s"] for r in each)
PY
}

@test "the report is printed if the requests cannot be written, and if the run is interrupted" {
    start --max-num-seqs 8
    run -1 --separate-stderr dt-loadgen "$url" --rate 0 -n 4 --input 8 --output 4 --requests-out /dev/full
    [[ $output == *"4 answered"* && $stderr == *"cannot write '/dev/full': No space left on device" ]]
    dt-loadgen "$url" --rate 0.5 --arrival constant -n 40 --input 8 --output 4 --requests-out cut.jsonl >report 2>log 3>&- &
    pid=$!
    answered() { [ "$(metric prompt_tokens_total)" -ge 40 ]; } # the first of these 40, after the 4 above
    until_true answered
    kill "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 1 ]
    grep -q 'not sent' report
    [ "$(cat log)" = "dt-loadgen: interrupted before all requests were answered" ]
    [ "$(wc -l <cut.jsonl)" -eq 40 ]
}

@test "against dt-serve: closed-loop users, conversations, chat, shared prefixes, a trace" {
    start --chat-template chatml --block-size 8
    for prompt in text chat; do
        dt-loadgen "$url" -c 3 -n 12 --turns 3 --prompt $prompt --input 5 --output 6 --requests-out each.jsonl --json >report
        jq -e '.requests.ok == 12 and .output_tokens == 72' report
        # each turn's prompt begins with the previous turn's prompt, which is in the prefix cache
        jq -se 'map(.input_tokens) as $n | [range(12)] | map(. % 3 == 0 or $n[.] > $n[. - 1]) | all' each.jsonl
        [ "$(jq .cached_tokens report)" -gt 100 ]
    done
    dt-loadgen "$url" -c 1 -n 10 --prefix 64 --input 10 --output 2 --seed 7 --json | jq -e '.cached_tokens == 9 * 64'
    printf '{"timestamp": 0, "input_length": 96, "output_length": 3, "hash_ids": [1]}
        {"timestamp": 9, "input_length": 80, "output_length": 4, "hash_ids": [2]}
        {"timestamp": 500, "input_length": 120, "output_length": 5, "hash_ids": [1]}' >t.jsonl
    dt-loadgen "$url" --trace t.jsonl --seed 9 --json | jq -e '.input_tokens == 296 and .output_tokens == 12 and .cached_tokens == 96'
}

@test "clients that disconnect, singly and many at once, are counted and leave nothing behind on the server" {
    start
    for how in "--cancel 0.5 --cancel-within 0.05" "--cancel 0.9 --storm 0.02"; do
        # shellcheck disable=SC2086 # words
        # exit status 1 means that no answer was complete
        dt-loadgen "$url" --rate 0 -n 60 --output 150 $how --json >report || [ $? -eq 1 ]
        jq -e '.requests | .cut > 0 and .cut + .ok == 60' report
    done
    for _ in $(seq 600); do
        [ "$(metric num_requests_running) $(metric num_requests_waiting) $(metric kv_cache_usage_perc)" = "0 0 0" ] && return
        sleep 0.1
    done
    return 1
}

@test "a full server's refusals are reported, and keys are used in turn" {
    printf 'one tenant=a\ntwo tenant=b tokens-per-minute=20\n' >keys
    start --api-key-file keys
    dt-loadgen "$url" -c 2 -n 10 --input 10 --output 5 --api-key-file keys --json >report
    jq -e '.requests.ok == 6 and .requests.refused == 4 and (.errors | length == 1 and .[0].status == 429 and .[0].count == 4)' report
    run -1 dt-loadgen "$url" -n 1
    [[ "$output" == *"401"* ]]
}

@test "times are those of a server with known delays, and waiting counts from when a request was due" {
    await python3 "$DT_SRC/tests/cli/slow-server.py"
    # The server waits 0.05 s before the first token and 0.01 s before each of four others. A client that
    # reads late measures shorter gaps but no earlier end. So only the sums have known lower bounds; gaps are
    # checked against the records.
    dt-loadgen "$url" -c 1 -n 4 --input 9 --json --requests-out each.jsonl >report
    jq -e '.requests.ok == 4 and .output_tokens == 20 and .uncounted_answers == 0' report
    jq -e '.offered_per_s == 0' report # users who wait offer no rate
    jq -e '.ttft_s.min >= 0.05 and .e2e_s.min >= 0.09 and .itl_s.count == 16 and .itl_s.min >= 0' report
    jq -se --slurpfile report report 'map(.e2e_s - .ttft_s | . / 4) | (add / 4 - $report[0].tpot_s.mean | fabs) < 1e-6' each.jsonl
    jq -se --slurpfile report report 'map(.e2e_s - .ttft_s) | add >= 16 * $report[0].itl_s.mean - 1e-6' each.jsonl
    # pieces of reasoning are tokens like others
    dt-loadgen "$url" -c 1 -n 2 --input 6 --json | jq -e '.itl_s.count == 8 and .ttft_s.min < .e2e_s.min - 0.03'
    # a server that reports no tokens: no answer is within a limit per token
    run -3 dt-loadgen "$url" -c 1 -n 2 --input 4 --max-tpot 9 --min-goodput 0.5
    [[ "$output" == *"tokens      not reported by the server (usage) for 2 answers: no TPOT"* ]]
    [[ "$output" == *"0.0% within the limits"* ]]
    dt-loadgen "$url" -c 1 -n 2 --input 4 --max-e2e 9 --min-goodput 0.5 --json | jq -e '.uncounted_answers == 2'
    # the offered rate of bursts: the last one has no gap after it
    dt-loadgen "$url" --rate 40 --arrival burst --burst 4 -n 12 --input 9 --json --requests-out each.jsonl >report
    jq -se --slurpfile report report 'map(.due_s) | 8 / (max - min) / $report[0].offered_per_s - 1 | fabs < 1e-6' each.jsonl
    # ten requests at once, 0.09 s each, answered one after another: the last one waits for all others
    dt-loadgen "$url" --rate 0 -n 10 --input 9 --json --max-ttft 0.3 >report
    jq -e '.e2e_s.max >= 0.9 and .ttft_s.max >= 0.86 and .goodput.requests <= 3 and .goodput.requests == (.goodput.share * 10 | round)' report
    run -3 dt-loadgen "$url" --rate 0 -n 10 --input 9 --max-ttft 0.3 --min-goodput 0.5
    [[ "$output" == *"within the limits"* ]]
}

@test "refused, broken and late answers are told apart; no answer at all is a failure" {
    await python3 "$DT_SRC/tests/cli/slow-server.py"
    printf '{"timestamp": 0, "input_length": %d, "output_length": 5}\n' 1 2 3 9 1 >mixed.jsonl
    dt-loadgen "$url" --trace mixed.jsonl --json >report
    jq -e '.requests == {"all": 5, "ok": 1, "refused": 2, "broken": 2, "timeout": 0, "cut": 0, "unsent": 0}
        and (.errors | map([.status, .message]) | sort == [[0, "broke down"], [0, "the stream ended without [DONE]"], [503, "full"]])' report
    run -1 dt-loadgen "$url" -c 1 -n 2 --input 5
    [[ "$output" == *"2 x the answer is not a stream of events"* ]]
    run -1 --separate-stderr dt-loadgen "$url" -c 1 -n 2 --input 9 --timeout 0.02 --json
    [ "$(jq .requests.timeout <<<"$output")" = 2 ]
    run -2 dt-loadgen "$url" -n 5 --warmup 5
    [[ "$output" == *"--warmup 5 excludes all of the 5 requests"* ]]
    # this program's own limit is not blamed on the server
    run --separate-stderr bash -c 'ulimit -n 24; exec dt-loadgen "$0" --rate 0 -n 60 --input 9 --json' "$url"
    jq -e '.requests.broken > 0 and (.errors | map(.message) == ["dt-loadgen has too many open files, see ulimit -n"])' <<<"$output"
    # a server that is stopped accepts connections, and answers nothing
    kill -STOP "$server"
    run -1 dt-loadgen "$url" -n 2 --timeout 0.1
    [[ "$output" == "dt-loadgen: $url/v1/models does not answer within 1 s" ]]
    run -143 timeout --preserve-status 0.5 dt-loadgen "$url" -n 2 # it can be ended
    [ -z "$output" ]
    kill -CONT "$server"
    for at in http://127.0.0.1:1 http://127.0.0.1:1/ http://127.0.0.1:1/v1 http://127.0.0.1:1/v1/ 127.0.0.1:1 127.0.0.1:1/v1; do
        run -1 dt-loadgen "$at"
        [[ "$output" == *"cannot ask http://127.0.0.1:1/v1/models"* ]]
    done
    for bad in localhost http:// ftp://127.0.0.1:1 :// 'http://a b:1' ''; do
        run -2 dt-loadgen "$bad"
        [[ "$output" == *"'$bad' is neither an http:// or https:// URL nor HOST:PORT; write"* ]]
    done
}

@test "hostile servers: every answer is counted as what it is, and ends neither the run nor the memory" {
    await python3 "$DT_SRC/tests/cli/load-hostile.py"
    printf -v cafe 'caf\357\277\275 is closed'
    while IFS='|' read -r way outcome input uncounted message; do
        dt-loadgen "$url" --model "$way" --prompt text -n 3 -c 3 --timeout 30 --json >report || [ "$outcome" != ok ]
        jq -e --arg o "$outcome" --argjson i "$input" --argjson u "$uncounted" --arg m "$message" '.requests[$o] == 3
            and .input_tokens == $i and .uncounted_answers == $u
            and (.errors | map(.message) == if $m == "" then [] else [$m] end)' report || { echo "$way"; cat report; return 1; }
    done <<END
good|ok|12|0|
crlf|ok|12|0|
comments|ok|12|0|
negative-usage|ok|0|3|
text-usage|ok|0|3|
empty-usage|ok|0|3|
no-json|broken|0|0|a chunk of the stream is not JSON
number|broken|0|0|a chunk of the stream is not JSON
deep|broken|0|0|a chunk of the stream is not JSON
nul|broken|0|0|a chunk of the stream is not JSON
no-newline|broken|0|0|the stream ended without [DONE]
dies|broken|0|0|the server closed the connection within an answer
garbage|broken|0|0|the answer is not HTTP
gone|broken|0|0|Server returned nothing (no headers, no data)
busy|refused|0|0|slow down
moved|refused|0|0|redirects are not followed: $url/elsewhere
silent|refused|0|0|no message
latin-1|refused|0|0|$cafe
END
    dt-loadgen "$url" --model control --prompt text -n 1 --json >report || [ $? -eq 1 ]
    jq -e '.errors[0].message | startswith(" [31mred 0m \u00e9") and (utf8bytelength | . > 190 and . < 200)' report
    # 256 MiB: in one line, in comments, in events, as an error, as text that is no stream
    for way in long-line=broken long-comment=ok long-error=refused long-plain=broken; do
        (ulimit -v 400000; exec dt-loadgen "$url" --model "${way%=*}" --prompt text -n 2 --rate 0 --timeout 200 --json) >report || [ $? -eq 1 ]
        jq -e --arg o "${way#*=}" '.requests[$o] == 2' report || { cat report; return 1; }
    done
    (ulimit -v 400000; exec dt-loadgen "$url" --model long-plain --prompt text -n 2 --json) >report || [ $? -eq 1 ]
    jq -e '.errors == [{"status": 0, "count": 2, "message": "a line of the answer is longer than 8 MiB"}]' report
    # an answer that the next turn would repeat
    (ulimit -v 400000; exec dt-loadgen "$url" --model long-answer --prompt text --turns 2 -n 2 --json) >report || [ $? -eq 1 ]
    jq -e '.requests | .broken == 1 and .unsent == 1' report
    jq -e '.errors == [{"status": 0, "count": 1, "message": "the answer is longer than 8 MiB"}]' report
    for way in never hangs; do
        dt-loadgen "$url" --model "$way" --prompt text -n 2 --rate 0 --timeout 0.5 --json >report || [ $? -eq 1 ]
        jq -e '.requests.timeout == 2' report
    done
    # before the run
    run -1 dt-loadgen "$url/moved"
    [[ $output == *"/moved/v1/models answers 307: redirects are not followed: $url/elsewhere" ]]
    run -1 dt-loadgen "$url/busy" --timeout 2.5 # with Retry-After: 1
    [[ $output == *"/busy/v1/models answers 429: slow down" ]]
    [ "$(grep -c 'GET /busy/v1/models' log)" -le 3 ]
    run -1 dt-loadgen "$url/long-plain"
    [[ $output == *"/long-plain/v1/models: the answer is longer than 8 MiB" ]]
    run -2 dt-loadgen "$url/$(printf %0500d 1)"
    [[ $output == *"the URL has more than 500 characters"* ]]
}

@test "the histogram has a bar for every class, in ASCII if the terminal requires it" {
    await python3 "$DT_SRC/tests/cli/slow-server.py"
    LC_ALL=C dt-loadgen "$url" --rate 0 -n 6 --input 9 --histogram >picture
    grep -q '^requests by time to first token' picture
    sum=$(awk '/^requests by end-to-end time/ { on = 1; next } on && / to / { s += $5 } END { print s }' picture)
    [ "$sum" = 6 ]
}

@test "a server that still loads its model is asked again" {
    await python3 "$DT_SRC/tests/cli/serve-loading.py"
    run -1 dt-loadgen "$url" -n 2
    [[ "$output" == *"/v1/models lists no model" ]]
}
# SPDX-License-Identifier: Apache-2.0
