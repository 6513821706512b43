#include "plan/servclock.h"

#include "model/flops.h"
#include "plan/formulas.h"
#include "plan/inferplan.h"
#include "plan/stepcost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(DT_FLOW_PARTS == DT_INFER_PARTS_A_STAGE * DT_FLOW_STAGES, "parts of a pass");

struct attention {		  /* equal nodes in one kind of layer */
	struct dt_node_cost cost; /* without keys: flops of one query-key pair */
	int64_t window;
	int kind; /* of layer */
};

struct rows {			     /* costs of a pass with a given number of rows on a rank */
	double body[DT_FLOW_STAGES]; /* seconds of each stage without attention */
	double head;		     /* seconds of the final unit, if every row needs logits */
	struct attention *attention;
	int nattention;
};

struct dt_serve_clock {
	struct dt_serve_site s;
	struct dt_device device;
	struct dt_layout layout;
	double cache_row;	    /* bytes of a key in one layer */
	int64_t kinds;		    /* number of kinds of layers */
	int64_t *times;		    /* [pp, kinds] layers of each kind in a stage */
	struct rows *rows;	    /* [max_rows + 1]; attention NULL: not computed yet */
	struct dt_serve_span *span; /* [max_rows] a rank's part of a pass */
};

static int count_layers(struct dt_serve_clock *c)
{
	struct dt_config few;
	int first, last;

	c->kinds = dt_config_short(c->s.config, &few);
	c->times = calloc((size_t)(c->s.pp * c->kinds), sizeof(*c->times));
	for (int p = 0; c->times && p < c->s.pp; p++) {
		dt_layout_stage(&c->layout, c->s.config, p, &first, &last);
		for (int l = first; l < last; l++)
			c->times[p * c->kinds + dt_layer_alike(c->s.config, c->kinds, l)]++;
	}
	return c->times ? 0 : -ENOMEM;
}

int dt_serve_clock_open(const struct dt_serve_site *s, struct dt_serve_clock **ret, struct dt_err *err)
{
	const int cp = s->cp > 1 ? s->cp : 1, all = s->tp * cp * s->pp, node = s->cluster->gpus_a_node;
	struct dt_serve_clock *c;

	if (s->pp > DT_FLOW_STAGES)
		return dt_err_set(err, -EINVAL, "servers are planned over at most %d stages", DT_FLOW_STAGES);
	if (!(c = calloc(1, sizeof(*c))))
		return dt_err_sys(err, -ENOMEM, "cannot plan a server");
	c->s = *s;
	c->s.cp = cp;
	/* all ranks of a node compute at the same time */
	c->device = dt_device_for(s->cluster, all < node ? all : node, DT_BF16);
	c->layout = (struct dt_layout){.dp = s->ep, .tp = s->tp, .pp = s->pp, .cp = cp, .ep = s->ep};
	c->cache_row = dt_kv_token_bytes(s->config, s->tp, s->cache_bits / 8) / (double)s->config->layers;
	c->rows = calloc((size_t)s->max_rows + 1, sizeof(*c->rows));
	c->span = calloc((size_t)s->max_rows, sizeof(*c->span));
	if (!c->rows || !c->span || count_layers(c) < 0) {
		dt_serve_clock_close(c);
		return dt_err_sys(err, -ENOMEM, "cannot plan a server");
	}
	*ret = c;
	return 0;
}

void dt_serve_clock_close(struct dt_serve_clock *c)
{
	if (!c)
		return;
	for (int i = 0; c->rows && i <= c->s.max_rows; i++)
		free(c->rows[i].attention);
	free(c->rows);
	free(c->span);
	free(c->times);
	free(c);
}

static double node_seconds(const struct dt_serve_clock *c, const struct dt_node_cost *cost)
{
	return cost->message ? dt_message_seconds(c->s.cluster, cost, &c->layout)
			     : dt_node_seconds(&c->device, cost);
}

/* Cost of attention without keys: n rows that see one key each, minus that key. */
static struct attention of_node(const struct dt_serve_clock *c, const struct dt_node_cost *cost, int rows)
{
	struct attention a = {.cost = *cost};

	a.cost.flops /= rows;
	a.cost.read -= rows * c->cache_row;
	return a;
}

/* Sums unit i of the short model: the embedding, one layer of each kind, the final unit. */
static void sum_unit(const struct dt_serve_clock *c, const struct dt_work *w, int i, int n, struct rows *r)
{
	const struct dt_work_unit *u = &w->unit[i];
	const int kind = i - 1;
	double sum = 0;

	for (int k = u->first; k < u->first + u->n; k++) {
		const struct dt_node_cost *cost = &w->node[k].cost;

		if (cost->kind == DT_COST_ATTENTION) {
			struct attention *a = &r->attention[r->nattention++];

			*a = of_node(c, cost, n);
			a->window = dt_layer_window(c->s.config, kind);
			a->kind = kind;
		} else {
			sum += node_seconds(c, cost);
		}
	}
	if (kind == w->layers)
		r->head = sum;
	else if (kind < 0)
		r->body[0] += sum;
	for (int p = 0; kind >= 0 && kind < w->layers && p < c->s.pp; p++)
		r->body[p] += (double)c->times[p * c->kinds + kind] * sum;
}

