#!/usr/bin/env bats
# Conversations as data sets: which tokens are targets, how they are packed, and that packed training equals
# training on each alone.

bats_require_minimum_version 1.5.0
load slow

setup_file() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    cd "$BATS_FILE_TMPDIR" || return 1
    jq -n '{model_type: "llama", vocab_size: 617, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 256, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: false}' >llama.json
    jq '.max_position_embeddings = 1024' llama.json >long.json
    printf '%s\n' \
        '{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "A colour?"}, {"role": "assistant", "content": "Red."}, {"role": "user", "content": "More."}, {"role": "assistant", "content": "Blue, and a longer answer."}]}' \
        '{"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi there."}]}' \
        '{"prompt": "What is 2+2?", "completion": "4"}' \
        '{"instruction": "Add", "input": "3 and 4", "output": "7"}' \
        '{"prompt": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "not learnt"}, {"role": "user", "content": "y"}], "completion": [{"role": "assistant", "content": "learnt"}]}' >all.jsonl
}

setup() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    tok=$DT_SRC/tests/data/tokenizer/chat.json
    common=(--model llama.json --lr 1e-3 --warmup 0 --precision fp32 --no-mfu --threads 1 --steps 1 --comm-timeout 120)
}

chat() { # OUT SEQ OPTION...: packs the conversations on standard input
    local out=$1 seq=$2
    shift 2
    dt-dataset chat -t "$tok" --chat-template chatml --seq "$seq" --json -o "$out" "$@" -
}

first_loss() { # DATA RANKS OPTION...: loss of the first step
    local data=$1 ranks=$2
    shift 2
    mpirun -np "$ranks" dt-train --data "$data" "${common[@]}" "$@" --metrics m.jsonl >/dev/null </dev/null
    jq -s 'map(select(.loss)) | .[0].loss' m.jsonl
}

close() { # A B TOLERANCE
    jq -en "(($1) - ($2)) | fabs < $3" >/dev/null || { echo "$1 and $2 differ by more than $3" >&2; return 1; }
}

@test "in each format the assistant's text and its end of turn are targets" {
    local n=0 line want=('Red.<|im_end|>Blue, and a longer answer.<|im_end|>' 'Hi there.<|im_end|>' '4<|im_end|>' '7<|im_end|>' 'learnt<|im_end|>')
    while read -r line; do
        chat one.h5 256 <<<"$line" >one.json
        [ "$(jq -r '[.example.parts[] | select(.target) | .text] | add' one.json)" = "${want[$n]}" ]
        [ "$(jq .example.targets one.json)" = "$(jq .train.targets one.json)" ]
        n=$((n + 1))
    done <all.jsonl
    [ $n = 5 ]
    [[ "$(jq -r '[.example.parts[] | .text] | add' one.json)" == *"assistant"$'\n'"not learnt<|im_end|>"* ]]
    [ "$(chat one.h5 256 <<<'{"instruction": "Add", "input": "3", "output": "7"}' | jq -r '.example.parts[0].text')" = $'<|im_start|>user\nAdd\n\n3<|im_end|>\n<|im_start|>assistant' ]
    dt-dataset chat -t "$tok" --chat-template none --json -o one.h5 - <<<'{"prompt": "one, ", "completion": "two"}' >one.json
    # the token ' two' spans the border and is the completion's
    [ "$(jq -c '[.example.parts[] | .text]' one.json)" = '["<s>one,"," two<|endoftext|>"]' ]
}

