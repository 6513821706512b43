#!/usr/bin/env bats
# dt-eval: perplexity and multiple choice as in transformers, the same on any number of ranks, tasks, bad
# input.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    head -c 2561 "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    dt-train --model llama-tiny --data d.h5 --seq 64 --steps 30 --lr 3e-3 --threads 1 --no-mfu --save run \
        --precision fp32 --eval-data d.h5 --eval-tokens 2496 >metrics.jsonl
}

setup() {
    in_folder
    common=(--threads 1 --precision fp32)
}

refused() { # STATUS TEXT ARGUMENT...: stderr contains TEXT
    run --separate-stderr -"$1" timeout 60 dt-eval "${@:3}"
    [ "$(wc -l <<<"$stderr")" -le 2 ]
    [[ $stderr == *"$2"* ]] || { echo "not '$2' but: $stderr"; return 1; }
}

@test "perplexity with three ways of cutting windows, and scores of choices: those of transformers" {
    stories=${DT_TEST_DATA:-$DT_SRC/../shared/data}/stories260K
    [ -f "$stories/stories260K.bin" ] || skip "stories260K is not there"
    golden=$DT_SRC/tests/data/golden-eval.json
    head -c 6000 "$DT_SRC/LICENSE" >license.txt
    dt-shard-ckpt convert --tokenizer "$stories/tok512.bin" --to safetensors "$stories/stories260K.bin" stories
    for windows in rolling transformers llama.cpp; do
        stride=(--stride 64)
        [ $windows != llama.cpp ] || stride=()
        dt-eval ppl "${common[@]}" --text license.txt --seq 128 "${stride[@]}" --windows $windows --json stories >got.json
        jq -en --slurpfile got got.json --slurpfile want "$golden" --arg w $windows \
            '$got[0].tokens == $want[0][$w].tokens and ($got[0].nll - $want[0][$w].nll | fabs < 1e-6)'
    done
    dt-eval task "${common[@]}" "$DT_SRC/tests/data/eval/story.jsonl" stories --predictions lines.jsonl --json >sum.json
    jq -e '.acc == 1 and .acc_norm == 1 and .items == 4' sum.json
    jq -en --slurpfile got lines.jsonl --slurpfile want "$golden" \
        '[range(4) as $i | range(2) as $k | $got[$i].logprobs[$k] - $want[0].choices[$i][$k] | fabs] | max < 1e-4'
}

@test "real weights (SmolLM2, Gemma 3): perplexity and choices as in transformers and llama-perplexity" {
    models=${DT_TEST_MODELS:-${DT_TEST_DATA:-$DT_SRC/../shared/data}/models}
    golden=$DT_SRC/tests/data/golden-eval-real.json
    tr -s ' ' <"$DT_SRC/LICENSE" | head -c "$(jq .text "$golden")" >license.txt
    found=0
    for name in smollm2 gemma3; do
        file=$models/$(jq -r ".$name.file" "$golden")
        [ -e "$file" ] || continue
        found=$((found + 1))
        for windows in rolling transformers llama.cpp; do
            stride=(--stride 64)
            [ $windows != llama.cpp ] || stride=()
            dt-eval ppl "${common[@]}" --weights f32 --text license.txt --seq 128 "${stride[@]}" --windows $windows --json "$file" >got.json
            jq -en --slurpfile got got.json --slurpfile want "$golden" --arg w $windows --arg n $name '
                ($want[0][$n] | [.[$w]] + if $w == "llama.cpp" then [.["llama-perplexity"]] else [] end) |
                all(.tokens == $got[0].tokens and (.nll - $got[0].nll | fabs < 1e-4))' ||
                { jq -c "{tokens, nll}" got.json; jq -c "del(.[].choices?)" "$golden"; return 1; }
        done
        dt-eval task "${common[@]}" --weights f32 "$DT_SRC/tests/data/eval/story.jsonl" "$file" --predictions lines.jsonl >/dev/null
        jq -en --slurpfile got lines.jsonl --slurpfile want "$golden" --arg n $name \
            '[range(4) as $i | range(2) as $k | $got[$i].logprobs[$k] - $want[0][$n].choices[$i][$k] | fabs] | max < 1e-3'
    done
    [ "$found" -gt 0 ] || skip "no models in '$models' (golden_greedy.py --list)"
}

@test "log-likelihoods, accuracies and standard errors of four tasks: those of lm-evaluation-harness" {
    stories=${DT_TEST_DATA:-$DT_SRC/../shared/data}/stories260K
    [ -f "$stories/stories260K.bin" ] || skip "stories260K is not there"
    golden=$DT_SRC/tests/data/golden-choices.json
    dt-shard-ckpt convert --tokenizer "$stories/tok512.bin" --to safetensors "$stories/stories260K.bin" told
    for task in story choices bare labels; do
        dt-eval task "${common[@]}" "$DT_SRC/tests/data/eval/$task.jsonl" told --predictions lines.jsonl --json >sum.json
        jq -en --arg t $task --slurpfile lines lines.jsonl --slurpfile sum sum.json --slurpfile want "$golden" '
            $want[0][$t] as $w | [$lines[].logprobs] as $got
            | ($got | map(length)) == ($w.logprobs | map(length)) and
              ([range($got | length) as $i | range($got[$i] | length) as $k
                | $got[$i][$k] - $w.logprobs[$i][$k] | fabs] | max < 2e-4) and
              (["acc", "acc_norm", "acc_bytes"] | map(., . + "_stderr")
               | all(. as $m | $sum[0][$m] - $w[$m] | fabs < 1e-9))' || { echo $task; cat sum.json; return 1; }
    done
    # a task on which the three accuracies differ
    dt-eval task "${common[@]}" "$DT_SRC/tests/data/eval/choices.jsonl" told --json |
        jq -e '.acc != .acc_norm and .acc_norm != .acc_bytes'
    head -c 6000 "$DT_SRC/LICENSE" >license.txt
    dt-eval ppl "${common[@]}" --text license.txt --seq 128 --json told >got.json
    jq -en --slurpfile got got.json --slurpfile want "$golden" '$got[0].tokens == $want[0].rolling.tokens and
        ($got[0].nll * $got[0].tokens / -$want[0].rolling.logprob - 1 | fabs < 1e-6)'
    # for a tokenizer that adds a token at the start, quantize prints the perplexity that dt-eval finds
    dt-shard-ckpt quantize --type q8_0 --text license.txt --seq 128 told told.gguf 2>said
    dt-eval compare --text license.txt --seq 128 --json told told.gguf >pair.json
    grep -qF "$(jq -r '"\(.a.perplexity) \(.b.perplexity)"' pair.json | xargs printf 'perplexity %.4f before, %.4f after (')" said
}

