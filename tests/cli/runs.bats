#!/usr/bin/env bats
# Every program interprets a run's options alike: what dt-memest and dt-plan say of a run, dt-train does. And
# options of a server that concern speed and memory change no answer.

load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
}

setup() {
    in_folder
    common=(--data d.h5 --seq 32 --no-mfu --threads 1 --comm-timeout 60)
}

attempt() { # STATUS TEXT COMMAND...: the command ends with STATUS, and its output contains TEXT
    local want=$1 text=$2 status=0
    shift 2
    "$@" >out 2>err || status=$?
    [ "$status" -eq "$want" ] || { echo "exit $status, not $want: $(cat err)"; return 1; }
    grep -qF -- "$text" err || { cat err; return 1; }
}

@test "random runs (8; 500 with DT_SLOW=1): dt-memest, dt-plan and dt-train agree on validity and memory" {
    python3 "$DT_SRC/tests/cli/random-runs.py" "$DT_BIN" d.h5 . "$(few 8 500)" "${DT_SEED:-1}"
}

@test "random servers (4; 300 with DT_SLOW=1): batches, caches, speculation and ranks change no answer" {
    mkdir served
    python3 "$DT_SRC/tests/cli/random-serves.py" "$DT_BIN" d.h5 served "$(few 4 300)" "${DT_SEED:-1}"
}

@test "z3 with a pipeline: all refuse it in the same words; its memory is estimated by formula" {
    attempt 1 "z3 cannot be combined with a pipeline" dt-memest --account dt gpt2-tiny --layout dp2.pp2.z3
    attempt 2 "z3 cannot be combined with a pipeline" mpirun -np 4 dt-train --model gpt2-tiny "${common[@]}" --layout dp2.pp2.z3
    [ "$(grep -c 'z3 cannot' err)" -eq 1 ]
    [ "$(dt-memest --json gpt2-tiny --layout dp2.pp2.z3 | jq -r .account)" = generic ]
}

@test "fp16 is estimated, planned and trained" {
    dt-train --model gpt2-tiny "${common[@]}" --precision fp16 --microbatch 2 --steps 1 >m.jsonl
    dt-memest gpt2-tiny --account dt --precision fp16 --seq 32 --microbatch 2 --check m.jsonl
    dt-plan --gpus 1 --gpu cpu --gpu-mem 8GiB --account dt --precision fp16 --seq 32 gpt2-tiny
    [[ $(dt-plan --gpus 1 --gpu cpu --gpu-mem 8GiB --precision fp16 --seq 32 --emit args gpt2-tiny) == *"--precision fp16"* ]]
}

@test "the arguments that dt-plan emits describe the run that it planned" {
    args=$(dt-plan --gpus 2 --gpu cpu --gpu-mem 8GiB --seq 32 --global-batch 4 --compare dp2 --no-master --grad-comm bf16 \
        --optimizer sgd --loss-chunk 16 --recompute selective --emit args gpt2-tiny)
    for word in "--layout dp2" --no-master "--grad-comm bf16" "--optimizer sgd" "--loss-chunk 16" "--recompute selective" \
        "--global-batch 4" "--seq 32"; do
        [[ $args == *"$word"* ]] || { echo "no $word: $args"; return 1; }
    done
}

@test "dt-plan rejects a layout that the run does not allow, and plans with the others" {
    dt-plan --gpus 8 -s 4095 --microbatch 1 --explain llama-2-7b >out
    grep "Rejected: .*tp2 does not divide the 4095 tokens" out
    dt-plan --gpus 8 --pipeline zb-h1 --explain llama-3-8b >out
    grep "Rejected: .*full recomputation" out
}

@test "memory of --save-async with --save-grads, of bf16 without masters under ZeRO and sgd, of a schedule from a file" {
    dt-train --model gpt2-tiny "${common[@]}" --microbatch 2 --steps 1 --save a --save-async --save-grads >m.jsonl
    dt-memest gpt2-tiny --account dt --seq 32 --microbatch 2 --save-async --save-grads --check m.jsonl
    mpirun -np 2 dt-train --model gpt2-tiny "${common[@]}" --microbatch 2 --steps 1 --layout dp2.z1 --no-master --optimizer sgd >m.jsonl
    dt-memest gpt2-tiny --account dt --seq 32 --microbatch 2 --layout dp2.z1 --no-master --optimizer sgd --check m.jsonl
    dt-train --layout pp2 --microbatch 1 --global-batch 4 --pipeline gpipe --schedule-table >table 2>/dev/null
    mpirun -np 2 dt-train --layout pp2 --microbatch 1 --global-batch 4 --pipeline gpipe --schedule-table 2>idle | cmp table -
    [ "$(wc -l <idle)" -eq 1 ]
    mpirun -np 2 dt-train --model gpt2-tiny "${common[@]}" --microbatch 1 --global-batch 4 --steps 1 --layout pp2 --schedule-file table >m.jsonl
    dt-memest gpt2-tiny --account dt --seq 32 --microbatch 1 --global-batch 4 --layout pp2 --schedule-file table --check m.jsonl
}

