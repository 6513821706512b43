# dt-calibrate: a small calibration is complete, dt-plan reads it, and every invalid input is refused.
load slow

setup_file() { # one calibration, which two tests read
	"$DT_BIN/dt-calibrate" --seconds 0.5 --cores 1 --out "$BATS_FILE_TMPDIR/ops.json"
}

setup() {
	calibrate="$DT_BIN/dt-calibrate"
	plan="$DT_BIN/dt-plan"
	cd "$BATS_TEST_TMPDIR" || exit
	unset LC_ALL LANG
}

# refused STATUS TEXT ARGUMENT...: one line on stderr with TEXT, nothing on stdout, this status
refused() {
	local status_wanted=$1 text=$2
	shift 2
	local rc=0
	"$@" >out 2>err </dev/null || rc=$?
	echo "status $rc, stderr: $(cat err)"
	[ "$rc" -eq "$status_wanted" ]
	[ ! -s out ]
	grep -v "^Try 'dt-" err >lines
	[ "$(wc -l <lines)" -eq 1 ]
	grep -qF -- "$text" lines
}

@test "a calibration is complete, in order, and usable for planning" {
	cp "$BATS_FILE_TMPDIR/ops.json" .
	jq -e '.schema == 1 and .cores == 1 and ([.modes[].processes] == [1]) and (.modes[0].ops | length) > 40 and
		([.modes[].ops[] | (.time_s | length) == ([.sizes[] | length] | reduce .[] as $n (1; . * $n))] | all) and
		([.modes[].ops[].time_s[]] | all(. > 0 and . < 10))' ops.json
	! slow || "$calibrate" --seconds 0.5 --cores 2 | jq -e '[.modes[].processes] == [1, 2]'
	"$plan" --gpu cpu --gpus 1 --ops ops.json --seq 64 --json gpt2-tiny | jq -e '.plans[0].step_s | . > 0 and . < 10'
	# the list goes over several lines
	formats=$("$plan" --help | sed -n '/--qat none|/,/quantization-aware/p' | grep '|' | sed 's/.*--qat none|//' | tr '|\n' '  ')
	[[ $formats == *q8_0*iq4_nl* ]]
	for format in $formats; do
		"$plan" --gpu cpu --gpus 1 --ops ops.json --seq 64 --qat "$format" --json gpt2-tiny >/dev/null
	done
	# one file describes the machine
	"$plan" --gpu cpu --gpus 1 --ops ops.json --emit cluster >here.json
	jq -e '.ops.cores == 1 and .cores_per_node == 1' here.json
	"$plan" --cluster here.json --emit cluster | cmp - here.json
	[ "$("$plan" --cluster here.json --seq 64 --json gpt2-tiny | jq -c .plans)" = \
		"$("$plan" --gpu cpu --gpus 1 --ops ops.json --seq 64 --json gpt2-tiny | jq -c .plans)" ]
	jq -c 'del(.modes[0].ops[5])' ops.json >less.json
	refused 1 "is missing" "$plan" --gpu cpu --gpus 1 --ops less.json gpt2-tiny
	jq -c '.modes[0].ops[5].time_s[0] = 0' ops.json >zero.json
	refused 1 "must be above 0" "$plan" --gpu cpu --gpus 1 --ops zero.json gpt2-tiny
	jq -c '.modes = []' ops.json >none.json
	refused 1 "'modes' is a list" "$plan" --gpu cpu --gpus 1 --ops none.json gpt2-tiny
	refused 2 "timed on a processor" "$plan" --gpu H100 --ops ops.json gpt2-tiny
}

# If norms are made to look very slow, they are recomputed last; if products are, norms are recomputed first.
@test "--recompute auto uses measured times" {
	cp "$BATS_FILE_TMPDIR/ops.json" .
	slower() { jq -c --arg op "$1" '(.modes[].ops[] | select(.op | startswith($op)) | .time_s) |= map(. * 1e6)' ops.json; }
	again() {
		"$DT_BIN/dt-train" --print-program --json --model gpt2-mini --seq 256 --microbatch 4 "$@" >p.json
		jq -r '[.nodes[] | select(.again) | .op] | unique | join(" ")' p.json
	}
	none=$(again)
	[ -z "$none" ]
	size=auto:$(($(jq .peak_bytes p.json) * 97 / 100))B
	slower layernorm >norm.json
	slower matmul >product.json
	norm=$(again --recompute "$size" --ops norm.json)
	product=$(again --recompute "$size" --ops product.json)
	echo "slow norms: '$norm'; slow products: '$product'"
	[ -n "$norm" ] && [[ $norm != *norm* ]]
	[ -n "$product" ] && [[ $product != *linear* ]]
	[ "$(jq .peak_bytes p.json)" -le "$((${size//[!0-9]/}))" ]
	refused 1 "No such file" "$DT_BIN/dt-memest" --train --recompute "$size" --ops nothing.json gpt2-mini
	jq -c '.modes = []' ops.json >wrong.json
	refused 1 "'wrong.json': 'modes' is a list" "$DT_BIN/dt-memest" --train --recompute "$size" --ops wrong.json gpt2-mini
}

is_gone() { # PID
	! kill -0 "$1" 2>err || grep -q '^State:.*Z' "/proc/$1/status"
}

@test "killed while measuring: its processes end with it, and the old file stays" {
	echo old >ops.json
	for signal in KILL TERM; do
		"$calibrate" --seconds 600 --cores 1 --out ops.json 3>&- &
		local pid=$!
		until worker=$(ps -o pid= --ppid $pid | tr -d ' ') && [ -n "$worker" ]; do sleep 0.05; done
		kill -"$signal" $pid
		wait $pid || true
		for _ in $(seq 1200); do # it would measure for 600 s
			! is_gone "$worker" || break
			sleep 0.05
		done
		is_gone "$worker"
		[ "$(cat ops.json)" = old ]
		[ "$(ls)" = $'err\nops.json' ]
	done
}

@test "invalid input: one line and the right status" {
	refused 2 "no operands" "$calibrate" gpt2-tiny
	refused 2 "out of range" "$calibrate" --seconds 0
	refused 2 "out of range" "$calibrate" --cores 0
	refused 2 "this process may run on" timeout 20 "$calibrate" --cores 1024
	refused 2 "out of range" "$calibrate" --window -1
	refused 1 "No such file" timeout 20 "$calibrate" --seconds 600 --cores 1 --out no/such/folder.json
	for bad in "" no-name/; do
		refused 1 "no name of a file" timeout 20 "$calibrate" --seconds 600 --cores 1 --out "$bad"
	done
	: >empty
	refused 1 "empty" "$plan" --gpu cpu --ops empty gpt2-tiny
}
# SPDX-License-Identifier: Apache-2.0
