/* dt-plan --serve: plans servers for the requests of a trace or of a random process, and prints the plans. */
#include "tools/plan_serve.h"

#include "base/opt.h"
#include "bench/load/workload.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Keeps the trace's times, or scales them to --rate requests per second. */
static void pace(const struct plan_serve_args *a, struct dt_load *l, double *ret_rate)
{
	double span = l->item[l->n - 1].at_s, rate = span > 0 ? (l->n - 1) / span : 0;

	if (a->rate_given && rate > 0)
		for (int i = 0; i < l->n; i++)
			l->item[i].at_s *= rate / a->q.rate;
	*ret_rate = a->rate_given || rate <= 0 ? a->q.rate : rate;
}

static int make_load(const struct plan_serve_args *a, struct dt_load *l, double *ret_rate, struct dt_err *err)
{
	const struct dt_load_shape shape = {.seed = 1,
					    .requests = (int)a->requests,
					    .arrival = DT_ARRIVE_POISSON,
					    .rate = a->q.rate,
					    .ramp = a->q.rate,
					    .input = (int)a->q.prompt,
					    .output = (int)a->q.output,
					    .turns = 1,
					    .prefixes = 1};
	const struct dt_trace_params trace = {
		.most = a->requests_given ? (int)a->requests : 0, .speed = 1, .scale = 1};
	int rc;

	*ret_rate = a->q.rate;
	if (!a->trace)
		return dt_load_make(l, &shape, err);
	rc = dt_load_read_trace(l, a->trace, &trace, err);
	if (rc == 0)
		pace(a, l, ret_rate);
	return rc;
}

static int to_asks(const struct dt_load *l, struct dt_serve_query *q, struct dt_err *err)
{
	struct dt_sim_ask *ask = calloc((size_t)l->n, sizeof(*ask));
	double in = 0, out = 0;

	if (!ask)
		return dt_err_sys(err, -ENOMEM, "cannot plan a server");
	for (int i = 0; i < l->n; i++) {
		const struct dt_load_item *it = &l->item[i];

		ask[i] = (struct dt_sim_ask){it->at_s,	it->input,  it->output,
					     it->block, it->nblock, it->block_len};
		in += it->input;
		out += it->output;
	}
	q->ask = ask;
	q->nask = l->n;
	q->prompt = (int64_t)(in / l->n + 0.5);
	q->output = (int64_t)(out / l->n + 0.5);
	return 0;
}

/* Plans and prints servers of text and of images. *ret_good: number of plans that meet the limits. */
static int plan_text(const struct plan_serve_args *a, bool json, int *ret_good, struct dt_err *err)
{
	struct dt_serve_plan p[DT_SERVE_PLANS];
	const int n = dt_serve_plans(&a->q, p, err);

	for (int i = 0; i < n; i++)
		*ret_good += p[i].meets;
	return n < 0 ? n : dt_serve_plans_print(&a->q, p, n, json, stdout, err);
}

static int plan_images(const struct plan_serve_args *a, bool json, int *ret_good, struct dt_err *err)
{
	struct dt_image_plan p[DT_IMAGE_PLANS];
	int n;

	if (a->text_given)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' is an image classifier: --prompt-len, --output-len, --tpot, "
				  "--max-num-batched-tokens and --kv-precision are for text models",
				  a->q.config.name);
	n = dt_image_plans(&a->q, p, err);
	for (int i = 0; i < n; i++)
		*ret_good += p[i].meets;
	return n < 0 ? n : dt_image_plans_print(&a->q, p, n, json, stdout, err);
}

int plan_serve(struct plan_serve_args *a, bool json, struct dt_err *err)
{
	struct dt_load l = {0};
	int rc = make_load(a, &l, &a->q.rate, err), good = 0;

	if (rc < 0)
		return -1;
	/*
	 * Thousands of simulated servers have caches of which little is used. Only mapped memory is not
	 * written when it is allocated, and a huge page would be zeroed for its first byte.
	 */
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	rc = to_asks(&l, &a->q, err);
	if (rc == 0)
		rc = dt_config_is_image(&a->q.config) ? plan_images(a, json, &good, err)
						      : plan_text(a, json, &good, err);
	free((void *)(uintptr_t)a->q.ask);
	dt_load_release(&l);
	return rc < 0 ? -1 : good ? DT_EXIT_OK : DT_EXIT_NO;
}
/* SPDX-License-Identifier: Apache-2.0 */
