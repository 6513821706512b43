#!/usr/bin/env bats
# One model served by several ranks: answers are those of one process, each rank holds what is estimated, and
# clients are told when a rank is lost.

bats_require_minimum_version 1.5.0
load server

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    "$DT_HELP/make-model" m
    for i in $(seq 0 39); do
        jq -nc --argjson i "$i" '{prompt: ("Prompt number \($i): " + ("tell me more. " * ($i % 6))), max_tokens: (5 + $i % 40),
            seed: $i, temperature: (if $i % 2 == 0 then 0 else 1 end), top_p: 0.9, ignore_eos: true}'
    done >prompts.jsonl
    "$DT_BIN/dt-serve" --batch m --precision fp32 --threads 1 <prompts.jsonl 2>/dev/null | jq -r .text >one.txt
}

setup() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=/bin/false
    in_server_folder
    common=(--precision fp32 --threads 1)
    command -v mpirun >/dev/null || skip "mpirun is not installed"
}

# start RANKS OPTION...: starts a server of model $served over ranks on a free port; sets $server (mpirun's
# pid) and $url
start() {
    local ranks=$1
    shift
    await mpirun -np "$ranks" dt-serve "${served:-m}" "${common[@]}" --port 0 --served-model-name tiny "$@"
}

# ask JQ-BODY ROUTE: prints the answer
ask() {
    jq -nc "$1" | curl -s -m 100 -H 'Content-Type: application/json' -d @- "$url$2"
}

# rank N: its pid
rank() {
    for pid in $(ps -o pid= --ppid "$server"); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$pid"
    done
}

@test "answers on a pipe are those of one process, greedy and sampled" {
    one_of 3 tp2.pp2 tp2 pp2 dp2 tp4 dp2.pp2
    for layout in "${some[@]}"; do
        case $layout in tp2 | pp2 | dp2) n=2 ;; *) n=4 ;; esac
        mpirun -np $n dt-serve --batch m "${common[@]}" --layout $layout <prompts.jsonl 2>log | jq -r .text >many.txt
        cmp one.txt many.txt
    done
    [ "$(wc -l <one.txt)" -ge 40 ]
}

@test "pipelined steps: 1, 3 and 32 streams over stages give the tokens of one process" {
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 5, num_attention_heads: 4,
        num_key_value_heads: 2, max_position_embeddings: 512, rms_norm_eps: 1e-5, rope_theta: 10000}' >five.json
    "$DT_HELP/make-model" five five.json
    dt-serve --batch five "${common[@]}" <prompts.jsonl 2>log | jq -c .text >five.txt
    one_of 4 "2 pp2 32" "2 pp2 3" "3 pp3 2" "4 pp4 32" "4 tp2.pp2 3" "4 tp2.pp2 32" "4 pp4 1" "4 dp2.pp2 3" "2 pp2 1" "4 pp4 3"
    for run in "${some[@]}"; do
        read -r n layout streams <<<"$run"
        mpirun -np "$n" dt-serve --batch five "${common[@]}" --layout "$layout" --max-num-seqs "$streams" <prompts.jsonl 2>log | jq -c .text | cmp five.txt -
    done
    # a cache too small for all of them, chunked prompts, and speculative decoding, for which steps cannot
    # overlap
    small=(--max-num-seqs 8 --max-model-len 200 --max-num-batched-tokens 32)
    mpirun -np 2 dt-serve --batch five "${common[@]}" "${small[@]}" --layout pp2 --kv-cache-mem 160KiB <prompts.jsonl 2>log | jq -c .text | cmp five.txt -
    mpirun -np 2 dt-serve --batch five "${common[@]}" "${small[@]}" --layout pp2 --speculate 3 <prompts.jsonl 2>log | jq -c .text | cmp five.txt -
}

@test "dt-memest --check compares rank 0 with the first stage, also where another stage needs more" {
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 5, num_attention_heads: 4,
        num_key_value_heads: 2, max_position_embeddings: 512, rms_norm_eps: 1e-5, rope_theta: 10000}' >five.json
    "$DT_HELP/make-model" five five.json
    served=five start 4 --layout pp4 --max-num-seqs 4 --max-model-len 64 --max-num-batched-tokens 64
    curl -s "$url/metrics" >gauges
    shape=(--serve --layout pp4 --precision fp32 --max-seqs 4 --max-len 64 --max-tokens 64)
    dt-memest five "${shape[@]}" --json | jq -e '.worst_stage == 2 and .peak_bytes > .ranks[0].peak_bytes'
    dt-memest five "${shape[@]}" --check gauges
}

