#!/usr/bin/env bats
# dt-train --device: messages without a GPU, and the whole trainer on an emulated one.
load slow

setup_file() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    # what llama-tiny has, in half as many values: a step of the emulation takes 40% of the time
    jq -n '{model_type: "llama", vocab_size: 257, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 2, head_dim: 16, max_position_embeddings: 128, rms_norm_eps: 1e-5, hidden_act: "silu",
        tie_word_embeddings: false}' >small.json
}

setup() {
    PATH=$DT_BIN:$DT_HELP:$PATH
    export DT_EMULATED_QUEUES=${DT_EMULATED_QUEUES:-mixed} # kernels/cuda/emulate/queue.h
    cd "$BATS_FILE_TMPDIR" || return 1
    common=(--data d.h5 --seq 16 --microbatch 1 --lr 1e-3 --warmup 5 --no-mfu --threads 1)
}

need_emulation() {
    command -v dt-train-emulated >/dev/null || skip "no C++ compiler, no emulated card"
}

emulated() {
    dt-train-emulated --device cuda "$@"
}

# agrees FILE FILE BOUND: the largest relative difference of two loss curves of equal length is at most BOUND
agrees() {
    jq -en --slurpfile a "$1" --slurpfile b "$2" --argjson bound "$3" \
        'if ($a|length) != ($b|length) or ($a|length) == 0 then error("curves of different length") else
         [range($a|length) | (($a[.].loss - $b[.].loss) / $a[.].loss) | fabs] | max < $bound end'
}

@test "an invalid device name is a usage error" {
    run dt-train --device gpu --model gpt2-tiny "${common[@]}" --steps 1
    [ "$status" -eq 2 ]
    [[ $output == *"no such device: 'gpu' (auto, cpu, cuda or cuda:N)"* ]]
}

@test "a missing GPU gives one clear line; auto takes the CPU" {
    run dt-train --device cuda:1000 --model gpt2-tiny "${common[@]}" --steps 1
    [ "$status" -eq 1 ]
    [[ $output == "dt-train: cannot open device 'cuda:1000': "* ]]
    [[ $output == *"this build has no CUDA"* || $output == *"no NVIDIA driver or no such GPU"* ]]
    [ "$(wc -l <<<"$output")" -eq 1 ]
    [ ! -e /dev/nvidiactl ] || skip "there is a card here"
    dt-train --device auto --model gpt2-tiny "${common[@]}" --steps 1 | jq -e '.loss > 0'
}

@test "fp32 loss curves of CPU and emulated GPU agree to 1e-4 over 50 steps (10 without DT_SLOW=1)" {
    need_emulation
    local rate # a learning rate that has an effect in so few steps
    read -ra rate <<<"$(few "--steps 10 --lr 3e-3 --warmup 1" "--steps 50 --lr 1e-3 --warmup 5")"
    for model in gpt2-tiny llama-tiny; do
        dt-train --model $model "${common[@]}" --precision fp32 "${rate[@]}" >cpu.jsonl
        emulated --model $model "${common[@]}" --precision fp32 "${rate[@]}" >cuda.jsonl
        [ "$(wc -l <cuda.jsonl)" -eq "${rate[1]}" ]
        agrees cpu.jsonl cuda.jsonl 1e-4
        jq -es 'map(.loss) | .[-1] < .[0] - 0.5' cuda.jsonl # and the loss falls
    done
}

@test "an encoder on an emulated GPU, whose padded logits have a bias: losses and gradients of the CPU" {
    need_emulation
    local run=(--model bert-tiny "${common[@]}" --steps 2 --precision fp32)
    dt-train "${run[@]}" >cpu.jsonl
    emulated "${run[@]}" >cuda.jsonl
    agrees cpu.jsonl cuda.jsonl 1e-5
    jq -en --slurpfile a cpu.jsonl --slurpfile b cuda.jsonl '[range(2) as $i | ($a[$i].grad_norm - $b[$i].grad_norm) / $a[$i].grad_norm | fabs] | max < 1e-4'
}

# With an odd vocabulary rows of logits are padded to a stride, which Gemma 2's cap must handle; a chunk of 5
# rows leaves a rest of one.
@test "an odd vocabulary on an emulated GPU, with capped logits: losses and gradients of the CPU" {
    need_emulation
    jq -n '{model_type: "gemma2", vocab_size: 261, hidden_size: 48, intermediate_size: 90, num_hidden_layers: 2, head_dim: 20,
        num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64, rms_norm_eps: 1e-6, rope_theta: 10000, sliding_window: 9,
        query_pre_attn_scalar: 24, attn_logit_softcapping: 0.5, final_logit_softcapping: 3}' >odd.json
    local run=(--model odd.json "${common[@]}" --steps 3 --loss-chunk 5)
    dt-train "${run[@]}" --precision fp32 >cpu.jsonl
    emulated "${run[@]}" --precision fp32 >cuda.jsonl
    agrees cpu.jsonl cuda.jsonl 1e-5
    jq -en --slurpfile a cpu.jsonl --slurpfile b cuda.jsonl '[range(3) as $i | ($a[$i].grad_norm - $b[$i].grad_norm) / $a[$i].grad_norm | fabs] | max < 1e-4'
    emulated "${run[@]}" --precision bf16 >cuda.jsonl
    agrees cpu.jsonl cuda.jsonl 2e-2
}

