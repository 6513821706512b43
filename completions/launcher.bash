# bash completion for @LAUNCHER@: behind a program of dt its own words

_dt_launcher()
{
    local i name cur=${COMP_WORDS[COMP_CWORD]}
    for ((i = COMP_CWORD - 1; i > 0; i--)); do
        name=${COMP_WORDS[i]##*/}
        if [[ $name == : ]]; then
            break # mpirun -np 1 dt-x : -np 1 dt-y
        elif [[ $name == dt-+([a-z-]) ]]; then
            if ! declare -F "_${name//-/_}" >/dev/null; then
                # shellcheck disable=SC1090 # generated, beside this file
                source "${BASH_SOURCE[0]%/*}/$name" 2>/dev/null || return
            fi
            COMP_WORDS=("$name" "${COMP_WORDS[@]:i+1}")
            COMP_CWORD=$((COMP_CWORD - i))
            "_${name//-/_}"
            return
        fi
    done
    compopt -o filenames 2>/dev/null
    if [[ $cur != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur"; compgen -f -- "$cur")
    fi
}
complete -F _dt_launcher @LAUNCHER@
# SPDX-License-Identifier: Apache-2.0
