# dt-dataset images, and the other commands on image data sets

setup() {
	: "${DT_BIN:=build/tools}" "${DT_SRC:=.}"
	: "${DT_TEST_DATA:=$DT_SRC/../shared/data}"
	PATH="$DT_BIN:$PATH"
	golden="$DT_SRC/tests/data/golden-images.h5"
	cd "$BATS_TEST_TMPDIR" || return 1
}

py() {
	/usr/bin/python3 -c 'import numpy, h5py' 2>/dev/null || skip "no h5py"
	/usr/bin/python3 - "$@"
}

# writes a.idx: 12 images of 5 x 4, values 0 to 239; l.idx: labels 0 1 2 0 ..
make_idx() {
	py <<'PY'
import gzip, struct
images = struct.pack(">IIII", 2051, 12, 5, 4) + bytes(range(240))
labels = struct.pack(">II", 2049, 12) + bytes(i % 3 for i in range(12))
open("a.idx", "wb").write(images)
open("l.idx", "wb").write(labels)
gzip.open("a.gz", "wb").write(images)
gzip.open("l.gz", "wb").write(labels)
PY
}

# writes folder/CLASS/*: the files of the golden image set
make_folder() {
	py "$golden" <<'PY'
import h5py, os, sys
with h5py.File(sys.argv[1]) as f:
    for name, cls, end in (("jpeg", "b", "jpg"), ("jpeg-cmyk", "b", "JPEG"), ("jpeg-grey", "a", "jpg"),
                           ("png-16", "a", "png"), ("png-alpha", "c", "png"), ("jpeg-exif-6", "c", "jpg")):
        os.makedirs("folder/" + cls, exist_ok=True)
        open(f"folder/{cls}/{name}.{end}", "wb").write(f["decode"][name]["bytes"][()].tobytes())
PY
}

number() {
	grep -o "\"$1\":[0-9]*" <<<"$output" | head -n 1 | cut -d: -f2
}

@test "a PNG's transparent colour counts as alpha; an image of too many pixels is refused with the limit" {
	mkdir -p see/a huge/a
	python3 - <<'PY'
import struct, zlib
def png(path, side, colour, *between):
    part = lambda kind, b: struct.pack(">I", len(b)) + kind + b + struct.pack(">I", zlib.crc32(kind + b))
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, colour, 0, 0, 0)) +
                           b"".join(part(*x) for x in between) + part(b"IDAT", zlib.compress(b"".join(
                               b"\0" + bytes(i % 2 for i in range(min(side, 64))) for _ in range(min(side, 64))))) + part(b"IEND", b""))
palette = b"PLTE", bytes([10, 20, 30, 40, 50, 60])
png("see/a/1.png", 8, 3, palette, (b"tRNS", b"\x00"))
png("see/a/2.png", 8, 3, palette)
png("see/a/3.png", 8, 0, (b"tRNS", b"\x00\x01"))
png("huge/a/1.png", 60000, 0)
PY
	run dt-dataset images --json --store raw -o s.h5 see
	[ "$status" -eq 0 ]
	[ "$(number alpha)" -eq 2 ]
	cmp <(dt-dataset cat --count 1 s.h5) <(dt-dataset cat --first 1 --count 1 s.h5)
	# a file of fewer bytes could not hold so many pixels
	head -c 300000 /dev/zero >>huge/a/1.png
	run dt-dataset images -o h.h5 huge
	[ "$status" -eq 1 ]
	[[ "$output" == *"60000 x 60000 pixels are too many: the limit is 65535 a side and 134217728 in all"* ]]
}

@test "IDX, plain and gzipped, images and labels in either order" {
	make_idx
	dt-dataset images -o one.h5 a.idx l.idx
	dt-dataset images -o two.h5 l.gz a.gz
	for f in one two; do
		dt-dataset info --verify $f.h5
		run dt-dataset info --json $f.h5
		[ "$(number images)" -eq 12 ]
		[[ "$output" == *'"encoding":"raw","channels":1,"smallest":[5,4],"largest":[5,4]'* ]]
		[[ "$output" == *'{"name":"1","images":4}'* ]]
	done
	dt-dataset cat --first 11 --count 1 one.h5 | tail -c 20 >got
	tail -c 20 a.idx | cmp - got
	dt-dataset cat one.h5 | head -n 3 | cmp - <(printf 'P5\n4 5\n255\n')
}

