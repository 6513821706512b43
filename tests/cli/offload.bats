#!/usr/bin/env bats
# Optimizer states, weights and activations offloaded to a file: the same numbers as without, on layouts (all
# with DT_SLOW=1), on resume, and under faults.

load ranks

setup_file() {
    on_ranks
    cat "$DT_SRC/LICENSE" "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
}

setup() {
    in_folder
    rm -rf a b sw
    mkdir sw
    common=(--model gpt2-tiny --data d.h5 --seq 32 --lr 1e-3 --warmup 3 --no-mfu --threads 1 --comm-timeout 60
        --global-batch 4 --microbatch 1)
    away=(--offload optimizer --offload-to disk:sw)
}

faulty() { # CALL:N[+]:WHAT COMMAND...: runs it with fault.so
    local fault=$1
    shift
    LD_PRELOAD=$DT_HELP/fault.so DT_FAULT=$fault "$@"
}

curve() {
    jq -c 'select(.loss) | [.step, .loss, .grad_norm]' "$@"
}

# same: checkpoints and loss curves of runs a and b are equal
same() {
    diff <(curve a.jsonl) <(curve b.jsonl)
    dt-shard-ckpt diff a b >/dev/null
}

@test "every layout, precision and optimizer: parameters, states and losses are bit-equal to those without" {
    one_of 4 dp2.tp2.z1:4:bf16:adamw dp1:1:fp32:adamw dp1:1:bf16:adamw pp2:2:bf16:rmsprop dp2.z1:2:bf16:adam \
        dp2.z3:2:bf16:adamw dp2.z2:2:fp32:momentum tp2:2:bf16:adamw
    for run in "${some[@]}"; do
        IFS=: read -r layout n precision optimizer <<<"$run"
        opts=("${common[@]}" --layout "$layout" --precision "$precision" --optimizer "$optimizer" --steps 4)
        rm -rf a b
        mpirun -np "$n" dt-train "${opts[@]}" --save a >a.jsonl
        mpirun -np "$n" dt-train "${opts[@]}" "${away[@]}" --save b >b.jsonl
        same || { echo "$run"; return 1; }
        [ -z "$(ls sw)" ]
    done
}

@test "without clipping, tiles are updated during backward: bit-equal, on layouts, with other options" {
    local mini="--model gpt2-mini --seq 64 --global-batch 8"
    one_of 5 "1:$mini --recompute full --precision bf16" "2:--layout dp2 $mini" "2:--layout dp2.z1 --precision bf16" \
        "2:--layout tp2.s1 --precision bf16" "1:--precision bf16 --offload-fraction 40%" "2:--layout pp2" \
        "2:--layout pp2 --pipeline zb-h1" "2:--layout cp2 --optimizer lion" "1:--precision fp16" \
        "2:--layout dp2.z3" "1:--layer-lr-decay 0.9 --optimizer momentum"
    for run in "${some[@]}"; do
        IFS=: read -r n opts <<<"$run"
        rm -rf a b
        # shellcheck disable=SC2086
        mpirun -np "$n" dt-train "${common[@]}" --clip 0 --steps 4 --details 2 ${opts%--offload-fraction*} --save a >a.jsonl || { echo "$run"; return 1; }
        # shellcheck disable=SC2086
        mpirun -np "$n" dt-train "${common[@]}" --clip 0 --steps 4 --details 2 $opts "${away[@]}" --save b >b.jsonl
        same || { echo "$run"; return 1; }
        # as many bytes as if updated after backward
        jq -se '[.[] | select(.step == 3)] | all(.offload_read_bytes == .offload_written_bytes and .offload_read_bytes > 0)' b.jsonl
    done
    # resumed after a disk that failed in the middle of backward; a step makes 16 writes
    rm -rf a b
    dt-train "${common[@]}" --clip 0 --steps 4 --save a >a.jsonl
    run faulty scratch-pwrite:40:5 dt-train "${common[@]}" --clip 0 --steps 4 "${away[@]}" --save b --save-every 1
    [ "$status" -eq 1 ]
    [[ $output == *"update is incomplete; --resume auto"* ]]
    dt-train "${common[@]}" --clip 0 --steps 4 "${away[@]}" --save b --resume auto >>b.jsonl
    dt-shard-ckpt diff a b >/dev/null
    # the plan includes the buffers in flight during backward, and training allocates it
    opts=(--model gpt2-mini --seq 64 --microbatch 1 --clip 0 "${away[@]}")
    dt-train "${common[@]}" "${opts[@]}" --steps 2 --global-batch 1 >m.jsonl
    dt-memest gpt2-mini "${opts[@]:2}" --threads 1 --json >plan.json
    [ "$(jq .peak_bytes plan.json)" -eq "$(jq -s '.[0].peak_bytes' m.jsonl)" ]
    # transfers hidden by the last microbatch's backward are not counted as waiting
    opts=(gpt2-124m --seq 1024 --accumulate 2 --offload optimizer --offload-to disk --json)
    dt-memest "${opts[@]}" >m.json
    dt-memest "${opts[@]}" --clip 0 >n.json
    jq -se '.[1].offload_exposed_s < .[0].offload_exposed_s and .[1].step_s < .[0].step_s and
        .[1].offload_read_bytes == .[0].offload_read_bytes' m.json n.json
    dt-plan gpt2-124m --gpu cpu --gpus 1 --gpu-mem 64GiB --offload optimizer --offload-to disk --clip 0 --emit args | grep -q -- "--clip 0"
}