@test "ranks without --layout are data parallel, and a message says so" {
    mpirun -np 2 dt-train --model gpt2-tiny "${common[@]}" --microbatch 1 --steps 1 >m.jsonl 2>err
    grep "2 ranks without --layout: using dp2" err
    grep "layout dp2" err
}

@test "resume: options not given are taken from the checkpoint" {
    rm -rf run
    dt-train --model gpt2-tiny "${common[@]}" --precision fp32 --steps 8 --microbatch 2 --global-batch 4 --lr 1e-3 --optimizer adam \
        --warmup 2 --save whole >whole.jsonl
    dt-train --model gpt2-tiny "${common[@]}" --precision fp32 --steps 8 --microbatch 2 --global-batch 4 --lr 1e-3 --optimizer adam \
        --warmup 2 --save run --save-every 4 >part.jsonl
    rm -rf run/step-00000008 run/latest
    dt-train --save run --resume auto --no-mfu --threads 1 >rest.jsonl
    diff <(tail -n 4 whole.jsonl | jq -c '[.step, .loss, .lr]') <(jq -c '[.step, .loss, .lr]' rest.jsonl)
    # a resumed run keeps its id, another run has another id
    [ "$(cat part.jsonl rest.jsonl | jq -r .run_id | sort -u | wc -l)" -eq 1 ]
    [ "$(cat whole.jsonl rest.jsonl | jq -r .run_id | sort -u | wc -l)" -eq 2 ]
    [ "$(jq -r .run_id run/latest/manifest.json)" = "$(head -n 1 rest.jsonl | jq -r .run_id)" ]
}

@test "resume keeps the global batch on another layout" {
    rm -rf run
    mpirun -np 2 dt-train --model llama-tiny "${common[@]}" --precision fp32 --steps 2 --microbatch 2 --layout dp2 --save run >m.jsonl
    mpirun -np 2 dt-train --model llama-tiny "${common[@]}" --precision fp32 --steps 4 --microbatch 2 --layout tp2 --save run \
        --resume auto >n.jsonl 2>err
    [ "$(jq -s '.[0].tokens' n.jsonl)" -eq $((3 * 4 * 32)) ]
    grep "steps is 4, in the checkpoint it was 2" err
}

@test "resume refuses changed options, naming each, unless told to accept them" {
    rm -rf run
    opts=(--model gpt2-tiny "${common[@]}" --precision fp32 --microbatch 2)
    dt-train "${opts[@]}" --steps 2 --optimizer rmsprop --lr 1e-3 --save run >/dev/null
    attempt 1 "optimizer is momentum, in the checkpoint it was rmsprop" dt-train "${opts[@]}" --steps 4 --optimizer momentum \
        --save run --resume auto
    attempt 1 "lr is 1, in the checkpoint it was 0.001" dt-train "${opts[@]}" --steps 4 --lr 1 --global-batch 64 --save run --resume auto
    grep -q "global-batch is 64, in the checkpoint it was 2" err
    attempt 1 "lr is 1, in" dt-train "${opts[@]}" --steps 4 --lr 1 --beta2 0.5 --accept-change beta2 --save run --resume auto
    attempt 2 "ep4 does not divide dp x cp" dt-train "${opts[@]}" --steps 4 --layout dp1.ep4 --save run --resume auto
    attempt 1 "no such option" dt-train "${opts[@]}" --steps 4 --accept-change nonsense --save run --resume auto
    dt-train "${opts[@]}" --steps 4 --lr 2e-3 --accept-change lr --save run --resume auto >m.jsonl 2>err
    grep "lr is 0.002, in the checkpoint it was 0.001" err
    [ "$(jq -s '.[0].step' m.jsonl)" -eq 3 ]
    # another data set
    head -c 9000 text.txt >other.txt
    dt-dataset build --tokenizer byte --out other.h5 other.txt
    attempt 1 "another data set" dt-train "${opts[@]}" --data other.h5 --steps 6 --save run --resume auto
    dt-train "${opts[@]}" --data other.h5 --steps 6 --accept-change data --save run --resume auto >/dev/null
}