@test "a damaged IDX pair, or one of unequal lengths, is refused, and nothing is written" {
	make_idx
	head -c 200 a.gz >short.gz
	head -c 200 a.idx >short.idx
	cat a.idx l.idx >long.idx
	head -c 19 l.idx >few.idx
	printf '\0\0\10\1\0\0\0\13%11s' x >eleven.idx
	while read -r images labels says; do
		run dt-dataset images -o d.h5 "$images" "$labels"
		[ "$status" -eq 1 ]
		[[ "$output" == *"$says"* ]]
		[ ! -e d.h5 ]
	done <<-END
		short.gz l.gz truncated
		short.idx l.idx cut short
		long.idx l.idx longer than its header says
		a.idx few.idx cut short
		a.idx eleven.idx 12 images
		a.idx a.idx 3 dimensions
		a.idx none.idx No such file
	END
	run dt-dataset images -o d.h5 a.idx
	[ "$status" -eq 1 ]
	[[ "$output" == *"in pairs"* ]]
}

@test "CIFAR binaries, with class names from the file beside them" {
	py <<'PY'
open("one.bin", "wb").write(b"".join(bytes([i % 10]) + bytes([i] * 3072) for i in range(20)))
open("two.bin", "wb").write(b"".join(bytes([i % 10]) + bytes([i] * 3072) for i in range(20, 30)))
open("hundred.bin", "wb").write(b"".join(bytes([i, 99 - i]) + bytes([i] * 3072) for i in range(20)))
open("cut.bin", "wb").write(bytes(3073 + 100))
PY
	dt-dataset images --shards 2 -o d.h5 one.bin two.bin
	run dt-dataset info --json --verify d.h5
	[ "$(number images)" -eq 30 ]
	[[ "$output" == *'{"name":"9","images":3}'* ]]
	dt-dataset cat --first 25 --count 1 d.h5 | tail -c 3072 | tr -d '\31' | cmp - /dev/null
	dt-dataset images --from cifar100 -o e.h5 hundred.bin
	run dt-dataset sample --in-order --count 1 e.h5
	[[ "$output" == *"99"* ]]
	printf '%s\n' zero one two three four five six seven eight nine >batches.meta.txt
	dt-dataset images -o d.h5 one.bin
	run dt-dataset sample --in-order --count 12 d.h5
	[[ "${lines[12]}" == *"one" ]]
	run dt-dataset images --from cifar10 -o f.h5 cut.bin
	[ "$status" -eq 1 ]
	[[ "$output" == *"record 1"*"cut short"* ]]
	[ ! -e f.h5 ]
}

@test "one folder per class; grey, CMYK, EXIF, 16 bits and alpha are counted; JPEG is stored unchanged" {
	make_folder
	mkdir folder/empty
	echo x >folder/b/notes.txt
	echo x >folder/README
	echo x >folder/b/x.webp
	run dt-dataset images --json -o d.h5 folder
	[ "$status" -eq 0 ]
	[[ "$output" == *"skipped 'folder/b/notes.txt'"* ]]
	[[ "$output" == *"skipped 'folder/b/x.webp': this format is not supported; JPEG, PNG, PGM and PPM are"* ]]
	rm folder/b/x.webp
	mkdir -p nothing/a
	run dt-dataset images -o none.h5 nothing
	[ "$status" -eq 1 ]
	[ "${lines[-1]}" = "dt-dataset: there are no images in 'nothing'" ]
	[ ! -e none.h5 ]
	run dt-dataset images --json -o d.h5 folder
	[[ "$output" == *"1 of 4 classes have no images; the first is 'empty'"* ]]
	for want in images:6 classes:4 empty_classes:1 bad:0 passed_over:2 grey:1 cmyk:1 deep:1 alpha:1 turned:1; do
		[ "$(number "${want%:*}")" -eq "${want#*:}" ]
	done
	run dt-dataset info --verify d.h5
	[[ "$output" == *"0      a      2"*"1      b      2"*"2      c      2"*"3      empty  0"* ]]
	dt-dataset cat --first 3 --count 1 d.h5 | cmp - folder/b/jpeg.jpg
	# stored as 19 x 23, displayed upright as 23 x 19
	[[ "$(dt-dataset info d.h5)" == *"7 to 23 x 6 to 23"* ]]
	dt-dataset images --ignore-exif --store raw --crop 7x6 -o e.h5 folder
	[[ "$(dt-dataset info e.h5)" == *"6 as pixels"*"7 x 6"* ]]
}

