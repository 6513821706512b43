/* Command lines: options, commands, help and version. */
#include "base/opt.h"

#include "base/launch.h"
#include "base/opt_check.h"
#include "base/suggest.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { VAL_HELP = 1, VAL_VERSION, VAL_DESCRIBE, VAL_FIRST = 256, VAL_NEGATED = 4096 };

int dt_opt_usage_error(const struct dt_program *p, FILE *errout, const char *fmt, ...)
{
	va_list ap;

	if (!dt_launch_speaks())
		return DT_EXIT_USAGE;
	fprintf(errout, "%s: ", p->name);
	va_start(ap, fmt);
	vfprintf(errout, fmt, ap);
	va_end(ap);
	fprintf(errout, "\nTry '%s --help' for more information.\n", p->name);
	return DT_EXIT_USAGE;
}

int dt_opt_usage_of(const struct dt_program *p, FILE *errout, const char *option, const struct dt_err *err)
{
	return dt_opt_usage_error(p, errout, "%s%s%s%s%s%s", option ? "option '--" : "", option ? option : "",
				  option ? "': " : "", err->msg, err->hint[0] ? "; " : "", err->hint);
}

static int count_opts(const struct dt_opt *o)
{
	int n = 0;

	while (o[n].name || o[n].help)
		n++;
	return n;
}

/* Fills the tables of getopt: lo has room for two entries an option (--x and --no-x) and four more. */
static void build_tables(const struct dt_program *p, struct option *lo, char *shorts)
{
	int k = 0;

	*shorts++ = ':';
	*shorts++ = 'h';
	for (int i = 0; p->opts[i].name || p->opts[i].help; i++) {
		const struct dt_opt *o = &p->opts[i];
		int has_arg = o->type == DT_OPT_FLAG ? no_argument : required_argument;

		if (!o->name)
			continue;
		lo[k++] = (struct option){o->name, has_arg, NULL, VAL_FIRST + i};
		if (o->negatable) {
			char *no = malloc(strlen(o->name) + 4);

			if (no) {
				sprintf(no, "no-%s", o->name);
				lo[k++] = (struct option){no, no_argument, NULL, VAL_NEGATED + i};
			}
		}
		if (o->short_name) {
			*shorts++ = o->short_name;
			if (has_arg == required_argument)
				*shorts++ = ':';
		}
	}
	lo[k++] = (struct option){"help", no_argument, NULL, VAL_HELP};
	lo[k++] = (struct option){"version", no_argument, NULL, VAL_VERSION};
	lo[k++] = (struct option){"describe-options", no_argument, NULL, VAL_DESCRIBE};
	lo[k] = (struct option){0};
	*shorts = '\0';
}

static void free_tables(struct option *lo)
{
	for (struct option *l = lo; l && l->name; l++)
		if (l->val >= VAL_NEGATED)
			free((char *)l->name);
	free(lo);
}

/* Handles one option returned by getopt. Returns -1 to go on, else an exit status. */
static int take(const struct dt_program *p, int val, bool *given, FILE *errout)
{
	struct dt_err err = {0};
	int i = -1;

	if (val >= VAL_NEGATED) {
		i = val - VAL_NEGATED;
		*(bool *)p->opts[i].dest = false;
	} else if (val >= VAL_FIRST) {
		i = val - VAL_FIRST;
	} else {
		for (i = 0; !p->opts[i].name || p->opts[i].short_name != val; i++)
			;
	}
	if (val < VAL_NEGATED && dt_opt_set(&p->opts[i], optarg, &err) < 0)
		return dt_opt_usage_of(p, errout, p->opts[i].name, &err);
	given[i] = true;
	if (p->opts[i].given)
		*p->opts[i].given = true;
	return -1;
}

static int unknown_option(const struct dt_program *p, const char *shown, const struct option *lo,
			  FILE *errout)
{
	int n = (int)strcspn(shown, "=");
	char word[64], text[128];
	struct dt_suggest s = dt_suggest(word);

	snprintf(word, sizeof(word), "%.*s", n - 2, shown + 2);
	for (; lo->name; lo++)
		if (lo->val != VAL_DESCRIBE)
			dt_suggest_offer(&s, lo->name);
	return dt_opt_usage_error(p, errout, "unknown option '%.*s'%s", n, shown,
				  dt_suggest_text(&s, "--", text, sizeof(text)));
}

