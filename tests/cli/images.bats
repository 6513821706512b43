#!/usr/bin/env bats
# dt-train on images: it learns, ranks agree, runs resume, invalid requests are refused by name.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    # Three classes: a bright bar in the left, the middle or the right third, brighter with the image's
    # number.
    bars bars
    dt-dataset images --out bars.h5 bars 2>build.log || { cat build.log; return 1; }
}

# bars NAME [mirror]: makes a folder of such images; mirror exchanges left and right. $shift moves them down
# and right by so many pixels, with a mirrored border; $classes restricts the classes.
bars() {
    local class at i
    for class in ${classes:-left middle right}; do
        mkdir -p "$1/$class"
        case $class in left) at=0 ;; middle) at=9 ;; right) at=18 ;; esac
        for i in $(seq 1 40); do
            LC_ALL=C awk -v at=$at -v i="$i" -v mirror="${2:-}" -v by="${shift:-0}" '
            function inside(v) { v -= by; return v < 0 ? -v : v > 27 ? 54 - v : v }
            BEGIN {
                printf "P5\n28 28\n255\n"
                for (r = 0; r < 28; r++) for (k = 0; k < 28; k++) {
                    x = inside(mirror ? 27 - k : k)
                    y = inside(r)
                    printf "%c", (x >= at && x < at + 10 ? 100 + 3 * i : 1 + (x * 7 + y * i) % 40)
                }
            }' >"$1/$class/$i.pgm"
        done
    done
}

setup() {
    in_folder
    common=(--model cnn2 --data bars.h5 --precision fp32 --no-mfu --threads 1 --lr 3e-3 --comm-timeout 60)
}

@test "an asynchronous checkpoint holds the running statistics of its step, also if the next step overflows" {
    opts=("${common[@]}" --microbatch 4 --steps 2 --save-every 1 --loss-scale dynamic --inject spike:step=2,factor=1e35)
    rm -rf sync async
    dt-train "${opts[@]}" --save sync >m.jsonl
    [ "$(jq -c .skipped m.jsonl | tail -1)" = true ]
    LD_PRELOAD=$DT_HELP/fault.so DT_FAULT=pwrite:1:slow dt-train "${opts[@]}" --save async --save-async >/dev/null
    dt-shard-ckpt diff sync/step-00000001 async/step-00000001
}

@test "a small network learns three classes; every image of the evaluation counts once" {
    dt-train "${common[@]}" --eval-data bars.h5 --microbatch 24 --steps 30 --metrics m.jsonl --save net 2>said
    grep -q "24 images per step" said
    [ "$(jq -s 'map(select(.loss)) | length' m.jsonl)" -eq 30 ]
    tail -1 m.jsonl | jq -e '.eval_images == 120 and .top1 > 0.9 and .top5 == 1'
    dt-shard-ckpt verify net
    # the same evaluation, in unequal parts over three ranks
    mpirun -np 3 dt-train "${common[@]}" --eval-data bars.h5 --microbatch 7 --global-batch 21 --resume auto --save net \
        --accept-change global-batch --steps 31 --lr 3e-3 --metrics n.jsonl 2>&1
    tail -1 n.jsonl | jq -e '.eval_images == 120 and .top1 > 0.9'
}

@test "ranks with synchronized batch statistics have the losses of one rank" {
    dt-train "${common[@]}" --microbatch 24 --steps 6 --metrics one.jsonl 2>/dev/null
    for layout in dp2 dp2.z1 dp2.z3 dp3; do
        np=${layout:2:1}
        mpirun -np "$np" dt-train "${common[@]}" --microbatch $((24 / np)) --layout $layout --steps 6 --metrics many.jsonl 2>/dev/null
        jq -en --slurpfile a one.jsonl --slurpfile b many.jsonl \
            '[range(6) as $i | ($a[$i].loss - $b[$i].loss) / ([$a[$i].loss, 0.01] | max) | fabs] | max < 1e-5'
    done
}

