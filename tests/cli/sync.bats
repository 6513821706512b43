#!/usr/bin/env bats
# --sync: ranks that train independently between merges; equivalence with the synchronous run, checkpoints,
# refusals; and learning rates that depend on the batch size.

bats_require_minimum_version 1.5.0
load ranks

setup_file() {
    on_ranks
    licence_set
}

setup() {
    in_folder
    opts=(--model gpt2-tiny --data d.h5 --seq 32 --microbatch 1 --global-batch 4 --precision fp32 --no-mfu --threads 1
        --comm-timeout 120 --schedule constant)
}

same() { # FILE FILE: losses of all steps agree to 1e-6
    jq -es --slurpfile b "$2" '[., $b] | map(map(select(.loss).loss)) | transpose | length > 5 and
        all((.[0] - .[1]) / .[0] | . < 1e-6 and . > -1e-6)' "$1"
}

@test "local:1, and diloco:1 with a trivial outer step, equal the synchronous run" {
    local plain=(--steps 8 --optimizer momentum --lr 0.05 --clip 0)
    train 2 all.jsonl --layout dp2 "${plain[@]}"
    train 2 local.jsonl --layout dp2 "${plain[@]}" --sync local:1
    train 2 diloco.jsonl --layout dp2 "${plain[@]}" --sync diloco:1 --outer-lr 1 --outer-momentum 0
    same all.jsonl local.jsonl
    same all.jsonl diloco.jsonl
    jq -es 'all(.merged)' diloco.jsonl
    # --sync-from: earlier steps are synchronous
    train 2 later.jsonl --layout dp2 "${plain[@]}" --sync diloco:2 --sync-from 6
    jq -es --slurpfile b all.jsonl '[.[0:6], $b[0:6]] | map(map(.loss)) | .[0] == .[1]' later.jsonl
    jq -es --slurpfile b all.jsonl '.[7].loss != $b[7].loss and (map(.merged) == [true, true, true, true, true, true, false, true])' later.jsonl
    # with longer intervals the run differs
    train 2 four.jsonl --layout dp2 "${plain[@]}" --sync local:4
    run same all.jsonl four.jsonl
    [ "$status" -ne 0 ]
    [ "$(jq -c .merged four.jsonl | tr '\n' ' ')" = "false false false true false false false true " ]
    grep -q "train alone for 4 steps" four.jsonl.err
}

@test "gossip on a ring of three ranks equals the synchronous run, on one of four only its first step" {
    local plain=(--steps 8 --optimizer momentum --lr 0.05 --clip 0)
    train 3 all3.jsonl --layout dp3 "${plain[@]}" --global-batch 3
    train 3 gossip3.jsonl --layout dp3 "${plain[@]}" --global-batch 3 --sync gossip
    same all3.jsonl gossip3.jsonl
    train 4 all4.jsonl --layout dp4 "${plain[@]}"
    train 4 gossip4.jsonl --layout dp4 "${plain[@]}" --save gossip4 --sync gossip --save-every 1 --stop-at 1
    grep -q "each of 4 data-parallel ranks averages its weights with those of its two neighbours" gossip4.jsonl.err
    # a checkpoint holds the mean of all ranks' weights, after one step that of synchronous training
    train 4 one4.jsonl --layout dp4 "${plain[@]}" --save one4 --save-every 1 --stop-at 1
    dt-shard-ckpt diff --tolerance 1e-6 one4/step-00000001 gossip4/step-00000001
    train 4 ring4.jsonl --layout dp4 "${plain[@]}" --sync gossip
    jq -es 'map(.merged) == [false, false, false, false, false, false, false, true]' ring4.jsonl
    run same all4.jsonl ring4.jsonl
    [ "$status" -ne 0 ]
    # losses stay near the synchronous run's: averaging with neighbours keeps ranks close
    jq -es --slurpfile b all4.jsonl '(.[-1].loss - $b[-1].loss) / $b[-1].loss | . < 0.05 and . > -0.05' ring4.jsonl
}

