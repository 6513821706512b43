# dt-plot: its drawings, its inputs, and what it refuses.

bats_require_minimum_version 1.5.0

setup() {
    export LC_ALL=C.UTF-8 TERM=xterm
    unset COLUMNS NO_COLOR
    cd "$BATS_TEST_TMPDIR" || return 1
    PATH=$DT_BIN:$PATH
    for i in 0 1 2 3 4 5 6 7 8 9; do
        echo "{\"step\":$((i * 10)),\"loss\":$((20 - i)).5,\"lr\":0.00$i,\"node\":\"n$((i % 2))\",\"mem\":{\"peak_bytes\":$((i * 1048576))}}"
    done >run.jsonl
}

# refute COMMAND...: the command must fail. In bats, a bare "! command" fails a test only on its last line.
refute() {
    ! "$@"
}

@test "titles and names that are not UTF-8 are drawn with U+FFFD" {
    cp run.jsonl $'caf\xe9.jsonl'
    cp run.jsonl $'\xff\x80.jsonl'
    dt-plot --title $'caf\xe9 & caf\xc3\xa9' --svg x.svg loss $'caf\xe9.jsonl' $'\xff\x80.jsonl'
    python3 -c '
import xml.etree.ElementTree as E
t = "".join(E.parse("x.svg").getroot().itertext())
assert "caf\ufffd & caf\xe9" in t and "caf\ufffd.jsonl" in t and "\ufffd\ufffd.jsonl" in t, t'
    # two code points that UTF-8 has and XML has not
    dt-plot --title $'a\xef\xbf\xbfb\xef\xbf\xbec\xef\xbf\xbd' --svg x.svg loss run.jsonl
    python3 -c '
import xml.etree.ElementTree as E
assert "abc\ufffd" in "".join(E.parse("x.svg").getroot().itertext())'
    dt-plot --title $'caf\xe9' loss $'caf\xe9.jsonl' $'\xff\x80.jsonl' >x.txt
    iconv -f UTF-8 -t UTF-8 x.txt >/dev/null
    grep -q $'caf\xef\xbf\xbd' x.txt
    # a key of many bytes ends at the right edge, like any other
    for key in ключ-ключ-ключ- 🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂; do
        sed "s/step/$key/" run.jsonl >other.jsonl
        [ "$(dt-plot --x "$key" loss other.jsonl --width 80 | tail -n 1 | tr -d '\n' | wc -m)" = 80 ]
    done
    dt-plot --bars node --title $'caf\xe9' loss run.jsonl | iconv -f UTF-8 -t UTF-8 >/dev/null
}

@test "a curve is the same from a file, standard input and a pipe" {
    dt-plot loss run.jsonl >file.txt
    dt-plot loss <run.jsonl >stdin.txt
    cat run.jsonl | dt-plot >pipe.txt # the default key is loss
    cmp file.txt stdin.txt
    cmp file.txt pipe.txt
    [ "$(wc -l <file.txt)" -eq 20 ]
    grep -q '^⠒⠒ loss$' file.txt
    grep -q '^20 ┤' file.txt
    tail -n 1 file.txt | grep -q '^ *0 .* 80 .*step$'
}

@test "the horizontal axis has two numbers or more, in any width and over any range of steps" {
    for width in 30 37 40 43 51 64 80; do
        for steps in "1 60" "0 100" "7 19" "123456 123765" "100000 125000"; do
            printf '{"step":%d,"loss":1}\n{"step":%d,"loss":2}\n' "${steps% *}" "${steps#* }" |
                COLUMNS=$width dt-plot --height 6 loss >out
            [ "$(wc -L <out)" -le "$width" ]
            [ "$(tail -n 1 out | wc -w)" -ge 3 ] || { cat out; return 1; } # with the label
        done
    done
}

@test "size, title and ASCII characters" {
    dt-plot --ascii --width 40 --height 10 --title 'My run' loss run.jsonl >out.txt
    [ "$(head -n 1 out.txt)" = "My run" ]
    [ "$(wc -l <out.txt)" -eq 10 ]
    [ "$(awk '{ if (length($0) > w) w = length($0) } END { print w }' out.txt)" -le 40 ]
    LC_ALL=C refute grep -q '[^ -~]' out.txt
}

@test "a dumb terminal and a C locale get ASCII characters" {
    TERM=dumb dt-plot loss run.jsonl >dumb.txt
    LC_ALL=C dt-plot loss run.jsonl >c.txt
    LC_ALL=C refute grep -q '[^ -~]' dumb.txt
    cmp dumb.txt c.txt
}

@test "several curves have different marks without colour, and different colours with it" {
    run dt-plot loss lr run.jsonl
    [ "$status" -eq 0 ]
    [[ $output == *' ** loss'* && $output == *' ++ lr'* ]]
    run dt-plot --color always loss lr run.jsonl
    [[ $output == *$'\e[36m'* && $output == *$'\e[33m'* ]]
    run dt-plot --color auto loss lr run.jsonl # no terminal, so no colour
    [[ $output != *$'\e'* ]]
}