@test "gradients of all microbatches count on every ZeRO stage, those of the stem too" {
    small=(--data bars.h5 --precision fp32 --no-mfu --threads 1 --comm-timeout 60 --global-batch 12 --bn-span 3
        --steps 1 --lr 0 --weight-decay 0 --save-grads --overwrite)
    for model in resnet-18-cifar resnet-9; do
        dt-train --model $model "${small[@]}" --microbatch 12 --save stem >/dev/null
        for layout in dp2 dp2.z1 dp2.z2 dp2.z3; do
            mpirun -np 2 dt-train --model $model "${small[@]}" --microbatch 3 --layout $layout --save stem-parts >/dev/null
            # a rounding error that changes the side of a ReLU is visible in single gradients
            dt-shard-ckpt diff stem stem-parts --tolerance 2e-2 --json | jq -e '[.tensors[] |
                select(.name | startswith("grad/")) | .equal] | length > 20 and all'
        done
    done
}

@test "--bn-span N: the last microbatch of an evaluation need not be whole groups" {
    local opts=("${common[@]}" --eval-data bars.h5 --eval-tokens 35 --global-batch 24 --bn-span 4 --steps 2)
    dt-train "${opts[@]}" --microbatch 12 --metrics rest.jsonl 2>/dev/null
    dt-train "${opts[@]}" --microbatch 4 --metrics whole.jsonl 2>/dev/null
    jq -en --slurpfile a <(tail -1 rest.jsonl) --slurpfile b <(tail -1 whole.jsonl) \
        '$a[0].eval_images == 35 and $a[0].top1 == $b[0].top1 and ($a[0].eval_loss - $b[0].eval_loss | fabs) < 1e-5'
}

@test "evaluations under z3 have the newest weights, those of a last layer alone in its unit, too" {
    local opts=(--model mlp:784-400-3 --data bars.h5 --eval-data bars.h5 --eval-every 1 --precision fp32 --optimizer sgd --lr 0.1
        --global-batch 8 --steps 3 --no-mfu --threads 1)
    dt-train "${opts[@]}" --microbatch 8 --metrics one.jsonl 2>/dev/null
    mpirun -np 2 dt-train "${opts[@]}" --microbatch 1 --layout dp2.z3 --metrics z3.jsonl 2>/dev/null
    jq -en --slurpfile a <(jq '.eval_loss // empty' one.jsonl) --slurpfile b <(jq '.eval_loss // empty' z3.jsonl) \
        '($a | length) == 3 and ([$a, $b] | transpose | all(.[]; (.[0] - .[1] | fabs) < 1e-6 * .[0]))'
}

@test "--shares auto measures ranks: a slow one gets fewer images of a round, and no loss changes" {
    takes_long
    dt-train "${common[@]}" --microbatch 24 --steps 24 --metrics one.jsonl 2>/dev/null
    mpirun -np 2 dt-train "${common[@]}" --microbatch 24 --global-batch 24 --steps 24 --shares auto --inject slow:rank=1,factor=6,start=0 \
        --metrics many.jsonl 2>/dev/null
    jq -en --slurpfile a one.jsonl --slurpfile b many.jsonl \
        '[range(24) as $i | ($a[$i].loss - $b[$i].loss) / ([$a[$i].loss, 0.01] | max) | fabs] | max < 1e-5'
    jq -es '.[0].shares == [12, 12] and all(.shares | add == 24) and (.[-1].shares | .[1] >= 1 and .[1] < .[0])' many.jsonl
    # rounds that are not all of the same size, with parts of at most a microbatch
    mpirun -np 2 dt-train "${common[@]}" --microbatch 10 --global-batch 24 --steps 12 --shares auto --inject slow:rank=1,factor=6,start=0 \
        --metrics many.jsonl 2>/dev/null
    jq -es 'all(.shares | add == 8 and max <= 10) and .[0].shares == [4, 4]' many.jsonl
}

# one OPTION...: trains on one rank. as_one RANKS OPTION...: several ranks have its losses, weights, averages
# and statistics.
one() { rm -rf alone && dt-train "${uneven[@]}" --microbatch 30 --metrics alone.jsonl --save alone "$@" 2>/dev/null; }
as_one() {
    local np=$1
    shift
    rm -rf unequal
    mpirun -np "$np" dt-train "${uneven[@]}" --metrics unequal.jsonl --save unequal "$@" 2>/dev/null
    jq -en --slurpfile a alone.jsonl --slurpfile b unequal.jsonl \
        '[range(4) as $i | ($a[$i].loss - $b[$i].loss) / $a[$i].loss | fabs] | max < 1e-6'
    jq -en --slurpfile a <(tail -1 alone.jsonl) --slurpfile b <(tail -1 unequal.jsonl) \
        '$a[0].top1 == $b[0].top1 and ($a[0].eval_loss - $b[0].eval_loss | fabs) < 1e-6 and $b[0].eval_images == 120'
    { dt-shard-ckpt diff --json alone unequal || true; } >diff.json
    jq -e '.tensors_total == 20 and ([.tensors[].max_abs] | max) < 1e-6' diff.json
}

