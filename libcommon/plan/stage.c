#include "plan/stage.h"

#include "plan/context.h"

#include "kernels/fp8.h"
#include "model/flops.h"
#include "model/fold.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct maker {
	const struct dt_run *r;
	struct dt_coords at;
	const struct dt_stage *stage;
	int first_layer; /* of the current chunk */
	int before;	 /* layers in earlier chunks of the stage */
	int64_t outputs; /* > 0: serving */
	int64_t adapters;
};

static int local(const void *arg, int param, int64_t shape[2], int64_t off[2])
{
	const struct dt_stage *p = ((const struct maker *)arg)->stage;
	int i = p->local_of[param];

	if (i < 0)
		return -1;
	memcpy(shape, p->local.p[i].shape, 2 * sizeof(*shape));
	memcpy(off, p->local.p[i].off, 2 * sizeof(*off));
	return i;
}

/*
 * What is kept for backward. Selective recomputation recomputes norms and activations; full recomputation
 * recomputes a layer from the sum that its residual stream starts with; every:N starts only from every N-th
 * layer's. The block of a module for a further token, in the last unit, is kept as a layer is: all with auto,
 * and else recomputed from what it joins.
 */
static bool keep(const void *arg, const struct dt_node *n, int out, int unit)
{
	const struct maker *m = arg;
	const struct dt_keep *k = &m->r->recompute;
	int number = unit - m->first_layer;
	bool entry = n->entry && out == (n->op == DT_OP_NORM);

	if (unit < 0 || (unit >= m->stage->graph.layers && (!n->ahead || k->fit)))
		return true;
	if (k->fit)
		return entry || dt_keep_has(k, m->before + number, n->op, n->name, out);
	switch (k->mode) {
	case DT_RECOMPUTE_NONE:
		return true;
	case DT_RECOMPUTE_SELECTIVE:
		if (n->op == DT_OP_LINEAR_ACT)
			return out == 0;
		return out != 0 || !(dt_node_op_flags(n->op) & DT_OPF_CHEAP);
	case DT_RECOMPUTE_FULL:
		break;
	}
	return n->ahead ? n->op == DT_OP_JOIN : entry && dt_keep_set(*k, number) == 0;
}

/* A linear is computed in 8 bits if its sizes are multiples of 16 on every tensor-parallel rank. */
static bool in_8_bits(const void *arg, const struct dt_node *n)
{
	const struct maker *m = arg;
	const struct dt_graph *g = &m->stage->graph;
	int tp = m->r->layout.tp;

	if (n->unit < 0 || (n->unit >= g->layers && !n->ahead))
		return false;
	/* the first and the last rank have different shares */
	for (int r = 0; r<tp; r += tp> 1 ? tp - 1 : 1) {
		int64_t out = 0, in = 0, off[2], shape[2];

		for (int i = 0; i < 3 && n->param[i] >= 0; i++) {
			dt_param_cut(&g->params.p[n->param[i]], tp, r, off, shape);
			out += shape[0];
			in = shape[1];
		}
		if (!dt_fp8_fits(m->r->microbatch * dt_run_local_seq(m->r), in, out))
			return false;
	}
	return true;
}

