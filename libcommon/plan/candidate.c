#include "base/shell.h"
#include "plan/run_options.h"
#include "plan/search.h"
#include "plan/stage.h"
#include "plan/unlike.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Whether c is better than best for the same layout: it fits and best does not, is faster, or is smaller if
 * neither fits.
 */
static bool better(const struct dt_candidate *c, const struct dt_candidate *best)
{
	if (!best->microbatch || c->fits != best->fits)
		return !best->microbatch || c->fits;
	return c->fits ? c->t.step < best->t.step : c->peak_bytes < best->peak_bytes;
}

static int check_world(const struct dt_plan_query *q, const char *layout, struct dt_layout *ret,
		       struct dt_err *err)
{
	int rc = dt_layout_parse(layout, ret, err);

	if (rc == 0 && dt_layout_world(ret) != q->cluster->gpus)
		rc = dt_err_set(err, -EINVAL, "layout '%s' has %d ranks, not %d", layout,
				dt_layout_world(ret), q->cluster->gpus);
	return rc;
}

int dt_plan_judge_layout(const struct dt_plan_query *q, const char *layout, struct dt_candidate *ret,
			 struct dt_err *err)
{
	const struct dt_run *run = &q->fit.run;
	struct dt_candidate c, best = {0};
	struct dt_layout l;
	int64_t most = run->microbatch ? run->microbatch : 64;
	int rc = check_world(q, layout, &l, err), last = 0;

	if (rc < 0)
		return rc;
	for (int r = 0; r < 3; r++)
		for (int64_t b = run->microbatch ? run->microbatch : 1;
		     b <= most && b * l.dp <= run->global_batch; b *= 2) {
			if (q->recompute >= 0 && r != q->recompute)
				continue;
			c = (struct dt_candidate){.layout = l, .microbatch = b, .recompute = r};
			rc = dt_plan_judge(q, &c, err);
			if (rc < 0)
				last = rc;
			else if (better(&c, &best))
				best = c;
		}
	if (!best.microbatch)
		return last ? last
			    : dt_err_set(err, -EINVAL, "layout '%s' does not divide a global batch of %lld",
					 layout, (long long)run->global_batch);
	*ret = best;
	return 0;
}

int dt_plan_check_machines(const struct dt_plan_query *q, const char *layout, struct dt_err *err)
{
	struct dt_run r = q->fit.run;
	const char *shared = r.watch.elastic		       ? "--elastic dp"
			     : r.sync.kind == DT_SYNC_HOGWILD  ? "--sync hogwild"
			     : r.sync.over == DT_SERVER_MEMORY ? "--server-comm memory"
							       : NULL;
	struct dt_layout l;

	r.on_card = !q->cluster->cores;
	if (r.fp8 && !(q->cluster->device.peak_fp8 > 0))
		return dt_err_set(err, -ENOTSUP, "--fp8: '%s' has no 8-bit float products",
				  q->cluster->device.name);
	if (shared && q->cluster->gpus > q->cluster->gpus_a_node)
		return dt_err_set(err, -ENOTSUP, "%s needs all ranks on one machine, not %d on each", shared,
				  q->cluster->gpus_a_node);
	return layout && check_world(q, layout, &l, err) < 0 ? -EINVAL : dt_run_check_host(&r, err);
}

int dt_plan_check_fp8(const struct dt_plan_query *q, struct dt_err *err)
{
	struct dt_run s = {.config = q->fit.run.config,
			   .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
			   .microbatch = 16,
			   .seq = q->fit.run.seq,
			   .fp8 = q->fit.run.fp8};
	int linears, rc;

	if (!s.fp8)
		return 0;
	if ((rc = dt_stage_count_8_bits(&s, &linears, err)) < 0)
		return rc;
	if (!linears)
		return dt_err_set(err, -ENOTSUP,
				  "--fp8: no linear layer of '%s' has sizes that are multiples of 16",
				  s.config->name);
	return 0;
}

static const struct part {
	const char *name;
	size_t off;
	bool share; /* already a share of the makespan */
} parts[] = {
#define P(n, f, s)                                                                                           \
	{                                                                                                    \
		n, offsetof(struct dt_step_time, f), s                                                       \
	}
	P("tensor-parallel communication", tp, false),
	P("expert-parallel communication", ep, false),
	P("context-parallel communication", cp, false),
	P("pipeline bubble", bubble, true),
	P("exposed gradient communication", dp_exposed, false),
	P("recomputation", recompute, false),
	P("optimizer", optimizer, false),
	P("exposed offloading", offload_exposed, false),
	P("memory-bound operations", memory, false),
#undef P
};
#define NPARTS (sizeof(parts) / sizeof(parts[0]))

static double share_of(const struct dt_step_time *t, size_t i)
{
	double v = *(const double *)((const char *)t + parts[i].off);

	return parts[i].share ? v * t->makespan / t->step : v / t->step;
}

