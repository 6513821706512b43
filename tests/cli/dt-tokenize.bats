# dt-tokenize

setup() {
	: "${DT_BIN:=build/tools}" "${DT_SRC:=.}"
	: "${DT_TEST_DATA:=$DT_SRC/../shared/data}"
	PATH="$DT_BIN:$PATH"
	data="$DT_SRC/tests/data/tokenizer"
	cd "$BATS_TEST_TMPDIR" || return 1
}

# Prints the texts of a .inp file, each followed by a zero byte.
strings() {
	python3 -c '
import sys
parts = open(sys.argv[1], "rb").read().split(b"\n__ggml_vocab_test__\n")
sys.stdout.buffer.write(b"".join(p + b"\0" for p in parts[:-1]))' "$1"
}

# Prints the ids of a .out file without blanks at the ends of lines.
expected() {
	sed 's/^ *//; s/ *$//' "$1"
}

@test "special tokens that cannot be: one line, and the old tokenizer stays" {
	printf 'the end of the text of the test\n%.0s' 1 2 3 >some.txt
	echo old >old.json
	for bad in "a:how another token is written" "\xc4\xa0the:how another token is written" ":no text"; do
		run dt-tokenize train --vocab 300 --special-token "$(printf '%b' "${bad%%:*}")" --out old.json some.txt
		[ "$status" -eq 1 ]
		[[ "$output" == *"${bad#*:}"* ]]
		[ "$(cat old.json)" = old ]
	done
	run dt-tokenize train --vocab 300 --special-token '<x>' --special-token '<x>' --out old.json some.txt
	[ "$status" -eq 1 ]
	[[ "$output" == *"'<x>' is given twice"* ]]
	[ "$(cat old.json)" = old ]
}

@test "help leads with two examples" {
	run dt-tokenize --help
	[ "$status" -eq 0 ]
	[[ "$output" == *"dt-tokenize train --vocab 4096"* ]]
	[[ "$output" == *"dt-tokenize encode"* ]]
}

@test "wrong usage: exit status 2 and a message that states the error" {
	run dt-tokenize
	[ "$status" -eq 2 ]
	run dt-tokenize encode
	[ "$status" -eq 2 ]
	[[ "$output" == *"needs --tokenizer"* ]]
	run dt-tokenize encode -t byte --vocab 3
	[ "$status" -eq 2 ]
	run dt-tokenize train a.txt
	[ "$status" -eq 2 ]
	run dt-tokenize train --out x.json
	[ "$status" -eq 2 ]
	# neither applies to characters
	run dt-tokenize train --chars --min-count 3 --out x.json a.txt
	[ "$status" -eq 2 ]
	run dt-tokenize train --chars --pattern qwen2 --out x.json a.txt
	[ "$status" -eq 2 ]
	run dt-tokenize encode -t byte --binary u16 --lines
	[ "$status" -eq 2 ]
	run dt-tokenize encode -t byte file
	[ "$status" -eq 2 ]
}

@test "train: compressed texts and commands as input; other formats are refused" {
	seq 3000 >a.txt
	dt-tokenize train --vocab 300 --out want.json a.txt
	gzip -k a.txt
	for how in a.txt.gz '|cat a.txt'; do
		dt-tokenize train --vocab 300 --out got.json "$how"
		cmp want.json got.json
	done
	python3 -c 'import lzma; open("a.txt.xz", "wb").write(lzma.compress(open("a.txt", "rb").read()))'
	run dt-tokenize train --vocab 300 --out no.json a.txt.xz
	[ "$status" -eq 1 ]
	[[ "$output" == *"'a.txt.xz' is a xz file, which is not supported"* ]]
	[ ! -e no.json ]
}

@test "GPT-2's vocabulary gives the expected ids" {
	dir="$DT_TEST_DATA/tokenizers"
	[ -f "$dir/ggml-vocab-gpt-2.gguf" ] || skip "no ggml-vocab-gpt-2.gguf in $dir"
	command -v python3 || skip "no python3"
	python3 "$DT_SRC/tests/data/gguf_tokenizer.py" "$dir/ggml-vocab-gpt-2.gguf" gpt2.json
	strings "$dir/ggml-vocab-gpt-2.gguf.inp" >in
	expected "$dir/ggml-vocab-gpt-2.gguf.out" >want
	dt-tokenize encode -z -t gpt2.json <in >got
	[ "$(wc -l <want)" -gt 40 ]
	diff want got
	dt-tokenize decode -z -t gpt2.json <got | cmp - in
}

