# dt-dataset
bats_require_minimum_version 1.5.0
load slow

setup() {
	: "${DT_BIN:=build/tools}" "${DT_SRC:=.}"
	: "${DT_TEST_DATA:=$DT_SRC/../shared/data}"
	PATH="$DT_BIN:$PATH"
	data="$DT_SRC/tests/data/tokenizer"
	cd "$BATS_TEST_TMPDIR" || return 1
}

@test "help leads with two examples" {
	run dt-dataset --help
	[ "$status" -eq 0 ]
	[[ "$output" == *"dt-dataset build"* ]]
	[[ "$output" == *"dt-dataset sample"* ]]
}

@test "wrong usage: exit status 2 and a message that states the error" {
	echo x >a
	run dt-dataset build a
	[ "$status" -eq 2 ]
	[[ "$output" == *"needs --out"* ]]
	run dt-dataset build --out d.h5
	[ "$status" -eq 2 ]
	run dt-dataset build --out d.h5 --split 10 a
	[ "$status" -eq 2 ]
	run dt-dataset build --out d.h5 --split 10 --out-eval d.h5 a
	[ "$status" -eq 2 ]
	run dt-dataset build --out d.h5 --split 100 --out-eval e.h5 a
	[ "$status" -eq 2 ]
	run dt-dataset info
	[ "$status" -eq 2 ]
	run dt-dataset info --out x d.h5
	[ "$status" -eq 2 ]
	[ ! -e d.h5 ]
	run dt-dataset build --tokenizer bytes --out d.h5 a
	[ "$status" -eq 1 ]
	[[ "$output" == *"cannot open 'bytes'"*"or 'byte'"* ]]
}

@test "cat prints what build read" {
	for t in byte "$data/gpt2.json" "$data/llama3.json"; do
		dt-dataset build -t "$t" -o d.h5 "$data/corpus.txt"
		dt-dataset cat d.h5 | cmp - "$data/corpus.txt"
		dt-dataset info --verify d.h5
	done
	head -c 100000 /dev/urandom >noise
	dt-dataset build -t "$data/gpt2.json" -o d.h5 noise
	dt-dataset cat d.h5 | cmp - noise
}

@test "shards join to the same tokens, read by h5py too" {
	dt-dataset build -t "$data/gpt2.json" -o one.h5 "$data/corpus.txt"
	dt-dataset build -t "$data/gpt2.json" --shards 3 -o d.h5 "$data/corpus.txt"
	[ "$(ls d*.h5 | wc -l)" -eq 4 ]
	dt-dataset cat --ids one.h5 >a
	dt-dataset cat --ids d.h5 >b
	cmp a b
	dt-dataset info --verify d.h5
	h5dump -v -d /tokens -y -w 1 d.h5 >/dev/null 2>&1 || skip "no h5dump"
	h5dump -d /tokens -y -w 1 d.h5 | grep -oE '^ +[0-9]+' | tr -d ' ' | cmp - a
}

@test "--split 10 gives nanoGPT's training and validation sets" {
	in="$DT_TEST_DATA/tinyshakespeare/input.txt"
	[ -f "$in" ] || skip "no tinyshakespeare/input.txt in $DT_TEST_DATA"
	dt-tokenize train --chars --out c.json "$in"
	run dt-dataset build -t c.json --split 10 -o train.h5 --out-eval eval.h5 --json "$in"
	[ "$status" -eq 0 ]
	[[ "$output" == *'"tokens":1003854'*'"vocab":65'*'"tokens":111540'* ]]
	dt-dataset cat train.h5 | cmp - <(head -c 1003854 "$in")
	dt-dataset cat eval.h5 | cmp - <(tail -c 111540 "$in")
}

@test "nanoGPT's token counts with GPT-2's vocabulary" {
	in="$DT_TEST_DATA/tinyshakespeare/input.txt" g="$DT_TEST_DATA/tokenizers/ggml-vocab-gpt-2.gguf"
	[ -f "$in" ] || skip "no tinyshakespeare/input.txt in $DT_TEST_DATA"
	[ -f "$g" ] || skip "no ggml-vocab-gpt-2.gguf in $DT_TEST_DATA"
	command -v python3 || skip "no python3"
	python3 "$DT_SRC/tests/data/gguf_tokenizer.py" "$g" gpt2.json
	run dt-dataset build -t gpt2.json --split 10 -o train.h5 --out-eval eval.h5 "$in"
	# nanoGPT's readme says 301,966 and 36,059; dt-dataset adds an end-of-text token to each
	[[ "$output" == "train.h5: 301967 tokens, 1 document; eval.h5: 36060 tokens, 1 document;"* ]]
}