/* Whether word, "--name" or "--name=value", has the full name: getopt_long accepts any unique prefix. */
static bool spelt_out(const char *word, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(word, "--", 2) && !strncmp(word + 2, name, n) && (!word[2 + n] || word[2 + n] == '=');
}

/* Stores the defaults of the table. Fails only on a mistake in the table. */
static int store_defaults(const struct dt_program *p, FILE *errout)
{
	struct dt_err err = {0};

	for (const struct dt_opt *o = p->opts; o->name || o->help; o++)
		if (o->name && o->def && dt_opt_set(o, o->def, &err) < 0) {
			fprintf(errout, "%s: default of '--%s': %s\n", p->name, o->name, err.msg);
			return -1;
		}
	return 0;
}

static int print_about(const struct dt_program *p, int val, FILE *out, FILE *errout)
{
	if (!dt_launch_speaks())
		return DT_EXIT_OK;
	if (val == VAL_VERSION) {
		fprintf(out, "%s %s\n", p->name, DT_VERSION);
		if (p->isa)
			fprintf(out, "kernels of the processor: %s\n", p->isa());
	} else if (val == VAL_DESCRIBE) {
		dt_opt_describe(p, out);
	} else {
		dt_opt_print_help(p, out);
	}
	if (!ferror(out) && fflush(out) != EOF)
		return DT_EXIT_OK;
	if (errno != EPIPE)
		fprintf(errout, "%s: cannot write to standard output: %s\n", p->name, strerror(errno));
	return DT_EXIT_FAILED;
}

/* Handles getopt's result c. Returns -1 to go on, else an exit status. */
static int one(const struct dt_program *p, int c, int at, const struct option *lo, char **argv, bool *given,
	       FILE *out, FILE *errout)
{
	/* the option itself: the last word read, or the one before it if that is its argument */
	const char *shown = argv[optind - (optarg && optarg == argv[optind - 1] ? 2 : 1)];

	if (c == ':')
		return dt_opt_usage_error(p, errout, "option '%s' needs an argument", shown);
	if (c == '?' && optopt && optopt < VAL_FIRST && strncmp(shown, "--", 2))
		return dt_opt_usage_error(p, errout, "unknown option '-%c'", optopt);
	if (c == '?' && optopt)
		return dt_opt_usage_error(p, errout, "unexpected argument for option '%s'", shown);
	if (c == '?' || (at >= 0 && !spelt_out(shown, lo[at].name)))
		return unknown_option(p, shown, lo, errout);
	if (c == VAL_HELP || c == 'h' || c == VAL_VERSION || c == VAL_DESCRIBE)
		return print_about(p, c, out, errout);
	return take(p, c, given, errout);
}

int dt_opt_main(const struct dt_program *p, int argc, char **argv, FILE *out, FILE *errout, int *ret_status)
{
	int n = count_opts(p->opts), c, at = -1, status = -1, nargs = -1;
	struct option *lo = calloc((size_t)n * 2 + 4, sizeof(*lo));
	char *shorts = malloc((size_t)n * 2 + 8);
	bool *given = calloc((size_t)n + 1, sizeof(*given));

	/* exceeding the file size limit then gives -EFBIG, like -ENOSPC for a full disk */
	signal(SIGXFSZ, SIG_IGN);
	*ret_status = DT_EXIT_FAILED;
	if (!lo || !shorts || !given) {
		fprintf(errout, "%s: out of memory\n", p->name);
		goto out;
	}
	if (store_defaults(p, errout) < 0)
		goto out;
	build_tables(p, lo, shorts);
	opterr = 0;
	optind = 0;
	while (status < 0 && (c = getopt_long(argc, argv, shorts, lo, &at)) != -1) {
		status = one(p, c, at, lo, argv, given, out, errout);
		at = -1;
	}
	if (status < 0) {
		nargs = argc - optind;
		memmove(argv + 1, argv + optind, (size_t)nargs * sizeof(*argv));
		argv[1 + nargs] = NULL;
		status = dt_opt_check_command(p, nargs, argv, given, errout);
		if (status < 0)
			status = dt_opt_check_pairs(p, given, errout);
	}
	if (status >= 0) {
		*ret_status = status;
		nargs = -1;
	}
out:
	free_tables(lo);
	free(shorts);
	free(given);
	return nargs;
}
/* SPDX-License-Identifier: Apache-2.0 */