@test "tensor-parallel ranks stay in sync while data-parallel ranks train independently" {
    local plain=(--steps 8 --lr 3e-3 --sync diloco:3)
    train 2 dp2.jsonl --layout dp2 "${plain[@]}"
    train 4 tp2.jsonl --layout dp2.tp2 "${plain[@]}"
    same dp2.jsonl tp2.jsonl
}

@test "diloco resumes from a checkpoint as if it had not stopped, outer momentum included" {
    local plain=(--layout dp2 --lr 3e-3 --sync diloco:4 --save-every 6)
    train 2 a.jsonl "${plain[@]}" --steps 12 --save a
    train 2 b.jsonl "${plain[@]}" --steps 12 --save b --save-async
    rm -r b/step-00000012 b/latest
    train 2 b.jsonl "${plain[@]}" --steps 12 --save b --resume auto
    dt-shard-ckpt diff a/step-00000012 b/step-00000012
    dt-shard-ckpt ls a/step-00000012 | grep -q outer
}

@test "diloco with fragments, delay and fewer bits: near diloco, exact resume, exact memory plan" {
    local plain=(--layout dp2 --lr 3e-3 --sync diloco:4 --steps 12)
    train 2 whole.jsonl "${plain[@]}"
    # two fragments: each is merged every four steps, and all at the end
    train 2 parts.jsonl "${plain[@]}" --outer-fragments 2
    jq -es 'map(.merged) | .[:-1] == [range(11) | false] and .[-1]' parts.jsonl
    # sending from a buffer of its own (bf16) and sending in place give the same, if the outer step is zero
    train 2 trivial.jsonl "${plain[@]}" --outer-comm bf16 --outer-lr 0 --outer-momentum 0
    train 2 nothing.jsonl "${plain[@]}" --outer-lr 0 --outer-momentum 0
    same trivial.jsonl nothing.jsonl
    # until the delay is over, ranks use their own weights
    train 2 later.jsonl "${plain[@]}" --outer-delay 2 --outer-mix 0.5
    cmp <(jq .loss whole.jsonl | head -4) <(jq .loss later.jsonl | head -4)
    run same whole.jsonl later.jsonl
    [ "$status" -ne 0 ]
    one_of 4 "--outer-fragments 2 --outer-delay 1 --outer-comm e3m0" "--outer-comm bf16" "--outer-delay 1 --outer-mix 0.5" "--outer-comm e3m0"
    for how in "${some[@]}"; do
        eval "how=($how)"
        train 2 a.jsonl "${plain[@]}" "${how[@]}" --save fa --save-every 7
        jq -es --slurpfile w whole.jsonl '(.[-1].loss - $w[-1].loss) / $w[-1].loss | fabs < 0.03' a.jsonl
        train 2 b.jsonl "${plain[@]}" "${how[@]}" --save fb --save-every 7
        rm -r fb/step-00000012 fb/latest
        train 2 b.jsonl "${plain[@]}" "${how[@]}" --save fb --save-every 7 --resume auto
        dt-shard-ckpt diff fa/step-00000012 fb/step-00000012
        rm -r fa fb
        memory=("${how[@]}")
        [ "${how[-2]}" != --outer-mix ] || memory=("${how[@]:0:2}") # this option needs no memory
        peak=$(dt-memest gpt2-tiny --vocab 257 --precision fp32 --seq 32 --microbatch 1 --global-batch 4 --layout dp2 \
            --sync diloco:4 "${memory[@]}" --threads 1 --json | jq .peak_bytes)
        train 2 fits.jsonl "${plain[@]}" "${how[@]}" --steps 1 --mem-limit "${peak}B"
        run train 2 over.jsonl "${plain[@]}" "${how[@]}" --steps 1 --mem-limit $((peak - 1))B
        [ "$status" -ne 0 ]
        grep -q "the plan needs $peak bytes" over.jsonl.err
    done
    # tensor-parallel ranks stay equal
    local last=(--lr 3e-3 --sync diloco:4 --steps 8 --outer-fragments 2 --outer-delay 1)
    train 2 dp2.jsonl --layout dp2 "${last[@]}"
    train 4 tp2.jsonl --layout dp2.tp2 "${last[@]}"
    same dp2.jsonl tp2.jsonl
    # stages of a pipeline merge each unit in the same step, and round both copies of the embedding alike
    last+=(--outer-comm e3m0)
    train 2 dp2.jsonl --layout dp2 "${last[@]}"
    train 4 pp2.jsonl --layout dp2.pp2 "${last[@]}"
    same dp2.jsonl pp2.jsonl
}

