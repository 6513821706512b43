# Requirements on every program: --help, --version, usage errors, a full disk, its manual page.
bats_require_minimum_version 1.5.0

load ranks

setup() {
    export LC_ALL=C.UTF-8 TERM=dumb OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    cd "$BATS_TEST_TMPDIR" || return 1
    PATH=$DT_BIN:$PATH
    programs=()
    for program in "$DT_BIN"/dt-*; do
        if [ -f "$program" ] && [ -x "$program" ]; then
            programs+=("${program##*/}")
        fi
    done
    [ "${#programs[@]}" -gt 0 ]
    problems=0
}

problem() {
    echo "$*"
    problems=$((problems + 1))
}

@test "--help: on stdout, two examples first, no line over 100 columns" {
    for name in "${programs[@]}"; do
        "$name" --help >help 2>err </dev/null || problem "$name --help exits $?"
        [ ! -s err ] || problem "$name --help writes to stderr"
        [[ $(sed -n 1p help) == "$name - "* ]] || problem "$name --help starts with '$(sed -n 1p help)'"
        [ "$(sed -n 3p help)" = "Examples:" ] || problem "$name --help does not lead with examples"
        n=$(sed -n '/^Examples:/,/^$/p' help | grep -c "$name")
        [ "$n" -ge 2 ] || problem "$name --help has $n examples"
        n=$(sed '/^Examples:/,/^$/d' help | awk 'length($0) > 100' | wc -l)
        [ "$n" -eq 0 ] || problem "$name --help has $n lines over 100 columns"
        cmp -s help <("$name" -h) || problem "$name: -h and --help differ"
    done
    [ "$problems" -eq 0 ]
}

@test "--version: name and version of the source; programs that compute name their instruction set" {
    want=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$DT_SRC/meson.build")
    for name in "${programs[@]}"; do
        got=$("$name" --version </dev/null)
        case $name in
        dt-train | dt-serve | dt-eval | dt-calibrate)
            set=$(sed -n 's/^kernels of the processor: \([a-z0-9_+]*\)$/\1/p' <<<"$got")
            [ -n "$set" ] || problem "$name --version does not say it: '$got'"
            [ "$(ONEDNN_MAX_CPU_ISA=SSE41 "$name" --version | tail -n 1)" != "${got#*$'\n'}" ] || [ "$set" = sse41 ] ||
                [ "$set" = generic ] || [[ $set == neon* ]] || problem "$name --version: '$set' whatever the limit"
            got=${got%%$'\n'*}
            ;;
        esac
        [ "$got" = "$name $want" ] || problem "$name --version says '$got'"
    done
    [ "$problems" -eq 0 ]
}

@test "an unknown option: exit status 2, one message, a pointer to --help" {
    for name in "${programs[@]}"; do
        run --separate-stderr "$name" --no-such-option </dev/null
        [ "$status" -eq 2 ] || problem "$name --no-such-option exits $status"
        [ "$output" = "" ] || problem "$name --no-such-option writes to stdout"
        [[ $stderr == "$name: "*$'\n'"Try '$name --help' for more information." ]] || problem "$name says: $stderr"
    done
    [ "$problems" -eq 0 ]
}

@test "with several ranks only the first one prints: a usage error once, --help once" {
    command -v mpirun >/dev/null || skip "needs mpirun"
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm_rsh_agent=/bin/false
    # shellcheck disable=SC2016 # the rank's shell
    together=': >"said.$OMPI_COMM_WORLD_RANK"; n=0; until [ -e said.0 ] && [ -e said.1 ] && [ -e said.2 ] || [ $n = 600 ]; do sleep 0.1; n=$((n + 1)); done'
    for name in dt-train dt-allreduce-bench dt-plot; do
        # each rank exits only after all have printed, because mpirun ends the job with the first rank that
        # fails
        status=0
        mpirun --quiet -np 3 sh -c "\"\$@\"; s=\$?; $together; exit \$s" sh "$name" --no-such-option 2>err || status=$?
        rm said.*
        [ "$status" -eq 2 ] || problem "mpirun $name exits $status"
        [ "$(grep -c "^$name: unknown option '--no-such-option'" err)" -eq 1 ] || problem "$name says: $(cat err)"
        mpirun -np 3 "$name" --help >out
        [ "$(grep -c '^Examples:' out)" -eq 1 ] || problem "$name --help prints $(grep -c '^Examples:' out) times"
    done
    # two command lines under one mpirun: each is reported
    mpirun --quiet -np 1 sh -c "\"\$@\"; $together; exit 2" sh dt-plot --wrong-a : \
        -np 2 sh -c "\"\$@\"; $together; exit 2" sh dt-plot --wrong-b 2>err || true
    [ "$(grep -c wrong-a err)" -eq 1 ] && [ "$(grep -c wrong-b err)" -eq 1 ] || problem "two command lines: $(cat err)"
    [ "$problems" -eq 0 ]
}

