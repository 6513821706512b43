/*
 * generate bash|zsh|fish FILE [PRESETS [DEVICES]]
 *
 * Writes the completion of one program to standard output. FILE is what `dt-x --describe-options` printed;
 * PRESETS names the models and DEVICES the cards, one a line. Run by the build.
 */
#include "base/json.h"
#include "base/tmpfile.h"

#include <stdlib.h>
#include <string.h>

struct option {
	const char *name, *shrt, *type, *arg, *help, *commands, *complete;
	bool negatable;
};

static json_t *root, *options, *commands;
static const char *program, *operands;
/* words separated by blanks */
static char *presets = (char[]){""}, *devices = (char[]){""};

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static struct option option(size_t i)
{
	json_t *o = json_array_get(options, i);

	return (struct option){.name = str(o, "name"),
			       .shrt = str(o, "short"),
			       .type = str(o, "type"),
			       .arg = str(o, "arg"),
			       .help = str(o, "help"),
			       .commands = str(o, "commands"),
			       .complete = str(o, "complete"),
			       .negatable = json_is_true(json_object_get(o, "negatable"))};
}

static bool is(const char *a, const char *b)
{
	return !strcmp(a, b);
}

/* Is word one of list, which is separated by commas? */
static bool listed(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *s = list; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (!strncmp(s, word, n) && (s[n] == ',' || !s[n]))
			return true;
	return false;
}

/* s with every `from` written as `to`, and each character of `escape` behind a backslash. */
static void put(const char *s, char from, const char *to, const char *escape)
{
	for (; *s; s++) {
		if (*s == from)
			fputs(to, stdout);
		else if (*s == '\n')
			putchar(' ');
		else if (strchr(escape, *s))
			printf("\\%c", *s);
		else
			putchar(*s);
	}
}

/* a|b|c with blanks */
static void put_choices(const char *s)
{
	put(s, '|', " ", "");
}

static const char *command(size_t i, const char *key)
{
	return str(json_array_get(commands, i), key);
}

static void put_commands(const char *between)
{
	for (size_t i = 0; i < json_array_size(commands); i++)
		printf("%s%s", i ? between : "", command(i, "name"));
}

/* The words of the options that go with command c; "": those that go with every command. */
static void put_option_words(const char *c)
{
	for (size_t i = 0; i < json_array_size(options); i++) {
		struct option o = option(i);

		if (*o.commands ? !listed(o.commands, c) || !*c : *c != '\0')
			continue;
		printf(" --%s", o.name);
		if (o.negatable)
			printf(" --no-%s", o.name);
	}
}

/* What holds a tokenizer, by the endings of its name. */
#define TOKENIZERS "json|gguf|model|bin"

static bool takes_model(const char *words)
{
	return strstr(words, "MODEL") != NULL;
}

/* ---- bash ---- */

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

static void bash(const char *function)
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

/* ---- zsh ---- */

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

static void zsh_options(const char *c, const char *indent)
{
	for (size_t i = 0; i < json_array_size(options); i++) {
		struct option o = option(i);
		bool flag = is(o.type, "flag"), list = is(o.type, "list");

		if (*o.commands ? !listed(o.commands, c) || !*c : *c != '\0')
			continue;
		if (*o.shrt) {
			printf("%s'%s-%s%s[", indent, list ? "*" : "", o.shrt, flag ? "" : "+");
			zsh_text(o.help);
			putchar(']');
			if (!flag)
				zsh_action(&o);
			printf("'\n");
		}
		printf("%s'%s--%s%s[", indent, list ? "*" : "", o.name, flag ? "" : "=");
		zsh_text(o.help);
		putchar(']');
		if (!flag)
			zsh_action(&o);
		printf("'\n");
		if (o.negatable) {
			printf("%s'--no-%s[not: ", indent, o.name);
			zsh_text(o.help);
			printf("]'\n");
		}
	}
}

static void zsh(void)
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

/* ---- fish ---- */

