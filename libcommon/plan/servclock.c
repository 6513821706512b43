#include "plan/servclock.h"

#include "plan/formulas.h"
#include "plan/stepcost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct attention {		  /* nodes of one kind of layer that are alike */
	struct dt_node_cost cost; /* without keys: flops of a pair of query and key */
	int64_t window, times;
};

struct rows {		   /* of passes over so many rows */
	double body, head; /* seconds of all but attention; of the final unit, with logits of every row */
	struct attention *attention;
	int nattention;
};

struct dt_serve_clock {
	struct dt_serve_site s;
	struct dt_device device;
	struct dt_layout layout;
	double cache_row;  /* bytes a key of a layer */
	struct rows *rows; /* [max_rows + 1]; attention NULL: not worked out yet */
};

int dt_serve_clock_open(const struct dt_serve_site *s, struct dt_serve_clock **ret, struct dt_err *err)
{
	struct dt_serve_clock *c = calloc(1, sizeof(*c));

	if (!c || !(c->rows = calloc((size_t)s->max_rows + 1, sizeof(*c->rows)))) {
		free(c);
		return dt_err_sys(err, -ENOMEM, "cannot plan a server");
	}
	c->s = *s;
	c->device = dt_device_for(s->cluster, s->tp, DT_BF16);
	c->layout = (struct dt_layout){.dp = s->ep, .tp = s->tp, .pp = s->pp, .cp = 1, .ep = s->ep};
	c->cache_row = dt_kv_token_bytes(s->config, s->tp, s->cache_bits / 8) / (double)s->config->layers;
	*ret = c;
	return 0;
}

void dt_serve_clock_close(struct dt_serve_clock *c)
{
	for (int i = 0; c && i <= c->s.max_rows; i++)
		free(c->rows[i].attention);
	if (c)
		free(c->rows);
	free(c);
}

static double node_seconds(const struct dt_serve_clock *c, const struct dt_node_cost *cost)
{
	return cost->message ? dt_message_seconds(c->s.cluster, cost, &c->layout)
			     : dt_node_seconds(&c->device, cost);
}

/* Rows that each see one key: what attention costs without its keys is what is left without that one. */
static struct attention of_node(const struct dt_serve_clock *c, const struct dt_node_cost *cost, int rows)
{
	struct attention a = {.cost = *cost};

	a.cost.flops /= rows;
	a.cost.read -= rows * c->cache_row;
	return a;
}

static void sum_unit(const struct dt_serve_clock *c, const struct dt_work *w, int i, int n, struct rows *r)
{
	const struct dt_work_unit *u = &w->unit[i];
	const bool head = i == w->layers + 1;
	const int64_t times = i == 0 || head ? 1 : dt_work_times(w, i - 1);

	for (int k = u->first; k < u->first + u->n; k++) {
		const struct dt_node_cost *cost = &w->node[k].cost;
		double *sum = head ? &r->head : &r->body;

		if (cost->kind == DT_COST_ATTENTION) {
			struct attention *a = &r->attention[r->nattention++];

			*a = of_node(c, cost, n);
			a->window = dt_layer_window(c->s.config, i - 1);
			a->times = times;
		} else {
			*sum += (double)times * node_seconds(c, cost);
		}
	}
}

/* What passes over n rows take, once. */
static int work_out(struct dt_serve_clock *c, int n, struct dt_err *err)
{
	const struct dt_work_serving s = {.config = c->s.config,
					  .compute = DT_BF16,
					  .tp = c->s.tp,
					  .ep = c->s.ep,
					  .rows = n,
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

/* Keys that rows [first, first + n) of a sequence see together; *ret_read: those of them that are read. */
static double pairs(const struct dt_serve_span *s, int64_t window, double *ret_read)
{
	double end = (double)s->first + s->n, w = window > 0 ? (double)window : end, sum;
	double below = fmax(0, fmin(end, w) - s->first); /* rows that see all before them */

	sum = below * s->first + below * (below + 1) / 2 + (s->n - below) * w;
	*ret_read += fmin(end, w + s->n - 1);
	return sum;
}

static double attention_seconds(const struct dt_serve_clock *c, const struct attention *a,
				const struct dt_serve_span *span, int n)
{
	struct dt_node_cost cost = a->cost;
	double sum = 0, read = 0;

	for (int i = 0; i < n; i++)
		sum += pairs(&span[i], a->window, &read);
	cost.flops *= sum;
	cost.read += read * c->cache_row;
	return (double)a->times * dt_node_seconds(&c->device, &cost);
}

double dt_serve_clock_pass(struct dt_serve_clock *c, const struct dt_serve_span *span, int n,
			   struct dt_err *err)
{
	const struct rows *r;
	double sum;
	int64_t rows = 0;
	int rc;

	for (int i = 0; i < n; i++)
		rows += span[i].n;
	if (n < 1 || rows > c->s.max_rows)
		return dt_err_set(err, -EINVAL, "a pass of %lld rows was asked for, %d were planned",
				  (long long)rows, c->s.max_rows);
	rc = work_out(c, (int)rows, err);
	if (rc == 0)
		rc = work_out(c, n, err);
	if (rc < 0)
		return rc;
	r = &c->rows[rows];
	sum = r->body + c->rows[n].head;
	for (int i = 0; i < r->nattention; i++)
		sum += attention_seconds(c, &r->attention[i], span, n);
	return sum + (c->s.pp - 1) * dt_message_time(c->s.cluster,
						     (double)rows * (double)c->s.config->hidden * 2, c->s.tp);
}

double dt_serve_clock_move(const struct dt_serve_clock *c, int n)
{
	return dt_message_time(c->s.cluster, n * dt_kv_token_bytes(c->s.config, 1, c->s.cache_bits / 8),
			       c->s.cluster->gpus_a_node);
}
/* SPDX-License-Identifier: Apache-2.0 */
