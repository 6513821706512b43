/* Memory of the tower of vision of a server that reads images: an encoder beside the model (nn/see.h). */
#include "plan/entries.h"

#include "base/arena.h"
#include "plan/formulas.h"
#include "plan/inferplan.h"
#include "plan/memory.h"

/* The tower as a server of its own: a pass is over the patches of one tile. */
static int shape_of(const struct dt_serve_shape *s, struct dt_config *c, struct dt_serve_shape *ret,
		    struct dt_err *err)
{
	const int rc = dt_config_tower(s->config, c, err);
	const int64_t side = rc < 0 ? 0 : c->tower.side / c->tower.patch;

	*ret = *s;
	ret->config = c;
	ret->weights = s->compute == DT_F32 ? DT_WF_F32 : DT_WF_BF16; /* whatever the model's are */
	ret->weight_bytes = 0;
	ret->stored = NULL;
	ret->max_seqs = ret->block = 1;
	ret->max_len = ret->max_tokens = side * side;
	return rc;
}

/* Bytes of its weights as they are kept. */
static uint64_t weights_of(const struct dt_serve_shape *s, const struct dt_kept_as *kept)
{
	uint64_t plain = 0, packed = 0;

	for (int i = 0; i < kept->n; i++) {
		dt_infer_place(s->config, &kept->part[i], s->compute, &plain);
		packed += dt_infer_packed(s->config, &kept->part[i], kept->format[i]);
	}
	return packed + plain;
}

static void put(struct dt_estimate *t, const struct dt_serve_shape *s, int cat, uint64_t bytes,
		const char *name, const char *formula)
{
	struct dt_entry *e = dt_entry_put(t, cat, (double)bytes, DT_PH_FORWARD, DT_PH_FORWARD, name, formula);

	if (e)
		e->exactness = s->account == DT_ACCOUNT_DT ? DT_EXACT : DT_MODELLED;
}

/* Pixels of a tile as f32 and, for 16-bit types, as these. */
static uint64_t pixels_of(const struct dt_serve_shape *s)
{
	const uint64_t e = s->compute == DT_F32 ? 4 : 6;

	return e * (uint64_t)(s->max_tokens * dt_tower_pixels(&s->config->tower));
}

int dt_put_tower(struct dt_estimate *t, const struct dt_serve_shape *of, struct dt_scratch *least,
		 struct dt_err *err)
{
	struct dt_config c;
	struct dt_serve_shape shape, *s = &shape;
	struct dt_params table = {0};
	struct dt_local local = {0};
	struct dt_kept_as kept = {0};
	struct dt_memory_plan work;
	int rc = shape_of(of, &c, s, err);
	const struct dt_serving serving = {.config = &c,
					   .compute = s->compute,
					   .rows = s->max_tokens,
					   .outputs = 1,
					   .layout = s->layout};

	if (rc == 0)
		rc = dt_model_params(&c, &table, err);
	if (rc == 0)
		rc = dt_local_build(&table, &c, &s->layout, (struct dt_coords){0}, &local, err);
	if (rc == 0)
		rc = dt_kept_as_open(s, &table, &local, &kept, err);
	if (rc == 0)
		rc = dt_memory_plan_serving(&serving, s->max_len, &work, err);
	if (rc == 0) {
		t->params += dt_params_total(&table);
		put(t, s, DT_MEM_WEIGHTS, weights_of(s, &kept), "tower of vision",
		    "matrices as panels, elements x bytes");
		put(t, s, DT_MEM_WORKSPACE, work.arena_bytes + pixels_of(s), "tower's pass over a tile",
		    "patches x columns at the peak, and their pixels");
		dt_scratch_of(s, &serving, &work.stage, &kept, s->compute, least);
		dt_memory_plan_release(&work);
	}
	dt_kept_as_release(&kept);
	dt_local_release(&local);
	dt_params_release(&table);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
