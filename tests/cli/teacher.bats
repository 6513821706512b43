#!/usr/bin/env bats
# Distillation: dt-eval teacher stores what training would compute; every layout learns the same; memory plans
# are exact.

bats_require_minimum_version 1.5.0
load ranks
load server

setup_file() {
    on_ranks
    licence_set
    tiny_models 257
    head -c 6000 text.txt | split -l 8 - doc-
    dt-dataset build --tokenizer byte --pack documents --out apart.h5 doc-*
    for data in d apart; do
        dt-train --data $data.h5 --model llama.json --seq 32 --microbatch 4 --global-batch 16 --steps 10 --lr 5e-3 \
            --no-mfu --threads 1 --save $data.run >/dev/null 2>&1
        dt-eval teacher $data.h5 $data.run/latest --seq 32 --precision fp32 --top-k 24 --temperature 2 --out $data.teacher >&2
    done
}

setup() {
    in_folder
    server=
    common=(--model llama.json --data d.h5 --seq 32 --microbatch 1 --global-batch 8 --lr 1e-3 --warmup 5
        --precision fp32 --no-mfu --threads 1 --comm-timeout 120)
}

metrics() { # KEYS OPTION...: values of the steps of a run
    dt-train "${common[@]}" --metrics - "${@:2}" 2>/dev/null | jq -c "select(.loss) | $1"
}

# deaf URL: a proxy in front of a dt-serve that does not support a temperature for prompt_logprobs; prints its
# own URL
deaf() {
    exec python3 - "$1" <<'PY'
import http.server, json, sys, urllib.request
class Proxy(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        with urllib.request.urlopen(urllib.request.Request(sys.argv[1] + self.path, body, {"Content-Type": "application/json"})) as r:
            reply = r.read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)
    def do_GET(self):
        self.answer(None)
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body.pop("prompt_logprobs_temperature", None)
        self.answer(json.dumps(body).encode())
    def log_message(self, *_):
        pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
print(f"http://127.0.0.1:{s.server_port}", flush=True)
s.serve_forever()
PY
}

@test "dt-eval does not overwrite its inputs" {
    cp d.h5 kept.h5
    run -2 dt-eval teacher kept.h5 d.run/latest --seq 32 --out ./kept.h5
    [[ $output == *"--out would overwrite the input 'kept.h5'"* ]]
    cmp d.h5 kept.h5
    echo '{"query": "a", "choices": ["b", "c"], "gold": 0}' >task.jsonl
    cp task.jsonl before.jsonl
    run -2 dt-eval task task.jsonl d.run/latest --predictions task.jsonl
    [[ $output == *"--predictions would overwrite the input 'task.jsonl'"* ]]
    cmp task.jsonl before.jsonl
}

@test "a teacher that cannot be written is one line and status 1, and leaves nothing" {
    # shellcheck disable=SC2016 # for the inner shell
    run -1 --separate-stderr bash -c 'ulimit -f 4; trap "" XFSZ; exec dt-eval teacher d.h5 d.run/latest --seq 32 \
        --top-k 24 --threads 1 --out large.teacher'
    [ "$stderr" = "dt-eval: cannot write 'large.teacher': File too large" ]
    run ! compgen -G 'large.teacher*'
}

@test "a model that is its own teacher has a loss of 0" {
    for data in d apart; do
        metrics '[.loss, .ce, .teacher_kl, .grad_norm]' --model $data.run/latest --data $data.h5 --steps 2 --lr 0 \
            --weight-decay 0 --teacher $data.teacher --teacher-weight 1 >self
        jq -se 'length == 2 and all(.[]; .[2] < 1e-6 and .[2] > -1e-6 and (.[0] - 4 * .[2] | fabs) < 1e-9
            and .[1] > 1 and .[3] < 1e-3)' self >/dev/null || { cat self >&2; return 1; }
    done
}