@test "pipelined steps: choices, grammars, log-probabilities, embeddings are those of one process" {
    for i in 1 2 3 4 5 6; do
        jq -nc --argjson i $i '{custom_id: "c\($i)", method: "POST", url: "/v1/completions", body: {prompt: ("Once " * $i), n: 3,
            seed: $i, max_tokens: 20, logprobs: 2, echo: ($i % 2 == 0), ignore_eos: true, frequency_penalty: 0.5}}'
        jq -nc --argjson i $i '{custom_id: "e\($i)", method: "POST", url: "/v1/embeddings", body: {input: ["one" * $i, "two"]}}'
        jq -nc --argjson i $i '{custom_id: "g\($i)", method: "POST", url: "/v1/completions", body: {prompt: ("{" * $i), seed: $i,
            max_tokens: 30, response_format: {type: "json_schema", json_schema: {name: "n", schema: {type: "object",
            properties: {a: {type: "integer"}, b: {enum: ["x", "yz"]}}, required: ["a", "b"]}}}}}'
    done >lines
    answers='.response.body | [.usage.completion_tokens, .choices, .data]'
    dt-serve --batch m "${common[@]}" <lines 2>log | jq -c "$answers" >all1
    [ "$(jq -s 'map(.[1] // [] | length) | add' all1)" -eq 24 ]
    one_of 2 pp3 pp2 dp2.pp2
    for layout in "${some[@]}"; do
        case $layout in pp2) n=2 ;; pp3) n=3 ;; *) n=4 ;; esac
        mpirun -np $n dt-serve --batch m "${common[@]}" --layout $layout <lines 2>log | jq -c "$answers" | cmp all1 -
    done
}

# long N FILE: streams the answer to prompt N into FILE
long() {
    jq -nc --argjson i "$1" '{prompt: ("x" * $i), max_tokens: 400, temperature: 0, ignore_eos: true, stream: true}' |
        curl -s -m 100 -d @- "$url/v1/completions" >"$2"
}

@test "pipelined steps: a client that disconnects does not disturb others, and its blocks are freed" {
    for i in 1 2 3 4 5; do
        jq -nc --argjson i $i '{prompt: ("x" * $i), max_tokens: 400, temperature: 0, ignore_eos: true}'
    done | dt-serve --batch m "${common[@]}" 2>log | jq -c .text >alone
    start 2 --layout pp2
    for i in 1 2 3 4 5; do
        : >"s$i"
        case $i in
        2 | 4) long $i /dev/stdout | head -c 400 >"s$i" 3>&- & ;; # disconnects
        *) long $i "s$i" 3>&- & ;;
        esac
        asks[i]=$!
    done
    for i in 1 3 5; do
        wait "${asks[i]}"
        sed -n 's/^data: {/{/p' "s$i" | jq -s -c 'map(.choices[0].text // "") | add' | cmp - <(sed -n "${i}p" alone)
    done
    for _ in $(seq 200); do
        curl -s "$url/metrics" >gauges
        grep -q '^dt_serve_kv_cache_usage_perc.* 0$' gauges && break
        sleep 0.05
    done
    grep '^dt_serve_kv_cache_usage_perc.* 0$' gauges
    grep '^dt_serve_num_requests_running.* 0$' gauges
}