@test "diloco that ends while outer gradients are in transit takes their step, and no second one" {
    local plain=(--layout dp2 --lr 0.1 --optimizer sgd --sync diloco:4)
    rm -rf a b
    train 2 a.jsonl "${plain[@]}" --steps 4 --save a
    # the fifth step is learned during the delay, and discarded
    train 2 b.jsonl "${plain[@]}" --steps 5 --outer-delay 2 --save b
    dt-shard-ckpt diff --tolerance 0 a b
    # part of it is kept, and merged by a second step
    rm -rf b
    train 2 b.jsonl "${plain[@]}" --steps 5 --outer-delay 2 --outer-mix 0.5 --save b
    run dt-shard-ckpt diff --tolerance 0 a b
    [ "$status" -eq 3 ]
}

@test "lost outer gradients: the mean of the others is used, and checkpoints are complete" {
    local plain=(--layout dp4 --lr 3e-3 --sync diloco:2 --steps 8)
    train 4 all.jsonl "${plain[@]}"
    train 4 one.jsonl "${plain[@]}" --inject drop:rank=1,step=4,steps=1,factor=1
    cmp <(jq .loss all.jsonl | head -4) <(jq .loss one.jsonl | head -4)
    run cmp <(jq .loss all.jsonl) <(jq .loss one.jsonl)
    [ "$status" -ne 0 ]
    jq -es 'map(.merged) == [false, true, false, true, false, true, false, true]' one.jsonl
    # all outer gradients lost: like independent training, except for the last merge
    train 4 none.jsonl "${plain[@]}" --inject drop:factor=1
    train 4 alone.jsonl "${plain[@]}" --sync diloco:100
    cmp <(jq -c '[.loss, .grad_norm]' none.jsonl) <(jq -c '[.loss, .grad_norm]' alone.jsonl)
    train 4 half.jsonl "${plain[@]}" --inject drop --save half
    dt-shard-ckpt verify half/latest
}

@test "diloco on a text of books: within 2% of the synchronous loss, with 4 bits and delay too" {
    slow || skip "takes minutes; DT_SLOW=1"
    [ -r "${DT_TEST_DATA:-}/books/books-train.txt.xz" ] || skip "no books in DT_TEST_DATA"
    xzcat "$DT_TEST_DATA/books/books-train.txt.xz" | head -c 9000000 >books.txt || true
    dt-dataset build --tokenizer byte --out books.h5 <(head -c 8500000 books.txt)
    dt-dataset build --tokenizer byte --out held.h5 <(tail -c 500000 books.txt)
    held() { # OPTION...: loss on held-out text
        mpirun -np 4 dt-train --model gpt2-tiny --data books.h5 --eval-data held.h5 --eval-tokens 65536 --seq 128 --microbatch 4 \
            --steps 1500 --threads 1 --no-mfu --lr 1e-3 --precision fp32 --layout dp4 "$@" | jq -s 'map(.eval_loss // empty) | last'
    }
    all=$(held)
    diloco=$(held --sync diloco:50 --sync-from 500)
    for less in "$diloco" "$(held --sync diloco:50 --sync-from 500 --outer-comm e3m0)" \
        "$(held --sync diloco:50 --sync-from 500 --outer-fragments 3)" "$(held --sync diloco:50 --sync-from 500 --outer-delay 3)"; do
        jq -en --argjson a "$all" --argjson b "$less" '$b < 1.02 * $a'
    done
    jq -en --argjson a "$diloco" --argjson b "$(held --sync diloco:50 --sync-from 500 --inject drop)" '$b < 1.03 * $a'
}