@test "ranks with unequal parts of a batch have the losses, weights and running statistics of one" {
    uneven=("${common[@]}" --eval-data bars.h5 --optimizer sgd --lr 1e-3 --steps 4 --ema 0.5)
    one --global-batch 24
    as_one 2 --global-batch 24 --microbatch 18 --shares 3,1
    [ "$(tail -2 unequal.jsonl | head -1 | jq -c .shares)" = "[18,6]" ]
    as_one 3 --global-batch 24 --microbatch 16 --shares 4,1,1 --layout dp3.z1 --check-replicas 1
    # a rank without images
    as_one 3 --global-batch 24 --microbatch 21 --shares 1000,6000,1 --layout dp3.z3
    [ "$(tail -2 unequal.jsonl | head -1 | jq -c .shares)" = "[3,21,0]" ]
    # a batch that is not divisible by the ranks, and one with fewer images than ranks
    one --global-batch 25 --mixup 0.2 --label-smoothing 0.1
    as_one 2 --global-batch 25 --microbatch 13 --mixup 0.2 --label-smoothing 0.1
    as_one 3 --global-batch 25 --microbatch 9 --layout dp3.z2 --mixup 0.2 --label-smoothing 0.1
    one --global-batch 2
    as_one 3 --global-batch 2 --microbatch 4 --check-replicas 2
    # several rounds per step: batch statistics are those of a round, over all ranks
    one --global-batch 23 --microbatch 12
    as_one 3 --global-batch 23 --microbatch 4
    as_one 2 --global-batch 23 --microbatch 6
}

@test "the memory allocated is as planned; a run resumes to the bit" {
    dt-train "${common[@]}" --microbatch 8 --steps 6 --metrics whole.jsonl --save whole 2>/dev/null
    dt-memest whole --train --microbatch 8 --precision fp32 --check whole.jsonl
    dt-train "${common[@]}" --microbatch 8 --steps 3 --metrics a.jsonl --save part --save-every 3 --schedule constant 2>/dev/null
    dt-train --resume auto --save part --steps 6 --metrics b.jsonl 2>/dev/null
    dt-train "${common[@]}" --microbatch 8 --steps 6 --metrics c.jsonl --save all --schedule constant 2>/dev/null
    [ "$(tail -1 b.jsonl | jq .loss)" = "$(tail -1 c.jsonl | jq .loss)" ]
}

@test "averaged weights are saved with the running statistics of the weights, and are what was evaluated" {
    for np in 1 2; do
        mpirun -np $np dt-train "${common[@]}" --eval-data bars.h5 --microbatch $((24 / np)) --layout dp$np --steps 6 --ema 0.5 \
            --metrics ema.$np.jsonl --save ema.$np 2>/dev/null
        dt-shard-ckpt convert --from ema --to dt ema.$np average.$np
        dt-eval images bars.h5 average.$np --precision fp32 --batch 24 --threads 1 --json >average.json
        jq -en --slurpfile a average.json --slurpfile b <(tail -1 ema.$np.jsonl) \
            '$b[0].ema and ($a[0].loss - $b[0].eval_loss | fabs) < 1e-5 and $a[0].top1 == $b[0].top1'
        dt-eval images bars.h5 ema.$np --precision fp32 --batch 24 --threads 1 --json >plain.json
        jq -en --slurpfile a average.json --slurpfile b plain.json '$a[0].loss != $b[0].loss'
        for name in bn1.running_mean bn2.running_var; do
            dt-shard-ckpt cat --raw model/$name ema.$np >of-weights
            dt-shard-ckpt cat --raw model/$name average.$np >of-average
            [ -s of-weights ]
            cmp of-weights of-average
        done
    done
}