@test "a choice without context follows the tokenizer's start token, as in lm-evaluation-harness" {
    stories=${DT_TEST_DATA:-$DT_SRC/../shared/data}/stories260K
    [ -f "$stories/stories260K.bin" ] || skip "stories260K is not there"
    dt-shard-ckpt convert --tokenizer "$stories/tok512.bin" --to safetensors "$stories/stories260K.bin" alone
    jq -c '.post_processor = null' alone/tokenizer.json >adds-none.json
    mv adds-none.json alone/tokenizer.json
    cp alone/tokenizer_config.json names.json
    for key in alone_bos alone_eos; do
        jq "if \"$key\" == \"alone_eos\" then del(.bos_token) | .eos_token = {content: \"<unk>\"} else . end" names.json >alone/tokenizer_config.json
        dt-shard-ckpt convert --to dt alone alone-dt
        dt-shard-ckpt convert --to safetensors alone-dt alone-back
        models=(alone alone-dt alone-back)
        # a GGUF file has only ids, which are those of config.json
        [ $key = alone_eos ] || { dt-shard-ckpt convert alone alone.gguf; models+=(alone.gguf); }
        for model in "${models[@]}"; do
            dt-eval task "${common[@]}" "$DT_SRC/tests/data/eval/alone.jsonl" $model --predictions lines.jsonl --json >sum.json
            jq -en --arg t $key --slurpfile lines lines.jsonl --slurpfile sum sum.json --slurpfile want "$DT_SRC/tests/data/golden-choices.json" '
                $want[0][$t] as $w | [$lines[].logprobs] as $got
                | ($got | map(length)) == ($w.logprobs | map(length)) and
                  ([range($got | length) as $i | range($got[$i] | length) as $k
                    | $got[$i][$k] - $w.logprobs[$i][$k] | fabs] | max < 2e-4) and ($sum[0].acc - $w.acc | fabs < 1e-9)' ||
                { echo "$key of $model"; cat lines.jsonl; return 1; }
        done
        rm -rf alone-dt alone-back
    done
    # if no tokenizer file names one: the ids in the model's configuration
    rm alone/tokenizer_config.json
    jq '.bos_token_id = 0' alone/config.json >config.json
    mv config.json alone/config.json
    dt-eval task "${common[@]}" "$DT_SRC/tests/data/eval/alone.jsonl" alone --predictions lines.jsonl >/dev/null
    jq -en --slurpfile got lines.jsonl --slurpfile want "$DT_SRC/tests/data/golden-choices.json" \
        '[range(3) as $k | $got[0].logprobs[$k] - $want[0].alone_eos.logprobs[0][$k] | fabs] | max < 2e-4'
}

@test "choices of an item share the tokens of its context: in any order, among many items, the scores are equal" {
    /usr/bin/python3 - <<'END'
import json, random
r = random.Random(3)
words = "time water house people light river small great under never".split()
def text(n):
    return " ".join(r.choice(words) + r.choice(["", "", ".", "\n", ", 7", "  "]) for _ in range(n))
with open("there.jsonl", "w") as there, open("back.jsonl", "w") as back:
    for f in there, back:
        print(json.dumps({"task": "t", "template": "{q}"}), file=f)
    for i in range(150): # more than are tokenized ahead
        q = text(r.choice([0, 1, 2, 6])) + r.choice(["", " ", "\n\n"])
        c = [r.choice(["", " "]) + text(r.choice([1, 2])) for _ in range(4)]
        print(json.dumps({"q": q, "choices": c, "answer": 0}), file=there)
        print(json.dumps({"q": q, "choices": c[::-1], "answer": 3}), file=back)
END
    for way in there back; do
        dt-eval task "${common[@]}" $way.jsonl run --predictions $way >/dev/null
    done
    [ "$(wc -l <there)" = 150 ]
    cmp <(jq -c .logprobs there) <(jq -c '.logprobs | reverse' back)
}

@test "an item longer than the context is truncated at the left and reported; the others are scored" {
    printf -v all '%s' "$(head -c 2000 text.txt)end" # tokens are bytes; " 1" is two; of 129 the last is not read
    jq -nc --arg all "$all" --arg tail "${all: -127}" '{task: "x", template: "{q}"},
        ({q: ($all, $tail, "short"), choices: ["1", "2"], answer: 0})' >long.jsonl
    dt-eval task "${common[@]}" --seq 128 long.jsonl run --predictions lines.jsonl >said
    cat said
    grep -qx '1 of them longer than the context: the model was given only the end' said
    jq -se '(map(.logprobs) | .[0] == .[1] and .[1] != .[2]) and length == 3' lines.jsonl
    dt-eval task "${common[@]}" --seq 128 --json long.jsonl run | jq -e '.truncated == 1 and .items == 3'
    mpirun -np 2 dt-eval task "${common[@]}" --seq 128 --json long.jsonl run | jq -e '.truncated == 1'
    jq -nc --arg all "$all" --arg tail "${all: -120}" '{task: "x", kind: "generate", template: "{q}", max_tokens: 8},
        ({q: ($all, $tail), answer: "?"})' >long.jsonl
    dt-eval task "${common[@]}" --seq 128 long.jsonl run --predictions lines.jsonl >said
    grep -q '^1 of them longer' said
    jq -se '.[0].text == .[1].text and (.[0].text | length > 0)' lines.jsonl
}

