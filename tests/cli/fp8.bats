#!/usr/bin/env bats
# dt-train --fp8: it learns as bf16 does, layouts and recomputation change next to nothing, memory is as
# planned, the linears in fp8 follow from shapes alone, and a GPU does what the CPU does.

load ranks

setup_file() {
    on_ranks
    fixed_text
    dt-dataset build --tokenizer byte --out d.h5 text.txt
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 48, intermediate_size: 96, num_hidden_layers: 5,
        num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, max_position_embeddings: 64, rms_norm_eps: 1e-5,
        rope_theta: 10000, tie_word_embeddings: false}' >llama.json
    jq -n '{model_type: "gpt2", vocab_size: 260, n_embd: 72, n_layer: 2, n_head: 4, n_positions: 64}' >odd.json
    jq -n '{model_type: "llama", vocab_size: 261, hidden_size: 64, intermediate_size: 88, num_hidden_layers: 2,
        num_attention_heads: 4, max_position_embeddings: 64, rms_norm_eps: 1e-5}' >part.json
}

setup() {
    PATH=$DT_BIN:$DT_HELP:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
    common=(--data d.h5 --lr 1e-3 --warmup 10 --no-mfu --threads 1 --comm-timeout 120)
}

# agrees FILE FILE BOUND: of two loss curves of equal length, 19 of 20 steps differ by less than BOUND,
# relative, and none by ten times that. Single steps may differ more: where the loss jumps for one batch, any
# rounding changes the jump.
agrees() {
    jq -en --slurpfile a "$1" --slurpfile b "$2" --argjson bound "$3" \
        'if ($a|length) != ($b|length) or ($a|length) == 0 then error("curves of different length") else
         [range($a|length) | (($a[.].loss - $b[.].loss) / $a[.].loss) | fabs] | sort |
         [.[length * 19 / 20 | floor], last] | debug | .[0] < $bound and .[1] < 10 * $bound end' >/dev/null
}

@test "200 steps of real text (60 without DT_SLOW=1): within 1% of bf16, and not identical" {
    local model steps rate=3e-4 # at rates where bf16 diverges from fp32, fp8 does, too
    steps=$(few 60 200)
    for model in gpt2-tiny llama-tiny; do
        dt-train --model $model "${common[@]}" --lr $rate --seq 64 --microbatch 8 --steps "$steps" >bf16.jsonl
        dt-train --model $model "${common[@]}" --lr $rate --seq 64 --microbatch 8 --steps "$steps" --fp8 >fp8.jsonl
        agrees bf16.jsonl fp8.jsonl 1e-2
        ! cmp -s <(jq .loss bf16.jsonl) <(jq .loss fp8.jsonl) || false
        jq -es --argjson learned "$(few 5 3.7)" '[.[-20:][].loss] | add / 20 < $learned' fp8.jsonl
    done
}

@test "layouts agree with one rank: each rank has its own scales" {
    # Rounding to floating point does not depend on the scale, except for the smallest numbers: losses agree
    # as in fp32, gradients nearly.
    local bounds=(--loss-bound 5e-4 --tensor-bound 0.2)
    dt-train verify --fp8 --layouts "dp1,$(few dp2.z1,tp2.s1,pp2 dp2,dp2.z1,dp2.z3,tp2,tp2.s1,pp2)" "${bounds[@]}" --model gpt2-tiny "${common[@]}" \
        --seq 32 --microbatch 1 --global-batch 4 --precision fp32 --steps 10
    dt-train verify --fp8 --layouts "dp1,$(every 2 dp2.z2,tp2.s1,dp2.tp2.pp2.z1)" "${bounds[@]}" --model llama.json "${common[@]}" \
        --seq 32 --microbatch 1 --global-batch 4 --precision fp32 --steps 10
}

@test "recomputation, a split backward and resuming change no bit" {
    takes_long
    local opts=(--model llama.json "${common[@]}" --seq 32 --microbatch 2 --global-batch 4 --steps 8 --fp8)
    curve() { jq -c '[.loss, .grad_norm]'; }
    dt-train "${opts[@]}" --save whole | curve >none
    for mode in selective full every:2; do
        dt-train "${opts[@]}" --recompute $mode | curve | cmp - none
    done
    mpirun -np 2 dt-train "${opts[@]}" --layout pp2 | curve >pp
    mpirun -np 2 dt-train "${opts[@]}" --layout pp2 --pipeline zb-h1 | curve | cmp - pp
    rm -rf part
    dt-train "${opts[@]}" --save part --save-every 4 >/dev/null
    rm -rf part/step-00000008 part/latest
    dt-train "${opts[@]}" --save part --resume auto | curve | cmp - <(tail -n 4 none)
    dt-shard-ckpt diff whole part
}

