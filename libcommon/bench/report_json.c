/* The benchmark's results as JSON; keys carry their unit (_s seconds, _gbs 10^9 bytes/s). */
#include "bench/report.h"

#include "base/opt.h"

static json_t *real_or_null(bool there, double v)
{
	return there ? json_real(v) : json_null();
}

/* Adds the timing of a call. */
static int add_times(json_t *o, const struct dt_bench_run_info *i, const struct dt_bench_result *r)
{
	const struct {
		const char *key;
		json_t *v;
	} all[] = {
		{"time_s", json_real(r->time_s)},
		{"min_s", json_real(r->min_s)},
		{"mean_s", json_real(r->mean_s)},
		{"p50_s", json_real(r->p50_s)},
		{"p99_s", json_real(r->p99_s)},
		{"algbw_gbs", json_real(r->algbw_gbs)},
		{"busbw_gbs", json_real(r->busbw_gbs)},
		{"bound_fraction", real_or_null(r->bound_fraction > 0, r->bound_fraction)},
		{"wrong", r->wrong >= 0 ? json_integer(r->wrong) : json_null()},
		{"mpi_time_s", real_or_null(i->compare, r->mpi_s)},
		{"speedup", real_or_null(i->compare, r->mpi_s / r->time_s)},
		{"copy_s", real_or_null(r->copy_s > 0, r->copy_s)},
		{"speedup_limit", real_or_null(i->compare && r->copy_s > 0, r->mpi_s / r->copy_s)},
		{"copy_fraction", real_or_null(r->copy_s > 0, r->copy_s / r->time_s)},
	};
	int rc = 0;

	for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
		rc |= json_object_set_new(o, all[k].key, all[k].v);
	return rc;
}

json_t *dt_bench_result_json(const struct dt_bench_run_info *i, enum dt_bench_kind k, bool in_place,
			     enum dt_alg used, const struct dt_bench_result *r)
{
	char name[32], op[8], alg[16];
	double predicted = dt_bench_predicted(i, k, used, r);
	json_t *o = json_pack(
		"{s:s, s:I, s:I, s:s, s:s?, s:i, s:b, s:b}", "collective",
		dt_opt_choice_name(DT_BENCH_CHOICES, (int)k, name, sizeof(name)), "size_bytes",
		(json_int_t)r->bytes, "count", (json_int_t)r->count, "dtype", dt_bench_type_name(i->t), "op",
		dt_bench_reduces(k) ? dt_opt_choice_name(DT_BENCH_OPS, (int)i->op, op, sizeof(op)) : NULL,
		"root", dt_bench_has_root(k) ? i->root : -1, "in_place", in_place, "registered",
		i->registered);

	if (!o || add_times(o, i, r) ||
	    json_object_set_new(o, "algorithm", json_string(dt_alg_name(used, alg))) ||
	    json_object_set_new(o, "predicted_s", real_or_null(predicted >= 0, predicted))) {
		json_decref(o);
		return NULL;
	}
	return o;
}

json_t *dt_bench_compressed_json(const struct dt_bench_compressed *r)
{
	char name[16];

	return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "method",
			 dt_opt_choice_name(DT_COMPRESS_CHOICES, (int)r->kind, name, sizeof(name)),
			 "size_bytes", (json_int_t)r->bytes, "time_s", r->time_s, "codec_s", r->codec_s,
			 "plain_time_s", r->plain_s, "wire_bytes", r->wire_bytes, "plain_wire_bytes",
			 r->plain_wire_bytes, "break_even_gbs", r->break_even / 1e9);
}

static json_t *links_json(const struct dt_bench_totals *t)
{
	json_t *links = json_array();

	for (int i = 0; i < t->nlink; i++)
		json_array_append_new(
			links, json_pack("{s:s, s:i, s:f, s:f, s:f}", "class", t->link[i].name, "ranks",
					 t->link[i].ranks, "latency_s", t->link[i].latency_s, "bandwidth_gbs",
					 t->link[i].bandwidth_gbs, "relative_error", t->link[i].error));
	return links;
}

/* null if arrivals were not measured: there is no per-rank table. */
static json_t *skew_json(const struct dt_bench_skew *s)
{
	json_t *skew = s->ranks ? json_array() : json_null();

	for (int r = 0; r < s->ranks && s->calls; r++)
		json_array_append_new(skew,
				      json_pack("{s:i, s:f, s:f, s:f}", "rank", r, "mean_s",
						s->sum_s[r] / (double)s->calls, "max_s", s->max_s[r],
						"last_fraction", (double)s->last[r] / (double)s->calls));
	return skew;
}

json_t *dt_bench_report_json(const struct dt_bench_run_info *i, const struct dt_bench_totals *t,
			     json_t *results, json_t *compression)
{
	char topo[512];

	return json_pack("{s:i, s:s, s:i, s:i, s:s, s:b, s:f, s:O, s:o, s:o, s:o, s:I, s:f, s:b, s:s?}",
			 "schema", 1, "program", i->program, "ranks", i->world.size, "nodes", i->world.nodes,
			 "transport", i->transport, "cold", i->cold, "copy_gbs", t->copy_gbs, "results",
			 results, "links", links_json(t), "skew", skew_json(t->skew), "compression",
			 compression ? json_incref(compression) : json_null(), "out_of_bounds",
			 (json_int_t)t->wrong, "avg_busbw_gbs", t->avg_busbw_gbs, "interrupted",
			 t->interrupted, "topology",
			 i->topo ? dt_bench_topo_format(i->topo, topo, sizeof(topo)) : NULL);
}

void dt_bench_simulated_json(const struct dt_bench_topo *t, enum dt_bench_kind k, size_t bytes,
			     const double *time_s, json_t *ret)
{
	char name[32], alg[16];

	dt_opt_choice_name(DT_BENCH_CHOICES, (int)k, name, sizeof(name));
	for (int a = DT_ALG_NAIVE; a < DT_ALG_N; a++) {
		double bus = (double)bytes / time_s[a] / 1e9 * dt_bench_bus_factor(k, t->ranks);

		if (time_s[a] >= 0)
			json_array_append_new(ret, json_pack("{s:s, s:s, s:I, s:f, s:f}", "collective", name,
							     "algorithm", dt_alg_name((enum dt_alg)a, alg),
							     "size_bytes", (json_int_t)bytes, "time_s",
							     time_s[a], "busbw_gbs", bus));
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