@test "the loss of dt-train's evaluation is dt-eval's nll, from another program and graph" {
    trained=$(jq -s 'map(.eval_loss // empty) | last' metrics.jsonl)
    [ "$(jq -s 'map(.eval_tokens // empty) | last' metrics.jsonl)" -eq 2496 ]
    dt-eval ppl "${common[@]}" --text text.txt --seq 64 --limit 39 --json run >got.json
    jq -e --argjson t "$trained" '.tokens == 2496 and (.nll - $t | fabs < 1e-6) and .bytes == 2496' got.json
    jq -e '(.perplexity - (.nll | exp) | fabs < 1e-9) and
           (.bits_per_byte - .nll / (2 | log) | fabs < 1e-9)' got.json
}

@test "--lora: an adapter beside its base equals the merged model, and the trainer's evaluation" {
    dt-train --model run --data d.h5 --seq 64 --steps 10 --lora 4 --lora-dropout 0.1 --lr 1e-2 --threads 1 --no-mfu --save tuned --overwrite \
        --precision fp32 --eval-data d.h5 --eval-tokens 2496 --metrics tuned.jsonl >/dev/null
    trained=$(jq -s 'map(.eval_loss // empty) | last' tuned.jsonl)
    dt-shard-ckpt lora-merge --to dt run tuned merged
    dt-eval ppl "${common[@]}" --text text.txt --seq 64 --limit 39 --json --lora tuned run >lora.json
    dt-eval ppl "${common[@]}" --text text.txt --seq 64 --limit 39 --json merged >merged.json
    [ "$(jq .nll lora.json)" = "$(jq .nll merged.json)" ]
    jq -e --argjson t "$trained" '.nll - $t | fabs < 1e-5' lora.json
    dt-eval compare "${common[@]}" --text text.txt --seq 64 --limit 39 --json --lora tuned run run >pair.json
    jq -e --slurpfile m merged.json '(.b.nll - $m[0].nll | fabs < 1e-9) and .kl_mean > 1e-4' pair.json
    echo '{"begin": "The", "choices": [" License", " xyzzy"], "answer": 0}' | cat <(echo '{"task": "next", "template": "{begin}", "delimiter": ""}') - >few.jsonl
    dt-eval task "${common[@]}" few.jsonl run --lora tuned --predictions a.jsonl >/dev/null
    dt-eval task "${common[@]}" few.jsonl merged --predictions b.jsonl >/dev/null
    cmp a.jsonl b.jsonl
    # sampled answers with the same seed
    dt-rollout sample "${common[@]}" --task copy:2 --count 3 --group 2 --lora tuned run | jq -c 'del(.step, .weights)' >tuned.rolls
    dt-rollout sample "${common[@]}" --task copy:2 --count 3 --group 2 merged | jq -c 'del(.step, .weights)' >merged.rolls
    cmp tuned.rolls merged.rolls
    dt-train --model run --data d.h5 --seq 64 --steps 1 --threads 1 --no-mfu --save other --overwrite --precision fp32 --metrics m.jsonl >/dev/null
    refused 1 'trained on' ppl --text text.txt --lora tuned other
    dt-eval ppl "${common[@]}" --text text.txt --seq 64 --limit 2 --lora tuned --any-base other
    refused 2 '--lora does not apply to a server' task few.jsonl http://127.0.0.1:9 --lora tuned
}

@test "results on any number of ranks are equal to the bit" {
    {
        echo '{"task": "next", "template": "{begin}", "delimiter": ""}'
        for at in 10 200 333 512 700 901 1111; do
            jq -nc --arg b "${text:-$(head -c $at text.txt | tail -c 40)}" \
                '{begin: $b, choices: ["the", "License", "xyzzy"], answer: 1}'
        done
    } >next.jsonl
    for n in 1 3; do
        mpirun -np $n dt-eval ppl "${common[@]}" --text text.txt --seq 64 --stride 48 --json run >ppl.$n
        mpirun -np $n dt-eval ppl "${common[@]}" --text - --seq 64 --stride 48 --json run <text.txt >stdin.$n
        mpirun -np $n dt-eval ppl "${common[@]}" --text '|echo >>ran; cat text.txt' --seq 64 --stride 48 --json run \
            >command.$n
        mpirun -np $n dt-eval task "${common[@]}" next.jsonl run --predictions lines.$n --json >task.$n
        mpirun -np $n dt-eval compare "${common[@]}" --text text.txt --seq 64 --json run run >pair.$n
    done
    cmp ppl.1 ppl.3
    cmp ppl.1 stdin.3
    cmp ppl.1 command.3
    [ "$(wc -l <ran)" -eq 2 ] # once for each job, not for each rank
    cmp task.1 task.3
    cmp pair.1 pair.3
    sort lines.1 | cmp - <(sort lines.3.0 lines.3.1 lines.3.2)
    jq -e '.kl_max == 0 and .same_top_1 == 1 and .nll_difference == 0' pair.1
}

