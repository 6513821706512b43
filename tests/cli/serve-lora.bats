#!/usr/bin/env bats
# Adapters beside their base in one server: each answers as its merged weights do, whichever requests share
# the batch. They are loaded, unloaded, wait for slots in memory; unsupported ones are refused by name.

bats_require_minimum_version 1.5.0
load server

setup_file() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    # A base model that writes one of four words after "The ", and an adapter for each word.
    python3 -c '
import random
random.seed(1)
words = ["alpha", "bravo", "charlie", "delta"]
open("base.txt", "w").write("".join("The %s " % random.choice(words) for _ in range(4000)))
for w in words:
    open(w + ".txt", "w").write(("The %s " % w) * 800)'
    for t in base bravo charlie delta; do
        dt-dataset build --tokenizer byte --out $t.h5 $t.txt
    done
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 3,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 128, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: false}' >llama.json
    common=(--seq 64 --microbatch 8 --global-batch 8 --precision fp32 --no-mfu --threads 1 --lr 1e-2)
    dt-train --model llama.json --data base.h5 "${common[@]}" --warmup 5 --steps 80 --save base
    mkdir adapters
    for w in bravo charlie delta; do
        dt-train --model base --data $w.h5 "${common[@]}" --warmup 2 --steps 12 --lora 4 --save run-$w
        dt-shard-ckpt lora-merge --to dt base run-$w merged-$w
        dt-shard-ckpt lora-convert base run-$w adapters/$w
    done
    dt-shard-ckpt lora-convert base run-delta adapters/delta.gguf
    dt-train --model base --data charlie.h5 "${common[@]}" --warmup 2 --steps 12 --lora 4 --dora --save run-dora
}

setup() {
    in_server_folder
    common=(--precision fp32 --threads 1)
}

# start OPTION...: starts a server of the base on a free port; sets $server (pid) and $url
start() {
    await dt-serve base "${common[@]}" --port 0 --served-model-name base "$@"
}

# post ROUTE JQ-BODY: prints the answer's body, then the status on a line of its own
post() {
    jq -nc "$2" | curl -s -m 100 -w '\n%{http_code}\n' -H 'Content-Type: application/json' -d @- "$url$1"
}

# says MODEL: the word that it writes after "The "
says() {
    post /v1/completions "{model: \"$1\", prompt: \"The \", max_tokens: 10, temperature: 0}" | head -1 |
        jq -r '.choices[0].text // .error.message' | cut -d' ' -f1
}

# expect STATUS TEXT ROUTE JQ-BODY
expect() {
    local got
    got=$(post "$3" "$4")
    [ "$(tail -1 <<<"$got")" = "$1" ] && [[ $got == *"$2"* ]] || { echo "$got" >&2; return 1; }
}

metric() {
    curl -s "$url/metrics" | awk -v n="dt_serve_$1" 'index($1, n) == 1 { s += $2 } END { print s + 0 }'
}

lines() { # MODEL...: six prompts for each
    for m in "$@"; do
        for i in $(seq 6); do
            jq -nc --arg m "$m" --argjson i "$i" '{model: $m, prompt: ("The " + "alpha The " * ($i % 3)), max_tokens: (10 + $i),
                temperature: (if $i < 4 then 0 else 1 end), seed: $i}'
        done
    done
}

@test "each adapter answers as its merged weights do, in mixed batches, with any number of slots" {
    for m in base bravo charlie delta; do
        dir=merged-$m
        [ $m = base ] && dir=base
        lines $m | jq -c 'del(.model)' | dt-serve --batch "${common[@]}" "$dir" 2>/dev/null | jq -r .text
    done >want
    [ "$(sort -u want | wc -l)" -gt 8 ]
    for places in 1 2 64; do
        lines base bravo charlie delta | dt-serve --batch "${common[@]}" base --served-model-name base --lora bravo=run-bravo \
            --lora charlie=adapters/charlie --lora delta=adapters/delta.gguf --max-loras $places --max-num-seqs 24 2>/dev/null |
            jq -r .text >got
        cmp want got
    done
}

