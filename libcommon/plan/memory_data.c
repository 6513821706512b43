/* Input buffers of a step: tokens or images of each microbatch in flight, and tables. */
#include "plan/memory_priv.h"

#include "kernels/class_loss.h"
#include "plan/context.h"

/* Adds images and classes of every microbatch in flight, and the state of batch norms. */
static void put_images(struct dt_plan_builder *b, const struct dt_run *r)
{
	const struct dt_config *c = r->config;
	const struct dt_memory_plan *p = b->plan;
	const int64_t n = r->microbatch, buffers = dt_params_total(&p->stage.graph.buffers);
	static const struct {
		enum dt_buf_id id;
		enum dt_dtype dtype;
		const char *name;
	} row[] = {{DT_B_TARGETS, DT_I32, "classes"},
		   {DT_B_OTHERS, DT_I32, "second classes"},
		   {DT_B_SHARE, DT_F32, "first classes' weights"}};

	for (int i = 0; i < p->flight0[1]; i++) {
		dt_plan_flat(b, DT_B_PIXELS, DT_MEM_DATA, DT_F32,
			     n * c->channels * c->image_size * c->image_size, DT_PH_FORWARD, DT_PH_STEP, i,
			     "pixels", "images x channels x height x width");
		for (int k = 0; k < 3; k++)
			dt_plan_flat(b, row[k].id, DT_MEM_DATA, row[k].dtype, n, DT_PH_FORWARD, DT_PH_STEP, i,
				     row[k].name, "images");
	}
	dt_plan_flat(b, DT_B_BUFFERS, DT_MEM_WEIGHTS, DT_F32, buffers, DT_PH_FORWARD, DT_PH_STEP, -1,
		     "running statistics", "2 x channels of all batch norms");
	dt_plan_flat(b, DT_B_BUFFER_SUMS, DT_MEM_WORKSPACE, DT_F32, buffers, DT_PH_FORWARD, DT_PH_STEP, -1,
		     "statistics of the step", "2 x channels of all batch norms");
}

/* Adds texts with labels of every microbatch in flight: a class or a score of each. */
static void put_labels(struct dt_plan_builder *b, const struct dt_run *r)
{
	const int64_t n = r->microbatch, t = n * r->seq;
	const bool scores = r->config->label_loss != DT_CLASS_LOSS_CE;

	for (int i = 0; i < b->plan->flight0[1]; i++) {
		dt_plan_flat(b, DT_B_IDS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, i, "ids",
			     "tokens");
		dt_plan_flat(b, DT_B_FIRST, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, i,
			     "ends of padding", "tokens");
		if (dt_config_has_types(r->config))
			dt_plan_flat(b, DT_B_TYPES, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, i,
				     "token types", "tokens");
		dt_plan_flat(b, DT_B_TARGETS, DT_MEM_DATA, DT_I32, n, DT_PH_FORWARD, DT_PH_STEP, i, "classes",
			     "texts");
		if (scores)
			dt_plan_flat(b, DT_B_SHARE, DT_MEM_DATA, DT_F32, n, DT_PH_FORWARD, DT_PH_STEP, i,
				     "scores", "texts");
	}
	dt_plan_flat(b, DT_B_POS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, -1, "positions",
		     "tokens");
}

/* Adds tokens of every microbatch in flight, and shared tables. */
static void put_tokens(struct dt_plan_builder *b, const struct dt_run *r, struct dt_coords at)
{
	const struct dt_config *c = r->config;
	const struct dt_memory_plan *p = b->plan;
	int64_t t = r->microbatch * dt_run_local_seq(r), angles = r->seq * dt_rope_dim(c),
		top_k = r->teacher.top_k;
	const struct dt_params *g = &p->stage.graph.params;
	bool first = at.pp == 0, last = at.pp == r->layout.pp - 1;

	for (int k = 0; k < p->stage.nchunk; k++)
		for (int i = p->flight0[k]; i < p->flight0[k + 1]; i++) {
			if (dt_run_apart(r)) {
				dt_plan_flat(b, DT_B_DOC_POS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD,
					     DT_PH_STEP, i, "positions in documents", "tokens");
				dt_plan_flat(b, DT_B_FIRST, DT_MEM_DATA, DT_I32, dt_context_firsts(r),
					     DT_PH_FORWARD, DT_PH_STEP, i, "first tokens of documents",
					     "tokens");
			}
			if (!(first && k == 0) && !(last && k == p->stage.nchunk - 1))
				continue;
			dt_plan_flat(b, DT_B_IDS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, i, "ids",
				     "tokens");
			dt_plan_flat(b, DT_B_TARGETS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, i,
				     "targets", "tokens");
			if (c->mtp_layers && last && k == p->stage.nchunk - 1) {
				dt_plan_flat(b, DT_B_IDS_AHEAD, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD,
					     DT_PH_STEP, i, "ids ahead", "tokens");
				dt_plan_flat(b, DT_B_TARGETS_AHEAD, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD,
					     DT_PH_STEP, i, "targets ahead", "tokens");
			}
			if (!top_k || !last || k != p->stage.nchunk - 1)
				continue;
			dt_plan_flat(b, DT_B_TEACHER, DT_MEM_DATA, DT_I32, t * top_k, DT_PH_FORWARD,
				     DT_PH_STEP, i, "teacher's columns", "tokens x top_k");
			dt_plan_flat(b, DT_B_TEACHER_P, DT_MEM_DATA, DT_F32, t * (top_k + 1), DT_PH_FORWARD,
				     DT_PH_STEP, i, "teacher's probabilities", "tokens x (top_k + 1)");
		}
	dt_plan_flat(b, DT_B_POS, DT_MEM_DATA, DT_I32, t, DT_PH_FORWARD, DT_PH_STEP, -1, "positions",
		     "tokens");
	if (c->experts)
		dt_plan_flat(b, DT_B_EXPERTS, DT_MEM_DATA, DT_F64, dt_experts_room(c), DT_PH_FORWARD,
			     DT_PH_STEP, -1, "experts' choices and biases", "blocks x experts");
	if (c->pos == DT_POS_ROPE)
		dt_plan_flat(b, DT_B_ROPE, DT_MEM_WORKSPACE, DT_F32, angles, DT_PH_FORWARD, DT_PH_STEP, -1,
			     "rope table", "seq x rotated part of head_dim");
	if (c->rope_local_theta > 0)
		dt_plan_flat(b, DT_B_ROPE_LOCAL, DT_MEM_WORKSPACE, DT_F32, angles, DT_PH_FORWARD, DT_PH_STEP,
			     -1, "local rope table", "seq x head_dim");
	if (dt_config_shares_embed(c) && r->layout.pp > 1 && (first || last) &&
	    !g->p[dt_params_find(g, "embed.weight")].frozen) {
		const int64_t *table = p->stage.shape[p->stage.local_of[dt_params_find(g, "embed.weight")]];

		dt_plan_flat(b, DT_B_TIED, DT_MEM_COMM, r->reproducible ? DT_I64 : DT_F32,
			     table[0] * table[1], DT_PH_STEP, DT_PH_STEP, -1,
			     "tied embedding's other gradient", "vocab x hidden, in the type of the sums");
	}
}

void dt_plan_data_buffers(struct dt_plan_builder *b, struct dt_coords at)
{
	if (dt_config_is_image(b->r->config))
		put_images(b, b->r);
	else if (dt_config_has_labels(b->r->config))
		put_labels(b, b->r);
	else
		put_tokens(b, b->r, at);
}
/* SPDX-License-Identifier: Apache-2.0 */