@test "Qwen's vocabulary gives the expected ids" {
	dir="$DT_TEST_DATA/tokenizers/qwen3"
	[ -f "$dir/tokenizer.json" ] || skip "no tokenizer.json in $dir"
	command -v python3 || skip "no python3"
	strings "$dir/qwen2.inp" >in
	expected "$dir/qwen2.out" >want
	dt-tokenize encode -z -t "$dir" <in >got
	[ "$(wc -l <want)" -gt 40 ]
	diff want got
}

@test "train, encode and decode give the text back" {
	cat "$data/corpus.txt" "$data/golden.py" >text
	dt-tokenize train --vocab 700 --out tok.json text
	dt-tokenize encode -t tok.json <text >ids
	dt-tokenize decode -t tok.json <ids | cmp - text
	[ "$(wc -w <ids)" -lt "$(($(wc -c <text) / 2))" ]
	dt-tokenize encode -t tok.json --binary u16 <text >bin
	[ "$(stat -c %s bin)" -eq "$((2 * $(wc -w <ids)))" ]
	dt-tokenize decode -t tok.json --binary u16 <bin | cmp - text
	dt-tokenize encode -t tok.json --binary i32 <text | dt-tokenize decode -t tok.json --binary i32 | cmp - text
}

@test "training twice gives the same file, in any order of files" {
	dt-tokenize train --vocab 500 --out a.json "$data/corpus.txt" "$data/golden.py"
	dt-tokenize train --vocab 500 --out b.json "$data/golden.py" "$data/corpus.txt"
	cmp a.json b.json
}

@test "training reproduces the committed tokenizer" {
	dt-tokenize train --vocab 512 --out a.json "$data/corpus.txt"
	python3 -c '
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
assert a == b' a.json "$data/gpt2.json"
}

@test "--lines encodes and decodes each line by itself" {
	printf 'ab\n\nc' >in
	run dt-tokenize encode -t byte --lines <in
	[ "$status" -eq 0 ]
	[ "$output" = "$(printf '97 98\n\n99')" ]
	dt-tokenize encode -t byte -l <in | dt-tokenize decode -t byte -l >out
	[ "$(cat out)" = "$(cat in)" ]
	run dt-tokenize encode -t byte --lines --json <in
	[ "${lines[0]}" = '{"schema":1,"tokens":2,"text_bytes":2,"ids":[97,98]}' ]
}

@test "special tokens only when asked for" {
	run dt-tokenize encode -t byte --special <<<"a<|endoftext|>"
	[ "$output" = "97 256 10" ]
	run dt-tokenize encode -t byte <<<"<|"
	[ "$output" = "60 124 10" ]
	run dt-tokenize decode -t byte <<<"97 256"
	[ "$output" = "a" ]
	run dt-tokenize decode -t byte --special <<<"97 256"
	[ "$output" = "a<|endoftext|>" ]
}

@test "--bos adds the token at the start of a text, and is refused if the tokenizer has none" {
	run dt-tokenize encode -t "$data/llama3.json" --bos </dev/null
	[ "$status" -eq 0 ]
	[ "$output" = 513 ]
	run dt-tokenize encode -t byte --bos </dev/null
	[ "$status" -eq 1 ]
}

@test "--chars: one token per character" {
	printf 'hello world\n' >text
	dt-tokenize train --chars --out c.json text
	run dt-tokenize encode -t c.json <text
	[ "$output" = "4 3 5 5 6 1 8 6 7 5 2 0" ]
	run dt-tokenize encode -t c.json <<<"hexe"
	[ "$status" -eq 1 ]
	[[ "$output" == *"byte 0x78 ('x') is not in the vocabulary"* ]]
}

@test "info" {
	run dt-tokenize info -t "$data/qwen2.json"
	[ "$status" -eq 0 ]
	[[ "$output" == *"vocabulary"*"515"* ]]
	[[ "$output" == *"NFC"* ]]
	run dt-tokenize info -t byte --json
	[[ "$output" == '{"schema":1,"kind":"byte","vocab":257,'* ]]
}