@test "over a quantized base and in bf16" {
    for weights in q8_0 q4_0; do
        for m in bravo charlie; do
            jq -nc "{model: \"$m\", prompt: \"The \", max_tokens: 10, temperature: 0}"
        done | dt-serve --batch --threads 1 --weights $weights base --lora bravo=adapters/bravo --lora charlie=adapters/charlie 2>/dev/null |
            jq -r '.text[:5]' >got
        [ "$(paste -sd' ' got)" = "bravo charl" ]
    done
}

@test "DoRA: bytes as estimated; over a quantized base the row norms are those of the quantized rows" {
    start --lora dora=run-dora --max-loras 1
    [ "$(says dora)" = charlie ]
    [ "$(metric lora_memory_bytes)" = "$(dt-memest base --serve --precision fp32 --max-loras 1 --max-lora-rank 4 --dora --json |
        jq '.categories[] | select(.name == "adapters").bytes')" ]
    kill -TERM "$server"
    wait "$server"
    server=
    run -2 dt-memest base --serve --dora
    # reference: the dequantized base merged with the adapter in fp32
    dt-shard-ckpt convert --type q8_0 base blocks.gguf
    dt-shard-ckpt lora-merge --any-base --to safetensors blocks.gguf run-dora merged-blocks
    ask='{prompt: "The charlie The ", max_tokens: 8, temperature: 0, logprobs: 5}'
    chosen='[.choices[0].logprobs.token_logprobs[]]'
    await dt-serve merged-blocks --tokenizer byte "${common[@]}" --port 0 --served-model-name base
    post /v1/completions "$ask + {model: \"base\"}" | head -1 >want.json
    kill -TERM "$server"
    wait "$server"
    await dt-serve blocks.gguf --tokenizer byte "${common[@]}" --port 0 --served-model-name base --any-base --lora dora=run-dora
    post /v1/completions "$ask + {model: \"dora\"}" | head -1 >got.json
    [ "$(jq .choices[0].text want.json)" = "$(jq .choices[0].text got.json)" ]
    jq -en --argjson a "$(jq "$chosen" want.json)" --argjson b "$(jq "$chosen" got.json)" \
        '[$a, $b] | transpose | map((.[0] - .[1]) | fabs) | max < 0.02'
}

@test "over ranks: each holds its part, answers are those of one process" {
    takes_long
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=/bin/false
    all=(base "${common[@]}" --served-model-name base --lora bravo=run-bravo --lora charlie=adapters/charlie
        --lora delta=adapters/delta.gguf --lora dora=run-dora)
    lines base bravo charlie delta dora >prompts
    dt-serve --batch "${all[@]}" <prompts 2>/dev/null | jq -r .text >want
    [ "$(sort -u want | wc -l)" -gt 8 ]
    for layout in tp2 pp2 dp2 tp2.pp2 tp4; do
        case $layout in tp2 | pp2 | dp2) n=2 ;; *) n=4 ;; esac
        for places in 1 64; do
            mpirun -np $n dt-serve --batch "${all[@]}" --layout $layout --max-loras $places --max-num-seqs 12 <prompts 2>log | jq -r .text | cmp want -
        done
    done
    # a prompt in chunks over pipeline stages
    long='{model: "bravo", prompt: ("The delta " * 9), max_tokens: 9, temperature: 0}'
    jq -nc "$long" | dt-serve --batch "${all[@]}" | jq -r .text >one
    jq -nc "$long" | mpirun -np 2 dt-serve --batch "${all[@]}" --layout pp2 2>log | jq -r .text | cmp one -
    # magnitudes over a quantized base and in bf16
    ask='{model: "dora", prompt: "The charlie The ", max_tokens: 8, temperature: 0}'
    for how in '--weights q8_0 --precision fp32' '--precision bf16'; do
        for layout in dp1 tp2; do
            # shellcheck disable=SC2086 # words
            jq -nc "$ask" | mpirun -np "$([ $layout = tp2 ] && echo 2 || echo 1)" dt-serve --batch base $how --threads 1 --lora dora=run-dora --layout $layout 2>log | jq -r .text
        done | uniq | wc -l | grep -qx 1
    done
    # a rank allocates what is estimated, and an unloaded adapter is removed on every rank
    await mpirun -np 2 dt-serve base "${common[@]}" --layout tp2 --port 0 --served-model-name base --lora-dir adapters --max-loras 1
    for w in bravo charlie bravo delta.gguf charlie; do
        post /v1/load_lora_adapter "{lora_name: \"$w\", lora_path: \"$w\", load_inplace: true}" | grep -qx 200
        [ "$(says $w)" = "${w%.gguf}" ]
    done
    [ "$(metric lora_memory_bytes)" = "$(dt-memest base --serve --precision fp32 --max-loras 1 --max-lora-rank 4 --layout tp2 --json |
        jq '.categories[] | select(.name == "adapters").bytes')" ]
    kill -TERM "$server"
    wait "$server" || true
    await mpirun -np 2 dt-serve base "${common[@]}" --layout tp2 --port 0 --served-model-name base --lora dora=run-dora --max-loras 1
    [ "$(says dora)" = charlie ]
    [ "$(metric lora_memory_bytes)" = "$(dt-memest base --serve --precision fp32 --max-loras 1 --max-lora-rank 4 --dora --layout tp2 --json |
        jq '.categories[] | select(.name == "adapters").bytes')" ]
}