@test "the chat template is taken from the tokenizer, and the first example is shown" {
    mkdir -p folder
    cp "$tok" folder/tokenizer.json
    echo "{{ bos_token }}{{ '<start_of_turn>' + role }}" >folder/chat_template.jinja
    run -0 dt-dataset chat -t folder -o g.h5 - <<<'{"prompt": "Hi", "completion": "Ho"}'
    [[ "$output" == *"the first example, "*" targets:"* ]]
    [[ "$output" == *'context  "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"'* ]]
    [[ "$output" == *'target   "Ho<end_of_turn>"'* ]]
    [[ "$output" == *"g.h5: 1 examples in 1 samples of 1024, "* ]]
    dt-train --data g.h5 --seq 1024 --model long.json --microbatch 1 --steps 1 --precision fp32 --no-mfu --threads 1 --save kept --metrics k.jsonl
    [ "$(jq -r .tokenizer.chat_template kept/latest/manifest.json)" = "$(cat folder/chat_template.jinja)" ]
    dt-dataset chat -t folder --chat-template chatml -o g.h5 - <<<'{"prompt": "Hi", "completion": "Ho"}' >/dev/null
    run -1 h5dump -d chat_template g.h5
    run -1 dt-dataset chat -o b.h5 - <<<'{"prompt": "Hi", "completion": "Ho"}'
    [[ "$output" == *"'byte' has no known chat template"* ]]
    [ ! -e b.h5 ]
}

@test "an example without targets and a line of another format are refused, or skipped and reported" {
    local line
    for line in '{"messages": [{"role": "user", "content": "x"}]}' '{"text": "x"}' '{"prompt": 5, "completion": "x"}' '{"conversations": [{"from": "robot", "value": "x"}]}' 'no JSON'; do
        printf '%s\n' '{"prompt": "a", "completion": "b"}' "$line" >bad.jsonl
        rm -f bad.h5
        run -1 chat bad.h5 64 <bad.jsonl
        [[ "$output" == *"standard input:2"* ]]
        [ ! -e bad.h5 ]
        [ "$(chat bad.h5 64 --skip-bad <bad.jsonl 2>/dev/null | jq -c '[.train.examples, .bad_lines]')" = '[1,1]' ]
    done
    run -1 chat bad.h5 64 <<<'{"messages": [{"role": "user", "content": "x"}]}'
    [[ "$output" == *"the example has no target"* ]]
}

@test "examples that are too long are truncated and counted, or skipped" {
    chat cut.h5 24 <all.jsonl >cut.json
    [ "$(jq -c '[.cut, .cut_targets, .left_out, .train.examples]' cut.json)" = '[1,2,4,1]' ]
    chat cut.h5 40 --long drop <all.jsonl >cut.json
    [ "$(jq -c '[.cut, .left_out, .train.examples]' cut.json)" = '[0,2,3]' ]
    dt-dataset info --verify cut.h5
}

@test "packing by best fit; the evaluation split is the end; shards hold the same" {
    for i in $(seq 40); do
        printf '{"prompt": "%s", "completion": "%s"}\n' "$(printf 'q%.0s' $(seq $((i % 13))))" "$(printf 'a%.0s' $(seq $((i % 7 + 1))))"
    done >many.jsonl
    chat m.h5 64 <many.jsonl >m.json
    jq -e '.train.examples == 40 and .train.samples == 20 and .train.filled > 0.85' m.json
    dt-dataset info --json m.h5 | jq -e --argjson t "$(jq .train.targets m.json)" '.targets == $t and .row == 64 and .pack == "documents" and .documents == 40 and .tokens % 64 == 1'
    chat m3.h5 64 --shards 3 <many.jsonl >/dev/null
    cmp <(dt-dataset cat --ids m.h5) <(dt-dataset cat --ids m3.h5)
    [ "$(dt-dataset info --json m3.h5 | jq .targets)" = "$(jq .train.targets m.json)" ]
    chat tr.h5 64 --split 25 --out-eval ev.h5 <many.jsonl >split.json
    [ "$(jq -c '[.train.examples, .eval.examples]' split.json)" = '[30,10]' ]
    run -1 dt-train --data m.h5 --seq 32 "${common[@]}"
    [[ "$output" == *"packed into samples of 64 tokens, not 32"* ]]
}

@test "memory does not grow with the tokens of the examples" {
    awk 'BEGIN { while (n++ < 2000) text = text "a b "
        for (i = 0; i < 5000; i++) print "{\"prompt\": \"" i "\", \"completion\": \"" text "\"}" }' >big.jsonl
    # 40 million tokens
    (ulimit -v 200000 && OMP_NUM_THREADS=1 dt-dataset chat -t byte --chat-template none --seq 8192 --json -o big.h5 big.jsonl >big.json)
    jq -e '.train.examples == 5000 and .train.samples == 5000 and .train.targets == 40005000' big.json
    # the longest are packed first: those from 1000 on
    [ "$(dt-dataset cat --count 8 big.h5)" = "1000a b " ]
    [ "$(dt-dataset cat --count 8 --first $((8192 * 3999)) big.h5)" = "4999a b " ]
    [ "$(dt-dataset cat --count 8 --first $((8192 * 4999)) big.h5)" = "9a b a b" ]
    rm big.*
}

