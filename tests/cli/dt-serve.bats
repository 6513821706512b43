#!/usr/bin/env bats
# dt-serve from the shell: answers equal those of an independent forward pass and do not depend on other
# requests; limits, error responses and exit statuses are as documented in the manual.

bats_require_minimum_version 1.5.0
load server

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    "$DT_HELP/make-model" m
    for i in $(seq 0 199); do
        jq -nc --argjson i "$i" '{prompt: ("Prompt number \($i): " + ("tell me more. " * ($i % 6))), max_tokens: (5 + $i % 40),
            seed: $i, temperature: (if $i % 2 == 0 then 0 else 1 end), top_p: 0.9, ignore_eos: true}'
    done >prompts.jsonl
}

setup() {
    in_server_folder
    common=(--precision fp32 --threads 1)
}

# start OPTION...: a server on a free port; sets $server (process) and $url
start() {
    await dt-serve m "${common[@]}" --port 0 --served-model-name tiny "$@"
}

# post ROUTE BODY [CURL-OPTION...]: prints the body, then the status on a line of its own
post() {
    local route=$1 body=$2
    shift 2
    curl -s -m 300 -w '\n%{http_code}\n' -H 'Content-Type: application/json' -d "$body" "$@" "$url$route"
}

status_of() {
    tail -n 1 <<<"$1"
}

