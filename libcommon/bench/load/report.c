#include "bench/load/report.h"

#include "base/order.h"
#include "base/plot.h"
#include "base/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BARS = 12 };

const char *dt_load_outcome_name(enum dt_load_outcome o)
{
	static const char *const name[] = {"unsent", "ok", "refused", "broken", "timeout", "cut"};

	return name[o];
}

double dt_load_tpot(const struct dt_load_result *r)
{
	return r->output > 1 && r->first >= 0 ? (r->end - r->first) / (r->output - 1) : -1;
}

static double percentile(const struct dt_load_stat *s, double p)
{
	double at = p * (double)(s->n - 1);
	size_t i = (size_t)at;

	return i + 1 < s->n ? s->v[i] + (at - (double)i) * (s->v[i + 1] - s->v[i]) : s->v[s->n - 1];
}

static void finish(struct dt_load_stat *s)
{
	double sum = 0;

	if (s->n == 0)
		return;
	qsort(s->v, s->n, sizeof(*s->v), dt_order_f64);
	for (size_t i = 0; i < s->n; i++)
		sum += s->v[i];
	s->mean = sum / (double)s->n;
	s->min = s->v[0];
	s->p50 = percentile(s, 0.50);
	s->p90 = percentile(s, 0.90);
	s->p95 = percentile(s, 0.95);
	s->p99 = percentile(s, 0.99);
	s->max = s->v[s->n - 1];
}

static void put(struct dt_load_stat *s, double v)
{
	s->v[s->n++] = v;
}

static void count(struct dt_load_report *rep, const struct dt_load_result *r,
		  const struct dt_load_limits *lim)
{
	double tpot = dt_load_tpot(r);
	int *counter[] = {&rep->unsent, &rep->ok, &rep->refused, &rep->broken, &rep->timeout, &rep->cut};

	rep->requests++;
	(*counter[r->outcome])++;
	if (r->outcome == DT_LOAD_UNSENT)
		return;
	put(&rep->lag, r->sent - r->due);
	if (r->outcome != DT_LOAD_OK)
		return;
	rep->input += r->input;
	rep->output += r->output;
	rep->cached += r->cached;
	rep->uncounted += r->uncounted;
	put(&rep->e2e, r->end - r->due);
	if (r->first >= 0)
		put(&rep->ttft, r->first - r->due);
	if (tpot >= 0)
		put(&rep->tpot, tpot);
	for (int k = 0; k < r->ngap; k++)
		put(&rep->itl, (double)r->gap[k]);
	rep->good += !((lim->ttft > 0 && (r->first < 0 || r->first - r->due > lim->ttft)) ||
		       (lim->tpot > 0 && (r->uncounted || tpot > lim->tpot)) ||
		       (lim->e2e > 0 && r->end - r->due > lim->e2e));
}

int dt_load_report_make(struct dt_load_report *rep, const struct dt_load_result *res, int skip, int n,
			bool closed, const struct dt_load_limits *limits, struct dt_err *err)
{
	double from = INFINITY, to = 0, last_due = 0;
	struct dt_load_stat *each[] = {&rep->ttft, &rep->tpot, &rep->e2e, &rep->lag, &rep->itl};
	size_t gaps = 0;
	int asked, before = 0;

	*rep = (struct dt_load_report){0};
	for (int i = skip; i < n; i++)
		gaps += (size_t)res[i].ngap;
	for (int i = 0; i < 5; i++) {
		each[i]->v = malloc(((i < 4 ? (size_t)(n - skip) : gaps) + 1) * sizeof(double));
		if (!each[i]->v) {
			dt_load_report_release(rep);
			return dt_err_sys(err, -ENOMEM, "cannot make the report");
		}
	}
	for (int i = skip; i < n; i++) {
		count(rep, &res[i], limits);
		if (res[i].outcome == DT_LOAD_UNSENT)
			continue;
		from = fmin(from, res[i].due);
		last_due = fmax(last_due, res[i].due);
		to = fmax(to, res[i].end);
	}
	for (int i = 0; i < 5; i++)
		finish(each[i]);
	for (int i = skip; i < n; i++) /* the last arrival, which may be a burst, has no gap after it */
		before += res[i].outcome != DT_LOAD_UNSENT && res[i].due < last_due;
	asked = rep->requests - rep->cut;
	rep->good_share = asked > 0 ? (double)rep->good / asked : 0;
	rep->duration = to > from ? to - from : 0;
	if (last_due > from && !closed)
		rep->offered = before / (last_due - from);
	if (rep->duration > 0) {
		rep->rate = rep->ok / rep->duration;
		rep->good_rate = rep->good / rep->duration;
		rep->output_rate = rep->output / rep->duration;
		rep->total_rate = (rep->input + rep->output) / rep->duration;
	}
	return 0;
}