@test "WordPiece: BERT's tokens around a text, and back" {
	run bash -c 'echo "Hello World, caffè" | dt-tokenize encode --lines --bos --eos -t "$0/wp-uncased.json" |
		dt-tokenize decode --lines --special -t "$0/wp-uncased.json"' "$data"
	[ "$status" -eq 0 ]
	[ "$output" = "[CLS] hello world, caffe [SEP]" ]
	run dt-tokenize info -t "$data/wp-uncased.json" --json
	[[ "$output" == *'"kind":"WordPiece"'*'"bos_id":2,"end_id":3,'* ]]
	run dt-tokenize encode --eos -t "$data/gpt2.json" </dev/null
	[ "$status" -eq 1 ]
	[[ "$output" == *"gpt2.json' has no token after a text"* ]]
}

# ids TOKENIZER: those of text.txt, which has several lines, with the tokens around each line
ids() {
	dt-tokenize encode --lines --special --bos --eos -t "$1" <text.txt
}

@test "WordPiece out of vocab.txt, and through a GGUF file" {
	printf '%s\n' 'The QUICK brown fox, caffè 12345 times.' 'don’t [MASK] 中文 Ünïted' "$(head -c 300 "$data/corpus.txt" | tr '\n' ' ')" >text.txt
	for name in wp-uncased wp-cased; do
		ids "$data/$name.json" >want
		[ "$(wc -l <want)" = 3 ]
		mkdir "$name"
		python3 -c '
import json, sys
v = json.load(open(sys.argv[1]))["model"]["vocab"]
print(*sorted(v, key=v.get), sep="\n")' "$data/$name.json" >"$name/vocab.txt"
		case $name in *-cased) lower=false strip=true ;; *) lower=true strip=false ;; esac
		# [MASK] of wp-cased takes the blanks before it, which vocab.txt cannot say: no id is different
		echo "{\"do_lower_case\":$lower,\"tokenizer_class\":\"BertTokenizer\"}" >"$name/tokenizer_config.json"
		ids "$name" | cmp - want
		echo "{\"do_lower_case\":$lower,\"strip_accents\":$strip}" >"$name/tokenizer_config.json"
		run cmp <(ids "$name") want
		[ "$status" -eq 1 ]
		dt-dataset build -t "$data/$name.json" -o "$name.h5" text.txt >/dev/null
		[ "$(dt-dataset cat "$name.h5" | head -c 4 | tr T t)" = "the " ]
		dt-train --model gpt2-tiny --vocab 768 --data "$name.h5" --seq 16 --microbatch 1 --steps 1 --save "run-$name" >/dev/null
		dt-shard-ckpt convert --to gguf "run-$name" "$name.gguf"
		ids "$name.gguf" | cmp - want
	done
	echo '{"tokenizer_class":"EsmTokenizer"}' >wp-cased/tokenizer_config.json
	run dt-tokenize info -t wp-cased
	[ "$status" -eq 1 ]
	[[ "$output" == *"with vocab.txt this is not supported: 'EsmTokenizer'"* ]]
	echo hello >wp-uncased/vocab.txt
	run dt-tokenize info -t wp-uncased
	[ "$status" -eq 1 ]
	[[ "$output" == *"its vocabulary does not contain '[UNK]'"* ]]
	# what GGUF cannot say of a normalizer is not left out
	run dt-shard-ckpt convert --to gguf --tokenizer "$data/wp-accents.json" run-wp-cased no.gguf
	[ "$status" -eq 1 ]
	[[ "$output" == *"the normalizer of the WordPiece tokenizer has no form in GGUF"* ]]
}

# bert.gguf LIST: a vocabulary with these tokens and types (1 normal, 3 control), and no other keys than sizes
bert_gguf() {
	python3 -c '
import struct, sys
tokens = eval(sys.argv[1])
text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
kv = [("general.architecture", 8, text("bert")), ("tokenizer.ggml.model", 8, text("bert")),
      ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(tokens)) + b"".join(text(t) for t, _ in tokens)),
      ("tokenizer.ggml.token_type", 9, struct.pack("<IQ", 5, len(tokens)) + b"".join(struct.pack("<i", k) for _, k in tokens)),
      *[(f"tokenizer.ggml.{k}_token_id", 4, struct.pack("<I", i)) for i, k in enumerate(["padding", "unknown", "cls", "seperator"])]]