@test "a stage is killed under load: every stream ends with an error or completely, and the job fails" {
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 320, intermediate_size: 1280, num_hidden_layers: 6, num_attention_heads: 4,
        num_key_value_heads: 2, max_position_embeddings: 512, rms_norm_eps: 1e-5, rope_theta: 10000}' >slow.json
    "$DT_HELP/make-model" slow slow.json # a model whose streams last until the kill
    served=slow
    # mpirun kills the other ranks after this time, default 1 s, which is too short for a busy machine
    export OMPI_MCA_odls_base_sigkill_timeout=10
    one_of 3 "3 pp3 1" "2 pp2 1" "3 pp3 2"
    for run in "${some[@]}"; do
        read -r n layout victim <<<"$run"
        start "$n" --layout "$layout" --comm-timeout 10
        for i in 1 2 3 4 5 6; do
            : >"s$i"
            long $i "s$i" 3>&- &
            asks[i]=$!
        done
        for i in 1 2 3 4 5 6; do
            until [ -s "s$i" ]; do sleep 0.01; done
        done
        kill -KILL "$(rank "$victim")"
        wait "${asks[@]:1:6}" || true
        for i in 1 2 3 4 5 6; do
            grep -q '"error"' "s$i" || grep -q 'DONE' "s$i"
        done
        status=0
        wait "$server" || status=$?
        [ $status -ne 0 ]
        grep "rank $victim" log
    done
}

@test "replicas: choices, log-probabilities and embeddings have the bits of one process; all are used" {
    for i in 1 2 3 4 5 6; do
        jq -nc --argjson i $i '{custom_id: "c\($i)", method: "POST", url: "/v1/completions", body: {prompt: ("Once " * $i), n: 3,
            seed: $i, max_tokens: 20, logprobs: 2, echo: ($i % 2 == 0), ignore_eos: true}}'
        jq -nc --argjson i $i '{custom_id: "e\($i)", method: "POST", url: "/v1/embeddings", body: {input: ["one" * $i, "two"]}}'
    done >lines
    answers='.response.body | [.usage.completion_tokens, .choices, .data]'
    dt-serve --batch m "${common[@]}" <lines 2>log | jq -c "$answers" >all1
    [ "$(jq -s 'map(.[1] // [] | length) | add' all1)" -eq 18 ]
    one_of 2 dp3 dp2
    for layout in "${some[@]}"; do
        mpirun -np "${layout#dp}" dt-serve --batch m "${common[@]}" --layout "$layout" --speculate 3 <lines 2>log | jq -c "$answers" | cmp all1 -
    done
    # a cache for one sequence per replica: two run at the same time
    start 2 --layout dp2 --max-num-seqs 1 --max-model-len 200 --max-num-batched-tokens 64
    curl -s "$url/metrics" >gauges
    dt-memest m --serve --layout dp2 --precision fp32 --max-seqs 1 --max-len 200 --max-tokens 64 --check gauges
    for i in 1 2; do
        ask '{prompt: "x", max_tokens: 190, ignore_eos: true, temperature: 0}' /v1/completions >"r$i" &
        asks[i]=$!
    done
    wait "${asks[@]:1}"
    [ "$(jq .choices[0].text r1)" = "$(jq .choices[0].text r2)" ]
    jq -e '.usage.completion_tokens == 190' r1
}

@test "replicas report cached blocks as one server, and a router knows them" {
    # each cache has room for one of these prompts, and each replica runs one of them at a time
    start 2 --layout dp2 --max-num-seqs 1 --max-model-len 400 --kv-cache-mem 320KiB
    long() { # NAME URL: sends a prompt of 360 bytes that begins with NAME; its block mark is at byte 256
        jq -nc --arg name "$1" --arg p "$1$(printf 'hello world %.0s' $(seq 30))" '{model: "tiny", prompt: $p[:360], max_tokens: 20,
            temperature: 0, ignore_eos: true, kv_marks: {share: (256 / 360), names: $name}}' |
            curl -s -m 100 -d @- "$2/v1/completions"
    }
    burst() { # NAME: enough requests that both replicas compute the prompt, unless the machine is slow
        local asks=()
        for _ in 1 2 3 4 5 6; do
            long "$1" "$url" >/dev/null &
            asks+=($!)
        done
        wait "${asks[@]}"
    }
    a=000000000000000a b=000000000000000b c=000000000000000c
    for _ in $(seq 10); do # until b has evicted a from one replica
        burst $a
        next=$(curl -s "$url/kv/events" | jq -r .next)
        long $b "$url" >/dev/null
        told=$(curl -s "$url/kv/events?after=$next" | jq -c '[.cleared, (.events[] | [.type, .names[]])]')
        [ "$told" = "[false,[\"BlockStored\",\"$b\"]]" ] && break
    done
    [ "$told" = "[false,[\"BlockStored\",\"$b\"]]" ] # the other replica still has a
    held() { curl -s "$url/kv/events" | jq -r '[.events[].names[]] | sort | join(" ")'; }
    [ "$(held)" = "$a $b" ]
    for name in $a $b; do
        [ "$(long "$name" "$url" | jq .usage.prompt_tokens_details.cached_tokens)" -gt 300 ]
    done
    dt-route --port 0 --policy cache "$url" >front 2>log-front 3>&- &
    front=$!
    known() { # COUNT: waits until the router knows COUNT blocks
        for _ in $(seq 600); do
            [ "$(curl -s "$(cat front)/metrics" | awk '/^dt_route_index_blocks/ { print $2 }')" = "$1" ] && return
            sleep 0.05
        done
        kill $front
        return 1
    }
    known 2
    for _ in $(seq 10); do # until c is in both replicas
        burst $c
        [ "$(held)" = $c ] && break
    done
    known 1
    kill $front
    [ "$(held)" = $c ]
}