@test "a quantised model compared with its source" {
    dt-shard-ckpt quantize --type q4_0 --text text.txt --seq 64 --tokenizer byte run small.gguf 2>said
    dt-eval compare --tokenizer byte --text text.txt --seq 64 --json run small.gguf >bf16.json
    want=$(jq -r '"\(.a.perplexity) \(.b.perplexity) \(.kl_mean)"' bf16.json)
    # shellcheck disable=SC2086 # three words
    grep -qF "$(printf 'perplexity %.4f before, %.4f after (' ${want% *})" said
    grep -qF "$(printf 'KL %.5f, same top-1' "${want##* }")" said
    dt-eval compare "${common[@]}" --tokenizer byte --text text.txt --seq 64 --json run small.gguf >q4.json
    jq -e '.kl_mean > 1e-5 and .kl_mean < 0.5 and .kl_p99 >= .kl_median and .kl_max >= .kl_p99 and
           .same_top_1 > 0.5 and .same_top_1 < 1' q4.json
    # a file without a tokenizer takes the first model's
    dt-eval compare --text text.txt --seq 64 --json run small.gguf | cmp - bf16.json
    jq -e '(.b.nll - .a.nll - .nll_difference | fabs < 1e-9) and .nll_difference_stderr < .a.nll_stderr' q4.json
    run dt-eval compare "${common[@]}" --tokenizer byte --text text.txt --seq 64 run small.gguf run
    [ "${#lines[@]}" -eq 4 ]
    [[ ${lines[3]} == run*100.00%* ]]
    # a compressed text, or a command's output, is read as that text
    gzip -k text.txt
    dt-eval compare --tokenizer byte --text text.txt.gz --seq 64 --json run small.gguf | cmp - bf16.json
    dt-eval ppl "${common[@]}" --tokenizer byte --text text.txt --seq 64 run >want
    dt-eval ppl "${common[@]}" --tokenizer byte --text '|cat text.txt' --seq 64 run | cmp - want
}

@test "quantize --threads: that number, and the same bytes; default OMP_NUM_THREADS; dt-eval's losses, too" {
    # The OpenMP runtime reports its teams: gcc's on stderr, clang's on stdout.
    export OMP_DISPLAY_AFFINITY=true OMP_AFFINITY_FORMAT='a team of %N'
    how=(--type q4_k --calibrate text.txt --calibrate-seq 64 --calibrate-tokens 256 --tokenizer byte --method gptq)
    teams() { # MOST ARGUMENT...: the largest OpenMP team of a command
        timeout 120 "${@:2}" 2>&1 | sed -n 's/.*a team of \([0-9]*\)$/\1/p' | sort -nu | tail -n 1 >largest
        [ "$(cat largest)" = "$1" ] || { echo "not $1 but $(cat largest): ${*:2}"; return 1; }
    }
    teams 3 dt-shard-ckpt quantize "${how[@]}" --threads 3 run three.gguf
    OMP_NUM_THREADS=2 teams 2 dt-shard-ckpt quantize "${how[@]}" run two.gguf
    OMP_NUM_THREADS=4 teams 2 dt-shard-ckpt quantize "${how[@]}" --threads 2 --text text.txt run again.gguf
    cmp two.gguf three.gguf
    cmp two.gguf again.gguf
    # rounding without a text is parallel, too, and reads rows in another order for q and k of Llama
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 256, intermediate_size: 512, num_hidden_layers: 1,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5}' >broad.json
    dt-train --model broad.json --data d.h5 --seq 16 --steps 1 --precision fp32 --threads 1 --no-mfu --save broad >/dev/null
    for type in q8_0 q4_k; do
        dt-shard-ckpt quantize --type $type --threads 1 broad broad-1.gguf
        teams 3 dt-shard-ckpt quantize --type $type --threads 3 broad broad-3.gguf
        cmp broad-1.gguf broad-3.gguf
        rm broad-?.gguf
    done
    teams 3 dt-shard-ckpt sparsify --sparsity 50% --calibrate text.txt --calibrate-seq 64 --tokenizer byte --threads 3 run pruned
    OMP_NUM_THREADS=4 teams 3 dt-eval ppl --threads 3 --text text.txt --seq 64 --limit 4 run
}

@test "quantization calibrated on a text: less is lost; the scaling of inputs leaves the model unchanged" {
    export OMP_NUM_THREADS=1
    how=(--calibrate text.txt --calibrate-seq 64 --tokenizer byte)
    lost() { # TYPE NAME: appends the KL divergence of the file NAME-TYPE.gguf
        dt-eval compare "${common[@]}" --tokenizer byte --text text.txt --seq 64 --json run "$2-$1.gguf" |
            jq "{\"$2_$1\": .kl_mean}" >>lost.jsonl
    }
    # rows of 64: layers in q5_0; embedding and head, which are not calibrated, in q8_0
    for t in q4_k q8_0; do
        dt-shard-ckpt quantize --type $t --tokenizer byte run plain-$t.gguf
        lost $t plain
    done
    for m in rtn gptq awq; do
        dt-shard-ckpt quantize --type q4_k "${how[@]}" --method $m run $m-q4_k.gguf 2>said
        grep -F '18 matrices were rounded using 2560 tokens of text' said
        lost q4_k $m
    done
    dt-shard-ckpt quantize --type q4_k "${how[@]}" --method gptq --act-order run order-q4_k.gguf
    lost q4_k order
    for m in awq smooth; do
        dt-shard-ckpt quantize --type q8_0 "${how[@]}" --method $m run $m-q8_0.gguf
        lost q8_0 $m
    done
    cat lost.jsonl
    jq -se 'add | .gptq_q4_k < 0.85 * .plain_q4_k and .order_q4_k < 0.85 * .plain_q4_k and
        .rtn_q4_k < 0.85 * .plain_q4_k and .awq_q4_k < 1.2 * .plain_q4_k' lost.jsonl
    jq -se 'add | .awq_q8_0 < 4 * .plain_q8_0 and .smooth_q8_0 < 4 * .plain_q8_0' lost.jsonl
    # a packed folder holds the values of the blocks; rows of 172 are no multiple of a block, and 172 rows
    # fill no whole words
    dt-shard-ckpt quantize --type q4_0 "${how[@]}" run rtn.gguf
    dt-shard-ckpt convert --type f16 --tokenizer byte run half.gguf
    dt-shard-ckpt quantize --to gptq --type q4_0 "${how[@]}" --text text.txt --seq 64 run packed 2>said
    grep -F '12 matrices were rounded using 2560 tokens of text' said
    grep -F '9 matrices have sizes that cannot be packed and are written as f16' said
    grep -E '^dt-shard-ckpt: perplexity [0-9.]+ before' said
    jq -e '.quantization_config.modules_in_block_to_quantize[0] == ["q", "k", "v", "o" | "self_attn.\(.)_proj"]' packed/config.json
    for l in 0 1 2; do
        for p in attn.v attn.o mlp.up mlp.down; do # rows of q and k are in another rotary order
            file=half.gguf
            [[ $p == mlp* ]] || file=rtn.gguf
            dt-shard-ckpt cat layers.$l.$p.weight packed >a.txt
            dt-shard-ckpt cat layers.$l.$p.weight $file | cmp - a.txt
        done
    done
    # the norms absorb the scaling
    dt-shard-ckpt diff -a run smooth-q8_0.gguf >differ || true
    grep -q norm differ
    run find . -name '*.dt-*'
    [ -z "$output" ]
}