@test "the loss is a mixture of both terms, and weight 0 is the cross-entropy" {
    metrics '[.loss, .ce, .teacher_kl]' --steps 1 --teacher d.teacher --teacher-weight 0.25 |
        jq -e '.[2] > 0.01 and (.[0] - 0.75 * .[1] - 0.25 * 4 * .[2] | fabs) < 1e-9' >&2
    metrics .loss --steps 3 >plain
    metrics .loss --steps 3 --teacher d.teacher --teacher-weight 0 >none
    paste plain none | jq -se '[range(0; length; 2) as $i | (.[$i] - .[$i + 1] | fabs) < 1e-6] | length == 3 and all' >&2
    metrics .teacher_kl --steps 1 --teacher d.teacher --teacher-top-k 4 >fewer
    metrics .teacher_kl --steps 1 --teacher d.teacher >all
    # more stored outcomes give a larger divergence, as merged outcomes hide differences
    jq -se '.[0] < .[1]' fewer all >&2
}

@test "layouts train the same" {
    takes_long
    dt-train verify --layouts "dp1,$(every 2 tp4.s1,dp2.z3,cp2,dp2.tp2.pp2.z2)" "${common[@]}" --steps 5 --teacher d.teacher >&2
    dt-train verify --layouts "dp1,$(every 2 pp2,tp2,cp2)" "${common[@]}" --data apart.h5 --steps 5 --loss-chunk 7 \
        --teacher apart.teacher --teacher-weight 0.8 --teacher-top-k 9 >&2
    dt-train verify --layouts dp1,tp2 "${common[@]}" --steps 5 --lora 4 --teacher d.teacher >&2
}

@test "the teacher file does not depend on ranks" {
    mpirun -np 3 dt-eval teacher apart.h5 apart.run/latest --seq 32 --precision fp32 --top-k 24 --temperature 2 \
        --out three.teacher >&2
    cmp three.teacher apart.teacher
}

@test "a teacher behind a server gives the same targets" {
    served() { # MODEL OPTION...
        await dt-serve "$1" --precision fp32 --threads 1 --port 0 --max-model-len 64 "${@:2}"
    }
    local data temperature=1
    for data in d apart; do
        served $data.run/latest --max-num-batched-tokens 32 --max-num-seqs 4
        dt-eval teacher $data.h5 "$url" --seq 32 --top-k 24 --temperature $temperature --parallel 3 --json --out asked-$data.teacher >asked
        kill "$server"
        wait "$server" || true
        dt-eval teacher $data.h5 $data.run/latest --seq 32 --precision fp32 --top-k 24 --temperature $temperature --json --out own-$data.teacher >own
        jq -se '.[0].samples == .[1].samples and .[0].tokens == .[1].tokens and .[0].seq == 32 and .[0].top_k == 24
            and (.[0].named - .[1].named | fabs) < 1e-6 and (.[0].entropy - .[1].entropy | fabs) < 1e-5' asked own >&2
        for how in asked own; do
            metrics '[.loss, .ce, .teacher_kl, .grad_norm]' --data $data.h5 --steps 3 --teacher $how-$data.teacher \
                --teacher-weight 0.8 --lr 5e-3
        done | jq -se '[range(3) as $i | range(4) as $k | (.[$i][$k] - .[$i + 3][$k] | fabs) < 2e-6] | length == 12 and all' >&2
        temperature=2.5
    done
    # a server that lacks what is needed is reported
    served d.run/latest
    deaf "$url" >deaf.port 3>&- &
    local proxy=$!
    until [ -s deaf.port ]; do sleep 0.05; done
    run --separate-stderr dt-eval teacher d.h5 "$(cat deaf.port)" --seq 32 --top-k 24 --temperature 2 --out no.teacher
    kill "$proxy"
    [ "$status" -eq 1 ] && [[ $stderr == *'at temperature 1, not 2'* ]]
    run --separate-stderr dt-eval teacher d.h5 "$url" --seq 63 --out no.teacher
    [ "$status" -eq 1 ] && [[ $stderr == *'context length is 64'* ]]
    run --separate-stderr dt-eval teacher d.h5 "$url" --seq 32 --top-k 200 --out no.teacher
    [ "$status" -eq 1 ] && [[ $stderr == *prompt_logprobs* ]]
    dt-tokenize train --vocab 270 --out tok.json text.txt
    dt-dataset build --tokenizer tok.json --out other.h5 text.txt >&2
    run --separate-stderr dt-eval teacher other.h5 "$url" --seq 32 --out no.teacher
    [ "$status" -eq 1 ] && [[ $stderr == *'different tokenizers'* ]]
    ask='{prompt: "abc", max_tokens: 1, temperature: 0}'
    jq -nc "$ask + {prompt_logprobs_temperature: 2}" | curl -s -d @- "$url/v1/completions" | jq -e '.error.message | test("needs")'
    jq -nc "$ask + {prompt_logprobs: 2}" | curl -s -d @- "$url/v1/completions" >reply
    jq -e '.choices[0].prompt_logprobs | .[0] == null and length == 3 and
        all(.[1:][]; ([.[].rank] | sort | .[:2] == [1, 2] and all(type == "number")) and (.[] | .decoded_token, .logprob))' reply
    jq -nc "$ask + {prompt_logprobs: 2, stream: true}" | curl -s -d @- "$url/v1/completions" | jq -e '.error.message | test("cannot be combined")'
    [ ! -e no.teacher ]
}