@test "dt-eval has dt-train's figures, on any number of ranks and either way of sharing" {
    dt-train "${common[@]}" --eval-data bars.h5 --microbatch 24 --steps 8 --metrics m.jsonl --save seen 2>/dev/null
    dt-eval images bars.h5 seen --precision fp32 --batch 50 --threads 1 --predictions one.jsonl --json >one.json
    jq -en --slurpfile a one.json --slurpfile b <(tail -1 m.jsonl) '$a[0].top1 == $b[0].top1 and $a[0].top5 == 1 and
        $a[0].images == 120 and ($a[0].loss - $b[0].eval_loss | fabs) < 1e-5 and
        ($a[0].confusion | flatten | add) == 120 and [$a[0].classes[].images] == [40, 40, 40]'
    [ "$(wc -l <one.jsonl)" -eq 120 ]
    dt-eval images bars.h5 seen --precision fp32 --batch 50 --threads 1 --no-fold-norms --predictions apart.jsonl >apart.txt
    cmp <(jq -c '[.image, .class, .given]' one.jsonl) <(jq -c '[.image, .class, .given]' apart.jsonl)
    jq -en --slurpfile a one.jsonl --slurpfile b apart.jsonl \
        '[range(120) | $a[.].probability - $b[.].probability | fabs] | max < 1e-5'
    for split in data requests; do
        for np in 2 3; do
            mpirun -np $np dt-eval images bars.h5 seen --precision fp32 --batch 50 --threads 1 --split $split \
                --predictions many.jsonl --json >many.json
            cmp <(jq -c '[.image, .class, .given]' one.jsonl) <(jq -c '[.image, .class, .given]' many.jsonl)
            jq -en --slurpfile a one.json --slurpfile b many.json '$a[0].confusion == $b[0].confusion and
                $a[0].top1 == $b[0].top1 and ($a[0].loss - $b[0].loss | fabs) < 1e-5'
        done
    done
    dt-eval images bars.h5 seen --batch 7 --limit 20 | grep "on 20 images"
    # a batch has no more images than there are
    [[ $(dt-eval images bars.h5 seen --limit 20) == *"latency of a batch of 20: "* ]]
}

@test "--tta mirror: an image and its mirror image have the same answer, the mean of both" {
    takes_long
    dt-train "${common[@]}" --microbatch 24 --steps 8 --metrics /dev/null --save both 2>/dev/null
    bars mirrored mirror
    for data in bars mirrored; do
        dt-dataset images --store raw --out $data-raw.h5 $data 2>/dev/null
        for tta in none mirror; do
            dt-eval images $data-raw.h5 both --precision fp32 --threads 1 --tta $tta --predictions $data.$tta.jsonl --json >$data.$tta.json
        done
    done
    jq -e '.tta == "mirror"' bars.mirror.json
    same='[range(120) as $i | ($a[$i].probability - $b[$i].probability | fabs)] | max'
    jq -en --slurpfile a bars.mirror.jsonl --slurpfile b mirrored.mirror.jsonl "$same < 1e-5"
    jq -en --slurpfile a bars.none.json --slurpfile b mirrored.none.json '($a[0].loss - $b[0].loss | fabs) > 1e-3'
    # cross-entropy is convex in the logits: the loss of mean logits is at most the mean of the losses
    jq -en --slurpfile m bars.mirror.json --slurpfile a bars.none.json --slurpfile b mirrored.none.json \
        '$m[0].loss <= ($a[0].loss + $b[0].loss) / 2 + 1e-6'
    mpirun -np 2 dt-eval images bars-raw.h5 both --precision fp32 --threads 1 --split data --batch 50 --tta mirror --predictions two.jsonl >two.txt
    grep "on 120 images, averaged with mirrored images" two.txt
    jq -en --slurpfile a bars.mirror.jsonl --slurpfile b two.jsonl "$same < 1e-5"
    run -2 dt-eval images bars.h5 both --tta rotate
}