# counts_agree FILE FILE: metrics of experts agree: choices per expert, both router losses, tokens dropped by
# a capacity
counts_agree() {
    jq -en --slurpfile a "$1" --slurpfile b "$2" \
        'def near(x; y): (x - y | fabs) <= 1e-5 * (x | fabs); [range($a|length) | $a[.] as $x | $b[.] as $y |
        $x.expert_counts == $y.expert_counts and $x.expert_dropped == $y.expert_dropped and near($x.balance_loss; $y.balance_loss)
        and near($x.z_loss; $y.z_loss)] | length > 0 and all'
}

@test "mixtures of experts and latent attention on an emulated GPU: losses of the CPU to 1e-5" {
    need_emulation
    # Within a run of spaces at the beginning of a sequence all hidden states are the same but for rounding. Which of
    # them a full expert drops is then chance, so this text has no such runs.
    tr -s ' \n' <text.txt >single.txt
    dt-dataset build --tokenizer byte --out single.h5 single.txt
    common=(--data single.h5 "${common[@]:2}")
    local steps model of='vocab_size: 257, hidden_size: 32, num_attention_heads: 4, num_hidden_layers: 2, max_position_embeddings: 64,
        rms_norm_eps: 1e-5, rope_theta: 10000, tie_word_embeddings: false'
    local latent="$of"', intermediate_size: 48, kv_lora_rank: 16, qk_nope_head_dim: 10, qk_rope_head_dim: 6, v_head_dim: 12,
        moe_intermediate_size: 24, n_routed_experts: 8, n_shared_experts: 1, num_experts_per_tok: 3, first_k_dense_replace: 1'
    steps=$(few 3 8)
    jq -n "{model_type: \"mixtral\", $of, num_key_value_heads: 2, intermediate_size: 40, num_local_experts: 5,
        num_experts_per_tok: 2, sliding_window: null}" >mixtral.json
    jq -n "{model_type: \"qwen3_moe\", $of, num_key_value_heads: 2, intermediate_size: 64, moe_intermediate_size: 24,
        num_experts: 12, num_experts_per_tok: 4, norm_topk_prob: false, head_dim: 8}" >qwen3_moe.json
    jq -n "{model_type: \"deepseek_v2\", $latent, q_lora_rank: null, n_group: 4, topk_group: 2, topk_method: \"group_limited_greedy\",
        norm_topk_prob: false, routed_scaling_factor: 1.5}" >deepseek_v2.json
    jq -n "{model_type: \"deepseek_v3\", $latent, q_lora_rank: 24, n_group: 4, topk_group: 2, norm_topk_prob: true,
        routed_scaling_factor: 2.5}" >deepseek_v3.json
    trains() { # MODEL OPTION...
        local model=$1.json
        shift
        echo "$model"
        dt-train --model "$model" "${common[@]}" --precision fp32 --global-batch 2 --steps "$steps" "$@" >cpu.jsonl
        emulated --model "$model" "${common[@]}" --precision fp32 --global-batch 2 --steps "$steps" "$@" >cuda.jsonl
        agrees cpu.jsonl cuda.jsonl 1e-5
        counts_agree cpu.jsonl cuda.jsonl
    }
    trains mixtral --balance-loss 0.1 --router-z-loss 0.01
    trains mixtral --balance-loss 0.1 --balance-over batch --capacity-factor 1
    jq -es 'map(.expert_dropped) | max > 0' cuda.jsonl
    trains qwen3_moe --balance-loss 0.1 --balance-over microbatch --recompute full
    trains deepseek_v2 --balance-loss 0.1
    trains deepseek_v3 --router-bias-rate 0.01
    emulated --model mixtral.json "${common[@]}" --precision bf16 --steps "$steps" --global-batch 2 >cuda.jsonl
    dt-train --model mixtral.json "${common[@]}" --precision fp32 --steps "$steps" --global-batch 2 >cpu.jsonl
    agrees cpu.jsonl cuda.jsonl 2e-2
}

@test "Mamba-2 on an emulated GPU: losses and gradients of the CPU, of several chunks and documents" {
    need_emulation
    local i run=(--data documents.h5 --seq 150 --microbatch 1 --global-batch 2 --lr 1e-2 --warmup 1 --no-mfu --threads 1 --documents apart)
    for i in {1..200}; do
        jq -nc --argjson i "$i" '{text: ("Document \($i) " + "has words. " * ($i % 7 + 1))}'
    done >documents.jsonl
    dt-dataset build --tokenizer byte --pack documents --out documents.h5 documents.jsonl
    # two groups of heads; no size is a multiple of a tile
    jq -n '{model_type: "mamba2", vocab_size: 257, hidden_size: 24, num_hidden_layers: 2, num_heads: 4, head_dim: 12, expand: 2,
        n_groups: 2, state_size: 10, conv_kernel: 3}' >groups.json
    run+=(--steps "$(few 2 6)")
    for model in groups.json mamba2-tiny hybrid-tiny; do
        dt-train --model $model "${run[@]}" --precision fp32 >cpu.jsonl
        emulated --model $model "${run[@]}" --precision fp32 >cuda.jsonl
        agrees cpu.jsonl cuda.jsonl 1e-5
        jq -en --slurpfile a cpu.jsonl --slurpfile b cuda.jsonl \
            '[range($a|length) as $i | ($a[$i].grad_norm - $b[$i].grad_norm) / $a[$i].grad_norm | fabs] | max < 1e-4'
    done
    emulated --model mamba2-tiny "${run[@]}" --precision bf16 >cuda.jsonl
    agrees cpu.jsonl cuda.jsonl 2e-2
    if slow; then
        emulated --model mamba2-tiny "${run[@]}" --precision fp32 --recompute full >cuda.jsonl
        agrees cpu.jsonl cuda.jsonl 1e-5
        mpi_here
        mpirun -np 2 dt-train-emulated --device cuda --model mamba2-tiny "${run[@]}" --precision fp32 --layout tp2.s1 --comm-timeout 300 >cuda.jsonl
        agrees cpu.jsonl cuda.jsonl 1e-5
    fi
}