@test "GPTQ and AWQ at 4 bits compared with AutoGPTQ and AutoAWQ, and better than rounding to nearest" {
    export OMP_NUM_THREADS=1
    data=$DT_SRC/tests/data
    heldout() { # MODEL: perplexity of the held-out text
        dt-eval ppl "${common[@]}" --tokenizer byte --text "$data/eval/heldout.txt" --seq 128 --json "$1" | jq .perplexity
    }
    source=$(heldout "$data/eval/small")
    for f in q4_0 q4_1; do
        dt-shard-ckpt quantize --type $f --tokenizer byte "$data/eval/small" $f.gguf
        plain=$(heldout $f.gguf)
        for m in gptq awq; do
            dt-shard-ckpt quantize --type $f --tokenizer byte --calibrate "$data/eval/calibrate.txt" --calibrate-seq 128 \
                --method $m "$data/eval/small" $f-$m.gguf 2>said
            grep -F '21 matrices were rounded using 16128 tokens of text' said
            jq -e --argjson source "$source" --argjson plain "$plain" --argjson here "$(heldout $f-$m.gguf)" --arg f $f --arg m $m '
                ($source / .float - 1 | fabs < 1e-4) and $here < 1.01 * .[$f][$m] and
                ($here < $plain or $f == "q4_1" and $m == "awq")' "$data/golden-quantised.json" || { echo "$f $m"; return 1; }
        done
    done
}

@test "pruning by magnitude and by Wanda: the requested zeros, in layers only, and the loss they cost" {
    how=(--calibrate text.txt --calibrate-seq 64)
    dt-shard-ckpt sparsify --sparsity 25% --text text.txt --seq 64 --tokenizer byte run less 2>said
    grep -F '21 matrices were pruned' said
    dt-eval compare --tokenizer byte --text text.txt --seq 64 --json run less >less.json
    grep -qF "$(jq -r '"\(.a.perplexity) \(.b.perplexity)"' less.json | xargs printf 'perplexity %.4f before, %.4f after (')" said
    # llama-tiny: rows of 64, and of 172 in down
    zeros() { # CHECKPOINT: number of zeros in q and down of the first layer, and outside layers
        dt-shard-ckpt stats --json "$1" | jq -r '[.tensors[] | select(.name | test("layers.0.(attn.q|mlp.down).weight")) |
            "\(.name | split(".")[-2])=\(.zeros)"] + ["others=\([.tensors[] | select(.name | test("layers") | not).zeros] | add)"] | sort | join(" ")'
    }
    zeros less
    [ "$(zeros less)" = "down=2752 others=0 q=1024" ]
    dt-shard-ckpt sparsify --tokenizer byte "${how[@]}" --sparsity 0.25 run wanda 2>said
    grep -F '21 matrices were pruned using 2560 tokens of text' said
    [ "$(zeros wanda)" = "down=2752 others=0 q=1024" ]
    dt-shard-ckpt cat layers.1.mlp.up.weight wanda | awk 'BEGIN { s = 1 } { n = 0; for (i = 1; i <= NF; i++) n += $i == 0; if (n != 16) { s = 0 } } END { exit !s }'
    for m in magnitude wanda; do
        [ $m = magnitude ] || set -- "${how[@]}"
        dt-shard-ckpt sparsify --tokenizer byte --method $m --pattern 2:4 "$@" run pattern-$m
        dt-shard-ckpt cat layers.1.mlp.down.weight pattern-$m |
            awk 'BEGIN { s = 1 } { for (i = 1; i <= NF; i += 4) if (($i == 0) + ($(i + 1) == 0) + ($(i + 2) == 0) + ($(i + 3) == 0) != 2) s = 0 } END { exit !s }'
    done
    run dt-shard-ckpt diff pattern-magnitude pattern-wanda
    [ "$status" -eq 3 ]
    refuse() { # STATUS TEXT ARGUMENT...: stderr contains TEXT
        run --separate-stderr -"$1" timeout 60 dt-shard-ckpt sparsify --tokenizer byte "${@:3}"
        [[ $stderr == *"$2"* ]] || { echo "not '$2' but: $stderr"; return 1; }
        [ ! -e none ]
    }
    refuse 2 'needs --sparsity or --pattern' run none
    refuse 2 'wanda needs --calibrate' --method wanda --sparsity 0.5 run none
    refuse 2 'magnitude does not use --calibrate' --method magnitude "${how[@]}" --sparsity 0.5 run none
    refuse 2 '--method of sparsify is magnitude or wanda' --method gptq "${how[@]}" --sparsity 0.5 run none
    refuse 1 'not a multiple of 8' --pattern 4:8 run none
}