static int build_chunk(struct maker *m, struct dt_stage *p, int k, struct dt_err *err)
{
	const struct dt_run *s = m->r;
	const struct dt_layout *l = &s->layout;
	int v = k * l->pp + m->at.pp, first, last, stages = l->pp * p->nchunk;
	struct dt_prog_spec spec;
	int rc;

	dt_layout_stage(l, s->config, v, &first, &last);
	m->first_layer = first;
	spec = (struct dt_prog_spec){.c = s->config,
				     .graph = &p->graph,
				     .first_unit = v == 0 ? -1 : first,
				     .last_unit = v == stages - 1 ? p->graph.layers : last - 1,
				     .microbatch = s->microbatch,
				     .seq = s->seq,
				     .compute = s->compute,
				     .tp = l->tp,
				     .tp_rank = m->at.tp,
				     .seq_parallel = l->seq_parallel && l->tp > 1,
				     .backward = m->outputs == 0,
				     .outputs = m->outputs,
				     .adapters = m->adapters,
				     .split = p->split,
				     .ep = l->ep,
				     .ep_rank = dt_coords_data(l, m->at) % l->ep,
				     .overlap = !s->mixture.in_turn,
				     .stream_overlap = dt_run_overlaps_stream(s),
				     .cp = l->cp,
				     .cp_comm = dt_context_comm(s),
				     .capacity = s->mixture.capacity,
				     .loss_chunk = p->loss_chunk,
				     .teacher = s->teacher.top_k > 0,
				     .bn_groups = dt_run_bn_groups(s),
				     .local = local,
				     .local_arg = m,
				     .keep = keep,
				     .keep_arg = m,
				     .in_8_bits = s->fp8 ? in_8_bits : NULL,
				     .fp8_arg = m};
	rc = dt_prog_build(&spec, &p->chunk[k], err);
	m->before += last - first;
	return rc;
}

static int index_params(struct dt_stage *p, struct dt_err *err)
{
	p->local_of = malloc(((size_t)p->graph.params.n + 1) * sizeof(*p->local_of));
	p->shape = malloc(((size_t)p->local.n + 1) * sizeof(*p->shape));
	if (!p->local_of || !p->shape)
		return dt_err_sys(err, -ENOMEM, "cannot derive the program");
	for (int i = 0; i < p->graph.params.n; i++)
		p->local_of[i] = -1;
	for (int i = 0; i < p->local.n; i++) {
		p->local_of[p->local.p[i].index] = i;
		memcpy(p->shape[i], p->local.p[i].shape, sizeof(*p->shape));
	}
	return 0;
}

/*
 * The default rows of logits at a time. Each chunk reads and writes the head's gradient: on an H200, GPT-2's
 * product takes 145 us for 512 rows and 405 for 4096. With few tokens, that many rows would dominate memory.
 */
static int64_t loss_chunk(const struct dt_run *r, int64_t tokens)
{
	int64_t n = tokens / 64 * 8;

	n = n < 512 ? 512 : n > 4096 ? 4096 : n;
	if (r->loss_chunk > 0)
		n = r->loss_chunk;
	return n < tokens ? n : tokens;
}

int dt_stage_build(const struct dt_run *r, struct dt_coords at, struct dt_stage *ret, struct dt_err *err)
{
	struct dt_stage p = {.nchunk = dt_layout_chunks(&r->layout), .cp_rank = at.cp};
	struct maker m = {.r = r, .at = at, .stage = &p};
	int64_t tokens = r->microbatch * dt_run_local_seq(r);
	int rc = dt_graph_build(r->config, &p.graph, err);

	p.split = r->layout.pp > 1 && (r->schedule ? r->schedule->split : r->pipeline == DT_PIPE_ZB_H1);
	p.loss_chunk = loss_chunk(r, tokens);
	if (rc == 0)
		rc = dt_local_build(&p.graph.params, r->config, &r->layout, at, &p.local, err);
	if (rc == 0)
		rc = index_params(&p, err);
	for (int k = 0; k < p.nchunk && rc == 0; k++)
		rc = build_chunk(&m, &p, k, err);
	if (rc < 0)
		dt_stage_release(&p);
	else
		*ret = p;
	return rc;
}

int dt_serving_check(const struct dt_config *c, const struct dt_layout *l, struct dt_err *err)
{
	char text[64];

	dt_layout_format(l, text, sizeof(text));
	if (l->zero || l->chunks > 1 || l->seq_parallel)
		return dt_err_set(
			err, -ENOTSUP,
			"layout '%s': a server's ranks are laid out over dp, tp, pp, cp and ep only", text);
	if (c->ssm_heads && dt_layout_world(l) > 1)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' has layers of Mamba-2, which are not served over several ranks",
				  c->name);
	return dt_layout_check(l, c, err);
}