@test "backup:0 equals the synchronous run; a rank that sleeps is dropped from each step with its samples" {
    local plain=(--steps 8 --optimizer momentum --lr 0.05 --clip 0 --layout dp2)
    train 2 all2.jsonl "${plain[@]}"
    train 2 backup0.jsonl "${plain[@]}" --sync backup:0
    same all2.jsonl backup0.jsonl
    jq -es 'all(.dropped_ranks == 0 and .dropped_samples == 0)' backup0.jsonl
    # rank 1 sleeps until it learns that rank 0 has finished the step
    train 2 backup1.jsonl "${plain[@]}" --sync backup:1 --inject slow:rank=1,seconds=600
    jq -es 'length == 8 and all(.dropped_ranks == 1 and .dropped_samples == 2)' backup1.jsonl
    [ "$(jq -s '.[-1].tokens' backup1.jsonl)" = $((8 * 2 * 32)) ]
    grep -q "a step uses the gradients of the first 1 of 2 data-parallel ranks" backup1.jsonl.err
    grep -q "ranks were dropped from 8 steps, with 16 samples" backup1.jsonl.err
}

@test "a step whose other rank was dropped equals a step on the remaining rank's samples alone" {
    local plain=(--optimizer momentum --lr 0.05 --clip 0.1 --layout dp2 --global-batch 2 --steps 8)
    train 2 kept.jsonl "${plain[@]}" --sync backup:1 --inject slow:rank=1,seconds=600 --save kept --save-every 1 --stop-at 1
    train 1 alone.jsonl "${plain[@]}" --layout dp1 --global-batch 1 --save alone --save-every 1 --stop-at 1
    dt-shard-ckpt diff --tolerance 1e-6 kept/step-00000001 alone/step-00000001
    jq -es '.[0].loss - .[1].loss | . < 1e-5 and . > -1e-5' kept.jsonl alone.jsonl
    # rank 0 has the other half of the second step's samples
    train 2 kept2.jsonl "${plain[@]}" --lr 0 --sync backup:1 --inject slow:rank=1,seconds=600 --stop-at 2
    train 1 alone4.jsonl "${plain[@]}" --lr 0 --layout dp1 --global-batch 1 --stop-at 4
    jq -es --slurpfile b alone4.jsonl 'map(.loss) as $a | ($b | map(.loss)) as $b | [$a[0] - $b[0], $a[1] - $b[3]] |
        all(. < 1e-5 and . > -1e-5)' kept2.jsonl
}

@test "backup with averaged weights, loss spikes, values that are not finite, and compared replicas" {
    takes_long
    local plain=(--optimizer momentum --lr 0.05 --layout dp2)
    # the average of the weights is the same on all ranks
    train 2 ema.jsonl "${plain[@]}" --steps 6 --ema 0.5 --save ema
    train 2 ema0.jsonl "${plain[@]}" --steps 6 --ema 0.5 --save ema0 --sync backup:0
    dt-shard-ckpt diff --tolerance 1e-5 ema/step-00000006 ema0/step-00000006
    dt-shard-ckpt ls ema0/step-00000006 | grep -q ema
    plain+=(--global-batch 2 --clip 0.1 --sync backup:1 --inject "slow:rank=1,seconds=600")
    train 2 one.jsonl "${plain[@]}" --steps 1 --ema 0.5 --save kept1
    train 1 alone.jsonl --optimizer momentum --lr 0.05 --clip 0.1 --layout dp1 --global-batch 1 --steps 1 --ema 0.5 --save alone1
    dt-shard-ckpt diff --tolerance 1e-6 kept1/step-00000001 alone1/step-00000001
    # a spike: its update is skipped, or the run is rolled back
    train 2 skip.jsonl "${plain[@]}" --steps 14 --spike-window 8 --on-spike skip --inject spike:rank=0,step=11,factor=1000
    grep -q "step 11: spike: .*" skip.jsonl.err
    jq -es 'map(select(.step)) | length == 14 and all(.dropped_ranks == 1) and .[13].loss < 10 and
        (map(select(.skipped != null)) | map(.step)) == [11]' skip.jsonl
    train 2 back.jsonl "${plain[@]}" --steps 14 --spike-window 8 --on-spike rollback:2 --inject spike:rank=0,step=11,factor=1000 \
        --save back --save-every 2
    grep -q "step 11: rolled back to step 8; the samples in between are skipped" back.jsonl.err
    jq -es '.[-1].step == 14 and .[-1].loss < 10' back.jsonl
    dt-shard-ckpt verify back/latest
    # values not finite on a dropped rank are ignored; on the other one the step is skipped, or the run ends
    train 2 lost.jsonl "${plain[@]}" --steps 8 --inject nan:rank=1,step=6
    jq -es 'length == 8 and all(.loss > 0)' lost.jsonl
    train 2 nan.jsonl "${plain[@]}" --steps 8 --inject nan:rank=0,step=6 --nan-skips 1
    grep -q "step 6: loss or gradient is not finite, update skipped" nan.jsonl.err
    run -1 train 2 nan.jsonl "${plain[@]}" --steps 8 --inject nan:rank=0,step=6
    [[ $output == *"rank 0: step 6: the loss is not finite on this rank"* ]]
    # weights are equal on all ranks; a rank with other weights is named
    train 2 alike.jsonl "${plain[@]}" --steps 6 --check-replicas 1
    run -1 train 2 flip.jsonl "${plain[@]}" --steps 8 --check-replicas 1 --inject flip:rank=1,step=6
    [[ $output == *"step 6: weights of 'embed' differ between rank 0 and rank 1"* ]]
}