@test "calibration: bad input" {
    refuse() { # STATUS TEXT ARGUMENT...: stderr contains TEXT
        run --separate-stderr -"$1" timeout 60 dt-shard-ckpt quantize --tokenizer byte "${@:3}"
        [[ $stderr == *"$2"* ]] || { echo "not '$2' but: $stderr"; return 1; }
        [ ! -e no.gguf ]
    }
    echo short >short.txt
    refuse 2 '--method needs --calibrate' --type q4_0 --method gptq run no.gguf
    refuse 2 '--method wanda belongs to sparsify' --type q4_0 --method wanda --calibrate text.txt run no.gguf
    refuse 2 '--damping needs --method gptq' --type q4_0 --calibrate text.txt --damping 0.1 run no.gguf
    refuse 2 '--act-order needs --method gptq' --type q4_0 --calibrate text.txt --act-order --method awq run no.gguf
    refuse 1 'fewer than one window of 64' --type q4_0 --calibrate-seq 64 --calibrate short.txt run no.gguf
    refuse 1 'positions of the model' --type q4_0 --calibrate-seq 100000 --calibrate text.txt run no.gguf
    refuse 1 nowhere.txt --type q4_0 --calibrate nowhere.txt run no.gguf
    touch there.gguf
    run --separate-stderr -1 dt-shard-ckpt quantize --tokenizer byte --type q4_0 --calibrate text.txt run there.gguf
    [[ $stderr == *there.gguf* ]]
    [ ! -s there.gguf ]
}

@test "block formats of every size: which rows fit, and the distance of each from its source" {
    # rows of 64 and 172: no blocks of 256; rows of 172 fit no block at all
    run --separate-stderr dt-shard-ckpt quantize --type q4_k run narrow.gguf
    [[ $stderr == *" matrices have rows of a length that no block of 256 fits and are written as q5_0"* ]]
    [[ $stderr == *"3 matrices have rows of a length that no block fits and are written as f16"* ]]
    jq -n '{model_type: "llama", architectures: ["LlamaForCausalLM"], vocab_size: 257, hidden_size: 256, rms_norm_eps: 1e-5,
        intermediate_size: 512, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, hidden_act: "silu",
        max_position_embeddings: 128, rope_theta: 10000, bos_token_id: 256, eos_token_id: 256, tie_word_embeddings: false}' >wide.json
    dt-train --model wide.json --data d.h5 --seq 64 --steps 8 --lr 1e-2 --threads 1 --no-mfu --save wide >wide.jsonl
    for t in q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_xs mxfp4 q3_k q2_k iq3_s iq2_xxs; do
        dt-shard-ckpt quantize --type $t wide wide-$t.gguf >made 2>said
        ! grep matrices said
        dt-eval compare "${common[@]}" --tokenizer byte --text text.txt --seq 64 --json wide wide-$t.gguf | jq "{$t: .kl_mean}"
    done >far
    jq -se 'add | .q8_0 < .q6_k and .q6_k < .q5_0 and .q5_k < .q5_0 and .q5_0 < .q4_1 and .q4_k < .q4_1 and .q4_1 < .q4_0 and .q4_k < .mxfp4 and
        .q5_1 < .q4_1 and .iq4_xs < .q3_k and .q4_k < .q3_k and .q3_k < .q2_k and
        .q4_k < .iq3_s and .iq3_s < .iq2_xxs' far || { cat far; return 1; }
    run --separate-stderr -1 dt-shard-ckpt quantize --tokenizer byte --type iq3_s --calibrate text.txt --method gptq \
        wide refused.gguf
    [[ $stderr == *"gptq rounds single weights, but iq3_s codes several together"* ]]
    dt-shard-ckpt ls --json wide-q4_k.gguf | jq -e '[.tensors[] | select(.shape | length == 2) | .dtype] |
        unique == ["q4_k", "q6_k"]'
}

@test "classification: confusion matrix and F1 as computed independently" {
    {
        echo '{"task": "kind", "kind": "classify", "template": "{text}", "delimiter": "", "choices": ["e", "t", " "]}'
        for at in $(seq 100 57 2000); do
            jq -nc --arg b "$(head -c $at text.txt | tail -c 30)" --argjson a $((at % 3)) '{text: $b, answer: $a}'
        done
    } >kind.jsonl
    dt-eval task "${common[@]}" kind.jsonl run --predictions given.jsonl --json >kind.json
    jq -en --slurpfile p given.jsonl --slurpfile r kind.json '
        def count(f): [$p[] | select(f)] | length;
        ([range(3) as $k | count(.given == $k and .answer == $k) as $both
            | if $both == 0 then 0 else 2 * $both / (count(.given == $k) + count(.answer == $k)) end] | add / 3) as $f1
        | ($r[0].macro_f1 - $f1 | fabs < 1e-12) and
          ($r[0].labels[1].given == [range(3) as $k | count(.answer == 1 and .given == $k)]) and
          ($r[0].acc - count(.given == .answer) / ($p | length) | fabs < 1e-12)'
    run dt-eval task "${common[@]}" kind.jsonl run
    [[ $output == *"Rows are labels, columns are predictions."* ]]
}

@test "generated answers: exact match, loose match and last number" {
    first=$(dt-serve --batch --precision fp32 run <<<'{"prompt": "Apache Li", "max_tokens": 6, "temperature": 0}' 2>/dev/null | jq -r .text)
    for match in exact loose number; do
        jq -nc --arg m $match '{task: "go on", kind: "generate", template: "Apache Li", max_tokens: 6, match: $m}'
        jq -nc --arg a "$first" '{answer: ["nothing", $a]}'
        jq -nc '{answer: "certainly not"}'
    done | split -l 3 - way.
    dt-eval task "${common[@]}" way.aa run --json | jq -e '.exact_match == 0.5'
    dt-eval task "${common[@]}" way.ab run --json | jq -e '.exact_match == 0.5'
}

