#!/usr/bin/env bats
# Encoders that tell the class or the score of a text: data sets, training, what comes out, serving.
# shellcheck disable=SC2154 # url is set by await

bats_require_minimum_version 1.5.0
load server

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    PATH=$DT_BIN:$PATH
    export WORDS="$DT_SRC/tests/data/tokenizer/wp-uncased.json"
    # loud texts have "make" or "no" in them; pairs have as score the share of their words that are "of"
    python3 - <<'PY'
import json
import random

r = random.Random(3)
common = ["it", "that", "of", "to", "the", "and", "in", "is"]
with open("classes.jsonl", "w") as f, open("scores.jsonl", "w") as g:
    for i in range(160):
        words = [r.choice(common) for _ in range(r.randint(3, 26))]
        if i % 2:
            words[r.randrange(len(words))] = r.choice(["make", "no"])
        f.write(json.dumps({"text": " ".join(words), "label": "loud" if i % 2 else "quiet"}) + "\n")
        cut = r.randint(1, len(words) - 1)
        g.write(json.dumps({"text": " ".join(words[:cut]), "text_pair": " ".join(words[cut:]),
                            "label": round(words.count("of") / len(words), 3)}) + "\n")
PY
    dt-dataset labels -t "$WORDS" --seq 32 --split 20 --out train.h5 --out-eval eval.h5 classes.jsonl >made.txt
    dt-dataset labels -t "$WORDS" --seq 24 --scores --out scores.h5 scores.jsonl >scored.txt
    export RUN="--model bert-tiny --vocab 701 --precision fp32 --threads 1 --no-mfu --progress off --overwrite"
    # shellcheck disable=SC2086
    dt-train $RUN --data train.h5 --eval-data eval.h5 --eval-tokens 9999 --seq 32 --microbatch 8 --steps 100 --lr 3e-3 \
        --warmup 5 --eval-every 50 --save learned >learned.jsonl 2>learned.err
    # shellcheck disable=SC2086
    dt-train $RUN --data scores.h5 --seq 24 --microbatch 8 --steps 4 --label-loss bce --save scored 2>/dev/null >/dev/null
}

setup() {
    in_server_folder
    common=(--precision fp32 --threads 1)
}

stop() {
    kill -TERM "$server"
    wait "$server" || true
    server=
}

post() {
    curl -s -m 60 -H 'Content-Type: application/json' -d "$2" "$url$1"
}

losses() {
    jq -r 'select(.loss) | .loss' "$1"
}

@test "labels: texts become documents with the tokens of the template, classes are sorted by name" {
    cat made.txt
    grep -qx 'class 0: loud, 80 texts' made.txt
    grep -qx 'class 1: quiet, 80 texts' made.txt
    grep -q '^train.h5: 128 texts' made.txt
    grep -q '^eval.h5: 32 texts' made.txt
    [ "$(dt-dataset info --json train.h5 | jq -c '[.documents, .classes]')" = '[128,["loud","quiet"]]' ]
    dt-dataset info train.h5 | grep -q '^labels  *2 classes'
    dt-dataset info --verify scores.h5 | grep -q '^labels  *scores'
    dt-dataset sample --in-order -n 1 --special train.h5 | head -1 | grep -qx -e '--- sample 0: quiet'
    dt-dataset sample --in-order -n 1 --special train.h5 | sed -n 2p | grep -q '^\[CLS\].* \[SEP\]$'
    # the text is the first line's
    [ "$(dt-dataset sample --in-order -n 1 --json train.h5 | jq -r .text)" = "$(head -1 classes.jsonl | jq -r .text)" ]
    # a text and its pair, cut to 24 tokens, the longer one first
    dt-dataset sample --in-order -n 200 --json --special scores.h5 >all.jsonl
    jq -es 'length == 160 and all(.[]; (.ids | length) <= 24 and (.text | split("[SEP]") | length) == 3)' all.jsonl
    grep -q 'were cut to 24 tokens' scored.txt
    jq -es --slurpfile in scores.jsonl '[.[].label, $in[].label] | .[:160] as $a | .[160:] as $b |
        [$a, $b] | transpose | all(.[]; (.[0] - .[1] | fabs) < 1e-6)' all.jsonl
}

