#include "completions/described.h"

#include <stdio.h>

static void bash_words(const char *words, const char *indent)
{
	printf("%smapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n", indent, words);
}

static void bash_files(const char *flag, const char *indent)
{
	printf("%scompopt -o filenames 2>/dev/null\n%smapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < "
	       "<(compgen %s -- "
	       "\"$cur\")\n",
	       indent, indent, flag);
}

/* Files whose names end so, "h5|json", and folders, which may hold some. */
static void bash_endings(const char *endings, const char *indent)
{
	printf("%scompopt -o filenames 2>/dev/null\n%smapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < "
	       "<(shopt -s extglob; compgen -f -X '!*.@(%s)' -- \"$cur\"; compgen -d -- \"$cur\")\n",
	       indent, indent, endings);
}

static void bash_argument(const struct option *o)
{
	printf("    %s%s--%s)\n", *o->shrt ? "-" : "", o->shrt, o->name + 0);
	if (is(o->type, "choice")) {
		printf("        mapfile -t COMPREPLY < <(compgen -W '");
		put_choices(o->arg);
		printf("' -- \"$cur\")\n");
	}
	if (is(o->complete, "model"))
		bash_words(presets, "        ");
	if (is(o->complete, "gpu"))
		bash_words(devices, "        ");
	if (is(o->complete, "tokenizer"))
		bash_words("byte", "        ");
	if (is(o->complete, "file") || is(o->complete, "model"))
		bash_files("-f", "        ");
	if (is(o->complete, "h5"))
		bash_endings("h5", "        ");
	if (is(o->complete, "tokenizer"))
		bash_endings(TOKENIZERS, "        ");
	if (is(o->complete, "dir"))
		bash_files("-d", "        ");
	printf("        return\n        ;;\n");
}

void bash(const char *function)
{
	printf("# bash completion for %s, generated from its option table\n\n%s()\n{\n", program, function);
	printf("    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words\n"
	       "    COMPREPLY=()\n"
	       "    # --option=value comes as three words\n"
	       "    if [[ $cur == = ]]; then\n"
	       "        cur=\n"
	       "    elif [[ $prev == = ]]; then\n"
	       "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
	       "    fi\n"
	       "    case $prev in\n");
	for (size_t i = 0; i < json_array_size(options); i++) {
		struct option o = option(i);
		char pattern[16] = "";

		if (is(o.type, "flag"))
			continue;
		if (*o.shrt)
			snprintf(pattern, sizeof(pattern), "%.1s | ", o.shrt);
		o.shrt = pattern;
		bash_argument(&o);
	}
	printf("    esac\n    words='");
	put_option_words("");
	printf(" --help --version'\n");
	if (json_array_size(commands)) {
		printf("    local command='' word\n"
		       "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n        case $word in\n     "
		       "   ");
		put_commands(" | ");
		printf(")\n            command=$word\n            break\n            ;;\n        esac\n    "
		       "done\n"
		       "    case $command in\n");
		for (size_t i = 0; i < json_array_size(commands); i++) {
			printf("    %s) words+='", command(i, "name"));
			put_option_words(command(i, "name"));
			printf("' ;;\n");
		}
		printf("    esac\n");
	}
	printf("    if [[ $cur == -* ]]; then\n"
	       "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n        return\n    "
	       "fi\n");
	if (json_array_size(commands)) {
		printf("    if [[ -z $command ]]; then\n        mapfile -t COMPREPLY < <(compgen -W '");
		put_commands(" ");
		printf("' -- \"$cur\")\n        return\n    fi\n");
	}
	if (takes_model(operands))
		bash_words(presets, "    ");
	bash_files("-f", "    ");
	printf("}\ncomplete -F %s %s\n", function, program);
}
/* SPDX-License-Identifier: Apache-2.0 */