@test "experts on GPUs: data-, tensor- and expert-parallel ranks agree with the CPU to 1e-5" {
    need_emulation
    mpi_here
    local more=(--model ep.json --precision fp32 --steps 2 --global-batch 2 --balance-loss 0.1 --comm-timeout 300)
    jq -n '{model_type: "mixtral", vocab_size: 257, hidden_size: 32, intermediate_size: 40, num_hidden_layers: 1,
        num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 64, num_local_experts: 4,
        num_experts_per_tok: 2, rms_norm_eps: 1e-5, rope_theta: 10000}' >ep.json
    dt-train "${common[@]}" "${more[@]}" >one.jsonl
    for layout in dp2 tp2.s1 dp2.ep2; do
        mpirun -np 2 dt-train-emulated --device cuda "${common[@]}" "${more[@]}" --layout $layout >two.jsonl
        agrees one.jsonl two.jsonl 1e-5
        counts_agree one.jsonl two.jsonl
    done
    # the same over NCCL with a GPU each; the counts of forward are used again in backward, or recomputed
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=4
    more+=(--global-batch 4)
    dt-train "${common[@]}" "${more[@]}" >one.jsonl
    mpirun -np 2 dt-train-emulated --device cuda "${common[@]}" "${more[@]}" --layout dp2.ep2 --recompute full >two.jsonl
    agrees one.jsonl two.jsonl 1e-5
    counts_agree one.jsonl two.jsonl
    mpirun -np 4 dt-train-emulated --device cuda "${common[@]}" "${more[@]}" --layout dp4.ep2.z1 >two.jsonl
    agrees one.jsonl two.jsonl 1e-5
    counts_agree one.jsonl two.jsonl
}

@test "RL losses on an emulated GPU: of pairs, of scored answers, with a reference, with values: the CPU's" {
    need_emulation
    local run more pairs=(--model pairs.json --data pairs.h5 --seq 96 --microbatch 1 --global-batch 1) answers=(--model drawn --rollouts r.jsonl --seq 32
        --prompts 4)
    jq -n '{model_type: "llama", vocab_size: 617, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 1, num_attention_heads: 2,
        max_position_embeddings: 96, rms_norm_eps: 1e-5}' >pairs.json
    printf '%s\n' '{"prompt": "What is 2+2?", "chosen": "4", "rejected": "five, I think"}' \
        '{"prompt": "A colour?", "chosen": "red", "rejected": "Monday"}' |
        dt-dataset chat -t "$DT_SRC/tests/data/tokenizer/chat.json" --chat-template chatml --preferences --seq 96 -o pairs.h5 - >/dev/null
    dt-train --model llama-tiny "${common[@]}" --steps 1 --precision fp32 --save drawn >/dev/null
    dt-rollout sample drawn --task count:3 --count 4 --group 4 --max-tokens 6 --threads 1 --precision fp32 |
        jq -c '.answers |= (to_entries | map(.value + {reward: (.key % 3)}))' >r.jsonl
    one_of 4 "answers --objective ppo --seq 13 --microbatch 3" "answers --objective grpo" "answers --objective gspo --beta 0.5" "pairs --objective orpo" \
        "pairs --objective dpo --lora 4" "pairs --objective simpo" "answers --objective vtrace" "answers --objective dapo" "pairs --objective dpo --reference REF"
    for run in "${some[@]}"; do
        echo "$run"
        read -ra run <<<"$run"
        more=("${pairs[@]}")
        [ "${run[0]}" = pairs ] || more=("${answers[@]}")
        run=(--precision fp32 --no-mfu --threads 1 --lr 1e-2 --steps 2 "${more[@]}" "${run[@]:1}")
        dt-train "${run[@]/REF/cpu.h5}" >cpu.jsonl
        emulated "${run[@]/REF/cuda.h5}" >cuda.jsonl
        jq -en --slurpfile a cpu.jsonl --slurpfile b cuda.jsonl '($a | length) == 2 and ([range(2) as $i | ("loss", "grad_norm") as $key |
            $a[$i][$key] - $b[$i][$key] | fabs] | max) < 1e-4 and $a[1].grad_norm > 0.01'
    done
}