@test "an image that cannot be read is named; nothing is dropped silently" {
	make_folder
	head -c 600 folder/b/jpeg.jpg >folder/b/cut.jpg
	echo text >folder/a/text.png
	: >folder/c/void.jpg
	printf 'P6\n99999999999 4\n255\nabc' >folder/c/large.ppm
	run dt-dataset images -o d.h5 folder
	[ "$status" -eq 1 ]
	[[ "$output" == *"'folder/b/cut.jpg': damaged JPEG"* ]]
	[[ "$output" == *"'folder/a/text.png': neither JPEG nor PNG"* ]]
	[[ "$output" == *"'folder/c/void.jpg'"* ]]
	[[ "$output" == *"large.ppm"*"a number in the header of the PNM file is too large"* ]]
	rm folder/c/large.ppm
	run dt-dataset images -o d.h5 folder
	[[ "$output" == *"3 of 9 images cannot be used: nothing is written"* ]]
	[ ! -e d.h5 ]
	run dt-dataset images --skip-bad -o d.h5 folder
	[ "$status" -eq 0 ]
	[[ "$output" == *"6 images of 3 classes; 3 invalid images skipped"* ]]
	dt-dataset info --verify d.h5
	run dt-dataset images --crop 12 --store raw -o e.h5 folder
	[ "$status" -eq 1 ]
	[[ "$output" == *"'folder/c/png-alpha.png': 9 x 8 pixels are smaller than the crop of 12 x 12"* ]]
	rm folder/*/cut.jpg folder/*/text.png folder/*/void.jpg
	run dt-dataset images --store raw -o e.h5 folder
	[ "$status" -eq 1 ]
	[[ "$output" == *", the others "*"use --resize and --crop"* ]]
	dt-dataset images --store raw --resize 16 --crop 16 --shards 2 -o e.h5 folder
	[ "$(ls)" = "$(printf '%s\n' d.h5 e-00000-of-00002.h5 e-00001-of-00002.h5 e.h5 folder)" ]
}

@test "tar archives: folders, WebDataset, a file pattern, a pipe, damage" {
	make_folder
	tar cf f.tar folder
	dt-dataset images -o a.h5 folder
	dt-dataset images -o b.h5 f.tar
	gzip <f.tar | dt-dataset images -o c.h5 -
	for f in b c; do
		[ "$(dt-dataset info --json $f.h5 | sed 's/.*"classes"//')" = "$(dt-dataset info --json a.h5 | sed 's/.*"classes"//')" ]
	done
	dt-dataset images --match '*/b/*' -o d.h5 f.tar
	[[ "$(dt-dataset info --json d.h5)" == *'"images":2,'*'"classes":[{"name":"b","images":2}]'* ]]
	mkdir w
	i=0
	for f in folder/*/*.*[gG]; do
		cp "$f" "w/00$i.${f##*.}"
		echo $((i % 3)) >"w/00$i.cls"
		echo '{}' >"w/00$i.json"
		i=$((i + 1))
	done
	tar cf w.tar -C w --sort=name . # 000.cls 000.jpg 000.json 001.cls ..
	run dt-dataset images -o w.h5 w.tar
	[ "$status" -eq 0 ]
	[[ "$output" == *"6 images of 3 classes; 6 other files skipped"* ]]
	[[ "$(dt-dataset info --json w.h5)" == *'{"name":"2","images":2}'* ]]
	size=$(stat -c %s w.tar)
	for cut in 700 3000 $((size / 2)); do
		head -c "$cut" w.tar >cut.tar
		run dt-dataset images --from tar -o x.h5 cut.tar
		[ "$status" -eq 1 ]
		[[ "$output" == *"cut short"* ]]
	done
	tar cf plain.tar -C folder/a jpeg-grey.jpg
	run dt-dataset images -o x.h5 plain.tar
	[ "$status" -eq 1 ]
	[[ "$output" == *"neither a .cls member nor a folder"* ]]
	[ ! -e x.h5 ]
}