@test "several files are named in the legend, nested keys are found" {
    cp run.jsonl other.jsonl
    run dt-plot loss run.jsonl other.jsonl
    [ "${lines[0]}" = loss ]
    [[ $output == *' run.jsonl'* && $output == *' other.jsonl'* ]]
    mkdir -p runs/a runs/b # a common parent folder is left out of the names
    cp run.jsonl runs/a/m.jsonl
    cp run.jsonl runs/b/m.jsonl
    run dt-plot loss runs/a/m.jsonl runs/b/m.jsonl
    [[ $output == *' a/m.jsonl'* && $output == *' b/m.jsonl'* && $output != *runs* ]]
    run dt-plot mem.peak_bytes run.jsonl
    [ "$status" -eq 0 ]
    [[ ${lines[0]} == *mem.peak_bytes* ]]
}

@test "--by makes a curve for each value" {
    run dt-plot --by node loss run.jsonl
    [ "${lines[0]}" = loss ]
    [[ $output == *' n0'* && $output == *' n1'* ]]
    # names that would take more than a third of the width are printed above
    run dt-plot --width 30 --by node loss <(sed 's/"n\([01]\)"/"a-long-name-\1"/' run.jsonl)
    [[ ${lines[1]} == *a-long-name-0* ]]
}

@test "--smooth draws moving means" {
    printf '{"y":%d}\n' 0 8 0 8 0 8 | dt-plot --smooth 2 --ascii y >out.txt
    # the means are 0 4 4 4 4 4: the highest tick is 4
    grep -q '^4.* +' out.txt
    refute grep -q '^[5-8].* +' out.txt
}

@test "--smooth has the same width for sparse and dense curves; a sparse curve then keeps its points" {
    for i in $(seq 0 199); do
        echo "{\"step\":$i,\"loss\":0$( ((i % 50)) || echo ",\"eval_loss\":$((i * i))")}"
    done >both.jsonl
    for n in 1 20; do
        dt-plot --smooth "$n" --svg - loss eval_loss both.jsonl | grep 'stroke-linejoin' >"$n.txt"
    done
    [ "$(wc -l <1.txt)" -eq 2 ]
    cmp 1.txt 20.txt
}

