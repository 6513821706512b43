#include "serve/capacity/images.h"

#include "base/table.h"
#include "base/units.h"

/* Cost of a million images at per_s images a second. */
static double cost(const struct dt_serve_query *q, const struct dt_image_plan *p, double per_s)
{
	return q->price * p->ranks / (per_s * 3600) * 1e6;
}

static const char *split_of(const struct dt_image_plan *p)
{
	return p->data ? "data" : "requests";
}

static json_t *plan_json(const struct dt_serve_query *q, const struct dt_image_plan *p)
{
	const struct dt_image_report *r = &p->sim;
	json_t *o = json_pack("{s:s, s:i, s:i, s:f, s:f, s:I, s:b, s:b, s:s}", "split", split_of(p),
			      "image_batch", p->batch, "ranks", p->ranks, "pass_s", p->pass_s, "images_per_s",
			      p->images_per_s, "peak_bytes", (json_int_t)p->peak_bytes, "fits", p->fits,
			      "meets", p->meets, "note", p->note);

	json_object_set_new(o, "simulated",
			    json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:I}", "requests", q->nask,
				      "latency_p50_s", r->p50, "latency_p99_s", r->p99, "latency_mean_s",
				      r->mean, "duration_s", r->end_s, "busy_s", r->busy_s, "passes",
				      (json_int_t)r->passes));
	if (o && q->price > 0) {
		json_object_set_new(o, "cost_per_million_images", json_real(cost(q, p, p->images_per_s)));
		json_object_set_new(o, "cost_per_million_images_at_rate", json_real(cost(q, p, q->rate)));
	}
	return o;
}

static void put_row(struct dt_table *t, const struct dt_serve_query *q, const struct dt_image_plan *p)
{
	char s[24];

	dt_table_cell(t, "%s", split_of(p));
	dt_table_cell(t, "%d", p->batch);
	dt_table_cell(t, "%d", p->ranks);
	dt_table_cell(t, "%s", dt_format_duration(p->pass_s, s, sizeof(s)));
	dt_table_cell(t, "%s", dt_format_duration(p->sim.p50, s, sizeof(s)));
	dt_table_cell(t, "%s", dt_format_duration(p->sim.p99, s, sizeof(s)));
	dt_table_cell(t, "%.0f", p->images_per_s);
	dt_table_cell(t, "%s", dt_format_size(p->peak_bytes, s, sizeof(s)));
	if (q->price > 0) {
		dt_table_cell(t, "%.3g", cost(q, p, p->images_per_s));
		dt_table_cell(t, "%.3g", cost(q, p, q->rate));
	}
	dt_table_cell(t, "%s", p->note);
}

int dt_image_plans_print(const struct dt_serve_query *q, const struct dt_image_plan *p, int n, bool json,
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
	t = dt_table_new(priced ? "split|>batch|>ranks|>pass|>answer|>P99|>images/s|>memory|>a million|>at "
				  "the rate|note"
				: "split|>batch|>ranks|>pass|>answer|>P99|>images/s|>memory|note");
	for (int i = 0; i < n; i++)
		put_row(t, q, &p[i]);
	fprintf(f, "%s for %.4g images/s of %lld x %lld pixels, on %s\n\n", q->config.name, q->rate,
		(long long)q->config.image_size, (long long)q->config.image_size, q->cluster->device.name);
	dt_table_print(t, f);
	dt_table_free(t);
	if (priced)
		fputs("\nCost of a million images: in full batches, and at the requested rate\n", f);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