void dt_load_report_release(struct dt_load_report *rep)
{
	free(rep->ttft.v);
	free(rep->tpot.v);
	free(rep->itl.v);
	free(rep->e2e.v);
	free(rep->lag.v);
	*rep = (struct dt_load_report){0};
}

/* ---- text ---- */

static void row(struct dt_table *t, const char *name, const struct dt_load_stat *s)
{
	const double v[] = {s->mean, s->p50, s->p90, s->p95, s->p99, s->max};

	dt_table_cell(t, "%s", name);
	for (int i = 0; i < 6; i++) {
		if (s->n)
			dt_table_cell(t, "%.2f", v[i] * 1e3);
		else
			dt_table_cell(t, "-");
	}
}

void dt_load_report_print(const struct dt_load_report *rep, const struct dt_load_errors *errors,
			  const struct dt_load_limits *limits, FILE *f)
{
	struct dt_table *t = dt_table_new("ms|>mean|>p50|>p90|>p95|>p99|>max");

	fprintf(f, "requests    %d: %d answered, %d refused, %d broken, %d timed out, %d cut, %d not sent\n",
		rep->requests, rep->ok, rep->refused, rep->broken, rep->timeout, rep->cut, rep->unsent);
	for (int i = 0; i < errors->n; i++) {
		const struct dt_load_error *e = &errors->kind[i];

		fprintf(f, "            %d x ", e->n);
		if (e->status)
			fprintf(f, "%d ", e->status);
		fprintf(f, "%s\n", e->what);
	}
	fprintf(f, "duration    %.2f s\n", rep->duration);
	if (rep->input + rep->output > 0)
		fprintf(f, "tokens      %.0f in, %.0f of them from the server's cache; %.0f out\n",
			rep->input, rep->cached, rep->output);
	if (rep->uncounted > 0)
		fprintf(f, "%-12snot reported by the server (usage) for %d answer%s: no TPOT\n",
			rep->input + rep->output > 0 ? "" : "tokens", rep->uncounted,
			rep->uncounted == 1 ? "" : "s");
	fprintf(f, "throughput  %.2f requests/s", rep->rate);
	if (rep->offered > 0)
		fprintf(f, " of %.2f offered", rep->offered);
	if (rep->input + rep->output > 0)
		fprintf(f, ", %.1f tokens/s out, %.1f in total", rep->output_rate, rep->total_rate);
	fputc('\n', f);
	if (limits->ttft > 0 || limits->tpot > 0 || limits->e2e > 0)
		fprintf(f, "goodput     %.2f requests/s, %.1f%% within the limits\n", rep->good_rate,
			100 * rep->good_share);
	fputc('\n', f);
	row(t, "TTFT", &rep->ttft);
	row(t, "TPOT", &rep->tpot);
	row(t, "ITL", &rep->itl);
	row(t, "e2e", &rep->e2e);
	row(t, "sent late", &rep->lag);
	dt_table_print(t, f);
	dt_table_free(t);
}

