#!/usr/bin/env bats
# Installation and packaging: the installed tree works at any place, the tarball contains every file of the
# repository, and the Debian package lists the packages of scripts/deps.
bats_require_minimum_version 1.5.0
load slow

setup() {
    export LC_ALL=C.UTF-8
    cd "$BATS_TEST_TMPDIR" || return 1
    build=$DT_BIN/..
    problems=0
}

problem() {
    echo "$*"
    problems=$((problems + 1))
}

@test "the installed tree runs after it was moved, and contains no path of the build" {
    meson install -C "$build" --no-rebuild --destdir "$PWD/root" --quiet
    prefix=$(meson introspect --buildoptions "$build" | jq -r '.[] | select(.name == "prefix").value')
    mv "root$prefix" moved
    for program in "$DT_BIN"/dt-*; do
        [ -f "$program" ] && [ -x "$program" ] || continue
        name=${program##*/}
        "moved/bin/$name" --version >out || problem "$name does not run"
        [ -s "moved/share/man/man1/$name.1" ] || problem "$name has no page"
        for file in bash-completion/completions/$name zsh/site-functions/_$name fish/vendor_completions.d/$name.fish; do
            [ -s "moved/share/$file" ] || problem "$file is missing"
        done
    done
    for page in "$DT_SRC"/man/*.[57]; do
        [ -s "moved/share/man/man${page##*.}/${page##*/}" ] || problem "${page##*/} is not installed"
    done
    moved/bin/dt-memest gpt2-124m --gpu-mem 80GiB >out
    got=$(bash -O extglob -c '
        source moved/share/bash-completion/completions/mpirun.bash
        COMP_WORDS=(mpirun -np 2 dt-memest --gpu-m) COMP_CWORD=4
        _dt_launcher
        echo "${COMPREPLY[*]}"')
    [ "$got" = "--gpu-mem" ] || problem "completion behind mpirun gives '$got'"
    while read -r file; do
        problem "$file names the folder it was built in"
    done < <(grep -rlF -e "$(cd "$build" && pwd)" -e "$DT_SRC" moved)
    [ "$problems" -eq 0 ]
}

@test "meson dist contains every file of the commit" {
    takes_long
    git -C "$DT_SRC" rev-parse HEAD >/dev/null 2>&1 || skip "needs a git checkout"
    git clone -q --depth 1 "file://$(git -C "$DT_SRC" rev-parse --path-format=absolute --git-common-dir)" \
        -b "$(git -C "$DT_SRC" branch --show-current)" src || skip "needs a branch"
    meson setup -Dtests=disabled -Dcuda=disabled out src >log || { cat log; false; }
    meson dist -C out --no-tests --formats gztar >log || { cat log; false; }
    tar tzf out/meson-dist/dt-*.tar.gz | sed -n 's,^[^/]*/\(.*[^/]\)$,\1,p' | sort >got
    git -C src ls-files | sort >want
    diff want got
}

@test "the Debian package's build dependencies are those of scripts/deps" {
    # gcc and libc6-dev are build-essential
    "$DT_SRC/scripts/deps" list build | grep -vx -e gcc -e libc6-dev | sort >want
    sed -n '/^Build-Depends:/,/^[^ ]*:/p' "$DT_SRC/debian/control" | sed -n 's/^ \([a-z0-9.+-]*\).*/\1/p' | sort >got
    diff want got
    version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$DT_SRC/meson.build")
    head -n 1 "$DT_SRC/debian/changelog" | grep -q "^dt ($version)"
}
# SPDX-License-Identifier: Apache-2.0