@test "resume refuses another model with the same shapes" {
    rm -rf run
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 10000}' >a.json
    jq '.num_attention_heads = 2 | .num_key_value_heads = 2' a.json >heads.json
    jq '.rope_theta = 20000' a.json >theta.json
    opts=("${common[@]}" --precision fp32 --microbatch 1 --save run)
    dt-train --model a.json "${opts[@]}" --steps 1 >/dev/null
    attempt 1 "is of another model: heads is 4, not 2" dt-train --model heads.json "${opts[@]}" --steps 2 --resume auto
    attempt 1 "is of another model: rope_theta is 10000" dt-train --model theta.json "${opts[@]}" --steps 2 --resume auto
    cp a.json renamed.json
    dt-train --model renamed.json "${opts[@]}" --steps 2 --resume auto >/dev/null
}

@test "an option that the run would not read is refused by name; others, and those about ranks, are not" {
    jq -n '{model_type: "mixtral", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, num_local_experts: 4,
        num_experts_per_tok: 2}' >mixtral.json
    while IFS='|' read -r options text; do
        # shellcheck disable=SC2086 # words
        attempt 2 "dt-train: $text" dt-train --model gpt2-tiny "${common[@]}" --steps 1 $options
        [ ! -s out ]
    done <<-'END'
	--trust 1|--trust requires --optimizer lars or lamb, not adamw
	--optimizer sgd --beta1 0|--beta1 requires --optimizer momentum, nesterov,
	--optimizer momentum --beta2 0.95|--beta2 requires --optimizer rmsprop, adam,
	--optimizer lion --eps 1e-8|--eps requires --optimizer rmsprop, adagrad,
	--schedule constant --min-lr 0|--min-lr requires --schedule linear, cosine, wsd or polynomial, not constant
	--schedule step:1 --min-lr 0|--min-lr requires --schedule linear, cosine, wsd or polynomial, not step
	--decay-steps 1|--decay-steps requires --schedule wsd, not cosine
	--outer-lr 1|--outer-lr requires --sync diloco, not all
	--sync gossip --outer-momentum 0|--outer-momentum requires --sync diloco, not gossip
	--sync-from 1|--sync-from requires --sync local, diloco or gossip, not all
	--balance-loss 0.1|--balance-loss is for mixtures of experts, which 'gpt2-tiny' is not
	--balance-over batch|--balance-over is for mixtures of experts
	--router-z-loss 0.1|--router-z-loss is for mixtures of experts
	--capacity-factor 1.25|--capacity-factor is for mixtures of experts
	--no-expert-overlap|--no-expert-overlap is for mixtures of experts
	--router-bias-rate 0.01|--router-bias-rate is for mixtures whose routers have biases
	--bn-span rank|--bn-span is for classifiers of images
	--bn-momentum 0.2|--bn-momentum is for classifiers of images
	--offload-to disk:.|--offload-to requires --offload
	--offload-fraction 50%|--offload-fraction requires --offload
	--disk-bandwidth 2|--disk-bandwidth requires --offload
	--ops ops.json|--ops requires --recompute
	--eval-tokens 64|--eval-tokens requires --eval-data
	--compress|--compress requires --save
	--spike-window 64|--spike-window requires --on-spike
	--spike-factor 5|--spike-factor requires --on-spike
	--teacher-weight 0.5|--teacher-weight requires --teacher
	--objective grpo --rollouts r.jsonl --group 4|--group requires --task
	--objective grpo --rollouts r.jsonl --answer-tokens 4|--answer-tokens requires --task
	--objective grpo --rollouts r.jsonl --refresh 4|--refresh requires --task
	--loss-bound 0.1|--loss-bound requires --layouts
	--json|--json requires --layouts or --print-program
	--model mixtral.json --router-bias-rate 0.01|--router-bias-rate is for mixtures whose routers have biases
	END
    while read -r options; do
        # shellcheck disable=SC2086 # words
        attempt 0 "" dt-train --model gpt2-tiny "${common[@]}" --steps 1 $options
    done <<-'END'
	--optimizer lamb --beta1 0.8 --beta2 0.9 --eps 1e-7 --trust 1
	--schedule wsd --decay-steps 1 --min-lr 0
	--sync diloco:2 --outer-lr 1 --outer-momentum 0 --sync-from 1
	--model mixtral.json --balance-loss 0.1 --balance-over batch --router-z-loss 0.1 --capacity-factor 2
	--balance-loss 0 --router-z-loss 0 --capacity-factor 0 --router-bias-rate 0.001
	--offload none --offload-to disk:.
	--on-spike ignore --spike-window 64
	--pipeline gpipe --cp-comm ring --bucket-size 1MiB --check-replicas 2 --grad-comm bf16 --transport mpi
	--no-master --precision fp32
	END
    # options from the checkpoint are not refused; options of the command line are checked against the
    # checkpoint's run
    rm -rf unread
    dt-train --model gpt2-tiny "${common[@]}" --optimizer sgd --schedule constant --on-spike skip --steps 1 --save unread >/dev/null
    attempt 0 "" dt-train "${common[@]}" --save unread --resume auto --steps 2 --spike-window 64
    attempt 2 "--beta2 requires --optimizer" dt-train "${common[@]}" --save unread --resume auto --steps 3 --beta2 0.9
    attempt 2 "--min-lr requires --schedule" dt-train "${common[@]}" --save unread --resume auto --steps 3 --min-lr 0
    # the --min-lr of the checkpoint, a tenth of its --lr, has no effect, and may be above the new --lr
    attempt 0 "" dt-train "${common[@]}" --save unread --resume auto --steps 3 --lr 1e-6 --accept-change lr
    attempt 2 "--min-lr 3e-05 is larger than --lr 1e-06" dt-train "${common[@]}" --save unread --resume auto --steps 3 \
        --lr 1e-6 --schedule cosine --accept-change lr --accept-change schedule
}

