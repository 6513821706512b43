# Shell completions. bash, fish and zsh complete a fictitious program that has every kind of option; then the
# completions of every program that was built are compared with its options.
bats_require_minimum_version 1.5.0

setup() {
    export LC_ALL=C.UTF-8
    cd "$BATS_TEST_TMPDIR" || return 1
    generate=$DT_BIN/../completions/generate
    cat >dt-made.json <<'END'
{"schema": 1, "program": "dt-made", "summary": "it's made up",
 "commands": [{"name": "ls", "operands": "DIR", "help": "lists: all"},
              {"name": "load", "operands": "MODEL", "help": "loads the user's model"}],
 "options": [
  {"name": "mode", "type": "choice", "arg": "none|selective|full", "help": "how [much]: $(touch hacked)", "complete": "none", "negatable": false},
  {"name": "model", "short": "m", "type": "string", "arg": "MODEL", "help": "model", "complete": "model", "negatable": false},
  {"name": "gpu", "type": "string", "arg": "NAME", "help": "card", "complete": "gpu", "negatable": false},
  {"name": "data", "type": "string", "arg": "D.h5", "help": "set", "complete": "h5", "negatable": false},
  {"name": "tok", "type": "string", "arg": "T", "help": "tokenizer", "complete": "tokenizer", "negatable": false},
  {"name": "out", "type": "string", "arg": "FILE", "help": "file", "complete": "file", "negatable": false},
  {"name": "save", "type": "string", "arg": "DIR", "help": "folder", "complete": "dir", "negatable": false},
  {"name": "steps", "type": "int", "arg": "N", "help": "number", "complete": "none", "negatable": false},
  {"name": "verbose", "type": "flag", "help": "say more", "complete": "none", "negatable": true, "commands": "ls"}]}
END
    printf 'gpt2-124m\nllama-2-7b\nllama-3-8b\n' >presets.txt
    printf 'A100\nH100\n' >devices.txt
    mkdir folder
    touch file.txt 'with blank.txt' set.h5 tok.json
}

# bash_complete FILE WORD...: prints bash's candidates for the last word, on one line
bash_complete() {
    local file=$1
    shift
    bash -c '
        source "$0"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        "_${1//-/_}"
        printf "%s\n" "${COMPREPLY[@]}" | sort | paste -s -d " "' "$file" "$@"
}

@test "bash: options, commands, choices, models, files, folders" {
    "$generate" bash dt-made.json presets.txt devices.txt >made
    try() { # WANT WORD...
        local want=$1 got
        shift
        got=$(bash_complete made dt-made "$@")
        [ "$got" = "$want" ] || { echo "$*: '$got', not '$want'"; return 1; }
    }
    try "load ls" ""
    try "ls" "ls"
    try "--mode --model" "--mod"
    try "--data --gpu --help --mode --model --out --save --steps --tok --version" "--"
    try "--data --gpu --help --mode --model --no-verbose --out --save --steps --tok --verbose --version" "ls" "--"
    try "--data --gpu --help --mode --model --out --save --steps --tok --version" "load" "--"
    try "A100 H100" "--gpu" ""
    try "folder set.h5" "--data" ""
    try "byte dt-made.json folder tok.json" "--tok" ""
    try "full none selective" "--mode" ""
    try "selective" "--mode" "=" "s"
    try "full none selective" "--mode" "="
    try "llama-2-7b llama-3-8b" "load" "-m" "ll"
    try "file.txt folder" "--out" "f"
    try "folder" "--save" "f"
    try "" "--steps" ""
    try "file.txt" "ls" "fi"
    try "with blank.txt" "--out" "with"
    [ ! -e hacked ]
}