@test "a full disk: exit status 1 and one line" {
    for name in "${programs[@]}"; do
        status=0
        "$name" --help >/dev/full 2>err </dev/null || status=$?
        [ "$status" -eq 1 ] || problem "$name --help >/dev/full exits $status"
        [ "$(wc -l <err)" -eq 1 ] || problem "$name --help >/dev/full says: $(cat err)"
    done
    [ "$problems" -eq 0 ]
}

@test "manual pages: no complaint from mandoc" {
    command -v mandoc >/dev/null || skip "needs mandoc"
    for page in "$DT_SRC"/man/*.[1-9]; do
        mandoc -T lint -W warning "$page" || problem "$page"
    done
    [ "$problems" -eq 0 ]
}

@test "manual pages: not cut at 80 columns, examples without a prompt, not folded" {
    command -v mandoc >/dev/null || skip "needs mandoc"
    for page in "$DT_SRC"/man/*.[1-9]; do
        while read -r line; do
            problem "${page##*/} is wider than 80 columns: $line"
        done < <(mandoc -T ascii -O width=80 "$page" 2>/dev/null | col -bx | awk 'length($0) > 80')
        ! command -v man >/dev/null || while read -r line; do
            problem "${page##*/}: $line" # a table cell that is too narrow for a word
        done < <(LC_ALL=C MANWIDTH=80 man -l "$page" 2>&1 >/dev/null)
        ! grep -n '^\(\.Dl \)\?\$ ' "$page" || problem "${page##*/}: an example that cannot be pasted"
        # a line of .Dl is filled: what does not fit would be pasted as two commands
        ! grep -nE '^\.Dl .{68,}' "$page" || problem "${page##*/}: examples that are folded at 80 columns"
    done
    [ "$problems" -eq 0 ]
}

# page_options PAGE: its options (--name and -x), from the .It Fl lines of section OPTIONS
page_options() {
    awk '/^\.Sh / { inside = ($2 == "OPTIONS") }
        inside && /^\.It (Fl|Xo)|^\.Fl / {
            for (i = 1; i < NF; i++)
                if ($i == "Fl" || $i == ".Fl") {
                    option = $(i + 1)
                    gsub(/\\-/, "-", option)
                    print "-" option
                }
        }' "$1" | sort -u
}

# .Fl prints a dash before each of its words, until another macro follows. -np belongs to mpirun; --peer-copy
# -1 is not a number.
@test "manual pages: long options are printed with two dashes, and their arguments without" {
    command -v mandoc >/dev/null || skip "needs mandoc"
    for page in "$DT_SRC"/man/*.1; do page_options "$page"; done | sort -u >options
    grep -qx -- --peer-copy options
    for page in "$DT_SRC"/man/*.[1-9]; do
        mandoc -T ascii -O width=200 "$page" 2>/dev/null | col -bx >text
        while read -r word; do
            ! grep -qxF -- "-$word" options || problem "${page##*/}: $word has one dash"
        done < <(grep -oE '(^|[ (])-[a-z][a-z0-9-]{2,}' text | tr -d ' (' | sort -u)
        ! grep -nE -- '--[a-z-]+ -[0-9]+( |$)' text || problem "${page##*/}: an argument with a dash"
    done
    [ "$problems" -eq 0 ]
}

@test "manual pages: every option of the program, and no others" {
    for name in "${programs[@]}"; do
        page=$DT_SRC/man/$name.1
        if [ ! -f "$page" ]; then
            problem "$name has no manual page"
            continue
        fi
        "$name" --describe-options </dev/null | jq -r '.options[] |
            "--" + .name, (if .negatable then "--no-" + .name else empty end),
            (if .short then "-" + .short else empty end)' | sort -u >want
        page_options "$page" >got
        while read -r option; do
            problem "$name.1 lacks $option"
        done < <(comm -23 want got)
        while read -r option; do
            problem "$name has no $option, but $name.1 does"
        done < <(comm -13 want got | grep -vx -e --help -e -h -e --version)
        for section in NAME SYNOPSIS DESCRIPTION OPTIONS EXAMPLES 'EXIT STATUS' 'SEE ALSO'; do
            grep -qx "\.Sh $section" "$page" || problem "$name.1 has no section $section"
        done
    done
    [ "$problems" -eq 0 ]
}