@test "a server's answers are scored like the checkpoint's" {
    dt-serve --precision fp32 --threads 1 --port 0 --api-key k run >url 2>serve.log 3>&- &
    server=$!
    until [ -s url ] || ! kill -0 $server; do sleep 0.1; done
    url=$(cat url)
    {
        echo '{"task": "next", "template": "{begin}"}'
        echo '{"begin": "Apache", "choices": ["License", "zzz"], "answer": 0}'
        echo '{"begin": "Terms of", "choices": ["use", "éé"], "answer": 0}'
        echo '{"begin": "Terms of ", "choices": ["use", "zz"], "answer": 0}'
        echo '{"begin": "Terms 日本", "choices": ["use", "本é"], "answer": 0}' # several tokens a character
    } >srv.jsonl
    dt-eval task "${common[@]}" srv.jsonl run --predictions here.jsonl
    status=0
    dt-eval task srv.jsonl "$url" --api-key k --predictions there.jsonl || status=$?
    dt-eval task srv.jsonl "$url" --api-key wrong 2>wrong.txt && status=9
    empty=0
    # choices of the header are those of items that have none
    printf '%s\n' '{"task": "x", "template": "{q}", "choices": ["x", "License"]}' '{"q": "Apache", "answer": "License"}' \
        '{"q": "Apache", "choices": ["a", "b", "c"], "answer": "c"}' >own.jsonl
    dt-eval task "${common[@]}" own.jsonl run --predictions own.out >/dev/null
    jq -se 'map(.logprobs | length) == [2, 3]' own.out
    printf '%s\n' '{"task": "x", "template": ""}' '{"choices": ["License", "zz"], "answer": 0}' >none.jsonl
    dt-eval task none.jsonl "$url" --api-key k 2>empty.txt || empty=$?
    blank=0
    printf '%s\n' '{"task": "x", "template": " ", "delimiter": "->"}' '{"choices": ["License", "zz"], "answer": 0}' >none.jsonl
    dt-eval task none.jsonl "$url" --api-key k 2>blank.txt || blank=$?
    head -n 2 srv.jsonl >one.jsonl
    dt-eval task one.jsonl "$url" --api-key k >one.txt
    # choices after a context of 60 bytes, which is computed once: 3 blocks of 16 tokens for each of the others
    jq -nc '{task: "long", template: "{b}"}' >long.jsonl
    jq -nc '{b: ("Licensed under the Apache License" * 2)[:60], choices: ["one", "two", "three"], answer: 0}' >>long.jsonl
    hits() { curl -sS -H 'Authorization: Bearer k' "$url/metrics" | awk '/^dt_serve_prefix_cache_hits_total/ {print $2}'; }
    hits=$(hits)
    dt-eval task long.jsonl "$url" --api-key k --parallel 1 --predictions far.jsonl
    hits=$(($(hits) - hits))
    dt-eval task "${common[@]}" long.jsonl run --predictions near.jsonl
    kill $server
    wait $server || true
    [ "$status" -eq 0 ]
    grep -q 401 wrong.txt
    [ "$hits" -eq 96 ]
    cmp far.jsonl near.jsonl
    # this model has no start token
    [ "$empty" -eq 1 ]
    grep -q 'adds no token before a prompt' empty.txt
    [ "$blank" -eq 1 ]
    grep -q 'adds no token before a prompt' blank.txt
    [[ "$(cat one.txt)" != *nan* ]]
    grep -q ': acc [01].0000, acc_norm [01].0000, 1 item$' one.txt
    jq -en --slurpfile a here.jsonl --slurpfile b there.jsonl \
        '[range(4) as $i | range(2) as $k | $a[$i].logprobs[$k] - $b[$i].logprobs[$k] | fabs] | max < 1e-4'
}

@test "predictions that cannot be written are refused by the name of their file" {
    printf '%s\n' '{"task": "x", "template": "{q}"}' '{"q": "a", "choices": ["b", "c"], "answer": 0}' >t.jsonl
    refused 1 "cannot write '/dev/full': No space left" task "${common[@]}" t.jsonl run --predictions /dev/full
    run mpirun -np 2 dt-eval task "${common[@]}" t.jsonl run --predictions -
    [ "$status" -ne 0 ]
    [[ $output == *"--predictions -: each of 2 ranks writes a file of its own"* ]]
    [ ! -e ./-.0 ]
}

@test "a model that computes NaN is an error on every path, not an accuracy or a perplexity" {
    dt-shard-ckpt convert --to safetensors run bad 2>log
    python3 "$BATS_TEST_DIRNAME/plant-nan.py" bad/model.safetensors model.layers.1.input_layernorm.weight 3
    printf '%s\n' '{"question": "a", "choices": ["1", "2"], "answer": 0}' >nan.jsonl
    not_finite="'bad' computes logits that are not finite"
    for json in "" --json; do
        refused 1 "$not_finite" ppl --tokenizer byte --text text.txt bad $json
        refused 1 "$not_finite" compare --text text.txt run bad $json
        refused 1 "line 1 of the task: the model's log-probability of choice 0 is not a number" \
            task --tokenizer byte nan.jsonl bad $json
        refused 1 "log-probability of choice 0 is not a number" compare --tokenizer byte --task nan.jsonl run bad $json
    done
    # one item: no standard error, rather than one of 0
    dt-eval compare --task nan.jsonl run run --json | jq -e '.difference == 0 and .difference_stderr == null'
}