@test "KV blocks in host memory and on disk: answers are those of one process, also after a restart" {
    small=(--max-num-seqs 4 --max-model-len 200 --kv-read always)
    jq -c '{custom_id: "r", method: "POST", url: "/v1/completions", body: .}' prompts.jsonl >lines
    one_of 2 pp2 tp2
    for layout in "${some[@]}"; do
        for run in first again; do
            mpirun -np 2 dt-serve --batch m "${common[@]}" "${small[@]}" --layout "$layout" --kv-cache-mem 400KiB \
                --kv-host 1MiB --kv-disk kv:20MiB <lines 2>log | jq -c '.response.body | [.choices[0].text, .usage]' >$run.txt
            jq -r '.[0]' $run.txt | cmp one.txt -
        done
        # the second server found blocks that the first one computed
        [ "$(jq -s 'map(.[1].prompt_tokens_details.cached_tokens) | add' again.txt)" -gt \
            "$(jq -s 'map(.[1].prompt_tokens_details.cached_tokens) | add' first.txt)" ]
    done
    [ "$(find kv -mindepth 1 -maxdepth 1 | wc -l)" -eq ${#some[@]} ]
}

@test "context parallelism: answers are those of one process, with any chunk size; bytes are dt-memest's" {
    jq -c '{custom_id: "r", method: "POST", url: "/v1/completions", body: (. + {n: 2, logprobs: 1})}' prompts.jsonl >lines
    jq -nc '{custom_id: "e", method: "POST", url: "/v1/embeddings", body: {input: ["one", "another", "a third"]}}' >>lines
    answers='.response.body | .choices // .data'
    dt-serve --batch m "${common[@]}" <lines 2>log | jq -c "$answers" >rows1
    few="--max-num-seqs 5 --max-num-batched-tokens 17 --no-prefix-caching"
    one_of 5 "2 cp2 $few" "2 cp2" "2 cp2 --speculate 3" "3 cp3 --speculate 3" "3 cp3" "3 cp3 $few" "4 dp2.cp2 $few" "4 dp2.cp2" \
        "4 dp2.cp2 --speculate 3" "4 pp2.cp2" "4 pp2.cp2 $few" "4 pp2.cp2 --speculate 3"
    for run in "${some[@]}"; do
        read -r n layout more <<<"$run"
        # shellcheck disable=SC2086 # words
        mpirun -np "$n" dt-serve --batch m "${common[@]}" --layout "$layout" $more <lines 2>log | jq -c "$answers" >rows
        cmp <(head -n -1 rows1) <(head -n -1 rows)
        jq -s -e '[.[0], .[1]] | map(map(.embedding) | flatten) | transpose | map(.[0] - .[1] | fabs) | max < 1e-5' \
            <(tail -n 1 rows1) <(tail -n 1 rows)
    done
    mpirun -np 4 dt-serve --batch m "${common[@]}" --layout tp2.cp2 <prompts.jsonl 2>log | jq -r .text | cmp one.txt -
    jq -n '{model_type: "mixtral", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 3,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 128, num_local_experts: 8,
        num_experts_per_tok: 2, sliding_window: 16, rms_norm_eps: 1e-5, rope_theta: 10000}' >windows.json
    "$DT_HELP/make-model" windows windows.json
    dt-serve --batch windows "${common[@]}" --kv-precision int8 <prompts.jsonl 2>log | jq -c .text >windows.txt
    mpirun -np 2 dt-serve --batch windows "${common[@]}" --kv-precision int8 --layout cp2 <prompts.jsonl 2>log | jq -c .text | cmp windows.txt -
    one_of 3 dp2.cp2 cp2 pp2.cp2
    for layout in "${some[@]}"; do
        case $layout in cp2) n=2 ;; *) n=4 ;; esac
        start $n --layout $layout --max-num-seqs 4 --max-model-len 64 --max-num-batched-tokens 63
        curl -s "$url/metrics" >gauges
        shape=(--precision fp32 --max-seqs 4 --max-len 64 --max-tokens 63)
        dt-memest m --serve --layout $layout "${shape[@]}" --check gauges
        run -3 dt-memest m --serve "${shape[@]}" --check gauges # on one rank the workspace has all rows
        kill -USR1 "$server"
        wait "$server"
    done
}

