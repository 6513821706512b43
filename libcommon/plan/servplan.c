#include "plan/servplan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_SEQUENCES 4096

static int memory(const struct dt_serve_query *q, int tp, int64_t seqs, uint64_t *ret, struct dt_err *err)
{
	struct dt_serve_shape s = {.config = &q->config,
				   .layout = {.dp = 1, .tp = tp, .pp = 1, .cp = 1, .ep = 1},
				   .weights = (enum dt_weight_format)q->weights,
				   .account = DT_ACCOUNT_GENERIC,
				   .compute = DT_BF16,
				   .cache_bits = q->cache_bits,
				   .max_seqs = seqs,
				   .max_len = q->prompt + q->output,
				   .block = 16,
				   .loras = q->loras,
				   .lora_rank = q->lora_rank,
				   .max_tokens = q->prompt < 2048 ? 2048 : q->prompt};
	struct dt_estimate e;
	int rc = dt_estimate_serve(&s, &e, err);

	if (rc < 0)
		return rc;
	*ret = e.peak_bytes;
	dt_estimate_release(&e);
	return 0;
}

/* What a replica of tp does with seqs sequences at a time. */
static int rates(const struct dt_serve_query *q, int64_t seqs, struct dt_serve_plan *p, struct dt_err *err)
{
	double bits = dt_weight_bits((enum dt_weight_format)q->weights), out = (double)q->output, prefill,
	       step;
	int rc = dt_prefill_time(q->cluster, &q->config, p->tp, q->prompt, bits, &prefill, err);

	if (rc == 0)
		rc = dt_decode_time(q->cluster, &q->config, p->tp, seqs, q->prompt + q->output / 2, bits,
				    q->cache_bits > 0 ? q->cache_bits : 16, &step, err);
	if (rc < 0)
		return rc;
	p->sequences = seqs;
	/* In the time of one answer's decode steps, seqs answers are made and as many prompts prefilled. */
	p->tokens_per_s = (double)seqs * out / (out * step + (double)seqs * prefill);
	p->tpot_s = (out * step + (double)seqs * prefill) / out;
	p->ttft_s = 2 * prefill + step; /* its own, half of another's on average, the step under way */
	return 0;
}

/* Whether the plan needs more devices than there are. */
static void count_devices(const struct dt_serve_query *q, struct dt_serve_plan *p)
{
	if (!q->devices || !p->fits || p->tp * p->replicas <= q->devices)
		return;
	p->meets = false;
	if (p->tp > q->devices)
		snprintf(p->note, sizeof(p->note), "needs %d devices, there %s %d", p->tp,
			 q->devices == 1 ? "is" : "are", q->devices);
	else
		snprintf(p->note, sizeof(p->note), "the rate needs %d devices, there %s %d",
			 p->tp * p->replicas, q->devices == 1 ? "is" : "are", q->devices);
}

static int plan_tp(const struct dt_serve_query *q, int tp, struct dt_serve_plan *ret, struct dt_err *err)
{
	struct dt_serve_plan p = {.tp = tp}, t;
	uint64_t bytes = 0;
	int rc = memory(q, tp, 1, &bytes, err);

	if (rc < 0)
		return rc;
	p.fits = bytes <= q->room;
	p.peak_bytes = bytes;
	if ((rc = rates(q, 1, &p, err)) < 0)
		return rc;
	for (int64_t n = 2; p.fits && n <= MAX_SEQUENCES; n = n < 16 ? n + 1 : n + n / 8) {
		t = p;
		if ((rc = rates(q, n, &t, err)) < 0)
			return rc;
		if (memory(q, tp, n, &bytes, NULL) < 0 || bytes > q->room || t.tpot_s > q->tpot_s)
			break;
		p = t;
		p.peak_bytes = bytes;
	}
	p.meets = p.fits && p.tpot_s <= q->tpot_s && p.ttft_s <= q->ttft_s;
	p.replicas = (int)fmax(1, ceil(q->rate * (double)q->output / p.tokens_per_s));
	snprintf(p.note, sizeof(p.note), "%s",
		 !p.fits		? "does not fit"
		 : p.tpot_s > q->tpot_s ? "one sequence alone is slower than the TPOT wanted"
		 : p.ttft_s > q->ttft_s ? "prefill is slower than the TTFT wanted"
		 : bytes > q->room	? "as many sequences as fit"
					: "as many sequences as the TPOT allows");
	count_devices(q, &p);
	*ret = p;
	return 0;
}

static int by_devices(const void *x, const void *y)
{
	const struct dt_serve_plan *a = x, *b = y;
	int da = a->tp * a->replicas, db = b->tp * b->replicas;

	if (a->meets != b->meets)
		return b->meets - a->meets;
	if (a->fits != b->fits)
		return b->fits - a->fits;
	return da != db ? da - db : (a->tpot_s > b->tpot_s) - (a->tpot_s < b->tpot_s);
}

int dt_serve_plans(const struct dt_serve_query *q, struct dt_serve_plan ret[DT_SERVE_PLANS],
		   struct dt_err *err)
{
	int n = 0, rc = 0;

	if (q->config.pos == DT_POS_LEARNED && q->prompt + q->output > q->config.max_seq)
		return dt_err_set(err, -EINVAL, "prompt and output are %lld tokens, '%s' has %lld positions",
				  (long long)(q->prompt + q->output), q->config.name,
				  (long long)q->config.max_seq);
	for (int tp = 1; tp <= q->cluster->gpus_a_node && n < DT_SERVE_PLANS && rc == 0; tp *= 2) {
		struct dt_layout l = {.dp = 1, .tp = tp, .pp = 1, .cp = 1, .ep = 1};

		if (q->cluster->gpus_a_node % tp || dt_layout_check(&l, &q->config, NULL) < 0)
			continue;
		rc = plan_tp(q, tp, &ret[n], err);
		n += rc == 0;
	}
	if (rc < 0)
		return rc;
	qsort(ret, (size_t)n, sizeof(*ret), by_devices);
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
