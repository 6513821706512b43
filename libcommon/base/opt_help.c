/* Output of the option table for people (--help) and for scripts (--describe-options). */
#include "base/opt.h"

#include <jansson.h>
#include <string.h>

#define HELP_COLUMN 30
#define HELP_WIDTH  96

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), k = strlen(tail);

	return n >= k && !strcmp(s + n - k, tail);
}

/* Prints text from column HELP_COLUMN on, wrapped at blanks. */
static void print_wrapped(FILE *out, int column, const char *text)
{
	while (*text) {
		size_t n = strlen(text), room = HELP_WIDTH - HELP_COLUMN;

		if (column >= HELP_COLUMN) {
			fputc('\n', out);
			column = 0;
		}
		fprintf(out, "%*s", HELP_COLUMN - column, "");
		if (n > room) {
			n = room;
			while (n > 0 && text[n] != ' ')
				n--;
			if (n == 0)
				n = room;
		}
		fprintf(out, "%.*s", (int)n, text);
		column = HELP_COLUMN;
		text += n;
		while (*text == ' ')
			text++;
	}
	fputc('\n', out);
}

/* Prints the argument; a long choice is wrapped. Returns the column at its end. */
static int print_argument(FILE *out, int column, const char *arg)
{
	column += fprintf(out, " ");
	while (column + (int)strlen(arg) > HELP_WIDTH && strchr(arg, '|')) {
		int n = HELP_WIDTH - column, k = 0;

		for (int i = 0; i < n && arg[i]; i++)
			k = arg[i] == '|' ? i + 1 : k;
		if (!k)
			k = (int)(strchr(arg, '|') - arg) + 1;
		fprintf(out, "%.*s\n%12s", k, arg, "");
		arg += k;
		column = 12;
	}
	return column + fprintf(out, "%s", arg);
}

static void print_option(FILE *out, const struct dt_opt *o)
{
	const char *def = o->def ? o->def : o->def_text;
	char help[1024];
	int column;

	column = fprintf(out, "  ");
	column += o->short_name ? fprintf(out, "-%c, ", o->short_name) : fprintf(out, "    ");
	column += fprintf(out, "--%s%s", o->negatable ? "[no-]" : "", o->name);
	if (o->type != DT_OPT_FLAG)
		column = print_argument(out, column, o->arg);
	snprintf(help, sizeof(help), "%s%s%s%s%s%s%s", o->help, def ? " (default " : "", def ? def : "",
		 def ? ")" : "", o->commands ? " (" : "", o->commands ? o->commands : "",
		 o->commands ? ")" : "");
	print_wrapped(out, column + 1 > HELP_COLUMN ? HELP_COLUMN : column, help);
}

void dt_opt_print_help(const struct dt_program *p, FILE *out)
{
	fprintf(out, "%s - %s\n\nExamples:\n", p->name, p->summary);
	for (const char *const *e = p->examples; e && *e; e++)
		fprintf(out, "  %s\n", *e);
	fputs("\nUsage:\n", out);
	if (!p->commands)
		fprintf(out, "  %s [option ...]%s%s\n", p->name, p->operands && *p->operands ? " " : "",
			p->operands ? p->operands : "");
	for (const struct dt_command *c = p->commands; c && c->name; c++) {
		int column = fprintf(out, "  %s %s%s%s", p->name, c->name,
				     c->operands && *c->operands ? " " : "", c->operands ? c->operands : "");

		print_wrapped(out, column + 1 > HELP_COLUMN ? HELP_COLUMN : column, c->help);
	}
	fputs("\nOptions:\n", out);
	for (const struct dt_opt *o = p->opts; o->name || o->help; o++) {
		if (!o->name)
			fprintf(out, "\n%s%s\n", o->help, ends_with(o->help, ":") ? "" : ":");
		else
			print_option(out, o);
	}
	fputs("  -h, --help                  print this help\n"
	      "      --version               print the version\n",
	      out);
	fprintf(out, "\nThe manual page has more: man %s\n", p->name);
}

/* What the shell completes the argument with: the option's complete, or a guess from a word such as FILE. */
static enum dt_opt_complete completion_of(const struct dt_opt *o)
{
	if (o->complete || !o->arg || o->type == DT_OPT_CHOICE)
		return o->complete;
	if (ends_with(o->arg, ".h5"))
		return DT_COMPLETE_H5;
	if (ends_with(o->arg, "FILE") || ends_with(o->arg, "PATH"))
		return DT_COMPLETE_FILE;
	if (ends_with(o->arg, "DIR") || ends_with(o->arg, "FOLDER") || ends_with(o->arg, "CKPT"))
		return DT_COMPLETE_DIR;
	if (ends_with(o->arg, "MODEL"))
		return DT_COMPLETE_MODEL;
	return DT_COMPLETE_NONE;
}

void dt_opt_describe(const struct dt_program *p, FILE *out)
{
	static const char *const types[] = {"",	    "flag",  "int",    "real",	"string",  "list",
					    "size", "count", "choice", "share", "percent", "rate"};
	static const char *const completes[] = {"none", "file", "dir", "model", "h5", "gpu", "tokenizer"};
	json_t *opts = json_array(), *cmds = json_array(), *examples = json_array(), *root;

	for (const struct dt_opt *o = p->opts; o->name || o->help; o++) {
		if (!o->name)
			continue;
		json_array_append_new(
			opts, json_pack("{s:s, s:s*, s:s, s:s*, s:s, s:s*, s:s, s:b, s:s*, s:s*}", "name",
					o->name, "short", o->short_name ? (char[]){o->short_name, 0} : NULL,
					"type", types[o->type], "arg", o->arg, "help", o->help, "commands",
					o->commands, "complete", completes[completion_of(o)], "negatable",
					o->negatable, "default", o->def, "default_text", o->def_text));
	}
	for (const struct dt_command *c = p->commands; c && c->name; c++)
		json_array_append_new(cmds, json_pack("{s:s, s:s*, s:s}", "name", c->name, "operands",
						      c->operands, "help", c->help));
	for (const char *const *e = p->examples; e && *e; e++)
		json_array_append_new(examples, json_string(*e));
	root = json_pack("{s:i, s:s, s:s, s:s*, s:o, s:o, s:o}", "schema", 1, "program", p->name, "summary",
			 p->summary, "operands", p->operands, "examples", examples, "commands", cmds,
			 "options", opts);
	if (root)
		json_dumpf(root, out, JSON_INDENT(1));
	fputc('\n', out);
	json_decref(root);
}
/* SPDX-License-Identifier: Apache-2.0 */
