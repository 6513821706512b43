#!/usr/bin/env bats
# Models that read images, served: answers of transformers (tests/data/golden_vlm.py), the prefix cache, refusals.
# shellcheck disable=SC2154 # url is set by await

bats_require_minimum_version 1.5.0
load server

setup() {
    in_server_folder
    vlm=$DT_SRC/tests/data/vlm
    common=(--precision fp32 --threads 1)
}

start() { # MODEL OPTION...
    local model=$1
    shift
    await dt-serve "$model" "${common[@]}" --port 0 --served-model-name tiny "$@"
}

stop() {
    kill -TERM "$server"
    wait "$server" || true
    server=
}

# ask FILE CASE [JQ]: the reply to the case's messages, changed by a filter.
ask() {
    jq -c ".\"$2\" | {messages, max_tokens: 12, temperature: 0, ignore_eos: true, logprobs: true} ${3:+| $3}" "$1" |
        curl -s -m 60 -H 'Content-Type: application/json' -d @- "$url/v1/chat/completions"
}

# as_wanted FILE CASE REPLY: whether the reply has the golden tokens.
as_wanted() {
    jq -e --arg case "$2" --slurpfile file "$1" '$file[0][$case] as $want |
        .usage.prompt_tokens == $want.prompt_tokens and .usage.completion_tokens == 12 and
        [.choices[0].logprobs.content[].bytes] == $want.tokens' "$3"
}

refused() { # FILE CODE WORDS
    jq -e --arg code "$2" --arg words "$3" '.error.code == $code and (.error.message | contains($words))' "$1"
}

@test "answers about one and two images, and about none, are those of transformers" {
    for model in smolvlm idefics3; do
        start "$vlm/$model"
        for case in one two turns text; do
            ask "$vlm/$model.json" "$case" >reply
            as_wanted "$vlm/$model.json" "$case" reply
            ask "$vlm/$model.json" "$case" >again # from the prefix cache
            as_wanted "$vlm/$model.json" "$case" again
            jq -e '.usage.prompt_tokens_details.cached_tokens > 16' again
        done
        stop
        cp -r "$vlm/$model" whole
        chmod -R u+w whole
        sed -i 's/"do_image_splitting": true/"do_image_splitting": false/' whole/processor_config.json
        start whole
        ask "$vlm/$model.json" whole >reply
        as_wanted "$vlm/$model.json" whole reply
        stop
        rm -r whole
    done
}

@test "requests with and without images, at once and in small steps, are answered as each alone" {
    start "$vlm/idefics3" --max-num-batched-tokens 40 --max-num-seqs 6 --no-prefix-caching
    for i in 1 2; do
        for case in one two turns text; do
            ask "$vlm/idefics3.json" "$case" >"reply.$i.$case" &
            pids+=($!)
        done
    done
    wait "${pids[@]}"
    for i in 1 2; do
        for case in one two turns text; do
            as_wanted "$vlm/idefics3.json" "$case" "reply.$i.$case"
        done
    done
}

@test "a small cache: choices that were preempted still know their images" {
    # 4 choices share 12 blocks of the prompt, and each writes 7 more: there are 33
    start "$vlm/idefics3" --kv-cache-mem 300KiB --max-model-len 340 --max-num-seqs 4 --no-prefix-caching
    ask "$vlm/idefics3.json" one '.max_tokens = 100 | .n = 4' >reply
    jq -e --slurpfile file "$vlm/idefics3.json" '[.choices[] | [.logprobs.content[].bytes]] as $all |
        ($all | length == 4 and all(.[]; length == 100 and . == $all[0])) and $all[0][:12] == $file[0].one.tokens' reply
    curl -s "$url/metrics" | grep -E '^[a-z:_]*num_preemptions_total.* [1-9]'
}

