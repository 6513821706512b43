#!/usr/bin/env bats
# Outputs for monitoring: TensorBoard event files, Prometheus pages, alerts and dashboards over them.
bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --global-batch 4 --microbatch 1 --threads 1 --precision fp32 --steps 6 \
        --save one --save-every 4 --metrics one.jsonl --tensorboard one.tb --prometheus one.prom --details 3 \
        --eval-data d.h5 --eval-tokens 64
}

setup() {
    in_folder
    run=(--model gpt2-tiny --data d.h5 --seq 32 --global-batch 4 --microbatch 1 --threads 1 --precision fp32 --steps 6 --no-mfu)
}

events() {
    cat "$1"/events.out.tfevents.* >/dev/null
    for f in "$1"/events.out.tfevents.*; do
        python3 "$BATS_TEST_DIRNAME/tfevents.py" "$f"
    done
}

# EVENTS METRICS: a histogram of step 6 counts all elements, and its sum of squares is the squared norm
adds_up() {
    jq -n --slurpfile e "$1" --slurpfile m "$2" '
        ($m[] | select(.step == 6 and .details) | .details.units) as $units |
        [$e[] | select(.histogram and .step == 6)] as $h |
        ($h | length) == 2 * ($units | length) and
        all($h[]; .histogram.num == .histogram.counts and .histogram.num > 0) and
        all($units[]; . as $u |
            any($h[]; .tag == "weights/\($u.unit)" and ((.histogram.squares | sqrt) / $u.weight_norm - 1 | fabs) < 1e-6) and
            any($h[]; .tag == "gradients/\($u.unit)" and ((.histogram.squares | sqrt) / $u.grad_norm - 1 | fabs) < 1e-6))' |
        grep -x true
}

@test "--tensorboard: all metrics, histograms that add up, the run's options as text" {
    events one.tb >e
    jq -es '.[0].version == "brain.Event:2"' e
    for key in train/loss:loss train/lr:lr seconds/compute_s:compute_s memory/peak_bytes:peak_bytes eval/eval_loss:eval_loss; do
        jq -n --arg tag "${key%:*}" --arg key "${key#*:}" --slurpfile e e --slurpfile m one.jsonl '
            ([$m[] | select(.[$key]) | [.step, .[$key]]]) as $want |
            ([$e[] | select(.tag == $tag) | [.step, .scalar]]) as $got |
            ($want | length > 0) and ($want | map(.[0])) == ($got | map(.[0])) and
            ([range($want | length) | ($want[.][1] - $got[.][1]) / $want[.][1] | fabs] | max < 1e-6)' | grep -x true
    done
    adds_up e one.jsonl
    jq -es 'map(select(.tag == "run"))[0].text | contains("\"seq\": \"32\"")' e
}

@test "--tensorboard: histograms of gradients are those before an update that overwrites them" {
    for optimizer in lamb muon adafactor; do
        rm -rf $optimizer.tb
        dt-train "${run[@]}" --optimizer $optimizer --tensorboard $optimizer.tb --details 6 --metrics $optimizer.jsonl
        events $optimizer.tb >e.$optimizer
        adds_up e.$optimizer $optimizer.jsonl
    done
}

@test "--tensorboard: shards of several ranks form one histogram; resuming voids later steps" {
    mpirun -np 4 dt-train "${run[@]}" --layout dp2.pp2.z1 --tensorboard four.tb --details 6 --metrics four.jsonl
    for t in one four; do
        events $t.tb | jq -cS 'select(.histogram and .step == 6 and (.tag | startswith("weights"))) |
            [.tag, .histogram.num, (.histogram.min * 1e4 | round), (.histogram.squares * 1e3 | round)]' | sort >$t.h
    done
    [ "$(wc -l <one.h)" -ge 4 ]
    diff one.h four.h
    dt-train "${run[@]}" --resume one/step-00000004 --tensorboard again.tb --metrics again.jsonl
    events again.tb | jq -es 'map(select(.restart)) | map(.step) == [5]'
    [ "$(find again.tb -type f | wc -l)" -eq 1 ]
}