@test "answers sampled on an emulated GPU are the CPU's: on layouts, by actors, ahead, with experts" {
    need_emulation
    mpi_here
    local run n opts steps of='vocab_size: 257, hidden_size: 32, num_attention_heads: 4, num_hidden_layers: 2, max_position_embeddings: 64,
        rms_norm_eps: 1e-5, rope_theta: 10000, tie_word_embeddings: false, num_key_value_heads: 4, intermediate_size: 48'
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2
    steps=$(few 2 3)
    jq -n "{model_type: \"deepseek_v3\", $of, kv_lora_rank: 16, q_lora_rank: 12, qk_nope_head_dim: 10, qk_rope_head_dim: 6, v_head_dim: 12,
        moe_intermediate_size: 24, n_routed_experts: 8, n_shared_experts: 1, num_experts_per_tok: 3, first_k_dense_replace: 1}" >latent.json
    dt-rollout prompts count:3 --count 400 --seed 9 | jq -c '{text: (.prompt + .completion)}' |
        dt-dataset build --tokenizer byte --pack documents --out count.h5 -
    one_of 4 "1 latent.json --overlap" "2 small.json --layout dp2.z3" "1 small.json" "1 latent.json --actors 1" \
        "2 small.json --layout tp2.s1 --refresh 2" "2 small.json --layout dp2 --overlap" "1 small.json --actors 1 --lora 4"
    for run in small.json latent.json; do
        dt-train --model $run --data count.h5 --seq 64 --microbatch 8 --steps 10 --lr 3e-3 --threads 1 --no-mfu --precision fp32 \
            --save count-$run >/dev/null
    done
    for run in "${some[@]}"; do
        echo "$run"
        read -r n run opts <<<"$run"
        # shellcheck disable=SC2206
        opts=(--model count-$run --precision fp32 --no-mfu --threads 1 --lr 3e-4 --seq 32 --prompts 2 --task count:3 --group 4
            --answer-tokens 4 --objective grpo --steps "$steps" $opts)
        mpirun -np "$n" dt-train "${opts[@]}" >cpu.jsonl
        mpirun -np "$n" dt-train-emulated --device cuda "${opts[@]}" >cuda.jsonl
        jq -en --slurpfile a cpu.jsonl --slurpfile b cuda.jsonl '($a | length) == '"$steps"' and ([range($a | length) as $i | ("loss", "grad_norm") as $key |
            $a[$i][$key] - $b[$i][$key] | fabs] | max) < 1e-4 and ([$a[].answer, $a[].reward_mean] == [$b[].answer, $b[].reward_mean])
            and $b[0].kl_k3_sampler < 1e-6'
    done
}

@test "bf16 on the emulated GPU follows fp32, with accumulation, recomputation and evaluation" {
    need_emulation
    local more=(--steps 4 --global-batch 2 --eval-data d.h5 --eval-tokens 32 --eval-every 2)
    dt-train --model llama-tiny "${common[@]}" "${more[@]}" --precision fp32 >cpu.jsonl
    emulated --model llama-tiny "${common[@]}" "${more[@]}" --precision bf16 --recompute full >cuda.jsonl
    jq -s 'map(select(.loss))' cpu.jsonl | jq -c '.[]' >a.jsonl
    jq -s 'map(select(.loss))' cuda.jsonl | jq -c '.[]' >b.jsonl
    agrees a.jsonl b.jsonl 2e-2
    [ "$(jq -s 'map(select(.eval_loss)) | length' cuda.jsonl)" -eq "$(jq -s 'map(select(.eval_loss)) | length' cpu.jsonl)" ]
}

@test "a checkpoint of the emulated GPU resumes there bit by bit, and on the CPU" {
    need_emulation
    emulated --model gpt2-tiny "${common[@]}" --precision fp32 --steps 4 --schedule constant --save whole >whole.jsonl
    emulated --model gpt2-tiny "${common[@]}" --precision fp32 --steps 2 --schedule constant --save half --save-async >/dev/null
    cp -r half other
    emulated --model gpt2-tiny "${common[@]}" --precision fp32 --steps 4 --schedule constant --save half --resume auto >rest.jsonl
    dt-shard-ckpt verify half/latest
    dt-shard-ckpt diff whole/latest half/latest
    dt-train --model gpt2-tiny "${common[@]}" --precision fp32 --steps 4 --schedule constant --save other --resume auto >cpu.jsonl
    tail -n 2 whole.jsonl >tail.jsonl
    agrees tail.jsonl cpu.jsonl 1e-5
    agrees tail.jsonl rest.jsonl 1e-12
}

# launch OPTION...: writes the names of the kernels that runs of one and two steps launch
launch() {
    local steps
    for steps in 1 2; do
        rm -f launches-$steps
        DT_EMULATED_LAUNCHES=launches-$steps emulated --model deep.json "${common[@]}" --seq 4 --steps $steps "$@" >/dev/null
    done
}

# launches KERNEL: how often the second step launched a kernel
launches() {
    echo $(($(grep -cx "$1" launches-2) - $(grep -cx "$1" launches-1)))
}

@test "a step on the emulated GPU zeroes gradients by one launch, and updates 196 parameters by a few" {
    need_emulation
    jq -n '{model_type: "gpt2", vocab_size: 263, n_embd: 8, n_layer: 12, n_head: 1, n_positions: 16}' >deep.json
    launch
    [ "$(launches fill_kernel)" -eq 1 ]
    [ "$(launches 'optim_kernel<DT_OPTIM_ADAMW>')" -eq 5 ]
    launch --optimizer lamb # computes directions, then moves along them
    [ "$(launches 'optim_kernel<DT_OPTIM_N>')" -eq 10 ]
    launch --optimizer adamw8bit
    [ "$(launches optim_blocks_kernel)" -eq 9 ]
}

mpi_here() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
}

@test "ranks that share an emulated GPU use host memory, say so once, and agree with the CPU" {
    takes_long
    need_emulation
    mpi_here
    local more=(--precision fp32 --steps 2 --global-batch 2 --comm-timeout 300)
    dt-train --model llama-tiny "${common[@]}" "${more[@]}" >one.jsonl
    for layout in dp2 tp2.s1; do
        mpirun -np 2 dt-train-emulated --device cuda --model llama-tiny "${common[@]}" "${more[@]}" --layout $layout >two.jsonl 2>log
        agrees one.jsonl two.jsonl 1e-5
        [ "$(grep -c 'copied through host memory, which is slow: several ranks share a GPU' log)" -eq 1 ]
    done
}

