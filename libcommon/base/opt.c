#include "base/opt.h"

#include "base/units.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { VAL_HELP = 1, VAL_VERSION, VAL_DESCRIBE, VAL_FIRST = 256, VAL_NEGATED = 4096 };

int dt_opt_usage_error(const struct dt_program *p, FILE *errout, const char *fmt, ...)
{
	va_list ap;

	fprintf(errout, "%s: ", p->name);
	va_start(ap, fmt);
	vfprintf(errout, fmt, ap);
	va_end(ap);
	fprintf(errout, "\nTry '%s --help' for more information.\n", p->name);
	return DT_EXIT_USAGE;
}

const char *dt_opt_choice_name(const char *choices, int i, char *buf, size_t n)
{
	const char *end;

	while (i-- > 0) {
		choices = strchr(choices, '|');
		if (!choices)
			return NULL;
		choices++;
	}
	end = strchrnul(choices, '|');
	snprintf(buf, n, "%.*s", (int)(end - choices), choices);
	return buf;
}

int dt_opt_choice_index(const char *choices, const char *word)
{
	char buf[64];

	for (int i = 0; dt_opt_choice_name(choices, i, buf, sizeof(buf)); i++)
		if (!strcmp(buf, word))
			return i;
	return -1;
}

static int set_value(const struct dt_opt *o, const char *arg, struct dt_err *err)
{
	struct dt_strs *strs;
	int i;

	switch (o->type) {
	case DT_OPT_FLAG:
		*(bool *)o->dest = true;
		return 0;
	case DT_OPT_INT:
		return dt_parse_int(arg, o->max > o->min ? (int64_t)o->min : 0,
				    o->max > o->min && o->max < 0x1p63 ? (int64_t)o->max : INT64_MAX, o->dest,
				    err);
	case DT_OPT_REAL:
		return dt_parse_real(arg, o->max > o->min ? o->min : -HUGE_VAL,
				     o->max > o->min ? o->max : HUGE_VAL, o->dest, err);
	case DT_OPT_STR:
		*(const char **)o->dest = arg;
		return 0;
	case DT_OPT_STRS:
		strs = o->dest;
		if (strs->n == DT_STRS_MAX)
			return dt_err_set(err, -E2BIG, "given more than %d times", DT_STRS_MAX);
		strs->v[strs->n++] = arg;
		return 0;
	case DT_OPT_SIZE:
		return dt_parse_size(arg, o->dest, err);
	case DT_OPT_COUNT:
		return dt_parse_count(arg, o->dest, err);
	case DT_OPT_CHOICE:
		i = dt_opt_choice_index(o->arg, arg);
		if (i < 0)
			return dt_err_set(err, -EINVAL, "'%s' is not one of %s", arg, o->arg);
		*(int *)o->dest = i;
		return 0;
	}
	return dt_err_set(err, -EINVAL, "bad option table");
}

static bool word_in(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *s = list; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (!strncmp(s, word, n) && (s[n] == ',' || !s[n]))
			return true;
	return false;
}

static int count_opts(const struct dt_opt *o)
{
	int n = 0;

	while (o[n].name || o[n].help)
		n++;
	return n;
}

/* Tables for getopt: lo has room for two entries an option (--x and --no-x) and four more. */
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

/* One option as getopt returned it; -1: go on, else an exit status. */
static int take(const struct dt_program *p, int val, const char *shown, bool *given, FILE *errout)
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
	if (val < VAL_NEGATED && set_value(&p->opts[i], optarg, &err) < 0)
		return dt_opt_usage_error(p, errout, "option '--%s': %s%s%s", p->opts[i].name, err.msg,
					  err.hint[0] ? "; " : "", err.hint);
	given[i] = true;
	if (p->opts[i].given)
		*p->opts[i].given = true;
	return -1;
}

static int check_command(const struct dt_program *p, int nargs, char **argv, const bool *given, FILE *errout)
{
	const struct dt_command *c = p->commands;

	if (!c)
		return -1;
	if (nargs == 0)
		return dt_opt_usage_error(p, errout, "a command is missing");
	while (c->name && strcmp(c->name, argv[1]))
		c++;
	if (!c->name)
		return dt_opt_usage_error(p, errout, "unknown command '%s'", argv[1]);
	for (int i = 0; p->opts[i].name || p->opts[i].help; i++)
		if (given[i] && p->opts[i].commands && !word_in(p->opts[i].commands, argv[1]))
			return dt_opt_usage_error(p, errout, "option '--%s' does not go with '%s'",
						  p->opts[i].name, argv[1]);
	return -1;
}

int dt_opt_main(const struct dt_program *p, int argc, char **argv, FILE *out, FILE *errout, int *ret_status)
{
	int n = count_opts(p->opts), c, status = -1, nargs = 0;
	struct option *lo = calloc((size_t)n * 2 + 4, sizeof(*lo));
	char *shorts = malloc((size_t)n * 2 + 8);
	bool *given = calloc((size_t)n + 1, sizeof(*given));

	*ret_status = DT_EXIT_FAILED;
	if (!lo || !shorts || !given) {
		fprintf(errout, "%s: out of memory\n", p->name);
		goto fail;
	}
	build_tables(p, lo, shorts);
	opterr = 0;
	optind = 0;
	while (status < 0 && (c = getopt_long(argc, argv, shorts, lo, NULL)) != -1) {
		const char *shown = argv[optind - 1];

		if (c == VAL_HELP || c == 'h') {
			dt_opt_print_help(p, out);
			status = DT_EXIT_OK;
		} else if (c == VAL_VERSION) {
			fprintf(out, "%s %s\n", p->name, DT_VERSION);
			status = DT_EXIT_OK;
		} else if (c == VAL_DESCRIBE) {
			dt_opt_describe(p, out);
			status = DT_EXIT_OK;
		} else if (c == ':') {
			status = dt_opt_usage_error(p, errout, "option '%s' needs an argument", shown);
		} else if (c == '?' && optopt && optopt < VAL_FIRST && strncmp(shown, "--", 2)) {
			status = dt_opt_usage_error(p, errout, "unknown option '-%c'", optopt);
		} else if (c == '?') {
			status = dt_opt_usage_error(
				p, errout, "%s option '%s'",
				optopt ? "unexpected argument for" : "unknown or ambiguous", shown);
		} else {
			status = take(p, c, shown, given, errout);
		}
	}
	if (status < 0) {
		nargs = argc - optind;
		memmove(argv + 1, argv + optind, (size_t)nargs * sizeof(*argv));
		argv[1 + nargs] = NULL;
		status = check_command(p, nargs, argv, given, errout);
	}
	if (status >= 0) {
		*ret_status = status;
		goto fail;
	}
	free_tables(lo);
	free(shorts);
	free(given);
	return nargs;
fail:
	free_tables(lo);
	free(shorts);
	free(given);
	return -1;
}
