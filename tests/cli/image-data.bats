#!/usr/bin/env bats
# Image data sets in dt-train: different classes, damage, sizes, augmentation with any number of threads.
bats_require_minimum_version 1.5.0
load ranks

# make_set: one folder per class with 8 images of 12 x 12, dark on the left; the right half is brighter from
# class to class.
make_set() {
    local folder=$1 shade=0
    shift
    for class; do
        mkdir -p "$folder/$class"
        shade=$((shade + 60))
        for i in 1 2 3 4 5 6 7 8; do
            {
                printf 'P5\n12 12\n255\n'
                printf 'aaaaabbbbbbb%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 | tr ab "$(printf '\\%o\\%o' $((60 - i)) $((shade + i)))"
            } >"$folder/$class/$i.pgm"
        done
    done
}

setup_file() {
    on_ranks
    make_set abc a b c
    make_set lmz l m z
    dt-dataset images --store raw --channels 1 -o abc.h5 abc
    dt-dataset images --store raw --channels 1 -o lmz.h5 lmz
    printf '%s\n' c b a >reversed
    dt-dataset images --store raw --channels 1 --class-names reversed -o cba.h5 abc
    dt-train --model mlp:144-16-3 --data abc.h5 --precision fp32 --no-mfu --threads 1 --microbatch 8 --steps 2 \
        --metrics /dev/null --save abc.net 2>log || { cat log; return 1; }
}

setup() {
    in_folder
    common=(--precision fp32 --no-mfu --threads 1 --microbatch 8 --metrics m.jsonl)
}

refused() {
    run dt-train "${common[@]}" "$@"
    [ "$status" -eq 1 ]
}

@test "weights and data must have the same classes in the same order, or the head is replaced" {
    refused --model abc.net --data lmz.h5 --steps 1
    [[ $output == *"class 0 is 'l' in 'lmz.h5' and 'a' in abc.net"* ]]
    [[ $output == *--new-head* ]]
    refused --model abc.net --data cba.h5 --steps 1
    [[ $output == *"class 0 is 'c' in 'cba.h5' and 'a' in abc.net"* ]]
    refused --model abc.net --data abc.h5 --eval-data cba.h5 --steps 1
    [[ $output == *"class 0 is 'c' in 'cba.h5' and 'a' in abc.h5"* ]]
    refused --resume auto --save abc.net --data cba.h5 --steps 3
    [[ $output == *"class 0 is 'c' in 'cba.h5' and 'a' in abc.net/step-00000002"* ]]
    dt-train "${common[@]}" --model abc.net --data abc.h5 --steps 1
    dt-train "${common[@]}" --model abc.net --new-head --data lmz.h5 --steps 1 --save lmz.net
    dt-train --resume auto --save lmz.net --steps 2 --metrics m.jsonl
    [ "$(jq -s 'map(.step) | max' m.jsonl)" -eq 2 ]
}

@test "a damaged image is named when it is read, with any number of threads" {
    dt-dataset images --store jpeg --channels 1 -o jpeg.h5 abc
    at=$(LC_ALL=C grep -obUaP '\xff\xd8\xff' jpeg.h5 | sed -n 5p | cut -d: -f1) # the fifth image
    printf '\0' | dd of=jpeg.h5 bs=1 seek="$at" conv=notrunc 2>dd.log
    for threads in 0 1 3; do
        refused --model mlp:144-16-3 --data jpeg.h5 --steps 3 --loader-threads $threads --save jpeg.net
        [[ $output == *"image 4 of 'jpeg.h5': neither JPEG nor PNG nor PNM"* ]]
        [ ! -e jpeg.net/latest ]
    done
}

@test "images smaller than the crop, or of another size than evaluation requires, are named" {
    refused --model mlp:400-16-3 --data abc.h5 --image-size 20 --crop pad:3 --steps 1
    [[ $output == *"an image of 18 x 18 is smaller than the crop of 20 x 20"* ]]
    for crop in pad pad:0 pad:x pad:2x pad:2:mirror resized:0 resized:1.5 resized:x resized:0.5x; do
        run -2 dt-train "${common[@]}" --model mlp:144-16-3 --data abc.h5 --crop $crop --steps 1
        [[ $output == *"--crop '$crop' is not none,"* ]]
    done
    refused --model mlp:144-16-3 --data abc.h5 --crop pad:12:reflect --steps 1
    [[ $output == *"an image of 12 x 12 is too small for a mirrored border of 12"* ]]
    refused --model mlp:144-16-3 --data nothing.h5 --steps 1
    [[ $output == *"nothing.h5"* ]]
}

@test "augmentation does not depend on threads, and a run resumes in the middle of it" {
    common+=(--model mlp:144-16-3 --data abc.h5 --crop pad:2 --flip --cutout 4 --mixup 0.4 --cutmix 1 --schedule constant)
    for threads in 0 1 3; do
        dt-train "${common[@]}" --steps 7 --loader-threads $threads
        jq -c .loss m.jsonl >loss.$threads
        [ "$(wc -l <loss.$threads)" -eq 7 ]
        cmp loss.0 loss.$threads
    done
    dt-train "${common[@]}" --steps 4 --save part
    dt-train --resume auto --save part --steps 7 --metrics m.jsonl
    [ "$(tail -1 m.jsonl | jq -c .loss)" = "$(tail -1 loss.0)" ]
    for other in "--cutout 0" "--mixup 0 --cutmix 0" "--crop pad:3" "--crop pad:2:reflect" "--crop resized" \
        "--crop resized:0.5"; do # each of them acts
        # shellcheck disable=SC2086 # words
        dt-train "${common[@]}" --steps 7 $other
        run cmp <(jq -c .loss m.jsonl) loss.0
        [ "$status" -eq 1 ]
    done
}
# pixel_mean FOLDER: the mean of the first channel in its newest checkpoint, times 1e6
pixel_mean() {
    jq -r '.pixels.mean[0] * 1e6 | round' "$1"/latest/manifest.json
}

@test "pixels are normalised as for the pretrained weights, and a resumed run keeps that" {
    dt-train "${common[@]}" --model mlp:144-16-3 --data abc.h5 --normalize mnist --steps 1 --save mnist.net
    [ "$(pixel_mean mnist.net)" = 130700 ]
    dt-train "${common[@]}" --model mnist.net --data abc.h5 --steps 1 --save tuned.net 2>said
    grep -q "normalised as those of 'mnist.net' were" said
    [ "$(pixel_mean tuned.net)" = 130700 ]
    mean=$(dt-dataset info --json abc.h5 | jq '.mean[0] * 1e6 | round')
    [ "$mean" -ne 130700 ]
    dt-train "${common[@]}" --model mnist.net --data abc.h5 --normalize data --steps 1 --save own.net
    [ "$(pixel_mean own.net)" = "$mean" ]
    # darker images of the same classes
    cp -r abc dark
    for class in a b c; do rm dark/$class/[5678].pgm; done
    dt-dataset images --store raw --channels 1 -o dark.h5 dark
    [ "$(dt-dataset info --json dark.h5 | jq '.mean[0] * 1e6 | round')" -ne "$mean" ]
    dt-train --resume auto --save own.net --data dark.h5 --accept-change data --steps 2 --metrics m.jsonl
    [ "$(pixel_mean own.net)" = "$mean" ]
}
# SPDX-License-Identifier: Apache-2.0
