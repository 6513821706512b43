#!/usr/bin/env bats
# Encoders served: embeddings, pooling, ranking, refused requests.
# shellcheck disable=SC2154 # url is set by await

bats_require_minimum_version 1.5.0
load server

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    PATH=$DT_BIN:$PATH
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    dt-train --model bert-tiny --data d.h5 --seq 64 --microbatch 2 --steps 2 --precision fp32 --threads 1 --no-mfu \
        --progress off --save run 2>/dev/null
    dt-shard-ckpt convert run/latest hf --to safetensors 2>/dev/null
}

setup() {
    in_server_folder
    common=(--precision fp32 --threads 1 --tokenizer byte)
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

post() {
    curl -s -m 60 -H 'Content-Type: application/json' -d "$2" "$url$1"
}

@test "embeddings are of length 1, and the same alone and among others" {
    start run/latest
    post /v1/embeddings '{"input": [[1, 2, 3], "a longer text of bytes", [9], [3, 2, 1]]}' >many.json
    jq -e '.data | length == 4 and all(.[]; (.embedding | map(. * .) | add) as $n | ($n - 1 | fabs) < 1e-6)' many.json
    post /v1/embeddings '{"input": "a longer text of bytes"}' >one.json
    jq -e --slurpfile one one.json '[.data[1].embedding, $one[0].data[0].embedding] | transpose |
        all(.[]; (.[0] - .[1] | fabs) < 1e-6)' many.json
    # with attention in both directions, the order of tokens counts, and the first token sees the last
    jq -e '.data[0].embedding != .data[3].embedding' many.json
}

@test "pooling: of all tokens by default, of the first with --pooling cls or as sentence-transformers says" {
    start hf
    post /v1/embeddings '{"input": [[5, 6, 7]]}' >mean.json
    stop
    start hf --pooling cls
    post /v1/embeddings '{"input": [[5, 6, 7]]}' >cls.json
    stop
    cp -r hf st
    mkdir st/1_Pooling
    echo '{"word_embedding_dimension": 64, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}' \
        >st/1_Pooling/config.json
    start st
    post /v1/embeddings '{"input": [[5, 6, 7]]}' >st.json
    [ "$(jq -c .data cls.json)" = "$(jq -c .data st.json)" ]
    [ "$(jq -c .data cls.json)" != "$(jq -c .data mean.json)" ]
    echo '{"pooling_mode_max_tokens": true}' >st/1_Pooling/config.json
    run dt-serve st "${common[@]}" --port 0
    [ "$status" -ne 0 ]
    [[ "$output" == *"pooling 'max_tokens' is not supported"* ]]
}

@test "without classes, texts are ranked by cosines" {
    start run/latest
    post /v1/rerank '{"query": "abc", "documents": ["xyz", "abc"]}' >rank.json
    jq -e '.results[0].index == 1 and (.results[0].relevance_score - 1 | fabs) < 1e-6' rank.json
}

@test "what an encoder cannot do is refused" {
    start run/latest
    for body in '/v1/completions {"prompt":"a"}' '/v1/chat/completions {"messages":[{"role":"user","content":"a"}]}'; do
        post "${body%% *}" "${body#* }" | jq -e '.error.message == "this model is an encoder: it embeds and ranks texts, but generates none"'
    done
    post /v1/embeddings "{\"input\": [[$(seq -s, 1 129)]]}" | jq -e '.error.code == "context_length_exceeded"'
    stop
    run dt-serve run/latest "${common[@]}" --port 0 --max-num-batched-tokens 100
    [ "$status" -ne 0 ]
    [[ "$output" == *"--max-num-batched-tokens 100 is below the length of 128"* ]]
    run dt-serve run/latest "${common[@]}" --port 0 --speculate 2
    [[ "$output" == *"is an encoder, which is not served with drafts"* ]]
}
# SPDX-License-Identifier: Apache-2.0
