#include "plan/servplan.h"

#include "base/table.h"
#include "base/units.h"

/* Of a million new tokens while a replica decodes as many sequences as it holds; 0: no price is known. */
static double cost(const struct dt_serve_query *q, const struct dt_serve_plan *p)
{
	return p->tokens_per_s > 0 ? q->price * p->tp / (p->tokens_per_s * 3600) * 1e6 : 0;
}

/* The same at the rate that was asked for, which may leave devices idle. */
static double cost_at_rate(const struct dt_serve_query *q, const struct dt_serve_plan *p)
{
	return q->price * p->tp * p->replicas / (q->rate * (double)q->output * 3600) * 1e6;
}

static json_t *plan_json(const struct dt_serve_query *q, const struct dt_serve_plan *p)
{
	json_t *o = json_pack("{s:i, s:i, s:I, s:f, s:f, s:f, s:I, s:b, s:b, s:s}", "tp", p->tp, "replicas",
			      p->replicas, "sequences", (json_int_t)p->sequences, "ttft_s", p->ttft_s,
			      "tpot_s", p->tpot_s, "tokens_per_s", p->tokens_per_s, "peak_bytes",
			      (json_int_t)p->peak_bytes, "fits", p->fits, "meets", p->meets, "note", p->note);

	if (o && q->price > 0) {
		json_object_set_new(o, "cost_per_million_tokens", json_real(cost(q, p)));
		json_object_set_new(o, "cost_per_million_tokens_at_rate", json_real(cost_at_rate(q, p)));
	}
	if (o && q->cluster->device.power_w > 0 && p->tokens_per_s > 0)
		json_object_set_new(
			o, "energy_kwh_per_million_tokens_at_most",
			json_real(q->cluster->device.power_w * p->tp / (p->tokens_per_s * 3600) * 1e3));
	return o;
}

static int print_json(const struct dt_serve_query *q, const struct dt_serve_plan *p, int n, FILE *f,
		      struct dt_err *err)
{
	json_t *list = json_array(), *o;
	int rc;

	for (int i = 0; i < n; i++)
		json_array_append_new(list, plan_json(q, &p[i]));
	o = json_pack("{s:i, s:s, s:f, s:o}", "schema", 1, "model", q->config.name, "rate_per_s", q->rate,
		      "plans", list);
	rc = dt_json_write_line(f, o, err);
	json_decref(o);
	return rc;
}

int dt_serve_plans_print(const struct dt_serve_query *q, const struct dt_serve_plan *p, int n, bool json,
			 FILE *f, struct dt_err *err)
{
	const bool priced = q->price > 0;
	struct dt_table *t;
	char s[24];

	if (json)
		return print_json(q, p, n, f, err);
	t = dt_table_new(priced ? "layout|>replicas|>devices|>sequences|>TTFT|>TPOT|>tokens/s|>memory|>a "
				  "million|>at the rate|note"
				: "layout|>replicas|>devices|>sequences|>TTFT|>TPOT|>tokens/s|>memory|note");
	for (int i = 0; i < n; i++) {
		dt_table_cell(t, "tp%d", p[i].tp);
		dt_table_cell(t, "%d", p[i].replicas);
		dt_table_cell(t, "%d", p[i].replicas * p[i].tp);
		dt_table_cell(t, "%lld", (long long)p[i].sequences);
		dt_table_cell(t, "%s", dt_format_duration(p[i].ttft_s, s, sizeof(s)));
		dt_table_cell(t, "%s", dt_format_duration(p[i].tpot_s, s, sizeof(s)));
		dt_table_cell(t, "%.0f", p[i].tokens_per_s);
		dt_table_cell(t, "%s", dt_format_size(p[i].peak_bytes, s, sizeof(s)));
		if (priced) {
			dt_table_cell(t, "%.3g", cost(q, &p[i]));
			dt_table_cell(t, "%.3g", cost_at_rate(q, &p[i]));
		}
		dt_table_cell(t, "%s", p[i].note);
	}
	fprintf(f, "%s for %g requests a second of %lld + %lld tokens, on %s\n\n", q->config.name, q->rate,
		(long long)q->prompt, (long long)q->output, q->cluster->device.name);
	dt_table_print(t, f);
	dt_table_free(t);
	if (priced)
		fputs("\nA million: the price of a million new tokens at full load, and at the rate asked "
		      "for.\n",
		      f);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