@test "--tta mirror-shift: half from an image and its mirror image, half from both shifted by a pixel" {
    # with two classes the probability gives the difference of the logits
    for shift in 0 -1 1; do
        for mirror in "" mirror; do
            classes="left middle" bars view$shift$mirror "$mirror"
            dt-dataset images --store raw --out view$shift$mirror.h5 view$shift$mirror 2>/dev/null
        done
    done
    dt-train "${common[@]}" --data view0.h5 --microbatch 16 --steps 4 --metrics /dev/null --save pair 2>/dev/null
    margin='(if .given == "left" then 1 else -1 end) * (.probability / (1 - .probability) | log)'
    of() { dt-eval images "$1" pair --precision fp32 --threads 1 --predictions given.jsonl "${@:2}" >said && jq "$margin" given.jsonl; }
    of view0.h5 --tta mirror-shift >views
    grep "on 80 images, averaged with mirrored and shifted images" said
    for view in 0 0mirror -1 -1mirror 1 1mirror; do of view$view.h5 >by$view; done
    paste by0 by0mirror by-1 by-1mirror by1 by1mirror views |
        awk '{ d = ($1 + $2) / 4 + ($3 + $4 + $5 + $6) / 8 - $7; bad += d * d > 1e-8; moved += ($3 - $1) ^ 2 > 1e-6 }
            END { print NR, bad, moved; exit !(NR == 80 && !bad && moved > 40) }'
}

@test "steps with learning rate 0 recompute running statistics of averaged weights, and nothing else" {
    dt-train "${common[@]}" --microbatch 24 --steps 6 --ema 0.5 --metrics /dev/null --save run 2>/dev/null
    dt-shard-ckpt convert --from ema --to dt run averaged
    dt-train "${common[@]/cnn2/averaged}" --microbatch 24 --lr 0 --weight-decay 0 --optimizer sgd --bn-momentum 0.2 --steps 3 \
        --metrics own.jsonl --save own 2>/dev/null
    run dt-shard-ckpt diff --weights --all --json averaged own
    jq -e '[.tensors[] | select(.equal | not) | .name] | length > 0 and all(test("running_(mean|var)$"))' <<<"$output"
    jq -e '[.tensors[] | select(.equal) | .name] | all(test("running_(mean|var)$") | not)' <<<"$output"
}

@test "CIFAR-10 with the fast recipe, 16 epochs: an hour on two cores" {
    takes_long
    local images=${DT_TEST_DATA:-$DT_SRC/../shared/data}/cifar10
    [ -r "$images/unpack.py" ] || skip "no cifar10 in ${images%/*}"
    python3 -c 'import PIL' 2>/dev/null || skip "needs python3-pil"
    python3 "$images/unpack.py" cifar
    "$DT_SRC/bench/images/cifar10" --train cifar/train.bin --test cifar/test.bin --work work >result.json
    cat result.json
    # images stored as JPEG are harder than the originals, of which 94% are right
    jq -e '.top1 > 0.895 and .top1_mirror_shift > 0.905' result.json
}