const char *dt_plan_reason(const struct dt_plan_query *q, const struct dt_candidate *c,
			   const struct dt_candidate *against, char *buf, size_t n)
{
	size_t worst = 0, k = 0;
	double most = -1;

	for (size_t i = 0; i < NPARTS; i++) {
		double d = share_of(&c->t, i) * c->t.step;

		if (against)
			d -= share_of(&against->t, i) * against->t.step;
		if (d > most) {
			most = d;
			worst = i;
		}
	}
	if (against && c != against && most / against->t.step > 0.002)
		snprintf(buf, n, "%+.1f%% time: %.1f%% more for %s", 100 * (c->t.step / against->t.step - 1),
			 100 * most / against->t.step, parts[worst].name);
	else if (against && c != against)
		snprintf(buf, n, "%+.1f%% time, spread over several parts",
			 100 * (c->t.step / against->t.step - 1));
	else
		for (size_t i = 0; i < NPARTS && k < n; i++) {
			if (share_of(&c->t, i) < 0.02)
				continue;
			snprintf(buf + k, n - k, "%s%s %.0f%%", k ? ", " : "", parts[i].name,
				 100 * share_of(&c->t, i));
			k += strlen(buf + k);
		}
	if (n && (k || against))
		return buf;
	snprintf(buf, n, "almost all matmuls and attention");
	return buf;
}

json_t *dt_step_time_json(const struct dt_step_time *t)
{
	return json_pack(
		"{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}",
		"matmul_s", t->matmul, "attention_s", t->attention, "memory_s", t->memory, "recompute_s",
		t->recompute, "head_s", t->head, "tp_s", t->tp, "ep_s", t->ep, "cp_s", t->cp, "pp_s", t->pp,
		"dp_s", t->dp, "dp_exposed_s", t->dp_exposed, "optimizer_s", t->optimizer, "makespan_s",
		t->makespan, "fixed_s", t->fixed, "step_s", t->step, "offload_exposed_s", t->offload_exposed,
		"offload_written_bytes", (json_int_t)t->offload_written);
}

/* Microbatches by rank, if they are unequal: [dp], the caller frees it; NULL: they are equal. */
static int64_t *shares_of(const struct dt_plan_query *q, const struct dt_candidate *c)
{
	const struct dt_run r = dt_candidate_run(q, c);
	int64_t *n = calloc((size_t)c->layout.dp, sizeof(*n));

	if (n && dt_unlike_shares(q->cluster, &r, q->stack, n, NULL) > 0)
		return n;
	free(n);
	return NULL;
}

char *dt_plan_shares(const struct dt_plan_query *q, const struct dt_candidate *c)
{
	int64_t *n = q->cluster->nkind ? shares_of(q, c) : NULL;
	char *text = NULL;
	size_t size;
	FILE *f = n ? open_memstream(&text, &size) : NULL;

	for (int i = 0; f && i < c->layout.dp; i++)
		fprintf(f, "%s%lld", i ? "," : "", (long long)n[i]);
	if (f && fclose(f) == EOF) {
		free(text);
		text = NULL;
	}
	free(n);
	return text;
}

struct dt_run_cost dt_plan_million(const struct dt_plan_query *q, const struct dt_candidate *c)
{
	return dt_run_cost_of(&(struct dt_run_cost_query){.seconds = 1e6 / c->t.tokens_per_s,
							  .devices = q->cluster->gpus,
							  .price = q->cluster->price_a_gpu_hour,
							  .power_w = q->cluster->device.power_w});
}

json_t *dt_candidate_json(const struct dt_plan_query *q, const struct dt_candidate *c)
{
	static const char *const recompute[] = {"none", "selective", "full"};
	static const char *const bound[] = {"compute", "memory", "network", "latency"};
	const struct dt_run_cost million = dt_plan_million(q, c);
	const struct dt_step_time *t = &c->t;
	char layout[80], reason[200], *shares = dt_plan_shares(q, c);
	json_t *o = json_pack(
		"{s:s, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:s, s:I, s:b, s:s, s:o}", "layout",
		dt_layout_format(&c->layout, layout, sizeof(layout)), "microbatch", (json_int_t)c->microbatch,
		"accumulation", (json_int_t)c->accumulation, "recompute", recompute[c->recompute], "step_s",
		t->step, "tokens_per_s", t->tokens_per_s, "mfu", t->mfu, "hfu", t->hfu, "bubble", t->bubble,
		"bound", bound[t->bound], "peak_bytes", (json_int_t)c->peak_bytes, "fits", c->fits, "reason",
		dt_plan_reason(q, c, NULL, reason, sizeof(reason)), "time", dt_step_time_json(t));

	if (shares)
		json_object_set_new(o, "shares", json_string(shares));
	free(shares);
	if (million.money > 0) {
		json_object_set_new(o, "cost_per_million_tokens", json_real(million.money));
		json_object_set_new(o, "tokens_per_price_unit", json_real(1e6 / million.money));
	}
	if (million.energy_kwh > 0)
		json_object_set_new(o, "energy_kwh_per_million_tokens_at_most",
				    json_real(million.energy_kwh));
	return o;
}

const char *dt_plan_args(const struct dt_plan_query *q, const struct dt_candidate *c, const char *model,
			 bool shell, char *buf, size_t n)
{
	char word[4096];
	struct dt_run r = dt_candidate_run(q, c);
	char *shares = dt_plan_shares(q, c);

	r.microbatch = c->microbatch;
	r.global_batch = q->fit.run.global_batch;
	snprintf(buf, n, "--model %s ",
		 shell && dt_shell_word(model, false, word, sizeof(word)) ? word : model);
	dt_run_arguments(&r, shell, buf + strlen(buf), n - strlen(buf));
	if (r.threads)
		snprintf(buf + strlen(buf), n - strlen(buf), " --threads %lld", (long long)r.threads);
	if (shares)
		snprintf(buf + strlen(buf), n - strlen(buf), " --shares %s", shares);
	free(shares);
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