sys.stdout.buffer.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(kv)) + b"".join(text(k) + struct.pack("<I", t) + v for k, t, v in kv))' "$1"
}

@test "WordPiece in the GGUF files of several converters" {
	m=$'\xe2\x96\x81'
	# special tokens of type normal, and one in brackets without a mark, are what older converters wrote
	bert_gguf "[('[PAD]',1),('[UNK]',1),('[CLS]',1),('[SEP]',1),('[unused0]',1),('${m}un',1),('known',1),('$m!',1),('${m}[x]',1)]" >old.gguf
	run dt-tokenize encode --bos --eos -t old.gguf <<<'Unknown! UN x'
	[ "$status" -eq 0 ]
	[ "$output" = "2 5 6 7 5 1 3" ]
	run dt-tokenize decode -t old.gguf <<<'5 6 7 4 8'
	[ "$output" = "unknown! [unused0] [x]" ]
	bert_gguf "[('[PAD]',3),('[UNK]',3),('[CLS]',3),('[SEP]',3),('${m}a',1),('$m',1),('a',1)]" >new.gguf
	run dt-tokenize encode -t new.gguf <<<'a aa aaa b'
	[ "$output" = "4 4 6 4 6 6 1" ]
	bert_gguf "[('[PAD]',3),('${m}a',1),('${m}a',1)]" >twice.gguf
	run dt-tokenize info -t twice.gguf
	[ "$status" -eq 1 ]
	[[ "$output" == *"a token is not UTF-8 or is duplicated"* ]]
}

@test "unsupported tokenizers are refused by name" {
	echo '{"model":{"type":"WordLevel","vocab":{}}}' >w.json
	run dt-tokenize info -t w.json
	[ "$status" -eq 1 ]
	[[ "${lines[0]}" == *"w.json"*"'WordLevel' is not supported"* ]]
	echo 'not json' >n.json
	run dt-tokenize info -t n.json
	[ "$status" -eq 1 ]
	run dt-tokenize info -t missing.json
	[ "$status" -eq 1 ]
	[[ "$output" == *"missing.json"*"No such file"* ]]
}

@test "bad ids are named" {
	run dt-tokenize decode -t byte <<<"1 2 x3"
	[ "$status" -eq 1 ]
	[[ "$output" == *"'x3' is not an id"* ]]
	run dt-tokenize decode -t byte <<<"257"
	[ "$status" -eq 1 ]
	[[ "$output" == *"257"* ]]
	run dt-tokenize decode -t byte <<<"99999999999999999999"
	[ "$status" -eq 1 ]
	run bash -c 'printf abc | dt-tokenize decode -t byte --binary i32'
	[ "$status" -eq 1 ]
}

# vectors TOKENIZER INP OUT: the ids of every text in INP equal its line of OUT
vectors() {
	/usr/bin/python3 - "$@" <<'END'
import subprocess, sys
texts = open(sys.argv[2], "rb").read().split(b"\n__ggml_vocab_test__\n")
want = [line.split() for line in open(sys.argv[3]).read().split("\n")]
whole = subprocess.run(["dt-tokenize", "encode", "-z", "-t", sys.argv[1]], input=b"".join(t + b"\0" for t in texts),
                       capture_output=True, check=True)
got = [line.split() for line in whole.stdout.decode().split("\n")]
assert len(texts) > 40
for i, text in enumerate(texts):
    assert got[i] == want[i], (sys.argv[1], text, got[i], want[i])
END
}

@test "GGUF vocabularies and Qwen's folder give the published ids" {
	V="$DT_TEST_DATA/tokenizers"
	[ -d "$V" ] || skip "no tokenizers in $DT_TEST_DATA"
	for name in deepseek-llm falcon gpt-2 llama-spm; do
		vectors "$V/ggml-vocab-$name.gguf" "$V/ggml-vocab-$name.gguf.inp" "$V/ggml-vocab-$name.gguf.out"
	done
	vectors "$V/qwen3" "$V/qwen3/qwen2.inp" "$V/qwen3/qwen2.out"
	perl -0777 -pe 's/(tokenizer\.ggml\.pre.{12})falcon/$1falcxn/s' "$V/ggml-vocab-falcon.gguf" >other.gguf
	run dt-tokenize info -t other.gguf
	[ "$status" -eq 1 ]
	[[ "$output" == *"its pre-tokenizer is not supported: 'falcxn'"* ]]
	[ "${#lines[@]}" -eq 1 ]
}

