# Arguments of the scripts in this folder.
# shellcheck shell=bash

self=${0##*/}
export LC_ALL=C.UTF-8 # printf and awk would read and write numbers with the comma of other locales

# header: prints the comment at the top of the script, wrapped for a terminal of 80 columns. What follows two
# or more spaces in a line is a description; its further lines begin below it. Lines of options in brackets are divided
# between brackets.
header() {
	awk -v width=79 'NR == 1 { next }
		function within(s) { return gsub(/\[/, "[", s) > gsub(/\]/, "]", s) }
		function flush(  at) {
			while (length(text) > width) {
				for (at = width + 1; at > lead + 1 &&
				     (substr(text, at, 1) != " " || within(substr(text, 1, at))); at--)
					;
				if (at <= lead + 1)
					break
				print substr(text, 1, at - 1)
				text = sprintf("%" lead "s%s", "", substr(text, at + 1))
			}
			print text
		}
		!/^#/ { exit }
		{
			sub(/^# ?/, "")
			match($0, /^ */)
			indent = RLENGTH
			described = match($0, /^ *[^ ]+( [^ ]+)*  +/) ? RLENGTH : 0
			if ((long && indent == lead && !described && $0 != "") || (text ~ /\[-/ && /^ *\[/)) {
				text = text " " substr($0, indent + 1)
			} else {
				if (some)
					flush()
				text = $0
				lead = match($0, /^ *[0-9]+\. /) ? RLENGTH : described && described <= 30 ? described : indent
				lead += / \[-/ ? 4 : 0
			}
			some = 1
			long = length($0) > width
		}
		END { if (some) flush() }' "$0"
}

# refuse TEXT: wrong usage
refuse() {
	echo "$self: $1; try '$0 --help'" >&2
	exit 2
}

# arguments LEAST ARGUMENT...: --help prints the header, fewer than LEAST arguments are refused
arguments() {
	local least=$1 each
	shift
	for each in "$@"; do
		case $each in
		--) break ;;
		-h | --help) header; exit 0 ;;
		esac
	done
	[ $# -ge "$least" ] || refuse "missing arguments"
}

# value OPTION [VALUE]: sets the variable that is named like the option
value() {
	[ $# -ge 2 ] || refuse "'$1' needs a value"
	printf -v "${1#--}" %s "$2"
}

# number OPTION...: these have a positive whole number; the option of VARIABLE=-LETTER is -LETTER
number() {
	local each name option
	for each in "$@"; do
		name=${each%%=*} option=--$each
		[ "$name" = "$each" ] || option=${each#*=}
		[[ ${!name} =~ ^[1-9][0-9]*$ ]] || refuse "$option '${!name}' is not a positive number"
	done
}

# place PATH: prints the absolute path of a file or folder that exists
place() {
	realpath -e -- "$1" 2>/dev/null || { echo "$self: there is no '$1'" >&2; return 1; }
}

# built FOLDER PROGRAM...: prints the absolute path of a folder where dt was built, with these programs
built() {
	local folder each
	folder=$(place "$1") || return 1
	for each in "${@:2}"; do
		[ -x "$folder/tools/$each" ] || {
			echo "$self: no tools/$each in '$1': give the folder where dt was built" >&2
			return 1
		}
	done
	echo "$folder"
}
# SPDX-License-Identifier: Apache-2.0