@test "long names in tar archives, GNU and pax format" {
	make_folder
	long=$(printf 'folder-%.0s' $(seq 30))
	mkdir -p "t/$long/class"
	cp folder/b/jpeg.jpg "t/$long/class/"
	for format in gnu pax ustar; do
		tar cf t.tar --format=$format t 2>/dev/null || continue
		dt-dataset images -o d.h5 t.tar
		[[ "$(dt-dataset info --json d.h5)" == *'[{"name":"class","images":1}]'* ]]
	done
}

@test "class names from a list: their order, and a missing class" {
	make_folder
	printf 'c\nb\na\nd\n' >names
	dt-dataset images --class-names names -o d.h5 folder
	[[ "$(dt-dataset info d.h5)" == *"0      c      2"*"2      a      2"*"3      d      0"* ]]
	printf 'c\nb\n' >names
	run dt-dataset images --class-names names -o e.h5 folder
	[ "$status" -eq 1 ]
	[[ "$output" == *"class 'a' is not in the list"* ]]
	printf 'c\nc\n' >names
	run dt-dataset images --class-names names -o e.h5 folder
	[ "$status" -eq 1 ]
	[[ "$output" == *"two classes have the name 'c'"* ]]
	[ ! -e e.h5 ]
}

@test "shards hold the same images, read by h5py too" {
	make_idx
	dt-dataset images -o one.h5 a.idx l.idx
	dt-dataset images --shards 5 -o d.h5 a.idx l.idx
	dt-dataset cat one.h5 >a
	dt-dataset cat d.h5 | cmp - a
	py <<'PY'
import h5py
a, b = h5py.File("one.h5"), h5py.File("d.h5")
assert a["data"].shape == (12, 1, 5, 4) == b["data"].shape
assert (a["data"][()] == b["data"][()]).all() and (a["labels"][()] == b["labels"][()]).all()
assert a["data"][11, 0, 4, 3] == 239 and [c.decode() for c in a["classes"][()]] == ["0", "1", "2"]
PY
	dt-dataset sample --json d.h5 >a
	dt-dataset sample --json one.h5 | cmp - a
	at=$(grep -oba xyz d-00002-of-00005.h5 | head -n 1 | cut -d: -f1) # pixels 120, 121, 122
	printf '\0' | dd of=d-00002-of-00005.h5 bs=1 seek="$at" conv=notrunc 2>/dev/null
	run dt-dataset info --verify d.h5
	[ "$status" -eq 3 ]
	[[ "$output" == *"d-00002-of-00005.h5"*"checksum"* ]]
	rm d-00003-of-00005.h5
	run dt-dataset info d.h5
	[ "$status" -eq 1 ]
	[[ "$output" == *"d-00003-of-00005.h5"* ]]
}

@test "a share of each class is split off for evaluation, evenly spaced; both sets have all classes" {
	py <<'PY'
import struct
n = [40, 9, 1, 50]
labels = bytes(c for c, k in enumerate(n) for _ in range(k))
open("a.idx", "wb").write(struct.pack(">IIII", 2051, 100, 1, 1) + bytes(range(100)))
open("l.idx", "wb").write(struct.pack(">II", 2049, 100) + labels)
PY
	run dt-dataset images --json --split 10% -o t.h5 --out-eval e.h5 a.idx l.idx
	[ "$status" -eq 0 ]
	[[ "$output" == *"2 of 4 classes have no images in e.h5; the first is '1'"* ]]
	[[ "$output" == *'"images":91,'*'"eval":{"path":"e.h5","images":9,"empty_classes":2}'* ]]
	dt-dataset info --verify t.h5
	py <<'PY'
import h5py
t, e = h5py.File("t.h5"), h5py.File("e.h5")
kept = [9, 19, 29, 39] + [50 + k for k in (9, 19, 29, 39, 49)]
assert e["data"][:, 0, 0, 0].tolist() == kept
assert t["data"][:, 0, 0, 0].tolist() == [i for i in range(100) if i not in kept]
assert e["labels"][()].tolist() == [0] * 4 + [3] * 5
assert t["classes"][()].tolist() == e["classes"][()].tolist() == [b"0", b"1", b"2", b"3"]
PY
	run dt-dataset images --split 0.5% -o t2.h5 --out-eval e2.h5 a.idx l.idx
	[ "$status" -eq 1 ]
	[[ "$output" == *"cannot write 'e2.h5': there are no images"* ]]
	[ ! -e t2.h5 ] && [ ! -e e2.h5 ]
	for bad in "--split 10%" "--out-eval e.h5" "--split 10% --out-eval t.h5" "--split 10% --out-eval a.idx" "--split 100%  --out-eval e.h5"; do
		# shellcheck disable=SC2086 # words
		run dt-dataset images -o t.h5 $bad a.idx l.idx
		[ "$status" -eq 2 ]
	done
}