@test "bad input is named, with its line" {
    refused 2 "ppl needs --text" ppl run
    refused 2 "compare needs --text or --task" compare run run
    refused 2 "'http://127.0.0.1:9' is a server" ppl --text text.txt http://127.0.0.1:9
    refused 2 "'http://127.0.0.1:9' is a server" compare --text text.txt http://127.0.0.1:9 run
    refused 1 "No such file" ppl --text nowhere.txt run
    refused 1 "nowhere" ppl --text text.txt nowhere
    : >empty.txt
    refused 1 "there is nothing to predict" ppl --text empty.txt run
    refused 1 "fewer than one window of 64" ppl --text <(head -c 20 text.txt) --windows llama.cpp --seq 64 run
    for command in "ppl run" "compare run run"; do
        # shellcheck disable=SC2086 # words
        refused 1 "--windows llama.cpp scores nothing in windows of 2 tokens" $command --text text.txt --windows llama.cpp --seq 2
    done
    refused 2 "--seq 9999 exceeds the 128 positions of" ppl --text text.txt --seq 9999 run
    refused 2 "--seq 129 exceeds the 128 positions of" compare --text text.txt --seq 129 run run
    refused 2 "--stride does not apply to --windows llama.cpp" ppl --text text.txt --windows llama.cpp --stride 3 run
    refused 2 "--stride does not apply to --windows llama.cpp" compare --text text.txt --windows llama.cpp --stride 3 run run
    refused 2 "--stride 65 is larger than the window of 64" ppl --text text.txt --seq 64 --stride 65 run
    refused 2 "--stride 129 is larger than the window of 128" ppl --text text.txt --stride 129 run
    refused 2 "--stride 129 is larger than the window of 128" compare --text text.txt --stride 129 run run
    # formats of weights
    refused 2 "'f16' is not one of" ppl --text text.txt --weights f16 run
    refused 1 "weights of f32 cannot be combined with activations of bf16" ppl --text text.txt --weights f32 run
    refused 1 "'layers.0.mlp.down.weight' with rows of 172 cannot be kept as q8_0" ppl --text text.txt --weights q8_0 run
    dt-shard-ckpt convert --to safetensors --type f32 run nan
    head=$(($(od -An -tu8 -N8 nan/model.safetensors)))
    first=$(tail -c +9 nan/model.safetensors | head -c "$head" | jq '."model.embed_tokens.weight".data_offsets[0]')
    printf '\0\0\300\177' | dd of=nan/model.safetensors bs=1 conv=notrunc status=none seek=$((8 + head + first))
    refused 1 "'embed.weight' contains NaN or Inf, and cannot be kept as q8_0" ppl --tokenizer byte --text text.txt --weights q8_0 nan
    # options that no model reads
    refused 2 "--any-base requires --lora" ppl --text text.txt run --any-base
    refused 2 "--parallel has no effect: no model is a server" task bad.jsonl run --parallel 2
    refused 2 "--model has no effect: no model is a server" compare --task bad.jsonl run run --model x
    refused 2 "--api-key has no effect: no model is a server" teacher d.h5 run --out x.teacher --api-key k
    for o in "--precision fp32" "--weights q8_0" "--device cpu" "--weights-memory 1GiB --weights-disk ." "--tokenizer byte" "--threads 1" "--seq 8"; do
        # shellcheck disable=SC2086 # words
        refused 2 "${o%% *} has no effect: a server computes the answers" task bad.jsonl http://127.0.0.1:9 $o
    done
    for o in "--stride 3" "--windows llama.cpp" "--no-bos"; do
        # shellcheck disable=SC2086 # words
        refused 2 "${o%% *} has no effect: a task has no windows" compare --task bad.jsonl run run $o
    done
    echo '{"task": "x", "shots": 2}' >bad.jsonl
    refused 1 "bad.jsonl:1: 'shots' is not a list of items" task bad.jsonl run
    printf '%s\n' '{"question": "a", "choices": ["1", "2"], "answer": 0}' \
        "$(jq -nc '{question: "a", choices: ["1" * 200, "2"], answer: 0}')" >bad.jsonl
    refused 1 "line 2 of the task: this model's maximum context length is 128 tokens, but the request has 202" task bad.jsonl run
    echo '{"task": "x", "templat": "{q}"}' >bad.jsonl
    refused 1 "bad.jsonl:1: unknown key 'templat'" task bad.jsonl run
    printf '%s\n' '{"task": "x", "template": "{q}"}' '{"q": "a", "choices": ["1", "2"], "answer": 0}' '{"p": "a"}' >bad.jsonl
    refused 1 "bad.jsonl:3: the item lacks 'q', which the template uses" task bad.jsonl run
    printf '%s\n' '{"task": "x", "template": "{q"}' '{"q": "a", "choices": ["1", "2"], "answer": 0}' >bad.jsonl
    refused 1 "bad.jsonl:1: the template has a '{' without '}'" task bad.jsonl run
    printf '%s\n' '{"task": "x", "template": "{q}"}' '{"q": "a", "choices": ["1", "2"], "answer": 2}' >bad.jsonl
    refused 1 "bad.jsonl:2: 'answer' is not one of the 2 choices" task bad.jsonl run
    printf '%s\n' '{"task": "x", "template": "{q}"}' '{"q": "a", "choices": ["1", ""], "answer": 0}' >bad.jsonl
    refused 1 "bad.jsonl:2: choice 1 is empty" task bad.jsonl run
    printf '%s\n' '{"task": "x", "kind": "generate", "template": "{q}", "match": "number"}' '{"q": "a", "answer": ["7", "six"]}' >bad.jsonl
    refused 1 "bad.jsonl:2: 'answer' is 'six', but 'match' compares numbers" task bad.jsonl run
    printf '%s\n' '{"task": "x", "kind": "classify"}' >bad.jsonl
    refused 1 "needs 'choices'" task bad.jsonl run
    printf '%s\n' '{"task": "x"}' >bad.jsonl
    refused 1 "has no items" task bad.jsonl run
    printf '%s\n' '{"task": "x", "template": "{q}"}' '{"q": "a", "choices": ["1", "2"], "answer": 0' >bad.jsonl
    refused 1 "bad.jsonl:2" task bad.jsonl run
    printf '%s\n' '{"task": "x", "template": "{q}"}' '{"q": "a", "choices": ["1", "2"], "answer": 0}' >long.jsonl
    refused 1 "http://127.0.0.1:9" task long.jsonl http://127.0.0.1:9
}

@test "a server that still loads its model is asked again; one that is not there is an error at once" {
    printf '%s\n' '{"task": "x", "template": "{q}"}' '{"q": "a", "choices": ["1", "2"], "answer": 0}' >few.jsonl
    python3 "$DT_SRC/tests/cli/serve-loading.py" >at 3>&- &
    server=$!
    until [ -s at ] || ! kill -0 $server; do sleep 0.1; done
    refused 1 "lists no model" task few.jsonl "$(cat at)"
    kill $server 2>/dev/null || true
    run -1 timeout 20 dt-eval task few.jsonl http://127.0.0.1:9 --model x
}
# SPDX-License-Identifier: Apache-2.0
