/* Values of options: from text, compared with the default. */
#include "base/opt.h"

#include "base/suggest.h"
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

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

/* Translates another program's name of a choice to ours; "" if unknown. */
static const char *known_as(const struct dt_opt *o, const char *arg, char *buf, size_t n)
{
	char pair[64], *to;

	buf[0] = '\0';
	for (int i = 0; o->elsewhere && dt_opt_choice_name(o->elsewhere, i, pair, sizeof(pair)); i++) {
		to = strchr(pair, '=');
		*to++ = '\0';
		if (!strcasecmp(pair, arg))
			snprintf(buf, n, "; nearest to it: %s", to);
	}
	return buf;
}

static int set_choice(const struct dt_opt *o, const char *arg, struct dt_err *err)
{
	char name[64], text[128];
	struct dt_suggest s = dt_suggest(arg);
	int i = dt_opt_choice_index(o->arg, arg);

	if (i >= 0) {
		*(int *)o->dest = i;
		return 0;
	}
	for (i = 0; dt_opt_choice_name(o->arg, i, name, sizeof(name)); i++)
		dt_suggest_offer(&s, name);
	if (!*known_as(o, arg, text, sizeof(text)))
		dt_suggest_text(&s, "", text, sizeof(text));
	return dt_err_set(err, -EINVAL, "'%s' is not one of %s%s", arg, o->arg, text);
}

static int set_size(const struct dt_opt *o, const char *arg, struct dt_err *err)
{
	uint64_t v = 0;
	char least[32];
	int rc = dt_parse_size(arg, &v, err);
	const bool none = v == 0 && o->def && !strcmp(o->def, "0");

	if (rc == 0 && !none && (double)v < o->min) {
		bool bare = arg[strspn(arg, "0123456789.")] == '\0';

		rc = dt_err_set(err, -ERANGE, "'%s' is less than %s", arg,
				dt_format_size((uint64_t)o->min, least, sizeof(least)));
		if (bare && v > 0)
			dt_err_hint(err, "a size without a unit is in bytes; write %sGiB or %sGB", arg, arg);
	}
	if (rc == 0)
		*(uint64_t *)o->dest = v;
	return rc;
}

static int set_count(const struct dt_opt *o, const char *arg, struct dt_err *err)
{
	uint64_t v = 0;
	int rc = dt_parse_count(arg, &v, err);

	if (rc == 0 && (double)v < o->min)
		rc = dt_err_set(err, -ERANGE, "'%s' is less than %.0f", arg, o->min);
	if (rc == 0)
		*(uint64_t *)o->dest = v;
	return rc;
}

int dt_opt_set(const struct dt_opt *o, const char *arg, struct dt_err *err)
{
	bool bounded = o->max > o->min;
	struct dt_strs *strs;

	switch (o->type) {
	case DT_OPT_FLAG:
		*(bool *)o->dest = true;
		return 0;
	case DT_OPT_INT:
		return dt_parse_int(arg, bounded ? (int64_t)o->min : 0,
				    bounded && o->max < 0x1p63 ? (int64_t)o->max : INT64_MAX, o->dest, err);
	case DT_OPT_REAL:
		return dt_parse_real(arg, bounded ? o->min : -HUGE_VAL, bounded ? o->max : HUGE_VAL, o->dest,
				     err);
	case DT_OPT_SHARE:
		return dt_parse_share(arg, bounded ? o->min : 0, bounded ? o->max : 1, o->dest, err);
	case DT_OPT_PERCENT:
		return dt_parse_percent(arg, bounded ? o->min : 0, bounded ? o->max : 100, o->dest, err);
	case DT_OPT_RATE:
		return dt_parse_rate(arg, bounded ? o->min : 0, bounded ? o->max : 1e9, o->dest, err);
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
		return set_size(o, arg, err);
	case DT_OPT_COUNT:
		return set_count(o, arg, err);
	case DT_OPT_CHOICE:
		return set_choice(o, arg, err);
	}
	return dt_err_set(err, -EINVAL, "bad option table");
}

bool dt_opt_is_set(const struct dt_opt *o)
{
	union {
		bool flag;
		int choice;
		int64_t n;
		uint64_t size;
		double real;
		const char *text;
	} first = {0};
	struct dt_opt from = *o;

	if (o->type == DT_OPT_STRS)
		return ((const struct dt_strs *)o->dest)->n > 0;
	from.dest = &first;
	if (o->def && (o->type != DT_OPT_FLAG || !strcmp(o->def, "on")) &&
	    dt_opt_set(&from, o->def, NULL) < 0)
		return true;
	switch (o->type) {
	case DT_OPT_FLAG:
		return *(const bool *)o->dest != first.flag;
	case DT_OPT_CHOICE:
		return *(const int *)o->dest != first.choice;
	case DT_OPT_STR: {
		const char *now = *(const char **)o->dest;

		return now && first.text ? strcmp(now, first.text) != 0 : now != first.text;
	}
	case DT_OPT_INT:
	case DT_OPT_COUNT:
		return *(const int64_t *)o->dest != first.n;
	case DT_OPT_SIZE:
		return *(const uint64_t *)o->dest != first.size;
	default:
		return *(const double *)o->dest != first.real;
	}
}

const char *dt_opt_first_set(const struct dt_opt *opts, const char *const *names, bool among)
{
	for (const struct dt_opt *o = opts; o->name || o->help; o++) {
		int i = 0;

		while (o->name && names[i] && strcmp(names[i], o->name))
			i++;
		if (o->name && (names[i] != NULL) == among && dt_opt_is_set(o))
			return o->name;
	}
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