@test "airbench94: filters from the data, ranks agree, frozen weights stay, with norms folded or not" {
    mkdir air && cd air
    # records like CIFAR's, of noise with a middle whose brightness depends on the class; without noise pooled
    # values would be equal
    LC_ALL=C awk 'BEGIN {
        for (i = 0; i < 48; i++) {
            printf "%c", i % 3
            for (p = 0; p < 3072; p++) printf "%c", 1 + int(150 * rand()) + (p % 32 > 7 && p % 32 < 24 ? 40 * (i % 3) : 0)
        }
    }' >data_batch_1.bin
    dt-dataset images --out noise.h5 data_batch_1.bin 2>/dev/null
    net=(--model airbench94 --data noise.h5 --eval-data noise.h5 --precision fp32 --no-mfu --threads 1 --comm-timeout 60 --optimizer nesterov
        --lr 0.3 --lr-scale 'fc.*:0.0123,.*norm.*bias:8' --beta1 0.85 --flip --flip-alternate --crop pad:2:reflect)
    dt-train "${net[@]}" --microbatch 24 --steps 3 --metrics one.jsonl --save one 2>/dev/null
    dt-train "${net[@]}" --microbatch 24 --steps 8 --metrics more.jsonl --save more --save-every 4 2>/dev/null
    jq -es '[.[].loss | numbers] | min < 1' more.jsonl
    for t in whiten.weight layer1.norm1.weight; do
        cmp <(dt-shard-ckpt cat --raw model/$t one) <(dt-shard-ckpt cat --raw model/$t more)
    done
    dt-shard-ckpt cat --raw model/layer3.norm2.weight more | od -An -v -w4 -tf4 | sort -u | grep -qx ' *1'
    one_of 2 dp2.z3 dp2
    for layout in "${some[@]}"; do
        mpirun -np 2 dt-train "${net[@]}" --microbatch 12 --layout $layout --steps 3 --metrics many.jsonl --save $layout 2>/dev/null
        jq -en --slurpfile a one.jsonl --slurpfile b many.jsonl '[range(3) as $i | ($a[$i].loss - $b[$i].loss) / ([$a[$i].loss, 0.01] | max) | fabs] | max < 1e-5'
        cmp <(dt-shard-ckpt cat --raw model/whiten.weight one) <(dt-shard-ckpt cat --raw model/whiten.weight $layout)
    done
    dt-memest more --train --microbatch 24 --precision fp32 --optimizer nesterov --check more.jsonl
    for fold in --fold-norms --no-fold-norms; do
        dt-eval images noise.h5 more --precision fp32 --batch 24 --threads 1 $fold --json >$fold.json
    done
    jq -en --slurpfile a ./--fold-norms.json --slurpfile b ./--no-fold-norms.json --slurpfile c <(tail -1 more.jsonl) \
        '($a[0].loss - $b[0].loss | fabs) < 1e-5 and ($a[0].loss - $c[0].eval_loss | fabs) < 1e-5'
    # after one step running statistics are 1 - X of their start value, which is 0 for means, plus X of the
    # batch's
    for x in 0.1 0.4; do
        dt-train "${net[@]}" --microbatch 24 --steps 1 --bn-momentum $x --metrics /dev/null --save bn$x 2>/dev/null
        dt-shard-ckpt cat --raw model/layer1.norm1.running_mean bn$x | od -An -v -w4 -tf4 >mean$x
    done
    paste mean0.1 mean0.4 | awk '{ bad += ($2 - 4 * $1) ^ 2 > 1e-10; some += $1 * $1 > 1e-6 } END { exit !(NR == 64 && !bad && some > 32) }'
    # an average of the weights; frozen ones are not averaged
    dt-train "${net[@]}" --microbatch 24 --steps 3 --ema 0.5 --metrics ema.jsonl --save ema 2>/dev/null
    dt-shard-ckpt convert --from ema --to dt ema average
    dt-eval images noise.h5 average --precision fp32 --batch 24 --threads 1 --json >average.json
    jq -en --slurpfile a average.json --slurpfile b <(tail -1 ema.jsonl) '($a[0].loss - $b[0].eval_loss | fabs) < 1e-5'
    dt-train "${net[@]}" --precision bf16 --microbatch 24 --steps 3 --metrics bf16.jsonl 2>/dev/null
    jq -en --slurpfile a one.jsonl --slurpfile b bf16.jsonl '[range(3) as $i | $a[$i].loss - $b[$i].loss | fabs] | max < 0.02'
    run -1 dt-train "${net[@]}" --image-size 8 --microbatch 24 --steps 1
    [[ $output == *"halves its images 3 times; a side of 8 pixels is too small"* ]]
    run -2 dt-train --model cnn2 --data bars.h5 --flip-alternate
    [[ $output == *"--flip-alternate"*"--flip"* ]]
}

@test "evaluation refuses other classes, sizes and normalisations" {
    dt-train "${common[@]}" --microbatch 8 --steps 1 --save any --metrics /dev/null 2>/dev/null
    mkdir two && cp -r bars/left bars/right two/
    dt-dataset images --out two.h5 two 2>/dev/null
    run -1 dt-eval images two.h5 any
    [[ $output == *"'any' has 3 classes, 'two.h5' has 2"* ]]
    mkdir other && cp -r bars/left bars/right other/ && cp -r bars/middle other/centre
    dt-dataset images --out other.h5 other 2>/dev/null
    run -1 dt-eval images other.h5 any
    [[ $output == *centre* ]]
    run -1 dt-eval images bars.h5 any --image-size 32
    [[ $output == *"of 28 pixels a side, not of 32"* ]]
    run -2 dt-eval images bars.h5 any --normalize imagnet
    [[ $output == *"--normalize 'imagnet'"* ]]
    run -1 dt-eval images bars.h5 nothere
    [[ $output == *nothere* ]]
    run -1 mpirun -np 2 dt-eval images bars.h5 nothere
    [[ $output == *nothere* ]]
}