# page_texts PAGE: for every option --name, a tab, and its description without macros and quotes
page_texts() {
    awk 'function flush() { for (name in names) print "--" name "\t" text; delete names; text = "" }
        /^\.Sh / { inside = ($2 == "OPTIONS"); flush() }
        !inside { next }
        /^\.It (Fl|Xo)/ { if (text != "") flush() }
        /^\.It (Fl|Xo)|^\.Fl / && (text == "" || /^\.It/) {
            for (i = 1; i < NF; i++)
                if (($i == "Fl" || $i == ".Fl") && $(i + 1) ~ /^(-|\\-)/) {
                    name = $(i + 1); gsub(/\\-/, "-", name); sub(/^-/, "", name); names[name] = 1
                }
            next
        }
        { gsub(/\\-/, "-"); gsub(/\\\(aq|\\&|["\047]/, ""); sub(/^\.[A-Z][a-z] /, ""); gsub(/ (Ar|Cm|Li|Fl|Pa|Ns|Ql|Dq|Sq|Pq|No) /, " ")
          gsub(/^(Ar|Cm|Li|Fl|Pa) /, ""); gsub(/ ,/, ","); text = text " " $0 }
        END { flush() }' "$1"
}

@test "defaults: printed from the option table, and stated alike in the manual pages" {
    declare -A text_of known # by option
    for name in "${programs[@]}"; do
        "$name" --describe-options </dev/null >described
        # Only the table may state a default in --help: one written in an option's help text can be wrong.
        while read -r option; do
            problem "$name --help states a default of $option that is not the table's"
        done < <(jq -r '.options[] | select(.help | test("[dD]efault|\\[[^]]*\\]$")) | "--" + .name' described)
        page_texts "$DT_SRC/man/$name.1" >texts
        text_of=() known=()
        while IFS=$'\t' read -r option text; do
            text_of[$option]+=$text$'\n'
        done <texts
        while IFS=$'\t' read -r option value; do
            known[--$option]=1 known[--no-$option]=1
            option=--$option
            text=${text_of[$option]}
            [ -n "$text" ] || problem "$name.1 lacks $option"
            [[ $text == *[dD]"efault"*"$value"* || $text =~ "$value"[\ ,\(]*(which is )?"the default" ]] ||
                problem "$name.1 does not say that the default of $option is '$value': $text"
        done < <(jq -r '.options[] | select(.default or .default_text) | .name + "\t" + (.default // "")' described)
        while IFS=$'\t' read -r option text; do
            [[ ! $text =~ [dD]efault\ (is|of)\  ]] || [ -n "${known[$option]}" ] ||
                problem "$name.1 states a default of $option that the program does not know"
        done <texts
    done
    [ "$problems" -eq 0 ]
}

# stock: makes the files that examples may use, in ./larder: a text, data sets of it, and a small model
# trained on them
stock() {
    mkdir larder
    (
        cd larder
        fixed_text
        mv text.txt corpus.txt
        dt-dataset build --split 5% --out train.h5 --out-eval eval.h5 corpus.txt
        dt-train --model llama-tiny --data train.h5 --seq 64 --microbatch 8 --steps 20 --save run --save-every 10 \
            --no-mfu --metrics m.jsonl
    ) >stock.log 2>&1 || { cat stock.log; return 1; }
}

@test "manual pages: examples marked as tests run" {
    # A comment "test", or "test with FILE ..." for files of the larder, precedes the .Bd block whose lines
    # are run.
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm_rsh_agent=/bin/false
    stock
    n=0
    for page in "$DT_SRC"/man/*.[1-9]; do
        awk -v base="${page##*/}" '
            /^\.\\" test( with .*)? *$/ { marked = 1; with = $0; sub(/.* test( with)?/, "", with) }
            /^\.Bd / && marked { n++; file = base "." n ".sh"; inside = 1; marked = 0; printf "" >file
                print with >(file ".with"); next }
            /^\.Dl / && marked { n++; file = base "." n ".sh"; marked = 0; print with >(file ".with"); one = 1 }
            /^\.Ed/ { inside = 0 }
            one { sub(/^\.Dl /, "") }
            inside || one { one = 0; gsub(/\\e/, "\\"); gsub(/\\\(aq/, "\047"); gsub(/\\&/, ""); gsub(/\\-/, "-"); print >>file }' "$page"
    done
    # In README.md the same words in an HTML comment precede an indented block.
    awk '/^<!-- test( with .*)? -->$/ { n++; file = "README." n ".sh"; with = $0; sub(/.* test( with)?/, "", with)
            sub(/ -->/, "", with); print with >(file ".with"); on = 1; printf "" >file; next }
        on && /^    / { print substr($0, 5) >>file; some = 1; next }
        on && some { on = some = 0 }' "$DT_SRC/README.md"
    for example in *.sh; do
        [ -f "$example" ] || continue
        n=$((n + 1))
        mkdir -p "run-$example"
        for given in $(cat "$example.with"); do
            cp -r "larder/$given" "run-$example"
        done
        (cd "run-$example" && bash -e -o pipefail "../$example" >../out 2>&1 </dev/null) ||
            problem "$example: exit $?: $(cat "$example"): $(cat out)"
    done
    [ "$n" -gt 0 ]
    [ "$problems" -eq 0 ]
}
# SPDX-License-Identifier: Apache-2.0
