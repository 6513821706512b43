#!/usr/bin/env bats
# Serving with weights that do not fit into memory: the same tokens, the predicted memory, and faults.

bats_require_minimum_version 1.5.0
load ranks
load server

setup_file() {
    on_ranks
    model d llama 8 512
    model x mixtral 4 256
    dt-shard-ckpt quantize --type q8_0 d d-q8.gguf
    dt-shard-ckpt quantize --type q4_k d d-q4.gguf
    dt-shard-ckpt quantize --type q8_0 x x-q8.gguf
    dt-shard-ckpt convert --to safetensors x x-hf
}

# model NAME TYPE LAYERS FFN [HIDDEN]: writes a model with random weights
model() {
    local arch=LlamaForCausalLM
    [ "$2" = llama ] || arch=MixtralForCausalLM
    jq -n "{model_type: \"$2\", architectures: [\"$arch\"], hidden_size: ${5:-256}, intermediate_size: $4,
        num_hidden_layers: $3, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 260,
        max_position_embeddings: 256, rms_norm_eps: 1e-5, rope_theta: 10000, tie_word_embeddings: false}
        + if \"$2\" == \"mixtral\" then {num_local_experts: 8, num_experts_per_tok: 2} else {} end" >"$1.json"
    "$DT_HELP/make-model" "$1" "$1.json" 260 0 256
}

setup() {
    in_folder
    rm -rf sw
    mkdir sw
    common=(--batch --tokenizer byte --threads 1 --max-num-seqs 4)
}

# answers OPTION...: dt-serve's answers to three prompts, one of them long; stderr goes to err
answers() {
    jq -nc '("Hello world", "abc", ("some words " * 12)) | {prompt: ., max_tokens: 20, temperature: 0}' |
        "${launch[@]}" dt-serve "${common[@]}" "$@" 2>err | jq -c '[.text, .usage]'
}

faulty() { # CALL:N[+]:WHAT COMMAND...: runs it with fault.so
    local fault=$1
    shift
    LD_PRELOAD=$DT_HELP/fault.so DT_FAULT=$fault "$@"
}

@test "greedy tokens are those of a server with all weights in memory: dense, experts, quantized, files" {
    for run in d:12MiB:fp32 d:8MiB:bf16 d-q8.gguf:4MiB:bf16 d-q4.gguf:2MiB:fp32 x:11MiB:fp32 x:10MiB:bf16 x-hf:8MiB:bf16 \
        x-q8.gguf:4MiB:bf16; do
        IFS=: read -r of memory precision <<<"$run"
        answers --precision "$precision" "$of" >plain
        [ "$(wc -l <plain)" = 3 ]
        answers --precision "$precision" --weights-disk sw --weights-memory "$memory" "$of" >disk || { echo "$run"; cat err; return 1; }
        diff plain disk || { echo "$run"; cat err; return 1; }
        grep -q "on disk; a step with one sequence reads .* (measured) allow .* tokens/s" err || { cat err; return 1; }
        [ -z "$(ls sw)" ]
    done
}

@test "over ranks each has a file: tokens are those of the same layout in memory" {
    for run in d:tp2:3MiB d:pp2:4MiB x:tp2:5MiB x:pp2:6MiB; do
        IFS=: read -r of layout memory <<<"$run"
        launch=(mpirun -np 2)
        answers --layout "$layout" "$of" >plain
        [ "$(wc -l <plain)" = 3 ]
        answers --layout "$layout" --weights-disk sw --weights-memory "$memory" "$of" >disk || { echo "$run"; cat err; return 1; }
        diff plain disk || { echo "$run"; cat err; return 1; }
        grep -q "on disk" err
    done
}

@test "speculative decoding, a draft model and a KV cache in host memory work with it" {
    answers d >plain
    for more in "--speculate 4" "--draft-model x" "--kv-host 8MiB"; do
        # shellcheck disable=SC2086
        answers --weights-disk sw --weights-memory 6MiB $more d >disk
        diff plain disk || { echo "$more"; return 1; }
    done
}

