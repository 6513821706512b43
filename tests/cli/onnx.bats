#!/usr/bin/env bats
# dt-shard-ckpt export: onnxruntime computes what dt-eval computes, for decoders and image classifiers; bad
# input.
# shellcheck disable=SC2154 # stderr: set by run --separate-stderr
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    head -c 2561 "$DT_SRC/LICENSE" >text.txt
    head -c 64 text.txt >window.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    # heads rotated in part, by adjacent pairs
    jq -n '{model_type: "glm4", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12, max_position_embeddings: 64}' >glm4.json
    # factors of embeddings, scores, residuals and logits
    jq -n '{model_type: "granite", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2,
        num_attention_heads: 4, max_position_embeddings: 64, embedding_multiplier: 12, attention_multiplier: 0.125,
        residual_multiplier: 0.22, logits_scaling: 3}' >granite.json
    # attention and MLP beside each other
    jq -n '{model_type: "gpt_neox", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2,
        num_attention_heads: 4, max_position_embeddings: 64, rotary_pct: 0.5}' >neox.json
    # attention and MLP read one norm, which has no bias
    jq -n '{model_type: "cohere", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, logit_scale: 0.25}' >cohere.json
    for m in llama-tiny gpt2-tiny glm4 granite neox cohere; do
        dt-train --model "$([ -e $m.json ] && echo $m.json || echo $m)" --data d.h5 --seq 64 --steps 3 --lr 3e-3 --threads 1 --no-mfu --precision fp32 --save $m >$m.log
    done
}

setup() {
    in_folder
}

check() { # ARGUMENT... of onnx_logits.py
    local status=0
    python3 "$DT_SRC/tests/cli/onnx_logits.py" "$@" || status=$?
    [ $status -ne 77 ] || skip "no onnxruntime for python3"
    return $status
}

@test "decoders: the log-likelihood of a text is dt-eval's" {
    for m in llama-tiny gpt2-tiny glm4 granite neox cohere; do
        dt-shard-ckpt export $m $m.onnx
        nll=$(dt-eval ppl --threads 1 --precision fp32 --tokenizer byte --text window.txt --seq 64 --json $m | jq .nll)
        check text $m.onnx window.txt "$nll"
    done
}

@test "image classifiers: probabilities are dt-eval's" {
    check make
    dt-dataset images -o grey.h5 a.idx l.idx
    dt-dataset images -o colour.h5 c.bin
    for m in cnn2 simple-dnn resnet-9 airbench94; do
        data=grey.h5 raw=a.idx
        [[ $m == cnn2 || $m == simple-dnn ]] || data=colour.h5 raw=c.bin
        dt-train --model $m --data $data --precision fp32 --no-mfu --threads 1 --lr 1e-3 --microbatch 12 --steps 2 --save $m
        dt-eval images $data $m --precision fp32 --batch 24 --threads 1 --predictions given.jsonl --json
        dt-shard-ckpt export $m $m.onnx
        check images $m.onnx $raw given.jsonl
    done
}

@test "the same file every time; unsupported models are refused by name" {
    dt-shard-ckpt export llama-tiny one.onnx
    dt-shard-ckpt export llama-tiny two.onnx
    cmp one.onnx two.onnx
    for word in input_ids logits layers.0.attn.q.weight Softmax; do
        grep -qaF "$word" one.onnx
    done
    dt-shard-ckpt quantize --type q8_0 --tokenizer none llama-tiny small.gguf
    dt-shard-ckpt export small.gguf small.onnx
    [ "$(stat -c %s small.onnx)" -gt 400000 ]
    refuse() { # STATUS TEXT ARGUMENT...: stderr contains TEXT
        run --separate-stderr -"$1" timeout 60 dt-shard-ckpt export "${@:3}"
        [[ $stderr == *"$2"* ]] || { echo "not '$2' but: $stderr"; return 1; }
    }
    refuse 1 'one.onnx' llama-tiny one.onnx
    refuse 1 'nowhere' nowhere none.onnx
    # what cannot be written is the file, not one of its tensors; nothing is left of it
    run -1 bash -c "trap '' XFSZ; ulimit -f 8; exec dt-shard-ckpt export llama-tiny full.onnx"
    [[ $output == *"cannot write 'full.onnx': File too large"* ]]
    ! ls full.onnx* || return 1
    refuse 1 'not/there' llama-tiny not/there.onnx
    dt-shard-ckpt upcycle --experts 2 --top-k 1 llama-tiny mixed
    refuse 1 "'route" mixed none.onnx
    [ ! -e none.onnx ]
}
# SPDX-License-Identifier: Apache-2.0