int dt_stage_build_serving(const struct dt_serving *s, struct dt_stage *ret, struct dt_err *err)
{
	const struct dt_run r = {.config = s->config,
				 .layout = s->layout,
				 .microbatch = 1,
				 .seq = (s->rows + s->layout.cp - 1) / s->layout.cp * s->layout.cp,
				 .cp_comm = DT_CP_GATHER,
				 .compute = s->compute};
	struct dt_stage p = {.nchunk = 1};
	struct maker m = {.r = &r, .at = s->at, .stage = &p, .outputs = s->outputs, .adapters = s->adapters};
	int rc = dt_graph_build(s->config, &p.graph, err);

	if (rc == 0 && s->fold)
		rc = dt_graph_fold(&p.graph, err);
	if (rc == 0)
		rc = dt_local_build(&p.graph.params, s->config, &r.layout, m.at, &p.local, err);
	if (rc == 0)
		rc = index_params(&p, err);
	if (rc == 0)
		rc = build_chunk(&m, &p, 0, err);
	if (rc < 0)
		dt_stage_release(&p);
	else
		*ret = p;
	return rc;
}

void dt_stage_release(struct dt_stage *p)
{
	for (int k = 0; k < p->nchunk; k++)
		dt_prog_release(&p->chunk[k]);
	free(p->local_of);
	free(p->shape);
	dt_local_release(&p->local);
	dt_graph_release(&p->graph);
	memset(p, 0, sizeof(*p));
}

struct dt_cost_site dt_stage_site(const struct dt_stage *p, const struct dt_run *r, int k)
{
	const int cp = r->layout.cp;
	const int64_t second = r->seq / (2 * cp); /* start of the rank's second chunk within its tokens */

	return (struct dt_cost_site){
		.p = &p->chunk[k],
		.seq = r->seq,
		.chunk = {dt_zigzag(r->seq, cp, p->cp_rank, 0), dt_zigzag(r->seq, cp, p->cp_rank, second)},
		.tp = r->layout.tp,
		.cp = r->layout.cp,
		.ep = r->layout.ep,
		.compute = r->compute,
		.loss_chunk = p->loss_chunk,
		.targets = r->config->encoder ? r->microbatch * dt_run_masked(r) : 0,
		.picks = r->scratch.threads > 0,
		.param = (const int64_t(*)[2])p->shape};
}

int dt_stage_count_8_bits(const struct dt_run *r, int *ret, struct dt_err *err)
{
	struct dt_stage p = {0};
	const struct maker m = {.r = r, .stage = &p};
	struct dt_config few;
	int rc;

	dt_config_short(r->config, &few);
	rc = dt_graph_build(&few, &p.graph, err);
	if (rc < 0)
		return rc;
	*ret = 0;
	for (int i = 0; i < p.graph.nnode; i++)
		*ret += p.graph.node[i].op == DT_OP_LINEAR && in_8_bits(&m, &p.graph.node[i]);
	dt_graph_release(&p.graph);
	return 0;
}

const char *dt_stage_8_bits(const struct dt_stage *p, bool used, char *buf, int *ret_n)
{
	const char *name[8];
	int n = 0, at = 0;

	buf[0] = '\0';
	for (int k = 0; k < p->nchunk; k++)
		for (int i = 0; i < p->chunk[k].start[DT_LIST_LOSS]; i++) {
			const struct dt_node *s = &p->chunk[k].step[i].n;
			bool known = false;

			if (s->unit < 0 || (used ? s->op != DT_OP_LINEAR8
						 : s->op != DT_OP_LINEAR && s->op != DT_OP_LINEAR_ACT))
				continue;
			for (int j = 0; j < n && !known; j++)
				known = !strcmp(name[j], s->name);
			if (!known && n < 8)
				name[n++] = s->name;
		}
	for (int i = 0; i < n; i++)
		at += snprintf(buf + at, (size_t)(64 - at), "%s%s", name[i],
			       i + 2 < n    ? ", "
			       : i + 2 == n ? " and "
					    : "");
	*ret_n = n;
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