@test "DoRA adapters: row norms are computed from weights read on demand" {
    head -c 6000 "$DT_SRC/LICENSE" >text
    dt-dataset build --tokenizer byte --out text.h5 text
    dt-train --model d --data text.h5 --seq 32 --microbatch 4 --steps 4 --lr 3e-2 --warmup 1 --no-mfu --threads 1 \
        --precision fp32 --lora 4 --dora --save run-dora
    for run in 1:8MiB:bf16:d 1:4MiB:fp32:d-q8.gguf 2:3MiB:bf16:d; do
        IFS=: read -r ranks memory precision of <<<"$run"
        launch=(mpirun -np "$ranks")
        [ "$ranks" = 1 ] && launch=()
        more=(--precision "$precision" --any-base --served-model-name d)
        for how in plain disk; do
            [ $how = disk ] && more+=(--weights-disk sw --weights-memory "$memory")
            jq -nc '("Hello world", "abc") | {model: ("dora", "d"), prompt: ., max_tokens: 20, temperature: 0, logprobs: 1}' |
                "${launch[@]}" dt-serve "${common[@]}" "${more[@]}" --lora dora=run-dora "$of" 2>err | jq -c '[.text, .logprobs.token_logprobs]' >$how
        done
        grep -q "on disk" err
        [ "$(sort -u plain | wc -l)" = 4 ]
        diff plain disk || { echo "$run"; cat err; return 1; }
    done
    export PATH=$DT_HELP:$PATH
    command -v dt-serve-emulated >/dev/null || return 0 # not built without a C++ compiler
    for how in plain disk; do # a GPU server computes them, too
        more=(--device cuda --precision bf16 --max-model-len 32)
        [ $how = disk ] && more+=(--weights-memory 8MiB)
        jq -nc '{model: "dora", prompt: "Hello", max_tokens: 3, temperature: 0, logprobs: 1}' |
            dt-serve-emulated "${common[@]}" "${more[@]}" --lora dora=run-dora d 2>err | jq -ce '[.text, .logprobs.token_logprobs]' >$how
    done
    grep -q "in host memory" err
    diff plain disk
}

@test "dt-eval: the same perplexity, and the same scores of a task" {
    head -c 3000 "$DT_SRC/LICENSE" >text
    printf '%s\n' '{"question": "Apache", "choices": ["License", "zzz"], "answer": 0}' \
        '{"question": "You may", "choices": ["not", "reproduce"], "answer": 1}' >q.jsonl
    for of in d:8MiB x:8MiB; do
        dt-eval ppl --tokenizer byte --threads 1 --seq 64 --text text --json "${of%:*}" >plain
        dt-eval ppl --tokenizer byte --threads 1 --seq 64 --text text --json --weights-disk sw --weights-memory "${of#*:}" "${of%:*}" >disk
        diff <(jq -S 'del(.. | .seconds?, .tokens_per_s?)' plain) <(jq -S 'del(.. | .seconds?, .tokens_per_s?)' disk)
        dt-eval task --tokenizer byte --threads 1 --seq 64 --predictions plain q.jsonl "${of%:*}"
        dt-eval task --tokenizer byte --threads 1 --seq 64 --predictions disk --weights-disk sw --weights-memory "${of#*:}" q.jsonl "${of%:*}"
        diff plain disk
        run -1 faulty scratch-fallocate:1:28 dt-eval task --tokenizer byte --threads 1 --seq 64 --weights-disk sw \
            --weights-memory "${of#*:}" q.jsonl "${of%:*}"
        [[ "$output" == *"in 'sw': No space left on device"* ]] # so the file is really used
    done
}

@test "dt-rollout: the same answers with the same log-probabilities, and a disk that fails" {
    for of in d:8MiB x:8MiB; do
        draw=(dt-rollout sample --task count:3 --count 6 --group 4 --max-tokens 12 --threads 1 --tokenizer byte --seq 64)
        "${draw[@]}" "${of%:*}" 2>/dev/null | jq -S . >plain
        [ -s plain ]
        "${draw[@]}" --weights-disk sw --weights-memory "${of#*:}" "${of%:*}" 2>/dev/null | jq -S . >disk
        diff plain disk
        [ -z "$(ls sw)" ]
    done
    run -1 faulty scratch-fallocate:1:28 "${draw[@]}" --weights-disk sw --weights-memory 8MiB x
    [[ "$output" == *"cannot reserve "*" in 'sw': No space left on device"* ]]
    run -2 "${draw[@]}" --weights-disk sw --weights-memory 8MiB http://localhost:1
    [[ "$output" == *"--weights-disk cannot be combined with a server"* ]]
    run -2 "${draw[@]}" --weights-disk sw d
}