@test "convolutions are compiled for this processor, none is oneDNN's reference implementation" {
    for precision in fp32 bf16; do
        DNNL_VERBOSE=1 ONEDNN_VERBOSE=1 dt-train "${common[@]}" --model resnet-18 --image-size 32 --precision $precision \
            --microbatch 2 --steps 1 --optimizer sgd --metrics /dev/null >verbose 2>/dev/null
        grep -c ",exec,cpu,convolution," verbose
        run -1 grep -E ",exec,cpu,convolution,[^,]*ref" verbose
        for what in forward_training backward_data backward_weights; do
            grep -q ",convolution,.*,$what," verbose
        done
    done
}

@test "export to other libraries' files and back, with statistics, classes and pixel normalisation" {
    dt-train "${common[@]}" --model resnet-18 --image-size 32 --microbatch 2 --steps 1 --optimizer sgd --save r18 --metrics /dev/null 2>/dev/null
    DNNL_VERBOSE=1 ONEDNN_VERBOSE=1 dt-eval images bars.h5 r18 --limit 4 --predictions folded.jsonl >verbose
    grep -q "exec,cpu,convolution,.*forward_inference.*eltwise_relu" verbose
    run -1 grep -E ",exec,cpu,convolution,[^,]*ref" verbose
    dt-eval images bars.h5 r18 --limit 4 --precision fp32 --predictions folded.jsonl >verbose
    dt-eval images bars.h5 r18 --limit 4 --precision fp32 --no-fold-norms --predictions apart.jsonl >verbose
    jq -en --slurpfile a folded.jsonl --slurpfile b apart.jsonl \
        '[range(4) | $a[.].probability - $b[.].probability | fabs] | max < 1e-5'
    dt-shard-ckpt convert r18 hf --to safetensors
    jq -e '.architecture == "resnet18" and .num_classes == 3 and .label_names == ["left", "middle", "right"] and
        .pretrained_cfg.input_size == [3, 32, 32] and (.pretrained_cfg.mean | length) == 3' hf/config.json
    dt-shard-ckpt convert hf back
    dt-shard-ckpt diff -w r18 back
    jq -e '.classes == ["left", "middle", "right"] and (.pixels.deviation | length) == 3' back/latest/manifest.json
    # the architecture is recognized from the tensors alone
    mkdir bare
    cp hf/model.safetensors bare/
    dt-memest bare/model.safetensors --train --microbatch 1 --json | jq -e '.model == "resnet18"'
    dt-eval images bars.h5 bare/model.safetensors --image-size 32 --limit 4 --normalize data | grep "on 4 images"
    # logits that are not numbers are no classes
    python3 "$BATS_TEST_DIRNAME/plant-nan.py" bare/model.safetensors fc.bias 1
    for split in requests data; do
        run --separate-stderr -1 mpirun -np 2 dt-eval images bars.h5 bare/model.safetensors --image-size 32 --limit 4 --batch 2 --split $split --normalize data
        [[ $stderr == *"'bare/model.safetensors' computes logits that are not finite"* && ! $output ]]
    done
    # an architecture that timm does not have
    dt-train "${common[@]}" --microbatch 8 --steps 1 --save c2 --metrics /dev/null 2>/dev/null
    dt-shard-ckpt convert c2 c2hf --to safetensors
    dt-shard-ckpt convert c2hf c2back
    dt-shard-ckpt diff -w c2 c2back
}