@test "the memory plan is exact" {
    for layout in dp1 tp2 pp2; do
        mpirun -np "$([ $layout = dp1 ] && echo 1 || echo 2)" dt-train "${common[@]}" --layout $layout --steps 1 \
            --teacher d.teacher --metrics m.jsonl 2>err || { cat err; return 1; }
        dt-memest llama.json --layout $layout --microbatch 1 --global-batch 8 --seq 32 --precision fp32 \
            --teacher-top-k 24 --check m.jsonl
    done
    dt-memest llama.json --seq 32 --json --teacher-top-k 24 >with
    dt-memest llama.json --seq 32 --json >without
    ! cmp -s with without
}

@test "a run resumes with its teacher" {
    metrics '[.loss, .ce, .teacher_kl]' --steps 4 --teacher d.teacher --teacher-weight 0.7 >whole
    dt-train "${common[@]}" --steps 4 --stop-at 2 --teacher d.teacher --teacher-weight 0.7 --save part >/dev/null 2>&1
    metrics '[.loss, .ce, .teacher_kl]' --steps 4 --resume part/latest >rest
    [ "$(tail -n 2 whole)" = "$(cat rest)" ]
    train_refused 1 'teacher-weight' --steps 4 --resume part/latest --teacher-weight 0.2
}

@test "incompatible options are refused" {
    train_refused 1 'not made from' --data apart.h5 --documents joined --teacher d.teacher
    train_refused 1 'samples of 32 tokens, not 16' --seq 16 --teacher d.teacher
    train_refused 1 'documents apart' --data apart.h5 --documents joined --teacher apart.teacher
    train_refused 1 'not a file of teacher log-probabilities' --teacher d.h5
    train_refused 1 'has only the top 24' --teacher d.teacher --teacher-top-k 25
    train_refused 2 '--teacher-top-k requires --teacher' --teacher-top-k 4
    train_refused 1 'for one data set' --data d.h5:1,apart.h5:1 --teacher d.teacher
    train_refused 2 'another --objective' --teacher d.teacher --objective dpo --lora 2
    run --separate-stderr dt-eval teacher d.h5 d.run/latest --out x.teacher
    [ "$status" -eq 1 ] && [[ $stderr == *'give --seq'* ]]
    run --separate-stderr dt-eval teacher d.h5 d.run/latest --seq 32
    [ "$status" -eq 2 ] && [[ $stderr == *'needs --out'* ]]
    [ ! -e x.teacher ]
}
# SPDX-License-Identifier: Apache-2.0