@test "reproducible sums, weights without masters, fp16" {
    local opts=(--model gpt2-tiny "${common[@]}" --seq 32 --fp8 --steps 5 --global-batch 4)
    dt-train "${opts[@]}" --microbatch 4 --reproducible | jq .loss >one
    mpirun -np 2 dt-train "${opts[@]}" --microbatch 2 --layout dp2 --reproducible | jq .loss | cmp - one
    dt-train "${opts[@]}" --microbatch 4 | jq -c '{loss}' >bf16.jsonl
    dt-train "${opts[@]}" --microbatch 4 --no-master | jq -c '{loss}' >other.jsonl
    agrees bf16.jsonl other.jsonl 1e-2
    dt-train "${opts[@]}" --microbatch 4 --precision fp16 | jq -c '{loss}' >other.jsonl
    agrees bf16.jsonl other.jsonl 1e-2
}

@test "the memory is what dt-memest --fp8 says, to the byte" {
    while read -r ranks model args; do
        # shellcheck disable=SC2086
        mpirun -np $ranks dt-train --model $model $args --fp8 "${common[@]}" --steps 1 --metrics m.jsonl </dev/null
        # shellcheck disable=SC2086
        dt-memest $model --train $args --fp8 --threads 1 --json >e.json
        echo "$args: $(jq .peak_bytes e.json), allocated $(jq .peak_bytes m.jsonl)"
        [ "$(jq .peak_bytes e.json)" = "$(jq .peak_bytes m.jsonl)" ]
        # shellcheck disable=SC2086
        # operands in 8 bits are additional buffers: never less memory than without --fp8
        [ "$(jq .peak_bytes e.json)" -ge "$(dt-memest $model --train $args --threads 1 --json | jq .peak_bytes)" ]
        jq -e '.fp8 and .account == "dt"' e.json
    done <<-END
		1 gpt2-tiny --seq 64 --microbatch 2
		1 llama.json --seq 32 --microbatch 3 --recompute full --precision fp32
		2 llama-tiny --seq 32 --microbatch 2 --layout tp2.s1
		2 llama.json --seq 16 --microbatch 1 --layout dp2.z3
	END
    run dt-memest gpt2-tiny --fp8 --account megatron
    [ "$status" -eq 1 ]
    [[ $output == *"--fp8 needs --account dt"* ]]
}

@test "linears whose sizes are multiples of 16 compute in fp8, reported once; an error if there are none" {
    dt-train --model gpt2-tiny "${common[@]}" --seq 32 --microbatch 1 --steps 1 --fp8 2>err >/dev/null
    grep -q 'computes in 8 bits: qkv, o, up and down of every layer$' err
    # down has 88 input columns: it stays in bf16
    dt-train --model part.json "${common[@]}" --seq 32 --microbatch 1 --steps 1 --fp8 2>err >/dev/null
    grep -q 'computes in 8 bits: qkv, o and up of every layer; not, because sizes are not multiples of 16: down$' err
    # tp2 leaves 44 of them per rank, and 88 rows of gate and up together
    mpirun -np 2 dt-train --model part.json "${common[@]}" --seq 32 --microbatch 1 --steps 1 --fp8 --layout tp2 2>err >/dev/null
    [ "$(grep -c 'computes in 8 bits: qkv and o of every layer; not, because sizes are not multiples of 16: up and down$' err)" -eq 1 ]
    for args in "odd.json --seq 32" "gpt2-tiny --seq 24"; do
        # shellcheck disable=SC2086
        run dt-train --model $args "${common[@]}" --microbatch 1 --steps 1 --fp8
        [ "$status" -eq 2 ]
        [[ $output == *"--fp8: no linear of "*" has sizes that are multiples of 16 on layout 'dp1'"* ]]
    done
}

@test "an emulated GPU follows the CPU in fp8; a GPU before sm_89 is refused by name" {
    command -v dt-train-emulated >/dev/null || skip "no C++ compiler, no emulated card"
    local opts=("${common[@]}" --seq 16 --microbatch 1 --steps "$(few 5 10)" --fp8)
    for model in gpt2-tiny part.json; do
        dt-train --model $model "${opts[@]}" --precision fp32 >cpu.jsonl
        dt-train-emulated --device cuda --model $model "${opts[@]}" --precision fp32 >cuda.jsonl 2>err
        agrees cpu.jsonl cuda.jsonl 1e-4
    done
    grep -q 'computes in 8 bits: qkv, o and up of every layer' err
    dt-train --model gpt2-tiny "${opts[@]}" --steps 5 >cpu.jsonl
    dt-train-emulated --device cuda --model gpt2-tiny "${opts[@]}" --steps 5 --recompute full >cuda.jsonl
    agrees cpu.jsonl cuda.jsonl 1e-2
    DT_EMULATED_SM=80 run dt-train-emulated --device cuda --model gpt2-tiny "${opts[@]}"
    [ "$status" -eq 1 ]
    [[ $output == *"--fp8: this GPU (sm_80, emulated) has no matrix products of 8-bit floats"* ]]
}

@test "MFU is relative to the measured rate of fp8 products" {
    dt-train --model gpt2-tiny --data d.h5 --seq 32 --microbatch 1 --steps 1 --threads 1 --fp8 2>err | jq -e '.mfu > 0'
    grep -q 'matmul rate measured: .* e4m3 on all ranks together' err
}
# SPDX-License-Identifier: Apache-2.0