@test "usage: processors and link of each rank, on the Prometheus page and in events too" {
    # one rank sends nothing; each of two sends at least its share of the gradients
    jq -es 'map(.details // empty | .usage) | length == 2 and all(.[]; .processors_busy[0] > 0 and .link_bytes_per_s == [0])' one.jsonl
    mpirun -np 2 dt-train "${run[@]}" --layout dp2 --details 6 --metrics two.jsonl --prometheus two.prom --tensorboard two.tb
    jq -es 'map(.details // empty | .usage)[0] | (.processors_busy | length) == 2 and all(.processors_busy[]; . > 0) and
        (.link_bytes_per_s | length) == 2 and all(.link_bytes_per_s[]; . > 0) and
        ([.network_sent_bytes_per_s[1]?] - [null]) == []' two.jsonl
    python3 "$BATS_TEST_DIRNAME/prom-check.py" two.prom dt_train_ >page
    want=$(jq -s 'map(.details // empty | .usage)[0].link_bytes_per_s[1]' two.jsonl)
    awk -v want="$want" '$1 == "dt_train_rank_link_bytes_per_second{rank=\"1\"}" { d = $2 / want - 1; ok = d < 1e-6 && d > -1e-6 }
        END { exit !ok }' page
    events two.tb | jq -es 'any(.[]; .tag == "usage/processors_busy/1" and .step == 6)'
}

@test "--extremes: the largest activation is that of the weights, on any layout; losses do not change" {
    head -c 3000 /dev/zero | tr '\0' a >a.txt
    dt-dataset build --tokenizer byte --out a.h5 a.txt
    one=("${run[@]}" --data a.h5 --steps 2 --details 2)
    dt-train "${one[@]}" --lr 0 --metrics plain.jsonl --save plain
    dt-train "${one[@]}" --lr 0 --extremes --metrics seen.jsonl
    cmp <(jq -c '[.loss, .grad_norm]' plain.jsonl) <(jq -c '[.loss, .grad_norm]' seen.jsonl)
    jq -es 'all(.[].details.units[]?; has("activation_max") | not)' plain.jsonl
    # with a single token in the text, embedding outputs are wte[a] + wpe[position]
    dt-shard-ckpt convert --to safetensors plain st
    want=$(python3 "$BATS_TEST_DIRNAME/largest-embedding.py" st/model.safetensors 97 32)
    jq -es --argjson want "$want" '.[-1].details.units | map(.activation_max) as $m | ($m[0] / $want - 1 | fabs) < 1e-6 and
        all($m[]; . > 0) and (map(.activation_grad_max)[1:] | all(.[]; . > 0))' seen.jsonl
    mpirun -np 2 dt-train "${one[@]}" --lr 0 --extremes --layout pp2 --metrics pp.jsonl
    jq -n --slurpfile a seen.jsonl --slurpfile b pp.jsonl '[$a[-1], $b[-1] | .details.units | map(.activation_max, .activation_grad_max // 0)] |
        transpose | all(.[]; (.[0] - .[1] | fabs) <= 1e-4 * .[0])' | grep -x true
    # when the backward of attention ends, columns of keys and values are not written yet with --cp-comm gather
    jq -n '{model_type: "gemma3_text", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 5, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 1, max_position_embeddings: 64, sliding_window: 7, sliding_window_pattern: 3,
        query_pre_attn_scalar: 24, rope_theta: 10000, rope_local_base_freq: 1000, hidden_activation: "gelu_pytorch_tanh"}' >gemma3.json
    # the sum that a stage sends is no node of a single stage; here it is the largest of its unit
    for layout in pp1 pp2; do
        mpirun -np "${layout#pp}" dt-train --model gemma3.json --data d.h5 --seq 64 --global-batch 2 --microbatch 2 --threads 1 --precision fp32 \
            --steps 1 --no-mfu --layout $layout --details 1 --extremes --metrics $layout.jsonl
    done
    jq -n --slurpfile a pp1.jsonl --slurpfile b pp2.jsonl '[$a[-1], $b[-1] | .details.units | map(.activation_max)] |
        transpose | length == 7 and all(.[]; (.[0] - .[1] | fabs) <= 1e-4 * .[0])' | grep -x true
    for how in gather ring; do
        mpirun -np 2 dt-train --model gemma3.json --data d.h5 --seq 64 --global-batch 8 --microbatch 2 --threads 1 --precision fp32 --steps 2 \
            --optimizer momentum --lr 0.1 --no-mfu --layout cp2.z2 --cp-comm $how --offload activations,optimizer --offload-to disk:. \
            --details 2 --extremes --metrics $how.jsonl
    done
    jq -n --slurpfile a gather.jsonl --slurpfile b ring.jsonl '[$a[-1], $b[-1] | .details.units | map(.activation_max, .activation_grad_max // 0)] |
        transpose | all(.[]; (.[0] - .[1] | fabs) <= 1e-3 * .[1])' | grep -x true
    run -2 dt-train "${run[@]}" --extremes
    [[ ${lines[0]} == *"--extremes needs --details"* ]]
}