@test "document masks and sequences cut over cp on emulated GPUs: by rows in fp32, by tiles in 16 bits" {
    need_emulation
    mpi_here
    local layout how precision bound
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2
    dt-rollout prompts count:3 --count 300 --seed 9 | jq -c '{text: (.prompt + .completion)}' >apart.jsonl
    dt-dataset build --tokenizer byte --pack documents --out apart.h5 apart.jsonl
    local more=(--model small.json --data apart.h5 --seq 128 --microbatch 1 --lr 1e-3 --no-mfu --threads 1 --comm-timeout 300
        --steps 2 --global-batch 1)
    dt-train "${more[@]}" --precision fp32 >one.jsonl
    dt-train "${more[@]}" --precision fp32 --documents joined >joined.jsonl
    ! agrees one.jsonl joined.jsonl 1e-3 || false # document masking has an effect
    one_of 3 "cp2 gather bf16 2e-3" "cp1 auto bf16 2e-3" "cp2 ring bf16 2e-3" "cp2 ulysses bf16 2e-3" "cp1 auto fp16 2e-3" \
        "cp2 ring fp32 1e-5" "cp2 gather fp16 2e-3" "cp1 auto fp32 1e-5"
    for run in "${some[@]}"; do
        echo "$run"
        read -r layout how precision bound <<<"$run"
        mpirun -np "${layout#cp}" dt-train-emulated --device cuda "${more[@]}" --precision "$precision" --layout "$layout" \
            --cp-comm "$how" >two.jsonl
        agrees one.jsonl two.jsonl "$bound"
        jq -en --slurpfile a one.jsonl --slurpfile b two.jsonl "[range(2) | \$b[.].grad_norm / \$a[.].grad_norm - 1 | fabs] | max < 10 * $bound"
    done
}

@test "layouts over NCCL between emulated GPUs agree with one CPU rank" {
    need_emulation
    mpi_here
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2
    local more=(--precision fp32 --steps "$(few 3 5)" --global-batch 2 --comm-timeout 300)
    dt-train --model small.json "${common[@]}" "${more[@]}" >one.jsonl
    one_of 2 dp2.z3 dp2 "pp2 --pipeline zb-h1" pp2 tp2.s1 tp2 dp2.z2 dp2.z1
    for layout in "${some[@]}"; do
        echo "$layout"
        # shellcheck disable=SC2086 # words
        mpirun -np 2 dt-train-emulated --device cuda --model small.json "${common[@]}" "${more[@]}" --layout $layout >two.jsonl 2>log
        agrees one.jsonl two.jsonl 1e-5
        ! grep -q 'host memory' log || false
    done
    # Two chunks per stage: the same two ranks exchange messages of both chunks, in an order of their own.
    echo '{"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu"}' >four.json
    more=(--model four.json --precision fp32 --steps 2 --global-batch 4 --comm-timeout 300)
    dt-train "${common[@]}" "${more[@]}" >one.jsonl
    mpirun -np 2 dt-train-emulated --device cuda "${common[@]}" "${more[@]}" --layout pp2 --pipeline interleaved:2 >two.jsonl
    agrees one.jsonl two.jsonl 1e-5
}

@test "perplexity, tasks and sampled answers on an emulated GPU are the CPU's; so with weights on the host" {
    need_emulation
    jq -n '{model_type: "llama", vocab_size: 257, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 6, num_attention_heads: 2,
        max_position_embeddings: 96, rms_norm_eps: 1e-5, hidden_act: "silu", tie_word_embeddings: false}' >six.json
    dt-train --data d.h5 --model six.json --seq 32 --microbatch 4 --steps 10 --lr 1e-2 --no-mfu --threads 1 --save six >/dev/null
    head -c 100 text.txt >some.txt
    printf '%s\n' '{"task": "choices", "template": "{begin}"}' '{"begin": "Apache", "choices": [" License", "zzz"], "answer": 0}' \
        '{"begin": "You may ", "choices": ["not", "reproduce"], "answer": 1}' >q.jsonl
    local of=(--tokenizer byte --threads 1 --seq 48 --precision fp32)
    # SUFFIX NAME OPTION...: runs dt-eval and dt-rollout with that suffix, writes results to files named NAME
    judged() {
        "dt-eval$1" ppl --text some.txt --json "${of[@]}" "${@:3}" six | jq .nll >"nll$2"
        "dt-eval$1" task q.jsonl "${of[@]}" "${@:3}" six --predictions pred >/dev/null && jq '.logprobs[]' pred >"scores$2"
        "dt-rollout$1" sample --task copy:2 --count 2 --group 2 --max-tokens 4 --seed 3 "${of[@]}" "${@:3}" six 2>/dev/null >rolled
        jq -c '[.answers[].ids]' rolled >"drawn$2" && [ -s "drawn$2" ]
    }
    near() { # FILE FILE COUNT: COUNT numbers that differ by at most 1e-4, relative
        paste "$1" "$2" | awk -v n="$3" '{ d = ($1 - $2) / $1; bad += d > 1e-4 || d < -1e-4 } END { exit bad || NR != n }'
    }
    judged "" -cpu
    judged -emulated -card --device cuda
    near nll-cpu nll-card 1
    near scores-cpu scores-card 4
    diff drawn-cpu drawn-card
    one_of 2 "" "--weights-disk ."
    for where in "${some[@]}"; do
        # shellcheck disable=SC2086 # words
        judged -emulated -beside --device cuda --weights-memory 192KiB $where
        for what in nll scores drawn; do diff $what-card $what-beside; done
    done
    run dt-eval ppl "${of[@]}" --weights-memory 192KiB --text some.txt six
    [[ $status -eq 2 && $output == *"--weights-memory needs --weights-disk or a GPU"* ]]
    run dt-rollout sample --task copy:2 --device tpu six
    [[ $status -eq 2 && $output == *"no such device: 'tpu'"* ]]
}