@test "stats: classes, and duplicate images" {
	python3 - <<'END'
import struct
images = [bytes([i] * 9) for i in (1, 2, 3, 2, 2, 4)]
open("i.idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, 6, 3, 3) + b"".join(images))
open("l.idx1-ubyte", "wb").write(struct.pack(">II", 0x801, 6) + bytes([0, 1, 0, 1, 0, 0]))
END
	dt-dataset images -o d.h5 i.idx3-ubyte l.idx1-ubyte
	dt-dataset stats --svg c.svg --json d.h5 |
		jq -e '.images == 6 and .exact_duplicates == 2 and .duplicates_of_another_class == 1 and .fewest == 2 and .most == 4
			and .smallest_bytes == 9 and .largest_bytes == 9 and [.classes[].images] == [4, 2]'
	grep -q "images by class" c.svg
	[[ $(dt-dataset stats d.h5) == *"2, of which 1 have another class"* ]]
}

@test "wrong usage: exit status 2; a data set of the wrong kind is named" {
	make_idx
	for bad in "a.idx l.idx" "-o d.h5 --crop x a.idx l.idx" "-o d.h5 --crop 3x a.idx l.idx" "-o d.h5 --channels 2 a.idx l.idx" \
		"-o a.idx a.idx l.idx" "-o d.h5 --quality 101 a.idx l.idx" "-o d.h5"; do
		# shellcheck disable=SC2086 # words
		run dt-dataset images $bad
		[ "$status" -eq 2 ]
	done
	# options that this input does not read
	for bad in "--match *.png" "--quality 3" "--ignore-exif" "--quality 3 --store raw"; do
		# shellcheck disable=SC2086 # words
		run dt-dataset images -o d.h5 $bad a.idx l.idx
		[ "$status" -eq 2 ]
		[[ "$output" == *"${bad%% *} has no effect: "* ]]
	done
	[ ! -e d.h5 ]
	dt-dataset images -o i.h5 --store jpeg --quality 3 a.idx l.idx
	for bad in "sample --ids" "cat --ids" "sample --special" "sample --seq 3" "stats --near"; do
		# shellcheck disable=SC2086 # words
		run dt-dataset $bad i.h5
		[ "$status" -eq 2 ]
		[[ "$output" == *"has no effect: 'i.h5' is a dataset of images"* ]]
	done
	[ ! -e d.h5 ]
	echo what >text
	run dt-dataset images -o d.h5 text
	[ "$status" -eq 1 ]
	[[ "$output" == *"neither a folder nor IDX nor CIFAR nor tar"* ]]
	dt-dataset images -o d.h5 a.idx l.idx
	echo "some text that is long enough" >text
	run dt-train --model byte-tiny --data d.h5 --steps 1
	[ "$status" -ne 0 ]
}

@test "Fashion-MNIST: the published mean and deviation" {
	f="$DT_TEST_DATA/fashion-mnist"
	[ -e "$f/t10k-images-idx3-ubyte.gz" ] || skip "no Fashion-MNIST in '$DT_TEST_DATA'"
	dt-dataset images -o t.h5 "$f/t10k-images-idx3-ubyte.gz" "$f/t10k-labels-idx1-ubyte.gz"
	run dt-dataset info t.h5
	[[ "$output" == *"10000 as pixels"*"0.286"*"0.352"* ]]
}
# SPDX-License-Identifier: Apache-2.0
