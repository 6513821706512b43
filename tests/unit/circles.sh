#!/bin/sh
# Files of one library that need each other in a circle, found from the symbols of its objects: each can only be
# understood, tested and changed with all the others. circles.txt lists the circles of three files and more that are
# meant, with the reason.
#   circles.sh ROOT BUILD [LIST]      LIST: in place of ROOT/tests/unit/circles.txt
set -u
root=${1:?usage: circles.sh ROOT BUILD [LIST]}
build=${2:?usage: circles.sh ROOT BUILD [LIST]}
list=${3:-$root/tests/unit/circles.txt}
command -v nm >/dev/null 2>&1 || { echo "skipped: needs nm"; exit 77; }
find "$build/libcommon" "$build/kernels" -name 'libdt*.a' ! -name '*emulated*' | sort | while read -r archive; do
    name=${archive##*/}
    name=${name%.a}
    # FILE:SYMBOL's letter, from "archive:file.c.o: address T name" or "...: U name"
    nm -A "$archive" 2>/dev/null | sed -n 's/^[^:]*:\([^:]*\):[0-9a-f ]* \([TDBRUVW]\) \(.*\)$/\1 \2 \3/p' |
        awk -v library="${name#libdt}" '
        { sub(/.*\//, "", $1); sub(/\.(c|cc|cu)?\.?o$/, "", $1); files[$1] = 1 }
        $2 == "U" { nuse++; user[nuse] = $1; used[nuse] = $3 }
        $2 != "U" { home[$3] = $1 }
        END {
            for (i = 1; i <= nuse; i++)
                if (used[i] in home && home[used[i]] != user[i])
                    reach[user[i], home[used[i]]] = 1
            for (k in files)
                for (i in files)
                    if ((i, k) in reach)
                        for (j in files)
                            if ((k, j) in reach)
                                reach[i, j] = 1
            n = 0
            for (i in files)
                sorted[++n] = i
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && sorted[j] < sorted[j - 1]; j--) {
                    t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t
                }
            for (i = 1; i <= n; i++) {
                if (done[sorted[i]] || !((sorted[i], sorted[i]) in reach))
                    continue
                circle = library ":"
                for (j = 1; j <= n; j++)
                    if (((sorted[i], sorted[j]) in reach) && ((sorted[j], sorted[i]) in reach)) {
                        circle = circle " " sorted[j]
                        done[sorted[j]] = 1
                    }
                print circle
            }
        }'
done | awk -v list="$list" '
    # A line of the list allows a circle of those files and of any part of them.
    BEGIN {
        while ((getline line <list) > 0) {
            sub(/ *#.*/, "", line)
            n = split(line, word, " ")
            if (n > 1)
                nmeant++
            for (i = 2; i <= n; i++)
                meant[nmeant, word[1], word[i]] = 1
        }
    }
    {
        allowed = NF <= 3 # two files that call each other are one thing in two files
        for (m = 1; m <= nmeant && !allowed; m++) {
            allowed = 1
            for (i = 2; i <= NF; i++)
                allowed = allowed && ((m, $1, $i) in meant)
        }
        if (!allowed) {
            print "files that need each other, " $0
            bad = 1
        }
    }
    END { exit bad }'
# SPDX-License-Identifier: Apache-2.0