@test "a second run in the folder of a finished one is refused, and starts over with --overwrite" {
    rm -rf run m.jsonl
    opts=(--model gpt2-tiny "${common[@]}" --microbatch 1 --save run --metrics m.jsonl)
    dt-train "${opts[@]}" --steps 2 --save-every 1
    before=$(md5sum <m.jsonl)
    attempt 1 "holds the checkpoints of another run" dt-train "${opts[@]}" --steps 1
    [ "$(md5sum <m.jsonl)" = "$before" ]
    [ "$(readlink run/latest)" = step-00000002 ]
    dt-train "${opts[@]}" --steps 1 --overwrite
    [ "$(wc -l <m.jsonl)" -eq 1 ]
    [ "$(readlink run/latest)" = step-00000001 ]
    [ ! -e run/step-00000002 ]
}

@test "two jobs do not save into one folder" {
    rm -rf run m.jsonl
    dt-train --model gpt2-tiny "${common[@]}" --microbatch 1 --steps 100000 --save run --metrics m.jsonl 2>first &
    pid=$!
    until [ -s m.jsonl ] || ! kill -0 $pid; do sleep 0.1; done
    status=0
    dt-train --model gpt2-tiny "${common[@]}" --microbatch 1 --steps 2 --save run --metrics m.jsonl 2>err || status=$?
    kill -TERM $pid
    wait $pid || true
    [ "$status" -eq 1 ]
    grep "another job is saving into 'run'" err
    [ "$(head -n 1 m.jsonl | jq .step)" -eq 1 ] # nor write to one metrics file
}

@test "--find-nan names the node and the weight that a NaN comes from, on any layout; it changes nothing" {
    takes_long
    jq -n '{model_type: "llama", vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 3,
        num_attention_heads: 2, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000}' >nan.json
    opts=("${common[@]}" --microbatch 2 --precision fp32)
    dt-train --model nan.json "${opts[@]}" --steps 2 --save good --metrics good.jsonl
    dt-train --model nan.json "${opts[@]}" --steps 2 --find-nan --metrics watched.jsonl 2>err
    cmp <(jq -c '[.loss, .grad_norm]' good.jsonl) <(jq -c '[.loss, .grad_norm]' watched.jsonl)
    ! grep finite err || return 1
    dt-shard-ckpt convert --to safetensors good bad
    python3 "$BATS_TEST_DIRNAME/plant-nan.py" bad/model.safetensors model.layers.1.mlp.up_proj.weight 40
    for layout in dp1 tp2 pp2 dp2.z3; do
        n=2
        [ $layout != dp1 ] || n=1
        mpirun -np $n dt-train --model bad "${opts[@]}" --layout $layout --steps 1 --find-nan --metrics out 2>err && return 1
        grep -q "step 1: forward, layer 1, linear 'up': 'up' is the first value that is not finite; the weight 'layers.1.mlp.up" err ||
            { cat err; return 1; }
    done
    run dt-train --model nan.json "${opts[@]}" --steps 3 --find-nan --metrics out --inject nan:step=2
    [[ $output == *"step 2: loss, final, loss 'head': "*"is the first value that is not finite"* ]] || { echo "$output"; return 1; }
}

@test "verify prints the reason of a failed run, also with --fp8, and a file may be called verify" {
    attempt 1 "layout 'tp3': the run failed: layout 'tp3': tp3 does not divide the 4 heads" dt-train verify --layouts dp1,tp3 \
        --model gpt2-tiny "${common[@]}" --seq 32 --microbatch 2 --steps 1 --fp8
    attempt 2 "with two or more layouts, separated by commas" dt-train verify --layouts dp1 --model gpt2-tiny "${common[@]}"
    cp d.h5 verify
    dt-train verify --layouts dp1,dp2 --model gpt2-tiny "${common[@]}" --data verify --microbatch 1 --global-batch 2 --steps 1 --json |
        jq -es 'length == 1 and .[0].agrees'
}
# SPDX-License-Identifier: Apache-2.0