@test "labels: names from a file, numbers as labels, several files, standard input, bad lines" {
    printf 'quiet\nloud\n' >names
    dt-dataset labels -t "$WORDS" --class-names names --out n.h5 --json classes.jsonl >n.json
    jq -e '[.classes[].name] == ["quiet", "loud"] and .skipped == 0' n.json
    printf '{"text": "to the", "label": 1}\n{"text": "of", "label": 0}\n' >numbers.jsonl
    cp numbers.jsonl again.jsonl
    dt-dataset labels --out m.h5 again.jsonl - <numbers.jsonl | grep -q '^class 1: 1, 2 texts'
    printf 'loud\n' >few
    run -1 dt-dataset labels -t "$WORDS" --class-names few --out x.h5 classes.jsonl
    [[ "$output" == *"classes.jsonl:1: "*quiet* ]]
    while IFS='|' read -r line why; do
        printf '{"text": "to", "label": "a"}\n{"text": "of", "label": "b"}\n%s\n' "$line" >bad.jsonl
        run -1 dt-dataset labels --out x.h5 bad.jsonl
        echo "$line: $output"
        [[ "$output" == *"bad.jsonl:3: "*"$why"* ]]
        [ "${#lines[@]}" -le 2 ]
        run -0 dt-dataset labels --skip-bad --out y.h5 bad.jsonl
        [[ "$output" == *"1 lines were skipped"* ]]
    done <<'LINES'
{"text": "to"}|key 'label' is missing
{"label": "a"}|key 'text' is missing
{"text": 7, "label": "a"}|key 'text' is not a string
{"text": "to", "label": null}|neither a class's name nor its number
{"text": "to", "label": -1}|out of range
{"text": "", "label": "a"}|the text is empty
{"text": "a", "text_pair": "b", "label": "a"}|the tokenizer has no token that separates a text from its 'text_pair'
LINES
    [ ! -e x.h5 ]
    run -1 dt-dataset labels --out x.h5 --scores classes.jsonl
    [[ "$output" == *"classes.jsonl:1: key 'label' is not a number"* ]]
    echo '{"text": "to", "label": "a"}' >one.jsonl
    run -1 dt-dataset labels --out x.h5 one.jsonl
    [[ "$output" == *"1 classes; at least 2"*"--scores"* ]]
    : >empty.jsonl
    run -1 dt-dataset labels --out x.h5 empty.jsonl
    [[ "$output" == *"no lines for 'x.h5'"* ]]
    run -1 dt-dataset labels -t "$WORDS" --seq 2 --out x.h5 classes.jsonl
    [[ "$output" == *"2 tokens have no room for a text"* ]]
    run -2 dt-dataset labels --scores --class-names names --out x.h5 scores.jsonl
    [ ! -e x.h5 ]
}

@test "an encoder learns the classes of texts" {
    grep -q "128 texts of 2 classes, from 'loud' to 'quiet'" learned.err
    jq -es 'map(select(.eval_loss)) | .[-1] | .top1 == 1 and .eval_texts == 32 and .eval_loss < 0.1' learned.jsonl
    jq -es 'map(select(.loss)) | .[0].loss > 0.5 and .[-1].loss < 0.1' learned.jsonl
}

@test "ranks agree with one, memory is estimated to the byte, and a run goes on where it stopped" {
    local more="$RUN --data scores.h5 --seq 24 --microbatch 2 --global-batch 8 --steps 6 --lr 3e-3"
    # shellcheck disable=SC2086
    dt-train $more --save one >one.jsonl 2>/dev/null
    for layout in dp2 dp2.z2 dp2.z3 tp2; do
        # shellcheck disable=SC2086
        mpirun -np 2 dt-train $more --layout $layout --save two >two.jsonl 2>/dev/null
        [ "$(losses two.jsonl | wc -l)" = 6 ]
        paste <(losses one.jsonl) <(losses two.jsonl) |
            awk -v l=$layout '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-6 * $1) bad = 1 } END { if (bad) print l; exit bad }'
        dt-memest --check two.jsonl bert-tiny --vocab 701 --train --seq 24 --microbatch 2 --global-batch 8 \
            --precision fp32 --threads 1 --labels 1 --layout $layout
    done
    # shellcheck disable=SC2086
    dt-train $more --stop-at 3 --save halves 2>/dev/null >first.jsonl
    # shellcheck disable=SC2086
    dt-train ${more/--overwrite/} --save halves --resume auto 2>/dev/null >second.jsonl
    [ "$(losses first.jsonl; losses second.jsonl)" = "$(losses one.jsonl)" ]
}

@test "what was learned: class names in config.json, served by /v1/classify" {
    dt-shard-ckpt convert learned hf --to safetensors
    [ "$(jq -c '[.architectures[0], .problem_type, .id2label, .label2id]' hf/config.json)" = \
        '["BertForSequenceClassification","single_label_classification",{"0":"loud","1":"quiet"},{"loud":0,"quiet":1}]' ]
    for model in learned hf; do
        await dt-serve "$model" "${common[@]}" --port 0
        post /v1/classify '{"input": ["to the of make it", "to the of", {"text": "of", "text_pair": "the no"}]}' >$model.json
        jq -e '.data | map(.label) == ["loud", "quiet", "loud"] and
            all(.[]; .num_classes == 2 and (.probs | add - 1 | fabs) < 1e-9)' $model.json
        post /classify '{"input": "to the of make it"}' >one.json
        jq -e --slurpfile one one.json '.data[0].probs[0] - $one[0].data[0].probs[0] | fabs < 1e-6' $model.json
        stop
    done
    jq -e --slurpfile b learned.json '[.data[].probs[0]] as $a | [$b[0].data[].probs[0]] as $b | [$a, $b] | transpose |
        all(.[]; (.[0] - .[1] | fabs) < 1e-6)' hf.json
    await dt-serve scored "${common[@]}" --port 0
    post /v1/classify '{"input": {"text": "of", "text_pair": "the no"}}' |
        jq -e '.data[0] | .num_classes == 1 and .score > 0 and .score < 1 and (has("probs") | not)'
    while IFS='|' read -r body why; do
        post /classify "$body" | jq -e --arg why "$why" '.error.message | contains($why)'
    done <<'BODIES'
{"input": {"text": "of", "text_pair": 3}}|'text_pair' of an input is missing or not a string
{"input": [{}]}|'text' of an input is missing or not a string
{"inputs": "of"}|unknown key 'inputs'
{"input": []}|'input' is empty
{}|key 'input' is missing
{"input": [[99999]]}|not a token id below 701
BODIES
    stop
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer "$WORDS" --out d.h5 text.txt
    # shellcheck disable=SC2086
    dt-train ${RUN/bert-tiny/gpt2-tiny} --data d.h5 --seq 32 --steps 1 --save causal >/dev/null 2>&1
    await dt-serve causal "${common[@]}" --port 0
    post /v1/classify '{"input": "of"}' | jq -e '.error.message | contains("this model has no classes")'
}