@test "images of other contents share no blocks, though their tokens are the same" {
    start "$vlm/smolvlm"
    ask "$vlm/smolvlm.json" two >both
    # the two images of the case, each alone: the same tokens in the same places
    for i in 0 1; do
        ask "$vlm/smolvlm.json" two ".messages[0].content |= [.[$((2 * i))], .[0], {type: \"text\", text: \"what?\"}]" >"reply.$i"
    done
    jq -e '.error == null' reply.0
    stop
    start "$vlm/smolvlm" --no-prefix-caching
    for i in 0 1; do
        ask "$vlm/smolvlm.json" two ".messages[0].content |= [.[$((2 * i))], .[0], {type: \"text\", text: \"what?\"}]" >"alone.$i"
        jq -e --slurpfile alone "alone.$i" '.choices[0].message == $alone[0].choices[0].message and
            ((.choices[0].logprobs.content[0].logprob - $alone[0].choices[0].logprobs.content[0].logprob) | fabs) < 1e-5' \
            "reply.$i"
    done
    jq -e '.usage.prompt_tokens_details.cached_tokens > 16' reply.0 # begins as both does
    jq -e '.usage.prompt_tokens_details.cached_tokens == 0' reply.1
    jq -e --slurpfile other reply.1 '.choices[0].message != $other[0].choices[0].message' reply.0
}

@test "several choices of one prompt, streams, and lines of a batch read images" {
    start "$vlm/smolvlm"
    ask "$vlm/smolvlm.json" one '.n = 3' >reply
    jq -e --slurpfile file "$vlm/smolvlm.json" \
        '[.choices[] | [.logprobs.content[].bytes] == $file[0].one.tokens] == [true, true, true]' reply
    ask "$vlm/smolvlm.json" one '.add_generation_prompt = false' >reply # without "Assistant:"
    jq -e --slurpfile file "$vlm/smolvlm.json" '.usage.prompt_tokens < $file[0].one.prompt_tokens' reply
    ask "$vlm/smolvlm.json" one '.stream = true' | sed -n 's/^data: {/{/p' |
        jq -se --slurpfile file "$vlm/smolvlm.json" \
            '[.[].choices[0].logprobs.content // [] | .[].bytes] == $file[0].one.tokens'
    stop
    jq -c '.one, .text | {messages, max_tokens: 12, temperature: 0, ignore_eos: true}' "$vlm/smolvlm.json" >lines
    dt-serve --batch "$vlm/smolvlm" "${common[@]}" <lines >answers
    jq -se 'length == 2 and all(.[]; .error == null and .usage.completion_tokens == 12)' answers
}

@test "images that cannot be read are refused, each with a clear error" {
    start "$vlm/smolvlm" --max-images 2
    f=$vlm/smolvlm.json
    with() { # JQ: the value of image_url.url, or of a part
        ask "$f" one ".messages[0].content[1] |= ($1)" >reply
    }
    with '.image_url.url = "https://example.org/cat.png"'
    refused reply bad_image 'image 0: its URL is not a data: URL'
    refused reply bad_image 'the server fetches no images'
    with '.image_url.url = "file:///etc/passwd"'
    refused reply bad_image 'not a data: URL'
    with '.image_url.url = "data:image/png,abc"'
    refused reply bad_image 'not in base64'
    with '.image_url.url = "data:image/png;base64,@@@"'
    refused reply bad_image 'base64 is not valid'
    with '.image_url.url = "data:image/png;base64,QUJDRA=="'
    refused reply bad_image 'neither PNG nor JPEG'
    with '.image_url.url |= .[:200]'
    refused reply bad_image 'image 0'
    with '.image_url.detail = "low"'
    refused reply bad_image "'detail' must be auto or high"
    with '{type: "image", image: "x"}'
    refused reply bad_image 'type is not image_url'
    with '.image_url = {}'
    refused reply bad_image "'image_url.url' is not a string"
    ask "$f" one '.messages[0].content += [.messages[0].content[1], .messages[0].content[1]]' >reply
    refused reply too_many_images '3 images, more than the 2 allowed'
    ask "$f" one '.messages[0].role = "assistant"' >reply
    jq -e '.error.message | contains("the assistant'"'"'s, which has no images")' reply
    ask "$f" one '.truncate_prompt_tokens = 8' >reply
    jq -e '.error.param == "truncate_prompt_tokens"' reply
    # a header that claims more pixels than are allowed, before they take memory
    png=$(printf '\211PNG\r\n\032\n\0\0\0\rIHDR\0\0\177\377\0\0\177\377\b\2\0\0\0' | base64 -w0)
    with ".image_url.url = \"data:image/png;base64,$png\""
    refused reply bad_image 'image 0'
    # other routes take texts alone
    jq -c '.one | {messages}' "$f" | curl -s -d @- "$url/tokenize" >reply
    jq -e '.error.message | contains("not text")' reply
    # and all that did no harm
    ask "$f" one >reply
    as_wanted "$f" one reply
}