@test "--details reads offloaded masters between two steps: bit-equal to a run without" {
    for run in "1:--lora 4 --optimizer sgd --seq 64 --microbatch 8 --global-batch 8" "2:--layout dp2.z2"; do
        opts=("${common[@]}" --precision bf16 --steps 4)
        rm -rf a b tb
        # shellcheck disable=SC2086
        mpirun -np "${run%%:*}" dt-train "${opts[@]}" ${run#*:} --save a >a.jsonl
        # shellcheck disable=SC2086
        mpirun -np "${run%%:*}" dt-train "${opts[@]}" ${run#*:} "${away[@]}" --details 1 --tensorboard tb --save b >b.jsonl
        same || { echo "$run"; return 1; }
    done
}

@test "16-bit weights without masters, sgd with masters, fp16, and a part of the states in memory" {
    takes_long
    for run in "--precision bf16 --no-master" "--precision bf16 --optimizer sgd" "--precision fp16" \
        "--precision bf16 --offload-fraction 30%" "--precision fp32 --reproducible --offload-fraction 0.01"; do
        opts=("${common[@]}" --steps 3)
        rm -rf a b
        # shellcheck disable=SC2086
        dt-train "${opts[@]}" ${run%--offload-fraction*} --save a >a.jsonl
        # shellcheck disable=SC2086
        dt-train "${opts[@]}" $run "${away[@]}" --save b >b.jsonl
        same || { echo "$run"; return 1; }
    done
}

@test "fewer offloaded tiles than the ring has slots: bit-equal to a run without" {
    local all=(--offload all --offload-to disk:sw) fraction run
    for run in "1:--no-master" "1:--precision fp32" "2:--layout tp2 --no-master" "2:--layout dp2.z3 --clip 0"; do
        rm -rf a
        # shellcheck disable=SC2086
        mpirun -np "${run%%:*}" dt-train "${common[@]}" --steps 2 ${run#*:} --save a >a.jsonl
        for fraction in 0.06 0.14 0.2 0.3; do
            rm -rf b
            # shellcheck disable=SC2086
            mpirun -np "${run%%:*}" dt-train "${common[@]}" --steps 2 ${run#*:} "${all[@]}" --offload-fraction $fraction --save b >b.jsonl
            same || { echo "$run: $fraction"; return 1; }
        done
    done
}

@test "resumed with and without offload, on another layout, and after a rollback" {
    takes_long
    mpirun -np 2 dt-train "${common[@]}" --layout dp2.z2 --steps 6 --save a --save-every 3 >a.jsonl
    mpirun -np 2 dt-train "${common[@]}" "${away[@]}" --layout dp2.z2 --steps 6 --save b --resume a/step-00000003 >b.jsonl
    diff <(curve a.jsonl | tail -3) <(curve b.jsonl)
    dt-shard-ckpt diff a b >/dev/null
    rm -rf a b
    # one rank resumes a checkpoint of two offloading ranks, and two resume one of a single rank
    mpirun -np 2 dt-train "${common[@]}" "${away[@]}" --layout dp2.z1 --steps 2 --save c >/dev/null
    dt-train "${common[@]}" --resume c --steps 4 --save a >a.jsonl
    dt-train "${common[@]}" "${away[@]}" --resume c --steps 4 --save b >b.jsonl
    same
    rm -rf a b c
    opts=("${common[@]}" --steps 24 --save-every 4 --inject spike:step=18 --on-spike rollback:4 --spike-window 8)
    dt-train "${opts[@]}" --save a >a.jsonl 2>err
    grep -q "back to step" err
    dt-train "${opts[@]}" "${away[@]}" --save b >b.jsonl
    same
}

@test "training starts from a checkpoint's weights" {
    dt-train "${common[@]}" --steps 2 --save w >/dev/null
    dt-shard-ckpt convert --to safetensors w/step-00000002 w.hf >/dev/null
    dt-train "${common[@]}" --model w.hf --steps 2 --save a >a.jsonl
    dt-train "${common[@]}" --model w.hf "${away[@]}" --steps 2 --save b >b.jsonl
    same
    rm -rf w w.hf
}

@test "the plan says what is in memory and on disk, and training allocates it" {
    dt-memest gpt2-tiny --seq 32 --offload optimizer --offload-to disk:sw --threads 1 --json >plan.json
    dt-train "${common[@]}" "${away[@]}" --steps 2 --global-batch 1 >m.jsonl
    [ "$(jq .peak_bytes plan.json)" -eq "$(jq -s '.[0].peak_bytes' m.jsonl)" ]
    # masters and two moments of all tiles: read and written once per step
    tiles=$(jq .disk_bytes plan.json)
    [ "$(jq -s '.[1].offload_read_bytes' m.jsonl)" -eq "$tiles" ]
    [ "$(jq -s '.[1].offload_written_bytes' m.jsonl)" -eq "$tiles" ]
    params=$(jq .params plan.json)
    [ "$tiles" -ge $((12 * params)) ]
    [ "$tiles" -lt $((14 * params)) ]
    # what is on disk is not in memory
    without=$(dt-memest gpt2-124m --json | jq .peak_bytes)
    [ $((without - $(dt-memest gpt2-124m --offload optimizer --offload-to disk --json | jq .peak_bytes))) -ge \
        $((12 * 124000000)) ]
    dt-memest gpt2-tiny --offload optimizer --offload-to disk:sw --offload-fraction 50% --json >half.json
    [ "$(jq .disk_bytes half.json)" -lt "$tiles" ]
    [ "$(jq .host_bytes half.json)" -eq 0 ]
    [ "$(jq .disk_fits half.json)" = true ]
    run dt-memest llama-3.1-405b --layout dp8 --offload optimizer --offload-to disk:sw
    [ "$status" -eq 3 ]
    [[ $output == *"not enough for the ranks of one machine"* ]]
}

@test "what cannot be offloaded is refused by name" {
    refuse() { # TEXT OPTION...
        local words=$1
        shift
        run dt-train "${common[@]}" --steps 1 "$@"
        [ "$status" -eq 2 ] && [[ $output == *"$words"* ]] || { echo "$* -> $status $output"; return 1; }
    }
    refuse "sgd has no states" "${away[@]}" --precision fp32 --optimizer sgd
    refuse "give a folder" --offload optimizer --offload-to disk
    refuse "neither host nor disk" --offload optimizer --offload-to tape:x
    refuse "'colour' is not one of" --offload optimizer,colour
    refuse "--offload-to host is for GPUs" --offload optimizer
    refuse "--save-async" "${away[@]}" --save-async
    refuse "--check-replicas" "${away[@]}" --check-replicas 1
    streams=(--offload weights --offload-to disk:sw)
    refuse "cannot be combined with --lora" "${streams[@]}" --lora 4
    refuse "cannot be combined with muon" "${streams[@]}" --optimizer muon
    for opts in "--layout pp2 --pipeline zb-h1" "--layout dp2.pp2.z1"; do
        # shellcheck disable=SC2086
        run dt-memest gpt2-tiny $opts "${streams[@]}"
        [[ $output == *"dt-train cannot run this yet"* ]]
    done
    refuse "needs at least 4 layers" --offload activations --offload-to disk:sw
    refuse "Try 'dt-train --help'" "${away[@]}" --offload-fraction 2
    run dt-train "${common[@]}" --steps 1 --offload optimizer --offload-to disk:missing
    [ "$status" -eq 1 ]
    [[ $output == *"'missing'"*"No such file"* ]]
}

@test "the disk is full at the start, or space cannot be reserved: reported, nothing is trained" {
    run faulty scratch-statvfs:1:28 dt-train "${common[@]}" "${away[@]}" --steps 2 --save b
    [ "$status" -eq 3 ]
    [[ $output == *"'sw': this machine's ranks offload "*" are free"* ]]
    run faulty scratch-fallocate:1:28 dt-train "${common[@]}" "${away[@]}" --steps 2 --save b
    [ "$status" -eq 1 ]
    [[ $output == *"cannot reserve "*"'sw'"*"No space left"* ]]
    [ ! -e b ]
    [ -z "$(ls sw)" ]
}

@test "memory and disk space of the machine are checked before the start, for all its ranks together" {
    for what in optimizer activations; do
        opts=(--seq 256 --layout dp2 --offload "$what" --offload-to disk:sw)
        LD_PRELOAD=$DT_HELP/fault.so DT_FAULT=scratch-statvfs:1:28 \
            run mpirun -np 2 dt-train "${common[@]}" --model gpt2-mini "${opts[@]}" --steps 1
        [ "$status" -eq 3 ]
        mib=$(sed -n "s/.*'sw': this machine's ranks offload \(.*\) MiB, .* are free.*/\1/p" <<<"$output")
        dt-memest gpt2-mini --microbatch 1 "${opts[@]}" --json >plan.json
        jq -e "2 * .disk_bytes / 1048576 / $mib - 1 | fabs < 0.02" plan.json || { echo "$what $output"; return 1; }
    done
    run dt-train "${common[@]}" --model gpt2-1558m --seq 1024 --microbatch 4096 --global-batch 4096 --steps 1
    [ "$status" -eq 3 ]
    [[ $output == *"this machine's ranks need "*" TiB of memory, but "*" are available"* ]]
}

@test "threads in place of io_uring give the same numbers, and partial transfers are completed" {
    dt-train "${common[@]}" --steps 3 --save a >a.jsonl
    for fault in scratch-pread:3+:short scratch-pwrite:2+:short; do
        rm -rf b
        faulty $fault dt-train "${common[@]}" "${away[@]}" --steps 3 --save b >b.jsonl 2>err
        grep -q "(threads" err
        same
    done
}

@test "the disk fails, or the process is killed, in the middle of an update: resumed without a difference" {
    dt-train "${common[@]}" --steps 6 --save a >a.jsonl
    # writing the masters at the start is 16 writes, an update 16 writes of whole tiles
    for fault in scratch-pwrite:70:5 scratch-pread:120:5 scratch-pwrite:75:28 scratch-pwrite:74:kill; do
        rm -rf b
        status=0
        faulty $fault dt-train "${common[@]}" "${away[@]}" --steps 6 --save b --save-every 2 >b.jsonl 2>err || status=$?
        case $fault in
        *kill) [ "$status" -eq 137 ] ;;
        *)
            [ "$status" -eq 1 ]
            grep -Eq "cannot (read|write) byte [0-9]+ of the file in 'sw': (Input/output error|No space left)" err
            grep -q "update is incomplete; --resume auto" err
            ;;
        esac
        [ -z "$(ls sw)" ]
        [ -d b/step-00000002 ]
        [ ! -e b/step-00000006 ]
        dt-train "${common[@]}" "${away[@]}" --steps 6 --save b --resume auto >>b.jsonl 2>err
        grep -q "resumed from" err
        dt-shard-ckpt diff a b >/dev/null
    done
}

# scratch_of PID: the trainer's unlinked file, as /proc names it
scratch_of() {
    local pid=$1 fd
    for _ in $(seq 1200); do
        for fd in /proc/"$pid"/fd/*; do
            [[ $(readlink "$fd") == *dt-scratch-* ]] && echo "$fd" && return 0
        done
        sleep 0.1
    done
    return 1
}

@test "the file is truncated, or changed by another process: detected when it is read" {
    for how in cut changed; do
        rm -rf b b.jsonl
        dt-train "${common[@]}" "${away[@]}" --steps 600 --save b --save-every 1 --keep 1 --inject slow:seconds=0.3 \
            --metrics b.jsonl 2>err &
        pid=$!
        file=$(scratch_of $pid) || { kill $pid; return 1; }
        for _ in $(seq 1200); do
            [ -s b.jsonl ] && break
            sleep 0.1
        done
        if [ $how = cut ]; then
            truncate -s 4096 "$file"
        else
            head -c 65536 /dev/urandom | dd of="$file" bs=4096 seek=3 conv=notrunc status=none
        fi
        status=0
        wait $pid || status=$?
        [ "$status" -eq 1 ]
        if [ $how = cut ]; then
            grep -q "of the file in 'sw': Input/output error" err
        else
            grep -q "is not as it was written" err
        fi
        dt-shard-ckpt verify b >/dev/null
    done
}

@test "one rank's disk fails: the rank is named, and all ranks end" {
    cat >one.sh <<'SH'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export DT_FAULT=scratch-pread:20:5
exec "$@"
SH
    chmod +x one.sh
    status=0
    LD_PRELOAD=$DT_HELP/fault.so mpirun -np 2 ./one.sh dt-train "${common[@]}" "${away[@]}" --layout dp2.z1 --steps 50 \
        >m.jsonl 2>err || status=$?
    [ "$status" -ne 0 ]
    grep -q "rank 1.*of the file in 'sw': Input/output error" err
    [ -z "$(ls sw)" ]
}

@test "bit flips injected into master weights also work when these are in a file" {
    dt-train "${common[@]}" --precision bf16 --steps 4 --inject flip:step=2,element=5000 --save a >a.jsonl
    dt-train "${common[@]}" --precision bf16 --steps 4 --inject flip:step=2,element=5000 --save b "${away[@]}" >b.jsonl
    same
}

@test "costs are predicted: seconds for the bytes moved, tokens that hide them, bytes per day" {
    dt-memest gpt2-124m --seq 1024 --accumulate 4 --offload optimizer --offload-to disk --disk-bandwidth 2 --json >m.json
    # 12 bytes per parameter in each direction at 2 GB/s, less the computing time of the update
    jq -e '.offload_written_bytes == 12 * (.params + 0) or (.offload_written_bytes / .params - 12 | fabs) < 0.01' m.json
    jq -e '.offload_exposed_s <= 2 * .offload_written_bytes / 2e9' m.json
    jq -e '.offload_exposed_s >= 0.5 * 2 * .offload_written_bytes / 2e9' m.json
    dt-memest gpt2-124m --seq 1024 --accumulate 4 --offload optimizer --offload-to disk --disk-bandwidth 4 --json >n.json
    jq -se '.[1].offload_exposed_s < .[0].offload_exposed_s and .[1].step_s < .[0].step_s' m.json n.json
    run dt-plan gpt2-124m --gpu cpu --gpus 1 --gpu-mem 64GiB --offload optimizer --offload-to disk
    [ "$status" -eq 0 ]
    [[ $output == *"in a step a rank reads 1.39 GiB, writes 1.39 GiB and waits "*"writes to the disk of a machine: "*" a day"* ]]
    [ "$(dt-plan gpt2-124m --gpu cpu --gpus 1 --gpu-mem 64GiB --json | jq '.plans[0].time.offload_written_bytes')" -eq 0 ]
    run dt-plan gpt2-124m --gpu cpu --gpus 1 --offload optimizer
    [ "$status" -eq 2 ]
    [[ $output == *"--offload-to host is for GPUs"* ]]
    # a GPU's link transfers both ways at once: 12 bytes per parameter at 25 GB/s, less the computing time of
    # the update
    dt-plan gpt2-124m --gpu A100 --gpus 1 --offload optimizer --json >p.json
    jq -e '.plans[0].time | (.offload_written_bytes / 25e9) as $link | .offload_exposed_s < $link and .offload_exposed_s > 0.9 * $link' p.json
    [[ $(dt-plan gpt2-124m --gpu A100 --gpus 1 --offload optimizer) != *"the disk of a machine"* ]]
}

@test "gpt2-1558m, 17 GiB of states in a file, trains within 12 GiB (slow)" {
    slow || skip "DT_SLOW=1 runs it: minutes, and 18 GiB of disk"
    [ "$(df --output=avail -k . | tail -1)" -gt $((20 << 20)) ] || skip "needs 20 GiB of disk"
    # with the number of threads the plan includes the scratch memory of operations, as the peak does
    opts=(--seq 256 --microbatch 1 --recompute full --threads 2 --offload optimizer --offload-to disk:sw)
    dt-memest gpt2-1558m "${opts[@]}" --accumulate 2 --gpu-mem 12GiB --json >plan.json
    (
        ulimit -v $((12 << 20))
        dt-train --model gpt2-1558m --data d.h5 --global-batch 2 --no-mfu --steps 2 "${opts[@]}" >m.jsonl
    )
    [ "$(jq -s '.[1].peak_bytes' m.jsonl)" -eq "$(jq .peak_bytes plan.json)" ]
    jq -se '.[1].rss_bytes < 12884901888 and .[1].loss > 0' m.jsonl
    [ "$(jq -s '.[1].offload_written_bytes' m.jsonl)" -eq "$(jq .disk_bytes plan.json)" ]
    [ -z "$(ls sw)" ]
}

@test "weights in a file: bit-equal to a run without, on layouts, in every precision, with other offloads" {
    local mini="--model gpt2-mini --seq 64"
    one_of 4 "1:weights:--precision bf16 --no-master --offload-fraction 40%" "1:weights:--precision fp32" \
        "1:optimizer,weights:--precision bf16 --recompute full" "2:weights:--layout dp2.z1 --precision bf16" \
        "2:optimizer,weights:--layout dp2.z3 $mini" "1:weights:--precision fp16 --optimizer sgd" \
        "2:optimizer,weights,activations:--layout tp2.s1 $mini" "2:optimizer,weights:--layout pp2.v3 $mini"
    for run in "${some[@]}"; do
        IFS=: read -r n what opts <<<"$run"
        rm -rf a b
        # shellcheck disable=SC2086
        mpirun -np "$n" dt-train "${common[@]}" --steps 3 ${opts/--offload-fraction 40%/} --save a >a.jsonl
        # shellcheck disable=SC2086
        mpirun -np "$n" dt-train "${common[@]}" --steps 3 $opts --offload "$what" --offload-to disk:sw --save b >b.jsonl
        same || { echo "$run"; return 1; }
        [ -z "$(ls sw)" ]
    done
}

@test "weights in a file: evaluated, rolled back, resumed with and without, and a flipped bit" {
    streams=(--offload weights --offload-to disk:sw)
    opts=("${common[@]}" --precision bf16 --steps 4 --eval-data d.h5 --eval-every 1 --eval-tokens 512)
    dt-train "${opts[@]}" --save a >a.jsonl
    dt-train "${opts[@]}" "${streams[@]}" --save b --save-every 2 >b.jsonl
    same
    diff <(jq -c '[.step, .eval_loss]' a.jsonl) <(jq -c '[.step, .eval_loss]' b.jsonl)
    mv b/step-00000002 half
    for more in "" "${streams[*]}"; do
        rm -rf b
        # shellcheck disable=SC2086
        dt-train "${opts[@]}" --resume half --save b $more >b.jsonl
        dt-shard-ckpt diff a b >/dev/null
    done
    rm -rf a b half
    opts=("${common[@]}" --precision bf16 --no-master --steps 3 --inject "flip:step=2,element=5000")
    dt-train "${opts[@]}" --save a >a.jsonl
    dt-train "${opts[@]}" "${streams[@]}" --save b >b.jsonl
    same
    rm -rf a b
    opts=("${common[@]}" --steps 24 --save-every 4 --inject spike:step=18 --on-spike rollback:4 --spike-window 8)
    dt-train "${opts[@]}" --save a >a.jsonl 2>err
    grep -q "back to step" err
    dt-train "${opts[@]}" "${streams[@]}" --save b >b.jsonl
    same
}

@test "weights in a file: exact plan, bytes per step, a bad disk is detected before its weights are used" {
    opts=(--model gpt2-mini --seq 64 --microbatch 1 --precision bf16 --offload "optimizer,weights" --offload-to disk:sw)
    dt-memest gpt2-mini "${opts[@]:2}" --threads 1 --json >plan.json
    dt-train "${common[@]}" "${opts[@]}" --global-batch 1 --steps 2 >m.jsonl
    [ "$(jq .peak_bytes plan.json)" -eq "$(jq -s '.[0].peak_bytes' m.jsonl)" ]
    [ "$(jq -s '.[1].offload_written_bytes' m.jsonl)" -eq "$(jq .disk_bytes plan.json)" ]
    jq -se '.[1] | .offload_wait_s >= .offload_wait_write_s and .offload_wait_write_s >= 0' m.jsonl
    # The update reads everything once; layers read their weights twice, in whole blocks of the file, which is
    # more at their ends.
    jq -s '.[0].disk_bytes as $all | .[0].params as $n | .[2].offload_read_bytes - $all | . > 2 * $n and . < 6 * $n' \
        plan.json m.jsonl | grep -q true
    # two layers are in memory at a time
    [ "$(dt-memest gpt2-1558m --precision bf16 --offload weights --offload-to disk --json | jq .peak_bytes)" -lt \
        $(($(dt-memest gpt2-1558m --precision bf16 --json | jq .peak_bytes) - 2 * 1300000000)) ]
    for fault in scratch-pread:9:5 scratch-pread:9:change scratch-pread:60+:change; do
        run faulty $fault dt-train "${common[@]}" "${opts[@]}" --steps 3
        [ "$status" -eq 1 ]
        case $fault in
        *change) [[ $output == *"is not as it was written: the file in 'sw' was changed"* ]] ;;
        *) [[ $output == *"of the file in 'sw': Input/output error"* ]] ;;
        esac
        [[ $output == *"--resume auto continues"* ]]
    done
}

@test "activations in a file: the same numbers in less memory, with and without recomputation" {
    mini=("${common[@]}" --model gpt2-mini --seq 128 --microbatch 2 --global-batch "$(few 4 8)" --steps 2)
    one_of 3 "1:--precision fp32 --recompute full" "1:--precision bf16" "1:--offload-fraction 50%" \
        "2:--layout tp2.s1 --recompute selective" "2:--layout dp2.z3" "2:--layout cp2 --recompute every:2"
    for run in "${some[@]}"; do
        rm -rf a b
        # shellcheck disable=SC2086
        how=${run#*:}
        # shellcheck disable=SC2086
        mpirun -np "${run%%:*}" dt-train "${mini[@]}" ${how%--offload-fraction*} --save a >a.jsonl
        # shellcheck disable=SC2086
        mpirun -np "${run%%:*}" dt-train "${mini[@]}" $how --offload optimizer,activations --offload-to disk:sw \
            --save b >b.jsonl
        same || { echo "$run"; return 1; }
        [ "$(jq -s '.[1].peak_bytes' b.jsonl)" -lt "$(jq -s '.[1].peak_bytes' a.jsonl)" ]
        [ -z "$(ls sw)" ]
    done
    # evaluation in between, and a failing disk
    dt-train "${mini[@]}" --eval-data d.h5 --eval-every 1 --eval-tokens 512 >a.jsonl
    dt-train "${mini[@]}" --eval-data d.h5 --eval-every 1 --eval-tokens 512 --offload activations --offload-to disk:sw >b.jsonl
    diff <(jq -c '[.step, .loss, .eval_loss]' a.jsonl) <(jq -c '[.step, .loss, .eval_loss]' b.jsonl)
    for fault in scratch-pread:30:5 scratch-pwrite:30:28; do
        run faulty $fault dt-train "${mini[@]}" --offload activations --offload-to disk:sw
        [ "$status" -eq 1 ]
        [[ $output == *"of the file in 'sw': "* ]]
    done
}

@test "auto:SIZE chooses between file and recomputation by the disk's speed: exact plan, same numbers" {
    mini=(--seq 128 --microbatch 2 --offload activations --offload-to disk:sw)
    most=$(dt-memest gpt2-mini "${mini[@]:0:4}" --threads 1 --json | jq .peak_bytes)
    least=$(dt-memest gpt2-mini "${mini[@]}" --threads 1 --json | jq .peak_bytes)
    fit=$(((most + least) / 2))
    opts=("${common[@]}" --model gpt2-mini --global-batch 4 --steps 2)
    dt-train "${opts[@]}" "${mini[@]:0:4}" --save a >a.jsonl
    for disk in 1000 0.001; do
        rm -rf b
        dt-memest gpt2-mini "${mini[@]}" --disk-bandwidth $disk --recompute auto:${fit}B --threads 1 --json >$disk.json
        dt-train "${opts[@]}" "${mini[@]}" --disk-bandwidth $disk --recompute auto:${fit}B --save b >b.jsonl 2>err
        same
        [ "$(jq -s '.[1].peak_bytes' b.jsonl)" -eq "$(jq .peak_bytes $disk.json)" ]
        [ "$(jq .peak_bytes $disk.json)" -le "$fit" ]
        # bytes written are those offloaded per microbatch
        [ "$(jq -s '.[1].offload_written_bytes' b.jsonl)" -eq $((2 * $(jq .disk_bytes $disk.json))) ]
    done
    grep -q -e "--recompute auto offloads the activations of 0 of 6 layers" err
    [ "$(jq .disk_bytes 0.001.json)" -eq 0 ]
    [ "$(jq .disk_bytes 1000.json)" -gt 0 ]
    # with enough room nothing is written
    [ "$(dt-memest gpt2-mini "${mini[@]}" --recompute auto:1GiB --json | jq .disk_bytes)" -eq 0 ]
    run dt-train "${opts[@]}" "${mini[@]}" --recompute auto:1MiB
    [ "$status" -eq 3 ]
    [[ $output == *"at least"* ]]
}

@test "with activations in a file longer sequences fit into the same memory" {
    peak() { dt-memest gpt2-1558m --json "$@" | jq .peak_bytes; }
    [ "$(peak --seq 1024 --microbatch 8 --offload activations --offload-to disk)" -lt \
        "$(peak --seq 1024 --microbatch 4)" ]
    run dt-memest gpt2-1558m --offload activations --offload-to disk --layout pp2
    [[ $output == *"dt-train cannot run this yet"* || $output == *"need --account dt"* ]]
}

emulated() {
    dt-train-emulated --device cuda "$@"
}

need_emulation() {
    PATH=$DT_HELP:$PATH
    command -v dt-train-emulated >/dev/null || skip "no C++ compiler, no emulated card"
}

@test "offload from a GPU to host or file: bit-equal, whatever the delay of its queues, on layouts" {
    need_emulation
    local larger="--model gpt2-mini --seq 64 --global-batch 2 --steps 2" queues=mixed
    export LD_LIBRARY_PATH=$DT_FAKE_NCCL_DIR DT_EMULATED_CARDS=2
    one_of 6 "1:disk:sw:all:--precision bf16" "1:host:optimizer:--precision bf16 --clip 0" \
        "1:host:optimizer,activations:$larger --precision bf16" "1:disk:sw:weights:--no-master --precision bf16 --offload-fraction 40%" \
        "2:disk:sw:optimizer:--layout dp2 --clip 0" "1:disk:sw:activations:$larger" "2:host:all:--precision bf16 --layout dp2.z3" \
        "2:host:all:--layout pp2 --precision bf16" "2:host:all,activations:--layout tp2.s1 $larger" \
        "1:host:optimizer:--precision fp32 --optimizer momentum --offload-fraction 30%" "2:host:weights:--layout dp2.z2"
    for run in "${some[@]}"; do
        rm -rf a b
        read -r n to what opts <<<"$(sed -E 's/^([0-9]):(host|disk:sw):([^:]*):/\1 \2 \3 /' <<<"$run")"
        # shellcheck disable=SC2086
        mpirun -np "$n" dt-train-emulated --device cuda "${common[@]}" --global-batch 2 --steps 2 ${opts/--offload-fraction [0-9]*%/} --save a >a.jsonl
        # shellcheck disable=SC2086
        queues=$([ $queues = late ] && echo mixed || echo late) # kernels/cuda/emulate/queue.h
        DT_EMULATED_QUEUES=$queues mpirun -np "$n" dt-train-emulated --device cuda "${common[@]}" --global-batch 2 --steps 2 $opts \
            --offload "$what" --offload-to "$to" --save b >b.jsonl
        same || { echo "$run"; return 1; }
        jq -se '.[1] | .offload_read_bytes > 0 and .offload_written_bytes > 0' b.jsonl
        [ -z "$(ls sw)" ]
    done
}

@test "offloaded from a GPU: exact plan, evaluation, resume, a flipped bit (rollback: DT_SLOW=1)" {
    need_emulation
    dt-memest gpt2-tiny --seq 32 --offload all --json >plan.json
    emulated "${common[@]}" --offload all --global-batch 1 --steps 2 >m.jsonl
    [ "$(jq .peak_bytes plan.json)" -eq "$(jq -s '.[0].peak_bytes' m.jsonl)" ]
    jq -se '.[0].disk_bytes == 0 and .[0].host_bytes > .[2].offload_written_bytes and
        .[2].offload_written_bytes >= 14 * .[0].params' plan.json m.jsonl
    opts=("${common[@]}" --global-batch 1 --precision bf16 --steps 4 --eval-data d.h5 --eval-every 2 --eval-tokens 256)
    flip=(--inject "flip:step=2,element=5000")
    emulated "${opts[@]}" "${flip[@]}" --save a >a.jsonl
    emulated "${opts[@]}" "${flip[@]}" --offload all --save b --save-every 2 >b.jsonl 2>err
    same
    grep -q "of optimizer states and weights per rank to the host's memory" err
    diff <(jq -c '[.step, .eval_loss]' a.jsonl) <(jq -c '[.step, .eval_loss]' b.jsonl)
    rm -rf b/step-00000004
    emulated "${opts[@]}" --offload optimizer --save b --resume auto >b.jsonl
    dt-shard-ckpt diff a b >/dev/null
    dt-train "${common[@]}" --global-batch 1 --precision bf16 --steps 5 --save b --resume auto >b.jsonl
    jq -es '.[-1].step == 5' b.jsonl
    slow || return 0
    rm -rf a b
    opts=("${common[@]}" --global-batch 1 --steps 24 --save-every 4 --inject spike:step=18 --on-spike rollback:4 --spike-window 8)
    emulated "${opts[@]}" --save a >a.jsonl 2>err
    grep -q "back to step" err
    emulated "${opts[@]}" --offload optimizer --save b >b.jsonl
    same
}

@test "offloaded from a GPU to a file: a disk that fails or changes data is detected before values are used" {
    need_emulation
    emulated "${common[@]}" --precision bf16 --steps 4 --save a >/dev/null
    one_of 3 scratch-pread:40:change scratch-pread:9:5 scratch-pwrite:30:28
    for fault in "${some[@]}"; do
        rm -rf b
        run faulty $fault dt-train-emulated --device cuda "${common[@]}" --precision bf16 "${away[@]}" --steps 4 --save b --save-every 1
        [ "$status" -eq 1 ]
        case $fault in
        *change) [[ $output == *"optimizer states is not as it was written: the file in 'sw' was changed"* ]] ;;
        *) [[ $output == *"of the file in 'sw': "* ]] ;;
        esac
        [[ $output == *"--resume auto continues"* ]]
        emulated "${common[@]}" --precision bf16 "${away[@]}" --steps 4 --save b --resume auto >/dev/null
        dt-shard-ckpt diff a b >/dev/null
    done
}
# SPDX-License-Identifier: Apache-2.0
