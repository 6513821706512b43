/* Memory of a rank that classifies images (nn/classify.c, serve/engine/classify.c). */
#include "plan/entries.h"
#include "plan/memory.h"

#include <errno.h>

static int check(const struct dt_serve_shape *s, struct dt_err *err)
{
	const struct dt_layout *l = &s->layout;

	if (l->tp > 1 || l->pp > 1 || l->cp > 1 || l->ep > 1 || l->zero)
		return dt_err_set(
			err, -ENOTSUP,
			"an image classifier is served over dp only: each rank holds the whole model");
	if (s->weights != DT_WF_F32 && s->weights != DT_WF_BF16)
		return dt_err_set(err, -ENOTSUP, "an image classifier is served in fp32 or bf16");
	if (s->loras || s->weights_memory)
		return dt_err_set(err, -ENOTSUP, "an image classifier has no %s",
				  s->loras ? "adapters" : "weights on disk");
	if (s->scratch.threads)
		return dt_err_set(
			err, -ENOTSUP,
			"the scratch memory of a server of images is not counted: --threads cannot be "
			"used");
	return 0;
}

static void put(struct dt_estimate *t, int cat, double bytes, const char *name, const char *formula)
{
	struct dt_entry *e = dt_entry_put(t, cat, bytes, DT_PH_FORWARD, DT_PH_FORWARD, name, formula);

	if (e)
		e->exactness = DT_EXACT;
}

int dt_estimate_images(const struct dt_serve_shape *s, struct dt_estimate *t, struct dt_err *err)
{
	const struct dt_config *c = s->config;
	const enum dt_dtype type = s->weights == DT_WF_F32 ? DT_F32 : DT_BF16;
	const struct dt_serving serving = {.config = c,
					   .compute = type,
					   .rows = s->max_seqs,
					   .outputs = s->max_seqs,
					   .fold = true,
					   .layout = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1}};
	const double batch = (double)s->max_seqs,
		     pixels = (double)(c->channels * c->image_size * c->image_size),
		     lanes = dt_layout_world(&s->layout);
	struct dt_memory_plan work;
	int rc = check(s, err);

	if (rc == 0)
		rc = dt_memory_plan_serving(&serving, 1, &work, err);
	if (rc < 0)
		return rc;
	t->params = dt_params_total(&work.stage.graph.params);
	put(t, DT_MEM_WEIGHTS, (double)work.stage.local.numel * dt_dtype_size(type), "weights",
	    "padded parameters x bytes, norms folded");
	put(t, DT_MEM_WEIGHTS, (double)dt_params_total(&work.stage.graph.buffers) * 4, "shifts",
	    "of folded norms, f32");
	for (int i = 0; i < work.n; i++)
		if (work.buf[i].at_peak)
			put(t, DT_MEM_WORKSPACE, (double)work.buf[i].bytes, work.buf[i].name,
			    "images of a pass, at the peak");
	put(t, DT_MEM_WORKSPACE, (double)work.gap_bytes, "gaps between buffers",
	    "left by the placement of buffers");
	put(t, DT_MEM_DATA, lanes * batch * pixels * 4, "pixels",
	    "ranks x images x channels x side x side, f32");
	put(t, DT_MEM_LOGITS, lanes * batch * (double)c->vocab * 4, "logits",
	    "ranks x images x classes, f32");
	dt_memory_plan_release(&work);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
