# fish completion for @LAUNCHER@: behind a program of dt its own words
function __dt_launched
    set -l words (commandline -opc) (commandline -ct)
    for i in (seq (math (count $words) - 1) -1 2)
        if test "$words[$i]" = :
            return
        else if string match -qr '(^|/)dt-[a-z-]+$' -- $words[$i]
            set -l rest (string escape -- $words[(math $i + 1)..-2])
            complete -C (string join ' ' -- (string replace -r '.*/' '' -- $words[$i]) $rest $words[-1])
            return
        end
    end
    __fish_complete_command
end
complete -c @LAUNCHER@ -x -a '(__dt_launched)'
# SPDX-License-Identifier: Apache-2.0
