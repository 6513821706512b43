#!/usr/bin/env bats
# dt-shard-ckpt on checkpoints of make-ckpt, whose elements follow a formula (shard-ckpt.py).
load slow

setup() {
	S=$DT_BIN/dt-shard-ckpt
	M=$DT_HELP/make-ckpt
	T=$BATS_TEST_TMPDIR
}

has_h5py() {
	/usr/bin/python3 -c 'import h5py' 2>/dev/null || skip "python3-h5py is not installed"
}

# put FILE OFFSET BYTES: overwrites bytes of a file
put() {
	printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

@test "help leads with examples" {
	run "$S" --help
	[ "$status" -eq 0 ]
	[[ $output == *"dt-shard-ckpt verify run/latest"* ]]
}

@test "usage errors are 2 and name the mistake" {
	run "$S" reshard a b
	[ "$status" -eq 2 ]
	[[ $output == *"--layout"* ]]
	run "$S" reshard --layout dp0 a b
	[ "$status" -eq 2 ]
	run "$S" diff one
	[ "$status" -eq 2 ]
	run "$S" cut a
	[ "$status" -eq 2 ]
	run "$S" quantize --calibrate-tokens 100 a b
	[ "$status" -eq 2 ]
	[[ $output == *"--calibrate-tokens requires --calibrate"* ]]
}

@test "a converted checkpoint keeps its step; different models and a missing text are reported first" {
	cd "$T"
	echo '{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":257,"hidden_size":32,
		"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
		"max_position_embeddings":64,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"hidden_act":"silu"}' >llama.json
	"$DT_BIN/dt-dataset" build --tokenizer byte --out d.h5 "$BATS_TEST_FILENAME"
	"$DT_BIN/dt-train" --model llama.json --data d.h5 --seq 16 --steps 3 --save run --threads 1 --no-mfu >m.jsonl
	[ "$("$S" upcycle --experts 4 --top-k 2 run up)" = up/step-00000003 ]
	[ "$("$S" resize-vocab --vocab 300 run wide)" = wide/step-00000003 ]
	[ "$("$S" avg run run mean)" = mean/step-00000003 ]
	[ "$("$S" avg --to dt --step 9 run run mean)" = mean/step-00000009 ]
	for pair in "run up" "up run"; do
		# shellcheck disable=SC2086
		run "$S" avg --to dt $pair unlike
		[ "$status" -eq 1 ]
		[[ $output == *"are not the same model: they differ in its experts"* ]]
	done
	run "$S" quantize --type q4_0 --text nosuch run q.gguf
	[ "$status" -eq 1 ]
	[[ $output == *"'nosuch'"* ]]
	[ ! -e q.gguf ]
	# perplexity from a text, for a model with a tokenizer that GGUF cannot hold
	head -c 2000 "$BATS_TEST_FILENAME" >text
	run "$S" quantize --type q4_0 --text text --seq 32 run q.gguf
	[ "$status" -eq 0 ]
	[[ $output == *perplexity*before* ]]
	[[ $output == *"the tokenizer 'byte' is left out"*"--tokenizer byte"* ]]
	run "$S" convert --to dt run copy
	[ "$status" -eq 0 ] && [[ $output != *tokenizer* ]]
	# a model without tokenizer
	"$S" convert --to safetensors --tokenizer none run bare
	run "$S" quantize --type q4_0 --text text bare b.gguf
	[ "$status" -eq 1 ]
	[[ $output == *"no tokenizer"* ]]
	[ ! -e b.gguf ]
}

@test "a path that is not a checkpoint gives one line and exit status 1" {
	run "$S" ls "$T/nothing"
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 1 ]
	[[ $output == *"No such file"* ]]
	run "$S" verify "$T"
	[ "$status" -eq 1 ]
	[[ $output == *"not a checkpoint"* ]]
}