@test "a byte-order mark at the head of a file is removed" {
	printf '{"text":"one"}\n' >a.jsonl
	printf 'one' >a.txt
	for f in a.jsonl a.txt; do
		{ printf '\xef\xbb\xbf'; cat $f; } >marked.${f#a.}
		dt-dataset build -o a.h5 $f
		dt-dataset build -o b.h5 marked.${f#a.}
		dt-dataset cat --special a.h5 | cmp - <(dt-dataset cat --special b.h5)
	done
}

@test "JSONL: the field that holds the text, and errors with their line" {
	printf '{"text":"one"}\n\n{"text":"two\\u00e9","n":1}\n' >a.jsonl
	run dt-dataset build -o d.h5 a.jsonl
	[[ "$output" == "d.h5: 10 tokens, 2 documents;"* ]]
	run dt-dataset cat --special d.h5
	[ "$output" = "one<|endoftext|>twoé<|endoftext|>" ]
	dt-dataset build --format jsonl -o e.h5 - <a.jsonl
	dt-dataset cat e.h5 | cmp - <(dt-dataset cat d.h5)
	printf '{"text":"one"}\n{"body":"two"}\n' >b.jsonl
	run dt-dataset build -o f.h5 b.jsonl
	[ "$status" -eq 1 ]
	[[ "$output" == *"'b.jsonl': line 2 has no string 'text'"* ]]
	run dt-dataset build --field body -o f.h5 b.jsonl
	[[ "$output" == *"line 1 has no string 'body'"* ]]
	printf '{"text":"one"}\n{"text":\n' >c.jsonl
	run dt-dataset build -o f.h5 c.jsonl
	[ "$status" -eq 1 ]
	[[ "$output" == *"line 2"* ]]
	[ ! -e f.h5 ]
}

@test "a text is split into documents at a separator" {
	printf 'one<|endoftext|>two<|endoftext|>' >a
	run dt-dataset build --separator '<|endoftext|>' -o d.h5 a
	[[ "$output" == "d.h5: 8 tokens, 2 documents;"* ]]
	# without a separator the text of a special token is plain text
	run dt-dataset build -o d.h5 a
	[[ "$output" == "d.h5: 33 tokens, 1 document;"* ]]
}

@test "options that the format of the inputs does not read are a usage error" {
	printf 'one,two' >a
	printf '{"text":"one,two"}\n' >b.jsonl
	cp b.jsonl b.txt
	run dt-dataset build --separator , -o d.h5 b.jsonl
	[ "$status" -eq 2 ]
	[[ "$output" == *"--separator has no effect"* ]]
	run dt-dataset build --separator , --format jsonl -o d.h5 b.txt
	[ "$status" -eq 2 ]
	run dt-dataset build --field text -o d.h5 a b.txt
	[ "$status" -eq 2 ]
	[[ "$output" == *"--field has no effect"*"--format jsonl"* ]]
	[ ! -e d.h5 ]
	run dt-dataset build --separator , --field text -o d.h5 a b.jsonl
	[ "$status" -eq 0 ]
	[[ "$output" == "d.h5: 16 tokens, 3 documents;"* ]]
	# of each other
	for o in "sample --in-order --seed 2" "sample --in-order --epoch 2" "sample --ids --special" "cat --ids --special"; do
		# shellcheck disable=SC2086 # words
		run dt-dataset $o d.h5
		[ "$status" -eq 2 ]
	done
}

@test "samples depend on seed and epoch only" {
	dt-dataset build -o d.h5 "$data/golden.json"
	dt-dataset build --shards 5 -o s.h5 "$data/golden.json"
	dt-dataset sample d.h5 -n 5 --seq 32 --ids >a
	dt-dataset sample s.h5 -n 5 --seq 32 --ids | cmp - a
	dt-dataset sample d.h5 -n 2 --first 3 --seq 32 --ids | cmp - <(tail -n 2 a)
	for other in '--seed 1' '--epoch 1'; do
		# shellcheck disable=SC2086
		dt-dataset sample d.h5 -n 5 --seq 32 --ids $other >b
		run cmp -s a b
		[ "$status" -eq 1 ]
	done
	dt-dataset sample d.h5 --in-order --seq 16 -n 1 >t
	[ "$(tail -n 1 t)" = "$(head -c 16 "$data/golden.json")" ]
	run dt-dataset sample d.h5 -n 1 --json --seq 4 --in-order
	[ "$output" = '{"schema":1,"sample":0,"ids":[123,34,116,101],"text":"{\"te"}' ]
}

@test "damage is refused" {
	dt-dataset build -o d.h5 "$data/golden.json"
	head -c 200000 d.h5 >cut.h5
	run dt-dataset info cut.h5
	[ "$status" -eq 1 ]
	[[ "$output" == *"'cut.h5': the file is truncated"* ]]
	run dt-dataset info "$data/golden.json"
	[ "$status" -eq 1 ]
	[[ "$output" == *"not an HDF5 file; dt-dataset build makes a data set of texts, dt-dataset images of images"* ]]
	# training on a text
	run dt-train --model llama-tiny --data "$data/golden.json" --steps 1
	[ "$status" -eq 1 ]
	[[ "$output" == *"not an HDF5 file"*"dt-dataset build makes a data set of texts"* ]]
	run dt-dataset info missing.h5
	[ "$status" -eq 1 ]
	# flip one byte of the tokens
	cp d.h5 bad.h5
	printf 'A' | dd of=bad.h5 bs=1 seek=$(($(stat -c %s bad.h5) / 2)) conv=notrunc 2>/dev/null
	run dt-dataset info --verify bad.h5
	[ "$status" -eq 3 ]
	[[ "$output" == *"bad.h5"* ]]
	run dt-dataset info --verify d.h5
	[ "$status" -eq 0 ]
}

@test "a full disk leaves no file" {
	head -c 3000000 /dev/zero | tr '\0' a >in
	for kib in 1 2 4 100 3000 5800; do
		run bash -c "ulimit -f $kib; dt-dataset build -o d.h5 in"
		[ "$status" -eq 1 ]
		[[ "$output" == *"File too large"* ]]
		[ "${#lines[@]}" -eq 1 ]
		[ "$(ls)" = in ]
	done
	run bash -c "dt-dataset build -o d.h5 in && dt-dataset cat d.h5 >/dev/full"
	[ "$status" -eq 1 ]
	[[ "$output" == *"No space left"* ]]
}

@test "an old data set stays if a build fails" {
	echo old >old
	dt-dataset build -o d.h5 old
	run bash -c 'echo "{" | dt-dataset build --format jsonl -o d.h5 -'
	[ "$status" -eq 1 ]
	[ "$(dt-dataset cat d.h5)" = old ]
}

@test "stats: lengths, token ids and duplicates equal those counted in Python" {
	python3 - <<'END'
import collections, json, math, random
random.seed(3)
words = ["w%d" % i for i in range(300)]
docs = [" ".join(random.choices(words, k=random.randint(1, 400))) for _ in range(60)]
docs += [docs[7], docs[7], docs[9]] # exact duplicates
near = " ".join(random.choices(words, k=400))
docs += [near, near[:-4] + "tail"]
open("docs.jsonl", "w").write("".join(json.dumps({"text": d}) + "\n" for d in docs))
length = sorted(len(d) + 1 for d in docs)
ids = collections.Counter("".join(docs).encode())
ids[256] = len(docs)
n = sum(ids.values())
rank = lambda share: length[max(math.ceil(share * len(docs)), 1) - 1]
print(json.dumps({"tokens": n, "documents": len(docs), "text_bytes": sum(map(len, docs)), "ids_used": len(ids),
    "exact_duplicates": 3, "near_duplicates": 1, "min": rank(0), "p10": rank(.1), "p50": rank(.5), "p90": rank(.9),
    "p99": rank(.99), "max": rank(1), "bits": round(-sum(c / n * math.log2(c / n) for c in ids.values()), 9),
    "top": [c for _, c in ids.most_common(10)]}), file=open("want", "w"))
END
	for pack in stream documents; do
		dt-dataset build --pack $pack --shards 2 -o d.h5 docs.jsonl
		dt-dataset stats --near --json --svg l.svg d.h5 |
			jq -e --slurpfile want want '{tokens, documents, text_bytes, ids_used, exact_duplicates, near_duplicates,
				bits: (.entropy_bits * 1e9 | round / 1e9), top: [.top[].count]} + (.length | {min, p10, p50, p90, p99, max})
				== $want[0] and ([.length.histogram[].documents] | add) == 65'
	done
	grep -q "documents by length" l.svg
	dt-dataset stats d.h5 | awk 'length > 80 { exit 1 }'
	run dt-dataset stats --svg d.h5 d.h5
	[ "$status" -eq 2 ]
	dt-dataset info --verify d.h5
}

@test "kill -9 leaves no partial file" {
	mkfifo pipe
	dt-dataset build --format jsonl -o d.h5 - <pipe 3>&- &
	pid=$!
	exec 9>pipe
	yes '{"text":"some text to fill the buffer of the writer"}' | head -n 20000 >&9
	kill -9 "$pid"
	exec 9>&-
	wait "$pid" || true
	[ "$(ls)" = pipe ]
}

@test "the same input gives the same file" {
	dt-dataset build -o a.h5 "$data/corpus.txt"
	sleep 1.1 # a time stamp would differ
	dt-dataset build -o b.h5 "$data/corpus.txt"
	cmp a.h5 b.h5
}

@test "only regular files are replaced, never an input" {
	printf 'some text\n' >in.txt
	cp in.txt keep
	mkfifo fifo
	mkdir folder
	for node in fifo folder; do
		run dt-dataset build -o "$node" in.txt
		[ "$status" -eq 1 ]
		[[ "$output" == "dt-dataset: cannot write '$node': it is a"* ]]
		[ "${#lines[@]}" -eq 1 ]
	done
	[ -p fifo ]
	if mknod null c 1 3 2>/dev/null; then
		run dt-dataset build -o null in.txt
		[ "$status" -eq 1 ]
		[[ "$output" == *"it is a device"* ]]
		[ -c null ]
	fi
	mkfifo d-00001-of-00002.h5
	run dt-dataset build --shards 2 -o d.h5 in.txt
	[ "$status" -eq 1 ]
	[ -p d-00001-of-00002.h5 ]
	[ ! -e d.h5 ]
	ln in.txt same.txt
	for out in in.txt same.txt ./in.txt; do
		run dt-dataset build -o "$out" in.txt
		[ "$status" -eq 2 ]
		[[ "$output" == *"--out would overwrite the input 'in.txt'"* ]]
	done
	run -2 dt-dataset build -o r.h5 --removed ./r.h5 --dedup exact in.txt
	[[ "$output" == *"--out and --removed are the same file"* ]]
	run -2 dt-dataset build -o r.h5 --removed same.txt --exclude in.txt plain.txt
	[[ "$output" == *"--removed would overwrite the input 'in.txt'"* ]]
	run bash -c 'dt-dataset build -o in.txt - <in.txt'
	[ "$status" -eq 2 ]
	run dt-dataset build -o a.h5 --split 10 --out-eval ./a.h5 in.txt
	[ "$status" -eq 2 ]
	cmp in.txt keep
}

@test "a symbolic link is kept and its target replaced" {
	echo text >in.txt
	mkdir there
	ln -s there/d.h5 link.h5
	run dt-dataset build -o link.h5 in.txt
	[ "$status" -eq 1 ]
	[[ "$output" == *"a symbolic link to a missing file"* ]]
	echo old >there/d.h5
	dt-dataset build -o link.h5 in.txt
	[ -L link.h5 ]
	[ "$(ls there)" = d.h5 ]
	[ "$(dt-dataset cat there/d.h5)" = text ]
}
@test "gzip and zstd, text and JSONL, with a split; damage is named" {
	{ dt-dataset --help && cat "$data/corpus.txt"; } >t.txt
	jq -Rc '{text: .}' "$data/corpus.txt" | head -n 500 >d.jsonl
	for f in t.txt d.jsonl; do
		gzip -k $f
		{ head -c 1000 $f | gzip && tail -c +1001 $f | gzip; } >two.${f#*.}.gz
		dt-dataset build --split 20 -o a.h5 --out-eval ae.h5 $f
		for p in $f.gz two.${f#*.}.gz; do
			dt-dataset build --split 20 -o b.h5 --out-eval be.h5 "$p"
			dt-dataset cat a.h5 | cmp - <(dt-dataset cat b.h5)
			dt-dataset cat ae.h5 | cmp - <(dt-dataset cat be.h5)
		done
		format=$([ $f = t.txt ] && echo text || echo jsonl)
		dt-dataset build -o a.h5 $f
		dt-dataset build --format "$format" -o b.h5 - <$f.gz
		dt-dataset cat a.h5 | cmp - <(dt-dataset cat b.h5)
		if command -v zstd && zstd -q -k $f && dt-dataset build -o b.h5 $f.zst; then
			dt-dataset cat a.h5 | cmp - <(dt-dataset cat b.h5)
			head -c 900 $f.zst >cut.${f#*.}.zst
			run dt-dataset build -o c.h5 cut.${f#*.}.zst
			[ "$status" -eq 1 ]
			[[ "$output" == *"cut.${f#*.}.zst': the compressed file is truncated"* ]]
		fi
		head -c 900 $f.gz >cut.${f#*.}.gz
		run dt-dataset build -o c.h5 cut.${f#*.}.gz
		[ "$status" -eq 1 ]
		[[ "$output" == *"cut.${f#*.}.gz': the compressed file is truncated"* ]]
		[ ! -e c.h5 ]
	done
}

@test "other compression formats and binary files are refused by name; a command can decompress them" {
	head -n 50 "$data/corpus.txt" >t.txt
	dt-dataset build -o want.h5 t.txt
	python3 -c '
import bz2, lzma, sys, zipfile
text = open("t.txt", "rb").read()
open("t.txt.xz", "wb").write(lzma.compress(text))
open("t.txt.bz2", "wb").write(bz2.compress(text))
open("t.lz4", "wb").write(bytes.fromhex("04224d18") + text)
open("t.parquet", "wb").write(b"PAR1\x15" + text)
zipfile.ZipFile("t.zip", "w").write("t.txt")'
	for f in t.txt.xz t.txt.bz2 t.lz4 t.zip t.parquet want.h5; do
		for how in "$f" "|cat $f" -; do
			run -1 dt-dataset build -o c.h5 "$how" <$f
			[[ $output == *"is a "*" file, which is not supported"* ]]
		done
		[ ! -e c.h5 ]
	done
	run -1 dt-dataset build --format jsonl -o c.h5 t.txt.xz
	[[ $output == *"use '|xz -dc FILE'"* ]]
	run -1 dt-dataset images --out c.h5 t.zip
	[[ $output == *"unpack images into a folder, or make a tar of them"* ]]
	run -1 dt-dataset images --out c.h5 t.txt.xz
	[[ $output == *"use '|xz -dc FILE'"* ]]
	dt-dataset build -o got.h5 '|python3 -c "import lzma; print(lzma.open(\"t.txt.xz\", \"rt\").read(), end=\"\")"'
	dt-dataset cat want.h5 | cmp - <(dt-dataset cat got.h5)
	# signatures of other formats inside a text, or part of its first word, do not make it a binary file
	{ printf 'PK zip, BZh9 and PAR1: ' && cat t.txt; } >like.txt
	dt-dataset build -o got.h5 like.txt
	dt-dataset cat got.h5 | cmp - like.txt
}

@test "commands as inputs: a URL, several commands, with --split, commands that fail" {
	jq -Rc '{text: .}' "$data/corpus.txt" | head -n 300 >d.jsonl
	gzip -k d.jsonl
	dt-dataset build -o want.h5 d.jsonl
	for how in "|curl -fsS file://$PWD/d.jsonl" '|cat d.jsonl.gz # d.jsonl'; do
		dt-dataset build -o got.h5 "$how"
		dt-dataset cat want.h5 | cmp - <(dt-dataset cat got.h5)
	done
	head -n 100 d.jsonl >one.jsonl
	dt-dataset build -o got.h5 '|cat one.jsonl' '|tail -n +101 d.jsonl'
	dt-dataset cat want.h5 | cmp - <(dt-dataset cat got.h5)
	dt-dataset build --split 20 -o want.h5 --out-eval wante.h5 d.jsonl
	dt-dataset build --split 20 -o got.h5 --out-eval gote.h5 '|cat d.jsonl'
	dt-dataset cat want.h5 | cmp - <(dt-dataset cat got.h5)
	dt-dataset cat wante.h5 | cmp - <(dt-dataset cat gote.h5)
	# a command that fails after its complete output
	run -1 dt-dataset build -o c.h5 '|cat d.jsonl; exit 3'
	[[ $output == *"the command failed with status 3"* ]]
	run -1 dt-dataset build -o c.h5 --format jsonl '|cat d.jsonl; kill -9 $$'
	[[ $output == *"signal 9 ended the command"* ]]
	run -1 dt-dataset build -o c.h5 '|/nowhere/at-all'
	[[ $output == *"the command failed with status 127"* ]]
	# an error in the data ends the build without waiting for the command, which here never ends
	run -1 dt-dataset build -o c.h5 --format jsonl '|yes nothing'
	[[ $output == *"line 1"* ]]
	[ ! -e c.h5 ]
}

@test "contrib: a column of a Parquet file" {
	python3 -c 'import pyarrow' 2>/dev/null || skip "needs pyarrow"
	jq -Rc '{text: .}' "$data/corpus.txt" | head -n 300 >d.jsonl
	python3 -c 'import json, pyarrow, pyarrow.parquet as q
rows = [json.loads(line)["text"] for line in open("d.jsonl", encoding="utf-8")]
for i, part in enumerate((rows[:100], rows[100:])):
    q.write_table(pyarrow.table({"body": part, "n": list(range(len(part)))}), f"p{i}.parquet", row_group_size=32)'
	dt-dataset build -o want.h5 d.jsonl
	dt-dataset build --format jsonl -o got.h5 "|$DT_SRC/contrib/parquet-jsonl --column body p0.parquet p1.parquet"
	dt-dataset cat want.h5 | cmp - <(dt-dataset cat got.h5)
	run -1 dt-dataset build --format jsonl -o c.h5 "|$DT_SRC/contrib/parquet-jsonl --column other p0.parquet"
	[[ $output == *"no column 'other'"*"status 1"* ]]
}

@test "a set whose documents are all dropped is not written, and the message says why they were" {
	echo short >short.txt
	run dt-dataset build -t byte --min-chars 100 -o none.h5 short.txt
	[ "$status" -eq 1 ]
	[ "$output" = "dt-dataset: all documents were dropped (1 too short): cannot write 'none.h5': there are no tokens" ]
	[ ! -e none.h5 ]
}

@test "invalid lines: refused, or skipped and counted" {
	printf '{"text":"one"}\n{"text":"\377"}\nnot json\n{"other":"x"}\n{"text":7}\n{"text":"two"}\n' >d.jsonl
	run dt-dataset build -o d.h5 d.jsonl
	[ "$status" -eq 1 ]
	[[ "$output" == *"line 2"* ]]
	[ ! -e d.h5 ]
	run dt-dataset build --skip-bad --json -o d.h5 d.jsonl
	[ "$status" -eq 0 ]
	[[ "$output" == *"skipped: 'd.jsonl': line 3"* ]]
	[[ "$output" == *'"documents":2'*'"bad_lines":4'* ]]
}
@test "empty documents are skipped and counted, and the reported size is that of the text" {
	printf '{"text":"one"}\n{"text":""}\n\n{"text":"two","rest":"of the line"}\n{"text":""}\n{"text":"one"}\n' >d.jsonl
	: >nothing.txt
	run dt-dataset build -o d.h5 d.jsonl
	[[ "$output" == "d.h5: 12 tokens, 3 documents; 2 empty documents skipped; 9 B of text in "* ]]
	run dt-dataset build --dedup exact -o d.h5 d.jsonl nothing.txt
	[[ "$output" == "d.h5: 8 tokens, 2 documents; dropped: 1 duplicate; 3 empty documents skipped; 6 B of text in "* ]]
	dt-dataset build --dedup exact --json -o d.h5 d.jsonl >said
	jq -e '.empty_documents == 2 and .documents.kept.bytes == 6 and .documents.duplicate.bytes == 3' said
	[ "$(jq .input_bytes said)" -eq "$(stat -c %s d.jsonl)" ]
	gzip -k d.jsonl
	run dt-dataset build -o d.h5 d.jsonl.gz
	[[ "$output" == *"; 2 empty documents skipped; 9 B of text in "* ]]
	# with a separator: what follows the last one is not a document if it is empty
	printf 'a--b----c--' >d.txt
	run dt-dataset build --separator -- -o d.h5 nothing.txt d.txt nothing.txt
	[[ "$output" == "d.h5: 6 tokens, 3 documents; 3 empty documents skipped; 3 B of text in "* ]]
	run dt-dataset build -o d.h5 d.txt
	[[ "$output" == "d.h5: 12 tokens, 1 document; 11 B of text in "* ]]
}

@test "documents in another script, and repetitive ones, are removed" {
	{
		echo '{"text":"A text in English, and one Greek letter: λ."}'
		echo '{"text":"Текст на русском языке, with three words."}'
		echo '{"text":"これは日本語の文章です。漢字とかな。"}'
		echo '{"text":"12345 + 67890 = ?"}'
		jq -nc '{text: ("one two three four five six " * 20)}'
	} >d.jsonl
	reasons() { # OPTION...: the reasons for documents 0 to 4, without those kept
		dt-dataset build --removed why.jsonl -o d.h5 "$@" d.jsonl >/dev/null
		jq -r '"\(.document) \(.reason)"' why.jsonl | paste -sd,
	}
	[ "$(reasons --script Latin)" = "1 in another script,2 in another script" ]
	[ "$(reasons --script Latin:30%)" = "2 in another script" ]
	[ "$(reasons --script Latin:99%)" = "0 in another script,1 in another script,2 in another script" ]
	[ "$(reasons --script Cyrillic:0.5)" = "0 in another script,2 in another script,4 in another script" ]
	[ "$(reasons --max-ngrams 15%)" = "4 repeated words" ]
	# a word of 500,000 letters; then documents filtered by four threads are those of one thread, ten times
	jq -nc '{text: ("я" * 500000)}' >word.jsonl
	run -1 dt-dataset build --script Latin -o word.h5 word.jsonl
	jq -nc 'range(6000) | {text: "\(.) some words of it, \("и слово, " * (. % 9 + 1)) and \(. * 7) more"}' >many.jsonl
	OMP_NUM_THREADS=1 dt-dataset build --script Latin:60% -o one.h5 many.jsonl
	dt-dataset info --json one.h5 | jq -e '.documents > 1000 and .documents < 5000'
	for _ in $(seq 10); do
		OMP_NUM_THREADS=4 dt-dataset build --script Latin:60% -o four.h5 many.jsonl
		cmp <(dt-dataset cat one.h5) <(dt-dataset cat four.h5)
	done
	printf '\xff\xfeabc \xd0' >bad
	dt-dataset build --script Latin --json -o d.h5 bad | jq -e '.documents.kept.documents == 1'
	for bad in Klingon 'L)' '' Latin:2; do
		run -2 dt-dataset build --script "$bad" -o no.h5 d.jsonl
		[ ! -e no.h5 ]
	done
}

@test "quality filters remove documents, and a report says which and why" {
	w="one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
	{
		echo "{\"text\":\"$w and on it goes\"}"
		echo '{"text":"short"}'
		echo "{\"text\":\"$w and on it goes\"}"
		echo '{"text":"!!! ??? ### aaa bbb"}'
		echo '{"text":"a line\na line\na line\nanother"}'
		echo '{"text":"The question: what is the answer to life and to the universe and to everything?"}'
		seq -f 'word%g' 300 | jq -Rsc '{text: .}'
		{ seq -f 'word%g' 299 && echo other; } | jq -Rsc '{text: .}'
		jq -nc '{text: ("x" * 5000)}'
	} >d.jsonl
	echo 'what is the answer to life and to the universe and to everything?' >test.txt
	dt-dataset build -o all.h5 d.jsonl
	run dt-dataset build --json --dedup near --min-chars 10 --max-chars 4000 --max-symbols 30% --max-repeats 0.2 \
		--exclude test.txt --removed why.jsonl -o d.h5 d.jsonl
	[ "$status" -eq 0 ]
	jq -e '.train.documents == 2 and .documents.kept.documents == 2 and (.documents | map(.documents) | add) == 9' <<<"$output"
	[ "$(jq -c '[.document, .reason, .like]' why.jsonl | tr -d '\n')" = \
		'[1,"too short",null][2,"duplicate",0][3,"symbols",null][4,"repeated",null][5,"excluded",null][7,"near duplicate",6][8,"too long",null]' ]
	[[ "$(jq -r 'select(.document == 3).start' why.jsonl)" == "!!! ???"* ]]
	run dt-dataset build --dedup exact -o e.h5 d.jsonl
	[[ "$output" == *"8 documents; dropped: 1 duplicate;"* ]]
	run dt-dataset build --removed d.jsonl -o e.h5 d.jsonl
	[ "$status" -eq 2 ]
	run dt-dataset build --exclude none.txt -o f.h5 d.jsonl
	[ "$status" -eq 1 ]
	[ ! -e f.h5 ]
}
# many: prints 2,176 distinct documents as JSONL
many() {
	cat "$data/corpus.txt" >text
	for _ in 1 2 3 4 5 6; do
		cat text text >twice && mv twice text
	done
	jq -Rc '{text: (. + " \(input_line_number)")}' text
}

@test "the number of threads changes nothing: many documents, and one of several MiB" {
	many >d.jsonl
	for _ in $(seq 16); do cat text; done >large.txt
	[ "$(wc -l <d.jsonl)" -gt 2048 ] && [ "$(stat -c %s large.txt)" -gt 2500000 ]
	for n in 1 3; do
		export OMP_NUM_THREADS=$n
		dt-dataset build -t "$data/gpt2.json" --dedup near --min-chars 20 --removed gone$n -o d$n.h5 d.jsonl large.txt
		dt-dataset build -t "$data/gpt2.json" --split 10 -o t$n.h5 --out-eval e$n.h5 d.jsonl large.txt
	done
	for f in d t e; do cmp ${f}1.h5 ${f}3.h5; done
	cmp gone1 gone3
	# a large document, which is tokenized in chunks, has the ids of the text tokenized as a whole
	dt-dataset build -t "$data/gpt2.json" -o l.h5 large.txt
	cmp <(dt-dataset cat --ids l.h5 | head -n -1) <(dt-tokenize encode -t "$data/gpt2.json" <large.txt | tr ' ' '\n')
}

@test "a line that is too long is named, skipped, and not kept in memory" {
	slow || skip "reads 600 MB; DT_SLOW=1 runs it"
	long="echo '{\"text\":\"before\"}'; head -c 600000000 /dev/zero | tr '\\0' a; printf '\\n{\"text\":\"behind\"}'"
	run -1 bash -c "($long) | dt-dataset build --format jsonl -o d.h5 -"
	[[ $output == *"'-': line 2 is longer than 256 MiB"* ]]
	[ ! -e d.h5 ]
	run -0 --separate-stderr bash -c "ulimit -v 1500000; export OMP_NUM_THREADS=2
		($long) | dt-dataset build --format jsonl --skip-bad -o d.h5 -"
	[[ $stderr == *"skipped: '-': line 2 is longer than 256 MiB"* ]]
	[[ $(dt-dataset cat d.h5) == beforebehind ]]
}
@test "--work: the same command continues a failed build where it stopped" {
	{ echo '{"text":""}' && many && echo '{"text":""}'; } >d.jsonl
	for _ in $(seq 8); do cat text; done >large.txt
	build=(build -t "$data/gpt2.json" --dedup near --min-chars 20 --json d.jsonl large.txt '|cat d.jsonl; [ -e whole ]')
	touch whole
	dt-dataset "${build[@]}" --format auto -o want.h5 --removed wanted >expected
	[ "$(jq .empty_documents expected)" -eq 2 ]
	rm whole
	run -1 dt-dataset "${build[@]}" -o d.h5 --removed gone --work w
	[ ! -e d.h5 ]
	cp w/journal whole
	# refused with another tokenizer or another input
	run -1 dt-dataset "${build[@]}" -t byte -o d.h5 --removed gone --work w
	[[ $output == *"'w/journal' belongs to another build"* ]]
	run -1 dt-dataset "${build[@]}" d.jsonl -o d.h5 --removed gone --work w
	[[ $output == *"'w/journal' belongs to another build"* ]]
	# journals: complete, without the last 7 bytes, with changed bytes, and only the first 100 bytes
	n=$(stat -c %s whole)
	for how in cat "head -c -7" damaged "head -c 100"; do
		damaged() { head -c $((n / 2)) && printf '\001\376' && tail -c +3; }
		mkdir -p w
		$how <whole >w/journal
		dt-dataset "${build[@]}" -o d.h5 --removed gone --work w >said
		cmp d.h5 want.h5
		cmp gone wanted
		[ "$(jq -c '[.empty_documents, .documents]' said)" = "$(jq -c '[.empty_documents, .documents]' expected)" ]
		[ ! -e w ]
		[ "$how" = "head -c 100" ] || jq -e '.resumed_documents > 0' said
		echo "$how: $(jq .resumed_documents said)"
	done
}
# SPDX-License-Identifier: Apache-2.0
