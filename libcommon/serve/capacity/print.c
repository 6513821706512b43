#include "serve/capacity/plan.h"

#include "base/table.h"
#include "base/units.h"

/* Cost of a million new tokens at full load; 0: unknown. */
static double cost(const struct dt_serve_query *q, const struct dt_serve_plan *p)
{
	return p->tokens_per_s > 0 ? q->price * dt_serve_plan_devices(p) / (p->tokens_per_s * 3600) * 1e6 : 0;
}

/* The same at the requested rate, which may leave devices idle. */
static double cost_at_rate(const struct dt_serve_query *q, const struct dt_serve_plan *p)
{
	return q->price * dt_serve_plan_devices(p) * p->replicas / (q->rate * (double)q->output * 3600) * 1e6;
}

static json_t *sim_json(const struct dt_sim_report *r)
{
	return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:i}", "requests",
			 r->done, "refused", r->refused, "ttft_p50_s", r->ttft_p50, "ttft_p99_s", r->ttft_p99,
			 "tpot_p50_s", r->tpot_p50, "tpot_p99_s", r->tpot_p99, "duration_s", r->end_s,
			 "busy_s", r->busy_s, "steps", (json_int_t)r->steps, "preemptions",
			 (json_int_t)r->preemptions, "prompt_tokens", (json_int_t)r->prompt_tokens,
			 "prefix_hit_tokens", (json_int_t)r->prefix_hits, "output_tokens",
			 (json_int_t)r->output_tokens, "prompts_moved", r->moved);
}

static const char *layout_of(const struct dt_serve_plan *p, char *buf, size_t n)
{
	const struct dt_layout l = dt_serve_plan_layout(p);

	if (p->ep * p->pp * p->cp > 1)
		return dt_layout_format(&l, buf, n);
	snprintf(buf, n, "tp%d", p->tp);
	return buf;
}

/* The layout of a server of the split, with cp ranks. */
static const char *apart_layout(const struct dt_serve_plan *p, int cp, char *buf, size_t n)
{
	struct dt_serve_plan one = *p;

	one.cp = cp;
	return layout_of(&one, buf, n);
}

static void put_simulated(json_t *o, const struct dt_serve_plan *p)
{
	char of[2][32];
	json_t *a;

	if (!o || p->sim.steps == 0)
		return;
	json_object_set_new(o, "simulated", sim_json(&p->sim));
	if (!p->apart.prefill)
		return;
	a = json_pack("{s:i, s:i, s:s, s:s, s:b, s:o}", "prefill", p->apart.prefill, "decode",
		      p->apart.decode, "prefill_layout", apart_layout(p, p->apart.cp, of[0], sizeof(of[0])),
		      "decode_layout", apart_layout(p, 1, of[1], sizeof(of[1])), "meets", p->apart.meets,
		      "simulated", sim_json(&p->apart.sim));
	json_object_set_new(o, "apart", a);
}

static json_t *plan_json(const struct dt_serve_query *q, const struct dt_serve_plan *p)
{
	json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:f, s:f, s:f, s:I, s:b, s:b, s:s}", "tp",
			      p->tp, "pp", p->pp, "cp", p->cp, "ep", p->ep, "replicas", p->replicas, "blocks",
			      (json_int_t)p->blocks, "sequences", (json_int_t)p->sequences, "ttft_s",
			      p->ttft_s, "tpot_s", p->tpot_s, "tokens_per_s", p->tokens_per_s, "peak_bytes",
			      (json_int_t)p->peak_bytes, "fits", p->fits, "meets", p->meets, "note", p->note);

	put_simulated(o, p);
	if (o && q->price > 0) {
		json_object_set_new(o, "cost_per_million_tokens", json_real(cost(q, p)));
		json_object_set_new(o, "cost_per_million_tokens_at_rate", json_real(cost_at_rate(q, p)));
	}
	if (o && q->cluster->device.power_w > 0 && p->tokens_per_s > 0)
		json_object_set_new(o, "energy_kwh_per_million_tokens_at_most",
				    json_real(q->cluster->device.power_w * dt_serve_plan_devices(p) /
					      (p->tokens_per_s * 3600) * 1e3));
	return o;
}