@test "dt-memest predicts the memory and the bytes read" {
    for run in d:8MiB x:8MiB d-q4.gguf:2MiB; do
        IFS=: read -r of memory <<<"$run"
        answers --kv-cache-mem 64MiB --weights-disk sw --weights-memory "$memory" "$of" >/dev/null
        more=(--precision bf16)
        [ "$of" = d-q4.gguf ] && more=()
        dt-memest --serve "$of" "${more[@]}" --weights-memory "$memory" --weights-disk sw --max-seqs 4 --max-len 256 >said || true
        [ "$(sed -n 's/.*weights: \(.* in memory, .* on disk\);.*/\1/p' err)" = \
            "$(sed -n 's/^weights: \(.* in memory, .* on disk\);.*/\1/p' said)" ] || { cat err said; return 1; }
        grep -q "^sw: .* enough" said
        dt-memest --serve "$of" "${more[@]}" --weights-memory "$memory" --disk-bandwidth 2 --json >said.json
        jq -e '.weights_read_bytes > 0 and (.weights_tokens_per_s * .weights_read_bytes - 2e9 | fabs) < 1 and
            .disk_bytes >= .weights_read_bytes' said.json
    done
}

@test "/metrics: bytes read, seconds waited, experts found in memory" {
    # OPTION...: of a server after one request: bytes read, seconds waited, experts in memory, experts read
    counts() {
        await "${launch[@]}" dt-serve --tokenizer byte --threads 1 --max-num-seqs 4 --port 0 "$@"
        curl -s "$url/v1/completions" -d '{"prompt": "Hello world", "max_tokens": 20, "temperature": 0}' | jq -e .usage >&2
        curl -s "$url/metrics" >metrics
        kill "$server"
        wait "$server" || true
        server=
        awk '/^dt_serve_(weights_read|experts)_/ {printf "%s ", $2}' metrics
    }
    read -r bytes waited hits misses <<<"$(counts --weights-disk sw --weights-memory 8MiB x)"
    # the prompt and each of 20 steps select two or more experts per layer; reads are multiples of an expert's
    # slot
    awk "BEGIN {exit !($bytes > 0 && $waited > 0 && $hits + $misses >= 20 * 4 * 2 && $misses > 0 && $bytes % 4096 == 0)}"
    [ $((bytes % misses)) = 0 ]
    read -r bytes waited hits misses <<<"$(counts --weights-disk sw --weights-memory 8MiB d)"
    awk "BEGIN {exit !($bytes > 0 && $waited > 0 && $hits == 0 && $misses == 0)}"
    [ -z "$(counts d)" ]
    launch=(mpirun -np 2) # metrics of the first rank
    read -r bytes waited hits misses <<<"$(counts --layout tp2 --weights-disk sw --weights-memory 3MiB d)"
    awk "BEGIN {exit !($bytes > 0 && $waited > 0 && $hits == 0 && $misses == 0)}"
}

@test "with weights in a file the server runs in memory that is too small without" {
    takes_long
    model big llama 12 1408 512
    export OMP_NUM_THREADS=1
    common+=(--precision fp32 --kv-cache-mem 8MiB --max-model-len 192)
    answers big >plain
    (
        ulimit -d 140000
        run -0 answers --weights-disk sw --weights-memory 45MiB big
        diff <(echo "$output") plain
        answers big >out || true
        [ ! -s out ]
        grep -qi "memory\|alloc\|map" err
    )
}

@test "a fault is named, and nothing stays in the folder" {
    opts=("${common[@]}" --weights-disk sw --weights-memory 6MiB d)
    answers "${opts[@]:3}" >plain
    for fault in scratch-fallocate:1:28 scratch-statvfs:1:1; do
        run -1 faulty $fault dt-serve "${opts[@]}" </dev/null
        [[ "$output" == *"cannot reserve "*" in 'sw': No space left on device"* ]]
    done
    run -1 faulty scratch-pwrite:2:5 dt-serve "${opts[@]}" </dev/null
    [[ "$output" == *"cannot write byte "*" of the file in 'sw': Input/output error"* ]]
    run -1 faulty scratch-pread:1:5 dt-serve "${opts[@]}" </dev/null
    [[ "$output" == *"cannot read byte "*" of the file in 'sw': Input/output error"* ]]
    prompt='{"prompt": "Hello world", "max_tokens": 20, "temperature": 0}'
    run -1 faulty scratch-pread:40+:5 dt-serve "${opts[@]}" <<<"$prompt"
    [[ "$output" == *"cannot read byte "*" of the file in 'sw': Input/output error"* ]]
    run -1 faulty scratch-pread:40+:change dt-serve "${opts[@]}" <<<"$prompt"
    [[ "$output" == *"of the weights is not as it was written: the file in 'sw' was changed, or its disk fails"* ]]
    run -137 faulty scratch-pread:40:kill dt-serve "${opts[@]}" <<<"$prompt"
    [ -z "$(ls sw)" ]
    for fault in scratch-pread:30:short scratch-pwrite:1:short; do
        faulty $fault dt-serve "${opts[@]}" <<<"$prompt" 2>/dev/null | jq -c '[.text, .usage]' | diff - <(head -1 plain)
    done
    rmdir sw
    run -1 dt-serve "${opts[@]}" </dev/null
    [[ "$output" == *"cannot use the folder 'sw': No such file or directory"* ]]
}