@test "the weights of a classifier go on to other classes only with --new-head" {
    sed 's/quiet/calm/' classes.jsonl >others.jsonl
    dt-dataset labels -t "$WORDS" --seq 32 --out others.h5 others.jsonl
    local more="--precision fp32 --threads 1 --no-mfu --progress off --overwrite --seq 32 --microbatch 4 --steps 2"
    # shellcheck disable=SC2086
    run -1 dt-train --model learned $more --data others.h5 --save o
    [[ "$output" == *"class 0 is 'calm' in 'others.h5', but 'loud' in 'learned'"*"--new-head"* ]]
    # shellcheck disable=SC2086
    dt-train --model learned $more --data others.h5 --new-head --save o 2>/dev/null |
        jq -es 'map(select(.loss)) | .[0].loss > 0.5'
    # shellcheck disable=SC2086
    dt-train --model learned $more --data train.h5 --save o 2>/dev/null | jq -es 'map(select(.loss)) | .[0].loss < 0.1'
    # an encoder that was trained on masked tokens gets a head
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer "$WORDS" --out d.h5 text.txt
    # shellcheck disable=SC2086
    dt-train --model bert-tiny --vocab 701 --data d.h5 ${more/--seq 32/--seq 64} --save masked >/dev/null 2>&1
    # shellcheck disable=SC2086
    dt-train --model masked $more --data train.h5 --save o 2>/dev/null | jq -es 'map(select(.loss)) | .[0].loss < 0.9'
    # shellcheck disable=SC2086
    run -1 dt-train --model o $more --data d.h5 --save p
    [[ "$output" == *"learns classes of texts, but 'd.h5' has no labels"* ]]
}

@test "what cannot be combined is refused in a line" {
    # shellcheck disable=SC2086
    while IFS='|' read -r options why; do
        run dt-train $RUN --data train.h5 --seq 32 --microbatch 4 --steps 2 --save r $options
        echo "$options: $output"
        [ "$status" -ne 0 ]
        [[ "$output" == *"$why"* ]]
    done <<'LINES'
--labels 3|--labels 3, but 'train.h5' has 2
--label-loss mse|--label-loss mse and bce learn one score, not 2 classes
--mask-share 0.2|--mask-share is for encoders that predict masked tokens
--seq 8|more than --seq 8
--neftune 5|cannot be combined with --neftune
--documents apart|cannot be trained with --documents apart
--eval-data scores.h5|'scores.h5' has 0 classes, 'train.h5' has 2
--vocab 300|model vocabulary 300 is smaller than the 701
LINES
    # shellcheck disable=SC2086
    run -1 dt-train ${RUN/bert-tiny/gpt2-tiny} --data train.h5 --seq 32 --steps 2 --save r
    [[ "$output" == *"'train.h5' has texts with labels: an encoder learns them, from one data set"* ]]
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer "$WORDS" --out d.h5 text.txt
    # shellcheck disable=SC2086
    run -1 dt-train $RUN --data d.h5,train.h5 --seq 32 --steps 2 --save r
    [[ "$output" == *"'d.h5' holds text and 'train.h5' texts with labels: they cannot be mixed"* ]]
    for layout in pp2 cp2; do
        # shellcheck disable=SC2086
        run mpirun -np 2 dt-train $RUN --data train.h5 --seq 32 --steps 2 --save r --layout $layout
        [ "$status" -ne 0 ]
        [[ "$output" == *"is an encoder, which cannot be trained with "* ]]
    done
    # a file of labels that was tampered with
    /usr/bin/python3 -c 'import h5py' || skip "no h5py"
    cp train.h5 broken.h5
    /usr/bin/python3 -c 'import h5py; h5py.File("broken.h5", "r+")["document_labels"][3] = 7'
    # shellcheck disable=SC2086
    run -1 dt-train $RUN --data broken.h5 --seq 32 --steps 2 --save r
    [[ "$output" == *"document 3 has an invalid label"* ]]
}
# SPDX-License-Identifier: Apache-2.0
