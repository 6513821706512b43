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

@test "texts are embedded and ranked with the tokens that a template puts around them" {
    common=(--precision fp32 --threads 1)
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer "$DT_SRC/tests/data/tokenizer/wp-uncased.json" --out words.h5 text.txt
    dt-train --model bert-tiny --vocab 701 --data words.h5 --seq 64 --microbatch 2 --steps 1 --precision fp32 --threads 1 --no-mfu \
        --progress off --save words >m.jsonl 2>/dev/null
    jq -e '.run.model.mask_token == 4' m.jsonl # [MASK] of that tokenizer
    dt-shard-ckpt convert words/latest wordhf --to safetensors 2>/dev/null
    eval "$(dt-tokenize info --json --tokenizer "$DT_SRC/tests/data/tokenizer/wp-uncased.json" |
        jq -r '"bos=\(.bos_id) end=\(.end_id)"')"
    start words/latest
    ids=$(post /tokenize '{"prompt": "hello"}' | jq -c .tokens)
    jq -e --argjson bos "$bos" --argjson last "$end" 'length > 2 and .[0] == $bos and .[-1] == $last' <<<"$ids"
    [ "$(post /v1/embeddings '{"input": "hello"}' | jq -c .data)" = "$(post /v1/embeddings "{\"input\": $ids}" | jq -c .data)" ]
    stop
    python3 "$DT_SRC/tests/cli/cross-encoder.py" wordhf cross
    sed -i 's/"model_max_length": [0-9]*/"model_max_length": 1000000000000000019884624838656/' cross/tokenizer_config.json # as transformers writes it
    start cross
    post /v1/rerank "{\"query\": $ids, \"documents\": [[$bos, 40, $end], [$bos, 50, 51, $end]]}" >ids.json
    post /v1/rerank '{"query": "hello", "documents": ["b", "c d"]}' >texts.json
    jq -e '.results | length == 2 and all(.[]; .relevance_score > 0 and .relevance_score < 1)' ids.json texts.json
    post /v1/score "{\"text_1\": \"hello\", \"text_2\": [[$bos, 50, 51, $end]]}" | jq -e --slurpfile r ids.json \
        '(.data[0].score - ($r[0].results[] | select(.index == 1) | .relevance_score) | fabs) < 1e-6'
}

# A checkpoint of a small encoder of this family with a tokenizer.json: FAMILY VOCAB TYPES TOKENIZER NAME
small() {
    jq -n --arg f "$1" --argjson v "$2" --argjson t "$3" '{model_type: $f, vocab_size: $v, hidden_size: 64, num_hidden_layers: 2,
        num_attention_heads: 2, intermediate_size: 128, max_position_embeddings: 130, type_vocab_size: $t,
        architectures: ["ForMaskedLM"]}' >"$5-config.json"
    dt-dataset build --tokenizer "$4" --out "$5.h5" text.txt
    dt-train --model "$5-config.json" --init random --mask-token 3 --data "$5.h5" --seq 64 --microbatch 2 --steps 1 --precision fp32 \
        --threads 1 --no-mfu --progress off --save "$5" --metrics m.jsonl 2>/dev/null
}

# Ids and embeddings of texts by the server of MODEL, in NAME.ids and NAME.json.
embed_texts() { # MODEL NAME
    start "$1"
    for text in "the Work  or Derivative Works" "a" "Grüße, naïve ﬁn"; do
        post /tokenize "$(jq -n --arg t "$text" '{prompt: $t}')" | jq -c .tokens
    done >"$2.ids"
    post /v1/embeddings '{"input": ["the Work  or Derivative Works", "a", "Grüße, naïve ﬁn"]}' >"$2.json"
    stop
}

# The largest difference of two answers is below MOST.
within() { # MOST A B
    jq -e --argjson most "$1" --slurpfile b "$3" '[[.data[].embedding | .[]], [$b[0].data[].embedding | .[]]] | transpose |
        length > 0 and (map(.[0] - .[1] | fabs) | max < $most)' "$2"
}

@test "GGUF files of BERT, RoBERTa and XLM-RoBERTa have the same token ids and embeddings" {
    common=(--precision fp32 --threads 1)
    cat "$DT_SRC/LICENSE" >text.txt
    jq '.post_processor = {type: "RobertaProcessing", cls: ["!", 0], sep: ["#", 2], trim_offsets: true, add_prefix_space: false}' \
        "$DT_SRC/tests/data/tokenizer/gpt2.json" >bpe.json
    jq '.post_processor.single = [{SpecialToken: {id: "<pad>", type_id: 0}}] + .post_processor.single |
        .post_processor.special_tokens["<pad>"] = {id: "<pad>", ids: [0], tokens: ["<pad>"]}' \
        "$DT_SRC/tests/data/tokenizer/ug-t5.json" >ug.json
    small bert 701 2 "$DT_SRC/tests/data/tokenizer/wp-uncased.json" wp
    small roberta 512 1 bpe.json bpe
    small xlm-roberta 525 1 ug.json ug
    for k in wp bpe ug; do
        run -0 --separate-stderr dt-shard-ckpt convert $k/latest $k.gguf
        [[ "$stderr" == *"the head that predicts masked tokens is left out, since GGUF has none"* ]]
        dt-shard-ckpt convert --type q8_0 $k/latest $k-q8.gguf 2>/dev/null
        for key in bert.attention.causal tokenizer.ggml.token_type_count tokenizer.ggml.seperator_token_id; do
            grep -qaF $key $k.gguf # llama.cpp needs them
        done
        embed_texts $k/latest $k
        embed_texts $k.gguf $k-file
        embed_texts $k-q8.gguf $k-q8
        cmp $k.ids $k-file.ids
        cmp $k.ids $k-q8.ids
        jq -se 'all(.[]; length > 2)' $k.ids
        within 1e-6 $k.json $k-file.json
        within 2e-2 $k.json $k-q8.json
        run ! within 1e-5 $k.json $k-q8.json
    done
    # llama-quantize makes a vector of the single row of token types
    python3 - <<-'END'
	import struct
	d = open("ug.gguf", "rb").read()
	at = d.index(b"general.name") + 16
	d = d[:at] + struct.pack("<Q", struct.unpack_from("<Q", d, at)[0] + 8) + b"another-" + d[at + 8:]
	at = d.index(b"token_types.weight") + 18
	assert struct.unpack_from("<IQQ", d, at) == (2, 64, 1)
	open("vector.gguf", "wb").write(d[:at] + struct.pack("<IQ", 1, 64) + d[at + 20:])
	END
    dt-shard-ckpt diff ug.gguf vector.gguf
    # what has been read is written again alike
    dt-shard-ckpt convert ug.gguf again.gguf
    cmp ug.gguf again.gguf
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