@test "ssp:0 equals the synchronous run, on any number of ranks; its memory is dt-memest's" {
    local plain=(--steps 8 --optimizer momentum --lr 0.05 --clip 0)
    train 2 all2z.jsonl --layout dp2.z1 "${plain[@]}"
    train 2 ssp2.jsonl --layout dp2.z1 "${plain[@]}" --sync ssp:0
    train 4 ssp4.jsonl --layout dp4.z1 "${plain[@]}" --sync ssp:0
    same all2z.jsonl ssp2.jsonl
    same all2z.jsonl ssp4.jsonl
    jq -es 'length == 8 and all(.staleness_max == 0) and .[-1].tokens == 8 * 4 * 32' ssp4.jsonl
    # the first rank's own gradients have the norms that they have in local:1, whose weights are the same
    train 2 local2.jsonl --layout dp2 "${plain[@]}" --sync local:1
    jq -es --slurpfile b local2.jsonl '[., $b] | map(map(.grad_norm)) | transpose |
        all((.[0] - .[1]) / .[1] | . < 1e-5 and . > -1e-5)' ssp2.jsonl
    train 2 ssp3.jsonl --layout dp2.z1 "${plain[@]}" --sync ssp:3
    dt-memest gpt2-tiny --layout dp2.z1 --seq 32 --microbatch 1 --global-batch 4 --precision fp32 --optimizer momentum \
        --sync ssp:3 --check ssp3.jsonl
}

@test "ssp resumes from a checkpoint as if it had not stopped, and a signal ends it between two steps" {
    local plain=(--layout dp2.z1 --lr 3e-3 --clip 0 --sync ssp:0 --save-every 6 --steps 12)
    train 2 sa.jsonl "${plain[@]}" --save sa
    train 2 sb.jsonl "${plain[@]}" --save sb --save-async
    rm -r sb/step-00000012 sb/latest
    train 2 sb.jsonl "${plain[@]}" --save sb --resume auto
    dt-shard-ckpt diff sa/step-00000012 sb/step-00000012
    mpirun -np 2 dt-train "${opts[@]}" "${plain[@]}" --steps 100000000 --sync async --save sc --save-every 100000000 --metrics sc.jsonl 2>sc.err &
    pid=$!
    for _ in $(seq 1200); do [ ! -s sc.jsonl ] || break; sleep 0.05; done
    kill -USR1 $pid
    wait $pid && return 1
    grep -q "stopped by a signal after step .*, checkpoint saved" sc.err
    dt-shard-ckpt verify "sc/$(cat sc/latest)"
    [ "$(jq -s 'map(select(.loss))[-1].tokens' sc.jsonl)" = $(($(jq -s 'map(select(.loss))[-1].step' sc.jsonl) * 4 * 32)) ]
}