/* Computes, once, the costs of passes in which a rank has n rows. */
static int work_out(struct dt_serve_clock *c, int n, struct dt_err *err)
{
	const struct dt_work_serving s = {.config = c->s.config,
					  .compute = DT_BF16,
					  .tp = c->s.tp,
					  .ep = c->s.ep,
					  .cp = c->s.cp,
					  .rows = (int64_t)n * c->s.cp,
					  .outputs = n,
					  .context = 1,
					  .weight_bits = c->s.weight_bits,
					  .cache_bits = c->s.cache_bits};
	struct rows *r = &c->rows[n];
	struct dt_work w;
	int rc, nodes = 0;

	if (r->attention)
		return 0;
	rc = dt_work_open_serving(&s, &w, err);
	if (rc < 0)
		return rc;
	for (int64_t i = 0; i < w.layers + 2; i++)
		nodes += w.unit[i].n;
	r->attention = calloc((size_t)nodes + 1, sizeof(*r->attention));
	if (!r->attention)
		rc = dt_err_sys(err, -ENOMEM, "cannot plan a server");
	for (int i = 0; rc == 0 && i < w.layers + 2; i++)
		sum_unit(c, &w, i, n, r);
	dt_work_release(&w);
	return rc;
}

/*
 * Total number of keys that rows [first, first + n) of a sequence see; adds to *ret_read the distinct ones.
 */
static double pairs(const struct dt_serve_span *s, int64_t window, double *ret_read)
{
	double end = (double)s->first + s->n, w = window > 0 ? (double)window : end, sum;
	double below = fmax(0, fmin(end, w) - s->first); /* rows that see all keys before them */

	sum = below * s->first + below * (below + 1) / 2 + (s->n - below) * w;
	*ret_read += fmin(end, w + s->n - 1);
	return sum;
}

/* Seconds of attention in one layer. */
static double attention_seconds(const struct dt_serve_clock *c, const struct attention *a,
				const struct dt_serve_span *span, int n)
{
	struct dt_node_cost cost = a->cost;
	double sum = 0, read = 0;

	for (int i = 0; i < n; i++)
		sum += pairs(&span[i], a->window, &read);
	cost.flops *= sum;
	cost.read += read * c->cache_row;
	return dt_node_seconds(&c->device, &cost);
}

/*
 * Copies rows [row, end) to c->span; returns the number of spans. *ret_heads: sequences whose last row is
 * included, which needs logits.
 */
static int cut(struct dt_serve_clock *c, const struct dt_serve_span *span, int n, int row, int end,
	       int *ret_heads)
{
	int at = 0, k = 0;

	*ret_heads = 0;
	for (int i = 0; i < n; at += span[i++].n) {
		const int from = row > at ? row : at, to = end < at + span[i].n ? end : at + span[i].n;

		if (from >= to)
			continue;
		c->span[k++] = (struct dt_serve_span){span[i].first + from - at, to - from};
		*ret_heads += to == at + span[i].n;
	}
	return k;
}

/* Costs of rows [row, end) on one rank of each stage; raises stage_s to the slowest rank's seconds. */
static int rank_part(struct dt_serve_clock *c, const struct dt_serve_span *span, int n, int row, int end,
		     double *stage_s, struct dt_err *err)
{
	int heads, k = cut(c, span, n, row, end, &heads), rc = work_out(c, end - row, err);
	const struct rows *r = &c->rows[end - row];

	if (rc == 0 && heads > 0)
		rc = work_out(c, heads, err);
	for (int p = 0; p < c->s.pp && rc == 0; p++) {
		double sum = r->body[p];

		for (int i = 0; i < r->nattention; i++) {
			const struct attention *a = &r->attention[i];
			const double times = (double)c->times[p * c->kinds + a->kind];

			sum += times > 0 ? times * attention_seconds(c, a, c->span, k) : 0;
		}
		if (p == c->s.pp - 1 && heads > 0)
			sum += c->rows[heads].head;
		stage_s[p] = fmax(stage_s[p], sum);
	}
	return rc;
}

/* Costs of rows [row, end) on all ranks of cp. */
static int part(struct dt_serve_clock *c, const struct dt_serve_span *span, int n, int row, int end,
		double *stage_s, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < c->s.cp && rc == 0; i++) {
		const int from = dt_infer_row_at(end - row, i, c->s.cp),
			  to = dt_infer_row_at(end - row, i + 1, c->s.cp);

		if (to > from)
			rc = rank_part(c, span, n, row + from, row + to, stage_s, err);
	}
	return rc;
}

int dt_serve_clock_pass(struct dt_serve_clock *c, const struct dt_serve_span *span, int n,
			struct dt_flow *ret, struct dt_err *err)
{
	int64_t rows = 0;
	int rc = 0;

	for (int i = 0; i < n; i++)
		rows += span[i].n;
	if (n < 1 || rows > c->s.max_rows)
		return dt_err_set(err, -EINVAL, "a pass of %lld rows was asked for, %d were planned",
				  (long long)rows, c->s.max_rows);
	ret->stages = c->s.pp;
	ret->parts = c->s.cluster->cores ? dt_infer_parts((int)rows, 0, c->s.pp) : 1;
	memset(ret->part_s, 0,
	       (size_t)ret->parts * sizeof(*ret->part_s)); /* not of the 32 that it may have */
	memset(ret->send_s, 0, (size_t)ret->parts * sizeof(*ret->send_s));
	for (int i = 0; i < ret->parts && rc == 0; i++) {
		const int row = dt_infer_part_at((int)rows, i, ret->parts),
			  end = dt_infer_part_at((int)rows, i + 1, ret->parts);

		rc = part(c, span, n, row, end, ret->part_s[i], err);
		if (c->s.pp > 1)
			ret->send_s[i] =
				dt_message_time(c->s.cluster, (end - row) * (double)c->s.config->hidden * 2,
						c->s.tp * c->s.cp);
	}
	return rc;
}

double dt_serve_clock_move(const struct dt_serve_clock *c, int n)
{
	return dt_message_time(c->s.cluster, n * dt_kv_token_bytes(c->s.config, 1, c->s.cache_bits / 8),
			       c->s.cluster->gpus_a_node);
}
/* SPDX-License-Identifier: Apache-2.0 */