@test "ls shows the tensors as a tree with their pieces, equal layers only once" {
	"$M" "$T/a" 5 dp2.tp2.z1 1
	pieces=$("$S" ls --json "$T/a" |
		jq '[.tensors[] | select(.name | startswith("model/")) | .pieces] | add')
	run "$S" ls "$T/a"
	[ "$status" -eq 0 ]
	[[ $output == *"layout dp2.tp2.z1, 117 tensors"* ]]
	[[ ${lines[1]} =~ ^model\ +$pieces\  ]]
	[[ ${lines[2]} =~ ^\ \ embed.weight\ +f32\ +50x24\ +2x1\ +2\  ]]
	[[ $output == *"  layers.{0..2} x 3 "* ]]
	[[ $output =~ \ down.weight\ +f32\ +24x40\ +1x2\ +6\  ]]
	few=${#lines[@]}
	run "$S" ls --all "$T/a"
	[ "$status" -eq 0 ]
	[[ $output != *"{"* ]]
	[ "${#lines[@]}" -gt $((2 * few)) ]
	[ "$(grep -Ec ' (f32|bf16) +[0-9]+' <<<"$output")" -eq 117 ]
	"$S" ls --json "$T/a" | jq -e '.schema == 1 and .step == 5 and (.tensors | length) == 117 and
		.total_bytes == ([.tensors[].bytes] | add) and
		(.tensors[] | select(.name == "model/layers.0.mlp.down.weight") | .cut == [1, 2] and .dtype == "f32")'
}

@test "verify says ok, of several checkpoints" {
	"$M" "$T/a" 1 pp3 1
	"$M" "$T/b" 1 dp2 1 compress bf16
	run "$S" verify "$T/a" "$T/b/step-00000001"
	[ "$status" -eq 0 ]
	[[ ${lines[0]} == "$T/a: ok"* ]]
	[[ ${lines[1]} == "$T/b/step-00000001: ok"* ]]
	"$S" verify --json -j 3 "$T/a" | jq -e '.ok and .schema == 1 and .checkpoints[0].findings == []'
}

@test "a changed byte in a tensor gives exit status 3; file and tensor are named" {
	"$M" "$T/a" 1 tp2 1
	where=$(jq -r '.files as $f | .tensors[] | select(.name == "m/layers.1.mlp.up.weight") | .pieces[1] |
		"\($f[.file].name) \(.at)"' "$T/a/latest/manifest.json")
	file=${where% *} at=${where#* }
	put "$T/a/latest/$file" $((at + 77)) '\x55'
	run "$S" verify "$T/a"
	[ "$status" -eq 3 ]
	[ "${#lines[@]}" -eq 1 ]
	[[ $output == *"$file"*"m/layers.1.mlp.up.weight"*"checksum mismatch"* ]]
	run "$S" verify --json "$T/a"
	[ "$status" -eq 3 ]
	jq -e '.ok == false and (.checkpoints[0].findings | length) == 1' <<<"$output"
	run "$S" stats "$T/a"
	[ "$status" -eq 3 ]
	run "$S" cat m/layers.1.mlp.up.weight "$T/a"
	[ "$status" -eq 3 ]
	run "$S" reshard --layout dp1 "$T/a" "$T/b"
	[ "$status" -eq 3 ]
	[ ! -e "$T/b" ]
}

@test "a truncated, a missing and swapped shards are 3 and named" {
	"$M" "$T/a" 1 dp3 1
	cp -r "$T/a/step-00000001" "$T/t" && truncate -s -100 "$T/t/shard-00001.h5"
	run "$S" verify "$T/t"
	[ "$status" -eq 3 ]
	[[ $output == *"shard-00001.h5"*"the manifest says"*"model/"* ]]
	cp -r "$T/a/step-00000001" "$T/m" && rm "$T/m/shard-00002.h5"
	run "$S" verify "$T/m"
	[ "$status" -eq 3 ]
	[[ $output == *"shard-00002.h5"*"No such file"*"model/"* ]]
	cp -r "$T/a/step-00000001" "$T/s"
	mv "$T/s/shard-00000.h5" "$T/s/x" && mv "$T/s/shard-00001.h5" "$T/s/shard-00000.h5" && mv "$T/s/x" "$T/s/shard-00001.h5"
	run "$S" verify "$T/s"
	[ "$status" -eq 3 ]
	[[ $output == *"shard-00000.h5"* ]]
	[[ $output == *"shard-00001.h5"* ]]
	rm "$T/t/index.h5"
	run "$S" verify "$T/t"
	[[ $output == *"index.h5"* ]]
}

@test "an index.h5 of another checkpoint is detected" {
	"$M" "$T/a" 1 dp2 1
	"$M" "$T/b" 1 tp2 1
	cp "$T/b/latest/index.h5" "$T/a/latest/index.h5"
	run "$S" verify "$T/a"
	[ "$status" -eq 3 ]
	[[ $output == *"index.h5"*"embed.weight"* ]]
}

@test "a manifest of a newer version is refused by number, a changed one by its checksum" {
	"$M" "$T/a" 1 dp1 1
	sed -i 's/"version":1/"version":7/' "$T/a/latest/manifest.json"
	run "$S" ls "$T/a/latest"
	[ "$status" -eq 1 ]
	[[ $output == *"version 7 is newer than 1"* ]]
	sed -i 's/"version":7/"version":1/; s/"cursor":17/"cursor":18/' "$T/a/latest/manifest.json"
	run "$S" verify "$T/a/latest"
	[ "$status" -eq 3 ]
	[[ $output == *"does not match its own checksum"* ]]
}

@test "a root falls back to the newest complete step and says so" {
	"$M" "$T/a" 1 dp2 1
	"$M" "$T/a" 2 dp2 2
	rm "$T/a/step-00000002/shard-00001.h5"
	run "$S" ls "$T/a"
	[ "$status" -eq 0 ]
	[[ $output == *"using step-00000001: cannot open"*"shard-00001.h5"* ]]
	[[ $output == *"step 1, layout"* ]]
	run "$S" verify "$T/a"
	[ "$status" -eq 3 ]
}

@test "leftovers of a crash are not read, and the next save removes them" {
	"$M" "$T/a" 1 dp2 1
	run "$M" "$T/a" 2 dp2 2 crash
	[ "$status" -eq 137 ]
	[ -d "$T/a/step-00000002.tmp" ]
	run "$S" verify "$T/a"
	[ "$status" -eq 0 ]
	"$M" "$T/a" 3 dp2 2 keep1
	[ "$(ls "$T/a" | tr '\n' ' ')" = "latest step-00000003 " ]
}

@test "diff: equal, values, shapes, missing, tolerance" {
	"$M" "$T/a" 1 dp2.tp2.z1 1
	"$M" "$T/b" 9 pp2 1
	"$M" "$T/c" 1 pp2 2
	"$M" "$T/h" 1 pp2 1 bf16
	"$M" "$T/t" 1 pp2 1 tied
	run "$S" diff "$T/a" "$T/b"
	[ "$status" -eq 0 ]
	[ "$output" = "equal: 117 tensors" ]
	run "$S" diff "$T/a" "$T/c"
	[ "$status" -eq 3 ]
	[[ $output == *"117 of 117 tensors differ"* ]]
	run "$S" diff --tolerance 0.004 "$T/a" "$T/h"
	[ "$status" -eq 0 ]
	run "$S" diff --tolerance 0.0004 "$T/a" "$T/h"
	[ "$status" -eq 3 ]
	run "$S" diff "$T/a" "$T/t"
	[ "$status" -eq 3 ]
	[[ $output =~ model/head.weight\ +only\ in\ A ]]
	run "$S" diff --json "$T/t" "$T/a"
	[ "$status" -eq 3 ]
	jq -e '.equal == false and .tensors_differ == 3 and ([.tensors[] | select(.why == "only in B")] | length) == 3' <<<"$output"
}

@test "diff: any number of threads gives the same output, and the same error for a damaged checkpoint" {
	"$M" "$T/a" 1 dp2.tp2.z1 1
	"$M" "$T/t" 1 pp2 2 tied
	for way in "" --json --all --weights; do
		"$S" diff $way --workers 1 "$T/a" "$T/t" >"$T/one" || [ $? -eq 3 ]
		for j in 2 7 64; do
			"$S" diff $way -j "$j" "$T/a" "$T/t" >"$T/many" || [ $? -eq 3 ]
			cmp "$T/one" "$T/many"
		done
	done
	for f in "$T"/a/step-*/shard-*.h5; do # several tensors of each
		for at in 20000 50000 80000; do put "$f" "$at" damaged; done
	done
	run "$S" diff --workers 1 "$T/a" "$T/t"
	[ "$status" -eq 3 ]
	[[ $output == *"checksum mismatch"* ]]
	one=$output
	for j in 2 7 64 7 7 7; do
		run "$S" diff -j "$j" "$T/a" "$T/t"
		[ "$status" -eq 3 ]
		[ "$output" = "$one" ]
	done
}

@test "reshard: random pairs of layouts (8; 30 with DT_SLOW=1), back and forth, bit by bit" {
	layouts=(dp1 dp2 dp3 tp2 pp2 pp3 dp2.z1 dp3.z1 dp5.z1 dp2.z2 dp4.z3 tp2.z1 dp2.tp2 dp2.tp2.z1 dp3.tp2.pp2.z1
		dp2.pp3.z1 cp2 dp2.cp2.z1 dp2.cp2.tp2 dp2.tp2.pp3.cp2.z3 dp7.z3 dp16.z1)
	RANDOM=4242
	"$M" "$T/truth" 3 dp1 11
	"$M" "$T/tied-truth" 3 dp1 11 tied
	for i in $(seq "$(few 8 30)"); do
		a=${layouts[RANDOM % ${#layouts[@]}]}
		b=${layouts[RANDOM % ${#layouts[@]}]}
		words=()
		truth=$T/truth
		if [ $((i % 3)) -eq 0 ]; then
			words+=(tied)
			truth=$T/tied-truth
		fi
		[ $((i % 5)) -ne 0 ] || words+=(compress)
		rm -rf "$T/a" "$T/b" "$T/c"
		"$M" "$T/a" 3 "$a" 11 "${words[@]}"
		"$S" reshard --layout "$b" "$T/a" "$T/b" >"$T/out" || { echo "$a -> $b"; return 1; }
		"$S" reshard --layout "$a" "$T/b" "$T/c" >>"$T/out" || { echo "$b -> $a"; return 1; }
		"$S" verify "$T/b" "$T/c" >"$T/out" || { cat "$T/out"; return 1; }
		"$S" diff "$T/b" "$truth" >"$T/out" || { echo "$a -> $b"; cat "$T/out"; return 1; }
		"$S" diff "$T/c" "$T/a" >"$T/out" || { echo "$a -> $b -> $a"; cat "$T/out"; return 1; }
	done
}

@test "reshard: metadata is kept, the layout is the new one, every rank has a share" {
	"$M" "$T/a" 3 dp2.tp2 1
	"$S" reshard --layout z1.dp4 "$T/a" "$T/b"
	m=$T/b/latest/manifest.json
	jq -e '.layout == "dp4.z1" and .data.cursor == 51 and .model.name == "tiny" and (.files | length) == 4' "$m"
	# states are distributed evenly: the largest share is less than 1.5 times the smallest
	jq -e '.tensors | map(.pieces[] + {d: .dtype}) | group_by(.file) |
		map([.[] | .shape | reduce .[] as $x (1; . * $x)] | add) | (max / min) < 1.5' "$m"
}

@test "reshard: into a step folder, not over an existing one, not as another step" {
	"$M" "$T/a" 3 dp2 1
	run "$S" reshard --layout tp2 "$T/a" "$T/b/step-00000003/"
	[ "$status" -eq 0 ]
	[ "$output" = "$T/b/step-00000003" ]
	[ -f "$T/b/step-00000003/manifest.json" ]
	run "$S" reshard --layout tp2 "$T/a" "$T/b"
	[ "$status" -eq 1 ]
	[[ $output == *"File exists"* ]]
	run "$S" reshard --layout tp2 "$T/a" "$T/a"
	[ "$status" -eq 1 ]
	[[ $output == *"source itself"* ]]
	run "$S" reshard --layout tp2 "$T/a" "$T/c/step-00000004"
	[ "$status" -eq 2 ]
	run "$S" reshard --layout tp5 "$T/a" "$T/d"
	[ "$status" -eq 1 ]
	[[ $output == *"tp5"* ]]
	[ ! -e "$T/d" ]
}

@test "reshard to a pipe is a tar stream of a whole root" {
	"$M" "$T/a" 3 dp2 1
	mkdir "$T/x" "$T/spool"
	TMPDIR=$T/spool "$S" reshard --layout tp2 "$T/a" - </dev/null | tar xf - -C "$T/x"
	"$S" verify "$T/x"
	"$S" diff "$T/a" "$T/x"
	run ls -A "$T/spool"
	[ -z "$output" ]
	# a reader that closes the pipe ends it without a message, and nothing is left
	run bash -c 'TMPDIR=$1 "$2" reshard --layout tp2 "$3" - | true; exit ${PIPESTATUS[0]}' _ "$T/spool" "$S" "$T/a"
	[ "$status" -eq 1 ] || [ "$status" -eq 141 ] || [ "$status" -eq 0 ]
	[ -z "$output" ]
	run ls -A "$T/spool"
	[ -z "$output" ]
	run bash -c '"$1" reshard --layout tp2 "$2" - >/dev/full' _ "$S" "$T/a"
	[ "$status" -eq 1 ]
	[[ $output == *"No space left"* ]]
}

@test "a failed reshard leaves nothing new, and keeps what was there" {
	"$M" "$T/a" 3 dp2.tp2.z1 1
	for there in no yes; do
		[ $there = no ] || mkdir "$T/x"
		run bash -c 'ulimit -f 1; trap "" XFSZ; "$0" reshard --layout tp2 "$1" "$2"' "$S" "$T/a" "$T/x"
		[ "$status" -eq 1 ]
		[[ $output == *"File too large"* ]]
		[ "$(ls -d "$T/x" 2>/dev/null)" = "$([ $there = no ] || echo "$T/x")" ]
		[ -z "$(ls -A "$T/x" 2>/dev/null)" ]
	done
}

@test "cat prints numbers, one row per line, or bytes" {
	"$M" "$T/a" 3 dp2.tp2.z1 1
	"$S" cat norm.weight "$T/a" | awk 'NF != 1 { exit 1 } END { exit NR != 24 }'
	"$S" cat model/embed.weight "$T/a" | awk 'NF != 24 { exit 1 } END { exit NR != 50 }'
	[ "$("$S" cat --raw embed.weight "$T/a" | wc -c)" -eq 4800 ]
	"$S" cat --raw embed.weight "$T/a" | od -A n -v -t f4 -w4 >"$T/od"
	"$S" cat embed.weight "$T/a" | tr ' ' '\n' | paste "$T/od" - |
		awk '{ d = $1 - $2 } d > 1e-6 || d < -1e-6 { exit 1 } END { exit NR != 1200 }'
	run "$S" cat nothing "$T/a"
	[ "$status" -eq 1 ]
	[[ $output == *"has no tensor 'nothing'"* ]]
}

@test "a full disk gives one line and exit status 1, for every command" {
	"$M" "$T/a" 3 dp2 1
	for c in ls verify stats "ls --json" "cat embed.weight" "diff $T/a"; do
		run bash -c '"$1" $2 "$3" >/dev/full' _ "$S" "$c" "$T/a"
		[ "$status" -eq 1 ]
		[ "${#lines[@]}" -eq 1 ]
		[[ $output == *"cannot write"* ]]
	done
}

@test "stats counts and computes statistics" {
	"$M" "$T/a" 3 dp2 1
	"$S" stats --json "$T/a" | jq -e '(.tensors | length) == 117 and all(.tensors[]; .nans == 0 and .min >= -9 and .max < 10.6)'
	run "$S" stats "$T/a"
	[[ ${lines[0]} =~ tensor\ +mean\ +std ]]
}

@test "stats: all threads compute, the result does not depend on their number, and is that of exact sums" {
	local n
	# The OpenMP runtime reports its threads: gcc's on stderr, once, clang's on stdout, in each region.
	export OMP_DISPLAY_AFFINITY=true OMP_AFFINITY_FORMAT='level %L thread %n'
	"$DT_HELP/make-model" "$T/m" gpt2-tiny
	for n in 1 2 3; do
		OMP_NUM_THREADS=$n "$S" stats --json "$T/m" >"$T/out" 2>"$T/err"
		grep -v '^level ' "$T/out" >"$T/$n.json"
		cmp "$T/1.json" "$T/$n.json"
		[ "$(cat "$T/out" "$T/err" | grep '^level 1 thread' | sort -u | wc -l)" -eq "$n" ] || [ "$n" -eq 1 ] ||
			{ cat "$T/out" "$T/err"; false; }
	done
	unset OMP_DISPLAY_AFFINITY
	# tensors of several runs of 4096 elements, and of a part of one
	for n in embed.weight layers.0.mlp.up.bias; do
		"$S" cat --raw "$n" "$T/m" >"$T/raw"
		jq -c --arg n "model/$n" '.tensors[] | select(.name == $n)' "$T/1.json" | python3 -c '
import array, json, math, sys
s, x = json.load(sys.stdin), array.array("f", open(sys.argv[1], "rb").read())
n, mean = len(x), math.fsum(x) / len(x)
want = {"mean": mean, "std": math.sqrt(math.fsum((v - mean) ** 2 for v in x) / n), "rms": math.sqrt(math.fsum(v * v for v in x) / n),
        "min": min(x), "max": max(x)}
assert s["elements"] == n and s["zeros"] == x.count(0), (s, n)
for k, v in want.items():
    assert abs(s[k] - v) <= 1e-14 * (abs(v) + want["rms"]), (k, s[k], v)' "$T/raw"
	done
}

@test "h5py and h5dump see whole tensors through the index of several ranks, also after moving" {
	has_h5py
	"$M" "$T/a" 3 dp2.tp2.pp2.z1 23
	"$M" "$T/b" 3 dp2.tp2.z1 24 compress bf16
	/usr/bin/python3 "$DT_SRC/tests/cli/shard-ckpt.py" "$T/a/latest" 23
	/usr/bin/python3 "$DT_SRC/tests/cli/shard-ckpt.py" "$T/b/latest" 24 bf16
	mkdir -p "$T/else/where" && mv "$T/a/step-00000003" "$T/else/where/moved"
	/usr/bin/python3 "$DT_SRC/tests/cli/shard-ckpt.py" "$T/else/where/moved" 23
	command -v h5dump >/dev/null || skip "hdf5-tools is not installed"
	h5dump -y -w 1 -d /model/norm.weight "$T/else/where/moved/index.h5" | sed -n '/DATA {/,/}/p' | grep -v '[{}]' |
		tr -d ' ,' | grep . >"$T/dump"
	"$S" cat norm.weight "$T/else/where/moved" >"$T/cat"
	paste "$T/dump" "$T/cat" | awk '{ d = $1 - $2 } d > 1e-4 || d < -1e-4 { exit 1 } END { exit NR != 24 }'
	h5dump -y -w 1 -d /model/norm.weight "$T/b/latest/index.h5" | grep -q DATA
}

@test "the example of dt-checkpoint(5) reads every tensor" {
	has_h5py
	command -v mandoc >/dev/null || skip "mandoc is not installed"
	"$M" "$T/a" 3 dp2.tp2.pp2.z1 23
	"$M" "$T/b" 3 dp2.z1 23 compress bf16
	/usr/bin/python3 "$DT_SRC/tests/cli/shard-ckpt.py" --manual "$DT_SRC/man/dt-checkpoint.5" "$T/a/latest"
	/usr/bin/python3 "$DT_SRC/tests/cli/shard-ckpt.py" --manual "$DT_SRC/man/dt-checkpoint.5" "$T/b/latest"
}

@test "resharding is reproducible byte by byte" {
	"$M" "$T/a" 3 dp2.tp2.z1 1
	"$S" reshard --layout dp3.z1 "$T/a" "$T/b"
	sleep 1.1 # a time stamp would differ
	"$S" reshard --layout dp3.z1 "$T/a" "$T/c"
	diff -r "$T/b/step-00000003" "$T/c/step-00000003"
}

@test "merge makes one shard" {
	"$M" "$T/a" 3 dp2.tp2.z1 1
	"$S" merge "$T/a" "$T/b"
	jq -e '(.files | length) == 1 and .layout == "dp1"' "$T/b/latest/manifest.json"
	"$S" diff "$T/a" "$T/b"
}

@test "reshard with several workers equals one worker's result" {
	"$M" "$T/a" 3 dp2.tp2.pp3.z1 1
	"$S" reshard -j 1 --layout dp3.tp2.z1 "$T/a" "$T/1"
	"$S" reshard -j 5 --layout dp3.tp2.z1 "$T/a" "$T/5"
	diff -r "$T/1/step-00000003" "$T/5/step-00000003"
	# a damaged piece stops all of them
	where=$(jq -r '.files as $f | .tensors[] | select(.name == "m/layers.1.mlp.up.weight") | .pieces[1] |
		"\($f[.file].name) \(.at)"' "$T/a/latest/manifest.json")
	put "$T/a/latest/${where% *}" $((${where#* } + 5)) '\x55'
	run "$S" reshard -j 5 --layout dp8 "$T/a" "$T/8"
	[ "$status" -eq 3 ]
	[ -z "$(ls "$T/8")" ]
}

@test "reshard under mpirun equals the result with threads, bit by bit" {
	takes_long
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
	"$M" "$T/a" 3 dp2.tp2.pp3.z1 1
	for case in "3 dp3.tp2.z1" "2 dp1" "4 dp2.z3" "3 dp7.z1 --compress"; do
		# shellcheck disable=SC2086
		set -- $case
		rm -rf "$T/m" "$T/t"
		[ "$(mpirun -np "$1" "$S" reshard -j 2 --layout "$2" ${3:+"$3"} "$T/a" "$T/m")" = "$T/m/step-00000003" ]
		"$S" reshard -j 2 --layout "$2" ${3:+"$3"} "$T/a" "$T/t"
		diff -r "$T/m" "$T/t"
	done
	mpirun -np 2 "$S" merge "$T/a" "$T/one"
	"$S" diff "$T/a" "$T/one"
	# one process finds a damaged piece: all end, one reports it, nothing is left
	where=$(jq -r '.files as $f | .tensors[] | select(.name == "m/layers.1.mlp.up.weight") | .pieces[1] |
		"\($f[.file].name) \(.at)"' "$T/a/latest/manifest.json")
	put "$T/a/latest/${where% *}" $((${where#* } + 5)) '\x55'
	run mpirun -np 3 "$S" reshard --layout dp8.z1 "$T/a" "$T/8"
	[ "$status" -eq 3 ]
	[ "$(grep -c "checksum mismatch" <<<"$output")" -eq 1 ]
	[ -z "$(ls "$T/8")" ]
	run mpirun -np 2 "$S" reshard --layout dp2 "$T/a" -
	[ "$status" -ne 0 ]
	[[ $output == *"a tar stream can only be written by a single process"* ]]
}

@test "prune keeps the newest, multiples, and incomplete checkpoints" {
	for i in 2 4 6 8 10 12; do
		"$M" "$T/a" $i dp1 1
	done
	rm "$T/a/step-00000004/shard-00000.h5"
	run "$S" prune -n --keep 2 --keep-every 6 "$T/a"
	[ "$status" -eq 0 ]
	[ "$output" = "$T/a/step-00000008
$T/a/step-00000002" ]
	[ "$(ls "$T/a" | wc -l)" -eq 7 ]
	"$S" prune --keep 2 --keep-every 6 "$T/a"
	[ "$(ls "$T/a" | tr '\n' ' ')" = "latest step-00000004 step-00000006 step-00000010 step-00000012 " ]
	"$S" prune --keep-every 100 "$T/a"
	[ "$(ls "$T/a" | tr '\n' ' ')" = "latest step-00000004 step-00000012 " ]
	run "$S" prune "$T/a"
	[ "$status" -eq 2 ]
	run "$S" prune --keep 1 "$T/nothing"
	[ "$status" -eq 1 ]
	run -1 "$S" prune --keep 1 "$T/a/step-00000012"
	[ "$output" = "dt-shard-ckpt: '$T/a/step-00000012' has no step folder" ]
	rm "$T/a/step-00000012/shard-00000.h5"
	run -1 "$S" prune --keep 1 "$T/a"
	[ "$output" = "dt-shard-ckpt: no checkpoint in '$T/a' is complete" ]
}

@test "prune keeps the checkpoint that latest names, also an older one" {
	"$M" "$T/a" 4 dp1 1
	"$M" "$T/a" 8 dp1 1
	"$M" "$T/a" 2 dp1 1
	[ "$(readlink "$T/a/latest")" = step-00000002 ]
	"$S" prune --keep 1 "$T/a"
	[ "$(ls "$T/a" | tr '\n' ' ')" = "latest step-00000002 step-00000008 " ]
	"$S" verify "$T/a/latest"
}

@test "reshard does not write into the folder of another run" {
	cd "$T"
	seq 2000 >text
	"$DT_BIN/dt-dataset" build --out d.h5 text
	for k in a b; do
		"$DT_BIN/dt-train" --model gpt2-tiny --data d.h5 --seq 16 --steps "$([ $k = a ] && echo 1 || echo 2)" --save $k \
			--no-mfu --metrics m
	done
	run "$S" reshard --layout tp2 a b
	[ "$status" -eq 1 ]
	[[ $output == *"'b' holds the checkpoints of another run, the newest 'b/step-00000002'"* ]]
	[ "$(readlink b/latest)" = step-00000002 ]
	# a folder of the same run takes it
	"$DT_BIN/dt-train" --model gpt2-tiny --data d.h5 --seq 16 --steps 3 --save b --resume auto --no-mfu --metrics m
	"$S" reshard --layout tp2 b/step-00000002 c
	"$S" reshard --layout tp2 b/step-00000003 c
	[ "$(readlink c/latest)" = step-00000003 ]
}

@test "repair restores bit by bit what a replica of another layout holds" {
	for words in "" compress; do
		rm -rf "$T"/[a-z]*
		# shellcheck disable=SC2086
		"$M" "$T/a" 3 dp2.tp2.z1 1 $words
		"$S" reshard --layout pp3 "$T/a" "$T/b"
		cp -r "$T/a/step-00000003" "$T/c"
		where=$(jq -r '.files as $f | .tensors[] | select(.name == "model/layers.1.mlp.up.weight") | .pieces[0] |
			"\($f[.file].name) \(.at)"' "$T/c/manifest.json")
		file=${where% *}
		put "$T/c/$file" $((${where#* } + 7)) '\x55\x55\x55'
		other=$(find "$T/c" -name "shard-*" -not -name "$file" -printf "%f\n" | sort | head -n 1)
		rm "$T/c/$other" "$T/c/index.h5"
		run "$S" verify "$T/c"
		[ "$status" -eq 3 ]
		run "$S" repair "$T/c" "$T/b"
		echo "$output"
		[ "$status" -eq 0 ]
		[[ $output == *"$file: rewritten, 1 pieces from"* ]]
		diff -r "$T/a/step-00000003" "$T/c"
		run "$S" repair "$T/c" "$T/b"
		[[ $output == *"nothing to repair"* ]]
	done
	# truncated, and with a destroyed HDF5 header
	truncate -s 5000 "$T/c/$file"
	put "$T/c/$other" 40 '\xff\xff\xff\xff'
	"$S" repair "$T/c" "$T/b"
	diff -r "$T/a/step-00000003" "$T/c"
}

@test "repair from another checkpoint is refused, and changes nothing" {
	"$M" "$T/a" 3 dp2 1
	"$M" "$T/b" 3 dp2 2
	rm "$T/a/step-00000003/shard-00001.h5"
	cp -r "$T/a/step-00000003" "$T/before"
	run "$S" repair "$T/a/step-00000003" "$T/b"
	[ "$status" -eq 3 ]
	[[ $output == *"has other elements"* ]]
	diff -r "$T/before" "$T/a/step-00000003"
	run "$S" repair "$T/a/step-00000003" "$T/nothing"
	[ "$status" -eq 1 ]
}

@test "convert says so when it does not take the newest checkpoint" {
	"$M" "$T/a" 1 dp2 1
	"$M" "$T/a" 2 dp2 2
	rm "$T/a/step-00000002/shard-00001.h5"
	run "$S" convert --to gguf --tokenizer none "$T/a" "$T/b" # GGUF's qwen2 has another activation
	[ "$status" -eq 1 ]
	[[ $output == *"cannot represent this model: its activation"* ]]
	run "$S" convert --to dt --tokenizer none "$T/a" "$T/b"
	[ "$status" -eq 0 ]
	[[ $output == *"using step-00000001: cannot open"* ]]
	# only weights are converted, no optimizer states
	run "$S" diff "$T/a/step-00000001" "$T/b"
	[[ $output != *" values "* ]]
	[[ $output == *"m/layers.{0..2}.attn.q.weight x 3 "*"only in A"* ]] # folded as by ls
	run "$S" diff --all "$T/a/step-00000001" "$T/b"
	[ "$(grep -c "only in A" <<<"$output")" -eq 78 ]
	run "$S" diff --weights "$T/a/step-00000001" "$T/b"
	[ "$status" -eq 0 ]
	[[ $output == "equal: 39 tensors" ]]
}
# SPDX-License-Identifier: Apache-2.0
