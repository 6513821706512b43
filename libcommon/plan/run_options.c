/* Operations on a run's options. */
#include "plan/run_table.h"

#include "base/shell.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct dt_run_row *row_at(int i)
{
	return i < dt_run_nrows_learn ? &dt_run_rows_learn[i] : &dt_run_rows_run[i - dt_run_nrows_learn];
}

int dt_run_row_count(void)
{
	return dt_run_nrows_learn + dt_run_nrows_run;
}

int dt_run_row_find(const char *name)
{
	const int n = dt_run_row_count();
	int i = 0;

	while (i < n && strcmp(row_at(i)->opt.name, name))
		i++;
	return i < n ? i : -1;
}

struct dt_opt dt_run_row_bound(struct dt_run_options *o, int i)
{
	struct dt_opt opt = row_at(i)->opt;

	opt.dest = (char *)o + (size_t)opt.dest;
	return opt;
}

void dt_run_options_table(struct dt_run_options *o, const struct dt_opt *own,
			  struct dt_opt ret[DT_RUN_OPTS_MAX])
{
	int n = 0;

	for (; own[n].name || own[n].help; n++) {
		const struct dt_opt *e = &own[n];
		int i;

		ret[n] = *e;
		if (!e->name || e->type)
			continue;
		i = dt_run_row_find(e->name);
		if (i < 0 || n >= DT_RUN_OPTS_MAX - 1)
			abort(); /* a mistake in the program's table */
		ret[n] = dt_run_row_bound(o, i);
		ret[n].given = &o->given[i];
		if (e->help)
			ret[n].help = e->help;
		if (e->arg)
			ret[n].arg = e->arg;
		if (e->dest)
			ret[n].dest = e->dest;
		if (e->with)
			ret[n].with = e->with;
		if (e->without)
			ret[n].without = e->without;
		if (e->def || e->def_text) {
			ret[n].def = e->def;
			ret[n].def_text = e->def_text;
		}
	}
	ret[n] = own[n];
}

bool dt_run_options_given(const struct dt_run_options *o, const char *name)
{
	int i = dt_run_row_find(name);

	return i >= 0 && o->given[i];
}

bool dt_run_options_said(const struct dt_run_options *o, const char *name)
{
	int i = dt_run_row_find(name);

	return i >= 0 && o->given[i] && !o->inherited[i];
}

/* The shortest decimal that parses to the same number, without an exponent from 10 to 1e15: 10, not 1e+01. */
static void format_real(double v, bool single, char *buf, size_t n)
{
	const double size = fabs(v);

	for (int digits = size >= 10 && size < 1e15 ? (int)log10(size) + 1 : 1; digits <= 17; digits++) {
		snprintf(buf, n, "%.*g", digits, v);
		if (single ? strtof(buf, NULL) == (float)v : strtod(buf, NULL) == v)
			return;
	}
}

static void format_pipeline(const struct dt_run *r, char *buf, size_t n)
{
	static const char *const name[] = {"gpipe", "1f1b", "1f1b", "zb-h1"};

	/* The number of chunks of an interleaved pipeline is in the layout. */
	snprintf(buf, n, "%s", r->layout.pp > 1 ? name[r->pipeline] : "1f1b");
}

/* Formats a row's value as on a command line; a flag is "on" or "off". NULL: no value. */
static const char *format(const struct dt_run_row *row, const struct dt_run *r, char *buf, size_t n)
{
	const void *at = (const char *)r + row->at;

	switch (row->form) {
	case TEXT:
		return *(const char *const *)at;
	case INTEGER:
	case SEED:
		if (row->opt.min > *(const int64_t *)at) /* not given, and without a default */
			return NULL;
		snprintf(buf, n, "%lld", (long long)*(const int64_t *)at);
		return buf;
	case REAL:
		if (row->opt.min > *(const double *)at)
			return NULL;
		format_real(*(const double *)at, false, buf, n);
		return buf;
	case REAL32:
		format_real((double)*(const float *)at, true, buf, n);
		return buf;
	case FLAG:
		return *(const bool *)at ? "on" : "off";
	case MASTER:
		return *(const bool *)at ? "off" : "on";
	case CHOICE:
		return dt_opt_choice_name(row->opt.arg, *(const int *)at, buf, n);
	case LAYOUT:
		return dt_layout_format(&r->layout, buf, n);
	case PIPELINE:
		format_pipeline(r, buf, n);
		return buf;
	case RECOMPUTE:
		return dt_keep_format(r->recompute, buf, n);
	case BN_SPAN:
		snprintf(buf, n, "%lld", (long long)r->bn_span);
		return r->bn_span == DT_BN_DP ? "dp" : r->bn_span == DT_BN_RANK ? "rank" : buf;
	case GROWING:
		return r->global_batch ? dt_ramp_format(&r->ramp, r->global_batch, buf, n) : NULL;
	case LOSS_SCALE:
		snprintf(buf, n, r->loss_scale == 0 ? "dynamic:" : "%s", "");
		format_real(r->loss_scale == 0 ? r->loss_scale_start : r->loss_scale, false,
			    buf + strlen(buf), n - strlen(buf));
		return buf;
	}
	return NULL;
}