@test "clients load and unload adapters from the folder only; a new version under an old name replaces it" {
    start --lora bravo=adapters/bravo --lora-dir adapters
    [ "$(says bravo)" = bravo ]
    expect 404 "does not exist; this server has 'base', 'bravo'" /v1/completions '{model: "charlie", prompt: "The "}'
    expect 200 "Success: LoRA adapter 'charlie' added successfully" /v1/load_lora_adapter '{lora_name: "charlie", lora_path: "charlie"}'
    [ "$(says charlie)" = charlie ]
    [ "$(curl -s "$url/v1/models" | jq -c '[.data[] | [.id, .parent]]')" = '[["base",null],["bravo","base"],["charlie","base"]]' ]
    [ "$(curl -s "$url/v1/models/charlie" | jq -r .root)" = "$(realpath adapters/charlie)" ]
    [ "$(post /v1/completions '{model: "charlie", prompt: "The ", max_tokens: 1}' | head -1 | jq -r .model)" = charlie ]
    expect 400 "already" /v1/load_lora_adapter '{lora_name: "charlie", lora_path: "delta.gguf"}'
    expect 200 Success /v1/load_lora_adapter '{lora_name: "charlie", lora_path: "delta.gguf", load_inplace: true}'
    [ "$(says charlie)" = delta ]
    expect 400 "name of the base" /v1/load_lora_adapter '{lora_name: "base", lora_path: "delta.gguf"}'
    expect 403 "not in the folder" /v1/load_lora_adapter '{lora_name: "x", lora_path: "../run-delta"}'
    expect 403 "not in the folder" /v1/load_lora_adapter "{lora_name: \"x\", lora_path: \"$PWD/run-delta\"}"
    ln -sf "$PWD/run-delta" adapters/link
    expect 403 "not in the folder" /v1/load_lora_adapter '{lora_name: "x", lora_path: "link"}'
    expect 403 "not in the folder" /v1/load_lora_adapter '{lora_name: "x", lora_path: "nowhere"}'
    expect 400 "unknown key 'lora_int_id'" /v1/load_lora_adapter '{lora_name: "x", lora_path: "delta.gguf", lora_int_id: 1}'
    expect 400 "lora_path" /v1/load_lora_adapter '{lora_name: "x"}'
    expect 400 "name of an adapter" /v1/load_lora_adapter '{lora_name: "", lora_path: "delta.gguf"}'
    expect 200 "removed" /v1/unload_lora_adapter '{lora_name: "charlie"}'
    expect 404 "no adapter" /v1/unload_lora_adapter '{lora_name: "charlie"}'
    expect 404 "does not exist" /v1/completions '{model: "charlie", prompt: "The "}'
    [ "$(says base)" != "" ]
    kill -TERM "$server"
    wait "$server"
    server=
    start --lora bravo=adapters/bravo
    expect 403 "lora-dir" /v1/load_lora_adapter '{lora_name: "x", lora_path: "delta.gguf"}'
    expect 403 "lora-dir" /v1/unload_lora_adapter '{lora_name: "bravo"}'
}

