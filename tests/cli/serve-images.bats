#!/usr/bin/env bats
# dt-serve of an image classifier: on a pipe and over HTTP, on one rank and several; invalid images are named.
bats_require_minimum_version 1.5.0
load server
load ranks

setup_file() {
    on_ranks
    for class in left right; do # bright on one side, brighter with the number
        mkdir -p bars/$class
        for i in $(seq 1 12); do
            LC_ALL=C awk -v left=$class -v i="$i" 'BEGIN {
                printf "P5\n28 28\n255\n"
                for (y = 0; y < 28; y++) for (x = 0; x < 28; x++)
                    printf "%c", ((x < 14) == (left == "left") ? 100 + 9 * i : 1 + (x * 7 + y * i) % 40)
            }' >bars/$class/$i.pgm
        done
    done
    dt-dataset images --store raw --out bars.h5 bars 2>log || { cat log; return 1; }
    dt-train --model cnn2 --data bars.h5 --precision fp32 --no-mfu --threads 1 --lr 3e-3 --microbatch 24 --steps 12 \
        --metrics m.jsonl --save net 2>log || { cat log; return 1; }
    { find bars -name '*.pgm' | sort; echo bars.h5; echo '{"id": 7, "path": "nothere"}'
      jq -nc --arg i "$(base64 -w0 bars/left/1.pgm)" '{id: 8, image: $i, top_k: 1}'; echo '{"id": 9'
      echo '{"path": "bars/left/1.pgm", "top_k": 4294967295}'; } >lines
    # four lines are invalid
    dt-serve --batch net --precision fp32 --threads 1 <lines >one.jsonl 2>/dev/null || true
}

near() { # numbers rounded to five digits
    jq -c 'walk(if type == "number" then . * 1e5 | round else . end)'
}

setup() {
    on_ranks
    in_server_folder
    common=(--precision fp32 --threads 1)
}

@test "one line per image, in order, classes by name; invalid images are named and no line is lost" {
    run -1 --separate-stderr dt-serve --batch net "${common[@]}" <lines
    [ "${#lines[@]}" -eq 29 ]
    [[ $stderr == *"25 images in "*" images/s, latency "*"2 could not be decoded"*"4 lines failed"* ]]
    # Batches are formed by arrival, and last digits of some products depend on the batch.
    cmp <(printf '%s\n' "${lines[@]}" | near) <(near <one.jsonl)
    near <one.jsonl >rounded
    jq -es '[.[].index / 1e5] == [range(29)] and all(.[:24][]; . as $l | .path | contains($l.predictions[0].class)) and
        (.[24].error.message | contains("bars.h5")) and .[25].id == 7e5 and (.[25].error.message | contains("nothere")) and
        .[26].predictions == [.[0].predictions[0]] and (.[27].error.message | contains("JSON")) and
        (.[28].error.message | contains("top_k"))' rounded
    # dt-eval's results on the same images, up to the last digits
    dt-eval images bars.h5 net "${common[@]}" --predictions seen.jsonl >table
    jq -en --slurpfile a one.jsonl --slurpfile b seen.jsonl '[$a[:24][].predictions[0] | [.class, (.probability * 1e5 | round)]] ==
        [$b[] | [.given, (.probability * 1e5 | round)]]'
}

@test "memory is what dt-memest predicts" {
    for batch in 1 8; do
        dt-serve --batch net "${common[@]}" --image-batch $batch <lines 2>log >answers || true
        grep -oE '[0-9.]+ [KM]iB of (weights|workspace)' log >held
        dt-memest net --serve --precision fp32 --max-seqs $batch | awk '/^(weights|workspace)/ { print $2, $3, "of", $1 }' >said
        diff held said
    done
    await dt-serve net "${common[@]}" --image-batch 5 --port 0
    curl -s "$url/metrics" >metrics
    dt-memest net --serve --precision fp32 --max-seqs 5 --check metrics
}

@test "layers of any width, whose weights are padded: answers are those of training's evaluation" {
    dt-train --model mlp:784-100-2 --data bars.h5 --eval-data bars.h5 --precision fp32 --no-mfu --threads 1 --lr 3e-3 \
        --microbatch 24 --steps 3 --metrics odd.jsonl --save odd 2>log || { cat log; return 1; }
    dt-eval images bars.h5 odd "${common[@]}" --json >seen.json
    jq -en --slurpfile a odd.jsonl --slurpfile b seen.json '[$a[] | .eval_loss // empty][-1] - $b[0].loss | fabs < 1e-4'
    find bars -name '*.pgm' | sort >files
    for type in fp32 bf16; do
        dt-serve --batch odd --precision $type --threads 1 --image-batch 7 <files 2>log >answers
        [ "$(wc -l <answers)" -eq 24 ]
        grep -oE '[0-9.]+ [KM]iB of (weights|workspace)' log >held
        dt-memest odd --serve --precision $type --max-seqs 7 | awk '/^(weights|workspace)/ { print $2, $3, "of", $1 }' >said
        diff held said
    done
}

