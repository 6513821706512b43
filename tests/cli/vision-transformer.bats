#!/usr/bin/env bats
# Vision transformers: layouts against one rank, recomputation, memory as planned, resuming, files of transformers,
# serving, refused requests.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    # three classes: a bright bar in the left, the middle or the right third, brighter with the image's number
    local class at=-10 i
    for class in left middle right; do
        mkdir -p "bars/$class"
        at=$((at + 10))
        for i in $(seq 1 24); do
            LC_ALL=C awk -v at=$at -v i="$i" 'BEGIN {
                printf "P5\n28 28\n255\n"
                for (r = 0; r < 28; r++) for (k = 0; k < 28; k++)
                    printf "%c", (k >= at && k < at + 8 ? 100 + 3 * i : 1 + (k * 7 + r * i) % 40)
            }' >"bars/$class/$i.pgm"
        done
    done
    dt-dataset images --out bars.h5 bars 2>build.log || { cat build.log; return 1; }
    # 17 tokens; heads that are no power of two wide, whose number 2 and 3 ranks divide
    jq -n '{model_type: "vit", hidden_size: 60, intermediate_size: 90, num_hidden_layers: 5, num_attention_heads: 6,
        image_size: 28, patch_size: 7, num_channels: 1, num_labels: 3, layer_norm_eps: 1e-6}' >vit.json
}

setup() {
    in_folder
    common=(--model vit.json --data bars.h5 --precision fp32 --no-mfu --threads 1 --lr 2e-3 --comm-timeout 60)
}

@test "it learns, and every layout and recomputation has the losses of one rank" {
    dt-train "${common[@]}" --eval-data bars.h5 --microbatch 24 --steps 30 --metrics one.jsonl --save net 2>/dev/null
    tail -1 one.jsonl | jq -e '.eval_images == 72 and .top1 > 0.9'
    for layout in dp2 dp2.z3 tp2 tp3 dp2.tp2.z1 dp2.tp3.z2; do
        np=$(($(sed 's/dp\([0-9]\).*/\1/;t;s/.*/1/' <<<"$layout") * $(sed 's/.*tp\([0-9]\).*/\1/;t;s/.*/1/' <<<"$layout")))
        dp=$(sed 's/dp\([0-9]\).*/\1/;t;s/.*/1/' <<<"$layout")
        for recompute in none full selective; do
            case $layout.$recompute in tp2.full | dp2.tp2.z1.selective | *.none) ;; *) continue ;; esac
            mpirun -np "$np" dt-train "${common[@]}" --microbatch $((24 / dp)) --layout "$layout" --recompute $recompute --steps 8 \
                --schedule constant --metrics many.jsonl 2>/dev/null
            [ -e first.jsonl ] || dt-train "${common[@]}" --microbatch 24 --steps 8 --schedule constant --metrics first.jsonl 2>/dev/null
            jq -en --slurpfile a first.jsonl --slurpfile b many.jsonl \
                '[range(8) as $i | ($a[$i].loss - $b[$i].loss) / $a[$i].loss | fabs] | max < 1e-5'
        done
    done
    dt-train "${common[@]}" --microbatch 6 --global-batch 24 --steps 8 --schedule constant --metrics many.jsonl 2>/dev/null
    jq -en --slurpfile a first.jsonl --slurpfile b many.jsonl \
        '[range(8) as $i | ($a[$i].loss - $b[$i].loss) / $a[$i].loss | fabs] | max < 1e-5'
    # unequal parts of a batch
    mpirun -np 2 dt-train "${common[@]}" --microbatch 18 --global-batch 24 --shares 3,1 --steps 8 --schedule constant --metrics many.jsonl \
        2>/dev/null
    jq -en --slurpfile a first.jsonl --slurpfile b many.jsonl \
        '[range(8) as $i | ($a[$i].loss - $b[$i].loss) / $a[$i].loss | fabs] | max < 1e-5'
}

@test "bf16 follows fp32; the memory allocated is as planned; a run resumes to the bit" {
    dt-train "${common[@]}" --microbatch 12 --steps 6 --schedule constant --metrics a.jsonl --save a 2>/dev/null
    dt-train "${common[@]}" --precision bf16 --microbatch 12 --steps 6 --schedule constant --metrics b.jsonl --save b 2>/dev/null
    jq -en --slurpfile a a.jsonl --slurpfile b b.jsonl '[range(2) as $i | ($a[$i].loss - $b[$i].loss) / $a[$i].loss | fabs] | max < 0.01'
    dt-memest a --train --microbatch 12 --precision fp32 --threads 1 --check a.jsonl
    dt-memest b --train --microbatch 12 --threads 1 --check b.jsonl
    for recompute in full selective; do
        dt-train "${common[@]}" --precision bf16 --microbatch 12 --recompute $recompute --steps 2 --metrics c.jsonl 2>/dev/null
        dt-memest b --train --microbatch 12 --recompute $recompute --threads 1 --check c.jsonl
    done
    dt-train "${common[@]}" --microbatch 12 --steps 3 --save part --save-every 3 --schedule constant 2>/dev/null >/dev/null
    dt-train --resume auto --save part --steps 6 --metrics d.jsonl 2>/dev/null
    [ "$(tail -1 a.jsonl | jq .loss)" = "$(tail -1 d.jsonl | jq .loss)" ]
    # the first layers and the embeddings are not trained
    dt-train --model a --data bars.h5 --precision fp32 --threads 1 --freeze 'patch.*|class_token|pos.*|layers\.[01]\..*' --lr 1e-3 --no-mfu \
        --microbatch 12 --steps 2 --save tuned --metrics /dev/null 2>/dev/null
    { dt-shard-ckpt diff -w --json a tuned || true; } >diff.json
    jq -e '[.tensors[] | select(.equal | not) | .name] | length > 20 and all(test("patch|class_token|pos|layers[.][01]") | not)' diff.json
}