@test "compressed gradients, and outer ones in 4 bits, between emulated GPUs: the CPU's losses; resumption" {
    need_emulation
    mpi_here
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2
    local each cards half=$(few 2 3) more=(--model small.json "${common[@]}" --precision fp32 --schedule constant --lr 3e-3 --warmup 0 --global-batch 2
        --layout dp2 --comm-timeout 300)
    one_of 3 "--grad-comm int8" "--sync diloco:2 --outer-comm e3m0" "--grad-comm topk:5%" "--grad-comm powersgd:2" \
        "--sync diloco:4 --outer-comm e3m0 --outer-fragments 2 --outer-delay 1" "--grad-comm onebit"
    for each in "${some[@]}"; do
        echo "$each"
        rm -rf here whole half
        # shellcheck disable=SC2086 # words
        {
            # saves, and so merges, at the same steps as the GPU run
            mpirun -np 2 dt-train "${more[@]}" $each --steps $((2 * half)) --save here --save-every "$half" >cpu.jsonl
            mpirun -np 2 dt-train-emulated --device cuda "${more[@]}" $each --steps $((2 * half)) --save whole --save-every "$half" >card.jsonl
            mkdir half
            cp -r whole/step-0000000"$half" half
            mpirun -np 2 dt-train-emulated --device cuda "${more[@]}" $each --steps $((2 * half)) --save half --resume auto >rest.jsonl
            [ "$(wc -l <rest.jsonl)" -eq "$half" ]
        }
        agrees cpu.jsonl card.jsonl 1e-4
        dt-shard-ckpt diff whole/latest half/latest
    done
    # auto measures and chooses; each mode has nearly the same losses
    mpirun -np 2 dt-train "${more[@]}" --steps 3 >cpu.jsonl
    for cards in 1 2; do
        DT_EMULATED_CARDS=$cards mpirun -np 2 dt-train-emulated --device cuda "${more[@]}" --grad-comm auto --steps 3 >card.jsonl 2>log
        agrees cpu.jsonl card.jsonl 1e-2
        grep -Eq 'auto: all-reduce of .* of gradients: fp32 [0-9.]+ ms, bf16 [0-9.]+ ms .*, int8 .*, powersgd:4 .*; using (fp32|bf16|int8|powersgd:4)' log
        [ "$(grep -c 'copied through host memory' log)" -eq $((2 - cards)) ]
    done
}