@test "invalid requests are refused by name" {
    run dt-train "${common[@]}" --microbatch 8 --steps 1 --layout tp2
    [ "$status" -ne 0 ]
    run mpirun -np 2 dt-train "${common[@]}" --microbatch 8 --steps 1 --shares auto --bn-span rank
    [[ $status -ne 0 && $output == *"--bn-span other than dp"* ]]
    run mpirun -np 2 dt-train "${common[@]}" --microbatch 8 --steps 1 --shares 2,1 --bn-span rank
    [[ $status -ne 0 && $output == *"--bn-span other than dp"* ]]
    run mpirun -np 2 dt-train "${common[@]}" --microbatch 8 --steps 1 --global-batch 15 --bn-span rank
    [[ $status -ne 0 && $output == *"global batch 15 is not a multiple"* ]]
    run mpirun -np 2 dt-train "${common[@]}" --microbatch 8 --steps 1 --global-batch 15 --noise-scale
    [[ $status -ne 0 && $output == *"--noise-scale"* ]]
    run mpirun -np 2 dt-train "${common[@]}" --microbatch 8 --steps 1 --layout tp2
    [ "$status" -ne 0 ]
    [[ $output == *cnn2* ]]
    run dt-train "${common[@]}" --microbatch 8 --steps 1 --documents apart
    [[ $status -ne 0 && $output == *"cannot be trained with --documents apart"* ]]
    echo hello >t.txt
    dt-dataset build --tokenizer byte -o t.h5 t.txt
    run dt-train --model cnn2 --data t.h5 --steps 1
    [ "$status" -ne 0 ]
    run dt-train --model llama-tiny --data bars.h5 --steps 1 --seq 32
    [ "$status" -ne 0 ]
    for o in "crop foo" "normalize foo"; do
        run -2 dt-train "${common[@]}" --microbatch 8 --steps 1 --$o
        [[ $output == *"--${o% *} 'foo' is not "* ]]
    done
    for o in "seq 5" "vocab 100"; do # options of text models must not be ignored
        run -2 dt-train "${common[@]}" --steps 1 --$o
        [[ $output == *"--${o% *} is for text models, which 'cnn2' is not"* ]]
    done
    dt-train "${common[@]}" --microbatch 8 --steps 1 --save one --metrics /dev/null 2>/dev/null
    run -1 dt-eval ppl one --text t.txt
    [[ $output == *"'cnn2' is an image classifier: it generates no text"* ]]
}

@test "bench/scaling: one table of measured and simulated ranks, strong and weak scaling, and a plot" {
    # times are not checked
    for weak in '' --weak; do
        # shellcheck disable=SC2086 # a word or none
        "$DT_SRC/bench/scaling" "$DT_BIN/.." bars.h5 --model cnn2 --batch 24 --steps 3 --ranks 2 --upto 4 --split requests $weak \
            --svg scaling.svg --json scaling.json -- --precision fp32 --lr 3e-3 >table
        jq -e --arg weak "$weak" '[.training[] | [.ranks, .how]] == [[1, "measured"], [2, "measured"], [4, "simulated"]] and
            (.training[0].speedup - 1 | fabs) < 1e-9 and .training[2].published == [2.38, 2.63] and
            [.training[].images] == (if $weak == "" then [24, 24, 24] else [24, 48, 96] end) and
            all(.training[:2][]; .top1 >= 0 and .top1 <= 1) and [.inference[] | [.ranks, .split]] == [[1, "requests"], [2, "requests"]] and
            all(.training[]; (.efficiency * .ranks - .speedup | fabs) < 1e-9)' scaling.json
        [ "$(grep -c measured table)" -eq 2 ]
        [ "$(grep -c simulated table)" -eq 1 ]
        grep -q "^<svg" scaling.svg
    done
}

# Three epochs of Fashion-MNIST. Published accuracies after each: 84.94, 89.17 and 90.58%; here 85.78, 89.62
# and 90.71% on one rank, 86.72, 89.06 and 90.47% on two. Another seed changes them by some tenths, so the
# test requires half a point less.
@test "a ResNet-18 learns Fashion-MNIST, on one rank and on two" {
    slow || skip "half an hour: set DT_SLOW=1"
    local data=${DT_TEST_DATA:-$DT_SRC/../shared/data}/fashion-mnist r
    [ -e "$data/train-images-idx3-ubyte.gz" ] || skip "no Fashion-MNIST in '$data'"
    for r in train t10k; do
        dt-dataset images --store raw --out $r.h5 "$data/$r-images-idx3-ubyte.gz" "$data/$r-labels-idx1-ubyte.gz"
    done
    for r in 1 2; do
        mpirun -np $r dt-train --model resnet-18 --data train.h5 --eval-data t10k.h5 --eval-every 938 --steps 2814 \
            --global-batch 64 --microbatch $((64 / r)) --bn-span dp --optimizer nesterov --lr 0.03 --min-lr 0 --warmup 50 \
            --weight-decay 5e-4 --no-decay norm,bias --flip --precision bf16 --threads 1 --no-mfu --seed 1 --metrics f$r.jsonl
        jq -c 'select(.top1) | [.step, .top1]' f$r.jsonl >&2
        jq -se 'map(select(.top1).top1) | .[0] >= 0.8444 and .[1] >= 0.8867 and .[2] >= 0.9008' f$r.jsonl
    done
}
# SPDX-License-Identifier: Apache-2.0
