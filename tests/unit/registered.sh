#!/bin/sh
# Every test file is in the meson.build of its folder: one that is in no list is never run. The tree's root holds only the
# files listed here: programs write logs and models into the folder that they run in, and a commit of everything takes
# them along.
#   registered.sh ROOT      the tree to look at
set -u
cd "${1:?usage: registered.sh ROOT}" || exit 1
n=0
bad=0
for file in tests/*/*.bats tests/*/test_*.c tests/fuzz/fuzz_*.c tests/*/*.sh; do
    [ -f "$file" ] || continue
    n=$((n + 1))
    folder=${file%/*}
    name=${file##*/}
    stem=${name%.*}
    # 'dt-plan', 'rng' for test_rng.c, 'gguf' for fuzz_gguf.c, or the file's own name
    for word in "$stem" "${stem#test_}" "${stem#fuzz_}" "$name"; do
        grep -qF "'$word'" "$folder/meson.build" && continue 2
    done
    # a script of another test: named by one
    grep -qrF --include='*.bats' --include='*.sh' --include='meson.build' --exclude="$name" "$name" tests scripts .ci && continue
    echo "$file is not in $folder/meson.build"
    bad=1
done
for file in $(git ls-files 2>/dev/null | grep -v /); do
    case $file in
    .clang-format | .containerignore | .editorconfig | .gitignore | Containerfile | LICENSE | NEWS | REUSE.toml) ;;
    README.md | CONTRIBUTING.md | meson.build | meson_options.txt) ;;
    *)
        echo "$file does not belong in the root of the tree"
        bad=1
        ;;
    esac
done
[ "$n" -gt 0 ] || echo "no test found: wrong folder?"
[ "$bad" -eq 0 ] && [ "$n" -gt 0 ]
# SPDX-License-Identifier: Apache-2.0