@test "an image network on an emulated GPU, with a library in place of cuDNN, agrees with the CPU" {
    need_emulation
    local i how more=(--model cnn2 --data bars.h5 --eval-data bars.h5 --precision fp32 --no-mfu --threads 1 --optimizer sgd --lr 1e-4
        --steps 3 --ema 0.5 --mixup 0.2 --label-smoothing 0.1)
    mkdir -p bars/left bars/right
    for i in 1 2 3 4 5; do
        for class in left right; do
            LC_ALL=C awk -v i=$i -v at="$([ $class = left ] && echo 2 || echo 16)" 'BEGIN { printf "P5\n28 28\n255\n"
                for (k = 0; k < 784; k++) printf "%c", (k % 28 >= at && k % 28 < at + 10 ? 90 + 9 * i : 1 + (k * i) % 40) }' >bars/$class/$i.pgm
        done
    done
    dt-dataset images --out bars.h5 bars
    # the tests' environment has a path to that library
    LD_LIBRARY_PATH='' run emulated "${more[@]}" --microbatch 4
    [ "$status" -eq 1 ]
    [[ $output == *"'cnn2' classifies images, for which a GPU needs cuDNN"* ]]
    [ -e "$DT_FAKE_CUDNN_DIR/libcudnn.so.9" ] || skip "built without the header of cuDNN"
    export LD_LIBRARY_PATH=$DT_FAKE_CUDNN_DIR:$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2
    dt-train "${more[@]}" --microbatch 4 --save on-host >cpu.jsonl
    emulated "${more[@]}" --microbatch 4 --save on-card >cuda.jsonl
    agrees <(jq -c 'select(.loss)' cpu.jsonl) <(jq -c 'select(.loss)' cuda.jsonl) 1e-5
    jq -en --slurpfile a <(tail -1 cpu.jsonl) --slurpfile b <(tail -1 cuda.jsonl) \
        '$a[0].top1 == $b[0].top1 and $b[0].eval_images == 10 and ($a[0].eval_loss - $b[0].eval_loss | fabs) < 1e-5'
    { dt-shard-ckpt diff --json on-host on-card || true; } >diff.json
    jq -e '.tensors_total == 20 and ([.tensors[].max_abs] | max) < 1e-6' diff.json
    # it resumes, with its running statistics
    dt-train "${more[@]}" --microbatch 4 --steps 4 --resume auto --save on-host >cpu.jsonl
    emulated "${more[@]}" --microbatch 4 --steps 4 --resume auto --save on-card >cuda.jsonl
    agrees <(jq -c 'select(.loss)' cpu.jsonl) <(jq -c 'select(.loss)' cuda.jsonl) 1e-5
    # whitening filters, a convolution with bias, GELU on feature maps, norms after pooling; on noise, so that
    # no two pixels are equal
    mkdir -p noise
    LC_ALL=C awk 'BEGIN { for (i = 0; i < 6; i++) { printf "%c", i % 3; for (p = 0; p < 3072; p++) printf "%c", 1 + int(250 * rand()) } }' \
        >noise/data_batch_1.bin
    dt-dataset images --out noise.h5 noise/data_batch_1.bin
    local net=(--model airbench94 --data noise.h5 --image-size 16 --no-mfu --threads 1 --optimizer sgd --lr 1e-3 --steps 2 --microbatch 3)
    for how in "fp32 1e-5" "bf16 2e-2"; do
        dt-train "${net[@]}" --precision "${how% *}" >cpu.jsonl
        emulated "${net[@]}" --precision "${how% *}" >cuda.jsonl
        agrees <(jq -c 'select(.loss)' cpu.jsonl) <(jq -c 'select(.loss)' cuda.jsonl) "${how#* }"
    done
    # inference: by dt-eval with and without folded norms, by dt-serve; without the library both say so
    for how in --fold-norms --no-fold-norms "--precision bf16"; do
        # shellcheck disable=SC2086 # words
        dt-eval images bars.h5 on-host --precision fp32 $how --batch 4 --predictions cpu.seen >/dev/null
        # shellcheck disable=SC2086 # words
        dt-eval-emulated images bars.h5 on-host --device cuda --precision fp32 $how --batch 4 --predictions cuda.seen >/dev/null
        [ "$(wc -l <cuda.seen)" -eq 10 ]
        jq -en --slurpfile a cpu.seen --slurpfile b cuda.seen --argjson by "$([[ $how == *bf16 ]] && echo 0.02 || echo 1e-5)" \
            '[range(10) as $i | $a[$i].probability - $b[$i].probability | fabs] | max < $by'
    done
    find bars -name '*.pgm' | sort >files
    dt-serve --batch on-host --precision fp32 --threads 1 <files 2>/dev/null | jq -c '[.path, .predictions[0].class]' >cpu.txt
    dt-serve-emulated --device cuda --batch on-host --precision fp32 --threads 1 --image-batch 4 <files 2>/dev/null |
        jq -c '[.path, .predictions[0].class]' | diff cpu.txt -
    mpi_here
    mpirun -np 2 -x LD_LIBRARY_PATH -x DT_EMULATED_CARDS dt-serve-emulated --device cuda --batch on-host --precision fp32 --threads 1 \
        --split data --comm-timeout 300 <files 2>/dev/null | jq -c '[.path, .predictions[0].class]' | diff cpu.txt -
    LD_LIBRARY_PATH='' run dt-eval-emulated images bars.h5 on-host --device cuda
    [ "$status" -eq 1 ]
    [[ $output == *"for which a GPU needs cuDNN"* ]]
    # batch norms with unequal parts of a batch on two ranks, which share a GPU or have one each
    mpi_here
    dt-train "${more[@]}" --microbatch 4 >cpu.jsonl
    mpirun -np 2 -x LD_LIBRARY_PATH -x DT_EMULATED_CARDS dt-train-emulated --device cuda "${more[@]}" --microbatch 3 --global-batch 4 \
        --shares 3,1 --comm-timeout 300 >cuda.jsonl
    agrees <(jq -c 'select(.loss)' cpu.jsonl) <(jq -c 'select(.loss)' cuda.jsonl) 1e-5
}

# as_on_host BOUND OPTION...: the loss curve on a GPU is the CPU's
as_on_host() {
    dt-train "${common[@]}" --precision fp32 "${@:2}" >cpu.jsonl
    emulated "${common[@]}" --precision fp32 "${@:2}" >cuda.jsonl
    agrees cpu.jsonl cuda.jsonl "$1"
}

@test "adapters, with magnitudes and on a quantized base, on an emulated GPU" {
    need_emulation
    echo '{"model_type": "qwen2", "vocab_size": 257, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "hidden_act": "silu"}' >qwen2.json
    as_on_host 1e-5 --model qwen2.json --steps 3 --lr 1e-2 --lora 4 --lora-dropout 0.1 --neftune 15
    # tested over ranks below, too
    ! slow || as_on_host 1e-5 --model qwen2.json --steps 3 --lr 1e-2 --lora 3 --dora
    as_on_host 1e-5 --model qwen2.json --steps 3 --lr 1e-2 --lora 3 --dora --lora-base nf4
    mpi_here
    mpirun -np 2 dt-train-emulated --device cuda "${common[@]}" --model qwen2.json --steps 3 --lr 1e-2 --lora 3 --dora --precision fp32 \
        --layout tp2 --comm-timeout 300 >two.jsonl
    dt-train "${common[@]}" --model qwen2.json --steps 3 --lr 1e-2 --lora 3 --dora --precision fp32 >cpu.jsonl
    agrees cpu.jsonl two.jsonl 1e-5
}

@test "quantization-aware training, and 8-bit moments with their checkpoints, on an emulated GPU" {
    need_emulation
    as_on_host 1e-4 --model llama-tiny --steps 3 --lr 1e-2 --qat q4_0
    as_on_host 1e-4 --model llama-tiny --steps 3 --lr 1e-2 --optimizer adamw8bit
    emulated --model llama-tiny "${common[@]}" --steps 4 --optimizer adamw8bit --save eight --save-every 2 >whole.jsonl
    emulated "${common[@]}" --steps 4 --optimizer adamw8bit --resume eight/step-00000002 >rest.jsonl
    jq -c '[.step, .loss, .grad_norm]' whole.jsonl | tail -2 | diff - <(jq -c '[.step, .loss, .grad_norm]' rest.jsonl)
    # on the CPU
    dt-train "${common[@]}" --steps 4 --optimizer adamw8bit --resume eight/step-00000002 >rest.jsonl
    agrees <(tail -2 whole.jsonl) rest.jsonl 1e-2
}