@test "bash: the same when the program is started by mpirun or srun" {
    "$generate" bash dt-made.json presets.txt devices.txt >dt-made
    for launcher in mpirun srun; do
        cp "$DT_BIN/../completions/$launcher.bash" .
        try() { # WANT WORD...
            local want=$1 got
            shift
            got=$(bash -O extglob -c '
                source "./$1.bash"
                complete -p "$1" | grep -q _dt_launcher || exit 1
                COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
                _dt_launcher
                printf "%s\n" "${COMPREPLY[@]}" | sort -u | paste -s -d " "' bash "$launcher" "$@")
            [ "$got" = "$want" ] || { echo "$launcher $*: '$got', not '$want'"; return 1; }
        }
        try "--mode --model" -np 2 dt-made --mod
        try "selective" -np 2 --bind-to none ./dt-made --mode s
        try "--no-verbose" -np 1 dt-made load : -np 1 dt-made ls --no
        try "" -np 1 dt-made ls : -np 1 dt-made load --no
        try "file.txt" -np 2 file.
        try "file.txt" -np 1 dt-made --mode none : -np 1 file.
    done
}

@test "fish: options, commands, choices, models, files, folders" {
    command -v fish >/dev/null || skip "needs fish"
    "$generate" fish dt-made.json presets.txt devices.txt >made.fish
    mkdir .home
    export HOME=$PWD/.home XDG_CONFIG_HOME=$PWD/.home XDG_DATA_HOME=$PWD/.home
    try() { # WANT LINE
        local got
        got=$(fish --no-config -c "source made.fish; source $DT_BIN/../completions/dt-mpirun.fish; complete -C '$2'" </dev/null | cut -f 1 | sort | paste -s -d ' ')
        [ "$got" = "$1" ] || { echo "$2: '$got', not '$1'"; return 1; }
    }
    fish --no-execute made.fish
    try "--mode --model" "dt-made --mod"
    try "full none selective" "dt-made --mode "
    try "load ls" "dt-made l"
    try "--no-verbose" "dt-made ls --no"
    try "" "dt-made load --no"
    try "llama-2-7b llama-3-8b" "dt-made load --model ll"
    try "A100 H100" "dt-made --gpu "
    try "set.h5" "dt-made --data se"
    try "--mode --model" "mpirun -np 2 dt-made --mod"
    try "full none selective" "mpirun -np 2 --bind-to none ./dt-made --mode "
    try "file.txt folder/" "dt-made --out f"
    try "folder/" "dt-made --save f"
    [ ! -e hacked ]
}

@test "zsh: options, commands, choices" {
    command -v zsh >/dev/null || skip "needs zsh"
    mkdir functions
    "$generate" zsh dt-made.json presets.txt devices.txt >functions/_dt-made
    cp "$DT_BIN/../completions/_dt_launcher" functions
    zsh -n functions/_dt-made
    zsh -n functions/_dt_launcher
    # Runs an interactive zsh on a pseudo-terminal.
    cat >ask.zsh <<'END'
zmodload zsh/zpty
zpty -b z 'PS1= TERM=dumb zsh -f -i 2>&1'
send() { zpty -w z "$1" }
send 'unset zle_bracketed_paste; fpath=($PWD/functions $fpath); autoload -U compinit; compinit -u -D'
send 'zstyle ":completion:*" menu no; zstyle ":completion:*" list-prompt ""; setopt no_beep; LISTMAX=1000'
send "dt-made() { echo \"got:\$*:\" }"
send "mpirun() { echo \"got:\$*:\" }"
await() { # TEXT: waits up to 120 s until zsh prints it; zsh also echoes the input
    local chunk
    out=
    repeat 1200; do
        while zpty -r -t z chunk; do out+=$chunk; done
        [[ $out == *"$1"* ]] && return
        sleep 0.1
    done
    return 1
}
send 'echo set$((1 + 1))up'
await set2up || { print -r -- "not ready: $out"; exit 1 }
ask() {
    zpty -w -n z "${3:-dt-made} $1"$'\t\n'
    await "got:$2:" || { print -r -- "$1: not '$2' but: $out"; exit 1 }
}
ask '--stee' '--stee'
ask '--ste' '--steps' # zsh removes the = that it added
ask '--mode s' '--mode selective'
ask 'ls --verb' 'ls --verbose'
ask 'load -m gpt' 'load -m gpt2-124m'
ask 'load --gpu A' 'load --gpu A100'
ask '-np 2 dt-made --mode s' '-np 2 dt-made --mode selective' mpirun
ask '-np 1 dt-made ls : -np 1 dt-made load -m gpt' '-np 1 dt-made ls : -np 1 dt-made load -m gpt2-124m' mpirun
zpty -d z
END
    run zsh -f ask.zsh
    [ "$status" -eq 0 ] || { echo "$output"; false; }
    [ ! -e hacked ]
}

# missing SHELL: checks that standard input holds all options of the file 'want'
missing() {
    local options
    options=$(sort -u | comm -23 <(sort -u want) -)
    [ -z "$options" ] || { echo "$name: $1 does not complete" $options; return 1; }
}

@test "every program has completions of its own options in all three shells" {
    local n=0
    for program in "$DT_BIN"/dt-*; do
        [ -f "$program" ] && [ -x "$program" ] || continue
        name=${program##*/}
        n=$((n + 1))
        bash -n "$DT_BIN/../completions/$name"
        ! command -v zsh >/dev/null || zsh -n "$DT_BIN/../completions/_$name"
        ! command -v fish >/dev/null || fish --no-execute "$DT_BIN/../completions/$name.fish"
        "$program" --describe-options | jq -r '.options[].name' | sort >want
        # An option that belongs to certain commands is offered after each of them.
        got=$("$program" --describe-options | jq -r '[.commands[].name] + [""] | .[]' | while read -r command; do
            bash_complete "$DT_BIN/../completions/$name" "$name" ${command:+"$command"} -- | tr ' ' '\n'
        done | sed 's/^--//' | sort -u)
        missing bash <<<"$got"
        grep -oE -- '--[a-z0-9-]+(\[|=)' "$DT_BIN/../completions/_$name" | sed 's/^--//; s/.$//' | missing zsh
        grep -oE -- ' -l [a-z0-9-]+ ' "$DT_BIN/../completions/$name.fish" | sed 's/ -l //; s/ $//' | missing fish
    done
    [ "$n" -gt 0 ]
}
# SPDX-License-Identifier: Apache-2.0