@test "a tokenizer is read from any file that contains one" {
	text='The quick brown fox, 12345 times.'
	ids() { printf %s "$text" | dt-tokenize encode -t "$1"; }
	mkdir hf sp both none
	cp "$data/gpt2.json" hf/tokenizer.json
	cp "$data/model-llama.model" sp/tokenizer.model
	cp hf/tokenizer.json sp/tokenizer.model both
	[ "$(ids hf)" = "$(ids "$data/gpt2.json")" ]
	[ "$(ids sp)" = "$(ids "$data/model-llama.model")" ]
	[ "$(ids both)" = "$(ids hf)" ]
	[ "$(ids sp | dt-tokenize decode -t sp)" = "$text" ]
	run dt-tokenize info -t none
	[ "$status" -eq 1 ]
	[[ "$output" == *"folder 'none' contains no tokenizer"* ]]
	run dt-tokenize info -t missing
	[ "$status" -eq 1 ]
	[[ "$output" == *"cannot open 'missing': No such file"* ]]
	# a data set, a checkpoint and a GGUF file carry it along
	printf %s "$text" >in.txt
	dt-dataset build -t sp -o d.h5 in.txt
	[ "$(dt-dataset cat d.h5)" = "$text" ]
	DT_TOKENIZER=hf
	if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
		/usr/bin/python3 "$DT_SRC/tests/cli/convert.py" make gpt2 F32 m
		dt-shard-ckpt convert --tokenizer "$DT_TOKENIZER" m ck 2>/dev/null
		[ "$(ids ck)" = "$(ids hf)" ]
		[ "$(ids ck/latest)" = "$(ids hf)" ]
		dt-shard-ckpt convert --tokenizer none m bare
		run dt-tokenize info -t bare
		[ "$status" -eq 1 ]
		[[ "$output" == *"contains no tokenizer"* ]]
	fi
	bin="$DT_TEST_DATA/stories260K/tok512.bin"
	[ ! -f "$bin" ] || [ "$(ids "$bin" | dt-tokenize decode -t "$bin")" = "$text" ]
}

@test "the tokenizer does not overwrite its text" {
	cp "$data/corpus.txt" in.txt
	run dt-tokenize train --out in.txt in.txt
	[ "$status" -eq 2 ]
	[[ "$output" == *"--out would overwrite the input 'in.txt'"* ]]
	cmp in.txt "$data/corpus.txt"
}

@test "a path that cannot be written is reported before training" {
	mkfifo text
	# reading from a FIFO without a writer would block
	run timeout 20 dt-tokenize train --out nosuch/tok.json text
	[ "$status" -eq 1 ]
	[ "$output" = "dt-tokenize: cannot write 'nosuch/tok.json': No such file or directory" ]
	run timeout 20 dt-tokenize train --out . text
	[ "$status" -eq 1 ]
	[ "$output" = "dt-tokenize: cannot write '.': it is a folder" ]
}

@test "a full disk is reported and leaves nothing" {
	[ -w /dev/full ] || skip "no /dev/full"
	run bash -c 'echo abc | dt-tokenize encode -t byte >/dev/full'
	[ "$status" -eq 1 ]
	[[ "$output" == *"No space left"* ]]
	run bash -c "ulimit -f 4; dt-tokenize train --out t.json '$data/corpus.txt'"
	[ "$status" -eq 1 ]
	[[ "$output" == *"File too large"* ]]
	[ -z "$(ls)" ]
}

@test "a closed pipe ends quietly" {
	run bash -c "yes abc | head -c 3000000 | dt-tokenize encode -t byte | head -c 10"
	[ "$status" -eq 0 ]
	[ "$output" = "97 98 99 1" ]
}
# SPDX-License-Identifier: Apache-2.0