@test "many adapters for two slots: all are answered, and the counters are right" {
    start --lora-dir adapters --max-loras 2 --trace trace.jsonl --max-num-seqs 8
    for i in $(seq 12); do
        w=$(echo bravo charlie delta.gguf | cut -d' ' -f$((i % 3 + 1)))
        expect 200 Success /v1/load_lora_adapter "{lora_name: \"n$i\", lora_path: \"$w\"}"
    done
    for i in $(seq 48); do
        (w=$(echo bravo charlie delta | cut -d' ' -f$((i % 12 % 3 + 1)))
        [ "$(says n$((i % 12 + 1)))" = "$(echo bravo charlie delta | cut -d' ' -f$(((i % 12 + 1) % 3 + 1)))" ] || echo "n$((i % 12 + 1)) $w" >>wrong) &
        pids[i]=$!
    done
    for i in $(seq 48); do
        wait "${pids[i]}"
    done
    [ ! -e wrong ] || { cat wrong >&2; return 1; }
    [ "$(metric lora_requests_total)" = 48 ]
    [ "$(metric lora_prompt_tokens_total)" = 192 ]
    [ "$(metric lora_resident)" = 2 ]
    [ "$(metric lora_memory_bytes)" = "$(dt-memest base --serve --precision fp32 --max-loras 2 --max-lora-rank 4 --json |
        jq '.categories[] | select(.name == "adapters").bytes')" ]
    [ "$(metric lora_evictions_total)" -ge 10 ]
    # an evicted adapter is read again; if its files have changed meanwhile, requests are refused
    cp -r adapters/bravo adapters/moving
    expect 200 Success /v1/load_lora_adapter '{lora_name: "moving", lora_path: "moving"}'
    [ "$(says moving) $(says n1) $(says n2)" = "bravo charlie delta" ]
    cp adapters/charlie/* adapters/moving
    expect 400 "have changed" /v1/completions '{model: "moving", prompt: "The "}'
    curl -s "$url/metrics" >page
    python3 "$BATS_TEST_DIRNAME/prom-check.py" page dt_serve_ >values
    grep -q 'dt_serve_lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""}' values
    kill -TERM "$server"
    wait "$server"
    server=
    dt-serve --replay trace.jsonl | jq -e '.requests == 51 and .different_steps == 0'
}

@test "the prefix cache on disk distinguishes adapters by content, not by name" {
    ask="{model: \"x\", prompt: (\"The alpha \" * 8), max_tokens: 10, temperature: 0}"
    for w in bravo charlie bravo; do
        start --lora x=adapters/$w --kv-disk kv:1GiB --kv-read always
        post /v1/completions "$ask" | head -1 | jq -r '.choices[0].text' >>said
        metric external_prefix_cache_hits_total >>hits
        kill -TERM "$server"
        wait "$server"
        server=
    done
    [ "$(sort -u said | wc -l)" -eq 2 ]
    [ "$(sed -n 1p said)" = "$(sed -n 3p said)" ]
    [ "$(sed 's/[1-9].*/some/' hits | paste -sd' ')" = "0 0 some" ]
}

@test "an adapter's request quota" {
    start --lora bravo=adapters/bravo --lora delta=adapters/delta --lora-quota 40
    expect 200 '"text"' /v1/completions '{model: "bravo", prompt: "The ", max_tokens: 30, ignore_eos: true}'
    expect 429 "quota of 40" /v1/completions '{model: "bravo", prompt: "The ", max_tokens: 30}'
    expect 200 '"text"' /v1/completions '{model: "delta", prompt: "The ", max_tokens: 30}'
    expect 200 '"text"' /v1/completions '{model: "base", prompt: "The ", max_tokens: 60}'
}

refused() { # TEXT OPTION...
    local text=$1
    shift
    run dt-serve --batch "${common[@]}" "$@" </dev/null
    [ "$status" -eq 1 ] && [[ $output == *"$text"* ]] || { echo "$status: $output" >&2; return 1; }
}

