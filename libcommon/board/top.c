#include "board/top.h"

#include "base/order.h"
#include "base/units.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { RECENT = 50 }; /* number of lines for rates and shares */

struct page {
	const struct dt_board_screen *s;
	FILE *f;
	int lines;
};

enum { LABEL = 11 }; /* columns of the first word */

/* Prints a text in lines of the width, broken at spaces; the text is ASCII. */
static void line(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void line(struct page *p, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *c = text; *c; c++) /* names are untrusted: control characters are replaced */
		*c = *c < ' ' || *c > '~' ? '?' : *c;
	for (const char *s = text; *s && !(p->s->height && p->lines >= p->s->height); p->lines++) {
		const int indent = s == text ? 0 : LABEL, room = p->s->width - indent;
		int n = (int)strlen(s);

		if (n > room)
			for (n = room; n > 0 && s[n] != ' '; n--)
				;
		n = n > 0 ? n : room; /* a word longer than a line */
		fprintf(p->f, "%*s%.*s\n", indent, "", n, s);
		s += n;
		s += strspn(s, " ");
	}
}

static void head(struct page *p, const char *name, const char *value)
{
	if (p->s->height && p->lines >= p->s->height)
		return;
	fprintf(p->f, "%s%-*s%s%.*s\n", p->s->color ? "\033[1m" : "", LABEL, name,
		p->s->color ? "\033[0m" : "", p->s->width - LABEL, value);
	p->lines++;
}

/* Mean of the newest RECENT lines that have the key; NAN: none. */
static double recent(const struct dt_board_run *r, const char *key)
{
	const double *v = dt_board_run_column(r, key);
	double sum = 0;
	int n = 0;

	for (size_t i = r->rows; v && i > 0 && n < RECENT; i--)
		if (!isnan(v[i - 1])) {
			sum += v[i - 1];
			n++;
		}
	return n ? sum / n : NAN;
}

/* ---- the loss curve: one character a range of steps ---- */

/* The mean of the values in each of n ranges of lines. Returns the number of ranges that have a value. */
static int means(const struct dt_board_run *r, const char *key, double *out, int n)
{
	const double *v = dt_board_run_column(r, key);
	struct {
		long double sum; /* of values up to 1.8e308 */
		int n;
	} *range = calloc((size_t)n, sizeof(*range));
	int have = 0;

	for (size_t i = 0; v && range && i < r->rows; i++) {
		int k = (int)(i * (size_t)n / r->rows);

		if (!isnan(v[i])) {
			range[k].sum += v[i];
			range[k].n++;
		}
	}
	for (int k = 0; k < n && range; k++) {
		have += range[k].n > 0;
		/* a range with only lines of evaluations repeats the value before it */
		out[k] = range[k].n ? (double)(range[k].sum / range[k].n) : k ? out[k - 1] : NAN;
	}
	free(range);
	return have;
}

static void spark(struct page *p, const struct dt_board_run *r, const char *key)
{
	static const char *const block[] = {"\u2581", "\u2582", "\u2583", "\u2584",
					    "\u2585", "\u2586", "\u2587", "\u2588"};
	static const char ascii[] = "_.-=+*#@";
	int n = p->s->width - 34 < 200 ? p->s->width - 34 : 200;
	double v[200], lo = INFINITY, hi = -INFINITY;
	char range[64];

	if (n < 1 || !means(r, key, v, n) || (p->s->height && p->lines >= p->s->height))
		return;
	for (int i = 0; i < n; i++) {
		lo = fmin(lo, isnan(v[i]) ? lo : v[i]);
		hi = fmax(hi, isnan(v[i]) ? hi : v[i]);
	}
	fprintf(p->f, "%-*s", LABEL, key);
	for (int i = 0; i < n; i++) {
		int k = 0;

		if (hi > lo && !isnan(v[i])) /* hi - lo may exceed a double */
			k = (int)(((long double)v[i] - lo) / ((long double)hi - lo) * 7.999L);
		if (isnan(v[i]))
			putc(' ', p->f);
		else if (p->s->utf8)
			fputs(block[k], p->f);
		else
			putc(ascii[k], p->f);
	}
	snprintf(range, sizeof(range), " %.4g .. %.4g", lo, hi);
	fprintf(p->f, "%.*s\n", p->s->width - LABEL - n, range);
	p->lines++;
}

/* ---- shares of a step's time ---- */

static const struct {
	const char *key, *word;
	int color;
} parts[] = {{"compute_s", "compute", 2},	{"data_s", "data", 4},
	     {"comm_tensor_s", "tp comm", 3},	{"comm_pipeline_s", "pp comm", 5},
	     {"comm_grads_s", "grad comm", 6},	{"comm_weights_s", "weight comm", 6},
	     {"comm_other_s", "other comm", 3}, {"optimizer_s", "optimizer", 7},
	     {"checkpoint_s", "checkpoint", 1}};

static void bar(struct page *p, const char *word, double share, double seconds, int color)
{
	int room = p->s->width - 40, n = (int)(share * room + 0.5); /* n 0: too narrow for a bar */

	if (p->s->height && p->lines >= p->s->height)
		return;
	fprintf(p->f, "  %-12s%6.1f%%  %9.3g s  ", word, 100 * share, seconds);
	if (p->s->color)
		fprintf(p->f, "\033[3%dm", color);
	for (int i = 0; i < n; i++)
		fputs(p->s->utf8 ? "\u2588" : "#", p->f);
	fputs(p->s->color ? "\033[0m\n" : "\n", p->f);
	p->lines++;
}