@test "files of transformers, with classes and pixel normalisation; serving has the evaluation's answers" {
    dt-train "${common[@]}" --microbatch 24 --steps 4 --save few --metrics /dev/null 2>/dev/null
    dt-shard-ckpt convert few hf --to safetensors
    jq -e '.model_type == "vit" and .architectures == ["ViTForImageClassification"] and .id2label["1"] == "middle" and
        .label2id.right == 2 and .layer_norm_eps == 1e-6' hf/config.json
    jq -e '(.image_mean | length) == 3 and .do_normalize and .size.height == 28' hf/preprocessor_config.json
    dt-shard-ckpt convert hf back
    dt-shard-ckpt diff -w few back
    jq -e '.classes == ["left", "middle", "right"] and (.pixels.deviation | length) == 3' back/latest/manifest.json
    for m in few hf; do
        dt-eval images bars.h5 $m --precision fp32 --threads 1 --predictions $m.jsonl >/dev/null
    done
    cmp few.jsonl hf.jsonl
    mpirun -np 2 dt-eval images bars.h5 hf --precision fp32 --threads 1 --split data --batch 10 --json >two.json
    dt-eval images bars.h5 hf --precision fp32 --threads 1 --batch 72 --json >one.json
    jq -en --slurpfile a one.json --slurpfile b two.json '$a[0].top1 == $b[0].top1 and ($a[0].loss - $b[0].loss | fabs) < 1e-6'
    echo bars/middle/7.pgm | dt-serve --batch hf --precision fp32 --threads 1 2>/dev/null >served.json
    jq -e '.predictions[0].class == "middle" or .predictions[1].class == "middle"' served.json
    # tuned at another size of images, from interpolated positions
    dt-train --model few --data bars.h5 --image-size 42 --microbatch 24 --steps 3 --precision fp32 --threads 1 --no-mfu --save large \
        --metrics /dev/null 2>/dev/null
    jq -e '.model.image_size == 42' large/latest/manifest.json
    dt-shard-ckpt ls large | grep -E "pos.* 37x60"
    dt-eval images bars.h5 few --image-size 42 --precision fp32 --threads 1 --json | jq -e '.images == 72'
    # a file without its preprocessor does not say how pixels are normalised
    rm hf/preprocessor_config.json
    run -1 dt-eval images bars.h5 hf
    [[ $output == *"does not say how its pixels are normalised"* ]]
    # more classes than the tensors have
    jq '.num_labels = 4 | del(.id2label, .label2id)' hf/config.json >c.json && mv c.json hf/config.json
    run -1 dt-shard-ckpt ls hf
    [[ $output == *"classifier.weight"*"3"*"4"* ]]
}

@test "invalid requests are refused by name" {
    run -1 dt-train "${common[@]}" --model vit-s-16 --microbatch 8 --steps 1
    [[ $output == *"patches of 16 pixels, which do not divide a side of 28"* ]]
    for layout in tp2.s1 pp2 cp2; do
        run mpirun -np 2 dt-train "${common[@]}" --microbatch 8 --steps 1 --layout $layout
        [[ $status -ne 0 && $output == *"image classifier, which cannot be trained with"* ]]
    done
    jq '.hidden_size = 62' vit.json >odd.json
    run -1 dt-memest odd.json --train
    [[ $output == *"6 heads over 62 columns"* ]]
    jq '.hidden_act = "swish2"' vit.json >odd.json
    run -1 dt-memest odd.json --train
    [[ $output == *swish2* ]]
    dt-train "${common[@]}" --microbatch 8 --steps 1 --save one --metrics /dev/null 2>/dev/null
    run -1 dt-eval images bars.h5 one --image-size 32
    [[ $output == *"patches of 7 pixels, which do not divide a side of 32"* ]]
    run -1 dt-shard-ckpt export one one.onnx
    [[ $output == *"'tokens' to ONNX is not supported"* ]]
}
# SPDX-License-Identifier: Apache-2.0