metric() {
    curl -s "$url/metrics" | awk -v n="dt_serve_$1" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

# settles: waits until no request runs or waits and no KV block is held; fails after a minute
settles() {
    for _ in $(seq 600); do
        [ "$(metric num_requests_running) $(metric num_requests_waiting) $(metric kv_cache_usage_perc)" = "0 0 0" ] && return
        sleep 0.1
    done
    curl -s "$url/metrics" | grep -E '^dt_serve_(num|kv)' >&2
    return 1
}

@test "real weights: 200 greedy tokens equal transformers' text, embeddings its mean of hidden states" {
    /usr/bin/python3 -c 'import h5py' 2>/dev/null || skip "python3-h5py is not installed"
    data=${DT_TEST_DATA:-$DT_SRC/../shared/data}
    models=${DT_TEST_MODELS:-$data/models}
    found=0
    for name in stories260k smollm2 gemma3; do
        /usr/bin/python3 - "$DT_SRC/tests/data/golden-greedy.h5" $name >golden.json <<'PY'
import h5py, json, sys
g = h5py.File(sys.argv[1])[sys.argv[2]]
said = {k: g.attrs[k].decode() for k in ("file", "prompt")}
print(json.dumps(dict(said, text=g["text"][()].tobytes().decode(errors="replace"), embedding=g["embedding"][()].tolist())))
PY
        file=$models/$(jq -r .file golden.json)
        more=()
        if [ $name = stories260k ]; then
            file=$data/stories260K/$(jq -r .file golden.json)
            more=(--tokenizer "$data/stories260K/tok512.bin")
        fi
        [ -e "$file" ] || continue
        found=$((found + 1))
        jq -c '{prompt, temperature: 0, max_tokens: 200, ignore_eos: true}' golden.json |
            dt-serve --batch "$file" --precision fp32 --weights f32 --max-model-len 512 --max-num-seqs 1 "${more[@]}" 2>log >out
        diff <(jq .text golden.json) <(jq .text out)
        jq -c '{custom_id: "e", method: "POST", url: "/v1/embeddings", body: {input: .prompt}}' golden.json |
            dt-serve --batch "$file" --precision fp32 --weights f32 --max-model-len 512 --max-num-seqs 1 "${more[@]}" 2>log >out
        jq -e -n --slurpfile g golden.json --slurpfile o out '
            [$g[0].embedding, $o[0].response.body.data[0].embedding] | (.[0] | length) == (.[1] | length) and
            ([transpose[] | (.[0] - .[1]) | fabs] | max < 2e-5)'
    done
    [ "$found" -gt 0 ] || skip "no models in '$models' (golden_greedy.py --list) and no stories260K in '$data'"
}

@test "a sliding window: tokens are those of a full forward pass, while KV blocks are freed and reused" {
    "$DT_HELP/make-model" windowed llama-tiny 260 24
    for prompt in "a" "The quick brown fox" "$(printf 'long %.0s' $(seq 30))"; do
        "$DT_HELP/greedy" windowed fp32 90 "$prompt" | jq -c --arg p "$prompt" '{prompt: $p, want: .}'
    done >wanted.jsonl
    # 30 requests share a KV cache for four sequences of 512 tokens. Keys and values of a token take
    # 2 x 3 layers x 2 heads x 16 elements x 4 bytes.
    for _ in $(seq 10); do cat wanted.jsonl; done |
        jq -c '{prompt, max_tokens: 90, temperature: 0, ignore_eos: true, logprobs: 0}' >many.jsonl
    dt-serve --batch windowed "${common[@]}" --block-size 4 --kv-cache-mem 1536KiB --max-num-batched-tokens 64 \
        --trace trace.jsonl <many.jsonl >got.jsonl 2>log
    for _ in $(seq 10); do cat wanted.jsonl; done | /usr/bin/python3 -c '
import json, sys
for line, got in zip(sys.stdin, open("got.jsonl"), strict=True):
    want = bytes(i for i in json.loads(line)["want"] if i < 256).decode(errors="replace")
    text = json.loads(got)["text"]
    assert text == want, (text, want)'
    [ "$(head -n 1 trace.jsonl | jq .window)" -eq 24 ]
    dt-serve --replay trace.jsonl | jq -e '.different_steps == 0 and .requests == 30'
}

@test "an int8 KV cache: tokens do not depend on other requests, block size or chunk size; n choices" {
    head -n 24 prompts.jsonl >some.jsonl
    serve() { dt-serve --batch m "${common[@]}" --kv-cache-dtype int8 "$@" <some.jsonl 2>log | jq -c '[.index, .text]'; }
    serve --max-num-seqs 1 --block-size 4 --max-num-batched-tokens 7 >alone
    serve >together
    cmp alone together
    [ "$(sort -u together | wc -l)" -eq 24 ]
    start --kv-cache-dtype int8 --block-size 4
    body=$(post /v1/completions '{"prompt": "one text", "n": 3, "max_tokens": 9, "temperature": 0, "ignore_eos": true}')
    [ "$(status_of "$body")" = 200 ]
    head -n 1 <<<"$body" | jq -e '[.choices[].text] | length == 3 and (unique | length) == 1'
    settles
}

@test "greedy tokens are those of a full forward pass without a cache, in fp32 and bf16" {
    for precision in fp32 bf16; do
        for prompt in "a" "The quick brown fox" "$(printf 'long %.0s' $(seq 30))"; do
            want=$("$DT_HELP/greedy" m $precision 40 "$prompt")
            got=$(jq -nc --arg p "$prompt" '{prompt: $p, max_tokens: 40, temperature: 0, logprobs: 0, ignore_eos: true}' |
                dt-serve --batch m --threads 1 --precision $precision --block-size 4 --max-num-seqs 8 \
                    --max-num-batched-tokens 8 2>/dev/null | jq -c '.logprobs.tokens')
            # The byte tokenizer's ids are byte values. A reply names a byte that is not text "bytes:\xNN".
            want=$(jq -c 'map(if . < 128 then [.] | implode elif . < 256 then . else . end)' <<<"$want")
            got=$(jq -c 'map(if startswith("bytes:") then . else . end)' <<<"$got")
            python3 - "$want" "$got" <<'PY'
import json, sys
want, got = map(json.loads, sys.argv[1:])
def ident(t):
    return int(t[8:], 16) if t.startswith("bytes:") else ord(t) if len(t) == 1 else t
want = [ord(x) if isinstance(x, str) else x for x in want]
got = [ident(t) for t in got]
# Id 256 is the end of text and ids above it have no text: these are not compared.
got = [w if w >= 256 else g for w, g in zip(want, got)]
assert want == got, (want, got)
PY
        done
    done
}

@test "200 requests give the same bytes alone, together, and with a cache so small that some are preempted" {
    dt-serve --batch m "${common[@]}" --max-num-seqs 1 <prompts.jsonl >alone.jsonl
    dt-serve --batch m "${common[@]}" --max-num-seqs 64 <prompts.jsonl >together.jsonl
    dt-serve --batch m "${common[@]}" --max-num-seqs 32 --max-model-len 160 --max-num-batched-tokens 40 --block-size 8 \
        --kv-cache-mem 250KiB <prompts.jsonl >small.jsonl
    [ "$(wc -l <alone.jsonl)" = 200 ]
    [ "$(jq -r .text alone.jsonl | sort -u | wc -l)" -gt 150 ]
    cmp alone.jsonl together.jsonl
    cmp alone.jsonl small.jsonl
}

@test "DRY, XTC, mirostat: the same bytes alone, together and with speculative decoding; plain sampling differs" {
    for kind in '{dry_multiplier: 2, dry_allowed_length: 1}' '{xtc_probability: 0.5, xtc_threshold: 0.05}' \
        '{mirostat: 1, mirostat_tau: 3}' '{mirostat: 2, mirostat_tau: 3}'; do
        jq -c "select(.seed < 160 and .seed >= 120) + {temperature: 0.8} + $kind" prompts.jsonl
    done >these.jsonl
    dt-serve m "${common[@]}" --batch --max-num-seqs 1 <these.jsonl >alone.jsonl
    dt-serve m "${common[@]}" --batch --max-num-seqs 24 --kv-cache-mem 384KiB --block-size 4 <these.jsonl >together.jsonl
    cmp alone.jsonl together.jsonl
    dt-serve m "${common[@]}" --batch --speculate 4 <these.jsonl | cmp - alone.jsonl
    jq -c 'del(.dry_multiplier, .xtc_probability, .mirostat)' these.jsonl | dt-serve m "${common[@]}" --batch >plain.jsonl
    changed=$(paste -d '\n' <(jq -c .text alone.jsonl) <(jq -c .text plain.jsonl) | paste - - | awk -F '\t' '$1 != $2' | wc -l)
    [ "$changed" -ge 80 ]
    run -1 dt-serve m "${common[@]}" --batch <<<'{"prompt": "x", "dry_multiplier": 1, "dry_sequence_breakers": ["no token"]}'
    [[ "$output" == *"no token of this model contains"* ]]
    run -1 dt-serve m "${common[@]}" --batch <<<'{"prompt": "x", "mirostat": 3}'
    [[ "$output" == *"not within 0 and 2"* || "$output" == *"mirostat"* ]]
}

@test "speculative decoding and --no-prefix-caching change no byte" {
    head -n 60 prompts.jsonl >some.jsonl
    for p in fp32 bf16; do
        dt-serve --batch m --threads 1 --precision $p --max-num-seqs 8 --no-prefix-caching <some.jsonl >plain.jsonl
        dt-serve --batch m --threads 1 --precision $p --max-num-seqs 8 --speculate 5 <some.jsonl >guessed.jsonl
        cmp plain.jsonl guessed.jsonl
        dt-serve --batch m --threads 1 --precision $p --max-num-seqs 8 --draft-model m <some.jsonl >guessed.jsonl
        cmp plain.jsonl guessed.jsonl
    done
}

@test "n choices of a prompt differ, the first is that of n = 1; a repeated prompt is counted as cached" {
    start --block-size 8
    body='{"prompt": "one prompt that is longer than a few blocks", "max_tokens": 20, "seed": 3, "ignore_eos": true'
    all=$(post /v1/completions "$body, \"n\": 5}" | head -n 1)
    [ "$(jq '.choices | length' <<<"$all")" = 5 ]
    [ "$(jq -r '[.choices[].text] | unique | length' <<<"$all")" = 5 ]
    [ "$(jq .usage.prompt_tokens_details.cached_tokens <<<"$all")" = 0 ]
    one=$(post /v1/completions "$body}" | head -n 1)
    [ "$(jq '.choices[0].text' <<<"$one")" = "$(jq '.choices[0].text' <<<"$all")" ]
    [ "$(jq .usage.prompt_tokens_details.cached_tokens <<<"$one")" = 40 ]
    one=$(post /v1/completions "$body, \"cache_salt\": \"mine\"}" | head -n 1)
    [ "$(jq .usage.prompt_tokens_details.cached_tokens <<<"$one")" = 0 ]
    [ "$(metric prefix_cache_hits_total)" = 40 ]
}

@test "bf16 and quantised weights: the same bytes alone, together, and with a small cache" {
    "$DT_HELP/make-model" blocks gpt2-tiny 260 # its rows are whole quantization blocks
    for w in bf16 q8_0 q4_0; do
        several=(--threads 1 --precision bf16 --weights "$w")
        dt-serve --batch blocks "${several[@]}" --max-num-seqs 1 <prompts.jsonl >alone.jsonl
        dt-serve --batch blocks "${several[@]}" --threads 2 --max-num-seqs 64 <prompts.jsonl >together.jsonl
        cmp alone.jsonl together.jsonl
        dt-serve --batch blocks "${several[@]}" --max-num-seqs 32 --max-model-len 160 --max-num-batched-tokens 40 \
            --block-size 8 --kv-cache-mem 200KiB <prompts.jsonl >small.jsonl
        cmp alone.jsonl small.jsonl
    done
}

@test "32 concurrent clients get the answers of --batch, streamed or not, and every KV block is freed" {
    head -n 32 prompts.jsonl | dt-serve --batch m "${common[@]}" | jq -c .text >want
    start
    i=0
    pids=
    while read -r line; do
        if [ $((i % 2)) = 0 ]; then
            curl -s -m 60 -d "$line" "$url/v1/completions" -o "out.$i" 3>&- &
        else
            curl -sN -m 60 -d "$(jq -c '.stream = true' <<<"$line")" "$url/v1/completions" -o "out.$i" 3>&- &
        fi
        pids="$pids $!"
        i=$((i + 1))
    done < <(head -n 32 prompts.jsonl)
    wait $pids
    for i in $(seq 0 31); do
        if [ $((i % 2)) = 0 ]; then
            jq -c '.choices[0].text' "out.$i"
        else
            [ "$(tail -n 2 "out.$i" | head -n 1)" = "data: [DONE]" ]
            sed -n 's/^data: {/{/p' "out.$i" | jq -sc '[.[].choices[0].text] | add'
        fi
    done >got
    diff want got
    settles
    [ "$(metric request_success_total)" = 32 ]
    [ "$(metric drawn_steps_total)" -gt 0 ]
}

@test "the request of a client that disconnects is cancelled, and its KV blocks are freed" {
    start --max-num-seqs 64
    local aborted='request_success_total{model_name="tiny",finished_reason="abort"}' before
    for stream in true false; do
        before=$(metric "$aborted")
        for _ in $(seq 20); do # on a busy machine a request may end before it is seen to run
            curl -sN -m 600 -d '{"prompt": "x", "n": 64, "max_tokens": 500, "ignore_eos": true, "stream": '$stream'}' \
                "$url/v1/completions" -o /dev/null 3>&- &
            client=$!
            while kill -0 $client 2>/dev/null && [ "$(metric num_requests_running)" = 0 ]; do :; done
            kill -KILL $client 2>/dev/null || true
            wait $client || true
            settles
            [ "$(metric "$aborted")" = "$before" ] || break
        done
        [ "$(metric "$aborted")" -gt "$before" ]
    done
}

@test "--batch: the message about an invalid line has its line number, with empty lines counted" {
    printf '\n{"prompt": "x", "max_tokens": 1}\n\n{"prompt": 5}\n' >some.jsonl
    dt-serve --batch m "${common[@]}" <some.jsonl >out 2>said || true
    grep -q 'line 4: ' said
    [ "$(jq -sc 'map(.index)' out)" = '[0,1]' ]
}

@test "error responses have OpenAI's format and the right status" {
    start
    out=$(post /v1/completions '{"prompt": "x",')
    [ "$(status_of "$out")" = 400 ]
    grep -q 'line 1, column 15' <<<"$out"
    [ "$(status_of "$(post /v1/completions '{"prompt": "x", "model": "other"}')")" = 404 ]
    out=$(post /v1/completions '{"prompt": "x", "max_tokens": 600}')
    [ "$(status_of "$out")" = 400 ]
    [ "$(head -n 1 <<<"$out" | jq -r '.error | "\(.code) \(.type) \(.param)"')" = "context_length_exceeded invalid_request_error prompt" ]
    head -c 9000000 /dev/zero | tr '\0' ' ' >big
    [ "$(status_of "$(post /v1/completions @big)")" = 413 ]
    [ "$(status_of "$(post /v1/completions @big -H 'Transfer-Encoding: chunked')")" = 413 ]
    head -c 100000 /dev/zero | tr '\0' '[' >deep
    [ "$(status_of "$(post /v1/completions @deep)")" = 400 ]
    (head -c 2000 /dev/zero | tr '\0' '['; head -c 2000 /dev/zero | tr '\0' ']') >deep
    [ "$(status_of "$(post /v1/completions @deep)")" = 400 ]
    echo '{"prompt": "x"}' | gzip >packed
    out=$(post /v1/completions @packed -H 'Content-Encoding: gzip')
    [ "$(status_of "$out")" = 415 ]
    grep -q "no body with Content-Encoding 'gzip'" <<<"$out"
    [ "$(status_of "$(post /v1/completions '{"prompt": "x"}' -H 'Content-Encoding: identity')")" = 200 ]
    [ "$(status_of "$(post /nothing '{}')")" = 404 ]
    [ "$(status_of "$(post /health '{}')")" = 405 ]
    run curl -s -o /dev/null -D - "$url/v1/completions"
    grep -qi '^Allow: POST' <<<"$output"
    [ "$(curl -s "$url/health")" = '{"status":"ok"}' ]
    # the server still answers
    [ "$(status_of "$(post /v1/completions '{"prompt": "x"}')")" = 200 ]
}

@test "chat: whole and streamed replies, logprobs, the prompt by template, continued messages" {
    start --chat-template chatml
    body='{"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "temperature": 0, "ignore_eos": true, "logprobs": true, "top_logprobs": 2'
    out=$(post /v1/chat/completions "$body}" | head -n 1)
    jq -e '(.id | startswith("chatcmpl-")) and .object == "chat.completion" and .choices[0].message.role == "assistant"' <<<"$out"
    jq -e '.choices[0].logprobs.content | length == 12 and (.[0].top_logprobs | length == 2)
        and (map(.logprob == .top_logprobs[0].logprob) | all)' <<<"$out"
    want=$(jq -c '.choices[0].message.content' <<<"$out")
    post /v1/chat/completions "$body, \"stream\": true, \"stream_options\": {\"include_usage\": true}}" | sed -n 's/^data: {/{/p' >chunks
    [ "$(jq -sc '[.[].choices[]?.delta.content // ""] | add' chunks)" = "$want" ]
    [ "$(jq -sc '[.[].choices[]?.delta.role // empty]' chunks)" = '["assistant"]' ]
    [ "$(jq -sc '.[-1].usage.completion_tokens' chunks)" = 12 ]
    # the prompt is what the chat template makes, byte for byte
    prompt=$'<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n'
    [ "$(post /tokenize '{"messages": [{"role": "user", "content": "hi"}]}' | head -n 1 | jq .count)" = ${#prompt} ]
    same=$(jq -nc --arg p "$prompt" '{prompt: $p, max_tokens: 12, temperature: 0, ignore_eos: true}')
    [ "$(post /v1/completions "$same" | head -n 1 | jq -c '.choices[0].text')" = "$want" ]
    # The answer continues the client's last assistant message; /v1/messages does this without an option.
    two='[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]'
    rest=$(jq -nc --arg p "${prompt}ho" '{prompt: $p, max_tokens: 8, temperature: 0}')
    want=$(post /v1/completions "$rest" | head -n 1 | jq -c '.choices[0].text')
    [ "$(post /v1/chat/completions "{\"messages\": $two, \"max_tokens\": 8, \"temperature\": 0, \"continue_final_message\": true, \"add_generation_prompt\": false}" |
        head -n 1 | jq -c '.choices[0].message.content')" = "$want" ]
    [ "$(post /v1/messages "{\"messages\": $two, \"max_tokens\": 8, \"temperature\": 0}" | head -n 1 | jq -c '.content[0].text')" = "$want" ]
    [ "$(post /tokenize "{\"messages\": $two, \"continue_final_message\": true}" | head -n 1 | jq .count)" = $((${#prompt} + 2)) ]
    out=$(post /v1/chat/completions '{"messages": [{"role": "robot", "content": "hi"}]}')
    [ "$(status_of "$out")" = 400 ]
    [ "$(head -n 1 <<<"$out" | jq -r .error.param)" = messages ]
    kill "$server"
    wait "$server" || true
    start
    out=$(post /v1/chat/completions "$body}")
    [ "$(head -n 1 <<<"$out" | jq -r .error.code)" = no_chat_template ]
}

@test "a response format is enforced: even random weights answer with JSON of the schema" {
    start --chat-template none
    schema='{"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}}, "required": ["name", "age", "tags"]}'
    for seed in 1 2 3 4; do
        body=$(jq -nc --argjson s "$schema" --argjson seed $seed '{messages: [{role: "user", content: "x"}], max_tokens: 200, seed: $seed,
            response_format: {type: "json_schema", json_schema: {name: "n", schema: $s}}}')
        out=$(post /v1/chat/completions "$body" | head -n 1)
        [ "$(jq -r '.choices[0].finish_reason' <<<"$out")" = stop ]
        jq -r '.choices[0].message.content' <<<"$out" | jq -e '(.name | length <= 8) and (.age | floor == .) and (.tags - ["a", "b"] == [])'
    done
    out=$(post /v1/completions '{"prompt": "x", "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "string", "format": "iri"}}}}')
    [ "$(status_of "$out")" = 400 ]
    [[ "$out" == *"format 'iri' is not supported"* ]]
    out=$(post /v1/completions '{"prompt": "x", "max_tokens": 30, "seed": 5, "response_format": {"type": "json_object"}}' | head -n 1)
    jq -e '.choices[0].text | startswith("{")' <<<"$out"
}

@test "embeddings have norm 1, do not depend on the other inputs, and can be encoded in base64" {
    start --max-num-batched-tokens 64
    long=$(printf 'long %.0s' $(seq 40))
    out=$(post /v1/embeddings "$(jq -nc --arg l "$long" '{input: ["one", "two", $l, "one"]}')" | head -n 1)
    jq -e '.data | length == 4 and (map(.embedding | map(. * .) | add | . - 1 | fabs < 1e-5) | all)
        and .[0].embedding == .[3].embedding and .[0].embedding != .[1].embedding' <<<"$out"
    [ "$(jq .usage.prompt_tokens <<<"$out")" = 209 ]
    [ "$(post /v1/embeddings '{"input": "one"}' | head -n 1 | jq -c '.data[0].embedding')" = "$(jq -c '.data[0].embedding' <<<"$out")" ]
    post /v1/embeddings '{"input": "one", "encoding_format": "base64"}' | head -n 1 | jq -r '.data[0].embedding' |
        python3 -c 'import base64, struct, sys; b = base64.b64decode(sys.stdin.read()); v = struct.unpack(f"<{len(b) // 4}f", b); print(abs(sum(x * x for x in v) - 1) < 1e-5)' | grep -q True
    settles
}

@test "tenants: over quota is 429 with Retry-After; cached prefixes are private; bad key files are refused" {
    printf 'alpha tenant=a tokens-per-minute=100\nbeta tenant=b weight=3 priority=1\nbeta2 tenant=b\n' >keys
    start --api-key-file keys --block-size 8
    body='{"prompt": "the very same prompt for everyone here", "max_tokens": 20, "ignore_eos": true}'
    ask() { curl -s -D headers -H "Authorization: Bearer $1" -d "$body" "$url/v1/completions"; }
    [ "$(ask beta | jq .usage.prompt_tokens_details.cached_tokens)" = 0 ]
    [ "$(ask beta2 | jq .usage.prompt_tokens_details.cached_tokens)" = 32 ]
    [ "$(ask alpha | jq .usage.prompt_tokens_details.cached_tokens)" = 0 ]
    [ "$(ask alpha | jq -r .error.code)" = rate_limit_exceeded ]
    grep -q ' 429 ' headers
    grep -qi '^Retry-After: [1-9]' headers
    # a request larger than the whole quota gets 400, because waiting would not help
    [ "$(body='{"prompt": "x", "max_tokens": 101}' ask alpha | jq -r .error.code)" = request_over_quota ]
    grep -q ' 400 ' headers
    [ "$(ask beta | jq .usage.completion_tokens)" -gt 0 ]
    for bad in 'k weight=0' 'k weight=x' 'k limit=3' 'k alone'; do
        echo "$bad" >keys
        run -1 dt-serve m --port 0 --api-key-file keys
        [[ "$output" == *"line 1"* ]]
    done
}

@test "Anthropic's messages: whole, streamed, counted; unsupported content and values are refused by name" {
    start --chat-template chatml --api-key k
    ask() { curl -s -H 'X-Api-Key: k' -H 'anthropic-version: 2023-06-01' -d "$2" "$url$1"; }
    body='{"model": "tiny", "max_tokens": 8, "temperature": 0, "system": "S", "some_new_option": 1,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "U"}]}]}'
    ask /v1/messages "$body" >whole
    jq -e '.type == "message" and .role == "assistant" and (.content | length) == 1 and .content[0].type == "text"
        and .stop_reason == "max_tokens" and .usage.output_tokens == 8' whole
    # the prompt is that of the same chat
    chat=$(curl -s -H 'Authorization: Bearer k' -d '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        "max_tokens": 8, "temperature": 0}' "$url/v1/chat/completions")
    [ "$(jq .content[0].text whole)" = "$(jq .choices[0].message.content <<<"$chat")" ]
    [ "$(ask /v1/messages/count_tokens "$body" | jq .input_tokens)" = "$(jq .usage.prompt_tokens <<<"$chat")" ]
    ask /v1/messages "$(jq '.stream = true' <<<"$body")" >stream
    [ "$(sed -n 's/^data: //p' stream | jq -sr 'map(.delta.text // "") | add')" = "$(jq -r .content[0].text whole)" ]
    [ "$(sed -n 's/^event: //p' stream | uniq | paste -sd ' ')" = \
        "message_start content_block_start content_block_delta content_block_stop message_delta message_stop" ]
    [ "$(sed -n 's/^event: //p' stream)" = "$(sed -n 's/^data: //p' stream | jq -r .type)" ]
    ask /v1/messages "$(jq '.messages[0].content[0].type = "image"' <<<"$body")" |
        jq -e '.type == "error" and .error.type == "invalid_request_error" and (.error.message | test("image"))'
    ask /v1/messages "$(jq '.max_tokens = 60 | .output_config.format = {type: "json_schema", schema: {enum: ["yes"]}}' <<<"$body")" |
        jq -e '.content[0].text | fromjson == "yes"'
    ask /v1/messages "$(jq '.output_config.format = {type: "text"}' <<<"$body")" | jq -e '.error.message | test("output_config.format")'
    ask /v1/messages "$(jq 'del(.max_tokens)' <<<"$body")" | jq -e '.error.message | test("max_tokens")'
    ask /v1/messages "$(jq '.model = "none"' <<<"$body")" | jq -e '.error.type == "not_found_error"'
    ask /v1/messages "$(jq '.stop_sequences = [""]' <<<"$body")" | jq -e '.error.message | test("^.stop_sequences. has")'
    # clients know a prompt that is too long by the beginning of the message; it is counted nevertheless
    jq '.messages[0].content = "a" * 9999' <<<"$body" >long
    ask /v1/messages "$(cat long)" | jq -e '.error.message | test("^prompt is too long: [0-9]+ tokens > [0-9]+ maximum$")'
    ask /v1/messages/count_tokens "$(cat long)" | jq -e '.input_tokens > 9999'
    [ "$(curl -s -d "$body" "$url/v1/messages" | jq -r .error.type)" = authentication_error ]
}

@test "responses: whole and as stream events; unsupported and unknown fields are refused by name" {
    start --chat-template chatml
    body='{"input": [{"role": "user", "content": [{"type": "input_text", "text": "U"}]}], "instructions": "S", "max_output_tokens": 8, "temperature": 0}'
    post /v1/responses "$body" | head -n 1 >whole
    chat=$(post /v1/chat/completions '{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
        "max_tokens": 8, "temperature": 0}' | head -n 1)
    [ "$(jq '.output[0].content[0].text' whole)" = "$(jq .choices[0].message.content <<<"$chat")" ]
    jq -e '.object == "response" and .status == "incomplete" and .incomplete_details.reason == "max_output_tokens"
        and .usage.output_tokens == 8 and .output[0].role == "assistant" and .output[0].status == "incomplete"
        and .instructions == "S" and .max_output_tokens == 8 and .tools == [] and .tool_choice == "auto" and .metadata == {}' whole
    asks='{"metadata": {"a": "b"}, "tool_choice": "none", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "parallel_tool_calls": false, "include": ["reasoning.encrypted_content"], "reasoning": {"effort": null, "summary": "auto"}}'
    post /v1/responses "$(jq -c --argjson asks "$asks" '. + $asks' <<<"$body")" | head -n 1 |
        jq -e --argjson asks "$asks" '. as $r | ["metadata", "tools", "tool_choice", "parallel_tool_calls"] | all($r[.] == $asks[.])'
    curl -sN -d "$(jq '.stream = true' <<<"$body")" "$url/v1/responses" >stream
    [ "$(sed -n 's/^data: //p' stream | jq -sr 'map(select(.type == "response.output_text.delta").delta) | add')" = \
        "$(jq -r '.output[0].content[0].text' whole)" ]
    sed -n 's/^data: //p' stream | jq -se 'map(.sequence_number) == [range(length)]'
    sed -n 's/^data: //p' stream | jq -se '(map(select(.type == "response.output_item.done"))[0].item.status == "incomplete")
        and (map(.response // empty | [.instructions, .max_output_tokens]) | unique == [["S", 8]])'
    [ "$(sed -n 's/^data: //p' stream | jq -r .type | uniq | paste -sd ' ')" = "response.created response.in_progress response.output_item.added\
 response.content_part.added response.output_text.delta response.output_text.done response.content_part.done response.output_item.done\
 response.incomplete" ]
    # what clients with strict types require
    sed -n 's/^data: //p' stream | jq -se '(map(select(.type | test("output_text.(delta|done)")).logprobs) | unique == [[]])
        and (.[-1].response.usage.input_tokens_details.cache_write_tokens == 0)'
    # keys without effect; results of tools as parts; errors name the keys of this API
    post /v1/responses "$(jq -c '. + {conversation: null, prompt: null, top_logprobs: 0, max_tool_calls: 3, moderation: null,
        text: {verbosity: "medium"}, prompt_cache_retention: "24h"} | .input += [{type: "function_call", call_id: "c", name: "f", arguments: "{}"},
        {type: "function_call_output", call_id: "c", output: [{type: "input_text", text: "done"}]}]' <<<"$body")" | head -n 1 |
        jq -e '.status == "incomplete"'
    for wrong in conversation=\"x\" top_logprobs=2 max_output_tokens=-1 max_output_tokens=100000 'input=[{"role":"tool","content":"x"}]' \
        'input=[{"type":"function_call","call_id":"c","name":"f","arguments":"x"}]' ; do
        [ "$wrong" = max_output_tokens=100000 ] && param=input || param=${wrong%%=*}
        post /v1/responses "$(jq -c --arg k "${wrong%%=*}" --argjson v "${wrong#*=}" '.[$k] = $v' <<<"$body")" | head -n 1 |
            jq -e --arg k "$param" '.error | .param == $k and (.message | test("max_tokens|messages|unknown key") | not)'
    done
    for format in '{"type": "json_schema", "name": "x"}' '{"type": "xml"}'; do
        post /v1/responses "$(jq -c --argjson f "$format" '.text.format = $f' <<<"$body")" | head -n 1 |
            jq -e '.error | .param == "text.format" and (.message | test("text.format"))'
    done
    for wrong in previous_response_id=\"x\" background=true nonsense=1 'tools=[{"type":"web_search"}]' input=5 'input=[{"type":"image"}]' \
        'include=["message.output_text.logprobs"]' truncation=\"auto\" 'metadata={"a":1}'; do
        post /v1/responses "$(jq -c --arg k "${wrong%%=*}" --argjson v "${wrong#*=}" '.[$k] = $v' <<<"$body")" | head -n 1 |
            jq -e --arg k "${wrong%%=*}" '.error.param == $k'
    done
    for wrong in reasoning.effort=low reasoning.summary=detailed text.verbosity=low; do
        post /v1/responses "$(jq -c --arg k "${wrong%%=*}" --arg v "${wrong#*=}" 'setpath($k / "."; $v)' <<<"$body")" | head -n 1 |
            jq -e --arg k "${wrong%%=*}" '.error.param == $k'
    done
}

@test "rerank and score: cosine similarities of the embeddings, the best first" {
    start
    post /v1/embeddings '{"input": ["query", "near query", "something else", "query"]}' | head -n 1 >embedded
    post /v1/rerank '{"query": "query", "documents": ["near query", "something else", {"text": "query"}], "top_n": 2}' | head -n 1 >ranked
    diff <(jq .results ranked) <(post /v2/rerank '{"query": "query", "documents": ["near query", "something else", {"text": "query"}], "top_n": 2}' |
        head -n 1 | jq .results)
    post /v1/rerank "$(jq -nc '{query: "q", documents: ["a" * 9999]}')" | head -n 1 |
        jq -e '.error | .code == "context_length_exceeded" and .param == null'
    post /v1/score '{"text_1": "query", "text_2": ["near query", "something else", "query"]}' | head -n 1 >scored
    jq -se '(.[0].data | map(.embedding)) as $e
        | [1, 2, 3 | . as $k | [$e[0], $e[$k]] | transpose | map(.[0] * .[1]) | add] as $want
        | (.[2].data | map(.score)) as $got
        | ([range(3) | $want[.] - $got[.] | fabs] | max < 1e-5)
        and (.[1].results | length == 2 and .[0].index == 2 and .[0].relevance_score > 0.9999 and .[0].document.text == "query")
        and .[1].results[1].relevance_score == ($got[:2] | max)' embedded ranked scored
    # each text is truncated to its first tokens, the embeddings route does the same
    [ "$(post /v1/embeddings '{"input": "query and more", "truncate_prompt_tokens": 5}' | head -n 1 | jq -c .data[0].embedding)" = \
        "$(jq -c .data[0].embedding embedded)" ]
    post /v1/rerank "$(jq -nc '{query: "query", documents: ["other" * 2000, "query" + " tail" * 2000], truncate_prompt_tokens: 5, top_n: 1}')" |
        head -n 1 | jq -e '(.results[0] | .index == 1 and .relevance_score > 0.9999) and .usage.prompt_tokens == 15'
    post /v1/score "$(jq -nc '{text_1: "query", text_2: ("a" * 9999), truncate_prompt_tokens: -1}')" | head -n 1 |
        jq -e '.usage.prompt_tokens | . > 5 and . < 9999'
    post /v1/rerank '{"query": "q", "documents": ["d"], "truncate_prompt_tokens": -2}' | head -n 1 | jq -e '.error.param == "truncate_prompt_tokens"'
    [ "$(status_of "$(post /v1/rerank '{"query": "x"}')")" = 400 ]
    [ "$(status_of "$(post /v1/rerank '{"query": "x", "documents": [5]}')")" = 400 ]
    [ "$(status_of "$(post /v1/score '{"text_1": "x", "text_2": "y", "nonsense": 1}')")" = 400 ]
    settles
}

@test "models, version, tokenize and detokenize" {
    start --max-model-len 100
    curl -s "$url/v1/models" | jq -e '.object == "list" and .data[0].id == "tiny" and .data[0].max_model_len == 100'
    curl -s "$url/version" | jq -e '.version | test("^[0-9]+[.]")'
    [ "$(post /tokenize '{"prompt": "h\u00e9"}' | head -n 1 | jq -c '[.tokens, .count]')" = '[[104,195,169],3]' ]
    [ "$(post /detokenize '{"tokens": [104, 195, 169]}' | head -n 1)" = '{"prompt":"hé"}' ]
    [ "$(status_of "$(post /detokenize '{"tokens": [999]}')")" = 400 ]
    post /tokenize '{"prompt": "h\u00e9", "return_token_strs": true}' | head -n 1 |
        jq -e '.token_strs == ["h", "bytes:\\xc3", "bytes:\\xa9"]'
    [ "$(post /tokenize '{"content": "h", "add_special": false}' | head -n 1 | jq -c .tokens)" = '[104]' ]
    jq -e '.default_generation_settings.n_ctx > 0 and .total_slots > 0 and .model_path == "tiny" and
        .modalities == {vision: false, audio: false}' <(curl -sS "$url/props")
    said=$(post /apply-template '{"messages": [{"role": "user", "content": "hi"}]}' | head -n 1)
    [ "$(jq -r .prompt <<<"$said" | wc -c)" -ge 3 ]
    [ "$(status_of "$(post /apply-template '{"prompt": "x"}')")" = 400 ]
    # unknown and unsupported fields are refused, not ignored
    for body in '{"prompt": "x", "add_specials": true}' '{"prompt": "x", "model": "other"}' '{"prompt": "x", "add_generation_prompt": true}' \
        '{"prompt": "x", "tools": [{}]}' '{"prompt": "x", "add_special_tokens": 1}' '[]' '{"messages": [], "prompt": "x"}'; do
        [[ "$(status_of "$(post /tokenize "$body")")" == 40[04] ]] || { echo "$body"; return 1; }
    done
    for body in '{"tokens": [1], "model": "other"}' '{"tokens": [1], "x": 1}' '{"tokens": [-1]}' '{"tokens": 1}'; do
        [[ "$(status_of "$(post /detokenize "$body")")" == 40[04] ]] || { echo "$body"; return 1; }
    done
}

@test "/completion in llama.cpp's format, whole and streamed; grammars in GBNF on every route; /infill is refused" {
    start --chat-template chatml
    said=$(post /completion '{"prompt": "Once", "n_predict": 5, "seed": 3, "ignore_eos": true}' | head -n 1)
    jq -e '.stop and .stop_type == "limit" and .tokens_predicted == 5 and .tokens_evaluated == 4 and .prompt == "Once" and
        .timings.predicted_n == 5 and .truncated == false' <<<"$said"
    curl -sN "$url/completion" -d '{"prompt": "Once", "n_predict": 5, "seed": 3, "ignore_eos": true, "stream": true}' |
        sed -n 's/^data: //p' >events
    [ "$(jq -sc '[.[].stop] | map(select(.)) | length' events)" = 1 ]
    [ "$(jq -sr 'map(.content) | add' events)" = "$(jq -r .content <<<"$said")" ]
    # the same answer as by the other route with these values
    same='"prompt": "Once", "max_tokens": 5, "seed": 3, "ignore_eos": true'
    [ "$(post /v1/completions "{$same, \"temperature\": 0.8, \"top_k\": 40, \"top_p\": 0.95, \"min_p\": 0.05}" |
        head -n 1 | jq -r '.choices[0].text')" = "$(jq -r .content <<<"$said")" ]

    jq -n --arg g $'# a move\nroot ::= "1. " move (" " move)? # or two\nmove ::= [NBKQR]? [a-h] [1-8] [+#]? |\n  "O-O" "-O"?' \
        '{prompt: "x", grammar: $g, max_tokens: 40}' >body
    for seed in 1 2 3 4 5; do
        jq -c ".seed = $seed" body >one
        [[ "$(curl -s "$url/completion" -d @one | jq -r .content)" =~ ^1\.\ ([NBKQR]?[a-h][1-8][+#]?|O-O(-O)?)(\ ([NBKQR]?[a-h][1-8][+#]?|O-O(-O)?))?$ ]]
        jq -c '.structured_outputs.grammar = .grammar | del(.grammar)' one >two
        [[ "$(curl -s "$url/v1/completions" -d @two | jq -r '.choices[0].text')" == 1.\ * ]]
        jq -c '.guided_grammar = .grammar | .messages = [{role: "user", content: "x"}] | del(.grammar, .prompt)' one >three
        [[ "$(curl -s "$url/v1/chat/completions" -d @three | jq -r '.choices[0].message.content')" == 1.\ * ]]
    done
    said=$(post /completion '{"prompt": "x", "grammar": "root ::= a\na ::= a \"x\" | \"y\""}')
    [ "$(status_of "$said")" = 400 ]
    [[ "$said" == *"line 2, column 1: the rule 'a' can begin with itself"* ]]
    for body in '{"prompt": "x", "n_predct": 1}' '{"prompt": "x", "samplers": ["topk"]}' '{"prompt": "x", "grammar": 1}'; do
        [ "$(status_of "$(post /completion "$body")")" = 400 ] || { echo "$body"; return 1; }
    done
    # tokens as parts of a grammar: 97 is the byte a
    said=$(post /completion '{"prompt": "x", "grammar": "root ::= (<[97]> [b-z] !<[98]>){2}", "return_tokens": true, "seed": 1}' | head -n 1)
    jq -e '(.tokens | length == 6) and .tokens[0] == 97 and .tokens[3] == 97 and .tokens[1] != 97 and .tokens[2] != 98 and .stop_type == "eos"' <<<"$said"
    said=$(post /completion '{"prompt": "x", "grammar": "root ::= \"a\" <none>"}')
    [ "$(status_of "$said")" = 400 ]
    [[ "$said" == *"line 1, column 14: '<none>' is not one token of this model"* ]]
    said=$(post /infill '{"input_prefix": "a", "input_suffix": "b"}')
    [ "$(status_of "$said")" = 400 ]
    [[ "$said" == *"no tokens to fill in"*'"param":"input_suffix"'* ]]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/completion")" = 405 ]
}

@test "/completion: samplers in any order, probabilities after them, chosen fields of the reply, mixed prompts" {
    start
    ask='"prompt": ["On", 99, "e"], "n_predict": 4, "seed": 3, "ignore_eos": true'
    # the usual order by its names is no other draw; a sampler that is not listed is off
    said=$(post /completion "{$ask, \"samplers\": [\"temperature\", \"min_p\", \"top_k\", \"top_p\"]}" | head -n 1)
    [ "$(jq -r .prompt <<<"$said")" = Once ]
    [ "$(jq -c .content <<<"$said")" = "$(post /completion "{$ask}" | head -n 1 | jq -c .content)" ]
    said=$(post /completion "{$ask, \"samplers\": \"kt\", \"top_k\": 1, \"temperature\": 90}" | head -n 1)
    [ "$(jq -c .content <<<"$said")" = "$(post /completion "{$ask, \"temperature\": 0}" | head -n 1 | jq -c .content)" ]
    jq -e '.generation_settings.samplers == ["top_k", "temperature"] and .generation_settings.top_p == 1' <<<"$said"
    for stream in false true; do
        curl -sN "$url/completion" -d "{$ask, \"stream\": $stream, \"n_probs\": 5, \"post_sampling_probs\": true, \"samplers\": \"tk\",
            \"top_k\": 2, \"response_fields\": [\"completion_probabilities\", \"timings/predicted_n\"]}" | sed 's/^data: //' | grep . |
            jq -sc '{last: (last | keys), p: (map(.completion_probabilities) | add)}' >"out.$stream"
        jq -e '.last == ["completion_probabilities", "timings/predicted_n"] and (.p | length == 4) and
            (.p | all((.top_probs | length == 2) and ((.top_probs | map(.prob) | add) - 1 | fabs < 1e-6) and .prob > 0))' "out.$stream"
    done
    [ "$(jq -c .p out.false)" = "$(jq -c .p out.true)" ]
}

@test "/tokenize: messages with tools give the chat's prompt, with or without the generation prompt" {
    start --chat-template chatml
    chat='"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]'
    # The prompt is longer than the model's context: the error message states its number of tokens.
    n=$(post /v1/chat/completions "{$chat, \"max_tokens\": 1}" | head -n 1 | jq -r '.error.message | capture("has (?<n>[0-9]+) in").n')
    [ "$n" -gt 512 ]
    [ "$(post /tokenize "{$chat, \"model\": \"tiny\"}" | head -n 1 | jq .count)" = "$n" ]
    opening=$'<|im_start|>assistant\n'
    [ "$(post /tokenize "{$chat, \"add_generation_prompt\": false}" | head -n 1 | jq .count)" = $((n - ${#opening})) ]
    post /tokenize '{"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "f"}]}' | head -n 1 | jq -e '.error.param == "tools"'
    post /tokenize '{"messages": [{"role": "user", "content": "hi"}], "add_special_tokens": true}' | head -n 1 |
        jq -e '.error.param == "add_special_tokens"'
}

@test "a tokenizer's start token: /tokenize can leave it out, text offsets do not count it; ranks are numbers" {
    data=${DT_TEST_DATA:-$DT_SRC/../shared/data}/stories260K
    [ -e "$data/stories260K.bin" ] || skip "no stories260K in $data"
    await dt-serve "$data/stories260K.bin" --tokenizer "$data/tok512.bin" "${common[@]}" --port 0 --served-model-name st
    count='.tokens | length'
    [ "$(post /tokenize '{"prompt": "Once upon a"}' | head -n 1 | jq "$count")" = 4 ]
    [ "$(post /tokenize '{"prompt": "Once upon a", "add_special_tokens": false}' | head -n 1 | jq "$count")" = 3 ]
    for prompt in '"Once upon a"' '[1, 403, 407, 261]'; do
        post /v1/completions "{\"prompt\": $prompt, \"echo\": true, \"logprobs\": 1, \"max_tokens\": 2, \"temperature\": 0}" >reply
        head -n 1 reply | jq -e '.choices[0] | .text as $t | .logprobs | .tokens == ["<s>", " Once", " upon", " a", " time", ","] and
            ([.tokens[2:], .text_offset[2:]] | transpose | all(. as [$w, $o] | $t[$o:$o + ($w | length)] == $w))'
    done
    post /v1/completions '{"prompt": "Once upon a", "logprobs": 0, "max_tokens": 1, "temperature": 0}' | head -n 1 |
        jq -e '.choices[0].logprobs | .top_logprobs == [{(.tokens[0]): .token_logprobs[0]}]'
    post /v1/completions '{"prompt": "Once upon a", "echo": true, "logprobs": 1, "max_tokens": 0}' | head -n 1 |
        jq -e '.choices[0].logprobs.text_offset == [0, 0, 4, 9]'
    # the blank before the first word belongs to the answer, and to what stop is compared with
    post /v1/completions '{"prompt": "Once upon a", "stop": " time", "max_tokens": 4, "temperature": 0}' | head -n 1 |
        jq -e '.choices[0] | [.text, .finish_reason, .stop_reason] == ["", "stop", " time"]'
    post /v1/completions '{"prompt": "Once upon a", "stop": "time", "max_tokens": 4, "temperature": 0}' | head -n 1 |
        jq -e '.choices[0] | [.text, .finish_reason, .stop_reason] == [" ", "stop", "time"]'
    post /v1/completions '{"prompt": "zebras upon", "prompt_logprobs": 1, "max_tokens": 1}' | head -n 1 |
        jq -e '.choices[0].prompt_logprobs[1:] | all(.[]; [.[].rank] | sort | .[0] == 1 and all(. >= 1) and (length == 1 or .[1] > 1))'
}

@test "embeddings: 2048 texts in one request, however short the queue; a text as long as the context" {
    start --max-num-seqs 4 --queue 4 --max-model-len 64 --block-size 8
    jq -nc '{input: [range(2048) | "t\(.)"]}' >2048.json
    jq -nc '{input: [range(2049) | "t\(.)"]}' >2049.json
    jq -nc '{input: [range(64)]}' >64.json
    jq -nc '{query: "t", documents: [range(2048) | "t\(.)"]}' >documents.json
    curl -s -d @2048.json "$url/v1/embeddings" >out &
    asking=$!
    until [ "$(metric num_requests_waiting)" != 0 ] || ! kill -0 $asking; do sleep 0.01; done
    [ "$(status_of "$(post /v1/completions '{"prompt": "x", "max_tokens": 1}')")" = 200 ] # other requests are accepted
    wait $asking
    jq -e '.data | length == 2048 and ([.[].index] == [range(2048)])' out
    post /v1/embeddings '{"input": ["t7", "t2047"]}' | head -n 1 >two
    jq -se '(.[0].data[0].embedding) as $a | (.[1].data[7].embedding) as $b | [$a, $b] | transpose | map((.[0] - .[1]) | fabs) | max < 1e-5' two out
    [ "$(curl -s -d @2049.json "$url/v1/embeddings" | jq -r .error.param)" = input ]
    [ "$(curl -s -d @documents.json "$url/v1/rerank" | jq -r .error.param)" = documents ]
    [ "$(curl -s -d @64.json "$url/v1/embeddings" | jq .usage.prompt_tokens)" = 64 ]
    # the last token of a prompt that is only scored is not read; all others get the same log-probability
    for n in 64 65 66; do
        jq -nc --argjson n $n '{prompt: [range($n) | . * 7 % 250], echo: true, logprobs: 1, max_tokens: 0}' >scored.json
        curl -s -d @scored.json "$url/v1/completions" >scored.$n
    done
    jq -se '[.[].choices[0].logprobs.token_logprobs] as [$a, $b] | $b[:64] == $a and ($b | length) == 65 and $b[64] < 0' \
        scored.64 scored.65
    jq -e '.error.code == "context_length_exceeded"' scored.66
    jq -c '.max_tokens = 1 | .prompt |= .[:64]' scored.json | curl -s -d @- "$url/v1/completions" | jq -e .error
    settles
}

@test "with API keys, every route except /health requires one" {
    printf '# keys\n\nsecret-one\nsecret-two\n' >keys
    start --api-key-file keys
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/health")" = 200 ]
    for r in /version /metrics /v1/models /v1/completions /v1/chat/completions /v1/embeddings /tokenize /detokenize /nothing; do
        [ "$(curl -s -o /dev/null -w '%{http_code}' "$url$r")" = 401 ]
        [ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer secret-on' "$url$r")" = 401 ]
    done
    [[ "$(curl -s "$url/metrics")" == *"this server requires an API key: "* ]]
    [[ "$(curl -s -H 'X-Api-Key: secret-on' "$url/metrics")" == *"this server does not know this API key"* ]]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer secret-two' "$url/metrics")" = 200 ]
    : >keys
    run -1 dt-serve m --port 0 --api-key-file keys
    [[ "$output" == *"holds no key"* ]]
}

@test "--api-key, a model by name, the memory limit --http-mem, --allow-origin" {
    start --api-key one --api-key two
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/models")" = 401 ]
    [ "$(curl -s -H 'Authorization: Bearer two' "$url/v1/models/tiny" | jq -r .id)" = tiny ]
    [ "$(curl -s -H 'Authorization: Bearer one' "$url/v1/models/other" | jq -r '.error | "\(.code) \(.param)"')" = 'model_not_found model' ]
    run -1 dt-serve m --port 0 --api-key ''
    run -2 dt-serve m --batch --api-key one
    [[ "$output" == *"--api-key cannot be combined with --batch"* ]]
    kill -KILL "$server"
    start --http-mem 100KiB --allow-origin https://chat.example.org
    head -c 90000 /dev/zero | tr '\0' ' ' >big
    [ "$(status_of "$(post /v1/completions @big)")" = 503 ]
    # An answer that can never fit is refused before anything is computed, with 400: a retry would not help.
    jq -nc '{prompt: [range(200)], max_tokens: 1, prompt_logprobs: 100}' >big
    out=$(post /v1/completions @big)
    [ "$(status_of "$out")" = 400 ]
    [ "$(head -n 1 <<<"$out" | jq -r .error.code)" = answer_too_large ]
    [ "$(metric prompt_tokens_total)" = 0 ]
    [ "$(status_of "$(post /v1/completions '{"prompt": "x"}')")" = 200 ]
    curl -s -D - -o /dev/null -H 'Origin: https://chat.example.org' "$url/v1/models" | grep -qi '^Access-Control-Allow-Origin: https://chat'
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Origin: https://evil.example' "$url/v1/models")" = 403 ]
}

@test "a full queue gives 503 with Retry-After" {
    start --max-num-seqs 64 --queue 0
    for _ in $(seq 20); do # on a busy machine the large request may end before the small one is sent
        curl -sN -m 600 -d '{"prompt": "x", "n": 64, "max_tokens": 500, "ignore_eos": true, "stream": true}' \
            "$url/v1/completions" -o running 3>&- &
        client=$!
        while kill -0 $client 2>/dev/null && [ "$(metric num_requests_running)" != 64 ]; do :; done
        out=$(curl -s -D - -d '{"prompt": "y", "max_tokens": 1}' "$url/v1/completions")
        wait $client
        ! grep -q ' 503' <<<"$out" || break
    done
    grep -q ' 503' <<<"$out"
    grep -qi '^Retry-After: 1' <<<"$out"
    grep -q queue_full <<<"$out"
    tail -n 2 running | grep -q DONE
}

@test "SIGTERM: running streams are completed, new requests get 503, exit status 0" {
    start
    curl -sN -m 600 -d '{"prompt": "x", "n": 64, "max_tokens": 480, "ignore_eos": true, "stream": true}' \
        "$url/v1/completions" -o running 3>&- &
    client=$!
    for _ in $(seq 1200); do
        [ "$(metric num_requests_running)" -gt 0 ] && break
        sleep 0.02
    done
    kill -TERM "$server"
    for _ in $(seq 600); do
        [ "$(curl -s "$url/health")" = '{"status":"ok"}' ] || break
    done
    [ "$(curl -s "$url/health")" = '{"status":"draining"}' ]
    [ "$(status_of "$(post /v1/completions '{"prompt": "y"}')")" = 503 ]
    wait $client
    status=0
    wait "$server" || status=$?
    server=
    [ $status = 0 ]
    [ "$(sed -n 's/^data: {/{/p' running | jq -r '.choices[].finish_reason | strings' | sort | uniq -c | xargs)" = "64 length" ]
    tail -n 2 running | grep -q '^data: \[DONE\]'
}

@test "/health says stuck while a step does not end, and ok after it (minutes: DT_SLOW=1)" {
    slow || skip "takes minutes: DT_SLOW=1"
    local clients=()
    start
    mkfifo hold
    for _ in 1 2 3 4; do
        curl -s -m 600 -d '{"prompt": "x", "n": 64, "max_tokens": 480, "ignore_eos": true}' \
            "$url/v1/completions" >>answers 3>&- &
        clients+=($!)
    done
    "$DT_SRC/tests/cli/hold-thread.py" "$server" <hold >held 3>&- &
    holder=$!
    exec 4>hold
    until [ -s held ] || ! kill -0 $holder; do
        sleep 0.05
    done
    grep -q held held || skip "$(cat held)"
    [ "$(curl -s -m 10 "$url/health")" = '{"status":"ok"}' ]
    for _ in $(seq 300); do
        [ "$(status_of "$(curl -s -m 10 -w '\n%{http_code}' "$url/health")")" = 200 ] || break
        sleep 1
    done
    [ "$(curl -s -m 10 "$url/health")" = '{"status":"stuck"}' ]
    exec 4>&-
    wait $holder "${clients[@]}"
    [ "$(curl -s "$url/health")" = '{"status":"ok"}' ]
    [ "$(jq -s 'map(.usage.completion_tokens) | add' answers)" = $((4 * 64 * 480)) ]
}

@test "--batch: order, ids, and lines that fail while others are answered" {
    printf '%s\n' '{"prompt": "a", "id": "first", "max_tokens": 30}' 'not json' '{"prompt": "b", "max_tokens": 1, "id": 7}' \
        '' '{"promt": "c"}' '{"prompt": "d", "max_tokens": 2, "logprobs": 1, "return_token_ids": true}' >in
    run -1 --separate-stderr dt-serve --batch m "${common[@]}" <in
    [ "${#lines[@]}" = 5 ]
    [ "$(jq -c '[.index, .id, .error.code // has("error")]' <<<"$output" | xargs)" = \
        '[0,first,false] [1,null,true] [2,7,false] [3,null,true] [4,null,false]' ]
    [[ "$stderr" == *"2 lines failed"* ]]
    [ "$(jq -r 'select(.index == 3) | .error.param' <<<"$output")" = promt ]
    [ "$(jq -c 'select(.index == 4) | .usage | [.prompt_tokens, .completion_tokens, .total_tokens]' <<<"$output")" = '[1,2,3]' ]
    [ "$(jq -c 'select(.index == 4) | [.prompt_token_ids, (.token_ids | length)]' <<<"$output")" = '[[100],2]' ]
    [ "$(jq -c 'select(.index < 4) | has("token_ids")' <<<"$output" | sort -u)" = false ]
}

@test "--batch: chat messages, echo, and --defaults for all lines" {
    printf '%s\n' '{"prompt": "ab", "echo": true}' '{"messages": [{"role": "user", "content": "ab"}], "max_tokens": 3}' \
        '{"prompt": "ab", "max_completion_tokens": 4, "temperature": null}' '{"prompt": "ab", "messages": []}' >in
    run -1 --separate-stderr dt-serve --batch m "${common[@]}" --tokenizer byte --chat-template none --max-tokens 5 \
        --defaults '{"temperature": 0, "ignore_eos": true}' <in
    [ "$(jq -c '[.usage.completion_tokens, .error.param]' <<<"$output" | xargs)" = '[5,null] [3,null] [4,null] [null,prompt]' ]
    [ "$(head -n 1 <<<"$output" | jq -r '.text[:2]')" = ab ]
    for bad in '[]' '{' '{"n": 2}' '{"temprature": 1}' '{"top_p": 2}'; do
        run -2 dt-serve m --batch --defaults "$bad"
    done
}

@test "--defaults that every request would fail with end the start" {
    for bad in '{"samplers": ["top_q"]}' '{"grammar": "root ::= ("}' '{"logit_bias": {"99999": 1}}' '{"stop": [3]}'; do
        run -1 --separate-stderr dt-serve m "${common[@]}" --tokenizer byte --batch --defaults "$bad" <<<'{"prompt": "a"}'
        [[ $stderr =~ "--defaults: " ]] && [ -z "$output" ]
        run -1 --separate-stderr dt-serve m "${common[@]}" --tokenizer byte --port 0 --defaults "$bad"
        [[ $stderr =~ "--defaults: " ]] && [ -z "$output" ]
    done
}

@test "--batch: OpenAI's format, --unordered, and --skip-done leaves out requests already answered" {
    for i in $(seq 0 9); do
        jq -nc --argjson i "$i" '{custom_id: "r\($i)", method: "POST", url: "/v1/chat/completions",
            body: {model: "m", messages: [{role: "user", content: "say \($i)"}], max_tokens: (40 - 4 * $i), ignore_eos: true}}'
    done >in
    jq -nc '{custom_id: "e", method: "POST", url: "/v1/embeddings", body: {input: "x"}}' >>in
    jq -nc '{custom_id: "bad", method: "POST", url: "/v1/audio", body: {}}' >>in
    run -1 --separate-stderr dt-serve --batch m "${common[@]}" --chat-template chatml <in
    [ "$(jq -r .custom_id <<<"$output" | xargs)" = "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 e bad" ]
    jq -se '.[0].response | .status_code == 200 and .body.object == "chat.completion" and .body.usage.completion_tokens == 40' <<<"$output"
    jq -se '.[10].response.body.data[0].embedding | length > 10' <<<"$output"
    jq -se '.[11].response | .status_code == 404 and .body.error.code == "not_found"' <<<"$output"
    strip='del(.response.body.id, .response.body.created, .response.body.usage)'
    jq -Sc "$strip" <<<"$output" | sort >want
    run -1 --separate-stderr dt-serve --batch m "${common[@]}" --chat-template chatml --unordered --max-num-seqs 4 <in
    jq -Sc "$strip" <<<"$output" | sort | diff want -
    # output of an interrupted run: three complete lines and the first half of the fourth
    { head -n 3 <<<"$output"; sed -n 4p <<<"$output" | head -c 50; } >out
    have=$(head -n 3 out | jq -r .custom_id | sort | xargs)
    run -1 --separate-stderr dt-serve --batch m "${common[@]}" --chat-template chatml --skip-done out <in
    [ "$(wc -l <<<"$output")" = 9 ]
    for id in $have; do
        [ -z "$(jq -r --arg i "$id" 'select(.custom_id == $i)' <<<"$output")" ]
    done
    # Output is normally appended to the same file: the half line is removed, each answer has its own line.
    dt-serve --batch m "${common[@]}" --chat-template chatml --skip-done out <in >>out || [ $? -eq 1 ]
    [ "$(jq -c . out | wc -l)" = "$(wc -l <out)" ]
    [ "$(jq -r .custom_id out | sort -u | wc -l)" = "$(jq -r .custom_id in | sort -u | wc -l)" ]
    # a complete answer that only lacks its newline is kept
    head -n 3 prompts.jsonl | dt-serve --batch m "${common[@]}" >whole
    head -n 2 whole | head -c -1 >out
    head -n 3 prompts.jsonl | dt-serve --batch m "${common[@]}" --skip-done out >>out
    cmp whole out
    # requests without custom_id are identified by their index
    head -n 6 prompts.jsonl | dt-serve --batch m "${common[@]}" >whole
    sed -n '2p;5p' whole >out
    head -n 6 prompts.jsonl | dt-serve --batch m "${common[@]}" --skip-done out | cat - out | jq -sc 'sort_by(.index)[]' | diff <(jq -c . whole) -
    run -2 dt-serve m --unordered
}

@test "--batch: answers are written while the input is open, also if it never ends" {
    mkfifo pipe
    dt-serve --batch m "${common[@]}" <pipe >answers 2>/dev/null 3>&- &
    server=$!
    exec 9>pipe
    echo '{"prompt": "a"}' >&9
    for _ in $(seq 1200); do
        [ -s answers ] && break
        sleep 0.05
    done
    [ "$(wc -l <answers)" = 1 ]
    exec 9>&-
    wait "$server"
    server=
    yes '{"prompt": "again and again", "max_tokens": 3}' 2>/dev/null | dt-serve --batch m "${common[@]}" 2>err | head -n 5 >five
    [ "$(wc -l <five)" = 5 ]
    run -1 grep -v loaded err
}

@test "--batch: a full disk gives one line and exit status 1" {
    run -1 --separate-stderr bash -c "head -n 3 prompts.jsonl | dt-serve --batch m ${common[*]} >/dev/full"
    [ "$(grep -vc loaded <<<"$stderr")" = 1 ]
    [[ "$stderr" == *"No space left on device"* ]]
}

@test "soak: 30% of requests cancelled, 10% malformed: expected statuses, no block leaks, memory is bounded" {
    start --chat-template chatml --speculate 3 --kv-cache-mem 500KiB --max-model-len 200 --max-num-seqs 16 \
        --max-num-batched-tokens 64 --queue 24
    python3 "$BATS_TEST_DIRNAME/serve-soak.py" "$url" "$server" "${DT_SOAK:-1200}" >soak # DT_SOAK=20000 takes half a minute
    cat soak
    jq -e '.ended | (keys - ["200", "400", "403", "404", "413", "503", "cancelled"]) == [] and .["200"] > 50' soak
    jq -e '.rss_kib | .[3] < .[1] + 8000' soak
    settles
    [ "$(metric 'request_success_total{model_name="tiny",finished_reason="error"}')" = 0 ]
}

@test "10,000 idle and slow connections: other clients are served, memory is bounded" {
    start
    status=0
    python3 "$BATS_TEST_DIRNAME/serve-hostile.py" "$url" "$server" idle 10000 >hostile || status=$?
    [ $status = 77 ] && skip "this process may not have 10,000 files open"
    cat hostile
    jq -e '.ended == {"200": 20} and .afterwards == "200" and .rss_kib < .rss_before_kib + 200000' hostile
    settles
}

@test "1,000 malformed requests: each is answered or closed, the next one is served, memory is bounded" {
    start
    python3 "$BATS_TEST_DIRNAME/serve-hostile.py" "$url" "$server" fuzz 1000 >hostile
    cat hostile
    jq -e '(.ended | (keys - ["200", "400", "403", "404", "405", "408", "413", "414", "431", "500", "501", "503", "505", "closed"]) == [])
        and .ended["400"] > 50 and .ended["200"] > 5 and .afterwards == "200"
        and .rss_kib < .rss_before_kib + 60000' hostile
    settles
}

@test "OpenAI's own client runs every endpoint, streams and errors included, directly and through dt-route" {
    printf 'rich tenant=a\npoor tenant=b tokens-per-minute=40\n' >keys
    mkdir files
    start --chat-template chatml --api-key-file keys --files-dir files
    status=0
    "${DT_OPENAI_PYTHON:-${DT_PEERS_PYTHON:-python3}}" "$BATS_TEST_DIRNAME/serve-openai.py" "$url" rich poor files || status=$?
    [ $status = 77 ] && skip "needs a Python with the package openai (DT_OPENAI_PYTHON, DT_PEERS_PYTHON)"
    [ $status = 0 ]
    jq -n --arg url "$url" '{servers: [{url: $url, key: "rich"}], api_key_file: "keys"}' >route.json
    dt-route --port 0 --config route.json >route-url 2>>log 3>&- &
    router=$!
    until grep -q 'is up$' log; do
        kill -0 "$router" || { cat log; return 1; }
        sleep 0.05
    done
    status=0
    "${DT_OPENAI_PYTHON:-${DT_PEERS_PYTHON:-python3}}" "$BATS_TEST_DIRNAME/serve-openai.py" "$(cat route-url)" rich poor || status=$?
    kill "$router"
    wait "$router" || true
    [ $status = 0 ]
}

@test "tools: calls and results in a loop through OpenAI's own client, arguments match their schema" {
    model=${DT_TEST_MODELS:-${DT_TEST_DATA:-$DT_SRC/../shared/data}/models}/SmolLM2-135M-Instruct.Q4_1.gguf
    [ -f "$model" ] || skip "needs $model (tests/data/golden_greedy.py --list)"
    : >url
    dt-serve "$model" --port 0 --threads 2 --served-model-name tiny >url 2>log 3>&- &
    server=$!
    until [ -s url ]; do
        kill -0 "$server" || { cat log; return 1; }
        sleep 0.05
    done
    status=0
    "${DT_OPENAI_PYTHON:-${DT_PEERS_PYTHON:-python3}}" "$BATS_TEST_DIRNAME/serve-tools.py" "$(cat url)" || status=$?
    [ $status = 77 ] && skip "needs a Python with the package openai (DT_OPENAI_PYTHON, DT_PEERS_PYTHON)"
    [ $status = 0 ]
    status=0
    "${DT_OPENAI_PYTHON:-${DT_PEERS_PYTHON:-python3}}" "$BATS_TEST_DIRNAME/serve-anthropic.py" "$(cat url)" none || status=$?
    [ $status = 0 ] || [ $status = 77 ]
    status=0
    "${DT_OPENAI_PYTHON:-${DT_PEERS_PYTHON:-python3}}" "$BATS_TEST_DIRNAME/serve-agent.py" "$(cat url)" || status=$?
    [ $status = 0 ] || [ $status = 77 ]
}

@test "OpenAI's and Anthropic's own clients and an agent: tools, messages, responses, directly and through dt-route" {
    py=${DT_OPENAI_PYTHON:-${DT_PEERS_PYTHON:-python3}}
    "$py" -c 'import agents, anthropic, openai' 2>/dev/null ||
        skip "needs a Python with the packages openai, anthropic and openai-agents (DT_PEERS_PYTHON)"
    "$DT_HELP/make-model" long llama-tiny 260 0 4096 # random weights suffice: schemas are enforced
    await dt-serve long "${common[@]}" --port 0 --served-model-name tiny --chat-template chatml --api-key rich
    jq -n --arg url "$url" '{servers: [{url: $url, key: "rich"}], api_key_file: "door"}' >door.json
    echo 'poor tenant=b' >door
    for name in tools anthropic agent; do
        timeout 300 "$py" "$BATS_TEST_DIRNAME/serve-$name.py" "$url" rich
    done
    dt-route --port 0 --config door.json >door-url 2>>log 3>&- &
    router=$!
    status=0
    until grep -q 'is up$' log; do
        kill -0 "$router" || { cat log; return 1; }
        sleep 0.05
    done
    for name in tools anthropic agent; do
        timeout 300 "$py" "$BATS_TEST_DIRNAME/serve-$name.py" "$(cat door-url)" poor || status=$?
    done
    kill "$router"
    wait "$router" || true
    [ "$status" -eq 0 ]
}

@test "tools with the template harmony: a required call in each API, whole and streamed, and its result" {
    "$DT_HELP/make-model" harmonic llama-tiny 260 0 4096 # random weights suffice: schemas are enforced
    await dt-serve harmonic "${common[@]}" --port 0 --served-model-name tiny --chat-template harmony
    schema='{"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": false}'
    chat=$(jq -nc --argjson s "$schema" '{messages: [{role: "user", content: "hi"}], tool_choice: "required", temperature: 0,
        tools: [{type: "function", function: {name: "put", description: "Puts", parameters: $s}}]}')
    post /v1/chat/completions "$chat" | head -n 1 >whole
    jq -e '.choices[0] | .finish_reason == "tool_calls" and .message.content == null and
        (.message.tool_calls | length == 1 and .[0].function.name == "put" and (.[0].function.arguments | fromjson | .x | . == 1 or . == 2))' whole
    args=$(jq -c '.choices[0].message.tool_calls[0].function.arguments' whole)
    curl -sN -d "$(jq -c '.stream = true' <<<"$chat")" "$url/v1/chat/completions" | sed -n 's/^data: {/{/p' >parts
    jq -se --argjson a "$args" '(map(.choices[0].delta.tool_calls[0].function.arguments // "") | add == $a) and
        .[-1].choices[0].finish_reason == "tool_calls"' parts
    # the prompt goes on behind the call
    jq -c --argjson c "$chat" '$c | .messages += [$w[0].choices[0].message | .reasoning_content = "Hm."] + [{role: "tool",
        tool_call_id: $w[0].choices[0].message.tool_calls[0].id, content: "R"}] | .tool_choice = "none" | .max_tokens = 5' \
        --slurpfile w whole <<<null >next
    post /v1/chat/completions "$(cat next)" | tail -n 1 | grep -qx 200
    post /apply-template "$(jq -c '{messages, tools}' next)" | head -n 1 |
        jq -re .prompt | grep -F '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.put<|channel|>commentary json<|message|>{' |
        grep -F '<|call|><|start|>functions.put to=assistant<|channel|>commentary<|message|>"R"<|end|><|start|>assistant'
    post /v1/responses "$(jq -nc --argjson s "$schema" '{input: "hi", tool_choice: "required", temperature: 0, reasoning: {effort: "low"},
        tools: [{type: "function", name: "put", description: "Puts", parameters: $s}]}')" | head -n 1 |
        jq -e '.output[-1] | .type == "function_call" and .name == "put"'
    post /v1/messages "$(jq -nc --argjson s "$schema" '{messages: [{role: "user", content: "hi"}], tool_choice: {type: "any"},
        temperature: 0, max_tokens: 500, tools: [{name: "put", description: "Puts", input_schema: $s}]}')" | head -n 1 |
        jq -e '.stop_reason == "tool_use" and .content[-1].type == "tool_use" and .content[-1].name == "put"'
}

@test "TLS: an answer and a stream, a client that disconnects, the page's origin; invalid certificate files" {
    command -v openssl >/dev/null || skip "openssl is not installed"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
    run -1 dt-serve m "${common[@]}" --port 0 --tls-cert key.pem --tls-key key.pem
    [[ "$output" == *"cannot start TLS"* && "${#lines[@]}" -eq 1 ]]
    run -1 dt-serve m "${common[@]}" --port 0 --tls-cert cert.pem --tls-key nothing
    [[ "$output" == *nothing* && "${#lines[@]}" -eq 1 ]]
    run -2 dt-serve m --port 0 --tls-cert cert.pem
    start --tls-cert cert.pem --tls-key key.pem
    [[ "$url" == https://127.0.0.1:* ]]
    body='{"prompt": "secret", "max_tokens": 30, "temperature": 0, "ignore_eos": true}'
    run ! curl -s "$url/health"
    want=$(curl -s --cacert cert.pem -d "$body" "$url/v1/completions" | jq -c '.choices[0].text')
    [ -n "$want" ]
    got=$(curl -sN --cacert cert.pem -d "${body%\}}, \"stream\": true}" "$url/v1/completions" |
        sed -n 's/^data: {/{/p' | jq -s -c 'map(.choices[0].text) | add')
    [ "$got" = "$want" ]
    [ "$(curl -s --cacert cert.pem -o /dev/null -w '%{http_code}' -H "Origin: $url" -d "$body" "$url/v1/completions")" -eq 200 ]
    # plain HTTP and TLS 1.1 are refused
    run ! curl -s "http://${url#https://}/health"
    run ! curl -s --cacert cert.pem --tls-max 1.1 "$url/health"
    # requests of clients that disconnect are cancelled
    for _ in $(seq 5); do
        curl -s --cacert cert.pem -m 0.05 -d '{"prompt": "x", "max_tokens": 400, "ignore_eos": true, "n": 8}' "$url/v1/completions" >/dev/null || true
    done
    curl() { command curl --cacert cert.pem "$@"; }
    settles
}

# upload FILE [CURL-OPTION...]: uploads a batch's input file; prints the file object
upload() {
    local file=$1
    shift
    curl -s -F purpose=batch -F "file=@$file" "$@" "$url/v1/files"
}

# ask_batch FILE-ID [ENDPOINT]: creates a batch; prints the batch object
ask_batch() {
    curl -s -d "{\"input_file_id\": \"$1\", \"endpoint\": \"${2:-/v1/completions}\", \"completion_window\": \"24h\"}" "$url/v1/batches"
}

# over ID: waits until the batch has ended; prints the batch object
over() {
    for _ in $(seq 600); do
        curl -s "$url/v1/batches/$1" >now.json
        jq -e '.status | IN("completed", "failed", "cancelled", "expired")' now.json >/dev/null && { cat now.json; return; }
        sleep 0.1
    done
    cat now.json
    return 1
}

# answering ID: waits until the first answers of the batch are stored
answering() {
    for _ in $(seq 3000); do
        [ -s store/"$1".part ] && return
        sleep 0.02
    done
    curl -s "$url/v1/batches/$1" >&2
    return 1
}

batch_lines() {
    jq -nc --argjson n "$1" 'range(1; $n + 1) as $i | {custom_id: "r\($i)", method: "POST", url: "/v1/completions",
        body: {prompt: "line \($i)", max_tokens: 30, seed: $i, ignore_eos: true}}'
}

@test "files and batches: answers are those of --batch, also after kill -9 in the middle" {
    rm -rf store
    batch_lines 240 >in.jsonl
    echo '{"custom_id": "bad", "method": "POST", "url": "/v1/completions", "body": {"prompt": 3}}' >>in.jsonl
    run -1 --separate-stderr dt-serve m "${common[@]}" --batch --served-model-name tiny <in.jsonl
    answers='map({(.custom_id): .response.body.choices}) | add'
    jq -s "map(select(.response.status_code == 200)) | $answers" <<<"$output" >want.json
    start --files-dir store --max-num-seqs 2
    [ "$(stat -c %a store)" = 700 ] # prompts and answers
    upload in.jsonl >file.json
    jq -e '.object == "file" and .purpose == "batch" and .filename == "in.jsonl" and .status == "processed"' file.json
    [ "$(jq .bytes file.json)" -eq "$(stat -c %s in.jsonl)" ]
    id=$(jq -r .id file.json)
    curl -s "$url/v1/files/$id/content" | cmp - in.jsonl
    batch=$(ask_batch "$id" | jq -r .id)
    answering "$batch"
    kill -KILL "$server"
    wait "$server" || true
    [ "$(wc -l <store/"$batch".part)" -lt 241 ]
    printf '{"custom_id": "r1", "resp' >>store/"$batch".part
    touch store/file-orphan store/file-orphan.tmp
    start --files-dir store --max-num-seqs 2
    over "$batch"
    jq -e '.status == "completed" and .request_counts == {total: 241, completed: 240, failed: 1} and .errors == null' now.json
    curl -s "$url/v1/files/$(jq -r .output_file_id now.json)/content" >out.jsonl
    [ "$(jq -r .custom_id out.jsonl | sort | uniq | wc -l)" -eq 240 ]
    [ "$(wc -l <out.jsonl)" -eq 240 ]
    jq -s "$answers" out.jsonl >got.json
    jq -ne 'input == input' want.json got.json
    curl -s "$url/v1/files/$(jq -r .error_file_id now.json)/content" | jq -e '.custom_id == "bad" and .response.status_code == 400'
    [ ! -e store/"$batch".part ] && [ ! -e store/file-orphan ] && [ ! -e store/file-orphan.tmp ]
    # lists of files and batches, in pages too; deleting; ids that are refused
    [ "$(curl -s "$url/v1/files" | jq '.data | length')" -eq 3 ]
    curl -s "$url/v1/files?purpose=batch" | jq -e '(.data | length) == 1 and (.has_more | not)'
    after=$(curl -s "$url/v1/files?limit=2" | jq -re 'select(.has_more) | .last_id')
    curl -s "$url/v1/files?limit=2&after=$after" | jq -e '(.data | length) == 1 and (.has_more | not)'
    for list in files batches; do
        [ "$(curl -s -o out -w '%{http_code}' "$url/v1/$list?after=file-none")" = 400 ]
        jq -e '.error.message == "\u0027after\u0027 is not the id of an entry of this list"' out
    done
    [ "$(curl -s "$url/v1/batches" | jq -r '.data[0].id')" = "$batch" ]
    jq -n --arg id "$id" '{input_file_id: $id, endpoint: "/v1/completions", completion_window: "24h",
        metadata: ([range(17) | {key: "k\(.)", value: "v"}] | from_entries)}' >many.json
    [ "$(curl -s -o out -w '%{http_code}' "$url/v1/batches" -d @many.json)" = 400 ]
    jq -e '.error.param == "metadata"' out
    curl -s -X DELETE "$url/v1/files/$id" | jq -e .deleted
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/files/$id")" -eq 404 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -X DELETE "$url/v1/files/..%2flock")" -eq 404 ]
    [ "$(curl -s -X POST -o /dev/null -w '%{http_code}' "$url/v1/batches/$batch/cancel")" -eq 409 ]
    # a folder belongs to one server at a time
    run -1 dt-serve m --port 0 --files-dir store
    [[ "$output" == *"in use"* ]]
}

# put_off: waits until the server's log says that it retries a batch
put_off() {
    for _ in $(seq 600); do
        grep -q "retrying batch" log && return
        sleep 0.1
    done
    cat log >&2
    return 1
}

restart() {
    kill -KILL "$server"
    wait "$server" || true
    start "$@"
}

@test "batches: the disk is full when answers are to be stored: they are stored once there is space" {
    rm -rf store
    mkdir store
    mount -t tmpfs -o size=96k none store 2>/dev/null || skip "mount needs more rights"
    batch_lines 100 >in.jsonl
    start --files-dir store
    batch=$(ask_batch "$(upload in.jsonl | jq -r .id)" | jq -r .id)
    rc=0
    { put_off && grep -q "No space left" log && curl -s "$url/v1/batches/$batch" >full && mount -o remount,size=1m store &&
        over "$batch" >now && curl -s "$url/v1/files/$(jq -r .output_file_id now)/content" >out.jsonl; } || rc=1
    kill -KILL "$server"
    wait "$server" || true
    left=$(find store -name '*.part' -o -name '*.tmp')
    umount store
    [ "$rc" -eq 0 ]
    jq -e '.status == "finalizing" and .finalizing_at and .request_counts.completed == 100' full
    jq -e '.status == "completed" and .errors == null and .request_counts.completed == 100' now
    [ "$(jq -r .custom_id out.jsonl | sort | uniq | wc -l)" -eq 100 ]
    [ -z "$left" ]
}

@test "batches: while answers cannot be stored or read, nothing is lost and other batches continue" {
    rm -rf store away
    batch_lines 60 >in.jsonl
    start --files-dir store --max-num-seqs 2
    id=$(upload in.jsonl | jq -r .id)
    # a folder has the name of the output file; then the input is deleted and the server is killed
    for try in {1..20}; do # the batch may be done before the folder is made
        batch=$(ask_batch "$id" | jq -r .id)
        place=store/$(jq -r ._output "store/$batch.json")
        ! mkdir "$place" || break
    done
    [ "$try" -lt 20 ]
    put_off
    grep -q "Is a directory" log
    curl -s "$url/v1/batches/$batch" | jq -e '.status == "finalizing" and .request_counts.completed == 60'
    other=$(ask_batch "$id" | jq -r .id)
    over "$other" | jq -e '.status == "completed"'
    curl -s -X DELETE "$url/v1/files/$id" | jq -e .deleted
    restart --files-dir store --max-num-seqs 2
    put_off
    rmdir "$place"
    over "$batch" | jq -e '.status == "completed" and .request_counts == {total: 60, completed: 60, failed: 0}'
    [ "$(curl -s "$url/v1/files/$(jq -r .output_file_id now.json)/content" | wc -l)" -eq 60 ]
    [ ! -e "store/$batch.part" ]
    # the folder of --files-dir is moved away for a while
    batch_lines 120 >in.jsonl
    restart --files-dir store --max-num-seqs 2
    batch=$(ask_batch "$(upload in.jsonl | jq -r .id)" | jq -r .id)
    answering "$batch"
    mv store away
    put_off
    grep -q "No such file" log
    mv away store
    over "$batch" | jq -e '.status == "completed" and .errors == null and .request_counts.completed == 120'
    [ "$(curl -s "$url/v1/files/$(jq -r .output_file_id now.json)/content" | wc -l)" -eq 120 ]
    # The answers so far cannot be read: the batch does not end without them.
    batch=$(ask_batch "$(upload in.jsonl | jq -r .id)" | jq -r .id)
    answering "$batch"
    kill -KILL "$server"
    wait "$server" || true
    for how in "ln -s $batch.part" mkdir; do
        mv "store/$batch.part" part
        [ "$(wc -l <part)" -gt 0 ]
        jq -c '.status = "cancelling" | .cancelling_at = .created_at' "store/$batch.json" >cancelling.json
        cp cancelling.json "store/$batch.json"
        $how "store/$batch.part"
        start --files-dir store --max-num-seqs 2
        put_off
        curl -s "$url/v1/batches/$batch" | jq -e '.status == "cancelling" and .output_file_id == null'
        kill -KILL "$server"
        wait "$server" || true
        rm -d "store/$batch.part"
        mv part "store/$batch.part"
    done
    n=$(jq -R 'fromjson? | select(.response.status_code == 200)' "store/$batch.part" | jq -s length)
    start --files-dir store
    over "$batch" | jq -e --argjson n "$n" '.status == "cancelled" and .request_counts.completed == $n'
    [ "$(curl -s "$url/v1/files/$(jq -r .output_file_id now.json)/content" | wc -l)" -eq "$n" ]
}

@test "batches: SIGTERM, cancelling, invalid input, embeddings, --files-size, tenants" {
    rm -rf store
    batch_lines 400 >in.jsonl
    start --files-dir store --files-size 200KiB --max-num-seqs 2
    id=$(upload in.jsonl | jq -r .id)
    batch=$(ask_batch "$id" | jq -r .id)
    answering "$batch"
    kill -TERM "$server"
    rc=0
    wait "$server" || rc=$?
    [ "$rc" -eq 0 ]
    start --files-dir store --files-size 200KiB --max-num-seqs 2
    curl -s -X POST "$url/v1/batches/$batch/cancel" | jq -e '.status | IN("cancelling", "cancelled")'
    over "$batch" | jq -e '.status == "cancelled" and .cancelling_at and .cancelled_at and .request_counts.failed == 0'
    [ "$(curl -s "$url/v1/files/$(jq -r .output_file_id now.json)/content" | wc -l)" -eq "$(jq .request_counts.completed now.json)" ]
    # Each line must be a valid request with an id of its own, and an upload must have a file and its purpose.
    { batch_lines 2; batch_lines 1; echo '[]'; echo '{"custom_id": "x", "method": "GET"}'; echo; } >bad.jsonl
    over "$(ask_batch "$(upload bad.jsonl | jq -r .id)" | jq -r .id)" |
        jq -e '.status == "failed" and [.errors.data[].line] == [3, 4, 5] and .errors.data[0].code == "duplicate_custom_id"'
    [ "$(curl -s -o /dev/null -w '%{http_code}' -F purpose=batch -F a=b "$url/v1/files")" -eq 400 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -F purpose=evals -F file=@bad.jsonl "$url/v1/files")" -eq 400 ]
    # refused, because not supported: files that expire, and lists that begin with the oldest
    curl -s -F purpose=batch -F 'expires_after[seconds]=3600' -F file=@bad.jsonl "$url/v1/files" |
        jq -e '.error.message | test("expires_after.seconds")'
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/files?order=asc")" -eq 400 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/files?order=desc")" -eq 200 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -d '{}' "$url/v1/files")" -eq 400 ]
    printf -- '--cut\r\nContent-Type: text/plain\r\n\r\nno name\r\n--cut--\r\n' >nameless
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Content-Type: multipart/form-data; boundary=cut' --data-binary @nameless \
        "$url/v1/files")" -eq 400 ]
    ask_batch file-none | jq -e '.error.param == "input_file_id"'
    ask_batch "$id" /v1/models | jq -e '.error.param == "endpoint"'
    # another endpoint
    printf '%s\n' '{"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"input": "x"}}' >e.jsonl
    over "$(ask_batch "$(upload e.jsonl | jq -r .id)" /v1/embeddings | jq -r .id)" | jq -e '.request_counts.completed == 1'
    curl -s "$url/v1/files/$(jq -r .output_file_id now.json)/content" | jq -e '.response.body.data[0].embedding | length > 0'
    # a file larger than --files-size
    head -c 250000 /dev/zero | tr '\0' ' ' >big
    upload big | jq -e '.error.code == "storage_full"'
    [ "$(find store -name '*.tmp' | wc -l)" -eq 0 ]
    kill -KILL "$server"
    wait "$server" || true
    # a tenant sees only its own files
    printf 'alpha tenant=a\nbeta tenant=b tokens-per-minute=6000\n' >keys
    rm -rf store
    start --api-key-file keys --files-dir store
    id=$(upload e.jsonl -H 'Authorization: Bearer alpha' | jq -r .id)
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer beta' "$url/v1/files/$id")" -eq 404 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer alpha' "$url/v1/files/$id")" -eq 200 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/files")" -eq 401 ]
    # a waiting batch belongs to its tenant while it is being cancelled, and afterwards
    alpha=(-H 'Authorization: Bearer alpha')
    curl() { command curl "${alpha[@]}" "$@"; }
    id=$(upload in.jsonl | jq -r .id)
    first=$(ask_batch "$id" | jq -r .id)
    second=$(ask_batch "$id" | jq -r .id)
    curl -s -X POST "$url/v1/batches/$second/cancel" | jq -e '.status == "cancelling" and (has("_tenant") | not)'
    curl -s "$url/v1/batches" | jq -e '.data | length == 2'
    curl -s -X POST "$url/v1/batches/$first/cancel" | jq -e ".id // .error" # it may be done already
    over "$second" | jq -e '.status == "cancelled"'
    kill -KILL "$server"
    wait "$server" || true
    start
    curl -s "$url/v1/files" | jq -e '.error.message | contains("--files-dir")'
}

@test "the page in a browser: answers are the API's; stop, history, plain completion, API key, phone" {
    command -v chromium >/dev/null || skip "chromium is not installed"
    start --chat-template chatml --api-key secret
    keyed=$server keyed_url=$url
    start --chat-template chatml
    rc=0
    timeout 400 python3 "$DT_SRC/tests/cli/serve-page.py" "$url" "$server" "$keyed_url" secret >out 2>&1 || rc=$?
    kill -KILL "$keyed"
    wait "$keyed" || true
    cat out
    [ "$rc" -eq 0 ]
}

@test "the page and /slots: what they contain, and who may read them" {
    start
    curl -s -D head "$url/" -o page
    grep -q '^<!doctype html>' page
    grep -q 'SPDX' page
    nonce=$(sed -n "s/.*script-src 'nonce-\([0-9a-f]*\)'.*/\1/p" head)
    [ -n "$nonce" ]
    [ "$(grep -c "nonce=\"$nonce\"" page)" -eq 2 ]
    ! grep -E '(src|href)=.?(https?:)?//' page || false
    [ "$(curl -sI -o /dev/null -w '%{http_code}' "$url/")" -eq 200 ]
    curl -s "$url/slots" | jq -e '.current and .running == 0 and .requests == [] and .free_blocks == .blocks'
    # requests of this server's own page are accepted, but only with a host name of this machine
    origin() {
        curl -s -o /dev/null -w '%{http_code}' -H "Origin: $1" -H "Host: $2" -d '{"prompt": "x", "max_tokens": 1}' "$url/v1/completions"
    }
    at=${url#http://}
    [ "$(origin "$url" "$at")" -eq 200 ]
    [ "$(origin "http://localhost:1" "$at")" -eq 403 ]
    [ "$(origin "http://evil.example" evil.example)" -eq 403 ]
    kill -KILL "$server"
    wait "$server" || true
    start --api-key secret
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/")" -eq 200 ]
    [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/slots")" -eq 401 ]
    curl -s -H 'Authorization: Bearer secret' "$url/slots" | jq -e '.running == 0'
}

@test "invalid options, and models that cannot be served, are refused with the reason" {
    run -2 dt-serve
    [[ "$output" == *"Try 'dt-serve --help'"* ]]
    run -2 dt-serve m --max-num-seqs 600 --max-num-batched-tokens 500
    run -2 dt-serve m --precision int3
    run -1 dt-serve no-such-folder --port 0
    "$DT_HELP/make-model" small llama-tiny 200
    run -1 dt-serve small --port 0
    [[ "$output" == *"the tokenizer has 257 token ids, but the model's vocabulary size is 200"* ]]
    run -1 dt-serve m --port 0 --draft-model small
    [[ "$output" == *"vocabulary sizes differ: "*" has 200 tokens"* ]]
    run -1 dt-serve m --port 0 --max-model-len 100000
    [[ "$output" == *"context length of 512"* ]]
    run -1 dt-serve m --port 0 --kv-cache-mem 1KiB
    [[ "$output" == *"--max-model-len"* ]]
    run -1 dt-serve m --port 0 --host no.such.host.invalid
}

@test "options that would have no effect are refused: without the option that they belong to, or with --batch" {
    without() { # OPTION REQUIRED: using OPTION without REQUIRED is refused
        # shellcheck disable=SC2086 # an option and its value
        run -2 timeout 60 dt-serve m --port 0 $1
        [[ "$output" == *"${1%% *} requires $2"* ]] || { echo "$1: $output"; return 1; }
    }
    for option in '--prefill-min 9' '--prefill-timeout 9' '--prefill-mem 1MiB'; do without "$option" --prefill; done
    for option in '--max-loras 2' '--max-lora-rank 2' '--lora-quota 9' --any-base; do without "$option" --lora; done
    without '--files-size 1MiB' --files-dir
    for option in '--http-mem 512' '--files-dir d --files-size 4' '--role both --prefill http://127.0.0.1:1 --prefill-mem 1'; do
        # shellcheck disable=SC2086
        run -2 timeout 60 dt-serve m --port 0 $option
        [[ "$output" == *"a size without a unit is in bytes"* ]] || { echo "$option: $output"; return 1; }
    done
    for option in '--port 0' '--host ::1' '--http-mem 1MiB' '--allow-origin https://chat.example.org'; do
        # shellcheck disable=SC2086
        run -2 timeout 60 dt-serve m --batch $option </dev/null
        [[ "$output" == *"${option%% *} cannot be combined with --batch"* ]] || { echo "$option: $output"; return 1; }
    done
}

@test "a model that dt-train trained on repeated letters continues them, served from its checkpoint folder" {
    yes abcdefgh | head -n 400 | tr -d '\n' >letters.txt
    dt-dataset build --tokenizer byte --out letters.h5 letters.txt
    dt-train --model gpt2-tiny --data letters.h5 --seq 32 --microbatch 4 --steps 60 --lr 3e-3 --warmup 5 --precision fp32 \
        --no-mfu --threads 1 --save run >/dev/null
    for p in fp32 bf16; do
        run -0 --separate-stderr dt-serve --batch --model-dir run --precision $p --threads 1 \
            <<<'{"prompt": "cdefghabcdefgha", "max_tokens": 12, "temperature": 0}'
        [ "$(jq -r .text <<<"$output")" = bcdefghabcde ]
    done
}

@test "--replay of a --trace makes the same scheduling decisions, and detects a changed trace" {
    tight=(--max-num-seqs 32 --max-model-len 160 --max-num-batched-tokens 40 --block-size 8 --kv-cache-mem 250KiB)
    jq -c '{custom_id: "\(.seed)", method: "POST", url: "/v1/completions", body: (.n = (if .seed % 9 == 0 then 3 else 1 end))}' \
        prompts.jsonl >choices.jsonl
    for how in "" "--speculate 4" "--no-prefix-caching"; do
        # shellcheck disable=SC2086 # word splitting is intended
        dt-serve --batch m "${common[@]}" "${tight[@]}" $how --trace decisions.jsonl <choices.jsonl >out.jsonl
        dt-serve --replay decisions.jsonl >again
        jq -e '.schema == 1 and .different_steps == 0' again
        [ "$(jq .requests again)" = "$(grep -c '^{"submit"' decisions.jsonl)" ]
        [ "$(jq .steps again)" = "$(grep -c '^{"step"' decisions.jsonl)" ]
        [ "$(jq .tokens again)" = "$(jq -s '[.[].plan // [] | .[][2]] | add' decisions.jsonl)" ]
        [ "$(jq .preemptions again)" -gt 0 ]
    done
    jq -c 'if .step == 20 then .plan[0][2] += 1 else . end' decisions.jsonl >other.jsonl
    run -3 --separate-stderr dt-serve --replay other.jsonl
    [ "$(jq .different_steps <<<"$output")" = 1 ]
    [[ "$stderr" == *"step 20 is the first"* ]]
    # another --max-num-batched-tokens, which changes the decisions
    sed '1s/"max_tokens":40/"max_tokens":50/' decisions.jsonl >other.jsonl
    run dt-serve --replay other.jsonl
    [ "$status" = 3 ] || [ "$status" = 1 ]
    (head -n 2 decisions.jsonl; echo '{"computed":0,"to":99999,"n":1}') >other.jsonl
    run -1 dt-serve --replay other.jsonl
    [[ "$output" == *"other.jsonl:3"* ]]
    run -1 dt-serve --replay /dev/null
    run -2 dt-serve --replay decisions.jsonl m
    run -1 dt-serve --batch m --trace /dev/full <choices.jsonl
    [[ "$output" == *"is incomplete: writing failed"* ]]
}

# FLOPs of qwen3-8b by hand: each of 512 rows is multiplied by a layer's 4096 x (6144 + 4096 + 3 x 12288)
# weights, 64 rows by the head's. Attention computes half of the pairs of query and key (causal mask). One
# token's keys and values take 147456 bytes.
@test "--print-program: FLOPs of a step equal those computed by hand, and so do the costs of decoding" {
    run -0 dt-serve --print-program qwen3-8b --max-num-batched-tokens 512 --max-num-seqs 64 --max-model-len 1000
    echo "$output"
    awk 'length > 80 { exit 1 }' <<<"$output"
    pass=$(awk '$1 == "pass" { print $2 }' <<<"$output")
    jq -en "(2 * (512 * 36 * 4096 * (6144 + 4096 + 3 * 12288) + 64 * 4096 * 151936) +
        36 * 4 * 4096 * 512 * 513 / 2) / 1e9 | (. / $pass - 1 | fabs) < 0.001"
    [[ $output == *"linear qkv       qkv[512,6144]"*"x 34 alike"*"picked rows[64,4096]"* ]]
    read -r gflop mib < <(sed -n 's/^decoding .* 1000 keys each: \([0-9.]*\) GFLOP, \([0-9.]*\) MiB/\1 \2/p' <<<"$output")
    # Memory traffic: all weights once in bf16 (of the embedding only the looked-up rows), the KV cache, and
    # at most 4% for activations.
    jq -en "(64 * 1000 * 147456 + 2 * (36 * 4096 * (6144 + 4096 + 3 * 12288) + 4096 * 151936)) / 1048576
        | $mib / . | . > 1 and . < 1.04"
    jq -en "64 * (2 * (36 * 4096 * (6144 + 4096 + 3 * 12288) + 4096 * 151936) + 36 * 4 * 4096 * 1000) / 1e9
        | (. / $gflop - 1 | fabs) < 0.001"
    # q4_0: 4 bits per weight, and half a bit per weight for scales
    run -0 dt-serve --print-program qwen3-8b --weights q4_0
    [[ $output == *"weights of 4.5 bits"* ]]
    run -1 dt-serve --print-program no-such-model
    run -2 dt-serve --print-program
}
# SPDX-License-Identifier: Apache-2.0