static void sections(struct page *p, const struct dt_board_run *r)
{
	double step = recent(r, "step_s");

	if (isnan(step) || step <= 0)
		return;
	line(p, "step time  %.4g s, mean of the last %d lines", step,
	     r->rows < RECENT ? (int)r->rows : RECENT);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		double v = recent(r, parts[i].key);

		if (v / step >= 0.001)
			bar(p, parts[i].word, fmin(v / step, 1), v, parts[i].color);
	}
}

/* The ranks with the longest compute time in the newest details. */
static void skew(struct page *p, const struct dt_board_run *r)
{
	const json_t *last = json_array_get(r->details, json_array_size(r->details) - 1);
	const json_t *list =
		json_object_get(json_object_get(json_object_get(last, "details"), "ranks"), "compute_s");
	size_t n = json_array_size(list), worst = 0;
	double *v = n ? malloc(2 * n * sizeof(*v)) : NULL, mid;

	if (!v)
		return;
	for (size_t i = 0; i < n; i++) {
		v[i] = v[n + i] = json_number_value(json_array_get(list, i));
		worst = v[i] > v[worst] ? i : worst;
	}
	qsort(v + n, n, sizeof(*v), dt_order_f64);
	mid = v[n + n / 2];
	line(p, "ranks      %zu; longest compute time: rank %zu, %.3g s, %.2f times the median", n, worst,
	     v[worst], mid > 0 ? v[worst] / mid : 1);
	free(v);
}

static void memory(struct page *p, const struct dt_board_run *r)
{
	double plan = dt_board_run_newest(r, "peak_bytes"), rss = dt_board_run_newest(r, "rss_bytes");
	char a[32], b[32];

	if (!isnan(plan) && !isnan(rss))
		line(p, "memory     planned peak %s (largest rank), resident %s (rank 0)",
		     dt_format_size((uint64_t)plan, a, sizeof(a)),
		     dt_format_size((uint64_t)rss, b, sizeof(b)));
}

static void events(struct page *p, const struct dt_board *b, int run)
{
	const json_t *lists[9] = {b->run[run].events};
	int n = 1;

	for (int i = 0; i < b->nfile && n < 9; i++)
		if (!b->file[i].trace && b->file[i].folder == b->folder[run])
			lists[n++] = b->file[i].lines.events;
	for (int k = 0; k < n; k++) {
		size_t size = json_array_size(lists[k]);

		for (size_t i = size > 4 ? size - 4 : 0; i < size; i++) {
			const json_t *e = json_array_get(lists[k], i);
			const char *name = json_string_value(json_object_get(e, "event"));

			line(p, "event      step %lld: %s",
			     (long long)json_integer_value(json_object_get(e, "step")), name ? name : "?");
		}
	}
}

/* The newest of what the run has. */
static void newest_line(struct page *p, const struct dt_board_run *r, double step)
{
	static const struct {
		const char *key, *name;
		int digits;
	} part[] = {{"loss", "loss", 5}, {"grad_norm", "gradient norm", 3}, {"lr", "lr", 3}};
	char text[160];
	int n = snprintf(text, sizeof(text), "step       %.15g", step);

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
		if (dt_board_run_column(r, part[i].key))
			n += snprintf(text + n, sizeof(text) - (size_t)n, ", %s %.*g", part[i].name,
				      part[i].digits, dt_board_run_newest(r, part[i].key));
	line(p, "%s", text);
}

static void speed_line(struct page *p, const struct dt_board_run *r)
{
	const bool images = dt_board_run_column(r, "images_per_s") != NULL;
	const char *key = images ? "images_per_s" : "tokens_per_s";
	const double mfu = recent(r, "mfu");
	char rate[32], text[32] = "";

	if (!dt_board_run_column(r, key))
		return;
	if (!isnan(mfu))
		snprintf(text, sizeof(text), ", MFU %.1f%%", 100 * mfu);
	line(p, "speed      %s %s/s%s", dt_format_count(recent(r, key), rate, sizeof(rate)),
	     images ? "images" : "tokens", text);
}

static void first_lines(struct page *p, const struct dt_board_run *r)
{
	double step = dt_board_run_newest(r, "step"), age = p->s->now - r->changed;
	char text[256];

	snprintf(text, sizeof(text), "%s", r->name);
	for (char *c = text; *c; c++)
		*c = *c < ' ' || *c > '~' ? '?' : *c;
	head(p, "run", text);
	if (isnan(step)) {
		line(p, "no step yet");
		return;
	}
	newest_line(p, r, step);
	speed_line(p, r);
	if (!isnan(dt_board_run_newest(r, "eval_loss")))
		line(p, "evaluation loss %.5g", dt_board_run_newest(r, "eval_loss"));
	if (age > 60)
		line(p, "quiet      no new line for %.0f s", age);
}

void dt_board_top(const struct dt_board *b, int run, const struct dt_board_screen *s, FILE *f)
{
	const struct dt_board_run *r = &b->run[run];
	struct page p = {.s = s, .f = f};

	first_lines(&p, r);
	spark(&p, r, "loss");
	spark(&p, r, "step_s");
	sections(&p, r);
	skew(&p, r);
	memory(&p, r);
	events(&p, b, run);
	if (r->bad)
		line(&p, "%zu lines could not be read", r->bad);
}
/* SPDX-License-Identifier: Apache-2.0 */
