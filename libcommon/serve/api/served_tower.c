/* The tower of vision of a model that reads images. */
#include "serve/api/served_engine.h"

#include "nn/see.h"

#include <errno.h>

/* Images are read by one process on the CPU, and a tower is not in blocks of the cache that others have. */
int served_check_tower(const struct dt_served_params *p, const struct dt_config *c, struct dt_err *err)
{
	const char *what = p->draft_model || p->draft || p->mtp ? "drafts"
			   : p->kv_host || p->kv_dir		? "--kv-host and --kv-disk"
			   : p->named				? "--role"
			   : p->trace				? "--trace"
			   : p->lora_rank || p->merged		? "adapters"
			   : p->weights_memory			? "weights on disk"
			   : p->world				? "several ranks"
								: NULL;

	return what ? dt_err_set(err, -ENOTSUP, "'%s' reads images, and is not served with %s", c->name, what)
		    : 0;
}

int served_open_tower(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(s->src);
	struct dt_source *tower = NULL;
	int rc;

	if (!c->tower.hidden || !p->images)
		return 0;
	if (!dt_dev_is_host(s->dev))
		return dt_err_set(err, -ENOTSUP, "'%s' reads images, and is not served on a GPU", c->name);
	s->vision = *dt_source_vision(s->src);
	rc = dt_source_open_tower(p->ckpt, &tower, err);
	if (rc == 0)
		rc = dt_see_open(&s->tower, s->dev, tower, &s->vision, p->fp32 ? DT_F32 : DT_BF16, err);
	dt_source_close(tower);
	return rc;
}

static int see(void *tower, const uint8_t *pixels, void *rows, struct dt_err *err)
{
	return dt_see_tile(tower, pixels, rows, err);
}

void served_use_tower(struct dt_served *s, const struct dt_served_params *p, const struct dt_config *c,
		      struct dt_engine_params *ep)
{
	ep->model.see = see;
	ep->model.tower = s->tower;
	ep->model.tile_rows = (int)s->vision.rows;
	ep->model.tile_bytes = dt_see_bytes(s->tower);
	ep->vision = &s->vision;
	ep->images = (int)p->images;
	ep->image_token = (int32_t)c->tower.token;
}

void served_add_tower(struct dt_served *s)
{
	const struct dt_infer_memory m = dt_see_memory(s->tower);

	s->memory.weights += m.weights;
	s->memory.work += m.work;
}

void served_tower_scratch(const struct dt_served *s, struct dt_scratch *scratch)
{
	for (int b = 0; b < DT_SCRATCH_N; b++)
		dt_scratch_raise(scratch, (enum dt_scratch_buffer)b, dt_see_reserved(s->tower)->bytes[b]);
}

void served_close_tower(struct dt_served *s)
{
	dt_see_close(s->tower);
}
/* SPDX-License-Identifier: Apache-2.0 */