@test "a rank is at most S steps ahead of the slowest" {
    takes_long
    train 2 ahead.jsonl --layout dp2.z1 --steps 30 --lr 1e-3 --sync ssp:2 --inject slow:rank=1,seconds=0.05,start=0
    jq -es 'length == 30 and all(.staleness_max <= 2) and any(.staleness_max == 2)' ahead.jsonl
    # a line has the learning rate and the norm of its own step, not of the step that the first rank has reached
    train 2 linear.jsonl --layout dp2.z1 --steps 12 --schedule linear --sync ssp:2 --inject slow:rank=1,seconds=0.05,start=0
    train 2 all.jsonl --layout dp2.z1 --steps 12 --schedule linear
    jq -es --slurpfile b all.jsonl 'map(.lr) == ($b | map(.lr)) and (map(.grad_norm) | unique | length) == 12' linear.jsonl
    grep -q "a rank may be 2 steps ahead of the slowest" ahead.jsonl.err
    # a rank that stands still is named by the ones that wait for it
    run ! mpirun -np 2 dt-train "${opts[@]}" --layout dp2.z1 --steps 30 --sync ssp:2 --comm-timeout 5 --inject stop:rank=1,step=5
    [[ $output == *"data-parallel rank 1 is at step 4, 3 behind, and made no progress for 5 s"* ]]
}

@test "async and hogwild: idle ranks take the next part, every sample is used once, and the loss falls" {
    local plain=(--layout dp2.z1 --steps 60 --lr 1e-3)
    one_of 2 hogwild async "async --staleness-rate --delay-compensation 0.04"
    for sync in "${some[@]}"; do
        # shellcheck disable=SC2086 # options
        train 2 as.jsonl "${plain[@]}" --sync $sync --inject slow:rank=1,seconds=0.03,start=0
        # the fast rank takes parts of the slow one: several updates happen between the slow rank's read and
        # its gradient
        jq -es 'map(select(.loss)) | .[-1].step == 60 and .[-1].tokens == 60 * 4 * 32 and (map(.staleness_max) | max) > 1 and
            ([.[].step] | . == (. | unique))' as.jsonl
        jq -es 'map(select(.loss)) | (.[-5:] | map(.loss) | add / 5) < .[0].loss - 0.5' as.jsonl
    done
    grep -q "the gradient of each part of the batch is an update at the full learning rate, 2 of them are a step" as.jsonl.err
    # a single rank is never late
    train 1 one.jsonl --layout dp1 --steps 8 --lr 1e-3
    train 1 onea.jsonl --layout dp1.z1 --steps 8 --lr 1e-3 --sync async
    same one.jsonl onea.jsonl
}

@test "unequal shares change no bit of a reproducible run; auto gives a slow rank less" {
    takes_long
    local plain=(--layout dp2 --global-batch 12 --steps 12 --lr 1e-3 --reproducible --save-every 12)
    train 2 equal.jsonl "${plain[@]}" --save equal
    train 2 list.jsonl "${plain[@]}" --save list --shares 3,1
    train 2 auto.jsonl "${plain[@]}" --save auto --shares auto --inject slow:rank=1,seconds=0.2,start=0
    dt-shard-ckpt diff equal/step-00000012 list/step-00000012
    dt-shard-ckpt diff equal/step-00000012 auto/step-00000012
    jq -es 'all(.shares == [9, 3])' list.jsonl
    # the slow rank sleeps independently of its microbatches; with fewer it finishes a little earlier
    jq -es '.[0].shares == [6, 6] and all(.shares | add == 12)' auto.jsonl
    # all computing is three times slower on rank 2; ZeRO-1, a growing batch
    train 3 z1.jsonl --layout dp3.z1 --steps 24 --lr 1e-3 --global-batch 12..24:2304 --shares auto --inject slow:rank=2,factor=6,start=0
    train 1 one.jsonl --layout dp1 --steps 24 --lr 1e-3 --global-batch 12..24:2304
    same one.jsonl z1.jsonl
    jq -es '.[-1].shares | .[2] < .[0] and .[2] < .[1] and add == 24' z1.jsonl
    run -2 mpirun -np 2 dt-train "${opts[@]}" --layout dp2 --steps 1 --shares 1,2,3
    [[ $output == *"--shares '1,2,3' has 3 speeds for 2 data-parallel ranks"* ]]
    run -2 mpirun -np 2 dt-train "${opts[@]}" --layout dp2.z2 --steps 1 --shares auto
    [[ $output == *"--shares auto cannot be combined with z2 and z3"* ]]
}