int dt_serve_plans_json(const struct dt_serve_query *q, json_t *plans, FILE *f, struct dt_err *err)
{
	json_t *o = json_pack("{s:i, s:s, s:f, s:o}", "schema", 1, "model", q->config.name, "rate_per_s",
			      q->rate, "plans", plans);
	int rc = dt_json_write_line(f, o, err);

	json_decref(o);
	return rc;
}

static void put_seconds(struct dt_table *t, const struct dt_serve_plan *p, double s)
{
	char text[24];

	dt_table_cell(t, "%s", p->sim.steps ? dt_format_duration(s, text, sizeof(text)) : "");
}

static void put_row(struct dt_table *t, const struct dt_serve_query *q, const struct dt_serve_plan *p)
{
	char s[24];

	dt_table_cell(t, "%s", layout_of(p, s, sizeof(s)));
	dt_table_cell(t, "%d", p->replicas);
	dt_table_cell(t, "%d", p->replicas * dt_serve_plan_devices(p));
	dt_table_cell(t, "%lld", (long long)p->sequences);
	put_seconds(t, p, p->sim.ttft_p50);
	put_seconds(t, p, p->sim.ttft_p99);
	put_seconds(t, p, p->sim.tpot_p50);
	put_seconds(t, p, p->sim.tpot_p99);
	dt_table_cell(t, "%.0f", p->tokens_per_s);
	dt_table_cell(t, "%s", dt_format_size(p->peak_bytes, s, sizeof(s)));
	if (q->price > 0) {
		dt_table_cell(t, "%.3g", cost(q, p));
		dt_table_cell(t, "%.3g", cost_at_rate(q, p));
	}
	dt_table_cell(t, "%s", p->note);
}

/* Prints the split of the best plan into prefill and decode servers. */
static void print_apart(const struct dt_serve_plan *p, FILE *f)
{
	const struct dt_sim_report *a = &p->apart.sim;
	char ttft[24], tpot[24], of[2][32];

	if (!p->apart.prefill)
		return;
	fprintf(f,
		"\nDisaggregated prefill on the same number of devices:\n"
		"%d x %s for prefill, %d x %s for decode;\n"
		"TTFT P99 %s, TPOT P99 %s%s.\n",
		p->apart.prefill, apart_layout(p, p->apart.cp, of[0], sizeof(of[0])), p->apart.decode,
		apart_layout(p, 1, of[1], sizeof(of[1])), dt_format_duration(a->ttft_p99, ttft, sizeof(ttft)),
		dt_format_duration(a->tpot_p99, tpot, sizeof(tpot)),
		p->apart.meets ? "" : ", which exceeds a limit");
}

int dt_serve_plans_print(const struct dt_serve_query *q, const struct dt_serve_plan *p, int n, bool json,
			 FILE *f, struct dt_err *err)
{
	const bool priced = q->price > 0;
	struct dt_table *t;

	if (json) {
		json_t *list = json_array();

		for (int i = 0; i < n; i++)
			json_array_append_new(list, plan_json(q, &p[i]));
		return dt_serve_plans_json(q, list, f, err);
	}
	t = dt_table_new(priced ? "layout|>replicas|>devices|>sequences|>TTFT|>P99|>TPOT|>P99|>tokens/s|"
				  ">memory|>a million|>at the rate|note"
				: "layout|>replicas|>devices|>sequences|>TTFT|>P99|>TPOT|>P99|>tokens/s|"
				  ">memory|note");
	for (int i = 0; i < n; i++)
		put_row(t, q, &p[i]);
	fprintf(f, "%s for %.4g requests/s of %lld + %lld tokens, on %s\n\n", q->config.name, q->rate,
		(long long)q->prompt, (long long)q->output, q->cluster->device.name);
	dt_table_print(t, f);
	dt_table_free(t);
	if (n > 0)
		print_apart(&p[0], f);
	if (priced)
		fputs("\nCost of a million generated tokens: at full load, and at the requested rate\n", f);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
