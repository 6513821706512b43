#include "serve/capacity/images.h"

#include "plan/stepcost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct passes { /* indexed by the number of images */
	double pass_s[DT_IMAGE_BATCH + 1], send_s[DT_IMAGE_BATCH + 1];
};

/* The work of a pass over n images: the nodes of the program, with batch norms folded. */
static int open_pass(const struct dt_serve_query *q, enum dt_dtype type, int n, struct dt_work *ret,
		     struct dt_err *err)
{
	const struct dt_work_serving s = {.config = &q->config,
					  .compute = type,
					  .tp = 1,
					  .rows = n,
					  .outputs = n,
					  .weight_bits = 8.0 * dt_dtype_size(type)};

	return dt_work_open_serving(&s, ret, err);
}

/*
 * Seconds of a pass over n images, extrapolated from the costs of one and of two images: each node reads its
 * weights once, and everything else grows linearly.
 */
static double pass_seconds(const struct dt_device *d, const struct dt_work *one, const struct dt_work *two,
			   int n)
{
	const struct dt_work_unit *last = &one->unit[one->layers + 1];
	double seconds = 0;

	for (int k = 0; k < last->first + last->n; k++) {
		struct dt_node_cost c = one->node[k].cost;
		const struct dt_node_cost *more = &two->node[k].cost;

		c.flops += (n - 1) * (more->flops - c.flops);
		c.read += (n - 1) * (more->read - c.read);
		c.written += (n - 1) * (more->written - c.written);
		c.passes += (n - 1) * (more->passes - c.passes);
		seconds += dt_node_seconds(d, &c);
	}
	return seconds;
}

static int work_out(const struct dt_serve_query *q, struct passes *p, struct dt_err *err)
{
	const struct dt_config *c = &q->config;
	const double row = 4.0 * (double)(c->channels * c->image_size * c->image_size);
	const enum dt_dtype type = q->weights == DT_WF_F32 ? DT_F32 : DT_BF16;
	const struct dt_device d = dt_device_for(q->cluster, q->cluster->gpus_a_node, type);
	struct dt_work one, two = {0};
	int rc = open_pass(q, type, 1, &one, err);

	rc = rc < 0 ? rc : open_pass(q, type, 2, &two, err);
	*p = (struct passes){0};
	for (int n = 1; n <= DT_IMAGE_BATCH && rc == 0; n++) {
		p->pass_s[n] = pass_seconds(&d, &one, &two, n);
		p->send_s[n] = dt_message_time(q->cluster, n * row, 1) +
			       dt_message_time(q->cluster, n * 4.0 * (double)c->vocab, 1);
	}
	dt_work_release(&one);
	dt_work_release(&two);
	return rc;
}

static int memory(const struct dt_serve_query *q, const struct dt_image_plan *p, uint64_t *ret,
		  struct dt_err *err)
{
	const struct dt_serve_shape s = {.config = &q->config,
					 .layout = {.dp = p->ranks, .tp = 1, .pp = 1, .cp = 1, .ep = 1},
					 .weights = (enum dt_weight_format)q->weights,
					 .account = DT_ACCOUNT_DT,
					 .max_seqs = p->batch,
					 .loras = q->loras,
					 .scratch = q->scratch};
	struct dt_estimate e;
	int rc = dt_estimate_serve(&s, &e, err);

	if (rc == 0) {
		*ret = e.peak_bytes;
		dt_estimate_release(&e);
	}
	return rc;
}

/* Images a second of all ranks with full batches; *ret_pass: seconds of a pass. */
static double capacity(const struct passes *t, const struct dt_image_plan *p, double *ret_pass)
{
	const int each = p->data ? (p->batch + p->ranks - 1) / p->ranks : p->batch;
	const double sent = t->pass_s[each] + t->send_s[each];

	*ret_pass = t->pass_s[each];
	if (p->data)
		return p->batch / (p->ranks > 1 ? sent : t->pass_s[each]);
	return p->batch / t->pass_s[each] + (p->ranks - 1) * p->batch / sent;
}

static int try_ranks(const struct dt_serve_query *q, const struct passes *t, int ranks,
		     struct dt_image_plan *p, struct dt_err *err)
{
	const struct dt_image_queue s = {
		.ranks = ranks, .batch = p->batch, .data = p->data, .pass_s = t->pass_s, .send_s = t->send_s};
	int rc;

	p->ranks = ranks;
	p->images_per_s = capacity(t, p, &p->pass_s);
	rc = dt_image_simulate(&s, q->ask, q->nask, &p->sim, err);
	p->meets = rc == 0 && p->sim.p99 <= q->ttft_s;
	return rc;
}

/* Most ranks to try: for split batches, the number of images; else some more than the rate alone needs. */
static int most_ranks(const struct dt_serve_query *q, const struct passes *t, const struct dt_image_plan *p)
{
	const double each = t->pass_s[p->batch] + t->send_s[p->batch];

	return p->data ? p->batch : 4 * (int)fmin(1e6, ceil(q->rate * each / p->batch)) + 4;
}

static int plan_one(const struct dt_serve_query *q, const struct passes *t, struct dt_image_plan *p,
		    struct dt_err *err)
{
	const int most = most_ranks(q, t, p);
	int few = 0, rc = 0, n;

	for (n = 1; rc == 0; n = n * 2 < most ? n * 2 : most) { /* double the ranks while they are too few */
		rc = try_ranks(q, t, n, p, err);
		if (p->meets || n == most)
			break;
		few = n;
	}
	for (int enough = n; rc == 0 && p->meets && enough - few > 1;) {
		struct dt_image_plan half = *p;

		rc = try_ranks(q, t, (few + enough) / 2, &half, err);
		if (half.meets)
			*p = half;
		*(half.meets ? &enough : &few) = half.ranks;
	}
	rc = rc < 0 ? rc : memory(q, p, &p->peak_bytes, err);
	p->fits = rc == 0 && p->peak_bytes <= q->room;
	if (!p->fits)
		snprintf(p->note, sizeof(p->note), "does not fit");
	else if (!p->meets)
		snprintf(p->note, sizeof(p->note), "%d ranks exceed the latency limit at P99", p->ranks);
	else if (q->devices && p->ranks > q->devices)
		snprintf(p->note, sizeof(p->note), "needs %d devices, there %s %d", p->ranks,
			 q->devices == 1 ? "is" : "are", q->devices);
	p->meets &= p->fits && (!q->devices || p->ranks <= q->devices);
	return rc;
}

static int by_ranks(const void *x, const void *y)
{
	const struct dt_image_plan *a = x, *b = y;

	if (a->meets != b->meets)
		return b->meets - a->meets;
	if (a->ranks != b->ranks)
		return a->ranks - b->ranks;
	return (a->sim.p99 > b->sim.p99) - (a->sim.p99 < b->sim.p99);
}

int dt_image_plans(const struct dt_serve_query *q, struct dt_image_plan ret[DT_IMAGE_PLANS],
		   struct dt_err *err)
{
	struct passes t;
	int n = 0, rc = work_out(q, &t, err);

	for (int batch = 1; batch <= DT_IMAGE_BATCH && rc == 0; batch *= 2)
		for (int data = 0; data < 2 && rc == 0; data++) {
			if (data && batch == 1) /* one image cannot be split */
				continue;
			ret[n] = (struct dt_image_plan){.data = data, .batch = batch};
			rc = plan_one(q, &t, &ret[n], err);
			n += !data || ret[n].ranks > 1; /* a single rank splits nothing */
		}
	if (rc < 0)
		return rc;
	qsort(ret, (size_t)n, sizeof(*ret), by_ranks);
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