@test "one data-parallel rank: options that have no effect are reported; diloco takes its outer steps" {
    local plain=(--layout dp1 --steps 8 --optimizer momentum --lr 0.05 --clip 0) o
    train 1 all.jsonl "${plain[@]}"
    for o in "--sync local:2" "--sync gossip" "--sync backup:0" "--shares auto"; do
        # shellcheck disable=SC2086 # words
        train 1 one.jsonl "${plain[@]}" $o
        jq -es --slurpfile b all.jsonl 'map(.loss) == ($b | map(.loss))' one.jsonl
        grep -q -e "$o has no effect: there is one data-parallel rank" one.jsonl.err
        [ "$(grep -c -e "${o%% *}" one.jsonl.err)" -eq 1 ]
    done
    train 1 one.jsonl "${plain[@]}" --sync diloco:2
    grep -q "diloco:2: one data-parallel rank takes an outer Nesterov step by the change of its weights every 2 steps" one.jsonl.err
    jq -es --slurpfile b all.jsonl '.[1].loss == $b[1].loss and .[2].loss != $b[2].loss' one.jsonl
}

@test "unsupported combinations are refused by name" {
    # ranks | options | text of the message; a run with servers cannot start with --sync-from
    one_of 3 "2|--layout dp2.z1 --sync local:2|--sync local:2 cannot be combined with ZeRO" \
        "1|--sync local:2 --optimizer muon|states are not one value per parameter" \
        "1|--sync local:0|not one of all, local:STEPS, diloco:STEPS, gossip, backup:RANKS, ssp:STEPS (at most 64), async, hogwild" \
        "2|--layout dp2 --sync async|--sync async needs ZeRO-1: every rank is the server of its share (--layout dp2.z1)" \
        "2|--layout tp2.z1 --sync ssp:1|--sync ssp:1 cannot be combined with tensor parallelism (tp)" \
        "2|--layout dp2.z1 --sync ssp:1 --sync-from 2|--sync-from requires --sync local, diloco or gossip, not ssp" \
        "2|--layout dp2.z1 --sync async --sync-from 2|--sync-from requires --sync local, diloco or gossip, not async" \
        "2|--layout dp2.z1 --sync hogwild --sync-from 2|--sync-from requires --sync local, diloco or gossip, not hogwild" \
        "2|--layout dp2 --sync backup:1 --sync-from 2|--sync-from requires --sync local, diloco or gossip, not backup" \
        "1|--layout dp1.z1 --sync hogwild --optimizer lamb|cannot be combined with an optimizer that updates whole tensors at once" \
        "1|--layout dp1.z1 --sync ssp:1 --staleness-rate|--staleness-rate and --delay-compensation are for --sync async and hogwild" \
        "1|--layout dp1.z1 --sync async --delay-compensation 1 --precision bf16|needs --precision fp32" \
        "2|--layout dp2 --sync backup:2|--sync backup:2 leaves no rank: dp is 2" \
        "2|--layout dp2.z1 --sync backup:1|--sync backup:1 cannot be combined with ZeRO"
    for each in "${some[@]}"; do
        IFS='|' read -r n args text <<<"$each"
        # shellcheck disable=SC2086 # words
        run -2 mpirun -np "$n" dt-train "${opts[@]}" --steps 4 $args
        [[ $output == *"$text"* ]]
    done
    run -1 mpirun -np 2 dt-train "${opts[@]}" --layout dp2.z1 --steps 1 --sync async --transport mpi --server-comm memory
    [[ $output == *"--server-comm memory needs all ranks on one machine"* ]]
}