@test "the loss of a packed batch is that of its examples alone, over all targets, on any layout" {
    chat all.h5 128 <all.jsonl >all.json
    local n=0 sum=0 targets=0 line t
    while read -r line; do
        t=$(chat one.h5 128 <<<"$line" | jq .train.targets)
        sum="$sum + $t * $(first_loss one.h5 1 --seq 128 --microbatch 1 --global-batch 1)"
        targets=$((targets + t))
        n=$((n + 1))
    done <all.jsonl
    [ "$(jq .train.targets all.json)" = $targets ]
    n=$(jq .train.samples all.json)
    [ "$n" = 2 ]
    local packed
    packed=$(first_loss all.h5 1 --seq 128 --microbatch 2 --global-batch 2)
    close "$packed" "($sum) / $targets" 1e-6
    close "$(first_loss all.h5 1 --seq 128 --microbatch 1 --global-batch 2)" "$packed" 1e-6
    close "$(first_loss all.h5 2 --seq 128 --microbatch 1 --global-batch 2)" "$packed" 1e-6
    close "$(first_loss all.h5 2 --seq 128 --microbatch 1 --global-batch 2 --layout cp2)" "$packed" 1e-6
    close "$(first_loss all.h5 2 --seq 128 --microbatch 1 --global-batch 2 --layout pp2)" "$packed" 1e-6
    dt-train --data all.h5 --eval-data all.h5 --seq 128 --microbatch 1 "${common[@]}" --lr 0 --metrics e.jsonl >/dev/null
    close "$(jq -s 'map(select(.eval_loss)) | .[0].eval_loss' e.jsonl)" "$packed" 1e-6
    [ "$(jq -s 'map(select(.eval_loss)) | .[0].eval_tokens' e.jsonl)" = $targets ]
}

@test "NEFTune noise is the same on any layout, and absent in evaluation" {
    takes_long
    chat noise.h5 128 <all.jsonl >/dev/null
    local plain noisy how
    plain=$(first_loss noise.h5 1 --seq 128 --microbatch 2 --global-batch 2)
    noisy=$(first_loss noise.h5 1 --seq 128 --microbatch 2 --global-batch 2 --neftune 5)
    jq -en "$plain - $noisy | fabs > 1e-4"
    for how in '1 --recompute full' '2' '2 --layout tp2' '2 --layout cp2' '2 --layout pp2' '2 --layout dp2.z3'; do
        # shellcheck disable=SC2086 # words
        close "$(first_loss noise.h5 $how --seq 128 --microbatch 1 --global-batch 2 --neftune 5)" "$noisy" 2e-6
    done
    close "$(first_loss noise.h5 1 --seq 128 --microbatch 2 --global-batch 2 --neftune 1e-6)" "$plain" 2e-6
    dt-train --data noise.h5 --eval-data noise.h5 --seq 128 --microbatch 2 "${common[@]}" --lr 0 --neftune 5 --metrics e.jsonl >/dev/null
    close "$(jq -s 'map(select(.eval_loss)) | .[0].eval_loss' e.jsonl)" "$plain" 2e-6
}

@test "training on conversations teaches the answers" {
    for i in 1 2 3 4 5 6 7 8; do cat all.jsonl; done >eight.jsonl
    chat eight.h5 128 <eight.jsonl >/dev/null
    dt-train --data eight.h5 --seq 128 "${common[@]}" --steps 80 --lr 1e-2 --microbatch 4 --metrics l.jsonl >/dev/null
    jq -s -e 'map(select(.loss)) | .[0].loss > 5 and .[-1].loss < 0.5' l.jsonl
}
# SPDX-License-Identifier: Apache-2.0