@test "a mixture of experts: each rank of tp holds whole experts; answers are those of one process" {
    jq -n '{model_type: "mixtral", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 3,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, num_local_experts: 8,
        num_experts_per_tok: 2, sliding_window: null, rms_norm_eps: 1e-5, rope_theta: 10000}' >mixtral.json
    "$DT_HELP/make-model" mix mixtral.json
    dt-serve --batch mix "${common[@]}" <prompts.jsonl 2>log | jq -r .text >mix.txt
    mpirun -np 2 dt-serve --batch mix "${common[@]}" <prompts.jsonl 2>log | jq -r .text >mix2.txt
    cmp mix.txt mix2.txt
    mpirun -np 4 dt-serve --batch mix "${common[@]}" --layout tp2.pp2 <prompts.jsonl 2>log | jq -r .text >mix4.txt
    cmp mix.txt mix4.txt
}

# shares_experts MODEL RANKS LAYOUT: compares with one rank's answers, for prompts together and for a single
# one, during which other replicas only compute experts
shares_experts() {
    local model=$1 n=$2 layout=$3
    shift 3
    mpirun -np "$n" dt-serve --batch "$model" "${common[@]}" --layout "$layout" "$@" <prompts.jsonl 2>log | jq -c .text | cmp "$model.txt" -
    sed -n 11p prompts.jsonl | mpirun -np "$n" dt-serve --batch "$model" "${common[@]}" --layout "$layout" "$@" 2>log |
        jq -c .text | cmp <(sed -n 11p "$model.txt") -
}