@test "unsupported adapters are refused by name" {
    for spelling in adapters/bravo =adapters/bravo x=; do
        run dt-serve --batch base --lora $spelling </dev/null
        [ "$status" -eq 2 ] && [[ $output == *"'$spelling' is not NAME=PATH"* ]] || { echo "$status: $output" >&2; false; }
    done
    refused "rank 4 is above --max-lora-rank 3" base --lora x=adapters/bravo --max-lora-rank 3
    refused "already" base --lora x=adapters/bravo --lora x=adapters/bravo
    refused "trained on other weights" merged-delta --lora x=adapters/bravo
    echo '{"prompt":"The "}' | dt-serve --batch "${common[@]}" merged-delta --lora x=adapters/bravo --any-base | jq -e .text
    refused "No such file" base --lora x=nowhere
    cp -r adapters/bravo bad
    jq '.r = 5' adapters/bravo/adapter_config.json >bad/adapter_config.json
    refused "adapter_config.json says 5" base --lora x=bad
    cp adapters/bravo/adapter_config.json bad
    python3 - <<-'E'
		p = "bad/adapter_model.safetensors"
		d = open(p, "rb").read()
		a, b = b"layers.0.self_attn.q_proj.lora_B", b"layers.7.self_attn.q_proj.lora_B"
		assert a in d
		open(p, "wb").write(d.replace(a, b, 1))
		E
    refused "has no B" base --lora x=bad
    cp adapters/bravo/adapter_model.safetensors bad
    # a tokenizer with added tokens
    dt-tokenize train --vocab 300 --out bad/tokenizer.json "$DT_SRC/LICENSE"
    refused "more tokens than the base model" base --lora x=bad
}

@test "latent attention: adapters of the latents' projections are refused by name, others are served" {
    jq -n '{model_type: "deepseek_v2", q_lora_rank: null, vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 2,
        num_attention_heads: 4, max_position_embeddings: 64, kv_lora_rank: 24, qk_nope_head_dim: 10, qk_rope_head_dim: 6,
        v_head_dim: 12, n_routed_experts: 4, n_shared_experts: 1, num_experts_per_tok: 2, moe_intermediate_size: 24,
        first_k_dense_replace: 1, rms_norm_eps: 1e-5, rope_theta: 10000}' >latent.json
    train=(dt-train --data base.h5 --seq 32 --microbatch 2 --steps 2 --lr 1e-2 --precision fp32 --no-mfu --threads 1)
    "${train[@]}" --model latent.json --save latent >/dev/null
    "${train[@]}" --model latent --lora 4 --lora-targets '.*attn\.(kv_b|o)' --save with >/dev/null
    "${train[@]}" --model latent --lora 4 --lora-targets '.*attn\.(q|kv_a|o)' --save without >/dev/null
    echo '{"prompt": "The ", "max_tokens": 4, "temperature": 0}' >ask.jsonl
    run -1 --separate-stderr timeout 60 dt-serve --batch latent "${common[@]}" --lora x=with <ask.jsonl
    [[ $stderr == *"adapter 'with': an adapter of 'layers.0.attn.kv_b.weight' cannot be served"* ]]
    dt-serve --batch latent "${common[@]}" --lora x=without <ask.jsonl | jq -e '.text | length > 0'
}

@test "an adapter that takes long to load delays no other request" {
    DT_SLOW_READ_MS=80 LD_PRELOAD="$DT_HELP/slow-read.so" await dt-serve base "${common[@]}" --port 0 --served-model-name base --lora-dir .
    (post /v1/load_lora_adapter '{lora_name: "late", lora_path: "run-bravo"}' && touch late) >loaded &
    loading=$!
    for i in 1 2 3; do
        [ "$(post /v1/completions '{model: "base", prompt: "The ", max_tokens: 20, ignore_eos: true}' | tail -1)" = 200 ]
    done
    [ ! -e late ] # the load is still in progress
    wait "$loading"
    [ "$(tail -1 loaded)" = 200 ]
    [ "$(says late)" = bravo ]
}
# SPDX-License-Identifier: Apache-2.0