@test "ranks share requests or cut batches: the answers are those of one rank" {
    for split in requests data; do
        run -1 --separate-stderr mpirun -np 2 dt-serve --batch net "${common[@]}" --split $split --image-batch 8 <lines
        [[ $stderr == *"25 images in "*"2 could not be decoded"* ]]
        cmp <(printf '%s\n' "${lines[@]}" | jq -c '[.index, .path, .id, .predictions[0].class, .error.message]') \
            <(jq -c '[.index, .path, .id, .predictions[0].class, .error.message]' one.jsonl)
    done
}

@test "over HTTP: one image as the body, several in base64, and errors by name" {
    await mpirun -np 2 dt-serve net "${common[@]}" --port 0 --served-model-name bars
    [ "$(curl -s --data-binary @bars/right/5.pgm "$url/v1/classify?top_k=1" | jq -c '[.model, .data[0].predictions[].class]')" = '["bars","right"]' ]
    for class in left right left; do base64 -w0 bars/$class/3.pgm; echo; done | jq -Rnc '{images: [inputs], top_k: 2}' >body
    curl -s -d @body "$url/v1/classify" | jq -e '[.data[].predictions[0].class] == ["left", "right", "left"] and
        [.data[].index] == [0, 1, 2] and (.data[0].predictions | map(.probability) | add - 1 | fabs) < 1e-6'
    [ "$(curl -s "$url/v1/models" | jq -c '.data[0] | [.id, .classes, .image_size]')" = '["bars",["left","right"],28]' ]
    dt-loadgen "$url" --image bars/left/3.pgm --image bars/right/3.pgm -n 40 --concurrency 4 --json --requests-out each >load
    jq -e '.requests.ok == 40 and .output_tokens == 0 and .e2e_s.count == 40 and .ttft_s.p50 <= .e2e_s.p50 and .model == "bars"' load
    [ "$(curl -s "$url/metrics" | grep '^dt_serve_classify_images_total')" = 'dt_serve_classify_images_total{model_name="bars"} 44' ]
    # invalid images are refused, each time
    run -1 dt-loadgen "$url" --image lines -n 3 --rate 0
    [[ $output == *"3 refused"*"3 x 400 "* ]]
    run -2 dt-loadgen "$url" --image lines --turns 2
    refused() { # BODY MESSAGE STATUS
        [ "$(curl -s -o answer -w '%{http_code}' -d "$1" "$url$4")" = "$3" ]
        jq -e --arg m "$2" '.error.message | contains($m)' answer
    }
    refused '{"image": "aGVsbG8="}' "neither JPEG nor PNG" 400 /v1/classify
    refused '{"images": ["aGVsbG8=", "?"]}' "image 0" 400 /v1/classify
    refused '{"image": "?"}' "not base64" 400 /v1/classify
    refused 'GIF89a' "the body is neither a JPEG, PNG or PNM image nor a JSON object" 400 /v1/classify
    refused ' {"image": ' "the body is not JSON: line 1" 400 /v1/classify
    refused '{"picture": "aGVsbG8="}' "unknown key 'picture'" 400 /v1/classify
    jq -nc --arg i "$(base64 -w0 bars/left/1.pgm)" '{image: $i, model: "bars"}' >body
    curl -s -d @body "$url/v1/classify" | jq -e '.data | length == 1'
    refused "$(jq -c '.model = "other"' body)" "the model 'other' does not exist; this server has 'bars'" 404 /v1/classify
    refused "$(jq -c '.model = 5' body)" "model" 400 /v1/classify
    refused '{"prompt": "x"}' "is only for models of text" 404 /v1/completions
    [ "$(curl -s "$url/health" | jq -r .status)" = ok ]
    curl -s "$url/metrics" >metrics
    python3 "$BATS_TEST_DIRNAME/prom-check.py" metrics dt_serve_ >values
    dt-memest ./net --serve --layout dp2 --precision fp32 --check metrics
    grep -q '^dt_serve_classify_images_total{model_name="bars"} 45$' metrics
    grep -q '^dt_serve_classify_images_refused_total{model_name="bars"} 3$' metrics
}

@test "options of text are refused for images, and those of images for text" {
    run -2 dt-serve net --max-model-len 10
    [[ $output == *"--max-model-len is only for models of text"* ]]
    run -2 dt-serve net --device gpu
    [[ $output == *"no such device: 'gpu'"* ]]
    "$DT_HELP/make-model" m
    run -2 dt-serve m --split data
    [[ $output == *"--split is only for models of images"* ]]
    run -1 dt-serve --batch net --normalize imagnet
    [[ $output == *"--normalize 'imagnet'"* ]]
}
# SPDX-License-Identifier: Apache-2.0