@test "--prometheus: the page follows the format, its values are those of the metrics" {
    python3 "$BATS_TEST_DIRNAME/prom-check.py" one.prom dt_train_ >page
    loss=$(jq -s 'map(select(.loss))[-1].loss' one.jsonl)
    awk -v want="$loss" '$1 == "dt_train_loss_nats{}" { d = $2 - want; ok = d < 1e-9 && d > -1e-9 } END { exit !ok }' page
    grep -x 'dt_train_steps_total{} 6' page
    grep -F 'dt_train_run_info{run_id="'"$(jq -rs '.[0].run_id' one.jsonl)"'",model="gpt2-tiny",layout="dp1"} 1' page
    spent=$(jq -s 'map(.compute_s // 0) | add' one.jsonl)
    awk -v want="$spent" '$1 ~ /section="compute"/ && /seconds_total/ { d = $2 / want - 1; ok = d < 1e-6 && d > -1e-6 }
        END { exit !ok }' page
    grep -c 'dt_train_unit_weight_norm' page | grep -vx 0
    # a path that cannot be written is an error that names it
    run -1 dt-train "${run[@]}" --metrics m --prometheus /nowhere/x
    [[ ${#lines[@]} -eq 1 && $output == *"/nowhere/x"* ]] # at once, before the model is read
    run -1 dt-train "${run[@]}" --metrics /nowhere/m
    [[ ${#lines[@]} -eq 1 && $output == *"/nowhere/m"* ]]
    run -1 dt-train "${run[@]}" --metrics m --trace /nowhere/t
    [[ ${#lines[@]} -eq 1 && $output == *"/nowhere/t"* ]]
    run -1 dt-train "${run[@]}" --metrics m --tensorboard /dev/null/x
    [[ $output == "dt-train: cannot write into '/dev/null/x': Not a directory" ]]
    run -1 dt-train "${run[@]}" --error-file /nowhere/e
    [[ ${#lines[@]} -eq 1 && $output == *"/nowhere/e"* ]]
}

@test "dt-run --prometheus: a job that is killed once: starts, events, time by category" {
    dt-run --prometheus run.prom -- dt-train "${run[@]}" --save r --save-every 2 --metrics r.jsonl --inject kill:step=5,start=1
    python3 "$BATS_TEST_DIRNAME/prom-check.py" run.prom dt_run_ >page
    for line in 'dt_run_up{} 0' 'dt_run_starts_total{} 2' 'dt_run_step{} 6' 'dt_run_saved_step{} 6' \
        'dt_run_events_total{event="start"} 2' 'dt_run_events_total{event="end"} 2'; do
        grep -xF "$line" page
    done
    awk '/section=/ { sum += $2 } END { exit !(sum > 0) }' page
}

@test "contrib: alerts and dashboards use metrics that exist" {
    python3 -c 'import yaml' 2>/dev/null || skip "needs python3-yaml"
    dt-run --prometheus any.prom -- dt-train "${run[@]}" --save any --metrics any.jsonl
    python3 "$BATS_TEST_DIRNAME/contrib-check.py" "$DT_SRC/contrib/prometheus/dt.rules.yml" \
        "$DT_SRC/contrib/grafana/dt-training.json" "$DT_SRC" one.prom any.prom
    # and the check detects a metric that does not exist
    sed 's/dt_run_goodput_ratio/dt_run_goodness/' "$DT_SRC/contrib/prometheus/dt.rules.yml" >wrong.yml
    run -1 python3 "$BATS_TEST_DIRNAME/contrib-check.py" wrong.yml "$DT_SRC/contrib/grafana/dt-training.json" "$DT_SRC" \
        one.prom any.prom
    [[ $output == *dt_run_goodness* ]]
}
# SPDX-License-Identifier: Apache-2.0
