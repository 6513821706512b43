/*
 * Communication of a step along dp: gradients, gathered weights, merged weights, and the exposed part of it.
 */
#include "plan/stepcost.h"

#include "plan/outer.h"

#include <math.h>
#include <stdlib.h>

/* Bytes that an all-reduce of gradients sends, relative to fp32 in a ring. */
static double wire_share(const struct dt_run *s, int ranks)
{
	const struct dt_compress_opts *o = &s->compress.o;
	struct dt_compress_part *part = NULL;
	struct dt_params table = {0};
	struct dt_local local = {0};
	double r = s->grad_comm == DT_BF16 ? 0.5 : 1;

	if (!dt_run_compresses(s))
		return r;
	if (dt_model_params(s->config, &table, NULL) == 0 &&
	    dt_local_build(&table, s->config, &s->layout, (struct dt_coords){0}, &local, NULL) == 0 &&
	    (part = malloc(((size_t)local.n + 1) * sizeof(*part)))) {
		int n = dt_compress_parts(o, &table, &local, part);

		r = dt_compress_wire(o, part, n, ranks) /
		    (2.0 * (ranks - 1) / ranks * 4 * (double)local.trained);
	}
	free(part);
	dt_local_release(&local);
	dt_params_release(&table);
	return r;
}

/*
 * Time of a collective over ranks with the same parameters, `bytes` an element; with ep experts have fewer
 * copies.
 */
static double among_copies(const struct dt_step_model *m, enum dt_collective what, double params,
			   double experts, double bytes)
{
	const struct dt_layout *l = &m->s->layout;
	const int n = dt_layout_data(l), few = n / l->ep;

	return dt_collective_time(m->c, what, (params - experts) * bytes, n, l->tp) +
	       (few > 1 && experts > 0 ? dt_collective_time(m->c, what, experts * bytes, few, l->tp * l->ep)
				       : 0);
}

static int64_t fragments(const struct dt_run_sync *s)
{
	return s->fragments > 1 ? s->fragments : 1;
}

/* Time to copy a GPU's f32 values to its host, which encodes them, and back. */
static double host_time(const struct dt_step_model *m, double params)
{
	return m->c->cores || !(m->c->device.host_bw > 0) ? 0 : 2 * 4 * params / m->c->device.host_bw;
}

/* Time per step of diloco's outer gradients; 4-bit values are gathered, not summed. */
static double outer_time(const struct dt_step_model *m, double params, int n)
{
	const struct dt_run_sync *s = &m->s->sync;
	const bool gathers = s->comm == DT_OUTER_E3M0;
	const double each = ceil(params / (double)fragments(s)),
		     bytes = (double)dt_outer_bytes(s, (int64_t)each);

	return (gathers && n > 1 ? host_time(m, params) / (double)s->every : 0) +
	       (gathers ? dt_collective_time(m->c, DT_COLL_ALL_GATHER, bytes * n, n, m->s->layout.tp)
			: 2 * dt_collective_time(m->c, DT_COLL_REDUCE_SCATTER, bytes, n, m->s->layout.tp)) *
		       (double)fragments(s) / (double)s->every;
}

void dt_step_dp(const struct dt_step_model *m, double most, double experts, double part, double backward,
		struct dt_step_time *r)
{
	const struct dt_run *s = m->s;
	const struct dt_layout *l = &s->layout;
	const int n = dt_layout_data(l);
	const double acc = (double)(s->accumulation > 0 ? s->accumulation : 1), w = dt_dtype_size(s->compute),
		     gather = among_copies(m, DT_COLL_ALL_GATHER, most, experts, w),
		     once = among_copies(m, DT_COLL_REDUCE_SCATTER, part * most, part * experts,
					 m->stack->grad_bytes * wire_share(s, n));
	double moved;

	if (s->sync.kind == DT_SYNC_GOSSIP) /* fp32 weights to each neighbour */
		r->dp = fmin(2, n - 1) * dt_message_time(m->c, part * most * 4, l->tp);
	else if (s->sync.kind == DT_SYNC_DILOCO)
		r->dp = outer_time(m, part * most, n);
	else if (l->zero == 0) /* periodically merged weights have as many bytes as gradients */
		r->dp = 2 * once / (s->sync.kind ? (double)s->sync.every : 1) +
			(dt_run_compresses(s) ? host_time(m, part * most) : 0);
	else if (dt_run_served(s)) /* a gradient to the servers and weights back; GPUs use host memory */
		r->dp = once + among_copies(m, DT_COLL_ALL_GATHER, part * most, part * experts, w) +
			host_time(m, part * most) * (4 + w) / 8;
	else if (!dt_run_cuts_weights(s))
		r->dp = (l->zero == 1 ? 1 : acc) * once +
			among_copies(m, DT_COLL_ALL_GATHER, part * most, part * experts, w);
	else
		r->dp = (l->zero == 1 ? 1 : acc) * once + acc * 2 * gather;
	/* A microbatch's communication overlaps its own computation. */
	moved = m->stack->dp_hidden && !m->c->cores && !s->sync.kind && !dt_run_compresses(s)
			? backward * (l->zero >= 2 ? acc * (l->zero == 3 ? 1.5 : 1) : 1)
			: 0;
	r->dp_exposed = fmax(r->dp - moved, r->dp * 0.05);
	if (s->sync.kind == DT_SYNC_DILOCO) /* fragments may arrive `delay` steps later */
		r->dp_exposed = fmax(0, r->dp - (double)(s->sync.delay * fragments(&s->sync)) /
							(double)s->sync.every * acc * 1.5 * backward);
}
/* SPDX-License-Identifier: Apache-2.0 */