@test "garbage images harm nobody" {
    start "$vlm/smolvlm"
    for file in "$DT_SRC"/tests/fuzz/corpus/image/*; do
        tail -c +2 "$file" | base64 -w0 | jq -Rc '{messages: [{role: "user", content: [{type: "image_url", image_url:
            {url: ("data:image/png;base64," + .)}}]}], max_tokens: 1}' |
            curl -s -m 60 -d @- "$url/v1/chat/completions" |
            jq -e '.usage != null or (.error.code == "bad_image" or .error.code == "context_length_exceeded")'
    done >results
    grep -q true results
    ask "$vlm/smolvlm.json" one >reply
    as_wanted "$vlm/smolvlm.json" one reply
}

@test "a model of text alone refuses images" {
    "$DT_HELP/make-model" m
    start m --chat-template chatml
    ask "$vlm/smolvlm.json" one >reply
    refused reply no_images 'this model reads no images'
}

not_served() { # WORDS OPTION...
    local words=$1
    shift
    run dt-serve "$vlm/smolvlm" "${common[@]}" --port 0 "$@"
    [ "$status" -eq 1 ]
    [[ "$output" == *"$words"* ]]
}

@test "what does not go with images is refused at the start" {
    not_served "reads images, and is not served with drafts" --speculate 4
    not_served "reads images, and is not served with --kv-host and --kv-disk" --kv-host 1MiB
    not_served "reads images, and is not served with --role" --role decode
    not_served "reads images, and is not served with adapters" --lora-dir .
    not_served "reads images, and is not served with weights on disk" --weights-disk . --weights-memory 1MiB
    run dt-train --model "$vlm/smolvlm" --data none.h5
    [ "$status" -ne 0 ]
    [[ "$output" == *"served but not trained"* ]]
    run dt-memest "$vlm/smolvlm"
    [ "$status" -eq 1 ]
    [[ "$output" == *"served but not trained"* ]]
    run dt-plan "$vlm/smolvlm"
    [ "$status" -eq 1 ]
    [[ "$output" == *"served but not trained"* ]]
    run dt-plan --serve --gpu H100 --rate 20 "$vlm/smolvlm"
    [ "$status" -eq 1 ]
    [[ "$output" == *"servers of it are not planned"* ]]
    run dt-shard-ckpt convert "$vlm/smolvlm" out --to gguf
    [ "$status" -eq 1 ]
    [[ "$output" == *"served but not converted"* ]]
    [ ! -e out ]
}

@test "settings of the processor that are not supported are named" {
    for change in '.image_seq_len = 9;becomes 4 rows' '.image_processor.resample = 4;resample' \
        '.image_processor.max_image_size.longest_edge = 20;cannot be joined' \
        '.image_processor.size = {"height": 4, "width": 4};longest_edge'; do
        rm -rf odd
        cp -r "$vlm/smolvlm" odd
        chmod -R u+w odd
        jq "${change%;*}" "$vlm/smolvlm/processor_config.json" >odd/processor_config.json
        run dt-serve odd "${common[@]}" --port 0
        [ "$status" -eq 1 ]
        [[ "$output" == *"${change#*;}"* ]]
    done
}
# SPDX-License-Identifier: Apache-2.0
