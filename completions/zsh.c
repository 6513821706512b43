#include "completions/described.h"

#include <stdio.h>

/* In an _arguments specification inside single quotes. */
static void zsh_text(const char *s)
{
	put(s, '\'', "'\\''", "[]:\\");
}

static void zsh_action(const struct option *o)
{
	putchar(':');
	zsh_text(is(o->type, "choice") ? o->name : o->arg);
	putchar(':');
	if (is(o->type, "choice")) {
		putchar('(');
		put_choices(o->arg);
		putchar(')');
	} else if (is(o->complete, "model")) {
		printf("{ compadd -- %s; _files }", presets);
	} else if (is(o->complete, "gpu")) {
		printf("(%s)", devices);
	} else if (is(o->complete, "tokenizer")) {
		printf("{ compadd -- byte; _files -g \"*.(" TOKENIZERS ")\" }");
	} else if (is(o->complete, "h5")) {
		printf("_files -g \"*.h5\"");
	} else if (is(o->complete, "file")) {
		printf("_files");
	} else if (is(o->complete, "dir")) {
		printf("_files -/");
	} else {
		putchar(' ');
	}
}

/* An option under one of its names; before: what stands between the name and its argument. */
static void zsh_spelling(const struct option *o, const char *indent, const char *dashes, const char *name,
			 const char *before)
{
	const bool flag = is(o->type, "flag");

	printf("%s'%s%s%s%s[", indent, is(o->type, "list") ? "*" : "", dashes, name, flag ? "" : before);
	zsh_text(o->help);
	putchar(']');
	if (!flag)
		zsh_action(o);
	printf("'\n");
}

static void zsh_options(const char *c, const char *indent)
{
	for (size_t i = 0; i < json_array_size(options); i++) {
		struct option o = option(i);

		if (*o.commands ? !listed(o.commands, c) || !*c : *c != '\0')
			continue;
		if (*o.shrt)
			zsh_spelling(&o, indent, "-", o.shrt, "+");
		zsh_spelling(&o, indent, "--", o.name, "=");
		if (o.negatable) {
			printf("%s'--no-%s[not: ", indent, o.name);
			zsh_text(o.help);
			printf("]'\n");
		}
	}
}

void zsh(void)
{
	printf("#compdef %s\n# generated from the option table\n\nlocal -a options commands\nlocal command "
	       "word\noptions=(\n",
	       program);
	zsh_options("", "    ");
	printf("    '(-h --help)'{-h,--help}'[print help]'\n    '--version[print the version]'\n)\n");
	if (json_array_size(commands)) {
		printf("commands=(\n");
		for (size_t i = 0; i < json_array_size(commands); i++) {
			printf("    '%s:", command(i, "name"));
			put(command(i, "help"), '\'', "'\\''", ":\\");
			printf("'\n");
		}
		printf(")\nfor word in ${words[2,CURRENT-1]}; do\n    case $word in\n    ");
		put_commands(" | ");
		printf(")\n        command=$word\n        break\n        ;;\n    esac\ndone\ncase $command "
		       "in\n");
		for (size_t i = 0; i < json_array_size(commands); i++) {
			printf("%s)\n    options+=(\n", command(i, "name"));
			zsh_options(command(i, "name"), "        ");
			printf("    )\n    ;;\n");
		}
		printf("esac\nif [[ -z $command ]]; then\n    _arguments -s -S $options '1:command:{ "
		       "_describe command commands "
		       "}'\n    return\nfi\n");
	}
	printf("_arguments -s -S $options '*:");
	if (takes_model(operands))
		printf("model:{ compadd -- %s; _files }'\n", presets);
	else
		printf("file:_files'\n");
}
/* SPDX-License-Identifier: Apache-2.0 */