static void fish_text(const char *s)
{
	putchar('\'');
	put(s, '\0', "", "'\\");
	putchar('\'');
}

static void fish_condition(const struct option *o)
{
	if (*o->commands) {
		printf(" -n '__fish_seen_subcommand_from ");
		put(o->commands, ',', " ", "");
		putchar('\'');
	}
}

static void fish(void)
{
	printf("# fish completion for %s, generated from its option table\n", program);
	for (size_t i = 0; i < json_array_size(commands); i++) {
		printf("complete -c %s -f -n __fish_use_subcommand -a %s -d ", program, command(i, "name"));
		fish_text(command(i, "help"));
		putchar('\n');
	}
	for (size_t i = 0; i < json_array_size(options); i++) {
		struct option o = option(i);

		printf("complete -c %s", program);
		fish_condition(&o);
		printf(" -l %s", o.name);
		if (*o.shrt)
			printf(" -s %s", o.shrt);
		if (is(o.type, "choice")) {
			printf(" -x -a '");
			put_choices(o.arg);
			putchar('\'');
		} else if (is(o.complete, "model")) {
			printf(" -r -F -a '%s'", presets);
		} else if (is(o.complete, "gpu")) {
			printf(" -x -a '%s'", devices);
		} else if (is(o.complete, "tokenizer")) {
			printf(" -r -F -a byte");
		} else if (is(o.complete, "h5")) {
			printf(" -x -a '(__fish_complete_suffix .h5)'");
		} else if (is(o.complete, "file")) {
			printf(" -r -F");
		} else if (is(o.complete, "dir")) {
			printf(" -x -a '(__fish_complete_directories)'");
		} else if (!is(o.type, "flag")) {
			printf(" -x");
		}
		printf(" -d ");
		fish_text(o.help);
		putchar('\n');
		if (o.negatable) {
			printf("complete -c %s", program);
			fish_condition(&o);
			printf(" -l no-%s\n", o.name);
		}
	}
	printf("complete -c %s -s h -l help -d 'print help'\ncomplete -c %s -l version -d 'print the "
	       "version'\n",
	       program, program);
	if (takes_model(operands))
		printf("complete -c %s -a '%s'\n", program, presets);
}

/* The lines of a file as words separated by blanks, the caller's to free. */
static int load_words(const char *path, char **ret, struct dt_err *err)
{
	char *words;
	size_t n;
	int rc = dt_read_file(path, 1 << 20, &words, &n, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n; i++)
		if (words[i] == '\n')
			words[i] = i + 1 < n ? ' ' : '\0';
	*ret = words;
	return 0;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	char function[128];

	if (argc < 3 || argc > 5) {
		fprintf(stderr, "usage: generate bash|zsh|fish FILE [PRESETS [DEVICES]]\n");
		return DT_EXIT_USAGE;
	}
	if (dt_json_load(argv[2], 1 << 20, &root, &err) < 0 ||
	    (argc > 3 && load_words(argv[3], &presets, &err) < 0) ||
	    (argc > 4 && load_words(argv[4], &devices, &err) < 0))
		goto fail;
	program = str(root, "program");
	operands = str(root, "operands");
	options = json_object_get(root, "options");
	commands = json_object_get(root, "commands");
	snprintf(function, sizeof(function), "_%s", program);
	for (char *s = function; *s; s++)
		if (*s == '-')
			*s = '_';
	if (is(argv[1], "bash"))
		bash(function);
	else if (is(argv[1], "zsh"))
		zsh();
	else if (is(argv[1], "fish"))
		fish();
	else
		dt_err_set(&err, -22, "unknown shell '%s'", argv[1]);
	json_decref(root);
	if (argc > 3)
		free(presets);
	if (argc > 4)
		free(devices);
	if (err.code == 0 && dt_close_stdout(&err) == 0)
		return DT_EXIT_OK;
fail:
	fprintf(stderr, "generate: %s\n", err.msg);
	return DT_EXIT_FAILED;
}
/* SPDX-License-Identifier: Apache-2.0 */