/* Histogram with bins of equal width on a logarithmic scale, from the smallest to the largest value. */
static int draw(const struct dt_load_stat *s, const char *title, const struct dt_plot_style *style, FILE *f)
{
	struct dt_bar bar[BARS];
	char name[BARS][48];
	struct dt_bars b = {.title = title, .bar = bar, .n = s->n && s->max > s->min ? BARS : 1};
	double lo, step, unit = s->max < 1 ? 1e3 : 1; /* seconds from 1 s on, to avoid 1.68e+03 ms */
	int rc, digits = 3;

	if (s->n == 0)
		return 0;
	lo = log(fmax(s->min, 1e-6));
	step = (log(fmax(s->max, 1e-6)) - lo) / b.n;
	if (step > 0) /* so many that the two ends of a narrow bin differ */
		digits = (int)fmin(6, fmax(3, ceil(1 - log10(step))));
	for (int i = 0; i < b.n; i++) {
		snprintf(name[i], sizeof(name[i]), "%.*g to %.*g %s", digits, unit * exp(lo + step * i),
			 digits, unit * exp(lo + step * (i + 1)), unit > 1 ? "ms" : "s");
		bar[i] = (struct dt_bar){name[i], 0};
	}
	for (size_t k = 0; k < s->n; k++) {
		int i = step > 0 ? (int)((log(fmax(s->v[k], 1e-6)) - lo) / step) : 0;

		bar[i < 0 ? 0 : i < b.n ? i : b.n - 1].value++;
	}
	fputc('\n', f);
	rc = dt_bars_term(&b, style, f);
	return rc < 0 ? rc : 0;
}

int dt_load_report_draw(const struct dt_load_report *rep, int width, bool utf8, bool color, FILE *f)
{
	const struct dt_plot_style style = {.width = width, .utf8 = utf8, .color = color};
	int rc = draw(&rep->ttft, "requests by time to first token", &style, f);

	if (rc == 0)
		rc = draw(&rep->itl, "chunks by time since the previous chunk", &style, f);
	return rc < 0 ? rc : draw(&rep->e2e, "requests by end-to-end time", &style, f);
}

/* ---- JSON ---- */

static json_t *stat_json(const struct dt_load_stat *s)
{
	return json_pack("{s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "count", (json_int_t)s->n, "mean", s->mean,
			 "min", s->min, "p50", s->p50, "p90", s->p90, "p95", s->p95, "p99", s->p99, "max",
			 s->max);
}

json_t *dt_load_report_json(const struct dt_load_report *rep, const struct dt_load_errors *errors,
			    const struct dt_load_limits *limits)
{
	json_t *list = json_array();

	for (int i = 0; i < errors->n; i++)
		json_array_append_new(list,
				      json_pack("{s:i,s:i,s:s}", "status", errors->kind[i].status, "count",
						errors->kind[i].n, "message", errors->kind[i].what));
	return json_pack("{s:i,s:{s:i,s:i,s:i,s:i,s:i,s:i,s:i},s:o,s:f,s:I,s:I,s:I,s:i,s:f,s:f,s:f,s:f,"
			 "s:o,s:o,s:o,s:o,s:o,s:{s:i,s:f,s:f,s:f,s:f,s:f}}",
			 "schema", 1, "requests", "all", rep->requests, "ok", rep->ok, "refused",
			 rep->refused, "broken", rep->broken, "timeout", rep->timeout, "cut", rep->cut,
			 "unsent", rep->unsent, "errors", list, "duration_s", rep->duration, "input_tokens",
			 (json_int_t)rep->input, "cached_tokens", (json_int_t)rep->cached, "output_tokens",
			 (json_int_t)rep->output, "uncounted_answers", rep->uncounted, "offered_per_s",
			 rep->offered, "requests_per_s", rep->rate, "output_tokens_per_s", rep->output_rate,
			 "total_tokens_per_s", rep->total_rate, "ttft_s", stat_json(&rep->ttft), "tpot_s",
			 stat_json(&rep->tpot), "itl_s", stat_json(&rep->itl), "e2e_s", stat_json(&rep->e2e),
			 "sent_late_s", stat_json(&rep->lag), "goodput", "requests", rep->good, "share",
			 rep->good_share, "requests_per_s", rep->good_rate, "max_ttft_s", limits->ttft,
			 "max_tpot_s", limits->tpot, "max_e2e_s", limits->e2e);
}
/* SPDX-License-Identifier: Apache-2.0 */