@test "incompatible options, and too little memory" {
    run -2 dt-serve --batch --weights-disk sw d
    [[ "$output" == *"--weights-memory"* ]]
    run -2 dt-serve --batch --weights-memory 8MiB d
    [[ "$output" == *"--weights-disk"* ]]
    run -1 dt-serve --batch --weights-disk sw --weights-memory 1MiB d </dev/null
    [[ "$output" == *"1.00 MiB of memory for weights is too little: "*" that always stays in memory and for three layers"* ]]
    run -1 dt-serve --batch --weights-disk sw --weights-memory 1MiB x </dev/null
    [[ "$output" == *"and for all experts of a layer and one more"* ]]
    least=$(sed -n 's/.* too little: \([0-9.]*\) MiB is needed.*/\1/p' <<<"$output")
    run -0 answers --weights-disk sw --weights-memory "$(jq -n "$least * 1.01")MiB" x
    run -1 dt-memest --serve d --account generic --weights-memory 8MiB
    [[ "$output" == *"--account dt"* ]]
    answers --weights-disk sw --weights-memory 1GiB d >/dev/null
    grep -q "all fit into .* of memory" err
}

@test "emulated GPU: other weights in host memory or a file; the same tokens, the predicted memory" {
    PATH=$DT_HELP:$PATH
    command -v dt-serve-emulated >/dev/null || skip "no C++ compiler, no emulated card"
    local run of memory precision more queues=mixed n=1
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2
    model cd llama 6 128 64
    model cx mixtral 3 64 64
    model cy llama 10 128 64
    dt-shard-ckpt quantize --type q8_0 cd cd-q8.gguf
    card() { # RANKS OPTION...
        local launch=(mpirun -np "$1")
        answers() {
            jq -nc '("Hello world", "abc", ("some words " * 4)) | {prompt: ., max_tokens: 6, temperature: 0}' |
                "${launch[@]}" dt-serve-emulated --device cuda "${common[@]}" "$@" 2>err | jq -c '[.text, .usage]'
        }
        answers "${@:2}"
    }
    one_of 4 "1 cd 600KiB fp32" "1 cx 400KiB bf16 --weights-disk sw" "1 cd-q8.gguf 200KiB bf16 --weights-disk sw" "2 cd 160KiB bf16 --layout tp2" \
        "1 cx 1MiB fp32 --weights-disk sw" "1 cx 1MiB fp32" "2 cx 450KiB fp32 --layout tp2" "2 cy 300KiB bf16 --layout pp2"
    for run in "${some[@]}"; do
        read -r n of memory precision more <<<"$run"
        queues=$([ $queues = late ] && echo mixed || echo late) # kernels/cuda/emulate/queue.h
        # shellcheck disable=SC2086
        card "$n" --precision "$precision" ${more/--weights-disk sw/} "$of" >plain
        [ "$(wc -l <plain)" = 3 ]
        # shellcheck disable=SC2086
        DT_EMULATED_QUEUES=$queues card "$n" --precision "$precision" --weights-memory "$memory" $more "$of" >away || { echo "$run"; cat err; return 1; }
        diff plain away || { echo "$run"; cat err; return 1; }
        grep -q "in memory, .* $([[ $more == *disk* ]] && echo 'on disk' || echo "in host memory"); a step with one sequence reads .*iB" err ||
            { echo "$run"; cat err; return 1; }
        [ -z "$(ls sw)" ]
    done
    run -1 faulty scratch-pread:6:change dt-serve-emulated --device cuda "${common[@]}" --weights-disk sw --weights-memory 600KiB \
        --precision fp32 cd <<<'{"prompt": "abc", "max_tokens": 6}'
    [[ "$output" == *"of the weights is not as it was written: the file in 'sw' was changed"* ]]
}
# SPDX-License-Identifier: Apache-2.0