@test "expert parallelism over replicas: answers are those of one process, bytes dt-memest's" {
    jq -n '{vocab_size: 261, hidden_size: 48, num_hidden_layers: 3, num_attention_heads: 4, max_position_embeddings: 512,
        num_experts_per_tok: 3, rms_norm_eps: 1e-5, rope_theta: 10000, num_key_value_heads: 2}' >common.json
    jq '. + {model_type: "mixtral", intermediate_size: 40, num_local_experts: 8, sliding_window: null}' common.json >mixtral8.json
    jq '. + {model_type: "qwen3_moe", head_dim: 12, intermediate_size: 40, moe_intermediate_size: 24, num_experts: 12,
        norm_topk_prob: true, decoder_sparse_step: 1, mlp_only_layers: [], use_sliding_window: false}' common.json >qwen3.json
    jq '. + {model_type: "olmoe", intermediate_size: 24, num_experts: 16, norm_topk_prob: false, num_key_value_heads: 4}' common.json >olmoe.json
    jq '. + {model_type: "deepseek_v3", num_key_value_heads: 4, intermediate_size: 40, kv_lora_rank: 24, q_lora_rank: 20,
        qk_nope_head_dim: 10, qk_rope_head_dim: 6, v_head_dim: 12, n_routed_experts: 8, n_shared_experts: 1, moe_intermediate_size: 24,
        first_k_dense_replace: 1, n_group: 4, topk_group: 2, norm_topk_prob: true, routed_scaling_factor: 2.5}' common.json >deepseek3.json
    for family in mixtral8 qwen3 olmoe deepseek3; do
        "$DT_HELP/make-model" $family $family.json
        dt-serve --batch $family "${common[@]}" <prompts.jsonl 2>log | jq -c .text >$family.txt
    done
    # experts within a replica, over replicas, and both
    one_of 5 "deepseek3 4 tp2.ep2" "deepseek3 4 pp2.ep2" "olmoe 2 ep2" "qwen3 4 dp2.cp2.ep2" "qwen3 4 ep4" "qwen3 4 dp4.ep2" \
        "deepseek3 6 dp2.cp3.ep2" "deepseek3 4 tp2.cp2.ep2" "deepseek3 4 pp2.cp2.ep2" "qwen3 2 ep2" "deepseek3 2 ep2" "deepseek3 2 cp2.ep2" \
        "deepseek3 4 dp2.cp2.ep4" "mixtral8 2 ep2"
    for run in "${some[@]}"; do
        read -r family n layout <<<"$run"
        shares_experts "$family" "$n" "$layout"
    done
    shares_experts mixtral8 2 ep2 --weights-disk . --weights-memory 600KiB
    dt-serve --batch olmoe "${common[@]}" --weights q8_0 <prompts.jsonl 2>log | jq -c .text >olmoe.txt
    shares_experts olmoe 2 ep2 --weights q8_0
    served=deepseek3
    shape=(--precision fp32 --max-seqs 4 --max-len 64 --max-tokens 512)
    for run in "2 cp2.ep2 cp2" "4 dp2.cp2.ep4 dp2.cp2.ep2"; do
        read -r n layout other <<<"$run"
        start "$n" --layout "$layout" --max-num-seqs 4 --max-model-len 64
        curl -s "$url/metrics" >gauges
        dt-memest deepseek3 --serve --layout "$layout" "${shape[@]}" --check gauges
        run -3 dt-memest deepseek3 --serve --layout "$other" "${shape[@]}" --check gauges
        ask '{input: ["one", "another", "a third"]}' /v1/embeddings | jq -c '[.data[].embedding]' >"e$layout"
        kill -USR1 "$server"
        wait "$server"
    done
    start 2 --layout ep2 --max-num-seqs 4 --max-model-len 64
    curl -s "$url/metrics" >gauges
    dt-memest deepseek3 --serve --layout ep2 "${shape[@]}" --check gauges
    run -3 dt-memest deepseek3 --serve --layout dp2 "${shape[@]}" --check gauges
    ask '{input: ["one", "another", "a third"]}' /v1/embeddings | jq -c '[.data[].embedding]' >e2
    dt-serve --batch deepseek3 "${common[@]}" 2>log < <(jq -nc '{custom_id: "e", method: "POST", url: "/v1/embeddings",
        body: {input: ["one", "another", "a third"]}}') | jq -c '[.response.body.data[].embedding]' >e1
    for e in e2 ecp2.ep2 edp2.cp2.ep4; do
        jq -s -e '[.[0], .[1]] | map(flatten) | transpose | map(.[0] - .[1] | fabs) | max < 1e-5' e1 "$e"
    done
}

@test "latent attention: each rank holds every latent; answers are those of one process, bytes dt-memest's" {
    jq -n '{model_type: "deepseek_v3", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 3,
        num_attention_heads: 4, max_position_embeddings: 64, kv_lora_rank: 24, q_lora_rank: 20, qk_nope_head_dim: 10,
        qk_rope_head_dim: 6, v_head_dim: 12, n_routed_experts: 8, n_shared_experts: 1, num_experts_per_tok: 3,
        moe_intermediate_size: 24, first_k_dense_replace: 1, n_group: 4, topk_group: 2, norm_topk_prob: true,
        routed_scaling_factor: 2.5, rms_norm_eps: 1e-5, rope_theta: 10000}' >deepseek.json
    "$DT_HELP/make-model" latent deepseek.json
    dt-serve --batch latent "${common[@]}" <prompts.jsonl 2>log | jq -r .text >latent1.txt
    [ "$(wc -l <latent1.txt)" -ge 40 ]
    dt-serve --batch latent "${common[@]}" --no-prefix-caching --max-num-seqs 8 --max-num-batched-tokens 16 <prompts.jsonl 2>log | jq -r .text >latent.txt
    cmp latent1.txt latent.txt # to the bit, with any chunk size
    one_of 3 "4 tp2.cp2" "2 cp2" "4 pp2.cp2" "4 tp2.pp2"
    for run in "${some[@]}"; do
        mpirun -np "${run% *}" dt-serve --batch latent "${common[@]}" --layout "${run#* }" <prompts.jsonl 2>log | jq -r .text |
            cmp latent1.txt -
    done
    served=latent
    shape=(--precision fp32 --max-seqs 4 --max-len 64 --max-tokens 512)
    for layout in cp2 tp2; do
        start 2 --layout $layout --max-num-seqs 4 --max-model-len 64
        curl -s "$url/metrics" >gauges
        dt-memest latent --serve --layout $layout "${shape[@]}" --check gauges
        run -3 dt-memest latent --serve "${shape[@]}" --check gauges
        kill -USR1 "$server"
        wait "$server"
    done
    for cache in "fp32 $((4 * 64 * 3 * 30 * 4))" "int8 $((4 * 64 * 3 * 34))"; do
        dt-memest latent --serve --json "${shape[@]}" --kv-precision "${cache% *}" |
            jq -e ".categories[] | select(.name == \"kv-cache\") | .bytes == ${cache#* }"
    done
}