@test "the noise scale is measured between ranks, and refused with one rank" {
    train 2 noise.jsonl --layout dp2 --steps 12 --lr 1e-3 --noise-scale
    train 2 plain.jsonl --layout dp2 --steps 12 --lr 1e-3
    same noise.jsonl plain.jsonl
    jq -es '.[-1].noise_scale > 0' noise.jsonl
    grep -q "gradient noise scale: " noise.jsonl.err
    run -2 dt-train "${opts[@]}" --steps 1 --noise-scale
    [[ $output == *"needs at least two data-parallel ranks"* ]]
}

@test "a batch grows with the tokens trained on, on any layout and on resume; the learning rate follows" {
    local grows=(--lr 1e-3 --scale-lr linear:2 --steps 10 --global-batch 2..6:384)
    train 1 one.jsonl "${grows[@]}" --save grows --save-every 6
    [ "$(jq -c '[.global_batch, .tokens, .lr]' one.jsonl | tr '\n' ' ')" = "[2,64,0.001] [2,128,0.001] [2,192,0.001] [4,320,0.002] \
[4,448,0.002] [6,640,0.003] [6,832,0.003] [6,1024,0.003] [6,1216,0.003] [6,1408,0.003] " ]
    train 2 two.jsonl "${grows[@]}" --layout dp2
    train 2 stages.jsonl "${grows[@]}" --layout pp2 --pipeline zb-h1
    same one.jsonl two.jsonl
    same one.jsonl stages.jsonl
    # another layout resumes with the same batches
    train 2 on.jsonl "${grows[@]}" --layout dp2 --resume grows/step-00000006 --save on
    jq -es --slurpfile b one.jsonl '[., $b[6:]] | map(map([.global_batch, .tokens, .lr])) | .[0] == .[1]' on.jsonl
    jq -es --slurpfile b one.jsonl '[., $b[6:]] | map(map(.loss)) | transpose |
        length == 4 and all((.[0] - .[1]) / .[0] | . < 1e-6 and . > -1e-6)' on.jsonl
    grep -q "the global batch grows from 2 samples in increments of 2" one.jsonl.err
    run -2 dt-train "${opts[@]}" --global-batch 2..5:64
    [[ $output == *"5 is not a multiple of 2"* ]]
}

@test "lars with a trust ratio of 1 and momentum correction equals momentum while the rate changes" {
    local falls=(--steps 10 --lr 0.05 --warmup 4 --schedule linear --clip 0)
    train 1 momentum.jsonl "${falls[@]}" --optimizer momentum
    falls+=(--trust 1)
    train 1 lars.jsonl "${falls[@]}" --optimizer lars --momentum-correction --save lars --save-every 5
    same momentum.jsonl lars.jsonl
    train 1 on.jsonl "${falls[@]}" --optimizer lars --momentum-correction --resume lars/step-00000005 --save lars-on
    dt-shard-ckpt diff lars/step-00000010 lars-on/step-00000010
    train 1 plain.jsonl "${falls[@]}" --optimizer lars
    run same momentum.jsonl plain.jsonl
    [ "$status" -ne 0 ]
    run -2 dt-train "${opts[@]}" --optimizer momentum --momentum-correction
    [[ $output == *"--momentum-correction is for lars"* ]]
}

@test "the learning rate follows the batch size" {
    dt-train "${opts[@]}" --steps 2 --lr 1e-3 --scale-lr linear:2 --metrics m.jsonl 2>err
    [ "$(jq -s '.[1].lr' m.jsonl)" = 0.002 ]
    grep -q "peak learning rate 0.002 = 0.001 x 2 for a batch of 4 samples" err
    dt-train "${opts[@]}" --steps 2 --lr 1e-3 --scale-lr sqrt:1 --metrics m.jsonl
    [ "$(jq -s '.[1].lr' m.jsonl)" = 0.002 ]
    run -2 dt-train "${opts[@]}" --steps 2 --scale-lr half:2
    [[ $output == *"neither linear:SAMPLES nor sqrt:SAMPLES"* ]]
}
# SPDX-License-Identifier: Apache-2.0