@test "ten curves: one mark each, names beside their ends, the axis labelled, in 80 columns" {
    for i in $(seq 0 9); do
        for b in 1024 65536 1048576; do
            echo "{\"size_bytes\":$b,\"busbw_gbs\":$((b / 1024 + i * 300)),\"algorithm\":\"alg$i\"}"
        done
    done >ten.jsonl
    dt-plot --log-x --x size_bytes --by algorithm busbw_gbs ten.jsonl >out
    [ "$(head -n 1 out)" = busbw_gbs ]
    tail -n 1 out | grep -q '1 KiB .*KiB .*size_bytes$'
    for i in $(seq 0 9); do
        grep -q " alg$i\$" out
    done
    [ "$(grep -o '\(.\)\1 alg[0-9]$' out | cut -c 1 | sort -u | wc -l)" -eq 10 ]
    [ "$(wc -L <out)" -le 80 ]
    dt-plot --svg ten.svg --log-x --x size_bytes --by algorithm busbw_gbs ten.jsonl
    python3 -c '
import xml.etree.ElementTree as E
texts = [t.text for t in E.parse("ten.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
for want in ["busbw_gbs", "size_bytes", "1 KiB", "1 MiB"] + ["alg%d" % i for i in range(10)]:
    assert want in texts, (want, texts)'
}

@test "--stack draws sums as areas from zero" {
    for i in 0 1 2 3; do
        echo "{\"step\":$i,\"compute_s\":3,\"comm_s\":1}"
    done >parts.jsonl
    dt-plot --stack --ascii --width 40 --height 10 compute_s comm_s parts.jsonl >out
    head -n 1 out | grep -q '^4 +++*  *++ comm_s$\|^4 +++*$'
    tail -n 3 out | head -n 1 | grep -q '^0 +\**$'
    [ "$(grep -c '^[ 0-9]* [+|]\*' out)" -ge 5 ]  # the first curve is three quarters of the sum
    [ "$(grep -c '^[ 0-9]* [+|]++' out)" -ge 1 ]
    dt-plot --stack --svg - compute_s comm_s parts.jsonl | python3 -c '
import sys, xml.etree.ElementTree as E
areas = [p for p in E.parse(sys.stdin).getroot().iter("{http://www.w3.org/2000/svg}path") if p.get("d").endswith("z")]
assert len(areas) == 2, areas'
    echo '{"step":4,"compute_s":-1}' >>parts.jsonl
    run dt-plot --stack compute_s comm_s parts.jsonl
    [ "$status" -eq 1 ]
    [ "$output" = "dt-plot: 'compute_s' has the value -1, and a stack has none below zero" ]
    for bad in "--log-y loss" "--bars lr"; do
        # shellcheck disable=SC2086
        run dt-plot --stack $bad run.jsonl
        [ "$status" -eq 2 ]
    done
}

@test "a dark SVG" {
    dt-plot --svg - --theme dark loss run.jsonl | grep -q '<rect width="800" height="400" fill="#15181c"/>'
    run -2 dt-plot --theme dark loss run.jsonl
    [[ $output == *"--theme requires --svg"* ]]
    run dt-plot --theme pink loss run.jsonl
    [ "$status" -eq 2 ]
}

@test "a key with the name of a file needs --key" {
    cp run.jsonl loss
    run dt-plot loss
    [ "$status" -eq 0 ]
    run dt-plot --key loss run.jsonl
    [ "$status" -eq 0 ]
}

@test "logarithmic axes leave out values that are not positive and say so" {
    run dt-plot --log-y lr run.jsonl
    [ "$status" -eq 0 ]
    [[ $output == *'skipped points that are zero or less: 1'* ]]
}

@test "lines without the key, blank lines and null are skipped" {
    printf '{"loss":1}\n\n{"other":2}\n{"loss":null}\n{"loss":3}' | dt-plot loss
}

@test "a last line that is cut is skipped with a message" {
    printf '{"loss":1}\n{"loss":2}\n{"loss":3,"st' >cut.jsonl
    run --separate-stderr dt-plot loss cut.jsonl
    [ "$status" -eq 0 ]
    [ "$stderr" = "dt-plot: cut.jsonl:3: the line is cut, and was skipped" ]
}

@test "garbage is refused with its line number and nothing is drawn" {
    printf '{"loss":1}\nnot json\n{"loss":2}\n' >bad.jsonl
    run --separate-stderr dt-plot loss bad.jsonl
    [ "$status" -eq 1 ]
    [ "$output" = "" ]
    [[ $stderr == "dt-plot: bad.jsonl:2: not a JSON object: 'not json'" ]]
    run --separate-stderr dt-plot --skip-bad loss bad.jsonl
    [ "$status" -eq 0 ]
    [[ $stderr == *'skipped lines that are not JSON objects: 1' ]]
    printf '[1]\n' >array.jsonl
    run dt-plot loss array.jsonl
    [ "$status" -eq 1 ]
}

@test "a byte-order mark is skipped; numbers that JSON does not have are named" {
    printf '\xef\xbb\xbf{"loss":1}\n{"loss":2}\n' >mark.jsonl
    dt-plot loss mark.jsonl
    for x in NaN -Infinity; do
        printf '{"loss":1}\n{"loss":%s}\n' "$x" >bad.jsonl
        run -1 dt-plot loss bad.jsonl
        [[ $output == *"bad.jsonl:2: not a JSON object"*"NaN and Infinity are not JSON numbers"* ]]
    done
    printf '{"loss":1e400}\n' >bad.jsonl
    run -1 dt-plot loss bad.jsonl
    [[ $output == *"beyond 1.8e308"* ]]
}

@test "a bad line does not kill the process that writes the pipe" {
    { echo garbage; for _ in 1 2 3 4 5; do sleep 0.1; echo '{"loss":1}'; done; echo survived >alive; } | {
        run dt-plot loss
        [ "$status" -eq 1 ]
        [[ $output == *'standard input:1: not a JSON object'* ]]
    }
    [ "$(cat alive)" = survived ]
}

@test "if there is nothing to draw, the message lists the keys that exist" {
    run dt-plot nosuch run.jsonl
    [ "$status" -eq 1 ]
    [ "$output" = "dt-plot: no line has a number under 'nosuch'; the lines have: step, loss, lr" ]
    # The key that the lines lack is named: that of the value, of the axis or of the group.
    printf '{"trial":1,"options":{"lr":"1e-3"},"value":2}\n' >trials.jsonl
    run -1 dt-plot --x options.lr --by trial value trials.jsonl
    [ "$output" = "dt-plot: no line with a number under 'value' has a number under 'options.lr', only text; \
jq makes numbers of it: jq -c '(.options.lr | strings) |= tonumber'" ]
    jq -c '(.options.lr | strings) |= tonumber' trials.jsonl | dt-plot --x options.lr --by trial value
    run -1 dt-plot --by seed value trials.jsonl
    [ "$output" = "dt-plot: no line with a number under 'value' has anything under 'seed'; the lines have: trial, value" ]
    run -1 dt-plot --bars value --by seed trials.jsonl
    [[ $output == *"has anything under 'seed'"* ]]
    # Of many keys, only as many as fit are listed, none of them cut.
    seq 40 | sed 's/.*/"a_rather_long_key_&":&/' | paste -sd, | sed 's/.*/{&}/' >many.jsonl
    run dt-plot nosuch many.jsonl
    [ "$status" -eq 1 ]
    [[ $output == *'a_rather_long_key_1, a_rather_long_key_2'* ]]
    [[ $output =~ a_rather_long_key_[0-9]+\ and\ others$ ]]
    run dt-plot loss /dev/null
    [ "$status" -eq 1 ]
    [ "$output" = "dt-plot: the input has no JSON object" ]
    run dt-plot loss ./nosuch.jsonl
    [ "$status" -eq 1 ]
    [[ $output == *"cannot open './nosuch.jsonl': No such file or directory" ]]
    run dt-plot loss nosuch.jsonl </dev/null # it looks like a file name, so it is not taken as a key
    [ "$status" -eq 1 ]
    [[ $output == *"cannot open 'nosuch.jsonl': No such file or directory" ]]
}

@test "usage errors" {
    run dt-plot --bars lr --smooth 3 run.jsonl
    [ "$status" -eq 2 ]
    run dt-plot --width 5 run.jsonl
    [ "$status" -eq 2 ]
    # what would do nothing
    for given in '--bars loss --height 9' '--svg x.svg --ascii' '--svg x.svg --color never' '--svg x.svg --no-live'; do
        # shellcheck disable=SC2086 # several words
        run -2 dt-plot $given run.jsonl
        [[ $output == *"cannot be combined with"* ]]
    done
    run dt-plot --nosuch
    [ "$status" -eq 2 ]
    [[ $output == *"Try 'dt-plot --help' for more information."* ]]
}

@test "bars show the last value of each name" {
    printf '{"n":"weights","size_bytes":1048576}\n{"n":"grads","size_bytes":1}\n{"n":"grads","size_bytes":524288}\n' |
        dt-plot --ascii --width 40 --bars size_bytes --by n >out.txt
    [ "$(cat out.txt)" = "weights   1.00 MiB ####################
grads    512.0 KiB ##########" ]
}

@test "SVG is well formed, contains its texts and is written completely or not at all" {
    dt-plot --svg out.svg --title 'a < b & c' loss lr run.jsonl
    python3 -c '
import sys, xml.etree.ElementTree as E
root = E.parse("out.svg").getroot()
texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
assert root.get("viewBox") == "0 0 800 400", root.attrib
for want in ("a < b & c", "loss", "lr", "step", "0", "80"):
    assert want in texts, (want, texts)'
    dt-plot --svg - --width 300 --bars lr --by step run.jsonl | python3 -c '
import sys, xml.etree.ElementTree as E
assert len(list(E.parse(sys.stdin).getroot().iter("{http://www.w3.org/2000/svg}rect"))) == 11'
    cp out.svg before.svg
    run dt-plot --svg out.svg nosuch run.jsonl
    [ "$status" -eq 1 ]
    cmp out.svg before.svg
    run dt-plot --svg /nonexistent/x.svg loss run.jsonl
    [ "$status" -eq 1 ]
    [ "$(find . -name '*.tmp.*')" = "" ]
}

@test "the SVG does not overwrite its input" {
    cp run.jsonl keep
    run dt-plot --svg run.jsonl loss run.jsonl
    [ "$status" -eq 2 ]
    [[ "$output" == *"--svg would overwrite the input 'run.jsonl'"* ]]
    cmp run.jsonl keep
}

@test "a full disk is an error, a reader that closes the pipe is not reported" {
    run bash -c 'dt-plot loss run.jsonl >/dev/full'
    [ "$status" -eq 1 ]
    [ "$output" = "dt-plot: cannot write to standard output: No space left on device" ]
    run bash -c 'yes "$(cat run.jsonl)" | head -n 60000 | dt-plot --height 9999 --width 999 loss | head -n 1'
    [ "$status" -eq 0 ]
    [ "$output" = "⠒⠒ loss" ]
}

@test "on a terminal the drawing is updated as the pipe delivers" {
    command -v script >/dev/null || skip "needs script(1)"
    cat >live.sh <<'END'
for i in 1 2 3 4; do
    echo "{\"step\":$i,\"loss\":$((10 / i))}"
    for _ in $(seq 600); do # until it is drawn
        [ "$(grep -ac $'\e\[8A' typescript)" -lt $((i - 1)) ] || break
        sleep 0.1
    done
    sleep 0.2
done | dt-plot --width 40 --height 8 loss
END
    script -qfec "bash live.sh" typescript </dev/null >/dev/null
    # drawn more than once, each time over the previous one: eight lines up
    [ "$(grep -c $'\e\[8A' typescript)" -ge 2 ]
}
# SPDX-License-Identifier: Apache-2.0