@test "concurrent HTTP requests: answers are those of one process; SIGUSR1 to mpirun drains" {
    dt-serve m "${common[@]}" --port 0 --served-model-name tiny >url1 2>/dev/null 3>&- &
    one=$!
    start 4 --layout tp2.pp2
    until [ -s url1 ] || ! kill -0 $one; do sleep 0.05; done
    choices='{prompt: "Once upon a time", n: 3, seed: 5, max_tokens: 20, logprobs: 2, echo: true, ignore_eos: true}'
    for u in "$(cat url1)" "$url"; do
        url=$u
        for i in 1 2 3 4; do
            ask "{prompt: (\"a\" * $i * 9), max_tokens: 30, temperature: 0, ignore_eos: true}" /v1/completions >"a$i" &
            asks[i]=$!
        done
        wait "${asks[@]:1}"
        cat a1 a2 a3 a4 | jq -r '.choices[].text' >"texts$([ "$u" = "$(cat url1)" ] && echo 1)"
        ask "$choices" /v1/completions >"c$([ "$u" = "$(cat url1)" ] && echo 1)"
        ask '{input: ["one", "another"]}' /v1/embeddings >"e$([ "$u" = "$(cat url1)" ] && echo 1)"
    done
    kill "$one"
    cmp texts texts1
    diff <(jq '[.choices[] | .text, .logprobs.tokens]' c) <(jq '[.choices[] | .text, .logprobs.tokens]' c1)
    jq -e --slurpfile b c1 '[.choices[].logprobs.token_logprobs[1:]] as $x | [$b[0].choices[].logprobs.token_logprobs[1:]] as $y
        | [range($x | length) as $i | range($x[$i] | length) as $k | ($x[$i][$k] - $y[$i][$k]) | fabs] | max < 1e-4' c
    jq -e --slurpfile b e1 '[.data[].embedding] as $x | [$b[0].data[].embedding] as $y
        | [range(2) as $i | range($x[$i] | length) as $k | ($x[$i][$k] - $y[$i][$k]) | fabs] | max < 1e-5' e
    ask '{prompt: "x", max_tokens: 300, ignore_eos: true}' /v1/completions >last &
    last=$!
    until [ "$(curl -s "$url/metrics" | awk '/^dt_serve_num_requests_running/ {print $2}')" != 0 ] || ! kill -0 $last; do :; done
    kill -USR1 "$server"
    wait $last
    jq -e '.usage.completion_tokens == 300' last
    wait "$server"
}

@test "a rank holds what dt-memest estimates" {
    start 2 --layout tp2 --max-num-seqs 4 --max-model-len 64
    curl -s "$url/metrics" >gauges
    shape=(--precision fp32 --max-seqs 4 --max-len 64 --max-tokens 512)
    dt-memest m --serve --layout tp2 "${shape[@]}" --check gauges
    run -3 dt-memest m --serve "${shape[@]}" --check gauges # which is less than one process holds
}

@test "a rank is killed: the stream ends with an error that names it, and the job fails" {
    start 2
    ask '{prompt: "x", max_tokens: 480, ignore_eos: true, stream: true}' /v1/completions >stream &
    stream=$!
    until [ -s stream ] || ! kill -0 $stream; do sleep 0.01; done
    kill -KILL "$(rank 1)"
    wait $stream
    grep -q '"error"' stream || grep -q 'DONE' stream # the stream may have been complete
    status=0
    wait "$server" || status=$?
    [ $status -ne 0 ]
    grep "rank 1" log
}