static bool of_lora(const struct dt_run_row *row)
{
	return !strncmp(row->opt.name, "lora-", 5);
}

static bool of_offload(const struct dt_run_row *row)
{
	return !strncmp(row->opt.name, "offload-", 8) || !strcmp(row->opt.name, "disk-bandwidth");
}

const char *dt_run_arguments(const struct dt_run *r, bool shell, char *buf, size_t n)
{
	char word[4096];
	size_t k = 0;

	buf[0] = '\0';
	for (int i = 0; i < dt_run_row_count() && k < n; i++) {
		const struct dt_run_row *row = row_at(i);
		char value[128];
		const char *v = format(row, r, value, sizeof(value)), *def = row->opt.def;

		if (!def && row->opt.type == DT_OPT_FLAG)
			def = "off";
		if ((of_lora(row) && !r->lora.rank) || (of_offload(row) && !r->offload.what))
			continue;
		if (row->emit == NEVER || !v || (row->emit == CHANGED && def && dt_run_same_value(v, def)))
			continue;
		if (row->opt.type == DT_OPT_FLAG)
			snprintf(buf + k, n - k, "%s--%s%s", k ? " " : "", strcmp(v, "on") ? "no-" : "",
				 row->opt.name);
		else
			snprintf(buf + k, n - k, "%s--%s %s", k ? " " : "", row->opt.name,
				 shell && dt_shell_word(v, false, word, sizeof(word)) ? word : v);
		k += strlen(buf + k);
	}
	return buf;
}

bool dt_run_same_value(const char *a, const char *b)
{
	char *end_a, *end_b;
	double va, vb;

	if (!strcmp(a, b))
		return true;
	va = strtod(a, &end_a);
	vb = strtod(b, &end_b);
	return end_a != a && end_b != b && !*end_a && !*end_b && va == vb;
}

bool dt_run_row_says(const struct dt_run *r, const char *name)
{
	const struct dt_run_row *row = row_at(dt_run_row_find(name));
	char value[128];
	const char *v = format(row, r, value, sizeof(value));

	return v && strcmp(v, "0") && strcmp(v, "off") &&
	       !(row->opt.def && dt_run_same_value(v, row->opt.def));
}

enum dt_run_change dt_run_row_change(int i)
{
	return row_at(i)->change;
}

const char *dt_run_row_value(int i, const struct dt_run *r, char *buf, size_t n)
{
	return format(row_at(i), r, buf, n);
}

/* The values of stored rows; with `all` also of rows that only command lines have. */
static json_t *values(const struct dt_run *r, bool all)
{
	json_t *o = json_object();

	for (int i = 0; i < dt_run_row_count() && o; i++) {
		const struct dt_run_row *row = row_at(i);
		bool wanted = row->change != LOCAL || (all && row->emit != NEVER);
		char value[128];
		const char *v = wanted && (r->lora.rank || !of_lora(row))
					? format(row, r, value, sizeof(value))
					: NULL;

		if (v)
			json_object_set_new(o, row->opt.name, json_string(v));
	}
	return o;
}

json_t *dt_run_to_json(const struct dt_run *r)
{
	return values(r, false);
}

json_t *dt_run_settings(const struct dt_run *r)
{
	return values(r, true);
}

/* SPDX-License-Identifier: Apache-2.0 */