@test "a teacher, and Adafactor, on an emulated GPU" {
    takes_long
    need_emulation
    dt-train --model llama-tiny "${common[@]}" --steps 8 --save teacher >/dev/null 2>&1
    dt-eval teacher d.h5 teacher/latest --seq 16 --precision fp32 --top-k 20 --temperature 2 --out d.teacher 2>/dev/null
    local learn=(--model llama-tiny --steps 2 --teacher d.teacher --teacher-weight 0.7)
    as_on_host 1e-5 "${learn[@]}"
    jq -en --slurpfile a cpu.jsonl --slurpfile b cuda.jsonl '[range(2) | ($a[.].teacher_kl - $b[.].teacher_kl) / $a[.].teacher_kl | fabs] | max < 1e-4'
    mpi_here
    mpirun -np 2 dt-train-emulated --device cuda "${common[@]}" "${learn[@]}" --precision fp32 --layout tp2 --comm-timeout 300 \
        >two.jsonl
    agrees cpu.jsonl two.jsonl 1e-5
    as_on_host 1e-5 --model llama-tiny --steps 3 --optimizer adafactor
    mpirun -np 2 dt-train-emulated --device cuda "${common[@]}" --model llama-tiny --steps 3 --optimizer adafactor --precision fp32 \
        --layout tp2 --comm-timeout 300 >two.jsonl
    agrees cpu.jsonl two.jsonl 1e-5
}

@test "--reproducible on emulated GPUs: dp, pp and accumulation change no bit of losses and parameters" {
    takes_long
    need_emulation
    mpi_here
    local more=(--precision fp32 --steps 2 --global-batch 4 --reproducible --comm-timeout 300)
    emulated --model gpt2-tiny "${common[@]}" "${more[@]}" --save one >one.jsonl
    jq -c '[.step, .loss, .grad_norm]' one.jsonl >want
    [ "$(wc -l <want)" -eq 2 ]
    for how in "2 dp2" "2 pp2" "1 dp2"; do # two GPUs: NCCL; one GPU: through host memory
        rm -rf two
        LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=${how% *} mpirun -np 2 -x LD_LIBRARY_PATH -x DT_EMULATED_CARDS \
            dt-train-emulated --device cuda --model gpt2-tiny "${common[@]}" "${more[@]}" --layout "${how#* }" --save two >two.jsonl
        jq -c '[.step, .loss, .grad_norm]' two.jsonl | diff want -
        dt-shard-ckpt diff one/latest two/latest
    done
    dt-train --model gpt2-tiny "${common[@]}" "${more[@]}" >cpu.jsonl
    agrees cpu.jsonl one.jsonl 1e-5
}

@test "--reproducible on an emulated GPU names the parameter whose gradient is out of range" {
    need_emulation
    local more=(--model gpt2-tiny "${common[@]}" --precision fp32 --steps 3 --reproducible --lr 1e6 --warmup 0 --schedule constant --clip 0)
    run dt-train "${more[@]}"
    [ "$status" -eq 1 ]
    local want=${lines[-1]}
    [[ $want == *"the gradient of "*" is not finite or beyond 2^12 on this rank" ]]
    run emulated "${more[@]}"
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "$want" ]
}

@test "--no-master on an emulated GPU: the CPU's roundings, and it learns what fp32 masters learn" {
    takes_long
    need_emulation
    local more=(--model llama-tiny "${common[@]}" --precision bf16 --schedule constant --no-master)
    # The first step of AdamW is +-lr for nearly every weight, whatever the last bits of its gradient are. The
    # bf16 weight after it depends on the random numbers of stochastic rounding, which are the same on both.
    dt-train "${more[@]}" --steps 1 --warmup 0 --save cpu >/dev/null
    emulated "${more[@]}" --steps 1 --warmup 0 --save card >/dev/null
    words() { dt-shard-ckpt cat --raw model/layers.0.mlp.gate.weight "$1/latest" | od -An -v -tx2 -w2; }
    words cpu >a && words card >b
    [ "$(wc -l <a)" -ge 4096 ]
    apart=$(paste a b | awk '$1 != $2' | wc -l)
    echo "$apart of $(wc -l <a) weights differ"
    [ "$apart" -lt $(($(wc -l <a) / 200)) ]
    # Loss curves, equality of copies and resumption.
    dt-train --model llama-tiny "${common[@]}" --precision bf16 --schedule constant --steps 8 >master.jsonl
    rm -rf whole half
    emulated "${more[@]}" --steps 8 --save whole >one.jsonl
    agrees master.jsonl one.jsonl 1e-2
    emulated "${more[@]}" --steps 5 --save half >/dev/null
    emulated "${more[@]}" --steps 8 --save half --resume auto >rest.jsonl
    dt-shard-ckpt diff whole/latest half/latest
    mpi_here
    for layout in dp2 dp2.z1; do
        LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2 mpirun -np 2 -x LD_LIBRARY_PATH -x DT_EMULATED_CARDS dt-train-emulated \
            --device cuda "${more[@]}" --global-batch 2 --steps 3 --comm-timeout 300 --layout $layout >$layout.jsonl
    done
    diff <(jq .loss dp2.jsonl) <(jq .loss dp2.z1.jsonl)
}
# SPDX-License-Identifier: Apache-2.0