@test "a rank is stopped: an error within the timeout, /health names the rank, then the job fails" {
    takes_long
    start 2 --comm-timeout 2
    kill -STOP "$(rank 1)"
    # one curl process for all requests: the job ends soon
    curl -s -m 100 -d '{"prompt": "x", "max_tokens": 30, "ignore_eos": true}' "$url/v1/completions" -o first \
        --next -s -m 100 "$url/health" -o health --next -s -m 100 -d '{"prompt": "x"}' "$url/v1/completions" -o second
    jq -e '.error.message | test("rank 1 has not arrived")' first
    jq -e '.status == "failed" and (.error | test("rank 1"))' health
    jq -e '.error.message | test("rank 1")' second
    status=0
    wait "$server" || status=$?
    [ $status -eq 1 ]
}

@test "dt-run restarts a server that lost a rank, ends it cleanly, and gives up on one that cannot start" {
    takes_long
    : >url
    dt-run --events events -- mpirun -np 2 dt-serve m "${common[@]}" --port 0 >url 2>log 3>&- &
    run=$!
    for start in 1 2 3; do
        for _ in $(seq 2400); do
            [ "$(wc -l <url)" -ge $start ] && break
            sleep 0.05
        done
        url=$(tail -n 1 url)
        ask '{prompt: "x", max_tokens: 5, temperature: 0, ignore_eos: true}' /v1/completions >"again$start"
        jq -e '.usage.completion_tokens == 5' "again$start"
        server=$(pgrep -n -P $run -x 'mpirun|orterun')
        [ $start -lt 3 ] && kill -KILL "$(rank $((start - 1)))" # rank 0, then rank 1
    done
    [ "$(jq .choices[0].text again1)" = "$(jq .choices[0].text again3)" ]
    kill -TERM $run
    wait $run
    [ "$(jq -s 'map(select(.event == "start")) | length' events)" -eq 3 ]
    run -93 dt-run --tries 2 -- mpirun -np 2 dt-serve none
    [[ $output == *"giving up: none of 2 starts lasted 60 s"* ]]
    run -2 dt-run --ranks 2 -- dt-serve m
}

@test "what cannot be served over ranks is refused in one line by rank 0" {
    refused() {
        local n=$1 text=$2
        shift 2
        ! mpirun -np "$n" dt-serve --batch "$@" </dev/null >out 2>log || { echo "$* was served"; return 1; }
        [ "$(grep -c '^dt-serve: .*'"$text" log)" -eq 1 ] || { cat log; return 1; }
    }
    one_of 3 "2|layout 'tp4' is for 4 ranks, but there are 2|m --layout tp4" "2|cannot open 'none'|none" \
        "2|layout 'cp2.ep2': ep2, but 'llama-tiny' has no experts|m --layout cp2.ep2" \
        "2|--draft-model cannot be combined with replicas|m --layout dp2 --draft-model m" "2|over dp, tp, pp, cp and ep only|m --layout dp2.z1" \
        "2|--kv-disk cannot be combined with replicas|m --layout dp2 --kv-disk kv:1MiB" "3|does not divide the 4 heads|m" \
        "4|more stages than the 3 layers|m --layout pp4" "2|layout 'dp2.ep2': ep2, but 'llama-tiny' has no experts|m --layout ep2"
    for each in "${some[@]}"; do
        IFS='|' read -r n text args <<<"$each"
        # shellcheck disable=SC2086 # words
        refused "$n" "$text" $args
    done
    run -1 dt-serve --batch m --layout tp2
    [[ $output == *"layout 'tp2' is for 2 ranks, but there is 1"* ]]
    run -2 dt-serve --batch m --layout tpx
    await dt-serve m "${common[@]}" --port 0 # its port is in use
    port=${url##*:}
    status=0
    timeout 40 mpirun -np 2 dt-serve m "${common[@]}" --port "$port" >out 2>log 3>&- || status=$?
    [ "$status" -eq 1 ]
    grep -q "cannot listen on '127.0.0.1' port $port: Address already in use" log
}
# SPDX-License-Identifier: Apache-2.0
